"""What followers of runs read: the events of a run, the conversation before it, the state of its thread."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

from pulse.agui import types as agui
from pulse.agui.cursor import StateMark
from pulse.agui.frames import Frame
from pulse.agui.messages import MESSAGE_TYPES, messages_of
from pulse.event_bridge import KnownState
from pulse.event_rows import read_event_to_deliver
from pulse.events import Event
from pulse.postgres.statements import Statements
from pulse.scopes import merge_state

if TYPE_CHECKING:
    from pulse.database import Pool

#: The newest events of a conversation that a new client gets as messages, and their bytes: clients refuse a frame of
#: ten million characters.
HISTORY_MESSAGES_MAX = 1000
HISTORY_BYTES_MAX = 4 << 20
#: The metadata of a snapshot that leaves out older messages: `beforeSequence` is where they end.
HISTORY_KEY = "hippocampus:history"
# A follower that catches up holds one page, and its frames.
_PAGE_EVENTS = 200
_PAGE_BYTES = 1 << 20
_STATEMENTS = Statements("pulse.streams", "streams.sql")


class RunReader:
    """Reads runs for their followers."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        # Thousands of clients that come back at once leave connections to all others.
        self._slots = asyncio.Semaphore(max(pool.get_max_size() // 2, 1))

    async def events(self, thread_id: uuid.UUID, after_sequence: int) -> list[Event]:
        """Read a page of a thread's events, in sequence; a page of large events has fewer."""
        async with self._slots:
            rows = await _STATEMENTS.fetch(
                self._pool, "run_events", thread_id, after_sequence, _PAGE_EVENTS, _PAGE_BYTES
            )
        return [read_event_to_deliver(list(row)) for row in rows]

    async def state(self, thread_id: uuid.UUID) -> KnownState | None:
        """Read a thread's state after its newest event; None if the thread was deleted."""
        row = await _STATEMENTS.fetchrow(self._pool, "thread_state", thread_id)
        if row is None:
            return None
        state = merge_state(row["state"], row["user_state"], row["app_state"])
        mark = StateMark(row["last_seq"], row["user_version"], row["app_version"])
        return KnownState(state, mark, row["state_seq"])

    async def fill(self, frame: Frame, *, thread_id: uuid.UUID, run_id: str, first_sequence: int) -> None:
        """Put the conversation into a snapshot of messages that has none yet, without concurrent runs' messages.

        The metadata of a snapshot that leaves out older messages state where those end.
        """
        if frame.history_until is None or not isinstance(frame.event, agui.MessagesSnapshotEvent):
            return
        async with self._slots:
            rows = await _STATEMENTS.fetch(
                self._pool,
                "conversation",
                thread_id,
                frame.history_until,
                sorted(MESSAGE_TYPES),
                run_id,
                first_sequence,
                HISTORY_MESSAGES_MAX,
                HISTORY_BYTES_MAX,
            )
        events = [read_event_to_deliver(columns) for *columns, _ in reversed(rows)]
        is_cut = bool(rows) and rows[-1]["is_cut"]
        frame.event.messages = messages_of(events, is_cut=is_cut)
        if is_cut:
            frame.event.metadata = {HISTORY_KEY: {"isWhole": False, "beforeSequence": events[0].sequence_num}}
        frame.history_until = None
