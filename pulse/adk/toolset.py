"""The registered tools of an app as a toolset of Google ADK."""

from __future__ import annotations

import json
import uuid
from datetime import datetime
from typing import TYPE_CHECKING, Any

from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from pulse.adk.session_rows import moment
from pulse.adk.steps import within_step
from pulse.tools.records import Tool, ToolExecution, ToolOutcome

if TYPE_CHECKING:
    from google.adk.agents.readonly_context import ReadonlyContext
    from google.adk.sessions import Session

    from pulse.tools.registry import ToolRegistry

_KEYS = uuid.UUID("0c0b8f8e-6d5b-4a86-9f55-8f6f7c1f9a34")


def idempotency_key(app_name: str, user_id: str, session_id: str, invocation_id: str, call_id: str) -> str:
    """Return the key of a call: the same for each of its attempts.

    An invocation keeps its id when it is resumed. It is in the key since models repeat the ids of calls.
    """
    return str(uuid.uuid5(_KEYS, json.dumps([app_name, user_id, session_id, invocation_id, call_id])))


class RegistryToolset(BaseToolset):
    """What the invocation's user may call of an app's tools, read again for each call of the model.

    Args:
        agent: the name by which permissions know the agent; that of the ADK agent by default.
    """

    # A change is in force for the next call of the model, even within an invocation.
    _use_invocation_cache = False

    def __init__(self, registry: ToolRegistry, *, agent: str | None = None) -> None:
        super().__init__()
        self._registry = registry
        self._agent = agent

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """Return the tools of the invocation's user; without one, those that every user may call."""
        user = "" if readonly_context is None else readonly_context.user_id
        agent = self._agent
        if agent is None and readonly_context is not None:
            agent = readonly_context.agent_name
        found = await self._registry.get_available_tools(user, agent=agent)
        return [_RegisteredTool(self._registry, tool, agent) for tool in found if tool.kind != "client"]

    async def close(self) -> None:
        """Leave the registry to its owner."""


class _RegisteredTool(BaseTool):
    def __init__(self, registry: ToolRegistry, tool: Tool, agent: str | None) -> None:
        super().__init__(name=tool.name, description=tool.description or tool.display_name or tool.name)
        self._registry = registry
        self._tool = tool
        self._agent = agent

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=dict(self._tool.input_schema)
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        with within_step(tool_context):
            return await self._run(args, tool_context)

    async def _run(self, args: dict[str, Any], tool_context: ToolContext) -> Any:
        user = tool_context.user_id
        call_id = tool_context.function_call_id or str(uuid.uuid4())
        session = tool_context.session
        key = idempotency_key(session.app_name, user, session.id, tool_context.invocation_id, call_id)
        run_id = await self._registry.live_run(user, session.id)
        decision = tool_context.tool_confirmation
        if decision is not None:
            # ADK makes the call that waited once more, with the person's decision.
            last = await self._registry.last_execution(
                call_id,
                user_id=user,
                session_id=session.id,
                asked_at=_asked_at(session, call_id),
                outside_runs=run_id is None,
            )
            if last is not None and last.tool_name != self.name:
                last = None
            if last is not None and last.status != "waiting":
                return _recorded(last).for_model()
            if last is not None:
                outcome = await self._registry.confirm(
                    last.id, user_id=user, approved=decision.confirmed, idempotency_key=key
                )
                return outcome.for_model()
        outcome = await self._registry.call(
            self.name,
            args,
            run_id=run_id,
            user_id=user,
            tool_call_id=call_id,
            idempotency_key=key,
            agent=self._agent,
        )
        if outcome.status == "waiting":
            tool_context.request_confirmation(hint=f"Confirm {self.name}")
            tool_context.actions.skip_summarization = True
        return outcome.for_model()


def _asked_at(session: Session, call_id: str) -> datetime | None:
    """Return the time of the last event that asks for a call."""
    for event in reversed(session.events):
        if any(call.id == call_id for call in event.get_function_calls()):
            return moment(event.timestamp)
    return None


def _recorded(last: ToolExecution) -> ToolOutcome:
    """Return what is known of a call on which a person has decided before."""
    if last.status == "succeeded":
        return ToolOutcome(status="succeeded", execution_id=last.id, value=last.output_result)
    if last.status in ("running", "unknown", "cancelled"):
        message = "this call was begun before, and may have happened: check before you repeat it"
        return ToolOutcome(status="unknown", execution_id=last.id, error_code="outcome_unknown", error=message)
    code: Any = last.error_code or "tool_failed"
    return ToolOutcome(status=last.status, execution_id=last.id, error_code=code, error=last.error or "it failed")
