"""Policy is data: one row per app says when its sessions are consolidated and how its memories fade.

The row ``'*'`` holds for every app without a row of its own. The first change of an app's policy copies what held for
it until then, so that a later change of ``'*'`` does not affect it; `reset_policy` deletes the app's own row.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from hippocampus.errors import BY_SQLSTATE
from hippocampus.names import check_app_name, check_count, check_number
from hippocampus.retention.curves import Curve
from pulse.errors import InvalidInputError
from pulse.names import EVERY_APP
from pulse.postgres.statements import Statements
from pulse.redaction import RedactionMode

if TYPE_CHECKING:
    from pulse.database import Pool

_STATEMENTS = Statements("hippocampus.retention", "retention.sql", errors=BY_SQLSTATE)

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
_WORDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"retention_curve": ("strength", "classic"), "redaction": ("off", "mask", "refuse")}
)
_FIELDS = ("consolidate", *_COUNTS, *_WORDS, *_RANGES)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AppPolicy:
    """A row of ``app_policies``: the policy of one app."""

    app_name: str  # the app, or EVERY_APP
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
    archive_days: float  # how long it can be restored before it is purged, 0 to 36500
    updated_at: datetime
    redaction: RedactionMode  # of secrets in what is stored; see `pulse.redaction`


# A newer schema may have more columns.
_COLUMNS = tuple(each.name for each in dataclasses.fields(AppPolicy))


async def get_policy(pool: Pool, app_name: str = EVERY_APP) -> AppPolicy:
    """Return the policy that holds for an app; its `app_name` is EVERY_APP unless the app has a row of its own.

    Raises:
        InvalidInputError: the app's name is empty or too long, or the row ``'*'`` was deleted.
    """
    row = await _STATEMENTS.fetchrow(pool, "get_policy", check_app_name(app_name))
    if row is None:
        raise InvalidInputError("app_policies has no row '*', the policy of every app without one: insert it")
    return AppPolicy(**{name: row[name] for name in _COLUMNS})


async def set_policy(
    pool: Pool, app_name: str, *, preset: Preset | None = None, **fields: bool | int | float | str
) -> AppPolicy:
    """Change fields of an app's policy (EVERY_APP: of all apps without one) and return it whole.

    Args:
        preset: a name of PRESETS; `fields` take precedence.
        fields: fields of AppPolicy.

    Raises:
        InvalidInputError: an unknown preset or field, or a value out of its range. Nothing was changed.
    """
    check_app_name(app_name)
    changes = check_preset(preset) | {name: check_field(name, value) for name, value in fields.items()}
    if not changes:
        raise InvalidInputError(f"name at least one field of the policy to set: {', '.join(_FIELDS)}")
    row = await _STATEMENTS.fetch_one(pool, "set_policy", app_name, changes)
    return AppPolicy(**{name: row[name] for name in _COLUMNS})


async def reset_policy(pool: Pool, app_name: str) -> bool:
    """Delete an app's own policy: that of EVERY_APP holds again. Return whether there was one.

    Raises:
        InvalidInputError: `app_name` is EVERY_APP, whose row must stay, or not a valid name.
    """
    if check_app_name(app_name) == EVERY_APP:
        raise InvalidInputError("the policy '*' holds for every app without its own and must stay; change its fields")
    return await _STATEMENTS.fetchval(pool, "reset_policy", app_name) is not None


def check_field(name: str, value: Any) -> Any:
    """Return the value of a policy's field; raise InvalidInputError with the values that are allowed."""
    if name in _RANGES:
        return check_number(name, value, *_RANGES[name])
    if name in _COUNTS:
        check_count(name, value, 1, _COUNT_MAX)
    elif name == "consolidate":
        if type(value) is not bool:
            raise InvalidInputError(f"consolidate must be True or False, not {value!r:.80}")
    elif name in _WORDS:
        if value not in _WORDS[name]:
            raise InvalidInputError(f"{name} must be one of {', '.join(_WORDS[name])}, not {value!r:.80}")
    else:
        raise InvalidInputError(f"a policy has no field {name!r}{_did_you_mean(name, _FIELDS)}")
    return value


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
