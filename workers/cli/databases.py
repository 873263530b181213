"""The database that a command works on: the one that DATABASE_URL names, or the embedded server's.

The embedded server below HIPPOCAMPUS_HOME is started for as long as the command runs, unless it runs already.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import getpass
import hashlib
import os
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

import click
from pydantic import SecretStr

from pulse import database
from pulse.actor import acting_as
from pulse.cells import require_served
from pulse.errors import InvalidInputError
from pulse.process.extras import install_command
from workers import migrate, redactors, settings
from workers.cli import interrupts, rows
from workers.cli.options import APP_MAY_BE_LOGGED, APP_MAY_BE_SET_UP, APP_READ, USER_READ
from workers.embedded import binaries, keeper
from workers.embedded.server import EmbeddedServer
from workers.settings import Settings, SettingsError

if TYPE_CHECKING:
    from pulse.database import Connection, Pool

Result = TypeVar("Result")

POOL_SIZE_MAX = 10
APPS_SHOWN_MAX = 12


@contextlib.contextmanager
def opened(config: Settings, *, create: bool = False, keep_seconds: float | None = None) -> Iterator[Settings]:
    """Yield the settings with a database in them.

    Args:
        create: create the embedded server's data if there is none.
        keep_seconds: have the embedded server stopped even if this process is killed, this many seconds later.

    Raises:
        SettingsError: there is no data, and `create` is false.
        EmbeddedServerError: the embedded server cannot start.
    """
    if not is_embedded(config):
        yield config
        return
    server = EmbeddedServer(config.home)
    if not create and not server.data.is_dir():
        if (other := _data_of_checkout(config)) is not None:
            raise SettingsError(
                f"There is no data below {config.home}, but `make run` and `make demo` keep theirs below {other}:"
                f" `export HIPPOCAMPUS_HOME={shlex.quote(str(other))}` first."
            )
        if not binaries.is_installed():
            raise SettingsError(
                "No database is named: set DATABASE_URL. (An embedded one is not installed:"
                f" {install_command('embedded')}.)"
            )
        raise SettingsError(
            f"There is no data below {config.home} yet: run `hippocampus demo` or `hippocampus up` first, set"
            " HIPPOCAMPUS_HOME to where it is, or set DATABASE_URL."
        )
    interrupts.raise_on_all()
    stack = contextlib.ExitStack()
    try:
        # Within the try: a postponed interrupt is raised at the block's end, when the server and its keeper run. One
        # that came as the keeper's process is made would leave it behind, and the server with it.
        with interrupts.postponed():
            server.start()
            if keep_seconds is not None:
                stack.enter_context(keeper.kept(config.home, grace_seconds=keep_seconds))
        yield config.model_copy(update={"database_url": SecretStr(server.dsn)})
    finally:
        with interrupts.postponed():
            stack.close()
            server.stop()


def _data_of_checkout(config: Settings) -> Path | None:
    """Return where the Makefile of this checkout has put an embedded server's data, unless it is there that we are."""
    checkout = Path(migrate.__file__).resolve().parents[2]
    if not (checkout / "Makefile").is_file():
        return None
    mark = hashlib.sha256(f"{checkout}\n".encode()).hexdigest()[:12]
    for home in (checkout / ".home", Path("/var/lib/hippocampus") / mark):
        try:
            if home != config.home and EmbeddedServer(home).data.is_dir():
                return home
        except OSError:
            continue  # of another system user
    return None


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
    return await migrate.migrate(config.direct_dsn or "", schema=config.schema_name)


@contextlib.asynccontextmanager
async def pool_of(config: Settings) -> AsyncIterator[Pool]:
    """Open a small pool on a database that is at this program's schema."""
    redactors.install(config)
    pool = await database.create_pool(
        config.dsn or "", schema=config.schema_name, max_size=min(POOL_SIZE_MAX, config.database_pool_size)
    )
    try:
        async with pool.acquire() as connection:
            await migrate.check_schema(cast("Connection", connection), schema=config.schema_name, thorough=False)
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
    app = _named_app()
    if app is not None and (cells := config.all_cells) is not None:
        config = config.in_cell(await cells.locate(app))
    async with pool_of(config) as pool:
        if app is not None:
            await require_served(pool, app)
        await _check_names(pool)
        with acting_as(f"cli:{_system_user()}"):
            return await work(pool)


def _system_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _named_app() -> str | None:
    """Return the app that the running command names; None for one about every app of a cell."""
    context = click.get_current_context(silent=True)
    app = None if context is None else context.params.get("app")
    return app if isinstance(app, str) else None


async def _check_names(pool: Pool) -> None:
    """Check that the app and the user that the running command reads exist, unless there is no app at all.

    Raises:
        InvalidInputError: one does not; for an app, the message has the names that are most like it.
    """
    context = click.get_current_context(silent=True)
    if context is None or (app := context.meta.get(APP_READ)) is None:
        return
    if await rows.has_app(pool, app):
        user = context.meta.get(USER_READ)
        if user is not None and not await rows.has_user(pool, app, user):
            raise InvalidInputError(
                f"There is no user {user!r:.80} in {app}: `hippocampus users --app {shlex.quote(app)}` lists them."
            )
        return
    if context.meta.get(APP_MAY_BE_SET_UP) and await rows.is_set_up(pool, app):
        return
    if context.meta.get(APP_MAY_BE_LOGGED) and await rows.is_logged(pool, app):
        return
    known = await rows.apps(pool)
    near = difflib.get_close_matches(app, known, n=3, cutoff=0.5) or known[:APPS_SHOWN_MAX]
    if known:
        raise InvalidInputError(f"There is no app {app!r:.80}: there is {', '.join(near)}.")
