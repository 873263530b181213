"""One page of a list: how long it is, where it begins, and the cursor of the next; see `pulse.postgres.cursors`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import Depends, Query
from starlette.requests import Request

from pulse.http.edge import problems
from pulse.http.edge.schemas import PAGE_SIZE_MAX
from pulse.http.edge.services import service_of
from pulse.postgres import cursors
from pulse.postgres.statements import Statements

if TYPE_CHECKING:
    from pulse.database import Pool

#: Parameters that a cursor does not depend on.
_NOT_FILTERS = frozenset({"cursor", "limit"})

_STATEMENTS = Statements("pulse.http.edge", "pages.sql")

Position = TypeVar("Position")
Row = TypeVar("Row")


class CursorKey:
    """The key of the cursors' checksums: of the installation, so that a cursor is valid at each of its writers."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._key = b""

    async def read(self) -> bytes:
        """Return the key; the first call reads it from the database."""
        if not self._key:
            self._key = bytes.fromhex(await _STATEMENTS.fetchval(self._pool, "cursor_key"))
        return self._key


class Page:
    """The page that a request asks for."""

    def __init__(self, request: Request, limit: int, cursor: str | None, key: bytes) -> None:
        self.limit = limit
        self._key = key
        self._scope = _scope_of(request)
        self._cursor = cursor

    def start(self, shape: type[Position]) -> Position | None:
        """Return the position after which the page begins; None for the first page.

        Raises:
            ProblemError: the cursor does not belong to this list.
        """
        if self._cursor is None:
            return None
        try:
            return cursors.read(self._scope, self._cursor, shape, self._key)
        except cursors.CursorError as error:
            raise problems.ProblemError(problems.INVALID_REQUEST, f"query/cursor: {error}") from None

    def cursor_after(self, position: Any) -> str:
        """Return the cursor of the page after a position: a JSON value, or a tuple of times, UUIDs and the like."""
        return cursors.write(self._scope, position, self._key)

    def next_cursor(self, rows: Sequence[Row], position_of: Callable[[Row], Any]) -> str | None:
        """Return the cursor of the page after these rows; None if they do not fill the page."""
        return self.cursor_after(position_of(rows[-1])) if rows and len(rows) == self.limit else None


def page_of(
    limit: int, *, limit_min: int = 1, limit_max: int = PAGE_SIZE_MAX, description: str = "The maximum number of items."
) -> Any:
    """Return the dependency of a route that lists: ``Annotated[Page, page_of(100)]``; `limit` is the default."""
    parameter: Any = Query(limit, ge=limit_min, le=limit_max, description=description)

    async def read(
        request: Request,
        cursor: Annotated[
            str | None,
            Query(
                max_length=cursors.CURSOR_LENGTH_MAX,
                description="next_cursor of the previous page, with the same filters.",
            ),
        ] = None,
        limit: int = parameter,
    ) -> Page:
        return Page(request, limit, cursor, await service_of(request, CursorKey).read())

    return Depends(read)


def _scope_of(request: Request) -> bytes:
    return cursors.scope_of(
        request.scope["route"].path,
        sorted(request.path_params.items()),
        sorted((name, value) for name, value in request.query_params.multi_items() if name not in _NOT_FILTERS),
        request.headers.get("x-app-name"),
        request.headers.get("x-user-id"),
    )
