"""Serves a process's metrics on the first free port from its role's base, and registers the port in the database."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import structlog
from prometheus_client import CollectorRegistry, start_http_server

from workers.failures import DATABASE_FAULTS
from workers.telemetry import discovery
from workers.telemetry.discovery import Target

if TYPE_CHECKING:
    from pulse.database import Pool

_log = structlog.get_logger(__name__)

PORT_ATTEMPTS_MAX = 100
HEARTBEAT_SECONDS = 10.0
CLOSE_SECONDS_MAX = 0.5


class NoFreePortError(OSError):
    """No port for metrics is free. The message names the range."""


@contextlib.asynccontextmanager
async def serving(registry: CollectorRegistry, *, pool: Pool, role: str, host: str, base: int) -> AsyncIterator[int]:
    """Serve a registry over HTTP, register the address in the database, and yield the port.

    Raises:
        NoFreePortError: change the role's metrics port, or stop what listens there.
    """
    with _listening(registry, host, base) as port:
        target = Target(advertised(host), port, role, os.getpid())
        await _register(pool, target)
        heartbeat = asyncio.create_task(_keep_registered(pool, target))
        _log.info("metrics_served", host=host, port=port)
        try:
            yield port
        finally:
            heartbeat.cancel()
            await asyncio.gather(heartbeat, return_exceptions=True)
            with contextlib.suppress(*DATABASE_FAULTS):
                # Also bounds the wait for a connection.
                await asyncio.wait_for(discovery.unregister(pool, target), discovery.UNREGISTER_SECONDS_MAX)


def advertised(host: str) -> str:
    """Return the name under which other machines reach a listener on `host`."""
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(host).is_unspecified:
            return socket.gethostname()
    return host or socket.gethostname()


@contextlib.contextmanager
def _listening(registry: CollectorRegistry, host: str, base: int) -> Iterator[int]:
    for port in range(base, min(base + PORT_ATTEMPTS_MAX, 65_536)):
        try:
            server, thread = start_http_server(port, host, registry)
        except OSError:
            continue
        try:
            yield port
        finally:
            # The server looks for an end twice a second, and after each connection.
            stopping = threading.Thread(target=server.shutdown)
            stopping.start()
            with contextlib.suppress(OSError):
                address = (server.socket.getsockname()[0], server.server_port)
                socket.create_connection(address, timeout=CLOSE_SECONDS_MAX).close()
            stopping.join()
            server.server_close()
            thread.join()
        return
    raise NoFreePortError(
        f"No port for metrics is free on {host} from {base} upwards ({PORT_ATTEMPTS_MAX} were tried)."
        " Set HIPPOCAMPUS_<ROLE>_METRICS_PORT to another base, or HIPPOCAMPUS_METRICS_HOST to an address of this host."
    )


async def _keep_registered(pool: Pool, target: Target) -> None:
    while True:
        await asyncio.sleep(HEARTBEAT_SECONDS)
        await _register(pool, target)


async def _register(pool: Pool, target: Target) -> None:
    try:
        await discovery.register(pool, target)
    except DATABASE_FAULTS as error:
        # Metrics are served all the same, and the next heartbeat registers the target.
        _log.warning("metrics_target_not_refreshed", error_type=type(error).__name__)
