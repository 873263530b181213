"""What a tool costs: a call against calling its function, a change until another process acts on it, a sandbox's start.

The call is of a Python function that adds two numbers, one after another, and by 16 callers at once: two statements.
One that must not be repeated also waits for a durable commit before it is made. The change is a tool that is disabled
in this process: others call it all the time, and the time is from the commit here to the first refusal there.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time

import asyncpg

from benchmarks import options
from benchmarks.figures import figure
from benchmarks.server import commit_latency_ms, fresh_pool, row
from pulse import database
from pulse.sandbox.bwrap import BwrapBackend
from pulse.sandbox.monty import MontyBackend
from pulse.sandbox.records import SandboxBackend, SandboxRequest
from pulse.tools.registry import ToolRegistry

CALLS = 1000
CALLERS = 16
PROCESSES = 10
CHANGES = 20
STARTS = 30


async def add(a: int, b: int) -> int:
    return a + b


def p99(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.99))]


async def main() -> None:
    async with fresh_pool(20) as (pool, server):
        row("median commit of this disk", f"{await commit_latency_ms(pool):.2f} ms")
        async with ToolRegistry(pool, "bench") as registry:
            await registry.register_tool("add", add)
            await registry.register_tool("add_again", add, nature="again")
            await overhead(registry)
            await updates(pool, registry, server.dsn)
    for backend in (MontyBackend(), BwrapBackend()):
        await starts(backend)


async def overhead(registry: ToolRegistry) -> None:
    direct = []
    for _ in range(CALLS):
        began = time.perf_counter()
        await add(1, 2)
        direct.append((time.perf_counter() - began) * 1000)
    row("the function itself, p50", f"{statistics.median(direct) * 1000:.2f} us")

    async def calls(count: int, name: str = "add_again") -> list[float]:
        spent = []
        for _ in range(count):
            began = time.perf_counter()
            assert await registry.invoke_tool(name, {"a": 1, "b": 2}, user_id="u") == 3
            spent.append((time.perf_counter() - began) * 1000)
        return spent

    await calls(50)
    durable = await calls(CALLS // 2, "add")
    row("a call that waits for its durable commit, p50", f"{statistics.median(durable):.2f} ms")
    alone = await calls(CALLS)
    function = statistics.median(direct)
    figure("tool_call_p50", statistics.median(alone) - function, "may be repeated, one after another")
    figure("tool_call_p99", p99(alone) - function)
    began = time.perf_counter()
    spent = await asyncio.gather(*(calls(CALLS // CALLERS) for _ in range(CALLERS)))
    together = [each for one in spent for each in one]
    row(f"by {CALLERS} callers, p50", f"{statistics.median(together):.2f} ms")
    row("p99", f"{p99(together):.2f} ms")
    row("calls a second", f"{len(together) / (time.perf_counter() - began):.0f}")


async def updates(pool: asyncpg.Pool, registry: ToolRegistry, dsn: str) -> None:
    """Disable and enable a tool; each process reports, by the clock of the machine, when its calls are refused."""
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benchmarks.tools", "--caller", dsn, stdout=asyncio.subprocess.PIPE
        )
        for _ in range(PROCESSES)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert (await process.stdout.readline()).strip() == b"ready"
        seen = []
        for _ in range(CHANGES):
            await registry.set_active("add", is_active=False)
            changed = time.time()
            for process in processes:
                assert process.stdout is not None
                seen.append(max(0.0, float(await process.stdout.readline()) - changed))
            await registry.set_active("add", is_active=True)
            for process in processes:
                assert process.stdout is not None
                assert (await process.stdout.readline()).strip() == b"again"
        row(f"a change in {PROCESSES} processes, p50", f"{statistics.median(seen):.3f} s")
        figure("tool_update_p99", p99(seen))
    finally:
        for process in processes:
            process.kill()
            await process.wait()


async def call_on_and_on(dsn: str) -> None:
    """Call a tool every 20 ms, and print when it was refused first, and when it was called again."""
    async with await database.create_pool(dsn, min_size=1, max_size=1) as pool, ToolRegistry(pool, "bench") as registry:
        await registry.register_tool("add", add)
        print("ready", flush=True)
        is_active = True
        while True:
            outcome = await registry.call("add", {"a": 1, "b": 2})
            if outcome.is_error is is_active:
                print(time.time() if is_active else "again", flush=True)
                is_active = not is_active
            await asyncio.sleep(0.02)


async def starts(backend: SandboxBackend) -> None:
    problem = await backend.check()
    if problem is not None:
        row(f"sandbox {backend.name}", problem)
        return
    spent = []
    for _ in range(STARTS):
        began = time.perf_counter()
        assert (await backend.execute(SandboxRequest(code="1 + 1"))).value == 2
        spent.append((time.perf_counter() - began) * 1000)
    await backend.close()
    figure(f"sandbox_{backend.name}_p50", statistics.median(spent))


if __name__ == "__main__":
    parser = options.parser()
    parser.add_argument("--caller", metavar="DSN", help=argparse.SUPPRESS)
    dsn = parser.parse_args().caller
    asyncio.run(call_on_and_on(dsn) if dsn else main())
