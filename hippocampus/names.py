"""Names that come from outside: of apps, users, sessions and keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulse.errors import InvalidInputError, SessionNotFoundError
from pulse.postgres.json_values import clean_text
from pulse.postgres.statements import load_queries

if TYPE_CHECKING:
    from pulse.database import Pool

_QUERIES = load_queries("hippocampus")


def check_names(**names: str | None) -> None:
    """Refuse a name that PostgreSQL cannot hold: no row has it, and asking for it would fail in the driver's words.

    Raises:
        InvalidInputError: a name is no text, or holds U+0000 or a lone surrogate. None is no name.
    """
    for what, name in names.items():
        if name is not None and (not isinstance(name, str) or clean_text(name) != name):
            raise InvalidInputError(f"{what} is a text without U+0000 and lone surrogates, not {name!r:.80}")


async def require_session(pool: Pool, app_name: str | None, user_id: str | None, session_id: str) -> None:
    """Tell an empty page of a session from a session that there is not.

    Raises:
        SessionNotFoundError: no such session, of this app and user where they are named.
    """
    if not await pool.fetchval(_QUERIES["session_exists"], app_name, user_id, session_id):
        scope = [f"{what} {name!r}" for what, name in (("app", app_name), ("user", user_id)) if name is not None]
        raise SessionNotFoundError(" of ".join([f"there is no session {session_id!r}", *scope]))
