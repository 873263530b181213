"""An agent that remembers across sessions. Nothing here knows where its memory is kept."""

from __future__ import annotations

import os

from google.adk.agents import LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.tools.preload_memory_tool import PreloadMemoryTool

from companion.scripted import ScriptedModel

HAS_KEY = bool(os.environ.get("GOOGLE_API_KEY") or os.environ.get("GEMINI_API_KEY"))


async def remember(callback_context: CallbackContext) -> None:
    """Pass the session to the memory after each turn: a worker extracts memories from what is new."""
    await callback_context.add_session_to_memory()


root_agent = LlmAgent(
    name="companion",
    model="gemini-flash-lite-latest" if HAS_KEY else ScriptedModel(),
    instruction="You are a companion who remembers. Answer in one short sentence, from what the user told you.",
    tools=[PreloadMemoryTool()],
    after_agent_callback=remember,
)
