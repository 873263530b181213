"""The role `pulse`: a worker of effects that also senses and, if it leads its scope, ticks."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import os
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

import structlog
from procrastinate import BaseRetryStrategy, RetryDecision, utils
from procrastinate.exceptions import JobAborted
from procrastinate.job_context import JobContext
from procrastinate.jobs import Job

from pulse import database
from pulse.autonomic.releases import ReleaseService
from pulse.autonomic.tick import TickLoop
from pulse.autonomic.types import Rule
from pulse.autonomic.watchers import COLLECT_SECONDS_MAX, Vitals, Watchers
from pulse.process.background import in_background
from pulse.tools.registries import ToolRegistries
from workers.autonomic import senses
from workers.autonomic.executors import ATTEMPTS_MAX, TOOL_SECONDS_MAX, Executors
from workers.autonomic.metrics import PulseMetrics
from workers.autonomic.own import OwnParts, OwnWatchers
from workers.autonomic.restarting import make_restarter
from workers.pools import get_pool
from workers.process import signals
from workers.queue.app import JobApp, make_connector
from workers.sandboxes import make_sandbox
from workers.settings import Settings, SettingsError, machine_name, watchdog_address
from workers.telemetry.metrics import Metrics
from workers.worker import Supervisor, main_of, open_pool, reporting

if TYPE_CHECKING:
    from pulse.database import Connection

_log = structlog.get_logger(__name__)

SIGN_OF_LIFE_SECONDS = 10.0
#: Sandboxes for watchers of releases, of which this many measure at once, and for their executors. Both wait for tools.
WATCHER_PROCESSES_MAX = 4
EXECUTOR_PROCESSES_MAX = 16
#: More than what a turn of the tick loop may take: statements, the rules, and notices that the database is gone.
STALLED_SECONDS = 120.0


class EffectRetry(BaseRetryStrategy):
    """Another attempt after 1 and 2 seconds; a stopping worker gives the job back without counting it."""

    def get_retry_decision(self, *, exception: BaseException, job: Job) -> RetryDecision | None:
        """Return when to attempt the effect again; None if it is over."""
        if isinstance(exception, asyncio.CancelledError | JobAborted):
            return RetryDecision()
        if is_last_attempt(job):
            return None  # Reconciliation finds an effect whose end could not be written.
        return RetryDecision(retry_at=utils.utcnow() + datetime.timedelta(seconds=2**job.attempts))


def is_last_attempt(job: Job) -> bool:
    """Whether no attempt follows this one."""
    return job.attempts + 1 >= ATTEMPTS_MAX


def make_effects_app(settings: Settings, pool: database.Pool, metrics: Metrics, executors: Executors) -> JobApp:
    """Return an app that executes effects and nothing else. It is never paused: it calls no model."""
    app = JobApp(make_connector(settings), pool, metrics, lambda: 0.0, _no_upkeep)

    @app.task(name="execute_effect", queue="effects", retry=EffectRetry(), pass_context=True)
    async def execute_effect(context: JobContext, event_id: int) -> None:
        await executors.execute(event_id, is_last=is_last_attempt(context.job))

    return app


async def _no_upkeep() -> frozenset[str]:
    """Find the upkeep that has work: none, as this app has no periodic tasks."""
    return frozenset()


async def run_pulse(settings: Settings) -> None:
    """Sense, tick and execute until SIGTERM or SIGINT.

    Raises:
        SettingsError, DatabaseUnreachableError, SchemaError, NoFreePortError: as `workers.worker.run_worker`.
    """
    machine = machine_name()
    pool = get_pool("pulse")
    pool = dataclasses.replace(pool, queues=(*pool.queues, f"effects@{machine}"))
    if settings.dsn is None:
        raise SettingsError("The role pulse needs a database: set DATABASE_URL, or run `hippocampus up`.")
    signals.stop_cancels_start()
    structlog.contextvars.bind_contextvars(role=pool.name, pid=os.getpid())
    metrics = Metrics()
    own = PulseMetrics(metrics.registry)
    async with open_pool(settings, pool) as connections, contextlib.AsyncExitStack() as stack:
        await ReleaseService(connections, settings.pulse_scope).make_scope()
        tools = ToolRegistries(connections, make_sandbox(settings))
        stack.push_async_callback(tools.close)
        parts = await _own_parts(stack, tools, settings)
        executors = Executors(
            connections, settings, make_restarter(settings), on_end=own.observe_end, tools=tools, own=parts
        )
        app = make_effects_app(settings, connections, metrics, executors)
        vitals = Vitals(machine)

        async def connect() -> Connection:
            return await database.connect(settings.direct_dsn or "", schema=settings.schema_name, needs_session=True)

        async def tell_lost() -> None:
            await executors.send(
                {"id": "database_lost", "key": "database", "code": "database_lost", "machine": machine}
            )

        def show(files: Mapping[str, str]) -> None:
            if own_watchers is not None:
                own_watchers.show(files)

        loop = TickLoop(
            connect,
            settings.pulse_scope,
            holder=f"{machine}:{os.getpid()}",
            vitals=vitals,
            load=await _loader(stack),
            route=executors.route,
            sense_keys=[each.strip() for each in settings.pulse_sense_keys.split(",")],
            on_tick=own.observe_tick,
            on_release=show,
            on_lost=tell_lost,
        )
        own_watchers = None if parts is None else OwnWatchers(parts, vitals, wake=loop.wake, report=loop.report)
        if own_watchers is not None:
            stack.push_async_callback(own_watchers.aclose)
        watchers = Watchers(
            vitals,
            wake=loop.wake,
            report=loop.report,
            everywhere=senses.local_watchers(settings, connections),
            shared=senses.shared_watchers(settings, connections),
            is_leading=lambda: loop.is_leading,
        )
        supervisor = Supervisor(app, pool, metrics, settings)
        signals.on_stop(supervisor.on_signal)
        async with (
            reporting(settings, pool, connections, metrics),
            in_background(loop.run()),
            in_background(watchers.run()),
            in_background(_show_life(loop)),
        ):
            _log.info("pulse_started", scope=settings.pulse_scope, machine=machine, queues=list(pool.queues))
            await supervisor.run()
    _log.info("pulse_stopped")


async def _loader(stack: contextlib.AsyncExitStack) -> Callable[[Mapping[str, str]], Awaitable[Rule]] | None:
    """Return what makes a rule of a release's files; None where the sandbox is not installed."""
    try:
        from workers.autonomic.sandbox import Sandbox
    except ImportError:
        _log.warning("sandbox_missing", advice="install the extra pulse to run releases of rules")
        return None
    sandbox = await stack.enter_async_context(Sandbox())

    async def load(rules: Mapping[str, str]) -> Rule:
        return await sandbox.load(rules)

    return load


async def _own_parts(stack: contextlib.AsyncExitStack, tools: ToolRegistries, settings: Settings) -> OwnParts | None:
    """Return what runs watchers and executors of releases; None where the sandbox is not installed.

    In processes of their own: while they wait for tools, neither the rules nor each other must wait for them.
    """
    try:
        from workers.autonomic.sandbox import Sandbox
    except ImportError:
        return None
    watching = Sandbox(processes_min=0, processes_max=WATCHER_PROCESSES_MAX, wait_seconds=COLLECT_SECONDS_MAX)
    executing = Sandbox(
        processes_min=0,
        processes_max=min(settings.pulse_concurrency, EXECUTOR_PROCESSES_MAX),
        wait_seconds=TOOL_SECONDS_MAX,
    )
    return OwnParts(
        tools,
        watching=await stack.enter_async_context(watching),
        executing=await stack.enter_async_context(executing),
    )


async def _show_life(loop: TickLoop) -> None:
    """Tell systemd that the ticks continue, if it asks (WatchdogSec=30). A running event loop is not enough."""
    address = watchdog_address()
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as endpoint:
        endpoint.setblocking(False)
        while True:
            if time.monotonic() - loop.alive_at < STALLED_SECONDS:
                with contextlib.suppress(OSError):
                    endpoint.sendto(b"WATCHDOG=1", address.replace("@", "\0", 1))
            await asyncio.sleep(SIGN_OF_LIFE_SECONDS)


def main_pulse() -> int:
    """Run the role by the environment's settings, and return its exit code."""
    return main_of("pulse", run_pulse)
