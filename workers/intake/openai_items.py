"""Lists of OpenAI's API: the messages of a thread (Assistants), or the items of a conversation.

{"object": "list", "has_more": false, "data": [{"id": "msg_…", "object": "thread.message", "thread_id": "…",
   "role": "user", "created_at": 1714550000, "content": [{"type": "text", "text": {"value": "…"}}]}, …]}
{"object": "list", "has_more": false, "data": [{"id": "msg_…", "type": "message", "role": "user",
   "content": [{"type": "input_text", "text": "…"}]}, {"type": "function_call", …}, …]}

Both are listed from the newest unless asked otherwise. Items have no time: they are read from the end if the first is
the assistant's and the last one the user's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from workers.intake import chats
from workers.intake.documents import Parse, Record
from workers.intake.records import Item, LeftOut, Naming, Rejected

# Not sets: what is looked up in them may be a list or an object.
_PARTS = ("input_text", "output_text")
_TYPES = ("message", "function_call", "function_call_output", "reasoning")


def parser_of(value: Any) -> Parse | None:
    """Return the parser of a list, or of one item of it."""
    if not isinstance(value, Mapping):
        return None
    if isinstance(value.get("data"), list) and value.get("object") == "list":
        return page if not value["data"] or _is_item(value["data"][0]) else None
    return _single if _is_item(value) else None


def page(record: Record, naming: Naming) -> Iterator[Item]:
    """Read a list as one session."""
    whole = record.value
    items = list(whole["data"])
    if _is_newest_first(items):
        items.reverse()
    left_out = Counter(kind for each in items if (kind := _left_out(each)))
    messages = [(record.line, _as_chat(each)) for each in items if not _left_out(each)]
    threads = {str(own) for each in items if isinstance(each, Mapping) and (own := each.get("thread_id")) is not None}
    if messages:
        beside = {"id": threads.pop() if len(threads) == 1 else None}
        yield from chats.conversation(Record(record.line, beside), iter(messages), naming)
    yield from (LeftOut(reason, count) for reason, count in left_out.items())
    if whole.get("has_more"):
        yield Rejected(
            line=record.line,
            error="has_more is true: the list continues, and the rest is not in this file; get all of its pages",
            record={"last_id": whole.get("last_id")},
        )


def _single(record: Record, naming: Naming) -> Iterator[Item]:
    if kind := _left_out(record.value):
        yield LeftOut(kind)
        return
    message = _as_chat(record.value)
    session_id = record.value.get("thread_id") or record.value.get("conversation_id")
    own = {"session_id": session_id} if session_id else {}
    yield from chats.message(Record(record.line, {**message, **own}), naming)


def _is_item(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    if value.get("object") == "thread.message":
        return True
    if value.get("type") not in _TYPES:
        return False
    content = value.get("content")
    parts = content if isinstance(content, list) else []
    has_parts = any(isinstance(part, Mapping) and part.get("type") in _PARTS for part in parts)
    return value["type"] != "message" or (has_parts and "role" in value)


def _is_newest_first(items: list[Any]) -> bool:
    known = [each for each in items if isinstance(each, Mapping)]
    times = [each["created_at"] for each in known if isinstance(each.get("created_at"), int | float)]
    if len(times) > 1 and times[0] != times[-1]:
        return bool(times[0] > times[-1])
    roles = [each["role"] for each in known if each.get("role") in ("user", "assistant")]
    return len(roles) > 1 and (roles[0], roles[-1]) == ("assistant", "user")


def _left_out(item: Any) -> str | None:
    if not isinstance(item, Mapping):
        return None
    kind = item.get("type", "message")
    if kind not in _TYPES:
        return f"items of the type {kind!r:.40}"
    return "reasoning items" if kind == "reasoning" else None


def _as_chat(item: Any) -> Any:
    if not isinstance(item, Mapping):
        return item
    beside = {"message_id": item.get("id"), "timestamp": item.get("created_at")}
    match item.get("type"):
        case "function_call":
            call = {"name": item.get("name"), "arguments": item.get("arguments")}
            return {**beside, "role": "assistant", "tool_calls": [{"id": item.get("call_id"), "function": call}]}
        case "function_call_output":
            output = item.get("output")
            return {**beside, "role": "tool", "content": output, "tool_call_id": item.get("call_id")}
    parts = item.get("content")
    content = [_part(part) for part in parts] if isinstance(parts, list) else parts
    return {**beside, "role": item.get("role"), "content": content}


def _part(part: Any) -> Any:
    if not isinstance(part, Mapping):
        return part
    text = part.get("text")
    if isinstance(text, Mapping):
        text = text.get("value")
    return {**part, "text": text} if text is not None else part
