"""Changes of state as JSON Patch (RFC 6902).

A stored delta sets whole values of top-level keys, or takes keys out. Where the value before is known and belongs to
the session alone, the patch holds only what differs within it; else it sets the key, which `add` does whether it was
there or not, so that a patch can always be applied.
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
    """Return the operations that bring a delta into a client's state.

    Args:
        before: the state that the client has; None where it is not known.
    """
    operations: list[dict[str, Any]] = []
    for key, value in delta.items():
        # What other sessions share may have changed without this stream: a client that joined later has it already.
        is_own = parse_state_prefix(key)[0] is Scope.SESSION
        if value == DELETED_ESCAPE:
            # `remove` fails where there is nothing; whether there is, only the client's own state tells for sure.
            operations += [_set(key, None), {"op": "remove", "path": f"/{escape(key)}"}]
        elif before is not None and is_own and key in before:
            operations += _difference(key, before[key], value)
        else:
            operations.append(_set(key, value))
    return operations


def _difference(key: str, old: Any, new: Any) -> list[dict[str, Any]]:
    whole = _set(key, new)
    if _same(old, new):
        return []
    if not (isinstance(old, dict) and isinstance(new, dict)) and not (isinstance(old, list) and isinstance(new, list)):
        return [whole]
    operations: list[dict[str, Any]] = jsonpatch.make_patch({key: old}, {key: new}).patch
    # To Python, 1 and True are equal, in lists even to the library; and a patch may be longer than the value.
    if _size(operations) >= _size([whole]) or not _same(jsonpatch.apply_patch({key: old}, operations)[key], new):
        return [whole]
    return operations


def _set(key: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": f"/{escape(key)}", "value": value}


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _size(operations: list[dict[str, Any]]) -> int:
    return len(json.dumps(operations))
