"""Agents for the tests of streams, and a writer that has them: ``python -m tests.support.stream_agents``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from pulse.events import Event
from pulse.runs.agents import AgentError, RunContext, echo
from workers import settings
from workers.writer import main_writer

ARGUMENTS = '{"query": "a/b", "limit": 2}'
LONG = "你好，世界 🦊 \u2028 and the rest of it. "


async def work(run: RunContext) -> None:
    """Emit every kind of event: steps, a thought, a tool, state, a streamed reply, a second one."""
    async with run.step("plan"):
        async with run.thought() as thought:
            for piece in ("I should ", "look ", "it up."):
                await thought.push(piece)
                await asyncio.sleep(0.002)
        await run.write(Event(author="model", event_type="work_plan", content={"steps": ["look", "say"]}))
    await run.set_state({"progress": {"done": 0, "of": 3}, "user:name": "Mei"})
    call = await run.call_tool("search", {"query": "a/b~c", "limit": 2})
    await run.tool_result(call, {"hits": [1, 2], "note": "line\nbreak"})
    async with run.text() as text:
        for word in range(12):
            await text.push(f"word{word} ")
            if word == 6:
                await run.set_state({"progress": {"done": 1, "of": 3}})
            await asyncio.sleep(0.05)
    async with run.text() as text:
        await text.push(LONG)
    await run.set_state({"progress": {"done": 3, "of": 3}})


async def fail(run: RunContext) -> None:
    async with run.text() as text:
        await text.push("I was about to")
        await asyncio.sleep(0.1)
        raise AgentError("no luck today", "no_luck")


async def crash(run: RunContext) -> None:
    raise ValueError("a secret that nobody may see")


async def wait(run: RunContext) -> None:
    async with run.text() as text:
        await text.push("still here ")
        while True:
            await asyncio.sleep(0.05)


async def ask(run: RunContext) -> None:
    if run.input.resume:
        async with run.text() as text:
            await text.push(f"You said {run.input.resume[0]['payload']}")
        return
    run.interrupt({"id": "approve-1", "reason": "approval", "message": "May I?"})


async def delegate(run: RunContext) -> None:
    """Call a tool of the client, and leave the result to it."""
    if run.input.messages[-1]["role"] == "tool":
        async with run.text() as text:
            await text.push(f"The page says {run.input.messages[-1]['content']}")
        return
    await run.call_tool("confirm", {"question": "Sure?"}, tool_call_id=f"call-{run.run.run_id}")


async def long(run: RunContext) -> AsyncIterator[str]:
    for number in range(200):
        yield f"{number}:{LONG}"
        await asyncio.sleep(0)


async def frames(run: RunContext) -> None:
    """Emit about 80 frames of every kind quickly."""
    for turn in range(3):
        async with run.step(f"turn {turn}"):
            async with run.thought() as thought:
                await thought.push("Hm. ")
                await asyncio.sleep(0.06)
                await thought.push(LONG)
            call = await run.call_tool("look", {"turn": turn})
            await run.tool_result(call, {"found": turn})
        await run.set_state({"turn": {"number": turn, "list": list(range(turn))}, "app:seen": turn})
        async with run.text() as text:
            for word in ("one ", "two ", LONG):
                await text.push(word)
                await asyncio.sleep(0.06)
                await run.set_state({f"key {turn}/~": word})


async def flood(run: RunContext) -> None:
    """Emit more large frames than a follower's queue holds."""
    for number in range(30):
        await run.write(
            *(Event(author="model", event_type="work_plan", content={"n": n, "pad": "x" * 12000}) for n in range(50))
        )
        async with run.text() as text:
            await text.push(f"part {number}")


async def pause() -> None:
    await asyncio.sleep(0.05)


async def emit(run: RunContext, wait: Callable[[], Awaitable[Any]] = pause) -> None:
    """Emit every kind of event of an agent's own: reasoning, streamed calls, activities, subagents, usage.

    Args:
        wait: called after each piece of a call's arguments; pieces that are written at once may be sent as one.
    """
    async with run.thought() as thought:
        await thought.push("I look it up.")
        thought.encrypted_value = "opaque"
    async with run.streamed_call("search", tool_call_id=f"call-{run.run.run_id}") as call:
        for piece in (ARGUMENTS[:9], ARGUMENTS[9:]):
            await call.push(piece)
            await wait()
    await run.tool_result(call.message_id, "no such index", is_error=True)
    await run.call_tool("look", {"n": 1}, tool_call_id=f"look-{run.run.run_id}", encrypted_value="sealed")
    await run.tool_result(f"look-{run.run.run_id}", {"n": 1})
    await run.custom("shop:stock", {"left": 3})
    await run.custom("shop:progress", 0.5, transient=True)
    plan = await run.activity("PLAN", {"steps": ["look"]})
    await run.change_activity(plan, "PLAN", [{"op": "add", "path": "/steps/-", "value": "say"}])
    async with run.subagent("writer", description="writes the answer"):
        async with run.text() as text:
            await text.push("Three are left.")
    for _ in range(2):
        run.add_usage(provider="local", model="tiny", input_tokens=7, output_tokens=5)
    run.add_usage(provider=None, model="other", input_tokens=1, output_tokens=None)


AGENTS = {
    "emit": emit,
    "default": work,
    "echo": echo,
    "fail": fail,
    "crash": crash,
    "wait": wait,
    "ask": ask,
    "delegate": delegate,
    "long": long,
    "frames": frames,
    "flood": flood,
}

if __name__ == "__main__":
    sys.exit(main_writer(settings.load(), AGENTS))
