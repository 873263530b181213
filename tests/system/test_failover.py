"""The primary dies under load and its synchronous standby takes over: nothing is lost, every process follows."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
import httpx
import psycopg
import pytest
from mcp import StdioServerParameters
from mcp.client.client import Client

from hippocampus import ContextAssembler, MemorySearch
from pulse import Event, OpenSessionService, PgNotifyListener, create_pool
from pulse.postgres.replica import ReplicaReads
from tests.conftest import copied
from tests.support import autonomic_scene, cli_process, mcp_scene, replication
from tests.support.least_privilege import LOGINS, as_login, grant
from tests.support.stream_client import frames_of
from tests.support.waiting import WAIT_SECONDS, until
from tests.support.worker_harness import running_workers
from tests.support.writer_process import WriterProcess, append, say
from workers.embedded.server import EmbeddedServer
from workers.migrate import migrate
from workers.queue.liveness import STALLED_SECONDS

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

SETTINGS = {"max_connections": "100", "shared_buffers": "64MB", "max_wal_size": "1GB"}
OWNER = {"X-App-Name": "app", "X-User-Id": "user"}
PATH = "/v1/apps/app/users/user/sessions"
WRITERS = 8
AIM_SECONDS = 5.0


@pytest.fixture
def pair(home: Path) -> Iterator[tuple[EmbeddedServer, EmbeddedServer]]:
    """A primary with the schema, and its synchronous standby."""
    with EmbeddedServer(home, settings=SETTINGS) as primary:
        asyncio.run(migrate(primary.dsn))
        grant(primary.dsn)
        standby = replication.standby_of(primary, home.with_name(f"{home.name}s"))
        try:
            yield primary, standby
        finally:
            with psycopg.connect(standby.dsn, autocommit=True) as admin:
                if admin.execute("SELECT pg_is_in_recovery()").fetchone() != (False,):
                    admin.execute("SELECT pg_promote()")
            standby.stop()


@dataclass
class Load:
    """Appends from several sessions until it is stopped: each event until it is acknowledged."""

    url: str
    acknowledged: list[tuple[str, str, float]] = field(default_factory=list)  # session, event, when
    refusals: set[int] = field(default_factory=set)
    is_over: bool = False

    async def run(self) -> None:
        async with httpx.AsyncClient(base_url=self.url, timeout=10) as client:
            await asyncio.gather(*(self._write(client, f"s{number}") for number in range(WRITERS)))

    async def _write(self, client: httpx.AsyncClient, session: str) -> None:
        number = 0
        while not self.is_over:
            event = f"{session}-{number}"
            if await self._is_stored(client, session, event):
                self.acknowledged.append((session, event, time.monotonic()))
                number += 1
            else:
                await asyncio.sleep(0.05)

    async def _is_stored(self, client: httpx.AsyncClient, session: str, event: str) -> bool:
        try:
            answer = await append(client, f"{PATH}/{session}", say(f"I own cat {event}.", id=event))
        except httpx.TransportError:
            return False
        if answer.status_code not in (200, 201):
            self.refusals.add(answer.status_code)
        return answer.status_code in (200, 201)


@pytest.mark.timing
async def test_a_failover_under_load(
    pair: tuple[EmbeddedServer, EmbeddedServer], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """SIGKILL for the primary, pg_promote for the standby: writer, workers, ticks, streams, listener and MCP follow."""
    primary, standby = pair
    address = replication.address_of(primary, standby)
    models = {"generator": "local", "embedder": "local"}
    words = cli_process.command("mcp", "--app", "app", "--user", "user")
    mcp_server = StdioServerParameters(
        command=words[0], args=words[1:], env=cli_process.environment(tmp_path, DATABASE_URL=address)
    )
    with (
        running_workers(as_login(address, LOGINS["worker"]), tmp_path) as workers,
        WriterProcess(as_login(address, LOGINS["writer"]), tmp_path / "w.log", **models) as writer,
    ):
        for name in ("fast_replay", "deep_reflection", "retention", "pulse"):
            await workers.start(name, module="workers", **models)
        async with (
            await create_pool(address) as pool,
            httpx.AsyncClient(base_url=writer.url, timeout=60, headers=OWNER) as client,
            Client(mcp_server) as assistant,
        ):
            for number in range(WRITERS):
                assert (await client.post(PATH, json={"session_id": f"s{number}"})).status_code == 201
            listener = PgNotifyListener(address, pool)
            await listener.start()
            thread = await pool.fetchval("SELECT id FROM threads WHERE session_id = 's0'")
            await autonomic_scene.wait_until_it_acts(pool)
            received: list[Event] = []
            listener.subscribe(thread, received.extend, after_sequence=0)
            followed: list[bytes] = []
            stream = asyncio.create_task(_follow(client, "s0", followed))
            await mcp_scene.answer(assistant, "remember", {"content": "The user keeps many cats."})

            load = Load(writer.url)
            loading = asyncio.create_task(load.run())
            await until(lambda: len(load.acknowledged) > 300, "the load runs")
            killed = time.monotonic()
            await asyncio.to_thread(replication.kill, primary)
            await until(lambda: 503 in load.refusals, "the load meets the dead primary")
            promoting = time.monotonic()
            await asyncio.to_thread(_promote, standby)
            promoted = time.monotonic()
            await until(lambda: any(at > promoted for *_, at in load.acknowledged), "appends are accepted again")
            first = min(at for *_, at in load.acknowledged if at > promoting)
            count = len(load.acknowledged)
            await until(lambda: len(load.acknowledged) > count + 200, "the load goes on")
            load.is_over = True
            await loading

            stored = {
                (row["session_id"], row["id"])
                for row in await pool.fetch(
                    "SELECT session_id, e.id FROM events AS e JOIN threads AS t ON t.id = e.thread_id"
                )
            }
            assert {(session, event) for session, event, _ in load.acknowledged} <= stored
            last = await pool.fetchval("SELECT last_seq FROM threads WHERE id = $1", thread)
            await until(lambda: len(received) == last, "the listener delivers every event")
            assert [event.sequence_num for event in received] == list(range(1, last + 1))
            newest = [event for session, event, _ in load.acknowledged if session == "s0"][-1]
            await until(lambda: any(f"cat {newest}." in frame.decode() for frame in followed), "the stream goes on")
            stream.cancel()
            found = await mcp_scene.answer(assistant, "search_memory", {"query": "many cats"})
            assert "many cats" in json.dumps(found)
            await mcp_scene.answer(assistant, "remember", {"content": "The user has a new server."})

            sessions = OpenSessionService(pool)
            for number in range(WRITERS):
                await sessions.finalize_session("app", "user", f"s{number}")
            left = "SELECT NOT EXISTS (SELECT FROM consolidation_jobs WHERE status <> 'completed')"
            # What a worker could not report is given back only when its heartbeat is old.
            waited = WAIT_SECONDS + STALLED_SECONDS
            what = "every job is done by the workers that lived through it"
            await until(lambda: pool.fetchval(left), what, seconds=waited)
            await autonomic_scene.wait_until_it_acts(pool)
            await listener.stop()
            await sessions.close()
        assert all(worker.popen.poll() is None for worker in workers.started)
        health = await asyncio.to_thread(httpx.get, f"{writer.url}/health", timeout=WAIT_SECONDS)
        assert health.status_code == 200
    seconds = first - promoted
    with capsys.disabled():
        print(
            f"\nfailover: {len(load.acknowledged)} acknowledged appends, none lost; the first one"
            f" {first - promoting:.2f} s after pg_promote was sent, {seconds:+.2f} s after it returned"
            f" ({promoted - killed:.2f} s after SIGKILL)"
        )
    assert seconds < AIM_SECONDS


def _promote(standby: EmbeddedServer) -> None:
    with psycopg.connect(standby.dsn, autocommit=True) as admin:
        assert admin.execute("SELECT pg_promote()").fetchone() == (True,)


def _is_read_only(server: EmbeddedServer) -> bool:
    with psycopg.connect(server.dsn) as admin:
        return admin.execute("SHOW default_transaction_read_only").fetchone() == ("on",)


async def _follow(client: httpx.AsyncClient, session: str, frames: list[bytes]) -> None:
    """Follow a session as an EventSource does: reconnect after each end, with the last id."""
    last = None
    while True:
        headers = {} if last is None else {"Last-Event-ID": last}
        try:
            async with client.stream("GET", f"/api/threads/{session}/events", headers=headers) as response:
                if response.status_code == 200:
                    async for frame in frames_of(response):
                        frames.append(frame)
                        if frame.startswith(b"id: "):
                            last = frame.split(b"\n")[0].removeprefix(b"id: ").decode()
        except httpx.TransportError:
            pass
        await asyncio.sleep(0.1)


async def test_a_server_that_becomes_read_only_is_left(
    pair: tuple[EmbeddedServer, EmbeddedServer], tmp_path: Path
) -> None:
    """A former primary that refuses writes but lives, as after a switchover of a managed service, keeps nobody."""
    primary, standby = pair
    address = replication.address_of(primary, standby)
    async with await create_pool(address) as pool:
        sessions = OpenSessionService(pool)
        await sessions.create_session("app", "user", session_id="s")
        listener = PgNotifyListener(address, pool)
        await listener.start()
        await until(lambda: listener.is_running)
        with psycopg.connect(primary.dsn, autocommit=True) as admin:
            admin.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
            admin.execute("ALTER SYSTEM SET default_transaction_read_only = on")
            admin.execute("SELECT pg_reload_conf()")
        # A server that has read its settings has told its sessions to do so, and then takes new ones.
        await until(lambda: _is_read_only(primary), "the primary refuses writes")
        _promote(standby)

        async def appended() -> bool:
            try:
                await sessions.append("app", "user", "s", [Event(author="user", content={"text": "hi"}, id="one")])
            except (asyncpg.ReadOnlySQLTransactionError, OSError):
                return False
            return True

        await until(appended, "the pool finds the new primary")
        with psycopg.connect(standby.dsn, autocommit=True) as admin:
            assert admin.execute("SELECT count(*) FROM events").fetchone() == (1,)
            await until(lambda: listener.connects > 1 and listener.is_running, "the listener follows")
            listening = (
                "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                " AND (query LIKE '%pg_listening_channels%' OR query LIKE 'LISTEN%'))"
            )
            await until(lambda: admin.execute(listening).fetchone() == (True,), "it listens at the new primary")
        await listener.stop()
        await sessions.close()


async def test_reads_from_a_replica_show_every_write(
    pair: tuple[EmbeddedServer, EmbeddedServer], capsys: pytest.CaptureFixture[str]
) -> None:
    """A search finds the turn that was appended before it, on the replica if it is ready and on the primary if not."""
    primary, standby = pair
    with psycopg.connect(primary.dsn, autocommit=True) as admin:
        # The standby confirms what it has on its disk, not what it shows.
        admin.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
        admin.execute("SELECT pg_reload_conf()")
    async with await create_pool(primary.dsn) as pool:
        reads = ReplicaReads(pool, lambda: create_pool(standby.dsn, min_size=0))
        sessions, search, alone = OpenSessionService(pool), MemorySearch(pool, reads=reads), MemorySearch(pool)
        assembler = ContextAssembler(pool, reads=reads)
        session = await sessions.create_session("app", "user", session_id="s")

        async def is_found(number: int) -> bool:
            said = {"text": f"The code of door{number} is {number}."}
            await sessions.append_event(session, Event(author="user", content=said))
            found = await search.search(app_name="app", user_id="user", query=f"door{number}")
            return any(f"door{number} " in each.content for each in found.memories)

        assert all([await is_found(number) for number in range(40)])

        later = itertools.count(100)

        async def is_served_by_the_replica() -> bool:
            # One that was late is left alone for a while.
            assert await is_found(next(later))
            return reads.from_replica > 20

        await until(is_served_by_the_replica, "the replica is ready for most reads")
        window = await assembler.assemble(app_name="app", user_id="user", session_id="s", query="door7")
        assert "door7 " in window.text
        times: dict[str, list[float]] = {"primary": [], "replica": []}
        for _ in range(60):
            for name, each in (("primary", alone), ("replica", search)):
                began = time.perf_counter()
                await each.search(app_name="app", user_id="user", query="door3")
                times[name].append(time.perf_counter() - began)

        with psycopg.connect(standby.dsn, autocommit=True) as admin:
            admin.execute("SELECT pg_wal_replay_pause()")
            paused = "SELECT pg_get_wal_replay_pause_state()"
            await until(lambda: admin.execute(paused).fetchone() == ("paused",), "the replay has stopped")
            answered = reads.from_primary
            assert all([await is_found(number) for number in range(40, 45)])
            assert reads.from_primary == answered + 5
            admin.execute("SELECT pg_wal_replay_resume()")

        async def is_back() -> bool:
            before = reads.from_replica
            return await is_found(45) and reads.from_replica > before

        await until(is_back, "the replica is used again")
        await asyncio.to_thread(standby.stop)
        assert all([await is_found(number) for number in range(46, 50)])
        await asyncio.to_thread(standby.start)
        await reads.close()
        await sessions.close()
    medians = {name: sorted(each)[len(each) // 2] * 1000 for name, each in times.items()}
    with capsys.disabled():
        print("\na search: " + ", ".join(f"{ms:.1f} ms on the {name}" for name, ms in medians.items()))


@pytest.fixture
def other(made: Path, home: Path, pytestconfig: pytest.Config) -> Iterator[EmbeddedServer]:
    """A server with the schema that is no part of the pair."""
    folder = copied(made, home.with_name(f"{home.name}o"))
    with EmbeddedServer(folder, settings=SETTINGS, major=pytestconfig.getoption("postgres_major")) as server:
        yield server


async def test_a_writer_searches_on_its_replica_and_on_no_other_primarys(
    pair: tuple[EmbeddedServer, EmbeddedServer], other: EmbeddedServer, tmp_path: Path
) -> None:
    """The replica is the default cell's: another cell's search, or that of a replica set by mistake, would miss rows.

    The replica's position is far ahead of the other server's, so that a comparison of positions alone lets it pass.
    """
    (primary, standby), dsn = pair, other.dsn
    with psycopg.connect(primary.dsn, autocommit=True) as admin, psycopg.connect(dsn, autocommit=True) as there:
        ((ahead,),) = there.execute("SELECT pg_current_wal_flush_lsn() + (32 << 20)").fetchall()
        while admin.execute("SELECT pg_current_wal_flush_lsn() < %s::pg_lsn", (ahead,)).fetchone() == (True,):
            admin.execute("SELECT pg_logical_emit_message(true, 'filler', 'x')")
            admin.execute("SELECT pg_switch_wal()")
    replica = {"replica_url": standby.dsn}
    east = f"east={dsn}"
    placed = await asyncio.to_thread(
        cli_process.run, tmp_path / "none", "move", "shop", "--to", "east",
        DATABASE_URL=primary.dsn, HIPPOCAMPUS_CELLS=east,
    )  # fmt: skip
    assert placed.returncode == 0, placed.stderr
    with psycopg.connect(standby.dsn, autocommit=True) as watch:
        searching = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%search_memory%'"
            " AND pid <> pg_backend_pid()"
        )

        async def asked() -> int:
            ((count,),) = watch.execute(searching).fetchall()
            return int(count)

        with WriterProcess(primary.dsn, tmp_path / "both", cells=east, **replica) as writer:
            async with httpx.AsyncClient(base_url=writer.url, timeout=WAIT_SECONDS) as client:
                await until(lambda: _finds_what_is_said(client, "shop"), "the cell is served")
                assert await _finds_what_is_said(client, "shop")
                assert await asked() == 0, "the replica of main was searched for an app of another cell"

                async def is_searched() -> bool:
                    assert await _finds_what_is_said(client, "app")
                    return await asked() > 0

                await until(is_searched, "the replica is searched for an app of main")
            assert "replica_of_another_primary" not in {line["event"] for line in writer.log()}

    with WriterProcess(dsn, tmp_path / "wrong", **replica) as writer:
        async with httpx.AsyncClient(base_url=writer.url, timeout=WAIT_SECONDS) as client:
            assert all([await _finds_what_is_said(client, "shop") for _ in range(3)])
        (line,) = [line for line in writer.log() if line["event"] == "replica_of_another_primary"]
    systems = {}
    for name, address in (("primary_system_identifier", dsn), ("replica_system_identifier", primary.dsn)):
        with psycopg.connect(address) as admin:
            ((systems[name],),) = admin.execute("SELECT system_identifier FROM pg_control_system()").fetchall()
    assert {name: line[name] for name in systems} == systems
    assert await _doctor(tmp_path, primary.dsn, standby.dsn) == ("ok", "")
    verdict, fix = await _doctor(tmp_path, dsn, standby.dsn)
    assert (verdict, "set HIPPOCAMPUS_REPLICA_URL to a replica of DATABASE_URL" in fix) == ("problem", True)
    verdict, fix = await _doctor(tmp_path, primary.dsn, primary.dsn)
    assert (verdict, "a server in recovery" in fix) == ("warning", True)


_codes = itertools.count()


async def _finds_what_is_said(client: httpx.AsyncClient, app: str) -> bool:
    """Say something new in a session of its own, and search for it; false while the app is not served."""
    code = f"door{next(_codes)}"
    sessions = f"/v1/apps/{app}/users/user/sessions"
    if (await client.post(sessions, json={"session_id": code})).status_code != 201:
        return False
    assert (await append(client, f"{sessions}/{code}", say(f"The code is {code}."))).status_code == 201
    found = await client.post(f"/v1/apps/{app}/users/user/search", json={"query": code})
    assert found.status_code == 200, found.text
    assert code in json.dumps(found.json()["results"]), "a turn that was acknowledged is missing"
    return True


async def _doctor(folder: Path, dsn: str, replica: str) -> tuple[str, str]:
    """Return the verdict and the fix of doctor's line about a replica."""
    report = await asyncio.to_thread(
        cli_process.run, folder / "none", "doctor", "--json", DATABASE_URL=dsn, HIPPOCAMPUS_REPLICA_URL=replica
    )
    (line,) = [each for each in json.loads(report.stdout) if each["check"] == "replica"]
    return line["verdict"], line["fix"]


async def test_doctor_shows_each_host_and_warns_of_asynchronous_replication(
    pair: tuple[EmbeddedServer, EmbeddedServer], tmp_path: Path
) -> None:
    primary, standby = pair
    config = {"DATABASE_URL": replication.address_of(primary, standby)}

    async def lines() -> dict[str, tuple[str, str]]:
        report = await asyncio.to_thread(cli_process.run, tmp_path / "none", "doctor", "--json", **config)
        found = json.loads(report.stdout)
        return {each["check"]: (each["verdict"], each["found"]) for each in found}

    found = await lines()
    first, second = (replication.place_of(server)[0] for server in pair)
    verdict, text = found["hosts"]
    assert verdict == "ok"
    assert [(each.partition(":")[0], each.rpartition(" ")[2]) for each in text.split(", ")] == [
        (first, "primary"), (second, "standby"),
    ]  # fmt: skip
    assert found["replication"] == ("ok", f"synchronous to {replication.STANDBY}")
    with psycopg.connect(primary.dsn, autocommit=True) as admin:
        admin.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
        admin.execute("SELECT pg_reload_conf()")
    await asyncio.to_thread(standby.stop)
    try:
        found = await lines()
        assert (found["hosts"][0], found["hosts"][1].endswith("unreachable")) == ("warning", True)
        assert found["replication"] == ("warning", "asynchronous")
    finally:
        await asyncio.to_thread(standby.start)
