"""The cost of consolidation without the model: a job of 20 turns with a model that answers at once.

Also the time until its memories are found. The raw limit is the disk's commit.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import asyncpg

from benchmarks import options
from benchmarks.figures import figure
from benchmarks.server import commit_latency_ms, fresh_pool, percentile, row
from hippocampus.consolidation_worker import MemoryConsolidationWorker
from hippocampus.providers.local.provider import LocalEmbedder
from hippocampus.records import ConversationSlice, Origin, Reflection, Summary
from hippocampus.search import MemorySearch

JOBS = 100
TURNS = 20
ORIGIN = Origin(provider="bench", model="instant", prompt_hash="0" * 64)


class InstantGenerator:
    """A model that answers at once, each summary with a unique word."""

    name = "instant"
    fingerprint = "instant"

    async def summarize(self, slices: Sequence[ConversationSlice]) -> list[Summary]:
        return [Summary(text=f"About {part.turns[0].text.split()[0]}.", origin=ORIGIN) for part in slices]

    async def reflect(self, slices: Sequence[ConversationSlice]) -> list[Reflection]:
        return [Reflection(facts=(), insights=(), origin=ORIGIN) for _ in slices]

    async def close(self) -> None:
        return None


class DirectClaim:
    """Ends the job without a queue, so that only the memory's own work is timed."""

    is_last_attempt = True

    def __init__(self, job_id: UUID) -> None:
        self._job_id = job_id

    async def fence(self, connection: asyncpg.Connection) -> None:
        await connection.execute("SELECT FROM consolidation_jobs WHERE id = $1 FOR UPDATE", self._job_id)

    async def finish(self, connection: asyncpg.Connection, result: Mapping[str, Any]) -> None:
        await connection.execute(
            "UPDATE consolidation_jobs SET status = 'completed', result = $2 WHERE id = $1", self._job_id, dict(result)
        )


async def say(pool: asyncpg.Pool, number: int) -> UUID:
    session = f"s{number}"
    await pool.execute("SELECT create_session('bench', 'user', $1)", session)
    for turn in range(TURNS):
        text = f"marker{number}x{turn} and what was said about the harbour, the rain and the long way home"
        await pool.execute(
            "SELECT append_event('bench', 'user', $1, NULL, $2, 'user', 'message', $3, 'user', $4, p_notify => false)",
            session,
            f"e{turn}",
            json.dumps({"text": text}),
            text,
        )
    return await pool.fetchval("SELECT id FROM consolidation_jobs ORDER BY created_at DESC, id DESC LIMIT 1")


async def main() -> None:
    async with fresh_pool(4) as (pool, _):
        row("median commit of this disk", f"{await commit_latency_ms(pool):.2f} ms")
        embedder = LocalEmbedder()
        worker = MemoryConsolidationWorker(pool, InstantGenerator(), embedder)
        search = MemorySearch(pool, embedder)
        took, visible, found = [], [], 0
        for number in range(JOBS):
            job = await say(pool, number)
            start = time.perf_counter()
            await worker.run(job, DirectClaim(job))
            committed = time.perf_counter()
            response = await search.search(app_name="bench", user_id="user", query=f"marker{number}x0", limit=3)
            visible.append((time.perf_counter() - committed) * 1000)
            took.append((committed - start) * 1000)
            found += any(f"marker{number}x0" in memory.content for memory in response.memories)
        row("consolidation of 20 turns, median", f"{percentile(took, 0.5):.1f} ms")
        figure("consolidation_p99", percentile(took, 0.99))
        figure("memories_found", 100 * found / JOBS)
        row("  commit to found, 99th percentile", f"{percentile(visible, 0.99):.1f} ms")


if __name__ == "__main__":
    options.parser().parse_args()
    asyncio.run(main())
