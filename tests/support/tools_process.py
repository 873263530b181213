"""A process that calls a tool and reports each change of it: `-m tests.support.tools_process DSN`.

It prints ``running VERSION`` once its call runs, ``version N`` or ``gone`` for what it then lists, and, after a line on
its input, the end of the call.
"""

from __future__ import annotations

import asyncio
import sys

import structlog

from pulse import database
from pulse.tools import registry as tools
from pulse.tools.registry import ToolRegistry


async def main(dsn: str) -> None:
    began, go = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        began.set()
        await go.wait()
        return "done"

    async with await database.create_pool(dsn, max_size=3) as pool, ToolRegistry(pool, "shop") as registry:
        registry.listen(dsn)
        await registry.register_tool("slow", slow)
        call = asyncio.create_task(registry.call("slow", {}))
        await began.wait()
        while registry._listener is None or not registry._listener.is_listening:
            await asyncio.sleep(0.01)
        (tool,) = await registry.get_available_tools()
        version = tool.version
        print(f"running {version}", flush=True)
        reading = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
        is_listed = True
        while not reading.done():
            listed = await registry.get_available_tools()
            if is_listed and not listed:
                print("gone", flush=True)
                is_listed = False
            elif listed and listed[0].version != version:
                version = listed[0].version
                print(f"version {version}", flush=True)
            await asyncio.sleep(0.01)
        go.set()
        ended = await call
        print(ended.status, ended.value, flush=True)


if __name__ == "__main__":
    tools._POLL_SECONDS = 30.0  # what it learns sooner it was told
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    asyncio.run(main(sys.argv[1]))
