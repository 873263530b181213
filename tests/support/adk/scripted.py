"""A scripted model for ADK, and an agent that uses it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.genai import types

Reply = types.Part | Sequence[types.Part]


class ScriptedLlm(BaseLlm):
    """Replies with a function of the request; streams the text in two pieces if streaming is requested."""

    model: str = "scripted"
    answer: Callable[[LlmRequest], Reply]
    usage: types.GenerateContentResponseUsageMetadata | None = None
    version: str | None = None
    finish: types.FinishReason | None = None

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        reply = self.answer(llm_request)
        parts = [reply] if isinstance(reply, types.Part) else list(reply)
        text = parts[0].text
        if stream and text:
            for piece in (text[: len(text) // 2], text[len(text) // 2 :]):
                yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=piece)]), partial=True)
        yield LlmResponse(
            content=types.Content(role="model", parts=parts),
            usage_metadata=self.usage,
            model_version=self.version,
            finish_reason=self.finish,
        )


def last_text(request: LlmRequest) -> str:
    """The text of the last content."""
    texts = [part.text for content in request.contents for part in content.parts or [] if part.text]
    return texts[-1] if texts else ""


def echo(request: LlmRequest) -> types.Part:
    """Reply with the last message, and the number of turns that the model received."""
    return types.Part(text=f"[{len(request.contents)}] you said: {last_text(request)}")


def agent(answer: Callable[[LlmRequest], Reply] = echo, **fields: Any) -> LlmAgent:
    return LlmAgent(**{"name": "helper", "model": ScriptedLlm(answer=answer), "instruction": "", **fields})


def user_says(text: str) -> types.Content:
    return types.Content(role="user", parts=[types.Part(text=text)])
