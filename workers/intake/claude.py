"""A conversation of the ``conversations.json`` that claude.ai exports.

    {"uuid": "…", "name": "…", "created_at": "2025-03-01T09:30:00.1Z", "chat_messages": [
      {"uuid": "…", "sender": "human", "text": "…", "content": [{"type": "text", "text": "…"}],
       "created_at": "…", "attachments": [{"file_name": "a.txt", "extracted_content": "…"}], "files": [{…}]}]}

``text`` may be empty, or stand for blocks that it cannot show: the blocks count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from workers.intake import chats
from workers.intake.documents import Parse, Record
from workers.intake.records import BadRecordError, Item, LeftOut, Naming

_ROLES = {"human": "user", "assistant": "assistant"}


def parser_of(value: Any) -> Parse | None:
    """Return the parser of a conversation."""
    return conversation if isinstance(value, Mapping) and "chat_messages" in value else None


def conversation(record: Record, naming: Naming) -> Iterator[Item]:
    """Read a conversation: its messages, and the extracted text of what was attached to them.

    Raises:
        BadRecordError: its messages are not a list.
    """
    whole = record.value
    given = whole["chat_messages"]
    if not isinstance(given, list):
        raise BadRecordError("chat_messages must be a list")
    left_out: Counter[str] = Counter()
    beside = {"id": whole.get("uuid"), "title": whole.get("name"), "created_at": whole.get("created_at")}
    messages = [(record.line, message) for each in given for message in _messages(each, left_out)]
    if messages:
        yield from chats.conversation(Record(record.line, beside), iter(messages), naming)
    else:
        left_out["conversations without a message"] += 1
    yield from (LeftOut(reason, count) for reason, count in left_out.items())


def _messages(given: Any, left_out: Counter[str]) -> Iterator[Any]:
    """Return a message in the form of a chat's, then one for each attachment that has a text."""
    if not isinstance(given, Mapping):
        yield given  # refused as a message, with its number
        return
    role = _ROLES.get(str(given.get("sender")), given.get("sender"))
    blocks = given.get("content")
    blocks = [block for block in blocks if isinstance(block, Mapping)] if isinstance(blocks, list) else []
    left_out["blocks of thinking"] += sum(block.get("type") == "thinking" for block in blocks)
    shown = [block for block in blocks if block.get("type") != "thinking"]
    has_text = any(block.get("type") == "text" and str(block.get("text") or "").strip() for block in shown)
    others = [block for block in shown if block.get("type") != "text"]
    text = given.get("text")
    beside = {"role": role, "timestamp": given.get("created_at"), "message_id": given.get("uuid")}
    if not has_text and isinstance(text, str) and text.strip() and not others:
        yield {**beside, "content": text}
    elif has_text or others:
        simple = len(shown) == 1 and has_text
        yield {**beside, "content": shown[0]["text"] if simple else shown}
    else:
        left_out["messages without content"] += 1
    for each in _list(given.get("attachments")):
        content = each.get("extracted_content")
        if isinstance(content, str) and content.strip():
            name = each.get("file_name") or "without a name"
            yield {**beside, "content": f"[attachment: {name}]\n{content}", "file_name": each.get("file_name")}
        else:
            left_out["attachments without extracted text"] += 1
    left_out["files, of which the export has only the name"] += len(_list(given.get("files")))
    left_out += Counter()  # drop what counts nothing


def _list(given: Any) -> list[Mapping[str, Any]]:
    return [each for each in given if isinstance(each, Mapping)] if isinstance(given, list) else []
