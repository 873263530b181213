"""A writer with agents for the page: ``python -m tests.support.page_agents``."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from pulse.events import Event
from pulse.runs.agents import RunContext
from tests.support.stream_agents import AGENTS
from workers import settings
from workers.writer import main_writer


async def speak(run: RunContext) -> AsyncIterator[str]:
    """Speak until the file is there that the user named."""
    enough = Path(run.input.messages[-1]["content"])
    for number in itertools.count():
        yield f"word{number} "
        if enough.exists():
            return
        await asyncio.sleep(0.1)


async def steps(run: RunContext) -> None:
    """Do a first step of more events than the page keeps, and a second one; say which models were called."""
    async with run.step("gather"):
        await run.write(*(Event(author="model", event_type="work_plan", content={"n": n}) for n in range(600)))
    async with run.step("answer"), run.text() as text:
        await text.push("Three are left.")
    run.add_usage(provider="local", model="tiny", input_tokens=700, output_tokens=500)
    run.add_usage(provider="local", model="other", input_tokens=10, output_tokens=1)


if __name__ == "__main__":
    sys.exit(main_writer(settings.load(), {**AGENTS, "speak": speak, "steps": steps}))
