"""What our session service does beyond ADK's contract: time to live, pages, one statement per call."""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
from collections.abc import AsyncIterator
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from google.adk.errors import StaleSessionError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.sessions.base_session_service import GetSessionConfig

from pulse import errors
from pulse.adk import PostgresSessionService
from pulse.events import Event as EngineEvent
from pulse.events import EventActions
from pulse.postgres.statements import Statements
from pulse.session_service import OpenSessionService
from tests.support.adk.services import Who, calling, changing, said
from tests.support.waiting import WAIT_SECONDS
from workers.migrate import migrate
from workers.queue.upkeep import Upkeep
from workers.settings import Settings

WHO: Who = {"app_name": "app", "user_id": "ann"}


@pytest.fixture
async def service(pool: asyncpg.Pool) -> AsyncIterator[PostgresSessionService]:
    async with PostgresSessionService(pool) as opened:
        yield opened


@pytest.fixture
async def pass_time(pool: asyncpg.Pool) -> Any:
    """Move the clocks of all sessions back, as if that many seconds had passed."""

    async def back(seconds: float) -> None:
        await pool.execute(
            "UPDATE threads SET updated_at = updated_at - $1::interval, expires_at = expires_at - $1",
            timedelta(seconds=seconds),
        )

    return back


# Time to live


async def test_an_expired_session_is_as_if_deleted(service: PostgresSessionService, pass_time: Any) -> None:
    session = await service.create_session(**WHO, session_id="s", state={"user:a": 1}, ttl=3600)
    await pass_time(3000)
    assert await service.get_session(**WHO, session_id="s") == session
    await pass_time(601)
    assert await service.get_session(**WHO, session_id="s") is None
    assert (await service.list_sessions(**WHO)).sessions == []
    assert (await service.list_sessions_page(**WHO)).sessions == []
    with pytest.raises(SessionNotFoundError, match="has expired"):
        await service.append_event(session, said("x"))
    assert (await service.create_session(**WHO, session_id="s")).state == {"user:a": 1}


async def test_a_session_that_replaces_an_expired_one_is_not_deleted(
    service: PostgresSessionService, pass_time: Any, pool: asyncpg.Pool, conn: asyncpg.Connection
) -> None:
    """Two callers find the same session expired. The slower one finds the faster one's new session."""
    await conn.execute(
        """
        ALTER FUNCTION delete_session RENAME TO delete_session_now;
        CREATE FUNCTION delete_session(p_app_name text, p_user_id text, p_session_id text) RETURNS boolean
        LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM pg_advisory_xact_lock(current_setting('test.hold')::integer);
            RETURN delete_session_now(p_app_name, p_user_id, p_session_id);
        END $$;
        SELECT set_config('test.hold', '1', false), pg_advisory_lock(1)
        """
    )
    create = "SELECT thread_id FROM create_session('app', 'mei', 's')"
    await pool.execute("SELECT create_session('app', 'mei', 's', p_ttl => '1 minute')")
    await pass_time(61)
    async with pool.acquire() as slow, pool.acquire() as fast, asyncio.timeout(WAIT_SECONDS):
        pids = [await each.fetchval("SELECT pg_backend_pid()") for each in (slow, fast)]
        await slow.execute("SET test.hold = '1'")
        await fast.execute("SET test.hold = '2'")
        slower = asyncio.create_task(slow.fetchval(create))
        await until_waiting(conn, pids[0])
        faster = asyncio.create_task(fast.fetchval(create))
        while not faster.done() and not await is_waiting(conn, pids[1]):
            await asyncio.sleep(0.01)
        await conn.execute("SELECT pg_advisory_unlock(1)")
        made = await asyncio.gather(slower, faster, return_exceptions=True)
        assert [each.sqlstate for each in made if isinstance(each, asyncpg.PostgresError)] == ["HP006"]
        assert await conn.fetchval("SELECT id FROM threads") in made
        await slow.execute("RESET test.hold")
        await fast.execute("RESET test.hold")


async def is_waiting(conn: asyncpg.Connection, pid: int) -> bool:
    waiting: bool = await conn.fetchval("SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $1 AND NOT granted)", pid)
    return waiting


async def until_waiting(conn: asyncpg.Connection, pid: int) -> None:
    while not await is_waiting(conn, pid):
        await asyncio.sleep(0.01)


async def test_each_event_restarts_the_time_to_live(service: PostgresSessionService, pass_time: Any) -> None:
    session = await service.create_session(**WHO, session_id="s", ttl="100s")
    await pass_time(80)
    await service.append_event(session, said("x"))
    await pass_time(80)
    assert await service.get_session(**WHO, session_id="s") == session


async def test_upkeep_deletes_only_expired_sessions(
    service: PostgresSessionService, pool: asyncpg.Pool, pass_time: Any
) -> None:
    for n in range(5):
        await service.create_session(**WHO, session_id=f"gone-{n}", ttl=timedelta(minutes=1))
    kept = await service.create_session(**WHO, session_id="later", ttl=3600)
    touched = await service.create_session(**WHO, session_id="touched", ttl=60)
    await service.create_session(**WHO, session_id="for good")
    await pass_time(61)
    await pool.execute("UPDATE threads SET updated_at = now() WHERE session_id = 'touched'")
    async with pool.acquire() as writer, writer.transaction():
        await writer.execute("SELECT FROM threads WHERE session_id = 'gone-0' FOR UPDATE")
        await Upkeep(pool, Settings()).expire_sessions()
    left = {row["session_id"] for row in await pool.fetch("SELECT session_id FROM threads")}
    # A session that a writer has locked is skipped until the next run.
    assert left == {"gone-0", kept.id, touched.id, "for good"}
    assert await pool.fetchval("SELECT expires_at > now() FROM threads WHERE session_id = 'touched'")


@pytest.mark.parametrize("ttl", [0, -1, "soon", "", True, float("nan"), float("inf"), timedelta(0), 1e12])
async def test_an_invalid_time_to_live_is_refused(service: PostgresSessionService, ttl: Any) -> None:
    with pytest.raises(ValueError, match="ttl must be a duration"):
        await service.create_session(**WHO, ttl=ttl)
    assert (await service.list_sessions(**WHO)).sessions == []


# Pages


async def test_pages_contain_every_session_once_during_appends(service: PostgresSessionService) -> None:
    made = [await service.create_session(**WHO, state={"user:n": n, "app:m": n, "k": n}) for n in range(7)]
    await service.create_session(app_name="app", user_id="zoe")
    token, seen = None, []
    while True:
        page = await service.list_sessions_page(**WHO, page_size=3, page_token=token)
        seen += page.sessions
        if (token := page.next_page_token) is None:
            break
        await service.append_event(page.sessions[0], said("moves up by its time"))
    assert [each.id for each in seen] == [each.id for each in reversed(made)]
    assert seen[0].state == {"user:n": 6, "app:m": 6, "k": 6}
    everyone: list[str] = []
    token = None
    while token is not None or not everyone:
        page = await service.list_sessions_page(app_name="app", page_size=4, page_token=token)
        everyone += [each.user_id for each in page.sessions]
        token = page.next_page_token
    assert everyone == ["zoe"] + ["ann"] * 7


@pytest.mark.parametrize("wrong", [{"page_size": 0}, {"page_size": 1001}, {"page_token": "x"}, {"page_token": "AAAA"}])
async def test_an_invalid_page_is_refused(service: PostgresSessionService, wrong: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidInputError, match="page"):
        await service.list_sessions_page(**WHO, **wrong)


async def test_objects_that_were_read_together_share_nothing(service: PostgresSessionService) -> None:
    """Listed sessions, and equal texts of a history, are copies: a change to one is not seen in another."""
    for name in ("a", "b"):
        session = await service.create_session(**WHO, session_id=name, state={"user:n": 1})
        await service.append_event(session, said("same", id=f"{name}1", timestamp=1.5))
        await service.append_event(session, said("same", id=f"{name}2", timestamp=2.5))
    one, other = (await service.list_sessions(**WHO)).sessions
    one.state["mine"] = 1
    one.events.append(said("mine"))
    await service.append_event(one, said("mine"))
    assert (other.id, other.state, other.events) == ("b", {"user:n": 1}, [])
    assert [each.state for each in (await service.list_sessions(**WHO)).sessions] == [{"user:n": 1}] * 2
    read = await service.get_session(**WHO, session_id="b")
    assert read is not None
    first, second = (event.content for event in read.events)
    assert first is not None
    assert second is not None
    assert first.parts is not None
    first.parts[0].text = "changed"
    first.parts.append(first.parts[0])
    assert second.model_dump(exclude_unset=True) == {"role": "user", "parts": [{"text": "same"}]}
    assert second.model_fields_set == said("same").content.model_fields_set  # type: ignore[union-attr]  # it has one


@pytest.mark.parametrize("was_enabled", [True, False])
async def test_reading_does_not_change_garbage_collection(service: PostgresSessionService, was_enabled: bool) -> None:
    session = await service.create_session(**WHO, session_id="s")
    await service.append_event(session, calling({"a": 1}))
    (gc.enable if was_enabled else gc.disable)()
    try:
        await service.list_sessions(**WHO)
        await service.get_session(**WHO, session_id="s")
        assert gc.isenabled() == was_enabled
    finally:
        gc.enable()


# The database


async def test_every_call_is_one_statement(
    service: PostgresSessionService, pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse.notify.notifier._CLOSE_SECONDS_MAX", WAIT_SECONDS)
    session = await service.create_session(**WHO, session_id="s", state={"a": 1})
    await service.append_event(session, said("the pool's one connection knows our types now"))
    await service.flush()
    assert pool.get_size() == 1
    ran: list[str] = []
    async with pool.acquire() as connection:
        connection.add_query_logger(lambda record: ran.append(record.query))
    for call in (
        lambda: service.create_session(**WHO, state={"a": 1, "user:b": 1, "app:c": 1}, ttl=60),
        lambda: service.append_event(session, changing({"b": 1, "user:c": 1, "app:d": 1})),
        lambda: service.get_session(**WHO, session_id="s"),
        lambda: service.list_sessions(app_name="app"),
        lambda: service.delete_session(**WHO, session_id="s"),
    ):
        await call()
        await asyncio.sleep(0)  # the driver logs a query in the loop's next turn
        assert len(ran) == 1, ran
        await service.flush()
        ran.clear()
    assert pool.get_size() == 1


async def test_a_locked_app_state_does_not_use_up_the_pool(
    service: PostgresSessionService, dsn: str, conn: asyncpg.Connection
) -> None:
    """Appends that change the app's state wait on a few connections of the pool, not on all."""
    opened = [await service.create_session(**WHO, state={"app:a": 0}) for _ in range(12)]
    async with asyncio.timeout(WAIT_SECONDS):
        async with conn.transaction():
            await conn.execute("SELECT FROM app_states FOR UPDATE")
            waiting = [asyncio.create_task(service.append_event(each, changing({"app:a": 1}))) for each in opened[1:]]
            while not await conn.fetchval("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):
                await asyncio.sleep(0.01)
            await service.append_event(opened[0], said("not of the app"))
            assert not any(task.done() for task in waiting)
        await asyncio.gather(*waiting)
    assert await conn.fetchval("SELECT version FROM app_states") == 12 + 11


async def test_events_outside_the_requested_range_are_not_read(
    service: PostgresSessionService, pool: asyncpg.Pool
) -> None:
    session = await service.create_session(**WHO, session_id="s")
    await service.append_event(session, said("x"))
    await pool.execute("ALTER TABLE events RENAME COLUMN content TO hidden")
    with pytest.raises(errors.SchemaError):
        await service.get_session(**WHO, session_id="s")
    await pool.execute("ALTER TABLE events RENAME COLUMN hidden TO content")
    statement = Statements("pulse.adk", "sessions.sql")["get_adk_session"]
    plan = await pool.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", "app", "ann", "s", 0, None)
    scans = [node for node in _nodes(plan) if node.get("Relation Name") == "events" and node["Actual Loops"]]
    assert [scan for scan in scans if scan.get("Index Name") != "events_pkey"] == []


def _nodes(plan: Any) -> list[dict[str, Any]]:
    def walk(node: dict[str, Any]) -> list[dict[str, Any]]:
        return [node, *(below for each in node.get("Plans", []) for below in walk(each))]

    return walk(json.loads(plan)[0]["Plan"])


async def test_a_database_without_our_tables_names_the_command(empty_dsn: str) -> None:
    async with PostgresSessionService(empty_dsn) as service:
        with pytest.raises(errors.SchemaError, match="hippocampus migrate"):
            await service.prepare_tables()


async def test_prepared_tables_are_found(service: PostgresSessionService) -> None:
    await service.prepare_tables()


def _migrate_and_append(dsn: str, name: str) -> int:
    async def work() -> int:
        await migrate(dsn)
        async with PostgresSessionService(dsn) as service:
            session = await service.create_session(**WHO, session_id=name, state={f"app:{name}": 1})
            await service.append_event(session, said("x"))
            found = await service.get_session(**WHO, session_id=name)
            return len(found.events) if found else 0

    return asyncio.run(work())


def _four_at_once(dsn: str) -> list[int]:
    with ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("fork")) as processes:
        return list(processes.map(_migrate_and_append, [dsn] * 4, [f"s{n}" for n in range(4)]))


@pytest.mark.system
def test_four_processes_create_the_tables_concurrently(empty_dsn: str) -> None:
    # Forked from one that has imported google.adk, and has no thread or connection yet.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        assert process.submit(_four_at_once, empty_dsn).result() == [1, 1, 1, 1]


# The session engine underneath


async def test_events_of_other_clients_are_read_as_adk_events(
    service: PostgresSessionService, pool: asyncpg.Pool
) -> None:
    engine = OpenSessionService(pool)
    await engine.create_session("app", "ann", session_id="s")
    await engine.append(
        "app",
        "ann",
        "s",
        [
            EngineEvent(author="user", content={"text": "hello"}, id="e1", timestamp=1_700_000_000.5),
            EngineEvent(author="model", content={"parts": [{"text": "hi"}]}, id="e2", timestamp=1_700_000_001.5),
            EngineEvent(
                author="agent", event_type="tick", id="e3", timestamp=1_700_000_002.5, invocation_id="r",
                actions=EventActions(state_delta={"a": 1}, other={"mine": 1}),
            ),
        ],
    )  # fmt: skip
    await engine.close()
    session = await service.get_session(**WHO, session_id="s")
    assert session is not None
    assert [(each.author, each.content and each.content.role) for each in session.events] == [
        ("user", "user"),
        ("model", "model"),
        ("agent", None),
    ]
    assert session.events[2].actions.state_delta == {"a": 1}
    assert session.last_update_time == 1_700_000_002.5
    assert (await service.list_sessions(**WHO)).sessions[0].last_update_time == 1_700_000_002.5
    await service.append_event(session, said("on we go"))


async def test_an_append_by_another_client_makes_a_reader_stale(
    service: PostgresSessionService, pool: asyncpg.Pool
) -> None:
    session = await service.create_session(**WHO, session_id="s")
    engine = OpenSessionService(pool)
    await engine.append("app", "ann", "s", [EngineEvent(author="user", content={"text": "x"})])
    await engine.close()
    with pytest.raises(StaleSessionError):
        await service.append_event(session, said("y"))


async def test_other_clients_read_adks_events_in_sequence(service: PostgresSessionService, pool: asyncpg.Pool) -> None:
    session = await service.create_session(**WHO, session_id="s", metadata={"channel": "web"})
    await service.append_event(session, said("later", timestamp=200.5))
    await service.append_event(session, said("earlier", "helper", timestamp=100.5))
    read = await OpenSessionService(pool).get_session("app", "ann", "s")
    assert read is not None
    assert [(each.text, each.sequence_num, each.role) for each in read.events] == [
        ("later", 1, "user"),
        ("earlier", 2, "assistant"),
    ]
    assert read.metadata == {"channel": "web"}


async def test_an_append_whose_response_was_lost_can_be_retried(service: PostgresSessionService) -> None:
    session = await service.create_session(**WHO, session_id="s")
    before = session.model_copy(deep=True)
    await service.append_event(session, said("x", id="e", timestamp=1_700_000_000.5))
    await service.append_event(before, said("x", id="e", timestamp=1_700_000_000.5))
    assert before == session
    await service.append_event(before, said("y"))


async def test_an_id_of_another_event_is_refused(service: PostgresSessionService) -> None:
    session = await service.create_session(**WHO)
    await service.append_event(session, said("x", id="e"))
    with pytest.raises(errors.EventConflictError):
        await service.append_event(session, said("y", id="e"))
    assert len(session.events) == 1


async def test_an_event_over_a_limit_is_refused_and_changes_nothing(
    service: PostgresSessionService, pool: asyncpg.Pool
) -> None:
    await pool.execute("SELECT set_app_policy('app', '{\"max_event_bytes\": 20000, \"max_state_bytes\": 3000}')")
    session = await service.create_session(**WHO)
    with pytest.raises(errors.EventTooLargeError):
        await service.append_event(session, said("x" * 30000))
    letters = [f"{n:x}" for n in range(1000)]
    await service.append_event(session, changing({"a": letters[:100]}))
    with pytest.raises(errors.StateTooLargeError):
        await service.append_event(session, changing({"b": letters}))
    assert await service.get_session(**WHO, session_id=session.id) == session


async def test_after_timestamp_may_be_far_away(service: PostgresSessionService) -> None:
    session = await service.create_session(**WHO, session_id="s")
    await service.append_event(session, said("x"))
    for after, count in ((1e300, 0), (-1e300, 1), (float("inf"), 0), (0.0, 1)):
        found = await service.get_session(**WHO, session_id="s", config=GetSessionConfig(after_timestamp=after))
        assert found is not None
        assert len(found.events) == count


async def test_finalising_enqueues_the_unconsolidated_events(service: PostgresSessionService) -> None:
    session = await service.create_session(**WHO)
    await service.append_event(session, said("My cat is called Pixel."))
    assert set(await service.finalize_session(**WHO, session_id=session.id)) == {"fast_replay", "deep_reflection"}
    with pytest.raises(SessionNotFoundError):
        await service.finalize_session(**WHO, session_id="never")


@pytest.mark.parametrize(
    ("app_name", "user_id", "reason"),
    [("app", "", "user_id"), ("app", "  ", "user_id is blank"), (" ", "ann", "app_name is blank"),
     ("*", "ann", r"app_name '\*' stands for the policy of all apps")],
)  # fmt: skip
async def test_a_blank_name_and_the_app_of_all_are_refused(dsn: str, app_name: str, user_id: str, reason: str) -> None:
    async with PostgresSessionService(dsn) as service:
        with pytest.raises(errors.InvalidInputError, match=reason):
            await service.create_session(app_name=app_name, user_id=user_id)


async def test_custom_metadata_are_the_messages_metadata_both_ways(
    service: PostgresSessionService, pool: asyncpg.Pool
) -> None:
    """Search filters by them; what `jsonb` would change stays with the event alone."""
    session = await service.create_session(**WHO, session_id="s")
    for text, metadata in (("one", {"topic": "garden"}), ("two", {"odd": "a\0b"}), ("three", None)):
        event = said(text)
        event.custom_metadata = metadata
        await service.append_event(session, event)
    engine = OpenSessionService(pool)
    elsewhere = EngineEvent(author="user", content={"text": "four"}, metadata={"topic": "pond"})
    await engine.append_event(await engine.get_session(*WHO.values(), "s"), elsewhere)
    rows = await pool.fetch("SELECT content, metadata FROM messages ORDER BY sequence_num")
    assert [tuple(row) for row in rows] == [
        ("one", {"topic": "garden"}),
        ("two", {}),
        ("three", {}),
        ("four", {"topic": "pond"}),
    ]
    read = await service.get_session(**WHO, session_id="s")
    assert read is not None
    assert [event.custom_metadata for event in read.events] == [
        {"topic": "garden"},
        {"odd": "a\0b"},
        None,
        {"topic": "pond"},
    ]
