"""A process that executes a run and streams its reply until it is killed: `-m tests.support.run_process DSN`."""

from __future__ import annotations

import asyncio
import sys

from pulse import database
from pulse.runs import events
from pulse.runs.heartbeat import RunHeartbeat
from pulse.runs.service import RunService

LEASE_SECONDS = 1.5


async def main(dsn: str) -> None:
    async with await database.create_pool(dsn, max_size=2) as pool:
        runs = RunService(pool, lease_seconds=LEASE_SECONDS)
        run = (await runs.start("app", "mei", "s", "run-1", events.user_message("question"))).run
        async with RunHeartbeat(runs).watch(run):
            await runs.think(run, "a finished thought")
            await runs.call_tool(run, "search", {})
            answer = ""
            while True:
                answer += "word "
                print(len(answer), flush=True)
                await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
