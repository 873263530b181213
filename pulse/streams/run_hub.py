"""One followed run: a hub that translates what is new once, and followers that receive its frames."""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import structlog

from pulse.agui import types as agui
from pulse.agui import wire
from pulse.agui.cursor import Cursor
from pulse.agui.frames import Frame
from pulse.event_bridge import EventBridge, KnownState
from pulse.events import Event
from pulse.live_text import DeltaCarrier, Kind, LiveMessage, RunKey
from pulse.pg_notify_listener import PgNotifyListener, Subscription
from pulse.runs.records import Run
from pulse.streams.frame_queue import FrameQueue, QueueBounds, SendAtOnce
from pulse.streams.gone_threads import GoneThreads
from pulse.streams.run_reader import RunReader
from pulse.streams.shared_states import Owner, SharedStates, SharedWatcher

_log = structlog.get_logger(__name__)


class Cut(enum.Enum):
    """Why a stream ends before its run does. A client reconnects with its cursor, unless it was sent RUN_ERROR."""

    ENDING = "this process is stopping"  # reconnect
    SLOW = "the client is too slow"  # reconnect
    UNREADABLE = "the database does not respond"  # reconnect
    GONE = "the session was deleted or has expired"  # RUN_ERROR: there is nothing to reconnect to
    FAILED = "the stream failed"  # RUN_ERROR: read the conversation again


# What a hub keeps for clients that come back: frames, none of them from a batch of more bytes.
_RECENT_FRAMES = 200
_RECENT_BYTES = 8192
#: How the stream of a run ends that cannot be resumed.
FAREWELL_CODES = {Cut.GONE: "session_gone", Cut.FAILED: "stream_failed"}


def farewell(cut: Cut) -> Frame:
    """Return the last frame of a stream that cannot be resumed. It has no cursor: the run itself may continue."""
    message = f"{cut.value}; read the conversation again" if cut is Cut.FAILED else cut.value
    return Frame("", agui.RunErrorEvent(message=message, code=FAREWELL_CODES[cut]), is_terminal=True)


class StreamCutError(Exception):
    """A stream ended before its run did; `cut` says why."""

    def __init__(self, cut: Cut) -> None:
        super().__init__(cut.value)
        self.cut = cut


@dataclass(slots=True)
class _Text:
    """The text so far of an open message."""

    kind: Kind
    after_sequence: int
    pieces: list[str]
    length: int
    meta: Mapping[str, Any]

    def message(self, run: RunKey, message_id: str) -> LiveMessage:
        return LiveMessage(
            run=run,
            message_id=message_id,
            kind=self.kind,
            after_sequence=self.after_sequence,
            offset=0,
            text="".join(self.pieces),
            meta=self.meta,
        )


class _News(NamedTuple):
    """What is new, and its frames for clients that have the hub's cursor."""

    frames: Sequence[Frame]
    of: Event | LiveMessage | KnownState


class Hub:
    """A followed run, translated once for all followers. A `pulse.live_text.Watcher`."""

    def __init__(self, run: RunKey, owner: Owner, bridge: EventBridge, last_sequence: int) -> None:
        self.run = run
        self.bridge = bridge
        self.last_sequence = last_sequence
        self._owner = owner
        self.followers: dict[RunFollower, None] = {}
        self.closed = asyncio.Event()
        self._recent: deque[Frame] = deque(maxlen=_RECENT_FRAMES)
        self._texts: dict[str, _Text] = {}
        self._held: dict[str, LiveMessage] = {}
        self._news: list[_News] = []  # that the followers do not have yet
        self._subscription: Subscription | None = None
        self._unwatch = contextlib.ExitStack()

    @property
    def is_over(self) -> bool:
        """Whether it receives nothing more."""
        return self.closed.is_set()

    def open(self, listener: PgNotifyListener, carrier: DeltaCarrier, gone: GoneThreads, shared: SharedStates) -> None:
        """Receive what is new from now on."""
        self._unwatch.callback(gone.watch(self.run.thread_id, lambda: self.end(Cut.GONE)))
        self._subscription = listener.subscribe(self.run.thread_id, self._store, after_sequence=self.bridge.sequence)
        self._unwatch.callback(carrier.watch(self))
        watcher = SharedWatcher(lambda: self.bridge.known.mark, self._share)
        self._unwatch.callback(shared.watch(self._owner, watcher))

    def close(self) -> None:
        """Stop receiving. Idempotent."""
        self.closed.set()
        if self._subscription is not None:
            self._subscription.close()
        self._unwatch.close()

    def end(self, cut: Cut) -> None:
        """End every follower."""
        self.close()
        for follower in list(self.followers):
            follower.end(cut)

    def offsets(self) -> Mapping[str, int]:
        """Return how much is known of each open message."""
        return self.bridge.offsets()

    def receive(self, messages: Sequence[LiveMessage]) -> None:
        """Take what is new of open messages."""
        with self._ending_on_fault():
            for message in messages:
                self._receive(message)

    def after(self, cursor: Cursor) -> list[Frame] | None:
        """Return the frames after a cursor that the followers were just sent; None if it is not one of theirs.

        Clients that are disconnected together come back together, and none of them has to catch up from the database.
        """
        if self.bridge.is_ended or cursor.state is None:
            return None
        if cursor == self.bridge.cursor:
            return []
        name = str(cursor)
        following: list[Frame] = []
        for frame in reversed(self._recent):
            if frame.id == name:
                return following[::-1]
            following.append(frame)
        return None

    def receive_transient(self, content: Mapping[str, Any]) -> None:
        """Send an event that is not stored to the followers that are live."""
        event = None if self.is_over else wire.transient(content)
        if event is not None:
            for follower in list(self.followers):
                follower.interject(Frame("", event))

    def texts(self) -> list[LiveMessage]:
        """Return the text so far of each open message, in the order in which they were begun."""
        return [text.message(self.run, message_id) for message_id, text in self._texts.items()]

    def remember(self, messages: Sequence[LiveMessage]) -> None:
        """Keep the texts that a run left unstored when it ended."""
        for message in messages:
            if not self.bridge.has_stored(message.message_id):
                self._keep(message)

    def _receive(self, message: LiveMessage) -> None:
        if message.after_sequence > self.bridge.sequence:
            self._held[message.message_id] = message
            return
        frames = self.bridge.live(message)
        if frames:
            self._keep(message)
        self._push(frames, message)

    def _share(self, latest: KnownState) -> None:
        with self._ending_on_fault():
            self._push(self.bridge.share(latest), latest)

    def _store(self, events: Sequence[Event]) -> None:
        with self._ending_on_fault():
            for event in events:
                frames = self.bridge.store(event)
                self.last_sequence = max(self.last_sequence, self.bridge.sequence)
                self._push(frames, event)
            self._texts = {key: text for key, text in self._texts.items() if not self.bridge.has_stored(key)}
            held, self._held = self._held, {}
            # After a correction, open messages are sent from their beginning again.
            known = self.bridge.offsets()
            dropped = [message for message in self.texts() if message.message_id not in known]
            for message in [*held.values(), *dropped]:
                self._receive(message)
            if self.bridge.is_ended:
                self.close()

    def _push(self, frames: Sequence[Frame], news: Event | LiveMessage | KnownState) -> None:
        if sum(frame.size for frame in frames) > _RECENT_BYTES:
            self._recent.clear()
        else:
            self._recent.extend(frames)
        self._news.append(_News(frames, news))

    def _deliver(self) -> None:
        """Give the followers what is new, together: each may send it with one write."""
        news, self._news = self._news, []
        if news:
            for follower in list(self.followers):
                follower.push(news)

    def _keep(self, message: LiveMessage) -> None:
        text = self._texts.get(message.message_id)
        if text is None or message.offset == 0:
            text = self._texts[message.message_id] = _Text(message.kind, message.after_sequence, [], 0, message.meta)
        piece = message.text[text.length - message.offset :]
        text.pieces.append(piece)
        text.length += len(piece)

    @contextlib.contextmanager
    def _ending_on_fault(self) -> Iterator[None]:
        """Deliver what was translated; end the followers when a translation fails: they would wait for ever."""
        try:
            try:
                yield
            finally:
                self._deliver()
        except Exception:  # noqa: BLE001 - logged whole, and every follower is ended
            _log.exception("stream_failed", run_id=self.run.run_id)
            self.end(Cut.FAILED)


class RunFollower:
    """One reader of a run. Take frames from it until there are no more.

    Attributes:
        has_ended: a last frame was taken; a follower that is over without one was disconnected.
        is_shared: it leads the followers of a thread, and its snapshots of messages are left to be filled.
        cut: why it was disconnected before the run's end; None otherwise.
    """

    def __init__(
        self,
        reader: RunReader,
        hub: Hub,
        run: Run,
        cursor: Cursor | None,
        *,
        with_history: bool,
        known_inputs: frozenset[str],
        before: KnownState | None,
        is_shared: bool,
        bounds: QueueBounds,
        send_at_once: SendAtOnce | None,
        on_slow: Callable[[], None],
    ) -> None:
        self._reader = reader
        self._on_slow = on_slow
        self._hub = hub
        self._run = run
        self._known_inputs = frozenset() if with_history else known_inputs
        # The event of which the client has a part is stored, too.
        self._until = 0 if cursor is None else cursor.sequence + (cursor.frames > 0)
        self._bridge: EventBridge | None = EventBridge(
            thread_id=run.session_id,
            run_id=run.run_id,
            first_sequence=run.first_sequence_num,
            known=hub.bridge.known,
            cursor=cursor,
            with_history=with_history,
            before=before,
            is_shared=is_shared,
        )
        self._resumed: list[Frame] = self._bridge.resume()
        self.is_shared = is_shared
        self._is_live = False
        self._is_over = False
        self.has_ended = False
        self.cut: Cut | None = None
        self._queue = FrameQueue(bounds, send_at_once)
        recent = None if cursor is None else hub.after(cursor)
        if recent is not None:
            self._bridge, self._resumed, self._is_live = None, [], True
            self._add(recent)

    @property
    def is_over(self) -> bool:
        """Whether it was disconnected, or has had the last frame."""
        return self._is_over and not self._queue

    def end(self, cut: Cut) -> None:
        """Disconnect the reader. It gets one more frame if it has nothing to reconnect to."""
        if not self._is_over:
            self._is_over, self.cut = True, cut
            if cut in FAREWELL_CODES:
                self._queue.add(farewell(cut))
        self._queue.wake()

    @property
    def known(self) -> KnownState | None:
        """The state that the client has, once everything was taken; None if that is another one."""
        return None if self._resumed else (self._bridge or self._hub.bridge).known

    async def take(self, timeout_seconds: float) -> list[Frame]:
        """Return the next frames; none if none came in time, or if there are no more (`is_over`)."""
        frames = await (self._take_live(timeout_seconds) if self._is_live else self._catch_up())
        for frame in frames:
            self.has_ended = self.has_ended or frame.is_terminal
            if frame.history_until is not None and not self.is_shared:
                await self.fill(frame)
        return frames

    async def batches(self, heartbeat_seconds: float) -> AsyncIterator[list[Frame]]:
        """Yield frames to the run's last one; an empty list when none came in time.

        Raises:
            StreamCutError: it was disconnected.
        """
        while not self.is_over:
            frames = await self.take(heartbeat_seconds)
            if frames or not self.is_over:
                yield frames
        if self.cut is not None:
            raise StreamCutError(self.cut)

    async def fill(self, frame: Frame) -> None:
        """Read the conversation of a snapshot of messages."""
        await self._reader.fill(
            frame,
            thread_id=self._run.thread_id,
            run_id=self._run.run_id,
            first_sequence=self._run.first_sequence_num,
        )

    def push(self, news: Sequence[_News]) -> None:
        """Take the hub's frames; before it has reached the hub's cursor, translate the news itself."""
        if not self._is_live or self._is_over:
            return
        if self._bridge is None:
            self._add(news[0].frames if len(news) == 1 else [frame for each in news for frame in each.frames])
            return
        bridge = self._bridge
        self._add([frame for each in news for frame in _translated(bridge, each.of)])
        self._join_hub()

    def follows(self, session_id: str | None, run_id: str | None) -> bool:
        """Whether it follows this run, or a run of this session."""
        return run_id == self._run.run_id if run_id is not None else session_id == self._run.session_id

    def interject(self, frame: Frame) -> None:
        """Send a frame without a cursor next, if the follower is live."""
        if self._is_live and not self._is_over:
            self._add([frame])

    async def _catch_up(self) -> list[Frame]:
        """Return the frames of the next page of events; at the hub's cursor those of the open texts, and go live."""
        bridge = self._bridge
        assert bridge is not None  # noqa: S101 - until it is live
        if self._is_over:
            return self._queue.drain()
        while bridge.sequence < max(self._hub.bridge.sequence, self._until) and not bridge.is_ended:
            events = await self._reader.events(self._run.thread_id, bridge.sequence)
            frames = [frame for event in events for frame in self._replay(bridge, event)]
            if frames := list(self._unknown(frames)):
                self._is_over = self._is_over or bridge.is_ended
                return self._after_resumption(frames)
            if not events:
                self.end(Cut.GONE)
                return self._queue.drain()
        if bridge.is_ended:
            # The client has had the last frame already.
            self._is_over = self.has_ended = True
            return []
        self._is_live = True
        # The hub may have received newer shared states since this follower came.
        frames = bridge.share(self._hub.bridge.known)
        frames += [frame for text in self._hub.texts() for frame in bridge.live(text)]
        self._join_hub()
        return self._after_resumption(frames)

    def _after_resumption(self, frames: list[Frame]) -> list[Frame]:
        resumed, self._resumed = self._resumed, []
        return [*resumed, *frames]

    def _replay(self, bridge: EventBridge, event: Event) -> list[Frame]:
        """Translate a stored event, after the open messages that were begun before it."""
        begun = [frame for text in self._hub.texts() for frame in bridge.live(text)]
        return begun + bridge.store(event)

    def _join_hub(self) -> None:
        if self._bridge is not None and self._bridge.cursor == self._hub.bridge.cursor:
            self._bridge = None

    async def _take_live(self, timeout_seconds: float) -> list[Frame]:
        if not self._is_over:
            await self._queue.wait(timeout_seconds)
        return self._queue.drain()

    def _add(self, frames: Sequence[Frame]) -> None:
        if not (frames := self._unknown(frames)):
            return
        if self._queue.extend(frames):
            self._is_over = self._is_over or any(frame.is_terminal for frame in frames)
        else:
            self._on_slow()
            self.end(Cut.SLOW)

    def _unknown(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        """Leave out the user messages that this client sent itself, and the history that it has.

        The frame before an omitted one takes its cursor: a client that reconnects with it, by any route, is not sent
        the message that it has.
        """
        if not self._known_inputs:
            return frames
        unknown: list[Frame] = []
        for frame in frames:
            if frame.for_input is None or frame.for_input not in self._known_inputs:
                unknown.append(frame)
            elif unknown:
                unknown[-1] = replace(unknown[-1], id=frame.id)
        return unknown


def _translated(bridge: EventBridge, news: Event | LiveMessage | KnownState) -> list[Frame]:
    if isinstance(news, Event):
        return bridge.store(news)
    return bridge.live(news) if isinstance(news, LiveMessage) else bridge.share(news)
