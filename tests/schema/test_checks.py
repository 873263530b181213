"""Every CHECK of the schema rejects something."""

from __future__ import annotations

import asyncpg

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
INSERT INTO app_cells (app_name, cell, state) VALUES ('left', 'east', 'moved');
INSERT INTO store_items (app_name, namespace, key, value) VALUES ('app', '{n}', 'k', '{}');
INSERT INTO webhook_endpoints (app_name, url) VALUES ('hooks', 'https://example.org/');
INSERT INTO webhook_secrets (endpoint_id, secret) SELECT id, sha256('secret') FROM webhook_endpoints;
SELECT store_spans(jsonb_build_array(jsonb_build_object(
    'trace_id', repeat('a', 32), 'span_id', repeat('b', 16), 'is_root', true, 'operation_name', 'o',
    'span_kind', 'server', 'service_name', 's', 'attributes', '{}'::jsonb, 'events', '[]'::jsonb, 'start_us', 0,
    'duration_ns', 0, 'status_code', 'ok')));
SELECT put_tool('app', 't', NULL, '{"display_name": "", "description": "", "permissions": {}, "kind": "python",
    "input_schema": {}, "operation": {}, "nature": "once", "timeout_seconds": 1}');
INSERT INTO tool_sources (app_name, name, kind, sha256, base_url) VALUES ('app', 's', 'mcp', sha256('x'), '');
INSERT INTO tool_executions (app_name, user_id, tool_name, tool_call_id, status, expires_at, ended_at)
VALUES ('app', 'user', 't', 'c', 'failed', now(), now());
INSERT INTO sandbox_executions (app_name, user_id, sandbox_type, code, status, ended_at)
VALUES ('app', 'user', 'monty', '1', 'ok', now());
SELECT put_corpus('app', NULL, 'c', '', '{}', '{user:ann}', '{}');
SELECT put_document('app', NULL, '{}', 'c', 'd', 't', '{text}', false, false, 'text/plain', '{}', 4, false);
SELECT stage_chunks(id, 1, ARRAY[
    ROW(0, '', '{}', 'text', 0, 4, NULL, sha256('x'), 0, 1, NULL, NULL)::chunk_input], NULL, false, 1, 1)
FROM knowledge_documents;
SELECT ping_webhook('hooks', (SELECT id FROM webhook_endpoints));
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
    "model_replies": ["stage = 'slow'", "reply = '[]'", "vectors = ''"],
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
        "retention_curve = 'steep'", "redaction = 'hide'",
        "decay_rate = -1", "cleanup_threshold = 2", "min_age_days = -1", "archive_days = -1",
    ],
    "erasures": ["scope = 'planet'", "counts = '[]'"],
    "memory_tombstones": ["memory_type = NULL", "fact_hash = 'h'"],
    "slice_redraws": ["stage = 'slow'", "upto_seq = 0"],
    "store_items": [
        "namespace = '{}'", "key = ''", "value = '[]'", "ttl = '1 s'", "expires_at = now()",
        "ttl = '0 s', expires_at = now()",
    ],
    "traces": [
        "trace_id = 'a'", "span_id = repeat('B', 16)", "span_kind = 'other'", "attributes = '[]'", "events = '{}'",
        "duration_ns = -1", "status_code = 'unset'",
    ],
    "webhook_endpoints": ["app_name = ''", "disabled_at = now()"],
    "webhook_secrets": ["secret = 'short'"],
    "webhook_events": ["data = '[]'", "data = jsonb_build_object('a', repeat('x', 20000))"],
    "webhook_deliveries": ["status = 'lost'"],
    "app_cells": ["app_name = '*'", "cell = 'no cell'", "state = 'lost'"],
    "tools": [
        "app_name = ''", "name = '1a'", "description = repeat('x', 8193)", "openapi_schema = '[]'",
        "permissions = '[]'", "call_count = -1", "avg_latency_ms = -1", "kind = 'magic'", "input_schema = '[]'",
        "output_schema = '[]'", "operation = '[]'", "nature = 'often'", "timeout_seconds = 0", "version = 0",
    ],
    "tool_sources": [
        "app_name = ''", "name = ''", "kind = 'soap'", "document = '[]'", "sha256 = 'short'", "options = '[]'",
        "version = 0",
    ],
    "tool_versions": ["version = 0", "definition = '[]'"],
    "tool_executions": [
        "attempt = 0", "status = 'lost'", "latency_ms = -1", "output_sha256 = 'short'", "ended_at = NULL",
        "held_params = '{}'",
    ],
    "sandbox_executions": [
        "app_name = ''", "sandbox_type = ''", "environment = '[]'", "status = 'lost'", "execution_time_ms = -1",
        "resource_usage = '[]'", "ended_at = NULL",
    ],
    "corpus": ["app_name = ''", "user_id = ''", "name = ''", "config = '[]'"],
    "corpus_access": ["grantee = 'ann'"],
    "knowledge_documents": [
        "source_uri = ''", "metadata = '[]'", "version = -1", "last_version = -1", "status = 'lost'",
        "error_code = 'c'", "chunks = -1", "words = -1", "chunks_done = -1", "chunks_total = -1",
    ],
    "knowledge_versions": ["version = 0", "content_hash = 'short'", "bytes = -1", "chunks = -1", "words = -1"],
    "knowledge_base": [
        "chunk_index = -1", "content = ''", "char_from = -1", "page = 0", "chunk_hash = 'short'", "nth = -1",
        "tokens = 0", "words = -1", "from_version = 0", "upto_version = 0", "char_upto = 0",
    ],
    "data_catalogue": ["export_kind = NULL", "event_rows = NULL"],
}  # fmt: skip


async def is_refused(conn: asyncpg.Connection, table: str, wrong: str) -> bool:
    try:
        await conn.execute(f"UPDATE {table} SET {wrong} WHERE true")
    except asyncpg.CheckViolationError:
        return True
    return False


async def test_each_table_rejects_invalid_rows(conn: asyncpg.Connection) -> None:
    await conn.execute(SETUP)
    for table, wrongs in WRONG.items():
        assert [wrong for wrong in wrongs if not await is_refused(conn, table, wrong)] == [], table


async def test_every_check_of_the_schema_is_tested(conn: asyncpg.Connection) -> None:
    """A new table with a CHECK belongs in the list above, or here with the test that covers it."""
    elsewhere = {"events", "metrics_targets", "call_limits", "call_breakers", "engine_settings", "traces_default"}
    # tests/autonomic: their rows are never updated, or have tests of their own.
    elsewhere |= {"objects", "pulse_events", "pulse_events_default", "pulse_scopes", "rule_releases"}
    rows = await conn.fetch(
        """SELECT DISTINCT conrelid::regclass::text AS name FROM pg_constraint
           WHERE contype = 'c' AND connamespace = 'public'::regnamespace AND conrelid <> 0"""
    )
    checked = {row["name"] for row in rows if not row["name"].startswith("procrastinate")}
    assert checked - elsewhere <= set(WRONG)
