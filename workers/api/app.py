"""The API as one ASGI application: every package's routes, with their services, and the middleware around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import asyncpg
from fastapi import APIRouter
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from hippocampus.answers import AnswerService
from hippocampus.by_hand import MemoryEditor
from hippocampus.consolidation.replay import MemoryReplay
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
    knowledge,
    memories,
    profile,
    provenance,
    retention,
    users,
    webhooks,
)
from hippocampus.instructions import InstructionStore
from hippocampus.knowledge.service import KnowledgeServices
from hippocampus.memory_service import OpenMemoryService
from hippocampus.rerank import RerankOptions
from hippocampus.retention.archive import MemoryArchive
from hippocampus.retention_manager import MemoryRetentionManager
from hippocampus.search import MemorySearch
from hippocampus.users import UserList
from hippocampus.webhooks.service import WebhookService
from pulse import database
from pulse.api_keys import ApiKeyService
from pulse.audit import AuditLog
from pulse.cells import DEFAULT_CELL
from pulse.http import page
from pulse.http.edge import middleware, problems
from pulse.http.edge.bodies import Admission, FileAdmission, ReadAdmission, StreamAdmission
from pulse.http.edge.key_rate_limit import RateLimit
from pulse.http.edge.key_ring import KeyRing
from pulse.http.edge.origins import parse_origins
from pulse.http.edge.pages import CursorKey
from pulse.http.edge.routing import DeferredRoute
from pulse.http.edge.services import provide
from pulse.http.edge.stream_access import StreamSettings
from pulse.http.routes import (
    agui,
    audit,
    check_signal,
    me,
    remote_runs,
    runs,
    sessions,
    sockets,
    state,
    threads,
    timeline,
    tools,
    traces,
)
from pulse.pg_notify_listener import PgNotifyListener
from pulse.postgres.bounded_pool import BoundedPool
from pulse.postgres.replica import ReplicaReads
from pulse.runs.agents import AgentRunner
from pulse.runs.intake import RunIntake
from pulse.runs.prices import ModelPrices
from pulse.runs.remote import RemoteRuns
from pulse.runs.service import RunService
from pulse.session_service import OpenSessionService
from pulse.state.history import StateHistory
from pulse.state_debug import StateDebugService
from pulse.streams.check_signal import StreamTests
from pulse.streams.run_streams import RunStreams
from pulse.streams.thread_streams import ThreadStreams
from pulse.threads import ThreadList
from pulse.tickets import TicketService
from pulse.timeline import TimelineService
from pulse.tools.registries import ToolRegistries
from pulse.tracing.reading import TraceService
from workers.api import autonomic, operation, overview
from workers.api.cells import CellGuard
from workers.api.document import DocumentedApi
from workers.api.health import HealthCheck

if TYPE_CHECKING:
    from hippocampus.providers.protocols import Embedder, Generator, Reranker
    from pulse.database import Pool
    from workers.api.cells import CellDirectory
    from workers.api.live_streams import LiveStreams
    from workers.settings import Settings
    from workers.telemetry.writer_metrics import WriterMetrics

#: The version of the API, not of the program: a breaking change gets a new prefix.
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
    knowledge.router,
    knowledge.user_router,
    profile.router,
    provenance.router,
    by_hand.router,
    retention.router,
    retention.apps_router,
    erasures.router,
    jobs.router,
    traces.router,
    instructions.router,
    webhooks.router,
    tools.router,
    tools.user_router,
    audit.router,
    me.router,
    users.router,
    users.app_router,
    operation.open_router,
    operation.router,
    autonomic.router,
    overview.router,
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
    for router in (*_ROUTERS, *([check_signal.router] if test_routes else []), _problem_pages()):
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
    directory: CellDirectory | None = None,
    cell: str = DEFAULT_CELL,
    reranker: Reranker | None = None,
    tools_of_apps: ToolRegistries | None = None,
    found_at: float | None = None,
) -> ASGIApp:
    """Return the API on a pool, the live streams and the models, with further routes; the caller closes them all.

    Args:
        directory: by which requests for apps of other cells than `cell` are refused; None: every app is served.
        found_at: when the schema was checked, for `HealthCheck`.
    """
    app = bare_api(test_routes=settings.test_routes)
    health = HealthCheck(settings.dsn or "", settings.schema_name, found_at=found_at)
    services = _services(settings, pool, live, embedder, generator, reranker, metrics)
    services |= {HealthCheck: health, ToolRegistries: tools_of_apps or ToolRegistries(pool)}
    provide(app, services)
    app.router.routes.extend(more)

    def on_problem(kind: problems.Kind) -> None:
        if kind is problems.DISK_FULL:
            health.note_full_disk()

    problems.install(app, on_problem)
    guarded = app if directory is None else CellGuard(app, directory, cell)
    return _surround(guarded, settings, pool, metrics)


def _services(
    settings: Settings,
    pool: Pool,
    live: LiveStreams,
    embedder: Embedder,
    generator: Generator,
    reranker: Reranker | None,
    metrics: WriterMetrics,
) -> dict[type, object]:
    reads = _replica_reads(settings, pool)
    reranked = RerankOptions(reranker=reranker, rerank_seconds=settings.rerank_seconds)
    assembler = ContextAssembler(pool, embedder, on_degraded=metrics.degraded, reads=reads, **reranked)
    return {
        Admission: Admission(at_once=4 * settings.database_pool_size),
        AgentRunner: live.runner,
        AnswerService: AnswerService(assembler, generator),
        AuditLog: AuditLog(pool),
        ContextAssembler: assembler,
        CursorKey: CursorKey(pool),
        FactLedger: FactLedger(pool),
        ErasureService: ErasureService(pool),
        FileAdmission: FileAdmission(at_once=4 * settings.database_pool_size),
        InstructionStore: InstructionStore(pool),
        KnowledgeServices: KnowledgeServices(pool, embedder, generator, **reranked),
        MemoryArchive: MemoryArchive(pool),
        MemoryEditor: MemoryEditor(pool),
        MemoryReplay: MemoryReplay(pool, generator, embedder, slice_tokens=settings.slice_tokens),
        MemoryRetentionManager: MemoryRetentionManager(pool),
        MemorySearch: MemorySearch(pool, embedder, on_degraded=metrics.degraded, reads=reads, **reranked),
        ModelPrices: ModelPrices.parse(settings.model_prices, settings.price_currency),
        OpenMemoryService: OpenMemoryService(pool, embedder, **reranked),
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
        StreamSettings: StreamSettings(heartbeat_seconds=settings.stream_heartbeat_seconds),
        StreamTests: live.tests,
        ThreadList: ThreadList(pool),
        ThreadStreams: live.threads,
        TicketService: live.tickets,
        TimelineService: TimelineService(pool),
        TraceService: TraceService(pool),
        UserList: UserList(pool),
        WebhookService: WebhookService(pool),
        autonomic.PulseRecord: autonomic.PulseRecord(pool, settings.pulse_scope),
        ApiKeyService: ApiKeyService(pool),
        asyncpg.Pool: pool,
        overview.SharedReads: overview.SharedReads(),
    }


def _replica_reads(settings: Settings, pool: Pool) -> ReplicaReads | None:
    """Return what searches on the replica, closed with the pool; None without one."""
    if settings.replica_url is None:
        return None
    address = settings.replica_url.get_secret_value()

    async def open_replica() -> Pool:
        return await database.create_pool(
            address, schema=settings.schema_name, min_size=0, max_size=settings.database_pool_size
        )

    reads = ReplicaReads(pool, open_replica)
    if isinstance(pool, BoundedPool):
        pool.before_close(reads.close)
    return reads


def _surround(app: ASGIApp, settings: Settings, pool: Pool, metrics: WriterMetrics) -> ASGIApp:
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
    return middleware.Edge(inner, metrics, sockets.router.routes, parse_origins(settings.stream_origins))


def _problem_pages() -> APIRouter:
    """Return the routes that explain the problems."""
    router = APIRouter(include_in_schema=False, route_class=DeferredRoute)

    @router.get("/problems/")
    async def list_problems() -> Response:
        lines = (f"{kind.uri} ({kind.status})\n  {kind.title}. {kind.advice}\n" for kind in problems.KINDS.values())
        return PlainTextResponse("\n".join(lines))

    @router.get("/problems/{slug}")
    async def explain(slug: str) -> Response:
        kind = problems.KINDS.get(slug)
        if kind is None:
            raise problems.ProblemError(problems.NO_SUCH_ROUTE, "GET /problems/ lists every problem.")
        return PlainTextResponse(f"{kind.title} ({kind.status})\n\n{kind.advice}\n")

    return router
