"""Plain transcripts: a name, a colon, what was said; with or without a time before the name.

    [2024-05-08 13:56] Ann: Hi, are you there?
    5/8/24, 1:57 PM - Ben: Yes.
    and this belongs to the turn before.

In a file whose first lines have times, a turn begins where a time stands. In others it begins at a name of at most
four words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from pulse.events import Event
from workers.intake import locomo
from workers.intake.moments import moment
from workers.intake.records import BadRecordError, Item, Naming, Rejected, SessionHead
from workers.intake.source import RECORD_BYTES_MAX, CutOffError, Source, text_of

_NAME = r"(?P<name>[^\W\d_][^:：\n]{0,59}?)\s*(?::\s|：\s*|:$)"
_BARE_TIME = (
    r"\d{1,4}[-/.]\d{1,2}[-/.]\d{2,4}(?:[,T\s]\s*\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?"
    r"(?:[\s\u202f]?[AaPp]\.?[Mm]\.?)?(?:\s?(?:Z|[+-]\d{2}:?\d{2}))?)?"
)
_TIMED = re.compile(rf"\s*(?:\[(?P<bracketed>[^\]\n]{{4,40}})\]|(?P<bare>{_BARE_TIME}))\s*[-–—:]?\s*{_NAME}")
_NAMED = re.compile(rf"\s*{_NAME}")
_CLOCK = re.compile(r"\d{1,2}:\d{2}(:\d{2})?")
_NAME_WORDS_MAX = 4


@dataclass(slots=True)
class _Said:
    """A turn as it grows line by line."""

    line: int
    name: str
    time: str | None
    text: list[str] = field(default_factory=list)
    characters: int = 0


def looks_like_one(head: str) -> bool:
    """Whether a file that begins like this is a transcript: more than half of its first lines begin a turn."""
    lines = [line for line in head.splitlines()[:40] if line.strip()]
    turns = [line for line in lines if _start(line, is_timed=_is_timed(head)) is not None]
    return bool(turns) and 2 * len(turns) >= len(lines)


def items(source: Source, head: str, naming: Naming) -> Iterator[Item]:
    """Read a transcript as one session, named by the file."""
    session_id = naming.session(None)
    is_timed = _is_timed(head)
    yield SessionHead(session_id=session_id, user_id=None, line=1)
    said: _Said | None = None
    number = 0
    with source.open() as content:
        try:
            for number, raw in content.lines():
                try:
                    begun = _take(said, number, _decoded(raw), is_timed=is_timed)
                except BadRecordError as error:
                    yield Rejected(line=number, error=str(error), record=_shown(raw))
                    continue
                if said is not None and begun is not said:
                    yield _turn(said, session_id, naming)
                said = begun
        except CutOffError as error:
            yield Rejected(line=number + 1, error=str(error))
    if said is not None:
        yield _turn(said, session_id, naming)


def _take(said: _Said | None, number: int, line: str, *, is_timed: bool) -> _Said:
    """Return the turn that a line begins, or the one that it continues."""
    began = _start(line, is_timed=is_timed)
    if began is not None:
        name, time, text = began
        return _Said(number, name, time, [text], len(text))
    if said is None:
        raise BadRecordError("the line belongs to nobody: begin it with a name and a colon")
    said.characters += len(line)
    if said.characters > RECORD_BYTES_MAX:
        raise BadRecordError(f"the turn that began on line {said.line} is over {RECORD_BYTES_MAX >> 20} MB")
    said.text.append(line.rstrip())
    return said


def _is_timed(head: str) -> bool:
    return any(_TIMED.match(line) for line in head.splitlines()[:40])


def _start(line: str, *, is_timed: bool) -> tuple[str, str | None, str] | None:
    """Return the name, the time and the first words of the turn that a line begins, or None."""
    found = (_TIMED if is_timed else _NAMED).match(line)
    if found is None or len(found["name"].split()) > _NAME_WORDS_MAX:
        return None
    time = (found["bracketed"] or found["bare"]) if is_timed else None
    return found["name"].strip(), time, line[found.end() :].strip()


def _turn(said: _Said, session_id: str, naming: Naming) -> Item:
    text = "\n".join(said.text).strip()
    if not text:
        return Rejected(line=said.line, error=f"{said.name} says nothing", record=said.name)
    content = {"text": text}
    timestamp = None
    if said.time is not None and _CLOCK.fullmatch(said.time.strip()):
        # A time of day without a date orders nothing: it is kept as it stands.
        content["said_at"] = said.time.strip()
    elif said.time is not None:
        try:
            timestamp = moment(said.time, day_first=naming.day_first)
        except ValueError as error:
            return Rejected(line=said.line, error=str(error), record=f"[{said.time}] {said.name}: {text[:200]}")
    event = Event(
        author=said.name,
        event_type="assistant_message" if locomo.is_assistant(said.name) else "user_message",
        content=content,
        timestamp=timestamp,
    )
    return naming.turn(session_id, event, said.line)


def _decoded(raw: bytes | BadRecordError) -> str:
    if isinstance(raw, BadRecordError):
        raise raw
    return text_of(raw).rstrip("\r\n")


def _shown(raw: bytes | BadRecordError) -> str | None:
    return None if isinstance(raw, BadRecordError) else raw[:2_000].decode(errors="replace").rstrip()
