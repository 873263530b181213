"""Slices: the turns of a thread between a watermark and a limit, read in one statement for one job."""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from hippocampus import jobs
from hippocampus.consolidation.effects import KnownFacts
from hippocampus.consolidation.statements import STATEMENTS
from hippocampus.providers import transcript
from hippocampus.providers.protocols import Generator, reads_known_facts
from hippocampus.records import ConsolidationJob, ExtractedFact, KnownInsight, Turn
from hippocampus.text.languages import language_of
from hippocampus.text.words import terms
from pulse.postgres.json_values import unescape
from pulse.redaction import RedactionMode, redact
from pulse.session_key import SessionKey

if TYPE_CHECKING:
    import asyncpg

    from pulse.database import Pool
    from pulse.postgres.statements import Session

#: Insights that a reply is asked to compare with: the nearest in words among the newest of the user.
KNOWN_INSIGHTS_MAX = 8
_KNOWN_CANDIDATES = 200
#: Estimated tokens that a slice holds by default, and that one generate call reads.
SLICE_TOKENS = 6000
#: With a summary and the chunks of a slice, this many turns fit into one embedding call of 100 texts.
SLICE_TURNS_MAX = 90
#: Facts that a generator is given besides a slice, those that were stated last.
KNOWN_FACTS_MAX = 300


class Stage(enum.StrEnum):
    """The two passes over a thread. Each has its own watermark."""

    FAST = "fast"  # fast_replay
    DEEP = "deep"  # deep_reflection


class KeptReply(NamedTuple):
    """What an earlier attempt was replied and never stored; see `hippocampus.consolidation.replies`."""

    input_hash: str
    reply: Mapping[str, Any]
    vectors_hash: str | None
    vectors: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """What one job consolidates in one stage: everything past `after_seq` up to `upto_seq`.

    Attributes:
        turns: the messages that are not blank, ascending; may be empty.
        erasures: how many erasures the thread had seen when the slice was read.
        is_last: when the slice was read, nothing was left past it, in this stage or an earlier one of the job.
        is_stuck: an earlier job failed for good on the turns that the slice begins with.
        kept: a reply of an earlier attempt.
    """

    job: ConsolidationJob
    key: SessionKey
    stage: Stage
    after_seq: int
    upto_seq: int
    turns: tuple[Turn, ...]
    is_last: bool
    erasures: int
    is_stuck: bool = False
    kept: KeptReply | None = None

    def beginning(self, turns: Sequence[Turn]) -> Slice:
        """Return the slice up to the last of `turns`, which are its first ones or all of them."""
        if len(turns) == len(self.turns):
            return self
        return replace(self, turns=tuple(turns), upto_seq=turns[-1].sequence_num, is_last=False)


async def read_slice(pool: Pool, job_id: UUID, stage: Stage | None, *, slice_tokens: int) -> Slice | None:
    """Read the next slice of a job. None if its thread was deleted, and the job with it.

    A slice holds at most `slice_tokens` tokens and `SLICE_TURNS_MAX` turns, but at least one message of any length.

    Args:
        stage: None for the stage that the job has reached.
    """
    rows = await STATEMENTS.fetch(pool, "read_slice", job_id, stage, slice_tokens, SLICE_TURNS_MAX)
    if not rows:
        return None
    first, last = rows[0], rows[-1]
    has_more = last["following"] is not None
    return Slice(
        job=jobs.from_slice_row(first),
        key=SessionKey(first["app_name"], first["user_id"], first["session_id"]),
        stage=Stage(first["stage"]),
        after_seq=first["after_seq"],
        upto_seq=last["sequence_num"] if has_more else first["last_seq"],
        turns=turns_of(rows),
        is_last=not has_more and not first["is_behind"],
        erasures=first["erasures"],
        is_stuck=first["is_stuck"],
        kept=None
        if first["kept_reply"] is None
        else KeptReply(first["kept_hash"], first["kept_reply"], first["kept_vectors_hash"], first["kept_vectors"]),
    )


async def read_known_facts(
    session: Session, generator: Generator, thread_id: UUID, as_of: datetime | None = None
) -> KnownFacts:
    """Read what is known of a thread's user, or was at a time, the oldest first, for a generator that reads it."""
    if not reads_known_facts(generator):
        return ()
    name, at = ("known_facts", ()) if as_of is None else ("known_facts_as_of", (as_of,))
    rows = await STATEMENTS.fetch(session, name, thread_id, KNOWN_FACTS_MAX, *at)
    return tuple(
        ExtractedFact(
            fact_type=row["fact_type"],
            key=row["key"],
            value=unescape(row["value"]),
            confidence=row["confidence"],
            source_seqs=(),
        )
        for row in reversed(rows)
    )


async def read_known_insights(pool: Pool, thread_id: UUID, turns: Sequence[Turn]) -> tuple[KnownInsight, ...]:
    """Read the insights of a thread's user that have words in common with a slice, the nearest first."""
    rows = await STATEMENTS.fetch(pool, "known_insights", thread_id, _KNOWN_CANDIDATES)
    said = {term for turn in turns for term in terms(turn.text)}
    own = [set(terms(row["content"])) for row in rows]
    shared = [(len(said & each) / max(len(each), 1), row) for each, row in zip(own, rows, strict=True)]
    nearest = sorted((each for each in shared if each[0] > 0), key=lambda each: -each[0])
    return tuple(KnownInsight(id=str(row["id"]), content=row["content"]) for _, row in nearest[:KNOWN_INSIGHTS_MAX])


def turns_of(rows: Iterable[asyncpg.Record]) -> tuple[Turn, ...]:
    """Return the turns of rows that have a message's columns, its content as ``text``. Blank ones are left out.

    Turns that were stored before their app masked or refused secrets are masked here, before a model reads them.
    """
    rows = list(rows)
    mode: RedactionMode = "mask" if rows and rows[0]["redaction"] != "off" else "off"
    return tuple(
        Turn(
            sequence_num=row["sequence_num"],
            author=row["author"],
            role=row["role"],
            text=redact(row["text"], mode),
            occurred_at=row["occurred_at"],
        )
        for row in rows
        if (row["text"] or "").strip()
    )


def format_conversation(turns: Iterable[Turn]) -> str:
    """Return the turns as people read them: one line ``label: text`` each, in their language, nothing left out."""
    spoken = tuple(turns)
    language = language_of(turn.text for turn in spoken) or "en"
    return "\n".join(f"{transcript.label(turn.author, language)}: {turn.text}" for turn in spoken)


def input_hash(*question: object) -> str:
    """Return the SHA-256, in hex, of everything that an answer depends on: fingerprint, turns and other JSON values."""
    return hashlib.sha256(json.dumps(question, default=_turn_fields).encode()).hexdigest()


def _turn_fields(turn: Turn) -> tuple[object, ...]:
    return (turn.sequence_num, turn.author, turn.role, turn.text, turn.occurred_at.isoformat())
