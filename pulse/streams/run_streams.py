"""Followers of runs: each gets the run's frames from its cursor on, live ones as they come, encoded once for all.

One `pulse.streams.run_hub.Hub` per followed run translates new events once. A follower first catches up from the
database with a bridge of its own; once it has reached the hub's cursor, it receives the hub's frames. A follower that
returns in the middle of a message keeps its own bridge until both have the same cursor.

A follower's queue is bounded. A reader that is too slow is disconnected, and reconnects with its cursor.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from pulse.agui.cursor import Cursor
from pulse.agui.frames import Frame
from pulse.errors import InvalidInputError, RunPrunedError, StreamsClosedError
from pulse.event_bridge import EventBridge
from pulse.live_text import DeltaCarrier, RunKey
from pulse.pg_notify_listener import PgNotifyListener
from pulse.runs.records import Run
from pulse.streams.gone_threads import GoneThreads
from pulse.streams.run_hub import Cut, Hub, RunFollower
from pulse.streams.run_reader import RunReader

if TYPE_CHECKING:
    from pulse.database import Pool

#: How many frames may wait for one follower.
QUEUE_FRAMES_MAX = 1000


class RunStreams:
    """Every followed run of this process.

    Args:
        queue_frames_max: how many frames may wait for one follower before it is disconnected.

    Attributes:
        reader: reads what followers catch up on.
        gone: announces sessions that were deleted or have expired; created before the listener starts.
        disconnected: the number of followers that were too slow.
    """

    def __init__(
        self,
        pool: Pool,
        listener: PgNotifyListener,
        carrier: DeltaCarrier,
        *,
        queue_frames_max: int = QUEUE_FRAMES_MAX,
    ) -> None:
        self._listener = listener
        self._carrier = carrier
        self._queue_frames_max = queue_frames_max
        self._hubs: dict[RunKey, Hub] = {}
        self._opening: dict[RunKey, asyncio.Lock] = {}
        self._is_closed = False
        self.reader = RunReader(pool)
        self.gone = GoneThreads(pool, listener)
        self.disconnected = 0

    @property
    def is_closed(self) -> bool:
        """Whether this process is stopping."""
        return self._is_closed

    @property
    def followers(self) -> int:
        """The number of followers."""
        return sum(len(hub.followers) for hub in self._hubs.values())

    @property
    def hubs(self) -> int:
        """The number of followed runs."""
        return len(self._hubs)

    async def start(self) -> None:
        """Check now and then for runs whose session was deleted."""
        await self.gone.start()

    async def wait_for_ends(self, runs: Collection[RunKey], timeout_seconds: float) -> None:
        """Return when the followers of these runs have received their last events, or after the timeout."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await asyncio.gather(*(self._hubs[run].closed.wait() for run in runs if run in self._hubs))

    def begin_stop(self) -> None:
        """End every stream without a last event, so that clients reconnect with their cursors. Accepts no new ones."""
        self._is_closed = True
        for hub in list(self._hubs.values()):
            hub.end(Cut.ENDING)

    async def stop(self) -> None:
        """End every stream and its checks. Idempotent."""
        self.begin_stop()
        await self.gone.stop()

    def send(self, session_id: str | None, run_id: str | None, frame: Frame) -> None:
        """Send a frame without a cursor to the live followers of a run, or of any run of a session."""
        for hub in self._hubs.values():
            for follower in list(hub.followers):
                if follower.follows(session_id, run_id):
                    follower.interject(frame)

    @asynccontextmanager
    async def follow(
        self,
        run: Run,
        cursor: Cursor | None = None,
        *,
        with_history: bool = True,
        known_inputs: frozenset[str] = frozenset(),
    ) -> AsyncIterator[RunFollower]:
        """Follow a run for as long as the block lasts.

        Args:
            run: read for the user who owns it.
            cursor: the id of the last frame that the client has; None for a new client.
            with_history: whether a new client gets the conversation before the run.
            known_inputs: the ids of user messages that the client sent itself and does not get again.

        Raises:
            InvalidInputError: the cursor is past everything that is stored.
            RunPrunedError: the run's events were deleted.
            StreamsClosedError: this process is stopping.
        """
        hub = await self._enter(run)
        follower = RunFollower(
            self.reader,
            hub,
            run,
            cursor,
            with_history=with_history,
            known_inputs=known_inputs,
            queue_frames_max=self._queue_frames_max,
            on_slow=self._count_slow,
        )
        hub.followers[follower] = None
        try:
            if cursor is not None and cursor.sequence > max(hub.last_sequence, hub.bridge.sequence):
                raise InvalidInputError(f"the cursor {cursor} is past the end of this run; leave it out to start again")
            yield follower
        finally:
            follower.end(Cut.ENDING)
            hub.followers.pop(follower, None)
            if not hub.followers:
                hub.close()
                if self._hubs.get(hub.run) is hub:
                    del self._hubs[hub.run]

    def _count_slow(self) -> None:
        self.disconnected += 1

    async def _enter(self, run: Run) -> Hub:
        """Return the run's hub, opened if need be; concurrent callers get the same one."""
        key = RunKey(run.thread_id, run.run_id)
        async with self._opening.setdefault(key, asyncio.Lock()):
            try:
                if self._is_closed:
                    raise StreamsClosedError("this process is stopping; reconnect with the id of the last frame")
                hub = self._hubs.get(key)
                if hub is None or hub.is_over:
                    hub = await self._open(run, key)
                    self._hubs[key] = hub
                return hub
            finally:
                # The lock's waiters hold a reference of their own.
                self._opening.pop(key, None)

    async def _open(self, run: Run, key: RunKey) -> Hub:
        thread = await self.reader.state(run.thread_id)
        if thread is None:
            raise RunPrunedError(f"the session of run {run.run_id!r} was deleted")
        bridge = EventBridge(
            thread_id=run.session_id,
            run_id=run.run_id,
            first_sequence=run.first_sequence_num,
            state=thread.state,
            state_sequence=thread.last_sequence,
            with_history=False,
        )
        while not bridge.is_ended and bridge.sequence < thread.last_sequence:
            events = await self.reader.events(run.thread_id, bridge.sequence)
            if not events or events[0].sequence_num != bridge.sequence + 1:
                raise RunPrunedError(f"the events of run {run.run_id!r} were deleted")
            for event in events:
                bridge.store(event)
        if run.status.is_terminal and not bridge.is_ended:
            raise RunPrunedError(f"the end of run {run.run_id!r} was erased")
        hub = Hub(key, bridge, thread.last_sequence)
        if bridge.is_ended:
            # The unfinished texts of an aborted run are sent for as long as they are kept.
            hub.remember(await self._carrier.read([hub]))
        else:
            hub.open(self._listener, self._carrier, self.gone)
        return hub
