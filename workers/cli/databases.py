"""The database that a command works on: the one that DATABASE_URL names, or the embedded server's.

The embedded server below HIPPOCAMPUS_HOME is started for as long as the command runs, unless it runs already.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, TypeVar, cast

from pydantic import SecretStr

from pulse import database
from workers import migrate, settings
from workers.cli import interrupts
from workers.embedded import keeper
from workers.embedded.server import EmbeddedServer
from workers.settings import Settings, SettingsError

if TYPE_CHECKING:
    from pulse.database import Connection, Pool

Result = TypeVar("Result")

POOL_SIZE_MAX = 10


@contextlib.contextmanager
def opened(config: Settings, *, create: bool = False, keep_seconds: float | None = None) -> Iterator[Settings]:
    """Yield the settings with a database in them.

    Args:
        create: create the embedded server's data if there is none.
        keep_seconds: have the embedded server stopped even if this process is killed, so many seconds later.

    Raises:
        SettingsError: there is no data, and `create` is false.
        EmbeddedServerError: the embedded server cannot start.
    """
    if not is_embedded(config):
        yield config
        return
    server = EmbeddedServer(config.home)
    if not create and not server.data.is_dir():
        raise SettingsError(
            f"There is no data below {config.home} yet: run `hippocampus demo` or `hippocampus up` first, set"
            " HIPPOCAMPUS_HOME to where it is, or set DATABASE_URL."
        )
    interrupts.raise_on_all()
    stack = contextlib.ExitStack()
    try:
        # Within the try: a postponed interrupt is raised at the block's end, when the server runs.
        with interrupts.postponed():
            server.start()
        if keep_seconds is not None:
            stack.enter_context(keeper.kept(config.home, grace_seconds=keep_seconds))
        yield config.model_copy(update={"database_url": SecretStr(server.dsn)})
    finally:
        with interrupts.postponed():
            stack.close()
            server.stop()


def name_of(config: Settings) -> str:
    """Return which database the settings name, for people."""
    return (
        database.describe(config.dsn or "") if not is_embedded(config) else f"embedded PostgreSQL below {config.home}"
    )


def is_embedded(config: Settings) -> bool:
    """Whether the settings name the embedded server: no address, or the one that `hippocampus up` gave of it."""
    return config.dsn is None or EmbeddedServer(config.home).owns(config.dsn)


def is_same(config: Settings, dsn: str) -> bool:
    """Whether the settings name the database of an address."""
    return EmbeddedServer(config.home).owns(dsn) if is_embedded(config) else dsn == config.dsn


async def migrated(config: Settings) -> list[str]:
    """Bring the database to this program's schema and return what was applied."""
    return await migrate.migrate(config.dsn or "", schema=config.schema_name)


@contextlib.asynccontextmanager
async def pool_of(config: Settings) -> AsyncIterator[Pool]:
    """Open a small pool on a database that is at this program's schema."""
    pool = await database.create_pool(
        config.dsn or "", schema=config.schema_name, max_size=min(POOL_SIZE_MAX, config.database_pool_size)
    )
    try:
        async with pool.acquire() as connection:
            await migrate.check_schema(cast("Connection", connection), schema=config.schema_name)
        yield pool
    finally:
        await pool.close()


def run(work: Callable[[Pool], Awaitable[Result]], *, create: bool = False) -> Result:
    """Run a command's work on the database that the environment names, and return its result."""
    with opened(settings.load(), create=create) as config:
        return asyncio.run(_run(config, work, create=create))


async def _run(config: Settings, work: Callable[[Pool], Awaitable[Result]], *, create: bool) -> Result:
    if create:
        await migrated(config)
    async with pool_of(config) as pool:
        return await work(pool)
