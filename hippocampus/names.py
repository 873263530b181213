"""Checks of arguments: names, numbers, times and words."""

from __future__ import annotations

import math
from collections.abc import Collection
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from hippocampus.errors import BY_SQLSTATE
from pulse.errors import InvalidInputError
from pulse.names import NAME_LENGTH_MAX, check_name
from pulse.postgres.json_values import clean_text
from pulse.postgres.statements import Statements
from pulse.session_key import session_not_found

__all__ = [
    "NAME_LENGTH_MAX",
    "PAGE_SIZE_MAX",
    "check_app_name",
    "check_count",
    "check_name",
    "check_names",
    "check_number",
    "check_optional_app_name",
    "check_optional_number",
    "check_word",
    "check_zones",
    "moment_asked",
    "require_session",
]

if TYPE_CHECKING:
    from pulse.database import Pool

#: Rows of one page, at most.
PAGE_SIZE_MAX = 1000

_STATEMENTS = Statements("hippocampus", "memory.sql", errors=BY_SQLSTATE)


def check_names(**names: str | None) -> None:
    """Refuse a name that PostgreSQL cannot hold: no row has it. None is not checked.

    Raises:
        InvalidInputError: a name is not a string, or holds U+0000 or a lone surrogate.
    """
    for what, name in names.items():
        if name is not None and (not isinstance(name, str) or clean_text(name) != name):
            raise InvalidInputError(f"{what} must be a text without U+0000 and lone surrogates, not {name!r:.80}")


def check_app_name(app_name: str) -> str:
    """Return the name of an app to read, change or erase what is stored for it; raises as `check_name`.

    What stores something for an app calls `pulse.names.check_app` or `check_owner`.
    """
    return check_name("app_name", app_name)


def check_optional_app_name(app_name: str | None) -> str | None:
    """Return the name of an app, or None for every app; raises as `check_name`."""
    return None if app_name is None else check_app_name(app_name)


def check_number(name: str, value: Any, lowest: float, highest: float) -> float:
    """Return a number as a float.

    Raises:
        InvalidInputError: it is not a number within both bounds.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise InvalidInputError(f"{name} must be a number from {lowest:g} to {highest:g}, not {value!r:.80}")
    if not lowest <= value <= highest:
        raise InvalidInputError(f"{name} must be from {lowest:g} to {highest:g}, not {value!r:.80}")
    return float(value)


def check_optional_number(name: str, value: float | None, lowest: float, highest: float) -> float | None:
    """Return a number as a float, or None; raises as `check_number`."""
    return None if value is None else check_number(name, value, lowest, highest)


def check_count(name: str, value: Any, lowest: int, highest: int) -> int:
    """Return a whole number.

    Raises:
        InvalidInputError: it is not a whole number within both bounds.
    """
    if type(value) is not int or not lowest <= value <= highest:
        raise InvalidInputError(f"{name} must be a whole number from {lowest} to {highest}, not {value!r:.80}")
    return value


def check_word(what: str, word: str | None, allowed: Collection[str]) -> None:
    """Refuse a word that no row can have: its list would be empty, and seem to be an answer. None is not checked.

    Raises:
        InvalidInputError: the word is not one of those that are allowed.
    """
    if word is not None and word not in allowed:
        raise InvalidInputError(f"{what} must be one of {', '.join(allowed)}, not {word!r:.80}")


def check_zones(**moments: datetime | None) -> None:
    """Refuse a time without a zone. None is not checked.

    Raises:
        InvalidInputError: a time has no zone.
    """
    for what, moment in moments.items():
        if moment is not None and moment.tzinfo is None:
            raise InvalidInputError(f"{what} needs a time zone, such as datetime.now(timezone.utc)")


def moment_asked(asked_at: datetime | None, time_zone: str | None) -> datetime:
    """Return the moment against which a question's times are resolved, in the zone whose days they mean.

    Args:
        asked_at: with a zone; None: now.
        time_zone: a name such as Asia/Tokyo. None: the zone of `asked_at`, or UTC.

    Raises:
        InvalidInputError: `asked_at` has no zone, or there is no such time zone.
    """
    check_zones(asked_at=asked_at)
    moment = datetime.now(UTC) if asked_at is None else asked_at
    if time_zone is None:
        return moment
    try:
        return moment.astimezone(ZoneInfo(time_zone))
    except OverflowError:
        raise InvalidInputError(f"asked_at {moment.isoformat()} is not a time of {time_zone}") from None
    # A name that is a path, a folder, or no name at all.
    except (ValueError, OSError, KeyError, TypeError):
        raise InvalidInputError(
            f"there is no time zone {time_zone!r:.80}: use a name such as Asia/Tokyo or Europe/Berlin"
        ) from None


async def require_session(pool: Pool, app_name: str | None, user_id: str | None, session_id: str) -> None:
    """Raise an error if a session does not exist: its empty pages do not show that.

    Raises:
        SessionNotFoundError: no such session, of this app and user if they are named.
    """
    if await _STATEMENTS.fetchval(pool, "session_exists", app_name, user_id, session_id):
        return
    raise session_not_found(session_id, app_name=app_name, user_id=user_id)
