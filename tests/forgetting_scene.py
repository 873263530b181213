"""A user whose every table holds a secret, and a scan that finds it wherever it is."""

from __future__ import annotations

from uuid import UUID

import asyncpg

from hippocampus.consolidation_worker import MemoryConsolidationWorker
from hippocampus.providers.local import LocalGenerator
from hippocampus.providers.local_embedding import LocalEmbedder
from hippocampus.records import JobType
from pulse.events import Event, EventActions
from pulse.session_service import OpenSessionService
from tests.queue_claims import work_off

APP = "shop"
SECRET = "quokkalantern"

# Tables of the database, in any column that can hold text: a row's text has them all.
TABLES = """
SELECT c.oid::regclass::text AS name FROM pg_class AS c
WHERE c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace ORDER BY 1
"""


async def scan(conn: asyncpg.Connection | asyncpg.Pool, secret: str = SECRET) -> dict[str, int]:
    """How many rows of each table hold the secret in any column; tables without one are left out."""
    found = {}
    for row in await conn.fetch(TABLES):
        count = await conn.fetchval(
            f"SELECT count(*) FROM {row['name']} AS t WHERE strpos(lower(t::text), $1) > 0", secret
        )
        if count:
            found[row["name"]] = count
    return found


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
    """Consolidate what is new in a thread, both halves, as workers would."""
    worker = MemoryConsolidationWorker(pool, generator or LocalGenerator(), LocalEmbedder())  # type: ignore[arg-type]
    await worker.consolidate(thread, JobType.FULL_CONSOLIDATION, wait=False)
    await work_off(pool, worker)


async def thread_of(pool: asyncpg.Pool, user: str, session_id: str) -> UUID:
    thread: UUID = await pool.fetchval(
        "SELECT id FROM threads WHERE app_name = $1 AND user_id = $2 AND session_id = $3", APP, user, session_id
    )
    return thread
