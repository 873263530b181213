"""The session writer: a process that offers the API.

It opens its socket and its pool before it logs `writer_started`, and ends within `shutdown_grace_seconds` of SIGTERM,
or a second later where the database does not answer: new connections are refused, running requests are answered, and
the runs that it executes may end by themselves, with their streams. Then the others are ended, and their clients
reconnect elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import email.utils
import functools
import gc
import importlib
import importlib.util
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

import structlog
import uvicorn
from starlette.routing import Route
from uvicorn.server import ServerState

from pulse import database
from pulse.cells import DEFAULT_CELL
from pulse.errors import PoolerError, PulseError, SchemaError
from pulse.http.edge.origins import parse_origins
from pulse.http.edge.problems import NO_SUCH_ROUTE, ProblemError
from pulse.postgres.backoff import Backoff
from pulse.process.background import in_background
from pulse.process.extras import install_command
from pulse.tools.registries import ToolRegistries
from workers import migrate, redactors, settings
from workers.agents import load as load_agents
from workers.api import live_streams
from workers.api.app import build_api
from workers.api.cells import CellDirectory, CellRouter
from workers.api.listening import Listener
from workers.api.malformed import OpenConnections, ProblemProtocol, SocketProtocol, raise_file_limit, report_loop_error
from workers.failures import DATABASE_FAULTS
from workers.models.call_gate import embedder_gate, generator_gate, reranker_gate
from workers.models.factory import make_generator, make_query_embedder, make_reranker
from workers.models.reach import chosen_of, report_unreachable
from workers.process import logs, signals
from workers.sandboxes import make_sandbox
from workers.telemetry import metrics_server
from workers.telemetry.traces import traced
from workers.telemetry.writer_metrics import WriterMetrics

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Receive, Scope, Send

    from hippocampus.providers.protocols import Embedder, Generator, ModelReranker
    from pulse.database import Connection, Pool
    from pulse.runs.agents import Agent

EXIT_REFUSED = 2
# The share of the grace time for what is closed once the requests are done.
_CLOSING_SECONDS = 1.0
# For the ends of streams to reach their clients.
_LAST_RESPONSES_SECONDS = 0.5
_POOL_CLOSE_SECONDS = 0.5
#: How long a request waits for a row that another transaction has locked; our own take milliseconds.
LOCK_SECONDS_MAX = 5.0
_BACKLOG = 2048
# Between two attempts to reach another cell.
_CELL_RETRY_SECONDS = 0.5
_CELL_RETRY_SECONDS_MAX = 10.0
_SOCKET_PING_SECONDS = 20.0
_KEEP_ALIVE_SECONDS = 75
# A client that acknowledges nothing for this long is gone: the kernel ends its connection.
_UNACKNOWLEDGED_MS_MAX = 30_000

_log = structlog.get_logger(__name__)


class StartError(Exception):
    """The writer cannot start. The message says why and what to do."""


class _State(ServerState):
    """What connections share; responses are dated as they are made, so that no timer renews the date."""

    def __init__(self, config: uvicorn.Config) -> None:
        self._config = config
        self._dated = (0, list[tuple[bytes, bytes]]())
        super().__init__()

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """The headers of each response."""
        now, headers = int(time.time()), self._dated[1]
        if now != self._dated[0]:
            headers = [(b"date", email.utils.formatdate(now, usegmt=True).encode()), *self._config.encoded_headers]
            self._dated = (now, headers)
        return headers

    @default_headers.setter
    def default_headers(self, _: list[tuple[bytes, bytes]]) -> None:
        """Ignore what uvicorn sets."""


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, which end the process by the signal instead of exit code 0.

    Streams never end by themselves: they are ended before uvicorn waits for the running requests.
    """

    def __init__(
        self, config: uvicorn.Config, end_streams: Callable[[float], Awaitable[None]], grace_seconds: float
    ) -> None:
        super().__init__(config)
        self.server_state = _State(config)
        self._end_streams = end_streams
        self._grace_seconds = grace_seconds
        self._stopping = asyncio.Event()
        self._forced = asyncio.Event()

    def stop(self, *, at_once: bool) -> None:
        """End the server; `at_once`: without waiting for what still runs."""
        self.force_exit = at_once
        self.should_exit = True
        self._stopping.set()
        if at_once:
            self._forced.set()

    async def main_loop(self) -> None:
        """Wait until stopped; uvicorn's own loop wakes ten times a second."""
        await self._stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, let the runs and their streams end, then wait for the other requests."""
        began = time.monotonic()
        for each in (*self.servers, *(sockets or ())):
            each.close()
        drain_seconds = max(self._grace_seconds - live_streams.END_SECONDS_MAX - _LAST_RESPONSES_SECONDS, 0.0)
        ending = asyncio.ensure_future(self._end_streams(drain_seconds))
        forced = asyncio.ensure_future(self._forced.wait())
        await asyncio.wait({ending, forced}, return_when=asyncio.FIRST_COMPLETED)
        forced.cancel()
        if ending.done():
            ending.result()
        left = self._grace_seconds - (time.monotonic() - began)
        self.config.timeout_graceful_shutdown = max(left, _LAST_RESPONSES_SECONDS)  # type: ignore[assignment]
        await super().shutdown(sockets)

    async def last_responses(self) -> None:
        """Wait for requests that were cancelled: those that the database does not answer end with its pool."""
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=_LAST_RESPONSES_SECONDS)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def main_writer(config: settings.Settings, agents: Mapping[str, Agent] | None = None) -> int:
    """Run a writer until SIGTERM or SIGINT and return its exit code: 0, or 2 if it could not start.

    Args:
        agents: those that ``POST /agui/{name}`` runs, by name, besides those of the settings.
    """
    gc.freeze()  # What was imported stays.
    logs.configure(config.log_level, config.log_format)
    settings.report_former_names()
    try:
        with traced(config, "writer"):
            signals.run(_run(config, {**load_agents(config.agents), **(agents or {})}))
    except (
        StartError,
        settings.SettingsError,
        PulseError,
        metrics_server.NoFreePortError,
    ) as error:
        print(f"hippocampus writer: {error}", file=sys.stderr)  # noqa: T201 - for the person who started it
        return EXIT_REFUSED
    except asyncio.CancelledError:
        _log.info("writer_start_cancelled")
    except DATABASE_FAULTS as error:
        message = f"it lost the database while it started ({type(error).__name__}): start it again."
        print(f"hippocampus writer: {message}", file=sys.stderr)  # noqa: T201 - as above
        return EXIT_REFUSED
    return 0


async def _run(config: settings.Settings, agents: Mapping[str, Agent]) -> None:
    signals.stop_cancels_start()
    raise_file_limit()
    asyncio.get_running_loop().set_exception_handler(report_loop_error)
    OpenConnections.per_address_max = config.connections_per_address
    metrics = WriterMetrics()
    async with contextlib.AsyncExitStack() as stack:
        listener = stack.enter_context(contextlib.closing(_bind(config)))
        more = await stack.enter_async_context(_mcp_route(config))
        cells = config.all_cells
        directory = CellDirectory(tuple(cells.names) if cells else (DEFAULT_CELL,))
        router = CellRouter(directory, parse_origins(config.stream_origins))
        serve = functools.partial(
            _serving, agents=agents, metrics=metrics, more=more, directory=directory, router=router
        )
        home = await stack.enter_async_context(serve(config))
        live, embedder, pool = home.live, home.embedder, home.pool
        metrics.watch(streams=live.streams, runner=live.runner, listener=live.listener, carrier=live.carrier)
        others: dict[str, _Served] = {}
        for name in cells.others if cells else ():
            open_cell = functools.partial(serve, config.in_cell(name), cell=name)
            opening = _keep_serving(open_cell, name, others)
            await stack.enter_async_context(in_background(opening))
        await stack.enter_async_context(in_background(directory.run()))

        async def end_streams(drain_seconds: float) -> None:
            await asyncio.gather(*(each.live.end(drain_seconds) for each in (home, *others.values())))

        server = _Server(_server_config(router, config.max_body_bytes), end_streams, grace_seconds=_grace(config))
        _stop_on_signals(server)
        role = "writer"
        await stack.enter_async_context(
            metrics_server.serving(
                metrics.registry,
                metrics.commits,
                pool=pool,
                role=role,
                host=config.metrics_host,
                base=config.metrics_port(role),
            )
        )
        report = report_unreachable(chosen_of(config, home.generator, embedder, home.reranker))
        await stack.enter_async_context(in_background(report))
        host, port = listener.getsockname()[:2]
        # A full collection stops every stream, and would look at what is open now each time.
        gc.collect()
        gc.freeze()
        with _taking_the_port(config):
            # Only now: a client of a writer that cannot answer yet would wait, and not try another one.
            listener.listen(_BACKLOG)
        _log.info("writer_started", host=host, port=port)
        await server.serve([listener])
    await server.last_responses()
    _log.info("writer_stopped")


@dataclasses.dataclass(frozen=True, slots=True)
class _Served:
    """What serves the apps of one cell."""

    pool: Pool
    live: live_streams.LiveStreams
    embedder: Embedder
    generator: Generator
    reranker: ModelReranker | None


@asynccontextmanager
async def _serving(
    config: settings.Settings,
    *,
    agents: Mapping[str, Agent],
    metrics: WriterMetrics,
    more: Iterable[BaseRoute],
    directory: CellDirectory,
    router: CellRouter,
    cell: str = DEFAULT_CELL,
) -> AsyncIterator[_Served]:
    """Serve the apps of the cell that the settings name, until the block is left."""
    async with contextlib.AsyncExitStack() as stack:
        found_at = time.monotonic()  # or a moment later
        pool = await stack.enter_async_context(_open_pool(config))
        await directory.add(cell, pool)
        stack.callback(directory.remove, cell)
        live = await stack.enter_async_context(live_streams.opened(config, pool, agents))
        embedder = make_query_embedder(
            config, metrics.calls.observe, embedder_gate(config, pool, metrics.calls, "writer")
        )
        stack.push_async_callback(embedder.close)
        # It writes answers; summaries and facts are the workers'.
        generator = make_generator(config, metrics.calls.observe, generator_gate(config, pool, metrics.calls, "writer"))
        stack.push_async_callback(generator.close)
        reranker = make_reranker(config, metrics.calls.observe, reranker_gate(config, pool, metrics.calls, "writer"))
        if reranker is not None:
            stack.push_async_callback(reranker.close)
        tools = ToolRegistries(pool, make_sandbox(config))
        stack.push_async_callback(tools.close)
        api = build_api(
            config,
            pool,
            live,
            embedder,
            generator,
            metrics,
            *more,
            directory=directory,
            cell=cell,
            reranker=reranker,
            tools_of_apps=tools,
            found_at=found_at,
        )
        router.add(cell, api)
        stack.callback(router.remove, cell)
        yield _Served(pool, live, embedder, generator, reranker)


async def _keep_serving(
    serve: Callable[[], contextlib.AbstractAsyncContextManager[_Served]], cell: str, served: dict[str, _Served]
) -> None:
    """Serve another cell until cancelled, as soon as it can be reached: one that is down takes only its own apps."""
    backoff = Backoff(_CELL_RETRY_SECONDS, _CELL_RETRY_SECONDS_MAX, healthy_seconds=_CELL_RETRY_SECONDS_MAX)
    while True:
        try:
            backoff.begin()
            async with serve() as each:
                served[cell] = each
                _log.info("cell_served", cell=cell)
                await asyncio.Event().wait()
        except (PoolerError, SchemaError) as error:
            _log.warning("cell_unreachable", cell=cell, error=type(error).__name__, reason=str(error))
        except DATABASE_FAULTS as error:
            _log.warning("cell_unreachable", cell=cell, error=type(error).__name__)
        finally:
            served.pop(cell, None)
        await backoff.wait()


@asynccontextmanager
async def _mcp_route(config: settings.Settings) -> AsyncIterator[list[BaseRoute]]:
    """Yield the route of the MCP server; without the extra, one that says so."""
    if importlib.util.find_spec("mcp") is None:
        yield [Route("/mcp", _without_mcp, methods=["POST"], include_in_schema=False)]
        return
    server = _McpServer(config)
    async with in_background(server.run()):
        # Without sessions there is nothing to GET or DELETE.
        yield [Route("/mcp", server, methods=["POST"], include_in_schema=False)]


class _McpServer:
    """The MCP server, imported and started by the first request for it: it would be a third of a writer's start."""

    def __init__(self, config: settings.Settings) -> None:
        self._config = config
        self._requested = asyncio.Event()
        self._app: asyncio.Future[ASGIApp] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Wait for the first request, then serve until cancelled."""
        await self._requested.wait()
        try:
            # In a thread, so that other requests are answered meanwhile.
            endpoint = await asyncio.to_thread(importlib.import_module, "workers.mcp.endpoint")
            async with endpoint.opened(self._config) as app:
                self._app.set_result(app)
                _log.info("mcp_server_started")
                await asyncio.Event().wait()
        except Exception as error:
            if self._app.done():
                raise
            self._app.set_exception(error)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._requested.set()
        app = await asyncio.shield(self._app)
        await app(scope, receive, send)


async def _without_mcp(request: Request) -> Response:
    raise ProblemError(NO_SUCH_ROUTE, f"This writer lacks the MCP server: run {install_command('mcp')}.")


def _grace(config: settings.Settings) -> float:
    """Return how long the requests have after SIGTERM; what is closed after them needs the rest."""
    return max(config.shutdown_grace_seconds - _CLOSING_SECONDS, 0.1)


def _server_config(api: ASGIApp, message_bytes_max: int) -> uvicorn.Config:
    return uvicorn.Config(
        api,
        http=ProblemProtocol,
        ws=SocketProtocol,
        ws_max_size=message_bytes_max,
        ws_ping_interval=_SOCKET_PING_SECONDS,
        ws_ping_timeout=_SOCKET_PING_SECONDS,
        # Its buffers would be most of the memory of an idle socket.
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        # Longer than clients and proxies keep theirs (5 to 60 s): otherwise one may send just as the server closes.
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
    )


def _stop_on_signals(server: _Server) -> None:
    def stop(number: int) -> None:
        # A second SIGINT does not wait for what still runs.
        server.stop(at_once=server.should_exit and number == signal.SIGINT)

    signals.on_stop(stop)


def _bind(config: settings.Settings) -> socket.socket:
    """Return a socket that has the port, and does not listen yet.

    Raises:
        StartError: the address is not one of this machine, or the port is in use.
    """
    host, port = config.api_host, config.api_port
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # With the protocol given, asyncio sets TCP_NODELAY: small responses are sent at once, not 40 ms later.
        family, kind, protocol, _, address = found[0]
        listener = Listener(family, kind, protocol)
    except OSError as error:
        raise StartError(
            f"HIPPOCAMPUS_API_HOST is {host!r}, which is not an address of this machine: {error.strerror}."
        ) from error
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS_MAX)
    try:
        with _taking_the_port(config):
            listener.bind(address)
    except BaseException:
        listener.close()
        raise
    return listener


@contextlib.contextmanager
def _taking_the_port(config: settings.Settings) -> Iterator[None]:
    """Name the port that another program listens to: when it is bound, or, if both start at once, when this listens."""
    try:
        yield
    except OSError as error:
        raise StartError(
            f"Port {config.api_port} of {config.api_host} can't be opened ({error.strerror}): stop the program that"
            " uses it, or set HIPPOCAMPUS_API_PORT to another port (0 takes a free one)."
        ) from error


@asynccontextmanager
async def _open_pool(config: settings.Settings) -> AsyncIterator[Pool]:
    """Open the pool on a database that is at this program's schema.

    Raises:
        StartError: there is no DATABASE_URL.
        DatabaseUnreachableError, PoolerError, SchemaError: as `pulse.database.connect` and `migrate.check_schema`.
    """
    if config.dsn is None:
        raise StartError(
            "DATABASE_URL is not set, and only `hippocampus up` and `hippocampus demo` start a database of their own."
            " Set DATABASE_URL, or run `hippocampus up`."
        )
    redactors.install(config)
    pool = await database.create_pool(
        config.dsn,
        schema=config.schema_name,
        max_size=config.database_pool_size,
        # A session that is locked for long must not take every connection of this process, one request after the other:
        # its requests are refused with a retry time.
        lock_seconds_max=LOCK_SECONDS_MAX,
    )
    try:
        async with pool.acquire() as connection:
            await migrate.check_schema(cast("Connection", connection), schema=config.schema_name)
            needs_check = config.direct_database_url is not None or database.is_pooled(connection)
        if needs_check:
            # The listener would report a pooler's address only in the log, again and again.
            session = await database.connect(
                config.direct_dsn or "", schema=config.schema_name, prepare=False, needs_session=True
            )
            session.terminate()
        yield pool
    finally:
        try:
            async with asyncio.timeout(_POOL_CLOSE_SECONDS):
                await pool.close()
        except TimeoutError:
            pool.terminate()


def main() -> int:
    """Run a writer with the environment's settings."""
    try:
        config = settings.load()
    except settings.SettingsError as error:
        print(f"hippocampus writer: {error}", file=sys.stderr)  # noqa: T201 - for the person who started it
        return EXIT_REFUSED
    return main_writer(config)


if __name__ == "__main__":
    sys.exit(main())
