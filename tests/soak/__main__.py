"""A soak: every role under a steady load, and a verdict on what it holds at the end.

    python -m tests.soak --minutes 10 [--writers 50] [--threads 500]

50 clients append to 500 sessions, search, and read, each a few times a second, over HTTP; the workers consolidate with
a local fake Gemini that never fails. Memory, open files and connections are sampled every second and must not grow
after the first third of the time; afterwards the queues must drain, and each acknowledged event must be stored.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import random
import sys
import time
from collections import Counter
from pathlib import Path
from unittest import mock

import asyncpg
import httpx

from tests.chaos import scene
from tests.chaos.scene import Scene
from tests.soak.verdict import Run, Sample, judge, percentile

APP = "soak"
PAUSE_SECONDS = 0.5
SAMPLE_SECONDS = 1.0
DRAIN_SECONDS_MAX = 300.0
_WORDS = "harbour train garden Lisbon music chess Tuesday doctor bread river winter ticket blue window sister".split()
_LEFT = """
SELECT queue_name, count(*) FROM procrastinate_jobs
WHERE status IN ('todo', 'doing') AND queue_name IN ('fast_replay', 'deep_reflection', 'embedding') GROUP BY 1
"""
_BEHIND = "SELECT count(*) FROM threads WHERE app_name = $1 AND least(fast_upto_seq, deep_upto_seq) < last_seq"


class Load:
    """Clients that append, search and read."""

    def __init__(self, client: httpx.AsyncClient, run: Run, threads: int, seed: int) -> None:
        self._client = client
        self._run = run
        self._rng = random.Random(seed)
        self._numbers = itertools.count(1)
        self._failed: Counter[str] = Counter()
        self.sessions = [(f"user-{number % 97}", f"session-{number}") for number in range(threads)]
        self.acknowledged: Counter[str] = Counter()

    async def create(self) -> None:
        """Create every session."""
        for user, session in self.sessions:
            await self._ask("POST", f"/v1/apps/{APP}/users/{user}/sessions", {"session_id": session})

    async def run(self, client: int, writers: int, until: float) -> None:
        """Act as one client until then."""
        mine = self.sessions[client::writers]
        while time.monotonic() < until:
            user, session = self._rng.choice(mine)
            base = f"/v1/apps/{APP}/users/{user}"
            text = " ".join(self._rng.choices(_WORDS, k=12))
            draw = self._rng.random()
            if draw < 0.8:
                event = {"id": f"e{next(self._numbers)}", "author": "user", "content": {"text": text}}
                seconds = await self._ask("POST", f"{base}/sessions/{session}/events", {"events": [event]})
                if seconds is not None:
                    self._run.appends.append(seconds)
                    self.acknowledged[session] += 1
            elif draw < 0.9:
                seconds = await self._ask("POST", f"{base}/search", {"query": text[:40], "limit": 5})
                if seconds is not None:
                    self._run.searches.append(seconds)
            else:
                await self._ask("GET", f"{base}/sessions/{session}?num_recent_events=5")
            await asyncio.sleep(self._rng.uniform(0, 2 * PAUSE_SECONDS))
        self._run.failed = dict(self._failed)

    async def _ask(self, method: str, path: str, body: object = None) -> float | None:
        began = time.monotonic()
        try:
            answer = await self._client.request(method, path, json=body)
        except httpx.TransportError as error:
            self._failed[type(error).__name__] += 1
            return None
        if answer.is_success:
            return time.monotonic() - began
        self._failed[str(answer.status_code)] += 1
        return None


async def soak(folder: Path, *, seconds: float, writers: int, threads: int, seed: int = 1) -> Run:
    """Run the load for this long, drain, and return what was seen."""
    run = Run()
    quiet = {**scene.SETTINGS, "HIPPOCAMPUS_REQUESTS_PER_SECOND": "0", "HIPPOCAMPUS_SLICE_TOKENS": "6000"}
    quiet |= {"HIPPOCAMPUS_GENERATE_TIMEOUT_SECONDS": "30", "HIPPOCAMPUS_EMBED_TIMEOUT_SECONDS": "30"}
    roles = dict.fromkeys(scene.PROCESSES, 1)
    with mock.patch.multiple(scene, SETTINGS=quiet, PROCESSES=roles, FAULT_RATE=0.0, LATENCY_SECONDS=0.2):
        async with scene.set_scene(folder, seed) as stage:
            if late := await stage.late():
                raise RuntimeError(f"not ready: {late}")
            limits = httpx.Limits(max_connections=writers, max_keepalive_connections=writers)
            async with (
                asyncpg.create_pool(stage.dsn, min_size=1, max_size=1) as pool,
                httpx.AsyncClient(base_url=stage.api_url, timeout=30, limits=limits, trust_env=False) as client,
            ):
                load = Load(client, run, threads, seed)
                await load.create()
                sampling = asyncio.create_task(_sample(stage, pool, run))
                until = time.monotonic() + seconds
                await asyncio.gather(*(load.run(number, writers, until) for number in range(writers)))
                sampling.cancel()
                await asyncio.gather(sampling, return_exceptions=True)
                await _drain(pool, run)
                run.missing = await _missing(pool, load)
    return run


async def _sample(stage: Scene, pool: asyncpg.Pool, run: Run) -> None:
    began = time.monotonic()
    while True:
        connections = await pool.fetchval("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")
        memory, files = {}, {}
        for slot in stage.slots:
            with contextlib.suppress(OSError):
                status = Path(f"/proc/{slot.pid}/status").read_text()
                memory[slot.name] = int(status.partition("VmRSS:")[2].split()[0]) * 1024
                files[slot.name] = sum(1 for _ in Path(f"/proc/{slot.pid}/fd").iterdir())
        run.samples.append(
            Sample(seconds=time.monotonic() - began, memory=memory, connections=connections, files=files)
        )
        await asyncio.sleep(SAMPLE_SECONDS)


async def _drain(pool: asyncpg.Pool, run: Run) -> None:
    """Request what the policy leaves for later, and wait until nothing is left."""
    await pool.execute("SELECT finalize_session(app_name, user_id, session_id) FROM threads WHERE app_name = $1", APP)
    deadline = time.monotonic() + DRAIN_SECONDS_MAX
    while True:
        run.waiting = {row[0]: row[1] for row in await pool.fetch(_LEFT)}
        if not run.waiting or time.monotonic() > deadline:
            return
        await asyncio.sleep(0.5)


async def _missing(pool: asyncpg.Pool, load: Load) -> int:
    rows = await pool.fetch(
        "SELECT session_id, (SELECT count(*) FROM events AS e WHERE e.thread_id = t.id AND e.author = 'user') AS stored"
        " FROM threads AS t WHERE app_name = $1",
        APP,
    )
    stored = {row["session_id"]: row["stored"] for row in rows}
    lost = sum(max(count - stored.get(session, 0), 0) for session, count in load.acknowledged.items())
    behind: int = await pool.fetchval(_BEHIND, APP)
    return lost + behind


def main() -> int:
    """Run from the command line; exit code 0 if nothing is wrong."""
    parser = argparse.ArgumentParser(prog="tests.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--writers", type=int, default=50)
    parser.add_argument("--threads", type=int, default=500)
    options = parser.parse_args()
    with scene.folder_of_a_run([]) as folder:
        run = asyncio.run(soak(folder, seconds=60 * options.minutes, writers=options.writers, threads=options.threads))
    wrong = judge(run)
    for what, seconds in (("appends", run.appends), ("searches", run.searches)):
        if seconds:
            shown = ", ".join(f"{share:.0%} {1000 * percentile(seconds, share):.0f} ms" for share in (0.5, 0.95, 0.99))
            print(f"{len(seconds):,} {what}: {shown}")
    for name in run.samples[-1].memory if run.samples else ():
        held = [sample.memory.get(name, 0) / 2**20 for sample in run.samples]
        after, end = held[len(held) // 3], held[-1]
        print(f"{name}: {after:.0f} MB after a third, {end:.0f} MB at the end, {max(held):.0f} at most")
    print(f"connections: {run.samples[0].connections} at the start, {run.samples[-1].connections} at the end")
    for each in wrong:
        print(f"WRONG: {each}")
    print("soak: as it must be" if not wrong else f"soak: {len(wrong)} violations")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
