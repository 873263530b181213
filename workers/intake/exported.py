"""A conversation of an assistant's exported ``conversations.json``: a tree of messages, of which one path was shown.

{"title": "…", "conversation_id": "…", "current_node": "n2", "mapping":
  {"n1": {"parent": null, "message": {"author": {"role": "user"}, "create_time": 1714550000.1,
                                      "content": {"content_type": "text", "parts": ["…"]}}}, "n2": …}}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from workers.intake import chats
from workers.intake.documents import Parse, Record
from workers.intake.records import BadRecordError, Item, LeftOut, Naming


def parser_of(value: Any) -> Parse | None:
    """Return the parser of a conversation."""
    return conversation if isinstance(value, Mapping) and isinstance(value.get("mapping"), Mapping) else None


def conversation(record: Record, naming: Naming) -> Iterator[Item]:
    """Read the path that ends at the conversation's current message.

    Raises:
        BadRecordError: the tree has no such path.
    """
    whole = record.value
    beside = {
        "id": whole.get("conversation_id") or whole.get("id"),
        "title": whole.get("title"),
        "created_at": whole.get("create_time"),
    }
    path = _path(whole["mapping"], whole.get("current_node"))
    messages = [(record.line, message) for node in path if (message := _message(node)) is not None]
    if messages:
        yield from chats.conversation(Record(record.line, beside), iter(messages), naming)
    else:
        yield LeftOut("conversations without a message")
    hidden = sum(_is_message(node) for node in path) - len(messages)
    other = sum(_is_message(node) for node in whole["mapping"].values()) - len(messages) - hidden
    yield from (
        LeftOut(reason, count)
        for reason, count in (("messages that were not shown", hidden), ("messages of other branches", other))
        if count
    )


def _path(nodes: Any, current: Any) -> list[Mapping[str, Any]]:
    if not isinstance(nodes, Mapping) or not all(isinstance(node, Mapping) for node in nodes.values()):
        raise BadRecordError("mapping must be an object of nodes")
    if current is None:
        leaves = [key for key, node in nodes.items() if not node.get("children")]
        current = leaves[-1] if leaves else None
    path: list[Mapping[str, Any]] = []
    while current is not None:
        node = nodes.get(current) if isinstance(current, str) else None
        if node is None or len(path) == len(nodes):
            raise BadRecordError(f"node {current!r} of the mapping is missing, or is its own ancestor")
        path.append(node)
        current = node.get("parent")
    return path[::-1]


def _is_message(node: Mapping[str, Any]) -> bool:
    return isinstance(node.get("message"), Mapping)


def _message(node: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a node's message in the form of a chat's; None if it was never shown."""
    message = node.get("message")
    if not isinstance(message, Mapping):
        return None
    author, content = message.get("author"), message.get("content")
    metadata = message.get("metadata")
    if isinstance(metadata, Mapping) and metadata.get("is_visually_hidden_from_conversation"):
        return None
    if message.get("recipient") not in (None, "all"):
        return None  # a call of a tool
    parts = _parts(content)
    if not parts:
        return None
    return {
        "role": author.get("role") if isinstance(author, Mapping) else None,
        "content": parts[0] if len(parts) == 1 and isinstance(parts[0], str) else parts,
        "timestamp": message.get("create_time"),
        "message_id": message.get("id"),
    }


def _parts(content: Any) -> list[Any]:
    if not isinstance(content, Mapping):
        return []
    parts = content.get("parts")
    found = parts if isinstance(parts, list) else [content.get("text")]
    return [part for part in found if part]
