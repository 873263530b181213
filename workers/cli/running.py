"""All roles running on one database: how they are started, when they are ready, where they can be reached."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx

from workers import settings
from workers.cli import databases, interrupts, main
from workers.embedded import revival
from workers.process import ports
from workers.process.forking import ForkServer
from workers.process.roles import OPTIONAL_ROLES, ROLES, Listener, Role, RoleSupervisor
from workers.telemetry import overview
from workers.telemetry.discovery import SEEN_SECONDS_MAX

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.settings import Settings

START_SECONDS_MAX = 60.0
#: Unless it is set: so that roles, and then the embedded server, have stopped 5 seconds after a Ctrl-C.
GRACE_SECONDS = 3.0
HEALTH_SECONDS_MAX = 2.0
#: The embedded server, beside the roles' names.
DATABASE = "database"
#: What the roles import.
ROLE_MODULES = ("workers.writer", "workers.worker", "workers.cli.commands.writer", "workers.cli.commands.worker")


@dataclass(frozen=True, slots=True)
class Running:
    """The roles, all ready, and where they can be reached."""

    supervisor: RoleSupervisor
    api_url: str
    metrics_urls: dict[str, str]  # by role


def grace_of(config: Settings) -> float:
    """Return how many seconds the roles get to stop gracefully."""
    return config.shutdown_grace_seconds if "shutdown_grace_seconds" in config.model_fields_set else GRACE_SECONDS


@contextlib.contextmanager
def fork_server() -> Iterator[ForkServer]:
    """Fork a server that imports what the roles need, once. Enter it before anything else is opened.

    A request to stop that comes meanwhile raises KeyboardInterrupt afterwards: Python drops an exception that is raised
    while it returns from `os.fork`, and the program would run on.
    """
    with contextlib.ExitStack() as stack:
        with interrupts.postponed():
            server = stack.enter_context(ForkServer(ROLE_MODULES, main.run))
        yield server


@contextlib.asynccontextmanager
async def running(
    config: Settings,
    pool: Pool,
    *,
    free_port: bool,
    on_line: Listener | None = None,
    on_change: Listener | None = None,
    log_format: str | None = None,
    forks: ForkServer,
) -> AsyncIterator[Running]:
    """Start every role, wait until all can do their work, and stop them at the end.

    Args:
        free_port: take any port for the API if the configured one is in use.
        log_format: the format of the roles' logs, unless the settings name one.
        forks: the server of `fork_server`, which the roles are forked from.

    Raises:
        RoleFailedError: a role could not start.
    """
    with _held_port(config.api_host, config.api_port, any_free=free_port) as port, forks.attached():
        grace_seconds = grace_of(config)
        changes = {
            "DATABASE_URL": config.dsn or "",
            "HIPPOCAMPUS_SCHEMA_NAME": config.schema_name,
            "HIPPOCAMPUS_API_PORT": str(port),
            "HIPPOCAMPUS_SHUTDOWN_GRACE_SECONDS": str(grace_seconds),
            "PYTHONPATH": settings.import_path(),
            "PYTHONUNBUFFERED": "1",
        }
        if log_format is not None and "log_format" not in config.model_fields_set:
            changes["HIPPOCAMPUS_LOG_FORMAT"] = log_format
        supervisor = RoleSupervisor(
            settings.child_environment(**changes),
            grace_seconds=grace_seconds,
            on_line=on_line,
            on_change=on_change,
            forks=forks,
            roles=[role for role in ROLES if config.pulse_enabled or role.name not in OPTIONAL_ROLES],
        )
        api_url = f"http://{_reachable(config.api_host)}:{port}"
        async with (
            httpx.AsyncClient(base_url=api_url, timeout=HEALTH_SECONDS_MAX) as client,
            _database(config, on_change),
            supervisor,
        ):

            async def live_processes() -> list[overview.Process]:
                return await overview.live_processes(pool, within_seconds=SEEN_SECONDS_MAX)

            async def is_ready(role: Role, pid: int) -> bool:
                if role.name == "writer":
                    return await _is_healthy(client)
                return any(each.pid == pid for each in await live_processes())

            await supervisor.wait_until_ready(is_ready, timeout_seconds=START_SECONDS_MAX)
            ours = set(supervisor.pids.values())
            metrics = {each.role: each.metrics_url for each in await live_processes() if each.pid in ours}
            yield Running(supervisor, api_url, metrics)


def _database(config: Settings, on_change: Listener | None) -> contextlib.AbstractAsyncContextManager[None]:
    """Keep the embedded server alive; one that DATABASE_URL names is its operator's."""
    if not databases.is_embedded(config):
        return contextlib.nullcontext()
    return revival.revived(config.home, lambda change: on_change(DATABASE, change) if on_change else None)


async def _is_healthy(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/health")).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


@contextlib.contextmanager
def _held_port(host: str, port: int, *, any_free: bool) -> Iterator[int]:
    """Yield the port; if it is in use and `any_free` is true, one that the kernel chooses.

    Raises:
        SettingsError: the port is in use. It is checked here, before any role is started.
    """
    with contextlib.ExitStack() as held:
        for wanted in (port, 0) if any_free else (port,):
            try:
                chosen = held.enter_context(ports.held(host, wanted))
            except OSError as error:
                reason = error.strerror
            else:
                yield chosen
                return
    raise settings.SettingsError(f"Port {port} of {host} cannot be used ({reason}): {ports.ADVICE}.")


def _reachable(host: str) -> str:
    """Return an address at which this machine reaches a listener on `host`."""
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host
