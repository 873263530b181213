"""`tests.support.executor_process` with an executor over ADK: the same tools, points and arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.adk.models import LlmRequest
from google.genai import types

from hippocampus.mind.executor import AgentExecutor, ExecutionResult
from pulse.adk import PostgresSessionService
from pulse.adk.agent import AdkAgent
from pulse.adk.toolset import RegistryToolset
from tests.support import executor_process
from tests.support.adk import scripted


def script(request: LlmRequest) -> scripted.Reply:
    """Two calls at once, then one, then the answer: what every result says, by what the model is shown."""
    parts = [part for content in request.contents for part in content.parts or []]
    results = [part.function_response.response for part in parts if part.function_response]
    if not results:
        return [_call("read", 1), _call("pay", 2)]
    if len(results) == 2:
        return _call("read", 3)
    return types.Part(text="done: " + "; ".join(map(str, results)))


def _call(name: str, n: int) -> types.Part:
    return types.Part(function_call=types.FunctionCall(name=name, args={"n": n}))


async def execute(
    dsn: str,
    message: str | None,
    resume: Sequence[Mapping[str, Any]] = (),
    *,
    confirmed: bool = False,
    answer: Any = script,
) -> ExecutionResult:
    async with (
        executor_process.opened(dsn, confirmed=confirmed) as (pool, registry),
        PostgresSessionService(dsn) as sessions,
    ):
        agent = AdkAgent(scripted.agent(answer, tools=[RegistryToolset(registry)]), sessions, interrupts=True)
        executor = AgentExecutor(agent, registry)
        lease = executor_process.LEASE_SECONDS
        return await executor.run(pool, executor_process.KEY, message, resume=resume, lease_seconds=lease)


if __name__ == "__main__":
    executor_process.main(execute)
