"""Cursors of lists: opaque text that marks where a list continues, valid for that list alone.

A cursor holds the position of the last row that was sent, so that rows which come or go before it move nothing, and a
hash of what was requested: the list, the app, the user and every filter. With another user or filter it is refused
rather than misread. It grants nothing: each list checks the app and the user again. Where clients are not trusted, its
checksum has a key, so that a position which no list has written never reaches the database.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

#: The names of a fact's key may be long.
CURSOR_LENGTH_MAX = 8000
#: Changes with the meaning of positions: older cursors are then refused, not misread.
_FORMAT = "2"
_SCOPE_BYTES, _CHECK_BYTES = 8, 16

Position = TypeVar("Position")


class CursorError(ValueError):
    """The cursor is not one of this list; the message says why, and what to do."""

    def __init__(self, why: str) -> None:
        super().__init__(f"this cursor cannot be used here: {why}. Start again without a cursor.")


def scope_of(*requested: Any) -> bytes:
    """Return the hash of what was requested of a list, given as JSON values."""
    return _digest(json.dumps((_FORMAT, *requested)).encode(), _SCOPE_BYTES)


def write(scope: bytes, position: Any, key: bytes = b"") -> str:
    """Return the cursor of the page after a position: a JSON value, or a tuple of times, UUIDs and the like."""
    written = to_json(position)
    # Padded to a multiple of four, so that every character has a meaning.
    return base64.urlsafe_b64encode(scope + _digest(scope + written, _CHECK_BYTES, key) + written).decode()


def read(scope: bytes, cursor: str, shape: type[Position], key: bytes = b"") -> Position:
    """Return the position after which the page begins.

    Raises:
        CursorError: the cursor is not one of this list.
    """
    try:
        raw = base64.b64decode(cursor.encode(), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise CursorError("it was cut or changed") from None
    given, check, encoded = raw[:_SCOPE_BYTES], raw[_SCOPE_BYTES:][:_CHECK_BYTES], raw[_SCOPE_BYTES + _CHECK_BYTES :]
    if not hmac.compare_digest(check, _digest(given + encoded, _CHECK_BYTES, key)):
        raise CursorError("it was cut or changed")
    if given != scope:
        raise CursorError("it belongs to another list, another user, other filters, or an older version")
    try:
        position: Position = _adapter(cast("Any", shape)).validate_json(encoded)
    except ValidationError:
        raise CursorError("its position is not one of this list") from None
    return position


def _digest(text: bytes, size: int, key: bytes = b"") -> bytes:
    return hmac.digest(key, text, hashlib.sha256)[:size]


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)
