"""Claude keeps files about each user, in your database.

    python examples/anthropic_memory_tool.py ann "Please remember that I am allergic to peanuts."
    python examples/anthropic_memory_tool.py ann "What can I not eat?"

DATABASE_URL names a migrated database (`hippocampus migrate`), ANTHROPIC_API_KEY is your key.
"""

import asyncio
import os
import sys

from anthropic import AsyncAnthropic

from hippocampus import Hippocampus
from hippocampus.integrations.anthropic_memory import HippocampusMemoryTool

MODEL = "claude-sonnet-5-5"


async def main(user: str, said: str) -> str:
    async with Hippocampus(os.environ["DATABASE_URL"], app="claude") as memory, AsyncAnthropic() as claude:
        runner = claude.beta.messages.tool_runner(
            model=MODEL,
            max_tokens=1000,
            tools=[HippocampusMemoryTool(memory, user)],
            messages=[{"role": "user", "content": said}],
            betas=["context-management-2025-06-27"],
        )
        answer = await runner.until_done()
        return "".join(block.text for block in answer.content if block.type == "text")


if __name__ == "__main__":
    print(asyncio.run(main(*sys.argv[1:])))
