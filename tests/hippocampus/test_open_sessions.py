"""Which sessions exist: one rule for every statement that reads them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from hippocampus.context_assembler import ContextAssembler
from hippocampus.memory_service import OpenMemoryService
from hippocampus.providers.local.provider import LocalEmbedder
from hippocampus.search import EVERYTHING, MemorySearch, SearchFilter
from pulse.adk import PostgresSessionService
from pulse.errors import RunNotFoundError, SessionNotFoundError
from pulse.events import Event
from pulse.postgres.statements import load_queries
from pulse.runs.service import RunService
from pulse.session_service import OpenSessionService
from pulse.state.history import StateHistory
from pulse.state_debug import StateDebugService
from pulse.threads import ThreadList
from pulse.tickets import Ticket, TicketService
from pulse.timeline import TimelineService

NAMES = ("app", "ann", "s")
TICKET = Ticket(app_name="app", user_id="ann", session_id="s", run_id=None)
Reader = Callable[[asyncpg.Pool], Awaitable[Any]]


async def thread_of(pool: asyncpg.Pool) -> Any:
    return await pool.fetchval("SELECT id FROM threads WHERE session_id = 's'")


async def followed(pool: asyncpg.Pool) -> list[Any]:
    """The threads that streams still treat as existing."""
    known = [await thread_of(pool)]
    gone = await pool.fetch(load_queries("pulse.streams", "streams.sql")["gone_threads"], known)
    return [each for each in known if each not in {row["thread_id"] for row in gone}]


async def searched(pool: asyncpg.Pool, narrow: SearchFilter = EVERYTHING) -> list[str]:
    search = MemorySearch(pool, LocalEmbedder())
    response = await search.search(app_name="app", user_id="ann", query="parcel", narrow=narrow)
    return [each.content for each in response.memories]


async def adk_listed(pool: asyncpg.Pool) -> list[Any]:
    return list((await PostgresSessionService(pool).list_sessions(app_name="app", user_id="ann")).sessions)


#: Every call that reads a session by its names, or lists sessions.
READERS: dict[str, Reader] = {
    "get_session": lambda pool: OpenSessionService(pool).get_session(*NAMES),
    "list_sessions": lambda pool: OpenSessionService(pool).list_sessions("app", "ann"),
    "list_events": lambda pool: OpenSessionService(pool).list_events(*NAMES),
    "timeline": lambda pool: TimelineService(pool).get_conversation_messages(*NAMES),
    "timeline, backwards": lambda pool: TimelineService(pool).get_conversation_messages(*NAMES, before_sequence=9),
    "list_threads": lambda pool: ThreadList(pool).list_threads("app", "ann"),
    "get_run": lambda pool: RunService(pool).get("app", "ann", "r"),
    "list_runs": lambda pool: RunService(pool).list_runs(*NAMES),
    "request_cancel": lambda pool: RunService(pool).request_cancel("app", "ann", "r"),
    "start_run": lambda pool: RunService(pool).start(*NAMES, "r"),
    "get_state": lambda pool: StateDebugService(pool, OpenSessionService(pool)).get_state(*NAMES),
    "get_history": lambda pool: StateDebugService(pool, OpenSessionService(pool)).get_history(*NAMES),
    "changes_since": lambda pool: StateHistory(pool).changes_since(*NAMES, 0),
    "restore": lambda pool: StateHistory(pool).restore(*NAMES),
    "take_snapshot": lambda pool: StateHistory(pool).take_snapshot(*NAMES),
    "issue_ticket": lambda pool: TicketService(pool).issue(TICKET),
    "streams": followed,
    "finalize": lambda pool: OpenSessionService(pool).finalize_session(*NAMES),
    "adk get": lambda pool: PostgresSessionService(pool).get_session(app_name="app", user_id="ann", session_id="s"),
    "adk list": adk_listed,
}
#: These accept the memory's own threads too.
MEMORY_READERS: dict[str, Reader] = {
    "search": lambda pool: searched(pool, SearchFilter(session_id="s")),
    "context": lambda pool: ContextAssembler(pool, LocalEmbedder()).assemble(
        app_name="app", user_id="ann", session_id="s", query="parcel"
    ),
    "add_session_to_memory": lambda pool: OpenMemoryService(pool, LocalEmbedder()).add_session_to_memory(*NAMES),
    "append": lambda pool: OpenSessionService(pool).append(*NAMES, [Event(author="user", content="more")]),
}


async def exists(read: Reader, pool: asyncpg.Pool) -> bool:
    try:
        found = await read(pool)
    except (SessionNotFoundError, RunNotFoundError):
        return False
    return found is not None and found != [] and not (isinstance(found, list) and not list(found))


@pytest.fixture
async def session(pool: asyncpg.Pool) -> None:
    sessions, runs = OpenSessionService(pool), RunService(pool)
    await sessions.create_session("app", "ann", {"k": 1}, session_id="s")
    await runs.start("app", "ann", "s", "r")
    await sessions.append("app", "ann", "s", [Event(author="user", content="where is my parcel?")])


@pytest.mark.usefixtures("session")
async def test_an_expired_session_is_not_found_by_any_reader(pool: asyncpg.Pool) -> None:
    """As soon as its time to live ends, not only from its deletion. Before that, every reader finds it."""
    readers = READERS | MEMORY_READERS
    assert [name for name, read in readers.items() if not await exists(read, pool)] == []
    await pool.execute("UPDATE threads SET ttl = '1 h', expires_at = engine_now(), updated_at = now() - interval '2 h'")
    assert [name for name, read in readers.items() if await exists(read, pool)] == []
    with pytest.raises(SessionNotFoundError):
        await OpenSessionService(pool).delete_session(*NAMES, expected_version=3)
    assert await pool.fetchval("SELECT count(*) FROM threads") == 1


@pytest.mark.usefixtures("session")
async def test_a_thread_of_the_memory_is_not_a_session(pool: asyncpg.Pool) -> None:
    """Events that were added to the memory from elsewhere are searched and consolidated, but are not a session."""
    await pool.execute("UPDATE threads SET memory_only = true")
    assert [name for name, read in READERS.items() if await exists(read, pool)] == []
    assert [name for name, read in MEMORY_READERS.items() if not await exists(read, pool)] == []


async def test_an_unfiltered_search_skips_expired_sessions(pool: asyncpg.Pool) -> None:
    """A turn of an expired session is not found by a search that names no session."""
    sessions = OpenSessionService(pool)
    for name in ("s", "kept"):
        await sessions.create_session("app", "ann", session_id=name)
        await sessions.append("app", "ann", name, [Event(author="user", content=f"the parcel of {name}")])
    assert len(await searched(pool)) == 2
    await pool.execute(
        "UPDATE threads SET ttl = '1 h', expires_at = engine_now(), updated_at = now() - interval '2 h'"
        " WHERE session_id = 's'"
    )
    assert await searched(pool) == ["the parcel of kept"]


def test_every_statement_that_reads_a_session_applies_the_rule() -> None:
    """No statement of the engine reads a thread by app, user and session without it."""
    missing = []
    for package, file in (
        ("pulse", "sessions.sql"),
        ("pulse", "timeline.sql"),
        ("pulse", "threads.sql"),
        ("pulse.runs", "runs.sql"),
        ("pulse.state", "state.sql"),
        ("pulse.adk", "sessions.sql"),
    ):
        for name, statement in load_queries(package, file).items():
            reads = "FROM threads" in statement or "JOIN threads" in statement
            if reads and "is_open(" not in statement and "request_cancel(" not in statement:
                missing.append(name)
    assert missing == []
