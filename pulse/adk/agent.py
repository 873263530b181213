"""Running an agent of Google ADK with ``POST /agui``.

    from pulse import AdkAgent, PostgresSessionService
    from workers import load_settings, main_writer

    sessions = PostgresSessionService(url)
    main_writer(load_settings(), agents={"default": AdkAgent(root_agent, sessions)})

The run's session is the agent's session: what the agent does is stored once, as events of the run, and ADK reads them
as its own. Text and thoughts that the model streams are streamed. The client's tools are offered to the model; a call
of one ends the run, and the client sends the result with its next run. A call that waits for input from outside ends
the run as well, and is answered by ``resume``.

While a run of a session is in progress, another is refused: ADK reads a session once and does not see other writers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, cast

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.run_config import RunConfig, StreamingMode  # type: ignore[attr-defined]  # as its own documents do
from google.adk.apps import App
from google.adk.artifacts import BaseArtifactService
from google.adk.events import Event
from google.adk.memory import BaseMemoryService
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from typing_extensions import override

from pulse.adk import interrupts, lost_runs
from pulse.adk.run_sessions import RunSessions
from pulse.adk.sessions import PostgresSessionService
from pulse.adk.steps import Steps
from pulse.agui.wire import PARTIAL_KEY
from pulse.live_text import Kind, LiveText
from pulse.runs.agents import AgentError, RunContext, RunInput, SettleCalls
from pulse.session_key import SessionKey
from pulse.tracing.manager import current_tracing

#: How many of the newest messages are checked for ones that end where their run was lost.
_CUT_MAX = 100
_TYPES: Mapping[Kind, str] = {"text": "assistant_message", "thought": "thought"}


class AdkAgent:
    """A `pulse.Agent` that executes an agent or an app with ADK's runner, on the given services.

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
        """Store the arguments; nothing is opened.

        Args:
            agent: the root agent, or an app with its plugins and configurations. The run's app name replaces its own.
            sessions: on the writer's database. The caller closes it.
            memory: for tools such as PreloadMemoryTool.
            artifacts: for files.
            run_config: by default one that streams.
            interrupts: end a run that waits for input from outside with AG-UI's outcome `interrupt`, which the next run
                must answer by `resume`; by default the call is pending, and may still be answered by `resume`.
        """
        self._app = agent if isinstance(agent, App) else None
        root = agent.root_agent if isinstance(agent, App) else agent
        self._root = cast("BaseAgent", root)
        self._sessions = sessions
        self._memory = memory
        self._artifacts = artifacts
        self._run_config = run_config or RunConfig(streaming_mode=StreamingMode.SSE)
        self._interrupts = interrupts

    @property
    def description(self) -> str:
        """The root agent's description of itself."""
        return self._root.description

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What every agent of ADK can do here, as AG-UI's AgentCapabilities."""
        return {
            "transport": {"streaming": True, "resumable": True},
            "tools": {"supported": True, "clientProvided": True},
            "state": {"deltas": True, "snapshots": True, "persistentState": True},
            "humanInTheLoop": {"supported": True, "interrupts": self._interrupts},
        }

    async def __call__(self, run: RunContext) -> None:
        """Execute one run.

        Raises:
            AgentError: there is nothing to answer, `resume` answers a call that does not wait, or the model failed.
        """
        messages, answers = _inputs_of(run.input)
        if run.settle_calls is not None and (waiting := await self._settle(run, run.settle_calls)):
            run.interrupt(*waiting)
            return
        again: list[types.Part] = []
        if run.input.resume:
            answers = await self._resume(run, answers)
        elif run.settle_calls is not None and not messages:
            # The results that the client sent are in the session, too.
            found = await self._unanswered(run)
            if found is None:
                return
            answers, again = dict.fromkeys(found.ids), found.parts
        inputs = messages or answers
        if not inputs:
            raise AgentError("send a message of the user, or the result of a tool", "nothing_to_answer")
        streamed = _StreamedTexts(run)
        sessions = RunSessions(self._sessions, run, inputs, streamed.ids, again=again)
        steps = Steps()
        events = self._runner(run, sessions, steps).run_async(
            user_id=run.run.user_id,
            session_id=run.run.session_id,
            new_message=sessions.message,
            run_config=self._run_config,
        )
        failure: AgentError | None = None
        stored: list[Event] = []
        try:
            with steps.running():
                async with aclosing(events) as turns:
                    async for event in turns:
                        failure = _failure_of(event)
                        _count(run, event)
                        if event.partial:
                            await streamed.push(event)
                        else:
                            await streamed.end()
                            stored.append(event)
                            run.is_cut = event.finish_reason is types.FinishReason.MAX_TOKENS
        finally:
            await streamed.settle()
        if failure is not None:
            raise failure
        if self._interrupts and (open_ones := interrupts.interrupts_of(stored, _names(run.input.tools))):
            run.interrupt(*open_ones)

    async def _resume(self, run: RunContext, answers: Mapping[str, Any]) -> dict[str, Any]:
        """Store the answers of ``resume`` as results of the calls that wait, and return them with the client's answers.

        A client's messages also contain results of the agent's own tools: they are not passed to the agent again.
        """
        events = await self._events(run)
        resumed = interrupts.answers_of(run.input.resume, events)
        await run.write(*resumed.values())
        own = {given.id for each in events if each.author != "user" for given in each.get_function_responses()}
        new = {each: content for each, content in answers.items() if content["tool_call_id"] not in own}
        return {**new, **{each: answer.content for each, answer in resumed.items()}}

    async def _settle(self, run: RunContext, settle: SettleCalls) -> Sequence[Mapping[str, Any]]:
        """Have the calls of lost runs settled; return the interrupts of those that a person is asked for."""
        lost = lost_runs.lost_calls(await self._open_turn(run), _key(run))
        return await settle(lost) if lost else ()

    async def _unanswered(self, run: RunContext) -> lost_runs.Unanswered | None:
        """Return what an earlier run was lost before it answered; None if the session still waits, or has its answer.

        Raises:
            AgentError: there is neither.
        """
        turn = await self._open_turn(run)
        found = lost_runs.unanswered(turn)
        if found is not None:
            return found
        waiting = interrupts.interrupts_of(turn, _names(run.input.tools))
        if waiting:
            run.interrupt(*waiting)
        elif not lost_runs.was_lost_after_answer(turn):
            raise AgentError("send a message of the user, or the result of a tool", "nothing_to_answer")
        elif not _answers_once(self._root):
            message = "a run was lost, and which of its agents were still to follow is not known: send a message"
            raise AgentError(message, "nothing_to_answer")
        return None

    async def _open_turn(self, run: RunContext) -> list[Event]:
        cut = {each["id"] for each in await run.history(limit=_CUT_MAX) if PARTIAL_KEY in (each.get("metadata") or {})}
        return lost_runs.open_turn(await self._events(run), cut)

    async def _events(self, run: RunContext) -> list[Event]:
        key = _key(run)
        session = await self._sessions.get_session(
            app_name=key.app_name, user_id=key.user_id, session_id=key.session_id
        )
        return session.events if session else []

    def _runner(self, run: RunContext, sessions: RunSessions, steps: Steps) -> Runner:
        """Return the runner of one run. Nothing in it outlives the run."""
        root = _with_tools(self._root, run.input.tools)
        is_watched = run.before_model_call is not None or current_tracing().is_on
        services: dict[str, Any] = {
            "app_name": run.run.app_name,
            "session_service": sessions,
            "memory_service": self._memory,
            "artifact_service": self._artifacts,
        }
        if self._app is None and not is_watched:
            return Runner(agent=root, **services)
        # The services name the run's app: an App's own name has to be one that ADK takes, and is not used.
        app = self._app or App(name="hippocampus", root_agent=root)
        plugins = app.plugins
        if is_watched:
            plugins = [_ModelReplies(steps), *plugins, _ModelCalls(run.before_model_call, steps)]
        update = {"root_agent": root, "plugins": plugins}
        return Runner(app=app.model_copy(update=update), **services)


class _ModelCalls(BasePlugin):
    """Asks before each call of a model; a refusal is the model's answer, which ends the run.

    The last of the plugins: a model is not called where another one answers for it.
    """

    def __init__(self, ask: Callable[[], None] | None, steps: Steps) -> None:
        super().__init__(name="hippocampus_model_calls")
        self._ask = ask
        self._steps = steps

    @override
    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        try:
            if self._ask is not None:
                self._ask()
        except AgentError as error:
            return LlmResponse(error_code=error.code, error_message=str(error))
        self._steps.ask(callback_context, llm_request)
        return None


class _ModelReplies(BasePlugin):
    """Sees each reply of a model. The first of the plugins: another one may replace it."""

    def __init__(self, steps: Steps) -> None:
        super().__init__(name="hippocampus_model_replies")
        self._steps = steps

    @override
    async def after_model_callback(
        self, *, callback_context: CallbackContext, llm_response: LlmResponse
    ) -> LlmResponse | None:
        self._steps.reply(callback_context, llm_response)
        return None

    @override
    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> LlmResponse | None:
        self._steps.fail(callback_context, error)
        return None


class _StreamedTexts:
    """The messages that the model streams, until ADK stores the event with the complete text."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._open: dict[Kind, LiveText] = {}
        self._stored: list[LiveText] = []

    async def push(self, event: Event) -> None:
        """Stream the text of a partial event."""
        for part in event.content.parts or [] if event.content else []:
            if part.text:
                kind: Kind = "thought" if part.thought else "text"
                if kind not in self._open:
                    # The earlier message is sent first: clients show messages in the order in which they began.
                    for other in self._open.values():
                        await other.end()
                    self._open[kind] = self._run.open_text(kind)
                await self._open[kind].push(part.text)

    def ids(self) -> Mapping[str, str]:
        """Return the ids of the messages that were streamed for the next event to store, by type, and close them."""
        opened, self._open = self._open, {}
        self._stored += opened.values()
        return {_TYPES[kind]: live.message_id for kind, live in opened.items()}

    async def end(self) -> None:
        """Drop the streamed messages that have been stored."""
        stored, self._stored = self._stored, []
        for live in stored:
            live.abandon()
            await live.drop()

    async def settle(self) -> None:
        """Stop streaming; the end of a run that is cut off stores the text so far."""
        for live in self._stored:
            live.abandon()
        for live in self._open.values():
            await live.end()


class _ClientTool(BaseTool):
    """A tool of the client: a call ends the run, and is answered with the next one."""

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
    """Return the agent with the client's tools, except those whose names it has; an agent without a model unchanged."""
    if not tools or not isinstance(root, LlmAgent):
        return root
    known = {getattr(tool, "name", getattr(tool, "__name__", "")) for tool in root.tools}
    offered = [_ClientTool(tool) for tool in tools if tool["name"] not in known]
    return root.model_copy(update={"tools": [*root.tools, *offered]})


def _answers_once(root: BaseAgent) -> bool:
    """Whether an answer ends the turn: no agent follows another one."""
    return isinstance(root, LlmAgent) and all(map(_answers_once, root.sub_agents))


def _key(run: RunContext) -> SessionKey:
    return SessionKey(run.run.app_name, run.run.user_id, run.run.session_id)


def _names(tools: Sequence[Mapping[str, Any]]) -> set[str]:
    return {tool["name"] for tool in tools}


def _inputs_of(given: RunInput) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the contents of the user's new messages and of new tool results, by the messages' ids.

    New are the messages after the last one of the assistant, and those before an answer that the client made up. With a
    message of the user, tool results need not be passed to the agent: they are in the session already.
    """
    new: list[Mapping[str, Any]] = []
    for message in given.messages:
        if message["role"] != "assistant":
            new.append(message)
        elif message["id"] in given.new_ids:
            new = []  # A new session takes the whole conversation, with its answers.
        else:
            new = [each for each in new if each["id"] in given.new_ids]
    from_user = {each["id"]: _user_content(each["content"]) for each in new if each["role"] == "user"}
    names = {call["id"]: call["function"]["name"] for each in given.messages for call in each.get("toolCalls") or ()}
    answers = {
        each["id"]: {
            "tool_call_id": each["toolCallId"],
            "tool_name": names.get(each["toolCallId"]),
            "observation": each["content"],
        }
        for each in new
        if each["role"] == "tool"
    }
    return from_user, answers


def _user_content(content: Any) -> dict[str, Any]:
    return {"content": content} if isinstance(content, str) else {"parts": content}


def _count(run: RunContext, event: Event) -> None:
    """Record the tokens of the model's call that an event completes."""
    found = event.usage_metadata
    if found is not None and not event.partial:
        run.add_usage(
            model=event.model_version,
            input_tokens=found.prompt_token_count,
            output_tokens=_sum(found.candidates_token_count, found.thoughts_token_count),
            total_tokens=found.total_token_count,
            reasoning_tokens=found.thoughts_token_count,
            cached_input_tokens=found.cached_content_token_count,
        )


def _sum(*counts: int | None) -> int | None:
    """Return the sum of the counts that are known: Gemini's thoughts are not among its candidates' tokens."""
    known = [each for each in counts if each is not None]
    return sum(known) if known else None


def _failure_of(event: Event) -> AgentError | None:
    """Return the error of a model that did not answer; None otherwise."""
    if event.partial or not event.error_code:
        return None
    return AgentError(event.error_message or f"the model did not answer: {event.error_code}", event.error_code)
