"""Two writers restarted one after the other, under appends of clients that retry."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from pathlib import Path

import asyncpg
import httpx
import pytest

from tests.support.waiting import WAIT_SECONDS, until
from tests.support.writer_process import StartedWriter, append, say

pytestmark = pytest.mark.system

CLIENTS = 8
ATTEMPTS_MAX = 20
PAUSE_SECONDS = 0.05
SESSIONS = "/v1/apps/app/users/user/sessions"


class Clients:
    """Append one event after the other, each to the next writer where one does not answer."""

    def __init__(self, urls: list[str]) -> None:
        self._clients = [httpx.AsyncClient(base_url=url, timeout=WAIT_SECONDS, trust_env=False) for url in urls]
        self._ids = itertools.count()
        self.acknowledged: set[str] = set()
        self.errors: list[str] = []
        self.longest_seconds = 0.0
        self.is_over = False

    async def run(self, number: int) -> None:
        """Append until it is over."""
        while not self.is_over:
            event = say("A turn.", id=f"e{next(self._ids)}")
            began = time.monotonic()
            for attempt in range(ATTEMPTS_MAX):
                client = self._clients[(number + attempt) % len(self._clients)]
                try:
                    response = await append(client, f"{SESSIONS}/s{number}", event)
                except httpx.TransportError:
                    response = None
                if response is not None and response.is_success:
                    self.acknowledged.add(event["id"])
                    break
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                self.errors.append(event["id"])
            self.longest_seconds = max(self.longest_seconds, time.monotonic() - began)

    def has_more(self, count: int) -> Callable[[], bool]:
        """Return whether so many more appends were acknowledged, from now on."""
        enough = len(self.acknowledged) + count
        return lambda: len(self.acknowledged) >= enough

    async def create(self) -> None:
        """Create a session for each client."""
        for number in range(CLIENTS):
            response = await self._clients[0].post(SESSIONS, json={"session_id": f"s{number}"})
            assert response.status_code == 201

    async def close(self) -> None:
        """Close the connections."""
        await asyncio.gather(*(client.aclose() for client in self._clients))


@pytest.mark.timeout(180)
async def test_clients_with_retries_see_no_error(dsn: str, pool: asyncpg.Pool, tmp_path: Path) -> None:
    """Every append succeeds within its attempts and is stored once; a writer answers as soon as its port is open."""
    with (
        StartedWriter(dsn, tmp_path / "first.log") as first,
        StartedWriter(dsn, tmp_path / "second.log") as second,
    ):
        clients = Clients([first.url, second.url])
        await clients.create()
        running = [asyncio.create_task(clients.run(number)) for number in range(CLIENTS)]
        for writer in (first, second):
            assert await asyncio.to_thread(writer.stop) == 0
            await until(clients.has_more(CLIENTS), "appends go on at the other one")
            writer.start()
            await asyncio.to_thread(writer.wait_until_serving)
        clients.is_over = True
        await asyncio.gather(*running)
        await clients.close()
    assert clients.errors == []
    stored = [row["id"] for row in await pool.fetch("SELECT id FROM events")]
    assert sorted(stored) == sorted(clients.acknowledged)
    print(f"{len(stored)} appends; the longest took {clients.longest_seconds:.2f} s with its retries")
