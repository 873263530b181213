"""Followers of threads: one run after the other, in the order in which they began, as one stream.

The protocol has no event outside of a run, and no run within a run. So runs that overlap are sent one after the other,
and an event of no run is sent as a run of its own, called ``event:`` and its number.

A cursor of such a stream is the first number of the run, a slash, and the cursor within the run: ``5/12.2``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

from pulse.agui.cursor import Cursor
from pulse.agui.frames import Frame
from pulse.errors import InvalidInputError
from pulse.event_bridge import EventBridge
from pulse.event_rows import read_event_to_deliver
from pulse.events import Event, Session
from pulse.pg_notify_listener import PgNotifyListener
from pulse.postgres.statements import Statements
from pulse.runs.records import Run, read_run
from pulse.streams.run_hub import Cut
from pulse.streams.run_streams import RunStreams

if TYPE_CHECKING:
    from pulse.database import Pool

_STATEMENTS = Statements("pulse.streams", "streams.sql")


class PlacedFrame(NamedTuple):
    """A frame, and the cursor of the thread's stream after it."""

    id: str
    frame: Frame


@dataclass(frozen=True, slots=True)
class ThreadCursor:
    """A position in the stream of a thread: within the run that began at a number; None is before that run."""

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
        return cls(int(began), Cursor.parse(within))


class ThreadStreams:
    """Follows threads through `RunStreams`."""

    def __init__(self, pool: Pool, listener: PgNotifyListener, streams: RunStreams) -> None:
        self._pool = pool
        self._listener = listener
        self._streams = streams

    async def start_of(self, session: Session, *, from_newest: bool) -> ThreadCursor:
        """Return where a new client begins: at the active run, or with `from_newest` at the newest one."""
        began = await _STATEMENTS.fetchval(self._pool, "current_run", session.thread_id, from_newest)
        return ThreadCursor(began)

    async def follow(
        self, session: Session, cursor: ThreadCursor, *, heartbeat_seconds: float
    ) -> AsyncIterator[list[PlacedFrame]]:
        """Yield frames with their cursors, as they come, for ever; an empty list when none came in time.

        Raises:
            StreamCutError: the stream ends, and why; the client usually reconnects with its cursor.
            InvalidInputError: the cursor names no run of the thread.
        """
        news, gone = asyncio.Event(), asyncio.Event()

        def leave() -> None:
            gone.set()
            news.set()

        subscription = self._listener.subscribe(session.thread_id, lambda _: news.set(), after_sequence=cursor.began)
        forget = self._streams.gone.watch(session.thread_id, leave)
        try:
            if cursor.within is not None:
                async for frames in self._resume(session, cursor.began, cursor.within, heartbeat_seconds):
                    yield frames
            began = cursor.began
            while True:
                news.clear()
                following = await self._next(session, began)
                if following is None:
                    while not news.is_set():
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(heartbeat_seconds):
                                await news.wait()
                        if not news.is_set():
                            yield []
                        if self._streams.is_closed:
                            raise StreamCutError(Cut.ENDING)
                    if gone.is_set():
                        raise StreamCutError(Cut.GONE)
                    continue
                began = _began(following)
                if isinstance(following, Run):
                    async for frames in self._follow_run(following, None, heartbeat_seconds):
                        yield frames
                else:
                    yield await self._single(session, following)
        finally:
            forget()
            subscription.close()

    async def _follow_run(
        self, run: Run, cursor: Cursor | None, heartbeat_seconds: float
    ) -> AsyncIterator[list[PlacedFrame]]:
        async with self._streams.follow(run, cursor) as follower:
            while not follower.is_over:
                frames = await follower.take(heartbeat_seconds)
                if frames or not follower.is_over:
                    yield [PlacedFrame(f"{run.first_sequence_num}/{frame.id}", frame) for frame in frames]
            if follower.cut is not None:
                raise StreamCutError(follower.cut)

    async def _single(self, session: Session, event: Event, cursor: Cursor | None = None) -> list[PlacedFrame]:
        """Return an event of no run as a run of its own."""
        number = _began(event)
        thread = await self._streams.reader.state(session.thread_id)
        bridge = EventBridge(
            thread_id=session.id,
            run_id=event.invocation_id,
            first_sequence=number,
            state={} if thread is None else thread.state,
            state_sequence=number,
            cursor=cursor,
            shown_run_id=f"event:{number}",
        )
        frames = bridge.store(event)
        for frame in frames:
            await self._streams.reader.fill(
                frame, thread_id=session.thread_id, run_id=event.invocation_id, first_sequence=number
            )
        return [PlacedFrame(f"{number}/{frame.id}", frame) for frame in frames]

    async def _next(self, session: Session, began: int) -> Run | Event | None:
        """Return the run, or the event of no run, that began next."""
        row = await _STATEMENTS.fetchrow(self._pool, "next_run", session.thread_id, began)
        run = None if row is None else read_run(row["run"], user_id=session.user_id, session_id=session.id)
        until = None if run is None else run.first_sequence_num
        lone = await _STATEMENTS.fetchrow(self._pool, "next_lone_event", session.thread_id, began, until)
        return run if lone is None else read_event_to_deliver(list(lone))

    async def _resume(
        self, session: Session, began: int, cursor: Cursor, heartbeat_seconds: float
    ) -> AsyncIterator[list[PlacedFrame]]:
        """Yield the rest of the run in which a client was disconnected."""
        following = await self._next(session, began - 1)
        if following is None or _began(following) != began:
            raise InvalidInputError(f"no run of this thread began at {began}; leave the offset out to start again")
        if isinstance(following, Run):
            async for frames in self._follow_run(following, cursor, heartbeat_seconds):
                yield frames
        elif cursor.sequence < began:
            yield await self._single(session, following, cursor)


def _began(following: Run | Event) -> int:
    return following.first_sequence_num if isinstance(following, Run) else following.sequence_num or 0


class StreamCutError(Exception):
    """A stream ended before its run did; `cut` says why."""

    def __init__(self, cut: Cut) -> None:
        super().__init__(cut.value)
        self.cut = cut
