"""Watchers by key, the one task that reads the keys that were marked, and the base of its users."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import structlog

from pulse.database import FAULTS
from pulse.errors import PulseError
from pulse.postgres.backoff import Backoff
from pulse.process.background import cancel

Key = TypeVar("Key", bound=Hashable)
Watcher = TypeVar("Watcher")

_RETRY_SECONDS = 0.1
_RETRY_SECONDS_MAX = 2.0
_log = structlog.get_logger(__name__)


class WatchedKeys(Generic[Key, Watcher]):
    """Reads what is new of watched keys, in batches, from one task.

    A key is marked when it may have something new. One that is marked during a read is read again. A batch whose read
    fails is marked again and read after a growing wait.

    Args:
        name: what is read, for the log.
        read: reads what is new of some keys and calls their watchers.
        batch_length_max: how many keys are read at once.
        poll_seconds: how often every watched key is marked; None for never.

    Attributes:
        failures: reads that failed, and watchers that did.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[Sequence[Key]], Awaitable[None]],
        *,
        batch_length_max: int,
        poll_seconds: float | None = None,
    ) -> None:
        self.read = read
        self.failures = 0
        self._name = name
        self._batch_length_max = batch_length_max
        self._poll_seconds = poll_seconds
        self._watchers: dict[Key, dict[Watcher, None]] = {}
        self._marked: dict[Key, None] = {}
        self._work = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def __contains__(self, key: Key) -> bool:
        return key in self._watchers

    @property
    def is_running(self) -> bool:
        """Whether the task runs."""
        return self._task is not None and not self._task.done()

    @property
    def count(self) -> int:
        """The number of watchers."""
        return sum(map(len, self._watchers.values()))

    def watchers(self, key: Key) -> list[Watcher]:
        """Return a key's watchers, in the order in which they came."""
        return list(self._watchers.get(key, ()))

    def add(self, key: Key, watcher: Watcher) -> None:
        """Watch a key."""
        if not self._watchers:
            self._work.set()  # Nothing was polled for.
        self._watchers.setdefault(key, {})[watcher] = None

    def remove(self, key: Key, watcher: Watcher) -> None:
        """Stop watching a key. Idempotent."""
        watchers = self._watchers.get(key, {})
        watchers.pop(watcher, None)
        if not watchers:
            self._watchers.pop(key, None)

    def mark(self, key: Key) -> None:
        """Read a key soon, if it is watched."""
        self._mark((key,))

    def mark_all(self) -> None:
        """Read every watched key soon."""
        self._mark(self._watchers)

    def call(self, key: Key, watcher: Watcher, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function of a watcher. One that raises is logged and removed: it must not affect the others."""
        try:
            function(*arguments)
        except Exception:  # noqa: BLE001 - logged whole
            self.failures += 1
            _log.exception("watcher_failed", key=str(key))
            self.remove(key, watcher)

    def start(self) -> None:
        """Read in the background. Idempotent."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"{self._name} reader")

    async def stop(self) -> None:
        """Stop reading. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            await cancel(task)

    def _mark(self, keys: Iterable[Key]) -> None:
        self._marked.update((key, None) for key in keys if key in self._watchers)
        if self._marked:
            self._work.set()

    async def _run(self) -> None:
        now = asyncio.get_running_loop().time
        poll_at = None if self._poll_seconds is None else now() + self._poll_seconds
        backoff = Backoff(_RETRY_SECONDS, _RETRY_SECONDS_MAX, jitter=0.5)
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(poll_at if self._watchers else None):
                    await self._work.wait()
            if self._poll_seconds is not None and poll_at is not None and now() >= poll_at:
                self.mark_all()
                poll_at = now() + self._poll_seconds
            batch = list(self._marked)[: self._batch_length_max]
            for key in batch:
                del self._marked[key]
            if not self._marked:
                self._work.clear()
            if not batch:
                continue
            try:
                await self.read(batch)
                backoff.reset()
            except Exception as error:  # noqa: BLE001 - without this task no watcher would get anything
                self.failures += 1
                unforeseen = None if isinstance(error, (PulseError, *FAULTS)) else error
                _log.warning(
                    "read_failed", what=self._name, keys=len(batch), error=type(error).__name__, exc_info=unforeseen
                )
                self._mark(batch)
                await backoff.wait()


class WatchService(Generic[Key, Watcher]):
    """The base of what reads watched keys in the background; a subclass sets `_watched`."""

    _watched: WatchedKeys[Key, Watcher]

    @property
    def watchers(self) -> int:
        """The number of watchers."""
        return self._watched.count

    @property
    def failures(self) -> int:
        """The number of reads and watchers that failed."""
        return self._watched.failures

    async def start(self) -> None:
        """Read in the background."""
        self._watched.start()

    async def stop(self) -> None:
        """Stop reading. Idempotent."""
        await self._watched.stop()
