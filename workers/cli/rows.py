"""What the command line reads from the database beyond what the services return, as typed rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from pulse.postgres.statements import Statements

if TYPE_CHECKING:
    from hippocampus.erasure.service import Erasure
    from hippocampus.retention.policies import AppPolicy
    from pulse.database import Pool

_STATEMENTS = Statements("workers.cli")


class Owner(NamedTuple):
    """One user of one app."""

    app: str
    user: str


@dataclass(frozen=True, slots=True)
class UserSummary:
    """How much is stored of a user."""

    app: str
    user: str
    sessions: int
    events: int
    last_event: datetime | None  # None: of this user there are only memories of another program
    memories: int
    facts: int


@dataclass(frozen=True, slots=True)
class SourceTurn:
    """A turn that a fact was extracted from."""

    session_id: str
    sequence_num: int
    author: str
    text: str
    occurred_at: datetime


#: Turns by thread and sequence number.
Turns = Mapping[tuple[UUID, int], SourceTurn]


@dataclass(frozen=True, slots=True)
class FactReplacement:
    """A value of a fact that ceased to hold, and its replacement."""

    fact_id: UUID
    before: Any
    valid_from: datetime
    valid_until: datetime
    now: Any
    confidence: float  # the lesser of both


@dataclass(frozen=True, slots=True)
class JobEvent:
    """A step in the life of a job in the queue."""

    type: str
    at: datetime


@dataclass(frozen=True, slots=True)
class SessionCounts:
    """How far a session is consolidated, and how many memories it has."""

    events: int
    fast_upto_seq: int
    deep_upto_seq: int
    memories: int


@dataclass(frozen=True, slots=True)
class JobCounts:
    """The jobs since a time by status, an error of one that failed, and one of a job that waits."""

    waiting: int
    completed: int
    failed: int
    cancelled: int
    error: str | None
    waiting_error: str | None

    @property
    def ended(self) -> int:
        """How many will not run again by themselves."""
        return self.completed + self.failed + self.cancelled


@dataclass(frozen=True, slots=True)
class Forecast:
    """How many memories would be archived some days from now, if none were used."""

    days: float
    memories: int
    weak: int


async def has_app(pool: Pool, app: str) -> bool:
    """Return whether anything is stored of an app."""
    return bool(await _STATEMENTS.fetchval(pool, "has_app", app))


async def is_set_up(pool: Pool, app: str) -> bool:
    """Return whether an app has what is made before its first session: keys, webhooks, tools, instructions and so on.

    A login that may not read all of these, such as a reader's, cannot tell that the app lacks them: it has them.
    """
    import asyncpg

    try:
        return bool(await _STATEMENTS.fetchval(pool, "is_set_up", app))
    except asyncpg.InsufficientPrivilegeError:
        return True


async def is_logged(pool: Pool, app: str) -> bool:
    """Return whether the audit log has an entry of an app."""
    return bool(await _STATEMENTS.fetchval(pool, "is_logged", app))


async def has_user(pool: Pool, app: str, user: str) -> bool:
    """Return whether anything is stored of a user in an app, or was erased of them.

    A login that may not read every table, such as a reader's, cannot tell that nothing is stored: something is.
    """
    if await _STATEMENTS.fetchval(pool, "has_user", app, user):
        return True
    # Here: only a name that is probably mistyped needs it.
    import asyncpg

    from hippocampus.erasure.service import ErasureService

    try:
        return any(each.rows for each in await ErasureService(pool).preview(app, user))
    except asyncpg.InsufficientPrivilegeError:
        return True


async def apps(pool: Pool) -> list[str]:
    """Return the names of all apps."""
    return [row["app_name"] for row in await _STATEMENTS.fetch(pool, "apps")]


async def owners(pool: Pool, app: str | None, user: str | None, *, limit: int) -> list[Owner]:
    """Return the users that have sessions, the latest first."""
    found = await _STATEMENTS.fetch(pool, "list_owners", app, user, limit)
    return [Owner(row["app_name"], row["user_id"]) for row in found]


async def users(
    pool: Pool, app: str | None, user: str | None, *, limit: int, after: tuple[str, str] | None = None
) -> list[UserSummary]:
    """Return users by app and name, after those two."""
    return await _STATEMENTS.fetch_as(UserSummary, pool, "users", app, user, limit, *(after or (None, None)))


async def policies(pool: Pool, *, limit: int, after: str | None) -> list[AppPolicy]:
    """Return the policies that apps have of their own, and that of '*', after an app."""
    # Here: most commands do without it.
    from hippocampus.retention.policies import AppPolicy

    return await _STATEMENTS.fetch_as(AppPolicy, pool, "policies", limit, after)


async def erasures(pool: Pool, app: str | None, user: str | None, *, limit: int, before: UUID | None) -> list[Erasure]:
    """Return requests for erasure, the newest first, older than one."""
    from hippocampus.erasure.service import Erasure

    found = await _STATEMENTS.fetch(pool, "erasures", app, user, limit, before)
    return [Erasure(**{**row, "sequence_nums": tuple(row["sequence_nums"] or ())}) for row in found]


async def turns(pool: Pool, keys: Iterable[tuple[UUID, int]]) -> Turns:
    """Return turns by thread and sequence number. Those of deleted sessions are absent."""
    listed = list(keys)
    threads, numbers = [thread for thread, _ in listed], [number for _, number in listed]
    found = [dict(row) for row in await _STATEMENTS.fetch(pool, "turns", threads, numbers)]
    return {(row.pop("thread_id"), row["sequence_num"]): SourceTurn(**row) for row in found}


async def changed_facts(pool: Pool, owner: Owner, *, limit: int) -> list[FactReplacement]:
    """Return the latest replacements of a user's facts, by fact and in the order of time."""
    return await _STATEMENTS.fetch_as(FactReplacement, pool, "changed_facts", *owner, limit)


async def job_history(pool: Pool, job_id: UUID) -> list[JobEvent]:
    """Return what happened to a job, for as long as the queue keeps it."""
    return await _STATEMENTS.fetch_as(JobEvent, pool, "job_history", job_id)


async def session_names(pool: Pool, threads: Sequence[UUID]) -> dict[UUID, str]:
    """Return the ids of sessions by thread."""
    return {row["id"]: row["session_id"] for row in await _STATEMENTS.fetch(pool, "session_names", threads)}


async def session_counts(pool: Pool, threads: Sequence[UUID | None]) -> dict[UUID | None, SessionCounts]:
    """Return how far sessions are consolidated, by thread."""
    found = [dict(row) for row in await _STATEMENTS.fetch(pool, "session_counts", threads)]
    return {row.pop("id"): SessionCounts(**row) for row in found}


async def job_counts(pool: Pool, app: str, *, since: datetime) -> JobCounts:
    """Count an app's jobs that were made or ended since a time."""
    (counts,) = await _STATEMENTS.fetch_as(JobCounts, pool, "job_counts", app, since)
    return counts


async def now(pool: Pool) -> datetime:
    """Return the time on the database's clock."""
    moment: datetime = await _STATEMENTS.fetchval(pool, "now")
    return moment


async def forecast(pool: Pool, app: str | None, user: str | None, days: Sequence[float]) -> list[Forecast]:
    """Return how many memories would be archived this many days from now, if none were used."""
    return await _STATEMENTS.fetch_as(Forecast, pool, "forecast", app, user, days)
