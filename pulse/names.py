"""The names of apps, users and sessions: the one check of what may be stored under them."""

from __future__ import annotations

from typing import Final

from pulse.errors import InvalidInputError
from pulse.postgres.json_values import clean_text

NAME_LENGTH_MAX: Final = 255
ID_LENGTH_MAX: Final = 512
#: The app of `app_policies` that stands for all without a policy of their own.
EVERY_APP: Final = "*"


def check_name(what: str, name: str, limit: int = NAME_LENGTH_MAX) -> str:
    """Return a name that PostgreSQL can hold: enough to read, change or erase what is stored under it.

    Raises:
        InvalidInputError: it is empty or longer than `limit`, is not a string, or holds U+0000 or a lone surrogate.
    """
    if not isinstance(name, str) or not 1 <= len(name) <= limit or clean_text(name) != name:
        raise InvalidInputError(
            f"{what} must have 1 to {limit} characters without U+0000 and lone surrogates, not {name!r:.80}"
        )
    return name


def check_filled(what: str, name: str, limit: int = NAME_LENGTH_MAX) -> str:
    """Return a name that something may be stored under; raises as `check_name`, and for a blank one."""
    if not check_name(what, name, limit).strip():
        raise InvalidInputError(f"{what} is blank: {name!r:.80}")
    return name


def check_app(app_name: str) -> str:
    """Return the name of an app that something may be stored for; raises as `check_filled`, and for ``*``."""
    if check_filled("app_name", app_name) == EVERY_APP:
        raise InvalidInputError(f"app_name {EVERY_APP!r} stands for the policy of all apps: name the app otherwise")
    return app_name


def check_owner(app_name: str, user_id: str) -> None:
    """Check the names of a user that something may be stored for; raises as `check_app`."""
    check_app(app_name)
    check_filled("user_id", user_id)


def check_session_names(app_name: str, user_id: str, session_id: str) -> None:
    """Check the names of a session that something may be stored in; raises as `check_app`."""
    check_owner(app_name, user_id)
    check_filled("session_id", session_id, ID_LENGTH_MAX)
