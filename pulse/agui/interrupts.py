"""The interrupts of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from pulse.agui import types as agui
from pulse.postgres.json_values import escape_state


def interrupts_of(result: Any) -> list[agui.Interrupt]:
    """Return the interrupts in a run's result; none if they are not valid for AG-UI."""
    found = result.get("interrupts") if isinstance(result, Mapping) else None
    if not isinstance(found, list):
        return []
    try:
        return [
            agui.Interrupt.model_validate(escape_state(each) if isinstance(each, Mapping) else each) for each in found
        ]
    except ValidationError:
        return []
