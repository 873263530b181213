"""An exported WhatsApp chat, as iOS and Android write it.

    [08/05/2024, 13:56:01] Ann: Hi                       iOS
    08/05/2024, 1:56 pm - Ann: Hi                        Android
    This continues the message above.

The time before the name is in the form of the phone's region: `8.5.2024 klo 13.56`, `2024. 05. 08. 13:56`,
`2024/5/8 下午1:56`, `٨/٥/٢٠٢٤، ١:٥٦ م`, `13:56 8/5/24`. An export has one form: that of its first header. Messages that
a person copied into another, such as `[13:56, 8/5/24] Ben: Hi` of WhatsApp Web, stay its text. A file in which the
first form does not return after several of them may be of two exports joined, and is refused.
Lines of WhatsApp itself (encryption, calls, who joined) and messages that were only a file are left out, and counted.
The order of day and month depends on the phone's region: the whole file shows it, or it must be given.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from pulse.events import Event
from workers.intake.moments import is_day_first, moment
from workers.intake.records import FileFormatError, Item, LeftOut, Naming, Rejected, SessionHead
from workers.intake.source import RECORD_BYTES_MAX, CutOffError, Source, shown, text_of

_SYSTEM, _MEDIA = "lines of WhatsApp itself", "messages that were only a photo or another file"
_OTHER = "headers in another form than the first, each line kept as text of the message above it"
_MARK = "\u200e"  # left-to-right: before what WhatsApp, not a person, wrote
_MARKS = "\u200e\u200f\u202a\u202b\u202c\u2066\u2067\u2068\u2069\ufeff"
_NO_MARKS = dict.fromkeys(map(ord, _MARKS))
_SPACE = r"[ \u00a0\u2009\u202f]"
_NUMBER = r"(?:\d{4}|\d{1,2})"
_BETWEEN = rf"[{_MARKS}]*(?P<between>[-/.])(?P<spaced>{_SPACE}?)[{_MARKS}]*"
_DATE = (
    rf"(?P<first>{_NUMBER}){_BETWEEN}(?P<second>\d{{1,2}})[{_MARKS}]*(?P=between){_SPACE}?[{_MARKS}]*"
    rf"(?P<third>{_NUMBER})(?P<dot>\.?)(?:{_SPACE}?г\.)?"
)
#: The halves of the day: of English, Spanish, Greek, Arabic, Persian, Chinese and Japanese, Korean, Finnish, Swedish,
#: Hungarian, Turkish, Vietnamese, Malay, Albanian, Czech and Slovene, Ukrainian, Amharic, Somali, in this order.
_AM = (
    rf"a\.?{_SPACE}?m\.?|π\.?{_SPACE}?μ\.?|ص|ق\.?{_SPACE}?ظ\.?|上午|午前|凌晨|清晨|早上|오전|ap\.?|fm"
    r"|de\.|öö|sa|pg|p\.?d\.?|dop\.|дп|ጥዋት|gh"
)
_PM = (
    rf"p\.?{_SPACE}?m\.?|μ\.?{_SPACE}?μ\.?|م|ب\.?{_SPACE}?ظ\.?|下午|午後|中午|傍晚|晚上|오후|ip\.?|em"
    r"|du\.|ös|ch|ptg|m\.?d\.?|(?:od|po)p\.|пп|ከሰዓት|gd"
)
_IS_PM = re.compile(_PM, re.IGNORECASE)
_CLOCK = (
    rf"(?P<before>(?:{_AM}|{_PM}))?{_SPACE}?(?P<hour>\d{{1,2}})(?:[:.]|{_SPACE}?h{_SPACE}?)(?P<minute>\d{{2}})"
    rf"(?:(?:[:.]|{_SPACE}?min{_SPACE})(?P<second_of_minute>\d{{2}})(?:{_SPACE}s)?)?(?:{_SPACE}?ч\.)?"
    rf"(?:{_SPACE}?(?P<after>{_AM}|{_PM}))?[{_MARKS}]*"
)
#: Finnish, Danish and Norwegian, French, Bosnian.
_AT = rf"(?:(?:klo|kl\.?|à|u){_SPACE})?"
_COMMA = rf"(?P<comma>[,،，]?){_SPACE}{{1,2}}"
_HEADERS = tuple(
    re.compile(rf"[{_MARKS}]*{opened}(?P<stamp>{stamp}){closed}", re.IGNORECASE)
    for stamp in (rf"{_DATE}{_COMMA}{_AT}{_CLOCK}", rf"{_CLOCK}{_COMMA}{_DATE}")
    for opened, closed in ((rf"(?P<opened>\[)[{_MARKS}]*", rf"\]{_SPACE}?"), ("(?P<opened>)", rf"{_SPACE}[-–]{_SPACE}"))
)
_NAME = re.compile(r"(?P<name>[^:\"“”«»\n]{1,80}?):(?:[ \u00a0\u202f]|$)")
#: A date and a clock in some form, and what ends them, before a name.
_LIKE_HEADER = re.compile(
    rf"[{_MARKS}]*\[?(?=[^\n]{{0,40}}?(?<![\d/.-])\d{{1,2}}(?:[:.]|{_SPACE}?h{_SPACE}?)\d{{2}}(?![\d/-]))"
    rf"(?=[^\n]{{0,30}}?{_NUMBER}[{_MARKS}]*[-/.]{_SPACE}?[{_MARKS}]*\d{{1,2}}[{_MARKS}]*[-/.])"
    rf"[^\n\]]{{8,60}}?(?:\]|{_SPACE}[-–]){_SPACE}[^:\n]{{1,80}}:"
)
_ATTACHED = (
    r"\((?:file attached|Datei angehängt|archivo adjunt(?:o|ado)|файл добавлен|fichier joint|file allegato"
    r"|(?:arquivo|ficheiro) anexado|bestand bijgevoegd)\)"
)
_TAG = (
    r"<[ \u00a0]?(?:attached|Anhang|angehängt|adjunto|прикреплено|pièce jointe|allegato|anexado|anexo|bijgevoegd)"
    r"[ \u00a0]?: (.{1,160}?)[ \u00a0]?>"
)
_OMITTED = re.compile(
    r"<[^<>]*\b(?:omitted|ausgeschlossen|weggelassen|omis|omessi|omesso|omitido|omitidos|oculta|oculto|revelado"
    r"|weggelaten)>|<[^<>]*省略[^<>]*>"
    r"|(?:image|video|video note|audio|voice message|sticker|GIF|contact card|media) omitted"
    r"|.{0,160}(?:document omitted|Dokument weggelassen|documento (?:omitido|omesso|oculto|não revelado)"
    r"|документ отсутствует|document (?:manquant|weggelaten))"
    rf"|[<‹]Без медиафайлов[>›]|.{{1,120}} {_ATTACHED}|{_TAG}",
    re.IGNORECASE,
)
#: What stands under a person's name without a mark, in older exports: in English, German, Spanish, Russian, French,
#: Italian, Portuguese and Dutch.
_UNMARKED = re.compile(
    r"Messages .*end-to-end encrypted.*|null|(?:This message was deleted|You deleted this message"
    r"|Diese Nachricht wurde gelöscht|Du hast diese Nachricht gelöscht|Se eliminó este mensaje|Eliminaste este mensaje"
    r"|Данное сообщение удалено|Вы удалили (?:данное|это) сообщение"
    r"|Ce message a été supprimé|Vous avez supprimé ce message"
    r"|Questo messaggio è stato eliminato|Hai eliminato questo messaggio"
    r"|Mensagem apagada|Esta mensagem foi apagada|(?:Você a|A)pagou esta mensagem"
    r"|Dit bericht is verwijderd|(?:U|Je) hebt dit bericht verwijderd)\.?",
    re.IGNORECASE,
)
_EDITED = re.compile(
    r"\s*\u200e?<(?:This message was edited|Diese Nachricht wurde bearbeitet|Se editó este mensaje|Сообщение изменено"
    r"|Ce message a été modifié|Questo messaggio è stato modificato|Mensagem editada|Esta mensagem foi editada"
    r"|Dit bericht is bewerkt)\.?>$"
)
_FILE = re.compile(rf"(?:{_TAG}|(.{{1,120}}) {_ATTACHED})", re.IGNORECASE)
#: An option of a poll, a line that ends with the number of its votes: in Arabic perhaps in words.
_OPTION = re.compile(r"[^:：\n]{1,40}[:：].*[(（][^()（）]+[)）]")
_PLACE = re.compile(r"https?://(?:\S*\bmaps\b|(?:www\.)?foursquare\.com/)")
#: WhatsApp has existed since then; other calendars count other years.
_YEAR_MIN = 2009


class _Header(NamedTuple):
    """The time at the beginning of a message, and what follows it.

    Attributes:
        form: the stamp with its opening bracket, without what differs from message to message: digits, half of the day.
        date: with dashes if the year comes first, with dots if the day does, else with slashes; in ASCII digits.
        time: the date, a comma, and the time on a clock of 24 hours.
        has_comma: between the two.
        stamp: both as they are in the file.
    """

    form: str
    date: str
    time: str
    has_comma: bool
    is_bracketed: bool
    stamp: str
    rest: str


@dataclass(slots=True)
class _Others:
    """The headers in one other form below the last message.

    Attributes:
        line: the first of them.
        named: how many have a name.
    """

    line: int
    named: int = 0


@dataclass(slots=True)
class _Headers:
    """Reads the headers of one file, which have the form of the first.

    Attributes:
        line: the last header in this form.
        others: what follows it, by form.
    """

    form: str | None = None
    line: int = 0
    others: dict[str, _Others] = field(default_factory=dict)

    def read(self, number: int, line: str) -> _Header | None:
        header = _header(line)
        if header is None:
            return None
        if self.form is None:
            self.form = header.form
        if header.form != self.form:
            others = self.others.setdefault(header.form, _Others(number))
            others.named += _NAME.match(header.rest.lstrip(_MARKS)) is not None
            return None
        self.line = number
        self.others.clear()
        return header

    def second_form(self) -> int | None:
        """Return the line from which the file has another form for good, or None.

        Messages copied into another are followed by the form of the file again; one alone may be in the last message.
        """
        return min((others.line for others in self.others.values() if others.named > 1), default=None)


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
    header = _header(first)
    if header is None or not header.is_bracketed or header.has_comma or _MARK in head:
        return header is not None
    return not _is_plain(header.stamp)  # brackets around a plain time: also those of other transcripts


def _is_plain(stamp: str) -> bool:
    for day_first in (True, False):
        with contextlib.suppress(ValueError):
            moment(stamp, day_first=day_first)
            return True
    return False


def items(source: Source, head: str, naming: Naming) -> Iterator[Item]:
    """Read a chat as one session, named by the file.

    Raises:
        FileFormatError: the form of its times changes for good; or its dates do not show whether the day or the month
            comes first, and it was not given.
    """
    dates = _dates(source)
    day_first = _day_first(source, dates) if naming.day_first is None else naming.day_first
    return _items(source, naming, day_first=day_first)


def _items(source: Source, naming: Naming, *, day_first: bool) -> Iterator[Item]:
    session_id = naming.session(None)
    yield SessionHead(session_id=session_id, user_id=None, line=1)
    left_out: Counter[str] = Counter()
    message: _Message | None = None
    headers = _Headers()
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
                header = headers.read(number, line)
                if header is not None:
                    if message is not None:
                        yield from _finished(message, session_id, naming, left_out, day_first=day_first)
                    message = _begin(number, header)
                elif message is None:
                    yield Rejected(line=number, error="the line is before the first message", record=shown(raw))
                else:
                    left_out[_OTHER] += _LIKE_HEADER.match(line) is not None
                    _continue(message, line)
        except CutOffError as error:
            yield Rejected(line=number + 1, error=str(error))
    if message is not None:
        yield from _finished(message, session_id, naming, left_out, day_first=day_first)
    yield from (LeftOut(reason, count) for reason, count in left_out.items() if count)


def _dates(source: Source) -> list[str]:
    """Return the dates with slashes, in the order of the file, whose headers must have one form."""
    dates: list[str] = []
    headers = _Headers()
    with source.open() as content:
        try:
            for number, raw in content.lines():
                line = raw.decode(errors="replace") if isinstance(raw, bytes) else ""
                if (found := headers.read(number, line)) is not None and "/" in found.date:
                    dates.append(found.date)
        except CutOffError:
            pass  # reported when the file is read
    if (second := headers.second_form()) is not None:
        raise FileFormatError(
            f"{source.path}, line {second}: from here on, the times before the names have another form. If another"
            " export begins here, split the file before this line and import both parts. If these messages were copied"
            f" into the one of line {headers.line}, begin each of their lines with '> '."
        )
    return dates


def _day_first(source: Source, dates: list[str]) -> bool:
    # Where a dot or a dash is between the numbers, or the year comes first, the order is known.
    if not dates:
        return True
    found_order = is_day_first(dates)
    if found_order is None:
        raise FileFormatError(
            f"{source.path}: its dates, such as {dates[0]}, do not show whether the day or the month comes first: give"
            " --day-first or --month-first."
        )
    return found_order


def _header(line: str) -> _Header | None:
    found = next((match for form in _HEADERS if (match := form.match(line)) is not None), None)
    if found is None:
        return None
    first, second, third = (_ascii(found[name]) for name in ("first", "second", "third"))
    # Korean alone has spaces, a final dot and a year of two digits.
    if len(first) == 4 or (found["spaced"] and found["dot"] and len(third) <= 2):
        date = f"{first if len(first) == 4 else f'20{first:0>2}'}-{second}-{third}"
    else:
        date = ("/" if found["between"] == "/" else ".").join((first, second, third))
    hour, half = int(found["hour"]), found["after"] or found["before"]
    if half is not None:
        # At night (晚上), 12 is midnight.
        is_pm = _IS_PM.fullmatch(half) is not None and not (half == "晚上" and hour == 12)
        hour = hour + 12 if is_pm and hour < 12 else 0 if not is_pm and hour == 12 else hour
    clock = f"{hour:02}:{_ascii(found['minute'])}:{_ascii(found['second_of_minute'] or '00')}"
    return _Header(
        form=found["opened"] + _form(found["stamp"], half),
        date=date,
        time=f"{date}, {clock}",
        has_comma=bool(found["comma"]),
        is_bracketed=bool(found["opened"]),
        stamp=found["stamp"],
        rest=line[found.end() :],
    )


def _form(stamp: str, half: str | None) -> str:
    plain = stamp if half is None else stamp.replace(half, "am")
    numbered = re.sub(r"\d{1,2}", "0", plain.translate(_NO_MARKS))  # a year of four digits is 00
    return " ".join(numbered.casefold().split())


def _ascii(digits: str) -> str:
    return "".join(str(int(digit)) for digit in digits)


def _begin(number: int, header: _Header) -> _Message:
    """Return the message that a header begins."""
    rest = header.rest.rstrip("\r\n")
    unmarked = rest.lstrip(_MARKS)
    named = _NAME.match(unmarked)
    if named is None:
        return _Message(number, header.time, "", [rest], is_marked=True)
    text = unmarked[named.end() :]
    name = named["name"].strip(_MARKS + " ~\u00a0\u202f")
    message = [text.strip(_MARKS)]
    return _Message(number, header.time, name, message, is_marked=text.startswith(_MARK), characters=len(text))


def _continue(message: _Message, line: str) -> None:
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
    elif (message.is_marked and not _is_sent(text)) or _UNMARKED.fullmatch(text):
        left_out[_SYSTEM] += 1
        return
    elif not text:
        left_out["messages without a text"] += 1
        return
    try:
        timestamp = _timestamp(message.time, day_first=day_first)
    except ValueError as error:
        yield Rejected(line=message.line, error=str(error), record=f"[{message.time}] {message.name}: {text[:200]}")
        return
    event = Event(
        author=message.name, event_type="user_message", content={"text": text, **content}, timestamp=timestamp
    )
    yield naming.turn(session_id, event, message.line)


def _is_sent(text: str) -> bool:
    """Return whether a person sent what iOS marks as WhatsApp's own: a poll or a place."""
    first, _, further = text.partition("\n")
    question, _, option = further.rpartition("\n")
    is_poll = first.rstrip().endswith((":", "：")) and question and _OPTION.fullmatch(option)
    return bool(is_poll or _PLACE.search(text))


def _timestamp(time: str, *, day_first: bool) -> float:
    date, _, clock = time.partition(", ")
    first, second, third = re.split(r"[-/.]", date)
    if "-" in date:
        year, month, day = first, second, third
    else:
        day, month = (first, second) if day_first or "." in date else (second, first)
        year = f"20{third}" if len(third) == 2 else third
    found = moment(f"{year}-{month:0>2}-{day:0>2}T{clock}")
    if not _YEAR_MIN <= int(year) <= datetime.now(UTC).year + 1:
        raise ValueError(f"{year} is not a year of a chat: set the phone to the Gregorian calendar and export it again")
    return found
