"""The audit log: who did what in administration, and when.

Triggers write it in the transaction of the act: keys made and revoked, erasures, replays, policies, webhooks. What
changes no such row, as an export, is noted by `AuditLog.note`. An entry holds ids and names of fields, no word of a
user; it does not change, and goes after the days of the database's setting ``audit_days``, by default 400.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pulse.errors import InvalidInputError
from pulse.postgres.limits import check_limit
from pulse.postgres.statements import Statements

if TYPE_CHECKING:
    from pulse.postgres.statements import Session

LIST_LENGTH_MAX = 1000
_STATEMENTS = Statements("pulse", "audit.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """An entry of the audit log.

    Attributes:
        actor: ``key:<id>``, ``cli:<user of the system>``, ``library``, ``worker``, ``sql:<role>``, or what a host set.
        action: such as ``key_created``.
        app_name: None, or ``*``: it concerns every app.
        target: ids of what it was done to; of a policy, the fields that changed.
    """

    id: UUID
    at: datetime
    actor: str
    action: str
    app_name: str | None
    user_id: str | None
    target: Mapping[str, Any]
    outcome: str


class AuditLog:
    """Reads the audit log, and notes acts that no trigger sees."""

    def __init__(self, pool: Session) -> None:
        self._pool = pool

    async def note(
        self,
        action: str,
        *,
        app_name: str | None = None,
        user_id: str | None = None,
        target: Mapping[str, Any] | None = None,
        outcome: str = "done",
    ) -> UUID:
        """Note an act of `pulse.actor.current_actor` and return its id.

        Args:
            action: 1 to 64 lower-case letters and underscores.
            target: ids, never words of users.
        """
        fields = dict(target or {})
        noted: UUID = await _STATEMENTS.fetchval(self._pool, "note_act", action, app_name, user_id, fields, outcome)
        return noted

    async def list(
        self,
        app_name: str | None = None,
        *,
        action: str | None = None,
        actor: str | None = None,
        limit: int = 100,
        before: UUID | None = None,
    ) -> list[Act]:
        """List entries, the newest first.

        Args:
            app_name: only of this app, and of every app; None: all entries.
            before: the id of the last entry of the previous page.

        Raises:
            InvalidInputError: limit is not 1 to 1,000.
        """
        check_limit(limit, LIST_LENGTH_MAX)
        for what, value in (("app_name", app_name), ("action", action), ("actor", actor)):
            if value is not None and "\0" in value:
                raise InvalidInputError(f"{what} holds U+0000")
        rows = await _STATEMENTS.fetch(self._pool, "list_acts", app_name, action, actor, before, limit)
        return [Act(**row) for row in rows]

    async def all(self, app_name: str | None = None) -> AsyncIterator[Act]:
        """Yield every entry, the newest first, page by page."""
        before = None
        while page := await self.list(app_name, limit=LIST_LENGTH_MAX, before=before):
            for each in page:
                yield each
            before = page[-1].id
