"""The apps and users of an installation, with what was said last and how much is remembered: for its console.

A page examines a bounded number of names and counts a bounded number of rows of each, in one statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from hippocampus.errors import BY_SQLSTATE
from hippocampus.names import check_app_name, check_name
from pulse.postgres.limits import check_limit
from pulse.postgres.statements import Statements

if TYPE_CHECKING:
    import asyncpg

    from pulse.database import Pool

USERS_MAX: Final = 200
#: Counts stop here: this value means that many or more.
COUNTED_MAX: Final = 1000
#: Names that one page examines for a text.
_EXAMINED_MAX: Final = 2000
_STATEMENTS = Statements("hippocampus", "users.sql", errors=BY_SQLSTATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppSummary:
    """An app, and how much it holds; no count exceeds `COUNTED_MAX`."""

    app_name: str
    sessions: int
    memories: int
    facts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSummary:
    """A user of an app, with the message that was stored last; no count of rows exceeds `COUNTED_MAX`.

    Attributes:
        waiting_events: stored events, in the user's newest sessions, that no fast_replay has read.
        last_text: up to 280 characters; None if the session that changed last has no message.
    """

    user_id: str
    sessions: int
    memories: int
    facts: int
    waiting_events: int
    last_active_at: datetime | None
    last_session_id: str | None
    last_role: str | None
    last_text: str | None
    last_said_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppPage:
    """Apps by name; `following` is after which name the next page begins, None after the last."""

    apps: Sequence[AppSummary]
    following: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserPage:
    """Users by name; `following` is after which name the next page begins, None after the last."""

    users: Sequence[UserSummary]
    following: str | None


class UserList:
    """Lists apps and their users, who have a session, a memory or a fact."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def list_apps(self, *, contains: str = "", limit: int = 50, after: str | None = None) -> AppPage:
        """List apps by name.

        Args:
            contains: only those whose name contains this text, in upper or lower case.
            limit: 1 to 200 apps; with `contains`, a page may have fewer, and none, before the last one.
            after: `following` of the previous page.

        Raises:
            InvalidInputError: an argument is out of its bounds.
        """
        check_limit(limit, USERS_MAX)
        _check_text(contains)
        rows = await _STATEMENTS.fetch(self._pool, "list_apps", after, contains, limit, _EXAMINED_MAX, COUNTED_MAX)
        apps = [AppSummary(**_fields(row)) for row in rows if row["is_match"]]
        return AppPage(apps=apps, following=_following(rows, "app_name", limit))

    async def list_users(
        self, app_name: str, *, contains: str = "", limit: int = 50, after: str | None = None
    ) -> UserPage:
        """List an app's users by name.

        Args:
            contains, limit, after: as `list_apps`.

        Raises:
            InvalidInputError: an argument is out of its bounds.
        """
        check_app_name(app_name)
        check_limit(limit, USERS_MAX)
        _check_text(contains)
        rows = await _STATEMENTS.fetch(
            self._pool, "list_users", app_name, after, contains, limit, _EXAMINED_MAX, COUNTED_MAX
        )
        users = [UserSummary(**_fields(row)) for row in rows if row["is_match"]]
        return UserPage(users=users, following=_following(rows, "user_id", limit))


def _check_text(contains: str) -> None:
    if contains:
        check_name("contains", contains)


def _fields(row: asyncpg.Record) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith("is_")}


def _following(rows: Sequence[asyncpg.Record], name: str, limit: int) -> str | None:
    """Return the last name of a full page, or of one that ended at the names to examine."""
    is_more = bool(rows) and (len(rows) == limit or rows[-1]["is_edge"])
    return str(rows[-1][name]) if is_more else None
