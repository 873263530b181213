"""Who lives: a worker holds an advisory lock for as long as it does, and gives back the jobs of those that died.

A lock ends with its connection, so a killed process is noticed at once, not when its heartbeat is old. Every
process looks, by itself: with one elected looker, a looker that is stopped would leave the dead unnoticed. Looking
is reading; a job is given back once, since the statement names the attempt that it ends.

A living worker may hold a job that it does not run: the answer of its fetch was lost with the connection, or the end
of the job could not be written. Only the worker itself can tell; it gives such jobs back like those of the dead.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import structlog

from workers.failures import DATABASE_FAULTS
from workers.queue.claims import QUERIES
from workers.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from pulse.database import Connection

_log = structlog.get_logger("workers.queue.liveness")

#: A worker whose connection was cut takes its lock again within one look; two looks must agree that it is dead.
LOOK_SECONDS = 0.5
RECONNECT_SECONDS = 0.1
STATEMENT_SECONDS_MAX = 5.0
#: The fallback: a worker that holds its lock, but has not sent a heartbeat for so long, is dead too.
STALLED_SECONDS = 30.0
HEARTBEAT_SECONDS = 5.0
#: A job that so many workers died of is failed. Above the tries of any provider's fault.
RESCUES_MAX = 20


#: An attempt whose worker is dead: the queue's job, the worker (None: its row is gone), the attempts before.
Orphan: TypeAlias = tuple[int, int | None, int]


async def look(
    connection: Connection,
    suspects: frozenset[Orphan],
    *,
    rescues_max: int = RESCUES_MAX,
    own_id: int | None = None,
    running: Sequence[int] = (),
) -> tuple[frozenset[Orphan], int]:
    """Look for orphans once, and give back those that were suspects already.

    Args:
        rescues_max: attempts before a job is given up.
        own_id: the worker that looks.
        running: the queue's jobs that it knows of; others that are its own are orphans, too.

    Returns:
        The suspects for the next look, and how many jobs this one gave back.
    """
    rows = await connection.fetch(
        QUERIES["find_orphans"], STALLED_SECONDS, own_id, running, timeout=STATEMENT_SECONDS_MAX
    )
    orphans = frozenset((row["job_id"], row["worker_id"], row["attempts"]) for row in rows)
    rescued = 0
    for orphan in sorted(orphans & suspects, key=lambda each: each[0]):
        rescued += await connection.fetchval(QUERIES["rescue_job"], *orphan, rescues_max, timeout=STATEMENT_SECONDS_MAX)
    return orphans, rescued


class Guard:
    """A connection of its own that says that a worker lives, and looks for others that do not."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], metrics: Metrics) -> None:
        self._connect = connect
        self._metrics = metrics
        self._connection: Connection | None = None
        self._lost = asyncio.Event()
        self._suspects: frozenset[Orphan] = frozenset()

    @contextlib.asynccontextmanager
    async def hold(self, worker_id: int) -> AsyncIterator[None]:
        """Hold the worker's lock. `watch` keeps it, and looks.

        Raises:
            one of `workers.failures.DATABASE_FAULTS`.
        """
        await self._take(worker_id)
        try:
            yield
        finally:
            self._drop()

    async def watch(self, worker_id: int, running: Callable[[], Sequence[int]]) -> None:
        """Look for jobs of the dead until cancelled; take the lock again whenever it was lost.

        Args:
            running: gives the queue's jobs that the worker knows of.
        """
        while True:
            await self._pause()
            try:
                if self._connection is None or self._connection.is_closed():
                    await self._take(worker_id)
                await self._look(self._connection, worker_id, running())
            except DATABASE_FAULTS as error:
                _log.warning("watch interrupted", error_type=type(error).__name__)
                self._drop()

    async def _pause(self) -> None:
        if self._connection is None:
            # After a restart of the server every worker must be back before the first one's second look.
            await asyncio.sleep(RECONNECT_SECONDS)
            return
        # Processes that started together do not go on looking together.
        seconds = LOOK_SECONDS * random.uniform(0.8, 1.0)  # noqa: S311 - no secret depends on it
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._lost.wait(), seconds)

    async def _take(self, worker_id: int) -> None:
        self._suspects = frozenset()
        self._lost.clear()
        connection = await asyncio.wait_for(self._connect(), STATEMENT_SECONDS_MAX)
        self._connection = connection
        connection.add_termination_listener(lambda *_: self._lost.set())
        # False only while the server has not yet noticed that our former connection is gone: then its lock
        # speaks for us, and the next look asks again.
        if not await connection.fetchval(QUERIES["hold_worker"], worker_id, timeout=STATEMENT_SECONDS_MAX):
            self._drop()

    async def _look(self, connection: Connection | None, worker_id: int, running: Sequence[int]) -> None:
        if connection is None:
            return
        self._suspects, rescued = await look(connection, self._suspects, own_id=worker_id, running=running)
        if rescued:
            self._metrics.rescued.inc(rescued)
            _log.warning("jobs that nobody runs given back", count=rescued)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
        self._connection = None
