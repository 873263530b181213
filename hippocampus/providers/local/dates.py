"""When a statement is about: what its words for a time mean beside those of other texts."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import date, datetime, timedelta

from hippocampus.providers.local import patterns_en
from hippocampus.providers.local.sentences import Sentence
from hippocampus.text import holidays, times, words
from hippocampus.text.times import TimeSpan

#: 'the first' and 'the second' are rarely days.
_FIRST_ORDINALS = 4
_DAYS_MAX = 31
#: Every day of a month comes again within three.
_MONTHS_TRIED = 4
_NTH = r"(?:the )?\d{1,2}(?:st|nd|rd|th)?"
_TO = r" ?(?:to|till|until|through|[-–—]) ?"
#: 'from 3 to 9 May', '3 May to 9 June', 'May 3-9'.
RANGE_EN = (
    rf"\b(?:from |between )?(?:{_NTH}(?:(?: of)? {patterns_en.MONTH})?(?:{_TO}| and )"
    rf"{_NTH}(?: of)? {patterns_en.MONTH}\b(?:,? \d{{4}})?"
    rf"|{patterns_en.MONTH} {_NTH}{_TO}{_NTH}(?!\d| {patterns_en.MONTH}\b)(?:,? \d{{4}})?)"
)
_HAN = "[0-9一二三四五六七八九十廿]{1,3}"
#: '五月三号到九号'
RANGE_ZH = f"(?:[今明后去]年)?{_HAN}月(?:份)?{_HAN}[号日]?(?:到|至|[-–—~～])(?:{_HAN}月)?{_HAN}[号日]"
#: 'bought for Christmas' was not bought then; 'since Christmas' is the last one.
_FOR_OR_SINCE = re.compile(rf"\b(?P<word>for|since) (?:{holidays.ENGLISH}|{holidays.CHINESE})", re.IGNORECASE)


#: A day without its month: 'the 14th', but not 'the 14th floor'.
_BARE_DAY = re.compile(
    r"\bthe (?:(?P<day>\d{1,2})(?:st|nd|rd|th)|(?P<word>[a-z]+(?:[- ][a-z]+)?))"
    r"(?= of (?:the|this|next) month|$|[,.;!)]| (?:at|in the|with|for|to|so|and|instead|now|from|until|till|because)\b)"
    f"|(?<![0-9一二三四五六七八九十廿月年第.])(?P<han>{_HAN})[号日](?![0-9楼线店院房桌球馆厅门车人]|公寓|出口|选手|文件|电)",
    re.IGNORECASE,
)
_ORDINALS = (
    {
        word: number
        for number, word in enumerate(
            words.listed(
                """first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth
            fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth"""
            ),
            1,
        )
        if number > _FIRST_ORDINALS
    }
    | {
        f"{tens} {word}": number
        for tens, start in (("twenty", 20), ("thirty", 30))
        for number, word in enumerate(
            words.listed("first second third fourth fifth sixth seventh eighth ninth"), start + 1
        )
        if number <= _DAYS_MAX
    }
    | {"thirtieth": 30}
)
_HAN_DIGITS = dict(zip("一二三四五六七八九", range(1, 10), strict=True))


def resolve(text: str, now: datetime, *, ahead: bool) -> TimeSpan | None:
    """Return the one span that a statement means, or None if it names none.

    Args:
        now: when the statement was made, with a zone.
        ahead: it speaks of what is to come; else of what was last.
    """
    text = text.replace("’", "'")
    if match := _FOR_OR_SINCE.search(text):
        if match["word"].lower() == "since":
            ahead = False
        elif not ahead:
            text = text[: match.start()] + text[match.end() :]
    return times.resolve(text, now, ahead=ahead)


#: Where a day lies that took the place of another.
_LATER = re.compile(r"\b(?:back|postponed|delayed|put off|later|deferred)\b|推|延|晚", re.IGNORECASE)
_EARLIER = re.compile(r"\b(?:forward|earlier|sooner)\b|提前|早", re.IGNORECASE)


def beside(text: str, sentence: Sentence, known: str) -> str | None:
    """Return the day that a text names without its month, in the month of the day that it takes the place of.

    Args:
        text: what is stated: 'flight is the 14th'.
        sentence: what states it: 'The flight got pushed back to the 14th.'
        known: the former day, '2026-04-10'.

    Returns:
        The day, or None if the text names its month, or no day.
    """
    match = _BARE_DAY.search(text.replace("’", "'"))
    former = _DAY.match(known)
    if match is None or former is None or times.resolve(text, sentence.turn.occurred_at, ahead=True) is not None:
        return None
    before = date.fromisoformat(former[0])
    with suppress(ValueError):
        day = before.replace(day=_day_number(match))
        later, earlier = _LATER.search(sentence.text), _EARLIER.search(sentence.text)
        month = day.month - 1 + (later is not None and day < before) - (earlier is not None and day > before)
        return day.replace(year=day.year + month // 12, month=month % 12 + 1).isoformat()
    return None


_DAY = re.compile(r"\d{4}-\d\d-\d\d")


def bare_day(text: str, now: datetime, *, ahead: bool) -> TimeSpan | None:
    """Return the next day of that number, or the last one, if a text names one without its month."""
    match = _BARE_DAY.search(text)
    if match is None:
        return None
    number = _day_number(match)
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    for months in range(_MONTHS_TRIED):
        month = now.month - 1 + (months if ahead else -months)
        with suppress(ValueError):
            day = today.replace(year=now.year + month // 12, month=month % 12 + 1, day=number)
            if day >= today if ahead else day <= today:
                return TimeSpan(day, day + timedelta(days=1))
    return None


def _day_number(match: re.Match[str]) -> int:
    """Return the number of a day in digits or words; 0 if it is none."""
    if match["day"]:
        return int(match["day"])
    if match["word"]:
        return _ORDINALS.get(match["word"].lower().replace("-", " "), 0)
    han = match["han"]
    if han.isascii():
        return int(han)
    tens, ten, ones = han.replace("廿", "二十").rpartition("十")
    return (_HAN_DIGITS.get(tens, 1) * 10 if ten else 0) + _HAN_DIGITS.get(ones, 0)
