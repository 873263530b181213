"""Where a list goes on: opaque text, good for one list alone.

A cursor holds the place of the last row that was sent, so that rows which come or go before it move nothing; and a hash
of what was asked for: the list, the app, the user and every filter. With another user or another filter it is refused
instead of answering something else. It opens nothing: each list asks for its app and its user again.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from pulse.errors import InvalidInputError

#: The names of a fact's key may be long.
CURSOR_LENGTH_MAX = 8000
#: A change of what places mean gets another one: older cursors are then refused, not misread.
_FORMAT = "1"
_SCOPE_BYTES, _CHECK_BYTES = 8, 4

Place = TypeVar("Place")


class CursorError(ValueError):
    """The cursor is not one of this list; the message says why, and what to do."""

    def __init__(self, why: str) -> None:
        super().__init__(f"this cursor is of no use here: {why}. Begin again without one.")


def check_limit(limit: int, limit_max: int, *, name: str = "limit") -> int:
    """Return the length of a page.

    Raises:
        InvalidInputError: it is not between 1 and `limit_max`.
    """
    if not 1 <= limit <= limit_max:
        raise InvalidInputError(f"{name} is 1 to {limit_max}, not {limit}")
    return limit


def scope_of(*asked: Any) -> bytes:
    """Return the hash of what a list was asked for, made of JSON values."""
    return _digest(json.dumps((_FORMAT, *asked)).encode(), _SCOPE_BYTES)


def write(scope: bytes, place: Any) -> str:
    """Return the cursor of the page after this place: a JSON value, or a tuple of times, UUIDs and such."""
    written = to_json(place)
    # Padded: its length is a multiple of four, so that no character of it is without meaning.
    return base64.urlsafe_b64encode(scope + _digest(scope + written, _CHECK_BYTES) + written).decode()


def read(scope: bytes, cursor: str, shape: type[Place]) -> Place:
    """Return the place after which the page begins.

    Raises:
        CursorError: the cursor is not one of this list.
    """
    try:
        raw = base64.b64decode(cursor.encode(), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise CursorError("it was cut or changed") from None
    given, check, place = raw[:_SCOPE_BYTES], raw[_SCOPE_BYTES:][:_CHECK_BYTES], raw[_SCOPE_BYTES + _CHECK_BYTES :]
    if check != _digest(given + place, _CHECK_BYTES):
        raise CursorError("it was cut or changed")
    if given != scope:
        raise CursorError("it belongs to another list, another user, other filters, or an older version")
    try:
        found: Place = _adapter(cast("Any", shape)).validate_json(place)
    except ValidationError:
        raise CursorError("it names no place") from None
    return found


def _digest(text: bytes, size: int) -> bytes:
    return hashlib.sha256(text).digest()[:size]


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)
