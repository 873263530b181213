"""The cursor of a route that lists: see `pulse.postgres.cursors`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Query
from starlette.requests import Request

from pulse.http.edge import problems
from pulse.postgres import cursors
from pulse.postgres.cursors import CURSOR_LENGTH_MAX

_NOT_OF_THE_LIST = frozenset({"cursor", "limit"})

Place = TypeVar("Place")
Row = TypeVar("Row")


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
            return cursors.read(self._scope, self._given, shape)
        except cursors.CursorError as error:
            raise problems.ProblemError(problems.INVALID_REQUEST, f"query/cursor: {error}") from None

    def write(self, place: Any) -> str:
        """Return the cursor of the page after this place: a JSON value, or a tuple of times, UUIDs and such."""
        return cursors.write(self._scope, place)

    def following(self, rows: Sequence[Row], limit: int, place_of: Callable[[Row], Any]) -> str | None:
        """Return the cursor of the page after these rows where they fill theirs; None where nothing can follow."""
        return self.write(place_of(rows[-1])) if len(rows) == limit else None


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
    return cursors.scope_of(
        request.scope["route"].path,
        sorted(request.path_params.items()),
        sorted((name, value) for name, value in request.query_params.multi_items() if name not in _NOT_OF_THE_LIST),
        request.headers.get("x-app-name"),
        request.headers.get("x-user-id"),
    )
