"""Liveness: a worker holds an advisory lock while it lives, and gives back the jobs of workers that died.

A lock ends with its connection, so a killed process is detected at once, not when its heartbeat is stale. Every process
polls: a single elected one that was stopped would leave dead workers undetected. A poll only reads; a job is given back
once, since the statement names the attempt that it ends.

A live worker may hold a job that it does not run: the response to its fetch was lost with the connection, or the end of
the job could not be written. Only that worker can know this; it gives such jobs back like those of dead workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import structlog

from pulse.postgres.statements import Statements
from workers.failures import DATABASE_FAULTS
from workers.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from pulse.database import Connection

_log = structlog.get_logger("workers.queue.liveness")

#: A worker whose connection was cut takes its lock again within one poll; two polls must agree that it is dead.
POLL_SECONDS = 0.5
RECONNECT_SECONDS = 0.1
STATEMENT_SECONDS_MAX = 5.0
#: The fallback: a worker that holds its lock but has sent no heartbeat for this long is dead too.
STALLED_SECONDS = 30.0
HEARTBEAT_SECONDS = 5.0
#: A job that outlived this many workers is failed. More than the attempts that any fault of a provider may take.
RESCUES_MAX = 20

_STATEMENTS = Statements("workers.queue", "liveness.sql")


class Orphan(NamedTuple):
    """An attempt whose worker is dead.

    Attributes:
        job_id: the queue's.
        worker_id: None if its row is gone.
        attempts: made before this one.
    """

    job_id: int
    worker_id: int | None
    attempts: int


class Poll(NamedTuple):
    """What a poll found.

    Attributes:
        suspects: for the next poll.
        rescued: how many jobs were given back.
        is_due: whether a job of the given queues waits and may run now.
    """

    suspects: frozenset[Orphan]
    rescued: int
    is_due: bool


async def poll(
    connection: Connection,
    suspects: frozenset[Orphan],
    *,
    rescues_max: int = RESCUES_MAX,
    own_id: int | None = None,
    running: Sequence[int] = (),
    queues: Sequence[str] = (),
) -> Poll:
    """Find orphans once, and give back those that were suspects already.

    Args:
        rescues_max: attempts before a job is failed.
        own_id: the worker that polls.
        running: the queue's jobs that it runs; others that belong to it are orphans too.
        queues: those that it works off.
    """
    rows = await _STATEMENTS.fetch(
        connection, "find_orphans", STALLED_SECONDS, own_id, running, queues, timeout=STATEMENT_SECONDS_MAX
    )
    orphans = frozenset(Orphan(*row[1:]) for row in map(tuple, rows) if row[1] is not None)
    rescued = 0
    for orphan in sorted(orphans & suspects, key=lambda orphan: orphan.job_id):
        rescued += await _STATEMENTS.fetchval(
            connection, "rescue_job", *orphan, rescues_max, timeout=STATEMENT_SECONDS_MAX
        )
    return Poll(orphans, rescued, rows[0]["is_due"])


class Guard:
    """A dedicated connection that proves that a worker lives, and detects others that do not.

    It also sends the heartbeat, first of all on each new connection: a process that was stopped for longer than
    `STALLED_SECONDS` counts as dead until then, and other workers would give back whatever it fetches.
    """

    def __init__(self, connect: Callable[[], Awaitable[Connection]], metrics: Metrics) -> None:
        self._connect = connect
        self._metrics = metrics
        self._connection: Connection | None = None
        self._lost = asyncio.Event()  # of the current connection
        self._beat_at = 0.0
        self._suspects: frozenset[Orphan] = frozenset()

    @contextlib.asynccontextmanager
    async def hold(self, worker_id: int) -> AsyncIterator[None]:
        """Hold the worker's lock. `watch` keeps it, and polls.

        Raises:
            one of `workers.failures.DATABASE_FAULTS`.
        """
        await self._take(worker_id)
        try:
            yield
        finally:
            self._drop()

    async def watch(
        self, worker_id: int, running: Callable[[], Sequence[int]], queues: Sequence[str], wake: Callable[[], None]
    ) -> None:
        """Give back the jobs of dead workers until cancelled; take the lock again whenever it was lost.

        Args:
            running: returns the queue's jobs that the worker runs.
            queues: those that it works off.
            wake: called at each poll that finds a job of these queues due: one whose notification was lost, or that
                waited for its retry.
        """
        while True:
            await self._pause()
            try:
                if self._connection is None or self._connection.is_closed():
                    await self._take(worker_id)
                elif time.monotonic() - self._beat_at >= HEARTBEAT_SECONDS:
                    await self._beat(self._connection, worker_id)
                if await self._poll(self._connection, worker_id, running(), queues):
                    wake()
            except DATABASE_FAULTS as error:
                _log.warning("liveness_watch_interrupted", error_type=type(error).__name__)
                self._drop()

    async def _pause(self) -> None:
        if self._connection is None:
            # After a restart of the server every worker must be back before the second poll of the first one.
            await asyncio.sleep(RECONNECT_SECONDS)
            return
        # Jitter, so that processes which started together do not poll together.
        seconds = POLL_SECONDS * random.uniform(0.8, 1.0)  # noqa: S311 - no secret depends on it
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._lost.wait(), seconds)

    async def _take(self, worker_id: int) -> None:
        self._suspects = frozenset()
        # Each connection has its own: the end of the former one may be reported while this one is made, or later.
        self._lost = lost = asyncio.Event()
        connection = await asyncio.wait_for(self._connect(), STATEMENT_SECONDS_MAX)
        self._connection = connection
        connection.add_termination_listener(lambda *_: lost.set())
        await self._beat(connection, worker_id)
        # False only while the server has not yet noticed that the former connection is gone: its lock still counts as
        # this worker's, and the next poll takes it again.
        if not await _STATEMENTS.fetchval(connection, "hold_worker", worker_id, timeout=STATEMENT_SECONDS_MAX):
            self._drop()

    async def _beat(self, connection: Connection, worker_id: int) -> None:
        await _STATEMENTS.execute(connection, "send_heartbeat", worker_id, timeout=STATEMENT_SECONDS_MAX)
        self._beat_at = time.monotonic()

    async def _poll(
        self, connection: Connection | None, worker_id: int, running: Sequence[int], queues: Sequence[str]
    ) -> bool:
        """Poll once; return whether a job is due."""
        if connection is None:
            return False
        found = await poll(connection, self._suspects, own_id=worker_id, running=running, queues=queues)
        self._suspects, rescued, is_due = found
        if rescued:
            self._metrics.rescued.inc(rescued)
            _log.warning("orphaned_jobs_released", count=rescued)
        return is_due

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
        self._connection = None
