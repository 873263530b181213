"""How streams end: exactly once and with a reason, whatever happens to the run, the session or the process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx
import pytest
import structlog
import websockets

from pulse.runs.agents import RUNS_AT_ONCE_MAX, RunContext
from pulse.runs.service import RunService
from pulse.session_service import OpenSessionService
from pulse.streams.deltas import PgDeltaCarrier
from tests.support.http_server import running
from tests.support.live_writer import LiveWriter, serving
from tests.support.stream_agents import ask, echo, wait
from tests.support.stream_client import OWNER, Page, asked, follow, frames_of, run_agent
from tests.support.waiting import WAIT_SECONDS, until
from tests.support.writer_process import KEY, problem
from workers.api.cells import CellDirectory, CellRouter
from workers.writer import _server_config

TERMINAL = {"RUN_FINISHED", "RUN_ERROR"}
LISTENING = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND query ~ '^LISTEN|pg_listening_channels'
"""


async def two_notes(run: RunContext) -> None:
    """Says two words, with a pause between them."""
    async with run.text() as text:
        await text.push("one ")
        await asyncio.sleep(0.1)
        await text.push("two")
    await run.set_state({"done": True})


AGENTS = {"default": two_notes, "echo": echo, "wait": wait, "ask": ask}


@pytest.fixture
async def writer(dsn: str) -> AsyncIterator[LiveWriter]:
    async with serving(dsn, AGENTS) as opened:
        yield opened


def asking(writer: LiveWriter) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=writer.url, headers=OWNER, timeout=WAIT_SECONDS)


async def begin(client: httpx.AsyncClient, thread: str, run: str, agent: str = "default", frames: int = 1) -> Page:
    """Post a run, and disconnect after a number of frames."""
    page = Page()
    body = asked(thread, run)
    page.reducer.messages = json.loads(json.dumps(body["messages"]))
    async with client.stream("POST", f"/agui/{agent}", json=body) as response:
        assert response.status_code == 200, await response.aread()
        async for frame in frames_of(response):
            page.take(frame)
            if len(page.frames) >= frames:
                break
    return page


async def over_socket(writer: LiveWriter, thread: str, **query: str) -> tuple[list[dict[str, Any]], int | None]:
    """Follow a thread over a WebSocket to its end. Return the events and the close code."""
    url = f"{writer.url.replace('http', 'ws')}/ws/events/{thread}?{httpx.QueryParams(query)}"
    received = []
    async with websockets.connect(url, additional_headers=OWNER) as opened:
        try:
            async for message in opened:
                received.append(json.loads(message))
        except websockets.ConnectionClosedError:
            pass
        return received, opened.close_code


async def over_get(client: httpx.AsyncClient, run: str) -> list[dict[str, Any]]:
    """Follow a run over SSE to its end, without checks."""
    received = []
    async with client.stream("GET", f"/api/runs/{run}/events") as response:
        async for frame in frames_of(response):
            received.append(json.loads(frame.split(b"data: ", 1)[1]))
    return received


async def test_a_post_that_is_cut_continues_over_get_without_duplicates(client: httpx.AsyncClient) -> None:
    """Cut after each of its frames and resumed by GET, a posted run ends like one that was never cut."""
    whole = await run_agent(client, asked("t", "whole"))
    for cut in range(1, len(whole.frames)):
        page = await begin(client, f"t-{cut}", f"cut-{cut}", frames=cut)
        while not page.is_over:
            await follow(client, f"cut-{cut}", page)
        page.rules.end()
        texts = [message["content"] for message in page.reducer.messages]
        assert texts == ["hi", "one two"], f"after {cut} frames"
        assert page.reducer.state == whole.reducer.state


async def test_every_follower_gets_the_last_event_once(writer: LiveWriter, client: httpx.AsyncClient) -> None:
    """A run is cancelled, failed and reaped at the same moment. Its POST, its GETs, its socket and the thread's socket,
    all fed by one listening connection, receive the same single end, and nothing after it."""
    posting = asyncio.create_task(run_agent(client, asked("t", "r"), "wait"))
    await until(lambda: writer.live.runner.running == 1)
    gets = [asyncio.create_task(over_get(client, "r")) for _ in range(3)]
    socket = asyncio.create_task(over_socket(writer, "t", run_id="r"))
    thread = asyncio.create_task(over_socket(writer, "t"))
    await until(lambda: writer.live.streams.followers == 6)
    assert await writer.pool.fetchval(LISTENING) == 1
    await writer.pool.execute("UPDATE runs SET lease_until = engine_now() - interval '1 s'")
    (run,) = await writer.live.runs.list_runs("shop", "mei", "t")
    ends = [client.post("/api/runs/r/cancel"), writer.live.runs.reap(), writer.live.runs.fail(run, "lost")]
    await asyncio.gather(*ends, return_exceptions=True)
    (ended,) = (await posting).reducer.ends
    from_socket, code = await socket
    assert code == 1000
    for received in (*await asyncio.gather(*gets), from_socket):
        assert [each["type"] for each in received if each["type"] in TERMINAL] == [ended["type"]]
        assert received[-1]["type"] == ended["type"]
    stored = "SELECT count(*) FROM events WHERE event_type IN ('complete', 'error', 'cancelled')"
    assert await writer.pool.fetchval(stored) == 1
    page = Page()
    await follow(client, "r", page)
    assert len(page.reducer.ends) == 1
    again = await client.get("/api/runs/r/events", headers={"Last-Event-ID": page.last_id or ""})
    assert again.status_code == 204
    await client.delete("/v1/apps/shop/users/mei/sessions/t")
    from_thread, code = await thread
    assert code == 4404
    assert [each["type"] for each in from_thread if each["type"] in TERMINAL] == [ended["type"]]


@pytest.mark.parametrize("way", ["deleted", "expired", "unheard"])
async def test_streams_end_with_a_reason_when_their_session_is_gone(
    writer: LiveWriter, client: httpx.AsyncClient, way: str
) -> None:
    """Deleted or expired: sockets close with 4404, SSE ends with RUN_ERROR, and no follower is left.

    A deletion without a notification is found by the next poll."""
    posting = asyncio.create_task(run_agent(client, asked("t", "r"), "wait"))
    await client.post("/v1/apps/shop/users/mei/sessions", json={"session_id": "idle"})
    await until(lambda: writer.live.streams.followers == 1)
    getting = asyncio.create_task(over_get(client, "r"))
    sockets = [over_socket(writer, "t"), over_socket(writer, "idle"), over_socket(writer, "t", run_id="r")]
    opened = [asyncio.create_task(each) for each in sockets]
    gone = writer.live.streams.gone
    await until(lambda: writer.live.streams.followers == 5 and gone.watchers == 3)
    if way == "deleted":
        for session in ("t", "idle"):
            assert (await client.delete(f"/v1/apps/shop/users/mei/sessions/{session}")).status_code == 204
    elif way == "expired":
        await writer.pool.execute(
            "UPDATE threads SET ttl = '1 s', updated_at = now() - interval '1 h', expires_at = now()"
        )
        gone._watched.mark_all()
    else:
        async with writer.pool.acquire() as connection, connection.transaction():
            await connection.execute("SET LOCAL session_replication_role = replica")
            await connection.execute("DELETE FROM threads")
        gone._watched.mark_all()
    received = [*(await asyncio.gather(*opened)), (await getting, 4404)]
    for events, code in received:
        assert code == 4404
        ends = [each.get("code") for each in events if each["type"] in TERMINAL]
        assert ends == (["session_gone"] if events else [])
    assert (await posting).reducer.ends[0]["code"] == "session_gone"
    assert (await client.get("/api/runs/r/events")).status_code == 404
    await until(lambda: (gone.watchers, writer.live.streams.hubs, writer.live.listener.subscriptions) == (0, 0, 0))


async def test_clients_can_resume_at_a_process_that_accepts_no_more_runs(dsn: str) -> None:
    """A process at its limit of concurrent runs refuses a new one, and still streams those it executes."""
    async with (
        serving(dsn, AGENTS) as writer,
        httpx.AsyncClient(base_url=writer.url, headers=OWNER, timeout=WAIT_SECONDS) as client,
    ):
        assert (writer.live.runner._runs_at_once_max, RUNS_AT_ONCE_MAX) == (500, 500)
        writer.live.runner._runs_at_once_max = 1
        page = await begin(client, "t", "r", "wait")
        refused = await client.post("/agui/wait", json=asked("t2", "r2"))
        assert problem(refused)["type"] == "/problems/overloaded"
        assert await writer.pool.fetchval("SELECT count(*) FROM runs") == 1
        headers = {"Last-Event-ID": page.last_id or ""}
        async with client.stream("POST", "/agui/wait", json=asked("t", "r"), headers=headers) as response:
            assert response.status_code == 200
            await client.post("/api/runs/r/cancel")
            async for frame in frames_of(response):
                page.take(frame)
        assert page.reducer.ends[0]["outcome"] == {"type": "cancelled"}


async def test_an_unexpected_error_costs_one_poll_and_no_stream(
    writer: LiveWriter, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading pieces, reading events and looking for lost sessions each fail once. The failure is counted, polling
    continues, and the run's stream ends normally."""
    live = writer.live

    def failing_once(watched: Any) -> None:
        whole, faults = watched.read, [ZeroDivisionError("unexpected")]

        async def fail(keys: Any) -> None:
            if faults:
                raise faults.pop()
            await whole(keys)

        monkeypatch.setattr(watched, "read", fail)

    for owner in (live.carrier, live.listener, live.streams.gone):
        failing_once(owner._watched)
    thread = uuid.uuid4()
    live.streams.gone.watch(thread, lambda: None)
    live.streams.gone._watched.mark(thread)
    page = await run_agent(client, asked("t", "r"))
    assert [message["content"] for message in page.reducer.messages] == ["hi", "one two"]
    await until(lambda: (live.carrier.failures, live.listener.failures, live.streams.gone.failures) == (1, 1, 1))
    assert live.listener.is_running
    assert live.carrier._watched.is_running
    assert live.streams.gone._watched.is_running


async def test_a_failed_heartbeat_is_followed_by_the_next(
    writer: LiveWriter, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unexpected error costs one heartbeat. A cancellation that only the heartbeat sees still takes effect."""
    faults, renew = [ZeroDivisionError("unexpected")], writer.live.runs.renew
    writer.live.runner._heartbeat._interval_seconds = 0.05

    async def fail(runs: Any) -> Any:
        if faults:
            raise faults.pop()
        return await renew(runs)

    monkeypatch.setattr(writer.live.runs, "renew", fail)
    posting = asyncio.create_task(run_agent(client, asked("t", "r"), "wait"))
    await until(lambda: writer.live.streams.followers == 1 and not faults)
    await writer.pool.execute("UPDATE runs SET cancel_requested_at = now()")
    assert (await posting).reducer.ends[0]["outcome"] == {"type": "cancelled"}


async def test_a_failed_translation_ends_its_streams_with_an_error(
    writer: LiveWriter, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error in the bridge ends SSE with RUN_ERROR and a socket with 1011. Other runs continue."""
    posting = asyncio.create_task(run_agent(client, asked("t", "r"), "wait"))
    await until(lambda: writer.live.streams.followers == 1)
    socket = asyncio.create_task(over_socket(writer, "t", run_id="r"))
    other = asyncio.create_task(run_agent(client, asked("t2", "r2"), "wait"))
    await until(lambda: writer.live.streams.followers == 3)
    (hub,) = (each for key, each in writer.live.streams._hubs.items() if key.run_id == "r")

    def fail(_: Any) -> Any:
        raise KeyError("unexpected")

    monkeypatch.setattr(hub.bridge, "store", fail)
    for run in ("r", "r2"):
        await client.post(f"/api/runs/{run}/cancel")
    assert (await posting).reducer.ends[0]["code"] == "stream_failed"
    received, code = await socket
    assert (received[-1]["code"], code) == ("stream_failed", 1011)
    assert (await other).reducer.ends[0]["outcome"] == {"type": "cancelled"}
    page = Page()
    await follow(client, "r", page)
    assert page.reducer.ends[0]["outcome"] == {"type": "cancelled"}


class Unregistered:
    """An agent of which one thing cannot be read."""

    @property
    def runs_alone(self) -> bool:
        raise KeyError("unexpected")

    async def __call__(self, run: RunContext) -> None:
        raise AssertionError("it never begins")


async def test_an_unexpected_error_while_a_run_begins_is_reported(dsn: str) -> None:
    """An error of the program or of the database, over a socket, is logged like that of a request, with where it
    happened, and counted. The client gets RUN_ERROR and a close with the reason; before the socket is open, only the
    close."""
    async with serving(dsn, {**AGENTS, "unregistered": Unregistered()}) as writer:
        address = f"{writer.url.replace('http', 'ws')}/ws/agui"

        async def refused(path: str) -> tuple[list[str], int | None, str]:
            async with websockets.connect(f"{address}{path}", additional_headers=OWNER) as opened:
                with contextlib.suppress(websockets.ConnectionClosed):
                    await opened.send(json.dumps(asked("t", "r")))
                codes: list[str] = []
                with contextlib.suppress(websockets.ConnectionClosedError):
                    async with asyncio.timeout(WAIT_SECONDS):
                        async for message in opened:
                            codes.append(json.loads(message)["code"])
                await opened.wait_closed()
                return codes, opened.close_code, str(opened.close_reason).partition(":")[0]

        with structlog.testing.capture_logs() as logged:
            assert await refused("/unregistered") == (["internal-error"], 1011, "internal-error")
            await writer.pool.execute(
                "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM 1 / 0; END'"
            )
            await writer.pool.execute("CREATE TRIGGER fail BEFORE INSERT ON runs FOR EACH ROW EXECUTE FUNCTION fail()")
            assert await refused("/echo") == (["internal-error"], 1011, "internal-error")
            await writer.pool.execute("ALTER TABLE stream_tickets RENAME TO tickets")
            await writer.pool.execute("CREATE VIEW stream_tickets AS SELECT * FROM tickets WHERE 1 / length('') = 1")
            assert await refused("/echo?ticket=any") == ([], 4500, "internal-error")
        crashes = [line for line in logged if line["event"] == "request_crashed"]
        assert [(line["error"], line["sqlstate"]) for line in crashes] == [
            ("KeyError", None),
            ("DivisionByZeroError", "22012"),
            ("DivisionByZeroError", "22012"),
        ]
        assert "runs_alone" in crashes[0]["where"][-1]
        closes = [(line["code"], line["by"]) for line in logged if line["event"] == "socket_closed"]
        assert closes == [(1011, "server"), (1011, "server"), (4500, "server")]
        labels = {"method": "GET", "route": "/ws/agui/{agent_name}", "status": "500"}
        assert writer.metrics.registry.get_sample_value("writer_requests_total", labels) == 3


async def test_an_orphaned_run_is_reported_as_failed_everywhere(dsn: str, pool: asyncpg.Pool) -> None:
    """Another process ends a run whose lease was lost. No list shows it as running, its process stops the agent and
    keeps listening, and every follower gets the end."""
    async with (
        serving(dsn, AGENTS) as writer,
        httpx.AsyncClient(base_url=writer.url, headers=OWNER, timeout=WAIT_SECONDS) as client,
    ):
        live = writer.live
        live.runner._heartbeat._interval_seconds = 0.05
        posting = asyncio.create_task(run_agent(client, asked("t", "r"), "wait"))
        await until(lambda: live.runner.running == 1)
        await until(lambda: live.streams.followers == 1)
        listed = (await client.get("/api/threads")).json()["threads"]
        assert listed[0]["newest_run"]["status"] == "running"
        reaper = RunService(pool)
        while await reaper.reap() == 0:
            await pool.execute("UPDATE runs SET lease_until = engine_now() - interval '1 s' WHERE status = 'running'")
        await reaper.close()
        assert (await posting).reducer.ends[0]["code"] == "orphaned"
        await until(lambda: live.runner.running == 0)
        listed = (await client.get("/api/threads")).json()["threads"]
        assert listed[0]["newest_run"]["status"] == "failed"
        assert live.listener.is_running
        assert (await client.get("/health")).json()["listener_running"] is True
        assert await pool.fetchval("SELECT count(*) FROM runs WHERE status = 'running'") == 0


async def test_a_failed_watcher_does_not_affect_the_others(pool: asyncpg.Pool) -> None:
    """A watcher of pieces that raises is removed and counted. The next one of the same run still receives them."""
    from pulse.live_text import LiveMessage, RunKey

    class Reader:
        def __init__(self, run: RunKey, error: Exception | None) -> None:
            self.run, self.error, self.text = run, error, ""

        def offsets(self) -> dict[str, int]:
            return {"m": len(self.text)} if self.text else {}

        def receive(self, messages: list[LiveMessage]) -> None:
            if self.error is not None:
                raise self.error
            self.text += "".join(each.text for each in messages)

    session = await OpenSessionService(pool).create_session("app", "ann")
    run = RunKey(session.thread_id, "r")
    carrier = PgDeltaCarrier(pool)
    await carrier.start()
    broken, whole = Reader(run, ValueError("the watcher failed")), Reader(run, None)
    await carrier.push(run, "m", kind="text", offset=0, text="said")
    carrier.watch(broken)  # type: ignore[arg-type]  # a list is a sequence
    carrier.watch(whole)  # type: ignore[arg-type]  # as above
    await until(lambda: whole.text == "said")
    assert (carrier.watchers, carrier.failures) == (1, 1)
    await carrier.stop()


async def test_a_deleted_key_disappears_from_every_client(writer: LiveWriter, client: httpx.AsyncClient) -> None:
    """Over HTTP a key is deleted by its escape. Connected clients and later ones no longer have it."""
    await client.post(
        "/v1/apps/shop/users/mei/sessions", json={"session_id": "t", "state": {"gone": {"a": 1}, "null": 1}}
    )
    posting = asyncio.create_task(run_agent(client, asked("t", "r"), "wait"))
    await until(lambda: writer.live.streams.followers == 1)
    delta = {"gone": {"$hippocampus": ["deleted"]}, "null": None}
    event = {"author": "system", "event_type": "state_update", "actions": {"state_delta": delta}}
    appended = await client.post("/v1/apps/shop/users/mei/sessions/t/events", json={"events": [event]})
    assert appended.status_code == 201, appended.text
    stored = (await client.get("/v1/apps/shop/users/mei/sessions/t/events")).json()["events"]
    assert stored[-1]["actions"]["state_delta"] == delta
    nested = {**event, "actions": {"state_delta": {"a": {"within": delta["gone"]}}}}
    refused = await client.post("/v1/apps/shop/users/mei/sessions/t/events", json={"events": [nested]})
    assert problem(refused)["type"] == "/problems/invalid-request"
    await client.post("/api/runs/r/cancel")
    page, late = await posting, Page()
    await follow(client, "r", late)
    assert page.reducer.state == late.reducer.state == {"null": None}
    assert (await client.get("/api/threads/t/state")).json()["session"] == {"null": None}
    changes = (await client.get("/v1/apps/shop/users/mei/sessions/t/state/changes", params={"since_version": 1})).json()
    assert changes["state"] == delta
    (change,) = (await client.get("/api/threads/t/state/history")).json()["changes"]
    assert change["delta"] == delta


async def test_a_run_is_inaccessible_to_other_users(writer: LiveWriter, client: httpx.AsyncClient) -> None:
    """Neither its id nor a cursor opens it to another user, by POST, by GET or over a socket. Routes that send
    notifications exist only if a setting enables them."""
    page = await run_agent(client, asked("t", "r"))
    eve = {"X-User-Id": "eve"}
    resuming = {"Last-Event-ID": page.last_id or "", **eve}
    taken = await client.post("/agui/echo", json=asked("t", "r"), headers=resuming)
    assert problem(taken)["type"] == "/problems/run-conflict"
    assert "two" not in taken.text
    assert (await client.get("/api/runs/r/events", headers=resuming)).status_code == 404
    assert (await client.get("/api/threads/t/state", headers=eve)).status_code == 404
    url = f"{writer.url.replace('http', 'ws')}/ws/events/t?offset={page.last_id}"
    async with websockets.connect(url, additional_headers={**OWNER, **eve}) as opened:
        await opened.wait_closed()
    assert opened.close_code == 4404
    for path in ("/api/test-notify", "/api/test-sse-notify/r"):
        assert problem(await client.get(path))["type"] == "/problems/no-such-route"


async def test_a_page_of_another_site_can_read_when_to_reconnect(dsn: str) -> None:
    """The answer that an EventSource survives has the header without which its browser would end it for good: where a
    route refuses, and where the limit of a key's rate does, before any route. Pages of other sites get no such header.
    """
    page, other = "http://localhost:3000", "http://localhost:4000"
    survives = {"Accept": "text/event-stream"}
    settings = {"stream_origins": page, "requests_per_second": 0.001, "requests_burst": 3}
    async with serving(dsn, AGENTS, **settings) as writer, asking(writer) as client:
        await run_agent(client, asked("t", "r"), "echo")
        writer.live.streams.begin_stop()
        for refused in ("ending", "too-many-requests", "too-many-requests"):
            at = await client.get("/api/runs/r/events", headers={**survives, "Origin": page})
            assert (at.status_code, at.text.partition("\n")[0]) == (200, f": /problems/{refused}")
            assert (at.headers["access-control-allow-origin"], at.headers["vary"]) == (page, "Origin")
            foreign = await client.get("/api/runs/r/events", headers={**survives, "Origin": other})
            assert "access-control-allow-origin" not in foreign.headers


async def test_a_page_of_another_site_waits_for_a_cell_that_is_not_reached_yet() -> None:
    """The answer comes from before any cell's API, and can be read all the same."""
    router = CellRouter(CellDirectory(), frozenset({"https://page.example"}))
    headers = {"Accept": "text/event-stream", "Origin": "https://page.example"}
    async with running(_server_config(router, 1_000_000)) as served, httpx.AsyncClient(timeout=WAIT_SECONDS) as client:
        refused = await client.get(f"{served.url}/api/runs/r/events", headers=headers)
    assert refused.text.startswith(": /problems/database-unreachable\nretry: ")
    assert refused.headers["access-control-allow-origin"] == "https://page.example"


async def test_pages_that_send_a_post_need_both_lists_of_origins(dsn: str) -> None:
    """A browser asks before a POST with a body of JSON. A page that may follow streams is refused the POST unless it
    may also call the API, and one that may only call the API is refused the run."""
    page, caller = "https://page.example", "https://caller.example"
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    for cors_origins, status in (("", 401), (f"{page},{caller}", 200)):
        settings = {"api_key": KEY, "stream_origins": page, "cors_origins": cors_origins}
        async with serving(dsn, AGENTS, **settings) as writer, asking(writer) as client:
            key = {"Authorization": f"Bearer {KEY}"}
            created = await client.post("/v1/apps/shop/users/mei/sessions", json={"session_id": "t"}, headers=key)
            assert created.status_code in (201, 409)
            given = {"thread_id": "t", "may_run": True}
            ticket = {"ticket": (await client.post("/api/tickets", json=given, headers=key)).json()["ticket"]}
            for path in ("/agui", "/agui/echo", "/api/runs/r/cancel"):
                preflight = await client.options(path, params=ticket, headers={"Origin": page, **asks})
                assert preflight.status_code == status
                assert ("access-control-allow-origin" in preflight.headers) is bool(cors_origins)
            if cors_origins:
                ran = await client.post("/agui/echo", params=ticket, json=asked("t", "r"), headers={"Origin": page})
                assert (ran.status_code, ran.headers["access-control-allow-origin"]) == (200, page)
                refused = await client.post("/agui", params=ticket, json=asked("t", "s"), headers={"Origin": caller})
                assert problem(refused)["type"] == "/problems/wrong-origin"
