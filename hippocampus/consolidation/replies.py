"""Replies and vectors that are paid for once: kept from the call to the commit, so that a retry does not call again."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

from hippocampus.consolidation.effects import check_vectors
from hippocampus.consolidation.parts import cut
from hippocampus.consolidation.slices import SLICE_TURNS_MAX, Slice, input_hash
from hippocampus.consolidation.statements import STATEMENTS
from hippocampus.providers.protocols import Embedder, EmbeddingTask, Generator, is_paid, reads_known_facts
from hippocampus.records import (
    DIMENSIONS_MAX,
    ConversationSlice,
    ExtractedFact,
    ExtractedInsight,
    ExtractedProposal,
    Origin,
    Reflection,
    Summary,
    Turn,
    Usage,
    Vector,
)
from pulse.postgres.json_values import escape_state, unescape

if TYPE_CHECKING:
    from pulse.database import Pool

Reply = TypeVar("Reply", Summary, Reflection)

#: Numbers of vectors that are kept at once: those of a slice's turns, its text and its summary, whatever the model.
#: With more, as a very long list of facts may have, they are asked for again.
VECTOR_NUMBERS_MAX = (SLICE_TURNS_MAX + 2) * DIMENSIONS_MAX


def resumed(slice_: Slice, generator: Generator, slice_tokens: int) -> Slice:
    """Return a slice as an earlier attempt read it, if replies about it or vectors of it are kept.

    Turns that arrived since are left to the job that follows: with them it would be another question.
    """
    if slice_.kept is None:
        return slice_
    asked_upto_seq = slice_.kept.reply.get("upto_seq", slice_.upto_seq)
    beginning = slice_.beginning([turn for turn in slice_.turns if turn.sequence_num <= asked_upto_seq] or slice_.turns)
    kept = _asked_of(slice_)
    is_kept = any(_digest(generator, part) in kept for part in cut(beginning.turns, slice_tokens))
    return beginning if is_kept else slice_


class PaidReplies:
    """The generator of one slice: a `hippocampus.providers.protocols.Generator` that asks the model once.

    A slice that is read in parts takes several calls. Each reply is kept as it arrives, with the earlier ones: the row
    of a stage holds the newest, those before it under ``earlier``, by the hash of their input, and under ``upto_seq``
    the last turn of the slice.

    What is known of the user is not a part of the input's hash: it changes with every job of the user, and an attempt
    that was not interrupted would have stored the same reply.

    A reply that cost no tokens, such as the local provider's, is not kept: making it again is as quick.

    Attributes:
        calls: replies that were used, whether new or kept from an earlier attempt.
        reused: how many of them were kept.
        usage: their tokens together.
    """

    def __init__(self, pool: Pool, generator: Generator, slice_: Slice) -> None:
        self._pool = pool
        self._generator = generator
        self._slice = slice_
        self._kept = {digest: body for digest, body in _asked_of(slice_).items() if "origin" in body}
        self._earlier: dict[str, Mapping[str, Any]] = {}  # of this slice, as it is asked now
        self.calls = 0
        self.reused = 0
        self.usage = Usage()

    @property
    def name(self) -> str:
        """The provider's name."""
        return self._generator.name

    @property
    def fingerprint(self) -> str:
        """What the answers depend on; see `Generator`."""
        return self._generator.fingerprint

    @property
    def compares_insights(self) -> bool:
        """Whether the generator compares what it finds with `ConversationSlice.known_insights`; by default not."""
        return getattr(self._generator, "compares_insights", False) is True

    @property
    def reads_known_facts(self) -> bool:
        """Whether the generator reads what is known already."""
        return reads_known_facts(self._generator)

    async def summarize(self, slices: Sequence[ConversationSlice]) -> list[Summary]:
        """Summarise each slice; see `Generator`."""
        return [await self._paid(slice_, self._generator.summarize, _summary) for slice_ in slices]

    async def reflect(self, slices: Sequence[ConversationSlice]) -> list[Reflection]:
        """Extract facts, insights and proposals from each slice; see `Generator`."""
        return [await self._paid(slice_, self._generator.reflect, _reflection) for slice_ in slices]

    async def close(self) -> None:
        """Do nothing: the generator belongs to the caller."""

    async def _paid(
        self,
        slice_: ConversationSlice,
        ask: Callable[[Sequence[ConversationSlice]], Awaitable[list[Reply]]],
        read: Callable[[Mapping[str, Any]], Reply],
    ) -> Reply:
        own = self._slice
        digest = _digest(self._generator, slice_.turns)
        if digest in self._kept:
            reply = read(self._kept[digest])
            self._earlier[digest] = self._kept[digest]
            self.reused += 1
        else:
            (reply,) = await ask([slice_])
            if reply.usage.prompt_tokens or reply.usage.output_tokens:
                body = asdict(reply)
                row = {**body, "upto_seq": own.turns[-1].sequence_num}
                if self._earlier:
                    row["earlier"] = self._earlier
                key = (own.job.thread_id, own.stage, own.erasures, digest)
                await STATEMENTS.execute(self._pool, "save_reply", *key, escape_state(row, where="the model's reply"))
                self._earlier[digest] = body
        self.calls += 1
        self.usage = Usage(
            prompt_tokens=self.usage.prompt_tokens + reply.usage.prompt_tokens,
            output_tokens=self.usage.output_tokens + reply.usage.output_tokens,
        )
        return reply


class PaidVectors:
    """The embedder of one slice: a `hippocampus.providers.protocols.Embedder` that asks for its texts once.

    The vectors are kept in the row of the reply whose texts they are of. Those of a model that costs nothing are not
    kept, see `hippocampus.providers.protocols.is_paid`.
    """

    def __init__(self, pool: Pool, embedder: Embedder, generator: Generator, slice_: Slice) -> None:
        self._pool = pool
        self._embedder = embedder
        self._generator = generator
        self._slice = slice_

    @property
    def model(self) -> str:
        """The model's name."""
        return self._embedder.model

    async def embed(self, texts: Sequence[str], task: EmbeddingTask) -> list[Vector]:
        """Embed each text; see `Embedder`, and `check_vectors` for what is refused, and not kept."""
        if not is_paid(self._embedder):
            return await self._embedder.embed(texts, task)
        own = self._slice
        digest = input_hash(self.model, task, list(texts))
        if own.kept is not None and own.kept.vectors is not None and own.kept.vectors_hash == digest:
            return _unpacked(own.kept.vectors, len(texts))
        vectors = await self._embedder.embed(texts, task)
        check_vectors(vectors, texts, self.model)
        if sum(map(len, vectors)) <= VECTOR_NUMBERS_MAX:
            key = (own.job.thread_id, own.stage, own.erasures, _digest(self._generator, own.turns))
            asked = {"upto_seq": own.turns[-1].sequence_num}
            await STATEMENTS.execute(self._pool, "save_vectors", *key, asked, digest, _packed(vectors))
        return vectors

    async def close(self) -> None:
        """Do nothing: the embedder belongs to the caller."""


def _packed(vectors: Sequence[Vector]) -> bytes:
    return b"".join(_little_endian(array("f", vector)).tobytes() for vector in vectors)


def _unpacked(packed: bytes, count: int) -> list[Vector]:
    """Return the vectors as a column of them stores them: in single precision."""
    numbers = array("f", packed)
    size = len(numbers) // count
    flat = _little_endian(numbers).tolist()
    return [flat[start : start + size] for start in range(0, len(flat), size)]


def _little_endian(numbers: array[float]) -> array[float]:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _digest(generator: Generator, turns: tuple[Turn, ...]) -> str:
    return input_hash(generator.fingerprint, turns)


def _asked_of(slice_: Slice) -> dict[str, Mapping[str, Any]]:
    """Return what an earlier attempt asked, by its hash, with the reply unless that cost nothing."""
    if slice_.kept is None:
        return {}
    newest = unescape(slice_.kept.reply)
    return {**newest.pop("earlier", {}), slice_.kept.input_hash: newest}


def _summary(body: Mapping[str, Any]) -> Summary:
    return Summary(text=body["text"], origin=Origin(**body["origin"]), usage=Usage(**body["usage"]))


def _reflection(body: Mapping[str, Any]) -> Reflection:
    def sourced(item: Mapping[str, Any]) -> dict[str, Any]:
        return {**item, "source_seqs": tuple(item["source_seqs"])}

    return Reflection(
        facts=tuple(ExtractedFact(**sourced(fact)) for fact in body["facts"]),
        insights=tuple(ExtractedInsight(**sourced(insight)) for insight in body["insights"]),
        proposals=tuple(ExtractedProposal(**sourced(proposal)) for proposal in body["proposals"]),
        origin=Origin(**body["origin"]),
        usage=Usage(**body["usage"]),
    )
