"""A model without a key: it repeats what the memory brought, so that one can see what that was."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types


class ScriptedModel(BaseLlm):
    """Answers a question with the best line that the memory put before it, and takes note of anything else."""

    model: str = "scripted"

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        texts = [part.text for content in llm_request.contents for part in content.parts or [] if part.text]
        said = [text for text in texts if "<PAST_CONVERSATIONS>" not in text]
        recalled = [line for text in texts if "<PAST_CONVERSATIONS>" in text for line in text.splitlines()]
        answer = "I'll remember that."
        if said[-1].endswith("?"):
            told = [line.removeprefix("user: ") for line in recalled if line.startswith("user: ")]
            answer = f"You told me: {told[0]}" if told else "You have not told me yet."
        yield LlmResponse(
            content=types.Content(role="model", parts=[types.Part(text=answer)]),
            usage_metadata=types.GenerateContentResponseUsageMetadata(
                prompt_token_count=len(" ".join(texts).split()), candidates_token_count=len(answer.split())
            ),
        )
