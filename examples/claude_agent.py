"""An agent of the Claude Agent SDK whose transcripts are kept and remembered.

    python examples/claude_agent.py ann "I am allergic to peanuts."
    python examples/claude_agent.py ann "What am I allergic to?"

Set DATABASE_URL and ANTHROPIC_API_KEY.
"""

from __future__ import annotations

import asyncio
import os
import sys

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

from hippocampus import Hippocampus
from hippocampus.integrations.claude_agent_sdk import HippocampusSessionStore


async def main(user: str, message: str) -> None:
    async with Hippocampus(os.environ["DATABASE_URL"], app="assistant") as memory:
        options = ClaudeAgentOptions(
            system_prompt=f"You are a helpful assistant.\n\n{await memory.recall(user, message)}",
            session_store=HippocampusSessionStore(memory, user),
            setting_sources=[],
            max_turns=1,
        )
        async for each in query(prompt=message, options=options):
            if isinstance(each, ResultMessage):
                print(each.result)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
