"""Every CHECK of the schema rejects something."""

from __future__ import annotations

import asyncpg
import pytest

THREAD = "(SELECT id FROM threads)"
SETUP = """
SELECT create_session('app', 'user', 's');
SELECT append_event('app', 'user', 's', 0, 'e', 'user', 'message', '{}', 'user', 'hello');
SELECT enqueue_consolidation((SELECT id FROM threads), 'fast_replay');
INSERT INTO memories (user_id, app_name, content) VALUES ('user', 'app', 'm');
INSERT INTO facts (user_id, app_name, key, value, content) VALUES ('user', 'app', 'k', '1', 'k: 1');
INSERT INTO instructions (app_name, instruction_key, content) VALUES ('app', 'k', 'c');
INSERT INTO runs (thread_id, app_name, run_id, holder, lease_until, first_seq, last_seq)
SELECT id, 'app', 'r', 'h', now(), 1, 1 FROM threads;
INSERT INTO initial_states (thread_id, session_state) SELECT id, '{}' FROM threads;
INSERT INTO fact_aliases (app_name, user_id, fact_type, from_key, to_key, fact_id, method, similarity)
VALUES ('app', 'user', 'profile', 'a', 'b', new_id(), 'meaning', 0.5);
INSERT INTO fact_styles VALUES ('app', 'profile', 'k', 'profile');
INSERT INTO instruction_proposals (app_name, user_id, instruction_key, content, base_version)
VALUES ('app', 'user', 'k', 'c', 0);
INSERT INTO replays (app_name, user_id, fingerprint) VALUES ('app', 'user', 'f');
INSERT INTO replay_draws (replay_id, thread_id, stage, from_seq, upto_seq, said, input_hash, origin)
SELECT r.id, t.id, 'fast', 1, 1, '', '', ROW(NULL, 1, 1, NULL, NULL, NULL)::slice_origin FROM replays r, threads t;
INSERT INTO imported_states (app_name, delta, version) VALUES ('app', '{}', 1);
INSERT INTO snapshots (thread_id, version, sequence_num, state) SELECT id, 1, 1, '{}' FROM threads;
INSERT INTO model_replies (thread_id, stage, input_hash, reply) SELECT id, 'fast', 'h', '{}' FROM threads;
INSERT INTO user_states (app_name, user_id) VALUES ('app', 'user');
INSERT INTO embedding_target (model) VALUES ('m');
INSERT INTO embedding_refusals VALUES ('facts', gen_random_uuid(), 'm', 'hash', '400');
INSERT INTO app_states (app_name) VALUES ('app');
INSERT INTO app_policies (app_name) VALUES ('app');
INSERT INTO live_messages (thread_id, run_id, message_id, kind, after_seq, body)
    SELECT id, 'run', 'message', 'text', 0, 'so far' FROM threads LIMIT 1;
INSERT INTO stream_tickets (token_hash, app_name, user_id, session_id, expires_at)
    VALUES (sha256('token'), 'app', 'user', 's', now());
SELECT save_artifact('app', 'user', 's', 'a.txt', '{}', 'data');
INSERT INTO api_keys (id, app_name, roles, secret_hash) VALUES ('abcdefghijkl', 'app', '{read}', sha256('secret'));
INSERT INTO erasures (scope, app_name, user_id) VALUES ('user', 'app', 'user');
INSERT INTO memory_tombstones (id, app_name, user_id, memory_type) VALUES (new_id(), 'app', 'user', 'summary');
INSERT INTO slice_redraws (thread_id, stage, from_seq, upto_seq) SELECT id, 'fast', 1, 1 FROM threads;
INSERT INTO store_items (app_name, namespace, key, value) VALUES ('app', '{n}', 'k', '{}');
"""
WRONG = {
    "threads": [
        "app_name = ''", "app_name = '*'", "user_id = ''", "session_id = ''", "session_id = repeat('x', 513)",
        "state = '[]'", "version = -1", "metadata = '1'", "fast_upto_seq = 2", "deep_upto_seq = 2",
    ],
    "messages": ["role = 'narrator'", "embedding_model = 'm'"],
    "user_states": ["state = '[]'", "version = 0"],
    "app_states": ["state = 'null'", "version = 0"],
    "runs": [
        "run_id = ''", "status = 'dreaming', completed_at = now()", "thinking_steps = '{}'", "tool_calls = '{}'",
        "holder = ''", "first_seq = 0", "last_seq = 0", "status = 'completed'", "completed_at = now()",
        "error = 'e'", "status = 'failed', completed_at = now()", "error_code = 'c'",
    ],
    "live_messages": ["run_id = ''", "message_id = ''", "kind = 'song'", "meta = '[]'"],
    "stream_tickets": ["token_hash = 'short'"],
    "initial_states": ["session_state = '[]'"],
    "imported_states": ["delta = '[]'"],
    "snapshots": ["state = '[]'"],
    "embedding_refusals": ["source = 'dreams'"],
    "embedding_target": ["is_only = false"],
    "consolidation_jobs": [
        "job_type = 'dreaming'", "status = 'lost'", "attempts = -1", "upto_seq = -1", "result = '[]'",
    ],
    "memories": [
        "memory_type = 'dream'", "content = ''", "metadata = '[]'", "initial_score = 1.1", "initial_score = -0.1",
        "access_count = -1", "from_seq = 2, upto_seq = 1", "embedding_model = 'm'",
    ],
    "facts": [
        "fact_type = 'rumour'", "key = ''", "value = 'null'", "confidence = 1.1", "confidence = -0.1",
        "valid_until = valid_from", "embedding_model = 'm'",
    ],
    "artifacts": [
        "app_name = ''", "user_id = ''", "session_id = ''", "session_id = repeat('x', 513)", "filename = ''",
        "filename = repeat('x', 1025)", "last_version = -1",
    ],
    "api_keys": [
        "id = 'Short'", "app_name = ''", "roles = '{}'", "roles = '{owner}'", "secret_hash = 'short'",
        "user_id = ''", "user_id = 'u', app_name = NULL",
    ],
    "artifact_versions": ["version = -1"],
    "artifact_blobs": ["sha256 = 'short'"],
    "model_replies": ["stage = 'slow'", "reply = '[]'"],
    "instructions": ["instruction_key = ''", "version = 0"],
    "fact_aliases": ["method = 'guess'"],
    "fact_styles": ["fact_type = 'rumour'", "normal_key = ''", "style = 'heap'"],
    "merge_thresholds": ["kind = 'dream'", "threshold = 0", "threshold = 1.1"],
    "instruction_proposals": [
        "instruction_key = ''", "content = ''", "status = 'lost'", "status = 'rejected'", "version = 1",
        "status = 'approved', decided_at = now()",
    ],
    "replay_draws": ["stage = 'slow'", "upto_seq = 0"],
    "fact_versions": [
        "confidence = 1.1", "accepted_at = recorded_at - interval '1 s'", "retracted_at = recorded_at - interval '1 s'",
    ],
    "app_policies": [
        "fast_events = 0", "fast_tokens = 0", "fast_idle_seconds = 0", "deep_tokens = 0", "deep_idle_seconds = 0",
        "max_state_bytes = 0", "max_event_bytes = 0", "max_artifact_bytes = 0", "snapshot_events = 0",
        "retention_curve = 'steep'",
        "decay_rate = -1", "cleanup_threshold = 2", "min_age_days = -1", "archive_days = -1",
    ],
    "erasures": ["scope = 'planet'", "counts = '[]'"],
    "memory_tombstones": ["memory_type = NULL", "fact_hash = 'h'"],
    "slice_redraws": ["stage = 'slow'", "upto_seq = 0"],
    "store_items": [
        "namespace = '{}'", "key = ''", "value = '[]'", "ttl = '1 s'", "expires_at = now()",
        "ttl = '0 s', expires_at = now()",
    ],
    "data_catalogue": ["export_kind = NULL", "event_rows = NULL"],
}  # fmt: skip


async def is_refused(conn: asyncpg.Connection, table: str, wrong: str) -> bool:
    try:
        await conn.execute(f"UPDATE {table} SET {wrong} WHERE true")
    except asyncpg.CheckViolationError:
        return True
    return False


@pytest.mark.parametrize("table", WRONG)
async def test_each_table_rejects_invalid_rows(conn: asyncpg.Connection, table: str) -> None:
    await conn.execute(SETUP)
    assert [wrong for wrong in WRONG[table] if not await is_refused(conn, table, wrong)] == []


async def test_every_check_of_the_schema_is_tested(conn: asyncpg.Connection) -> None:
    """A new table with a CHECK belongs in the list above, or here with the test that covers it."""
    elsewhere = {"events", "metrics_targets", "call_limits", "call_breakers", "engine_settings"}
    rows = await conn.fetch(
        """SELECT DISTINCT conrelid::regclass::text AS name FROM pg_constraint
           WHERE contype = 'c' AND connamespace = 'public'::regnamespace AND conrelid <> 0"""
    )
    checked = {row["name"] for row in rows if not row["name"].startswith("procrastinate")}
    assert checked - elsewhere <= set(WRONG)
