"""Expressions of time in a text, English and Chinese, as ranges of time: 'last Friday', 'in May 2022', '三年前'.

`time_spans` resolves them against a moment: 'yesterday' in a text of 2 May is 1 May. A date without a year recurs:
'in May' is each May of the years before. `hippocampus.text.time_cues` makes of the spans of a query what search looks
for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import MAXYEAR, MINYEAR, datetime, timedelta, tzinfo
from typing import NamedTuple, TypeAlias, overload

from hippocampus.text import holidays

#: How many years back a date without a year is looked for; and the most spans of a text.
YEARS_BACK = 12
SPANS_MAX = 8
#: Only the beginning of a long text is read.
_LENGTH_MAX = 4000


class TimeSpan(NamedTuple):
    """A range of time that a text names, `end` exclusive; `recurs`: the text names no year, so this is one of many."""

    start: datetime
    end: datetime
    recurs: bool = False


_Match: TypeAlias = "re.Match[str]"
_Ranges: TypeAlias = Iterator[TimeSpan]
_Rule: TypeAlias = "tuple[re.Pattern[str], Callable[[_Match, datetime], Iterator[TimeSpan]]]"

#: The months by their English names.
MONTHS = tuple("January February March April May June July August September October November December".split())
_MONTH_NUMBERS = {name.casefold(): number for number, name in enumerate(MONTHS, 1)}
_MONTH_NUMBERS |= {name[:3]: number for name, number in _MONTH_NUMBERS.items()} | {"sept": 9}
_WEEKDAYS = {
    name: number for number, name in enumerate("monday tuesday wednesday thursday friday saturday sunday".split())
}
_NUMBERS = {
    word: number
    for number, word in enumerate("zero one two three four five six seven eight nine ten eleven twelve".split())
} | {"a": 1, "an": 1, "couple of": 2, "a couple of": 2, "few": 3, "a few": 3, "several": 4}
_SEASONS = {"spring": 3, "summer": 6, "fall": 9, "autumn": 9, "winter": 12, "春": 3, "夏": 6, "秋": 9, "冬": 12}
_DIGITS = {"〇": 0, "零": 0, "一": 1, "二": 2, "两": 2, "三": 3, "四": 4, "五": 5, "六": 6, "七": 7, "八": 8, "九": 9}
_DAY = timedelta(days=1)

_MONTH = "(?:" + "|".join(MONTHS).casefold() + r"|(?:jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)\b\.?)"
_YEAR = r"(?:19|20)\d\d"
_WEEKDAY = "(?:" + "|".join(_WEEKDAYS) + ")"
_COUNT = r"(?:\d{1,3}|(?:a )?(?:couple of|few)|several|" + "|".join(k for k in _NUMBERS if " " not in k) + ")"
_SEASON = "(?:spring|summer|fall|autumn|winter)"
_PART = r"(?:(early|the beginning of|the start of|mid|the middle of|late|the end of)[ -])?"
_HAN = "[0-9〇零一二两三四五六七八九十]"
#: A Chinese character.
HAN_LETTER = re.compile("[\u3400-\u9fff]")
_TO = r"(?: ?[-–—~] ?| (?:to|until|till|through) (?:the )?)"
_TO_HAN = "(?:到|至|[-–—~])"
_ORDINAL = "(?:st|nd|rd|th)?"
_LINK = re.compile(f"{_TO}|{_TO_HAN}")
#: A month or weekday alone, and what before it tells that it is a time.
_BARE = re.compile(f"{_MONTH}|{_WEEKDAY}")
_BESIDE = re.compile(r",? (?:and|or) (?:on )?|, ")
_AT_TIME = re.compile(r"\b(?:since|until|till|by|before|after|every|each) $")
_HAN_MONTH = "(?:1[0-2]|0?[1-9]|十[一二]?|[一二三四五六七八九])"
_NOT_PART_OF_NUMBER = r"(?<![\d.:])"
_HAN_WEEKDAY = "(?:星期|礼拜|周)([一二三四五六日天])"
_WEEKDAY_BEFORE = re.compile(
    rf"\b(?:on )?(?<!last )(?<!next )(?<!this )({_WEEKDAY}),? (?:the )?$|(?<![上下这本个]){_HAN_WEEKDAY}[，,、 ]?$"
)
_WEEKDAY_AFTER = re.compile(rf",? \(?({_WEEKDAY})\b\)?|[，,、 ]?[（(]?{_HAN_WEEKDAY}[）)]?")
#: What takes back the time after it.
_NOT = re.compile(r"(?:\bnot|n['’]t|\binstead of|\brather than) (?:(?:on|in|at|by) )?(?:the )?$|(?:不是|不在|而非)$")
#: A day of a month that is not named, but no floor, street or time: '(moved) to the 14th'.
_DAY_ALONE = re.compile(
    r"\b(?:on|to|by|until|till|from|before|after|for|since) the (\d{1,2})(?:st|nd|rd|th)\b"
    r"(?! (?!(?:at|and|or|in the|with|we|i|he|she|they|it|because|when|but|so|too|instead|already|now|this|next|last"
    r"|please)\b)\w)(?![-'’])"
)


def time_spans(text: str, now: datetime) -> list[TimeSpan]:
    """Return the spans that a text names, in its order, at most `SPANS_MAX` expressions of it.

    Args:
        now: has a zone; days begin at its midnight.
    """
    return read_times(text, now)[0]


def read_times(text: str, now: datetime) -> tuple[list[TimeSpan], str]:
    """Return the spans as `time_spans` does, and the text in lower case with U+0000 where it names them.

    A month or weekday without a preposition may be a name: it stays in that text.
    """
    found, without = _read(text, now)
    return [span for each in found for span in each.spans], without


def _read(text: str, now: datetime) -> tuple[list[_Named], str]:
    whole = _normal(text)
    holiday_rules, date_rules, relative_rules = _ALL_RULES if HAN_LETTER.search(whole) else _WITHOUT_CHINESE
    festive, rest = _matches(holiday_rules, whole, now)
    festive = [each._replace(is_holiday=True) for each in festive]
    dates, rest = _matches(date_rules, rest, now, len(festive))
    dates, rest = _with_weekdays(dates, rest)
    dates = festive + dates
    relative, without = _matches(relative_rules, rest, now)
    without = _with_bare_names(_joined(sorted(dates + relative), rest), whole, without)
    # Beside a date with its year, 'the Sunday before' and 'last Friday' are relative to that date.
    if any(not span.recurs for each in dates for span in each.spans):
        relative = []
    return _joined(sorted(dates + relative), rest), without


def _normal(text: str) -> str:
    return re.sub(r"\s+", " ", text[:_LENGTH_MAX].replace("\0", " ")).casefold()


def _with_weekdays(dates: Sequence[_Named], text: str) -> tuple[list[_Named], str]:
    """Give each day the weekday that stands beside it, 'Sunday 13 December', and take that out of the text.

    Of the years that a date without one may be of, those are left in which it has that weekday, if there are any.
    """
    found = []
    for each in dates:
        before, after = _WEEKDAY_BEFORE.search(text[: each.place]), _WEEKDAY_AFTER.match(text[each.end :])
        beside = before or after
        if beside is None or any(span.end - span.start > _DAY for span in each.spans):
            found.append(each)
            continue
        name = beside[1] or beside[2]
        weekday = _WEEKDAYS[name] if name in _WEEKDAYS else 6 if name in "日天" else _DIGITS[name] - 1
        spans = tuple(span for span in each.spans if span.start.weekday() == weekday) or each.spans
        place, end = (before.start(), each.end) if before else (each.place, each.end + beside.end())
        text = text[:place] + "\0" * (end - place) + text[end:]
        found.append(_Named(place, end, spans))
    return found, text


def _with_bare_names(found: Sequence[_Named], text: str, without: str) -> str:
    """Put back each month or weekday that nothing marks as a time, such as April in 'Tell me about April'."""
    before = 0
    for each in found:
        name = text[each.place : each.end]
        if _BARE.fullmatch(name) and not (
            _BESIDE.fullmatch(text[before : each.place]) or _AT_TIME.search(text[: each.place])
        ):
            without = without[: each.place] + name + without[each.end :]
        else:
            before = each.end
    return without


def resolve(text: str, now: datetime, *, ahead: bool) -> TimeSpan | None:
    """Return the one span that a statement means, or None if it names none. 'Not Saturday' is not what it means.

    Args:
        now: when the statement was made, with a zone.
        ahead: it speaks of what is to come: 'in May' is the next one, 'on Friday' the coming one. Otherwise the last.
    """
    whole = _normal(text)
    named = [
        (span, each.is_holiday)
        for each in _read(text, now)[0]
        if not _NOT.search(whole[: each.place])
        for span in each.spans
        if (span.end > now if ahead else span.start <= now)
    ]
    # 'Easter Island in July' is in July, but 'at Christmas in December' is at Christmas.
    others = [span for span, is_holiday in named if not is_holiday]
    spans = [
        span for span, is_holiday in named if is_holiday and any(each.start <= span.start < each.end for each in others)
    ]
    spans = spans or others or [span for span, _ in named]
    return (min if ahead else max)(spans, default=None)


@overload
def in_zone(moment: datetime, zone: tzinfo | None) -> datetime: ...


@overload
def in_zone(moment: None, zone: tzinfo | None) -> None: ...


def in_zone(moment: datetime | None, zone: tzinfo | None) -> datetime | None:
    """Return a moment in a zone; as it is, if that would be out of the calendar."""
    if moment is None or zone is None or zone is moment.tzinfo:
        return moment
    try:
        return moment.astimezone(zone)
    except OverflowError:
        return moment


def iso_dates(span: TimeSpan) -> str:
    """Return a span as a day, a month or a year of ISO 8601, or as its first and last day with a slash between."""
    start, last = span.start.date(), (span.end - _DAY).date()
    if start == last:
        return start.isoformat()
    if start.day == 1 and (span.end.day == 1):
        months = (span.end.year - start.year) * 12 + span.end.month - start.month
        if months == 1:
            return f"{start:%Y-%m}"
        if months == 12 and start.month == 1:
            return f"{start:%Y}"
    return f"{start.isoformat()}/{last.isoformat()}"


class _Named(NamedTuple):
    """What one expression names, and where it stands."""

    place: int
    end: int
    spans: tuple[TimeSpan, ...]
    is_holiday: bool = False


def _matches(rules: Sequence[_Rule], text: str, now: datetime, expressions: int = 0) -> tuple[list[_Named], str]:
    """Return what the text names, and the text without what was matched.

    Args:
        expressions: how many were found before.
    """
    found: list[_Named] = []
    for pattern, resolve in rules:
        while expressions < SPANS_MAX and (match := pattern.search(text)):
            expressions += 1
            # What is matched is blanked, so that 'May 2022' is not found again as 'May'.
            text = text[: match.start()] + "\0" * (match.end() - match.start()) + text[match.end() :]
            # 30 February, or a year that the calendar does not have.
            with suppress(ValueError, OverflowError, LookupError):
                spans = tuple(span for span in list(resolve(match, now)) if _is_usable(span))
                found.append(_Named(match.start(), match.end(), spans))
    return found, text


def _joined(found: Sequence[_Named], text: str) -> list[_Named]:
    """Make one of two times with 'to' between: 'from 3 May to 9 May'.

    Args:
        found: in the order of the text.
        text: in which they were found.
    """
    whole: list[_Named] = []
    for each in found:
        before = whole[-1] if whole else None
        link = text[before.end : each.place] if before else ""
        if before is None or not (
            _LINK.fullmatch(link) or (link == " and " and text[: before.place].endswith("between "))
        ):
            whole.append(each)
            continue
        spans = [
            TimeSpan(max(first.start for first in before.spans if first.start < last.end), last.end, last.recurs)
            for last in each.spans
            if any(first.start < last.end for first in before.spans)
        ]
        # '3 May 2022 to 9 May' ends in that year.
        if spans and not any(first.recurs for first in before.spans):
            spans = [min(spans)._replace(recurs=False)]
        whole[-1] = _Named(before.place, each.end, tuple(spans) or before.spans)
    return whole


def _is_usable(span: TimeSpan) -> bool:
    """Whether it has a length, and room in the calendar for the days and the year beside it."""
    return span.start < span.end and span.start.year > MINYEAR and span.end.year < MAXYEAR - 1


def _midnight(now: datetime) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0)


def _month_start(year: int, month: int, now: datetime) -> datetime:
    """The first of a month; months beyond 1 to 12 are of other years."""
    return _midnight(now).replace(year=year + (month - 1) // 12, month=(month - 1) % 12 + 1, day=1)


def _months(year: int, month: int, count: int, now: datetime) -> tuple[datetime, datetime]:
    return _month_start(year, month, now), _month_start(year, month + count, now)


def _cut(start: datetime, end: datetime, part: str | None) -> tuple[datetime, datetime]:
    """The named third of a range: early, mid or late."""
    third = _DAY * ((end - start).days // 3)
    if part in (None, ""):
        return start, end
    if part in ("early", "the beginning of", "the start of", "初"):
        return start, start + third
    return (start + third, end - third) if part in ("mid", "the middle of", "中") else (end - third, end)


def _years(year: int | None, now: datetime) -> list[int]:
    """The given year, or those in which a date without one may be."""
    return [year] if year is not None else [now.year - back for back in range(-1, YEARS_BACK)]


def _day_spans(year: int | None, month: int, day: int, now: datetime) -> _Ranges:
    for each in _years(year, now):
        if day > (_month_start(each, month + 1, now) - _DAY).day:
            continue
        start = _midnight(now).replace(year=each, month=month, day=day)
        yield TimeSpan(start, start + _DAY, year is None)


def _month_spans(year: int | None, month: int, count: int, now: datetime, part: str | None = None) -> _Ranges:
    for each in _years(year, now):
        yield TimeSpan(*_cut(*_months(each, month, count, now), part), year is None)


def _days_spans(year: int | None, month: int, first: str, last: str, now: datetime) -> _Ranges:
    for start in _day_spans(year, month, number_of(first), now):
        end = start.start.replace(day=number_of(last)) + _DAY
        if end > start.start:
            yield start._replace(end=end)


def _months_spans(year: int | None, first: int, last_year: int | None, last: int, now: datetime) -> _Ranges:
    """From one month to another; without a year, of any; with one, of that, or over the end of it."""
    known = year if year is not None else None if last_year is None else last_year - (first > last)
    for each in _years(known, now):
        end = last_year if last_year is not None else each + (first > last)
        if (start := _month_start(each, first, now)) < (until := _month_start(end, last + 1, now)):
            yield TimeSpan(start, until, known is None)


def _holiday_spans(name: str, year: int | None, which: str | None, now: datetime) -> _Ranges:
    """Return a holiday's spans in one year, or in any.

    'Last Christmas' is the one that began last, 'next Christmas' the coming one.
    """
    spans = []
    for each in _years(year, now):
        # A year that the table of the Chinese calendar does not have.
        with suppress(LookupError):
            first, days = holidays.holiday(name, each)
            start = _midnight(now).replace(year=first.year, month=first.month, day=first.day)
            spans.append(TimeSpan(start, start + _DAY * days, year is None and which is None))
    if which is None or year is not None:
        yield from spans
    elif which == "this":
        yield from (span for span in spans if span.start.year == now.year)
    elif which in ("next", "coming"):
        yield min(span for span in spans if span.start > now)
    else:
        yield max(span for span in spans if span.end <= now)


def _weekday_spans(which: str, weekday: int, now: datetime) -> _Ranges:
    """'last Friday' is the one before today, 'next Friday' the one after; 'on Friday' may be either."""
    today = _midnight(now)
    before = today - _DAY * ((today.weekday() - weekday - 1) % 7 + 1)
    if which in ("last", "past", "", "this"):
        yield TimeSpan(before, before + _DAY)
    if which in ("next", "", "this", "coming"):
        after = today + _DAY * ((weekday - today.weekday()) % 7)
        after += timedelta(days=7) if which == "next" and after == today else timedelta()
        yield TimeSpan(after, after + _DAY)


def _unit_spans(steps: int, unit: str, now: datetime) -> _Ranges:
    """The day, weekend, week, month, year or season that is this many away from the present one."""
    today = _midnight(now)
    monday = today - _DAY * today.weekday()
    if unit in ("day", "night", "morning", "evening", "afternoon"):
        yield TimeSpan(today + _DAY * steps, today + _DAY * (steps + 1))
    elif unit == "week":
        yield TimeSpan(monday + _DAY * 7 * steps, monday + _DAY * 7 * (steps + 1))
    elif unit == "weekend":
        yield TimeSpan(monday + _DAY * (7 * steps + 5), monday + _DAY * (7 * steps + 7))
    elif unit == "month":
        yield TimeSpan(*_months(today.year, today.month + steps, 1, now))
    elif unit == "year":
        yield TimeSpan(*_months(today.year + steps, 1, 12, now))
    elif unit in _SEASONS:
        yield from _season_spans(steps, unit, now)
    elif unit in _MONTH_NUMBERS:
        month = _MONTH_NUMBERS[unit]
        year = today.year
        if steps < 0 and month >= today.month:
            year -= 1
        elif steps > 0 and month <= today.month:
            year += 1
        yield TimeSpan(*_months(year, month, 1, now))


def _moved(spans: _Ranges, *, weeks: int) -> _Ranges:
    for each in spans:
        yield each._replace(start=each.start + _DAY * 7 * weeks, end=each.end + _DAY * 7 * weeks)


def _numeric_spans(first: int, second: int, year: int, now: datetime, *, is_day_first: bool) -> _Ranges:
    """16.03.2022 and 3/16/2022; of 3/4/2022 nobody knows which is the month."""
    if is_day_first or first > 12:
        yield from _day_spans(year, second, first, now)
    elif second > 12:
        yield from _day_spans(year, first, second, now)


def _week_of_month_spans(which: str, year: int | None, month: int, now: datetime) -> _Ranges:
    """Seven days, counted from the first of the month or to its last."""
    for each in _years(year, now):
        start, end = _months(each, month, 1, now)
        if which != "last":
            start += _DAY * 7 * ("first", "second", "third", "fourth").index(which)
            end = start + _DAY * 7
        else:
            start = end - _DAY * 7
        yield TimeSpan(start, end, year is None)


def days_alone(day: int, now: datetime) -> tuple[TimeSpan, TimeSpan]:
    """Return the last day of a month that has this number, which may be today, and the coming one.

    Raises:
        ValueError: no month has such a day, or the calendar ends before.
    """
    days = [span for offset in range(-2, 3) for span in _days_of_month(day, offset, now)]
    return max(span for span in days if span.start <= now), min(span for span in days if span.start > now)


def _days_of_month(day: int, offset: int, now: datetime) -> _Ranges:
    month = _month_start(now.year, now.month + offset, now)
    return _day_spans(month.year, month.month, day, now)


def _lately(unit: str, now: datetime) -> _Ranges:
    """前几天: the last week; 前几周, 前几个月, 前几年: up to three of them before now, and the present one."""
    days = {"day": 7, "week": 28, "month": 120, "year": 1461}[unit]
    yield TimeSpan(_midnight(now) - _DAY * days, _midnight(now) + _DAY)


def _season_spans(steps: int, season: str, now: datetime) -> _Ranges:
    """'last summer' is the one that ended last, or this year's once it is over."""
    first = _SEASONS[season]
    starts = [_months(now.year + offset, first, 3, now) for offset in (-2, -1, 0, 1, 2)]
    if steps < 0:
        yield TimeSpan(*[span for span in starts if span[1] <= now][-1])
    elif steps > 0:
        yield TimeSpan(*next(span for span in starts if span[0] > now))
    else:
        yield TimeSpan(*_months(now.year, first, 3, now))


def _ago(count: int, unit: str, now: datetime, *, vague: bool = False) -> _Ranges:
    """The span this many units before now (after it, if negative), as wide as the unit's size leaves it open."""
    today = _midnight(now)
    if unit == "day":
        start, width = today - _DAY * count, _DAY
    elif unit == "week":
        start, width = today - _DAY * (7 * count + 3), _DAY * 7
    elif unit == "month":
        start, width = today - _DAY * (30.44 * count + 15), _DAY * 30
    else:
        yield TimeSpan(*_months(today.year - count - vague, 1, 12 * (1 + 2 * vague), now))
        return
    if vague:
        start, width = start - width, width * 3
    yield TimeSpan(_midnight(start), _midnight(start + width))


def number_of(text: str) -> int:
    """Return a number in digits or words, English or Chinese up to 99.

    Raises:
        LookupError, ValueError: it is none.
    """
    if text in _NUMBERS:
        return _NUMBERS[text]
    if text.isascii() and text.isdigit():
        return int(text)
    if "十" in text:
        tens, _, ones = text.partition("十")
        return 10 * (_DIGITS[tens] if tens else 1) + (_DIGITS[ones] if ones else 0)
    return int("".join(str(_DIGITS[digit]) if digit in _DIGITS else digit for digit in text))


def _optional(text: str | None) -> int | None:
    return number_of(text) if text else None


_STEPS = {"last": -1, "past": -1, "previous": -1, "this": 0, "the": 0, "next": 1, "coming": 1}
_HAN_STEPS = {
    "上上": -2,
    "上": -1,
    "这": 0,
    "本": 0,
    "下": 1,
    "下下": 2,
    "大前": -3,
    "前": -2,
    "去": -1,
    "昨": -1,
    "今": 0,
    "明": 1,
    "后": 2,
    "大后": 3,
}
_HAN_UNITS = {
    "天": "day",
    "日": "day",
    "周": "week",
    "星期": "week",
    "礼拜": "week",
    "月": "month",
    "个月": "month",
    "年": "year",
}


def _han_week(match: _Match, now: datetime) -> _Ranges:
    """上周五: of the week before; 周五 alone: the one before or after today."""
    name = match[3]
    if name == "末":
        for steps in (-1, 0) if match[1] is None else (_HAN_STEPS[match[1]],):
            yield from _unit_spans(steps, "weekend", now)
        return
    weekday = 6 if name in "日天" else (_DIGITS[name] if name in _DIGITS else int(name)) - 1
    if match[1] is None:
        yield from _weekday_spans("", weekday, now)
        return
    monday = _midnight(now) - _DAY * now.weekday()
    start = monday + _DAY * (7 * _HAN_STEPS[match[1]] + weekday)
    yield TimeSpan(start, start + _DAY)


def _han_year(year: str | None, relative: str | None, now: datetime) -> int | None:
    if relative:
        return now.year + _HAN_STEPS[relative]
    if year is None:
        return None
    number = number_of(year)
    return number if number >= 100 else 2000 + number


def _han_date(match: _Match, now: datetime) -> _Ranges:
    year = _han_year(match["year"], match["relative"], now)
    if match["day"]:
        return _day_spans(year, number_of(match["month"]), number_of(match["day"]), now)
    return _month_spans(year, number_of(match["month"]), 1, now, match["part"])


def _han_month_date(match: _Match, now: datetime) -> _Ranges:
    """下个月15号, 下个月初."""
    steps = _HAN_STEPS[match[1]]
    if match[3]:
        return _month_part(steps, match[3], now)
    month = _month_start(now.year, now.month + steps, now)
    return _day_spans(month.year, month.month, number_of(match[2]), now)


def _month_part(steps: int, part: str, now: datetime) -> _Ranges:
    yield TimeSpan(*_cut(*_months(now.year, now.month + steps, 1, now), part))


_CHINESE: set[re.Pattern[str]] = set()


def _chinese(pattern: str) -> re.Pattern[str]:
    """Compile an expression that needs a Chinese character; {H} stands for a digit."""
    compiled = re.compile(pattern.replace("{H}", _HAN))
    _CHINESE.add(compiled)
    return compiled


# The first rule that matches takes the text: longer expressions come before their parts. Dates with their year, or
# without one, are apart from what is relative to a moment.
_HOLIDAYS: tuple[_Rule, ...] = (
    (
        re.compile(
            rf"\b(?:(?P<which>last|past|previous|this|next|coming) )?(?P<name>{holidays.ENGLISH})"
            rf"(?:,? (?:of |in )?(?P<year>{_YEAR}))?(?![\w'’])"
        ),
        lambda m, now: _holiday_spans(m["name"], _optional(m["year"]), m["which"], now),
    ),
    (
        _chinese(
            rf"(?:(?P<year>{{H}}{{2,4}})年的?|(?P<relative>大前|去|前|今|明|后)年的?)?(?P<name>{holidays.CHINESE})"
        ),
        lambda m, now: _holiday_spans(m["name"], _han_year(m["year"], m["relative"], now), None, now),
    ),
)
_DATES: tuple[_Rule, ...] = (
    (
        re.compile(
            rf"\b(?:between (?:the )?(\d{{1,2}}){_ORDINAL} and (?:the )?"
            rf"|(?:from (?:the )?)?(?<![\d.:-])(\d{{1,2}}){_ORDINAL}{_TO})"
            rf"(\d{{1,2}}){_ORDINAL}(?: of)? ({_MONTH})(?:,? (?:of )?({_YEAR}))?\b"
        ),
        lambda m, now: _days_spans(_optional(m[5]), _MONTH_NUMBERS[m[4].rstrip(".")], m[1] or m[2], m[3], now),
    ),
    (
        re.compile(
            rf"\b({_MONTH}) (\d{{1,2}}){_ORDINAL}{_TO}(\d{{1,2}}){_ORDINAL}(?!\d|[-.:]\d| (?:of )?{_MONTH})"
            rf"(?:,? ({_YEAR}))?\b"
        ),
        lambda m, now: _days_spans(_optional(m[4]), _MONTH_NUMBERS[m[1].rstrip(".")], m[2], m[3], now),
    ),
    (
        re.compile(
            rf"\b(?:from|between) ({_MONTH})(?: ({_YEAR}))? (?:to|and|until|till|through) ({_MONTH})"
            rf"(?:,? (?:of )?({_YEAR}))?"
            r"(?! \d{1,2}\b)(?![\w'])"
        ),
        lambda m, now: _months_spans(
            _optional(m[2]), _MONTH_NUMBERS[m[1].rstrip(".")], _optional(m[4]), _MONTH_NUMBERS[m[3].rstrip(".")], now
        ),
    ),
    (
        re.compile(rf"\b({_MONTH})(?: ({_YEAR}))?{_TO}({_MONTH})(?:,? (?:of )?({_YEAR}))\b"),
        lambda m, now: _months_spans(
            _optional(m[2]), _MONTH_NUMBERS[m[1].rstrip(".")], _optional(m[4]), _MONTH_NUMBERS[m[3].rstrip(".")], now
        ),
    ),
    (
        re.compile(rf"\b(?:from|between) ({_YEAR}) (?:to|and|until|till|through) ({_YEAR})\b(?![-:])"),
        lambda m, now: iter((TimeSpan(_month_start(int(m[1]), 1, now), _month_start(int(m[2]) + 1, 1, now)),)),
    ),
    (
        _chinese(rf"({{H}}{{4}})年?{_TO_HAN}({{H}}{{4}})年(?!{{H}}{{1,2}}月)"),
        lambda m, now: iter(
            (TimeSpan(_month_start(number_of(m[1]), 1, now), _month_start(number_of(m[2]) + 1, 1, now)),)
        ),
    ),
    (
        _chinese(
            rf"(?:(?P<year>{{H}}{{2,4}})年|(?P<relative>大前|去|前|今|明|后)年的?)?"
            rf"(?P<month>{_HAN_MONTH})月(?P<day>{{H}}{{1,3}})[号日]?{_TO_HAN}(?P<last>{{H}}{{1,3}})[号日]"
        ),
        lambda m, now: _days_spans(
            _han_year(m["year"], m["relative"], now), number_of(m["month"]), m["day"], m["last"], now
        ),
    ),
    (
        _chinese(
            rf"(?:(?P<year>{{H}}{{2,4}})年|(?P<relative>大前|去|前|今|明|后)年的?)?"
            rf"(?P<month>{_HAN_MONTH})月?份?{_TO_HAN}(?P<last>{_HAN_MONTH})月(?!{{H}}{{1,3}}[号日])"
        ),
        lambda m, now: _months_spans(
            _han_year(m["year"], m["relative"], now), number_of(m["month"]), None, number_of(m["last"]), now
        ),
    ),
    (
        re.compile(_NOT_PART_OF_NUMBER + rf"({_YEAR})[-/.](\d{{1,2}})[-/.](\d{{1,2}})(?!\d)"),
        lambda m, now: _day_spans(int(m[1]), int(m[2]), int(m[3]), now),
    ),
    (
        re.compile(_NOT_PART_OF_NUMBER + rf"(\d{{1,2}})([/.])(\d{{1,2}})\2({_YEAR})(?![\d./])"),
        lambda m, now: _numeric_spans(int(m[1]), int(m[3]), int(m[4]), now, is_day_first=m[2] == "."),
    ),
    (
        re.compile(
            rf"\b(first|second|third|fourth|last) week (?:of|in) (?P<month>{_MONTH})"
            rf"(?:,? (?:of )?(?P<year>{_YEAR}))?(?![\w'])"
        ),
        lambda m, now: _week_of_month_spans(m[1], _optional(m["year"]), _MONTH_NUMBERS[m["month"].rstrip(".")], now),
    ),
    (
        re.compile(rf"\b(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? ({_MONTH})(?:,? (?:of )?({_YEAR}))?\b"),
        lambda m, now: _day_spans(_optional(m[3]), _MONTH_NUMBERS[m[2].rstrip(".")], int(m[1]), now),
    ),
    (
        re.compile(rf"\b({_MONTH}) (\d{{1,2}})(?:st|nd|rd|th)?(?!\d)(?:,? ({_YEAR}))?\b"),
        lambda m, now: _day_spans(_optional(m[3]), _MONTH_NUMBERS[m[1].rstrip(".")], int(m[2]), now),
    ),
    (
        re.compile(rf"\b{_PART}({_MONTH}),? (?:of )?({_YEAR})\b"),
        lambda m, now: _month_spans(int(m[3]), _MONTH_NUMBERS[m[2].rstrip(".")], 1, now, m[1]),
    ),
    (
        re.compile(rf"\b{_PART}({_SEASON}),? (?:of )?({_YEAR})\b"),
        lambda m, now: _month_spans(int(m[3]), _SEASONS[m[2]], 3, now, m[1]),
    ),
    (
        _chinese(
            r"(?:(?P<year>{H}{2,4})年|(?P<relative>大前|去|前|今|明|后)年的?)?"
            rf"(?P<month>{_HAN_MONTH})月(?:份)?"
            r"(?:(?P<day>{H}{1,3})[号日]|(?P<part>初|中|底|末))?"
        ),
        _han_date,
    ),
)
_RELATIVE: tuple[_Rule, ...] = (
    (re.compile(r"\bday before yesterday\b"), lambda m, now: _unit_spans(-2, "day", now)),
    (re.compile(r"\bday after tomorrow\b"), lambda m, now: _unit_spans(2, "day", now)),
    (re.compile(r"\b(?:yesterday|last night)\b"), lambda m, now: _unit_spans(-1, "day", now)),
    (
        re.compile(r"\b(?:today|tonight|this (?:morning|afternoon|evening))\b"),
        lambda m, now: _unit_spans(0, "day", now),
    ),
    (re.compile(r"\btomorrow\b"), lambda m, now: _unit_spans(1, "day", now)),
    (re.compile(r"\bhalf a year (?:ago|earlier|back)\b"), lambda m, now: _ago(6, "month", now, vague=True)),
    (
        re.compile(rf"\b({_COUNT}) (day|week|month|year)s? (?:ago|earlier|back)\b"),
        lambda m, now: _ago(number_of(m[1]), m[2], now, vague="few" in m[1] or m[1] == "several"),
    ),
    (re.compile(rf"\bin ({_COUNT}) (day|week|month|year)s?\b"), lambda m, now: _ago(-number_of(m[1]), m[2], now)),
    (
        re.compile(rf"\b({_COUNT}) (day|week|month|year)s? from (?:now|today)\b"),
        lambda m, now: _ago(-number_of(m[1]), m[2], now),
    ),
    (re.compile(r"\bin a fortnight\b"), lambda m, now: _ago(-2, "week", now)),
    (re.compile(r"\b(?:a|one) fortnight ago\b"), lambda m, now: _ago(2, "week", now)),
    (re.compile(r"\b(week|month|year|weekend) after next\b"), lambda m, now: _unit_spans(2, m[1], now)),
    (re.compile(r"\b(week|month|year|weekend) before last\b"), lambda m, now: _unit_spans(-2, m[1], now)),
    (
        re.compile(rf"\b({_COUNT}) weekends ago\b"),
        lambda m, now: _unit_spans(-number_of(m[1]), "weekend", now),
    ),
    (
        re.compile(rf"\b({_WEEKDAY}) before last\b"),
        lambda m, now: _moved(_weekday_spans("last", _WEEKDAYS[m[1]], now), weeks=-1),
    ),
    (
        re.compile(rf"\b({_COUNT}) ({_WEEKDAY})s ago\b"),
        lambda m, now: _moved(_weekday_spans("last", _WEEKDAYS[m[2]], now), weeks=1 - number_of(m[1])),
    ),
    (
        re.compile(rf"\ba week (?:on|from) ({_WEEKDAY})\b|\b({_WEEKDAY}) (?:week|after next)\b"),
        lambda m, now: _moved(_weekday_spans("coming", _WEEKDAYS[m[1] or m[2]], now), weeks=1),
    ),
    (_DAY_ALONE, lambda m, now: iter(days_alone(int(m[1]), now))),
    (
        re.compile(rf"\b(?:the )?(?:last|past) ({_COUNT}) (day|week|month|year)s\b"),
        lambda m, now: iter((TimeSpan(next(_ago(number_of(m[1]), m[2], now)).start, _midnight(now) + _DAY),)),
    ),
    (
        re.compile(rf"\b(last|past|this|next|coming) ({_WEEKDAY})\b"),
        lambda m, now: _weekday_spans(m[1], _WEEKDAYS[m[2]], now),
    ),
    (
        re.compile(
            r"\b(last|past|previous|this|next|coming) (?!(?<=this )(?:may|march)\b)"
            rf"(weekend|week|month|year|{_SEASON}|{_MONTH})\b"
        ),
        lambda m, now: _unit_spans(_STEPS[m[1]], m[2].rstrip("."), now),
    ),
    (re.compile(rf"\b(?:on )?({_WEEKDAY})\b"), lambda m, now: _weekday_spans("", _WEEKDAYS[m[1]], now)),
    (
        re.compile(rf"\b(?:in|during|over) (?:the )?({_SEASON})\b"),
        lambda m, now: _month_spans(None, _SEASONS[m[1]], 3, now),
    ),
    # 'may' and 'march' are verbs, too: they count after a preposition.
    (
        re.compile(rf"\b(?:in|of|during|since|until|by|before|after) {_PART}({_MONTH})(?![\w'])"),
        lambda m, now: _month_spans(None, _MONTH_NUMBERS[m[2].rstrip(".")], 1, now, m[1]),
    ),
    (
        re.compile(rf"\b{_PART}(?!may|march)({_MONTH})(?![\w'])"),
        lambda m, now: _month_spans(None, _MONTH_NUMBERS[m[2].rstrip(".")], 1, now, m[1]),
    ),
    (
        re.compile(rf"\b(?:in|of|during|since|by|until|year|before|after) ({_YEAR})\b(?![-:])"),
        lambda m, now: iter((TimeSpan(*_months(int(m[1]), 1, 12, now)),)),
    ),
    (
        _chinese(r"({H}{1,3})年前的?(?P<season>[春夏秋冬])(?:天|季)"),
        lambda m, now: _month_spans(now.year - number_of(m[1]), _SEASONS[m["season"]], 3, now),
    ),
    (
        _chinese(r"(?:(?P<year>{H}{4})年|(?P<relative>大前|去|前|今|明)年的?)?(?P<season>[春夏秋冬])(?:天|季)"),
        lambda m, now: _month_spans(_han_year(m["year"], m["relative"], now), _SEASONS[m["season"]], 3, now),
    ),
    (
        _chinese(r"前(?:几|两|些|阵)(天|日|周|个?星期|个?礼拜|个月|年|子)"),
        lambda m, now: _lately(_HAN_UNITS.get(m[1].removeprefix("个") if m[1] != "个月" else m[1], "week"), now),
    ),
    (
        _chinese(r"({H}{1,3}|半|几|好几)(天|周|个?星期|个?礼拜|个月|年)(?:之|以)?(前|后)"),
        lambda m, now: _han_ago(m[1], m[2].removeprefix("个") if m[2] != "个月" else m[2], m[3], now),
    ),
    (
        _chinese(r"(上上|上|这|本|下下|下)?个?(周|星期|礼拜)([一二三四五六日天末1-7])"),
        _han_week,
    ),
    (
        _chinese(r"(上上|上|这|本|下下|下)个?月的?(?:({H}{1,3})[号日]|(初|中|底|末))"),
        _han_month_date,
    ),
    (_chinese(r"(?<![年月个])月(初|中|底|末)"), lambda m, now: _month_part(0, m[1], now)),
    (
        _chinese(r"(上上|上|这|本|下下|下)个?(周|星期|礼拜|月)"),
        lambda m, now: _unit_spans(_HAN_STEPS[m[1]], _HAN_UNITS[m[2]], now),
    ),
    (
        _chinese(r"(大前|前|昨|今|明|后|大后)(?:天|日|晚|早|夜)"),
        lambda m, now: _unit_spans(_HAN_STEPS[m[1]], "day", now),
    ),
    (
        _chinese(r"(大前|去|前|今|明|后)年"),
        lambda m, now: _unit_spans(_HAN_STEPS[m[1]], "year", now),
    ),
    (
        _chinese(r"({H}{4})年"),
        lambda m, now: iter((TimeSpan(*_months(number_of(m[1]), 1, 12, now)),)),
    ),
)
_ALL_RULES = (_HOLIDAYS, _DATES, _RELATIVE)
#: For a text without a Chinese character, where the others would take most of the time to find nothing.
_WITHOUT_CHINESE = tuple(tuple(rule for rule in rules if rule[0] not in _CHINESE) for rules in _ALL_RULES)


def _han_ago(count: str, unit: str, direction: str, now: datetime) -> _Ranges:
    sign = 1 if direction == "前" else -1
    if count == "半":
        return _ago(sign * (6 if unit == "年" else 15), "month" if unit == "年" else "day", now, vague=True)
    vague = "几" in count
    return _ago(sign * (3 if vague else number_of(count)), _HAN_UNITS[unit], now, vague=vague)
