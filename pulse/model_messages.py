"""What users and models said, as the messages of OpenTelemetry's conventions: for spans, bounded, without secrets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pulse.redaction import mask_and_cut
from pulse.tools.redaction import redacted
from pulse.tracing.records import HIDDEN, TEXT_MAX

#: Characters of one text in a message: the first of these limits with which the message fits.
_TEXTS_MAX: Final = (1000, 200, 40)
#: Items of one message, or of one list in it.
_ITEMS_MAX: Final = 16
_DEPTH_MAX: Final = 8


def text_part(content: str) -> dict[str, Any]:
    """Return a text."""
    return {"type": "text", "content": content}


def call_part(call_id: str | None, name: str, arguments: Any) -> dict[str, Any]:
    """Return a call of a tool that a model asks for."""
    return {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}


def result_part(call_id: str | None, response: Any) -> dict[str, Any]:
    """Return the result of a call."""
    return {"type": "tool_call_response", "id": call_id, "response": response}


def message(role: str, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a message of the role ``system``, ``user``, ``assistant`` or ``tool``."""
    return {"role": role, "parts": list(parts)}


def written(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return messages as one JSON text that an attribute holds: the newest, as many as fit."""
    kept: list[str] = []
    left = TEXT_MAX - 2
    for each in reversed(messages):
        texts = (
            json.dumps(redacted(_cut(each, limit, _DEPTH_MAX)), ensure_ascii=False, separators=(",", ":"))
            for limit in (_TEXTS_MAX[:1] if kept else _TEXTS_MAX)
        )
        fitting = next((text for text in texts if len(text) <= left), None)
        if fitting is None:
            break
        kept.append(fitting)
        left -= len(fitting) + 1
    return f"[{','.join(reversed(kept))}]"


def _cut(value: Any, limit: int, depth: int) -> Any:
    if isinstance(value, str):
        return mask_and_cut(value, limit, HIDDEN)
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth == 0:
        return "…"
    if isinstance(value, Mapping):
        return {str(name)[:limit]: _cut(each, limit, depth - 1) for name, each in list(value.items())[:_ITEMS_MAX]}
    if isinstance(value, list | tuple):
        return [_cut(each, limit, depth - 1) for each in value[:_ITEMS_MAX]]
    return mask_and_cut(str(value), limit, HIDDEN)
