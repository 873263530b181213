"""Recognises the format of a file, and yields its items."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.intake import formats
from workers.intake.documents import SHOWN_CHARACTERS_MAX, Record, head_value, read_array, read_lines, read_object
from workers.intake.records import BadRecordError, FileFormatError, Item, Naming, Rejected
from workers.intake.source import Source, stem_of

FORMATS_KNOWN = (
    "chat JSON or JSONL, an export of ChatGPT, Claude, WhatsApp, mem0, Zep, Letta or OpenAI, rows of a LangGraph store,"
    " ADK session JSON, LangChain messages, LoCoMo JSON, or a transcript of lines such as 'Ann: Hello.'"
)
#: In a document that is one object over the bound of a record.
_JSON = re.compile(rb'\{|\[\s*(?:[\[\]{"tfn]|-?\d+\s*[,\]])')
_STREAMED = frozenset({"messages", "events", "results", "edges"})
#: An export in several files is of one user.
_SHARD = re.compile(r"(conversations)-\d{3}")


_NEITHER = "it is neither a chat nor a message: a chat has messages, a message has a role and a content"
_TEXT_NAMES = frozenset(each.name for each in formats.TEXT_FORMATS)


@dataclass(frozen=True, slots=True)
class Reading:
    """A file that is being read.

    Attributes:
        name: the name of users that have none in the file.
        items: can be read once.
        source: its `read_bytes` is the progress.
    """

    file_format: str
    name: str
    items: Iterator[Item]
    source: Source


def read(
    path: Path, *, name: str | None = None, day_first: bool | None = None, file_format: str | None = None
) -> Reading:
    """Recognise a file's format and begin to read it.

    Args:
        name: the name of sessions and users that have none in the file; by default the file's own.
        day_first: '5/8/2023' means 5 August; None: as the file's dates show, otherwise May 8.
        file_format: one of `formats.NAMES`; None: by the content.

    Raises:
        FileFormatError: it can't be read, is empty, or is in an unknown format.
    """
    source = Source(path)
    head = source.head()
    start = head.lstrip(b" \t\r\n\xef\xbb\xbf")
    if not start:
        raise FileFormatError(f"{path}: the file is empty")
    naming = Naming(name or stem_of(path), day_first=day_first)
    if file_format in _TEXT_NAMES or (file_format is None and not _JSON.match(start)):
        return _text(source, head, naming, file_format)
    records = _records(source, start)
    try:
        first = next(records, None)
    except BadRecordError as error:
        raise FileFormatError(f"{path}: {error}") from error
    found = None if first is None or isinstance(first, Rejected) else formats.recognise(first.value, file_format)
    if first is None:
        raise FileFormatError(f"{path}: the file is empty")
    second = next(records, None)
    naming.is_single = second is None
    rest = itertools.chain((first, *(() if second is None else (second,))), records)
    if found is None:
        if isinstance(first, Rejected) and second is None:
            raise FileFormatError(f"{path}, line {first.line}: {first.error}. A file is {FORMATS_KNOWN}.")
        found = formats.recognise(second.value, file_format) if isinstance(second, Record) else None
    if found is None and file_format is not None:
        raise FileFormatError(f"{path} is not in the format {file_format}: leave --format out, or name another.")
    if found is None:
        raise FileFormatError(f"{path} is not in a known format: a file is {FORMATS_KNOWN}.")
    shard = _SHARD.fullmatch(naming.stem)
    user = shard[1] if shard else naming.stem
    return Reading(found[0], user, _items(rest, naming, file_format), source)


def _text(source: Source, head: bytes, naming: Naming, wanted: str | None) -> Reading:
    text = head.decode("utf-8-sig", errors="replace")
    if text.count("\ufffd") > len(text) // 20:
        raise FileFormatError(f"{source.path} is not valid UTF-8: convert it, as with `iconv -f LATIN1 -t UTF-8`.")
    for each in formats.TEXT_FORMATS:
        if each.name == wanted or (wanted is None and each.is_known(text)):
            return Reading(each.title, naming.stem, each.items(source, text, naming), source)
    raise FileFormatError(f"{source.path} is not in a known format: a file is {FORMATS_KNOWN}.")


def _records(source: Source, start: bytes) -> Iterator[Record | Rejected]:
    first = head_value(start)
    lines = [line for line in start.splitlines() if line.strip()]
    if len(lines) > 1 and (first is not None or (start[:1] == b"{" and all(line[:1] == b"{" for line in lines))):
        return read_lines(source)
    return read_array(source) if start[:1] == b"[" else read_object(source, streamed=_STREAMED)


def _items(records: Iterator[Record | Rejected], naming: Naming, wanted: str | None) -> Iterator[Item]:
    for record in records:
        if isinstance(record, Rejected):
            yield record
            continue
        known = formats.recognise(record.value, wanted)
        if known is None:
            yield Rejected(
                line=record.line,
                error=_NEITHER if wanted is None else f"it is not in the format {wanted}",
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
