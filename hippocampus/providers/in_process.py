"""Embedders and rerankers whose model runs in this process: loaded at the first call, one at a time, in a thread."""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Generic, NoReturn, TypeAlias, TypeVar

from hippocampus.errors import MissingLibraryError, PermanentProviderError, TransientProviderError
from hippocampus.providers.embedding_chunks import EmbeddingLimits
from hippocampus.providers.protocols import EmbeddingTask
from hippocampus.providers.vectors import ChunkedEmbedder, VectorSpace
from hippocampus.records import Vector
from pulse.process.extras import install_command

#: Returns one vector for each text.
Encode: TypeAlias = Callable[[list[str], EmbeddingTask], Sequence[Sequence[float]]]
#: Returns one score for each text, which may be numbers of a library's own.
Score: TypeAlias = Callable[[str, list[str]], Iterable[Any]]

#: How many tokens, by estimate, are sent to a model for each that it reads: for prose, estimates are mostly too high.
_ESTIMATED_SHARE = 450 / 512

#: After a model could not be loaded, how long calls fail at once: each would load it again, which may take minutes.
LOAD_PAUSE_SECONDS = 60.0
_CODE = "in_process"

Model = TypeVar("Model")
Result = TypeVar("Result")


class ModelThread(Generic[Model]):
    """A library's model in a thread of its own: loaded by the first call, and used by one call at a time.

    No other work waits for it. Of calls that were cancelled, only the one that runs is finished.
    """

    def __init__(self, name: str, load: Callable[[], Model], clock: Callable[[], float]) -> None:
        """Load nothing yet.

        Args:
            name: the model's, for messages.
            load: loads the model; it may take seconds, and download files. One that failed is not repeated within
                `LOAD_PAUSE_SECONDS`.
            clock: the seconds by which that time is measured.
        """
        self._name = name
        self._load = load
        self._clock = clock
        self._model: Model | None = None
        self._failed: tuple[float, str] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="model")

    async def run(self, call: Callable[[Model], Result]) -> Result:
        """Return what the call makes of the model.

        Raises:
            PermanentProviderError: the model could not be loaded, or the call failed, whatever the library raised.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, call)

    def close(self) -> None:
        """Release the model. Idempotent."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._model = None

    def _run(self, call: Callable[[Model], Result]) -> Result:
        model = self._loaded()
        try:
            return call(model)
        except Exception as error:  # noqa: BLE001 - a library's own errors
            raise self._unusable(error) from None

    def _loaded(self) -> Model:
        model = self._model
        if model is not None:
            return model
        if self._failed is not None and self._clock() - self._failed[0] < LOAD_PAUSE_SECONDS:
            raise PermanentProviderError(self._failed[1], code=_CODE)
        try:
            self._model = model = self._load()
        except Exception as error:  # noqa: BLE001 - a library's own errors
            unusable = self._unusable(error)
            self._failed = self._clock(), str(unusable)
            raise unusable from None
        return model

    def _unusable(self, error: Exception) -> PermanentProviderError:
        return PermanentProviderError(
            f"{self._name}: the model cannot be used ({type(error).__name__}: {error})", code=_CODE
        )


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """A model that is loaded.

    Attributes:
        reads: tokens of one text, of which it ignores the rest; None: the limit of the embedder.
    """

    encode: Encode
    reads: int | None = None


class InProcessEmbedder(ChunkedEmbedder):
    """`hippocampus.providers.protocols.Embedder` by a library. No text leaves the machine."""

    def __init__(
        self,
        space: VectorSpace,
        load: Callable[[], EmbeddingModel],
        limits: EmbeddingLimits,
        *,
        size: int | None,
        query_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Load nothing yet.

        Args:
            space: what names the vectors.
            load, clock: see `ModelThread`.
            limits: the limits of a call; a model that reads less has its own.
            size: the dimensions of its vectors; None: those of the space, or of the first vectors.
            query_seconds: how long a query may wait for its vector, the loading of the model included; None: as long
                as it takes. Texts that are stored wait without a limit, as another attempt would take as long.
        """
        super().__init__(space, limits, concurrency=1, size=size)
        self.query_seconds = query_seconds
        self._thread = ModelThread(space.model, load, clock)
        self._knows_what_is_read = False

    async def embed(self, texts: Sequence[str], task: EmbeddingTask) -> list[Vector]:
        """Embed each text; see `ChunkedEmbedder`. A query that waits too long raises `TransientProviderError`."""
        if task != "query" or self.query_seconds is None:
            return await self._embed(texts, task)
        try:
            async with asyncio.timeout(self.query_seconds):
                return await self._embed(texts, task)
        except TimeoutError:
            message = f"{self._space.model}: no vector within {self.query_seconds:g} s"
            raise TransientProviderError(message, code="timeout") from None

    async def check(self) -> None:
        """Load the model and embed one word; see `hippocampus.providers.protocols.Checkable`."""
        await self._embed(["Hello."], "query")

    async def close(self) -> None:
        """Release the model. Idempotent."""
        self._thread.close()

    async def _embed(self, texts: Sequence[str], task: EmbeddingTask) -> list[Vector]:
        if not self._knows_what_is_read and any(text.strip() for text in texts):
            reads = await self._thread.run(lambda model: model.reads)
            if reads is not None:
                tokens = max(1.0, min(self._limits.text_tokens, reads * _ESTIMATED_SHARE))
                self._limits = replace(self._limits, text_tokens=tokens)
            self._knows_what_is_read = True
        return await super().embed(texts, task)

    async def _embed_batch(self, batch: list[str], task: EmbeddingTask) -> Sequence[Sequence[Any]]:
        return await self._thread.run(lambda model: model.encode(batch, task))


class InProcessReranker:
    """`hippocampus.providers.protocols.ModelReranker` by a library. No text leaves the machine."""

    def __init__(self, model: str, load: Callable[[], Score], *, clock: Callable[[], float] = time.monotonic) -> None:
        """Load nothing yet; see `ModelThread`."""
        self._thread = ModelThread(model, load, clock)

    async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the model's scores; see `hippocampus.providers.protocols.Reranker`."""
        return await self._thread.run(lambda score: [float(each) for each in score(query, list(texts))])

    async def check(self) -> None:
        """Load the model and score one text; see `hippocampus.providers.protocols.Checkable`."""
        await self.rerank("Hello?", ["Hello."])

    async def close(self) -> None:
        """Release the model. Idempotent."""
        self._thread.close()


def library(name: str, extra: str | None = None) -> Any:
    """Import the library of a provider.

    Raises:
        MissingLibraryError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        package = name.replace("_", "-")
        command = install_command(extra) if extra else f"pip install {package}"
        raise MissingLibraryError(f"{package} is not installed: {command}") from None


def no_generator(provider: str) -> NoReturn:
    """Raise ValueError: the provider has no generators."""
    raise ValueError(f"{provider} has no generators: choose another provider")
