"""Shared by the tests of the listener and of the streams: a watch on a thread, a wait, a kill."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from pulse import database
from pulse.events import Event, Session
from pulse.pg_notify_listener import PgNotifyListener
from pulse.session_service import OpenSessionService
from tests.support.waiting import WAIT_SECONDS, until

_KILL = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
  AND (query LIKE '%pg_listening_channels%' OR query LIKE 'LISTEN%')
"""


class Watch:
    """A watcher that stores its events."""

    def __init__(self, listener: PgNotifyListener, session: Session, after: int = 0) -> None:
        self.events: list[Event] = []
        self._subscription = listener.subscribe(session.thread_id, self._take, after_sequence=after)

    def _take(self, events: Sequence[Event]) -> None:
        self.events += events

    @property
    def numbers(self) -> list[int | None]:
        return [event.sequence_num for event in self.events]

    @property
    def last(self) -> int:
        return (self.events[-1].sequence_num or 0) if self.events else 0

    def close(self) -> None:
        self._subscription.close()


async def kill_listener(dsn: str) -> None:
    """Terminate the listening backends, as soon as there are any."""
    connection = await database.connect(dsn, prepare=False)
    try:
        await until(lambda: connection.fetch(_KILL), "there is a listener to kill")
    finally:
        await connection.close()


async def drill(
    listener: PgNotifyListener,
    sessions: OpenSessionService,
    strike: Callable[[], Awaitable[object]],
    *,
    seconds: float,
    every_seconds: float,
    strikes_min: int,
) -> None:
    """Append 100 events a second, and run `strike` repeatedly, for this long and until there were so many strikes; each
    of three watchers must get each event once, in order."""
    session = await sessions.create_session("app", "ann", session_id="s")
    watches = [Watch(listener, session) for _ in range(3)]
    strikes = total = 0

    async def write() -> None:
        nonlocal total
        begin = time.monotonic()
        while total < 100 * seconds or strikes < strikes_min:
            await append_surely(sessions, Event(author="user", content={"n": total}))
            total += 1
            await asyncio.sleep(max(0.0, begin + total / 100 - time.monotonic()))

    writing = asyncio.create_task(write())
    while not writing.done():
        await strike()
        strikes += 1
        await asyncio.wait({writing}, timeout=every_seconds)
    await writing
    await until(lambda: all(watch.last == total for watch in watches))
    assert [watch.numbers for watch in watches] == [list(range(1, total + 1))] * 3


async def append_surely(sessions: OpenSessionService, event: Event) -> None:
    """Append even if the database is down for a while: the same event sent again is stored once."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            await sessions.append("app", "ann", "s", [event])
        except database.FAULTS:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        else:
            return
