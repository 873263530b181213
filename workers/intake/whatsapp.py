"""An exported WhatsApp chat, as iOS and Android write it.

    [08/05/2024, 13:56:01] Ann: Hi                       iOS
    08/05/2024, 1:56 pm - Ann: Hi                        Android
    This continues the message above.

Lines of WhatsApp itself (encryption, calls, who joined) and messages that were only a file are left out, and counted.
The order of day and month depends on the phone's region: the whole file shows it, or it must be given.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from pulse.events import Event
from workers.intake.moments import is_day_first, moment
from workers.intake.records import FileFormatError, Item, LeftOut, Naming, Rejected, SessionHead
from workers.intake.source import RECORD_BYTES_MAX, CutOffError, Source, shown, text_of

_SYSTEM, _MEDIA = "lines of WhatsApp itself", "messages that were only a photo or another file"
_MARK = "\u200e"  # left-to-right: before what WhatsApp, not a person, wrote
_MARKS = "\u200e\u200f\u202a\u202c\ufeff"
_SPACE = r"[ \u00a0\u202f]"
_DATE = r"(?P<date>\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})"
_CLOCK = (
    rf"(?P<part>上午|下午|凌晨|早上|中午|晚上)?{_SPACE}?(?P<clock>\d{{1,2}}[:.]\d{{2}}(?:[:.]\d{{2}})?)"
    rf"(?:{_SPACE}?(?P<half>[AaPp])\.?{_SPACE}?[Mm]\.?)?"
)
_TIME = rf"{_DATE}(?P<comma>[,،，]?){_SPACE}{{1,2}}{_CLOCK}"
_IOS = re.compile(rf"[{_MARKS}]*\[{_TIME}\]{_SPACE}?")
_ANDROID = re.compile(rf"[{_MARKS}]*{_TIME}{_SPACE}[-–]{_SPACE}")
_NAME = re.compile(r"(?P<name>[^:\"“”«»\n]{1,80}?):(?:[ \u00a0\u202f]|$)")
_ATTACHED = r"\((?:file attached|Datei angehängt|archivo adjunto|файл добавлен)\)"
_OMITTED = re.compile(
    r"<[^<>]*\b(?:omitted|ausgeschlossen|omis|omessi|omitido|omitidos|oculta|oculto|weggelaten)>|<[^<>]*省略[^<>]*>"
    r"|(?:image|video|video note|audio|voice message|sticker|GIF|contact card|media) omitted|.{0,160}document omitted"
    rf"|[<‹]Без медиафайлов[>›]|.{{1,120}} {_ATTACHED}|<attached: .{{1,160}}>",
    re.IGNORECASE,
)
#: What stands under a person's name without a mark, in older exports.
_UNMARKED = re.compile(
    r"Messages .*end-to-end encrypted.*|This message was deleted\.?|You deleted this message\.?|null"
    r"|Diese Nachricht wurde gelöscht\.?|Du hast diese Nachricht gelöscht\.?|Se eliminó este mensaje\.?"
    r"|Eliminaste este mensaje\.?|Данное сообщение удалено\.?",
    re.IGNORECASE,
)
_EDITED = re.compile(
    r"\s*\u200e?<(?:This message was edited|Diese Nachricht wurde bearbeitet|Se editó este mensaje)\.?>$"
)
_FILE = re.compile(rf"(?:<attached: (.{{1,160}})>|(.{{1,120}}) {_ATTACHED})")
#: What iOS marks although a person sent it.
_SENT = ("POLL:", "Location:", "<attached:")
_PM = ("下午", "晚上", "中午")


@dataclass(slots=True)
class _Message:
    """A message that grows line by line; without a name it is a line of WhatsApp's own."""

    line: int
    time: str
    name: str
    text: list[str]
    is_marked: bool  # by WhatsApp as its own text
    characters: int = 0
    fault: str | None = field(default=None)


def is_chat(head: str) -> bool:
    """Return whether a file that begins like this is such a chat."""
    first = next((line for line in head.splitlines() if line.strip(_MARKS + " ")), "")
    if _ANDROID.match(first):
        return True
    found = _IOS.match(first)
    return found is not None and (bool(found["comma"]) or found["part"] is not None or _MARK in head)


def items(source: Source, head: str, naming: Naming) -> Iterator[Item]:
    """Read a chat as one session, named by the file.

    Raises:
        FileFormatError: its dates do not show whether the day or the month comes first, and it was not given.
    """
    day_first = _day_first(source) if naming.day_first is None else naming.day_first
    return _items(source, naming, day_first=day_first)


def _items(source: Source, naming: Naming, *, day_first: bool) -> Iterator[Item]:
    session_id = naming.session(None)
    yield SessionHead(session_id=session_id, user_id=None, line=1)
    left_out: Counter[str] = Counter()
    message: _Message | None = None
    number = 0
    with source.open() as content:
        try:
            for number, raw in content.lines():
                try:
                    line = text_of(raw) if isinstance(raw, bytes) else ""
                    if isinstance(raw, ValueError):
                        raise raw
                except ValueError as error:
                    yield Rejected(line=number, error=str(error), record=shown(raw))
                    continue
                began = _begin(number, line)
                if began is None and message is None:
                    yield Rejected(line=number, error="the line is before the first message", record=shown(raw))
                elif began is None:
                    _continue(message, line)
                else:
                    if message is not None:
                        yield from _finished(message, session_id, naming, left_out, day_first=day_first)
                    message = began
        except CutOffError as error:
            yield Rejected(line=number + 1, error=str(error))
    if message is not None:
        yield from _finished(message, session_id, naming, left_out, day_first=day_first)
    yield from (LeftOut(reason, count) for reason, count in left_out.items())


def _day_first(source: Source) -> bool:
    dates: list[str] = []
    with source.open() as content:
        try:
            for _, raw in content.lines():
                line = raw.decode(errors="replace") if isinstance(raw, bytes) else ""
                if (found := _header(line)) is not None and "/" in found["date"]:
                    dates.append(found["date"])
        except CutOffError:
            pass  # reported when the file is read
    # Where a dot or a dash is between the numbers, or the year comes first, the order is known.
    if not dates or all(len(date.partition("/")[0]) == 4 for date in dates):
        return True
    found_order = is_day_first(dates)
    if found_order is None:
        raise FileFormatError(
            f"{source.path}: its dates, such as {dates[0]}, do not show whether the day or the month comes first: give"
            " --day-first or --month-first."
        )
    return found_order


def _header(line: str) -> re.Match[str] | None:
    return _IOS.match(line) or _ANDROID.match(line)


def _begin(number: int, line: str) -> _Message | None:
    """Return the message that a line begins."""
    header = _header(line)
    if header is None:
        return None
    clock = header["clock"].replace(".", ":")
    half = header["half"] or (header["part"] and ("p" if header["part"] in _PM else "a")) or ""
    if half == "p" and clock.startswith("12") and header["part"] == "晚上":
        half = "a"  # at night, 12 is midnight
    date = header["date"] if header["date"][:4].isdecimal() else header["date"].replace("-", ".")
    time = f"{date}, {clock}{f' {half}m' if half else ''}"
    rest = line[header.end() :].rstrip("\r\n")
    named = _NAME.match(rest.lstrip(_MARKS))
    if named is None:
        return _Message(number, time, "", [rest], is_marked=True)
    text = rest.lstrip(_MARKS)[named.end() :]
    name = named["name"].strip(_MARKS + " ~\u00a0\u202f")
    return _Message(number, time, name, [text.strip(_MARKS)], is_marked=text.startswith(_MARK), characters=len(text))


def _continue(message: _Message | None, line: str) -> None:
    if message is None:
        return
    message.characters += len(line)
    if message.characters > RECORD_BYTES_MAX:
        message.fault = f"the message is over {RECORD_BYTES_MAX >> 20} MB"
        return
    message.text.append(line.strip(_MARKS + "\r\n"))


def _finished(
    message: _Message, session_id: str, naming: Naming, left_out: Counter[str], *, day_first: bool
) -> Iterator[Item]:
    text = _EDITED.sub("", "\n".join(message.text).strip())
    first = message.text[0].strip()
    if message.fault is not None:
        yield Rejected(line=message.line, error=message.fault, record=first[:200])
        return
    if not message.name:
        left_out[_SYSTEM] += 1
        return
    content: dict[str, str] = {}
    if _OMITTED.fullmatch(first):
        attached = _FILE.fullmatch(first)
        text = "\n".join(message.text[1:]).strip()  # its caption
        if attached is not None:
            content["file_name"] = attached[1] or attached[2]
        if not text:
            left_out[_MEDIA] += 1
            return
    elif (message.is_marked and not first.startswith(_SENT)) or _UNMARKED.fullmatch(text):
        left_out[_SYSTEM] += 1
        return
    elif not text:
        left_out["messages without a text"] += 1
        return
    try:
        timestamp = moment(message.time, day_first=day_first)
    except ValueError as error:
        yield Rejected(line=message.line, error=str(error), record=f"[{message.time}] {message.name}: {text[:200]}")
        return
    event = Event(
        author=message.name, event_type="user_message", content={"text": text, **content}, timestamp=timestamp
    )
    yield naming.turn(session_id, event, message.line)
