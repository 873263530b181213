"""Where a process offers its metrics: a free port from its role's base upwards, made known in the database."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import structlog
from prometheus_client import CollectorRegistry, start_http_server

from workers.failures import DATABASE_FAULTS
from workers.queue.claims import QUERIES

if TYPE_CHECKING:
    from pulse.database import Pool

_log = structlog.get_logger("workers.telemetry.metrics")

PORTS_TRIED_MAX = 100
HEARTBEAT_SECONDS = 10.0
#: A database that does not answer holds up neither the start nor the end of a process.
STATEMENT_SECONDS_MAX = 2.0


class NoFreePortError(OSError):
    """No port for metrics is free. The message names the range."""


@contextlib.asynccontextmanager
async def serving(registry: CollectorRegistry, *, pool: Pool, role: str, host: str, base: int) -> AsyncIterator[int]:
    """Serve a registry over HTTP, tell the database where, and yield the port.

    Raises:
        NoFreePortError: mend the role's metrics port, or stop what listens there.
    """
    with _listening(registry, host, base) as port:
        target = (advertised(host), port, role, os.getpid())
        await _make_known(pool, target)
        beat = asyncio.create_task(_keep_known(pool, target))
        _log.info("metrics served", host=host, port=port)
        try:
            yield port
        finally:
            beat.cancel()
            await asyncio.gather(beat, return_exceptions=True)
            with contextlib.suppress(*DATABASE_FAULTS):
                gone = QUERIES["delete_metrics_target"]
                await asyncio.wait_for(pool.execute(gone, target[0], port, target[3]), timeout=0.5)


def advertised(host: str) -> str:
    """Return the name under which others reach a listener on `host`."""
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(host).is_unspecified:
            return socket.gethostname()
    return host or socket.gethostname()


@contextlib.contextmanager
def _listening(registry: CollectorRegistry, host: str, base: int) -> Iterator[int]:
    for port in range(base, min(base + PORTS_TRIED_MAX, 65_536)):
        try:
            server, thread = start_http_server(port, host, registry)
        except OSError:
            continue
        try:
            yield port
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
        return
    raise NoFreePortError(
        f"No port for metrics is free on {host} from {base} upwards ({PORTS_TRIED_MAX} tried)."
        " Set HIPPOCAMPUS_<ROLE>_METRICS_PORT to another base, or HIPPOCAMPUS_METRICS_HOST to an address of this host."
    )


async def _keep_known(pool: Pool, target: tuple[str, int, str, int]) -> None:
    while True:
        await asyncio.sleep(HEARTBEAT_SECONDS)
        await _make_known(pool, target)


async def _make_known(pool: Pool, target: tuple[str, int, str, int]) -> None:
    try:
        await pool.execute(QUERIES["put_metrics_target"], *target, timeout=STATEMENT_SECONDS_MAX)
    except DATABASE_FAULTS as error:
        # It is served all the same, and the next heartbeat tells of it.
        _log.warning("metrics target not refreshed", error_type=type(error).__name__)
