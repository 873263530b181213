"""The API as one ASGI application: the rooms' routes, put together, with the edge around them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import FastAPI
from pydantic import BaseModel, Field
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp

from hippocampus.context.window import HEADERS
from hippocampus.context_assembler import ContextAssembler
from hippocampus.facts.ledger import FactLedger
from hippocampus.http import care, context, fact_styles, facts, instructions, jobs, memory
from hippocampus.instructions import InstructionStore
from hippocampus.memory_service import OpenMemoryService
from hippocampus.retention_manager import MemoryRetentionManager
from hippocampus.search import MemorySearch
from pulse.api_keys import ApiKeyService
from pulse.http import page
from pulse.http.edge import middleware, problems
from pulse.http.edge.bodies import Admission, ExactRoute, reply
from pulse.http.edge.key_ring import KeyRing
from pulse.http.edge.rate_limit import RateLimit
from pulse.http.edge.roles import require
from pulse.http.routes import agui, runs, sessions, sockets, state, test_signal, threads, timeline
from pulse.state.history import StateHistory
from pulse.state_debug import StateDebugService
from pulse.threads import ThreadList
from pulse.timeline import TimelineService
from workers.api.document import DocumentedApi, render_page
from workers.api.health import HealthCheck
from workers.telemetry.discovery import list_targets

if TYPE_CHECKING:
    from hippocampus.providers.protocols import Embedder
    from pulse.database import Pool
    from pulse.pg_notify_listener import PgNotifyListener
    from workers.api.live_streams import LiveStreams
    from workers.settings import Settings
    from workers.telemetry.writer_metrics import WriterMetrics

#: Of the API, not of the program: a breaking change gets another prefix.
API_VERSION = "1"
_CORS_REQUEST_HEADERS = (
    "Authorization Content-Type If-Match If-None-Match Last-Event-ID X-App-Name X-User-Id X-Request-Id".split()
)
_CORS_RESPONSE_HEADERS = "ETag Retry-After X-Request-Id".split()
_DESCRIPTION = """
Sessions and long-term memory for agents, on one PostgreSQL.

Every call names its app and its user; a session of another user is answered as if it did not exist. Send the key as
`Authorization: Bearer …`. Every error is a problem (RFC 9457): branch on its `type`, read its `detail`.
"""


class HealthView(BaseModel):
    """Whether this process can do its work."""

    status: Literal["ok", "failing"]
    database: Literal["reachable", "unreachable"]
    listener_running: Annotated[
        bool, Field(description="Whether notifications are heard; while they are not, streams are seconds late.")
    ]
    db_schema: Annotated[Literal["current", "mismatch", "unknown"], Field(serialization_alias="schema")]


class TargetGroupView(BaseModel):
    """An element of Prometheus's HTTP service discovery."""

    targets: list[str]
    labels: dict[str, str]


def build_api(settings: Settings, pool: Pool, live: LiveStreams, embedder: Embedder, metrics: WriterMetrics) -> ASGIApp:
    """Put the routes together around a pool, the live streams and an embedder; the caller closes all three."""
    app = DocumentedApi(
        title="Hippocampus",
        version=API_VERSION,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
    )
    app.state.telemetry = metrics
    app.state.admission = Admission(at_once=4 * settings.database_pool_size)
    _add_streams(app, settings, live)
    app.state.state_debug = StateDebugService(pool, live.sessions)
    app.state.state_history = StateHistory(pool)
    app.state.timeline = TimelineService(pool)
    app.state.threads = ThreadList(pool)
    app.state.memory = OpenMemoryService(pool, embedder)
    app.state.search = MemorySearch(pool, embedder, on_degraded=metrics.degraded)
    app.state.assemblers = {
        language: ContextAssembler(pool, embedder, language=language, on_degraded=metrics.degraded)
        for language in HEADERS
    }
    app.state.retention = MemoryRetentionManager(pool)
    app.state.ledger = FactLedger(pool)
    app.state.instructions = InstructionStore(pool)
    app.state.pool = pool
    session_routers = (sessions.router, state.router, state.short_router, timeline.router, timeline.short_router)
    memory_rooms = (memory, facts, fact_styles, context, jobs, care, instructions)
    apps_routers = (memory.apps_router, care.apps_router)
    for router in (*session_routers, threads.router, *(room.router for room in memory_rooms), *apps_routers):
        app.include_router(router)
    for router in (runs.router, agui.router, sockets.router, *([test_signal.router] if settings.test_routes else [])):
        app.include_router(router)
    _add_operation(app, pool, HealthCheck(settings.dsn or "", settings.schema_name), live.listener)
    _add_pages(app)
    problems.install(app, metrics.conflict)
    return _surround(app, settings, pool, metrics)


def _surround(app: FastAPI, settings: Settings, pool: Pool, metrics: WriterMetrics) -> ASGIApp:
    """Put the edge around the routes; a request passes it from the last line to the first."""
    inner: ASGIApp = middleware.BodyLimit(app, settings.max_body_bytes)
    if settings.requests_per_second:
        inner = RateLimit(inner, settings.requests_per_second, settings.requests_burst)
    operator_key = None if settings.api_key is None else settings.api_key.get_secret_value()
    inner = middleware.KeyGuard(inner, KeyRing(operator_key, ApiKeyService(pool)))
    if settings.cors_origins:
        # Outside of the keys: a browser asks first, and without one.
        inner = CORSMiddleware(
            inner,
            allow_origins=settings.cors_origins.split(","),
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=_CORS_REQUEST_HEADERS,
            expose_headers=_CORS_RESPONSE_HEADERS,
        )
    return middleware.Edge(inner, metrics)


def _add_streams(app: FastAPI, settings: Settings, live: LiveStreams) -> None:
    """Give the routes what they stream from."""
    app.state.sessions = live.sessions
    app.state.runs = live.runs
    app.state.run_intake = live.intake
    app.state.agent_runner = live.runner
    app.state.run_streams = live.streams
    app.state.thread_streams = live.threads
    app.state.tickets = live.tickets
    app.state.stream_tests = live.tests
    app.state.heartbeat_seconds = settings.stream_heartbeat_seconds
    app.state.stream_origins = frozenset(filter(None, settings.stream_origins.split(",")))


def _add_operation(app: FastAPI, pool: Pool, check: HealthCheck, listener: PgNotifyListener) -> None:
    """Add what those who run the writer ask it."""

    @app.get(
        "/health",
        tags=["operation"],
        summary="Whether this process can do its work",
        response_model=HealthView,
        responses={503: {"model": HealthView, "description": "The database is not there, or not as it must be."}},
    )
    async def health() -> Response:
        """Look at the database: it answers, and is at this program's schema. Needs no key."""
        found = await check.look()
        status: Literal["ok", "failing"] = "ok" if found.is_ok else "failing"
        view = HealthView(
            status=status,
            database=found.database,
            db_schema=found.schema,
            listener_running=listener.is_running,
        )
        return reply(view, 200 if found.is_ok else 503)

    async def targets() -> Response:
        """List every live process's metrics address, for Prometheus's `http_sd_configs`."""
        return JSONResponse(await list_targets(pool))

    app.router.add_api_route(
        "/metrics/targets",
        targets,
        tags=["operation"],
        summary="Where metrics are",
        response_model=list[TargetGroupView],
        dependencies=[require("read")],
        responses=problems.documented(*problems.COMMON),
        route_class_override=ExactRoute,
    )


def _add_pages(app: FastAPI) -> None:
    """Add the pages for people."""
    app.include_router(page.router)

    @app.get("/docs", include_in_schema=False)
    async def describe() -> HTMLResponse:
        return HTMLResponse(render_page(app.openapi()))

    @app.get("/problems/{slug}", include_in_schema=False)
    async def explain(slug: str) -> Response:
        kind = problems.KINDS.get(slug)
        if kind is None:
            raise problems.ProblemError(problems.NO_SUCH_ROUTE, "GET /docs lists every problem.")
        return PlainTextResponse(f"{kind.title} ({kind.status})\n\n{kind.advice}\n")
