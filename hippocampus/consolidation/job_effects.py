"""What a consolidation job read and wrote: the turns of its slice, and what is stored of them with its id."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final
from uuid import UUID

from hippocampus.erasure.provenance import Derived
from hippocampus.errors import BY_SQLSTATE, JobNotFoundError
from hippocampus.names import check_names
from pulse.postgres.statements import Statements

if TYPE_CHECKING:
    from pulse.database import Pool

TURNS_MAX: Final = 200
WRITES_MAX: Final = 500
_STATEMENTS = Statements("hippocampus.consolidation", "job_effects.sql", errors=BY_SQLSTATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTurn:
    """A turn that a job read, or is to read."""

    id: UUID
    sequence_num: int
    role: str
    author: str
    content: str
    occurred_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEffects:
    """What a job read and wrote.

    Attributes:
        from_seq, upto_seq: the slice; None if the job ended and nothing is stored of it.
        turns: the first 200 turns of the slice.
        turn_count: turns of the whole slice.
        written: up to 500 rows.
    """

    session_id: str
    from_seq: int | None
    upto_seq: int | None
    turns: tuple[JobTurn, ...]
    turn_count: int
    written: tuple[Derived, ...]


async def job_effects(pool: Pool, app_name: str, user_id: str, job_id: UUID) -> JobEffects:
    """Return what a job read and wrote; of one that has not succeeded, what it is to read.

    Raises:
        JobNotFoundError: this user has no such job, or its session was deleted.
    """
    check_names(app_name=app_name, user_id=user_id)
    job = await _STATEMENTS.fetchrow(pool, "job_scope", job_id, app_name, user_id)
    if job is None:
        raise JobNotFoundError(f"there is no job {job_id}; list the jobs to see those that exist")
    rows = await _STATEMENTS.fetch(pool, "job_writes", job_id, job["thread_id"], app_name, user_id, WRITES_MAX)
    written = tuple(Derived(**{**row, "source_seqs": tuple(row["source_seqs"] or ())}) for row in rows)
    starts = [each.from_seq for each in written if each.from_seq is not None]
    ends = [each.upto_seq for each in written if each.upto_seq is not None]
    from_seq, upto_seq = (min(starts), max(ends)) if starts and ends else (None, None)
    if job["is_open"]:
        from_seq, upto_seq = job["from_seq"], job["upto_seq"]
    turns = await _STATEMENTS.fetch(pool, "job_turns", job["thread_id"], from_seq, upto_seq, TURNS_MAX)
    return JobEffects(
        session_id=job["session_id"],
        from_seq=from_seq,
        upto_seq=upto_seq,
        turns=tuple(JobTurn(**{name: row[name] for name in JobTurn.__slots__}) for row in turns),
        turn_count=turns[0]["total"] if turns else 0,
        written=written,
    )
