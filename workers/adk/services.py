"""Google ADK's services by URL: ``hippocampus://user:password@host:port/name``.

The functions are what ADK's registry calls: name them in an agent folder's ``services.yaml``, or call `register` in its
``services.py``. The rest of the URL is a PostgreSQL address; ``hippocampus://`` alone means DATABASE_URL.
``?schema=…`` takes precedence over HIPPOCAMPUS_SCHEMA_NAME. All services of one address share one connection pool.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, cast

from google.adk.cli.service_registry import get_service_registry

from hippocampus.adk import PostgresMemoryService
from pulse.adk import PostgresArtifactService, PostgresSessionService
from pulse.adk.agent import AdkAgent
from pulse.database import read_address
from pulse.loop_pools import LoopPools
from workers import migrate, settings
from workers.models.factory import make_query_embedder
from workers.settings import SettingsError

if TYPE_CHECKING:
    from google.adk.agents import BaseAgent
    from google.adk.apps import App

    from pulse.database import Connection, Pool

SCHEME = "hippocampus"


def session_service(uri: str, **_options: Any) -> PostgresSessionService:
    """Return the session service of an address.

    Raises:
        SettingsError: there is no address, or an environment variable is wrong.
    """
    return PostgresSessionService(_access(uri))


def memory_service(uri: str, **_options: Any) -> PostgresMemoryService:
    """Return the memory service of an address, with the workers' embedder; raises as `session_service`."""
    return PostgresMemoryService(_access(uri), make_query_embedder(settings.load()))


def artifact_service(uri: str, **_options: Any) -> PostgresArtifactService:
    """Return the artifact service of an address; raises as `session_service`."""
    return PostgresArtifactService(_access(uri))


def as_agent(agent: BaseAgent | App) -> AdkAgent:
    """Return what executes an agent or an app in runs, with the services of this database; raises as above."""
    address = f"{SCHEME}://"
    return AdkAgent(
        agent, session_service(address), memory=memory_service(address), artifacts=artifact_service(address)
    )


def register() -> None:
    """Register the scheme ``hippocampus`` with ADK, for sessions, memory and artifacts."""
    registry = get_service_registry()
    registry.register_session_service(SCHEME, session_service)
    registry.register_memory_service(SCHEME, memory_service)
    registry.register_artifact_service(SCHEME, artifact_service)


def _access(uri: str) -> LoopPools:
    config = settings.load()
    scheme, _, rest = uri.partition("://")
    # All other parameters are PostgreSQL's, such as sslmode.
    given = f"postgresql://{rest}"
    address, named = read_address(given)
    schema = config.schema_name if address == given else named
    dsn = address if address != "postgresql://" else read_address(config.dsn or "")[0]
    if scheme != SCHEME or not dsn:
        raise SettingsError(
            f"{SCHEME}:// needs a database: write {SCHEME}://user:password@host:port/name, or set DATABASE_URL"
        )
    return _shared(dsn, schema, config.database_pool_size)


@functools.cache
def _shared(dsn: str, schema: str, pool_size: int) -> LoopPools:
    async def check(pool: Pool) -> None:
        async with pool.acquire() as connection:
            await migrate.check_schema(cast("Connection", connection), schema=schema)

    return LoopPools(dsn, schema=schema, max_size=pool_size, check=check)
