"""What search looks for where a query names a time: turns said then, and turns that speak of it from another day.

A turn of 18 May that says 'two days ago', 'last Monday' or '前天' speaks of 16 May, and so does one of 2 May that says
'in two weeks'. So a query that names 16 May looks for each such expression in turns said at the distance that leads to
it. Nothing is stored with a turn: every turn is found so, whenever it was appended, and appending pays nothing.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator
from contextlib import suppress
from datetime import MAXYEAR, MINYEAR, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from hippocampus.text import holidays
from hippocampus.text.times import HAN_LETTER, TimeSpan, read_times

#: The weight of times in a query that asks for nothing else, such as 'What happened on 16 May?': its words tell little.
TIME_ALONE_WEIGHT = 6.0
#: What is said in a long span is less likely to be what is asked for than what speaks of it.
_WIDE = 0.6
#: A turn of the days after a span often speaks of it; and the longest span of which that is true.
_AFTER = timedelta(days=3)
_LONGEST_WITH_AFTER = timedelta(days=93)
#: How far back 'ago' is looked for, by unit; 'in two days' as far ahead, except years.
_DAYS_MAX, _WEEKS_MAX, _MONTHS_MAX, _YEARS_MAX = 14, 8, 12, 20
#: The weight of an expression that leads there only roughly, or that often means something else.
_VAGUE = 0.5
_DAY = timedelta(days=1)
_WEEK = timedelta(days=7)
#: A date that is written out in full leads to its day from any other.
_EVER = timedelta(days=40 * 365)
_RECURRING_YEARS = 3

# Terms of the text search: English stems.
_WEEKDAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
_HAN_WEEKDAYS = "一二三四五六日"
_MONTHS = (
    ("januari", "jan"),
    ("februari", "feb"),
    ("march",),
    ("april", "apr"),
    ("may",),
    ("june",),
    ("juli",),
    ("august", "aug"),
    ("septemb", "sept"),
    ("octob", "oct"),
    ("novemb", "nov"),
    ("decemb", "dec"),
)
_SEASONS = {3: ("spring", "春"), 6: ("summer", "夏"), 9: ("autumn", "秋"), 12: ("winter", "冬")}
_NUMBERS = "one two three four five six seven eight nine ten eleven twelv".split()
_HAN_DIGITS = "一二三四五六七八九"

#: What a query says beside a time when it asks for nothing else.
_ASKING = frozenset(
    "what happen happens happened happening did do does doing done was were is are am be been being will would i we "
    "you he she they it me us my our your his her their s to in on at of the that this day date month year time "
    "then have has had go going went up about anything something everything tell say said remember any and there "
    "all with between or for plan plans planned planning schedule scheduled coming up agenda got".split()
)
_ASKING_HAN = re.compile(
    "发生|什么|怎么样|哪些|那[天年]|[我你他她]们?|计划|安排|打算|日程|[了做干过的在有是会要呢吗吧啥事情都和]"
)
_WORD = re.compile(r"[^\W\d_]+")
#: The one word of asking that is a common name.
_WILL = re.compile(r"(?<=[a-z,] )Will\b")


class TimeCue(NamedTuple):
    """Turns said from `start` to `end` (exclusive) that match `words`, any turns if there are none, count `weight`.

    `words` is a tsquery. A row that matches has the last of its terms, whatever else it asks for.
    """

    start: datetime
    end: datetime
    words: str
    weight: float


def time_cues(query: str, now: datetime) -> list[TimeCue]:
    """Return what search looks for where a query names a time; nothing if it names none.

    Args:
        now: when the query is asked, with a zone.
    """
    spans, rest = read_times(query, now)
    if not spans:
        return []
    # If a date has no year, turns of other days that refer to it are only looked for in the latest years.
    cues = [
        cue
        for span in spans
        for cue in _cues(span, with_words=not span.recurs or span.start.year > now.year - _RECURRING_YEARS)
        if cue.start.year > MINYEAR and cue.end.year < MAXYEAR
    ]
    if not _asks_for_nothing_else(query, rest):
        return cues
    return [cue._replace(weight=cue.weight * TIME_ALONE_WEIGHT * _share(cue)) for cue in cues]


def _share(cue: TimeCue) -> float:
    """How much of the weight of a time a cue has, where the query asks for nothing else."""
    return _WIDE if not cue.words and cue.end - cue.start > _WEEK * 2 else 1.0


def _asks_for_nothing_else(query: str, rest: str) -> bool:
    """Whether a query holds no word beside its times but those of asking.

    Args:
        rest: the query without its times.
    """
    if HAN_LETTER.search(rest):
        return not _WORD.search(_ASKING_HAN.sub("", rest))
    return not _WILL.search(query) and all(word in _ASKING for word in _WORD.findall(rest.replace("\0", " ")))


def _cues(span: TimeSpan, *, with_words: bool) -> Iterator[TimeCue]:
    # Near either end of the calendar, some are out of it.
    with suppress(ValueError, OverflowError):
        yield from _of_span(span, with_words=with_words)


def _of_span(span: TimeSpan, *, with_words: bool) -> Iterator[TimeCue]:
    width = span.end - span.start
    yield TimeCue(span.start, span.end, "", 1.0)
    if width <= _LONGEST_WITH_AFTER:
        yield TimeCue(span.end, span.end + _AFTER, "", _VAGUE)
    if not with_words:
        return
    if width <= _WEEK * 1.2:
        said = span.start - timedelta(days=330), _months_on(span.start, 12)
        for words in dict.fromkeys(holidays.spoken_on(span.start.date(), span.end.date())):
            yield TimeCue(*said, words, 1.0)
    yield from _agos(span)
    yield from _aheads(span)
    if width <= _DAY * 1.5:
        yield from _of_day(span)
    elif width <= _WEEK * 1.2:
        yield from _of_week(span, is_weekend=width < _DAY * 3)
    elif timedelta(days=27) < width < timedelta(days=32):
        yield from _of_month(span)
    elif timedelta(days=88) < width < timedelta(days=94):
        yield from _of_season(span)
    elif timedelta(days=364) < width < timedelta(days=367):
        yield from _of_year(span)


def _agos(span: TimeSpan) -> Iterator[TimeCue]:
    """'two days ago', '三年前': each distance that is not finer or vaguer than the span by far."""
    start, end = span.start, span.end
    width = end - start
    if width <= timedelta(days=32):
        for number in range(1, _DAYS_MAX + 1):
            said = start + _DAY * number, end + _DAY * number
            for words in _ago("day", number):
                yield TimeCue(*said, words, 1.0)
        for words in ("'几天' <-> '天前'", "'前几' <-> '几天'", f"!({_COUNTS} <-> 'day') & 'day' <-> 'ago'"):
            yield TimeCue(end + _DAY, end + _DAY * 5, words, _VAGUE)
    if width <= timedelta(days=94):
        about = _DAY * 2 if width < _WEEK else timedelta()
        for number in range(1, _WEEKS_MAX + 1):
            said = start + _WEEK * number - about, end + _WEEK * number + about
            for words in _ago("week", number):
                yield TimeCue(*said, words, 1.0)
    is_wide = width > timedelta(days=20)
    about = timedelta() if is_wide else _DAY * 5
    for number in range(1, _MONTHS_MAX + 1):
        said = _months_on(start, number) - about, _months_on(end, number) + about
        for words in _ago("month", number):
            yield TimeCue(*said, words, 1.0 if is_wide else _VAGUE)
    if not span.recurs and width > timedelta(days=20):
        is_year = width > timedelta(days=180)
        about = timedelta() if is_year else timedelta(days=60)
        for number in range(1, _YEARS_MAX + 1):
            said = _months_on(start, 12 * number) - about, _months_on(end, 12 * number) + about
            for words in _ago("year", number):
                yield TimeCue(*said, words, 1.0 if is_year else _VAGUE)


def _aheads(span: TimeSpan) -> Iterator[TimeCue]:
    """'in two days', '三周后'. What English says without 'ago' may be how long something takes."""
    start, end = span.start, span.end
    width = end - start
    if width <= timedelta(days=32):
        for number in range(1, _DAYS_MAX + 1):
            for words, weight in _ahead("day", number):
                yield TimeCue(start - _DAY * number, end - _DAY * number, words, weight)
    if width <= timedelta(days=94):
        about = _DAY * 2 if width < _WEEK else timedelta()
        for number in range(1, _WEEKS_MAX + 1):
            for words, weight in _ahead("week", number):
                yield TimeCue(start - _WEEK * number - about, end - _WEEK * number + about, words, weight)
    about = timedelta() if width > timedelta(days=20) else _DAY * 5
    for number in range(1, _MONTHS_MAX + 1):
        said = _months_on(start, -number) - about, _months_on(end, -number) + about
        for words, weight in _ahead("month", number):
            yield TimeCue(*said, words, weight if not about else _VAGUE)


def _of_day(span: TimeSpan) -> Iterator[TimeCue]:
    start, end = span.start, span.end
    weekday = start.weekday()
    name, monday = _WEEKDAYS[weekday], start - _DAY * weekday
    for days, expressions in _NEAR_DAYS.items():
        said = start + _DAY * days, end + _DAY * days
        for words in expressions:
            yield TimeCue(*said, words, 1.0)
    yield TimeCue(end, end + _WEEK, f"'last' <-> '{name}'", 1.0)
    # On a Thursday, 'next Friday' may be the day after or a week later.
    yield TimeCue(start - _WEEK * 2, start, f"'next' <-> '{name}'", 1.0)
    yield TimeCue(start - _DAY * 6, end + _DAY * 6, f"!('last' | 'next') & '{name}'", _VAGUE)
    for weeks, prefix in ((2, "上上"), (1, "上"), (0, ""), (-1, "下")):
        said = monday + _WEEK * weeks, monday + _WEEK * (weeks + 1)
        for words in _han_weekday(prefix, _HAN_WEEKDAYS[weekday]):
            yield TimeCue(*said, words, 1.0 if weeks else _VAGUE)
    if weekday >= 5:
        yield TimeCue(monday + _WEEK, monday + _WEEK + _DAY * 5, "'weekend'", 1.0)
        yield TimeCue(monday + _WEEK, monday + _WEEK * 2, "'上周' <-> '周末'", 1.0)
        yield TimeCue(monday + _WEEK, monday + _WEEK + _DAY * 5, "!'上周' & '周末'", _VAGUE)
        yield from _coming_weekend(monday)
    yield from _of_week(TimeSpan(monday, monday + _WEEK), weight=_VAGUE)
    yield from _dates(span)


def _of_week(span: TimeSpan, *, is_weekend: bool = False, weight: float = 1.0) -> Iterator[TimeCue]:
    start, end = span.start, span.end
    if is_weekend:
        for words in ("'weekend'", "'周末'"):
            yield TimeCue(end, end + _DAY * 5, words, weight)
        yield from _coming_weekend(start - _DAY * 5)
        return
    for words in ("'last' <-> 'week'", "!'上上' & '上周'", "'上星' <-> '星期'", "'上个' <-> '个星' <-> '星期'"):
        yield TimeCue(end, end + _WEEK, words, weight)
    for words in ("'week' <2> 'last'", "'上上' <-> '上周'"):
        yield TimeCue(end + _WEEK, end + _WEEK * 2, words, weight)
    for words in ("'next' <-> 'week'", "'下周'", "'下星' <-> '星期'", "'下个' <-> '个星' <-> '星期'"):
        yield TimeCue(start - _WEEK, start, words, weight)
    for words in ("'week' <2> 'next'", "'下下' <-> '下周'", "'下下' <-> '下星'", "'下下' <-> '下个' <-> '个星'"):
        yield TimeCue(start - _WEEK * 2, start - _WEEK, words, weight)
    if weight < 1:
        return
    for weekday, name in enumerate(_WEEKDAYS):
        day = start + _DAY * weekday
        yield TimeCue(day - _DAY * 6, day, f"!('last' | 'next') & '{name}'", _VAGUE)
        yield from _dates(TimeSpan(day, day + _DAY))


def _coming_weekend(monday: datetime) -> Iterator[TimeCue]:
    """'this weekend' in the days before it, 'next weekend' in the week before."""
    saturday = monday + _DAY * 5
    yield TimeCue(monday, saturday, "!(('last' | 'next') <-> 'weekend') & 'weekend'", 1.0)
    yield TimeCue(monday, saturday, "!('上周' | '下周') & '周末'", 1.0)
    yield TimeCue(monday - _WEEK, saturday, "'next' <-> 'weekend'", 1.0)
    yield TimeCue(monday - _WEEK, monday, "'下周' <-> '周末'", 1.0)


def _of_month(span: TimeSpan) -> Iterator[TimeCue]:
    start, end = span.start, span.end
    before, after = _months_on(start, -1), _months_on(end, 1)
    for words in ("'last' <-> 'month'", "'上个' <-> '个月'"):
        yield TimeCue(end, after, words, 1.0)
    for words in ("'next' <-> 'month'", "'下个' <-> '个月'"):
        yield TimeCue(before, start, words, 1.0)
    if start.day != 1:
        return
    month, year_on = start.month, _months_on(start, 12)
    names = [f"'{name}'" for name in _MONTHS[month - 1]]
    # 'may' is mostly a verb.
    weight = _VAGUE if month == 5 else 1.0
    for words in [*names, _han_month(month), f"!'个月' & '月' & '{month}'"]:
        yield TimeCue(end, year_on, words, weight if words in names or "个月" not in words else _VAGUE)
        yield TimeCue(_months_on(start, -6), start, words, _VAGUE)
    if month == 5:
        yield TimeCue(end, year_on, "'last' <-> 'may'", 1.0)
    for words in (f"'{start.year}' <-> '-{month:02}'", *(f"{name} <-> '{start.year}'" for name in names)):
        yield TimeCue(*_ever(span), words, 1.0)
    yield TimeCue(*_ever(span), f"{_han_month(month)} & '{start.year}'", 1.0)


def _of_season(span: TimeSpan) -> Iterator[TimeCue]:
    if span.start.month not in _SEASONS:
        return
    name, han = _SEASONS[span.start.month]
    for words in (f"'{name}'", f"'{han}天'", f"'{han}季'", *(("'last' <-> 'fall'",) if name == "autumn" else ())):
        yield TimeCue(span.end, _months_on(span.start, 12), words, 1.0)


def _of_year(span: TimeSpan) -> Iterator[TimeCue]:
    start = span.start
    if (start.month, start.day) != (1, 1):
        return
    for years, expressions in _NEAR_YEARS.items():
        for words in expressions:
            yield TimeCue(_months_on(start, 12 * years), _months_on(start, 12 * (years + 1)), words, 1.0)
    yield TimeCue(*_ever(span), f"'{start.year}'", 1.0)


def _dates(span: TimeSpan) -> Iterator[TimeCue]:
    """The day as it is written: '16 May', 'May 16th', '五月十六号', '5月16日', 2022-05-16."""
    start = span.start
    month, day = start.month, start.day
    ordinal = f"{day}{'th' if day in (11, 12, 13) else {1: 'st', 2: 'nd', 3: 'rd'}.get(day % 10, 'th')}"
    said = start - timedelta(days=183), _months_on(start, 12)
    for name in _MONTHS[month - 1]:
        for words in (
            f"'{name}' <-> '{day}'",
            f"'{name}' <-> '{ordinal}'",
            f"('{day}' | '{ordinal}') <-> '{name}'",
            f"'{ordinal}' <2> '{name}'",
        ):
            yield TimeCue(*said, words, 1.0)
    for unit in "号日":
        yield TimeCue(*said, _pairs(f"{_han_number(month)}月{_han_number(day)}{unit}"), 1.0)
        yield TimeCue(*said, f"'月' & '{unit}' & '{month}' & '{day}'", 1.0)
    yield TimeCue(*_ever(span), f"'{start.year}' <-> '-{month:02}' <-> '-{day:02}'", 1.0)


def _ever(span: TimeSpan) -> tuple[datetime, datetime]:
    return span.start - _EVER, span.end + _EVER


def _months_on(moment: datetime, months: int) -> datetime:
    """The same day this many months later, or the last one of that month."""
    place = moment.year * 12 + moment.month - 1 + months
    year, month = place // 12, place % 12 + 1
    return moment.replace(year=year, month=month, day=min(moment.day, monthrange(year, month)[1]))


@lru_cache(maxsize=256)
def _ago(unit: str, number: int) -> tuple[str, ...]:
    """The expressions for this many units ago."""
    words = []
    if number == 1:
        if unit != "day":
            words.append(f"!({_COUNTS} <-> '{unit}' | 'coupl' <2> '{unit}') & '{unit}' <-> 'ago'")
    elif number == 2:
        words.append(f"'coupl' <2> '{unit}' <-> 'ago'")
    spoken = [_NUMBERS[number - 1]] if number <= len(_NUMBERS) else []
    words += [f"'{count}' <-> '{unit}' <-> 'ago'" for count in (*spoken, str(number))]
    for units in _HAN_UNITS[unit]:
        for count in (*(["两"] if number == 2 else []), _han_number(number)):
            # 十三天前 is not 三天前.
            larger = f"!'{'二' if count[0] == '十' else '十'}{count[0]}' & "
            words.append(larger + _pairs(f"{count}{units}前"))
        words.append(f"'{number}' & {_pairs(f'{units}前')}")
    if (unit, number) == ("month", 6):
        words.append("'半年' <-> '年前'")
    return tuple(words)


@lru_cache(maxsize=256)
def _ahead(unit: str, number: int) -> tuple[tuple[str, float], ...]:
    """The expressions for this many units from then, and what each counts."""
    count = f"('{_NUMBERS[number - 1]}' | '{number}')" if number <= len(_NUMBERS) else f"'{number}'"
    spoken = f"{count} <-> '{unit}'" + (f" | 'coupl' <2> '{unit}'" if number == 2 else "")
    words = [(f"!('{unit}' <-> 'ago' | ('last' | 'past') <-> {count}) & ({spoken}) & '{unit}'", _VAGUE)]
    han = [_han_number(number), *(["两"] if number == 2 else [])]
    for units in _HAN_UNITS[unit]:
        for each in han:
            later = " | ".join(_pairs(f"{each}{units}{after}") for after in _HAN_AFTER)
            # 十三天后 is not 三天后.
            larger = f"!'{'二' if each[0] == '十' else '十'}{each[0]}'"
            words.append((f"{larger} & ({later}) & '{(each + units)[:2]}'", 1.0))
    digits = " | ".join(_pairs(f"{units}{after}") for units in _HAN_UNITS[unit] for after in _HAN_AFTER)
    words.append((f"({digits}) & '{number}'", 1.0))
    if (unit, number) == ("month", 6):
        words.append(("'半年' <-> '年后'", 1.0))
    return tuple(words)


@lru_cache(maxsize=64)
def _han_weekday(prefix: str, name: str) -> tuple[str, ...]:
    """The forms of 上周五; without a prefix, of 周五."""
    names = "日天" if name == "日" else name
    weeks = ("周", "星期", "礼拜", *(("个星期", "个礼拜") if prefix else ()))
    only = "!'上上' & " if prefix == "上" else ""
    return tuple(only + _pairs(f"{prefix}{week}{each}") for week in weeks for each in names)


def _han_month(month: int) -> str:
    """五月, and not 十五月 or 十一月 for 一月."""
    return _pairs(f"{_han_number(month)}月") if month > 9 else f"!'十{_han_number(month)}' & '{_han_number(month)}月'"


def _han_number(number: int) -> str:
    tens, ones = divmod(number, 10)
    first = "" if tens == 0 else "十" if tens == 1 else f"{_HAN_DIGITS[tens - 1]}十"
    return first + (_HAN_DIGITS[ones - 1] if ones else "")


def _pairs(text: str) -> str:
    """A Chinese phrase, as it is indexed: in pairs of characters."""
    return " <-> ".join(f"'{text[place : place + 2]}'" for place in range(len(text) - 1))


_COUNTS = "(" + " | ".join(f"'{word}'" for word in (*_NUMBERS, *map(str, range(1, 31)))) + ")"
_HAN_AFTER = ("后", "以后", "之后")
_HAN_UNITS = {"day": ("天",), "week": ("周", "个星期", "星期", "个礼拜"), "month": ("个月",), "year": ("年",)}
#: Expressions by how many days after the day they are said, or years after the year.
_NEAR_DAYS = {
    1: ("!('day' <2> 'yesterday') & 'yesterday'", "'last' <-> 'night'", "'昨天'", "'昨晚'", "'昨日'", "'昨夜'"),
    2: ("'day' <2> 'yesterday'", "!'大前' & '前天'", "!'大前' & '前晚'"),
    3: ("'大前' <-> '前天'",),
    -1: ("!('day' <2> 'tomorrow') & 'tomorrow'", "'明天'", "'明晚'", "'明日'"),
    -2: ("'day' <2> 'tomorrow'", "!'大后' & '后天'"),
}
_NEAR_YEARS = {
    1: ("'last' <-> 'year'", "'去年'"),
    2: ("'year' <2> 'last'", "!'大前' & '前年'"),
    3: ("'大前' <-> '前年'",),
    -1: ("'next' <-> 'year'", "'明年'"),
    -2: ("'后年'",),
}
