"""The bound of a page."""

from __future__ import annotations

from pulse.errors import InvalidInputError


def check_limit(limit: int, limit_max: int, *, name: str = "limit") -> int:
    """Return the length of a page.

    Raises:
        InvalidInputError: it is not between 1 and `limit_max`.
    """
    if not 1 <= limit <= limit_max:
        raise InvalidInputError(f"{name} must be from 1 to {limit_max}, not {limit}")
    return limit
