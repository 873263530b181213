"""What Zep returns: the messages of a thread, and the edges and nodes of a user's graph.

    {"messages": [{"uuid": "…", "role": "user", "name": "Ann", "content": "…", "created_at": "…"}, …]}
    {"edges": [{"uuid": "…", "fact": "Ann lives in Oslo", "name": "LIVES_IN", "source_node_name": "Ann",
                "target_node_name": "Oslo", "valid_at": "…", "invalid_at": null, "expired_at": null}, …]}
    {"nodes": [{"uuid": "…", "name": "Ann", "summary": "…", "labels": ["Person"]}, …]}

An edge becomes a memory, not a fact: facts under one key replace each other, edges of one name do not. One that no
longer holds says until when it did.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from workers.intake import chats
from workers.intake.documents import Parse, Record
from workers.intake.records import BadRecordError, Given, Item, LeftOut, Naming, Rejected, given, listed

_SAID = frozenset({"role_type", "reference_time", "processed"})
_EDGE = (
    "name",
    "source_node_name",
    "target_node_name",
    "valid_at",
    "invalid_at",
    "expired_at",
    "episodes",
    "episode_uuids",
    "attributes",
)
_ROLES = {"function": "tool", "norole": "user"}


def parser_of(value: Any) -> Parse | None:
    """Return the parser of a thread, a graph, a message, an edge or a node."""
    if not isinstance(value, Mapping):
        return None
    if value.keys() & {"edges", "nodes"} and "mapping" not in value:
        return graph
    if "messages" in value:
        messages = value["messages"]
        return thread if isinstance(messages, list) and messages and _is_message(messages[0]) else None
    if _is_message(value):
        return _single
    is_part = "uuid" in value and ("fact" in value or {"name", "summary"} <= value.keys())
    return _part if is_part else None


def thread(record: Record, naming: Naming) -> Iterator[Item]:
    """Read the messages of a thread."""
    beside = {key: each for key, each in record.value.items() if key in ("thread_id", "user_id", "session_id")}
    beside.setdefault("session_id", beside.get("thread_id"))
    messages = ((record.line, _as_chat(message)) for message in record.value["messages"])
    yield from chats.conversation(Record(record.line, beside), messages, naming)


def graph(record: Record, naming: Naming) -> Iterator[Item]:
    """Read the edges and nodes of a graph."""
    user_id = record.value.get("user_id")
    for kind in ("edges", "nodes"):
        for number, each in enumerate(listed(record.value.get(kind), kind), 1):
            try:
                yield _given(each, record.line, user_id)
            except BadRecordError as error:
                yield Rejected(line=record.line, error=f"number {number} of the {kind}: {error}", record=each)
    episodes = record.value.get("episodes")
    if isinstance(episodes, list) and episodes:
        yield LeftOut("episodes of a graph, from which its edges were made", len(episodes))


def _single(record: Record, naming: Naming) -> Iterator[Item]:
    yield from chats.message(Record(record.line, _as_chat(record.value)), naming)


def _part(record: Record, naming: Naming) -> Iterator[Item]:
    yield _given(record.value, record.line, record.value.get("user_id"))


def _is_message(value: Any) -> bool:
    if not isinstance(value, Mapping) or not {"uuid", "content"} <= value.keys():
        return False
    return bool(value.keys() & _SAID) or ("role" in value and "name" in value)


def _as_chat(message: Any) -> Any:
    if not isinstance(message, Mapping):
        return message
    # Until version 2, `role` is the speaker's name, and `role_type` the role.
    kind = message.get("role_type")
    role = kind or message.get("role")
    name = message.get("role") if kind else message.get("name")
    return {
        "role": _ROLES.get(str(role), role),
        "name": name if name != role else None,
        "content": message.get("content"),
        # What was imported into Zep later was said at its reference time.
        "timestamp": message.get("reference_time") or message.get("created_at"),
        "message_id": message.get("uuid"),
        **({"session_id": message["thread_id"]} if message.get("thread_id") else {}),
        "metadata": message.get("metadata") or None,
    }


def _given(each: Any, line: int, user_id: Any) -> Given | LeftOut:
    if not isinstance(each, Mapping) or not each.get("uuid"):
        raise BadRecordError("an edge or a node needs a uuid")
    if "fact" not in each:
        if not each.get("summary"):
            return LeftOut("nodes without a summary")
        text, occurred_at = f"{each.get('name')}: {each['summary']}", each.get("created_at")
    else:
        ended = each.get("invalid_at") or each.get("expired_at")
        text = each["fact"]
        if isinstance(text, str) and ended:
            began = f" from {each['valid_at']}" if each.get("valid_at") else ""
            text = f"{text} (no longer true: it held{began} until {ended})"
        occurred_at = each.get("valid_at") or each.get("created_at")
    metadata = {"imported_from": "zep", "labels": each.get("labels"), **{key: each.get(key) for key in _EDGE}}
    return given(line, text, name=f"zep:{each['uuid']}", occurred_at=occurred_at, user_id=user_id, metadata=metadata)
