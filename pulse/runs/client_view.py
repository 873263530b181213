"""What an AG-UI client has of its session, compared with what the session has: its edits, and what it does not know.

A client sends its whole conversation and its whole state with each run. Its position in the session is the newest
message that it has, or the end of that message's run if the run has no later one: a client without a run's last message
left the run. If its newest message is the user's own, it may have received nothing since: see `Position.certain`.

**State.** A key that the client changed since its position is set by the run's first event, under the check of the
session's version. A key that another writer changed, too, is a conflict: the stored value stands, and the run reports
the key. A key that the client leaves out stays; keys of the user and the app are the agent's.

**Messages.** The server's conversation stands. A client that changed a message, or left out later turns, is refused
(`pulse.runs.sent_messages`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pulse.agui import types as agui
from pulse.errors import HistoryChangedError, InvalidInputError
from pulse.events import Session
from pulse.postgres.json_values import DELETED, clean_text
from pulse.postgres.statements import Statements
from pulse.runs.sent_messages import SentCall, SentMessage, compared, compared_calls, difference, differs, same
from pulse.scopes import split_delta
from pulse.state.history import StateHistory

if TYPE_CHECKING:
    from pulse.database import Pool

#: The key in `forwardedProps` for the number of the event whose state the client has, if it keeps no messages.
STATE_SEQUENCE_KEY: Final = "hippocampus:stateSequence"
#: How many of the client's messages are compared, and of the calls in them: the newest.
COMPARED_MAX = 1000
#: In how many bytes of the client's and tools' stored messages, the newest, images, files and results are compared. It
#: is more than a client can send in a body, by default; PostgreSQL reads and hashes 8 MB in 0.2 seconds.
MEDIA_BYTES_MAX = 32 << 20
# In how many of the newest calls the arguments are: those that differ are read at once.
_CALL_BYTES_MAX = 8 << 20
#: How many stored messages are read at a time.
_PAGE_SIZE = 100
_STATEMENTS = Statements("pulse.runs", "runs.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class StateEdits:
    """The client's changes of the session's state.

    Attributes:
        delta: keys to set.
        conflicts: keys that another writer changed, too.
    """

    delta: Mapping[str, Any] = field(default_factory=dict)
    conflicts: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a client is in its session.

    Attributes:
        known: the ids of its messages that are stored.
        sequence: the number of the newest stored message that it has; None if it has none.
        until: it has received the events up to this one; None if that is not known.
        certain: up to here even if it left the run of the user's message that is its newest, or appended that message
            itself; `until` unless it is such a message. A value as of then is not written over a newer one.
        state_sequence: the number of the last event that changed the session's own state.
        later_turns: how many messages of the user it does not have.
        is_answered: whether a completed run has answered the newest message that it has.
    """

    known: frozenset[str]
    sequence: int | None
    until: int | None
    certain: int | None
    state_sequence: int
    later_turns: int
    is_answered: bool


class ClientViews:
    """Compares clients' inputs with their sessions."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._history = StateHistory(pool)

    async def position(self, session: Session, requested: agui.RunAgentInput) -> Position:
        """Return where the client is in the session."""
        names = [each.id for each in requested.messages[-COMPARED_MAX:] if _can_be_stored(each.id)]
        row = await _STATEMENTS.fetchrow(self._pool, "client_position", session.thread_id, names)
        if row is None:
            raise session.key.not_found()
        until, certain = row["until"], row["certain"]
        if isinstance(requested.forwarded_props, Mapping) and STATE_SEQUENCE_KEY in requested.forwarded_props:
            until = requested.forwarded_props[STATE_SEQUENCE_KEY]
            if not isinstance(until, int) or isinstance(until, bool) or not 0 <= until <= row["last_seq"]:
                raise InvalidInputError(
                    f"forwardedProps[{STATE_SEQUENCE_KEY!r}] must be the number of an event of the session, from 0 to"
                    f" {row['last_seq']}, not {until!r:.40}"
                )
            certain = until
        return Position(
            known=frozenset(row["known"]),
            sequence=row["sequence"],
            until=until,
            certain=certain,
            state_sequence=row["state_seq"],
            later_turns=row["later_turns"],
            is_answered=row["is_answered"],
        )

    async def state_edits(self, session: Session, state: Any, position: Position) -> StateEdits:
        """Return what the client changed of the session's own state."""
        sent = own_keys(state)
        current = split_delta(session.state).session
        changed = {key: value for key, value in sent.items() if not same(value, current.get(key, DELETED))}
        if not changed:
            return StateEdits()
        base: Mapping[str, Any] = current
        if position.until is None:
            base = {}
        elif position.until < position.state_sequence:
            base = await self._state_at(session, position.until)
        certain = base
        if position.certain is not None and position.certain < min(position.until or 0, position.state_sequence):
            certain = await self._state_at(session, position.certain)
        delta: dict[str, Any] = {}
        conflicts = []
        for key, value in changed.items():
            before = base.get(key, DELETED)
            if same(value, before) and position.until is not None:
                continue  # The client did not change it: it has an older value.
            known = certain.get(key, DELETED)
            is_older = same(value, known) and not same(known, before)
            if same(before, current.get(key, DELETED)) and not is_older:
                delta[key] = value
            else:
                conflicts.append(key)
        return StateEdits(delta=delta, conflicts=sorted(conflicts))

    async def _state_at(self, session: Session, sequence_num: int) -> Mapping[str, Any]:
        restored = await self._history.restore(*session.key, sequence_num=sequence_num)
        return restored.state

    async def require_same_messages(
        self, session: Session, messages: Sequence[agui.Message], position: Position
    ) -> None:
        """Check that the client has changed no stored message, and left out no later turn.

        Raises:
            HistoryChangedError: it has.
        """
        if position.sequence is None:
            return
        newest = [each for each in messages[-COMPARED_MAX:] if _can_be_stored(each.id)]
        # Megabytes of images are hashed in a thread: other requests are served meanwhile.
        has_parts = any(isinstance(getattr(each, "content", None), list) for each in newest)
        sent = await asyncio.to_thread(compared, newest) if has_parts else compared(newest)
        async for row in self._differing(session, sent):
            what = difference(sent[row["id"]], row)
            if what is not None:
                raise HistoryChangedError(
                    f"message {row['id'][:80]!r} has {what} in this session: send the change as a new message"
                )
        for sent_call, stored in await self._differing_calls(session, compared_calls(newest)[-COMPARED_MAX:]):
            if differs(sent_call, stored):
                raise HistoryChangedError(
                    f"message {sent_call.message_id[:80]!r} has other arguments of call {sent_call.id[:80]!r} in this"
                    " session: send the change as a new message"
                )
        if position.later_turns:
            raise HistoryChangedError(
                f"the session has {position.later_turns} later messages of the user, which the input leaves out"
            )

    async def _differing(self, session: Session, sent: Mapping[str, SentMessage]) -> AsyncIterator[dict[str, Any]]:
        """Yield what is stored of the messages that differ, also of those that differ in a masked secret alone."""
        after = 0
        while True:
            rows = await _STATEMENTS.fetch(
                self._pool,
                "differing_messages",
                session.thread_id,
                list(sent),
                [each.digest for each in sent.values()],
                [each.media_lines for each in sent.values()],
                MEDIA_BYTES_MAX,
                after,
                _PAGE_SIZE,
            )
            for row in rows:
                yield dict(row)
            if len(rows) < _PAGE_SIZE:
                return
            after = rows[-1]["sequence_num"]

    async def _differing_calls(self, session: Session, calls: Sequence[SentCall]) -> Sequence[tuple[SentCall, str]]:
        """Return the calls whose stored arguments differ, with the contents of their events."""
        if not calls:
            return ()
        # Of two with one id, the first is compared with the first.
        by_id = {(each.message_id, each.id): each for each in reversed(calls)}
        rows = await _STATEMENTS.fetch(
            self._pool,
            "differing_calls",
            session.thread_id,
            [each.message_id for each in by_id.values()],
            [each.id for each in by_id.values()],
            [each.digest for each in by_id.values()],
            [min(each.calls, COMPARED_MAX) for each in by_id.values()],
            _CALL_BYTES_MAX,
        )
        return [(by_id[row["id"], row["call_id"]], row["content"]) for row in rows]


def own_keys(state: Any) -> dict[str, Any]:
    """Return the keys of a client's state that it may set: the session's own."""
    return split_delta(state).session if isinstance(state, Mapping) else {}


def _can_be_stored(name: str) -> bool:
    """Whether an id could be the id of a stored event: PostgreSQL holds neither U+0000 nor lone surrogates."""
    return clean_text(name) == name
