"""Replies of a model that are paid for once: kept from the call to the commit, so that a retry does not call again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

from hippocampus.consolidation.slices import Slice
from hippocampus.providers.protocols import Generator
from hippocampus.records import (
    ConversationSlice,
    ExtractedFact,
    ExtractedInsight,
    ExtractedProposal,
    Origin,
    Reflection,
    Summary,
    Usage,
)
from pulse.postgres.json_values import escape_state, unescape
from pulse.postgres.statements import load_queries

if TYPE_CHECKING:
    from pulse.database import Pool

_QUERIES = load_queries("hippocampus")

Reply = TypeVar("Reply", Summary, Reflection)


class PaidReplies:
    """The generator of one slice: `hippocampus.providers.protocols.Generator`, which asks the model once.

    A reply that cost no tokens (the local provider's) is not kept: it is as quick to make again.

    Attributes:
        calls: replies that were drawn on, asked for now or kept from an earlier attempt.
        reused: how many of them were kept.
        usage: their tokens together.
    """

    def __init__(self, pool: Pool, generator: Generator, part: Slice) -> None:
        self._pool = pool
        self._generator = generator
        self._part = part
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

    async def summarize(self, slices: Sequence[ConversationSlice]) -> list[Summary]:
        """Summarise each slice; see `Generator`."""
        return [await self._paid(part, self._generator.summarize, _summary) for part in slices]

    async def reflect(self, slices: Sequence[ConversationSlice]) -> list[Reflection]:
        """Draw facts and insights from each slice; see `Generator`."""
        return [await self._paid(part, self._generator.reflect, _reflection) for part in slices]

    async def close(self) -> None:
        """The generator belongs to somebody else."""

    async def _paid(
        self,
        conversation: ConversationSlice,
        ask: Callable[[Sequence[ConversationSlice]], Awaitable[list[Reply]]],
        read: Callable[[Mapping[str, Any]], Reply],
    ) -> Reply:
        thread, stage = self._part.job.thread_id, self._part.stage
        digest = input_hash(self._generator.fingerprint, conversation)
        if self._part.kept is not None and self._part.kept[0] == digest:
            reply = read(unescape(self._part.kept[1]))
            self.reused += 1
        else:
            (reply,) = await ask([conversation])
            if reply.usage.prompt_tokens or reply.usage.output_tokens:
                body = escape_state(asdict(reply), where="the model's reply")
                await self._pool.execute(_QUERIES["save_reply"], thread, stage, self._part.erasures, digest, body)
        self.calls += 1
        self.usage = Usage(
            prompt_tokens=self.usage.prompt_tokens + reply.usage.prompt_tokens,
            output_tokens=self.usage.output_tokens + reply.usage.output_tokens,
        )
        return reply


def input_hash(fingerprint: str, conversation: ConversationSlice) -> str:
    """SHA-256, hex, of what a provider is asked, and by which prompts and model."""
    turns = [
        [turn.sequence_num, turn.author, turn.role, turn.text, turn.occurred_at.isoformat()]
        for turn in conversation.turns
    ]
    return hashlib.sha256(json.dumps([fingerprint, turns]).encode()).hexdigest()


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
