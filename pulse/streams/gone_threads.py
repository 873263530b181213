"""Threads that are not there any more: whoever follows one is told, so that no stream waits for ever.

A session that is deleted says so by NOTIFY, which may be lost; one whose time to live is over says nothing. So each
watched thread is looked for now and then as well, all of them in one statement.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import structlog

from pulse.pg_notify_listener import PgNotifyListener
from pulse.postgres.statements import load_queries

if TYPE_CHECKING:
    from pulse.database import Pool

#: The channel of `notify_thread_gone`.
GONE_CHANNEL = "agent_gone"
#: Between two looks at every watched thread.
LOOK_SECONDS = 10.0
_THREADS_AT_ONCE = 1000
_RETRY_SECONDS = 0.5
_log = structlog.get_logger(__name__)


class GoneThreads:
    """Watches that threads are there. Make it before its listener starts.

    Attributes:
        failures: looks that failed, and watchers that did.
    """

    def __init__(self, pool: Pool, listener: PgNotifyListener, *, look_seconds: float = LOOK_SECONDS) -> None:
        self._pool = pool
        self._statement = load_queries("pulse", "streams.sql")["gone_threads"]
        self._look_seconds = look_seconds
        self._watchers: dict[uuid.UUID, dict[Callable[[], None], None]] = {}
        self._named: dict[uuid.UUID, None] = {}
        self._work = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.failures = 0
        listener.add_channel(GONE_CHANNEL, self._hear, self._name_all)

    @property
    def watchers(self) -> int:
        """How many watch."""
        return sum(map(len, self._watchers.values()))

    async def start(self) -> None:
        """Begin to look, in the background."""
        if self._task is None:
            self._task = asyncio.create_task(self._keep_looking(), name="gone threads")

    async def stop(self) -> None:
        """Stop. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def watch(self, thread_id: uuid.UUID, on_gone: Callable[[], None]) -> Callable[[], None]:
        """Call back once a thread is gone; returns how to stop. The callback must return at once."""
        self._watchers.setdefault(thread_id, {})[on_gone] = None
        return partial(self._forget, thread_id, on_gone)

    def _forget(self, thread_id: uuid.UUID, on_gone: Callable[[], None]) -> None:
        watchers = self._watchers.get(thread_id, {})
        watchers.pop(on_gone, None)
        if not watchers:
            self._watchers.pop(thread_id, None)

    def _hear(self, payload: str) -> None:
        # Anybody who may connect may notify: the thread is looked for all the same, and what is not ours passed over.
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            thread = uuid.UUID(json.loads(payload)["thread_id"])
            if thread in self._watchers:
                self._named[thread] = None
                self._work.set()

    def _name_all(self) -> None:
        self._named.update(dict.fromkeys(self._watchers))
        self._work.set()

    async def _keep_looking(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + self._look_seconds
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._work.wait()
            if loop.time() >= due:
                self._name_all()
                due = loop.time() + self._look_seconds
            named, self._named = list(self._named), {}
            self._work.clear()
            try:
                await self._look(named)
            except Exception as error:  # noqa: BLE001 - whatever it was, nobody else looks: it is counted and tried again
                self.failures += 1
                _log.warning("threads_not_looked_for", threads=len(named), error=type(error).__name__, exc_info=error)
                self._named.update(dict.fromkeys(named))
                await asyncio.sleep(_RETRY_SECONDS)
                self._work.set()

    async def _look(self, named: Sequence[uuid.UUID]) -> None:
        for begin in range(0, len(named), _THREADS_AT_ONCE):
            rows = await self._pool.fetch(self._statement, list(named[begin : begin + _THREADS_AT_ONCE]))
            for row in rows:
                self._tell(row["thread_id"])

    def _tell(self, thread_id: uuid.UUID) -> None:
        for on_gone in list(self._watchers.pop(thread_id, ())):
            try:
                on_gone()
            except Exception:  # noqa: BLE001 - one watcher's fault must not leave the others waiting
                self.failures += 1
                _log.exception("watcher_failed", thread=str(thread_id))
