"""Chunkers: a document's text as pieces that are searched and embedded one by one, with their exact positions.

    fixed        windows of this many tokens, each beginning inside of the one before
    recursive    at the best break near the size: sections, paragraphs, lines, sentences, words
    sentence     whole sentences, up to the size
    structure    the sections of a Markdown text, or pages; one that is over the size is split recursively

Sizes are in the tokens of `hippocampus.text.tokens.count_tokens`. Every chunker is linear in the length of the text. A
chunk is a range of it: nothing is rewritten, and nothing but blanks is left out.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from hippocampus.names import check_count, check_word
from hippocampus.text.languages import language_of
from hippocampus.text.tokens import count_hundredths, count_tokens
from pulse.errors import InvalidInputError

Chunker: TypeAlias = Literal["fixed", "recursive", "sentence", "structure"]
CHUNKERS: tuple[Chunker, ...] = get_args(Chunker)
TOKENS_MIN, TOKENS_MAX = 16, 4_096
#: Chunks of one document, at most.
CHUNKS_MAX = 20_000
#: Characters of the title and headings in front of a chunk.
_LABEL_MAX = 500
_HEADING_MAX = 200

# Each is linear in the length of any text: what a part of a pattern took is never tried again in other ways.
_HEADING = re.compile(r"^(#{1,6})[ \t]+(\S[^\n]*)$|^(```|~~~)", re.MULTILINE)
_PARAGRAPH = re.compile(r"\n[ \t\r]*\n\s*")
_LINE = re.compile(r"\n")
_SENTENCE = re.compile(r"[。！？；]++[”’」』）]?+|(?<![.!?])[.!?]++[\"')\]]?+(?=\s)|\n")
_WORD = re.compile(r"\s+")
_BREAKS = (_PARAGRAPH, _LINE, _SENTENCE, _WORD)
_SIZES: Mapping[Chunker, tuple[int, int]] = {
    "fixed": (512, 50),
    "recursive": (256, 0),
    "sentence": (256, 0),
    "structure": (512, 0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunking:
    """How documents are split.

    Attributes:
        tokens: the size of a chunk, 16 to 4,096; None: 512 for `fixed` and `structure`, 256 for the others.
        overlap: tokens at the beginning of a chunk that end the one before it, for `fixed` and `sentence`; at most half
            of `tokens`. None: 50 of `fixed`, none of `sentence`.
        tokens_min: a recursive chunk that is shorter joins its neighbour, if both together are within the size.
    """

    chunker: Chunker = "recursive"
    tokens: int | None = None
    overlap: int | None = None
    tokens_min: int = 50

    def __post_init__(self) -> None:
        check_word("chunker", self.chunker, CHUNKERS)
        size, overlap = _SIZES[self.chunker]
        if self.tokens is None:
            object.__setattr__(self, "tokens", size)
        size = check_count("tokens", self.tokens, TOKENS_MIN, TOKENS_MAX)
        if self.overlap is None:
            object.__setattr__(self, "overlap", min(overlap, size // 2))
        check_count("overlap", self.overlap, 0, size // 2)
        if self.overlap and self.chunker not in ("fixed", "sentence"):
            raise InvalidInputError(f"chunks of {self.chunker} do not overlap: leave out overlap")
        check_count("tokens_min", self.tokens_min, 0, TOKENS_MAX)

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Chunking:
        """Return what a corpus's configuration says."""
        return cls(**config)

    def config(self) -> dict[str, Any]:
        """Return the configuration as a corpus stores it."""
        return asdict(self)


class Span(NamedTuple):
    """A range of a text, in characters, `upto` exclusive."""

    start: int
    upto: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of a document.

    Attributes:
        label: the title and the headings that it is under; embedded and searched with it.
        page: from 1; None if the document has no pages.
        digest: the hash of the label and the content.
        nth: its place among the chunks of the document with this digest, from 0.
    """

    index: int
    label: str
    heading_path: tuple[str, ...]
    content: str
    start: int
    upto: int
    page: int | None
    digest: bytes
    nth: int
    tokens: int
    language: str | None


class _Heading(NamedTuple):
    start: int
    path: tuple[str, ...]


def chunk_document(
    body: str, chunking: Chunking, *, is_markdown: bool = False, pages: Sequence[int] = (), title: str = ""
) -> list[Chunk]:
    """Split a document.

    Args:
        pages: where each page begins.

    Raises:
        InvalidInputError: there are more than `CHUNKS_MAX` chunks.
    """
    headings = list(_headings(body)) if is_markdown else []
    sections = [each.start for each in headings] or list(pages)
    spans = _SPLITTERS[chunking.chunker](body, chunking, sections)
    starts = [each.start for each in headings]
    chunks: list[Chunk] = []
    seen = Counter[bytes]()
    for start, upto in _trimmed(body, spans):
        if len(chunks) == CHUNKS_MAX:
            raise InvalidInputError(f"the document has more than {CHUNKS_MAX:,} chunks: split it")
        place = bisect_right(starts, start)
        path = headings[place - 1].path if place else ()
        label = " › ".join([title, *path] if title and title not in path[:1] else path)[:_LABEL_MAX]
        content = body[start:upto]
        digest = hashlib.sha256(f"{label}\n{content}".encode()).digest()
        chunks.append(
            Chunk(
                index=len(chunks),
                label=label,
                heading_path=path,
                content=content,
                start=start,
                upto=upto,
                page=bisect_right(pages, start) if pages else None,
                digest=digest,
                nth=seen[digest],
                tokens=max(count_tokens(content), 1),
                language=language_of([content]),
            )
        )
        seen[digest] += 1
    return chunks


def _headings(body: str) -> Iterator[_Heading]:
    """Yield the headings of a Markdown text, each with those above it; not those of code."""
    path: list[tuple[int, str]] = []
    fence: str | None = None
    for match in _HEADING.finditer(body):
        mark = match[3]
        if mark is not None:
            fence = None if fence == mark else fence or mark
        elif fence is None:
            level = len(match[1])
            path = [each for each in path if each[0] < level] + [(level, _name(match[2])[:_HEADING_MAX])]
            yield _Heading(match.start(), tuple(name for _, name in path))


def _name(heading: str) -> str:
    """Return a heading without the marks that close it."""
    return heading.rstrip(" \t\r").rstrip("#").rstrip(" \t") or heading


def _trimmed(body: str, spans: Iterator[Span]) -> Iterator[Span]:
    for start, upto in spans:
        text = body[start:upto]
        left = start + len(text) - len(text.lstrip())
        right = start + len(text.rstrip())
        if left < right:
            yield Span(left, right)


def _recursive(body: str, chunking: Chunking, sections: Sequence[int]) -> Iterator[Span]:
    size = _size(chunking)
    whole = _Piece(0, len(body), count_hundredths(body))
    parts = _cut(body, whole, [at for at in sections if at > 0])
    pieces = _pack(body, parts, size, 0) if len(parts) > 1 else _split(body, whole, size, 0)
    held: _Piece | None = None
    for piece in pieces:
        if (
            held is not None
            and min(held.cost, piece.cost) < 100 * chunking.tokens_min
            and (held.cost + piece.cost <= size)
        ):
            held = _Piece(held.start, piece.upto, held.cost + piece.cost)
            continue
        if held is not None:
            yield Span(held.start, held.upto)
        held = piece
    if held is not None:
        yield Span(held.start, held.upto)


def _structure(body: str, chunking: Chunking, sections: Sequence[int]) -> Iterator[Span]:
    size = _size(chunking)
    for part in _cut(body, _Piece(0, len(body), 0), [at for at in sections if at > 0]):
        for piece in _split(body, part, size, 0):
            yield Span(piece.start, piece.upto)


def _sentence(body: str, chunking: Chunking, _sections: Sequence[int]) -> Iterator[Span]:
    return _windows(body, _atoms(body, _BREAKS.index(_SENTENCE), _size(chunking)), chunking)


def _fixed(body: str, chunking: Chunking, _sections: Sequence[int]) -> Iterator[Span]:
    return _windows(body, _atoms(body, _BREAKS.index(_WORD), _size(chunking)), chunking)


_SPLITTERS: Mapping[Chunker, Callable[[str, Chunking, Sequence[int]], Iterator[Span]]] = {
    "fixed": _fixed,
    "recursive": _recursive,
    "sentence": _sentence,
    "structure": _structure,
}


def _size(chunking: Chunking) -> int:
    """Return the size of a chunk in hundredths of a token."""
    return 100 * (chunking.tokens or 0)


class _Piece(NamedTuple):
    start: int
    upto: int
    cost: int  # in hundredths of a token


def _cut(body: str, piece: _Piece, places: Sequence[int]) -> list[_Piece]:
    """Cut a piece at these places."""
    edges = [piece.start, *(at for at in places if piece.start < at < piece.upto), piece.upto]
    return [_Piece(start, upto, count_hundredths(body[start:upto])) for start, upto in pairwise(edges)]


def _split(body: str, piece: _Piece, size: int, level: int) -> Iterator[_Piece]:
    """Yield a piece, or, if it is over the size, its parts at the best breaks."""
    if piece.cost <= size:
        yield piece
        return
    while level < len(_BREAKS):
        parts = _cut(body, piece, [match.end() for match in _BREAKS[level].finditer(body, piece.start, piece.upto)])
        level += 1
        if len(parts) > 1:
            yield from _pack(body, parts, size, level)
            return
    # One word: each character costs at most three tokens.
    step = max(size // 300, 1)
    yield from _pack(body, _cut(body, piece, range(piece.start + step, piece.upto, step)), size, level)


def _pack(body: str, parts: Sequence[_Piece], size: int, level: int) -> Iterator[_Piece]:
    """Join neighbours as long as they are within the size together; split those that are over it alone.

    Once half of the size is reached, a part whose text says so begins a chunk. So a change moves the borders of the few
    chunks up to the next such part, and not those of all that follow.
    """
    held: _Piece | None = None
    for part in parts:
        is_border = held is not None and 2 * held.cost >= size and _is_border(body, part)
        if held is not None and held.cost + part.cost <= size and not is_border:
            held = _Piece(held.start, part.upto, held.cost + part.cost)
            continue
        if held is not None:
            yield held
        held = None
        if part.cost <= size or part.upto - part.start == 1:
            held = part
        else:
            yield from _split(body, part, size, level)
    if held is not None:
        yield held


def _is_border(body: str, part: _Piece) -> bool:
    return zlib.crc32(body[part.start : min(part.upto, part.start + 200)].encode("utf-8", "replace")) % 3 == 0


def _atoms(body: str, level: int, size: int) -> Iterator[_Piece]:
    """Yield the sentences or words of a text, those over the size in pieces."""
    whole = _Piece(0, len(body), 0)
    for part in _cut(body, whole, [match.end() for match in _BREAKS[level].finditer(body)]):
        yield from _split(body, part, size, level + 1)


def _windows(body: str, atoms: Iterator[_Piece], chunking: Chunking) -> Iterator[Span]:
    size, overlap = _size(chunking), 100 * (chunking.overlap or 0)
    held: list[_Piece] = []
    cost = 0
    for atom in atoms:
        is_border = bool(held) and 2 * cost >= size and chunking.chunker == "sentence" and _is_border(body, atom)
        if held and (cost + atom.cost > size or is_border):
            yield Span(held[0].start, held[-1].upto)
            kept: list[_Piece] = []
            left = min(overlap, size - atom.cost)
            for each in reversed(held):
                if each.cost > left:
                    break
                left -= each.cost
                kept.append(each)
            held = kept[::-1]
            cost = sum(each.cost for each in held)
        held.append(atom)
        cost += atom.cost
    if held:
        yield Span(held[0].start, held[-1].upto)
