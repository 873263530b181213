"""A stand-in for a model, so that the example runs without a key: it calls tools by rules."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hippocampus import ModelStep, ResultTurn, ToolCall, ToolSpec, Turn, UserTurn


class ScriptedModel:
    """Recalls and searches at once, calculates with what it found, remembers, and answers."""

    name = "scripted"
    model = "rules"

    async def converse(
        self, turns: Sequence[Turn], tools: Sequence[ToolSpec], *, system: str = "", tokens_max: int | None = None
    ) -> ModelStep:
        last = max(number for number, turn in enumerate(turns) if isinstance(turn, UserTurn))
        results = {turn.name: turn.text for turn in turns[last:] if isinstance(turn, ResultTurn)}
        if "find_papers" not in results:
            return self._call(
                "I look in the library, in the methods, and for what I know.",
                recall={"query": "tides"},
                look_up={"query": "mean height of tides"},
                find_papers={"topic": "tides"},
            )
        papers = json.loads(results["find_papers"])
        heights = [height for paper in papers for height in paper["heights_cm"]]
        if "calculate" not in results:
            code = f"heights = {heights}\nround(sum(heights) / len(heights), 1)"
            return self._call("I calculate the mean.", calculate={"code": code})
        mean = json.loads(results["calculate"])["value"]
        if "remember" not in results:
            return self._call("I keep it.", remember={"fact": f"The mean tide of {len(papers)} papers is {mean} cm."})
        known = results["recall"]
        method = json.loads(results["look_up"])[0]["source"]
        before = " I knew that from before." if str(mean) in known else ""
        return ModelStep(text=f"The mean tide in {len(papers)} papers is {mean} cm, as {method} has it.{before}")

    @staticmethod
    def _call(thought: str, **calls: dict[str, str]) -> ModelStep:
        made = [ToolCall(id=name, name=name, arguments=arguments) for name, arguments in calls.items()]
        return ModelStep(thought=thought, calls=tuple(made))
