"""Retention: which memories are strong, which have decayed, and the clean-up that archives the weak ones.

A score is computed when it is read (`hippocampus.retention.curves`); none is stored, so none has to be updated. What a
clean-up archives is decided by the SQL function ``is_weak``. The clean-up works in small batches, each in its own
transaction: it can be killed between any two of them, and several may run at once.

What a clean-up reports, to its caller after the run and to `on_batch` while it runs:

    Batch        archived, seconds, by_app (how many of each app)
    MemoryStats  what is left afterwards, cleaned_count, cleaned_by_app, batch_count, seconds, batch_seconds_max
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, TypedDict
from uuid import UUID

from hippocampus.errors import BY_SQLSTATE
from hippocampus.names import (
    check_app_name,
    check_count,
    check_number,
    check_optional_app_name,
    check_optional_number,
    check_zones,
)
from hippocampus.records import Memory
from hippocampus.retention.curves import Curve
from pulse.actor import WORKER, current_actor
from pulse.audit import AuditLog
from pulse.errors import InvalidInputError
from pulse.postgres.statements import Statements

if TYPE_CHECKING:
    from pulse.database import Pool

#: Memories in one batch of the clean-up, and in one page of a preview, at most.
BATCH_ROWS_MAX = 1000
BATCH_ROWS = 100
#: A batch writes as much to the log as a hundred appends, and concurrent commits wait until it is on the disk. Small
#: batches with rests between them keep that wait short and rare.
REST_FACTOR = 3.0
REST_SECONDS_MAX = 1.0
#: Ids in one call of `record_batch_access`, memories in one time slice, at most.
ACCESS_IDS_MAX = 10_000
TIME_SLICE_ROWS_MAX = 1000

_FIRST_ID = UUID(int=0)
_STATEMENTS = Statements("hippocampus.retention", "retention.sql", errors=BY_SQLSTATE)


class Distribution(TypedDict):
    """How many memories are strong: `high` from 0.7, `medium` from 0.3, `low` below."""

    high: int
    medium: int
    low: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStats:
    """The memories that exist, from one snapshot; after a clean-up, those that it left.

    In a dry run `cleaned_count` and `cleaned_by_app` are what a clean-up would archive; the other counts include it.
    """

    total_memories: int
    high_value_count: int  # score from 0.7
    medium_value_count: int  # from 0.3
    low_value_count: int  # below
    avg_retention_score: float  # 0.0 if there are no memories
    cleaned_count: int = 0
    cleaned_by_app: Mapping[str, int] = dataclasses.field(default_factory=dict)
    batch_count: int = 0
    seconds: float = 0.0  # of all batches
    batch_seconds_max: float = 0.0  # the longest transaction


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One transaction of a clean-up."""

    archived: int  # may be 0: a batch also ends after it has examined enough memories that stay
    seconds: float
    by_app: Mapping[str, int]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WeakMemory:
    """A memory that a clean-up would archive now, and why: its score is below the threshold at its age."""

    id: UUID
    app_name: str
    user_id: str
    memory_type: str
    content: str
    score: float
    threshold: float
    curve: Curve
    decay_rate: float
    age_days: float  # since it was recorded
    idle_days: float  # since its last access
    access_count: int
    initial_score: float
    created_at: datetime


class _Limits(NamedTuple):
    """What decides whether a memory is archived, in the order of the SQL functions. None: each app's policy."""

    threshold: float | None
    min_age_days: float | None
    decay_rate: float | None  # per day


class MemoryRetentionManager:
    """The scores of a database's memories, their accesses, and the clean-up.

    Args:
        pool: asyncpg pool made by `pulse.database.create_pool`.
        decay_rate: per day, 0 to 100; None: each app's policy.
        cleanup_threshold: 0 to 1; None: each app's policy. 0: nothing is archived.
        min_age_days: 0 to 36500; None: each app's policy.

    Raises:
        InvalidInputError: a number out of its range.
    """

    def __init__(
        self,
        pool: Pool,
        decay_rate: float | None = None,
        cleanup_threshold: float | None = None,
        min_age_days: float | None = None,
    ) -> None:
        self._pool = pool
        self.decay_rate = check_optional_number("decay_rate", decay_rate, 0, 100)
        self.cleanup_threshold = check_optional_number("cleanup_threshold", cleanup_threshold, 0, 1)
        self.min_age_days = check_optional_number("min_age_days", min_age_days, 0, 36500)

    async def record_access(self, memory_id: UUID, *, app_name: str | None = None, user_id: str | None = None) -> bool:
        """Count one access to a memory; its score changes at once. Return False if there is no such memory."""
        return await self.record_batch_access([memory_id], app_name=app_name, user_id=user_id) == 1

    async def record_batch_access(
        self, memory_ids: Sequence[UUID], *, app_name: str | None = None, user_id: str | None = None
    ) -> int:
        """Count one access to each memory, even if its id is given twice; return how many there were.

        An access is a use: a search returned the memory, or a context window holds it. Listing is not.

        Args:
            app_name, user_id: whose memories; those of others are skipped. None: anyone's.

        Raises:
            InvalidInputError: more than ACCESS_IDS_MAX ids.
        """
        if len(memory_ids) > ACCESS_IDS_MAX:
            raise InvalidInputError(f"at most {ACCESS_IDS_MAX} memory_ids in one call, not {len(memory_ids)}")
        if not memory_ids:
            return 0
        count: int = await _STATEMENTS.fetchval(self._pool, "record_access", list(memory_ids), app_name, user_id)
        return count

    async def get_retention_distribution(
        self, *, app_name: str | None = None, user_id: str | None = None
    ) -> Distribution:
        """Count strong, medium and weak memories: of one app, one user, or all."""
        stats, _ = await self._stats(app_name, user_id)
        return Distribution(high=stats.high_value_count, medium=stats.medium_value_count, low=stats.low_value_count)

    async def cleanup_low_value_memories(
        self,
        threshold: float | None = None,
        min_age_days: float | None = None,
        dry_run: bool = False,
        app_name: str | None = None,
        *,
        batch_rows: int = BATCH_ROWS,
        rest_factor: float = REST_FACTOR,
        on_batch: Callable[[Batch], None] | None = None,
    ) -> MemoryStats:
        """Archive every memory whose score is below the threshold and that is old enough, in bounded batches.

        Args:
            threshold: None: the manager's, else each app's policy.
            min_age_days: None: the manager's, else each app's policy.
            dry_run: change nothing; `preview` gives the rows themselves.
            app_name: only this app.
            batch_rows: at most this many memories in one transaction, 1 to 1,000.
            rest_factor: rest after each batch for this many times its duration, 0 to 100: the busier the server, the
                longer the rest. 0 suits a server without other load.
            on_batch: called after each batch, for progress and metrics.

        Raises:
            InvalidInputError: a number out of its range. Nothing was changed.
        """
        limits = self._limits(threshold, min_age_days)
        if dry_run:
            stats, weak = await self._stats(app_name, None, limits)
            return dataclasses.replace(stats, cleaned_count=sum(weak.values()), cleaned_by_app=weak)
        check_number("rest_factor", rest_factor, 0, 100)
        batches: list[Batch] = []
        async for batch in self._archive(app_name, limits, batch_rows, rest_factor):
            batches.append(batch)
            if on_batch is not None:
                on_batch(batch)
        stats, _ = await self._stats(app_name, None, limits)
        if current_actor() != WORKER:
            archived = sum(batch.archived for batch in batches)
            await AuditLog(self._pool).note("retention_run", app_name=app_name, target={"archived": archived})
        by_app: Counter[str] = Counter()
        for batch in batches:
            by_app.update(batch.by_app)
        return dataclasses.replace(
            stats,
            cleaned_count=sum(batch.archived for batch in batches),
            cleaned_by_app=dict(by_app),
            batch_count=len(batches),
            seconds=sum(batch.seconds for batch in batches),
            batch_seconds_max=max(batch.seconds for batch in batches),
        )

    async def preview(
        self,
        threshold: float | None = None,
        min_age_days: float | None = None,
        app_name: str | None = None,
        *,
        limit: int = BATCH_ROWS_MAX,
        after: UUID | None = None,
    ) -> list[WeakMemory]:
        """Return the memories that a clean-up would archive now, and why, in the order of their ids.

        At most `limit` (1 to 1,000); the next page begins `after` the last id of this one. It changes nothing.

        Raises:
            InvalidInputError: a number out of its range.
        """
        limits = self._limits(threshold, min_age_days)
        app_name = check_optional_app_name(app_name)
        rows = await _STATEMENTS.fetch(self._pool, "weak_page", app_name, limit, after or _FIRST_ID, *limits)
        return [WeakMemory(**row) for row in rows]

    async def get_episodic_memories_by_time_slice(
        self, *, app_name: str, user_id: str, start_time: datetime, end_time: datetime, limit: int = 50
    ) -> list[Memory]:
        """Return a user's slices of conversation between two times, both included; newest first.

        The time is that of the conversation (`occurred_at`), not that of recording. This is not an access.

        Raises:
            InvalidInputError: a time without a zone, an end before the start, a limit outside of 0 to 1,000.
        """
        check_zones(start_time=start_time, end_time=end_time)
        if end_time < start_time:
            raise InvalidInputError(f"end_time {end_time} is before start_time {start_time}")
        check_count("limit", limit, 0, TIME_SLICE_ROWS_MAX)
        rows = await _STATEMENTS.fetch(
            self._pool,
            "time_slice",
            check_app_name(app_name),
            user_id,
            start_time,
            end_time,
            limit,
            self.decay_rate,
        )
        return [Memory(**row) for row in rows]

    def _limits(self, threshold: float | None, min_age_days: float | None) -> _Limits:
        given = check_optional_number("threshold", threshold, 0, 1)
        age = check_optional_number("min_age_days", min_age_days, 0, 36500)
        return _Limits(
            threshold=self.cleanup_threshold if given is None else given,
            min_age_days=self.min_age_days if age is None else age,
            decay_rate=self.decay_rate,
        )

    async def _archive(
        self, app_name: str | None, limits: _Limits, batch_rows: int, rest_factor: float
    ) -> AsyncIterator[Batch]:
        """Archive batch by batch, each in a transaction of its own, with a rest before the next."""
        app_name = check_optional_app_name(app_name)
        after = _FIRST_ID
        while True:
            started = time.perf_counter()
            [row] = await _STATEMENTS.fetch(self._pool, "archive_batch", app_name, batch_rows, after, *limits)
            seconds = time.perf_counter() - started
            yield Batch(archived=row["archived"], seconds=seconds, by_app=row["by_app"])
            if row["last_id"] is None:
                return
            after = row["last_id"]
            await asyncio.sleep(min(seconds * rest_factor, REST_SECONDS_MAX))

    async def _stats(
        self, app_name: str | None, user_id: str | None, limits: _Limits | None = None
    ) -> tuple[MemoryStats, dict[str, int]]:
        """Return the figures, and how many of each app a clean-up would archive."""
        app_name = check_optional_app_name(app_name)
        rows = await _STATEMENTS.fetch(self._pool, "stats", app_name, user_id, *(limits or self._limits(None, None)))
        total = sum(row["total"] for row in rows)
        stats = MemoryStats(
            total_memories=total,
            high_value_count=sum(row["high"] for row in rows),
            medium_value_count=sum(row["medium"] for row in rows),
            low_value_count=sum(row["low"] for row in rows),
            avg_retention_score=sum(row["score_sum"] for row in rows) / total if total else 0.0,
        )
        return stats, {row["app_name"]: row["weak"] for row in rows if row["weak"]}
