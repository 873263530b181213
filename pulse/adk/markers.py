"""The revision of a stored session that an ADK session object carries: which thread, at which version.

A session that was deleted and made again under its id is another thread, so a marker never comes back to an old value.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import asyncpg
from google.adk.sessions import Session

_MARKER = re.compile("([0-9a-f]{32}):([0-9]{1,10})")


class Marker(NamedTuple):
    """A revision; each append moves the version on by one. `thread` is a UUID's 32 hexadecimal digits."""

    thread: str
    version: int

    @classmethod
    def at(cls, row: asyncpg.Record) -> Marker:
        """Return the marker of a row with ``thread_id`` and ``version``."""
        return cls(row["thread_id"].hex, row["version"])

    @classmethod
    def of(cls, session: Session) -> Marker | None:
        """Read a session's marker; None where it has none, or one of another service."""
        match = _MARKER.fullmatch(session._storage_update_marker or "")
        return cls(match[1], int(match[2])) if match else None

    def mark(self, session: Session) -> None:
        """Write the marker where ADK's services keep theirs; sessions that are equal have equal ones."""
        session._storage_update_marker = f"{self.thread}:{self.version}"
