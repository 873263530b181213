"""Serves a process's metrics on the first free port from its role's base, and registers the port in the database."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, make_server

import structlog
from prometheus_client import CollectorRegistry, Histogram, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from pulse.process.background import in_background
from workers.failures import DATABASE_FAULTS
from workers.telemetry import discovery
from workers.telemetry.discovery import Target

if TYPE_CHECKING:
    from pulse.database import Pool

_log = structlog.get_logger(__name__)

PORT_ATTEMPTS_MAX = 100
HEARTBEAT_SECONDS = 20.0
CLOSE_SECONDS_MAX = 0.5
_WAKE_SECONDS = 0.05
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0)


class CommitMetrics:
    """How long the database takes to commit one row: the heartbeat's, so that nothing is written to measure it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "database_commit_duration_seconds",
            "How long a commit of one row takes.",
            buckets=_SECONDS,
            registry=registry,
        )

    def observe(self, seconds: float) -> None:
        """Count one commit."""
        self._seconds.observe(seconds)


class NoFreePortError(OSError):
    """No port for metrics is free. The message names the range."""


@contextlib.asynccontextmanager
async def serving(
    registry: CollectorRegistry, commits: CommitMetrics, *, pool: Pool, role: str, host: str, base: int
) -> AsyncIterator[int]:
    """Serve a registry over HTTP, register the address in the database, and yield the port.

    Raises:
        NoFreePortError: change the role's metrics port, or stop what listens there.
    """
    with _listening(registry, host, base) as port:
        target = Target(advertised(host), port, role, os.getpid())
        await _register(pool, target, commits)
        _log.info("metrics_served", host=host, port=port)
        try:
            async with in_background(_keep_registered(pool, target, commits)):
                yield port
        finally:
            with contextlib.suppress(*DATABASE_FAULTS):
                # Also bounds the wait for a connection.
                async with asyncio.timeout(discovery.UNREGISTER_SECONDS_MAX):
                    await discovery.unregister(pool, target)


def advertised(host: str) -> str:
    """Return the name under which other machines reach a listener on `host`."""
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(host).is_unspecified:
            return socket.gethostname()
    return host or socket.gethostname()


class _Server(ThreadingWSGIServer):
    """A server that wakes for connections alone; `socketserver` otherwise looks for its end twice a second."""

    def serve_forever(self, poll_interval: float = 3600.0) -> None:
        super().serve_forever(poll_interval)


class _IPv6Server(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextlib.contextmanager
def _listening(registry: CollectorRegistry, host: str, base: int) -> Iterator[int]:
    for port in range(base, min(base + PORT_ATTEMPTS_MAX, 65_536)):
        try:
            family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
            kind = _IPv6Server if family == socket.AF_INET6 else _Server
            server = make_server(str(address[0]), port, make_wsgi_app(registry), kind, handler_class=_Handler)
        except OSError:
            continue
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield port
        finally:
            # The server looks for its end when its socket is ready, and one that is shut down is ready for good: also
            # where this process can open no more files, and where the thread is late to ask for the end.
            stopping = threading.Thread(target=server.shutdown)
            stopping.start()
            try:
                server.socket.shutdown(socket.SHUT_RDWR)
            except OSError:  # other systems than Linux: by connections, until it has looked
                while stopping.is_alive():
                    with contextlib.suppress(OSError):
                        address = (server.socket.getsockname()[0], server.server_port)
                        socket.create_connection(address, timeout=CLOSE_SECONDS_MAX).close()
                    stopping.join(_WAKE_SECONDS)
            stopping.join()
            server.server_close()
            thread.join()
        return
    raise NoFreePortError(
        f"No port for metrics is free on {host} from {base} upwards ({PORT_ATTEMPTS_MAX} were tried)."
        " Set HIPPOCAMPUS_<ROLE>_METRICS_PORT to another base, or HIPPOCAMPUS_METRICS_HOST to an address of this host."
    )


async def _keep_registered(pool: Pool, target: Target, commits: CommitMetrics) -> None:
    while True:
        await asyncio.sleep(HEARTBEAT_SECONDS)
        await _register(pool, target, commits)


async def _register(pool: Pool, target: Target, commits: CommitMetrics) -> None:
    began = time.perf_counter()
    try:
        await discovery.register(pool, target)
        commits.observe(time.perf_counter() - began)
    except DATABASE_FAULTS as error:
        # Metrics are served all the same, and the next heartbeat registers the target.
        _log.warning("metrics_target_not_refreshed", error_type=type(error).__name__)
