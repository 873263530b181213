"""``hippocampus://`` addresses: which database they name, and the errors for those that name none."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest
from google.adk.cli.service_registry import get_service_registry
from google.adk.events import Event
from google.adk.memory.memory_entry import MemoryEntry
from google.genai import types

from hippocampus.adk import PostgresMemoryService
from pulse.adk import PostgresArtifactService, PostgresSessionService
from pulse.errors import DatabaseUnreachableError, SchemaError
from tests.support.adk.services import Who
from workers import adk
from workers.migrate import migrate
from workers.settings import SettingsError

SCOPE = {"app_name": "app", "user_id": "user", "session_id": "s"}


def hippocampus(dsn: str, parameters: str = "") -> str:
    return dsn.replace("postgresql://", "hippocampus://", 1) + parameters


async def test_adk_knows_the_scheme_once_it_is_registered(dsn: str) -> None:
    adk.register()
    registry = get_service_registry()
    address = hippocampus(dsn)
    made = (
        registry.create_session_service(address, agents_dir="."),
        registry.create_memory_service(address, agents_dir="."),
        registry.create_artifact_service(address, agents_dir="."),
    )
    assert isinstance(made[1], PostgresMemoryService)
    assert isinstance(made[2], PostgresArtifactService)
    assert await made[2].list_artifact_keys(**SCOPE) == []
    for service in made:
        await service.close()  # type: ignore[union-attr]


async def test_a_bare_address_is_the_database_of_the_environment(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", dsn)
    service = adk.artifact_service("hippocampus://", agents_dir=".")
    assert await service.list_artifact_keys(**SCOPE) == []
    await service.close()


@pytest.mark.parametrize("address", ["hippocampus://", "postgresql://host/name"])
def test_an_address_without_a_database_says_what_to_set(address: str) -> None:
    with pytest.raises(SettingsError, match=r"hippocampus://user:password@host:port/name, or set DATABASE_URL"):
        adk.memory_service(address)


async def test_a_database_without_our_tables_names_the_command(empty_dsn: str) -> None:
    service = adk.artifact_service(hippocampus(empty_dsn))
    with pytest.raises(SchemaError, match="hippocampus migrate"):
        await service.list_artifact_keys(**SCOPE)
    await service.close()


async def test_an_address_can_name_a_schema(dsn: str) -> None:
    service = adk.artifact_service(hippocampus(dsn, "&schema=elsewhere"))
    with pytest.raises(SchemaError, match=r"'elsewhere'"):
        await service.list_artifact_keys(**SCOPE)
    await service.close()


async def test_services_of_a_second_schema_keep_everything_there(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions, memory and artifacts. The address names it, or the setting; the first schema has nothing of it."""
    await migrate(f"{dsn}&schema=elsewhere")
    who: Who = {"app_name": "app", "user_id": "user"}

    @contextlib.asynccontextmanager
    async def opened(
        address: str,
    ) -> AsyncIterator[tuple[PostgresSessionService, PostgresMemoryService, PostgresArtifactService]]:
        services = adk.session_service(address), adk.memory_service(address), adk.artifact_service(address)
        yield services
        for each in services:
            await each.close()

    async def held(address: str) -> dict[str, list[str | None]]:
        """The texts of the session's events, what the memory finds, and the artifact."""
        async with opened(address) as (sessions, memory, artifacts):
            session = await sessions.get_session(**who, session_id="s")
            events = [each.content for each in session.events] if session is not None else []
            found = (await memory.search_memory(**who, query="When does the harbour open?")).memories
            kept = await artifacts.load_artifact(**SCOPE, filename="plan.txt")
            return {
                "events": [part.text for each in events if each is not None for part in each.parts or []],
                "memories": [part.text for each in found for part in each.content.parts or []],
                "artifact": [] if kept is None else [kept.text],
            }

    there, here = hippocampus(dsn, "&schema=elsewhere"), hippocampus(dsn)
    said = "The harbour opens at nine."
    async with opened(there) as (sessions, memory, artifacts):
        session = await sessions.create_session(**who, session_id="s")
        content = types.Content(role="user", parts=[types.Part(text=said)])
        await sessions.append_event(session, Event(author="user", content=content))
        await memory.add_session_to_memory(session)
        await memory.add_memory(
            **who, memories=[MemoryEntry(content=types.Content(parts=[types.Part(text="Harbour.")]))]
        )
        assert await artifacts.save_artifact(**SCOPE, filename="plan.txt", artifact=types.Part(text="Sail.")) == 0
    everything = {"events": [said], "memories": ["Harbour.", said], "artifact": ["Sail."]}
    nothing: dict[str, list[str]] = {"events": [], "memories": [], "artifact": []}
    assert {name: sorted(each, key=str) for name, each in (await held(there)).items()} == everything
    assert await held(here) == nothing
    monkeypatch.setenv("HIPPOCAMPUS_SCHEMA_NAME", "elsewhere")
    assert {name: sorted(each, key=str) for name, each in (await held(here)).items()} == everything
    # The address takes precedence.
    assert await held(hippocampus(dsn, "&schema=public")) == nothing


async def test_a_pool_that_failed_to_open_is_opened_by_the_next_call() -> None:
    """The database was down at the first call."""
    service = adk.artifact_service("hippocampus://nobody@127.0.0.1:1/none")
    for _ in range(2):
        with pytest.raises(DatabaseUnreachableError):
            await service.list_artifact_keys(**SCOPE)
    await service.close()
