"""The listener for half a minute of faults, and over restarts of its server."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from pulse import database
from pulse.notify.connection import ListenerTiming
from pulse.pg_notify_listener import PgNotifyListener
from pulse.session_service import OpenSessionService
from tests.conftest import FAST_SETTINGS
from tests.support.listener_drill import drill, kill_listener
from tests.support.waiting import until
from workers.embedded.server import EmbeddedServer
from workers.migrate import migrate

DURABLE = {**FAST_SETTINGS, "fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
TIMING = ListenerTiming(heartbeat_seconds=0.5, answer_seconds=2.0, poll_seconds=5.0, retry_seconds_max=0.5)


@pytest.mark.system
async def test_killed_every_second_for_half_a_minute_it_loses_and_duplicates_nothing(dsn: str) -> None:
    """100 events a second, the listener's backend killed every second: each watcher gets each event once, in order."""
    async with await database.create_pool(dsn, max_size=10) as pool:
        sessions, listener = OpenSessionService(pool), PgNotifyListener(dsn, pool, timing=TIMING)
        await listener.start()
        await until(lambda: listener.is_running)
        await drill(listener, sessions, lambda: kill_listener(dsn), seconds=30, every_seconds=1, strikes_min=25)
        assert listener.connects > 20
        await listener.stop()
        await sessions.close()


@pytest.mark.system
async def test_a_restart_of_the_server_loses_no_event(home: Path) -> None:
    """SIGQUIT to PostgreSQL in the middle, twice; afterwards watchers have every event once, in order."""
    server = EmbeddedServer(home, settings=DURABLE)
    dsn = server.start()
    try:
        await migrate(dsn)
        async with await database.create_pool(dsn, max_size=10) as pool:
            sessions, listener = OpenSessionService(pool), PgNotifyListener(dsn, pool, timing=TIMING)
            await listener.start()
            await until(lambda: listener.is_running)
            strikes = 0

            async def restart() -> None:
                nonlocal strikes
                strikes += 1
                if strikes in (2, 3):
                    os.kill(server.pid, signal.SIGQUIT)
                    await asyncio.to_thread(server.stop)
                    assert await asyncio.to_thread(server.start) == dsn

            await drill(listener, sessions, restart, seconds=6, every_seconds=2, strikes_min=3)
            await until(lambda: listener.is_running)
            await listener.stop()
            await sessions.close()
    finally:
        server.stop()
