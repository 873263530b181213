"""Chats as model providers accept them: roles and contents, a chat or a message per record.

{"messages": [{"role": "user", "content": "…"}, …], "id": "…", "user": "…", "created_at": "2025-03-01T09:30:00Z"}
{"role": "user", "content": "…", "timestamp": "2025-03-01T09:30:00+08:00", "session_id": "…"}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pulse.events import Event
from workers.intake import langchain
from workers.intake.documents import Parse, Record
from workers.intake.moments import moment
from workers.intake.records import TURN_SECONDS, BadRecordError, Item, Naming, Rejected, SessionHead, author_of

_EVENT_TYPES = {"user": "user_message", "assistant": "assistant_message", "tool": "message", "function": "message"}
_TIMES = ("timestamp", "created_at", "time", "create_time")
#: Members that are not part of the event's content.
_BESIDE = frozenset({"content", "session_id", "user_id", "user", "name", *_TIMES})


def parser_of(value: Any) -> Parse | None:
    """Return the parser of a chat, a message, or a list of messages."""
    if isinstance(value, list):
        return _listed if value and isinstance(value[0], Mapping) and parser_of(value[0]) is message else None
    if not isinstance(value, Mapping):
        return None
    if "messages" in value:
        return chat
    return message if "role" in value else None


def parser_of_dumps(value: Any) -> Parse | None:
    """Return the parser of messages as LangChain dumps them: a chat of them, one, or a list."""
    if isinstance(value, list):
        return _listed if value and langchain.is_message(value[0]) else None
    if not isinstance(value, Mapping):
        return None
    messages = value.get("messages")
    if isinstance(messages, list):
        return chat if messages and langchain.is_message(messages[0]) else None
    return message if langchain.is_message(value) else None


def chat(record: Record, naming: Naming) -> Iterator[Item]:
    """Read a record that is a whole chat.

    Raises:
        BadRecordError: its messages are not a list, or its time is not a time.
    """
    messages = record.value["messages"]
    if isinstance(messages, str | Mapping) or not isinstance(messages, Iterable) or messages == []:
        raise BadRecordError("messages must be a list that is not empty")
    yield from conversation(record, ((record.line, message) for message in messages), naming)


def conversation(record: Record, messages: Iterator[tuple[int, Any]], naming: Naming) -> Iterator[Item]:
    """Read the messages of a conversation, given with their lines, and the other members of its record."""
    beside: Mapping[str, Any] = record.value if isinstance(record.value, Mapping) else {}
    start = _time(beside, naming)
    head = _head(beside, record.line, naming)
    yield head
    for number, (line, message) in enumerate(messages, 1):
        default = None if start is None else start + TURN_SECONDS * (number - 1)
        try:
            yield naming.turn(head.session_id, _event(message, default, naming), line)
        except BadRecordError as error:
            yield Rejected(line=line, error=f"message {number}: {error}", record=message)


def message(record: Record, naming: Naming) -> Iterator[Item]:
    """Read a record that is one message of a conversation.

    Raises:
        BadRecordError: it has no role, or its time is not a time.
    """
    message = record.value
    event = _event(message, None, naming)
    session_id = str(message.get("session_id") or naming.stem)
    yield SessionHead(session_id=session_id, user_id=_user(message), line=record.line)
    yield naming.turn(session_id, event, record.line)


def _listed(record: Record, naming: Naming) -> Iterator[Item]:
    return conversation(record, ((record.line, message) for message in record.value), naming)


def _head(beside: Mapping[str, Any], line: int, naming: Naming) -> SessionHead:
    title = beside.get("title")
    return SessionHead(
        session_id=naming.session(beside.get("session_id") or beside.get("id")),
        user_id=_user(beside),
        line=line,
        title=title if isinstance(title, str) and title.strip() else None,
    )


def _user(beside: Mapping[str, Any]) -> str | None:
    user_id = beside.get("user_id") or beside.get("user")
    return None if user_id is None else str(user_id)


def _event(message: Any, default_time: float | None, naming: Naming) -> Event:
    if langchain.is_message(message):
        message = langchain.as_chat_message(message)
    role = message.get("role") if isinstance(message, Mapping) else None
    if not isinstance(role, str) or not role:
        raise BadRecordError("a message needs a role, such as user or assistant")
    name = message.get("name")
    content = {key: value for key, value in message.items() if key not in _BESIDE and value is not None}
    text = text_of(message.get("content"))
    if text:
        content["text"] = text
    if isinstance(message.get("content"), list):
        content["parts"] = message["content"]
    own_time = _time(message, naming)
    # A system or developer message is an instruction: kept, but not part of the conversation.
    return Event(
        author=name if isinstance(name, str) and name and role in ("user", "assistant") else author_of(role),
        event_type=_EVENT_TYPES.get(role, "instruction") if text else _silent_type(message),
        content=content,
        timestamp=default_time if own_time is None else own_time,
    )


def _silent_type(message: Mapping[str, Any]) -> str:
    return "tool_call" if message.keys() & {"tool_calls", "function_call"} else "attachment"


def text_of(content: Any) -> str:
    """Return the text of a message's content: a text, or parts of which some have one."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (part if isinstance(part, str) else part.get("text") for part in parts if isinstance(part, str | dict))
    return "\n".join(text for text in texts if isinstance(text, str) and text)


def _time(message: Mapping[str, Any], naming: Naming) -> float | None:
    given = next((message[key] for key in _TIMES if message.get(key) is not None), None)
    if given is None:
        return None
    try:
        return moment(given, day_first=naming.day_first)
    except ValueError as error:
        raise BadRecordError(str(error)) from None
