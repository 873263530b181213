"""A provider with scripted replies, which can be blocked in the middle of a call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from hippocampus.providers.local.embedding import DIMENSIONS
from hippocampus.providers.local.provider import LocalEmbedder
from hippocampus.providers.protocols import EmbeddingTask
from hippocampus.records import (
    ConversationSlice,
    ExtractedFact,
    ExtractedInsight,
    Origin,
    Question,
    Reflection,
    Reply,
    Summary,
    Vector,
)

ORIGIN = Origin(provider="scripted", model="scripted-1", prompt_hash="0" * 64)


@dataclass
class ScriptedGenerator:
    """Summarises as `summary`; reflects the facts and insights of `reflections`, one entry per call, then nothing.

    `during` is awaited in each call.
    """

    summary: str = "A summary."
    reflections: list[tuple[Sequence[ExtractedFact], Sequence[ExtractedInsight]]] = field(default_factory=list)
    during: Callable[[], Awaitable[None]] | None = None
    slices: list[ConversationSlice] = field(default_factory=list)
    name: str = "scripted"
    fingerprint: str = "scripted 1"

    async def summarize(self, slices: Sequence[ConversationSlice]) -> list[Summary]:
        await self._note(slices)
        return [Summary(text=self.summary, origin=ORIGIN) for _ in slices]

    async def reflect(self, slices: Sequence[ConversationSlice]) -> list[Reflection]:
        await self._note(slices)
        facts, insights = self.reflections.pop(0) if self.reflections else ((), ())
        return [Reflection(facts=tuple(facts), insights=tuple(insights), origin=ORIGIN) for _ in slices]

    async def close(self) -> None: ...

    async def _note(self, slices: Sequence[ConversationSlice]) -> None:
        self.slices.extend(slices)
        if self.during is not None:
            await self.during()


@dataclass
class ScriptedEmbedder:
    """Embeds as the local provider does; raises `failure` if set; `dimensions` truncates the vectors."""

    failure: Exception | None = None
    dimensions: int = DIMENSIONS
    during: Callable[[], Awaitable[None]] | None = None
    batches: list[list[str]] = field(default_factory=list)
    model: str = "scripted-embedding"

    async def embed(self, texts: Sequence[str], task: EmbeddingTask) -> list[Vector]:
        self.batches.append(list(texts))
        if self.during is not None:
            await self.during()
        if self.failure is not None:
            raise self.failure
        return [vector[: self.dimensions] for vector in await LocalEmbedder().embed(texts, task)]

    async def close(self) -> None: ...


@dataclass
class ScriptedAnswerer:
    """Replies what `reply` makes of a question."""

    reply: Callable[[Question], Reply | Awaitable[Reply]]
    asked: list[Question] = field(default_factory=list)

    async def answer(self, question: Question) -> Reply:
        self.asked.append(question)
        found = self.reply(question)
        return found if isinstance(found, Reply) else await found


class Gate:
    """Blocks a call until the test releases it: `await gate.reached.wait()`, then `gate.open.set()`."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    async def __call__(self) -> None:
        self.reached.set()
        await self.open.wait()
