"""Export of sessions to JSONL and back: exact, atomic per session, and repeatable."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest

from hippocampus.erasure.service import ErasureService
from pulse import database
from pulse.errors import InvalidInputError
from pulse.events import Event, EventActions
from pulse.scopes import split_delta
from pulse.session_service import OpenSessionService
from pulse.state.history import StateHistory
from tests.support import cli_process
from workers.embedded.server import EmbeddedServer
from workers.intake.source import Source
from workers.transfer.sessions import export_sessions, import_sessions

ODD = 'quotes " and \\ and \x00 NUL, \ud83d half, \u2028 lines\nand 文字 🦉'


@pytest.fixture
async def other(server: EmbeddedServer, admin: psycopg.Connection, template: str) -> AsyncIterator[asyncpg.Pool]:
    """A second, empty database."""
    admin.execute(f'CREATE DATABASE "other" TEMPLATE "{template}" STRATEGY FILE_COPY')
    dsn = server.dsn.replace("/hippocampus?", "/other?")
    async with await database.create_pool(dsn, min_size=1, max_size=3) as pool:
        yield pool
    admin.execute('DROP DATABASE "other" WITH (FORCE)')


async def fill(pool: asyncpg.Pool) -> None:
    service = OpenSessionService(pool)
    for app, user in (("shop", "ann"), ("shop", "ben"), ("other", "ann")):
        for number in range(2):
            session = await service.create_session(
                app,
                user,
                {"n": number, "user:name": ODD, "app:rate": 1e22},
                session_id=f"s{number}",
                metadata={"k": [1]},
            )
            events = [
                Event(
                    author="user" if place % 2 else "model",
                    content={"text": f"{place} {ODD}", "numbers": [1.10, -0.0, 1e22, 2**70, float("inf")]},
                    actions=EventActions(state_delta={f"k{place}": ODD, "user:seen": place}, other={"x": place}),
                    timestamp=1_700_000_000.123456 + place,
                )
                for place in range(1, 8)
            ]
            await service.append(app, user, session.id, events)
    await service.finalize_session("shop", "ann", "s0")
    await pool.execute("UPDATE threads SET fast_upto_seq = 5, deep_upto_seq = 3 WHERE session_id = 's1'")
    # A plain SQL client, with its own white space.
    await pool.execute(
        """SELECT append_event('shop', 'ann', 's0', NULL, 'plain', 'user', 'message', E'{"a":\\n 1.50,\\n "a": 2}')"""
    )
    await service.close()


async def fill_rarer(pool: asyncpg.Pool) -> None:
    """A session that expires, one with an erased event, and a memory-only one."""
    service = OpenSessionService(pool)
    await pool.execute("SELECT create_session('shop', 'cid', 'brief', p_ttl => '40000 days 00:00:01.5')")
    await service.append(
        "shop", "cid", "brief", [Event(id=each, author="user", content={"text": each}) for each in "ab"]
    )
    await ErasureService(pool).erase_events("shop", "cid", "brief", sequence_nums=[1])
    await pool.execute("UPDATE threads SET event_time = 1700000000.1234567 WHERE session_id = 'brief'")
    await pool.execute("SELECT memory_thread('shop', 'cid', 'given')")
    await service.close()


# Values that differ between databases: vectors, versions of shared states, timers of the queue, costs.
NOT_CARRIED = {
    "threads": "fast_due_at deep_due_at fast_queued_seq deep_queued_seq fast_queued_tokens deep_queued_tokens erasures"
    " generate_calls embed_calls prompt_tokens output_tokens reused_replies",
    "events": "user_version app_version",
    "messages": "id embedding embedding_model",
    "initial_states": "user_version app_version",
}


async def carried(pool: asyncpg.Pool) -> list[str]:
    """Every other column of every row."""
    rows = []
    for table, names in NOT_CARRIED.items():
        for (text,) in await pool.fetch(f"SELECT row_to_json(t)::text FROM {table} AS t"):
            row = json.loads(text)
            rows.append(str([table, sorted((name, row[name]) for name in row.keys() - set(names.split()))]))
    return sorted(rows)


async def exported(pool: asyncpg.Pool, **which: str) -> str:
    sink = io.StringIO()
    await export_sessions(pool, sink.write, **which)
    return sink.getvalue()


def kept(folder: Path, text: str) -> Source:
    path = folder / "sessions.jsonl"
    path.write_text(text, encoding="utf-8")
    return Source(path)


async def test_a_round_trip_is_exact(pool: asyncpg.Pool, other: asyncpg.Pool, tmp_path: Path) -> None:
    """Exported, imported and exported again: the same bytes; and every reader sees the same session."""
    await fill(pool)
    await fill_rarer(pool)
    text = await exported(pool)
    assert len(lines_of(text)) == 1 + 2 + 3 + 6 + 6 * 7 + 1 + 2 + 2
    done = await import_sessions(other, kept(tmp_path, text))
    assert (done.sessions, done.events, done.states, done.rejected) == (8, 45, 5, [])
    assert await exported(other) == text
    assert await carried(other) == await carried(pool)
    before, after = OpenSessionService(pool), OpenSessionService(other)
    for app, user, name in (("shop", "ann", "s0"), ("shop", "ben", "s1"), ("other", "ann", "s0")):
        one, two = await before.get_session(app, user, name), await after.get_session(app, user, name)
        assert one is not None
        assert two is not None
        assert (one.state, one.events, one.version, one.metadata) == (two.state, two.events, two.version, two.metadata)
        assert (one.last_update_time, one.created_at, one.finalized_at) == (
            two.last_update_time, two.created_at, two.finalized_at,
        )  # fmt: skip
    messages = (
        "SELECT sequence_num, role, author, content, token_estimate, occurred_at FROM messages ORDER BY event_id, 1"
    )
    assert await pool.fetch(messages) == await other.fetch(messages)
    # The state at each moment can be derived from the imported events too.
    for number in range(0, 9):
        past = [
            await StateHistory(each).restore("shop", "ann", "s0", sequence_num=number, from_snapshot=False)
            for each in (pool, other)
        ]
        assert past[0] == past[1]
    whole = await after.get_session("shop", "ann", "s0")
    assert whole is not None
    assert past[1].state == {key: value for key, value in whole.state.items() if ":" not in key}
    await assert_shared(after, StateHistory(other), "shop", "ann")
    # The session can be continued.
    outcome = await after.append("shop", "ann", "s0", [Event(author="user", content={"text": "and on"})])
    assert outcome.events[0].sequence_num == 9
    await before.close()
    await after.close()


async def assert_shared(service: OpenSessionService, history: StateHistory, app: str, user: str) -> None:
    """Shared states are derived from the import and from events here, not from another database's past."""
    session = await service.get_session(app, user, "s0", num_recent_events=0)
    assert session is not None
    scopes = split_delta(session.state)
    rebuilt = await history.rebuild_shared(app, user)
    assert (rebuilt.user_state, rebuilt.app_state) == (scopes.user, scopes.app)
    assert (rebuilt.user_is_complete, rebuilt.app_is_complete) == (True, True)


async def test_framework_fields_of_a_session_are_transferred(
    pool: asyncpg.Pool, other: asyncpg.Pool, tmp_path: Path
) -> None:
    """The exact time of its last event, its time to live, and whether it is memory-only."""
    await pool.execute("SELECT create_session('shop', 'ann', 'brief', p_ttl => '36 hours')")
    await pool.execute("UPDATE threads SET event_time = 1700000000.1234567")
    await pool.execute("SELECT memory_thread('shop', 'ann', 'elsewhere')")
    text = await exported(pool)
    assert (await import_sessions(other, kept(tmp_path, text))).sessions == 2
    assert await exported(other) == text
    kept_of = "SELECT session_id, event_time, ttl, expires_at - updated_at, memory_only FROM threads ORDER BY 1"
    assert await other.fetch(kept_of) == [
        ("brief", 1700000000.1234567, timedelta(hours=36), timedelta(hours=36), False),
        ("memory:elsewhere", None, None, None, True),
    ]


async def test_existing_sessions_and_states_are_kept(pool: asyncpg.Pool, other: asyncpg.Pool, tmp_path: Path) -> None:
    """A second import changes nothing; a session and a state that moved on are not reset."""
    await fill(pool)
    source = kept(tmp_path, await exported(pool))
    service = OpenSessionService(other)
    await service.create_session("shop", "ann", {"own": True, "app:rate": 7}, session_id="s0")
    done = await import_sessions(other, source)
    assert (done.sessions, done.sessions_known, done.states, done.states_kept) == (5, 1, 4, 1)
    again = await import_sessions(other, source)
    assert (again.sessions, again.sessions_known, again.states_kept, again.events) == (0, 6, 5, 0)
    session = await service.get_session("shop", "ann", "s0")
    assert session is not None
    assert (session.state["own"], session.state["app:rate"], session.events) == (True, 7, [])
    await assert_shared(service, StateHistory(other), "shop", "ann")
    await service.close()


async def test_one_user_or_one_session_can_be_exported(pool: asyncpg.Pool) -> None:
    await fill(pool)
    rows = [json.loads(line) for line in lines_of(await exported(pool, app_name="shop", user_id="ben"))]
    assert {row.get("user_id") for row in rows if row["kind"] in ("session", "user_state")} == {"ben"}
    rows = [json.loads(line) for line in lines_of(await exported(pool, session_id="s1"))]
    assert {row["session_id"] for row in rows if row["kind"] == "session"} == {"s1"}


def lines_of(text: str) -> list[str]:
    """Only a line feed ends a line: a text may contain other line separators."""
    return text.removesuffix("\n").split("\n")


def spoiled(text: str, number: int, change: Any) -> str:
    """The export with one line replaced."""
    lines = lines_of(text)
    lines[number - 1] = change(lines[number - 1])
    return "\n".join(lines) + "\n"


async def test_a_session_with_a_bad_line_is_refused_completely(
    pool: asyncpg.Pool, other: asyncpg.Pool, tmp_path: Path
) -> None:
    """Truncated, duplicated, missing, of another type: that session is not stored at all, and the others are."""
    await fill(pool)
    text = await exported(pool, app_name="other")
    assert '"kind" : "event"' in text
    first = next(n for n, line in enumerate(lines_of(text), 1) if '"kind" : "event"' in line)
    for change, part in (
        (lambda line: line[:-20], "not valid JSON"),
        (lambda line: line + "\n" + line, "is refused"),
        (lambda line: "", "it claims 7 events, and 6 follow"),
        (lambda line: line.replace('"sequence_num" : 1', '"sequence_num" : "x"'), "is refused"),
        (lambda line: line.replace('"occurred_at" : "20', '"occurred_at" : "no 20'), "is refused"),
        (lambda line: line.replace('"kind" : "event"', '"kind" : "evnt"'), "unknown kind"),
    ):
        done = await import_sessions(other, kept(tmp_path, spoiled(text, first, change)))
        assert done.sessions == 1
        assert any(part in rejected.error for rejected in done.rejected), done.rejected
        assert await other.fetchval("SELECT count(*) FROM events") == 7
        await other.execute("TRUNCATE threads, user_states, app_states CASCADE")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('{"kind": "session"}\n', "not an export of sessions"),
        ("nonsense\n", "not an export of sessions"),
        ("", "not an export of sessions"),
        ('{"kind": "header", "format": "hippocampus sessions", "version": 2}\n', "version 2"),
    ],
)
async def test_an_unrelated_file_is_refused(pool: asyncpg.Pool, tmp_path: Path, text: str, part: str) -> None:
    with pytest.raises(InvalidInputError, match=part):
        await import_sessions(pool, kept(tmp_path, text))


async def test_imported_sessions_can_be_consolidated_again(
    pool: asyncpg.Pool, other: asyncpg.Pool, tmp_path: Path
) -> None:
    """By default only what was not consolidated; with the option, all of it. The idle scan enqueues it."""
    await fill(pool)
    await pool.execute("UPDATE threads SET fast_upto_seq = last_seq, deep_upto_seq = last_seq WHERE session_id = 's0'")
    await pool.execute("UPDATE threads SET last_event_at = last_event_at - interval '1 day'")
    source = kept(tmp_path, await exported(pool, app_name="shop"))
    await import_sessions(other, source)
    await other.execute("SELECT enqueue_idle()")
    jobs = "SELECT DISTINCT t.session_id FROM consolidation_jobs j JOIN threads t ON t.id = j.thread_id ORDER BY 1"
    assert [row[0] for row in await other.fetch(jobs)] == ["s1"]
    await other.execute("TRUNCATE threads CASCADE")
    await import_sessions(other, source, consolidate=True)
    await other.execute("SELECT enqueue_idle()")
    assert [row[0] for row in await other.fetch(jobs)] == ["s0", "s1"]


async def test_the_commands_round_trip(dsn: str, pool: asyncpg.Pool, other: asyncpg.Pool, tmp_path: Path) -> None:
    """Through files, including compressed ones; files that cannot be written or read are reported."""
    await fill(pool)
    home = tmp_path / "home"
    target = str(tmp_path / "all.jsonl.gz")
    done = cli_process.run(home, "export", "-o", target, DATABASE_URL=dsn)
    assert (done.returncode, done.stderr) == (0, "Exported 6 sessions with 43 events.\n")
    plain = cli_process.run(home, "export", "--app", "shop", DATABASE_URL=dsn)
    assert plain.stdout == await exported(pool, app_name="shop")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.jsonl.gz"]
    other_dsn = dsn.rpartition("/")[0]
    name = await other.fetchval("SELECT current_database()")
    address = dsn.replace(await pool.fetchval("SELECT current_database()"), name)
    assert other_dsn in address
    done = cli_process.run(home, "import", target, DATABASE_URL=address)
    assert (done.returncode, done.stdout) == (0, "Imported 6 sessions with 43 events, and 5 states.\n"), done.stderr
    assert await exported(other) == await exported(pool)
    refused = cli_process.run(home, "export", "-o", str(tmp_path / "no" / "x.jsonl"), DATABASE_URL=dsn)
    assert refused.returncode == 1
    assert "cannot be written" in refused.stderr
