"""How many calls a second the shared limit admits, against a bare UPDATE of one row in the same run.

40 callers on 10 connections in one process. The bare UPDATE is measured with a durable commit, and with the commit that
the limit uses, which does not wait for the disk. The rate is so high that no caller waits for it.
"""

from __future__ import annotations

import asyncio
import statistics
import time

import asyncpg

from benchmarks import options
from benchmarks.server import commit_latency_ms, fresh_pool, row
from pulse.postgres.statements import load_queries

CALLERS = 40
CONNECTIONS = 10
ROUNDS = 3
SECONDS = 2.0
RATE = 1_000_000.0

BARE = "UPDATE bench_limit SET n = n + 1 WHERE name = 'm' RETURNING n"
CALL_GATE = load_queries("workers.models", "call_gate.sql")
STATEMENTS = {
    "a bare UPDATE of one row, durable": (BARE, ()),
    "a bare UPDATE, not waiting for the disk": (
        f"WITH own AS ({BARE}) SELECT set_config('synchronous_commit', 'off', true) FROM own",
        (),
    ),
    "reserve_call": ("SELECT wait_seconds, is_reserved FROM reserve_call('m', $1, 100)", (RATE,)),
    "admit_call: the breaker, then the limit": (
        CALL_GATE["admit_call"],
        ("m", "p/m", RATE, 100, 5.0, 65.0),
    ),
}


async def main() -> None:
    async with fresh_pool(CONNECTIONS) as (pool, _server):
        await pool.execute("CREATE TABLE bench_limit (name text PRIMARY KEY, n bigint) WITH (fillfactor = 10)")
        await pool.execute("INSERT INTO bench_limit VALUES ('m', 0)")
        row("median commit of this disk", f"{await commit_latency_ms(pool):.2f} ms")
        rates: dict[str, list[float]] = {what: [] for what in STATEMENTS}
        # Alternating, so that a slow minute of the machine affects all.
        for _ in range(ROUNDS):
            for what, (statement, arguments) in STATEMENTS.items():
                rates[what].append(await per_second(pool, statement, *arguments))
        medians = {what: statistics.median(each) for what, each in rates.items()}
        bare = medians["a bare UPDATE, not waiting for the disk"]
        for what, rate in medians.items():
            row(f"{what}, {CALLERS} callers", f"{rate:.0f}/s", f"{rate / bare:.2f}")


async def per_second(pool: asyncpg.Pool, statement: str, *arguments: object) -> float:
    """Run a statement from all callers for a while; return how often per second it ran."""
    deadline = time.perf_counter() + SECONDS
    done = 0

    async def on_and_on() -> None:
        nonlocal done
        while time.perf_counter() < deadline:
            await pool.fetchrow(statement, *arguments)
            done += 1

    started = time.perf_counter()
    await asyncio.gather(*(on_and_on() for _ in range(CALLERS)))
    return done / (time.perf_counter() - started)


if __name__ == "__main__":
    options.parser().parse_args()
    asyncio.run(main())
