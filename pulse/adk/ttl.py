"""Times to live, in the forms that callers may use."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final, TypeAlias

from pulse.errors import InvalidInputError

#: A duration, a number of seconds, or a string such as ``3600s``, which JSON can represent too.
Ttl: TypeAlias = timedelta | float | str

_SECONDS = re.compile(r"(\d+(?:\.\d+)?)s?")
TTL_MAX: Final = timedelta(days=36_500)


def read_ttl(ttl: Ttl | None) -> timedelta | None:
    """Return a time to live as a duration; None for None.

    Raises:
        InvalidInputError: it is not a duration above 0 and up to 100 years.
    """
    if ttl is None:
        return None
    try:
        duration = ttl if isinstance(ttl, timedelta) else timedelta(seconds=_seconds(ttl))
    except (ValueError, OverflowError, TypeError):
        duration = timedelta(0)
    if not timedelta(0) < duration <= TTL_MAX:
        raise InvalidInputError(
            f"ttl must be a duration above 0 and at most 100 years, such as 3600, '3600s' or a timedelta, not {ttl!r}"
        )
    return duration


def _seconds(ttl: float | str) -> float:
    if isinstance(ttl, bool):
        raise TypeError
    if isinstance(ttl, str):
        found = _SECONDS.fullmatch(ttl.strip())
        return float(found.group(1)) if found else 0.0
    return float(ttl)
