"""Documents for tests: real files of each kind, and hostile ones."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Sequence


def pdf(pages: Sequence[str], title: str = "") -> bytes:
    """A PDF with a line of text on each page; a page without text is blank."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>"]
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects.append(f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>")
    objects.append("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    for number, text in enumerate(pages):
        objects.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >>"
            f" /Contents {5 + 2 * number} 0 R >>"
        )
        stream = f"BT /F1 12 Tf 72 700 Td ({text}) Tj ET" if text else ""
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    objects.append(f"<< /Title ({title}) >>")
    return _pdf_file(objects, info=len(objects))


def encrypted_pdf() -> bytes:
    """A PDF whose password nobody knows."""
    hexadecimal = "41" * 32
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [] /Count 0 >>",
        f"<< /Filter /Standard /V 1 /R 2 /O <{hexadecimal}> /U <{hexadecimal}> /P -4 >>",
    ]
    return _pdf_file(objects, extra=f" /Encrypt 3 0 R /ID [<{'42' * 16}> <{'42' * 16}>]")


def _pdf_file(objects: Sequence[str], *, info: int = 0, extra: str = "") -> bytes:
    out = bytearray(b"%PDF-1.4\n")
    places = []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n".encode("latin-1")
    start = len(out)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    out += b"".join(f"{place:010} 00000 n \n".encode() for place in places)
    known = f" /Info {info} 0 R" if info else ""
    out += f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R{known}{extra} >>\nstartxref\n{start}\n%%EOF\n".encode()
    return bytes(out)


def word() -> bytes:
    """A Word document with headings and a table."""
    import docx

    document = docx.Document()
    document.core_properties.title = "Handbook"
    document.add_heading("Holidays", level=1)
    document.add_paragraph("Everyone has thirty days of holiday.")
    document.add_heading("Carrying over", level=2)
    document.add_paragraph("Five days may be carried over until March.")
    table = document.add_table(rows=1, cols=2)
    table.rows[0].cells[0].text, table.rows[0].cells[1].text = "Porto", "eleven holidays"
    return _saved(document)


def slides() -> bytes:
    """A presentation of two slides; on the second, a text is in a group of a group."""
    import pptx

    show = pptx.Presentation()
    for heading, text in (("Roadmap", "The kiln ships in autumn."), ("Budget", "Forty thousand florins.")):
        slide = show.slides.add_slide(show.slide_layouts[1])
        slide.shapes.title.text = heading
        slide.placeholders[1].text = text
    inner = slide.shapes.add_group_shape().shapes.add_group_shape()
    inner.shapes.add_textbox(0, 0, 99, 99).text_frame.text = "Grouped guilders."
    return _saved(show)


def sheet() -> bytes:
    """A workbook."""
    import openpyxl

    book = openpyxl.Workbook()
    book.active.title = "Prices"
    book.active.append(["lantern", 12.5])
    return _saved(book)


def _saved(document: object) -> bytes:
    out = io.BytesIO()
    document.save(out)  # type: ignore[attr-defined]
    return out.getvalue()


def bomb() -> bytes:
    """A Word document with a part that unpacks to a thousand times its size."""
    return _with_part(word(), "word/zeros.xml", b"\0" * (8 << 20))


def with_entities() -> bytes:
    """A Word document whose entities would grow to gigabytes."""
    laughs = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><x>&b;</x>'
    return _with_part(word(), "word/extra.xml", laughs.encode("utf-16"))


def locked_archive() -> bytes:
    """A Word document whose parts are marked as encrypted."""
    data = bytearray(word())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = data.find(mark)
        while at >= 0:
            (flags,) = struct.unpack_from("<H", data, at + offset)
            struct.pack_into("<H", data, at + offset, flags | 1)
            at = data.find(mark, at + 4)
    return bytes(data)


def _with_part(data: bytes, name: str, content: bytes) -> bytes:
    out = io.BytesIO(data)
    with zipfile.ZipFile(out, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return out.getvalue()


def page_count(data: bytes) -> int:
    """The pages of a PDF, as a library counts them."""
    import pypdfium2

    return len(pypdfium2.PdfDocument(data))
