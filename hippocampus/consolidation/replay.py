"""Replay: a session's or a user's memories drawn anew from the events, under the current prompts and provider.

    draw    slice by slice; each answer is kept as soon as it is there, so that whoever is killed goes on where it was
    diff    the swap in a transaction that is rolled back: what would be added, dropped, kept; nothing is changed
    swap    the same transaction, committed

No transaction is open while a model is asked, and no question is asked twice: an answer is found again by the hash of
everything that it depends on. Sessions that were consolidated further meanwhile are noticed under their locks.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

import asyncpg

from hippocampus.consolidation import effects
from hippocampus.consolidation.effects import Effects
from hippocampus.consolidation.slices import SLICE_TURNS_MAX, Stage
from hippocampus.errors import from_postgres
from hippocampus.facts import ledger
from hippocampus.facts.keys import Styles
from hippocampus.providers.protocols import Embedder, Generator
from hippocampus.records import ConversationSlice, Turn
from pulse.postgres.json_values import unescape
from pulse.postgres.statements import load_queries

if TYPE_CHECKING:
    from pulse.database import Pool

_QUERIES = load_queries("hippocampus")


@dataclass(frozen=True, slots=True)
class DrawnAnew:
    """A slice of turns, as `hippocampus.consolidation.effects` takes it."""

    turns: tuple[Turn, ...]

    @property
    def conversation(self) -> ConversationSlice:
        """The turns, as a provider takes them."""
        return ConversationSlice(turns=self.turns)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayChange:
    """What becomes of one memory, or of one statement of a fact."""

    change: Literal["added", "dropped", "kept"]
    kind: Literal["summary", "episodic", "semantic", "fact"]
    thread_id: UUID
    key: str | None  # of a fact
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FactChange:
    """What holds of a key before and after; None: nothing."""

    fact_type: str
    key: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """What a replay changes, or would change.

    Attributes:
        applied: it was changed; otherwise nothing was.
        slices: drawn in this run; those of an earlier run, or of the same turns elsewhere, are not counted.
        reused: slices whose answer was there already.
        facts: of which something else holds afterwards.
    """

    replay_id: UUID
    applied: bool
    slices: int
    reused: int
    changes: tuple[ReplayChange, ...]
    facts: tuple[FactChange, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many are added, dropped and kept."""
        found = Counter(each.change for each in self.changes)
        return {word: found[word] for word in ("added", "dropped", "kept")}


class MemoryReplay:
    """Draws memories anew.

    Args:
        slice_tokens: as in `hippocampus.consolidation_worker.MemoryConsolidationWorker`.
    """

    def __init__(self, pool: Pool, generator: Generator, embedder: Embedder, *, slice_tokens: int = 6000) -> None:
        self._pool = pool
        self._generator = generator
        self._embedder = embedder
        self._slice_tokens = slice_tokens

    async def replay(
        self, app_name: str, user_id: str, session_id: str | None = None, *, apply: bool = False
    ) -> ReplayReport:
        """Draw a session (None: all of a user's) anew, as far as it is consolidated; compare, or swap.

        A replay that was looked at only can be applied later without asking the models again.

        Raises:
            SessionNotFoundError: no such session.
            ProviderError: a model could not answer; what was drawn is kept, replay again.
            EmbeddingDimensionError: the embedder does not fit the schema.
            ReplayOvertakenError: a session was consolidated further, or changed, at the very end; replay again.
        """
        fingerprint = f"{self._generator.fingerprint} {self._embedder.model} {self._slice_tokens}"
        try:
            replay_id = await self._pool.fetchval(_QUERIES["begin_replay"], app_name, user_id, session_id, fingerprint)
            drawn = await self._draw_all(replay_id, fingerprint)
            before, rows, after = await self._swap(replay_id, app_name, user_id, commit=apply)
        except asyncpg.PostgresError as error:
            raise from_postgres(error) or error from error
        return ReplayReport(
            replay_id=replay_id,
            applied=apply,
            slices=drawn["asked"],
            reused=drawn["reused"],
            changes=tuple(ReplayChange(**row) for row in rows),
            facts=_changed(before, after),
        )

    async def _draw_all(self, replay_id: UUID, fingerprint: str) -> Counter[str]:
        done: Counter[str] = Counter()
        styles: dict[UUID, Styles] = {}
        while rows := await self._pool.fetch(
            _QUERIES["next_replay_slice"], replay_id, self._slice_tokens, SLICE_TURNS_MAX
        ):
            thread_id = rows[0]["thread_id"]
            if thread_id not in styles:
                styles[thread_id] = await ledger.read_styles(self._pool, thread_id)
            done[await self._draw(replay_id, fingerprint, rows, styles[thread_id])] += 1
        return done

    async def _draw(self, replay_id: UUID, fingerprint: str, rows: Sequence[asyncpg.Record], styles: Styles) -> str:
        """Draw one slice and keep the answer; say whether a model was 'asked', an answer 'reused', or neither."""
        first = rows[0]
        stage = Stage(first["stage"])
        turns = tuple(_turn(row) for row in rows if (row["text"] or "").strip())
        place = (replay_id, first["thread_id"], stage, first["from_seq"], first["upto_seq"], first["said"])
        question = _question(fingerprint, stage, turns, styles)
        if turns and await self._pool.fetchval(_QUERIES["reuse_draw"], *place, question):
            return "reused"
        drawn = await self._ask(stage, turns, styles)
        await self._pool.execute(
            _QUERIES["keep_draw"],
            *place,
            question,
            _origin(replay_id, turns, drawn),
            drawn.memories,
            drawn.message_vectors,
            drawn.facts,
            drawn.vectorless,
        )
        return "asked" if turns else "empty"

    async def _ask(self, stage: Stage, turns: tuple[Turn, ...], styles: Styles) -> Effects:
        """Ask the models. No connection is held meanwhile."""
        if not turns:
            return Effects()
        if stage is Stage.FAST:
            return await effects.replay(self._generator, self._embedder, DrawnAnew(turns))
        return await effects.reflect(self._generator, self._embedder, DrawnAnew(turns), styles=styles)

    async def _swap(
        self, replay_id: UUID, app_name: str, user_id: str, *, commit: bool
    ) -> tuple[list[asyncpg.Record], list[asyncpg.Record], list[asyncpg.Record]]:
        """Swap in one transaction, and return what held before, what changed, and what holds after."""
        async with self._pool.acquire() as connection:
            transaction = connection.transaction()
            await transaction.start()
            try:
                before = await connection.fetch(_QUERIES["user_facts"], app_name, user_id)
                changes = await connection.fetch(_QUERIES["swap_replay"], replay_id)
                after = await connection.fetch(_QUERIES["user_facts"], app_name, user_id)
            except BaseException:
                await transaction.rollback()
                raise
            await (transaction.commit() if commit else transaction.rollback())
        return before, changes, after


def _question(fingerprint: str, stage: Stage, turns: Sequence[Turn], styles: Styles) -> str:
    """The hash of everything that an answer depends on."""
    said = [(t.sequence_num, t.author, t.role, t.text, t.occurred_at.isoformat()) for t in turns]
    policy = sorted([*key, style] for key, style in styles.items())
    return hashlib.sha256(json.dumps([fingerprint, stage, said, policy]).encode("utf-8", "surrogatepass")).hexdigest()


def _origin(replay_id: UUID, turns: Sequence[Turn], drawn: Effects) -> tuple[Any, ...]:
    """Provenance, as the SQL type slice_origin takes it; the replay stands for the job."""
    if drawn.origin is None:
        return (replay_id, None, None, None, None, None)
    first, last = turns[0].sequence_num, turns[-1].sequence_num
    return (replay_id, first, last, drawn.origin.prompt_hash, drawn.origin.model, drawn.embedding_model)


def _changed(before: Sequence[asyncpg.Record], after: Sequence[asyncpg.Record]) -> tuple[FactChange, ...]:
    old = {(row["fact_type"], row["key"]): unescape(row["value"]) for row in before}
    new = {(row["fact_type"], row["key"]): unescape(row["value"]) for row in after}
    return tuple(
        FactChange(fact_type=place[0], key=place[1], before=old.get(place), after=new.get(place))
        for place in sorted(old.keys() | new.keys())
        if old.get(place) != new.get(place)
    )


def _turn(row: asyncpg.Record) -> Turn:
    return Turn(
        sequence_num=row["sequence_num"],
        author=row["author"],
        role=row["role"],
        text=row["text"],
        occurred_at=row["occurred_at"],
    )
