"""Recognises the format of a file, and yields its items."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from workers.intake import adk_sessions, chats, exported, langchain, locomo, transcript
from workers.intake.documents import SHOWN_CHARACTERS_MAX, Record, head_value, read_array, read_lines, read_object
from workers.intake.records import BadRecordError, FileFormatError, Item, Naming, Rejected
from workers.intake.source import Source, stem_of

FileFormat: TypeAlias = Literal[
    "LoCoMo JSON", "chat JSON", "exported conversations", "ADK sessions", "LangChain messages", "transcript"
]
Parse: TypeAlias = Callable[[Record, Naming], Iterator[Item]]

FORMATS_KNOWN = (
    "LoCoMo JSON, OpenAI-style chat JSON or JSONL, an exported conversations.json, ADK session JSON, LangChain"
    " messages, or a transcript of lines such as 'Ann: Hello.'"
)
#: In a document that is one object over the bound of a record.
_JSON = re.compile(rb'\{|\[\s*(?:[\[\]{"tfn]|-?\d+\s*[,\]])')
_STREAMED = frozenset({"messages", "events"})


@dataclass(frozen=True, slots=True)
class Reading:
    """A file that is being read.

    Attributes:
        name: of users that have none in the file.
        items: can be read once.
        source: its `read_bytes` is the progress.
    """

    file_format: FileFormat
    name: str
    items: Iterator[Item]
    source: Source


def read(path: Path, *, name: str | None = None, day_first: bool = False) -> Reading:
    """Recognise a file's format and begin to read it.

    Args:
        name: of sessions and users that have none in the file; by default the file's own.
        day_first: '5/8/2023' means 5 August, not May 8.

    Raises:
        FileFormatError: it can't be read, is empty, or is in an unknown format.
    """
    source = Source(path)
    head = source.head()
    start = head.lstrip(b" \t\r\n\xef\xbb\xbf")
    if not start:
        raise FileFormatError(f"{path}: the file is empty")
    naming = Naming(name or stem_of(path), day_first=day_first)
    if not _JSON.match(start):
        return _transcript(source, head, naming)
    records = _records(source, start)
    try:
        first = next(records, None)
    except BadRecordError as error:
        raise FileFormatError(f"{path}: {error}") from error
    found = None if first is None or isinstance(first, Rejected) else recognise(first.value)
    if first is None:
        raise FileFormatError(f"{path}: the file is empty")
    second = next(records, None)
    naming.is_single = second is None
    rest = itertools.chain((first, *(() if second is None else (second,))), records)
    if found is None:
        if isinstance(first, Rejected) and second is None:
            raise FileFormatError(f"{path}, line {first.line}: {first.error}. A file is {FORMATS_KNOWN}.")
        found = _first_known(second)
    if found is None:
        raise FileFormatError(f"{path} is not in a known format: a file is {FORMATS_KNOWN}.")
    return Reading(found[0], naming.stem, _items(rest, naming), source)


def recognise(value: Any) -> tuple[FileFormat, Parse] | None:
    """Return the format of a record and its parser; None if the format is unknown."""
    if isinstance(value, list):
        return _recognise_list(value)
    if not isinstance(value, Mapping):
        return None
    if isinstance(value.get("mapping"), Mapping):
        return "exported conversations", exported.conversation
    if locomo.is_conversation(value):
        return "LoCoMo JSON", locomo.sessions
    if "events" in value and value.keys() & {"appName", "app_name", "userId", "user_id", "state", "id"}:
        return "ADK sessions", adk_sessions.session
    if "messages" in value:
        messages = value["messages"]
        is_dump = isinstance(messages, list) and bool(messages) and langchain.is_message(messages[0])
        return "LangChain messages" if is_dump else "chat JSON", chats.chat
    if langchain.is_message(value):
        return "LangChain messages", chats.message
    return ("chat JSON", chats.message) if "role" in value else None


def _recognise_list(value: list[Any]) -> tuple[FileFormat, Parse] | None:
    """Recognise an item that is a list of messages."""
    known = recognise(value[0]) if value and isinstance(value[0], Mapping) else None
    if known is None or known[1] is not chats.message:
        return None
    return known[0], lambda record, naming: chats.conversation(
        record, ((record.line, message) for message in record.value), naming
    )


def _first_known(record: Record | Rejected | None) -> tuple[FileFormat, Parse] | None:
    return recognise(record.value) if isinstance(record, Record) else None


def _transcript(source: Source, head: bytes, naming: Naming) -> Reading:
    text = head.decode("utf-8-sig", errors="replace")
    if text.count("\ufffd") > len(text) // 20:
        raise FileFormatError(f"{source.path} is not valid UTF-8: convert it, as with `iconv -f LATIN1 -t UTF-8`.")
    if not transcript.is_transcript(text):
        raise FileFormatError(f"{source.path} is not in a known format: a file is {FORMATS_KNOWN}.")
    return Reading("transcript", naming.stem, transcript.items(source, text, naming), source)


def _records(source: Source, start: bytes) -> Iterator[Record | Rejected]:
    first = head_value(start)
    lines = [line for line in start.splitlines() if line.strip()]
    if len(lines) > 1 and (first is not None or (start[:1] == b"{" and all(line[:1] == b"{" for line in lines))):
        return read_lines(source)
    return read_array(source) if start[:1] == b"[" else read_object(source, streamed=_STREAMED)


def _items(records: Iterator[Record | Rejected], naming: Naming) -> Iterator[Item]:
    for record in records:
        if isinstance(record, Rejected):
            yield record
            continue
        known = recognise(record.value)
        if known is None:
            yield Rejected(
                line=record.line,
                error="it is neither a chat nor a message: a chat has messages, a message has a role and a content",
                record=record.value,
            )
            continue
        try:
            yield from known[1](record, naming)
        except BadRecordError as error:
            yield Rejected(line=record.line, error=str(error), record=_cut(record.value))


def _cut(value: Any) -> Any:
    text = str(value)
    return value if len(text) <= SHOWN_CHARACTERS_MAX else text[:SHOWN_CHARACTERS_MAX]
