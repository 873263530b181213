"""One connection that listens, kept alive: heartbeat, reconnect, and the truth about whether it hears.

A NOTIFY that is sent while nobody listens is lost, and a connection that a firewall forgot looks alive for hours. So
the session that listens is asked again and again whether it still does; when it does not answer, or has forgotten its
channels, a new one takes its place, and whoever depends on it is told to look for what was missed.

PgBouncer in transaction mode breaks LISTEN: the address must be the server's own.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from pulse import database
from pulse.errors import DatabaseUnreachableError, SchemaError
from pulse.postgres.statements import load_queries

if TYPE_CHECKING:
    from pulse.database import Connection

#: The payload of one notification.
OnPayload = Callable[[str], None]

_FAULTS = (DatabaseUnreachableError, SchemaError, *database.FAULTS)
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerTiming:
    """How often a listener looks after itself.

    Attributes:
        heartbeat_seconds: between two questions whether the session still listens.
        answer_seconds: how long an answer, or a connection, may take.
        poll_seconds: between two looks at every subscribed thread, heard of or not.
        retry_seconds_max: the longest wait before a new connection is tried; the wait is drawn at random.
    """

    heartbeat_seconds: float = 3.0
    answer_seconds: float = 3.0
    poll_seconds: float = 10.0
    retry_seconds_max: float = 5.0


class NotifyConnection:
    """Listens on channels of one database for as long as it is started, through one connection at a time.

    Args:
        dsn: the server's own address, not a pooler's.
        channels: what to do with each channel's payloads; called in the order of arrival, must not block or raise.
        on_connect: called after each LISTEN: what was sent before it was not heard.
    """

    _RETRY_SECONDS_MIN = 0.05

    def __init__(
        self,
        dsn: str,
        channels: dict[str, OnPayload],
        on_connect: Callable[[], None],
        *,
        schema: str = "public",
        timing: ListenerTiming | None = None,
    ) -> None:
        self._dsn = dsn
        self._schema = schema
        self._channels = channels
        self._on_connect = on_connect
        self._timing = timing or ListenerTiming()
        self._queries = load_queries("pulse", "streams.sql")
        self._task: asyncio.Task[None] | None = None
        self._hears = False
        self.connects = 0

    @property
    def hears(self) -> bool:
        """Whether the session answered its last question, and listens on every channel."""
        return self._hears

    def start(self) -> None:
        """Begin to listen in the background; the database may come later."""
        if self._task is None:
            self._task = asyncio.create_task(self._keep(), name="notify connection")

    async def stop(self) -> None:
        """Stop listening and close the connection. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _keep(self) -> None:
        """Hold a listening session; when it is lost, take another one, at a random moment within a growing time."""
        ceiling_seconds = self._RETRY_SECONDS_MIN
        while True:
            try:
                await self._listen_once()
            except _FAULTS as error:
                _log.warning("listener_lost", error=type(error).__name__)
            except Exception:  # noqa: BLE001 - logged whole; a listener that ended here would be deaf for good
                _log.exception("listener_failed")
            if self._hears:
                ceiling_seconds = self._RETRY_SECONDS_MIN
            self._hears = False
            await asyncio.sleep(random.uniform(0, ceiling_seconds))  # noqa: S311 - spreads load, guards nothing
            ceiling_seconds = min(2 * ceiling_seconds, self._timing.retry_seconds_max)

    async def _listen_once(self) -> None:
        """Listen until the connection ends. Raises what ended it."""
        async with asyncio.timeout(self._timing.answer_seconds):
            connection = await database.connect(self._dsn, schema=self._schema, prepare=False)
        lost = asyncio.Event()
        try:
            connection.add_termination_listener(lambda _: lost.set())
            async with asyncio.timeout(self._timing.answer_seconds):
                # Told by the server, too, when this side vanished; a Unix socket ignores it.
                await connection.execute(self._queries["keep_listener_alive"])
                for channel in self._channels:
                    await connection.add_listener(channel, self._hear)
            self._hears = True
            self.connects += 1
            _log.info("PgNotifyListener started" if self.connects == 1 else "listener_connected", times=self.connects)
            self._on_connect()
            await self._watch(connection, lost)
        finally:
            # Not close(): it would wait for an answer of a server that may be gone.
            connection.terminate()

    async def _watch(self, connection: Connection, lost: asyncio.Event) -> None:
        """Ask the session again and again whether it still listens; return when it does not."""
        while True:
            try:
                async with asyncio.timeout(self._timing.heartbeat_seconds):
                    await lost.wait()
                raise ConnectionResetError("the listener's session was ended")
            except TimeoutError:
                pass
            async with asyncio.timeout(self._timing.answer_seconds):
                heard = await connection.fetch(self._queries["listening_channels"])
            if not self._channels.keys() <= {row["channel"] for row in heard}:
                raise ConnectionResetError("the listener's session forgot its channels")

    def _hear(self, _connection: Any, _pid: int, channel: str, payload: object) -> None:
        self._channels[channel](str(payload))
