"""Committed events, delivered to the watchers of their thread: in sequence, each once, from one connection a process.

A notification only says that a thread has something new: it may be lost, doubled or late. What is delivered is read
from the table, past each subscription's cursor, in one statement for all threads that were notified since the last
read. A lost notification therefore costs time, never an event: every connect and a slow poll read every subscribed
thread.

    writer commits, then NOTIFY agent_events {thread_id, sequence_num, …}
        -> the thread is marked -> one SELECT for all marked threads -> subscriptions, in sequence
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pulse.event_rows import read_event_to_deliver
from pulse.events import Event
from pulse.notify.connection import ListenerTiming, NotifyConnection, OnPayload
from pulse.notify.watched_keys import WatchedKeys
from pulse.postgres.statements import Statements
from pulse.process.counts import COUNTS

if TYPE_CHECKING:
    from pulse.database import Pool

#: The channel of `notify_event_insert` and of `pulse.notify.notifier`.
EVENTS_CHANNEL = "agent_events"

#: Called with new events of a thread, in sequence, from the event loop. Must return at once and must not raise.
Deliver = Callable[[Sequence[Event]], None]

_THREADS_AT_ONCE = 500
_EVENTS_AT_ONCE = 200
_STATEMENTS = Statements("pulse", "pg_notify_listener.sql")


class Subscription:
    """One watcher of one thread. Close it to receive no more events."""

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
            listener.remove(self)


class PgNotifyListener:
    """Listens for notifications, reads what is new, delivers it in memory.

    Args:
        dsn: the server's own address: a pooler in transaction mode breaks LISTEN.
        pool: for reading; never used during a delivery.
    """

    def __init__(
        self, dsn: str, pool: Pool, *, schema: str | None = None, timing: ListenerTiming | None = None
    ) -> None:
        timing = timing or ListenerTiming()
        self._pool = pool
        self._channels: dict[str, OnPayload] = {EVENTS_CHANNEL: self._receive}
        self._watched: WatchedKeys[uuid.UUID, Subscription] = WatchedKeys(
            "events", self._deliver, batch_length_max=_THREADS_AT_ONCE, poll_seconds=timing.poll_seconds
        )
        self._notified: dict[uuid.UUID, int] = {}
        self._on_connect: list[Callable[[], None]] = [self._watched.mark_all]
        self._connection = NotifyConnection(dsn, self._channels, self._connected, schema=schema, timing=timing)

    @property
    def is_running(self) -> bool:
        """Whether notifications are received now; while they are not, events arrive by the poll alone."""
        return self._connection.is_listening and self._watched.is_running

    @property
    def connects(self) -> int:
        """How often it began to listen."""
        return self._connection.connects

    @property
    def subscriptions(self) -> int:
        """The number of open subscriptions."""
        return self._watched.count

    @property
    def failures(self) -> int:
        """The number of reads and deliveries that failed."""
        return self._watched.failures

    def add_channel(self, channel: str, on_payload: OnPayload, on_connect: Callable[[], None]) -> None:
        """Listen on another channel of the same connection; call before `start`."""
        self._channels[channel] = on_payload
        self._on_connect.append(on_connect)

    async def start(self) -> None:
        """Listen and deliver in the background; the database need not be up yet."""
        self._connection.start()
        self._watched.start()

    async def stop(self) -> None:
        """Stop listening and delivering. Idempotent."""
        await self._watched.stop()
        await self._connection.stop()

    def subscribe(self, thread_id: uuid.UUID, deliver: Deliver, *, after_sequence: int) -> Subscription:
        """Deliver every event of a thread past a sequence number, beginning with those that are stored already."""
        subscription = Subscription(self, thread_id, after_sequence, deliver)
        self._watched.add(thread_id, subscription)
        self._watched.mark(thread_id)
        return subscription

    def remove(self, subscription: Subscription) -> None:
        """Drop a subscription; `Subscription.close` calls it."""
        self._watched.remove(subscription.thread_id, subscription)
        if subscription.thread_id not in self._watched:
            self._notified.pop(subscription.thread_id, None)

    def _connected(self) -> None:
        for on_connect in self._on_connect:
            on_connect()

    def _receive(self, payload: str) -> None:
        # Any client of the database may notify: a payload of another form is ignored.
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            newest = json.loads(payload)
            thread, number = uuid.UUID(newest["thread_id"]), int(newest["sequence_num"])
            if any(each.cursor < number for each in self._watched.watchers(thread)):
                self._watched.mark(thread)
                self._notified[thread] = number

    async def _deliver(self, threads: Sequence[uuid.UUID]) -> None:
        """Read what is new in these threads in one statement, and deliver it."""
        subscribed = {thread: self._watched.watchers(thread) for thread in threads if thread in self._watched}
        if not subscribed:
            return
        read_after = {thread: min(each.cursor for each in watchers) for thread, watchers in subscribed.items()}
        rows = await _STATEMENTS.fetch(
            self._pool, "new_events", list(read_after), list(read_after.values()), _EVENTS_AT_ONCE
        )
        found: dict[uuid.UUID, list[Event]] = {}
        for thread, age_seconds, *columns in rows:
            event = read_event_to_deliver(columns)
            found.setdefault(thread, []).append(event)
            if self._notified.get(thread) == event.sequence_num:
                del self._notified[thread]
                for observe in COUNTS.on_notified:
                    observe(max(0.0, age_seconds))
        for thread, events in found.items():
            if len(events) == _EVENTS_AT_ONCE:
                self._watched.mark(thread)
            for subscription in self._watched.watchers(thread):
                if subscription.cursor < read_after[thread]:
                    # It came during the read, and needs older events as well.
                    self._watched.mark(thread)
                else:
                    self._watched.call(thread, subscription, _deliver_new, subscription, events)


def _deliver_new(subscription: Subscription, events: Sequence[Event]) -> None:
    new = [event for event in events if (event.sequence_num or 0) > subscription.cursor]
    if new:
        subscription.cursor = new[-1].sequence_num or 0
        subscription.deliver(new)
