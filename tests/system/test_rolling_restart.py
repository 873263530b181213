"""Writers restarted under their clients: those that append, page through lists and follow streams."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from tests.support.documented_routes import NOBODY, asked_operations, document, filled, routine
from tests.support.stream_client import frames_of
from tests.support.waiting import WAIT_SECONDS, until
from tests.support.writer_process import KEY, StartedWriter, append, say

pytestmark = pytest.mark.system

CLIENTS = 8
ATTEMPTS_MAX = 20
PAUSE_SECONDS = 0.05
#: Of a start, the part from the first connection that is accepted to its answer: a hundredth or two.
ANSWER_SHARE_MAX = 0.25
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
    """Every append succeeds within its attempts and is stored once; the first connection that a started writer takes is
    answered at once, and not refused."""
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
            began = time.monotonic()
            writer.start()
            answer, seconds = await asyncio.to_thread(writer.first_answer, f"{SESSIONS}/s0")
            assert answer.status_code == 200, answer.text
            assert seconds < ANSWER_SHARE_MAX * (time.monotonic() - began)
        clients.is_over = True
        await asyncio.gather(*running)
        await clients.close()
    assert clients.errors == []
    stored = [row["id"] for row in await pool.fetch("SELECT id FROM events")]
    assert sorted(stored) == sorted(clients.acknowledged)
    print(f"{len(stored)} appends; the longest took {clients.longest_seconds:.2f} s with its retries")


OWNER = {"X-App-Name": "app", "X-User-Id": NOBODY, "Authorization": f"Bearer {KEY}"}


async def test_what_was_begun_at_a_killed_writer_goes_on_at_the_next_one(dsn: str, tmp_path: Path) -> None:
    """Every list of the document continues where the cursor of the former process says; a stream that was followed
    there loses and repeats no frame; and a ticket of the former process opens one."""
    path = f"/v1/apps/app/users/{NOBODY}/sessions"
    with StartedWriter(dsn, tmp_path / "log", api_key=KEY, provider="local") as writer:
        async with httpx.AsyncClient(base_url=writer.url, headers=OWNER, timeout=WAIT_SECONDS) as client:
            await _fill(client, path)
            frames: list[str] = []
            following = asyncio.create_task(_follow(client, f"/api/threads/{NOBODY}/events", frames))
            turns = itertools.count()

            async def arrives() -> bool:
                """Say a turn, and return whether one has arrived since the first try."""
                assert (await append(client, f"{path}/{NOBODY}", say(f"turn {next(turns)};"))).is_success
                return bool(frames)

            await until(arrives, "the stream has begun")
            ticket = (await client.post("/api/tickets", json={"thread_id": NOBODY})).json()["ticket"]
            pages = await _second_pages(client)

            assert writer.process is not None
            writer.process.kill()
            writer.process.wait(WAIT_SECONDS)
            writer.start()
            await asyncio.to_thread(writer.wait_until_serving)

            for url, (parameters, items) in pages.items():
                reply = await client.get(url, params=parameters)
                assert reply.status_code == 200, (url, reply.text)
                assert _items(reply.json()) == items, url
            last = f"turn {next(turns)};"
            assert (await append(client, f"{path}/{NOBODY}", say(last))).is_success
            await until(lambda: last in "".join(frames), "the stream goes on")
            following.cancel()
            seen = [int(number) for frame in frames for number in re.findall(r"turn (\d+);", frame)]
            assert seen == list(range(seen[0], next(turns))), frames
        async with httpx.AsyncClient(base_url=writer.url, timeout=WAIT_SECONDS) as stranger:
            url = f"/api/threads/{NOBODY}/events"
            assert (await stranger.get(url)).status_code == 401
            async with stranger.stream("GET", url, params={"ticket": ticket}) as response:
                assert response.status_code == 200
    assert len(pages) > 8, list(pages)


async def _fill(client: httpx.AsyncClient, path: str) -> None:
    """Two rows at least of what most lists hold."""
    for session in (NOBODY, "other"):
        assert (await client.post(path, json={"session_id": session})).is_success
    for number in range(3):
        assert (await append(client, f"{path}/{NOBODY}", say(f"{number}"))).is_success
    # The same memory, remembered again, would be stored once.
    for content in ("One.", "Another."):
        memories = f"/v1/apps/app/users/{NOBODY}/memories"
        assert (await client.post(memories, json={"content": content})).is_success
    page = await document(client)
    for method, place, operation in sorted(asked_operations(page), key=lambda each: each[0] == "POST"):
        if method in ("PUT", "POST") and "/sessions/" not in place and "forget" not in place and "{" in place:
            request = routine(page, place, operation, "app")
            for name in (NOBODY, "other"):
                names = dict.fromkeys(("key", "corpus", "name", "fact_type"), name)
                async with client.stream(method, filled(place, operation, "app", names), **request):
                    pass


async def _second_pages(client: httpx.AsyncClient) -> dict[str, tuple[dict[str, Any], list[Any]]]:
    """For each list with two rows: how to ask for its second page, and what is on it."""
    found = {}
    page = await document(client)
    for method, place, operation in asked_operations(page):
        if not any(each["name"] == "cursor" for each in operation.get("parameters", ())):
            continue
        url = filled(place, operation, "app", {})
        parameters = {**routine(page, place, operation, "app")["params"], "limit": 1}
        first = await client.request(method, url, params=parameters)
        cursor = first.json().get("next_cursor") if first.status_code == 200 else None
        if cursor is not None:
            parameters["cursor"] = cursor
            second = await client.get(url, params=parameters)
            assert second.status_code == 200, (url, second.text)
            if items := _items(second.json()):
                assert items != _items(first.json())
                found[url] = (parameters, items)
    return found


def _items(body: dict[str, Any]) -> list[Any]:
    """The list of a page, without what changes by the second."""
    (items,) = [value for value in body.values() if isinstance(value, list)][:1] or [[]]
    return [json.dumps(each, sort_keys=True) for each in items]


async def _follow(client: httpx.AsyncClient, url: str, frames: list[str]) -> None:
    """Follow a stream as an EventSource does: reconnect after each end, with the last id."""
    last: dict[str, str] = {}
    while True:
        try:
            async with client.stream("GET", url, headers=last) as response:
                async for frame in frames_of(response):
                    frames.append(frame.decode())
                    if frame.startswith(b"id: "):
                        last = {"Last-Event-ID": frame.split(b"\n")[0].removeprefix(b"id: ").decode()}
        except httpx.TransportError:
            pass
        await asyncio.sleep(PAUSE_SECONDS)
