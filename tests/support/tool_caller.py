"""A process that calls a tool of a limited rate fifteen times at once: `-m tests.support.tool_caller DSN`.

It prints how each call ended, as a JSON list of error codes, null for success.
"""

from __future__ import annotations

import asyncio
import json
import sys

from pulse import database
from pulse.tools.registry import ToolRegistry

CALLS = 15
PERMISSIONS = {"rate_limit": 0.5, "burst": 10}


def add(a: int) -> int:
    return a + 2


async def codes(registry: ToolRegistry) -> list[str | None]:
    await registry.register_tool("add", add, permissions=PERMISSIONS)
    found = await asyncio.gather(*(registry.call("add", {"a": 1}, user_id="ann") for _ in range(CALLS)))
    return [each.error_code for each in found]


async def main(dsn: str) -> None:
    async with await database.create_pool(dsn, max_size=3) as pool, ToolRegistry(pool, "shop") as registry:
        print(json.dumps(await codes(registry)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
