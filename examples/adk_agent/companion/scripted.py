"""A model that needs no key: it repeats what the memory found, and so makes it visible."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types


class ScriptedModel(BaseLlm):
    """Answers a question with the best line that the memory found, and acknowledges any other message."""

    model: str = "scripted"

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        texts = [part.text for content in llm_request.contents for part in content.parts or [] if part.text]
        messages = [text for text in texts if "<PAST_CONVERSATIONS>" not in text]
        recalled = [line for text in texts if "<PAST_CONVERSATIONS>" in text for line in text.splitlines()]
        answer = "I'll remember that."
        if messages[-1].endswith("?"):
            lines = [line.removeprefix("user: ") for line in recalled if line.startswith("user: ")]
            answer = f"You told me: {lines[0]}" if lines else "You have not told me yet."
        yield LlmResponse(
            content=types.Content(role="model", parts=[types.Part(text=answer)]),
            usage_metadata=types.GenerateContentResponseUsageMetadata(
                prompt_token_count=len(" ".join(texts).split()), candidates_token_count=len(answer.split())
            ),
        )
