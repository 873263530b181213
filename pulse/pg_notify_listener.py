"""Committed events, delivered to whoever watches their thread: in sequence, each once, from one connection a process.

A notification only says 'look': it may be lost, doubled or late. What is delivered is read from the table, past each
subscription's cursor, for all threads that were named since the last look in one statement. So a lost notification
costs time, never an event: every connect looks at every subscribed thread, and so does a slow poll.

    writer commits, then NOTIFY agent_events {thread_id, sequence_num, …}
        -> the thread is marked -> one SELECT for all marked threads -> subscriptions, in sequence
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import structlog

from pulse.database import FAULTS
from pulse.event_rows import read_event_to_deliver
from pulse.events import Event
from pulse.notify.connection import ListenerTiming, NotifyConnection, OnPayload
from pulse.postgres.statements import load_queries

if TYPE_CHECKING:
    from pulse.database import Pool

#: The channel of `notify_event_insert` and of `pulse.notify.notifier`.
EVENTS_CHANNEL = "agent_events"

#: Called with new events of a thread, in sequence, from the event loop. Must return at once and must not raise.
Deliver = Callable[[Sequence[Event]], None]

_THREADS_AT_ONCE = 500
_EVENTS_AT_ONCE = 200
_RETRY_SECONDS = 0.1
_RETRY_SECONDS_MAX = 2.0
_log = structlog.get_logger(__name__)


class Subscription:
    """One watcher of one thread. Close it to hear no more."""

    __slots__ = ("_listener", "cursor", "deliver", "thread_id")

    def __init__(self, listener: PgNotifyListener, thread_id: uuid.UUID, cursor: int, deliver: Deliver) -> None:
        self._listener: PgNotifyListener | None = listener
        self.thread_id = thread_id
        self.cursor = cursor
        self.deliver = deliver

    def close(self) -> None:
        """End the subscription. Idempotent."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.forget(self)


class PgNotifyListener:
    """Wakes on notifications, reads what is new, fans it out in memory.

    Args:
        dsn: the server's own address: a pooler in transaction mode breaks LISTEN.
        pool: for reading; never used while anything is delivered.

    Attributes:
        failures: reads that failed, and watchers that did.
    """

    def __init__(self, dsn: str, pool: Pool, *, schema: str = "public", timing: ListenerTiming | None = None) -> None:
        self._pool = pool
        self._timing = timing or ListenerTiming()
        self._queries = load_queries("pulse", "streams.sql")
        self._channels: dict[str, OnPayload] = {EVENTS_CHANNEL: self._hear}
        self._on_connect: list[Callable[[], None]] = [self._mark_all]
        self._connection = NotifyConnection(dsn, self._channels, self._connected, schema=schema, timing=self._timing)
        self._subscriptions: dict[uuid.UUID, dict[Subscription, None]] = {}
        self._marked: dict[uuid.UUID, None] = {}
        self._work = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.failures = 0

    @property
    def is_running(self) -> bool:
        """Whether notifications are heard now; events arrive by the poll alone while they are not."""
        return self._connection.hears and not any(task.done() for task in self._tasks)

    @property
    def connects(self) -> int:
        """How often it has begun to listen."""
        return self._connection.connects

    @property
    def subscriptions(self) -> int:
        """How many subscriptions are open."""
        return sum(len(watchers) for watchers in self._subscriptions.values())

    def add_channel(self, channel: str, on_payload: OnPayload, on_connect: Callable[[], None]) -> None:
        """Hear another channel on the same connection; before `start`."""
        self._channels[channel] = on_payload
        self._on_connect.append(on_connect)

    async def start(self) -> None:
        """Begin to listen and to deliver, in the background; the database may come later."""
        if self._tasks:
            return
        self._connection.start()
        self._tasks = [
            asyncio.create_task(self._fan_out(), name="event fan-out"),
            asyncio.create_task(self._poll(), name="event poll"),
        ]

    async def stop(self) -> None:
        """Stop listening and delivering. Idempotent."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._connection.stop()

    def subscribe(self, thread_id: uuid.UUID, deliver: Deliver, *, after_sequence: int) -> Subscription:
        """Deliver every event of a thread past a sequence number, those that are stored already first."""
        subscription = Subscription(self, thread_id, after_sequence, deliver)
        self._subscriptions.setdefault(thread_id, {})[subscription] = None
        self._mark((thread_id,))
        return subscription

    def forget(self, subscription: Subscription) -> None:
        """Drop a subscription; `Subscription.close` calls it."""
        watchers = self._subscriptions.get(subscription.thread_id, {})
        watchers.pop(subscription, None)
        if not watchers:
            self._subscriptions.pop(subscription.thread_id, None)

    def _connected(self) -> None:
        for on_connect in self._on_connect:
            on_connect()

    def _hear(self, payload: str) -> None:
        # Anybody who may connect may notify: what is not ours is passed over.
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            named = json.loads(payload)
            thread, number = uuid.UUID(named["thread_id"]), int(named["sequence_num"])
            if any(each.cursor < number for each in self._subscriptions.get(thread, ())):
                self._mark((thread,))

    def _mark_all(self) -> None:
        self._mark(self._subscriptions)

    def _mark(self, threads: Iterable[uuid.UUID]) -> None:
        self._marked.update((thread, None) for thread in threads if thread in self._subscriptions)
        if self._marked:
            self._work.set()

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._timing.poll_seconds)
            self._mark_all()

    async def _fan_out(self) -> None:
        wait_seconds = _RETRY_SECONDS
        while True:
            await self._work.wait()
            batch = list(self._marked)[:_THREADS_AT_ONCE]
            for thread in batch:
                del self._marked[thread]
            if not self._marked:
                self._work.clear()
            try:
                await self._deliver(batch)
                wait_seconds = _RETRY_SECONDS
            except Exception as error:  # noqa: BLE001 - whatever it was, nobody else reads: it is counted and tried again
                self.failures += 1
                unforeseen = None if isinstance(error, FAULTS) else error
                _log.warning("events_unread", threads=len(batch), error=type(error).__name__, exc_info=unforeseen)
                self._mark(batch)
                await asyncio.sleep(wait_seconds)
                wait_seconds = min(2 * wait_seconds, _RETRY_SECONDS_MAX)

    async def _deliver(self, threads: Sequence[uuid.UUID]) -> None:
        """Read what is new in these threads in one statement, and hand it on."""
        watched = [thread for thread in threads if thread in self._subscriptions]
        cursors = [min(each.cursor for each in self._subscriptions[thread]) for thread in watched]
        if not watched:
            return
        rows = await self._pool.fetch(self._queries["new_events"], watched, cursors, _EVENTS_AT_ONCE)
        found: dict[uuid.UUID, list[Event]] = {}
        for thread, *fields in rows:
            found.setdefault(thread, []).append(read_event_to_deliver(fields))
        read_after = dict(zip(watched, cursors, strict=True))
        for thread, events in found.items():
            if len(events) == _EVENTS_AT_ONCE:
                self._mark((thread,))
            for subscription in list(self._subscriptions.get(thread, ())):
                if subscription.cursor < read_after[thread]:
                    # It came while we read, and wants what lies before as well.
                    self._mark((thread,))
                else:
                    self._hand_on(subscription, events)

    def _hand_on(self, subscription: Subscription, events: Sequence[Event]) -> None:
        new = [event for event in events if (event.sequence_num or 0) > subscription.cursor]
        if not new:
            return
        subscription.cursor = new[-1].sequence_num or 0
        try:
            subscription.deliver(new)
        except Exception:  # noqa: BLE001 - one watcher's fault must not make the others deaf: it is cut off and logged
            self.failures += 1
            _log.exception("watcher_failed", thread=str(subscription.thread_id))
            subscription.close()
