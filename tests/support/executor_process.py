"""An executor in a process of its own, killed at a point: `-m tests.support.executor_process DSN POINT MESSAGE RESUME`.

Its tools append to the table `effects`, under their calls and idempotency keys. `POINT` is the name of the statement or
the tool at which the process kills itself, with its number: `before:write_run:2`, `after:begin_tool_call:1`,
`in:pay:1`. With `RESUME`, answers to interrupts as JSON, a person has to confirm `pay`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from hippocampus.mind.executor import AgentExecutor, ExecutionResult
from hippocampus.providers.tool_calls import ResultTurn
from pulse import database
from pulse.postgres import statements
from pulse.session_key import SessionKey
from pulse.tools.records import ToolContext
from pulse.tools.registry import ToolRegistry
from tests.support.scripted_model import Reply, ScriptedModel

KEY = SessionKey("shop", "ann", "s")
LEASE_SECONDS = 1.0
EFFECTS = "CREATE TABLE effects (tool text, key text, call text)"
counts: dict[str, int] = {}
point = ""


def reach(name: str) -> None:
    """Die here, if this is the point."""
    counts[name] = counts.get(name, 0) + 1
    if point == f"{name}:{counts[name]}":
        os.kill(os.getpid(), signal.SIGKILL)


def script(results: list[ResultTurn], _question: str) -> Reply:
    """Two calls at once, then one, then the answer."""
    if not results:
        return [("read", {"n": 1}), ("pay", {"n": 2})]
    if len(results) == 2:
        return [("read", {"n": 3})]
    return "done: " + "; ".join(each.text for each in results)


@asynccontextmanager
async def opened(dsn: str, *, confirmed: bool = False) -> AsyncIterator[tuple[asyncpg.Pool, ToolRegistry]]:
    """Open a registry with both tools."""
    async with await database.create_pool(dsn, max_size=6) as pool, ToolRegistry(pool, KEY.app_name) as registry:
        statement = "INSERT INTO effects (tool, key, call) VALUES ($1, $2, $3)"

        async def read(n: int, context: ToolContext) -> str:
            await pool.execute(statement, "read", context.idempotency_key, context.tool_call_id)
            reach("in:read")
            return f"read {n}"

        async def pay(n: int, context: ToolContext) -> str:
            await pool.execute(statement, "pay", context.idempotency_key, context.tool_call_id)
            reach("in:pay")
            return f"paid {n}"

        await registry.register_tool("read", read, nature="again")
        await registry.register_tool("pay", pay, permissions={"requires_confirmation": True} if confirmed else None)
        yield pool, registry


async def execute(
    dsn: str, message: str | None, resume: Sequence[Mapping[str, Any]] = (), *, confirmed: bool = False
) -> ExecutionResult:
    async with opened(dsn, confirmed=confirmed) as (pool, registry):
        executor = AgentExecutor(ScriptedModel(script), registry)
        return await executor.run(pool, KEY, message, resume=resume, lease_seconds=LEASE_SECONDS)


def watch_statements() -> None:
    """Reach a point before and after each statement that matters."""
    run = statements.Statements._run

    async def watched(self: Any, name: str, execution: Any) -> Any:
        reach(f"before:{name}")
        found = await run(self, name, execution)
        reach(f"after:{name}")
        return found

    statements.Statements._run = watched  # type: ignore[method-assign]


def main(run: Callable[..., Awaitable[ExecutionResult]]) -> None:
    """Execute as the command line says."""
    global point  # noqa: PLW0603 - of the process
    point = sys.argv[2]
    watch_statements()
    answers = json.loads(sys.argv[4]) if len(sys.argv) > 4 else []
    confirmed = len(sys.argv) > 4
    print(asyncio.run(_answered(run(sys.argv[1], sys.argv[3] or None, answers, confirmed=confirmed))))


async def check_effects(pool: asyncpg.Pool, ended: Collection[str], where: str) -> None:
    """Check that no call was made twice but with one key, and while its end was not recorded: those in `ended` were."""
    rows = await pool.fetch("SELECT tool, call, count(*) AS n, count(DISTINCT key) AS keys FROM effects GROUP BY 1, 2")
    for row in rows:
        may_repeat = row["tool"] == "read" and row["call"] not in ended
        assert row["n"] == 1 or (may_repeat and row["n"] == 2), (where, row)
        assert row["keys"] == 1, (where, row)
    assert sum(row["tool"] == "pay" for row in rows) <= 1, (where, rows)


async def ended_calls(pool: asyncpg.Pool) -> set[str]:
    """Return the calls that were not running when their process was killed: their ends are recorded, or none began."""
    rows = await pool.fetch("SELECT tool_call_id FROM tool_executions WHERE status IN ('running', 'unknown')")
    running = {row["tool_call_id"] for row in rows}
    made = await pool.fetch("SELECT DISTINCT call FROM effects")
    return {row["call"] for row in made} - running


async def _answered(result: Awaitable[ExecutionResult]) -> str:
    return (await result).answer


if __name__ == "__main__":
    main(execute)
