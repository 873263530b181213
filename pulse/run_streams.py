"""Followers of runs: each gets the run's frames from its cursor on, live ones as they come, encoded once for all.

One `_Hub` per run that is followed in this process translates what is new, once. A follower first catches up by a
bridge of its own, from the database; when it stands where the hub stands, it is handed the hub's frames. One that comes
back with a message half received keeps its own bridge until both stand at the same place.

A follower's queue is bounded. Whoever reads too slowly is let go, and comes back with its cursor.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import asyncpg
import structlog
from ag_ui.core import MessagesSnapshotEvent

from pulse.agui.cursor import Cursor
from pulse.agui.frames import Frame
from pulse.agui.messages import MESSAGE_TYPES, messages_of
from pulse.errors import InvalidInputError, RunPrunedError, StreamsClosedError
from pulse.event_bridge import EventBridge
from pulse.event_rows import read_event
from pulse.events import Event
from pulse.pg_notify_listener import PgNotifyListener, Subscription
from pulse.runs import Run
from pulse.scopes import merge_state
from pulse.sql import load_queries
from pulse.stream import DeltaCarrier, Kind, LiveMessage, RunKey

if TYPE_CHECKING:
    from pulse.database import Pool

#: Messages of a conversation that a new client is given, the newest.
HISTORY_MESSAGES_MAX = 1000
#: Frames that wait for one follower at most.
QUEUE_FRAMES_MAX = 1000
_PAGE_EVENTS = 200
_SWEEP_SECONDS = 10.0
_log = structlog.get_logger(__name__)


class RunStreams:
    """Every followed run of this process.

    Args:
        queue_frames_max: that may wait for one follower before it is let go.
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
        self._hubs: dict[RunKey, _Hub] = {}
        self._opening: dict[RunKey, asyncio.Lock] = {}
        self._is_closed = False
        self._sweeper: asyncio.Task[None] | None = None
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
        self._sweeper = asyncio.create_task(self._sweep(), name="stream sweeper")

    def begin_stop(self) -> None:
        """End every stream, without a last event: the clients come back with their cursors. Takes no further ones."""
        self._is_closed = True
        for hub in list(self._hubs.values()):
            hub.end()

    async def stop(self) -> None:
        """End every stream and what looks after them. Idempotent."""
        self.begin_stop()
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)

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
            follower.end()
            hub.followers.pop(follower, None)
            if not hub.followers:
                hub.close()
                if self._hubs.get(hub.run) is hub:
                    del self._hubs[hub.run]

    async def read(self, run: Run, after_sequence: int) -> list[Event]:
        """Read a page of a run's thread, in sequence."""
        rows = await self._pool.fetch(self._queries["run_events"], run.thread_id, after_sequence, _PAGE_EVENTS)
        return [read_event(*row) for row in rows]

    async def fill(self, thread_id: uuid.UUID, run_id: str, first_sequence: int, frame: Frame) -> None:
        """Put the conversation into a snapshot of messages that has none yet, without what other runs say meanwhile."""
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
        )
        frame.event.messages = messages_of(read_event(*row) for row in reversed(rows))
        frame.history_until = None

    async def _enter(self, run: Run) -> _Hub:
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

    async def _open(self, run: Run, key: RunKey) -> _Hub:
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
        hub = _Hub(key, bridge, row["last_seq"])
        if bridge.is_ended:
            # What an aborted run had said is told for as long as it is kept.
            hub.remember(await self._carrier.read([hub]))
        else:
            hub.open(self._listener, self._carrier)
        return hub

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            hubs = list(self._hubs.values())
            with contextlib.suppress(OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                rows = await self._pool.fetch(self._queries["gone_threads"], [hub.run.thread_id for hub in hubs])
                gone = {row["thread_id"] for row in rows}
                for hub in hubs:
                    if hub.run.thread_id in gone:
                        hub.end()

    @property
    def queue_frames_max(self) -> int:
        """How many frames may wait for one follower."""
        return self._queue_frames_max


@dataclass(slots=True)
class _Text:
    """The text so far of an open message."""

    kind: Kind
    after_sequence: int
    pieces: list[str]
    length: int

    def message(self, run: RunKey, message_id: str) -> LiveMessage:
        return LiveMessage(
            run=run,
            message_id=message_id,
            kind=self.kind,
            after_sequence=self.after_sequence,
            offset=0,
            text="".join(self.pieces),
        )


class _Hub:
    """One run: what is new of it, translated once. A `pulse.stream.Watcher`."""

    def __init__(self, run: RunKey, bridge: EventBridge, last_sequence: int) -> None:
        self.run = run
        self.bridge = bridge
        self.last_sequence = last_sequence
        self.followers: dict[RunFollower, None] = {}
        self.is_over = False
        self._texts: dict[str, _Text] = {}
        self._held: dict[str, LiveMessage] = {}
        self._subscription: Subscription | None = None
        self._unwatch = contextlib.ExitStack()

    def open(self, listener: PgNotifyListener, carrier: DeltaCarrier) -> None:
        self._subscription = listener.subscribe(self.run.thread_id, self._store, after_sequence=self.bridge.sequence)
        self._unwatch.callback(carrier.watch(self))

    def close(self) -> None:
        self.is_over = True
        if self._subscription is not None:
            self._subscription.close()
        self._unwatch.close()

    def end(self) -> None:
        """Let every follower go."""
        self.close()
        for follower in list(self.followers):
            follower.end()

    def offsets(self) -> Mapping[str, int]:
        return self.bridge.offsets()

    def hear(self, messages: Sequence[LiveMessage]) -> None:
        with self._ending_on_fault():
            for message in messages:
                self._hear(message)

    def texts(self) -> list[LiveMessage]:
        """The open messages, whole as far as they go, in the order of their beginning."""
        return [text.message(self.run, message_id) for message_id, text in self._texts.items()]

    def remember(self, messages: Sequence[LiveMessage]) -> None:
        for message in messages:
            if not self.bridge.has_said(message.message_id):
                self._keep(message)

    def _hear(self, message: LiveMessage) -> None:
        if message.after_sequence > self.bridge.sequence:
            self._held[message.message_id] = message
            return
        frames = self.bridge.live(message)
        if frames:
            self._keep(message)
        for follower in list(self.followers):
            follower.push(frames, message)

    def _store(self, events: Sequence[Event]) -> None:
        with self._ending_on_fault():
            for event in events:
                frames = self.bridge.store(event)
                self.last_sequence = max(self.last_sequence, self.bridge.sequence)
                for follower in list(self.followers):
                    follower.push(frames, event)
            self._texts = {key: text for key, text in self._texts.items() if not self.bridge.has_said(key)}
            held, self._held = self._held, {}
            # After a correction, what is open begins anew.
            known = self.bridge.offsets()
            dropped = [message for message in self.texts() if message.message_id not in known]
            for message in [*held.values(), *dropped]:
                self._hear(message)
            if self.bridge.is_ended:
                self.close()

    def _keep(self, message: LiveMessage) -> None:
        text = self._texts.get(message.message_id)
        if text is None or message.offset == 0:
            text = self._texts[message.message_id] = _Text(message.kind, message.after_sequence, [], 0)
        piece = message.text[text.length - message.offset :]
        text.pieces.append(piece)
        text.length += len(piece)

    @contextlib.contextmanager
    def _ending_on_fault(self) -> Any:
        """A translation that fails must not leave followers waiting for ever: they come back, or see the error."""
        try:
            yield
        except Exception:  # noqa: BLE001 - logged whole, and no follower is left behind
            _log.exception("stream_failed", run_id=self.run.run_id)
            self.end()


class RunFollower:
    """One reader of a run. Take frames from it until there are no more.

    Attributes:
        has_ended: the run's last frame was taken; a follower that is over without it was cut off.
    """

    def __init__(
        self,
        streams: RunStreams,
        hub: _Hub,
        run: Run,
        cursor: Cursor | None,
        *,
        with_history: bool,
        known_inputs: frozenset[str],
    ) -> None:
        self._streams = streams
        self._hub = hub
        self._run = run
        self._known_inputs = frozenset() if with_history else known_inputs
        self._until = cursor.sequence if cursor is not None else 0
        self._bridge: EventBridge | None = EventBridge(
            run.session_id,
            run.run_id,
            run.first_sequence_num,
            state=hub.bridge.state,
            state_sequence=max(hub.bridge.sequence, hub.last_sequence),
            cursor=cursor,
            with_history=with_history,
        )
        self._is_live = False
        self._is_over = False
        self.has_ended = False
        self._queue: deque[Frame] = deque()
        self._ready = asyncio.Event()

    @property
    def is_over(self) -> bool:
        """Whether it was let go, or has had the last frame."""
        return self._is_over and not self._queue

    def end(self) -> None:
        """Let the reader go: it gets nothing more."""
        self._is_over = True
        self._ready.set()

    async def take(self, timeout_seconds: float) -> list[Frame]:
        """Return the next frames; none where none came in time, or there will be no more: see `is_over`."""
        frames = await (self._take_live(timeout_seconds) if self._is_live else self._catch_up())
        for frame in frames:
            self.has_ended = self.has_ended or frame.is_terminal
            if frame.history_until is not None:
                await self._streams.fill(self._run.thread_id, self._run.run_id, self._run.first_sequence_num, frame)
        return frames

    def push(self, frames: Sequence[Frame], news: Event | LiveMessage) -> None:
        """Take the hub's frames, or make its own of what is new, until it stands where the hub stands."""
        if not self._is_live or self._is_over:
            return
        if self._bridge is not None:
            frames = self._bridge.store(news) if isinstance(news, Event) else self._bridge.live(news)
            self._join_hub()
        self._add(frames)

    def follows(self, session_id: str | None, run_id: str | None) -> bool:
        """Whether this is a follower of a run, or of a run of a session."""
        return run_id == self._run.run_id if run_id is not None else session_id == self._run.session_id

    def interject(self, frame: Frame) -> None:
        """Add a frame of no place to what is sent next, where the run has begun and goes on."""
        if self._is_live and not self._is_over:
            self._add([frame])

    async def _catch_up(self) -> list[Frame]:
        """Return the frames of the next page of events; at the hub's place, those of the open texts, and go live."""
        bridge = self._bridge
        assert bridge is not None  # noqa: S101 - until it is live
        if self._is_over:
            return []
        while bridge.sequence < max(self._hub.bridge.sequence, self._until) and not bridge.is_ended:
            events = await self._streams.read(self._run, bridge.sequence)
            frames = [frame for event in events for frame in self._replay(bridge, event)]
            if frames := self._unknown(frames):
                self._is_over = self._is_over or bridge.is_ended
                return frames
            if not events:
                # The session was deleted meanwhile.
                self._is_over = True
                return []
        if bridge.is_ended:
            # Of a run that is over, the client had the last frame already.
            self._is_over = self.has_ended = True
            return []
        self._is_live = True
        frames = [frame for text in self._hub.texts() for frame in bridge.live(text)]
        self._join_hub()
        return frames

    def _replay(self, bridge: EventBridge, event: Event) -> list[Frame]:
        """Translate an event that was stored before, after what was begun before it and is not stored."""
        begun = [frame for text in self._hub.texts() for frame in bridge.live(text)]
        return begun + bridge.store(event)

    def _join_hub(self) -> None:
        if self._bridge is not None and self._bridge.cursor == self._hub.bridge.cursor:
            self._bridge = None

    async def _take_live(self, timeout_seconds: float) -> list[Frame]:
        if not self._queue and not self._is_over:
            self._ready.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_seconds):
                    await self._ready.wait()
        frames = list(self._queue)
        self._queue.clear()
        return frames

    def _add(self, frames: Iterable[Frame]) -> None:
        for frame in self._unknown(frames):
            if len(self._queue) >= self._streams.queue_frames_max:
                self._queue.clear()
                self._streams.let_go += 1
                self.end()
                return
            self._queue.append(frame)
            self._is_over = self._is_over or frame.is_terminal
        if self._queue:
            self._ready.set()

    def _unknown(self, frames: Iterable[Frame]) -> list[Frame]:
        """Leave out the user messages that this client sent itself."""
        return [frame for frame in frames if frame.for_input is None or frame.for_input not in self._known_inputs]
