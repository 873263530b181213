"""The routes of the autonomic layer, for operators: they read its record and change nothing.

They read the tables alone, not the layer's code: nothing depends on that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import Query
from starlette.responses import Response

from pulse.http.edge import problems
from pulse.http.edge.bodies import reply
from pulse.http.edge.pages import Page, page_of
from pulse.http.edge.roles import EVERY_APP, require
from pulse.http.edge.routing import make_router
from pulse.http.edge.services import service
from pulse.postgres.statements import Statements
from workers.api.autonomic_schemas import PulseEventPageView, PulseEventView, PulseStatusView

if TYPE_CHECKING:
    from pulse.database import Pool

_STATEMENTS = Statements("workers.api", "autonomic.sql")

router = make_router("operation", "/api/pulse", problems.NOT_FOUND)

Scope = Annotated[
    str | None, Query(pattern="^[a-z0-9_-]{1,64}$", description="The instance; by default HIPPOCAMPUS_PULSE_SCOPE.")
]


class PulseRecord:
    """Reads the record of the autonomic layer.

    Args:
        scope: the one that is meant where a request names none.
    """

    def __init__(self, pool: Pool, scope: str) -> None:
        self._pool = pool
        self._scope = scope

    async def status(self, scope: str | None, limit: int) -> PulseStatusView:
        """Return what a scope senses, decided and did.

        Raises:
            ProblemError: there is no such scope; likewise below.
        """
        named = scope or self._scope
        found = await _STATEMENTS.fetchval(self._pool, "pulse_status", named, limit)
        if found is None:
            raise _no_scope(named)
        return PulseStatusView.model_validate(found)

    async def events(self, scope: str | None, kind: str | None, before: int | None, limit: int) -> list[PulseEventView]:
        """Return events, the newest first."""
        named = scope or self._scope
        rows = await _STATEMENTS.fetch(self._pool, "events", named, kind, before, limit)
        if not rows and await _STATEMENTS.fetchval(self._pool, "pulse_status", named, 1) is None:
            raise _no_scope(named)
        return [PulseEventView.model_validate(dict(row)) for row in rows]


def _no_scope(scope: str) -> problems.ProblemError:
    return problems.ProblemError(
        problems.NOT_FOUND, f"there is no scope {scope!r}: start the role pulse, or run `hippocampus pulse init`"
    )


Record = Annotated[PulseRecord, service(PulseRecord)]


@router.get(
    "/status",
    summary="Read what the installation senses and does by itself",
    dependencies=[require("read"), EVERY_APP],
    response_model=PulseStatusView,
)
async def read_pulse_status(
    record: Record,
    scope: Scope = None,
    limit: Annotated[int, Query(ge=1, le=200, description="The maximum number of ticks and of decisions.")] = 20,
) -> Response:
    """Read who leads, the vitals, the last ticks, and which rule decided what, why, and how it ended."""
    return reply(await record.status(scope, limit))


@router.get(
    "/events",
    summary="List what the autonomic layer recorded",
    dependencies=[require("read"), EVERY_APP],
    response_model=PulseEventPageView,
)
async def list_pulse_events(
    record: Record,
    page: Annotated[Page, page_of(100)],
    scope: Scope = None,
    kind: Annotated[
        str | None,
        Query(pattern="^[a-z]{2,32}(-[a-z]{2,32}){0,3}$", description="Such as effect, effect-failed or promote."),
    ] = None,
) -> Response:
    """List the record, the newest first."""
    found = await record.events(scope, kind, page.start(int), page.limit)
    return reply(PulseEventPageView(events=found, next_cursor=page.next_cursor(found, lambda each: each.id)))
