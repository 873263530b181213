"""Plain transcripts: a name, a colon and a text; with or without a time before the name.

    [2024-05-08 13:56] Ann: Hi, are you there?
    5/8/24, 1:57 PM - Ben: Yes.
    This continues the turn above.

In a file whose first lines have times, a turn begins with a time. In others it begins with a name of at most four
words.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from pulse.events import Event
from workers.intake import locomo
from workers.intake.moments import is_day_first, moment
from workers.intake.records import BadRecordError, Item, Naming, Rejected, SessionHead
from workers.intake.source import RECORD_BYTES_MAX, CutOffError, Source, shown, text_of

_NAME = r"(?P<name>[^\W\d_][^:：\n]{0,59}?)\s*(?::\s|：\s*|:$)"
#: What could continue the letters before it: a letter of the Latin alphabet, also with an accent, or an underscore.
_ENDS = r"(?![A-Za-z_À-ÖØ-öø-ɏ\u0300-\u036fḀ-ỿ])"
_BARE_TIME = (
    r"\d{1,4}[-/.]\d{1,2}[-/.]\d{2,4}(?:[,T\s]\s*\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?"
    rf"(?:[\s\u202f]?[AaPp]\.?[Mm]\.?{_ENDS})?(?:\s?(?:(?:Z|UTC|GMT){_ENDS}|[+-]\d{{2}}:?\d{{2}}(?!\d)))?)?"
)
_TIMED = re.compile(rf"\s*(?:\[(?P<bracketed>[^\]\n]{{4,40}})\]|(?P<bare>{_BARE_TIME}))\s*[-–—:]?\s*{_NAME}")
_NAMED = re.compile(rf"\s*{_NAME}")
_CLOCK = re.compile(r"\d{1,2}:\d{2}(:\d{2})?")
#: A word of another language, a clock, perhaps a half of the day, and a name: 'klo 13.05 - Ann', 'à 13h05 Ann'.
_CLOCK_WORD = re.compile(
    r"(?P<word>[^\W\d_]\S*)\s(?:[01]?\d|2[0-3])(?:\.|\s?h\s?)[0-5]\d(?:\.\d\d)?"
    r"\s(?:[-–—]\s|(?:\S+\s[-–—]\s)?(?P<initial>\S))"
)
_NAME_WORDS_MAX = 4


@dataclass(slots=True)
class _Turn:
    """A turn that grows line by line."""

    line: int
    name: str
    time: str | None
    text: list[str] = field(default_factory=list)
    characters: int = 0


class _UnknownTimeError(BadRecordError):
    """A line begins with a time of which only a part can be read."""


def is_transcript(head: str) -> bool:
    """Return whether a file that begins like this is a transcript: half of its first lines begin a turn."""
    lines = [line for line in head.splitlines()[:40] if line.strip()]
    is_timed = _is_timed(head)
    turns = [line for line in lines if _has_unknown_time(line) or _start(line, is_timed=is_timed) is not None]
    return bool(turns) and 2 * len(turns) >= len(lines)


def items(source: Source, head: str, naming: Naming) -> Iterator[Item]:
    """Read a transcript as one session, named by the file."""
    session_id = naming.session(None)
    is_timed = _is_timed(head)
    if is_timed and naming.day_first is None:
        naming.day_first = _day_first(source)
    yield SessionHead(session_id=session_id, user_id=None, line=1)
    turn: _Turn | None = None
    number = 0
    with source.open() as content:
        try:
            for number, raw in content.lines():
                try:
                    begun = _take(turn, number, _decoded(raw), is_timed=is_timed)
                except BadRecordError as error:
                    yield Rejected(line=number, error=str(error), record=shown(raw))
                    if not isinstance(error, _UnknownTimeError):
                        continue
                    begun = None  # what follows is not part of the turn before
                if turn is not None and begun is not turn:
                    yield _finished(turn, session_id, naming)
                turn = begun
        except CutOffError as error:
            yield Rejected(line=number + 1, error=str(error))
    if turn is not None:
        yield _finished(turn, session_id, naming)


def _day_first(source: Source) -> bool | None:
    with source.open() as content, contextlib.suppress(CutOffError):
        lines = (raw.decode(errors="replace") for _, raw in content.lines() if isinstance(raw, bytes))
        found = (_TIMED.match(line) for line in lines)
        return is_day_first((each["bracketed"] or each["bare"]) for each in found if each is not None)
    return None


def _take(turn: _Turn | None, number: int, line: str, *, is_timed: bool) -> _Turn:
    """Return the turn that a line begins, or the one that it continues."""
    if is_timed and _has_unknown_time(line):
        raise _UnknownTimeError("the time before the name is in an unknown form: write it as 2024-05-08 13:56")
    began = _start(line, is_timed=is_timed)
    if began is not None:
        name, time, text = began
        return _Turn(number, name, time, [text], len(text))
    if turn is None:
        raise BadRecordError("the line has no speaker: begin it with a name and a colon")
    turn.characters += len(line)
    if turn.characters > RECORD_BYTES_MAX:
        raise BadRecordError(f"the turn that began on line {turn.line} is over {RECORD_BYTES_MAX >> 20} MB")
    turn.text.append(line.rstrip())
    return turn


def _is_timed(head: str) -> bool:
    return any(_TIMED.match(line) for line in head.splitlines()[:40])


def _has_unknown_time(line: str) -> bool:
    """Return whether a date is followed by a clock that cannot be read, where the name should be."""
    found = _TIMED.match(line)
    if found is None or found["bare"] is None or ":" in found["bare"]:
        return False  # no date without a clock
    clock = _CLOCK_WORD.match(found["name"])
    if clock is None or line[found.end("bare") : found.start("name")].strip():
        return False  # also if the date ends with a dash or a colon
    # Such words begin with a small letter, names with a capital: 'Room 2.15' and 'version 1.25 notes' have no clock.
    return not clock["word"][0].isupper() and not (clock["initial"] or "").islower()


def _start(line: str, *, is_timed: bool) -> tuple[str, str | None, str] | None:
    """Return the name, the time and the first line of the turn that a line begins, or None."""
    found = (_TIMED if is_timed else _NAMED).match(line)
    if found is None or len(found["name"].split()) > _NAME_WORDS_MAX:
        return None
    time = (found["bracketed"] or found["bare"]) if is_timed else None
    return found["name"].strip(), time, line[found.end() :].strip()


def _finished(turn: _Turn, session_id: str, naming: Naming) -> Item:
    text = "\n".join(turn.text).strip()
    if not text:
        return Rejected(line=turn.line, error=f"the turn of {turn.name} is empty", record=turn.name)
    content = {"text": text}
    timestamp = None
    if turn.time is not None and _CLOCK.fullmatch(turn.time.strip()):
        # A time of day without a date gives no order: it is kept as it is.
        content["said_at"] = turn.time.strip()
    elif turn.time is not None:
        try:
            timestamp = moment(turn.time, day_first=naming.day_first)
        except ValueError as error:
            return Rejected(line=turn.line, error=str(error), record=f"[{turn.time}] {turn.name}: {text[:200]}")
    event = Event(
        author=turn.name,
        event_type="assistant_message" if locomo.is_assistant(turn.name) else "user_message",
        content=content,
        timestamp=timestamp,
    )
    return naming.turn(session_id, event, turn.line)


def _decoded(raw: bytes | BadRecordError) -> str:
    if isinstance(raw, BadRecordError):
        raise raw
    return text_of(raw).rstrip("\r\n")
