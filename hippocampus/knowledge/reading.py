"""Reading documents: text and Markdown here, HTML, PDF and Office files in a process of their own, which is bounded.

A file that cannot be read raises `UnreadableDocumentError`, whose message says why; nothing is stored of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO
from pathlib import PurePosixPath
from typing import Any

from hippocampus.errors import MissingLibraryError, UnreadableDocumentError
from hippocampus.knowledge import readers
from pulse.postgres.json_values import clean_text
from pulse.process.extras import install_command
from pulse.sandbox.processes import Ended, watch
from pulse.sandbox.records import Limits, SandboxRequest

#: The size of a file, and the time for reading one.
BYTES_MAX = 50 << 20
SECONDS_MAX = 30.0
TEXT_MAX = readers.TEXT_MAX
TITLE_MAX = 500

_MEMORY_MB = 1024
_OUTPUT_BYTES = 64 << 20
_OFFICE = "application/vnd.openxmlformats-officedocument."
PLAIN, MARKDOWN, HTML, PDF = "text/plain", "text/markdown", "text/html", "application/pdf"
DOCX = _OFFICE + "wordprocessingml.document"
PPTX = _OFFICE + "presentationml.presentation"
XLSX = _OFFICE + "spreadsheetml.sheet"
#: The types of files by the ends of their names.
SUFFIXES: Mapping[str, str] = {
    ".txt": PLAIN, ".text": PLAIN, ".log": PLAIN, ".rst": PLAIN, ".csv": PLAIN, ".md": MARKDOWN,
    ".markdown": MARKDOWN, ".html": HTML, ".htm": HTML, ".xhtml": HTML, ".pdf": PDF, ".docx": DOCX, ".pptx": PPTX,
    ".xlsx": XLSX,
}  # fmt: skip
_KINDS: Mapping[str, tuple[str, str]] = {
    HTML: ("html", "trafilatura"),
    "application/xhtml+xml": ("html", "trafilatura"),
    PDF: ("pdf", "pypdfium2"),
    DOCX: ("docx", "docx"),
    PPTX: ("pptx", "pptx"),
    XLSX: ("xlsx", "openpyxl"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadDocument:
    """The text of a document.

    Attributes:
        title: that it has in itself; '' if none.
        parts: the text, in pages if `paged`.
    """

    mime_type: str
    title: str
    parts: tuple[str, ...]
    paged: bool
    is_markdown: bool
    size: int


async def read_document(
    content: bytes | str, *, name: str = "", mime_type: str | None = None, admission: asyncio.Semaphore | None = None
) -> ReadDocument:
    """Read a document.

    Args:
        name: the file's name or address: its end says what it is.
        mime_type: what it is; None: as its beginning or its name says, else plain text.
        admission: admits the process that reads HTML, PDF and Office files; None: at once.

    Raises:
        UnreadableDocumentError: it is too large, encrypted, damaged, without text, or of an unknown kind.
        MissingLibraryError: the extra `knowledge` is not installed.
    """
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    if len(data) > BYTES_MAX:
        raise UnreadableDocumentError(
            f"the document has {len(data):,} bytes; at most {BYTES_MAX >> 20} MB are read: split it", code="too_large"
        )
    kind = (mime_type or _kind_of(content, name)).partition(";")[0].strip().lower()
    if kind in _KINDS:
        async with admission or contextlib.nullcontext():
            return await _read_apart(data, kind)
    if not kind.startswith("text/") and kind not in ("application/json", "application/yaml"):
        raise UnreadableDocumentError(
            f"documents of the type {kind!r:.80} cannot be read: use text, Markdown, HTML, PDF, docx, pptx or xlsx",
            code="unsupported",
        )
    return await asyncio.to_thread(_read_plain, data, kind)


def _read_plain(data: bytes, kind: str) -> ReadDocument:
    text = clean_text(_decoded(data)).replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise UnreadableDocumentError("the document has no text: add one that has", code="empty")
    if len(text) > TEXT_MAX:
        raise UnreadableDocumentError(f"the text is over {TEXT_MAX:,} characters: split the document", code="too_large")
    return ReadDocument(
        mime_type=kind, title="", parts=(text,), paged=False, is_markdown=kind == MARKDOWN, size=len(data)
    )


def _kind_of(content: bytes | str, name: str) -> str:
    by_name = SUFFIXES.get(PurePosixPath(name.partition("?")[0].partition("#")[0]).suffix.lower())
    if isinstance(content, str):
        return by_name if by_name in (MARKDOWN, HTML) else PLAIN
    head = content[:1024].lstrip()
    if head.startswith(b"%PDF-"):
        return PDF
    if content.startswith(b"PK\x03\x04"):
        return _office_kind(content) or by_name or "application/zip"
    if content.startswith(b"\xd0\xcf\x11\xe0"):
        # The archive in it is locked, or it is older than such archives.
        return by_name if by_name in (DOCX, PPTX, XLSX) else DOCX
    if by_name is not None:
        return by_name
    if head[:9].lower() == b"<!doctype" or head[:5].lower() == b"<html":
        return HTML
    return PLAIN if b"\0" not in head or content.startswith((b"\xff\xfe", b"\xfe\xff")) else "application/octet-stream"


def _office_kind(data: bytes) -> str | None:
    try:
        names = zipfile.ZipFile(BytesIO(data)).NameToInfo
    except (zipfile.BadZipFile, ValueError):
        return None
    found = {"word/document.xml": DOCX, "ppt/presentation.xml": PPTX, "xl/workbook.xml": XLSX}
    return next((kind for part, kind in found.items() if part in names), None)


def _decoded(data: bytes) -> str:
    encoding = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise UnreadableDocumentError(
            f"the document is not valid {encoding.removesuffix('-sig').upper()} (at byte {error.start:,}):"
            " convert it, or name its type"
        ) from None


async def _read_apart(data: bytes, kind: str) -> ReadDocument:
    """Read a file in a process of its own."""
    reader, library = _KINDS[kind]
    if find_spec(library) is None:
        raise MissingLibraryError(f"documents of the type {kind} need libraries: {install_command('knowledge')}")
    limits = Limits(memory_mb=_MEMORY_MB, seconds=SECONDS_MAX, output_bytes=_OUTPUT_BYTES)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", str(readers.__file__), reader,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={}, cwd="/", start_new_session=True,
    )  # fmt: skip
    ended = await watch(process, SandboxRequest(code="", limits=limits), given=data)
    found = _answer(ended, limits)
    return ReadDocument(
        mime_type=kind,
        title=found["title"],
        parts=tuple(found["parts"]),
        paged=found["paged"],
        is_markdown=kind != PDF,
        size=len(data),
    )


def _answer(ended: Ended, limits: Limits) -> dict[str, Any]:
    if ended.ended_by == "timeout":
        raise UnreadableDocumentError(
            f"the document took longer than {limits.seconds:g} s to read: split it", code="timeout"
        )
    if ended.ended_by is not None:
        raise UnreadableDocumentError("the document needs too much memory to be read: split it", code="too_large")
    try:
        found: dict[str, Any] = json.loads(ended.stdout)
    except ValueError:
        raise UnreadableDocumentError(
            f"the reader ended with code {ended.exit_code}: the file is damaged or too large: save it again"
        ) from None
    if "error" in found:
        raise UnreadableDocumentError(found["error"], code=found["code"])
    return found
