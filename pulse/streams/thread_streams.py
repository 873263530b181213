"""Followers of threads: one run after the other, in the order in which they began, as one stream.

The protocol has no event outside of a run, and no run within a run. So runs that overlap are sent one after the other,
and an event of no run is sent as a run of its own, called ``event:`` and its number.

A client gets the conversation and the state once, where its stream begins; from then on it has both, and every further
run brings only what is new. One hub per followed thread translates that once: a client first catches up by itself, from
its cursor or from the run that is active, and joins the hub's other followers where nothing is left.

A cursor of such a stream is the first number of the run, a slash, and the cursor within the run: ``5/12.2``. With
nothing after the slash no frame was sent yet, and the stream begins after the number.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import structlog

from pulse.agui.cursor import Cursor, StateMark
from pulse.agui.frames import Audience, Frame
from pulse.database import FAULTS
from pulse.errors import InvalidInputError, PulseError, StreamsClosedError
from pulse.event_bridge import EventBridge, KnownState
from pulse.event_rows import read_event_to_deliver
from pulse.events import Event, Session
from pulse.pg_notify_listener import PgNotifyListener, Subscription
from pulse.postgres.statements import Statements
from pulse.runs.records import Run, read_run
from pulse.streams.frame_queue import FrameQueue, SendAtOnce
from pulse.streams.run_hub import FAREWELL_CODES, Cut, StreamCutError, farewell
from pulse.streams.run_streams import RunStreams

if TYPE_CHECKING:
    import uuid

    from pulse.database import Pool

_STATEMENTS = Statements("pulse.streams", "streams.sql")
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ThreadCursor:
    """A position in the stream of a thread: within the run that began at a number, or, with None, after the number."""

    began: int
    within: Cursor | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a cursor.

        Raises:
            InvalidInputError: the text is not a cursor.
        """
        began, slash, within = text.partition("/")
        if not slash or not (began.isascii() and began.isdecimal() and len(began) < 19):
            raise InvalidInputError(f"{text[:60]!r} is not a cursor of a thread; send the id of the last frame")
        return cls(int(began), Cursor.parse(within) if within else None)

    def __str__(self) -> str:
        return f"{self.began}/{self.within or ''}"


class ThreadStreams:
    """Follows threads through `RunStreams`."""

    def __init__(self, pool: Pool, listener: PgNotifyListener, streams: RunStreams) -> None:
        self._pool = pool
        self._hubs: dict[uuid.UUID, _ThreadHub] = {}
        self.listener = listener
        self.streams = streams
        streams.on_stop.append(self._end)

    async def start_of(self, session: Session, *, from_newest: bool = False) -> ThreadCursor:
        """Return where a new client begins: at the active run, or with `from_newest` at the newest one.

        Raises:
            StreamsClosedError: this process is stopping.
        """
        if self.streams.is_closed:
            raise StreamsClosedError("this process is stopping; reconnect with the id of the last frame")
        began = await _STATEMENTS.fetchval(self._pool, "current_run", session.thread_id, from_newest)
        return ThreadCursor(began)

    async def check(self, session: Session, cursor: ThreadCursor) -> None:
        """Check that a run began where a cursor says, or that the thread has reached it.

        Raises:
            InvalidInputError: the cursor names no run of the thread.
        """
        if cursor.within is None:
            last = await _STATEMENTS.fetchval(self._pool, "last_number", session.thread_id)
            if cursor.began > (last or 0):
                raise _no_run(cursor.began)
            return
        following = await self.next(session, cursor.began - 1)
        if following is None or began_at(following) != cursor.began:
            raise _no_run(cursor.began)

    async def follow(
        self,
        session: Session,
        cursor: ThreadCursor,
        *,
        heartbeat_seconds: float,
        send_at_once: SendAtOnce | None = None,
    ) -> AsyncIterator[list[Frame]]:
        """Yield frames with their cursors, as they come, for ever; an empty list when none came in time.

        Args:
            send_at_once: as for `RunStreams.follow`.

        Raises:
            StreamCutError: the stream ends, and why; the client usually reconnects with its cursor.
            InvalidInputError: the cursor names no run of the thread.
        """
        hub = self._enter(session)
        follower = _ThreadFollower(FrameQueue(self.streams.bounds, send_at_once))
        walk = _Walk(self, session, cursor)
        try:
            if cursor.within is not None:
                async for frames in walk.resume(cursor.within, heartbeat_seconds):
                    yield frames
            while not hub.join(follower, walk):
                async for frames in walk.advance(heartbeat_seconds):
                    yield frames
            while follower.cut is None or follower.queue:
                frames = await follower.take(heartbeat_seconds)
                if frames or follower.cut is None:
                    yield frames
            if follower.cut is not None:
                raise StreamCutError(follower.cut)
        finally:
            hub.leave(follower)
            if hub.is_unused and self._hubs.get(session.thread_id) is hub:
                del self._hubs[session.thread_id]

    async def next(self, session: Session, began: int) -> Run | Event | None:
        """Return the run, or the event of no run, that began next."""
        row = await _STATEMENTS.fetchrow(self._pool, "next_run", session.thread_id, began)
        run = None if row is None else read_run(row["run"], user_id=session.user_id, session_id=session.id)
        until = None if run is None else run.first_sequence_num
        lone = await _STATEMENTS.fetchrow(self._pool, "next_lone_event", session.thread_id, began, until)
        return run if lone is None else read_event_to_deliver(list(lone))

    def _enter(self, session: Session) -> _ThreadHub:
        hub = self._hubs.get(session.thread_id)
        if hub is None or hub.is_over:
            hub = self._hubs[session.thread_id] = _ThreadHub(self, session)
        hub.enter()
        return hub

    def _end(self) -> None:
        for hub in list(self._hubs.values()):
            hub.end(Cut.ENDING)


class _Walk:
    """One client's way through the runs of a thread, as long as it is on its own.

    Attributes:
        began: the number of the last run that was begun.
        is_exhausted: the last step found nothing more.
        mark: which state the client has; None for a new client.
    """

    def __init__(self, threads: ThreadStreams, session: Session, cursor: ThreadCursor) -> None:
        self._threads = threads
        self._session = session
        # Its first state comes with its conversation.
        self._is_new = cursor.within is None or cursor.within.state is None
        self._known: KnownState | None = None
        self.began = cursor.began
        self.is_exhausted = False
        self.mark: StateMark | None = None

    async def resume(self, cursor: Cursor, heartbeat_seconds: float) -> AsyncIterator[list[Frame]]:
        """Yield the rest of the run in which a client was disconnected."""
        following = await self._threads.next(self._session, self.began - 1)
        if following is None or began_at(following) != self.began:
            raise _no_run(self.began)
        self.mark = cursor.state or StateMark()
        if isinstance(following, Run) or cursor.sequence < self.began:
            async for frames in self._follow(following, cursor, heartbeat_seconds):
                yield frames

    async def advance(self, heartbeat_seconds: float) -> AsyncIterator[list[Frame]]:
        """Yield the next run, if there is one."""
        following = await self._threads.next(self._session, self.began)
        self.is_exhausted = following is None
        if following is not None:
            self.began = began_at(following)
            async for frames in self._follow(following, None, heartbeat_seconds):
                yield frames

    async def _follow(
        self, following: Run | Event, cursor: Cursor | None, heartbeat_seconds: float
    ) -> AsyncIterator[list[Frame]]:
        streams = self._threads.streams
        if isinstance(following, Event):
            reader = streams.reader
            known = await reader.state(self._session.thread_id)
            bridge = _lone_bridge(
                self._session, following, known, cursor, with_history=self._is_new, before=self._known
            )
            frames = [*bridge.resume(), *bridge.store(following)]
            for frame in frames:
                await _fill_lone(streams, self._session, following, frame)
            yield _placed(self.began, frames)
            self._known = bridge.known
        else:
            async with streams.follow(following, cursor, with_history=self._is_new, before=self._known) as follower:
                async for frames in follower.batches(heartbeat_seconds):
                    yield _placed(self.began, frames)
                self._known = follower.known
        self._is_new = False
        if self._known is not None:
            self.mark = self._known.mark


class _ThreadFollower:
    """A client that has caught up, and receives what the hub's other followers receive.

    Attributes:
        after: runs that began up to here were sent.
        mark: which state it has; None for a new client.
    """

    def __init__(self, queue: FrameQueue) -> None:
        self.queue = queue
        self.after = 0
        self.mark: StateMark | None = None
        self.cut: Cut | None = None
        self.audience = frozenset({Audience.ALL})

    async def take(self, timeout_seconds: float) -> list[Frame]:
        if self.cut is None:
            await self.queue.wait(timeout_seconds)
        return self.queue.drain()

    def end(self, cut: Cut) -> None:
        if self.cut is None:
            self.cut = cut
            self.queue.wake()


class _ThreadHub:
    """A followed thread: one task walks through its runs for every follower that has caught up."""

    def __init__(self, threads: ThreadStreams, session: Session) -> None:
        self._threads = threads
        self._session = session
        self._streams = threads.streams
        self._users = 0
        self._followers: dict[_ThreadFollower, None] = {}
        self._news = asyncio.Event()
        self._cut: Cut | None = None
        self._began = 0
        self._led = 0  # the beginning of the last run that was led through
        self._is_inside = False  # of a run, whose followers get its end or RUN_ERROR
        self._known: KnownState | None = None
        self._leading: asyncio.Task[None] | None = None
        self._subscription: Subscription | None = None
        self._forget: Callable[[], None] = self._streams.gone.watch(session.thread_id, lambda: self.end(Cut.GONE))

    @property
    def is_over(self) -> bool:
        """Whether it sends nothing more."""
        return self._cut is not None

    @property
    def is_unused(self) -> bool:
        """Whether no client follows the thread."""
        return self._users == 0

    def enter(self) -> None:
        """Count a client."""
        self._users += 1

    def leave(self, follower: _ThreadFollower) -> None:
        """Remove a client; the last one ends the hub."""
        self._users -= 1
        self._remove(follower)
        if self._users == 0:
            self.end(Cut.ENDING)

    def join(self, follower: _ThreadFollower, walk: _Walk) -> bool:
        """Take a client that has caught up; False if a run has begun that it does not have."""
        if self._cut is None and self._streams.is_closed:
            self.end(Cut.ENDING)
        if self._cut is not None:
            raise StreamCutError(self._cut)
        if not walk.is_exhausted or self._led > walk.began:
            return False
        follower.after, follower.mark = walk.began, walk.mark
        self._followers[follower] = None
        self._streams.joined += 1
        if self._leading is None:
            self._began = walk.began
            self._leading = asyncio.create_task(self._lead(), name="thread stream")
        return True

    def end(self, cut: Cut) -> None:
        """End every follower. Idempotent."""
        if self._cut is not None:
            return
        self._cut = cut
        self._forget()
        if self._subscription is not None:
            self._subscription.close()
        if self._leading is not None:
            self._leading.cancel()
        for follower in self._followers:
            if self._is_inside and cut in FAREWELL_CODES and follower.after < self._began:
                follower.queue.add(farewell(cut))
            follower.end(cut)

    def _remove(self, follower: _ThreadFollower) -> None:
        if follower in self._followers:
            del self._followers[follower]
            self._streams.joined -= 1

    async def _lead(self) -> None:
        try:
            self._known = await self._streams.reader.state(self._session.thread_id)
            if self._known is None:
                self.end(Cut.GONE)
                return
            self._subscription = self._threads.listener.subscribe(
                self._session.thread_id, lambda _: self._news.set(), after_sequence=self._known.mark.sequence
            )
            while True:
                self._news.clear()
                following = await self._threads.next(self._session, self._began)
                if following is None:
                    await self._news.wait()
                else:
                    self._is_inside = True
                    await self._lead_through(following)
                    self._is_inside = False
        except StreamCutError as error:
            self.end(error.cut)
        except (PulseError, *FAULTS) as error:
            _log.warning("stream_cut", error=type(error).__name__)
            self.end(Cut.UNREADABLE)
        except Exception:  # noqa: BLE001 - logged whole, and every follower is ended: they would wait for ever
            _log.exception("stream_failed", thread_id=str(self._session.thread_id))
            self.end(Cut.FAILED)

    async def _lead_through(self, following: Run | Event) -> None:
        # From here on, a client that has not begun this run cannot join.
        self._began = self._led = began_at(following)
        self._choose_audiences()
        if isinstance(following, Run):
            async with self._streams.follow(following, before=self._known, is_shared=True) as leader:
                async for frames in leader.batches(_LEADER_WAIT_SECONDS):
                    await self._send(frames, leader.fill)
                self._known = leader.known
            return
        known = await self._streams.reader.state(self._session.thread_id)
        bridge = _lone_bridge(self._session, following, known, None, before=self._known, is_shared=True)
        await self._send(
            bridge.store(following), lambda frame: _fill_lone(self._streams, self._session, following, frame)
        )
        self._known = bridge.known

    def _choose_audiences(self) -> None:
        mark = None if self._known is None else self._known.mark
        for follower in self._followers:
            if follower.after >= self._began:
                continue
            if follower.mark is None:
                audience = {Audience.NEW, Audience.BEHIND}
            elif follower.mark is _THE_HUBS or follower.mark == mark:
                audience = {Audience.CURRENT}
            else:
                audience = {Audience.BEHIND}
            follower.audience = frozenset({Audience.ALL, *audience})
            follower.mark = _THE_HUBS

    async def _send(self, frames: list[Frame], fill: Callable[[Frame], object]) -> None:
        placed = _placed(self._began, frames)
        for frame in placed:
            if frame.history_until is not None and any(frame.audience in each.audience for each in self._behind()):
                await fill(frame)  # type: ignore[misc]  # a coroutine
        for follower in self._behind():
            wanted = [frame for frame in placed if frame.audience in follower.audience]
            if wanted and not follower.queue.extend(wanted):
                self._remove(follower)
                self._streams.count_slow()
                follower.end(Cut.SLOW)

    def _behind(self) -> list[_ThreadFollower]:
        """Return the followers that get the run from the hub."""
        return [each for each in self._followers if each.after < self._began]


# A follower that has received a run from the hub has the hub's state.
_THE_HUBS = StateMark(-1)
_LEADER_WAIT_SECONDS = 3600.0


def began_at(following: Run | Event) -> int:
    """Return the number of the first event."""
    return following.first_sequence_num if isinstance(following, Run) else following.sequence_num or 0


def _no_run(began: int) -> InvalidInputError:
    return InvalidInputError(f"no run of this thread began at {began}; leave the offset out to start again")


def _lone_bridge(
    session: Session,
    event: Event,
    known: KnownState | None,
    cursor: Cursor | None,
    *,
    with_history: bool = False,
    before: KnownState | None,
    is_shared: bool = False,
) -> EventBridge:
    """Return the bridge of an event of no run, which is sent as a run of its own."""
    number = began_at(event)
    return EventBridge(
        thread_id=session.id,
        run_id=event.invocation_id,
        first_sequence=number,
        known=known,
        cursor=cursor,
        with_history=with_history,
        before=before,
        is_shared=is_shared,
        shown_run_id=f"event:{number}",
    )


async def _fill_lone(streams: RunStreams, session: Session, event: Event, frame: Frame) -> None:
    await streams.reader.fill(
        frame, thread_id=session.thread_id, run_id=event.invocation_id, first_sequence=began_at(event)
    )


def _placed(began: int, frames: list[Frame]) -> list[Frame]:
    """Return frames with the thread's cursors; what is encoded of them is shared."""
    return [replace(frame, id=f"{began}/{frame.id}") if frame.id else frame for frame in frames]
