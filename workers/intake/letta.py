"""An agent file of Letta (``.af``): memory blocks become memories, each agent's messages a session.

{"agents": [{"id": "agent-0", "name": "…", "block_ids": ["block-0"], "messages": [
   {"id": "message-0", "role": "user", "content": [{"type": "text", "text": "…"}], "created_at": "…"}, …]}],
 "blocks": [{"id": "block-0", "label": "human", "value": "…", "description": "…"}], "tools": […], …}

The file has the agent's last messages only, and no archival passages.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from workers.intake import chats
from workers.intake.documents import Parse, Record
from workers.intake.records import BadRecordError, Item, LeftOut, Naming, Rejected, given, listed

_OTHER_PARTS = ("tools", "files", "sources", "groups", "mcp_servers", "skills")


def parser_of(value: Any) -> Parse | None:
    """Return the parser of an agent file."""
    is_file = isinstance(value, Mapping) and isinstance(value.get("agents"), list) and "blocks" in value
    return agents if is_file else None


def agents(record: Record, naming: Naming) -> Iterator[Item]:
    """Read the blocks and the agents of a file."""
    whole = record.value
    naming.is_single = naming.is_single and len(whole["agents"]) < 2
    for number, block in enumerate(listed(whole["blocks"], "blocks"), 1):
        yield from _block(block, number, record.line, naming)
    left_out: Counter[str] = Counter()
    for agent in whole["agents"]:
        if not isinstance(agent, Mapping) or not isinstance(agent.get("messages") or [], list):
            yield Rejected(line=record.line, error="an agent must be an object, its messages a list", record=agent)
            continue
        messages = [(record.line, _as_chat(each)) for each in agent.get("messages") or ()]
        shown = [each for each in messages if each[1] is not None]
        left_out["messages of Letta to the model (heartbeats, results of sending)"] += len(messages) - len(shown)
        if shown:
            own_id = None if naming.is_single else f"{naming.stem}-{agent.get('id')}"
            beside = {"title": agent.get("name"), "id": own_id}
            yield from chats.conversation(Record(record.line, beside), iter(shown), naming)
    left_out += Counter(
        {f"{part} of an agent file": sum(1 for _ in listed(whole.get(part), part)) for part in _OTHER_PARTS}
    )
    yield from (LeftOut(reason, count) for reason, count in left_out.items() if count)


def _block(block: Any, number: int, line: int, naming: Naming) -> Iterator[Item]:
    value = block.get("value") if isinstance(block, Mapping) else None
    if isinstance(value, str) and not value.strip():
        yield LeftOut("memory blocks without a text")
        return
    if not isinstance(value, str) or not block.get("id"):
        error = f"block {number} needs an id and a text, as its members id and value"
        yield Rejected(line=line, error=error, record=block)
        return
    label = block.get("label")
    try:
        yield given(
            line,
            f"{label}: {value}" if label else value,
            # The ids count from 0 in every file.
            name=f"letta:{naming.stem}:{block['id']}",
            metadata={"imported_from": "letta", "label": label, "description": block.get("description")},
        )
    except BadRecordError as error:
        yield Rejected(line=line, error=f"block {number}: {error}", record=block)


def _as_chat(message: Any) -> Any:
    """Return a message in the form of a chat's; None for one of Letta's own, between it and the model."""
    if not isinstance(message, Mapping):
        return message
    text = chats.text_of(message.get("content"))
    beside = {"role": message.get("role"), "timestamp": message.get("created_at"), "message_id": message.get("id")}
    sent = [words for call in message.get("tool_calls") or () if (words := _sent(call)) is not None]
    if sent:
        # An agent speaks by the tool send_message; its own text is what it thinks.
        return {**beside, "content": "\n".join(sent), "thought": text or None}
    packed = _packed(text)
    if packed is None:
        others = {key: message.get(key) for key in ("tool_calls", "tool_call_id", "name") if message.get(key)}
        return {**beside, **others, "content": text or None}
    # Older agents get a user's message packed: {"type": "user_message", "message": "…", "time": "…"}.
    if message.get("role") == "user" and packed.get("type") in (None, "user_message"):
        return {**beside, "content": packed.get("message")}
    return None


def _sent(call: Any) -> str | None:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or function.get("name") != "send_message":
        return None
    try:
        said = json.loads(function.get("arguments") or "")["message"]
    except (ValueError, KeyError, TypeError):
        return None
    return said if isinstance(said, str) else None


def _packed(text: str) -> Mapping[str, Any] | None:
    try:
        found = json.loads(text) if text.startswith("{") else None
    except ValueError:
        return None
    keys = found.keys() if isinstance(found, Mapping) else frozenset()
    is_packed = {"type", "time"} <= keys or {"message", "time"} <= keys or {"status", "message"} <= keys
    return found if is_packed else None
