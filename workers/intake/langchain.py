"""Messages as LangChain dumps them, in its three forms.

{"type": "human", "data": {"content": "…", …}}                                    messages_to_dict
{"lc": 1, "type": "constructor", "id": [… "HumanMessage"], "kwargs": {…}}          dumpd, dumps
{"type": "human", "content": "…", …}                                               model_dump
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "function"}
#: What LangChain writes into each message and is not about the conversation.
_DROPPED = frozenset({"type", "example", "response_metadata", "lc_kwargs", "invalid_tool_calls"})


def is_message(value: Any) -> bool:
    """Whether a JSON value is such a message."""
    return isinstance(value, Mapping) and "role" not in value and _kind(value) is not None


def as_chat_message(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message with a role, as chats have it."""
    kind = _kind(value)
    fields = value.get("data") or value.get("kwargs") or value
    beside = {key: each for key, each in fields.items() if key not in _DROPPED and each not in (None, [], {})}
    extra = beside.pop("additional_kwargs", {})
    times = {key: extra[key] for key in ("timestamp", "created_at") if isinstance(extra, Mapping) and key in extra}
    role = fields.get("role") if kind == "chat" else _ROLES[str(kind)]
    outer = {key: value[key] for key in ("session_id", "user_id") if key in value}
    return {**outer, **times, **beside, "role": role, "content": fields.get("content")}


def _kind(value: Mapping[str, Any]) -> str | None:
    kind = value.get("type")
    if kind == "constructor" and isinstance(value.get("kwargs"), Mapping):
        path = value.get("id")
        kind = str(path[-1]) if isinstance(path, list) and path else None
    elif not isinstance(value.get("data"), Mapping) and "content" not in value:
        return None
    if not isinstance(kind, str):
        return None
    kind = kind.removesuffix("Chunk").removesuffix("Message").casefold()
    return kind if kind in _ROLES or kind == "chat" else None
