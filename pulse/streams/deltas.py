"""The pieces of open messages, carried by PostgreSQL: one unlogged row a message, a notification with ids alone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import asyncpg
import structlog

from pulse.database import FAULTS
from pulse.errors import DatabaseUnreachableError, PulseError, from_postgres
from pulse.live_text import Kind, LiveMessage, RunKey, Watcher
from pulse.pg_notify_listener import PgNotifyListener
from pulse.postgres.statements import load_queries

if TYPE_CHECKING:
    from pulse.database import Pool

#: The channel of `push_live_text`.
DELTAS_CHANNEL = "agent_deltas"

_RUNS_AT_ONCE = 500
_RETRY_SECONDS = 0.2
_FAULTS = (PulseError, *FAULTS)
_log = structlog.get_logger(__name__)


class PgDeltaCarrier:
    """A `pulse.live_text.DeltaCarrier`. Start it before it is watched; pushing needs no start.

    Args:
        listener: hears for it, where it is watched; None for a process that only pushes.

    Attributes:
        failures: reads that failed, and watchers that did.
    """

    def __init__(self, pool: Pool, listener: PgNotifyListener | None = None) -> None:
        self._pool = pool
        self._queries = load_queries("pulse", "streams.sql")
        self._watchers: dict[RunKey, dict[Watcher, None]] = {}
        self._marked: dict[RunKey, None] = {}
        self._work = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.failures = 0
        if listener is not None:
            listener.add_channel(DELTAS_CHANNEL, self._hear, self._mark_all)

    @property
    def watchers(self) -> int:
        """How many watch."""
        return sum(map(len, self._watchers.values()))

    async def start(self) -> None:
        """Begin to tell watchers, in the background."""
        if self._task is None:
            self._task = asyncio.create_task(self._fan_out(), name="delta fan-out")

    async def stop(self) -> None:
        """Stop. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def push(self, run: RunKey, message_id: str, kind: Kind, offset: int, text: str) -> None:
        """Add a piece; see `DeltaCarrier.push`."""
        await self._execute("push_live_text", run.thread_id, run.run_id, message_id, kind, offset, text)

    async def drop(self, run: RunKey, message_ids: Sequence[str]) -> None:
        """Forget messages; see `DeltaCarrier.drop`."""
        await self._execute("drop_live_texts", run.thread_id, run.run_id, list(message_ids))

    async def read(self, watchers: Sequence[Watcher]) -> list[LiveMessage]:
        """Return what is past the watchers' offsets, for all of them in one statement."""
        runs = {watcher.run: None for watcher in watchers}
        known = [(run, name, offset) for run in runs for name, offset in _known_by_all(run, watchers).items()]
        rows = await self._execute(
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
            )
            for row in rows
        ]

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Tell a watcher of every piece; see `DeltaCarrier.watch`."""
        self._watchers.setdefault(watcher.run, {})[watcher] = None
        self.look(watcher.run)
        return partial(self._forget, watcher)

    def look(self, run: RunKey) -> None:
        """Read a run's texts again, soon: for a watcher that could not take one when it heard of it."""
        self._mark((run,))

    def _forget(self, watcher: Watcher) -> None:
        watchers = self._watchers.get(watcher.run, {})
        watchers.pop(watcher, None)
        if not watchers:
            self._watchers.pop(watcher.run, None)

    def _hear(self, payload: str) -> None:
        # Anybody who may connect may notify: what is not ours is passed over.
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            named = json.loads(payload)
            self._mark((RunKey(uuid.UUID(named["thread_id"]), named["run_id"]),))

    def _mark_all(self) -> None:
        self._mark(self._watchers)

    def _mark(self, runs: Iterable[RunKey]) -> None:
        self._marked.update((run, None) for run in runs if run in self._watchers)
        if self._marked:
            self._work.set()

    async def _fan_out(self) -> None:
        while True:
            await self._work.wait()
            batch = list(self._marked)[:_RUNS_AT_ONCE]
            for run in batch:
                del self._marked[run]
            if not self._marked:
                self._work.clear()
            try:
                await self._tell([watcher for run in batch for watcher in self._watchers.get(run, ())])
            except Exception as error:  # noqa: BLE001 - whatever it was, nobody else reads: it is counted and tried again
                self.failures += 1
                unforeseen = None if isinstance(error, _FAULTS) else error
                _log.warning("live_texts_unread", runs=len(batch), error=type(error).__name__, exc_info=unforeseen)
                self._mark(batch)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _tell(self, watchers: Sequence[Watcher]) -> None:
        if not watchers:
            return
        by_run: dict[RunKey, list[LiveMessage]] = {}
        for message in await self.read(watchers):
            by_run.setdefault(message.run, []).append(message)
        for watcher in watchers:
            try:
                known = watcher.offsets()
                found = [_past(each, known.get(each.message_id, 0)) for each in by_run.get(watcher.run, ())]
                if new := [each for each in found if each.text or not each.offset]:
                    watcher.hear(new)
            except Exception:  # noqa: BLE001 - one watcher's fault must not make the others deaf: it is cut off and logged
                self.failures += 1
                _log.exception("watcher_failed", run_id=watcher.run.run_id)
                self._forget(watcher)

    async def _execute(self, name: str, *arguments: Any) -> list[asyncpg.Record]:
        try:
            return await self._pool.fetch(self._queries[name], *arguments)
        except asyncpg.PostgresError as error:
            raise from_postgres(error) or DatabaseUnreachableError(str(error)) from error
        except (asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
            raise DatabaseUnreachableError(str(error)) from error


def _known_by_all(run: RunKey, watchers: Sequence[Watcher]) -> dict[str, int]:
    """Return the smallest of the watchers' offsets in each message; what one of them does not know, none does."""
    each = [watcher.offsets() for watcher in watchers if watcher.run == run]
    return {name: min(offsets[name] for offsets in each) for name in each[0] if all(name in other for other in each)}


def _past(message: LiveMessage, offset: int) -> LiveMessage:
    if offset <= message.offset:
        return message
    return replace(message, offset=offset, text=message.text[offset - message.offset :])
