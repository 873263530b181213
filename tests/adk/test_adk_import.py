"""The import of ADK's own database service: complete, resumable, and read back as ADK reads it."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions import DatabaseSessionService
from google.genai import types

from hippocampus.erasure.service import ErasureService
from pulse.adk import PostgresSessionService
from pulse.postgres.json_values import escape_state
from pulse.session_service import OpenSessionService
from pulse.state.history import StateHistory
from tests.support import cli_process
from tests.support.lock_gates import held_after, until_one_waits_at_the_gate
from workers.adk import importing, source
from workers.adk.source import SourceError

APP = "shop"


@pytest.fixture
def adk_url(empty_dsn: str) -> str:
    """A database for ADK's own service on the same server."""
    return empty_dsn.replace("postgresql://", "postgresql+asyncpg://", 1)


@pytest.fixture
async def on_postgres(adk_url: str) -> AsyncIterator[DatabaseSessionService]:
    service = DatabaseSessionService(adk_url)
    yield service
    await service.close()


def event(number: int, **delta: Any) -> Event:
    """An event whose kind of content depends on its number. Some events of a session share a timestamp."""
    part = [
        types.Part(text=f"note {number} 火锅 \\u0000 ü"),
        types.Part(function_call=types.FunctionCall(id="f", name="call", args={"zeta": 1, "alpha": [None, 2.5]})),
        types.Part(inline_data=types.Blob(mime_type="image/png", data=bytes([number % 256, 0, 255]))),
        types.Part(text="thinking", thought=True, thought_signature=b"\x00\xff"),
    ][number % 4]
    author = "user" if number % 2 == 0 else "helper"
    return Event(
        author=author,
        invocation_id=f"i{number // 2}",
        timestamp=1_700_000_000.123456 + number // 3,
        branch="a.b" if number % 5 == 0 else None,
        content=types.Content(role="user" if author == "user" else "model", parts=[part]),
        actions=EventActions(state_delta=delta, artifact_delta={"a.png": number}),
    )


async def fill(service: DatabaseSessionService, *, sessions: int, events: int) -> None:
    """Create sessions of three users, with state in every scope."""

    async def one(number: int) -> None:
        user = f"u{number % 3}"
        session = await service.create_session(
            app_name=APP, user_id=user, session_id=f"s{number}", state={"made": number, "big": 1e22, "zero": -0.0}
        )
        for step in range(events):
            delta = {"step": step, f"user:k{number}": step, f"app:k{number}": step} if step % 7 == 0 else {}
            await service.append_event(session, event(step, **delta))

    # Shared state first: ADK's own service loses keys when sessions are created concurrently.
    for user in ("u0", "u1", "u2"):
        await service.create_session(app_name=APP, user_id=user, session_id=f"empty-{user}", state={"user:x": 1})
    for start in range(0, sessions, 10):
        await asyncio.gather(*[one(number) for number in range(start, min(sessions, start + 10))])


async def copy(url: str, pool: asyncpg.Pool, **options: Any) -> importing.Copied:
    async with source.opened(url) as opened:
        return await importing.AdkImport(opened, pool, **options).run()


async def assert_equal(service: DatabaseSessionService, pool: asyncpg.Pool) -> int:
    """Compare every session, state and event with what ADK's own service reads, and return the number of sessions."""
    here = PostgresSessionService(pool)
    listed = (await service.list_sessions(app_name=APP)).sessions
    for each in listed:
        theirs = await service.get_session(app_name=APP, user_id=each.user_id, session_id=each.id)
        assert theirs is not None
        ours = await here.get_session(app_name=APP, user_id=each.user_id, session_id=each.id)
        assert ours is not None
        assert ours.model_dump() == theirs.model_dump()
    return len(listed)


async def test_a_second_import_of_a_sqlite_file_adds_only_what_is_new(tmp_path: Path, pool: asyncpg.Pool) -> None:
    """A session that has continued here keeps its state."""
    url = f"sqlite+aiosqlite:///{tmp_path / 'sessions.db'}"
    async with DatabaseSessionService(url) as service:
        await fill(service, sessions=4, events=30)
        assert (await copy(url, pool)).new == {"sessions": 7, "events": 120}
        await assert_restorable(pool)
        session = await service.get_session(app_name=APP, user_id="u1", session_id="s1")
        assert session is not None
        await service.append_event(session, event(30, step=99))
        again = await copy(url, pool)
        assert (again.new, again.is_complete, again.moved_sessions) == ({"sessions": 0, "events": 1}, True, 0)
        await assert_equal(service, pool)
        await assert_restorable(pool)

        sessions = PostgresSessionService(pool)
        s1 = {"app_name": APP, "user_id": "u1", "session_id": "s1"}
        here = await sessions.get_session(**s1)
        assert here is not None
        await sessions.append_event(here, event(31, step="ours", **{"user:x": "ours"}))
        third = await copy(url, pool)
        assert (third.moved_sessions, third.kept_keys, third.is_complete) == (1, 1, True)
        here = await sessions.get_session(**s1)
        assert here is not None
        assert (here.state["step"], here.state["user:x"]) == ("ours", "ours")
        assert (await copy(url, pool, overwrite_state=True)).kept_keys == 0
        await assert_restorable(pool)
        await sessions.close()


async def assert_restorable(pool: asyncpg.Pool) -> None:
    """Compare every state with the one restored from its first state and its events, with and without snapshots."""
    history = StateHistory(pool)
    users = set()
    for row in await pool.fetch("SELECT user_id, session_id, state FROM threads WHERE app_name = $1", APP):
        for from_snapshot in (True, False):
            restored = await history.restore(APP, row["user_id"], row["session_id"], from_snapshot=from_snapshot)
            assert escape_state(restored.state) == row["state"], row["session_id"]
        users.add(row["user_id"])
    for user in users:
        shared = await history.rebuild_shared(APP, user)
        assert (shared.user_is_complete, shared.app_is_complete) == (True, True)
        assert shared.app_state == await pool.fetchval("SELECT state FROM app_states WHERE app_name = $1", APP)
        assert shared.user_state == await pool.fetchval(
            "SELECT state FROM user_states WHERE app_name = $1 AND user_id = $2", APP, user
        )


async def test_past_states_of_an_imported_session_are_restored_from_its_events(
    tmp_path: Path, pool: asyncpg.Pool
) -> None:
    """With and without snapshots. Erasing an imported event also erases what it set."""
    await pool.execute("UPDATE app_policies SET snapshot_events = 5")
    url = f"sqlite+aiosqlite:///{tmp_path / 'sessions.db'}"
    s0 = (APP, "u0", "s0")
    async with DatabaseSessionService(url) as service:
        await fill(service, sessions=1, events=20)
        await copy(url, pool)
        history = StateHistory(pool)
        first = await history.restore(*s0, sequence_num=0)
        assert first.state == {"made": 0, "big": 1e22, "zero": -0.0}
        for number, step in ((3, 0), (6, 0), (9, 7), (12, 7), (15, 14), (20, 14)):
            for from_snapshot in (True, False):
                restored = await history.restore(*s0, sequence_num=number, from_snapshot=from_snapshot)
                assert restored.state == {**first.state, "step": step}
        setting = "SELECT sequence_num FROM events WHERE session_delta IS NOT NULL ORDER BY 1"
        steps = [row[0] for row in await pool.fetch(setting)]
        await ErasureService(pool).erase_events(*s0, sequence_nums=steps[:2])
        assert (await history.restore(*s0, sequence_num=9)).state == first.state
        await ErasureService(pool).erase_events(*s0, sequence_nums=steps[2:])
        assert (await history.restore(*s0)).state == first.state
        assert not await pool.fetchval("SELECT bool_or(delta ? 'k0') FROM imported_states")
        assert await pool.fetchval("SELECT state FROM user_states WHERE user_id = 'u0'") == {"x": 1}


async def test_a_state_that_the_events_do_not_produce_gets_one_correcting_event(
    tmp_path: Path, pool: asyncpg.Pool
) -> None:
    """ADK applied two changes in another order than that of their timestamps. The copy ends with ADK's state."""
    url = f"sqlite+aiosqlite:///{tmp_path / 'sessions.db'}"
    async with DatabaseSessionService(url) as service:
        session = await service.create_session(app_name=APP, user_id="u", session_id="s")
        for number, delta in ((9, {"a": "first", "b": 1}), (0, {"a": "last"})):
            await service.append_event(session, event(number, **delta))
        for new_events in (2, 0):
            done = await copy(url, pool)
            assert (done.new["events"], done.is_complete) == (new_events, True)
            here = await PostgresSessionService(pool).get_session(app_name=APP, user_id="u", session_id="s")
            assert here is not None
            assert here.state == session.state == {"a": "last", "b": 1}
            assert here.last_update_time == session.last_update_time
            [correction] = [each for each in here.events if each.author == "import"]
            assert (correction.actions.state_delta, len(here.events)) == ({"a": "last"}, 3)
            restored = await StateHistory(pool).restore(APP, "u", "s")
            assert (restored.state, restored.deltas) == (here.state, 3)


async def test_what_was_erased_here_is_not_imported_again(
    tmp_path: Path, pool: asyncpg.Pool, dsn: str, home: Path
) -> None:
    """Keys of shared state from erased events, erased sessions and erased users stay erased, even with overwrite_state.
    What the source has received since is imported, and the report counts what was left out."""
    url = f"sqlite+aiosqlite:///{tmp_path / 'sessions.db'}"
    async with DatabaseSessionService(url) as service:
        await fill(service, sessions=3, events=8)
        session = await service.get_session(app_name=APP, user_id="u0", session_id="s0")
        assert session is not None
        # Not concurrently: ADK's own service may lose keys of shared state that sessions set at once.
        await service.append_event(session, event(8, step=8, **{"app:k0": 8}))
        await copy(url, pool)
        here = ErasureService(pool)
        setting = "SELECT sequence_num FROM events JOIN threads ON threads.id = thread_id WHERE session_id = 's0'"
        numbers = [row[0] for row in await pool.fetch(f"{setting} AND session_delta IS NOT NULL")]
        await here.erase_events(APP, "u0", "s0", sequence_nums=numbers)
        await here.erase_session(APP, "u1", "s1")
        await here.erase_user(APP, "u2")
        kept = [await states(pool), await pool.fetch("SELECT id FROM threads ORDER BY id")]
        assert "k0" not in str(kept[0])
        for options in ({}, {"overwrite_state": True}):
            again = await copy(url, pool, **options)
            assert (again.new, again.erased) == ({"sessions": 0, "events": 0}, {"sessions": 3, "events": 16})
            # user:k0 and app:k0, and x and k2 of the erased user. Shared keys that an erased session set are kept.
            assert (again.erased_keys, again.is_complete) == (4, True)
            assert [await states(pool), await pool.fetch("SELECT id FROM threads ORDER BY id")] == kept
        await service.append_event(session, event(9, **{"user:k0": "anew"}))
        await service.create_session(app_name=APP, user_id="u2", session_id="new life")
        done = cli_process.run(home, "import-adk", url, DATABASE_URL=dsn)
        assert done.returncode == 0, done.stderr
        assert "3 sessions and 3 keys of shared state were erased here" in done.stdout
        assert (await states(pool))["u0"] == {"x": 1, "k0": "anew"}
        assert await pool.fetchval("SELECT count(*) FROM threads WHERE user_id = 'u2'") == 1


async def states(pool: asyncpg.Pool) -> dict[str | None, Any]:
    """The shared states by user; the app's state is under None."""
    rows = await pool.fetch("SELECT user_id, state FROM user_states UNION ALL SELECT NULL, state FROM app_states")
    return {row["user_id"]: row["state"] for row in rows}


async def multiply(adk_url: str, times: int) -> None:
    """Copy every row of ADK's service under new session ids: ADK itself would take minutes to write as many."""
    connection = await asyncpg.connect(adk_url.replace("+asyncpg", ""))
    for statement in (
        "INSERT INTO sessions SELECT app_name, user_id, id || '-' || n, state, create_time, update_time"
        " FROM sessions, generate_series(1, $1::integer) AS n",
        "INSERT INTO events SELECT id, app_name, user_id, session_id || '-' || n, invocation_id, timestamp, event_data"
        " FROM events, generate_series(1, $1::integer) AS n",
    ):
        await connection.execute(statement, times)
    await connection.close()


@pytest.mark.system
async def test_a_killed_import_of_a_thousand_events_resumes_without_duplicates(
    on_postgres: DatabaseSessionService, adk_url: str, dsn: str, pool: asyncpg.Pool, home: Path
) -> None:
    """SIGKILL in the middle. The next run reports complete counts and exits with 0."""
    await fill(on_postgres, sessions=2, events=60)
    await multiply(adk_url, 9)
    async with held_after(pool, 300):
        with cli_process.Running(home, "import-adk", adk_url, DATABASE_URL=dsn) as process:
            await until_one_waits_at_the_gate(pool)
            process.process.send_signal(signal.SIGKILL)
    done = cli_process.run(home, "import-adk", adk_url, "--json", DATABASE_URL=dsn)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["is_complete"]
    assert report["here"] == report["source"] == {"sessions": 50, "events": 1200, "app_states": 1, "user_states": 3}
    assert 0 < report["new"]["events"] < 1200
    assert await pool.fetchval("SELECT count(*) FROM events") == 1200
    assert await assert_equal(on_postgres, pool) == 50


async def test_a_session_that_was_not_imported_is_kept_and_the_command_fails(
    on_postgres: DatabaseSessionService, adk_url: str, dsn: str, pool: asyncpg.Pool, home: Path
) -> None:
    await fill(on_postgres, sessions=1, events=3)
    await on_postgres.create_session(app_name=APP, user_id="u0", session_id="  ")
    sessions = OpenSessionService(pool)
    await sessions.create_session(APP, "u0", {"mine": True}, session_id="s0")
    done = cli_process.run(home, "import-adk", adk_url, DATABASE_URL=dsn)
    assert done.returncode == 1
    assert "session 's0' of 'u0' in 'shop' exists here" in done.stdout
    assert "Not copied completely: session '  ', 'u0', 'shop': its id is blank" in done.stdout
    assert "The copy is not complete." in done.stdout
    kept = await sessions.get_session(APP, "u0", "s0")
    assert kept is not None
    assert (kept.events, kept.state["mine"]) == ([], True)


async def test_what_cannot_be_imported_is_named_and_the_rest_is_copied(tmp_path: Path, pool: asyncpg.Pool) -> None:
    """Names and sizes that ADK's service accepts and ours does not. Blanks around an id do not hide the session."""
    await pool.execute('SELECT set_app_policy($1, \'{"max_event_bytes": 20000, "max_state_bytes": 3000}\')', APP)
    url = f"sqlite+aiosqlite:///{tmp_path / 'sessions.db'}"
    letters = [f"{n:x}" for n in range(1000)]
    async with DatabaseSessionService(url) as service:
        for user, session_id in (
            ("", "s"),
            ("ann", "  "),
            ("ann", " s"),
            ("ann", "s"),
            ("ann", " padded "),
            ("z", "z"),
        ):
            await service.append_event(
                await service.create_session(app_name=APP, user_id=user, session_id=session_id), event(0)
            )
        big = await service.create_session(app_name=APP, user_id="ann", session_id="big")
        long = types.Content(role="user", parts=[types.Part(text="x" * 30_000)])
        await service.append_event(big, Event(author="user", content=long))
        await service.create_session(app_name=APP, user_id="bob", session_id="s", state={"user:much": letters})
        await service.create_session(app_name="n" * 300, user_id="u", session_id="s", state={"app:a": 1})
        done = await copy(url, pool)
        why = {(each.user_id, each.session_id): each.reason for each in done.refused}
        for names, reason in {
            ("", None): "user_id must have 1 to 255 characters",
            ("", "s"): "user_id must have 1 to 255 characters",
            (None, None): "app_name must have 1 to 255 characters",
            ("u", None): "app_name must have 1 to 255 characters",
            ("u", "s"): "app_name must have 1 to 255 characters",
            ("ann", "  "): "its id is blank",
            ("ann", " s"): "its id differs from another session's only in blanks",
            ("ann", "big"): "over the limit of 20000",
            ("bob", None): "over the limit of 3000",
        }.items():
            assert reason in why.pop(names)
        assert why == {}
        assert not done.is_complete
        here = PostgresSessionService(pool)
        for user, theirs, ours in (
            ("ann", "s", "s"),
            ("ann", " padded ", "padded"),
            ("z", "z", "z"),
            ("bob", "s", "s"),
        ):
            copied = await here.get_session(app_name=APP, user_id=user, session_id=theirs)
            source_session = await service.get_session(app_name=APP, user_id=user, session_id=theirs)
            assert copied is not None
            assert source_session is not None
            assert (copied.id, copied.events) == (ours, source_session.events)
        await pool.execute('SELECT set_app_policy($1, \'{"max_event_bytes": 100000, "max_state_bytes": 100000}\')', APP)
        again = await copy(url, pool)
        assert (again.new["events"], len(again.refused)) == (1, 7)
        assert await here.get_user_state(app_name=APP, user_id="bob") == {"much": letters}


async def test_a_source_that_is_not_a_database_of_adk_is_refused(tmp_path: Path, dsn: str, empty_dsn: str) -> None:
    """Wrong addresses, other databases and older schemas. No error shows a password."""
    old = tmp_path / "old.db"
    async with DatabaseSessionService(f"sqlite+aiosqlite:///{old}") as service:
        await service.prepare_tables()
        async with service.db_engine.begin() as connection:
            await connection.exec_driver_sql("DROP TABLE adk_internal_metadata")
            await connection.exec_driver_sql("ALTER TABLE events ADD COLUMN actions BLOB")
    for url, expected in {
        "nonsense": "is not valid: write it as for DatabaseSessionService",
        "oracle://host/name": "is not valid",
        dsn: "is not a database of ADK's",
        empty_dsn: "is not a database of ADK's",
        f"sqlite:///{old}": "version 0 of ADK's schema, of google-adk 1.x: run `adk migrate session`",
        "postgresql://me:secret@127.0.0.1:1/none": "cannot be read",
        f"sqlite:///{tmp_path}/mistyped.db": "There is no file .*/mistyped.db: use the address",
        "mysql://me:secret@127.0.0.1/none": "needs the driver aiomysql, which is not installed: pip install aiomysql",
    }.items():
        with pytest.raises(SourceError, match=expected) as caught:
            async with source.opened(url):
                pass
        assert "secret" not in str(caught.value)
    assert not (tmp_path / "mistyped.db").exists()


async def test_the_time_of_an_imported_session_is_that_of_the_event_appended_last(
    on_postgres: DatabaseSessionService, adk_url: str, pool: asyncpg.Pool
) -> None:
    """Which is not the latest one, where clocks differ."""
    session = await on_postgres.create_session(app_name=APP, user_id="u", session_id="s")
    for number in (30, 10):
        await on_postgres.append_event(session, event(number, **{f"k{number}": number}))
    assert (await copy(adk_url, pool)).is_complete
    await assert_equal(on_postgres, pool)
