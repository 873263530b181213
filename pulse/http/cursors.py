"""Where a list goes on: opaque text, good for one list alone.

A cursor holds the place of the last row that was sent, so that rows which come or go before it move nothing; and a hash
of what was asked for: the route, the app, the user and every filter. With another user or another filter it is refused
instead of answering something else. It opens nothing: each list asks for its app and its user again.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from functools import cache
from typing import Annotated, Any, TypeVar, cast

from fastapi import Depends, Query
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json
from starlette.requests import Request

from pulse.http import problems

#: The names of a fact's key may be long.
CURSOR_LENGTH_MAX = 8000
#: A change of what places mean gets another one: older cursors are then refused, not misread.
_FORMAT = "1"
_NOT_OF_THE_LIST = frozenset({"cursor", "limit"})
_SCOPE_BYTES, _CHECK_BYTES = 8, 4

Place = TypeVar("Place")


class ListCursor:
    """The cursor of one request: where its page begins, and where the next one would."""

    def __init__(self, request: Request, given: str | None) -> None:
        self._scope = _scope_of(request)
        self._given = given

    def read(self, shape: type[Place]) -> Place | None:
        """Return the place after which the page begins; None for the first page.

        Raises:
            ProblemError: the cursor is not one of this list.
        """
        if self._given is None:
            return None
        try:
            raw = base64.b64decode(self._given.encode(), altchars=b"-_", validate=True)
        except (binascii.Error, UnicodeEncodeError):
            raise _refusal("it was cut or changed") from None
        scope, check, place = raw[:_SCOPE_BYTES], raw[_SCOPE_BYTES:][:_CHECK_BYTES], raw[_SCOPE_BYTES + _CHECK_BYTES :]
        if check != _digest(scope + place, _CHECK_BYTES):
            raise _refusal("it was cut or changed")
        if scope != self._scope:
            raise _refusal("it belongs to another list, another user, other filters, or an older version")
        try:
            found: Place = _adapter(cast("Any", shape)).validate_json(place)
        except ValidationError:
            raise _refusal("it names no place") from None
        return found

    def write(self, place: Any) -> str:
        """Return the cursor of the page after this place: a JSON value, or a tuple of times, UUIDs and such."""
        written = to_json(place)
        # Padded: its length is a multiple of four, so that no character of it is without meaning.
        return base64.urlsafe_b64encode(self._scope + _digest(self._scope + written, _CHECK_BYTES) + written).decode()


def _list_cursor(
    request: Request,
    cursor: Annotated[
        str | None,
        Query(max_length=CURSOR_LENGTH_MAX, description="next_cursor of the page before, with the same filters."),
    ] = None,
) -> ListCursor:
    return ListCursor(request, cursor)


#: For every route that lists.
Cursor = Annotated[ListCursor, Depends(_list_cursor)]


def _scope_of(request: Request) -> bytes:
    asked = (
        _FORMAT,
        request.scope["route"].path,
        sorted(request.path_params.items()),
        sorted((name, value) for name, value in request.query_params.multi_items() if name not in _NOT_OF_THE_LIST),
        request.headers.get("x-app-name"),
        request.headers.get("x-user-id"),
    )
    return _digest(json.dumps(asked).encode(), _SCOPE_BYTES)


def _digest(text: bytes, size: int) -> bytes:
    return hashlib.sha256(text).digest()[:size]


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)


def _refusal(why: str) -> problems.ProblemError:
    return problems.ProblemError(
        problems.INVALID_REQUEST, f"query/cursor: this cursor is of no use here: {why}. Begin again without one."
    )
