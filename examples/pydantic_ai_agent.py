"""An agent of pydantic-ai that remembers across conversations.

    python examples/pydantic_ai_agent.py ann monday "I am allergic to peanuts."
    python examples/pydantic_ai_agent.py ann tuesday "What am I allergic to?"

Set DATABASE_URL, and MODEL to a model such as openai-chat:gpt-5.4-mini; without it, pydantic-ai's test model answers.
"""

from __future__ import annotations

import asyncio
import os
import sys

from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation

from hippocampus import Hippocampus
from hippocampus.integrations.pydantic_ai import HippocampusConversationStore, RecallMemory


async def main(user: str, conversation_id: str, message: str) -> None:
    async with Hippocampus(os.environ["DATABASE_URL"], app="assistant") as memory:
        store = HippocampusConversationStore(memory, user)
        agent = Agent(os.environ.get("MODEL", "test"), capabilities=[RecallMemory(memory, user)])
        conversation = await store.load(conversation_id) or Conversation(conversation_id=conversation_id)
        result = await agent.run(message, conversation=conversation)
        await store.save(result)
        print(result.output)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
