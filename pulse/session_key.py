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
        return session_not_found(self.session_id, app_name=self.app_name, user_id=self.user_id)


def session_not_found(
    session_id: str, *, app_name: str | None, user_id: str | None, hint: str | None = None
) -> SessionNotFoundError:
    """Return the error for a session that was not found.

    Args:
        app_name, user_id: None if the session was searched in every app, or for every user.
        hint: what to do; it ends the message.
    """
    names = (("app", app_name), ("user", user_id))
    owner = " and ".join(f"{name} {value!r}" for name, value in names if value is not None)
    message = f"there is no session {session_id!r}" + (f" for {owner}" if owner else "")
    return SessionNotFoundError(message if hint is None else f"{message}: {hint}")
