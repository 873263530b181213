"""A file's bytes, plain or gzip, and its lines, each with its number."""

from __future__ import annotations

import contextlib
import gzip
import zlib
from collections.abc import Callable, Iterator
from io import BufferedIOBase
from pathlib import Path
from typing import IO

from workers.intake.records import BadRecordError, FileFormatError

#: A larger record (a line, an item of an array) is not loaded into memory.
RECORD_BYTES_MAX = 8 * 1024 * 1024
HEAD_BYTES = 64 * 1024
_ZIP = b"PK\x03\x04"
_GZIP = b"\x1f\x8b"
_UTF8_MARK = b"\xef\xbb\xbf"
_OTHER_MARKS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


class CutOffError(BadRecordError):
    """The file is truncated. What came before was read."""


class Source:
    """A file that can be opened more than once.

    Attributes:
        read_bytes: how much of the file, in its compressed form if any, was read since it was last opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.read_bytes = 0
        try:
            self.size_bytes = path.stat().st_size
            with path.open("rb") as raw:
                self._is_gzip = raw.read(2) == _GZIP
        except OSError as error:
            raise FileFormatError(f"{path} can't be read: {error.strerror}.") from error

    def head(self) -> bytes:
        """Return the first bytes of the content, without a UTF-8 mark.

        Raises:
            FileFormatError: it is not text.
        """
        with self.open() as stream:
            try:
                start = stream.read(HEAD_BYTES)
            except CutOffError as error:
                raise FileFormatError(f"{self.path}: {error}") from error
        if start[:2] in _OTHER_MARKS:
            name = _OTHER_MARKS[start[:2]]
            raise FileFormatError(f"{self.path} is {name}: convert it to UTF-8, as with `iconv -f {name} -t UTF-8`.")
        if start.startswith(_ZIP):
            raise FileFormatError(f"{self.path} is a zip file: unpack it, and name what is inside.")
        if b"\0" in start:
            raise FileFormatError(f"{self.path} is not text (byte {start.index(0)} is NUL).")
        return start

    @contextlib.contextmanager
    def open(self) -> Iterator[Content]:
        """Open the content from its start."""
        self.read_bytes = 0
        try:
            with self.path.open("rb") as raw, contextlib.ExitStack() as stack:
                if self._is_gzip:
                    yield Content(self, raw, stack.enter_context(gzip.GzipFile(fileobj=raw)))
                else:
                    yield Content(self, raw, raw)
        except OSError as error:
            raise FileFormatError(f"{self.path} can't be read: {error.strerror or error}.") from error


class Content:
    """An open source."""

    def __init__(self, source: Source, raw: IO[bytes], stream: BufferedIOBase | IO[bytes]) -> None:
        self._source = source
        self._raw = raw
        self._stream = stream
        self._is_start = True

    def read(self, size: int) -> bytes:
        """Return `size` bytes, or fewer at the end.

        Raises:
            CutOffError: compressed data is truncated or corrupt.
        """
        return self._without_mark(self._guarded(self._stream.read, size))

    def lines(self) -> Iterator[tuple[int, bytes | BadRecordError]]:
        """Yield each line that is not blank with its number; one over the size limit is yielded as an error.

        Raises:
            CutOffError: as `read`.
        """
        number = 0
        while line := self._without_mark(self._guarded(self._stream.readline, RECORD_BYTES_MAX + 1)):
            number += 1
            if len(line) > RECORD_BYTES_MAX and not line.endswith(b"\n"):
                while rest := self._guarded(self._stream.readline, RECORD_BYTES_MAX):
                    if rest.endswith(b"\n"):
                        break
                yield number, BadRecordError(f"the line is over {RECORD_BYTES_MAX >> 20} MB: split it")
            elif line.strip():
                yield number, line

    def _guarded(self, read: Callable[[int], bytes], size: int) -> bytes:
        try:
            data = read(size)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise CutOffError(f"its compressed data is truncated or corrupt ({error}): get the file again") from error
        self._source.read_bytes = self._raw.tell()
        return data

    def _without_mark(self, data: bytes) -> bytes:
        if self._is_start:
            self._is_start = False
            return data.removeprefix(_UTF8_MARK)
        return data


def text_of(line: bytes) -> str:
    """Decode a line.

    Raises:
        BadRecordError: it is not valid UTF-8.
    """
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRecordError(f"the line is not valid UTF-8 (at its byte {error.start + 1})") from error


def shown(raw: bytes | BadRecordError) -> str | None:
    """Return the beginning of a line for a report."""
    return None if isinstance(raw, BadRecordError) else raw[:2_000].decode(errors="replace").rstrip()


def stem_of(path: Path) -> str:
    """Return a file's name without its suffixes."""
    name = path.name.removesuffix(".gz")
    return Path(name).stem or name
