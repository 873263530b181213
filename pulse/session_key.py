"""The three names that identify a session."""

from __future__ import annotations

from typing import NamedTuple

from pulse.errors import SessionNotFoundError


class SessionKey(NamedTuple):
    """The names of a session, in the one order that every signature, statement and path uses.

    Attributes:
        app_name: the application.
        user_id: its user.
        session_id: unique for this user of this app.
    """

    app_name: str
    user_id: str
    session_id: str

    def not_found(self) -> SessionNotFoundError:
        """Return the error for a session that does not exist, has expired, or belongs to another user."""
        return SessionNotFoundError(
            f"there is no session {self.session_id!r} for app {self.app_name!r} and user {self.user_id!r}"
        )
