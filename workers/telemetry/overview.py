"""The installation as a whole: what runs, waits, failed and costs, now and over the last days, as typed rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pulse.postgres.statements import Statements

if TYPE_CHECKING:
    from pulse.database import Pool

#: Rows that a reading of the last hours or days counts at most, of each kind.
COUNTED_MAX = 200_000
_CONSOLIDATING = ("fast_replay", "deep_reflection")
_STATEMENTS = Statements("workers.telemetry", "overview.sql")


@dataclass(frozen=True, slots=True)
class Totals:
    """How much is stored."""

    sessions: int
    events: int
    memories: int
    facts: int


@dataclass(frozen=True, slots=True)
class Spend:
    """The calls of models for all sessions that exist."""

    generate_calls: int
    embed_calls: int
    prompt_tokens: int
    output_tokens: int
    reused_replies: int


@dataclass(frozen=True, slots=True)
class Lag:
    """How much a stage of consolidation has yet to do."""

    stage: str
    sessions: int
    events: int
    oldest_seconds: float


@dataclass(frozen=True, slots=True)
class Failures:
    """The failed jobs with one error code."""

    error_code: str
    jobs: int
    last_seconds: float


@dataclass(frozen=True, slots=True)
class Process:
    """A role's process that reported recently."""

    role: str
    host: str
    port: int
    pid: int
    up_seconds: float
    seen_seconds: float

    @property
    def metrics_url(self) -> str:
        """Where its metrics are."""
        return f"http://{self.host}:{self.port}/metrics"


@dataclass(frozen=True, slots=True)
class Queue:
    """The jobs of a queue, and the age of the oldest that waits."""

    queue: str
    waiting: int
    running: int
    failed: int
    oldest_seconds: float | None


@dataclass(frozen=True, slots=True)
class Breaker:
    """Whether a worker pool may call a model."""

    name: str
    state: str
    reason: str
    probe_seconds: float | None
    since_seconds: float


@dataclass(frozen=True, slots=True)
class Limit:
    """For how long no process may call a model."""

    name: str
    blocked_seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class RefusedTexts:
    """How many texts a model refused to embed."""

    model: str
    texts: int


@dataclass(frozen=True, slots=True)
class FailedJob:
    """A consolidation job that failed, with whose it was."""

    id: UUID
    app_name: str
    user_id: str
    session_id: str
    job_type: str
    attempts: int
    error_code: str | None
    error: str | None
    completed_at: datetime | None


@dataclass(frozen=True, slots=True)
class Hour:
    """What happened in an hour; `start` is its beginning."""

    start: datetime
    turns: int
    jobs_completed: int
    jobs_failed: int
    tool_calls: int
    tool_calls_failed: int


@dataclass(frozen=True, slots=True)
class DayCost:
    """What the consolidation of an app cost on a day, in UTC.

    Attributes:
        usage: the tokens by model, each with ``model`` (None where it was not noted), ``prompt_tokens`` and
            ``output_tokens``.
    """

    day: datetime
    app_name: str
    jobs: int
    generate_calls: int
    embed_calls: int
    prompt_tokens: int
    output_tokens: int
    usage: list[dict[str, Any]]


async def totals(pool: Pool) -> Totals:
    """Return how much is stored."""
    (found,) = await _STATEMENTS.fetch_as(Totals, pool, "totals")
    return found


async def spend(pool: Pool) -> Spend:
    """Return what models were called for."""
    (found,) = await _STATEMENTS.fetch_as(Spend, pool, "spend")
    return found


async def lag(pool: Pool) -> list[Lag]:
    """Return what is not consolidated yet, by stage."""
    return await _STATEMENTS.fetch_as(Lag, pool, "lag")


async def failures(pool: Pool, *, limit: int) -> list[Failures]:
    """Return the failed jobs by error code, the most frequent first."""
    return await _STATEMENTS.fetch_as(Failures, pool, "failures", limit)


async def live_processes(pool: Pool, *, within_seconds: float) -> list[Process]:
    """Return the roles' processes that reported within this many seconds."""
    return await _STATEMENTS.fetch_as(Process, pool, "live_processes", within_seconds)


async def has_workers(pool: Pool, *, within_seconds: float) -> bool:
    """Return whether a worker that consolidates sessions reported within this many seconds."""
    return any(each.role in _CONSOLIDATING for each in await live_processes(pool, within_seconds=within_seconds))


async def queues(pool: Pool) -> list[Queue]:
    """Return the queues that hold jobs."""
    return await _STATEMENTS.fetch_as(Queue, pool, "queues")


async def breakers(pool: Pool) -> list[Breaker]:
    """Return the breakers of all models, by worker pool."""
    return await _STATEMENTS.fetch_as(Breaker, pool, "breakers")


async def limits(pool: Pool) -> list[Limit]:
    """Return the limits of all models."""
    return await _STATEMENTS.fetch_as(Limit, pool, "limits")


async def refused_texts(pool: Pool) -> list[RefusedTexts]:
    """Return how many texts have no vector because their model refused them."""
    return await _STATEMENTS.fetch_as(RefusedTexts, pool, "texts_without_vector")


async def failed_jobs(pool: Pool, *, limit: int) -> list[FailedJob]:
    """Return the jobs that failed last."""
    return await _STATEMENTS.fetch_as(FailedJob, pool, "failed_jobs", limit)


async def hours(pool: Pool, count: int) -> list[Hour]:
    """Return what happened in each of the last hours, the current one last; an hour counts up to `COUNTED_MAX` rows."""
    return await _STATEMENTS.fetch_as(Hour, pool, "hours", count, COUNTED_MAX)


async def day_costs(pool: Pool, days: int) -> list[DayCost]:
    """Return what each app cost on each of the last days, the newest first, of up to `COUNTED_MAX` jobs."""
    return await _STATEMENTS.fetch_as(DayCost, pool, "day_costs", days, COUNTED_MAX)


async def pulse_scopes(pool: Pool) -> list[str]:
    """Return the names of the instances of the autonomic layer."""
    return [row["scope"] for row in await _STATEMENTS.fetch(pool, "pulse_scopes")]


async def oldest_webhook_seconds(pool: Pool) -> float:
    """Return for how long the webhook delivery that is overdue for longest has waited."""
    seconds: float = await _STATEMENTS.fetchval(pool, "oldest_webhook_seconds")
    return seconds
