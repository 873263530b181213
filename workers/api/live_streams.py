"""The live part of a writer: what listens, streams and runs agents, opened and closed in order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pulse.pg_notify_listener import PgNotifyListener
from pulse.runs.agents import Agent, AgentRunner, echo
from pulse.runs.intake import RunIntake
from pulse.runs.service import RunService
from pulse.session_service import OpenSessionService
from pulse.streams.check_signal import StreamTests
from pulse.streams.deltas import PgDeltaCarrier
from pulse.streams.run_streams import RunStreams
from pulse.streams.thread_streams import ThreadStreams
from pulse.tickets import TicketService

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.settings import Settings


# When a process shuts down: to store the last events of its runs, and to send them to their followers.
_ENDING_SECONDS = 1.0
_SENDING_SECONDS = 0.5
#: Both together, after the runs were given time to end by themselves.
END_SECONDS_MAX = _ENDING_SECONDS + _SENDING_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveStreams:
    """The services of the routes of streams."""

    sessions: OpenSessionService
    runs: RunService
    listener: PgNotifyListener
    carrier: PgDeltaCarrier
    streams: RunStreams
    threads: ThreadStreams
    runner: AgentRunner
    intake: RunIntake
    tickets: TicketService
    tests: StreamTests

    async def end(self, drain_seconds: float) -> None:
        """Let this process's runs end, or end them, send their last events, and end every stream.

        Args:
            drain_seconds: how long the runs may continue, with their streams; nothing waits if there is none.
        """
        runs = self.runner.runs
        ends_at = time.monotonic() + drain_seconds
        await self.runner.drain(drain_seconds)
        # Not cancelled at the timeout: `opened` waits for it again.
        await asyncio.wait({asyncio.ensure_future(self.runner.stop())}, timeout=_ENDING_SECONDS)
        # What the runs left of their time is for their followers.
        await self.streams.wait_for_ends(runs, max(ends_at - time.monotonic(), 0.0) + _SENDING_SECONDS)
        self.streams.begin_stop()


@asynccontextmanager
async def opened(settings: Settings, pool: Pool, agents: Mapping[str, Agent]) -> AsyncIterator[LiveStreams]:
    """Start the services, and stop them in the order of their dependencies: agents, streams, listener."""
    async with AsyncExitStack() as stack:
        sessions, runs = OpenSessionService(pool), RunService(pool)
        listener = PgNotifyListener(settings.direct_dsn or "", pool, schema=settings.schema_name)
        carrier = PgDeltaCarrier(pool, listener)
        streams = RunStreams(pool, listener, carrier)
        tests = StreamTests(pool, listener, streams)
        known = {**({"echo": echo} if settings.echo_agent else {}), **agents}
        runner = AgentRunner(runs, carrier, known)
        for each in (sessions, runs):
            stack.push_async_callback(each.close)
        await listener.start()
        stack.push_async_callback(listener.stop)
        await carrier.start()
        stack.push_async_callback(carrier.stop)
        await streams.start()
        stack.push_async_callback(streams.stop)
        stack.push_async_callback(runner.stop)
        yield LiveStreams(
            sessions=sessions,
            runs=runs,
            listener=listener,
            carrier=carrier,
            streams=streams,
            threads=ThreadStreams(pool, listener, streams),
            runner=runner,
            intake=RunIntake(pool, sessions, runs),
            tickets=TicketService(pool, seconds=settings.ticket_seconds),
            tests=tests,
        )
