"""``hippocampus://`` addresses: which database they name, and the errors for those that name none."""

from __future__ import annotations

import pytest
from google.adk.cli.service_registry import get_service_registry

from hippocampus.adk import PostgresMemoryService
from pulse.adk import PostgresArtifactService
from pulse.errors import DatabaseUnreachableError, SchemaError
from workers import adk
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


async def test_a_pool_that_failed_to_open_is_opened_by_the_next_call() -> None:
    """The database was down at the first call."""
    service = adk.artifact_service("hippocampus://nobody@127.0.0.1:1/none")
    for _ in range(2):
        with pytest.raises(DatabaseUnreachableError):
            await service.list_artifact_keys(**SCOPE)
    await service.close()
