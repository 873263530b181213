"""The scopes of state keys. Pure.

key            scope     shared by                              stored in
``theme``      session   the session                            ``threads.state``
``user:lang``  user      every session of the user in the app   ``user_states``, as ``lang``
``app:model``  app       every session of the app               ``app_states``, as ``model``
``temp:step``  temp      one invocation, in memory              nowhere
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from pulse.postgres.json_values import DELETED


class Scope(enum.StrEnum):
    """The scope of a state key; the value is its prefix without the colon."""

    SESSION = ""
    USER = "user"
    APP = "app"
    TEMP = "temp"


_PREFIXES = {scope.value: scope for scope in Scope if scope}


@dataclass(frozen=True, slots=True)
class ScopedDelta:
    """A delta split by scope, keys without their prefix. An empty scope changes nothing."""

    session: dict[str, Any]
    user: dict[str, Any]
    app: dict[str, Any]
    temp: dict[str, Any]


def parse_state_prefix(key: str) -> tuple[Scope, str]:
    """Split a state key into its scope and its name within the scope."""
    prefix, colon, name = key.partition(":")
    scope = _PREFIXES.get(prefix) if colon else None
    return (Scope.SESSION, key) if scope is None else (scope, name)


def split_delta(delta: Mapping[str, Any]) -> ScopedDelta:
    """Route each key of a delta to its scope."""
    split = ScopedDelta({}, {}, {}, {})
    for key, value in delta.items():
        scope, name = parse_state_prefix(key)
        getattr(split, scope or "session")[name] = value
    return split


def merge_state(session: Mapping[str, Any], user: Mapping[str, Any], app: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the three stored scopes under their prefixes, without deleted keys."""
    return without_deleted(merge_deltas(session, user, app))


def merge_deltas(session: Mapping[str, Any], user: Mapping[str, Any], app: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the deltas of the three scopes under their prefixes."""
    merged = {f"app:{key}": value for key, value in app.items()}
    merged.update((f"user:{key}", value) for key, value in user.items())
    merged.update(session)
    return merged


def without_deleted(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state without deleted keys, which storage marks with `DELETED`."""
    return {key: value for key, value in state.items() if value is not DELETED}


def apply_delta(state: MutableMapping[str, Any], delta: Mapping[str, Any]) -> None:
    """Set the keys of a delta in a state, and remove those that it deletes."""
    for key, value in delta.items():
        if value is DELETED:
            state.pop(key, None)
        else:
            state[key] = value
