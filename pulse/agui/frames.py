"""Frames: AG-UI events with their positions in the stream, encoded once for all followers."""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pulse.agui import types as agui

if TYPE_CHECKING:
    from ag_ui.encoder import EventEncoder

# Valid in JSON and in SSE, but clients that split lines as Unicode does would split the frame there.
_LINE_ENDS = str.maketrans({"\u2028": "\\u2028", "\u2029": "\\u2029", "\x85": "\\u0085"})


class Audience(enum.Enum):
    """Which clients a frame is for, where a run begins for several clients at once."""

    ALL = enum.auto()
    NEW = enum.auto()  # that have nothing of the conversation
    BEHIND = enum.auto()  # that have another state, or none
    CURRENT = enum.auto()  # that have the state before


#: A larger frame is put together again for each client: a second copy of it would be kept as long as the first.
_KEPT_BYTES_MAX = 16_384


@dataclass(slots=True, eq=False)
class Frame:
    """One event on the wire.

    Attributes:
        id: the cursor after it; '' for an event without a position in the stream.
        history_until: this event is a snapshot of messages, to be filled with the thread's messages up to this number.
        for_input: the id of the user's message that it repeats; the client that sent the message has it already.
        is_terminal: the run is over after it.
        legacy: the event that replaces it for clients before protocol 1.0.
        audience: which clients it is for, in a stream that is shared by clients with different states.
    """

    id: str
    event: agui.BaseEvent
    history_until: int | None = None
    for_input: str | None = None
    is_terminal: bool = False
    legacy: agui.BaseEvent | None = None
    audience: Audience = Audience.ALL
    _encoded: dict[bool, bytes] = field(default_factory=dict)
    _sse: dict[bool, bytes] = field(default_factory=dict, init=False)  # with the id, which a copy may change

    @property
    def size(self) -> int:
        """Its bytes, about; 0 for a snapshot that is to be filled."""
        return 0 if self.history_until is not None else len(self._data(False))

    def json(self, *, legacy: bool = False) -> bytes:
        """Return the event alone, as one line of JSON."""
        return self._data(legacy)[len(b"data: ") : -2]

    def sse(self, *, legacy: bool = False) -> bytes:
        """Return the frame as a Server-Sent Event; never with `event:`, which would hide it from `onmessage`."""
        found = self._sse.get(legacy)
        if found is None:
            data = self._data(legacy)
            found = b"id: %s\n%s" % (self.id.encode(), data) if self.id else data
            if len(found) <= _KEPT_BYTES_MAX:
                self._sse[legacy] = found
        return found

    def _data(self, legacy: bool) -> bytes:
        use_legacy = legacy and self.legacy is not None
        if use_legacy not in self._encoded:
            self._encoded[use_legacy] = encode(self.legacy if use_legacy and self.legacy else self.event)
        return self._encoded[use_legacy]


def encode(event: agui.BaseEvent) -> bytes:
    """Return an event as ``data: {…}`` and a blank line, in UTF-8."""
    return _encoder().encode(event).translate(_LINE_ENDS).encode()


@functools.cache
def _encoder() -> EventEncoder:
    from ag_ui.encoder import EventEncoder

    return EventEncoder()
