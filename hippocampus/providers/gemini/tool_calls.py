"""Conversations with tools in generate_content."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Sequence

from google.genai import types

from hippocampus.providers.gemini.answers import read_answer
from hippocampus.providers.tool_calls import (
    ModelStep,
    ModelTurn,
    ResultTurn,
    ToolCall,
    ToolSpec,
    Turn,
    object_arguments,
)


def contents_of(turns: Sequence[Turn]) -> list[types.Content]:
    """Return a conversation as the API has it: results of one turn are together."""
    contents: list[types.Content] = []
    for turn in turns:
        if isinstance(turn, ModelTurn):
            role = "model"
            parts = [types.Part(text=turn.text)] if turn.text else []
            for call in turn.calls:
                function = types.FunctionCall(id=call.id, name=call.name, args=object_arguments(call.arguments))
                signature = None if call.signature is None else base64.b64decode(call.signature)
                parts.append(types.Part(function_call=function, thought_signature=signature))
        elif isinstance(turn, ResultTurn):
            role = "user"
            key = "error" if turn.is_error else "output"
            found = types.FunctionResponse(id=turn.call_id, name=turn.name, response={key: turn.text})
            parts = [types.Part(function_response=found)]
        else:
            role = "user"
            parts = [types.Part(text=turn.text)]
        if contents and contents[-1].role == role and contents[-1].parts is not None:
            contents[-1].parts.extend(parts)
        elif parts:
            contents.append(types.Content(role=role, parts=parts))
    return contents


def tools_of(tools: Sequence[ToolSpec]) -> list[types.Tool] | None:
    """Return tools as the API has them."""
    if not tools:
        return None
    declared = [
        types.FunctionDeclaration(
            name=tool.name, description=tool.description, parameters_json_schema=dict(tool.parameters)
        )
        for tool in tools
    ]
    return [types.Tool(function_declarations=declared)]


def read_step(response: types.GenerateContentResponse) -> ModelStep:
    """Read a response.

    Raises:
        BlockedReplyError: the prompt or the reply was refused.
    """
    answer = read_answer(response)
    candidate = response.candidates[0] if response.candidates else None
    parts = (candidate.content.parts if candidate and candidate.content else None) or []
    calls = []
    for part in parts:
        if part.function_call is not None and part.function_call.name:
            signature = part.thought_signature
            calls.append(
                ToolCall(
                    id=part.function_call.id or str(uuid.uuid4()),
                    name=part.function_call.name,
                    arguments=part.function_call.args or {},
                    signature=None if signature is None else base64.b64encode(signature).decode(),
                )
            )
    return ModelStep(
        text=answer.text,
        thought="".join(part.text for part in parts if part.text and part.thought),
        calls=tuple(calls),
        usage=answer.usage,
        is_cut=answer.is_cut,
        finish_reason=answer.finish_reason,
        model_version=answer.model_version,
    )
