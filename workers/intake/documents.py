"""JSON that is larger than memory: lines of JSON, or one document read value by value, with exact line numbers."""

from __future__ import annotations

import codecs
import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from workers.intake.records import BadRecordError, Item, Naming, Rejected
from workers.intake.source import RECORD_BYTES_MAX, Content, CutOffError, Source, text_of

_CHUNK_BYTES = 64 * 1024
_BLANKS = " \t\r\n"
#: How much of a record a report shows.
SHOWN_CHARACTERS_MAX = 2_000
_DECODER = json.JSONDecoder()


class TooLargeError(BadRecordError):
    """A value is over the size limit of a record."""


@dataclass(frozen=True, slots=True)
class Record:
    """One JSON value of a file, the line that it starts on, and the text of that line in a file of lines."""

    line: int
    value: Any
    text: str = ""


#: Reads a record of a format.
Parse: TypeAlias = Callable[[Record, Naming], Iterator[Item]]


def read_lines(source: Source) -> Iterator[Record | Rejected]:
    """Read a file with a JSON value on each line."""
    number = 0
    with source.open() as content:
        try:
            for number, line in content.lines():
                yield _read_line(number, line)
        except CutOffError as error:
            yield Rejected(line=number + 1, error=str(error))


def _read_line(number: int, line: bytes | BadRecordError) -> Record | Rejected:
    if isinstance(line, BadRecordError):
        return Rejected(line=number, error=str(line))
    try:
        text = text_of(line)
        return Record(number, json.loads(text), text)
    except BadRecordError as error:
        return Rejected(line=number, error=str(error), record=line[:SHOWN_CHARACTERS_MAX].decode("latin-1"))
    except (ValueError, RecursionError) as error:
        shown = line[:SHOWN_CHARACTERS_MAX].decode(errors="replace").rstrip("\n")
        return Rejected(line=number, error=f"not valid JSON ({error})", record=shown)


def read_array(source: Source) -> Iterator[Record | Rejected]:
    """Read a file that is one JSON array, item by item. Nothing after a syntax error can be read."""
    with source.open() as content:
        scanner = Scanner(content)
        try:
            yield from scanner.array()
            scanner.end()
        except BadRecordError as error:
            yield Rejected(line=scanner.line, error=str(error), record=scanner.ahead)


def read_object(source: Source, *, streamed: frozenset[str]) -> Iterator[Record | Rejected]:
    """Read a file that is one JSON object, or several, one after the other.

    One that is over the size limit of a record is read member by member: arrays whose name is in `streamed` become
    iterators that can be read once.
    """
    with source.open() as content:
        scanner = Scanner(content)
        try:
            while True:
                yield Record(scanner.line, scanner.value())
                if scanner.is_at_end():
                    return
        except TooLargeError as error:
            if scanner.is_at_start:
                yield from _read_large(source, streamed, error)
            else:
                yield Rejected(line=scanner.line, error=str(error))
        except BadRecordError as error:
            yield Rejected(line=scanner.line, error=str(error), record=scanner.ahead)


def _read_large(source: Source, streamed: frozenset[str], error: TooLargeError) -> Iterator[Record | Rejected]:
    whole: dict[str, Any] = {}
    lists = set()
    with source.open() as content:
        scanner = Scanner(content)
        try:
            for key, member in scanner.members(streamed):
                if isinstance(member, Record):
                    whole[key] = member.value
                else:
                    lists.add(key)
                    for _ in member:
                        pass
        except BadRecordError as found:
            if lists:
                # What comes before the fault is read below.
                yield Rejected(line=scanner.line, error=str(found), record=scanner.ahead)
    if len(lists) != 1:
        yield Rejected(line=1, error=str(error))
        return
    (key,) = lists
    yield Record(1, {**whole, key: _items_of(source, streamed, key)})


def _items_of(source: Source, streamed: frozenset[str], wanted: str) -> Iterator[Any]:
    """Yield the items of an object's array, up to a fault, which has been reported before."""
    with source.open() as content, contextlib.suppress(BadRecordError):
        for key, member in Scanner(content).members(streamed):
            if key == wanted and not isinstance(member, Record):
                for item in member:
                    yield item.value
                return


class Scanner:
    """Reads a JSON document value by value.

    ijson reads such documents too; docs/decisions.md says why it is not used.

    Raises, from every method:
        BadRecordError: not valid JSON, not valid UTF-8, or a value is over the limit. `line` and `ahead` say where.
    """

    def __init__(self, content: Content) -> None:
        self._content = content
        self._decode = codecs.getincrementaldecoder("utf-8")()
        self._text = ""
        self._at = 0
        self._counted = 0
        self._line = 1
        self._is_ended = False
        self._has_taken = False

    @property
    def line(self) -> int:
        """The line of the next character, from 1."""
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line

    @property
    def is_at_start(self) -> bool:
        """Whether nothing has been read."""
        return not self._has_taken

    @property
    def ahead(self) -> str:
        """The text that comes next, truncated."""
        return self._text[self._at : self._at + SHOWN_CHARACTERS_MAX]

    def array(self) -> Iterator[Record]:
        """Read an array, item by item."""
        self._take("[")
        if self._peek() == "]":
            self._at += 1
            return
        while True:
            self._peek()
            line = self.line
            yield Record(line, self.value())
            if self._take(",]") == "]":
                return

    def members(self, streamed: frozenset[str]) -> Iterator[tuple[str, Record | Iterator[Record]]]:
        """Read an object, member by member."""
        self._take("{")
        if self._peek() == "}":
            self._at += 1
            return
        while True:
            key = self.value()
            self._take(":")
            if key in streamed and self._peek() == "[":
                yield key, self.array()
            else:
                self._peek()
                line = self.line
                yield str(key), Record(line, self.value())
            if self._take(",}") == "}":
                return

    def value(self) -> Any:
        """Read one whole value."""
        self._peek()
        while True:
            try:
                found, end = _DECODER.raw_decode(self._text, self._at)
            except (json.JSONDecodeError, RecursionError) as error:
                if self._is_ended or isinstance(error, RecursionError):
                    self._fail(str(error).partition(":")[0])
            else:
                # A number may continue in the next chunk.
                if end < len(self._text) or self._is_ended:
                    self._at = end
                    self._has_taken = True
                    return found
            if len(self._text) - self._at > RECORD_BYTES_MAX:
                raise TooLargeError(f"a value is over {RECORD_BYTES_MAX >> 20} MB, or is not valid JSON: split it")
            self._more()

    def is_at_end(self) -> bool:
        """Whether nothing follows."""
        return not self._peek()

    def end(self) -> None:
        """Check that nothing follows."""
        if not self.is_at_end():
            self._fail("the document is followed by something else")

    def _take(self, wanted: str) -> str:
        found = self._peek()
        if not found or found not in wanted:
            self._fail(f"expected {' or '.join(wanted)}")
        self._at += 1
        return found

    def _peek(self) -> str:
        """Return the next character that is not blank; '' at the end."""
        while True:
            while self._at < len(self._text):
                if self._text[self._at] not in _BLANKS:
                    return self._text[self._at]
                self._at += 1
            if self._is_ended:
                return ""
            self._more()

    def _more(self) -> None:
        """Read as much again as is held already, so that a large value is parsed only a few times."""
        data = self._content.read(max(_CHUNK_BYTES, len(self._text) - self._at))
        line = self.line
        try:
            decoded = self._decode.decode(data, final=not data)
        except UnicodeDecodeError:
            self._is_ended = True
            raise BadRecordError("what follows is not valid UTF-8") from None
        self._is_ended = not data
        self._text = self._text[self._at :] + decoded
        self._at = self._counted = 0
        self._line = line

    def _fail(self, reason: str) -> NoReturn:
        if self._is_ended and not self.ahead.strip():
            reason = "the file ends in the middle of the document"
        raise BadRecordError(f"not valid JSON from here on ({reason})")


def head_value(head: bytes) -> Any:
    """Return the first line's JSON value, or None if it is not JSON."""
    try:
        return json.loads(head.partition(b"\n")[0])
    except (ValueError, RecursionError):
        return None
