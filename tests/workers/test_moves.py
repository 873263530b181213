"""Moves of apps between cells, under load: everything arrives, nothing is written twice or in the wrong cell."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path

import asyncpg
import httpx
import psycopg
import pytest
from structlog.testing import capture_logs

from hippocampus import Hippocampus
from hippocampus.client import HippocampusClient
from hippocampus.client.records import NewEvent
from hippocampus.knowledge.service import KnowledgeService
from hippocampus.providers.local.embedding import LocalEmbedder
from pulse import database
from pulse.artifacts import ArtifactKey, ArtifactStore
from pulse.cells import DEFAULT_CELL, Cells, app_cell, part_of, parts_of
from pulse.errors import AppMovingError, InvalidInputError, WrongCellError
from pulse.process.background import in_background
from pulse.session_service import OpenSessionService
from tests.conftest import cloned, dsn_of, tcp_dsn_of
from tests.support import cli_process
from tests.support.stalling_proxy import stalling_proxy
from tests.support.waiting import WAIT_SECONDS, until
from tests.support.writer_process import WriterProcess
from workers.api import cells as api_cells
from workers.embedded.server import EmbeddedServer
from workers.transfer.moves import Moved, MoveError, move

APP = "shop's"
FILL = """
SELECT create_session('shop''s', 'ann', 'old', '{"k": 1}', '{"u": 1}', '{"a": 1}');
SELECT append_event('shop''s', 'ann', 'old', NULL, 'e' || n, 'user', 'message', json_build_object('text', 'turn ' || n),
                    'user', 'turn ' || n, '{"n": 1}', '{"seen": 1}') FROM generate_series(1, 30) AS n;
SELECT finalize_session('shop''s', 'ann', 'old');
SELECT create_session('shop''s', 'ben', 'gone');
SELECT append_event('shop''s', 'ben', 'gone', NULL, 'e1', 'user', 'message', '{}', 'user', 'to be deleted');
INSERT INTO memories (thread_id, user_id, app_name, content, embedding, embedding_model, metadata)
SELECT id, 'ann', app_name, 'a memory', '[0.1,0.2,0.3]', 'm', '{"x": 1e400}' FROM threads WHERE session_id = 'old';
INSERT INTO facts (user_id, app_name, key, value, content) VALUES ('ann', 'shop''s', 'k', '1', 'k: 1');
INSERT INTO runs (thread_id, app_name, run_id, holder, lease_until, first_seq, last_seq, status, completed_at)
SELECT id, app_name, 'r', 'h', now(), 1, 1, 'completed', now() FROM threads WHERE session_id = 'old';
INSERT INTO store_items (app_name, namespace, key, value) VALUES ('shop''s', '{n}', 'k', '{"v": "\\u0000"}');
INSERT INTO item_vectors SELECT id, 'm', 'v', '[1,2]' FROM store_items;
INSERT INTO api_keys (id, app_name, roles, secret_hash) VALUES ('abcdefghijkl', 'shop''s', '{read}', sha256('secret'));
INSERT INTO webhook_endpoints (app_name, url) VALUES ('shop''s', 'https://example.org/');
INSERT INTO webhook_secrets (endpoint_id, secret) SELECT id, sha256('secret') FROM webhook_endpoints;
SELECT ping_webhook('shop''s', (SELECT id FROM webhook_endpoints));
SELECT set_app_policy('shop''s', '{"fast_events": 1000}');
INSERT INTO memory_tombstones (id, app_name, user_id, memory_type) VALUES (new_id(), 'shop''s', 'ann', 'summary');
INSERT INTO imported_states (app_name, delta, version) VALUES ('shop''s', '{}', 1);
SELECT put_instruction('shop''s', 'tone', 'be kind', '{}', 0);
SELECT create_session('other', 'ann', 'old');
SELECT append_event('other', 'ann', 'old', NULL, 'e1', 'user', 'message', '{}', 'user', 'of another app');
"""
#: Between two appends of a writer: four of them append some hundred events a second, and leave time for the move.
PAUSE_SECONDS = 0.05
CONTENT = "SELECT id, content::text FROM events AS e WHERE thread_id IN (SELECT id FROM threads WHERE app_name = $1)"


@pytest.fixture
def east(server: EmbeddedServer, admin: psycopg.Connection, template: str) -> Iterator[str]:
    """The address of a second cell."""
    with cloned(admin, template) as name:
        yield dsn_of(server, name)


@pytest.fixture
def cells(dsn: str, east: str) -> Cells:
    return Cells(dsn, {"east": east})


@pytest.fixture
async def east_pool(east: str) -> AsyncIterator[asyncpg.Pool]:
    async with await database.create_pool(east, min_size=1, max_size=5) as pool:
        yield pool


async def rows(pool: asyncpg.Pool, app: str = APP) -> dict[str, set[str]]:
    """Every row of an app, by table; without the numbers of the queue's jobs, which are each cell's own."""
    found = {}
    for name, condition in await pool.fetch("SELECT table_name, app_rows FROM moved_tables()"):
        row = "(to_jsonb(t) - '{procrastinate_job_id,saved_at}'::text[])::text"
        found[name] = {line for (line,) in await pool.fetch(f"SELECT {row} FROM {name} AS t WHERE {condition}", app)}
    return found


class Writers:
    """Real clients of the HTTP API and of the library, that append until they are stopped."""

    def __init__(self, url: str, cells: Cells) -> None:
        self._url = url
        self._cells = cells
        self._stop = asyncio.Event()
        self.acknowledged: set[tuple[str, str]] = set()

    async def over_http(self, session: str) -> None:
        async with HippocampusClient(self._url, app_name=APP) as client:
            await client.create_session("ann", session)
            number = 0
            while not self._stop.is_set():
                number += 1
                event = NewEvent(id=f"e{number}", author="user", content={"text": f"{session} {number}"})
                await client.append("ann", session, [event])
                self.acknowledged.add((session, event.id))
                await asyncio.sleep(PAUSE_SECONDS)

    async def by_library(self, session: str) -> None:
        async with Hippocampus(self._cells, app=APP) as memory:
            number = 0
            while not self._stop.is_set():
                number += 1
                message = {"role": "user", "content": f"{session} {number}", "id": f"e{number}"}
                await memory.add("ann", [message], session=session)
                self.acknowledged.add((session, f"e{number}"))
                await asyncio.sleep(PAUSE_SECONDS)

    async def follow(self, session: str) -> tuple[str, int]:
        """Follow a session's stream until stopped; return what it received, and how many connections that took."""
        received, connections, last = "", 0, {}
        params = {"app_name": APP, "user_id": "ann"}
        async with httpx.AsyncClient(base_url=self._url, timeout=WAIT_SECONDS) as client:
            while not self._stop.is_set():
                connections += 1
                path = f"/api/threads/{session}/events"
                async with client.stream("GET", path, params=params, headers=last) as response:
                    async for line in response.aiter_lines():
                        received += line + "\n"
                        if line.startswith("id:"):
                            last = {"Last-Event-ID": line.partition(":")[2].strip()}
                        if self._stop.is_set() and f"the end of {session}" in received:
                            return received, connections
        return received, connections

    def stop(self) -> None:
        self._stop.set()


@pytest.mark.system
async def test_an_app_moves_under_load_and_loses_nothing(
    pool: asyncpg.Pool, east_pool: asyncpg.Pool, cells: Cells, dsn: str, east: str, tmp_path: Path
) -> None:
    await pool.execute(FILL)
    key = ArtifactKey(app_name=APP, user_id="ann", session_id="old", filename="a.txt")
    await ArtifactStore(pool).save(key, {"x": 1}, b"data", mime_type="text/plain")
    other_before = await rows(pool, "other")
    old = await pool.fetch(CONTENT, APP)
    with WriterProcess(dsn, tmp_path / "log", cells=f"east={east}") as writer:
        writers = Writers(writer.url, cells)
        async with asyncio.TaskGroup() as group:
            for number in range(2):
                group.create_task(writers.over_http(f"http-{number}"))
                group.create_task(writers.by_library(f"library-{number}"))
            await until(lambda: len(writers.acknowledged) > 40)
            following = group.create_task(writers.follow("http-0"))
            deleting = asyncio.create_task(_delete_when_copied(pool, east_pool))
            moved = await move(cells, APP, "east", grace_seconds=3)
            await deleting
            count = len(writers.acknowledged)
            await until(lambda: len(writers.acknowledged) > count + 40)
            writers.stop()
            async with HippocampusClient(writer.url, app_name=APP) as client:
                end = NewEvent(id="end", author="user", content={"text": "the end of http-0"})
                await client.append("ann", "http-0", [end])
            received, connections = await following
        assert connections == 2, "the stream was ended once, and went on where the app is"
        followed = {f"http-0 {id_.removeprefix('e')}" for session, id_ in writers.acknowledged if session == "http-0"}
        assert {text for text in followed if f'"{text}"' not in received} == set()
        async with HippocampusClient(writer.url, app_name=APP) as client:
            assert len([each async for each in client.list_events("ann", "old")]) == 30
        async with httpx.AsyncClient(base_url=writer.url, timeout=WAIT_SECONDS) as http:
            assert (await http.get("/v1/apps/other/users/ann/sessions/old")).status_code == 200
    assert isinstance(moved, Moved)
    assert moved.digests["events"].rows > 40
    assert moved.purged > 40

    stored = await east_pool.fetch(
        "SELECT t.session_id, e.id, e.sequence_num, t.last_seq FROM events AS e JOIN threads AS t ON t.id = e.thread_id"
        " WHERE t.app_name = $1 AND t.session_id <> 'old'",
        APP,
    )
    names = [(row["session_id"], row["id"]) for row in stored]
    assert len(names) == len(set(names)), "an event was stored twice"
    assert writers.acknowledged <= set(names), "an acknowledged event was lost"
    for session in {name for name, _ in names}:
        numbers = sorted(row["sequence_num"] for row in stored if row["session_id"] == session)
        assert numbers == list(range(1, len(numbers) + 1)), "a number is missing"
    assert {tuple(row) for row in old if row["id"] != "e1"} <= {
        tuple(row) for row in await east_pool.fetch(CONTENT, APP)
    }
    assert not await east_pool.fetchval("SELECT count(*) FROM threads WHERE session_id = 'gone'")

    left = {name: found for name, found in (await rows(pool)).items() if found}
    assert set(left) <= {"api_keys"}, left
    assert await rows(pool, "other") == other_before
    assert (await app_cell(pool, APP)) == ("east", "moved")
    queued = await east_pool.fetch(
        "SELECT status::text, args FROM procrastinate_jobs WHERE task_name = 'deep_reflection'"
    )
    assert [row["status"] for row in queued] == ["todo"], "the jobs of the app are in the queue of its cell"
    with pytest.raises(WrongCellError, match="served by the cell east"):
        await append(pool)
    with pytest.raises(WrongCellError, match="east"):
        await Hippocampus.connect(dsn, app=APP)


async def _delete_when_copied(pool: asyncpg.Pool, east_pool: asyncpg.Pool) -> None:
    """Delete a session that the target has already."""
    await until(lambda: east_pool.fetchval("SELECT count(*) FROM threads WHERE session_id = 'gone'"))
    await pool.execute("SELECT delete_session($1, 'ben', 'gone')", APP)


async def append(pool: asyncpg.Pool, app: str = APP) -> None:
    await OpenSessionService(pool).create_session(app, "ann", session_id="new")


SMALL = """
SELECT create_session('shop''s', 'ann', 's');
SELECT append_event('shop''s', 'ann', 's', NULL, 'e1', 'user', 'message', '{}', 'user', 'hello');
SELECT enqueue_consolidation((SELECT id FROM threads), 'fast_replay');
UPDATE consolidation_jobs SET status = 'running', attempts = 1;
INSERT INTO api_keys (id, app_name, roles, secret_hash) VALUES ('abcdefghijkl', 'shop''s', '{read}', sha256('secret'));
"""
LATE = "SELECT append_event('shop''s', 'ann', 's', NULL, 'e2', 'user', 'message', '{}', 'user', 'late')"
#: A copy that differs: the target alters what it stores.
ALTERED = """
CREATE FUNCTION alter_copy() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN NEW.author := 'somebody'; RETURN NEW; END $$;
CREATE TRIGGER alter_copy BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION alter_copy();
ALTER TABLE events ENABLE ALWAYS TRIGGER alter_copy
"""
#: What belongs to an installation, not to an app.
OWN = {
    "engine_settings",
    "data_catalogue",
    "metrics_targets",
    "call_limits",
    "call_breakers",
    "embedding_target",
    "merge_thresholds",
    "vector_fill",
    "app_cells",
    "traces_default",
    "vitals",
    "objects",
    "pulse_events",
    "pulse_events_archive",
    "pulse_events_default",
    "pulse_scopes",
    "rule_releases",
    "task_transitions",
    "audit_log",
    "reader_scopes",
}


async def test_an_app_moves_on_and_back_and_a_move_that_was_cut_off_is_continued(
    pool: asyncpg.Pool, east_pool: asyncpg.Pool, cells: Cells
) -> None:
    await pool.execute(SMALL)
    whole = await rows(pool)
    # Cut off under the fence, before the other cell served the app.
    await east_pool.execute("SELECT mark_app_cell($1, 'main', 'arriving')", APP)
    await pool.execute("SELECT mark_app_cell($1, 'east', 'leaving')", APP)
    with pytest.raises(AppMovingError, match="retry"):
        await append(pool)
    with pytest.raises(WrongCellError, match="cell main"):
        await append(east_pool)
    # The upkeep and the other apps go on.
    await pool.execute("SELECT create_session('other', 'ann', 's')")
    assert await cells.locate(APP) == "main"
    await move(cells, APP, "main")
    await append(pool)
    await pool.execute("SELECT delete_session($1, 'ann', 'new')", APP)

    steps: list[str] = []
    moved = await move(cells, APP, "east", grace_seconds=0, on_step=steps.append)
    assert moved.digests["events"].rows == 1
    expected = {**whole, "consolidation_jobs": set[str]()}
    assert {**await rows(east_pool), "consolidation_jobs": set[str]()} == expected
    # The job that was running is queued again.
    job = "SELECT c.status, c.attempts, q.status::text FROM consolidation_jobs AS c JOIN procrastinate_jobs AS q"
    assert tuple(await east_pool.fetchrow(f"{job} ON q.id = c.procrastinate_job_id")) == ("pending", 1, "todo")
    assert not await pool.fetchval("SELECT count(*) FROM threads WHERE app_name = $1", APP)

    # Cut off after the other cell had begun to serve the app: only the rest is left to do.
    await pool.execute("UPDATE app_cells SET state = 'leaving'")
    with pytest.raises(AppMovingError):
        await append(pool)
    await move(cells, APP, "east", grace_seconds=0, on_step=steps.append)
    assert "serves the app already" in steps[-3]
    noted = "SELECT action, app_name, target FROM audit_log WHERE action = 'app_moved'"
    assert {tuple(row) for row in await pool.fetch(noted.replace("target", "target::text"))} == {
        ("app_moved", APP, '{"source": "main", "target": "east"}')
    }
    assert await app_cell(pool, APP) == ("east", "moved")
    await append(east_pool)

    await move(cells, APP, "main", grace_seconds=0)
    assert await cells.locate(APP) == "main"
    await pool.execute("SELECT delete_session($1, 'ann', 'new')", APP)
    assert {**await rows(pool), "consolidation_jobs": set[str]()} == expected
    # It counts as just moved for three seconds, which the purge and these reads may take: as if it were a minute later.
    await east_pool.execute("UPDATE app_cells SET marked_at = marked_at + interval '1 minute'")
    with pytest.raises(AppMovingError, match=r"to the cell main.*retry"):
        await append(east_pool)
    await east_pool.execute("UPDATE app_cells SET marked_at = marked_at - interval '2 minutes'")
    with pytest.raises(WrongCellError, match="cell main"):
        await append(east_pool)
    with pytest.raises(InvalidInputError, match="no cell 'west' among main, east"):
        await move(cells, APP, "west")


async def test_a_move_that_cannot_be_made_leaves_the_app_where_it_is(
    pool: asyncpg.Pool, east_pool: asyncpg.Pool, cells: Cells
) -> None:
    await pool.execute(SMALL)
    whole = await rows(pool)
    await east_pool.execute(ALTERED)
    with pytest.raises(MoveError, match=r"rows of events differ .*nothing was switched: run the move again"):
        await move(cells, APP, "east")
    await append(east_pool, "other")
    with pytest.raises(MoveError, match="which it serves itself"):
        await move(cells, "other", "east")
    await east_pool.execute("UPDATE hippocampus_migrations SET sha256 = 'x' WHERE name LIKE '%cells%'")
    with pytest.raises(MoveError, match="different schemas"):
        await move(cells, APP, "east")
    assert await app_cell(pool, APP) is None
    assert await rows(pool) == whole
    await append(pool)


async def test_a_late_change_that_is_copied_wrongly_ends_the_move(
    dsn: str, east: str, pool: asyncpg.Pool, cells: Cells
) -> None:
    """Rows that change after the proof are compared by themselves. Nothing is switched, and another move succeeds."""
    await pool.execute(SMALL)

    def change_after_the_proof(step: str) -> None:
        if not step.startswith("proved"):
            return
        with psycopg.connect(east, autocommit=True) as target:
            target.execute(ALTERED)
        with psycopg.connect(dsn, autocommit=True) as source:
            source.execute(LATE)

    late = "the latest changes in events differ between main and east; nothing was switched: run the move again"
    with pytest.raises(MoveError, match=late):
        await move(cells, APP, "east", on_step=change_after_the_proof)
    assert await app_cell(pool, APP) is None
    with psycopg.connect(east, autocommit=True) as target:
        target.execute("DROP FUNCTION alter_copy CASCADE")
    assert (await move(cells, APP, "east", grace_seconds=0)).target == "east"


async def test_every_table_belongs_to_apps_or_to_the_installation(pool: asyncpg.Pool) -> None:
    """A new table fails here until it is known how a move finds its rows."""
    moved = {name for (name,) in await pool.fetch("SELECT table_name FROM moved_tables()")}
    known = {name for (name,) in await pool.fetch("SELECT table_name FROM data_catalogue")}
    assert known - moved == OWN
    unkeyed = await pool.fetch("SELECT table_name FROM moved_tables() WHERE key_columns = '{}'")
    assert {name for (name,) in unkeyed} == {"imported_states", "erased_imports"}, "copied whole in every round"


def test_the_command_line_follows_an_app(dsn: str, east: str, home: Path) -> None:
    place = {"DATABASE_URL": dsn, "HIPPOCAMPUS_CELLS": f"east={east}"}
    placed = cli_process.run(home, "move", "new", "--to", "east", "--keep-seconds", "0", **place)
    assert placed.returncode == 0, placed.stderr
    with psycopg.connect(east, autocommit=True) as connection:
        connection.execute("SELECT create_session('new', 'ann', 'in-the-east')")
    listed = cli_process.run(home, "sessions", "list", "--app", "new", "--json", **place)
    assert "in-the-east" in listed.stdout, listed.stderr
    refused = cli_process.run(home, "sessions", "list", "--app", "new", DATABASE_URL=dsn)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "served by the cell east" in refused.stderr


async def test_documents_move_with_their_app(pool: asyncpg.Pool, east_pool: asyncpg.Pool, cells: Cells) -> None:
    """Corpora, who reads them, versions, chunks and vectors arrive; what waited to be ingested is enqueued there."""
    here = KnowledgeService(pool, APP, LocalEmbedder())
    await here.put_corpus("book", readers=["user:ann"])
    for text in ("Customs are paid by the sender.", "Customs are paid by the receiver."):
        await here.add("book", text, source_uri="a.md", inline=True)
    waiting = (await here.add("book", "The kiln is lit at dawn.", source_uri="b.md")).document_id
    other = KnowledgeService(pool, "other", LocalEmbedder())
    await other.put_corpus("book")
    await other.add("book", "Customs of another app.", source_uri="a.md", inline=True)
    whole = await rows(pool)
    tables = ("corpus", "corpus_access", "knowledge_documents", "knowledge_versions", "knowledge_base")
    assert all(whole[table] for table in (*tables, "knowledge_vectors"))
    wanted = [hit.content for hit in (await here.search("customs", user_id="ann")).hits]

    await move(cells, APP, "east", grace_seconds=0)
    assert await rows(east_pool) == whole
    left = await rows(pool)
    assert not any(left[table] for table in (*tables, "knowledge_vectors"))
    there = KnowledgeService(east_pool, APP, LocalEmbedder())
    assert [hit.content for hit in (await there.search("customs", user_id="ann")).hits] == wanted != []
    assert not (await there.search("customs", user_id="ben")).hits
    job = "SELECT q.status::text FROM knowledge_documents AS d JOIN procrastinate_jobs AS q"
    assert await east_pool.fetchval(f"{job} ON q.id = d.procrastinate_job_id WHERE d.id = $1", waiting) == "todo"
    await there.ingest(waiting)
    assert (await there.search("kiln", user_id="ann")).hits[0].content.startswith("The kiln")
    assert (await other.search("customs")).hits


async def test_the_parts_of_an_app_share_its_users_between_two_databases(
    pool: asyncpg.Pool, east_pool: asyncpg.Pool, cells: Cells
) -> None:
    """A part is an app that holds a range of users; it moves alone, and each user is in one database."""
    users = [f"user {number} 🦉" for number in range(60)]
    parts = parts_of("mall", 4)
    assert parts == ["mall.0", "mall.1", "mall.2", "mall.3"]

    async def add(text: str) -> None:
        async with contextlib.AsyncExitStack() as stack:
            memories = {part: await stack.enter_async_context(Hippocampus(cells, app=part)) for part in parts}
            for user in users:
                memory = memories[part_of("mall", user, 4)]
                await memory.add(user, f"{text} {user}", session="s")
                session = await memory.sessions.get_session(memory.app, user, "s")
                assert session is not None
                assert f"{text} {user}" in str(session.events[-1].content)

    await add("first")
    await move(cells, "mall.2", "east", grace_seconds=0)
    await add("second")
    wanted = {user: part_of("mall", user, 4) for user in users}
    assert set(wanted.values()) == set(parts)
    held = "SELECT user_id, app_name, last_seq FROM threads WHERE app_name LIKE 'mall.%'"
    here, there = [{tuple(row) for row in await each.fetch(held)} for each in (pool, east_pool)]
    assert there == {(user, part, 2) for user, part in wanted.items() if part == "mall.2"} != set()
    assert here == {(user, part, 2) for user, part in wanted.items() if part != "mall.2"}
    assert [await cells.locate(part) for part in parts] == ["main", "main", "east", "main"]
    # What is of the app as a whole is each part's own.
    await pool.execute("SELECT set_app_policy('mall.0', '{\"fast_events\": 7}')")
    policy = "SELECT fast_events FROM app_policies WHERE app_name = 'mall.2'"
    assert await east_pool.fetchval(policy) is None


async def test_a_cell_that_is_down_takes_its_own_apps_and_no_others(
    dsn: str, east: str, cells: Cells, server: EmbeddedServer, tmp_path: Path
) -> None:
    """At the start of a writer and while it serves: other apps go on, and the cell's are served when it is back."""
    await move(cells, "shop", "east", grace_seconds=0)
    over_tcp = tcp_dsn_of(server, east)
    numbers = itertools.count()
    down = (503, "/problems/database-unreachable")
    async with stalling_proxy(over_tcp) as proxy:
        await proxy.stop()
        with WriterProcess(dsn, tmp_path / "log", cells=f"east={proxy.dsn}") as writer:
            async with httpx.AsyncClient(base_url=writer.url, timeout=WAIT_SECONDS) as client:

                async def found(app: str) -> tuple[int, str]:
                    path = f"/v1/apps/{app}/users/ann/sessions"
                    answer = await client.post(path, json={"session_id": f"s{next(numbers)}"})
                    return answer.status_code, answer.json().get("type", "")

                for _ in range(2):
                    await until(lambda: _is(found("shop"), down), "the cell is down")
                    assert (await found("other"))[0] == 201
                    await proxy.start()
                    await until(lambda: _is(found("shop"), (201, "")), "the cell is served again")
                    assert (await found("other"))[0] == 201
                    await proxy.stop()
            events = {line["event"] for line in writer.log()}
    assert {"cell_unreachable", "cell_served"} <= events


async def _is(found: Awaitable[object], wanted: object) -> bool:
    return await found == wanted


async def test_a_lone_writer_that_could_not_read_where_apps_are_tries_again_soon(
    dsn: str, pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not after its usual pause: an app that was moved meanwhile may have lost its rows by then."""
    monkeypatch.setattr(api_cells, "REFRESH_SECONDS", 0.2)
    monkeypatch.setattr(api_cells, "_LONE_REFRESH_SECONDS", 3600.0)
    directory = api_cells.CellDirectory((DEFAULT_CELL, "east"))
    async with (
        await database.create_pool(f"{dsn}&options=-clock_timeout=100", min_size=0, max_size=1) as reading,
        pool.acquire() as moving,
    ):
        await directory.add(DEFAULT_CELL, reading)
        await moving.execute("INSERT INTO app_cells (app_name, cell, state) VALUES ($1, 'east', 'moved')", APP)
        transaction = moving.transaction()
        await transaction.start()
        await moving.execute("LOCK TABLE app_cells")
        with capture_logs() as logs:
            async with in_background(directory.run()):
                await asyncio.sleep(0.05)  # The first pause begins, that of several cells.
                directory.names = (DEFAULT_CELL,)
                await until(lambda: any(each["event"] == "cell_unread" for each in logs))
                await transaction.rollback()
                await until(lambda: directory.cell_of(APP) == "east")
