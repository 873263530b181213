"""Changes of state as JSON Patch (RFC 6902).

A stored delta sets whole values of top-level keys, or removes keys. If the previous value is known and belongs to the
session alone, the patch has only the differences within it; otherwise it sets the key with `add`, which works whether
or not the key exists, so that a patch can always be applied.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import jsonpatch
from jsonpointer import escape

from pulse.postgres.json_values import DELETED_ESCAPE
from pulse.scopes import Scope, parse_state_prefix


def patch_of(delta: Mapping[str, Any], before: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return the operations that apply a delta to a client's state.

    Args:
        before: the client's state; None if it is not known.
    """
    operations: list[dict[str, Any]] = []
    for key, value in delta.items():
        # Shared state may have changed outside of this stream: a client that connected later has the change already.
        is_own = parse_state_prefix(key)[0] is Scope.SESSION
        if value == DELETED_ESCAPE:
            # `remove` fails if the key does not exist, which only the client's own state shows reliably.
            operations += [_set(key, None), {"op": "remove", "path": f"/{escape(key)}"}]
        elif before is not None and is_own and key in before:
            operations += _difference(key, before[key], value)
        else:
            operations.append(_set(key, value))
    return operations


def _difference(key: str, old: Any, new: Any) -> list[dict[str, Any]]:
    whole = _set(key, new)
    if same(old, new):
        return []
    if not (isinstance(old, dict) and isinstance(new, dict)) and not (isinstance(old, list) and isinstance(new, list)):
        return [whole]
    operations: list[dict[str, Any]] = jsonpatch.make_patch({key: old}, {key: new}).patch
    # In Python 1 == True, and within lists the library compares like that; also, a patch may be longer than the value.
    if _size(operations) >= _size([whole]) or not same(jsonpatch.apply_patch({key: old}, operations)[key], new):
        return [whole]
    return operations


def _set(key: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": f"/{escape(key)}", "value": value}


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON; in Python, 1 == True."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _size(operations: list[dict[str, Any]]) -> int:
    return len(json.dumps(operations))
