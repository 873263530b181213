"""The records of runs: one execution of an agent each."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import asyncpg

from pulse.events import Event


class RunStatus(enum.StrEnum):
    """The status of a run."""

    RUNNING = "running"  # -> completed, failed, cancelled
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Whether the run has ended."""
        return self is not RunStatus.RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run as it was read.

    Attributes:
        id: the engine's id; `run_id` is the caller's, unique within the app.
        holder: the process that executes it; only the holder may write to it.
        lease_until: when the holder counts as lost, unless it renews the lease.
        first_sequence_num, last_sequence_num: the span of its events in the session; other events may lie in between.
        thinking_steps: the newest 200 thoughts, ``{"sequence_num", "event_id"}``.
        tool_calls: the newest 200, ``{"tool_call_id", "tool_name", "sequence_num"}``, with ``{"result_sequence_num",
            "is_error"}`` once they have a result.
        error, error_code: why it failed; the code is ``orphaned`` if its holder was lost.
    """

    id: uuid.UUID
    run_id: str
    thread_id: uuid.UUID
    app_name: str
    user_id: str
    session_id: str
    status: RunStatus
    holder: str
    lease_until: datetime
    cancel_requested_at: datetime | None
    first_sequence_num: int
    last_sequence_num: int
    thinking_steps: Sequence[Mapping[str, Any]]
    tool_calls: Sequence[Mapping[str, Any]]
    error: str | None
    error_code: str | None
    started_at: datetime
    completed_at: datetime | None

    @property
    def cancel_requested(self) -> bool:
        """Whether its cancellation was requested."""
        return self.cancel_requested_at is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWritten:
    """A run after a write to it, and the written events as they are stored.

    Attributes:
        created: False only after a start of a run that existed already and must not be executed again.
        new_events: the events that were not stored before.
    """

    run: Run
    events: tuple[Event, ...]
    created: bool = True
    new_events: tuple[Event, ...] = field(default=(), compare=False)


class RunLease(NamedTuple):
    """What a renewed lease says of its run."""

    status: RunStatus
    cancel_requested: bool


def read_run(row: asyncpg.Record, *, user_id: str, session_id: str) -> Run:
    """Return a run from a row of ``runs``."""
    return Run(
        id=row["id"],
        run_id=row["run_id"],
        thread_id=row["thread_id"],
        app_name=row["app_name"],
        user_id=user_id,
        session_id=session_id,
        status=RunStatus(row["status"]),
        holder=row["holder"],
        lease_until=row["lease_until"],
        cancel_requested_at=row["cancel_requested_at"],
        first_sequence_num=row["first_seq"],
        last_sequence_num=row["last_seq"],
        thinking_steps=row["thinking_steps"],
        tool_calls=row["tool_calls"],
        error=row["error"],
        error_code=row["error_code"],
        started_at=row["started_at"],
        completed_at=row["completed_at"],
    )
