"""What a model was asked and what it replied, as the spans of its calls say it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hippocampus.providers.calls import Said
from hippocampus.providers.generation import Answer, Message
from hippocampus.providers.tool_calls import ModelStep, ModelTurn, ToolCall, Turn, UserTurn
from pulse.model_messages import call_part, message, result_part, text_part


def turns_as_messages(turns: Sequence[Turn], system: str) -> list[dict[str, Any]]:
    """Return a conversation with tools."""
    found = [message("system", [text_part(system)])] if system else []
    for turn in turns:
        if isinstance(turn, UserTurn):
            found.append(message("user", [text_part(turn.text)]))
        elif isinstance(turn, ModelTurn):
            found.append(message("assistant", _parts(turn.text, turn.calls)))
        else:
            found.append(message("tool", [result_part(turn.call_id, _read(turn.text))]))
    return found


def task_as_messages(prompt: str, messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the messages of a task of extraction."""
    roles = {"model": "assistant"}
    return [
        message("system", [text_part(prompt)]),
        *(message(roles.get(role, role), [text_part(text)]) for role, text in messages),
    ]


def said_by_step(step: ModelStep) -> Said:
    """Return what a model's turn says."""
    reply = message("assistant", _parts(step.text, step.calls))
    return Said(model=step.model_version, finish_reason=step.finish_reason, messages=[reply])


def said_by_answer(answer: Answer) -> Said:
    """Return what an answer says."""
    reply = message("assistant", _parts(answer.text, ()))
    return Said(model=answer.model_version, finish_reason=answer.finish_reason, messages=[reply])


def _read(text: str) -> Any:
    """Return a result as the value that it is, so that what its keys name as secret is hidden; else its text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _parts(text: str, calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    said = [text_part(text)] if text else []
    return [*said, *(call_part(call.id, call.name, call.arguments) for call in calls)]
