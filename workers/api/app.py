"""The API as one ASGI application: every package's routes, with their services, and the middleware around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import asyncpg
from fastapi import APIRouter, FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from hippocampus.answers import AnswerService
from hippocampus.by_hand import MemoryEditor
from hippocampus.context_assembler import ContextAssembler
from hippocampus.erasure.service import ErasureService
from hippocampus.facts.ledger import FactLedger
from hippocampus.http.routes import (
    answers,
    by_hand,
    context,
    erasures,
    fact_styles,
    facts,
    instructions,
    jobs,
    memories,
    profile,
    provenance,
    retention,
    webhooks,
)
from hippocampus.instructions import InstructionStore
from hippocampus.memory_service import OpenMemoryService
from hippocampus.retention.archive import MemoryArchive
from hippocampus.retention_manager import MemoryRetentionManager
from hippocampus.search import MemorySearch
from hippocampus.webhooks.service import WebhookService
from pulse.api_keys import ApiKeyService
from pulse.http import page
from pulse.http.edge import middleware, problems
from pulse.http.edge.bodies import Admission, ReadAdmission, StreamAdmission
from pulse.http.edge.key_ring import KeyRing
from pulse.http.edge.pages import CursorKey
from pulse.http.edge.rate_limit import RateLimit
from pulse.http.edge.services import provide
from pulse.http.edge.stream_access import StreamSettings
from pulse.http.routes import agui, remote_runs, runs, sessions, sockets, state, test_signal, threads, timeline
from pulse.pg_notify_listener import PgNotifyListener
from pulse.runs.agents import AgentRunner
from pulse.runs.intake import RunIntake
from pulse.runs.remote import RemoteRuns
from pulse.runs.service import RunService
from pulse.session_service import OpenSessionService
from pulse.state.history import StateHistory
from pulse.state_debug import StateDebugService
from pulse.streams.run_streams import RunStreams
from pulse.streams.test_signal import StreamTests
from pulse.streams.thread_streams import ThreadStreams
from pulse.threads import ThreadList
from pulse.tickets import TicketService
from pulse.timeline import TimelineService
from workers.api import operation
from workers.api.document import DocumentedApi, render_page
from workers.api.health import HealthCheck

if TYPE_CHECKING:
    from hippocampus.providers.protocols import Embedder, Generator
    from pulse.database import Pool
    from workers.api.live_streams import LiveStreams
    from workers.settings import Settings
    from workers.telemetry.writer_metrics import WriterMetrics

#: Of the API, not of the program: a breaking change gets a new prefix.
API_VERSION = "1"
_CORS_REQUEST_HEADERS = (
    "Authorization Content-Type If-Match If-None-Match Last-Event-ID X-App-Name X-User-Id X-Request-Id"
    " Mcp-Protocol-Version Mcp-Method Mcp-Name".split()
)
_CORS_RESPONSE_HEADERS = "ETag Retry-After X-Request-Id".split()
_DESCRIPTION = """
Sessions and long-term memory for agents, on one PostgreSQL.

Every call names its app and its user; a session of another user is reported as not found. Send the key as
`Authorization: Bearer …`. Every error is a problem (RFC 9457): branch on its `type`, read its `detail`.
"""
_ROUTERS = (
    sessions.router,
    state.router,
    state.short_router,
    timeline.router,
    timeline.short_router,
    threads.router,
    runs.router,
    remote_runs.router,
    agui.router,
    sockets.router,
    memories.router,
    facts.router,
    fact_styles.router,
    context.router,
    answers.router,
    profile.router,
    provenance.router,
    by_hand.router,
    retention.router,
    retention.apps_router,
    erasures.router,
    jobs.router,
    instructions.router,
    webhooks.router,
    operation.open_router,
    operation.router,
    page.router,
)


def bare_api(*, test_routes: bool = False) -> DocumentedApi:
    """Return the routes without their services: what the OpenAPI document describes."""
    app = DocumentedApi(
        title="Hippocampus",
        version=API_VERSION,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
    )
    for router in (*_ROUTERS, *([test_signal.router] if test_routes else []), _documentation(app)):
        # Not by `include_router`, which builds each route once more, at the first request.
        app.router.routes.extend(router.routes)
    return app


def build_api(
    settings: Settings,
    pool: Pool,
    live: LiveStreams,
    embedder: Embedder,
    generator: Generator,
    metrics: WriterMetrics,
    *more: BaseRoute,
) -> ASGIApp:
    """Return the API on a pool, the live streams and the models, with further routes; the caller closes them all."""
    app = bare_api(test_routes=settings.test_routes)
    health = HealthCheck(settings.dsn or "", settings.schema_name)
    provide(app, _services(settings, pool, live, embedder, generator, metrics) | {HealthCheck: health})
    app.router.routes.extend(more)

    def on_problem(kind: problems.Kind) -> None:
        if kind is problems.VERSION_CONFLICT:
            metrics.conflict()
        elif kind is problems.DISK_FULL:
            health.note_full_disk()

    problems.install(app, on_problem)
    return _surround(app, settings, pool, metrics)


def _services(
    settings: Settings,
    pool: Pool,
    live: LiveStreams,
    embedder: Embedder,
    generator: Generator,
    metrics: WriterMetrics,
) -> dict[type, object]:
    assembler = ContextAssembler(pool, embedder, on_degraded=metrics.degraded)
    origins = frozenset(filter(None, settings.stream_origins.split(",")))
    return {
        Admission: Admission(at_once=4 * settings.database_pool_size),
        AgentRunner: live.runner,
        AnswerService: AnswerService(assembler, generator),
        ContextAssembler: assembler,
        CursorKey: CursorKey(pool),
        FactLedger: FactLedger(pool),
        ErasureService: ErasureService(pool),
        InstructionStore: InstructionStore(pool),
        MemoryArchive: MemoryArchive(pool),
        MemoryEditor: MemoryEditor(pool),
        MemoryRetentionManager: MemoryRetentionManager(pool),
        MemorySearch: MemorySearch(pool, embedder, on_degraded=metrics.degraded),
        OpenMemoryService: OpenMemoryService(pool, embedder),
        OpenSessionService: live.sessions,
        PgNotifyListener: live.listener,
        ReadAdmission: ReadAdmission(at_once=4 * settings.database_pool_size),
        RemoteRuns: RemoteRuns(live.runs, live.sessions, live.carrier),
        RunIntake: live.intake,
        RunService: live.runs,
        RunStreams: live.streams,
        StreamAdmission: StreamAdmission(at_once=4 * settings.database_pool_size),
        StateDebugService: StateDebugService(pool, live.sessions),
        StateHistory: StateHistory(pool),
        StreamSettings: StreamSettings(origins=origins, heartbeat_seconds=settings.stream_heartbeat_seconds),
        StreamTests: live.tests,
        ThreadList: ThreadList(pool),
        ThreadStreams: live.threads,
        TicketService: live.tickets,
        TimelineService: TimelineService(pool),
        WebhookService: WebhookService(pool),
        asyncpg.Pool: pool,
        middleware.Telemetry: metrics,
    }


def _surround(app: FastAPI, settings: Settings, pool: Pool, metrics: WriterMetrics) -> ASGIApp:
    """Put the middleware around the routes; a request passes it from the last line to the first."""
    inner: ASGIApp = middleware.BodyLimit(app, settings.max_body_bytes)
    if settings.requests_per_second:
        inner = RateLimit(inner, settings.requests_per_second, settings.requests_burst)
    operator_key = None if settings.api_key is None else settings.api_key.get_secret_value()
    inner = middleware.KeyGuard(inner, KeyRing(operator_key, ApiKeyService(pool)))
    if settings.cors_origins:
        # Outside of the key check: a browser sends its preflight request without a key.
        inner = CORSMiddleware(
            inner,
            allow_origins=settings.cors_origins.split(","),
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=_CORS_REQUEST_HEADERS,
            expose_headers=_CORS_RESPONSE_HEADERS,
        )
    return middleware.Edge(inner, metrics, sockets.router.routes)


def _documentation(app: FastAPI) -> APIRouter:
    """Return the routes of the pages that document the API."""
    router = APIRouter(include_in_schema=False)

    @router.get("/docs")
    async def describe() -> HTMLResponse:
        return HTMLResponse(render_page(app.openapi()))

    @router.get("/problems/{slug}")
    async def explain(slug: str) -> Response:
        kind = problems.KINDS.get(slug)
        if kind is None:
            raise problems.ProblemError(problems.NO_SUCH_ROUTE, "GET /docs lists every problem.")
        return PlainTextResponse(f"{kind.title} ({kind.status})\n\n{kind.advice}\n")

    return router
