"""One listening connection, kept alive: heartbeat, reconnect, and whether it is listening.

A NOTIFY that is sent while no session listens is lost, and a connection that a firewall dropped seems alive for hours.
So the listening session is checked every few seconds. When it does not answer, or no longer listens on its channels, a
new connection replaces it, and `on_connect` is called so that its users read what they missed.

PgBouncer in transaction mode breaks LISTEN: the address must be the server's own. Of several hosts, and after a server
became a standby, it is the primary that is listened to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from pulse import database
from pulse.errors import DatabaseUnreachableError, PoolerError, SchemaError
from pulse.postgres.backoff import Backoff
from pulse.postgres.statements import Statements
from pulse.process.background import cancel

if TYPE_CHECKING:
    from pulse.database import Connection

#: The payload of one notification.
OnPayload = Callable[[str], None]

_FAULTS = (DatabaseUnreachableError, PoolerError, SchemaError, *database.FAULTS)
_RETRY_SECONDS = 0.05
_STATEMENTS = Statements("pulse.notify", "notify.sql")
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerTiming:
    """The intervals of a listener.

    Attributes:
        heartbeat_seconds: between two checks that the session still listens.
        answer_seconds: how long an answer, or a connection, may take.
        poll_seconds: between two reads of every subscribed thread, notified or not.
        retry_seconds_max: the longest wait before the next connection; waits grow and have full jitter.
    """

    heartbeat_seconds: float = 5.0
    answer_seconds: float = 3.0
    poll_seconds: float = 10.0
    retry_seconds_max: float = 5.0


class NotifyConnection:
    """Listens on channels of one database until it is stopped, through one connection at a time.

    Args:
        dsn: the server's own address, not a pooler's.
        channels: what to do with each channel's payloads; called in the order of arrival, must not block or raise.
        on_connect: called after each LISTEN: earlier notifications were missed.
    """

    def __init__(
        self,
        dsn: str,
        channels: dict[str, OnPayload],
        on_connect: Callable[[], None],
        *,
        schema: str | None = None,
        timing: ListenerTiming | None = None,
    ) -> None:
        self._dsn = dsn
        self._schema = schema
        self._channels = channels
        self._on_connect = on_connect
        self._timing = timing or ListenerTiming()
        self._task: asyncio.Task[None] | None = None
        self._is_listening = False
        self.connects = 0

    @property
    def is_listening(self) -> bool:
        """Whether the session answered the last check, and listens on every channel."""
        return self._is_listening

    def start(self) -> None:
        """Listen in the background; the database need not be up yet. Idempotent."""
        if self._task is None:
            self._task = asyncio.create_task(self._keep_listening(), name="notify connection")

    async def stop(self) -> None:
        """Stop listening and close the connection. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            await cancel(task)
        self._is_listening = False

    async def _keep_listening(self) -> None:
        """Listen; when the connection is lost, open another after a growing wait."""
        backoff = Backoff(_RETRY_SECONDS, self._timing.retry_seconds_max)
        while True:
            try:
                await self._listen_once()
            except _FAULTS as error:
                _log.warning("listener_lost", error=type(error).__name__)
            except Exception:  # noqa: BLE001 - logged whole; without this task nothing would be received again
                _log.exception("listener_failed")
            if self._is_listening:
                backoff.reset()
            self._is_listening = False
            await backoff.wait()

    async def _listen_once(self) -> None:
        """Listen until the connection ends. Raises what ended it."""
        async with asyncio.timeout(self._timing.answer_seconds):
            connection = await database.connect(self._dsn, schema=self._schema, prepare=False, needs_session=True)
        lost = asyncio.Event()
        try:
            connection.add_termination_listener(lambda _: lost.set())
            async with asyncio.timeout(self._timing.answer_seconds):
                # The server, too, notices a lost connection; a Unix socket ignores the settings.
                await _STATEMENTS.execute(connection, "keep_listener_alive")
                for channel in self._channels:
                    await connection.add_listener(channel, self._receive)
            self._is_listening = True
            self.connects += 1
            _log.info("listener_started" if self.connects == 1 else "listener_reconnected", connects=self.connects)
            self._on_connect()
            await self._watch(connection, lost)
        finally:
            # close() would wait for the answer of a server that may be down.
            connection.terminate()

    async def _watch(self, connection: Connection, lost: asyncio.Event) -> None:
        """Check every few seconds that the session still listens. Raises when it does not."""
        while True:
            try:
                async with asyncio.timeout(self._timing.heartbeat_seconds):
                    await lost.wait()
                raise ConnectionResetError("the listener's connection was closed")
            except TimeoutError:
                pass
            async with asyncio.timeout(self._timing.answer_seconds):
                session = await _STATEMENTS.fetchrow(connection, "session")
            if session is None or session["is_read_only"]:
                raise ConnectionResetError("the listener's server accepts no writes, so that nothing is notified there")
            if not self._channels.keys() <= set(session["channels"]):
                raise ConnectionResetError("the listener's session no longer listens on its channels")

    def _receive(self, _connection: Any, _pid: int, channel: str, payload: object) -> None:
        self._channels[channel](str(payload))
