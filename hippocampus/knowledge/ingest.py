"""Ingest: a document's version is chunked, what is new of it is embedded in batches, and at last it is searched.

    begin_ingest       the text of the version, and how it is chunked
    chunk_document     in a thread
    stage_chunks       a batch of new chunks with their vectors, in a transaction of its own; no search finds them yet
    finish_ingest      places of all chunks, and the version is the one that is searched

A process that is killed in between leaves what it staged, and the next attempt embeds only the rest. Chunks that the
former version has too are neither stored nor embedded again. No connection is held while a model is called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import structlog

from hippocampus.consolidation.backfill import Backfilled, VectorInput, embed_texts
from hippocampus.errors import (
    BY_SQLSTATE,
    CallPostponedError,
    DocumentReplacedError,
    EmbeddingDimensionError,
    PermanentProviderError,
    ProviderError,
    RateLimitedError,
)
from hippocampus.knowledge.chunking import Chunk, Chunking, chunk_document
from hippocampus.knowledge.records import Ingested
from pulse.errors import InvalidInputError
from pulse.postgres.statements import Statements, without_secrets

if TYPE_CHECKING:
    from hippocampus.providers.protocols import Embedder
    from hippocampus.records import Vector
    from pulse.database import Pool

#: Chunks of one transaction, and of one call of the embedder.
BATCH_CHUNKS = 100

STATEMENTS = Statements("hippocampus.knowledge", "knowledge.sql", errors=BY_SQLSTATE)
_log = structlog.get_logger(__name__)

#: Whether another attempt follows this failure.
WillRetry = Callable[[Exception], bool]


def never(_error: Exception) -> bool:
    """No other attempt follows: the caller's only one."""
    return False


class ChunkInput(NamedTuple):
    """The SQL type chunk_input."""

    chunk_index: int
    label: str
    heading_path: list[str]
    content: str
    char_from: int
    char_upto: int
    page: int | None
    chunk_hash: bytes
    nth: int
    tokens: int
    language: str | None
    embedding: Vector | None


class ChunkPlace(NamedTuple):
    """The SQL type chunk_place."""

    id: UUID
    chunk_index: int
    char_from: int
    char_upto: int
    page: int | None


class DocumentIngest:
    """Ingests documents.

    Args:
        embedder: makes vectors; None: chunks are found by their words alone.
    """

    def __init__(self, pool: Pool, embedder: Embedder | None) -> None:
        self._pool = pool
        self._embedder = embedder

    async def run(self, document_id: UUID, *, will_retry: WillRetry = never) -> Ingested | None:
        """Ingest the version of a document that was given last; None if there is none, or it was replaced meanwhile.

        If the embedder does not answer and no other attempt follows, or its calls are held back, the chunks are stored
        without vectors: searches find them by their words, and the backfill adds the vectors. Of any other failure that
        no attempt follows, the document says why.

        Raises:
            TransientProviderError: the embedder did not answer; try again. What was embedded is stored.
            EmbeddingDimensionError: the embedder's vectors are not of the dimensions of those stored of its model.
        """
        row = await STATEMENTS.fetchrow(self._pool, "begin_ingest", document_id)
        if row is None:
            return None
        version = row["version"]
        try:
            chunks = await asyncio.to_thread(
                chunk_document,
                row["body"],
                Chunking.of(row["config"]),
                is_markdown=row["is_markdown"],
                pages=row["pages"],
                title=row["title"],
            )
            return await self._store(document_id, row["app_name"], version, chunks, will_retry)
        except DocumentReplacedError:
            _log.info("ingest_overtaken", document_id=str(document_id))
            return None
        except InvalidInputError as error:
            await STATEMENTS.execute(self._pool, "fail_ingest", document_id, version, "invalid", str(error))
            return None
        except Exception as error:
            if not will_retry(error):
                code = error.code if isinstance(error, ProviderError) else type(error).__name__
                is_told = isinstance(error, ProviderError | EmbeddingDimensionError)
                what = str(error) if is_told else "the log of the workers says more"
                await STATEMENTS.execute(self._pool, "fail_ingest", document_id, version, code, what)
            raise

    async def _store(
        self, document_id: UUID, app_name: str, version: int, chunks: Sequence[Chunk], will_retry: WillRetry
    ) -> Ingested:
        known = await self._known(document_id)
        new = [each for each in chunks if (each.digest, each.nth) not in known]
        done = kept = len(chunks) - len(new)
        degraded: str | None = None
        embedded = 0
        for start in range(0, len(new), BATCH_CHUNKS):
            batch = new[start : start + BATCH_CHUNKS]
            vectors: Sequence[Vector | None] = [None] * len(batch)
            if self._embedder is not None and degraded is None:
                try:
                    vectors = await self._embed(app_name, batch)
                    embedded += len(batch)
                except ProviderError as error:
                    is_held = isinstance(error, CallPostponedError | PermanentProviderError) or (
                        isinstance(error, RateLimitedError) and error.daily
                    )
                    if not is_held and will_retry(error):
                        raise
                    degraded = error.code
                    _log.warning("ingest_without_vectors", document_id=str(document_id), error_code=error.code)
            done += len(batch)
            rows = [_row(each, vector) for each, vector in zip(batch, vectors, strict=True)]
            model = None if self._embedder is None else self._embedder.model
            await STATEMENTS.execute(
                self._pool, "stage_chunks", document_id, version, rows, model,
                model is not None and degraded is None, done, len(chunks),
            )  # fmt: skip
        known = await self._known(document_id)
        places = [
            ChunkPlace(known[each.digest, each.nth], each.index, each.start, each.upto, each.page)
            for each in chunks
            if (each.digest, each.nth) in known
        ]
        if len(places) < len(chunks):
            raise DocumentReplacedError(f"chunks of document {document_id} were removed meanwhile")
        await STATEMENTS.execute(self._pool, "finish_ingest", document_id, version, places)
        return Ingested(version=version, chunks=len(chunks), kept=kept, embedded=embedded, degraded=degraded)

    async def _known(self, document_id: UUID) -> dict[tuple[bytes, int], UUID]:
        rows = await STATEMENTS.fetch(self._pool, "known_chunks", document_id)
        return {(row["chunk_hash"], row["nth"]): row["id"] for row in rows}

    async def _embed(self, app_name: str, chunks: Sequence[Chunk]) -> list[Vector | None]:
        """Return a vector for each chunk; None for one that the model refuses."""
        assert self._embedder is not None  # noqa: S101 - the caller's check
        # The app's policy may be younger than the text.
        texts = await without_secrets(self._pool, app_name, [text_of(each.label, each.content) for each in chunks])
        found = await embed_texts(self._embedder, texts)
        return [None if isinstance(each, ProviderError) else each for each in found]


async def backfill_chunks(pool: Pool, embedder: Embedder, *, limit: int = BATCH_CHUNKS) -> Backfilled:
    """Embed one batch of chunks without a vector, or with one of another model than the chosen: `backfill_embeddings`.

    Raises:
        ProviderError: the embedding failed, but not because of a text of the batch; nothing was written.
        EmbeddingDimensionError: the vectors are not of the dimensions of those stored of the model in a corpus; nothing
            was written.
    """
    rows = await STATEMENTS.fetch(pool, "list_vectorless_chunks", embedder.model, limit)
    if not rows:
        return Backfilled()
    texts = [text_of(row["label"], row["content"]) for row in rows]
    # Each app's policy may be younger than its texts.
    for app_name in {row["app_name"] for row in rows}:
        places = [place for place, row in enumerate(rows) if row["app_name"] == app_name]
        sent = await without_secrets(pool, app_name, [texts[place] for place in places])
        for place, text in zip(places, sent, strict=True):
            texts[place] = text
    outcomes = await embed_texts(embedder, texts)
    given = [
        VectorInput(row["id"], "", None, None if isinstance(outcome, ProviderError) else outcome)
        for row, outcome in zip(rows, outcomes, strict=True)
    ]
    refused = sum(each.embedding is None for each in given)
    await STATEMENTS.execute(pool, "give_chunk_vectors", given, embedder.model)
    return Backfilled(len(given) - refused, refused)


def text_of(label: str, content: str) -> str:
    """Return what is embedded of a chunk."""
    return f"{label}\n{content}" if label else content


def _row(chunk: Chunk, vector: Vector | None) -> ChunkInput:
    return ChunkInput(
        chunk_index=chunk.index,
        label=chunk.label,
        heading_path=list(chunk.heading_path),
        content=chunk.content,
        char_from=chunk.start,
        char_upto=chunk.upto,
        page=chunk.page,
        chunk_hash=chunk.digest,
        nth=chunk.nth,
        tokens=chunk.tokens,
        language=chunk.language,
        embedding=vector,
    )
