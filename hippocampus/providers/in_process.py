"""Embedders whose model runs inside this process: loaded with the first text, one call at a time, in a thread."""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

from hippocampus.errors import MissingLibraryError, PermanentProviderError
from hippocampus.providers.chunking import EmbeddingLimits
from hippocampus.providers.protocols import EmbeddingTask
from hippocampus.providers.vectors import ChunkedEmbedder, VectorSpace
from pulse.extras import install_command

#: Returns one vector for each text.
Encode: TypeAlias = Callable[[list[str], EmbeddingTask], Sequence[Sequence[float]]]


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
        except (OSError, RuntimeError, ValueError, MemoryError) as error:
            # A missing file, a model that the library does not know, a download that failed.
            raise PermanentProviderError(
                f"{self._space.model}: the model cannot be used ({type(error).__name__}: {error})", code="in_process"
            ) from None


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
    """Raise ValueError: the provider has embedders alone."""
    raise ValueError(f"{provider} has no generators: choose another HIPPOCAMPUS_GENERATOR")
