"""The revision of a stored session that an ADK session object carries: its thread and its version.

A session that is deleted and created again under the same id is another thread, so a marker never repeats.
"""

from __future__ import annotations

import re
import uuid
from typing import NamedTuple

from google.adk.sessions import Session

_MARKER = re.compile("([0-9a-f]{32}):([0-9]{1,10})")


class Marker(NamedTuple):
    """A revision; each append increases the version by one. `thread` is the 32 hexadecimal digits of a UUID."""

    thread: str
    version: int

    @classmethod
    def at(cls, thread_id: uuid.UUID, version: int) -> Marker:
        """Return the marker of a thread at a version."""
        return cls(thread_id.hex, version)

    @classmethod
    def of(cls, session: Session) -> Marker | None:
        """Return a session's marker; None if it has none, or that of another service."""
        match = _MARKER.fullmatch(session._storage_update_marker or "")
        return cls(match[1], int(match[2])) if match else None

    def mark(self, session: Session) -> None:
        """Set a session's marker, in the attribute that ADK's own services use."""
        session._storage_update_marker = f"{self.thread}:{self.version}"
