"""procrastinate's app of one process: its connections, its job manager, its tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import psycopg
from procrastinate import App, PsycopgConnector
from psycopg_pool import AsyncConnectionPool

from pulse import database
from pulse.postgres.hosts import target_of
from workers.queue.fenced_jobs import FencedJobManager
from workers.queue.retry import JobRetry
from workers.queue.schedule import Schedule
from workers.queue.services import Services
from workers.queue.tasks import register_tasks
from workers.settings import Settings
from workers.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from pulse.database import Pool

#: How long a fetch may wait for a connection before the worker counts as cut off.
CONNECTION_WAIT_SECONDS = 5.0
#: The interval between two wake-ups of a connection that waits for its server.
WAKE_SECONDS = 3600.0
#: A periodic task that was due while no scheduler ran is caught up, once, within this time: retention still runs on a
#: machine that sleeps at night.
CATCH_UP_SECONDS = 86_400.0


class JobApp(App):
    """An app whose jobs end by fenced statements."""

    job_manager: FencedJobManager

    def __init__(
        self,
        connector: PsycopgConnector,
        pool: Pool,
        metrics: Metrics,
        pause_seconds: Callable[[], float],
        find_upkeep: Callable[[], Awaitable[frozenset[str]]],
    ) -> None:
        super().__init__(connector=connector)
        self.job_manager = FencedJobManager(connector, pool, metrics, pause_seconds)
        self._connections = connector
        self._find_upkeep = find_upkeep

    def pool_stats(self) -> dict[str, int]:
        """Return what the queue's own pool counts, by psycopg's names."""
        return self._connections.pool.get_stats()

    def schedule(self) -> Schedule:
        """Return what enqueues the periodic tasks, as if this process had just started."""
        return Schedule(self.periodic_registry, CATCH_UP_SECONDS, self._find_upkeep)


def make_app(settings: Settings, pool: Pool, metrics: Metrics, services: Services) -> JobApp:
    """Return an app with every task, not yet open.

    Raises:
        ValueError: a setting of the schedule is wrong.
    """
    app = JobApp(make_connector(settings), pool, metrics, services.pause_seconds, services.find_upkeep)
    retry = JobRetry(
        attempts_max=settings.job_attempts_max,
        base_seconds=settings.retry_base_seconds,
        cap_seconds=settings.retry_delay_seconds_max,
    )
    register_tasks(app, services, app.job_manager, retry, retention_cron=settings.retention_cron)
    return app


def make_connector(settings: Settings) -> PsycopgConnector:
    """Return the queue's own connections: procrastinate's driver is another one, so they are counted separately."""
    address, schema = database.read_address(settings.direct_dsn or "", settings.schema_name)
    target = target_of(address)
    return PsycopgConnector(
        pool_factory=_make_pool,
        conninfo=address,
        kwargs={
            "options": f"-c search_path={database.search_path(schema)}",
            "application_name": "hippocampus queue",
            "connect_timeout": 5,
            **({} if target is None else {"target_session_attrs": target}),
            # A connection that was lost silently is detected in half a minute, not in two hours.
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 20_000,
        },
        configure=_configure,
        min_size=1,
        max_size=settings.queue_pool_size,
        timeout=CONNECTION_WAIT_SECONDS,
    )


class _Pool(AsyncConnectionPool):
    """A pool that recovers soon after its server was unavailable for long.

    psycopg's attempts to connect double their distance, which after half a minute is half a minute. Here they are
    given up after some seconds, and the next request for a connection begins again.
    """

    async def open(self, wait: bool = False, timeout: float = CONNECTION_WAIT_SECONDS) -> None:  # noqa: ASYNC109 - its own
        """Open the pool; see psycopg_pool. Procrastinate waits until it has its first connection."""
        await super().open(wait, timeout=timeout)


class _Connection(psycopg.AsyncConnection[Any]):
    """A connection that waits for its server quietly.

    psycopg wakes ten times a second, so that a signal ends a wait. Here a signal cancels the task, which needs no such
    help; the listener of an idle worker did little else.
    """

    async def wait(self, gen: Any, interval: float = WAKE_SECONDS, timeout: float | None = None) -> Any:  # noqa: ASYNC109 - its own
        """Wait as psycopg does, but wake seldom."""
        return await super().wait(gen, max(interval, WAKE_SECONDS), timeout)


def _make_pool(**options: Any) -> AsyncConnectionPool:
    # The check would add a round trip to each statement. A statement that meets a broken connection is retried instead.
    options.pop("check")
    return _Pool(reconnect_timeout=CONNECTION_WAIT_SECONDS, connection_class=_Connection, **options)


async def _configure(connection: psycopg.AsyncConnection[Any]) -> None:
    # Not among the connection's arguments: the listener passes autocommit itself.
    await connection.set_autocommit(True)
