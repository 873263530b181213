"""What embedders have in common: texts become chunks, chunks batches, and the vectors that come back are checked.

A text over the model's limit is embedded in chunks, whose vectors are averaged by their length. A provider adds
`_embed_batch`, which makes one call.
"""

from __future__ import annotations

import abc
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from hippocampus.errors import MalformedReplyError, PermanentProviderError
from hippocampus.providers import embedding_chunks
from hippocampus.providers.calls import gather_bounded
from hippocampus.providers.embedding_chunks import EmbeddingLimits
from hippocampus.providers.protocols import EmbeddingTask
from hippocampus.records import DIMENSIONS_MAX, Vector


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorSpace:
    """What a model's vectors depend on besides the text.

    Attributes:
        dimensions: None for the model's own.
        query_prefix, document_prefix: put before each text; some models are trained with them.
    """

    model: str
    dimensions: int | None = None
    query_prefix: str = ""
    document_prefix: str = ""

    @property
    def name(self) -> str:
        """The name that is stored with each vector: it differs where vectors must not be compared."""
        size = f"@{self.dimensions}" if self.dimensions else ""
        if not (self.query_prefix or self.document_prefix):
            return self.model + size
        prefixes = "\0".join((self.query_prefix, self.document_prefix))
        return f"{self.model}{size}#{hashlib.sha256(prefixes.encode()).hexdigest()[:6]}"

    def prefixed(self, text: str, task: EmbeddingTask) -> str:
        """Return the text as the model gets it."""
        return (self.query_prefix if task == "query" else self.document_prefix) + text


class ChunkedEmbedder(abc.ABC):
    """A `hippocampus.Embedder` by calls of bounded size."""

    def __init__(
        self, space: VectorSpace, limits: EmbeddingLimits, *, concurrency: int, size: int | None = None
    ) -> None:
        #: The dimensions that every vector must have; None until the first ones came back, if nothing said it before.
        self.size = size or space.dimensions
        self._space = space
        self._limits = limits
        self._concurrency = concurrency

    @property
    def model(self) -> str:
        """The name that is stored with each vector."""
        return self._space.name

    async def embed(self, texts: Sequence[str], task: EmbeddingTask) -> list[Vector]:
        """Embed each text, in order; a text over the limit in chunks, averaged by their length.

        Raises:
            PermanentProviderError: a text is blank, so that it has no vector; nothing was sent.
            ProviderError: the whole batch failed; also when vectors are missing or of the wrong length.
        """
        if blank := [number for number, text in enumerate(texts) if not text.strip()]:
            raise PermanentProviderError(
                f"a blank text has no vector: leave out the texts at {blank[:10]}", code="blank"
            )
        chunked = [embedding_chunks.split(sendable(text), self._limits.text_tokens) for text in texts]
        chunks = [chunk for chunks_of_text in chunked for chunk in chunks_of_text]
        makers = [lambda batch=batch: self._embed_checked(batch, task) for batch in self._batches(chunks)]
        embedded = await gather_bounded(makers, concurrency=self._concurrency)
        vectors = iter([vector for batch in embedded for vector in batch])
        return [_joined([next(vectors) for _ in chunks_of_text], chunks_of_text) for chunks_of_text in chunked]

    @abc.abstractmethod
    async def close(self) -> None:
        """Close what is open. Idempotent."""

    @abc.abstractmethod
    async def _embed_batch(self, batch: list[str], task: EmbeddingTask) -> Sequence[Sequence[Any]]:
        """Make one call and return its vectors in the order of the texts, unchecked."""

    async def _embed_checked(self, batch: list[str], task: EmbeddingTask) -> list[Vector]:
        vectors = await self._embed_batch([self._space.prefixed(text, task) for text in batch], task)
        return self._checked(vectors, len(batch))

    def _checked(self, vectors: Sequence[Sequence[Any]], expected: int) -> list[Vector]:
        checked = checked_vectors(vectors, expected, self.size, self._space.model)
        if self.size is None and checked:
            self.size = len(checked[0])
        return checked

    def _batches(self, chunks: Sequence[str]) -> Iterator[list[str]]:
        batch, tokens = list[str](), 0.0
        for chunk in chunks:
            more = embedding_chunks.estimate_tokens(chunk)
            if batch and (len(batch) == self._limits.texts or tokens + more > self._limits.call_tokens):
                yield batch
                batch, tokens = [], 0.0
            batch.append(chunk)
            tokens += more
        if batch:
            yield batch


def sendable(text: str) -> str:
    """Replace lone surrogates: no server accepts them in JSON."""
    return text.encode("utf-8", "replace").decode("utf-8")


def checked_vectors(
    vectors: Sequence[Sequence[Any]], expected: int, dimensions: int | None, model: str
) -> list[Vector]:
    """Return the vectors of one call, L2-normalised.

    Args:
        dimensions: the size of each vector; None: any size, the same for all.

    Raises:
        MalformedReplyError: there are more or fewer than expected, or one has other dimensions or no direction.
    """
    if len(vectors) != expected:
        refuse_vectors(model, f"{len(vectors)} vectors came back for {expected} texts")
    sizes = {len(vector) for vector in vectors}
    if dimensions is None and len(sizes) > 1:
        refuse_vectors(model, f"vectors of different dimensions {sorted(sizes)} came back in one call")
    if dimensions is not None and (wrong := sizes - {dimensions}):
        refuse_vectors(model, f"vectors of {sorted(wrong)} dimensions came back, not of {dimensions}")
    if max(sizes, default=0) > DIMENSIONS_MAX:
        refuse_vectors(model, f"vectors of {max(sizes)} dimensions came back; at most {DIMENSIONS_MAX} can be stored")
    try:
        return [embedding_chunks.normalise(vector) for vector in vectors]
    except (ValueError, TypeError) as error:
        refuse_vectors(model, str(error))


def refuse_vectors(model: str, problem: str) -> NoReturn:
    """Raise an error whose evidence is the problem: the vectors themselves would be unreadable."""
    raise MalformedReplyError(f"{model}: {problem}", code="malformed", raw_reply=problem)


def _joined(vectors: list[Vector], chunks: list[str]) -> Vector:
    if len(vectors) == 1:
        return vectors[0]
    return embedding_chunks.average(vectors, [embedding_chunks.estimate_tokens(chunk) for chunk in chunks])
