"""Times as people and programs write them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

#: Larger numbers are milliseconds, microseconds or nanoseconds: as seconds they are past the year 5000.
_SECONDS_MAX = 1e11
_CLOCKS = ("%H:%M", "%H:%M:%S", "%I:%M %p", "%I:%M:%S %p")
_MONTH_NAMES = ("%I:%M %p on %d %B, %Y", "%I:%M %p on %d %b, %Y", "%H:%M on %d %B, %Y")
_SLASHED = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{2}|\d{4})(?!\d)")
_UTC = re.compile(r"\s?(?:UTC|GMT)$")
_DOTTED = ("%d.%m.%Y", "%d.%m.%y", "%Y/%m/%d", "%Y-%m-%d", "%Y.%m.%d")
_MONTH_FIRST = ("%m/%d/%Y", "%m/%d/%y")
_DAY_FIRST = ("%d/%m/%Y", "%d/%m/%y")


def moment(given: Any, *, day_first: bool | None = None) -> float:
    """Return a time in seconds since 1970; without a zone it is UTC.

    Args:
        given: seconds, milliseconds or microseconds since 1970; ISO 8601; RFC 2822; '1:56 pm on 8 May, 2023';
            '8.5.2023, 13:56'; '5/8/2023, 1:56 PM'.
        day_first: '5/8/2023' means 5 August; False or None: May 8.

    Raises:
        ValueError: it is not one of these, or not within the years 1 to 9999.
    """
    try:
        return _number(given) if _is_number(given) else _text(str(given).strip(), day_first=day_first).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"{given!r} is not a time: give seconds since 1970, or ISO 8601 as in 2025-03-01T09:30:00+08:00"
        ) from None


def is_day_first(dates: Iterable[str]) -> bool | None:
    """Return whether the dates of a file, in its order, write the day before the month; None if they do not show it.

    A number over 12 shows it; else the order in which fewer dates are earlier than the one before.
    """
    first_max = second_max = 0
    before: tuple[tuple[int, int, int], tuple[int, int, int]] | None = None
    steps_back = [0, 0]  # read with the day first, with the month first
    for date in dates:
        if (found := _SLASHED.match(date)) is None:
            continue
        first, second, year = map(int, found.groups())
        first_max, second_max = max(first_max, first), max(second_max, second)
        now = ((year, second, first), (year, first, second))
        if before is not None:
            steps_back = [count + (new < old) for count, new, old in zip(steps_back, now, before, strict=True)]
        before = now
    if (first_max > 12) != (second_max > 12):
        return first_max > second_max
    return None if steps_back[0] == steps_back[1] else steps_back[0] < steps_back[1]


def _is_number(given: Any) -> bool:
    if isinstance(given, bool):
        return False
    return isinstance(given, int | float) or (isinstance(given, str) and given.strip().replace(".", "", 1).isdecimal())


def _number(given: Any) -> float:
    seconds = float(given)
    if not math.isfinite(seconds):
        raise ValueError
    for _ in ("milliseconds", "microseconds", "nanoseconds"):
        if abs(seconds) > _SECONDS_MAX:
            seconds /= 1000
    return datetime.fromtimestamp(seconds, UTC).timestamp()


def _text(given: str, *, day_first: bool | None) -> datetime:
    try:
        found = datetime.fromisoformat(given)
    except ValueError:
        plain = _UTC.sub("", given).replace("\u202f", " ").replace("a.m.", "AM").replace("p.m.", "PM")
        found = _written(" ".join(plain.split()), _DAY_FIRST if day_first else _MONTH_FIRST)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _written(given: str, slashed: tuple[str, ...]) -> datetime:
    for form in (*_MONTH_NAMES, *_forms((*_DOTTED, *slashed))):
        try:
            return datetime.strptime(given, form)  # noqa: DTZ007 - the caller adds the zone
        except ValueError:
            continue
    return parsedate_to_datetime(given)


def _forms(dates: tuple[str, ...]) -> Iterator[str]:
    for date in dates:
        yield date
        for clock in _CLOCKS:
            yield f"{date}, {clock}"
            yield f"{date} {clock}"
