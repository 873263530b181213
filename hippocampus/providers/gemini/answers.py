"""Answers of Gemini's generating models: text, tokens, and whether the model refused."""

from __future__ import annotations

import json

from google.genai import types

from hippocampus.errors import BlockedReplyError
from hippocampus.providers.generation import Answer
from hippocampus.records import Usage

#: The model stopped because of what it read or was about to write.
_REFUSALS = frozenset({"SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY"})


def usage_of(response: types.GenerateContentResponse) -> Usage:
    """Return the tokens of a response; 0 if it names none."""
    counts = response.usage_metadata
    if counts is None:
        return Usage()
    return Usage(
        prompt_tokens=counts.prompt_token_count or 0,
        output_tokens=(counts.candidates_token_count or 0) + (counts.thoughts_token_count or 0),
    )


def read_answer(response: types.GenerateContentResponse) -> Answer:
    """Read a response.

    Raises:
        BlockedReplyError: the prompt or the reply was refused.
    """
    raw = _raw(response)
    if response.prompt_feedback is not None and response.prompt_feedback.block_reason is not None:
        reason = response.prompt_feedback.block_reason.value
        raise BlockedReplyError(f"Gemini refused the conversation: {reason}", code="blocked", raw_reply=raw)
    candidate = response.candidates[0] if response.candidates else None
    finish_reason = candidate.finish_reason.value if candidate and candidate.finish_reason else ""
    if finish_reason in _REFUSALS:
        raise BlockedReplyError(f"Gemini refused to answer: {finish_reason}", code="blocked", raw_reply=raw)
    parts = (candidate.content.parts if candidate and candidate.content else None) or []
    return Answer(
        text="".join(part.text for part in parts if part.text and not part.thought),
        raw=raw,
        finish_reason=finish_reason,
        is_cut=finish_reason == "MAX_TOKENS",
        model_version=response.model_version,
        usage=usage_of(response),
    )


def _raw(response: types.GenerateContentResponse) -> str:
    try:
        return response.model_dump_json(exclude_none=True, exclude={"sdk_http_response"})
    except ValueError:
        # pydantic refuses lone surrogates.
        return json.dumps(response.model_dump(exclude_none=True, exclude={"sdk_http_response"}), default=str)
