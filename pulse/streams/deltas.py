"""The pieces of open messages, carried by PostgreSQL: one unlogged row a message, a notification with ids alone."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import asyncpg

from pulse.database import FAULTS
from pulse.errors import DatabaseUnreachableError, InvalidInputError
from pulse.live_text import Kind, LiveMessage, RunKey, Watcher
from pulse.notify.watched_keys import WatchedKeys, WatchService
from pulse.pg_notify_listener import PgNotifyListener
from pulse.postgres.json_values import escape_state
from pulse.postgres.statements import Statements

if TYPE_CHECKING:
    from pulse.database import Pool

#: The channel of `push_live_text`.
DELTAS_CHANNEL = "agent_deltas"

#: The channel of events that are not stored.
TRANSIENTS_CHANNEL = "agent_transients"

# The size of a notification; PostgreSQL's limit is 7,999 bytes.
_TRANSIENT_BYTES_MAX = 7900
_RUNS_AT_ONCE = 500
_STATEMENTS = Statements("pulse.streams", "streams.sql")


class PgDeltaCarrier(WatchService[RunKey, Watcher]):
    """A `pulse.DeltaCarrier`. Start it before it is watched; pushing needs no start.

    Args:
        listener: receives the notifications; None for a process that only pushes.
    """

    def __init__(self, pool: Pool, listener: PgNotifyListener | None = None) -> None:
        self._pool = pool
        self._watched = WatchedKeys("live_texts", self._deliver, batch_length_max=_RUNS_AT_ONCE)
        if listener is not None:
            listener.add_channel(DELTAS_CHANNEL, self._receive, self._watched.mark_all)
            listener.add_channel(TRANSIENTS_CHANNEL, self._receive_transient, lambda: None)

    async def push(
        self,
        run: RunKey,
        message_id: str,
        *,
        kind: Kind,
        offset: int,
        text: str,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a piece; see `DeltaCarrier.push`."""
        fields = dict(meta or {})
        await self._fetch("push_live_text", run.thread_id, run.run_id, message_id, kind, offset, text, fields)

    async def send(self, run: RunKey, content: Mapping[str, Any]) -> None:
        """Deliver an event to the present watchers; see `DeltaCarrier.send`."""
        sent = {"thread_id": str(run.thread_id), "run_id": run.run_id, "event": escape_state(content)}
        payload = json.dumps(sent, ensure_ascii=False, separators=(",", ":"))
        if (length := len(payload.encode("utf-8", "surrogatepass"))) > _TRANSIENT_BYTES_MAX:
            raise InvalidInputError(
                f"a transient event must take at most {_TRANSIENT_BYTES_MAX} bytes with its ids, not {length}: store it"
            )
        await self._fetch("send_transient", TRANSIENTS_CHANNEL, payload)

    async def drop(self, run: RunKey, message_ids: Sequence[str]) -> None:
        """Delete messages; see `DeltaCarrier.drop`."""
        await self._fetch("drop_live_texts", run.thread_id, run.run_id, list(message_ids))

    async def read(self, watchers: Sequence[Watcher]) -> list[LiveMessage]:
        """Return what is past the watchers' offsets, for all of them in one statement."""
        runs = {watcher.run: None for watcher in watchers}
        known = [(run, name, offset) for run in runs for name, offset in _known_by_all(run, watchers).items()]
        rows = await self._fetch(
            "live_texts",
            [run.thread_id for run in runs],
            [run.run_id for run in runs],
            [run.thread_id for run, _, _ in known],
            [run.run_id for run, _, _ in known],
            [message_id for _, message_id, _ in known],
            [offset for _, _, offset in known],
        )
        return [
            LiveMessage(
                run=RunKey(row["thread_id"], row["run_id"]),
                message_id=row["message_id"],
                kind=row["kind"],
                after_sequence=row["after_seq"],
                offset=row["known"],
                text=row["text"],
                meta=row["meta"],
            )
            for row in rows
        ]

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Deliver every piece to a watcher; see `DeltaCarrier.watch`."""
        self._watched.add(watcher.run, watcher)
        self._watched.mark(watcher.run)
        return partial(self._watched.remove, watcher.run, watcher)

    def _receive(self, payload: str) -> None:
        # Any client of the database may notify: a payload of another form is ignored.
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            changed = json.loads(payload)
            self._watched.mark(RunKey(uuid.UUID(changed["thread_id"]), changed["run_id"]))

    def _receive_transient(self, payload: str) -> None:
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            sent = json.loads(payload)
            run = RunKey(uuid.UUID(sent["thread_id"]), sent["run_id"])
            if isinstance(sent["event"], dict):
                for watcher in self._watched.watchers(run):
                    self._watched.call(run, watcher, watcher.receive_transient, sent["event"])

    async def _deliver(self, runs: Sequence[RunKey]) -> None:
        watchers = [watcher for run in runs for watcher in self._watched.watchers(run)]
        if not watchers:
            return
        by_run: dict[RunKey, list[LiveMessage]] = {}
        for message in await self.read(watchers):
            by_run.setdefault(message.run, []).append(message)
        for watcher in watchers:
            self._watched.call(watcher.run, watcher, _deliver_new, watcher, by_run.get(watcher.run, ()))

    async def _fetch(self, name: str, *arguments: Any) -> list[asyncpg.Record]:
        try:
            return await _STATEMENTS.fetch(self._pool, name, *arguments)
        except FAULTS as error:
            # Writers of live text know nothing of the driver's errors.
            raise DatabaseUnreachableError(str(error) or type(error).__name__) from error


def _known_by_all(run: RunKey, watchers: Sequence[Watcher]) -> dict[str, int]:
    """Return the smallest of the watchers' offsets in each message that all of them know."""
    each = [watcher.offsets() for watcher in watchers if watcher.run == run]
    return {name: min(offsets[name] for offsets in each) for name in each[0] if all(name in other for other in each)}


def _deliver_new(watcher: Watcher, messages: Sequence[LiveMessage]) -> None:
    known = watcher.offsets()
    found = [_past(each, known.get(each.message_id, 0)) for each in messages]
    if new := [each for each in found if each.text or not each.offset]:
        watcher.receive(new)


def _past(message: LiveMessage, offset: int) -> LiveMessage:
    if offset <= message.offset:
        return message
    return replace(message, offset=offset, text=message.text[offset - message.offset :])
