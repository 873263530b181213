"""What tracing costs: an append with tracing off and on, one span, and a run with 50 spans.

python -m benchmarks.tracing
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

from benchmarks import options
from benchmarks.figures import figure
from benchmarks.server import commit_latency_ms, fresh_pool, row
from benchmarks.sessions import ours
from pulse.tracing.manager import TracingManager, current_tracing

ROUNDS = 7
SPANS = 50
#: The time of one step of a run: a fast tool, far less than a model takes.
STEP_SECONDS = 0.02


async def run_of_spans() -> float:
    """Return the seconds of a run with steps of `STEP_SECONDS`, each a span."""
    began = time.perf_counter()
    with current_tracing().span("invoke_agent", app_name="bench", user_id="u", run_id="r"):
        for n in range(SPANS):
            with current_tracing().trace_tool_call("search", call_id=str(n)) as span:
                await asyncio.sleep(STEP_SECONDS)
                span.set_attribute("results", n)
    return time.perf_counter() - began


def span_microseconds(count: int = 20_000) -> float:
    """Return how long one span takes its caller."""
    began = time.perf_counter()
    for _ in range(count):
        with current_tracing().span("step", app_name="bench", user_id="u"):
            pass
    return (time.perf_counter() - began) / count * 1e6


async def compared(
    work: Callable[[], Awaitable[float]], dsn: str, *, sdk: bool, rounds: int
) -> tuple[list[float], list[float]]:
    """Return figures without and with tracing, in alternating rounds."""
    off, on = [], []
    for _ in range(rounds):
        off.append(await work())
        with TracingManager("bench", dsn, sdk=sdk):
            on.append(await work())
    return off, on


async def main() -> None:
    async with fresh_pool(10) as (pool, server):
        row("median commit of this disk", f"{await commit_latency_ms(pool):.2f} ms")
        await ours(pool, 4, 50)
        row("a span, tracing off", f"{span_microseconds():.2f} µs")
        for sdk in (False, True):
            name = "SDK" if sdk else "recorder"
            off, on = await compared(lambda: ours(pool, 1, 200), server.tcp_dsn, sdk=sdk, rounds=ROUNDS)
            before, after = statistics.median(off), statistics.median(on)
            row(f"append with a delta, one session, {name}: off", f"{before:.0f}/s")
            row("  on: three spans and a row each", f"{after:.0f}/s", f"{before / after:.2f}x")
            with TracingManager("bench", server.tcp_dsn, sdk=sdk):
                row(f"a span, {name}", f"{span_microseconds():.1f} µs")
            off, on = await compared(run_of_spans, server.tcp_dsn, sdk=sdk, rounds=3)
            figure("tracing_run_overhead", statistics.median(on) / statistics.median(off), f"{name}, {SPANS} spans")


if __name__ == "__main__":
    options.parser().parse_args()
    asyncio.run(main())
