"""A writer with agents for the page: ``python -m tests.support.page_agents``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

from pulse.runs.agents import RunContext
from tests.support.stream_agents import AGENTS
from workers import settings
from workers.writer import main_writer

WORDS = [f"word{number} " for number in range(30)]


async def speak(run: RunContext) -> AsyncIterator[str]:
    """Speak for some seconds."""
    for word in WORDS:
        yield word
        await asyncio.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main_writer(settings.load(), {**AGENTS, "speak": speak}))
