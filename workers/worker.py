"""A worker process: `python -m workers.worker POOL`. It runs until it is stopped, whatever the database does.

SIGTERM or SIGINT: no further job is fetched, running ones get the grace time, what still runs then is given back
without counting an attempt, exit code 0. A second signal ends the process at once: other workers give its jobs back.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any

import psycopg
import structlog
from procrastinate.exceptions import ConnectorException

from pulse import database
from pulse.actor import WORKER, act_as
from pulse.errors import PulseError
from pulse.postgres.backoff import Backoff
from pulse.process.background import in_background
from workers import redactors
from workers.failures import DATABASE_FAULTS
from workers.migrate import check_schema
from workers.pools import UnknownPoolError, WorkerPool, get_pool
from workers.process import logs, signals
from workers.queue import liveness, services
from workers.queue.app import JobApp, make_app
from workers.queue.queue_worker import QueueWorker
from workers.queue.tasks import WEBHOOK_QUEUE
from workers.settings import Settings, SettingsError, load, report_former_names
from workers.telemetry import metrics_server
from workers.telemetry.metrics import Metrics
from workers.telemetry.queue_gauges import export_queue
from workers.telemetry.traces import traced

if TYPE_CHECKING:
    from pulse.database import Connection, Pool

# Not __name__, which is `__main__` for `python -m workers.worker`.
_log = structlog.get_logger("workers.worker")

RESTART_SECONDS_MIN = 0.1
RESTART_SECONDS_MAX = 2.0
CLOSE_SECONDS_MAX = 0.5
EXIT_USAGE = 2

# How a worker may end when its connection is cut, the database is restarted, or the worker's row was deleted.
_INTERRUPTIONS = (ConnectorException, psycopg.Error, *DATABASE_FAULTS)


class Supervisor:
    """Keeps one worker at its queues: starts another when one ends, until it is stopped."""

    def __init__(self, app: JobApp, pool: WorkerPool, metrics: Metrics, settings: Settings) -> None:
        self._app = app
        self._pool = pool
        self._metrics = metrics
        self._settings = settings
        self._stop = asyncio.Event()
        self._stop_asked_at = 0.0
        self._worker: QueueWorker | None = None

    def on_signal(self, number: int) -> None:
        """Stop gracefully; at the second signal, at once."""
        if not self._stop.is_set():
            self._stop_asked_at = time.monotonic()
            self.stop()
        elif time.monotonic() - self._stop_asked_at > signals.SAME_REQUEST_SECONDS:
            os._exit(128 + number)

    def stop(self) -> None:
        """Let the worker drain, and start no other."""
        _log.info("worker_stop_requested")
        self._stop.set()
        if self._worker is not None:
            self._worker.stop()

    async def run(self) -> None:
        """Work until stopped."""
        backoff = Backoff(RESTART_SECONDS_MIN, RESTART_SECONDS_MAX, jitter=0.5, healthy_seconds=RESTART_SECONDS_MAX)
        while not self._stop.is_set():
            backoff.begin()
            reason = await self._run_once()
            if self._stop.is_set():
                return
            self._metrics.restarts.labels(reason).inc()
            _log.warning("worker_restarted", reason=reason)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(backoff.next_seconds()):
                    await self._stop.wait()

    async def _run_once(self) -> str:
        """Run one worker and return why it ended."""
        attempt = asyncio.create_task(self._work())
        stop = asyncio.create_task(self._stop.wait())
        await asyncio.wait((attempt, stop), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not attempt.done():
            await self._wait_for_drain(attempt)
        try:
            await attempt
        except _INTERRUPTIONS as error:
            return type(error).__name__
        except asyncio.CancelledError:
            return "cancelled"
        return "side task"

    async def _wait_for_drain(self, attempt: asyncio.Task[None]) -> None:
        """Wait for a worker that runs to end by itself; cancel one that still waits for the database."""
        limit = self._settings.shutdown_grace_seconds + CLOSE_SECONDS_MAX if self._worker is not None else 0.0
        _, pending = await asyncio.wait((attempt,), timeout=limit)
        if pending and self._worker is None:
            attempt.cancel()
            _, pending = await asyncio.wait((attempt,), timeout=CLOSE_SECONDS_MAX)
        if pending:
            # The database does not answer, or a job ignores its cancellation. Other workers give its jobs back, as
            # after a crash.
            _log.error("worker_not_drained")
            os._exit(0)

    async def _work(self) -> None:
        settings = self._settings
        async with self._app.open_async():
            self._metrics.queue_pool.stats = self._app.pool_stats
            guard = liveness.Guard(self._connect, self._metrics)
            self._worker = QueueWorker(
                self._app,
                self._pool,
                guard,
                self._metrics,
                concurrency=settings.concurrency(self._pool.name) + _senders(settings, self._pool),
                grace_seconds=settings.shutdown_grace_seconds,
            )
            try:
                await self._worker.run()
            finally:
                self._worker = None

    async def _connect(self) -> Connection:
        settings = self._settings
        return await database.connect(settings.direct_dsn or "", schema=settings.schema_name, needs_session=True)


async def run_worker(
    pool_name: str, settings: Settings, *, build_services: services.BuildServices = services.build
) -> None:
    """Work off a pool's queues until SIGTERM or SIGINT.

    Raises:
        UnknownPoolError: no such pool.
        SettingsError: there is no DATABASE_URL, or a setting is wrong.
        DatabaseUnreachableError, PoolerError, SchemaError: at the start; later the process waits for the database.
        NoFreePortError: no port for metrics.
    """
    pool = get_pool(pool_name)
    if settings.dsn is None:
        raise SettingsError(
            f"The worker {pool_name} needs a database: set DATABASE_URL. (`hippocampus up` starts an embedded"
            " PostgreSQL and every process.)"
        )
    signals.stop_cancels_start()
    structlog.contextvars.bind_contextvars(role=pool.name, pid=os.getpid())
    act_as(WORKER)
    metrics = Metrics()
    async with open_pool(settings, pool) as connections:
        made = build_services(settings, connections, metrics, pool.name)
        try:
            if pool.is_scheduler:
                await made.choose_model()
            supervisor = Supervisor(make_app(settings, connections, metrics, made), pool, metrics, settings)
            signals.on_stop(supervisor.on_signal)
            async with reporting(settings, pool, connections, metrics), in_background(made.report_unreachable()):
                _log.info("worker_started", queues=list(pool.queues), concurrency=settings.concurrency(pool.name))
                await supervisor.run()
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS_MAX):
                    await made.close()
    _log.info("worker_stopped")


def _senders(settings: Settings, pool: WorkerPool) -> int:
    """Return how many jobs beside the others a process may wait for, since receivers of webhooks take their time."""
    return settings.webhook_concurrency if WEBHOOK_QUEUE in pool.queues else 0


@contextlib.asynccontextmanager
async def open_pool(settings: Settings, pool: WorkerPool) -> AsyncIterator[Pool]:
    """Open the connections of a worker, on a database that fits this program."""
    redactors.install(settings)
    connection = await database.connect(settings.direct_dsn or "", schema=settings.schema_name, needs_session=True)
    try:
        await check_schema(connection, schema=settings.schema_name)
    finally:
        await connection.close()
    connections = await database.create_pool(
        settings.dsn or "",
        schema=settings.schema_name,
        min_size=min(settings.concurrency(pool.name), settings.database_pool_size),
        max_size=settings.database_pool_size,
        # A worker that was suspended in a transaction blocks its session's writers and the release of its job.
        idle_transaction_seconds_max=liveness.STALLED_SECONDS,
    )
    try:
        yield connections
    finally:
        try:
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                await connections.close()
        except TimeoutError:
            connections.terminate()


@contextlib.asynccontextmanager
async def reporting(settings: Settings, pool: WorkerPool, connections: Pool, metrics: Metrics) -> AsyncIterator[None]:
    """Serve the metrics of a worker while the block lasts."""
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(
            metrics_server.serving(
                metrics.registry,
                metrics.commits,
                pool=connections,
                role=pool.name,
                host=settings.metrics_host,
                base=settings.metrics_port(pool.name),
            )
        )
        if pool.is_scheduler:
            await stack.enter_async_context(export_queue(settings, metrics.queue))
        yield


def main_worker(pool_name: str, *, build_services: services.BuildServices = services.build) -> int:
    """Run a worker process by the environment's settings, and return its exit code."""
    return main_of(pool_name, lambda settings: run_worker(pool_name, settings, build_services=build_services))


def main_of(pool_name: str, run: Callable[[Settings], Coroutine[Any, Any, None]]) -> int:
    """Run what a worker process runs by the environment's settings, and return its exit code."""
    gc.freeze()  # What was imported stays.
    try:
        settings = load()
        logs.configure(settings.log_level, settings.log_format)
        report_former_names()
        with traced(settings, pool_name):
            signals.run(run(settings))
    except (SettingsError, UnknownPoolError, PulseError, metrics_server.NoFreePortError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_USAGE
    except asyncio.CancelledError:
        _log.info("worker_start_cancelled")
    except DATABASE_FAULTS as error:
        # A worker that has started waits for the database; this one had not.
        sys.stderr.write(
            f"The worker {pool_name} lost the database while it started ({type(error).__name__}): start it again.\n"
        )
        return EXIT_USAGE
    return 0


if __name__ == "__main__":
    sys.exit(main_worker(sys.argv[1] if len(sys.argv) == 2 else ""))
