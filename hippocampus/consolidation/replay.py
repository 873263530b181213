"""Replay: the memories of a session or a user derived again from the events, under the current prompts and provider.

    derive   slice by slice; each answer is kept as soon as it arrives, so that an interrupted replay resumes
    diff     the swap, in a transaction that is rolled back: what would be added, dropped and kept; nothing changes
    swap     the same transaction, committed

No transaction is open during a model's call, and no call is made twice: each answer is stored with the hash of
everything that it depends on. Sessions that were consolidated further meanwhile are detected under their locks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast
from uuid import UUID

from hippocampus.consolidation.derive import derive
from hippocampus.consolidation.slices import (
    SLICE_TOKENS,
    SLICE_TURNS_MAX,
    Stage,
    input_hash,
    read_known_facts,
    turns_of,
)
from hippocampus.consolidation.statements import STATEMENTS
from hippocampus.facts import ledger
from hippocampus.facts.keys import Styles
from hippocampus.providers.protocols import Embedder, Generator
from hippocampus.records import ExtractedFact
from pulse.postgres.json_values import unescape

if TYPE_CHECKING:
    import asyncpg

    from pulse.database import Connection, Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayChange:
    """What happens to one memory, or to one statement of a fact."""

    change: Literal["added", "dropped", "kept"]
    kind: Literal["summary", "episodic", "semantic", "fact"]
    thread_id: UUID
    key: str | None  # of a fact
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FactChange:
    """The value of a key before and after; None: no value."""

    fact_type: str
    key: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """What a replay changes, or would change.

    Attributes:
        applied: whether the memories were swapped; otherwise nothing was changed.
        slices: how many were derived in this run, without those whose answer was kept.
        reused: how many slices had an answer, from an earlier run or from the same turns elsewhere.
        is_complete: whether every slice has its answer; if not, nothing was compared.
        facts: the keys whose value differs afterwards.
    """

    replay_id: UUID
    applied: bool
    slices: int
    reused: int
    changes: tuple[ReplayChange, ...]
    facts: tuple[FactChange, ...]
    is_complete: bool = True

    @property
    def counts(self) -> dict[str, int]:
        """How many memories and statements are added, dropped and kept."""
        found = Counter(each.change for each in self.changes)
        return {word: found[word] for word in ("added", "dropped", "kept")}


class MemoryReplay:
    """Replays the memories of a session or a user.

    Args:
        slice_tokens: as in `hippocampus.consolidation_worker.MemoryConsolidationWorker`.
    """

    def __init__(
        self, pool: Pool, generator: Generator, embedder: Embedder, *, slice_tokens: int = SLICE_TOKENS
    ) -> None:
        self._pool = pool
        self._generator = generator
        self._embedder = embedder
        self._slice_tokens = slice_tokens

    async def replay(
        self,
        app_name: str,
        user_id: str,
        session_id: str | None = None,
        *,
        apply: bool = False,
        slices_max: int | None = None,
    ) -> ReplayReport:
        """Derive a session, or all of a user's, again as far as it is consolidated, and compare or swap.

        A replay that was only compared can be applied later without asking the models again.

        Args:
            session_id: None for all of the user's sessions.
            apply: swap the memories; otherwise nothing is changed.
            slices_max: end after this many slices that the models were asked about, without a comparison if there are
                more: the next replay continues. None: all of them.

        Raises:
            SessionNotFoundError: there is no such session.
            ProviderError: the generator failed; what was derived is kept, replay again.
            EmbeddingDimensionError: the embedder's vectors are too long, or not of its model's dimensions.
            ReplayOvertakenError: a session was consolidated further, or changed, at the very end; replay again.
        """
        fingerprint = f"{self._generator.fingerprint} {self._embedder.model} {self._slice_tokens}"
        arguments = (app_name, user_id, session_id, fingerprint)
        replay_id = await STATEMENTS.fetchval(self._pool, "begin_replay", *arguments)
        done, is_complete = await self._derive_all(replay_id, fingerprint, slices_max)
        if not is_complete:
            return ReplayReport(
                replay_id=replay_id,
                applied=False,
                slices=done["asked"],
                reused=done["reused"],
                changes=(),
                facts=(),
                is_complete=False,
            )
        swap = await self._swap(replay_id, app_name, user_id, commit=apply)
        return ReplayReport(
            replay_id=replay_id,
            applied=apply,
            slices=done["asked"],
            reused=done["reused"],
            changes=swap.changes,
            facts=_changed(swap.before, swap.after),
        )

    async def _derive_all(self, replay_id: UUID, fingerprint: str, slices_max: int | None) -> tuple[Counter[str], bool]:
        """Derive slice by slice; count those that were asked, reused and empty, and say whether they are all."""
        done: Counter[str] = Counter()
        styles: dict[UUID, Styles] = {}
        limits = (self._slice_tokens, SLICE_TURNS_MAX)
        while rows := await STATEMENTS.fetch(self._pool, "next_replay_slice", replay_id, *limits):
            if slices_max is not None and done["asked"] >= slices_max:
                return done, False
            thread_id = rows[0]["thread_id"]
            if thread_id not in styles:
                styles[thread_id] = await ledger.read_styles(self._pool, thread_id=thread_id)
            done[await self._derive(replay_id, fingerprint, rows, styles[thread_id])] += 1
        return done, True

    async def _derive(self, replay_id: UUID, fingerprint: str, rows: Sequence[asyncpg.Record], styles: Styles) -> str:
        """Derive one slice and keep the answer. Return 'asked', 'reused', or 'empty' if nothing had to be asked."""
        first, turns = rows[0], turns_of(rows)
        stage = Stage(first["stage"])
        policy = sorted([*key, style] for key, style in styles.items())
        known: tuple[ExtractedFact, ...] = ()
        if stage is Stage.DEEP and turns:
            known = await read_known_facts(self._pool, self._generator, first["thread_id"], turns[0].occurred_at)
        question = input_hash(fingerprint, stage, turns, policy, *map(asdict, known))
        slice_ = (replay_id, first["thread_id"], stage, first["from_seq"], first["upto_seq"], first["digest"], question)
        if turns and await STATEMENTS.fetchval(self._pool, "reuse_answer", *slice_):
            return "reused"
        derived = await derive(
            self._generator, self._embedder, stage, turns, styles, known, slice_tokens=self._slice_tokens
        )
        bounds = (turns[0].sequence_num, turns[-1].sequence_num) if turns else (None, None)
        await STATEMENTS.execute(
            self._pool,
            "keep_answer",
            *slice_,
            # The replay stands for the job.
            derived.slice_origin(replay_id, *bounds),
            derived.memories,
            derived.message_vectors,
            derived.facts,
            derived.vectorless,
        )
        return "asked" if turns else "empty"

    async def _swap(self, replay_id: UUID, app_name: str, user_id: str, *, commit: bool) -> _Swap:
        """Swap in one transaction, which is committed or rolled back."""
        with STATEMENTS.translating():
            async with self._pool.acquire() as acquired:
                connection = cast("Connection", acquired)
                transaction = connection.transaction()
                await transaction.start()
                try:
                    before = await STATEMENTS.fetch(connection, "user_facts", app_name, user_id)
                    changes = await STATEMENTS.fetch(connection, "swap_replay", replay_id)
                    after = await STATEMENTS.fetch(connection, "user_facts", app_name, user_id)
                except BaseException:
                    await transaction.rollback()
                    raise
                await (transaction.commit() if commit else transaction.rollback())
        return _Swap(_values(before), tuple(ReplayChange(**row) for row in changes), _values(after))


class _Swap(NamedTuple):
    before: _Values
    changes: tuple[ReplayChange, ...]
    after: _Values


#: A user's facts by type and key.
_Values: TypeAlias = dict[tuple[str, str], Any]


def _values(rows: Sequence[asyncpg.Record]) -> _Values:
    return {(row["fact_type"], row["key"]): unescape(row["value"]) for row in rows}


def _changed(before: _Values, after: _Values) -> tuple[FactChange, ...]:
    return tuple(
        FactChange(fact_type=fact[0], key=fact[1], before=before.get(fact), after=after.get(fact))
        for fact in sorted(before.keys() | after.keys())
        if before.get(fact) != after.get(fact)
    )
