"""Appends the conversations of a file to sessions, in bounded batches. Repeating it changes nothing.

Sessions are written a few at a time; the turns of each stay in order. A batch that is refused is appended turn by turn,
so that one bad turn does not exclude the others.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hippocampus.transfer.given_memories import GivenMemories
from pulse.errors import EventConflictError, InvalidInputError, SessionExistsError
from pulse.names import check_owner
from pulse.process.background import cancel
from pulse.session_key import SessionKey
from pulse.session_service import OpenSessionService
from workers.intake.records import Given, Item, LeftOut, Rejected, SessionHead, Turn

BATCH_EVENTS_MAX = 200
BATCH_BYTES_MAX = 1 << 20
#: Batches that are written at once.
LANES = 8
BATCH_MEMORIES_MAX = 100
#: Sessions whose turns are held back until a batch is full.
SESSIONS_OPEN_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """The outcome of a file.

    Attributes:
        events_known: stored by an earlier run.
        jobs_enqueued: by finalising.
        rejected: records, turns and memories that could not be read, or were refused.
        memories: stored, or replaced by themselves.
        left_out: parts of the file that are not imported, by what they are.
    """

    sessions: int = 0
    events_new: int = 0
    events_known: int = 0
    jobs_enqueued: int = 0
    rejected: int = 0
    memories: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)

    def plus(self, other: Ingested) -> Ingested:
        """Return the sum."""
        return Ingested(
            sessions=self.sessions + other.sessions,
            events_new=self.events_new + other.events_new,
            events_known=self.events_known + other.events_known,
            jobs_enqueued=self.jobs_enqueued + other.jobs_enqueued,
            rejected=self.rejected + other.rejected,
            memories=self.memories + other.memories,
            left_out=Counter(self.left_out) + Counter(other.left_out),
        )


@dataclass(slots=True)
class _Open:
    """A session of the file, and those of its turns that are not written yet."""

    head: SessionHead
    key: SessionKey
    turns: list[Turn] = field(default_factory=list)
    size_bytes: int = 0
    is_made: bool = False
    refusal: str | None = None
    last_write: asyncio.Task[None] | None = None


class Ingest:
    """Stores one file.

    Args:
        memories: stores the memories of a file.
        user_id: the user of sessions and memories that have none in the file.
        is_user_fixed: it is the user of all sessions, whatever the file says.
        on_progress: called with the number of events of each batch that is stored.
        on_rejected: called with each record that could not be read, or was refused.
    """

    def __init__(
        self,
        service: OpenSessionService,
        memories: GivenMemories,
        *,
        app_name: str,
        user_id: str,
        file_format: str,
        is_user_fixed: bool = False,
        on_progress: Callable[[int], None] | None = None,
        on_rejected: Callable[[Rejected], None] | None = None,
    ) -> None:
        self._service = service
        self._memories = memories
        self._given: dict[str, list[Given]] = {}  # by user
        self._app_name = app_name
        self._user_id = user_id
        self._is_user_fixed = is_user_fixed
        self._metadata = {"ingested_from": file_format}
        self._on_progress = on_progress
        self._on_rejected = on_rejected
        self._sessions: dict[str, _Open] = {}
        self._held: OrderedDict[str, None] = OrderedDict()
        self._lanes = asyncio.Semaphore(LANES)
        self._writes: set[asyncio.Task[None]] = set()
        self.done = Ingested()

    async def run(self, items: Iterable[Item], *, finalize: bool = False) -> Ingested:
        """Append everything that can be appended.

        Args:
            finalize: end each session, so that everything in it is consolidated at once.

        Raises:
            PulseError, and what the driver raises: the database is unavailable. What was appended stays (`done` counts
                it), and a later run continues from there.
        """
        try:
            for item in items:
                await self._take(item)
            for user_id in list(self._given):
                await self._give(user_id)
            for session_id in list(self._held):
                await self._write(self._sessions[session_id])
            await self._settle()
        finally:
            await cancel(*self._writes)
        if finalize:
            await self._finalize()
        return self.done

    async def _take(self, item: Item) -> None:
        match item:
            case Rejected():
                self._reject(item)
            case LeftOut():
                self._leave_out(item)
            case Given():
                user_id = self._user_of(item)
                self._given.setdefault(user_id, []).append(item)
                if len(self._given[user_id]) == BATCH_MEMORIES_MAX:
                    await self._give(user_id)
            case SessionHead():
                if item.session_id not in self._sessions:
                    key = SessionKey(self._app_name, self._user_of(item), item.session_id)
                    self._sessions[item.session_id] = _Open(item, key)
            case Turn():
                await self._hold(self._sessions[item.session_id], item)

    def _user_of(self, item: SessionHead | Given) -> str:
        return self._user_id if self._is_user_fixed else item.user_id or self._user_id

    async def _give(self, user_id: str) -> None:
        """Store the memories of a user that are held, one by one if they are refused together."""
        given = self._given.pop(user_id, [])
        try:
            check_owner(self._app_name, user_id)
            await self._memories.give(self._app_name, user_id, [each.memory for each in given])
        except InvalidInputError as error:
            for each in given:
                if len(given) == 1:
                    record = {"user_id": user_id, "name": each.memory.name, "content": each.memory.content}
                    self._reject(Rejected(line=each.line, error=f"the memory is refused: {error}", record=record))
                else:
                    self._given[user_id] = [each]
                    await self._give(user_id)
            return
        self._count(memories=len(given))
        if self._on_progress is not None:
            self._on_progress(len(given))

    async def _hold(self, session: _Open, turn: Turn) -> None:
        size_bytes = len(json.dumps(turn.event.content))
        if session.turns and session.size_bytes + size_bytes > BATCH_BYTES_MAX:
            await self._write(session)
        session.turns.append(turn)
        session.size_bytes += size_bytes
        session_id = session.head.session_id
        self._held[session_id] = None
        self._held.move_to_end(session_id)
        if len(session.turns) == BATCH_EVENTS_MAX:
            await self._write(session)
        elif len(self._held) > SESSIONS_OPEN_MAX:
            await self._write(self._sessions[next(iter(self._held))])

    async def _write(self, session: _Open) -> None:
        """Begin to write the held turns of a session, once a lane is free."""
        self._held.pop(session.head.session_id, None)
        turns, session.turns, session.size_bytes = session.turns, [], 0
        await self._lanes.acquire()
        self._raise_failures()
        write = asyncio.create_task(self._append(session, turns, session.last_write))
        session.last_write = write
        self._writes.add(write)

    async def _settle(self) -> None:
        if self._writes:
            await asyncio.wait(self._writes)
        self._raise_failures()

    def _raise_failures(self) -> None:
        ended = {write for write in self._writes if write.done()}
        self._writes -= ended
        for write in ended:
            write.result()

    async def _append(self, session: _Open, turns: Sequence[Turn], before: asyncio.Task[None] | None) -> None:
        try:
            if before is not None:
                await before
            if not session.is_made and session.refusal is None:
                await self._make(session)
            if session.refusal is None:
                await self._append_batch(session, turns)
            else:
                self._count(rejected=len(turns))
        finally:
            self._lanes.release()

    async def _make(self, session: _Open) -> None:
        head = session.head
        metadata = {**self._metadata, **({"title": head.title} if head.title else {})}
        try:
            await self._service.create_session(
                session.key.app_name, session.key.user_id, head.state, session_id=head.session_id, metadata=metadata
            )
        except SessionExistsError:
            pass
        except InvalidInputError as error:
            session.refusal = str(error)
            self._report(Rejected(line=head.line, error=f"the session is refused: {error}", record=head.session_id))
            return
        session.is_made = True
        self._count(sessions=1)

    async def _append_batch(self, session: _Open, turns: Sequence[Turn]) -> None:
        events = [turn.event for turn in turns]
        try:
            outcome = await self._service.append(*session.key, events)
        except (InvalidInputError, EventConflictError) as error:
            if len(turns) == 1:
                record = {
                    "session_id": session.key.session_id,
                    "author": events[0].author,
                    "content": events[0].content,
                }
                self._reject(Rejected(line=turns[0].line, error=f"the turn is refused: {error}", record=record))
                return
            for turn in turns:
                await self._append_batch(session, [turn])
            return
        self._count(events_new=len(outcome.new_events), events_known=len(events) - len(outcome.new_events))
        if self._on_progress is not None:
            self._on_progress(len(events))

    async def _finalize(self) -> None:
        # In the file's order, which becomes that of their jobs: earlier sessions are consolidated first.
        for session in self._sessions.values():
            if session.is_made:
                jobs = await self._service.finalize_session(*session.key)
                self._count(jobs_enqueued=len(jobs))

    def _leave_out(self, item: LeftOut) -> None:
        left_out = Counter(self.done.left_out) + Counter({item.reason: item.count})
        self.done = replace(self.done, left_out=left_out)

    def _reject(self, rejected: Rejected) -> None:
        self._count(rejected=1)
        self._report(rejected)

    def _report(self, rejected: Rejected) -> None:
        if self._on_rejected is not None:
            self._on_rejected(rejected)

    def _count(self, **more: int) -> None:
        self.done = replace(self.done, **{name: getattr(self.done, name) + by for name, by in more.items()})


async def ingest(
    service: OpenSessionService,
    memories: GivenMemories,
    items: Iterable[Item],
    *,
    app_name: str,
    user_id: str,
    file_format: str,
    finalize: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> Ingested:
    """Append the sessions and turns of a file; see `Ingest`."""
    one = Ingest(
        service, memories, app_name=app_name, user_id=user_id, file_format=file_format, on_progress=on_progress
    )
    return await one.run(items, finalize=finalize)
