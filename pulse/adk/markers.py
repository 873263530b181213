"""The revision of a stored session that an ADK session object carries: which thread, at which version.

A session that was deleted and made again under its id is another thread, so a marker never comes back to an old value.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from google.adk.sessions import Session


@dataclass(frozen=True, slots=True)
class Marker:
    """A revision; each append moves the version on by one."""

    thread_id: uuid.UUID
    version: int

    @classmethod
    def of(cls, session: Session) -> Marker | None:
        """Read a session's marker; None where it has none, or one of another service."""
        thread_id, colon, version = (session._storage_update_marker or "").partition(":")
        try:
            return cls(uuid.UUID(thread_id), int(version)) if colon else None
        except ValueError:
            return None

    def mark(self, session: Session) -> None:
        """Write the marker where ADK's services keep theirs; sessions that are equal have equal ones."""
        session._storage_update_marker = f"{self.thread_id.hex}:{self.version}"
