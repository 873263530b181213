"""The records that a file of conversations is read into, and the names of its sessions and events."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeAlias

from hippocampus.transfer.given_memories import GivenMemory
from pulse.errors import InvalidInputError
from pulse.events import Event
from workers.intake.moments import moment

#: Where a file dates conversations but not turns, each turn follows the one before by this much.
TURN_SECONDS = 30

_AUTHORS = {"user": "user", "assistant": "model", "tool": "tool", "function": "tool"}


class FileFormatError(InvalidInputError):
    """The file can't be read as conversations. The message says where, and what was expected."""


class BadRecordError(ValueError):
    """A record of a file can't be read. The message says what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHead:
    """A session whose turns follow; it may be yielded again.

    Attributes:
        user_id: from the file; None if it has none.
        state: the state in the session's own scope, if the file has it.
    """

    session_id: str
    user_id: str | None
    line: int
    title: str | None = None
    state: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One event of a session, with the id that it will have, and the line that it, or its conversation, starts on."""

    session_id: str
    event: Event
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A record that can't be read, or that was refused.

    Attributes:
        line: on which it starts, from 1.
        error: one sentence that says what to fix.
        record: its value in the file if it is JSON, otherwise its text, truncated.
    """

    line: int
    error: str
    record: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question that the file's author added to a conversation."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A memory that another program has extracted.

    Attributes:
        user_id: from the file; None if it has none.
    """

    memory: GivenMemory
    user_id: str | None
    line: int


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Parts of a file that are not imported, and not wrong: `reason` says what they are, in the plural."""

    reason: str
    count: int = 1


Item: TypeAlias = SessionHead | Turn | Rejected | Question | Given | LeftOut


def listed(value: Any, name: str) -> Iterable[Any]:
    """Return the elements of a list, or of one that is read as it is needed; none where the member is missing.

    Raises:
        BadRecordError: it is something else.
    """
    if value is None:
        return ()
    if not isinstance(value, list | Iterator):
        raise BadRecordError(f"{name} must be a list")
    return value


@dataclass(slots=True)
class Naming:
    """Names of one file: the same file gives the same names each time it is read.

    Attributes:
        stem: the name of sessions and users that have none in the file.
        is_single: the file has one conversation, which is named by the stem.
        day_first: '5/8/2023' means 5 August; None: not known.
    """

    stem: str
    is_single: bool = True
    day_first: bool | None = None
    _conversations: int = 0
    _positions: dict[str, int] = field(default_factory=dict)

    def session(self, given: Any) -> str:
        """Return a conversation's id: its own, or one derived from the stem and its position in the file."""
        self._conversations += 1
        if given not in (None, ""):
            return str(given)
        return self.stem if self.is_single else f"{self.stem}-{self._conversations}"

    def turn(self, session_id: str, event: Event, line: int, *, own_id: bool = False) -> Turn:
        """Return the session's next turn; its event's id comes from its position and content, unless it has its own."""
        position = self._positions.get(session_id, 0)
        self._positions[session_id] = position + 1
        if not own_id:
            identity = [session_id, position, event.author, event.event_type, event.content, event.timestamp]
            digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
            event = replace(event, id=digest[:32])
        return Turn(session_id=session_id, event=event, line=line)


def given(
    record_line: int,
    content: Any,
    *,
    name: str,
    occurred_at: Any = None,
    user_id: Any = None,
    metadata: Mapping[str, Any] | None = None,
) -> Given:
    """Return a memory of a file; members of `metadata` that are empty are left out.

    Args:
        name: importing the file again replaces the memory of this name.
        occurred_at: as `moments.moment` takes it; None: the time of the import.

    Raises:
        BadRecordError: the content is not a text, or the time is not a time.
    """
    if not isinstance(content, str):
        raise BadRecordError(f"the text of a memory must be a string, not {type(content).__name__}")
    try:
        memory = GivenMemory(
            content=content,
            name=name,
            occurred_at=None if occurred_at is None else datetime.fromtimestamp(moment(occurred_at), UTC),
            metadata={key: value for key, value in (metadata or {}).items() if value not in (None, "", [], {})},
        )
    except ValueError as error:
        raise BadRecordError(str(error)) from None
    return Given(memory=memory, user_id=None if user_id in (None, "") else str(user_id), line=record_line)


def author_of(role: str) -> str:
    """Return the author of a chat message by its role."""
    return _AUTHORS.get(role, role)
