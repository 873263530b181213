"""Every way in: nothing is stored for a blank app or user, nor for the app that stands for all."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import asyncpg
import pytest
from google.adk.errors.input_validation_error import InputValidationError
from google.adk.events.event import Event as AdkEvent
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions.session import Session
from google.genai import types

from hippocampus.adk import PostgresMemoryService
from hippocampus.by_hand import GivenFact, MemoryEditor
from hippocampus.errors import ImportFileError
from hippocampus.instructions import InstructionStore
from hippocampus.knowledge.service import KnowledgeService
from hippocampus.store.service import ItemStore
from hippocampus.transfer.given_memories import GivenMemories, GivenMemory
from hippocampus.transfer.memory_file import export_memory, import_memory
from hippocampus.webhooks.service import WebhookService
from pulse.adk.artifacts import PostgresArtifactService
from pulse.adk.sessions import PostgresSessionService
from pulse.api_keys import ApiKeyService
from pulse.artifacts import ArtifactKey, ArtifactStore
from pulse.errors import InvalidInputError
from pulse.events import Event
from pulse.session_service import OpenSessionService
from pulse.tools.registry import ToolRegistry
from tests.support.mcp_scene import connected, refusal

#: The names, and which of them the error names.
REFUSED = {
    "blank user": ("shop", "  ", "user_id is blank"),
    "blank app": (" ", "ann", "app_name is blank"),
    "app of all": ("*", "ann", "app_name '*' stands for the policy of all apps"),
}
#: A corpus has an owner, and ADK's artifact services have this message for names without a character.
OWN_WORDS = {
    ("corpus", "user_id is blank"): "owner is blank",
    ("ADK artifact", "user_id is blank"): "user_id must not be empty",
    ("ADK artifact", "app_name is blank"): "app_name must not be empty",
}
SAID = AdkEvent(author="user", content=types.Content(role="user", parts=[types.Part(text="I live in Turin.")]))
ENTRY = MemoryEntry(content=types.Content(parts=[types.Part(text="Ann lives in Turin.")]))

Way = Callable[[asyncpg.Pool, str, str], Awaitable[object]]


async def _session(pool: asyncpg.Pool, app: str, user: str) -> None:
    await OpenSessionService(pool).create_session(app, user, {"app:k": 1, "user:k": 1})


async def _artifact(pool: asyncpg.Pool, app: str, user: str) -> None:
    key = ArtifactKey(app_name=app, user_id=user, session_id=None, filename="f")
    await ArtifactStore(pool).save(key, {}, b"x")


async def _memory(pool: asyncpg.Pool, app: str, user: str) -> None:
    await GivenMemories(pool).give(app, user, [GivenMemory(content="Ann lives in Turin.")])


async def _turns(pool: asyncpg.Pool, app: str, user: str) -> None:
    await GivenMemories(pool).remember_turns(
        app, user, "s", [Event(author="user", content={"text": "Turin"}, timestamp=1_700_000_000.0)]
    )


async def _by_hand(pool: asyncpg.Pool, app: str, user: str) -> None:
    await MemoryEditor(pool).remember(app, user, GivenFact(key="home", value="Turin"))


async def _imported(pool: asyncpg.Pool, app: str, user: str) -> None:
    lines = [line async for line in export_memory(pool, "shop", "ann")]
    header = {**json.loads(lines[0]), "app_name": app, "user_id": user}
    await import_memory(pool, [json.dumps(header), *lines[1:]])


async def _corpus(pool: asyncpg.Pool, app: str, user: str) -> None:
    await KnowledgeService(pool, app, None).put_corpus("book", owner=user)


async def _key(pool: asyncpg.Pool, app: str, user: str) -> None:
    await ApiKeyService(pool).create(app, ["read"], user_id=user)


async def _adk_session(pool: asyncpg.Pool, app: str, user: str) -> None:
    await PostgresSessionService(pool).create_session(app_name=app, user_id=user)


async def _adk_artifact(pool: asyncpg.Pool, app: str, user: str) -> None:
    service = PostgresArtifactService(pool)
    await service.save_artifact(app_name=app, user_id=user, filename="user:f", artifact=types.Part(text="x"))


async def _adk_memory(pool: asyncpg.Pool, app: str, user: str) -> None:
    await PostgresMemoryService(pool).add_memory(app_name=app, user_id=user, memories=[ENTRY])


async def _adk_memory_session(pool: asyncpg.Pool, app: str, user: str) -> None:
    given = Session(id="s", app_name=app, user_id=user, events=[SAID])
    await PostgresMemoryService(pool).add_session_to_memory(given)


async def _adk_memory_events(pool: asyncpg.Pool, app: str, user: str) -> None:
    await PostgresMemoryService(pool).add_events_to_memory(app_name=app, user_id=user, events=[SAID])


OF_USERS: Mapping[str, Way] = {
    "session": _session,
    "artifact": _artifact,
    "memory": _memory,
    "turns": _turns,
    "by hand": _by_hand,
    "imported": _imported,
    "corpus": _corpus,
    "key": _key,
    "ADK session": _adk_session,
    "ADK artifact": _adk_artifact,
    "ADK memory": _adk_memory,
    "ADK memory session": _adk_memory_session,
    "ADK memory events": _adk_memory_events,
}
#: What belongs to an app alone.
OF_APPS: Mapping[str, Callable[[asyncpg.Pool, str], Awaitable[object]]] = {
    "item": lambda pool, app: ItemStore(pool, app).put(("a",), "k", {}),
    "instruction": lambda pool, app: InstructionStore(pool).put(app, "tone", "Be brief."),
    "webhook": lambda pool, app: WebhookService(pool).add(app, "https://example.com/hook"),
    "tool": lambda pool, app: ToolRegistry(pool, app).register_tool("place", _tool),
}


def _tool(place: str) -> str:
    """Return the place."""
    return place


async def rows(pool: asyncpg.Pool) -> dict[str, int]:
    """Count the rows of every table that has an app."""
    tables = await pool.fetch(
        "SELECT table_name FROM information_schema.columns NATURAL JOIN information_schema.tables"
        " WHERE table_schema = 'public' AND column_name = 'app_name' AND table_type = 'BASE TABLE'"
        " AND table_name <> 'audit_log'"
    )
    assert len(tables) > 10
    return {name: await pool.fetchval(f'SELECT count(*) FROM "{name}"') for (name,) in tables}


@pytest.fixture
async def before(pool: asyncpg.Pool) -> AsyncIterator[None]:
    """Whatever a test does, no table has another row at its end."""
    held = await rows(pool)
    yield
    assert await rows(pool) == held


@pytest.mark.usefixtures("before")
async def test_no_service_stores_anything_under_such_a_name(pool: asyncpg.Pool) -> None:
    """Each says the same, so that what one refuses is not stored by another."""
    for app, user, reason in REFUSED.values():
        for name, way in OF_USERS.items():
            with pytest.raises((InvalidInputError, InputValidationError, ImportFileError)) as refused:
                await way(pool, app, user)
            assert OWN_WORDS.get((name, reason), reason) in str(refused.value), name
        for name, of_app in OF_APPS.items():
            if user == "ann":
                with pytest.raises(InvalidInputError) as refused:
                    await of_app(pool, app)
                assert reason in str(refused.value), name


async def test_each_of_these_ways_stores_under_other_names(pool: asyncpg.Pool) -> None:
    """Otherwise the refusals would prove nothing."""
    for name, way in OF_USERS.items():
        held = await rows(pool)
        await way(pool, "shop", f"{name} *")
        assert name == "imported" or await rows(pool) != held, name
    for name, of_app in OF_APPS.items():
        held = await rows(pool)
        await of_app(pool, "shop*")
        assert await rows(pool) != held, name


async def test_what_was_stored_under_such_a_name_can_be_read_and_erased(pool: asyncpg.Pool) -> None:
    """Earlier versions stored it."""
    from hippocampus.erasure.service import ErasureService
    from hippocampus.search import MemorySearch

    for app, user, _reason in REFUSED.values():
        await pool.execute(
            "INSERT INTO memories (app_name, user_id, memory_type, content) VALUES ($1, $2, 'semantic', 'lighthouse')",
            app,
            user,
        )
        found = await MemorySearch(pool).search(app_name=app, user_id=user, query="lighthouse")
        assert len(found.memories) == 1
        assert len([line async for line in export_memory(pool, app, user)]) == 3
        await ErasureService(pool).erase_memory(app, user, found.memories[0].memory_id)
    assert await pool.fetchval("SELECT count(*) FROM memories") == 0


async def test_what_an_earlier_version_stored_is_changed_by_hand_and_deleted(pool: asyncpg.Pool) -> None:
    """A memory, an item and a tool of an app that nothing more is stored for."""
    for app, user, _reason in REFUSED.values():
        memory = await pool.fetchval(
            "INSERT INTO memories (app_name, user_id, memory_type, content) VALUES ($1, $2, 'semantic', 'lighthouse')"
            " RETURNING id",
            app,
            user,
        )
        editor = MemoryEditor(pool)
        await editor.confirm(app, user, memory)
        (corrected,) = (await editor.correct(app, user, memory, "lamp")).ids
        assert (await editor.retire(app, user, corrected)).changed
    for app in (" ", "*"):
        await ItemStore(pool, "shop").put(("a",), "k", {"n": 1})
        await pool.execute("UPDATE store_items SET app_name = $1", app)
        items = ItemStore(pool, app)
        assert [each.key for each in await items.search()] == ["k"]
        await items.delete(("a",), "k")
        assert await items.search() == []
        await ToolRegistry(pool, "shop").register_tool("place", _tool)
        await pool.execute("UPDATE tools SET app_name = $1 WHERE app_name = 'shop'", app)
        tools = ToolRegistry(pool, app)
        assert [each.name for each in await tools.list_tools()] == ["place"]
        await tools.set_active("place", is_active=False)
        assert await tools.list_tools() == []


async def test_an_export_of_a_blank_owner_is_imported_for_another(pool: asyncpg.Pool) -> None:
    for app, user, reason in REFUSED.values():
        lines = [line async for line in export_memory(pool, app, user)]
        option = "--user" if app == "shop" else "--app"
        with pytest.raises(ImportFileError, match=f"name another with {option}") as refused:
            await import_memory(pool, lines)
        assert reason in str(refused.value)
        imported = await import_memory(pool, lines, app_name="shop", user_id="bea")
        assert (imported.app_name, imported.user_id) == ("shop", "bea")


@pytest.mark.usefixtures("before")
async def test_an_mcp_client_is_told_so(pool: asyncpg.Pool) -> None:
    for app, user, reason in REFUSED.values():
        async with connected(pool, user, app=app) as client:
            assert reason in await refusal(client, "remember", {"content": "Ann lives in Turin."})
            turns = [{"id": "t1", "role": "user", "text": "I live in Turin."}]
            assert reason in await refusal(client, "add_turns", {"session_id": "s", "turns": turns})
