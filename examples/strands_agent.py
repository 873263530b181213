"""An agent of Strands that remembers across sessions.

    python examples/strands_agent.py ann "I am allergic to peanuts."
    python examples/strands_agent.py ann "What am I allergic to?"

Set DATABASE_URL and OPENAI_API_KEY; OPENAI_BASE_URL and OPENAI_MODEL for another endpoint.
"""

from __future__ import annotations

import asyncio
import os
import sys

from strands import Agent
from strands.memory import MemoryManager
from strands.models.openai import OpenAIModel

from hippocampus.integrations.strands import HippocampusMemoryStore


async def main(user: str, message: str) -> None:
    store = HippocampusMemoryStore(os.environ["DATABASE_URL"], app="assistant", user=user)
    manager = MemoryManager(stores=[store])
    model = OpenAIModel(model_id=os.environ.get("OPENAI_MODEL", "gpt-5.4-mini"))
    agent = Agent(model=model, memory_manager=manager, callback_handler=None)
    print(await agent.invoke_async(message))
    await manager.flush()
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
