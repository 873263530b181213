"""What the console examines: a user's failed job, a weak memory, a webhook, a tool, and keys of each kind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import asyncpg

from hippocampus.consolidation_worker import MemoryConsolidationWorker
from hippocampus.knowledge.service import KnowledgeService
from hippocampus.providers.local.embedding import LocalEmbedder
from hippocampus.providers.local.provider import LocalGenerator
from hippocampus.webhooks.service import WebhookService
from pulse import database
from pulse.api_keys import ApiKeyService
from pulse.events import Event
from pulse.session_service import OpenSessionService
from pulse.tools.registry import ToolRegistry
from tests.support.console_scene import APP, OTHER, SECRET, USER, furnish
from tests.support.queue_claims import work_off
from tests.support.tool_service import ToolService, document, tool_service

REPLY = '{"facts": [{"key": "diet", "value": "vegetarian", "confidence": '
WEAK = "Mei once mentioned a lost umbrella."
FADING = "Mei wondered about a blue scarf."


@asynccontextmanager
async def examined(dsn: str) -> AsyncIterator[tuple[ToolService, dict[str, str]]]:
    """Furnish a database; yield the service that its tools call, and a key of each kind by its name."""
    await furnish(dsn)
    async with await database.create_pool(dsn, max_size=4) as pool, tool_service() as service:
        await _say_diet(pool)
        await _fail_job(pool)
        await pool.execute(
            "INSERT INTO memories"
            " (app_name, user_id, memory_type, content, initial_score, created_at, last_accessed_at)"
            " VALUES ($1, $2, 'semantic', $3, 0.2, now() - interval '300 days', now() - interval '300 days')",
            APP,
            USER,
            WEAK,
        )
        # With the default policy it falls below the threshold of 0.1 in three days, on the curve of a tenth a day.
        await pool.execute(
            "INSERT INTO memories"
            " (app_name, user_id, memory_type, content, initial_score, created_at, last_accessed_at)"
            " VALUES ($1, $2, 'semantic', $3, 0.4, now() - interval '60 days',"
            " now() - (ln(0.4 / 0.1) / 0.1 - 3) * interval '1 day')",
            APP,
            USER,
            FADING,
        )
        await WebhookService(pool).add(APP, "https://example.org/hook", description="the shop's own")
        given = document(service.url, {"/echo": {"get": {"operationId": "echo", "summary": "Say it again"}}})
        await ToolRegistry(pool, APP).put_openapi("shop", given, allowed_networks="127.0.0.0/8")
        await _add_documents(pool)
        keys = ApiKeyService(pool)
        yield (
            service,
            {
                "reader": (await keys.create(None, ["read"], name="reader")).text,
                "appender": (await keys.create(None, ["append", "read"], name="appender", user_roles=[])).text,
                "admin": (await keys.create(APP, ["admin"], name="admin", user_roles=["clerk", "guest"])).text,
                "mei": (await keys.create(APP, ["read"], user_id=USER, name="mei")).text,
                "ben": (await keys.create(APP, ["read"], user_id=OTHER)).text,
            },
        )


async def _say_diet(pool: asyncpg.Pool) -> None:
    """Have Mei say what she eats, and consolidate it."""
    sessions = OpenSessionService(pool)
    await sessions.create_session(APP, USER, session_id="lunch")
    at = datetime(2025, 5, 4, 12, tzinfo=UTC).timestamp()
    said = Event(author="Mei", event_type="user_message", content={"text": "I'm vegetarian."}, timestamp=at)
    await sessions.append(APP, USER, "lunch", [said])
    await sessions.finalize_session(APP, USER, "lunch")
    await work_off(pool, MemoryConsolidationWorker(pool, LocalGenerator(), LocalEmbedder()))


async def _add_documents(pool: asyncpg.Pool) -> None:
    """A corpus with a document in its second version, and one whose ingest has failed."""
    knowledge = KnowledgeService(pool, APP, LocalEmbedder())
    await knowledge.put_corpus("handbook", description="What the shop promises", readers=[f"user:{USER}", "role:clerk"])
    for days in ("fourteen", "thirty"):
        returns = f"# Returns\n\nGoods may be returned within {days} days."
        text = f"{returns}\n\n# Duties\n\nCustoms duties are paid by the shop."
        await knowledge.add("handbook", text, source_uri="returns.md", inline=True)
    failed = await knowledge.add("handbook", "Parcels leave on Mondays.", source_uri="parcels.md")
    await pool.execute(
        "UPDATE knowledge_documents SET status = 'failed', error_code = 'timeout', error = 'the model did not answer'"
        " WHERE id = $1",
        failed.document_id,
    )


async def _fail_job(pool: asyncpg.Pool) -> None:
    """Leave a job as a worker leaves one whose reply was cut off in the middle."""
    sessions = OpenSessionService(pool)
    await sessions.create_session(APP, USER, session_id="cut-off")
    said = Event(author="Mei", event_type="user_message", content={"text": "I have been a vegetarian since May."})
    await sessions.append(APP, USER, "cut-off", [said])
    thread = await pool.fetchval("SELECT id FROM threads WHERE session_id = 'cut-off'")
    job = await pool.fetchval("SELECT job_id FROM enqueue_consolidation($1, 'deep_reflection')", thread)
    for status in ("doing", "failed"):
        await pool.execute(
            "UPDATE procrastinate_jobs SET status = $2::procrastinate_job_status WHERE id ="
            " (SELECT procrastinate_job_id FROM consolidation_jobs WHERE id = $1)",
            job,
            status,
        )
    await pool.execute(
        "UPDATE consolidation_jobs SET error = 'the reply is not valid JSON', error_code = 'malformed', raw_reply = $2"
        " WHERE id = $1",
        job,
        REPLY,
    )


__all__ = ["APP", "FADING", "OTHER", "SECRET", "USER", "WEAK", "examined"]
