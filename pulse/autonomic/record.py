"""What the record and the vitals hold, for people: the command line reads them here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulse.autonomic.errors import PulseNotFoundError
from pulse.autonomic.statements import STATEMENTS
from pulse.autonomic.types import Snapshot

if TYPE_CHECKING:
    from pulse.postgres.statements import Session


async def read_status(db: Session, scope: str, limit: int) -> dict[str, Any]:
    """Return who leads, the vitals, and the last decisions and ticks, as `pulse_status` has them.

    Raises:
        PulseNotFoundError: there is no such scope.
    """
    found: dict[str, Any] | None = await STATEMENTS.fetchval(db, "status", scope, limit)
    if found is None:
        raise PulseNotFoundError(f"there is no scope {scope!r}: create it with `hippocampus pulse init`")
    return found


async def list_events(db: Session, scope: str, kind: str | None, limit: int) -> list[dict[str, Any]]:
    """Return the newest events, of one kind or of all."""
    return [dict(row) for row in await STATEMENTS.fetch(db, "list_events", scope, kind, None, limit)]


async def recorded_snapshots(db: Session, scope: str, limit: int) -> list[Snapshot]:
    """Return the last snapshots of ticks, the newest first."""
    return [Snapshot.from_json(row[0]) for row in await STATEMENTS.fetch(db, "last_snapshots", scope, limit)]
