"""Notifies listeners of committed events.

A NOTIFY inside a transaction makes its commit take a lock that all databases of the server share, and hold it over the
flush to disk: commits that would have shared one flush queue up. So the notification is sent in a transaction of its
own, right after the commit; under load, one is sent for everything that was committed within a few milliseconds. If a
writer dies in between, its listeners find the events by their poll.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import TYPE_CHECKING, NamedTuple

import structlog

from pulse.database import FAULTS
from pulse.errors import PulseError
from pulse.events import Appended
from pulse.postgres.statements import Statements
from pulse.scopes import Scope, parse_state_prefix

if TYPE_CHECKING:
    from pulse.database import Pool

#: The pause between two notifications: each is a commit, which competes with those that it announces.
_PAUSE_SECONDS = 0.008
#: How long a process that ends waits for what is being sent.
_CLOSE_SECONDS_MAX = 0.5
_STATEMENTS = Statements("pulse.notify", "notify.sql")
_log = structlog.get_logger(__name__)


class Newest(NamedTuple):
    """The newest event of a thread, by its ids."""

    sequence_num: int | None
    event_id: str
    invocation_id: str
    event_type: str


class Notifier:
    """Sends at most one notification per thread every few milliseconds, with the newest event's ids.

    Not thread-safe: one per event loop, as its pool.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._waiting: dict[uuid.UUID, Newest] = {}
        self._shared: dict[uuid.UUID, bool] = {}
        self._sending: asyncio.Task[None] | None = None
        self._pause: asyncio.Future[None] | None = None
        self._closing = 0

    def wake(self, outcome: Appended) -> None:
        """Announce the newest event of an append, soon. Returns at once."""
        newest = max(outcome.events, key=lambda event: event.sequence_num or 0)
        scopes = {parse_state_prefix(key)[0] for event in outcome.new_events for key in event.actions.state_delta}
        self.announce_shared(outcome.thread_id, user=Scope.USER in scopes, app=Scope.APP in scopes)
        self.announce(
            outcome.thread_id, Newest(newest.sequence_num, newest.id, newest.invocation_id, newest.event_type)
        )

    def announce_shared(self, thread_id: uuid.UUID, *, user: bool, app: bool) -> None:
        """Announce, soon, that a session of this user changed the user's or the app's state."""
        if user or app:
            # What an app shares is read for all of its users, with their own states.
            self._shared[thread_id] = app or self._shared.get(thread_id, False)
            self._begin()

    def announce(self, thread_id: uuid.UUID, newest: Newest) -> None:
        """Announce the newest event of a thread, soon. Returns at once."""
        self._waiting[thread_id] = newest
        self._begin()

    async def close(self) -> None:
        """Send what waits, unless the database does not answer: listeners then find it by polling. Idempotent."""
        self._closing += 1
        try:
            async with asyncio.timeout(_CLOSE_SECONDS_MAX):
                while self._waiting or self._shared or self._sending is not None:
                    self._begin()
                    self._end_pause()
                    if self._sending is not None:
                        await asyncio.wait([self._sending])  # which continues if this caller is cancelled
        except TimeoutError:
            pass
        finally:
            self._closing -= 1

    def _begin(self) -> None:
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_all())
            self._sending.add_done_callback(self._end)

    def _end(self, _: asyncio.Task[None]) -> None:
        """Let the next announcement begin again, even after a task that was cancelled before it began."""
        self._sending = None

    def _end_pause(self) -> None:
        if self._pause is not None and not self._pause.done():
            self._pause.set_result(None)

    async def _send_all(self) -> None:
        """Send what waits, with a pause after each notification.

        The pauses are part of the task: an event loop that ends without `close` cancels it. A timer would begin another
        task when the loop has cancelled all and still runs.
        """
        while self._waiting or self._shared:
            await self._send()
            if self._closing:
                continue
            loop = asyncio.get_running_loop()
            self._pause = loop.create_future()
            timer = loop.call_later(_PAUSE_SECONDS, self._end_pause)
            try:
                await self._pause
            finally:
                timer.cancel()
                self._pause = None

    async def _send(self) -> None:
        waiting, self._waiting = self._waiting, {}
        shared, self._shared = self._shared, {}
        payloads = [_payload(*each) for each in waiting.items()]
        try:
            await _STATEMENTS.execute(self._pool, "notify", payloads, list(shared), list(shared.values()))
        except (PulseError, *FAULTS) as error:
            # The events are committed: listeners find them by polling.
            _log.warning("notify_failed", threads=len(payloads), error=type(error).__name__)


def _payload(thread_id: uuid.UUID, newest: Newest) -> str:
    return json.dumps(
        {
            "thread_id": str(thread_id),
            "sequence_num": newest.sequence_num,
            "event_id": newest.event_id,
            "run_id": newest.invocation_id,
            "event_type": newest.event_type,
        },
        ensure_ascii=False,  # a payload holds 8,000 bytes, and an escaped character takes three times its own
    )
