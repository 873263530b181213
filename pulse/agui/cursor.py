"""A client's position in the stream of a run, from which any process can continue with the next frame.

    12                      every frame of the events up to number 12
    12.2                    and the first two frames of event 13
    12@7.3                  with the state: versions 7 and 3 of the user's and the app's state
    12@7.3.50               with the session's state after event 50, which the client got before the events up to it
    12~m7:57:1a2b3c4d       and 57 characters of the open message m7, with their checksum; for a thought: 12*m7…,
                            for the arguments of a tool's call: 12!c7…

Each frame has a unique id, because it ends an event, increases the count within one, extends a text, or brings a newer
state.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from pulse.errors import InvalidInputError
from pulse.live_text import Kind

#: How many messages may be open at once in a stream; further ones are sent when they are stored.
OPEN_MAX = 32

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
#: The mark of each kind of open message.
_MARKS: Mapping[Kind, str] = {"text": "~", "thought": "*", "act": "!"}
_KINDS: Mapping[str, Kind] = {mark: kind for kind, mark in _MARKS.items()}
# The checksum of nothing is 0.
_SPAN_ONLY = 1

_SENT = r"[~*!]([A-Za-z0-9_-]{1,64}|\.[0-9a-f]{16}):\d{1,9}:[0-9a-f]{8}"
_CURSOR = re.compile(
    r"(?P<sequence>\d{1,18})(?:\.(?P<frames>\d{1,9}))?"
    r"(?:@(?P<user>\d{1,18})\.(?P<app>\d{1,18})(?:\.(?P<ahead>\d{1,18}))?)?"
    rf"(?P<open>(?:{_SENT}){{0,{OPEN_MAX}}})",
    re.ASCII,
)
_EACH_SENT = re.compile(r"([~*!])([^:]+):(\d+):([0-9a-f]{8})", re.ASCII)


def key_of(message_id: str) -> str:
    """Return the key of a message in a cursor: its id, or a digest if the id is long or has other characters."""
    if _NAME.fullmatch(message_id):
        return message_id
    return "." + hashlib.blake2s(message_id.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def name_of(key: str) -> str | None:
    """Return the message's id of a key, or None if the key is a digest."""
    return None if key.startswith(".") else key


def checksum(text: str, before: int = 0) -> int:
    """Return the CRC-32 of a text in UTF-8; `before` is that of the text before it."""
    return zlib.crc32(text.encode("utf-8", "surrogatepass"), before)


@dataclass(frozen=True, slots=True)
class Sent:
    """How much of an open message a client has."""

    kind: Kind
    length: int = 0
    crc: int = 0

    @classmethod
    def span(cls) -> Self:
        """Return what a client has of a thought whose span was opened, but not its message."""
        return cls("thought", 0, _SPAN_ONLY)

    @property
    def is_span(self) -> bool:
        """Whether only the span of a thought was opened."""
        return self.kind == "thought" and self.length == 0 and self.crc == _SPAN_ONLY

    def and_then(self, text: str) -> Sent:
        """Return what the client has after a further piece."""
        return replace(self, length=self.length + len(text), crc=checksum(text, self.crc))

    def begins(self, text: str) -> bool:
        """Whether this text begins with what the client has."""
        return len(text) >= self.length and checksum(text[: self.length]) == self.crc


@dataclass(frozen=True, slots=True)
class StateMark:
    """Which state a client has.

    Attributes:
        sequence: the session's, after this event of the thread.
        user, app: the versions of the shared states.
    """

    sequence: int = 0
    user: int = 0
    app: int = 0

    def at_least(self, other: StateMark) -> StateMark:
        """Return the newer of the two in each scope."""
        return StateMark(max(self.sequence, other.sequence), max(self.user, other.user), max(self.app, other.app))


@dataclass(frozen=True, slots=True)
class Cursor:
    """A position between two frames of a run's stream.

    Attributes:
        sequence: every frame of the events up to this one was sent.
        frames: the number of frames of the next event that were sent.
        open: what was sent of open messages, by the message's key, in the order in which they began.
        state: the state that the client has, never older than `sequence`; None if it has none yet.
    """

    sequence: int
    frames: int = 0
    open: dict[str, Sent] = field(default_factory=dict)
    state: StateMark | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the cursor of a text.

        Raises:
            InvalidInputError: it is not a cursor.
        """
        match = _CURSOR.fullmatch(text)
        if match is None:
            raise InvalidInputError(f"{text[:60]!r} is not a cursor; send the id of the last frame that you received")
        sequence, state = int(match["sequence"]), None
        if match["user"] is not None:
            state = StateMark(max(sequence, int(match["ahead"] or 0)), int(match["user"]), int(match["app"]))
        return cls(
            sequence,
            int(match["frames"] or 0),
            {
                key: Sent(_KINDS[mark], int(length), int(crc, 16))
                for mark, key, length, crc in _EACH_SENT.findall(match["open"])
            },
            state,
        )

    def __str__(self) -> str:
        within = f".{self.frames}" if self.frames else ""
        if self.state is not None:
            ahead = f".{self.state.sequence}" if self.state.sequence > self.sequence else ""
            within += f"@{self.state.user}.{self.state.app}{ahead}"
        texts = "".join(f"{_MARKS[sent.kind]}{key}:{sent.length}:{sent.crc:08x}" for key, sent in self.open.items())
        return f"{self.sequence}{within}{texts}"
