"""What a file of conversations is read into, and how its sessions and events are named."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from pulse.errors import InvalidInputError
from pulse.events import Event

#: Where a file dates conversations, not turns, each turn is taken to follow the one before by so much.
TURN_SECONDS = 30

_AUTHORS = {"user": "user", "assistant": "model", "tool": "tool", "function": "tool"}


class FileFormatError(InvalidInputError):
    """The file is no conversation that we can read. The message says where and what was expected."""


class BadRecordError(ValueError):
    """A record of a file can't be read. The message says what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHead:
    """A session that turns will follow for; it may come again.

    Attributes:
        user_id: whom the file names; None where it names nobody.
        state: of the session's own scope, where the file has one.
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
        error: one sentence that says what to mend.
        record: as it stands in the file where it is JSON, else its text, cut.
    """

    line: int
    error: str
    record: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question that the file's author put beside a conversation."""

    text: str


Item: TypeAlias = SessionHead | Turn | Rejected | Question


@dataclass(slots=True)
class Naming:
    """Names of one file: the same file gives the same names each time it is read.

    Attributes:
        stem: of sessions and users that the file leaves without a name.
        is_single: the file holds one conversation, which then has the stem for a name.
    """

    stem: str
    is_single: bool = True
    day_first: bool = False
    _conversations: int = 0
    _places: dict[str, int] = field(default_factory=dict)

    def session(self, given: Any) -> str:
        """Return a conversation's id: its own, or one made of the stem and its place in the file."""
        self._conversations += 1
        if given not in (None, ""):
            return str(given)
        return self.stem if self.is_single else f"{self.stem}-{self._conversations}"

    def turn(self, session_id: str, event: Event, line: int, *, own_id: bool = False) -> Turn:
        """Return the session's next turn; its event's id is made of its place and content, unless it has its own."""
        place = self._places.get(session_id, 0)
        self._places[session_id] = place + 1
        if not own_id:
            parts = [session_id, place, event.author, event.event_type, event.content, event.timestamp]
            digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
            event = replace(event, id=digest[:32])
        return Turn(session_id=session_id, event=event, line=line)


def author_of(role: str) -> str:
    """Return the author of a chat message by its role."""
    return _AUTHORS.get(role, role)
