"""An agent of the OpenAI Agents SDK that remembers across sessions.

    python examples/openai_agent.py ann monday "I am allergic to peanuts."
    python examples/openai_agent.py ann tuesday "What am I allergic to?"

Set DATABASE_URL and OPENAI_API_KEY; OPENAI_BASE_URL and OPENAI_MODEL for another endpoint.
"""

from __future__ import annotations

import asyncio
import os
import sys

from agents import Agent, RunContextWrapper, Runner, set_default_openai_api, set_tracing_disabled

from hippocampus import Hippocampus
from hippocampus.integrations.openai_agents import HippocampusSession

set_default_openai_api("chat_completions")
set_tracing_disabled(disabled=True)


async def main(user: str, session_id: str, message: str) -> None:
    async with Hippocampus(os.environ["DATABASE_URL"], app="assistant") as memory:

        async def instructions(_context: RunContextWrapper[None], _agent: Agent[None]) -> str:
            return f"You are a helpful assistant.\n\n{await memory.recall(user, message)}"

        agent = Agent(name="Assistant", instructions=instructions, model=os.environ.get("OPENAI_MODEL"))
        result = await Runner.run(agent, message, session=HippocampusSession(memory, user, session_id))
        print(result.final_output)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
