"""PgBouncer in transaction mode: everything goes through it but what needs a session of its own."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest

from pulse import Event, OpenSessionService, PgNotifyListener, Pool, PoolerError, SchemaError, connect, create_pool
from pulse.notify.connection import ListenerTiming
from tests.conftest import cloned, dsn_of
from tests.support import autonomic_scene, cli_process, pgbouncer
from tests.support.least_privilege import address_of
from tests.support.waiting import WAIT_SECONDS, until
from tests.support.worker_harness import Workers
from tests.support.writer_process import WriterProcess, append, say
from workers.embedded.server import EmbeddedServer
from workers.migrate import migrate

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]

SESSIONS = 20
EVENTS = 5
BACKENDS = 5
WORKERS = ("fast_replay", "deep_reflection", "retention", "pulse")
ROLES = ("writer",), *(("worker", each) for each in WORKERS)
NEVER = ListenerTiming(poll_seconds=3600)


@pytest.fixture
def pooled(dsn: str, home: Path) -> Iterator[str]:
    """The address of this test's database through PgBouncer, which keeps fewer backends than the test has clients."""
    with pgbouncer.running(home, dsn, size=BACKENDS) as address:
        yield address


async def test_all_roles_work_through_it(dsn: str, pooled: str, workers: Workers, tmp_path: Path) -> None:
    """Concurrent sessions over five backends: appends, jobs, search, retention; LISTEN and locks go to the server."""
    await pgbouncer.wait_until_serving(pooled)
    workers.dsn = pooled
    local = {"generator": "local", "embedder": "local"}
    for pool_name in WORKERS:
        await workers.start(pool_name, module="workers", direct_database_url=address_of(dsn, "worker"), **local)
    direct = address_of(dsn, "writer")
    with WriterProcess(pooled, tmp_path / "writer.log", direct_database_url=direct, **local) as writer:
        async with httpx.AsyncClient(base_url=writer.url, timeout=60) as client, await create_pool(pooled) as pool:
            listener = PgNotifyListener(dsn, pool, timing=NEVER)
            await listener.start()
            received: list[Event] = []
            thread = await _first(client, pool)
            listener.subscribe(thread, received.extend, after_sequence=1)
            await asyncio.gather(*(_converse(client, number) for number in range(SESSIONS)))
            await until(lambda: len(received) == EVENTS - 1, "notifications arrive")
            await listener.stop()

            sessions = OpenSessionService(pool)
            for number in range(SESSIONS):
                await sessions.finalize_session("app", "user", f"s{number}")
            open_jobs = "SELECT NOT EXISTS (SELECT FROM consolidation_jobs WHERE status <> 'completed')"
            await until(lambda: pool.fetchval(open_jobs), "every job is done")
            assert await pool.fetchval("SELECT count(*) FROM events") == SESSIONS * EVENTS
            assert await pool.fetchval("SELECT count(DISTINCT session_id) FROM threads WHERE last_seq = $1", EVENTS)
            found = await client.post("/v1/apps/app/users/user/search", json={"query": "which pet does session 7 have"})
            assert "pet 7" in json.dumps(found.json()), found.text
            await until(lambda: _is_healthy(client), "the writer is healthy")
            await autonomic_scene.wait_until_it_acts(pool)
        events = [line["event"] for line in writer.log()]
        assert "listener_started" in events
        assert not {"listener_lost", "listener_failed"} & set(events)
    assert not any("prepared statement" in each.lines() or "Traceback" in each.lines() for each in workers.started)

    # The backends that PgBouncer keeps, and those that the roles opened themselves: locks, LISTEN and the queue.
    with psycopg.connect(dsn) as connection:
        names = connection.execute(
            "SELECT application_name, count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() GROUP BY 1"
        ).fetchall()
    assert {"hippocampus", "hippocampus queue"} <= {name for name, _ in names}
    config = {"DATABASE_URL": pooled, "HIPPOCAMPUS_DIRECT_DATABASE_URL": dsn}
    report = await asyncio.to_thread(cli_process.run, tmp_path / "none", "doctor", "--json", **config)
    lines = {each["check"]: each for each in json.loads(report.stdout)}
    assert lines["pooler"]["verdict"] == "ok"
    assert lines["pooler"]["found"] == "through a pooler; LISTEN and locks by HIPPOCAMPUS_DIRECT_DATABASE_URL"
    assert lines["limits"]["verdict"] == "warning"


async def _is_healthy(client: httpx.AsyncClient) -> bool:
    return (await client.get("/health")).status_code == 200


async def _first(client: httpx.AsyncClient, pool: Pool) -> object:
    for number in range(SESSIONS):
        path = f"/v1/apps/app/users/user/sessions/s{number}"
        created = await client.post("/v1/apps/app/users/user/sessions", json={"session_id": f"s{number}"})
        assert created.status_code == 201, created.text
        assert (await append(client, path, say(f"I am session {number}."))).status_code == 201
    return await pool.fetchval("SELECT id FROM threads WHERE session_id = 's0'")


async def _converse(client: httpx.AsyncClient, number: int) -> None:
    for turn in range(1, EVENTS):
        path = f"/v1/apps/app/users/user/sessions/s{number}"
        answer = await append(client, path, say(f"Session {number} has a pet {number} of kind {turn}."))
        assert answer.status_code == 201, answer.text


async def test_a_role_without_a_direct_address_says_so(pooled: str, dsn: str, tmp_path: Path) -> None:
    """Every role and `migrate` refuse with the setting's name; `doctor` has a line for it. No traceback."""
    await pgbouncer.wait_until_serving(pooled)
    run = asyncio.to_thread
    for config in ({"DATABASE_URL": pooled}, {"DATABASE_URL": dsn, "HIPPOCAMPUS_DIRECT_DATABASE_URL": pooled}):
        for words in (*ROLES, ("migrate",)) if len(config) == 1 else ROLES[1:2]:
            done = await run(cli_process.run, tmp_path / "none", *words, **config, HIPPOCAMPUS_API_PORT="0")
            said = done.stdout + done.stderr
            assert done.returncode != 0, words
            assert "Set HIPPOCAMPUS_DIRECT_DATABASE_URL to the server's own address" in said, words
            assert "Traceback" not in said
        report = await run(cli_process.run, tmp_path / "none", "doctor", "--json", **config)
        (line,) = [each for each in json.loads(report.stdout) if each["check"] == "pooler"]
        assert line["verdict"] == "problem"
        assert "HIPPOCAMPUS_DIRECT_DATABASE_URL" in line["fix"]


async def test_a_cell_behind_a_pooler_has_a_direct_address(
    dsn: str, pooled: str, server: EmbeddedServer, admin: psycopg.Connection, template: str, tmp_path: Path
) -> None:
    """Without one, its apps are not served and the move is refused, by the setting's name; with one, both work."""
    await pgbouncer.wait_until_serving(pooled)
    with cloned(admin, template) as name:
        main = dsn_of(server, name)
        config = {"DATABASE_URL": main, "HIPPOCAMPUS_CELLS": f"east={pooled}"}
        place = ("move", "shop", "--to", "east")
        refused = await asyncio.to_thread(cli_process.run, tmp_path / "none", *place, **config)
        assert refused.returncode != 0
        assert "its entry of HIPPOCAMPUS_DIRECT_CELLS" in refused.stderr
        with WriterProcess(main, tmp_path / "without", cells=f"east={pooled}") as writer:
            async with httpx.AsyncClient(base_url=writer.url, timeout=WAIT_SECONDS) as client:
                lines = await until(lambda: [each for each in writer.log() if each["event"] == "cell_unreachable"])
                assert lines[0]["error"] == "PoolerError"
                assert "its entry of HIPPOCAMPUS_DIRECT_CELLS" in lines[0]["reason"]
                other = await client.post("/v1/apps/other/users/ann/sessions", json={"session_id": "s"})
                assert other.status_code == 201, other.text

        direct = {"HIPPOCAMPUS_DIRECT_CELLS": f"east={dsn}"}
        placed = await asyncio.to_thread(cli_process.run, tmp_path / "none", *place, **config, **direct)
        assert placed.returncode == 0, placed.stderr
        both = {"cells": f"east={pooled}", "direct_cells": f"east={dsn}"}
        with WriterProcess(main, tmp_path / "with", **both) as writer:
            async with httpx.AsyncClient(base_url=writer.url, timeout=WAIT_SECONDS) as client:
                path = "/v1/apps/shop/users/ann/sessions"

                async def is_created() -> bool:
                    return (await client.post(path, json={"session_id": "s"})).status_code == 201

                await until(is_created, "the cell is served")
                stored = await append(client, f"{path}/s", say("I am in the east."))
                assert stored.status_code == 201, stored.text
        with psycopg.connect(dsn) as connection:
            assert connection.execute("SELECT app_name, last_seq FROM threads").fetchall() == [("shop", 1)]


async def test_session_mode_keeps_sessions(dsn: str, home: Path) -> None:
    """A pooler in session mode may carry LISTEN and locks; one in transaction mode never passes for it."""
    with pgbouncer.running(home, dsn, mode="session") as address:
        await pgbouncer.wait_until_serving(address)
        connection = await connect(address, needs_session=True)
        await connection.close()
    home = home.with_name(home.name + "t")
    with pgbouncer.running(home, dsn, size=BACKENDS) as address:
        await pgbouncer.wait_until_serving(address)
        async with await create_pool(address, max_size=BACKENDS * 2) as pool:
            busy = [asyncio.create_task(_keep_busy(pool)) for _ in range(BACKENDS * 2)]
            for _ in range(20):
                with pytest.raises(PoolerError):
                    await connect(address, needs_session=True)
            for each in busy:
                each.cancel()
            await asyncio.gather(*busy, return_exceptions=True)


async def _keep_busy(pool: Pool) -> None:
    while True:
        await pool.fetchval("SELECT $1::int + 1", 1)


async def test_the_schema_is_right_through_it(dsn: str, pooled: str) -> None:
    """`?schema=` works once the role's search_path is set; before, nothing reads another installation's tables."""
    await pgbouncer.wait_until_serving(pooled)
    await migrate(dsn, schema="other")
    with pytest.raises(SchemaError, match='SET search_path = "other"'):
        await create_pool(f"{pooled}?schema=other")
    with psycopg.connect(dsn, autocommit=True) as admin:
        name = admin.info.dbname
        admin.execute(f'ALTER ROLE hippocampus IN DATABASE "{name}" SET search_path = "other"')
        # What RECONNECT in PgBouncer's console does. It finds those that have ended before it answers anew.
        admin.execute(
            "SELECT pg_terminate_backend(pid, %s) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()",
            (round(WAIT_SECONDS * 1000), name),
        )
        await pgbouncer.wait_until_serving(pooled)
        async with await create_pool(f"{pooled}?schema=other", min_size=4) as pool:
            sessions = OpenSessionService(pool)
            session = await sessions.create_session("app", "user", session_id="s")
            await asyncio.gather(*(pool.fetchval("SELECT pg_sleep(0.01)") for _ in range(8)))
            await sessions.append_event(session, Event(author="user", content={"text": "hello"}))
            with pytest.raises(SchemaError, match="in 'other', not in 'public'"):
                await create_pool(pooled)
        assert admin.execute("SELECT count(*) FROM other.events").fetchone() == (1,)
        assert admin.execute("SELECT count(*) FROM public.events").fetchone() == (0,)


async def test_what_it_costs(dsn: str, pooled: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The time of an append, directly and through it, in turns; printed, and both return the same."""
    await pgbouncer.wait_until_serving(pooled)
    async with await create_pool(dsn) as near, await create_pool(pooled) as far:
        results: dict[str, list[float]] = {}
        for name, pool in (("directly", near), ("through PgBouncer", far)) * 2:
            results.setdefault(name, []).extend(await _append_times(pool, 150))
    medians = {name: sorted(times)[len(times) // 2] * 1000 for name, times in results.items()}
    with capsys.disabled():
        print("\nan append: " + ", ".join(f"{ms:.2f} ms {name}" for name, ms in medians.items()))
    assert len(results["directly"]) == len(results["through PgBouncer"]) == 300


async def _append_times(pool: Pool, count: int) -> list[float]:
    sessions = OpenSessionService(pool)
    session = await sessions.create_session("app", "user")
    times = []
    for number in range(count):
        began = time.perf_counter()
        await sessions.append_event(session, Event(author="user", content={"text": f"turn {number}"}))
        times.append(time.perf_counter() - began)
    return times
