"""Why a memory has its score, when it will be archived, and what another policy would keep."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from hippocampus.errors import BY_SQLSTATE, MemoryNotFoundError
from hippocampus.names import check_app_name, check_count, check_number
from hippocampus.retention import curves
from hippocampus.retention.curves import Curve
from hippocampus.retention.policies import check_field, check_preset
from pulse.errors import InvalidInputError
from pulse.postgres.statements import Statements

if TYPE_CHECKING:
    from pulse.database import Pool

#: Points of a curve from now to twice the remaining time; the days shown if it never falls below the threshold.
POINTS = 25
FOREVER_DAYS = 365.0
DIFFERING_MAX = 1000
COMPARED_DAYS_MAX = 3650.0
#: Fields of a policy that decide what a clean-up archives.
FIELDS = ("retention_curve", "decay_rate", "cleanup_threshold", "min_age_days")

_YEARS_SHOWN_DAYS = 365_000.0
_FIRST_ID = UUID(int=0)
_STATEMENTS = Statements("hippocampus.retention", "retention.sql", errors=BY_SQLSTATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionExplanation:
    """One memory's curve, what goes into it, and where it ends.

    Attributes:
        formula: the curve with the memory's own numbers; `days` are those since its last access.
        score: now, by the database's function.
        falls_below_at: from then on the score is below the threshold, unless the memory is used; None: never, because
            it is pinned, the rate or the threshold is 0, or it would take over a thousand years.
        cleaned_from: the first time at which a clean-up archives it: below the threshold and old enough; None: never.
        scores_around: the database's scores one day before `falls_below_at`, then, and one day after; empty if it is
            None.
        points: (days from now, score), from now to twice the remaining time.
    """

    id: UUID
    memory_type: str
    content: str
    curve: Curve
    formula: str
    initial_score: float
    access_count: int
    last_accessed_at: datetime
    created_at: datetime
    pinned: bool
    decay_rate: float
    threshold: float
    min_age_days: float
    policy: str  # whose: the app's, or '*'
    now: datetime
    score: float
    falls_below_at: datetime | None
    cleaned_from: datetime | None
    scores_around: tuple[float, ...]
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A memory that two policies treat differently."""

    id: UUID
    user_id: str
    memory_type: str
    content: str
    pinned: bool
    one: bool  # whether the one policy keeps it
    one_score: float
    other: bool
    other_score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyComparison:
    """What two policies would keep of the same memories, some days from now, if none is used until then."""

    one: Mapping[str, Any]  # FIELDS, as they were compared
    other: Mapping[str, Any]
    days: float
    total: int
    kept_by_both: int
    only_by_one: int
    only_by_other: int
    kept_by_none: int
    differing: tuple[Verdict, ...]  # in the order of their ids, at most `limit`


async def explain(pool: Pool, app_name: str, user_id: str, memory_id: UUID) -> RetentionExplanation:
    """Explain a memory's score under its app's policy. This is not an access.

    Raises:
        MemoryNotFoundError: no such memory of this app and user; an archived one has no score.
    """
    row = await _STATEMENTS.fetchrow(pool, "retention_inputs", check_app_name(app_name), user_id, memory_id)
    if row is None:
        raise MemoryNotFoundError(
            f"there is no memory {memory_id} of app {app_name!r} and user {user_id!r}; it may be archived"
        )
    days = curves.days_above(
        row["curve"], row["threshold"], row["initial_score"], row["access_count"], row["decay_rate"]
    )
    is_mortal = not row["pinned"] and days < _YEARS_SHOWN_DAYS
    falls_below_at = row["last_accessed_at"] + timedelta(days=days) if is_mortal else None
    around: tuple[float, ...] = ()
    if falls_below_at is not None:
        moments = [falls_below_at + timedelta(days=shift) for shift in (-1, 0, 1)]
        rows = await _STATEMENTS.fetch(pool, "score_at", app_name, memory_id, moments)
        around = tuple(each["score"] for each in rows)
    return RetentionExplanation(
        **row,
        formula=_formula(dict(row)),
        falls_below_at=falls_below_at,
        cleaned_from=None
        if falls_below_at is None
        else max(falls_below_at, row["created_at"] + timedelta(days=row["min_age_days"])),
        scores_around=around,
        points=_points(dict(row), falls_below_at),
    )


async def compare(
    pool: Pool,
    app_name: str,
    other: Mapping[str, Any],
    one: Mapping[str, Any] | None = None,
    *,
    user_id: str | None = None,
    days: float = 0.0,
    limit: int = 20,
    after: UUID | None = None,
) -> PolicyComparison:
    """Return what another policy would keep of an app's memories, beside the present one. Nothing is changed.

    Args:
        other, one: fields of FIELDS in place of the app's own, or ``preset``; `one` None is the present policy.
        user_id: only this user's memories.
        days: how far from now, 0 to 3,650.
        limit: how many memories that the two treat differently to list, 0 to 1,000, `after` an id.

    Raises:
        InvalidInputError: an unknown field or preset, or a value out of its range.
    """
    check_count("limit", limit, 0, DIFFERING_MAX)
    check_number("days", days, 0, COMPARED_DAYS_MAX)
    changes = [_changes(one or {}), _changes(other)]
    check_app_name(app_name)
    policies = [await _STATEMENTS.fetchrow(pool, "policy_of", app_name, each) for each in changes]
    arguments = (app_name, user_id, *changes, float(days))
    counts = await _STATEMENTS.fetchrow(pool, "compare_policies", *arguments)
    if None in policies or counts is None:
        raise InvalidInputError("app_policies has no row '*', the policy of every app without one: insert it")
    rows = await _STATEMENTS.fetch(pool, "differing_verdicts", *arguments, limit, after or _FIRST_ID)
    first, second = ({name: policy[name] for name in FIELDS} for policy in policies if policy is not None)
    return PolicyComparison(
        one=first, other=second, days=float(days), **counts, differing=tuple(Verdict(**row) for row in rows)
    )


def _changes(fields: Mapping[str, Any]) -> dict[str, Any]:
    given = dict(fields)
    changes: dict[str, Any] = dict(check_preset(given.pop("preset", None)))
    for name, value in given.items():
        if name not in FIELDS:
            raise InvalidInputError(f"compare {', '.join(FIELDS)} or preset, not {name!r:.80}")
        changes[name] = check_field(name, value)
    return changes


def _formula(row: Mapping[str, Any]) -> str:
    if row["pinned"]:
        return "pinned: always as fresh as at its last access"
    gain = 1 + math.log1p(max(row["access_count"], 0))
    if row["curve"] == "classic":
        return f"min(1, exp(-{row['decay_rate']:g} * days) * {gain:.4g} / 5)"
    return f"{row['initial_score']:g} * exp(-{row['decay_rate']:g} * days / {gain:.4g})"


def _points(row: Mapping[str, Any], falls_below_at: datetime | None) -> tuple[tuple[float, float], ...]:
    idle_days = (row["now"] - row["last_accessed_at"]).total_seconds() / 86400
    left_days = FOREVER_DAYS / 2
    if falls_below_at is not None:
        left_days = max((falls_below_at - row["now"]).total_seconds() / 86400, 1.0)
    span_days = 2 * left_days

    def score(day: float) -> float:
        since = 0.0 if row["pinned"] else idle_days + day
        return curves.score(row["curve"], row["initial_score"], row["access_count"], since, row["decay_rate"])

    days = [span_days * step / (POINTS - 1) for step in range(POINTS)]
    return tuple((day, score(day)) for day in days)
