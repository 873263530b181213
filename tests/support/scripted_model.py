"""A model that calls tools by a script: each reply is decided by the conversation, not by how often it was asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hippocampus.providers.tool_calls import ModelStep, ResultTurn, ToolCall, ToolSpec, Turn, UserTurn
from hippocampus.records import Usage

Reply = str | Sequence[tuple[str, Mapping[str, Any]]] | Exception
Script = Callable[[list[ResultTurn], str], Reply]


class ScriptedModel:
    """Asks the script for its reply to the results since the user's last message."""

    name = "scripted"
    model = "script"

    def __init__(self, script: Script, *, usage: Usage | None = None) -> None:
        self._script = script
        self._usage = usage or Usage(prompt_tokens=10, output_tokens=5)
        self.asked: list[tuple[Sequence[Turn], Sequence[ToolSpec]]] = []

    async def converse(
        self, turns: Sequence[Turn], tools: Sequence[ToolSpec], *, system: str = "", tokens_max: int | None = None
    ) -> ModelStep:
        self.asked.append((turns, tools))
        results: list[ResultTurn] = []
        question = ""
        for turn in turns:
            if isinstance(turn, UserTurn):
                question, results = turn.text, []
            elif isinstance(turn, ResultTurn):
                results.append(turn)
        reply = self._script(results, question)
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, str):
            return ModelStep(text=reply, usage=self._usage)
        # The same ids each time, as some servers give them.
        calls = tuple(ToolCall(id=f"call_{n}", name=name, arguments=given) for n, (name, given) in enumerate(reply))
        return ModelStep(text="", thought=f"I need {len(calls)} tools.", calls=calls, usage=self._usage)
