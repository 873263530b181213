"""Reads one HTML, PDF or Office file from standard input and writes its text as JSON. Run as a program by itself.

It imports nothing of the project, has no environment, and bounds itself before it opens what may be hostile: the
processor's time, its memory, and that it writes no file. `hippocampus.knowledge.reading`, which starts it, bounds the
time and what it writes.
"""

from __future__ import annotations

import io
import json
import resource
import sys
import zipfile
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

CPU_SECONDS = 30
MEMORY_BYTES = 2 << 30
PAGES_MAX = 2_000
CELLS_MAX = 1_000_000
TEXT_MAX = 10_000_000
#: The parts of an archive, and their size unpacked.
PARTS_MAX = 10_000
UNPACKED_MAX = 256 << 20
#: A part of more than a megabyte is not packed to less than a hundredth.
RATIO_MAX = 100


class UnreadableError(Exception):
    """The file cannot be read: a code, and why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def main() -> None:
    """Read the file of the kind that the first argument names."""
    _bound()
    data = sys.stdin.buffer.read()
    try:
        answer = _checked(_READERS[sys.argv[1]](data))
    except UnreadableError as error:
        answer = {"code": error.code, "error": str(error)}
    except MemoryError:
        answer = {"code": "too_large", "error": "the document needs too much memory to be read"}
    except Exception as error:  # noqa: BLE001 - a library's own errors: the file is at fault
        # Not its words: they may quote the document.
        answer = {"code": "broken", "error": f"the file is damaged, or not of this kind ({type(error).__name__})"}
    sys.stdout.buffer.write(json.dumps(answer, ensure_ascii=False).encode())


def _bound() -> None:
    for kind, limit in (
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (limit, limit))


def _checked(found: dict[str, Any]) -> dict[str, Any]:
    parts = [_clean(part) for part in found["parts"]]
    if sum(map(len, parts)) > TEXT_MAX:
        raise UnreadableError("too_large", f"the text is over {TEXT_MAX:,} characters: split the document")
    if not any(part.strip() for part in parts):
        raise UnreadableError("empty", found.get("empty") or "the document has no text: add one that has")
    return {"title": _clean(found["title"])[:500], "parts": parts, "paged": found["paged"]}


def _clean(text: str) -> str:
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")


def _html(data: bytes) -> dict[str, Any]:
    import trafilatura

    text = trafilatura.extract(
        data, output_format="markdown", include_tables=True, include_comments=False, include_formatting=True
    )
    if not text:
        raise UnreadableError("empty", "the page has no text, or is nested too deeply to be read: add its text")
    found = trafilatura.extract_metadata(data)
    return {"title": (found.title if found else None) or "", "parts": [text], "paged": False}


def _pdf(data: bytes) -> dict[str, Any]:
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if "assword" in str(error) or "ecurity" in str(error):
            raise UnreadableError("encrypted", "the PDF needs a password: save it without") from None
        raise UnreadableError("broken", "the file is not a valid PDF: export it again") from None
    if len(document) > PAGES_MAX:
        raise UnreadableError("too_large", f"the PDF has {len(document):,} pages; at most {PAGES_MAX:,} are read")
    parts = []
    size = 0
    for page in document:
        text = page.get_textpage().get_text_bounded()
        # A hyphen at the end of a line is U+0002, or U+FFFE.
        text = text.replace("\r\n", "\n").replace("\x02\n", "").replace("\ufffe\n", "")
        text = text.replace("\x02", "-").replace("\ufffe", "-").rstrip() + "\n\n"
        size += len(text)
        if size > TEXT_MAX:
            raise UnreadableError("too_large", f"the text is over {TEXT_MAX:,} characters: split the document")
        parts.append(text)
        page.close()
    return {
        "title": (document.get_metadata_dict().get("Title") or "").strip(),
        "parts": parts,
        "paged": True,
        "empty": f"none of the {len(document)} pages has text: a scan needs text recognition (OCR) first",
    }


def _docx(data: bytes) -> dict[str, Any]:
    import docx
    from docx.table import Table

    _check_archive(data)
    document = docx.Document(io.BytesIO(data))

    def blocks() -> Iterator[str]:
        for block in document.iter_inner_content():
            if isinstance(block, Table):
                yield _table([cell.text for cell in row.cells] for row in block.rows)
                continue
            text = block.text
            style = (block.style.name if block.style is not None else "") or ""
            if style == "Title":
                yield f"# {' '.join(text.split())}"
            elif style.startswith("Heading ") and style[8:9].isdigit():
                yield f"{'#' * min(int(style[8:9]), 6)} {' '.join(text.split())}"
            elif style.startswith("List"):
                yield f"- {text}"
            else:
                yield text

    body = "\n\n".join(each for each in blocks() if each.strip())
    return {"title": document.core_properties.title or "", "parts": [body], "paged": False}


def _pptx(data: bytes) -> dict[str, Any]:
    import pptx

    _check_archive(data)
    show = pptx.Presentation(io.BytesIO(data))
    parts = []
    for slide in show.slides:
        heading = slide.shapes.title
        lines = [f"# {' '.join(heading.text.split())}"] if heading is not None and heading.text.strip() else []
        for shape in _flat(slide.shapes):
            if heading is not None and shape.shape_id == heading.shape_id:
                continue
            if shape.has_text_frame:
                lines.append(shape.text_frame.text)
            elif shape.has_table:
                lines.append(_table([cell.text for cell in row.cells] for row in shape.table.rows))
        if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
            lines.append(slide.notes_slide.notes_text_frame.text)
        parts.append("\n\n".join(line for line in lines if line.strip()) + "\n\n")
    return {"title": show.core_properties.title or "", "parts": parts, "paged": True}


def _flat(shapes: Any) -> Iterator[Any]:
    """Yield shapes, and in place of a group those in it."""
    for shape in shapes:
        if hasattr(shape, "shapes"):
            yield from _flat(shape.shapes)
        else:
            yield shape


def _xlsx(data: bytes) -> dict[str, Any]:
    import openpyxl

    _check_archive(data)
    book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
    lines = []
    cells = 0
    for sheet in book.worksheets:
        lines.append(f"# {sheet.title}\n")
        for row in sheet.iter_rows(values_only=True):
            cells += len(row)
            if cells > CELLS_MAX:
                raise UnreadableError("too_large", f"the workbook has more than {CELLS_MAX:,} cells: split it")
            if any(value is not None for value in row):
                lines.append(" | ".join("" if value is None else str(value) for value in row))
        lines.append("")
    is_empty = cells == 0
    return {"title": book.properties.title or "", "parts": [] if is_empty else ["\n".join(lines)], "paged": False}


def _table(rows: Any) -> str:
    return "\n".join("| " + " | ".join(" ".join(cell.split()) for cell in row) + " |" for row in rows)


def _check_archive(data: bytes) -> None:
    """Refuse an archive that unpacks to too much, is locked, or whose XML declares entities, before it is read."""
    if data.startswith(b"\xd0\xcf\x11\xe0"):
        raise UnreadableError(
            "encrypted", "the file needs a password, or is of an Office before 2007: save it again, without a password"
        )
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except zipfile.BadZipFile:
        raise UnreadableError("broken", "the file is not a valid Office document: save it again") from None
    parts = archive.infolist()
    # What an entry declares bounds what zipfile unpacks of it.
    if len(parts) > PARTS_MAX or sum(part.file_size for part in parts) > UNPACKED_MAX:
        raise UnreadableError(
            "too_large", f"unpacked, the file has over {PARTS_MAX:,} parts or {UNPACKED_MAX >> 20} MB: split it"
        )
    for part in parts:
        if part.flag_bits & 1:
            raise UnreadableError("encrypted", "the file needs a password: save it without")
        if part.file_size > 1 << 20 and part.file_size > RATIO_MAX * max(part.compress_size, 1):
            raise UnreadableError(
                "too_large",
                "a part of the file unpacks to more than a hundred times its size: save it again, or as PDF",
            )
        if part.filename.lower().endswith((".xml", ".rels")):
            _check_xml(archive, part)


def _check_xml(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> None:
    """Refuse XML with a document type: Office writes none, and entities grow, or read other files."""
    tail = b""
    with archive.open(part) as stream:
        while piece := stream.read(1 << 20):
            # In UTF-16 each letter has a zero byte beside it.
            text = (tail + piece).replace(b"\0", b"")
            if b"<!DOCTYPE" in text or b"<!ENTITY" in text:
                _refuse_entities()
            tail = piece[-32:]


def _refuse_entities() -> NoReturn:
    raise UnreadableError(
        "broken", "the file's XML declares a document type or entities, which Office never does: save it again"
    )


_READERS: dict[str, Callable[[bytes], dict[str, Any]]] = {
    "html": _html,
    "pdf": _pdf,
    "docx": _docx,
    "pptx": _pptx,
    "xlsx": _xlsx,
}

if __name__ == "__main__":
    main()
