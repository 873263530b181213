"""Liveness: a worker holds an advisory lock while it lives, and gives back the jobs of workers that died.

A lock ends with its connection, so a killed process is detected at once, not when its heartbeat is stale. Every process
polls: a single elected one that was stopped would leave dead workers undetected. A poll only reads; a job is given back
once, since the statement names the attempt that it ends.

Polls are frequent while a job runs or is due soon, and seldom otherwise: without jobs, a dead worker leaves nothing
behind. A new job's notification reaches every worker of its queue, and makes their polls frequent.

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

_log = structlog.get_logger(__name__)

#: A worker whose connection was cut takes its lock again within one poll; two polls must agree that it is dead.
POLL_SECONDS = 0.5
#: The interval while nothing runs and nothing is due. It bounds the delay of a job whose notification was lost.
IDLE_POLL_SECONDS = 10.0
RECONNECT_SECONDS = 0.1
STATEMENT_SECONDS_MAX = 5.0
#: The fallback: a worker that holds its lock but has sent no heartbeat for this long is dead too.
STALLED_SECONDS = 30.0
#: No poll sends the next heartbeat earlier than this; a poll of an idle queue is never earlier.
HEARTBEAT_SECONDS = 8.0
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
        is_busy: whether the next poll should follow soon: a job runs, or one of the given queues is due before an idle
            poll.
        to_abort: those of the given running jobs that are to be aborted.
    """

    suspects: frozenset[Orphan]
    rescued: int
    is_due: bool
    is_busy: bool
    to_abort: Sequence[int]


async def poll(
    connection: Connection,
    suspects: frozenset[Orphan],
    *,
    rescues_max: int = RESCUES_MAX,
    own_id: int | None = None,
    running: Sequence[int] = (),
    queues: Sequence[str] = (),
    beats: bool = False,
) -> Poll:
    """Find orphans once, and give back those that were suspects already.

    Args:
        rescues_max: attempts before a job is failed.
        own_id: the worker that polls.
        beats: send its heartbeat too.
        running: the queue's jobs that it runs; others that belong to it are orphans too.
        queues: the queues that it serves.
    """
    rows = await _STATEMENTS.fetch(
        connection,
        "find_orphans",
        STALLED_SECONDS,
        own_id,
        running,
        queues,
        IDLE_POLL_SECONDS,
        beats,
        timeout=STATEMENT_SECONDS_MAX,
    )
    orphans = frozenset(
        Orphan(row["job_id"], row["worker_id"], row["attempts"]) for row in rows if row["job_id"] is not None
    )
    rescued = 0
    for orphan in sorted(orphans & suspects, key=lambda orphan: orphan.job_id):
        rescued += await _STATEMENTS.fetchval(
            connection, "rescue_job", *orphan, rescues_max, timeout=STATEMENT_SECONDS_MAX
        )
    return Poll(orphans, rescued, rows[0]["is_due"], rows[0]["is_busy"], rows[0]["to_abort"])


class Guard:
    """A dedicated connection that proves that a worker lives, and detects others that do not.

    It also sends the heartbeat, first of all on each new connection: a process that was stopped for longer than
    `STALLED_SECONDS` counts as dead until then, and other workers would give back whatever it fetches.
    """

    def __init__(self, connect: Callable[[], Awaitable[Connection]], metrics: Metrics) -> None:
        self._connect = connect
        self._metrics = metrics
        self._connection: Connection | None = None
        self._interrupt = asyncio.Event()  # of the current connection: it was lost, or the queue is busy
        self._is_busy = True
        self._is_idling = False  # in a long pause, which activity ends
        self._beat_due_at = 0.0
        self._suspects: frozenset[Orphan] = frozenset()

    def note_activity(self) -> None:
        """Poll often until a poll finds the queue idle: a job was enqueued, or notifications may have been lost."""
        self._is_busy = True
        if self._is_idling:
            self._interrupt.set()

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
        self,
        worker_id: int,
        running: Callable[[], Sequence[int]],
        queues: Sequence[str],
        *,
        wake: Callable[[], None],
        abort: Callable[[Sequence[int]], None],
    ) -> None:
        """Give back the jobs of dead workers until cancelled; take the lock again whenever it was lost.

        Args:
            running: returns the queue's jobs that the worker runs.
            queues: the queues that it serves.
            wake: called at each poll that finds a job of these queues due: one whose notification was lost, or that
                waited for its retry.
            abort: called with those that run and are to be aborted, in case the notification was lost.
        """
        while True:
            await self._pause()
            try:
                if self._connection is None or self._connection.is_closed():
                    await self._take(worker_id)
                if self._connection is not None:
                    found = await self._poll(self._connection, worker_id, running(), queues)
                    if found.is_due:
                        wake()
                    if found.to_abort:
                        abort(found.to_abort)
            except DATABASE_FAULTS as error:
                _log.warning("liveness_watch_interrupted", error_type=type(error).__name__)
                self._drop()

    async def _pause(self) -> None:
        if self._connection is None:
            # After a restart of the server every worker must be back before the second poll of the first one.
            await asyncio.sleep(RECONNECT_SECONDS)
            return
        if not self._is_busy:
            self._is_idling = True
            is_interrupted = await self._interrupted(IDLE_POLL_SECONDS * _jitter())
            self._is_idling = False
            if not is_interrupted or self._connection.is_closed():
                return
            # A job was just enqueued. Should its worker die at once, the polls from now on find it.
            self._interrupt.clear()
        await self._interrupted(POLL_SECONDS * _jitter())

    async def _interrupted(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._interrupt.wait()
        except TimeoutError:
            return False

    async def _take(self, worker_id: int) -> None:
        self._suspects = frozenset()
        self._is_busy = True
        # Each connection has its own: the end of the former one may be reported while this one is made, or later.
        self._interrupt = lost = asyncio.Event()
        async with asyncio.timeout(STATEMENT_SECONDS_MAX):
            connection = await self._connect()
        self._connection = connection
        connection.add_termination_listener(lambda *_: lost.set())
        await _STATEMENTS.execute(connection, "send_heartbeat", worker_id, timeout=STATEMENT_SECONDS_MAX)
        self._beat_due_at = time.monotonic() + HEARTBEAT_SECONDS
        # False only while the server has not yet noticed that the former connection is gone: its lock still counts as
        # this worker's, and the next poll takes it again.
        if not await _STATEMENTS.fetchval(connection, "hold_worker", worker_id, timeout=STATEMENT_SECONDS_MAX):
            self._drop()

    async def _poll(
        self, connection: Connection, worker_id: int, running: Sequence[int], queues: Sequence[str]
    ) -> Poll:
        self._is_busy = False
        beats = time.monotonic() >= self._beat_due_at
        found = await poll(connection, self._suspects, own_id=worker_id, running=running, queues=queues, beats=beats)
        if beats:
            self._beat_due_at = time.monotonic() + HEARTBEAT_SECONDS
        self._suspects = found.suspects
        # A job may have been enqueued meanwhile.
        self._is_busy |= found.is_busy
        if found.rescued:
            self._metrics.rescued.inc(found.rescued)
            _log.warning("orphaned_jobs_released", count=found.rescued)
        return found

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
        self._connection = None


def _jitter() -> float:
    """Return a part of a pause, so that processes which started together do not poll together."""
    return random.uniform(0.8, 1.0)  # noqa: S311 - no secret depends on it
