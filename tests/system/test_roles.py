"""Roles with the least privileges: every process works under them, and readers see their own scope alone."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import itertools
import json
import re
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import psycopg
import pytest
from pgvector import HalfVector

from hippocampus.by_hand import GivenFact, MemoryEditor
from hippocampus.erasure.service import ErasureService
from hippocampus.knowledge.service import KnowledgeService
from hippocampus.providers.local.embedding import LocalEmbedder
from hippocampus.search import MemorySearch
from pulse import database
from pulse.api_keys import ApiKeyService
from pulse.events import Event
from pulse.postgres.statements import load_queries
from pulse.session_service import OpenSessionService
from tests.support import statement_scopes
from tests.support.autonomic_scene import wait_until_it_acts
from tests.support.documented_routes import NOBODY, asked_operations, document, filled, routine
from tests.support.least_privilege import LOGINS, as_login
from tests.support.paths import ROOT
from tests.support.waiting import WAIT_SECONDS, until
from tests.support.worker_harness import Workers, running_workers
from tests.support.writer_process import KEY, WriterProcess
from workers.migrate import migrate
from workers.queue.tasks import MAINTENANCE_CRONS

pytestmark = pytest.mark.system

SECRET = "peanuts make me sneeze"
GROUPS = ("writer", "worker", "reader")
POOLS = ("fast_replay", "deep_reflection", "retention", "pulse")
REFUSAL = re.compile(r"permission denied|row-level security|InsufficientPrivilege")


@pytest.fixture
async def logins(dsn: str, admin: psycopg.Connection) -> AsyncIterator[dict[str, str]]:
    """A login of each role, as an operator makes it; addresses by the role's name."""
    tag = uuid.uuid4().hex[:8]
    owner = await database.connect(dsn)
    assert await owner.fetchval("SELECT grant_roles()") > 40
    assert await owner.fetchval("SELECT grant_roles()") > 40
    names = {group: f"{group}_{tag}" for group in GROUPS}
    for group, name in names.items():
        admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{name}'")
        if group != "reader":
            admin.execute(f"GRANT hippocampus_{group} TO {name}")
    await owner.execute("SELECT bind_reader($1, 'shop', 'mei')", names["reader"])
    yield {group: as_login(dsn, name) for group, name in names.items()}
    await owner.execute("DELETE FROM reader_scopes")
    await owner.close()
    for name in names.values():
        admin.execute(f"DROP ROLE {name}")


async def fill(
    pool: asyncpg.Pool, app: str = "shop", user: str = "mei", *, session: str = "s", words: str = SECRET
) -> None:
    sessions = OpenSessionService(pool)
    made = await sessions.create_session(app, user, {"note": words, "user:note": words}, session_id=session)
    await sessions.append_event(made, Event(id="e1", author="user", content={"text": words}))
    await sessions.close()
    editor = MemoryEditor(pool)
    await editor.remember(app, user, f"{words} often")
    await editor.remember(app, user, GivenFact(key="allergy", value=words))


async def test_writer_and_workers_do_all_of_their_work_under_their_roles(
    dsn: str, logins: dict[str, str], tmp_path: Path, pool: asyncpg.Pool
) -> None:
    """Over HTTP: a conversation is consolidated, searched, reported to a webhook's queue, and erased with its user."""
    headers = {"Authorization": f"Bearer {KEY}"}
    with (
        WriterProcess(logins["writer"], tmp_path / "writer.log", api_key=KEY) as writer,
        running_workers(logins["worker"], tmp_path) as workers,
    ):
        for name in POOLS:
            await workers.start(name, module="workers", provider="local")
        async with httpx.AsyncClient(
            base_url=f"{writer.url}/v1/apps/shop", headers=headers, timeout=WAIT_SECONDS
        ) as client:

            async def call(method: str, path: str, **options: Any) -> Any:
                reply = await client.request(method, path, **options)
                assert reply.status_code < 300, (method, path, reply.status_code, reply.text)
                return reply.json() if reply.content else None

            hook = await call("POST", "/webhooks", json={"url": "https://example.com/hook"})
            await call("POST", f"/webhooks/{hook['endpoint']['id']}/rotate", json={})
            await call("POST", "/users/mei/sessions", json={"session_id": "s", "state": {"user:x": 1}})
            for number, text in enumerate(("My name is Mei and I live in Ghent.", "I am allergic to peanuts.")):
                event = {"id": f"e{number}", "author": "user", "content": {"text": text}}
                await call("POST", "/users/mei/sessions/s/events", json={"events": [event]})
            await call("POST", "/users/mei/sessions/s/finalize", json={})
            sql = "SELECT count(*) FROM threads WHERE fast_upto_seq = last_seq AND deep_upto_seq = last_seq"
            await until(lambda: _has(pool, sql))
            found = await call("POST", "/users/mei/search", json={"query": "peanuts"})
            assert "peanuts" in str(found)
            await call("POST", "/users/mei/context", json={"query": "peanuts", "session_id": "s"})
            await call("GET", "/audit")
            await call("POST", "/users/mei/forget", json={"whole_user": True})
            await until(lambda: _has(pool, "SELECT count(*) FROM erasures WHERE finished_at IS NOT NULL"))
            assert await pool.fetchval("SELECT count(*) FROM messages") == 0
            await wait_until_it_acts(pool)
    assert refusals(tmp_path) == []


async def test_processes_of_system_tests_have_the_least_privileges(
    dsn: str, workers: Workers, tmp_path: Path, pool: asyncpg.Pool
) -> None:
    """A writer and a worker that no test gives another address connect as their roles, and the test as the owner."""
    with WriterProcess(dsn, tmp_path / "writer.log"):
        await workers.start("fast_replay", module="workers", provider="local")
        users = "SELECT DISTINCT usename FROM pg_stat_activity WHERE datname = current_database() AND pid <> $1"
        async with pool.acquire() as own:
            seen = {row["usename"] for row in await own.fetch(users, own.get_server_pid())}
    assert seen == set(LOGINS.values())


def refusals(folder: Path) -> list[str]:
    """The lines of all logs below a folder that say that a role may not do something."""
    lines = (line for log in folder.rglob("*.log") for line in log.read_text(errors="replace").splitlines())
    return [line for line in lines if REFUSAL.search(line)]


#: A row that a request may name, by the parameter of its path.
ROWS = {
    "memory_id": "SELECT id FROM memories",
    "job_id": "SELECT id FROM consolidation_jobs",
    "run_id": "SELECT id FROM runs",
    "document_id": "SELECT id FROM knowledge_documents",
    "endpoint_id": "SELECT id FROM webhook_endpoints",
    "erasure_id": "SELECT id FROM erasures",
    "execution_id": "SELECT id FROM tool_executions",
    "sequence_num": "SELECT 1",
}
#: What makes a row comes first, what removes one last.
ORDER = ("PUT", "POST", "PATCH", "GET", "DELETE")


async def test_every_route_works_as_the_writer_and_every_task_as_the_worker(
    logins: dict[str, str], tmp_path: Path, pool: asyncpg.Pool
) -> None:
    """Each operation of the document with its own example, on rows that are there as far as another one makes them;
    each task of the upkeep, and each effect of the autonomic layer that changes the database."""
    headers = {"Authorization": f"Bearer {KEY}"}
    with (
        WriterProcess(logins["writer"], tmp_path / "writer.log", api_key=KEY, provider="local") as writer,
        running_workers(logins["worker"], tmp_path) as workers,
    ):
        for name in POOLS:
            await workers.start(name, module="workers", provider="local")
        async with httpx.AsyncClient(base_url=writer.url, headers=headers, timeout=WAIT_SECONDS) as client:
            await fill(pool, "shop", NOBODY, session=NOBODY)
            page = await document(client)
            statuses: dict[tuple[str, str], int] = {}
            for method, path, operation in sorted(asked_operations(page), key=_order):
                named = {name: await pool.fetchval(f"{sql} LIMIT 1") for name, sql in ROWS.items()}
                request = routine(page, path, operation, "shop")
                request["headers"] |= headers
                real = {name: str(found) for name, found in named.items() if found is not None}
                async with client.stream(method, filled(path, operation, "shop", real), **request) as reply:
                    if "text/event-stream" not in reply.headers.get("content-type", ""):
                        await reply.aread()
                        assert reply.status_code < 500, (method, path, reply.text)
                    statuses[method, path] = reply.status_code
        for task in (*MAINTENANCE_CRONS, "retention"):
            await pool.execute("SELECT run_upkeep_now($1)", task)
        for kind in ("gc_vitals", "retention_now", "shed_load", "finalize_idle", "prune", "archive_record"):
            effect = {"kind": kind, "key": "k", "queue": "effects", "params": {}, "rule": ""}
            await pool.execute("SELECT end_pulse_tick('main', $1, '{}', '{}', NULL)", [effect])
        is_done = (
            "SELECT NOT EXISTS (SELECT FROM procrastinate_jobs"
            " WHERE status IN ('todo', 'doing') AND queue_name IN ('maintenance', 'effects'))"
        )
        await until(lambda: pool.fetchval(is_done), "every task is done")
        assert await pool.fetch("SELECT task_name FROM procrastinate_jobs WHERE status = 'failed'") == []
        assert await pool.fetch("SELECT key, meta FROM pulse_events WHERE kind = 'effect-failed'") == []
    assert refusals(tmp_path) == []
    assert sum(status < 300 for status in statuses.values()) > 80, statuses


def _order(operation: tuple[str, str, Any]) -> tuple[bool, int]:
    method, path, _ = operation
    removes = re.search(r"/(forget|cancel|retire|retract|end|disable|rollback)$", path)
    return removes is not None, ORDER.index(method)


async def _has(pool: asyncpg.Pool, sql: str) -> bool:
    return bool(await pool.fetchval(sql))


async def test_the_roles_use_pgvector_in_a_schema_of_its_own(empty_dsn: str, admin: psycopg.Connection) -> None:
    """A login connects without any right to that schema; `grant_roles` gives its roles what vectors need."""
    name = f"apart_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(empty_dsn, autocommit=True) as owner:
        owner.execute('CREATE SCHEMA "the Extensions"')
        owner.execute('CREATE EXTENSION vector SCHEMA "the Extensions"')
        await migrate(empty_dsn)
        admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{name}'")
        try:
            connection = await database.connect(as_login(empty_dsn, name))
            await connection.close()
            owner.execute("SELECT grant_roles()")
            admin.execute(f"GRANT hippocampus_writer TO {name}")
            async with await database.create_pool(as_login(empty_dsn, name), max_size=2) as pool:
                await fill(pool)
                search = MemorySearch(pool, LocalEmbedder())
                found = await search.search(app_name="shop", user_id="mei", query="peanuts")
                assert {each.source for each in found.memories} >= {"memory", "fact", "message"}
                assert await pool.fetchval("""SELECT '[1,2]'::"the Extensions".halfvec""") == HalfVector([1.0, 2.0])
        finally:
            admin.execute(f"DROP ROLE {name}")


#: What each role tries, and must not be allowed to do.
REFUSED: dict[str, tuple[str, ...]] = {
    "writer": (
        "TRUNCATE events",
        "DROP TABLE events",
        "ALTER TABLE events DISABLE TRIGGER ALL",
        "CREATE TABLE mine (id integer)",
        "CREATE TEMPORARY TABLE audit_log (id uuid)",
        "UPDATE events SET content = '{}'",
        "DELETE FROM audit_log",
        "INSERT INTO audit_log (actor, action) VALUES ('nobody', 'x')",
        "UPDATE app_policies SET redaction = 'off'",
        "SELECT secret FROM webhook_secrets",
        "INSERT INTO api_keys (id, roles, secret_hash) VALUES ('aaaaaaaaaaaa', '{admin}', sha256('x'))",
        "UPDATE api_keys SET revoked_at = NULL",
        "INSERT INTO reader_scopes VALUES ('x', 'shop', NULL)",
        "INSERT INTO engine_settings VALUES ('test_clock', 'true')",
        "SELECT grant_roles()",
        "SELECT bind_reader(session_user::text, 'shop')",
        "SET ROLE hippocampus_worker",
        "COPY events TO PROGRAM 'cat'",
        "SELECT pg_read_file('/etc/passwd')",
    ),
    "worker": (
        "SELECT secret_hash FROM api_keys",
        "SELECT * FROM audit_log",
        "INSERT INTO webhook_endpoints (app_name, url) VALUES ('shop', 'https://example.com')",
        "INSERT INTO stream_tickets SELECT * FROM stream_tickets",
        "INSERT INTO api_keys (id, roles, secret_hash) VALUES ('aaaaaaaaaaaa', '{admin}', sha256('x'))",
        "INSERT INTO engine_settings VALUES ('test_clock', 'true')",
        "INSERT INTO reader_scopes VALUES ('x', 'shop', NULL)",
        "UPDATE data_catalogue SET user_rows = NULL",
        "UPDATE pulse_events SET key = 'x'",
        "DELETE FROM pulse_events",
        "TRUNCATE memories",
        "DROP TABLE vitals",
        "CREATE TABLE mine (id integer)",
        "SELECT grant_roles()",
        "SET ROLE hippocampus_writer",
        "UPDATE app_policies SET redaction = 'off'",
    ),
    "reader": (
        "INSERT INTO user_states (app_name, user_id) VALUES ('shop', 'x')",
        "SELECT * FROM procrastinate_events",
        "UPDATE facts SET confidence = 1",
        "DELETE FROM threads",
        "SELECT * FROM api_keys",
        "SELECT * FROM webhook_secrets",
        "SELECT * FROM stream_tickets",
        "SELECT * FROM reader_scopes",
        "SELECT * FROM audit_log",
        "SELECT * FROM procrastinate_jobs",
        "SELECT note_act('policy_changed')",
        "SELECT prune_audit_log()",
        "SET ROLE hippocampus_writer",
    ),
}


async def test_what_each_role_may_not_do(pool: asyncpg.Pool, logins: dict[str, str]) -> None:
    """Each of these is refused for want of a privilege, or by the log's own trigger, and changes nothing."""
    await fill(pool)
    await pool.execute("INSERT INTO pulse_events (scope, kind, key) VALUES ('main', 'tick', '')")
    for group, statements in REFUSED.items():
        connection = await database.connect(logins[group])
        for statement in statements:
            with pytest.raises(asyncpg.PostgresError) as refused:
                await connection.execute(statement)
            assert refused.value.sqlstate in ("42501", "HP013", "HP007", "HP080"), (group, statement, refused.value)
        await connection.close()


async def test_writer_and_worker_erase_a_user_with_their_keys(pool: asyncpg.Pool, logins: dict[str, str]) -> None:
    """An erasure is finished by whichever process comes to it, and takes the user's own keys along."""
    for group in ("writer", "worker"):
        await fill(pool)
        await ApiKeyService(pool).create("shop", ["read"], user_id="mei")
        async with await database.create_pool(logins[group], max_size=2) as erasing:
            done = await ErasureService(erasing).erase_user("shop", "mei")
        assert done.finished_at is not None
        assert done.counts["api_keys"] == 1
        assert await pool.fetchval("SELECT count(*) FROM memories") == 0


async def test_a_reader_sees_its_scope_and_nothing_else(pool: asyncpg.Pool, logins: dict[str, str]) -> None:
    """Bound to one user; bound to an app, to the user of the setting; unbound, to nothing. No setting widens it."""
    await fill(pool)
    await fill(pool, "shop", "ben")
    await fill(pool, "bank", "mei")
    tables = ("threads", "events", "messages", "memories", "facts", "user_states", "initial_states")
    name = re.search(r"//([^:]+):", logins["reader"])
    assert name is not None

    async def seen(user: str = "") -> dict[str, int]:
        async with connection.transaction():
            await connection.execute("SELECT set_config('hippocampus.user_id', $1, true)", user)
            await connection.execute("SELECT set_config('hippocampus.app_name', 'bank', true)")
            return {table: await connection.fetchval(f"SELECT count(*) FROM {table}") for table in tables}

    connection = await database.connect(logins["reader"])
    own = await seen()
    assert set(own.values()) == {1}
    assert await seen("ben") == own
    assert {row["user_id"] for row in await connection.fetch("SELECT user_id FROM messages")} == {"mei"}
    await pool.execute("SELECT bind_reader($1, 'shop')", name[1])
    assert set((await seen()).values()) == {0}
    assert await seen("ben") == own
    assert set((await seen("nobody")).values()) == {0}
    await pool.execute("DELETE FROM reader_scopes")
    assert set((await seen("mei")).values()) == {0}
    await connection.close()


async def test_a_reader_may_search_its_scope(pool: asyncpg.Pool, logins: dict[str, str]) -> None:
    """The library's own search and reads run as a reader, if accesses are not recorded."""
    await fill(pool)
    async with await database.create_pool(logins["reader"], max_size=2) as reading:
        found = await MemorySearch(reading).search(app_name="shop", user_id="mei", query="peanuts", record_access=False)
        assert {each.source for each in found.memories} >= {"memory", "fact", "message"}
        session = await OpenSessionService(reading).get_session("shop", "mei", "s")
        assert session is not None
        assert len(session.events) == 1


async def test_a_reader_sees_the_corpora_that_its_user_may_read(pool: asyncpg.Pool, logins: dict[str, str]) -> None:
    """By plain SQL and by search: what everyone or the user may read; not another's, a role's or another app's."""
    shop, bank = (KnowledgeService(pool, app, LocalEmbedder()) for app in ("shop", "bank"))
    readers: dict[str, list[str] | None] = {
        "all": None,
        "hers": ["user:mei"],
        "role": ["role:hr"],
        "bens": ["user:ben"],
    }
    for name, who in readers.items():
        await shop.put_corpus(name, readers=who)
        await shop.add(name, f"Peanuts of {name}.", source_uri=f"{name}.md", inline=True)
    for service, owner, name in ((shop, "mei", "own"), (shop, "ben", "others"), (bank, "mei", "elsewhere")):
        await service.put_corpus(name, owner=owner)
        await service.add(name, f"Peanuts of {name}.", source_uri=f"{name}.md", user_id=owner, inline=True)
    tables = ("knowledge_documents", "knowledge_versions", "knowledge_base", "knowledge_vectors")
    async with await database.create_pool(logins["reader"], max_size=2) as reading:
        seen = {row["name"] for row in await reading.fetch("SELECT name FROM corpus")}
        assert seen == {"all", "hers", "own"}
        assert [await reading.fetchval(f"SELECT count(*) FROM {table}") for table in tables] == [3, 3, 3, 3]
        assert {row["grantee"] for row in await reading.fetch("SELECT grantee FROM corpus_access")} == {"*", "user:mei"}
        found = await KnowledgeService(reading, "shop").search("peanuts", user_id="mei", roles=["hr"])
        assert {hit.corpus for hit in found.hits} == {"all", "hers", "own"}
        # Another name in the call opens nothing: the login is bound.
        as_ben = await KnowledgeService(reading, "shop").search("peanuts", user_id="ben")
        assert {hit.corpus for hit in as_ben.hits} == {"all"}
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await reading.execute("UPDATE knowledge_base SET content = 'x'")


async def test_every_table_with_data_of_users_has_its_policies(pool: asyncpg.Pool, logins: dict[str, str]) -> None:
    """A new table needs its row in the catalogue, and then has policies: this fails for one that has none."""
    assert logins
    rows = await pool.fetch(
        "SELECT d.table_name, d.user_rows IS NOT NULL AS is_owned, c.relrowsecurity AS is_enabled,"
        " array_agg(p.polname::text) FILTER (WHERE p.polname IS NOT NULL) AS policies"
        " FROM data_catalogue AS d JOIN pg_class AS c ON c.oid = d.table_name::regclass"
        " LEFT JOIN pg_policy AS p ON p.polrelid = c.oid GROUP BY 1, 2, 3"
    )
    assert len(rows) > 40
    unread = {"api_keys", "stream_tickets", "erased_imports"}
    for row in rows:
        assert row["is_enabled"], row["table_name"]
        assert "hippocampus_service" in row["policies"], row["table_name"]
        if row["is_owned"]:
            assert ("hippocampus_scope" in row["policies"]) == (row["table_name"] not in unread), row["table_name"]


async def test_no_statement_of_the_program_shows_a_reader_what_is_outside_of_its_scope(
    dsn: str, pool: asyncpg.Pool, logins: dict[str, str]
) -> None:
    """Every statement of every query file, with the names and ids of another user: the owner sees that user's words
    in many of them, the reader in none."""
    await fill(pool, "bank", "eve")
    ids = await pool.fetch("SELECT id FROM threads UNION ALL SELECT id FROM memories UNION ALL SELECT id FROM facts")
    reader = await database.connect(logins["reader"])
    owner = await database.connect(dsn)
    shown = dict.fromkeys(("owner", "reader"), 0)
    tried = 0
    for _, name, text in _statements():
        for row in ids:
            tried += 1
            for who, connection in (("owner", owner), ("reader", reader)):
                shown[who] += SECRET in await _answer(connection, name, text, row["id"])
    await reader.close()
    await owner.close()
    assert tried > 900
    assert shown["owner"] > 30
    assert shown["reader"] == 0


#: Arguments of a statement, as its comment names them.
APP, USER = re.compile(r"(?i)(an )?apps?( or null)?$"), re.compile(r"(?i)(a )?(users?|caller)( or null)?$")
#: How the arguments beside app and user are chosen.
MODES = ("usual", "bare", "named")


def test_every_statement_is_classified() -> None:
    """A new statement takes an app and a user, or is listed with the reason why it does not."""
    scoped, others = set(), set()
    for label, _, text in _statements():
        (scoped if None not in _places(label, text) else others).add(label)
    listed = _all_of(statement_scopes.UNSCOPED)
    assert others - listed == set(), "say in tests/support/statement_scopes.py why it takes no app and user"
    assert listed - others == set(), "no longer there, or it takes an app and a user now"
    assert {*statement_scopes.WORDS, *statement_scopes.GIVEN} <= scoped | others


async def test_no_statement_shows_or_changes_rows_of_another_user_or_app(dsn: str, pool: asyncpg.Pool) -> None:
    """Every statement that takes an app and a user, as the owner, who is subject to no policy: with each id of a user's
    rows, and the names of a user of the same app, or of another app, who has a session of the same name. With their own
    names each of them shows or changes something, but for those that are listed. What takes an app alone is sent with
    the name of another one."""
    await fill(pool, "bank", "eve")
    await _fill_more(pool, "bank", "eve")
    rows = await pool.fetch(
        "SELECT table_name, user_rows FROM data_catalogue WHERE user_rows IS NOT NULL AND user_rows !~ '[$][3-9]'"
    )
    every = " UNION ALL ".join(
        f"SELECT md5(string_agg(r::text, '' ORDER BY r::text)) FROM {table} AS r WHERE {condition}"
        for table, condition in rows
    )
    fingerprint = f"SELECT md5(string_agg(m, '')) FROM ({every}) AS f (m)"
    for app, user in (("shop", "eve"), ("bank", "mei")):
        await fill(pool, app, user, words="pears make me laugh")
    ids = await pool.fetchval(
        "SELECT array_agg(id) FROM (SELECT id, app_name, user_id FROM threads UNION ALL SELECT id, app_name, user_id"
        " FROM memories UNION ALL SELECT id, app_name, user_id FROM facts UNION ALL SELECT m.id, t.app_name, t.user_id"
        " FROM messages AS m JOIN threads AS t ON t.id = m.thread_id UNION ALL SELECT j.id, t.app_name, t.user_id"
        " FROM consolidation_jobs AS j JOIN threads AS t ON t.id = j.thread_id UNION ALL SELECT d.id, c.app_name,"
        " c.user_id FROM knowledge_documents AS d JOIN corpus AS c ON c.id = d.corpus_id UNION ALL SELECT id,"
        " app_name, user_id FROM corpus) AS r WHERE app_name = 'bank' AND user_id = 'eve'"
    )
    before = await pool.fetchval(fingerprint, "bank", "eve")
    owner = await database.connect(dsn)
    asked: set[str] = set()
    acting: set[str] = set()
    answered: set[str] = set()
    for label, name, text in _statements():
        words = _words(label, text)
        app_place, user_place = _places(label, text)
        if app_place is None:
            continue
        scopes = [("shop", "eve")]
        if user_place is not None:
            asked.add(label)
            scopes += [("bank", "eve"), ("bank", "mei")]
        statement = await owner.prepare(text)
        kinds = [each.name for each in statement.get_parameters()]
        sent: list[list[Any]] = []
        for found, (app, user), mode in itertools.product(ids, scopes, MODES):
            names = {**statement_scopes.GIVEN.get(label, {}), app_place: app}
            names |= {} if user_place is None else {user_place: user}
            if label in statement_scopes.LISTS:
                names |= {place: [name] for place, name in names.items() if isinstance(name, str)}
            given = [
                names.get(place, _given(kind, words[place] if place < len(words) else "", found, mode=mode))
                for place, kind in enumerate(kinds)
            ]
            if given in sent:
                continue
            sent.append(given)
            async with _undone(owner):
                shown = await _shown(owner, text, given)
                is_changed = shown is not None and await owner.fetchval(fingerprint, "bank", "eve") != before
            known = str(given)
            is_seen = shown is not None and any(
                word in shown and word not in known for word in (SECRET, *map(str, ids))
            )
            acts = is_seen or is_changed
            if (app, user) == ("bank", "eve"):
                answered |= {label} if shown is not None else set()
                acting |= {label} if acts else set()
            else:
                assert not acts, (label, name, app, user, given, shown)
    await owner.close()
    assert asked - answered == _all_of(statement_scopes.REFUSED)
    assert asked & answered - acting == _all_of(statement_scopes.INERT)


def _all_of(reasons: Mapping[str, frozenset[str]]) -> set[str]:
    """The statements of every reason, each of which has one."""
    assert sum(map(len, reasons.values())) == len(set().union(*reasons.values()))
    return set().union(*reasons.values())


async def _fill_more(pool: asyncpg.Pool, app: str, user: str) -> None:
    """A run that goes on, a job that waits, a file and a document of a user who has a session."""
    event = "ROW('e2', 'user', 'user_message', 'r1', '{}', '{}', NULL, NULL, NULL, 'user', $3, NULL)::event_input"
    await pool.execute(f"SELECT FROM start_run($1, $2, 's', 'r1', 'holder', 3600, ARRAY[{event}])", app, user, SECRET)
    await pool.execute("SELECT FROM finalize_session($1, $2, 's')", app, user)
    part = json.dumps({"text": SECRET})
    await pool.execute(
        "SELECT FROM save_artifact($1, $2, NULL, 'f.txt', $3, NULL, 'text/plain', '{}')", app, user, part
    )
    knowledge = KnowledgeService(pool, app, LocalEmbedder())
    await knowledge.put_corpus("own", owner=user)
    await knowledge.add("own", f"{SECRET}.", source_uri="own.md", user_id=user, inline=True)


def _places(label: str, text: str) -> tuple[int | None, int | None]:
    """Which arguments of a statement are the app and the user."""
    words = _words(label, text)
    app, user = (next((place for place, word in enumerate(words) if kind.match(word)), None) for kind in (APP, USER))
    return app, user


def _statements() -> Iterator[tuple[str, str, str]]:
    """The file, the name and the text of every statement."""
    for path in (*ROOT.glob("pulse/**/*.sql"), *ROOT.glob("hippocampus/**/*.sql"), *ROOT.glob("workers/**/*.sql")):
        package = ".".join(path.relative_to(ROOT).parent.parts)
        for name, text in load_queries(package, path.name).items():
            yield f"{package}/{path.stem}.{name}", name, text


def _words(label: str, text: str) -> list[str]:
    """What the comment of a statement calls its arguments, in their order."""
    words = statement_scopes.WORDS.get(label)
    if words is None:
        lines = [line for line in text.splitlines() if not re.match("-- (audited$|redacts:)", line)]
        words = re.sub(r" \([^)]*\)", " or null", _comment("\n".join(lines))).replace("app and user", "app, user")
    return re.split(r", |[:;.] ", words)


#: What an argument is, by the first of these that its name in the comment has; all have a row in `fill`.
NAMED: dict[str, Any] = {
    "session": "s", "query": "peanuts", "event id": "e1", "key": "allergy", "job type": "fast_replay", "version": 2,
    "messages": "recent", "sequence": 1,
}  # fmt: skip


def _given(kind: str, word: str, found: uuid.UUID, *, mode: str) -> Any:
    """What shows and changes the most: many rows, of the user's own names; bare, without any filter or position; named,
    with every name, from the first row to the last."""
    if mode == "named" and re.search("after|before", word):
        return (0 if "after" in word else 1000) if kind.startswith(("int", "bigint")) else None
    if (re.search("or null", word) and (mode != "named" or "session" not in word)) or (
        mode == "bare" and not re.search("limit|at most|query|source", word)
    ):
        return None
    named = next((value for each, value in NAMED.items() if each in word), None)
    match kind:
        case "text" | "varchar":
            return named if isinstance(named, str) else "x"
        case "text[]":
            return ["e1"] if "event" in word else ["memory", "fact", "message"]
        case "int8[]" | "bigint[]":
            return [1]
        case "int4" | "int8" | "integer" | "bigint" | "smallint":
            return named if isinstance(named, int) else 100
        case "timestamptz":
            return datetime.datetime.now(datetime.UTC)
        case _:
            return _argument(kind, word, found)


@contextlib.asynccontextmanager
async def _undone(connection: asyncpg.Connection) -> AsyncIterator[None]:
    transaction = connection.transaction()
    await transaction.start()
    try:
        yield
    finally:
        await transaction.rollback()


async def _shown(connection: asyncpg.Connection, text: str, given: list[Any]) -> str | None:
    """Run a statement; return what it shows, None if it fails."""
    try:
        return str([tuple(row) for row in await connection.fetch(text, *given)])
    except (asyncpg.PostgresError, asyncpg.InterfaceError, ValueError, TypeError):
        return None


async def _answer(connection: asyncpg.Connection, name: str, text: str, found: uuid.UUID) -> str:
    """Run a statement with arguments of the right types, in a transaction that is rolled back; return what it shows."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        statement = await connection.prepare(text)
        words = re.findall(r"(?:^|[,;:] ?)(app|user|session id|session|event ids?|query)\b", _comment(text))
        given = []
        for place, parameter in enumerate(statement.get_parameters()):
            given.append(_argument(parameter.name, words[place] if place < len(words) else "", found))
        async with asyncio.timeout(5):
            return str([tuple(row) for row in await statement.fetch(*given)])
    except (asyncpg.PostgresError, asyncpg.InterfaceError, ValueError, TypeError, TimeoutError) as error:
        return str(error)
    finally:
        if not connection.is_closed():
            await transaction.rollback()


def _comment(text: str) -> str:
    return " ".join(line.removeprefix("-- ") for line in text.splitlines() if line.startswith("-- "))


def _argument(kind: str, word: str, found: uuid.UUID) -> Any:
    named = {"app": "bank", "user": "eve", "session id": "s", "session": "s", "query": "peanuts"}
    match kind:
        case "uuid":
            return found
        case "uuid[]":
            return [found]
        case "text" | "varchar":
            return named.get(word)
        case "text[]":
            return ["s", "memory", "fact", "message", "e1"]
        case "integer" | "bigint" | "smallint" | "int4" | "int8":
            return 100 if word == "" else 0
        case "bool" | "boolean":
            return False
        case "jsonb":
            return {}
        case _:
            return None


async def test_policies_cost_the_writer_no_plan(dsn: str, pool: asyncpg.Pool, logins: dict[str, str]) -> None:
    """For a role whose policy is true, `@@` and `@>` stay conditions of their indexes, as they are for the owner."""
    await fill(pool)
    writer = await database.connect(logins["writer"])
    owner = await database.connect(dsn)
    for sql in (
        "SELECT * FROM memories WHERE search @@ 'peanut'::tsquery",
        "SELECT * FROM user_states WHERE state @> '{\"note\": 1}'",
        "SELECT * FROM threads AS t JOIN events AS e ON e.thread_id = t.id WHERE t.app_name = 'a' AND t.user_id = 'b'",
    ):
        plans = []
        for connection in (writer, owner):
            await connection.execute("SET enable_seqscan = off")
            rows = await connection.fetch(f"EXPLAIN (COSTS OFF) {sql}")
            plans.append([row[0] for row in rows if "Index" in row[0]])
        assert plans[0] == plans[1]
        assert any("Index Cond" in line for line in plans[0])
    await writer.close()
    await owner.close()
