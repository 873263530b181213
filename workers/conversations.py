"""Files of conversations, read into sessions of events: LoCoMo JSON, and OpenAI-style chat JSONL.

LoCoMo JSON, one conversation or a list of them; each session_N becomes a session of ours::

    {"sample_id": "mei", "conversation": {"speaker_a": "Mei", "speaker_b": "Assistant",
     "session_1_date_time": "1:56 pm on 8 May, 2023", "session_1": [{"speaker": "Mei", "text": "…"}, …], …}}

Chat JSONL, one chat per line, or one message per line (then consecutive lines with one session_id are a chat)::

    {"messages": [{"role": "user", "content": "…"}, …], "id": "…", "user": "…", "created_at": "2025-03-01T09:30:00Z"}
    {"role": "user", "content": "…", "timestamp": "2025-03-01T09:30:00+08:00"}

An event's id is made of its place and its content: reading the same file again gives the same ids.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pulse.errors import InvalidInputError
from pulse.events import Event
from workers import locomo

FileFormat: TypeAlias = Literal["LoCoMo JSON", "chat JSONL"]

#: Larger files are split by whoever has them: the whole file is read into memory.
FILE_BYTES_MAX = 512 * 1024 * 1024

_AUTHORS = {"user": "user", "assistant": "model", "tool": "tool", "function": "tool"}
_EVENT_TYPES = {"user": "user_message", "assistant": "assistant_message", "tool": "message", "function": "message"}


class FileFormatError(InvalidInputError):
    """The file is no conversation that we can read. The message says where and what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFile:
    """One session of a file."""

    session_id: str
    user_id: str
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationFile:
    """What a file holds.

    Attributes:
        queries: questions that its author put beside it; may be empty.
    """

    file_format: FileFormat
    sessions: tuple[SessionFile, ...]
    queries: tuple[str, ...] = ()

    @property
    def event_count(self) -> int:
        """How many events all its sessions have."""
        return sum(len(session.events) for session in self.sessions)


def read(path: Path) -> ConversationFile:
    """Read a file, whichever of the formats it is in.

    Raises:
        FileFormatError: it can't be read, or is in none of them.
    """
    text = _read_text(path)
    try:
        whole = json.loads(text)
    except ValueError:
        whole = None
    stem = path.stem
    try:
        conversations = locomo.conversations(whole)
        if conversations is not None:
            return _from_locomo(conversations, stem)
        rows = _rows(text) if whole is None else enumerate(whole if isinstance(whole, list) else [whole], 1)
        sessions = tuple(_from_chats([(number, _checked(number, row)) for number, row in rows], stem))
        return ConversationFile(file_format="chat JSONL", sessions=sessions)
    except (InvalidInputError, locomo.LocomoError) as error:
        raise FileFormatError(f"{path}: {error}") from error


def _read_text(path: Path) -> str:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise FileFormatError(f"{path} is over {FILE_BYTES_MAX >> 20} MB: split it.")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise FileFormatError(f"{path} can't be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{path} is not UTF-8 text (byte {error.start}).") from error


def _from_locomo(conversations: Sequence[Mapping[str, Any]], stem: str) -> ConversationFile:
    sessions, queries = [], []
    for number, conversation in enumerate(conversations, 1):
        name = str(conversation.get("sample_id") or (stem if len(conversations) == 1 else f"{stem}-{number}"))
        queries += locomo.questions(conversation)
        for session_name, events in locomo.sessions(conversation):
            session_id = f"{name}-{session_name}"
            sessions.append(SessionFile(session_id=session_id, user_id=name, events=_named(session_id, events)))
    return ConversationFile(file_format="LoCoMo JSON", sessions=tuple(sessions), queries=tuple(queries))


def _from_chats(rows: Sequence[tuple[int, Mapping[str, Any]]], stem: str) -> Iterator[SessionFile]:
    if not rows:
        raise FileFormatError("there is nothing in it")
    chats = list(_chats(rows))
    for place, (number, chat, messages) in enumerate(chats, 1):
        name = chat.get("session_id") or chat.get("id") or (stem if len(chats) == 1 else f"{stem}-{place}")
        start = _moment(number, chat) if "messages" in chat else None
        events = [_event(number, message, start, turn) for turn, message in enumerate(messages)]
        user_id = chat.get("user_id") or chat.get("user") or stem
        yield SessionFile(session_id=str(name), user_id=str(user_id), events=_named(str(name), events))


def _rows(text: str) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except ValueError as error:
                raise FileFormatError(
                    f"line {number} is no JSON ({error}): a file is LoCoMo JSON,"
                    " or JSONL with a chat or a message per line"
                ) from None


def _checked(number: int, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not ("messages" in value or "role" in value):
        raise FileFormatError(
            f"line {number} has neither messages nor role: a line is a chat such as"
            ' {"messages": [{"role": "user", "content": "…"}]}, or one such message'
        )
    return value


_Chat: TypeAlias = tuple[int, Mapping[str, Any], Sequence[Any]]


def _chats(lines: Sequence[tuple[int, Mapping[str, Any]]]) -> Iterator[_Chat]:
    """Yield each chat: the number of its first line, what stands beside its messages, the messages."""
    for is_chat, group in groupby(lines, key=lambda line: "messages" in line[1]):
        if is_chat:
            for number, chat in group:
                if not isinstance(chat["messages"], list) or not chat["messages"]:
                    raise FileFormatError(f"line {number}: messages must be a list that is not empty")
                yield number, chat, chat["messages"]
            continue
        for _, same in groupby(group, key=lambda line: line[1].get("session_id")):
            messages = list(same)
            yield messages[0][0], messages[0][1], [message for _, message in messages]


def _event(number: int, message: Any, start: float | None, turn: int) -> Event:
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(role, str) or not role:
        raise FileFormatError(f"line {number}: each message needs a role, such as user or assistant")
    name = message.get("name")
    content = {key: value for key, value in message.items() if key not in _BESIDE and value is not None}
    text = _text(message.get("content"))
    if text:
        content["text"] = text
    if isinstance(message.get("content"), list):
        content["parts"] = message["content"]
    # What a system or developer message says is an instruction: kept, and no part of the conversation.
    own_time = _moment(number, message)
    return Event(
        author=name if isinstance(name, str) and name and role in ("user", "assistant") else _AUTHORS.get(role, role),
        event_type=_EVENT_TYPES.get(role, "instruction") if text else _silent_type(message),
        content=content,
        timestamp=start + locomo.TURN_SECONDS * turn if own_time is None and start is not None else own_time,
    )


def _silent_type(message: Mapping[str, Any]) -> str:
    return "tool_call" if message.keys() & {"tool_calls", "function_call"} else "attachment"


#: What is kept elsewhere than in the event's content.
_BESIDE = frozenset({"content", "session_id", "user_id", "user", "timestamp", "created_at", "time", "name"})


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part["text"]) for part in parts if isinstance(part, dict) and part.get("text"))


def _moment(number: int, message: Mapping[str, Any]) -> float | None:
    given = next((message[key] for key in ("timestamp", "created_at", "time") if message.get(key) is not None), None)
    if given is None:
        return None
    try:
        if isinstance(given, str):
            moment = datetime.fromisoformat(given)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        return datetime.fromtimestamp(float(given), UTC).timestamp()
    except (ValueError, TypeError, OverflowError, OSError):
        raise FileFormatError(
            f"line {number}: {given!r} is no time: give seconds since 1970, or ISO 8601 as in 2025-03-01T09:30:00+08:00"
        ) from None


def _named(session_id: str, events: Sequence[Event]) -> tuple[Event, ...]:
    return tuple(replace(event, id=_event_id(session_id, place, event)) for place, event in enumerate(events))


def _event_id(session_id: str, place: int, event: Event) -> str:
    parts = [session_id, place, event.author, event.event_type, event.content, event.timestamp]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]
