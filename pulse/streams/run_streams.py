"""Followers of runs: each gets the run's frames from its cursor on, live ones as they come, encoded once for all.

One `pulse.streams.run_hub.Hub` per followed run translates new events once. A follower first catches up from the
database with a bridge of its own; once it has reached the hub's cursor, it receives the hub's frames. A follower that
returns with a message half received keeps its own bridge until both have the same cursor.

A follower's queue is bounded. Whoever reads too slowly is let go, and comes back with its cursor.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ag_ui.core import MessagesSnapshotEvent

from pulse.agui.cursor import Cursor
from pulse.agui.frames import Frame
from pulse.agui.messages import MESSAGE_TYPES, messages_of
from pulse.errors import InvalidInputError, RunPrunedError, StreamsClosedError
from pulse.event_bridge import EventBridge
from pulse.event_rows import read_event_to_deliver
from pulse.events import Event
from pulse.live_text import DeltaCarrier, RunKey
from pulse.pg_notify_listener import PgNotifyListener
from pulse.postgres.statements import load_queries
from pulse.runs.records import Run
from pulse.scopes import merge_state
from pulse.streams.gone_threads import GoneThreads
from pulse.streams.run_hub import Cut, Hub, RunFollower

if TYPE_CHECKING:
    from pulse.database import Pool

#: Events of a conversation that a new client is given as messages, the newest, and their bytes: clients refuse a frame
#: of ten million characters.
HISTORY_MESSAGES_MAX = 1000
HISTORY_BYTES_MAX = 4 << 20
#: Where a snapshot of messages says that older ones are left out: `beforeSequence` is where they end.
HISTORY_KEY = "hippocampus:history"
#: Frames that wait for one follower at most.
QUEUE_FRAMES_MAX = 1000
_PAGE_EVENTS = 200


class RunStreams:
    """Every followed run of this process.

    Args:
        queue_frames_max: that may wait for one follower before it is let go.

    Attributes:
        gone: tells of sessions that are not there any more; made before the listener starts.
    """

    def __init__(
        self,
        pool: Pool,
        listener: PgNotifyListener,
        carrier: DeltaCarrier,
        *,
        queue_frames_max: int = QUEUE_FRAMES_MAX,
    ) -> None:
        self._pool = pool
        self._queries = load_queries("pulse", "streams.sql")
        self._listener = listener
        self._carrier = carrier
        self._queue_frames_max = queue_frames_max
        self._hubs: dict[RunKey, Hub] = {}
        self._opening: dict[RunKey, asyncio.Lock] = {}
        self._is_closed = False
        self.gone = GoneThreads(pool, listener)
        self.let_go = 0

    @property
    def is_closed(self) -> bool:
        """Whether this process ends."""
        return self._is_closed

    @property
    def followers(self) -> int:
        """How many follow a run now."""
        return sum(len(hub.followers) for hub in self._hubs.values())

    @property
    def hubs(self) -> int:
        """How many runs are followed now."""
        return len(self._hubs)

    async def start(self) -> None:
        """Begin to look, now and then, for runs whose session was deleted."""
        await self.gone.start()

    async def hear_the_ends(self, runs: Collection[RunKey], timeout_seconds: float) -> None:
        """Return when the followers of these runs were handed their last events, or in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await asyncio.gather(*(self._hubs[run].closed.wait() for run in runs if run in self._hubs))

    def begin_stop(self) -> None:
        """End every stream, without a last event: the clients come back with their cursors. Takes no further ones."""
        self._is_closed = True
        for hub in list(self._hubs.values()):
            hub.end(Cut.ENDING)

    async def stop(self) -> None:
        """End every stream and what looks after them. Idempotent."""
        self.begin_stop()
        await self.gone.stop()

    def tell(self, session_id: str | None, run_id: str | None, frame: Frame) -> None:
        """Send a frame of no place to whoever follows a run, or any run of a session, live."""
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
            run: of a user who was found to own it.
            cursor: the id of the last frame that the client has; None for a client that has nothing.
            with_history: a client that has nothing is told the conversation before the run.
            known_inputs: the ids of user messages that the client sent itself; it is not told them again.

        Raises:
            InvalidInputError: the cursor is past everything that is stored.
            RunPrunedError: the run's events are not there any more.
            StreamsClosedError: this process ends.
        """
        hub = await self._enter(run)
        follower = RunFollower(self, hub, run, cursor, with_history=with_history, known_inputs=known_inputs)
        hub.followers[follower] = None
        try:
            if cursor is not None and cursor.sequence > max(hub.last_sequence, hub.bridge.sequence):
                raise InvalidInputError(f"the cursor {cursor} is past the end of this run; leave it out to begin anew")
            yield follower
        finally:
            follower.end(Cut.ENDING)
            hub.followers.pop(follower, None)
            if not hub.followers:
                hub.close()
                if self._hubs.get(hub.run) is hub:
                    del self._hubs[hub.run]

    async def read(self, run: Run, after_sequence: int) -> list[Event]:
        """Read a page of a run's thread, in sequence."""
        rows = await self._pool.fetch(self._queries["run_events"], run.thread_id, after_sequence, _PAGE_EVENTS)
        return [read_event_to_deliver(list(row)) for row in rows]

    async def fill(self, thread_id: uuid.UUID, run_id: str, first_sequence: int, frame: Frame) -> None:
        """Put the conversation into a snapshot of messages that has none yet, without what other runs say meanwhile.

        Where it is longer than a client is given, the snapshot's metadata say where the older messages end.
        """
        if frame.history_until is None or not isinstance(frame.event, MessagesSnapshotEvent):
            return
        rows = await self._pool.fetch(
            self._queries["conversation"],
            thread_id,
            frame.history_until,
            sorted(MESSAGE_TYPES),
            run_id,
            first_sequence,
            HISTORY_MESSAGES_MAX,
            HISTORY_BYTES_MAX,
        )
        events = [read_event_to_deliver(columns) for *columns, _ in reversed(rows)]
        is_cut = bool(rows) and rows[-1]["is_cut"]
        frame.event.messages = messages_of(events, is_cut=is_cut)
        if is_cut:
            frame.event.metadata = {HISTORY_KEY: {"isWhole": False, "beforeSequence": events[0].sequence_num}}
        frame.history_until = None

    async def _enter(self, run: Run) -> Hub:
        """Return the run's hub, made if need be; whoever asks at the same time waits for the same one."""
        key = RunKey(run.thread_id, run.run_id)
        async with self._opening.setdefault(key, asyncio.Lock()):
            try:
                if self._is_closed:
                    raise StreamsClosedError("this process ends; come back with the id of the last frame")
                hub = self._hubs.get(key)
                if hub is None or hub.is_over:
                    hub = await self._open(run, key)
                    self._hubs[key] = hub
                return hub
            finally:
                # Nobody can wait here in between: the lock's waiters hold a reference of their own.
                self._opening.pop(key, None)

    async def _open(self, run: Run, key: RunKey) -> Hub:
        row = await self._pool.fetchrow(self._queries["thread_state"], run.thread_id)
        if row is None:
            raise RunPrunedError(f"the session of run {run.run_id!r} was deleted")
        state = merge_state(row["state"], row["user_state"], row["app_state"])
        bridge = EventBridge(
            run.session_id,
            run.run_id,
            run.first_sequence_num,
            state=state,
            state_sequence=row["last_seq"],
            with_history=False,
        )
        while not bridge.is_ended and bridge.sequence < row["last_seq"]:
            events = await self.read(run, bridge.sequence)
            if not events or events[0].sequence_num != bridge.sequence + 1:
                raise RunPrunedError(f"the events of run {run.run_id!r} are not kept any more")
            for event in events:
                bridge.store(event)
        if run.status.is_terminal and not bridge.is_ended:
            raise RunPrunedError(f"the end of run {run.run_id!r} was erased")
        hub = Hub(key, bridge, row["last_seq"])
        if bridge.is_ended:
            # What an aborted run had said is told for as long as it is kept.
            hub.remember(await self._carrier.read([hub]))
        else:
            hub.open(self._listener, self._carrier, self.gone)
        return hub

    @property
    def queue_frames_max(self) -> int:
        """How many frames may wait for one follower."""
        return self._queue_frames_max
