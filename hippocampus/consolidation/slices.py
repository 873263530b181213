"""Slices: the part of a thread between a watermark and a bound, read in one statement for one job."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from hippocampus import jobs
from hippocampus.providers import transcript
from hippocampus.records import ConsolidationJob, ConversationSlice, Turn
from pulse.postgres.statements import load_queries

if TYPE_CHECKING:
    import asyncpg

    from pulse.database import Pool

#: With a summary and the chunks of a slice, this many turns fit into one embedding call of 100 texts.
SLICE_TURNS_MAX = 90

_READ_SLICE = load_queries("hippocampus")["read_slice"]


class Stage(enum.StrEnum):
    """The two passes over a thread; each has a watermark of its own."""

    FAST = "fast"  # fast_replay
    DEEP = "deep"  # deep_reflection


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """What one job consolidates in one pass: everything past `after_seq` up to `upto_seq`.

    Attributes:
        turns: what was said there, ascending, without blank messages; may be empty.
        erasures: how often something of the thread had been erased when the slice was read.
        is_last: nothing was left past the slice when it was read, in this stage or an earlier one of the job.
        is_stuck: a job before this one failed for good with what this slice begins with.
        kept: a reply to the hash of some input, from an attempt whose effects were never stored; see
            `hippocampus.consolidation.replies`.
    """

    job: ConsolidationJob
    stage: Stage
    after_seq: int
    upto_seq: int
    turns: tuple[Turn, ...]
    is_last: bool
    erasures: int
    is_stuck: bool = False
    kept: tuple[str, Mapping[str, Any]] | None = None

    @property
    def conversation(self) -> ConversationSlice:
        """The turns, as a provider takes them."""
        return ConversationSlice(turns=self.turns)

    def first_half(self) -> Slice:
        """The slice up to the middle of its turns, of which there must be at least two."""
        turns = self.turns[: len(self.turns) // 2]
        return replace(self, turns=turns, upto_seq=turns[-1].sequence_num, is_last=False)


async def read_slice(pool: Pool, job_id: UUID, stage: Stage | None, *, slice_tokens: int) -> Slice | None:
    """Read the next slice of a job; None where its thread is gone, and the job with it.

    A slice holds at most `slice_tokens` tokens and `SLICE_TURNS_MAX` turns, but at least one message, however long.

    Args:
        stage: None for the stage that the job has come to.
    """
    rows = await pool.fetch(_READ_SLICE, job_id, stage, slice_tokens, SLICE_TURNS_MAX)
    if not rows:
        return None
    first, last = rows[0], rows[-1]
    has_more = last["following"] is not None
    return Slice(
        job=jobs.from_slice_row(first),
        stage=Stage(first["stage"]),
        after_seq=first["after_seq"],
        upto_seq=last["sequence_num"] if has_more else first["last_seq"],
        turns=tuple(turn_of(row) for row in rows if (row["text"] or "").strip()),
        is_last=not has_more and not first["is_behind"],
        erasures=first["erasures"],
        is_stuck=first["is_stuck"],
        kept=(first["kept_hash"], first["kept_reply"]) if first["kept_reply"] is not None else None,
    )


def format_conversation(turns: Sequence[Turn]) -> str:
    """Return the whole slice as people read it: a line ``label: text`` per turn, nothing left out."""
    return "\n".join(f"{transcript.label(turn.author)}: {turn.text}" for turn in turns)


def turn_of(row: asyncpg.Record) -> Turn:
    """Return the turn of a row with a message's columns, its content as ``text``."""
    return Turn(
        sequence_num=row["sequence_num"],
        author=row["author"],
        role=row["role"],
        text=row["text"],
        occurred_at=row["occurred_at"],
    )
