"""Followers of threads: one run after the other, in the order in which they began, as one stream.

The protocol knows no event outside of a run, and no run within a run. So runs that overlap are told one after the
other, none is lost; and an event of no run is told as a run of its own, called ``event:`` and its number.

A place in such a stream is the first number of the run, a slash, and the cursor within the run: ``5/12.2``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from pulse.agui.cursor import Cursor
from pulse.agui.frames import Frame
from pulse.errors import InvalidInputError
from pulse.event_bridge import EventBridge
from pulse.event_rows import read_event_to_deliver
from pulse.events import Event, Session
from pulse.pg_notify_listener import PgNotifyListener
from pulse.postgres.statements import load_queries
from pulse.runs.records import Run, read_run
from pulse.scopes import merge_state
from pulse.streams.run_hub import Cut
from pulse.streams.run_streams import RunStreams

if TYPE_CHECKING:
    from pulse.database import Pool


@dataclass(frozen=True, slots=True)
class ThreadCursor:
    """A place in the stream of a thread: in the run that began at a number, after a frame of it; None: before it."""

    began: int
    within: Cursor | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a place.

        Raises:
            InvalidInputError: it is none.
        """
        began, slash, within = text.partition("/")
        if not slash or not (began.isascii() and began.isdecimal() and len(began) < 19):
            raise InvalidInputError(f"{text[:60]!r} is no place in a thread's stream; send the id of the last frame")
        return cls(int(began), Cursor.parse(within))


class ThreadStreams:
    """Follows threads by means of `RunStreams`."""

    def __init__(self, pool: Pool, listener: PgNotifyListener, streams: RunStreams) -> None:
        self._pool = pool
        self._listener = listener
        self._streams = streams
        self._queries = load_queries("pulse", "streams.sql")

    async def start_of(self, session: Session, *, from_newest: bool) -> ThreadCursor:
        """Return where a client begins that has nothing: at the run that runs, or, if asked, at the newest one."""
        began = await self._pool.fetchval(self._queries["current_run"], session.thread_id, from_newest)
        return ThreadCursor(began)

    async def follow(
        self, session: Session, place: ThreadCursor, *, heartbeat_seconds: float
    ) -> AsyncIterator[list[tuple[str, Frame]]]:
        """Yield frames with their places, as they come, for ever; an empty list when none came in time.

        Raises:
            StreamCutError: the stream ends, and why; most often the client is to come back with its place.
            InvalidInputError: there is no such place.
        """
        news, gone = asyncio.Event(), asyncio.Event()

        def leave() -> None:
            gone.set()
            news.set()

        subscription = self._listener.subscribe(session.thread_id, lambda _: news.set(), after_sequence=place.began)
        forget = self._streams.gone.watch(session.thread_id, leave)
        try:
            if place.within is not None:
                async for frames in self._go_on(session, place.began, place.within, heartbeat_seconds):
                    yield frames
            began = place.began
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
                began, run_or_event = following
                if isinstance(run_or_event, Run):
                    async for frames in self._follow_run(run_or_event, began, None, heartbeat_seconds):
                        yield frames
                else:
                    yield await self._single(session, run_or_event)
        finally:
            forget()
            subscription.close()

    async def _follow_run(
        self, run: Run, began: int, cursor: Cursor | None, heartbeat_seconds: float
    ) -> AsyncIterator[list[tuple[str, Frame]]]:
        async with self._streams.follow(run, cursor) as follower:
            while not follower.is_over:
                frames = await follower.take(heartbeat_seconds)
                if frames or not follower.is_over:
                    yield [(f"{began}/{frame.id}", frame) for frame in frames]
            if follower.cut is not None:
                raise StreamCutError(follower.cut)

    async def _single(self, session: Session, event: Event, cursor: Cursor | None = None) -> list[tuple[str, Frame]]:
        """Tell an event of no run as a run of its own."""
        number = event.sequence_num or 0
        row = await self._pool.fetchrow(self._queries["thread_state"], session.thread_id)
        state = {} if row is None else merge_state(row["state"], row["user_state"], row["app_state"])
        bridge = EventBridge(
            session.id,
            event.invocation_id,
            number,
            state=state,
            state_sequence=number,
            cursor=cursor,
            shown_run_id=f"event:{number}",
        )
        frames = bridge.store(event)
        for frame in frames:
            await self._streams.fill(session.thread_id, event.invocation_id, number, frame)
        return [(f"{number}/{frame.id}", frame) for frame in frames]

    async def _next(self, session: Session, began: int) -> tuple[int, Run | Event] | None:
        """Return the run, or the event of no run, that began next."""
        row = await self._pool.fetchrow(self._queries["next_run"], session.thread_id, began)
        run = None if row is None else read_run(row["run"], user_id=session.user_id, session_id=session.id)
        until = None if run is None else run.first_sequence_num
        lone = await self._pool.fetchrow(self._queries["next_lone_event"], session.thread_id, began, until)
        if lone is not None:
            event = read_event_to_deliver(list(lone))
            return event.sequence_num or 0, event
        return None if run is None else (run.first_sequence_num, run)

    async def _go_on(
        self, session: Session, began: int, cursor: Cursor, heartbeat_seconds: float
    ) -> AsyncIterator[list[tuple[str, Frame]]]:
        """Tell the rest of the run that a client was cut off in."""
        following = await self._next(session, began - 1)
        if following is None or following[0] != began:
            raise InvalidInputError("no run of this thread began there; leave the offset out to begin anew")
        if isinstance(following[1], Run):
            async for frames in self._follow_run(following[1], began, cursor, heartbeat_seconds):
                yield frames
        elif cursor.sequence < began:
            yield await self._single(session, following[1], cursor)


class StreamCutError(Exception):
    """A stream ended before what it tells of did; `cut` says why."""

    def __init__(self, cut: Cut) -> None:
        super().__init__(cut.value)
        self.cut = cut
