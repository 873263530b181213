"""When a statement is about: the times that a text names, ranges of days, and holidays."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta

from hippocampus.providers.local import patterns_en
from hippocampus.text import times
from hippocampus.text.times import TimeSpan

_DAY = timedelta(days=1)
_NTH = r"(?:the )?\d{1,2}(?:st|nd|rd|th)?"
_TO = r" ?(?:to|till|until|through|[-–—]) ?"
#: 'from 3 to 9 May', '3 May to 9 June', 'May 3-9'.
RANGE_EN = (
    rf"\b(?:from |between )?(?:{_NTH}(?:(?: of)? {patterns_en.MONTH})?(?:{_TO}| and )"
    rf"{_NTH}(?: of)? {patterns_en.MONTH}\b(?:,? \d{{4}})?"
    rf"|{patterns_en.MONTH} {_NTH}{_TO}{_NTH}(?!\d| {patterns_en.MONTH}\b)(?:,? \d{{4}})?)"
)
_RANGE_EN = re.compile(RANGE_EN, re.IGNORECASE)
_MONTH_EN = re.compile(rf"\b{patterns_en.MONTH}\b(?:,? \d{{4}})?", re.IGNORECASE)
_NUMBER_EN = re.compile(r"\b\d{1,2}(?=\D|$)")
_HAN = "[0-9一二三四五六七八九十廿]{1,3}"
#: '五月三号到九号'
RANGE_ZH = (
    f"(?P<month>(?:[今明后去]年)?{_HAN}月(?:份)?)(?P<first>{_HAN})[号日]?(?:到|至|[-–—~～])"
    f"(?P<last>(?:{_HAN}月)?{_HAN})[号日]"
)
_RANGE_ZH = re.compile(RANGE_ZH)

#: The first day of the lunar year, by year.
_LUNAR_YEARS = (
    "20200125 20210212 20220201 20230122 20240210 20250129 20260217 20270206 20280126 20290213 20300203 20310123"
    " 20320211 20330131 20340219 20350208 20360128 20370215 20380204 20390124 20400212"
)
_NEW_YEARS_ZH = {int(day[:4]): (int(day[4:6]), int(day[6:])) for day in _LUNAR_YEARS.split()}


def _easter(year: int) -> tuple[int, int]:
    """Return the month and day of Easter Sunday."""
    century, of_century = divmod(year, 100)
    moon = (19 * (year % 19) + century - century // 4 - (century - (century + 8) // 25 + 1) // 3 + 15) % 30
    weekday = (32 + 2 * (century % 4) + 2 * (of_century // 4) - moon - of_century % 4) % 7
    late = (year % 19 + 11 * moon + 22 * weekday) // 451
    month, day = divmod(moon + weekday - 7 * late + 114, 31)
    return month, day + 1


#: Holidays: their month and day in a year, if it is known, and how many days they have.
_HOLIDAYS: tuple[tuple[re.Pattern[str], Callable[[int], tuple[int, int] | None], int], ...] = (
    (re.compile(r"\bChristmas\b(?! Eve)|\bXmas\b|圣诞", re.IGNORECASE), lambda _: (12, 25), 1),
    (re.compile(r"\bChristmas Eve\b|平安夜", re.IGNORECASE), lambda _: (12, 24), 1),
    (re.compile(r"\bNew Year's Eve\b|跨年", re.IGNORECASE), lambda _: (12, 31), 1),
    (re.compile(r"\bNew Year(?:'s)?(?: Day)?\b(?! Eve)|元旦", re.IGNORECASE), lambda _: (1, 1), 1),
    (re.compile(r"\bHalloween\b", re.IGNORECASE), lambda _: (10, 31), 1),
    (re.compile(r"\b(?<!Orthodox )Easter\b|复活节", re.IGNORECASE), _easter, 1),
    (re.compile("国庆|十一(?=长假|假期|黄金周|去|回|的时候)"), lambda _: (10, 1), 7),
    (re.compile("五一|劳动节"), lambda _: (5, 1), 1),
    (re.compile("春节|过年|\\b(?:Chinese|Lunar) New Year\\b", re.IGNORECASE), _NEW_YEARS_ZH.get, 7),
)


def resolve(text: str, now: datetime, *, ahead: bool) -> TimeSpan | None:
    """Return the one span that a statement means, or None if it names none.

    Args:
        now: when the statement was made, with a zone.
        ahead: it speaks of what is to come; else of what was last.
    """
    text = text.replace("’", "'")
    found = _range(text, now, ahead=ahead) or times.resolve(text, now, ahead=ahead)
    if found is not None and found.end - found.start < _YEAR:
        return found
    return _holiday(text, now, None if found is None else found.start.year, ahead=ahead) or found


_YEAR = timedelta(days=365)


def _range(text: str, now: datetime, *, ahead: bool) -> TimeSpan | None:
    if match := _RANGE_ZH.search(text):
        last = match["last"]
        ends = f"{match['month']}{match['first']}日", f"{last if '月' in last else match['month'] + last}日"
    elif match := _RANGE_EN.search(text):
        days, months = _NUMBER_EN.findall(match[0]), _MONTH_EN.findall(match[0])
        if len(days) < len(_ENDS) or not months:
            return None
        ends = f"{days[0]} {months[0]}", f"{days[1]} {months[-1]}"
    else:
        return None
    first, last_day = (times.resolve(each, now, ahead=ahead) for each in ends)
    if first is None or last_day is None or not first.start < last_day.end <= first.start + _LONGEST:
        return None
    return TimeSpan(first.start, last_day.end)


_ENDS = ("first", "last")
_LONGEST = timedelta(days=92)


def _holiday(text: str, now: datetime, year: int | None, *, ahead: bool) -> TimeSpan | None:
    """Return the holiday that a text names, in a year that it names too, or else the next or the last one."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    for pattern, day_in, length in _HOLIDAYS:
        match = pattern.search(text)
        # What was bought for Christmas was not bought then.
        if match is None or (not ahead and text[: match.start()].endswith("for ")):
            continue
        ahead = ahead and not text[: match.start()].endswith("since ")
        years = (now.year - 1, now.year, now.year + 1) if year is None else (year,)
        days = [(year, *day) for year in years if (day := day_in(year)) is not None]
        spans = [(start := midnight.replace(year=y, month=m, day=d), start + length * _DAY) for y, m, d in days]
        if year is not None:
            return TimeSpan(*spans[0]) if spans else None
        if ahead:
            return min((TimeSpan(*span) for span in spans if span[1] > now), default=None)
        return max((TimeSpan(*span) for span in spans if span[0] <= now), default=None)
    return None
