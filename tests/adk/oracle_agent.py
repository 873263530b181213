"""One agent of ADK, for both ways to the wire: ``python -m tests.adk.oracle_agent`` is a writer that runs it."""

from __future__ import annotations

import sys

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.models import LlmRequest
from google.adk.runners import InMemoryRunner
from google.adk.tools import ToolContext
from google.genai import types

from pulse.agents import RunContext
from tests.adk.scripted import Reply, agent, last_text, user_says
from workers import settings
from workers.writer import main_writer


def look_up(place: str, tool_context: ToolContext) -> dict[str, object]:
    """Look a place up."""
    tool_context.state["place"] = {"name": place, "seen": 1}
    tool_context.state["user:last"] = place
    return {"found": place, "stars": 3}


def script(request: LlmRequest) -> Reply:
    """Call the tool once a turn, then answer."""
    parts = request.contents[-1].parts or []
    if any(part.function_response for part in parts):
        return types.Part(text=f"Three stars, 你好 🦊: {last_text(request)}")
    return types.Part(function_call=types.FunctionCall(name="look_up", args={"place": last_text(request)}))


def scripted() -> LlmAgent:
    return agent(script, tools=[look_up])


async def run_adk(run: RunContext) -> None:
    """Hand what ADK's Runner yields on, as it comes."""
    runner = InMemoryRunner(scripted(), app_name="oracle")
    session = await runner.session_service.create_session(app_name="oracle", user_id="ann")
    async for event in runner.run_async(
        user_id="ann",
        session_id=session.id,
        new_message=user_says(run.last_user_text),
        run_config=RunConfig(streaming_mode=StreamingMode.NONE),
    ):
        for part in event.content.parts or [] if event.content else []:
            if call := part.function_call:
                await run.call_tool(call.name, call.args, tool_call_id=call.id)
            elif answer := part.function_response:
                await run.tool_result(answer.id, answer.response)
            elif part.text:
                async with run.text() as text:
                    for piece in (part.text[:5], part.text[5:]):
                        await text.push(piece)
        if event.actions.state_delta:
            await run.set_state(event.actions.state_delta)


if __name__ == "__main__":
    sys.exit(main_writer(settings.load(), {"default": run_adk}))
