"""The live half of a writer: what listens, streams and runs agents, opened and closed in order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pulse.agents import Agent, AgentRunner, echo
from pulse.pg_deltas import PgDeltaCarrier
from pulse.pg_notify_listener import PgNotifyListener
from pulse.run_intake import RunIntake
from pulse.run_service import RunService
from pulse.run_streams import RunStreams
from pulse.session_service import OpenSessionService
from pulse.stream_tests import StreamTests
from pulse.thread_stream import ThreadStreams
from pulse.tickets import TicketService

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveStreams:
    """What the routes of streams stand on."""

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


@asynccontextmanager
async def opened(settings: Settings, pool: Pool, agents: Mapping[str, Agent]) -> AsyncIterator[LiveStreams]:
    """Start to listen, and stop in the order in which each still needs the next: agents, streams, listener."""
    async with AsyncExitStack() as stack:
        sessions, runs = OpenSessionService(pool), RunService(pool)
        listener = PgNotifyListener(settings.dsn or "", pool, schema=settings.schema_name)
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
