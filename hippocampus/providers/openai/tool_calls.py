"""Conversations with tools in chat/completions."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from hippocampus.providers.openai.answers import first_choice, read_answer
from hippocampus.providers.tool_calls import (
    ModelStep,
    ModelTurn,
    ResultTurn,
    ToolCall,
    ToolSpec,
    Turn,
    read_arguments,
    written_arguments,
)


def messages_of(turns: Sequence[Turn], system: str) -> list[dict[str, Any]]:
    """Return a conversation as the API has it."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    for turn in turns:
        if isinstance(turn, ResultTurn):
            messages.append({"role": "tool", "tool_call_id": turn.call_id, "content": turn.text})
        elif isinstance(turn, ModelTurn):
            message: dict[str, Any] = {"role": "assistant", "content": turn.text or None}
            if turn.calls:
                message["tool_calls"] = [
                    {
                        "id": call.id,
                        "type": "function",
                        "function": {"name": call.name, "arguments": written_arguments(call.arguments)},
                    }
                    for call in turn.calls
                ]
            messages.append(message)
        else:
            messages.append({"role": "user", "content": turn.text})
    return messages


def tools_of(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """Return tools as the API has them."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
        }
        for tool in tools
    ]


def read_step(body: Mapping[str, Any]) -> ModelStep:
    """Read a reply.

    Raises:
        BlockedReplyError: the prompt or the reply was refused.
    """
    choice = first_choice(body)
    assert choice is not None  # noqa: S101 - it was checked when it was received
    answer = read_answer(body, choice)
    message = choice["message"]
    calls = []
    for each in message.get("tool_calls") or ():
        function = each.get("function") if isinstance(each, Mapping) else None
        if isinstance(function, Mapping) and isinstance(function.get("name"), str):
            arguments = read_arguments(function.get("arguments") or "")
            calls.append(ToolCall(id=str(each.get("id") or uuid.uuid4()), name=function["name"], arguments=arguments))
    thought = message.get("reasoning_content") or message.get("reasoning")
    return ModelStep(
        text=answer.text,
        thought=thought if isinstance(thought, str) else "",
        calls=tuple(calls),
        usage=answer.usage,
        is_cut=answer.is_cut,
        finish_reason=answer.finish_reason,
        model_version=answer.model_version,
    )
