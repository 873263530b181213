"""Conversations with tools in messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hippocampus.providers.tool_calls import ModelTurn, ResultTurn, ToolCall, ToolSpec, Turn, object_arguments


def messages_of(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """Return a conversation as the API has it: results of one turn are together in one message of the user."""
    messages: list[dict[str, Any]] = []
    for turn in turns:
        if isinstance(turn, ModelTurn):
            role = "assistant"
            blocks: list[dict[str, Any]] = [{"type": "text", "text": turn.text}] if turn.text else []
            blocks += [
                {"type": "tool_use", "id": call.id, "name": call.name, "input": object_arguments(call.arguments)}
                for call in turn.calls
            ]
        elif isinstance(turn, ResultTurn):
            role = "user"
            blocks = [
                {"type": "tool_result", "tool_use_id": turn.call_id, "content": turn.text, "is_error": turn.is_error}
            ]
        else:
            role = "user"
            blocks = [{"type": "text", "text": turn.text}]
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        elif blocks:
            messages.append({"role": role, "content": blocks})
    return messages


def tools_of(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """Return tools as the API has them."""
    return [
        {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)} for tool in tools
    ]


def former_tools(turns: Sequence[Turn]) -> list[ToolSpec]:
    """Return a description of each tool that was called."""
    names = {call.name: None for turn in turns if isinstance(turn, ModelTurn) for call in turn.calls}
    return [ToolSpec(name=name, description="", parameters={"type": "object"}) for name in names]


def calls_of(reply: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    """Return the calls of a reply."""
    return tuple(
        ToolCall(id=str(block.get("id")), name=str(block.get("name")), arguments=block.get("input"))
        for block in reply["content"]
        if isinstance(block, Mapping) and block.get("type") == "tool_use"
    )


def thought_of(reply: Mapping[str, Any]) -> str:
    """Return what the model says of its reasoning."""
    return "".join(
        str(block.get("thinking") or "")
        for block in reply["content"]
        if isinstance(block, Mapping) and block.get("type") == "thinking"
    )
