"""Threads that were deleted or have expired: their followers are notified, so that no stream waits for ever.

The deletion of a session is announced by NOTIFY, which may be lost; an expiry is not announced. So every watched thread
is also checked now and then, all of them in one statement.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pulse.notify.watched_keys import WatchedKeys, WatchService
from pulse.pg_notify_listener import PgNotifyListener
from pulse.postgres.statements import Statements

if TYPE_CHECKING:
    from pulse.database import Pool

#: The channel of `notify_thread_gone`.
GONE_CHANNEL = "agent_gone"
#: The interval between two checks of every watched thread.
POLL_SECONDS = 10.0
_THREADS_AT_ONCE = 1000
_STATEMENTS = Statements("pulse.streams", "streams.sql")


class GoneThreads(WatchService[uuid.UUID, Callable[[], None]]):
    """Watches for threads that are gone. Create it before its listener starts."""

    def __init__(self, pool: Pool, listener: PgNotifyListener) -> None:
        self._pool = pool
        self._watched = WatchedKeys(
            "gone_threads", self._check, batch_length_max=_THREADS_AT_ONCE, poll_seconds=POLL_SECONDS
        )
        listener.add_channel(GONE_CHANNEL, self._receive, self._watched.mark_all)

    def watch(self, thread_id: uuid.UUID, on_gone: Callable[[], None]) -> Callable[[], None]:
        """Call `on_gone` once the thread is gone; returns how to stop. The callback must return at once."""
        self._watched.add(thread_id, on_gone)
        return partial(self._watched.remove, thread_id, on_gone)

    def _receive(self, payload: str) -> None:
        # Any client of the database may notify: the thread is checked, and a payload of another form is ignored.
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            self._watched.mark(uuid.UUID(json.loads(payload)["thread_id"]))

    async def _check(self, threads: Sequence[uuid.UUID]) -> None:
        if not threads:
            return
        for row in await _STATEMENTS.fetch(self._pool, "gone_threads", threads):
            thread_id = row["thread_id"]
            for on_gone in self._watched.watchers(thread_id):
                self._watched.remove(thread_id, on_gone)
                self._watched.call(thread_id, on_gone, on_gone)
