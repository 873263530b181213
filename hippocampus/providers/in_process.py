"""Embedders and rerankers whose model runs in this process: loaded at the first call, one at a time, in a thread."""

from __future__ import annotations

import asyncio
import importlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn, TypeAlias

from hippocampus.errors import MissingLibraryError, PermanentProviderError
from hippocampus.providers.chunking import EmbeddingLimits
from hippocampus.providers.protocols import EmbeddingTask
from hippocampus.providers.vectors import ChunkedEmbedder, VectorSpace
from pulse.extras import install_command

#: Returns one vector for each text.
Encode: TypeAlias = Callable[[list[str], EmbeddingTask], Sequence[Sequence[float]]]
#: Returns one score for each text, which may be numbers of a library's own.
Score: TypeAlias = Callable[[str, list[str]], Iterable[Any]]

#: After a model could not be loaded, how long a reranker fails at once: each search would try again.
LOAD_PAUSE_SECONDS = 60.0


class InProcessEmbedder(ChunkedEmbedder):
    """`hippocampus.providers.protocols.Embedder` by a library. No text leaves the machine."""

    def __init__(self, model: str, load: Callable[[], Encode], limits: EmbeddingLimits, *, size: int | None) -> None:
        """Load nothing yet.

        Args:
            model: the name that is stored with each vector.
            load: loads the model; it may take seconds, and download files.
            size: the dimensions of its vectors; None: those of the first ones.
        """
        super().__init__(VectorSpace(model=model), limits, concurrency=1, size=size)
        self._load = load
        self._encode: Encode | None = None
        self._lock = threading.Lock()

    async def check(self) -> None:
        """Load the model and embed one word; see `hippocampus.providers.protocols.Checkable`."""
        await self.embed(["Hello."], "query")

    async def close(self) -> None:
        """Release the model. Idempotent."""
        self._encode = None

    async def _embed_batch(self, batch: list[str], task: EmbeddingTask) -> Sequence[Sequence[Any]]:
        return await asyncio.to_thread(self._run, batch, task)

    def _run(self, batch: list[str], task: EmbeddingTask) -> Sequence[Sequence[float]]:
        try:
            with self._lock:
                if self._encode is None:
                    self._encode = self._load()
                return self._encode(batch, task)
        except _UNUSABLE as error:
            raise _unusable(self._space.model, error) from None


class InProcessReranker:
    """`hippocampus.providers.protocols.ModelReranker` by a library. No text leaves the machine."""

    def __init__(self, model: str, load: Callable[[], Score], *, clock: Callable[[], float] = time.monotonic) -> None:
        """Load nothing yet.

        Args:
            load: loads the model; it may take seconds, and download files. One that failed is not repeated within
                `LOAD_PAUSE_SECONDS`.
            clock: the seconds by which that time is measured.
        """
        self._model = model
        self._load = load
        self._clock = clock
        self._score: Score | None = None
        self._failed: tuple[float, str] | None = None
        # A thread of its own: of calls that were given up, only the one that runs is finished, and no other work waits.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rerank")

    async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the model's scores; see `hippocampus.providers.protocols.Reranker`."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, query, list(texts))

    async def check(self) -> None:
        """Load the model and score one text; see `hippocampus.providers.protocols.Checkable`."""
        await self.rerank("Hello?", ["Hello."])

    async def close(self) -> None:
        """Release the model. Idempotent."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._score = None

    def _run(self, query: str, texts: list[str]) -> list[float]:
        score = self._loaded()
        try:
            return [float(each) for each in score(query, texts)]
        except Exception as error:  # noqa: BLE001 - a library's own errors
            raise _unusable(self._model, error) from None

    def _loaded(self) -> Score:
        score = self._score
        if score is not None:
            return score
        if self._failed is not None and self._clock() - self._failed[0] < LOAD_PAUSE_SECONDS:
            raise PermanentProviderError(self._failed[1], code=_CODE)
        try:
            self._score = score = self._load()
        except Exception as error:  # noqa: BLE001 - a library's own errors
            unusable = _unusable(self._model, error)
            self._failed = self._clock(), str(unusable)
            raise unusable from None
        return score


#: A missing file, a model that the library does not know, a download that failed.
_UNUSABLE = (OSError, RuntimeError, ValueError, MemoryError)
_CODE = "in_process"


def _unusable(model: str, error: BaseException) -> PermanentProviderError:
    return PermanentProviderError(f"{model}: the model cannot be used ({type(error).__name__}: {error})", code=_CODE)


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
