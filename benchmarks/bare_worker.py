"""procrastinate alone, with its defaults and an empty task: the queue's upper limit."""

from __future__ import annotations

import asyncio
import os

from procrastinate import App, PsycopgConnector

from benchmarks import options


async def main() -> None:
    app = App(connector=PsycopgConnector(conninfo=os.environ["DATABASE_URL"], min_size=4, max_size=10))

    @app.task(name="nothing", queue="bare")
    async def nothing() -> None:
        return None

    async with app.open_async():
        await app.run_worker_async(queues=["bare"], concurrency=10)


if __name__ == "__main__":
    options.parser().parse_args()
    asyncio.run(main())
