"""A session's stored conversation as a model is shown it, and the calls in it that have no result yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hippocampus.providers.tool_calls import ModelTurn, ResultTurn, ToolCall, Turn, UserTurn, read_arguments

#: Characters of one result that a model is shown.
RESULT_CHARACTERS_MAX = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A conversation.

    Attributes:
        open_calls: without a result, the oldest first.
    """

    turns: tuple[Turn, ...]
    open_calls: tuple[ToolCall, ...]


def read_conversation(history: Sequence[Mapping[str, Any]]) -> Conversation:
    """Return a conversation from messages of AG-UI, as `RunContext.history` gives them.

    Calls that follow each other are of one turn, and each result is moved right behind its turn: servers of models
    refuse any other order. A result without its call, which may lie before the history's beginning, is left out.
    """
    results = {
        message["toolCallId"]: (_text(message.get("content")), message.get("error") is not None)
        for message in history
        if message.get("role") == "tool"
    }
    turns: list[Turn] = []
    open_calls: list[ToolCall] = []
    text = ""
    calls: list[ToolCall] = []

    def close() -> None:
        nonlocal text, calls
        answered = tuple(call for call in calls if call.id in results)
        open_calls.extend(call for call in calls if call.id not in results)
        if text or answered:
            turns.append(ModelTurn(text=text, calls=answered))
        for call in answered:
            found, is_error = results[call.id]
            shown = found if len(found) <= RESULT_CHARACTERS_MAX else f"{found[:RESULT_CHARACTERS_MAX]}… (cut)"
            turns.append(ResultTurn(call_id=call.id, name=call.name, text=shown, is_error=is_error))
        text, calls = "", []

    for message in history:
        role = message.get("role")
        if role == "assistant":
            found = _text(message.get("content"))
            if calls and found:
                close()
            text = "\n".join(filter(None, (text, found)))
            calls += [_call(each) for each in message.get("toolCalls") or ()]
        elif role == "user":
            close()
            turns.append(UserTurn(text=_text(message.get("content"))))
    close()
    return Conversation(turns=tuple(turns), open_calls=tuple(open_calls))


def _call(given: Mapping[str, Any]) -> ToolCall:
    function = given["function"]
    return ToolCall(
        id=given["id"],
        name=function["name"],
        arguments=read_arguments(function.get("arguments") or ""),
        signature=given.get("encryptedValue"),
    )


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part["text"]) for part in parts if isinstance(part, Mapping) and part.get("type") == "text")
