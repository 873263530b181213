"""Agents that this process executes: what an agent is, what it is passed, and the runner that executes it.

    async def greet(run: RunContext):
        await run.set_state({"step": 1})
        async with run.text() as text:
            await text.push("Hello ")
            await text.push("there")

    async def echo(run: RunContext):            # or an async generator: its strings are one answer
        yield run.last_user_text

A run outlives its watchers. It ends once: completed, failed if the agent raised, cancelled on request.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeAlias

import structlog

from pulse.database import FAULTS
from pulse.errors import (
    InvalidInputError,
    PulseError,
    RunEndedError,
    RunFencedError,
    RunNotFoundError,
    SessionNotFoundError,
)
from pulse.event_types import STATE_UPDATE
from pulse.events import Event, EventActions, message_text
from pulse.live_text import DeltaCarrier, Kind, LiveText, RunKey
from pulse.postgres.backoff import Backoff
from pulse.process.background import cancel
from pulse.runs import events as run_events
from pulse.runs.heartbeat import INTERVAL_SECONDS, RunHeartbeat, WatchedRun
from pulse.runs.records import Run
from pulse.runs.service import RunService, name_of_call
from pulse.scopes import apply_delta
from pulse.tracing import genai
from pulse.tracing.manager import current_tracing
from pulse.tracing.spans import Span

#: How many agents run at once in a process; further ones are refused.
RUNS_AT_ONCE_MAX = 500
_END_ATTEMPTS = 6
_END_RETRY_SECONDS = 0.2
_END_RETRY_SECONDS_MAX = 6.4
#: The counts of tokens, by their names in AG-UI.
_COUNTS = {
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "total_tokens": "totalTokens",
    "reasoning_tokens": "reasoningTokens",
    "cached_input_tokens": "cachedInputTokens",
    "cache_write_input_tokens": "cacheWriteInputTokens",
}
_LOST = (RunEndedError, RunFencedError, RunNotFoundError, SessionNotFoundError)
_log = structlog.get_logger(__name__)


class AgentError(Exception):
    """Raised by an agent that fails; the message and the code are sent to the client."""

    def __init__(self, message: str, code: str = "agent_failed") -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInput:
    """The input of a run, as AG-UI names it.

    Attributes:
        messages: the conversation as the client sent it, as objects of the protocol; `RunContext.history` is the stored
            one.
        state: the session's merged state when the run began, with the client's changes.
        resume: answers to the interrupts of the previous run.
        new_ids: the ids of the messages that were not stored before.
    """

    messages: Sequence[Mapping[str, Any]] = ()
    state: Mapping[str, Any] = field(default_factory=dict)
    tools: Sequence[Mapping[str, Any]] = ()
    context: Sequence[Mapping[str, Any]] = ()
    forwarded_props: Any = None
    resume: Sequence[Mapping[str, Any]] = ()
    new_ids: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class LostCall:
    """A call of a tool that has no result, since its process was lost.

    Attributes:
        agent: that asked for it, by its name.
        idempotency_key: the key of every attempt at it.
        asked_at: the time of the event that asks for it; None if only one call can have its id.
        is_decided: a person's decision on it is stored, and the agent acts on it if it was not used.
    """

    id: str
    name: str
    arguments: Mapping[str, Any]
    agent: str
    idempotency_key: str
    asked_at: datetime | None = None
    is_decided: bool = False


#: Stores what is known of lost calls, and returns the interrupts of those that a person is asked for.
SettleCalls: TypeAlias = Callable[[Sequence[LostCall]], Awaitable[Sequence[Mapping[str, Any]]]]


class RunContext:
    """The interface of a run to its agent: what it writes is stored at once."""

    def __init__(self, runs: RunService, carrier: DeltaCarrier, run: Run, given: RunInput) -> None:
        self.run = run
        self.input = given
        self.state: dict[str, Any] = dict(given.state)
        self.result: Any = None
        self.usage: list[dict[str, Any]] = []
        #: Called before each call of a model, by agents that know their calls; raises `AgentError` to refuse it.
        self.before_model_call: Callable[[], None] | None = None
        #: Called with the calls that a lost run left without a result, by agents that find them. An agent for which it
        #: is set continues where a run was lost, even without a message.
        self.settle_calls: SettleCalls | None = None
        #: Called with the tokens of each call of a model, by AG-UI's names.
        self.on_usage: Callable[[Mapping[str, Any]], None] | None = None
        #: Set by agents that know it: the model's last reply ended at a limit of tokens.
        self.is_cut = False
        self._runs = runs
        self._carrier = carrier
        self._open: LiveText | None = None
        self._subagents: list[str] = []

    @property
    def last_user_text(self) -> str:
        """The text of the user's last message, also beside images and files; empty if it has none."""
        for message in reversed(self.input.messages):
            if message.get("role") == "user":
                content = message.get("content")
                return content if isinstance(content, str) else message_text({"parts": content}) or ""
        return ""

    async def history(self, *, limit: int = 200) -> list[dict[str, Any]]:
        """Return the session's conversation as it is stored, this run's messages included; see `RunService.history`."""
        return await self._runs.history(self.run, limit=limit)

    @asynccontextmanager
    async def text(self, message_id: str | None = None) -> AsyncIterator[LiveText]:
        """Stream a message; it is stored at the end of the block. If the block raises, the run's end stores it, marked
        as partial."""
        async with self._streamed("text", message_id) as live:
            yield live

    @asynccontextmanager
    async def thought(self, message_id: str | None = None) -> AsyncIterator[LiveText]:
        """Stream a thought, as `text`."""
        async with self._streamed("thought", message_id) as live:
            yield live

    @asynccontextmanager
    async def streamed_call(self, tool_name: str, *, tool_call_id: str | None = None) -> AsyncIterator[LiveText]:
        """Stream the arguments of a tool's call, as JSON; the call is stored at the end of the block, as `text`.

        The call's id is `message_id` of what the block gets.
        """
        async with self._streamed("act", tool_call_id, {"tool_name": tool_name}) as live:
            yield live

    def open_text(
        self, kind: Kind = "text", message_id: str | None = None, meta: Mapping[str, Any] | None = None
    ) -> LiveText:
        """Open a message that the caller stores: `end` it, `write` the event with its id, then `drop` it."""
        key = RunKey(self.run.thread_id, self.run.run_id)
        return LiveText(self._carrier, key, message_id or str(uuid.uuid4()), kind, self._attributed(meta or {}))

    async def call_tool(
        self, tool_name: str, tool_input: Any, *, tool_call_id: str | None = None, encrypted_value: str | None = None
    ) -> str:
        """Store the call of a tool before it is made, and return its id. The client answers calls of its own tools.

        Args:
            encrypted_value: the provider's encrypted reasoning for this call, which clients send back.
        """
        tool_call_id = tool_call_id or str(uuid.uuid4())
        event = run_events.act(tool_name, tool_input, tool_call_id=tool_call_id)
        if encrypted_value is not None:
            event = replace(event, content={**event.content, "encrypted_value": encrypted_value})
        await self.write(event)
        return tool_call_id

    async def tool_result(self, tool_call_id: str, observation: Any, *, is_error: bool = False) -> None:
        """Store the result of a tool; with `is_error`, clients see that the tool failed."""
        name = name_of_call(self.run, tool_call_id)
        await self.write(run_events.observe(name, observation, tool_call_id=tool_call_id, is_error=is_error))

    async def custom(self, name: str, value: Any = None, *, transient: bool = False) -> None:
        """Emit an event of the application's own, AG-UI's CUSTOM.

        Args:
            name: with a prefix, such as ``shop:stock``; AG-UI reserves names without one.
            value: any JSON value.
            transient: send it to the clients that follow the run now, and store nothing.
        """
        if not any(mark in name.strip(":./")[1:] for mark in ":./"):
            raise InvalidInputError(f"a custom event's name needs a prefix, such as 'shop:stock', not {name[:40]!r}")
        await self._emit("custom", {"name": name, "value": value}, transient)

    async def activity(
        self,
        activity_type: str,
        content: Mapping[str, Any],
        *,
        message_id: str | None = None,
        transient: bool = False,
    ) -> str:
        """Show progress that is not conversation, AG-UI's ACTIVITY_SNAPSHOT, and return its message's id.

        Args:
            activity_type: how the client shows it.
            content: replaces the former content of the same message.
            message_id: the id of an activity to replace; a new one by default.
            transient: as for `custom`.
        """
        message_id = message_id or str(uuid.uuid4())
        fields = {"message_id": message_id, "activity_type": activity_type, "content": dict(content)}
        await self._emit("activity", fields, transient)
        return message_id

    async def change_activity(
        self, message_id: str, activity_type: str, patch: Sequence[Mapping[str, Any]], *, transient: bool = False
    ) -> None:
        """Change an activity by a JSON Patch (RFC 6902), AG-UI's ACTIVITY_DELTA."""
        fields = {"message_id": message_id, "activity_type": activity_type, "patch": [dict(each) for each in patch]}
        await self._emit("activity_delta", fields, transient)

    @asynccontextmanager
    async def subagent(self, name: str, *, description: str | None = None) -> AsyncIterator[str]:
        """Attribute what the block writes to a subagent, which begins and ends with it; the block gets its id."""
        own = str(uuid.uuid4())
        started = {"subagent_run_id": own, "name": name, "description": description}
        if self._subagents:
            started["parent_subagent_run_id"] = self._subagents[-1]
        await self.write(Event(author="model", event_type="subagent_start", content=started))
        self._subagents.append(own)
        try:
            yield own
        except Exception as error:
            message = str(error) if isinstance(error, AgentError) else "the subagent failed"
            failed = {"subagent_run_id": own, "message": message}
            await self.write(Event(author="model", event_type="subagent_error", content=failed))
            raise
        finally:
            self._subagents.remove(own)
        await self.write(Event(author="model", event_type="subagent_end", content={"subagent_run_id": own}))

    def add_usage(self, **counts: Any) -> None:
        """Record the tokens of a call of a model: they are sent with the end of the run, summed by provider and model.

        Args:
            counts: AG-UI's TokenUsage, with Python's names: provider, model, input_tokens, output_tokens, total_tokens,
                reasoning_tokens, cached_input_tokens, cache_write_input_tokens.

        Raises:
            InvalidInputError: another name, or a count that is not a whole number.
        """
        named = {name: counts.pop(name, None) for name in ("provider", "model")}
        labels = {name: str(value) for name, value in named.items() if value is not None}
        for name, count in counts.items():
            if name not in _COUNTS or not isinstance(count, int | None) or isinstance(count, bool):
                raise InvalidInputError(f"usage must be provider, model and counts of tokens, not {name}={count!r:.40}")
        names = labels.get("provider"), labels.get("model")
        found = next((each for each in self.usage if (each.get("provider"), each.get("model")) == names), None)
        if found is None:
            self.usage.append(found := dict(labels))
        for name, count in counts.items():
            if count is not None:
                found[_COUNTS[name]] = found.get(_COUNTS[name], 0) + count
        if self.on_usage is not None:
            self.on_usage({_COUNTS[name]: count for name, count in counts.items() if count is not None})

    @asynccontextmanager
    async def step(self, name: str) -> AsyncIterator[None]:
        """Mark the block as a step of the run."""
        await self.write(Event(author="model", event_type="step_start", content={"name": name}))
        yield
        await self.write(Event(author="model", event_type="step_end", content={"name": name}))

    async def set_state(self, delta: Mapping[str, Any]) -> None:
        """Set keys of the session's state, or delete them (`DELETED`); also while a message is open."""
        event = Event(author="model", event_type=STATE_UPDATE, content={}, actions=EventActions(state_delta=delta))
        await self._store(event)
        apply_delta(self.state, delta)

    async def write(self, *events: Event) -> None:
        """Store any other events."""
        self._require_closed()
        await self._store(*events)

    def interrupt(self, *interrupts: Mapping[str, Any]) -> None:
        """End the run, when the agent returns, with questions that the next run must answer.

        Args:
            interrupts: each with ``id``, ``reason``, and the other fields of AG-UI's Interrupt.
        """
        self.result = {"interrupts": [dict(each) for each in interrupts]}

    @asynccontextmanager
    async def _streamed(
        self, kind: Kind, message_id: str | None, meta: Mapping[str, Any] | None = None
    ) -> AsyncIterator[LiveText]:
        self._require_closed()
        live = self._open = self.open_text(kind, message_id, meta)
        try:
            yield live
            text = await live.end()
        except BaseException:
            # The end of the run stores what was streamed.
            await live.end()
            raise
        finally:
            self._open = None
        if text.strip():
            await self.write(_streamed_event(live, text, meta or {}))
        await live.drop()

    async def _emit(self, event_type: str, content: Mapping[str, Any], transient: bool) -> None:
        """Store or send an event; also while a message is open."""
        if transient:
            sent = {"event_type": event_type, "content": self._attributed(content)}
            await self._carrier.send(RunKey(self.run.thread_id, self.run.run_id), sent)
        else:
            await self._store(Event(author="model", event_type=event_type, content=dict(content)))

    async def _store(self, *events: Event) -> None:
        if self._subagents:
            events = tuple(
                replace(event, content=self._attributed(event.content)) if isinstance(event.content, Mapping) else event
                for event in events
            )
        self.run = (await self._runs.write(self.run, events)).run

    def _attributed(self, content: Mapping[str, Any]) -> dict[str, Any]:
        return {**({"subagent_run_id": self._subagents[-1]} if self._subagents else {}), **content}

    def _require_closed(self) -> None:
        if self._open is not None:
            raise InvalidInputError("a message is open: only the state can be written before its block ends")


def _streamed_event(live: LiveText, text: str, meta: Mapping[str, Any]) -> Event:
    """Return the event of a message, a thought or a call that was streamed."""
    content: dict[str, Any] = {"message_id": live.message_id}
    if live.encrypted_value is not None:
        content["encrypted_value"] = live.encrypted_value
    if live.kind == "act":
        try:
            given = json.loads(text)
        except ValueError:
            given = text
        call = {**meta, "tool_input": given, "tool_args": text, "tool_call_id": live.message_id}
        return Event(author="model", event_type="act", content={**call, **content}, id=live.message_id)
    event_type = "thought" if live.kind == "thought" else "assistant_message"
    return Event(author="model", event_type=event_type, content={"content": text, **content}, id=live.message_id)


#: Executes a run; an async generator's strings are one message.
Agent: TypeAlias = Callable[[RunContext], Awaitable[None] | AsyncIterator[str]]


def runs_alone(agent: Agent) -> bool:
    """Return whether the agent has a true `runs_alone`: its run is refused while another of the session is active."""
    return bool(getattr(agent, "runs_alone", False))


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDescription:
    """What an agent declares of itself, as attributes of the same names.

    Attributes:
        capabilities: as AG-UI's AgentCapabilities, with the protocol's names.
    """

    name: str
    description: str
    runs_alone: bool
    capabilities: Mapping[str, Any]


class AgentRunner:
    """Executes runs, each in a task of its own, and writes their ends."""

    def __init__(
        self,
        runs: RunService,
        carrier: DeltaCarrier,
        agents: Mapping[str, Agent],
        *,
        runs_at_once_max: int = RUNS_AT_ONCE_MAX,
        heartbeat_seconds: float = INTERVAL_SECONDS,
    ) -> None:
        self.agents = dict(agents)
        self._runs_at_once_max = runs_at_once_max
        self._runs = runs
        self._carrier = carrier
        self._heartbeat = RunHeartbeat(runs, interval_seconds=heartbeat_seconds)
        self._tasks: dict[uuid.UUID, asyncio.Task[None]] = {}
        self._watched: dict[uuid.UUID, WatchedRun] = {}
        self._keys: dict[uuid.UUID, RunKey] = {}
        self._is_stopping = False

    @property
    def running(self) -> int:
        """The number of runs that are executed."""
        return len(self._tasks)

    @property
    def is_full(self) -> bool:
        """Whether further runs are refused."""
        return self._is_stopping or len(self._tasks) >= self._runs_at_once_max

    @property
    def is_stopping(self) -> bool:
        """Whether this process is stopping."""
        return self._is_stopping

    @property
    def runs(self) -> list[RunKey]:
        """The runs that are executed."""
        return [self._keys[each] for each in self._tasks]

    def described(self) -> list[AgentDescription]:
        """Return what the agents declare of themselves, in the order of their names."""
        return [
            AgentDescription(
                name=name,
                description=str(getattr(agent, "description", "") or ""),
                runs_alone=runs_alone(agent),
                capabilities=dict(getattr(agent, "capabilities", None) or {}),
            )
            for name, agent in sorted(self.agents.items())
        ]

    def execute(self, run: Run, agent: Agent, given: RunInput) -> None:
        """Execute a run that was just started. Returns at once."""
        task = asyncio.create_task(self._execute(run, agent, given), name=f"run {run.run_id}")
        self._tasks[run.id] = task
        self._keys[run.id] = RunKey(run.thread_id, run.run_id)
        task.add_done_callback(lambda _: self._remove(run.id))

    def wake_cancelled(self, run: Run) -> None:
        """Cancel a run that is executed here without waiting for its heartbeat."""
        watched = self._watched.get(run.id)
        if watched is not None:
            watched.cancel_requested.set()

    async def drain(self, timeout_seconds: float) -> None:
        """Refuse further runs, and let those that are executed end, for at most this time."""
        self._is_stopping = True
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()), timeout=timeout_seconds)

    async def stop(self) -> None:
        """End the runs as failed, because this process is stopping; refuse further ones. Idempotent."""
        self._is_stopping = True
        tasks = list(self._tasks.values())
        await cancel(*tasks)
        await self._heartbeat.close()

    def _remove(self, run_id: uuid.UUID) -> None:
        self._tasks.pop(run_id, None)
        self._keys.pop(run_id, None)

    async def _execute(self, run: Run, agent: Agent, given: RunInput) -> None:
        context = RunContext(self._runs, self._carrier, run, given)
        async with self._heartbeat.watch(run) as watched:
            self._watched[run.id] = watched
            try:
                await self._work(context, agent, watched)
            except asyncio.CancelledError:
                await self._end(run, lambda: self._runs.fail(run, "the process that ran it ended", code="shutdown"))
            finally:
                del self._watched[run.id]

    async def _work(self, context: RunContext, agent: Agent, watched: WatchedRun) -> None:
        run = context.run
        # The events of the end are in the trace, too: the jobs that they enqueue link to it.
        with _span(run, self._name_of(agent)) as span:
            work = asyncio.create_task(execute_agent(agent, context))
            signals = [asyncio.create_task(watched.cancel_requested.wait()), asyncio.create_task(watched.lost.wait())]
            try:
                await asyncio.wait([work, *signals], return_when=asyncio.FIRST_COMPLETED)
            finally:
                await cancel(work, *signals)
            error = None if work.cancelled() else work.exception()
            if error is not None or work.cancelled():
                span.fail(error or "cancelled")
            if not work.cancelled() and error is None:
                await self._end(run, lambda: self._runs.finish(run, result=context.result, usage=context.usage))
            elif watched.lost.is_set() or isinstance(error, _LOST):
                _log.warning("run_lost", run_id=run.run_id)
            elif watched.cancel_requested.is_set():
                await self._end(run, lambda: self._runs.cancel(run, usage=context.usage))
            else:
                message, code = _reason(run, error)
                await self._end(run, lambda: self._runs.fail(run, message, code=code, usage=context.usage))

    def _name_of(self, agent: Agent) -> str | None:
        return next((name for name, each in self.agents.items() if each is agent), None)

    async def _end(self, run: Run, end: Callable[[], Awaitable[object]]) -> None:
        """Write a run's last event; if the database is not available, the reaper ends the run."""
        backoff = Backoff(_END_RETRY_SECONDS, _END_RETRY_SECONDS_MAX, jitter=0)
        for _ in range(_END_ATTEMPTS):
            try:
                await end()
                return
            except _LOST:
                return
            except (PulseError, *FAULTS) as error:
                _log.warning("run_end_failed", run_id=run.run_id, error=type(error).__name__)
                await backoff.wait()


async def echo(run: RunContext) -> AsyncIterator[str]:
    """Repeat the user's last message, word by word: to try out a client."""
    for word in run.last_user_text.split(" "):
        yield f"{word} "
        await asyncio.sleep(0.01)


def _span(run: Run, agent_name: str | None) -> Span:
    return current_tracing().span(
        "invoke_agent",
        attributes={
            genai.OPERATION: "invoke_agent",
            genai.AGENT_NAME: agent_name,
            genai.CONVERSATION_ID: run.session_id,
        },
        app_name=run.app_name,
        user_id=run.user_id,
        session_id=run.session_id,
        run_id=run.run_id,
    )


async def execute_agent(agent: Agent, context: RunContext) -> None:
    """Execute an agent to its end; the strings of an async generator are one message."""
    outcome = agent(context)
    if inspect.isawaitable(outcome):
        await outcome
        return
    async with context.text() as text:
        async for piece in outcome:
            await text.push(piece)


def _reason(run: Run, error: BaseException | None) -> tuple[str, str]:
    """Return the message and the code of a failure for the client; only an `AgentError` has its own."""
    if isinstance(error, AgentError):
        return str(error), error.code
    _log.error("agent_failed", run_id=run.run_id, error=type(error).__name__, exc_info=error)
    return "the agent failed; see the log of its process", "agent_failed"
