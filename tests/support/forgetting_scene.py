"""A user with a secret in every table, and a scan that finds it anywhere."""

from __future__ import annotations

from uuid import UUID

import asyncpg

from hippocampus.consolidation_worker import MemoryConsolidationWorker
from hippocampus.providers.local.embedding import LocalEmbedder
from hippocampus.providers.local.provider import LocalGenerator
from hippocampus.records import JobType
from pulse.events import Event, EventActions
from pulse.session_service import OpenSessionService
from tests.support.queue_claims import work_off

APP = "shop"
SECRET = "quokkalantern"

# Tables of the database, in any column that can hold text: a row's text has them all.
TABLES = """
SELECT c.oid::regclass::text AS name FROM pg_class AS c
WHERE c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace ORDER BY 1
"""


async def scan(conn: asyncpg.Connection | asyncpg.Pool, secret: str = SECRET) -> dict[str, int]:
    """The number of rows of each table with the secret in any column; tables without one are omitted."""
    found = {}
    for row in await conn.fetch(TABLES):
        # bytea shows as hexadecimal digits.
        count = await conn.fetchval(
            f"SELECT count(*) FROM {row['name']} AS t"
            " WHERE lower(t::text) LIKE ANY (ARRAY['%' || $1 || '%', '%' || encode($1::text::bytea, 'hex') || '%'])",
            secret,
        )
        if count:
            found[row["name"]] = count
    return found


DOCUMENT = "FROM corpus AS c JOIN knowledge_documents AS d ON d.corpus_id = c.id WHERE c.name = $4"


async def hide(pool: asyncpg.Pool, user: str, thread: UUID, secret: str = SECRET) -> None:
    """Store the secret where consolidation leaves none: pending, streamed and side data."""
    session_id = await pool.fetchval("SELECT session_id FROM threads WHERE id = $1", thread)
    for table, values in (
        ("fact_aliases", "(app_name, user_id, fact_type, from_key, to_key, fact_id, method, similarity)"
         " VALUES ($1, $2, 'profile', $5, 'x', new_id(), 'meaning', 1)"),
        ("instruction_proposals", "(app_name, user_id, thread_id, instruction_key, content, base_version, source_seqs)"
         " VALUES ($1, $2, $3, 'tone', $4 || $5, 0, '{1}')"),
        ("replays", "(app_name, user_id, thread_id, fingerprint) VALUES ($1, $2, $3, $4)"),
        ("replay_draws", "SELECT id, $3, 'fast', 1, 4, '', '', (NULL, 1, 4, NULL, NULL, NULL)::slice_origin,"
         " ARRAY[('summary', $5, NULL, '{}', 1, '{}', NULL)::memory_input] FROM replays WHERE thread_id = $3"),
        ("model_replies", "(thread_id, stage, input_hash, reply)"
         " VALUES ($3, 'fast', '', jsonb_build_object('x', $5::text))"),
        ("imported_origins", "VALUES (new_id(), $1, $2, $3, $5)"),
        ("live_messages", "(thread_id, run_id, message_id, kind, after_seq, body)"
         " VALUES ($3, 'r', 'm', 'text', 0, $5)"),
        ("initial_states", "(thread_id, session_state) VALUES ($3, jsonb_build_object('x', $5::text))"),
        ("imported_states", "(app_name, user_id, delta, version)"
         " VALUES ($1, $2, jsonb_build_object('x', $5::text), 1000 + hashtext($4))"),
        ("stream_tickets", "VALUES (sha256($4::text::bytea), $1, $2, $4, $5, now())"),
        ("store_items", "(app_name, namespace, key, value)"
         " VALUES ($1, ARRAY['users', $2, $4], 'k', jsonb_build_object('x', $5::text))"),
        ("item_vectors", "SELECT id, $5, '$', '[1]' FROM store_items WHERE namespace = ARRAY['users', $2, $4]"),
        ("traces", "(start_time, trace_id, span_id, is_root, operation_name, span_kind, service_name, app_name,"
         " user_id, session_id, attributes, end_time, duration_ns, status_code)"
         " SELECT now(), md5($4), left(md5($4), 16), true, 'POST', 'server', 'writer', $1, $2, $4,"
         " jsonb_build_object('x', $5::text), now(), 1, 'ok'"),
        ("tool_executions", "(run_id, app_name, user_id, tool_name, tool_call_id, input_params, status, expires_at,"
         " ended_at) SELECT id, $1, $2, 'tool', $4, jsonb_build_object('x', $5::text), 'failed', now(), now() FROM runs"
         " WHERE thread_id = $3"),
        ("sandbox_executions", "(run_id, app_name, user_id, sandbox_type, code, status, ended_at)"
         " SELECT id, $1, $2, 'monty', $4 || $5, 'ok', now() FROM runs WHERE thread_id = $3"),
        ("corpus", "(app_name, user_id, name, description) VALUES ($1, $2, $4, $5)"),
        ("corpus_access", "(corpus_id, app_name, grantee) SELECT id, $1, 'user:' || $2 FROM corpus WHERE name = $4"),
        ("knowledge_documents", "(corpus_id, app_name, source_uri, mime_type, last_version, status)"
         " SELECT id, $1, $5, 'text/plain', 1, 'ready' FROM corpus WHERE name = $4"),
        ("knowledge_versions", "(document_id, version, corpus_id, app_name, content_hash, body, is_markdown, config,"
         f" title, bytes) SELECT d.id, 1, c.id, $1, sha256('x'), $5, false, '{{}}', '', 1 {DOCUMENT}"),
        ("knowledge_base", "(document_id, corpus_id, app_name, chunk_index, content, char_from, char_upto, chunk_hash,"
         " tokens, words, from_version, search)"
         f" SELECT d.id, c.id, $1, 0, $5, 0, 1, sha256('x'), 1, 1, 1, ''::tsvector {DOCUMENT}"),
        ("knowledge_vectors", "(id, corpus_id, app_name, model, embedding) SELECT b.id, c.id, $1, $5, '[1]'"
         " FROM corpus AS c JOIN knowledge_base AS b ON b.corpus_id = c.id WHERE c.name = $4"),
        ("api_keys", "(id, app_name, user_id, name, roles, secret_hash)"
         " VALUES (left(md5($2 || $4), 12), $1, $2, $5, '{read}', sha256($4::text::bytea))"),
    ):  # fmt: skip
        # Every parameter has its type, whichever of them a statement uses.
        await pool.execute(
            f"WITH p AS (SELECT $1::text, $2::text, $3::uuid, $4::text, $5::text) INSERT INTO {table} {values}",
            APP, user, thread, session_id, secret,
        )  # fmt: skip
    await pool.execute(
        "SELECT save_artifact($1, $2, $3, $4, to_json($4::text), convert_to($4 || $3, 'UTF8'))",
        APP, user, session_id, secret,
    )  # fmt: skip


async def say(pool: asyncpg.Pool, user: str, session_id: str, *texts: str, **state: object) -> list[Event]:
    """Append turns of a user; the last one sets the state's keys (`user__x` for ``user:x``)."""
    service = OpenSessionService(pool)
    if await service.get_session(APP, user, session_id, num_recent_events=0) is None:
        await service.create_session(APP, user, session_id=session_id)
    delta = {name.replace("__", ":"): value for name, value in state.items()}
    events = [Event(author="user", content={"text": text}) for text in texts]
    if delta:
        last = events[-1]
        events[-1] = Event(author="user", content=last.content, actions=EventActions(state_delta=delta))
    return list((await service.append(APP, user, session_id, events)).events)


async def consolidate(pool: asyncpg.Pool, thread: UUID, generator: object | None = None) -> None:
    """Consolidate what is new in a thread, both job types, as workers would."""
    worker = MemoryConsolidationWorker(pool, generator or LocalGenerator(), LocalEmbedder())  # type: ignore[arg-type]
    await worker.consolidate(thread, JobType.FULL_CONSOLIDATION, wait=False)
    await work_off(pool, worker)


async def thread_of(pool: asyncpg.Pool, user: str, session_id: str) -> UUID:
    thread: UUID = await pool.fetchval(
        "SELECT id FROM threads WHERE app_name = $1 AND user_id = $2 AND session_id = $3", APP, user, session_id
    )
    return thread
