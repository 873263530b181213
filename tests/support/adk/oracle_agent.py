"""One ADK agent, for both ways to the wire."""

from __future__ import annotations

from google.adk.agents import LlmAgent
from google.adk.models import LlmRequest
from google.adk.tools import ToolContext
from google.genai import types

from tests.support.adk.scripted import Reply, agent, last_text


def look_up(place: str, tool_context: ToolContext) -> dict[str, object]:
    """Look up a place."""
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
