"""Policy is data: one row per app says when its sessions are consolidated and how its memories fade.

An app without a row of its own lives under the row ``'*'``. The first change of an app's policy copies what stood for
it until then, so a later change of ``'*'`` leaves it alone; `reset_policy` gives it back.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import asyncpg

from hippocampus.retention.curves import Curve
from pulse.errors import InvalidInputError, from_postgres
from pulse.postgres.statements import load_queries

if TYPE_CHECKING:
    from pulse.database import Pool

#: The name of the policy of every app without one.
EVERY_APP = "*"

Preset: TypeAlias = Literal["high_interaction", "low_interaction", "sensitive", "knowledge"]

#: Decay rates and thresholds for kinds of apps. They leave the curve and the minimum age as they are.
PRESETS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "high_interaction": MappingProxyType({"decay_rate": 0.15, "cleanup_threshold": 0.15}),
        "low_interaction": MappingProxyType({"decay_rate": 0.05, "cleanup_threshold": 0.05}),
        "sensitive": MappingProxyType({"decay_rate": 0.3, "cleanup_threshold": 0.2}),
        "knowledge": MappingProxyType({"decay_rate": 0.02, "cleanup_threshold": 0.02}),
    }
)

_COUNT_MAX = 2**31 - 1
_COUNTS = (
    "fast_events",
    "fast_tokens",
    "fast_idle_seconds",
    "deep_tokens",
    "deep_idle_seconds",
    "max_state_bytes",
    "max_event_bytes",
    "max_artifact_bytes",
    "snapshot_events",
)
_RANGES: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "decay_rate": (0.0, 100.0),
        "cleanup_threshold": (0.0, 1.0),
        "min_age_days": (0.0, 36500.0),
        "archive_days": (0.0, 36500.0),
    }
)
_CURVES = ("strength", "classic")
_FIELDS = ("consolidate", *_COUNTS, "retention_curve", *_RANGES)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AppPolicy:
    """A row of ``app_policies``: what stands for one app."""

    app_name: str  # whose row it is: the app's own, or EVERY_APP
    consolidate: bool  # whether appending enqueues jobs at all
    fast_events: int  # fast_replay after this many new events,
    fast_tokens: int  # or this many new tokens,
    fast_idle_seconds: int  # or this long without an event
    deep_tokens: int  # deep_reflection after this many new tokens,
    deep_idle_seconds: int  # or this long without an event
    max_state_bytes: int
    max_event_bytes: int
    max_artifact_bytes: int  # of one version of a file, at most 512 MB
    snapshot_events: int  # a snapshot of a session's state after this many events that changed it
    retention_curve: Curve
    decay_rate: float  # per day, 0 to 100
    cleanup_threshold: float  # a memory with a lower score is archived, 0 to 1
    min_age_days: float  # but not before it is this old, 0 to 36500
    archive_days: float  # and can be restored for so long, then it is purged, 0 to 36500
    updated_at: datetime


async def get_policy(pool: Pool, app_name: str = EVERY_APP) -> AppPolicy:
    """Return what stands for an app; its `app_name` tells whether that is its own row.

    Raises:
        InvalidInputError: the app's name is empty or too long, or the row ``'*'`` was deleted.
    """
    row = await pool.fetchrow(_QUERIES["get_policy"], check_app_name(app_name))
    if row is None:
        raise InvalidInputError("app_policies has no row '*', the policy of every app without one: insert it")
    return AppPolicy(**row)


async def set_policy(
    pool: Pool, app_name: str, *, preset: Preset | None = None, **fields: bool | int | float | str
) -> AppPolicy:
    """Change fields of an app's policy (EVERY_APP: of all apps without one) and return it whole.

    Args:
        pool: where.
        app_name: whose.
        preset: a name of PRESETS; `fields` win over it.
        fields: fields of AppPolicy.

    Raises:
        InvalidInputError: an unknown preset or field, or a value out of its range. Nothing was changed.
    """
    check_app_name(app_name)
    changes = check_preset(preset) | {name: check_field(name, value) for name, value in fields.items()}
    if not changes:
        raise InvalidInputError(f"name at least one field of the policy to set: {', '.join(_FIELDS)}")
    try:
        row = await pool.fetchrow(_QUERIES["set_policy"], app_name, changes)
    except asyncpg.PostgresError as error:
        raise _plain(error) from error
    assert row is not None  # noqa: S101 (the function returns one row or raises)
    return AppPolicy(**row)


async def reset_policy(pool: Pool, app_name: str) -> bool:
    """Delete an app's own policy: it lives under EVERY_APP's again. Return whether it had one.

    Raises:
        InvalidInputError: `app_name` is EVERY_APP, which must stay, or no name.
    """
    if check_app_name(app_name) == EVERY_APP:
        raise InvalidInputError("the policy '*' stands for every app without one and must stay; change its fields")
    return await pool.fetchval(_QUERIES["reset_policy"], app_name) is not None


def check_app_name(app_name: str) -> str:
    """Return the name, or raise InvalidInputError for one that no app can have."""
    if not isinstance(app_name, str) or not 1 <= len(app_name) <= 255 or "\0" in app_name:
        raise InvalidInputError(f"app_name must be 1 to 255 characters without NUL, not {app_name!r:.80}")
    return app_name


def check_field(name: str, value: Any) -> Any:
    """Return the value of a policy's field, or raise InvalidInputError that says what it must be."""
    if name in _RANGES:
        return check_number(name, value, *_RANGES[name])
    if name in _COUNTS:
        if type(value) is not int or not 1 <= value <= _COUNT_MAX:
            raise InvalidInputError(f"{name} must be a whole number from 1 to {_COUNT_MAX}, not {value!r:.80}")
    elif name == "consolidate":
        if type(value) is not bool:
            raise InvalidInputError(f"consolidate must be True or False, not {value!r:.80}")
    elif name == "retention_curve":
        if value not in _CURVES:
            raise InvalidInputError(f"retention_curve must be one of {', '.join(_CURVES)}, not {value!r:.80}")
    else:
        raise InvalidInputError(f"a policy has no field {name!r}{_did_you_mean(name, _FIELDS)}")
    return value


def check_number(name: str, value: Any, lowest: float, highest: float) -> float:
    """Return the value as a float, or raise InvalidInputError unless it is a number within both bounds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise InvalidInputError(f"{name} must be a number from {lowest:g} to {highest:g}, not {value!r:.80}")
    if not lowest <= value <= highest:
        raise InvalidInputError(f"{name} must be from {lowest:g} to {highest:g}, not {value!r:.80}")
    return float(value)


def check_preset(name: str | None) -> dict[str, Any]:
    """Return the fields of a preset, none for None, or raise InvalidInputError for an unknown one."""
    if name is None:
        return {}
    if name not in PRESETS:
        raise InvalidInputError(f"there is no preset {name!r:.80}{_did_you_mean(name, tuple(PRESETS))}")
    return dict(PRESETS[name])


def _did_you_mean(name: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f": did you mean {close[0]!r}?" if close else f": there are {', '.join(known)}"


def _plain(error: asyncpg.PostgresError) -> Exception:
    return from_postgres(error) or error


_QUERIES = load_queries("hippocampus", "retention.sql")
