"""The model calls and prompt characters for 1,000 events, appended one by one and as a backlog. No model is called.

Characters are those of the prompts and of the conversation; a token is about four of them.

python -m benchmarks.costs [--events 1000]
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from uuid import UUID

import asyncpg

from benchmarks import options
from benchmarks.consolidation import DirectClaim, InstantGenerator
from benchmarks.figures import figure
from benchmarks.server import fresh_pool, row
from hippocampus import prompts
from hippocampus.consolidation_worker import MemoryConsolidationWorker
from hippocampus.providers import transcript
from hippocampus.providers.local.provider import LocalEmbedder
from hippocampus.records import ConversationSlice, JobType, Reflection, Summary
from pulse.events import Event
from pulse.session_service import OpenSessionService

APP = "bench"


class CountingGenerator(InstantGenerator):
    """Records how many turns each summary read, and the characters of every call."""

    def __init__(self) -> None:
        self.turns: list[int] = []
        self.characters = self.instructions = self.said = 0

    async def summarize(self, slices: Sequence[ConversationSlice]) -> list[Summary]:
        self.turns.extend(len(part.turns) for part in slices)
        self._count("fast_replay", slices)
        return await super().summarize(slices)

    async def reflect(self, slices: Sequence[ConversationSlice]) -> list[Reflection]:
        self._count("deep_reflection", slices)
        return await super().reflect(slices)

    def _count(self, prompt: prompts.PromptName, slices: Sequence[ConversationSlice]) -> None:
        for part in slices:
            instructions = len(prompts.load(prompt).text)
            self.characters += instructions + len(transcript.format_transcript(part))
            self.instructions += instructions
            self.said += sum(len(turn.text) for turn in part.turns)


def conversation(events: int) -> list[Event]:
    """Turns of 5 to 80 words."""
    random = Random(7)
    return [
        Event(author=("user", "model")[n % 2], content={"text": " ".join(["word"] * random.randint(5, 80))}, id=f"e{n}")
        for n in range(events)
    ]


async def work_off(pool: asyncpg.Pool, worker: MemoryConsolidationWorker) -> None:
    """Run the waiting jobs, including follow-up jobs."""
    while True:
        waiting: list[UUID] = [
            job["id"]
            for job in await pool.fetch("SELECT id FROM consolidation_jobs WHERE status = 'pending' ORDER BY id")
        ]
        if not waiting:
            return
        for job in waiting:
            # As the queue does when it hands out a job: events beyond its slice become another job.
            await pool.execute("UPDATE consolidation_jobs SET status = 'running', attempts = 1 WHERE id = $1", job)
            await worker.run(job, DirectClaim(job))


async def measure(pool: asyncpg.Pool, name: str, events: int, *, at_once: bool) -> None:
    """One session, consolidated after each turn or at the end, then finalised."""
    generator = CountingGenerator()
    worker = MemoryConsolidationWorker(pool, generator, LocalEmbedder())
    sessions = OpenSessionService(pool)
    session = await sessions.create_session(APP, "user", session_id=name)
    spoken = conversation(events)
    for start in range(0, events, 1000 if at_once else 1):
        await sessions.append(APP, "user", name, spoken[start : start + (1000 if at_once else 1)])
        if not at_once:
            await work_off(pool, worker)
    await worker.consolidate(session.thread_id, JobType.FULL_CONSOLIDATION, wait=False)
    await work_off(pool, worker)
    cost = await pool.fetchrow("SELECT * FROM memory_costs WHERE session_id = $1", name)
    assert cost is not None
    per_thousand = 1000 / events
    if not at_once:
        figure("live_calls", cost["generate_calls"] * per_thousand)
        figure("live_prompt", generator.characters * per_thousand)
    row(f"{name}: generate calls per 1,000 events", f"{cost['generate_calls'] * per_thousand:.0f}")
    row(f"{name}: embedding calls per 1,000 events", f"{cost['embed_calls'] * per_thousand:.0f}")
    row(f"{name}: events per generate call", f"{cost['events_per_call']}")
    row(f"{name}: prompt characters per 1,000 events", f"{generator.characters * per_thousand:,.0f}")
    row("  of them instructions", f"{generator.instructions * per_thousand:,.0f}")
    row("  of them what was said", f"{generator.said * per_thousand:,.0f}")
    row(f"{name}: turns per summary", f"{sum(generator.turns) / len(generator.turns):.1f}")


async def main() -> None:
    parser = options.parser()
    parser.add_argument("--events", type=int, default=1000)
    arguments = parser.parse_args()
    async with fresh_pool(2) as (pool, _):
        await measure(pool, "turn by turn", arguments.events, at_once=False)
        await measure(pool, "backlog", arguments.events, at_once=True)


if __name__ == "__main__":
    asyncio.run(main())
