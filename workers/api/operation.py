"""The routes for operators: health, and where the metrics of each process are."""

from __future__ import annotations

from typing import Annotated, Literal

import asyncpg
from fastapi import APIRouter
from pydantic import Field
from starlette.responses import JSONResponse, Response

from pulse.http.edge import problems
from pulse.http.edge.bodies import reply
from pulse.http.edge.roles import EVERY_APP, require
from pulse.http.edge.routing import DeferredRoute, ExactRoute
from pulse.http.edge.schemas import View
from pulse.http.edge.services import service
from pulse.pg_notify_listener import PgNotifyListener
from workers.api.health import HealthCheck
from workers.telemetry.discovery import list_targets

#: Paths that need no key.
OPEN_PATHS = frozenset({"/health"})

open_router = APIRouter(tags=["operation"], route_class=DeferredRoute)
router = APIRouter(tags=["operation"], route_class=ExactRoute, responses=problems.documented(*problems.COMMON))


class HealthView(View):
    """Whether this process can do its work."""

    status: Literal["ok", "failing"]
    database: Literal["reachable", "unreachable", "exhausted", "disk full"]
    listener_running: Annotated[
        bool, Field(description="Whether notifications are received; while they are not, streams lag by seconds.")
    ]
    db_schema: Annotated[Literal["current", "mismatch", "unknown"], Field(serialization_alias="schema")]


class TargetGroupView(View):
    """An element of Prometheus's HTTP service discovery."""

    targets: list[str]
    labels: dict[str, str]


@open_router.get(
    "/health",
    summary="Check this process's health",
    response_model=HealthView,
    responses={
        503: {
            "model": HealthView,
            "description": "The database is unreachable, out of connections or disk, or its schema does not match.",
        }
    },
)
async def health(
    check: Annotated[HealthCheck, service(HealthCheck)],
    listener: Annotated[PgNotifyListener, service(PgNotifyListener)],
) -> Response:
    """Check that the database responds and has this program's schema. Needs no key."""
    found = await check.run()
    view = HealthView(
        status="ok" if found.is_ok else "failing",
        database=found.database,
        db_schema=found.schema,
        listener_running=listener.is_running,
    )
    return reply(view, 200 if found.is_ok else 503)


@router.get(
    "/metrics/targets",
    summary="List metrics addresses",
    dependencies=[require("read"), EVERY_APP],
    response_model=list[TargetGroupView],
)
async def targets(pool: Annotated[asyncpg.Pool, service(asyncpg.Pool)]) -> Response:
    """List every live process's metrics address, for Prometheus's `http_sd_configs`."""
    return JSONResponse(await list_targets(pool))
