"""An agent of Google ADK as one that ``POST /agui`` runs.

    from pulse.adk import PostgresSessionService
    from pulse.adk.agent import AdkAgent

    sessions = PostgresSessionService(url)
    main_writer(settings.load(), agents={"default": AdkAgent(root_agent, sessions)})

The session of the run is the agent's session: what the agent does is stored once, as events of the run, and ADK reads
them back as its own. A text that the model streams is streamed, thoughts too. Tools of the client are offered to the
model; a call of one ends the run, and the client sends the result with its next run. A call that waits for somebody
outside ends the run as well, and is answered by ``resume``.

While a run of a session goes on, another is refused: ADK reads a session once and knows nothing of who writes beside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any, cast

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode  # type: ignore[attr-defined]  # as its own documents do
from google.adk.apps import App
from google.adk.artifacts import BaseArtifactService
from google.adk.events import Event
from google.adk.memory import BaseMemoryService
from google.adk.runners import Runner
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from typing_extensions import override

from pulse.adk import interrupts
from pulse.adk.run_sessions import RunSessions
from pulse.adk.sessions import PostgresSessionService
from pulse.live_text import Kind, LiveText
from pulse.runs.agents import AgentError, RunContext

_TYPES: Mapping[Kind, str] = {"text": "assistant_message", "thought": "thought"}


class AdkAgent:
    """A `pulse.runs.agents.Agent` that has an ADK runner execute an agent or an app, on the services given.

    Attributes:
        runs_alone: see `pulse.runs.agents.runs_alone`.
    """

    runs_alone = True

    def __init__(
        self,
        agent: BaseAgent | App,
        sessions: PostgresSessionService,
        *,
        memory: BaseMemoryService | None = None,
        artifacts: BaseArtifactService | None = None,
        run_config: RunConfig | None = None,
        interrupts: bool = False,
    ) -> None:
        """Describe the agent; nothing is opened.

        Args:
            agent: the root agent, or an app with its plugins and configurations. The run's app name stands for its own.
            sessions: on the writer's database. What it opened is the caller's to close.
            memory: for tools such as PreloadMemoryTool.
            artifacts: for files.
            run_config: by default one that streams.
            interrupts: end a run that waits for somebody outside with AG-UI's outcome `interrupt`, which the next run
                must answer by `resume`; by default the call is pending, and may be answered by `resume` all the same.
        """
        self._app = agent if isinstance(agent, App) else None
        root = agent.root_agent if isinstance(agent, App) else agent
        self._root = cast("BaseAgent", root)
        self._sessions = sessions
        self._memory = memory
        self._artifacts = artifacts
        self._run_config = run_config or RunConfig(streaming_mode=StreamingMode.SSE)
        self._interrupts = interrupts

    async def __call__(self, run: RunContext) -> None:
        """Execute one run.

        Raises:
            AgentError: there is nothing to answer, `resume` answers what does not wait, or the model failed: it says
                why.
        """
        said, answers = _asked(run.input.messages)
        if run.input.resume:
            answers = await self._resume(run, answers)
        asked = said or answers
        if not asked:
            raise AgentError("send a message of the user's, or the result of a tool", "nothing_to_answer")
        spoken = _Spoken(run)
        sessions = RunSessions(self._sessions, run, asked, spoken.ids)
        events = self._runner(run, sessions).run_async(
            user_id=run.run.user_id,
            session_id=run.run.session_id,
            new_message=sessions.message,
            run_config=self._run_config,
        )
        failure: AgentError | None = None
        stored: list[Event] = []
        try:
            async with aclosing(events) as turns:
                async for event in turns:
                    failure = _failure_of(event)
                    if event.partial:
                        await spoken.say(event)
                    else:
                        await spoken.end()
                        stored.append(event)
        finally:
            spoken.abandon()
        if failure is not None:
            raise failure
        if self._interrupts and (open_ones := interrupts.interrupts_of(stored, _names(run.input.tools))):
            run.interrupt(*open_ones)

    async def _resume(self, run: RunContext, answers: Mapping[str, Any]) -> dict[str, Any]:
        """Store what ``resume`` answers, as results of the calls that wait, and return it beside the client's answers.

        Results that the agent's own tools gave stand among a client's messages, too: they are not given to it again.
        """
        names = run.run
        session = await self._sessions.get_session(
            app_name=names.app_name, user_id=names.user_id, session_id=names.session_id
        )
        events = session.events if session else []
        resumed = interrupts.answers_of(run.input.resume, events)
        await run.write(*resumed.values())
        own = {given.id for each in events if each.author != "user" for given in each.get_function_responses()}
        new = {each: content for each, content in answers.items() if content["tool_call_id"] not in own}
        return {**new, **{each: answer.content for each, answer in resumed.items()}}

    def _runner(self, run: RunContext, sessions: RunSessions) -> Runner:
        """Return the runner of one run: ADK keeps nothing in it that outlives the run."""
        root = _with_tools(self._root, run.input.tools)
        services: dict[str, Any] = {
            "app_name": run.run.app_name,
            "session_service": sessions,
            "memory_service": self._memory,
            "artifact_service": self._artifacts,
        }
        if self._app is None:
            return Runner(agent=root, **services)
        return Runner(app=self._app.model_copy(update={"root_agent": root}), **services)


class _Spoken:
    """The messages that the model streams, until ADK stores the event that has them whole."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._open: dict[Kind, LiveText] = {}
        self._stored: list[LiveText] = []

    async def say(self, event: Event) -> None:
        """Stream what is new in a partial event."""
        for part in event.content.parts or [] if event.content else []:
            if part.text:
                kind: Kind = "thought" if part.thought else "text"
                if kind not in self._open:
                    # What was said before is sent first: clients show messages in the order of their beginning.
                    for other in self._open.values():
                        await other.end()
                    self._open[kind] = self._run.open_text(kind)
                await self._open[kind].push(part.text)

    def ids(self) -> Mapping[str, str]:
        """Return what was streamed for the event that is to be stored next, by type; what comes then is new."""
        opened, self._open = self._open, {}
        self._stored += opened.values()
        return {_TYPES[kind]: live.message_id for kind, live in opened.items()}

    async def end(self) -> None:
        """Forget what was streamed and is stored."""
        stored, self._stored = self._stored, []
        for live in stored:
            live.abandon()
            await live.drop()

    def abandon(self) -> None:
        """Send nothing more. What was said so far stays to be read until it is too old."""
        for live in (*self._open.values(), *self._stored):
            live.abandon()


class _ClientTool(BaseTool):
    """A tool that the client has: it is called, and answered with the next run."""

    def __init__(self, tool: Mapping[str, Any]) -> None:
        super().__init__(name=tool["name"], description=tool["description"], is_long_running=True)
        self._parameters = tool.get("parameters")

    @override
    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self._parameters
        )

    @override
    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        return None


def _with_tools(root: BaseAgent, tools: Sequence[Mapping[str, Any]]) -> BaseAgent:
    """Return the agent with the client's tools, but for those whose names it has itself; one of no model as it is."""
    if not tools or not isinstance(root, LlmAgent):
        return root
    known = {getattr(tool, "name", getattr(tool, "__name__", "")) for tool in root.tools}
    offered = [_ClientTool(tool) for tool in tools if tool["name"] not in known]
    return root.model_copy(update={"tools": [*root.tools, *offered]})


def _names(tools: Sequence[Mapping[str, Any]]) -> set[str]:
    return {tool["name"] for tool in tools}


def _asked(messages: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the agent is asked with, by the messages' ids: what the user says, and what tools answered.

    Only what came after the last message of the assistant is new. Beside something that the user says, answers need
    not be given to the agent: they are in the session already.
    """
    new: list[Mapping[str, Any]] = []
    for message in messages:
        new = [] if message["role"] == "assistant" else [*new, message]
    said = {each["id"]: _said(each["content"]) for each in new if each["role"] == "user"}
    names = {call["id"]: call["function"]["name"] for each in messages for call in each.get("toolCalls") or ()}
    answers = {
        each["id"]: {
            "tool_call_id": each["toolCallId"],
            "tool_name": names.get(each["toolCallId"]),
            "observation": each["content"],
        }
        for each in new
        if each["role"] == "tool"
    }
    return said, answers


def _said(content: Any) -> dict[str, Any]:
    return {"content": content} if isinstance(content, str) else {"parts": content}


def _failure_of(event: Event) -> AgentError | None:
    """Return why a model did not answer; None where it did."""
    if event.partial or not event.error_code:
        return None
    return AgentError(event.error_message or f"the model did not answer: {event.error_code}", event.error_code)
