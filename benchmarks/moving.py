"""Moving a live app to another cell: how fast its rows are copied, and how long its writers wait.

    python -m benchmarks.moving [EVENTS]

Two servers on one machine; eight writers append to sessions of the app all the while, through the library.
"""

from __future__ import annotations

import asyncio
import time

from benchmarks import options
from benchmarks.growth import TURNS, fill
from benchmarks.server import fresh_server, percentile, row
from hippocampus import Hippocampus
from pulse import Cells, database
from workers.transfer.moves import move

EVENTS = 200_000
WRITERS = 8
PAUSE_SECONDS = 0.05


async def main(events: int) -> None:
    async with (
        fresh_server() as main_server,
        fresh_server() as east,
        await database.create_pool(main_server.tcp_dsn, max_size=1) as pool,
    ):
        await fill(pool, 0, events // TURNS)
        cells = Cells(main_server.tcp_dsn, {"east": east.tcp_dsn})
        stop = asyncio.Event()
        waits: list[float] = []

        async def write(number: int) -> None:
            async with Hippocampus(cells, app="bench") as memory:
                while not stop.is_set():
                    began = time.perf_counter()
                    added = await memory.add(f"writer{number}", f"Then came stop {len(waits)}.{number}.", session="s")
                    assert added.added == 1
                    waits.append(time.perf_counter() - began)
                    await asyncio.sleep(PAUSE_SECONDS)

        async with asyncio.TaskGroup() as group:
            for number in range(WRITERS):
                group.create_task(write(number))
            began = time.perf_counter()
            moved = await move(cells, "bench", "east", grace_seconds=3, on_step=lambda text: print(f"  {text}"))
            seconds = time.perf_counter() - began - 3
            stop.set()
        rows = sum(each.rows for each in moved.digests.values())
        row(f"rows moved, of {events:,} events", f"{rows:,}", f"{rows / seconds:,.0f}/s", "copied, proven and deleted")
        row("the fence", f"{moved.fence_seconds:.2f} s", f"{moved.rows_fenced}", "rows under it")
        row("an append, median and longest", f"{percentile(waits, 0.5) * 1000:.0f} ms", f"{max(waits):.2f} s")


if __name__ == "__main__":
    parser = options.parser()
    parser.add_argument("events", type=int, nargs="?", default=EVENTS, help="how many events to move")
    asyncio.run(main(parser.parse_args().events))
