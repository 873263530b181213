"""Followers of runs: each gets the run's frames from its cursor on, live ones as they come, encoded once for all.

One `pulse.streams.run_hub.Hub` per followed run translates new events once. A follower first catches up from the
database with a bridge of its own; once it has reached the hub's cursor, it receives the hub's frames. A follower that
returns in the middle of a message keeps its own bridge until both have the same cursor.

A follower's queue is bounded, in frames and in bytes. A reader that is too slow is disconnected, and reconnects with
its cursor.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from pulse.agui.cursor import Cursor
from pulse.agui.frames import Frame
from pulse.errors import InvalidInputError, RunPrunedError, StreamsClosedError
from pulse.event_bridge import EventBridge, KnownState
from pulse.live_text import DeltaCarrier, RunKey
from pulse.pg_notify_listener import PgNotifyListener
from pulse.runs.records import Run
from pulse.streams.frame_queue import QueueBounds, SendAtOnce
from pulse.streams.gone_threads import GoneThreads
from pulse.streams.run_hub import Cut, Hub, RunFollower
from pulse.streams.run_reader import RunReader
from pulse.streams.shared_states import Owner, SharedStates

if TYPE_CHECKING:
    from pulse.database import Pool


# What leads the followers of a thread only passes frames on; their own queues are bounded.
_NO_BOUNDS = QueueBounds(frames=1 << 62, bytes=1 << 62)


class RunStreams:
    """Every followed run of this process.

    Args:
        bounds: how much may wait for one follower before it is disconnected.

    Attributes:
        reader: reads what followers catch up on.
        gone: announces sessions that were deleted or have expired; created before the listener starts.
        shared: announces changes of the user's and the app's state; created before the listener starts.
        disconnected: the number of followers that were too slow.
        joined: the number of clients that follow a thread together, through one follower.
        on_stop: called when every stream is to end.
    """

    def __init__(
        self,
        pool: Pool,
        listener: PgNotifyListener,
        carrier: DeltaCarrier,
        *,
        bounds: QueueBounds | None = None,
    ) -> None:
        self._listener = listener
        self._carrier = carrier
        self._hubs: dict[RunKey, Hub] = {}
        self._opening: dict[RunKey, asyncio.Lock] = {}
        self._is_closed = False
        self.reader = RunReader(pool)
        self.gone = GoneThreads(pool, listener)
        self.shared = SharedStates(pool, listener)
        self.bounds = bounds or QueueBounds()
        self.on_stop: list[Callable[[], None]] = []
        self.disconnected = 0
        self.joined = 0

    @property
    def is_closed(self) -> bool:
        """Whether this process is stopping."""
        return self._is_closed

    @property
    def followers(self) -> int:
        """The number of clients that follow a run or a thread."""
        own = sum(not each.is_shared for hub in self._hubs.values() for each in hub.followers)
        return own + self.joined

    @property
    def hubs(self) -> int:
        """The number of followed runs."""
        return len(self._hubs)

    async def start(self) -> None:
        """Check now and then for runs whose session was deleted, and for changes of shared states."""
        await self.gone.start()
        await self.shared.start()

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
        for stop in self.on_stop:
            stop()

    async def stop(self) -> None:
        """End every stream and its checks. Idempotent."""
        self.begin_stop()
        await self.gone.stop()
        await self.shared.stop()

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
        before: KnownState | None = None,
        is_shared: bool = False,
        send_at_once: SendAtOnce | None = None,
    ) -> AsyncIterator[RunFollower]:
        """Follow a run for as long as the block lasts.

        Args:
            run: read for the user who owns it.
            cursor: the id of the last frame that the client has; None for a new client.
            with_history: whether a new client gets the conversation before the run.
            known_inputs: the ids of user messages that the client sent itself and does not get again.
            before: the state of a client that has followed the thread up to the run.
            is_shared: follow it for all clients of a thread; see `EventBridge`.
            send_at_once: sends live frames to a client that waits for them; see `FrameQueue`.

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
            before=before,
            is_shared=is_shared,
            bounds=_NO_BOUNDS if is_shared else self.bounds,
            send_at_once=send_at_once,
            on_slow=self.count_slow,
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

    def count_slow(self) -> None:
        """Count a follower that was too slow."""
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
            known=thread,
            with_history=False,
        )
        while not bridge.is_ended and bridge.sequence < thread.mark.sequence:
            events = await self.reader.events(run.thread_id, bridge.sequence)
            if not events or events[0].sequence_num != bridge.sequence + 1:
                raise RunPrunedError(f"the events of run {run.run_id!r} were deleted")
            for event in events:
                bridge.store(event)
        if run.status.is_terminal and not bridge.is_ended:
            raise RunPrunedError(f"the end of run {run.run_id!r} was erased")
        hub = Hub(key, Owner(run.app_name, run.user_id), bridge, thread.mark.sequence)
        if bridge.is_ended:
            # The unfinished texts of an aborted run are sent for as long as they are kept.
            hub.remember(await self._carrier.read([hub]))
        else:
            hub.open(self._listener, self._carrier, self.gone, self.shared)
        return hub
