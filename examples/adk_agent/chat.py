"""Two conversations with an agent that remembers: in the second it knows what it learned in the first.

The program uses DATABASE_URL, or an embedded PostgreSQL; it starts the workers, and stops what it started.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import uuid4

from companion.agent import root_agent
from google.adk.runners import Runner
from google.genai import types

from workers import Settings, load_settings
from workers.adk import artifact_service, memory_service, session_service
from workers.cli import databases, running

if TYPE_CHECKING:
    from pulse import Pool
    from workers.process.forking import ForkServer

APP = "companion"
FIRST = ("My name is Ada and I live in Turin.", "I love plum jam.", "Please never book anything on Fridays.")
SECOND = ("Which jam do I love?", "Where do I live?")
CONSOLIDATED_SECONDS_MAX = 60.0
BEHIND = """
SELECT EXISTS (SELECT FROM threads
               WHERE app_name = $1 AND user_id = $2 AND least(fast_upto_seq, deep_upto_seq) < last_seq)
"""


async def talk(runner: Runner, user: str, session_id: str, lines: tuple[str, ...]) -> None:
    """Have one conversation in a new session."""
    await runner.session_service.create_session(app_name=APP, user_id=user, session_id=session_id)
    for line in lines:
        print(f"  you        {line}")
        message = types.Content(role="user", parts=[types.Part(text=line)])
        async for event in runner.run_async(user_id=user, session_id=session_id, new_message=message):
            for part in event.content.parts or [] if event.content else []:
                if part.text:
                    print(f"  companion  {part.text}")


async def consolidated(pool: Pool, user: str) -> None:
    """Wait until the workers have consolidated the user's sessions."""
    async with asyncio.timeout(CONSOLIDATED_SECONDS_MAX):
        while await pool.fetchval(BEHIND, APP, user):
            await asyncio.sleep(0.2)


async def main(config: Settings, forks: ForkServer) -> None:
    await databases.migrated(config)
    uri = (config.dsn or "").replace("postgresql://", "hippocampus://", 1)
    sessions, memory, artifacts = session_service(uri), memory_service(uri), artifact_service(uri)
    runner = Runner(
        app_name=APP, agent=root_agent, session_service=sessions, memory_service=memory, artifact_service=artifacts
    )
    user = f"ada-{uuid4()}"
    async with databases.pool_of(config) as pool, running.running(config, pool, free_port=True, forks=forks):
        print("The first session")
        await talk(runner, user, "first", FIRST)
        await consolidated(pool, user)
        print("The second session, which begins empty")
        await talk(runner, user, "second", SECOND)
        print("The facts that the workers extracted")
        for row in await pool.fetch("SELECT content FROM facts WHERE user_id = $1 ORDER BY content", user):
            print(f"  {row['content']}")
        await runner.close()
        for service in (sessions, memory, artifacts):
            await service.close()


if __name__ == "__main__":
    with running.fork_server() as server, databases.opened(load_settings(), create=True) as ready:
        asyncio.run(main(ready, server))
