"""Agents that this process executes: what an agent is, what it is given, and the runner that sees it to its end.

    async def greet(run: RunContext):
        await run.set_state({"step": 1})
        async with run.text() as text:
            await text.push("Hello ")
            await text.push("there")

    async def echo(run: RunContext):            # or an async generator: its strings are one answer
        yield run.last_user_text

A run outlives whoever watches it. It ends once: completed, failed where the agent raised, cancelled where somebody
asked.
"""

from __future__ import annotations

import asyncio
import inspect
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
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
from pulse.events import Event, EventActions
from pulse.live_text import DeltaCarrier, Kind, LiveText, RunKey
from pulse.runs.heartbeat import RunHeartbeat, WatchedRun
from pulse.runs.records import Run
from pulse.runs.service import RunService
from pulse.scopes import apply_delta

#: So many agents run at once in a process; further ones are refused.
RUNS_AT_ONCE_MAX = 500
_END_TRIES = 6
_END_RETRY_SECONDS = 0.2
_LOST = (RunEndedError, RunFencedError, RunNotFoundError, SessionNotFoundError)
_log = structlog.get_logger(__name__)


class AgentError(Exception):
    """Raised by an agent that fails and can say why: the message and the code reach the client."""

    def __init__(self, message: str, code: str = "agent_failed") -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInput:
    """What a run was asked with, as AG-UI names it.

    Attributes:
        messages: the conversation as the client has it, each an object of the protocol.
        state: the session's, merged, when the run began.
        resume: answers to the interrupts of the run before.
    """

    messages: Sequence[Mapping[str, Any]] = ()
    state: Mapping[str, Any] = field(default_factory=dict)
    tools: Sequence[Mapping[str, Any]] = ()
    context: Sequence[Mapping[str, Any]] = ()
    forwarded_props: Any = None
    resume: Sequence[Mapping[str, Any]] = ()


class RunContext:
    """A run from the inside: everything that an agent may say and do, each stored as it happens."""

    def __init__(self, runs: RunService, carrier: DeltaCarrier, run: Run, given: RunInput) -> None:
        self.run = run
        self.input = given
        self.state: dict[str, Any] = dict(given.state)
        self.result: Any = None
        self._runs = runs
        self._carrier = carrier
        self._open: LiveText | None = None

    @property
    def last_user_text(self) -> str:
        """What the user said last."""
        for message in reversed(self.input.messages):
            content = message.get("content")
            if message.get("role") == "user" and isinstance(content, str):
                return content
        return ""

    @asynccontextmanager
    async def text(self, message_id: str | None = None) -> AsyncIterator[LiveText]:
        """Say a message piece by piece; it is stored at the end of the block, and not where the block fails."""
        async with self._streamed("text", message_id) as live:
            yield live

    @asynccontextmanager
    async def thought(self, message_id: str | None = None) -> AsyncIterator[LiveText]:
        """Think aloud, as `text`."""
        async with self._streamed("thought", message_id) as live:
            yield live

    def open_text(self, kind: Kind = "text", message_id: str | None = None) -> LiveText:
        """Begin a message that the caller stores himself: `end` it, `write` the event that has its id, `drop` it."""
        return LiveText(
            self._carrier, RunKey(self.run.thread_id, self.run.run_id), message_id or str(uuid.uuid4()), kind
        )

    async def call_tool(self, tool_name: str, tool_input: Any, *, tool_call_id: str | None = None) -> str:
        """Store the call of a tool before it is made, and return its id. A tool of the client's is left unanswered."""
        self._require_closed()
        tool_call_id = tool_call_id or str(uuid.uuid4())
        self.run = (await self._runs.call_tool(self.run, tool_name, tool_input, tool_call_id=tool_call_id)).run
        return tool_call_id

    async def tool_result(self, tool_call_id: str, observation: Any, *, is_error: bool = False) -> None:
        """Store what a tool answered."""
        self._require_closed()
        self.run = (await self._runs.tool_result(self.run, tool_call_id, observation, is_error=is_error)).run

    @asynccontextmanager
    async def step(self, name: str) -> AsyncIterator[None]:
        """Name what is done in the block."""
        await self.write(Event(author="model", event_type="step_start", content={"name": name}))
        yield
        await self.write(Event(author="model", event_type="step_end", content={"name": name}))

    async def set_state(self, delta: Mapping[str, Any]) -> None:
        """Set keys of the session's state, or delete them (`DELETED`); also while a message is open."""
        event = Event(author="model", event_type=STATE_UPDATE, content={}, actions=EventActions(state_delta=delta))
        self.run = (await self._runs.write(self.run, [event])).run
        apply_delta(self.state, delta)

    async def write(self, *events: Event) -> None:
        """Store any other events."""
        self._require_closed()
        self.run = (await self._runs.write(self.run, events)).run

    def interrupt(self, *interrupts: Mapping[str, Any]) -> None:
        """End the run, once the agent returns, with questions that the next run must answer.

        Args:
            interrupts: each with ``id`` and ``reason``, and what else AG-UI's Interrupt has.
        """
        self.result = {"interrupts": [dict(each) for each in interrupts]}

    @asynccontextmanager
    async def _streamed(self, kind: Kind, message_id: str | None) -> AsyncIterator[LiveText]:
        self._require_closed()
        live = self._open = self.open_text(kind, message_id)
        message_id = live.message_id
        try:
            yield live
            said = await live.end()
        except BaseException:
            # What was said so far stays to be read until it is too old: the message is not stored.
            live.abandon()
            raise
        finally:
            self._open = None
        if said.strip():
            event_type = "thought" if kind == "thought" else "assistant_message"
            content = {"content": said, "message_id": message_id}
            await self.write(Event(author="model", event_type=event_type, content=content, id=message_id))
        await live.drop()

    def _require_closed(self) -> None:
        if self._open is not None:
            raise InvalidInputError("a message is open: end its block before anything but the state is written")


#: Executes a run; an async generator's strings are one message.
Agent: TypeAlias = Callable[[RunContext], Awaitable[None] | AsyncIterator[str]]


def runs_alone(agent: Agent) -> bool:
    """Return whether a run of the agent is refused while another of its session goes on: it has a true `runs_alone`."""
    return bool(getattr(agent, "runs_alone", False))


class AgentRunner:
    """Executes runs in tasks of their own, each to its one end."""

    def __init__(
        self,
        runs: RunService,
        carrier: DeltaCarrier,
        agents: Mapping[str, Agent],
        *,
        runs_at_once_max: int = RUNS_AT_ONCE_MAX,
    ) -> None:
        self.agents = dict(agents)
        self._runs_at_once_max = runs_at_once_max
        self._runs = runs
        self._carrier = carrier
        self._heartbeat = RunHeartbeat(runs)
        self._tasks: dict[uuid.UUID, asyncio.Task[None]] = {}
        self._watched: dict[uuid.UUID, WatchedRun] = {}
        self._keys: dict[uuid.UUID, RunKey] = {}
        self._is_stopping = False

    @property
    def running(self) -> int:
        """How many run now."""
        return len(self._tasks)

    @property
    def is_full(self) -> bool:
        """Whether no further one is taken."""
        return self._is_stopping or len(self._tasks) >= self._runs_at_once_max

    @property
    def runs(self) -> list[RunKey]:
        """Which run now."""
        return [self._keys[each] for each in self._tasks]

    def execute(self, run: Run, agent: Agent, given: RunInput) -> None:
        """Execute a run that was just started. Returns at once."""
        task = asyncio.create_task(self._execute(run, agent, given), name=f"run {run.run_id}")
        self._tasks[run.id] = task
        self._keys[run.id] = RunKey(run.thread_id, run.run_id)
        task.add_done_callback(lambda _: self._forget(run.id))

    def wake_cancelled(self, run: Run) -> None:
        """Tell a run that is executed here, without waiting for its heartbeat, that somebody asked to cancel it."""
        watched = self._watched.get(run.id)
        if watched is not None:
            watched.cancel_requested.set()

    async def stop(self) -> None:
        """End what runs as failed, because this process ends; take no further runs. Idempotent."""
        self._is_stopping = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._heartbeat.close()

    def _forget(self, run_id: uuid.UUID) -> None:
        self._tasks.pop(run_id, None)
        self._keys.pop(run_id, None)

    async def _execute(self, run: Run, agent: Agent, given: RunInput) -> None:
        context = RunContext(self._runs, self._carrier, run, given)
        async with self._heartbeat.watch(run) as watched:
            self._watched[run.id] = watched
            try:
                await self._see_to_its_end(context, agent, watched)
            except asyncio.CancelledError:
                await self._end(run, lambda: self._runs.fail(run, "the process that ran it ended", code="shutdown"))
            finally:
                del self._watched[run.id]

    async def _see_to_its_end(self, context: RunContext, agent: Agent, watched: WatchedRun) -> None:
        run = context.run
        work = asyncio.create_task(_drive(agent, context))
        signals = [asyncio.create_task(watched.cancel_requested.wait()), asyncio.create_task(watched.lost.wait())]
        try:
            await asyncio.wait([work, *signals], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (work, *signals):
                task.cancel()
            await asyncio.gather(work, *signals, return_exceptions=True)
        if not work.cancelled() and work.exception() is None:
            await self._end(run, lambda: self._runs.finish(run, result=context.result))
        elif watched.lost.is_set() or (not work.cancelled() and isinstance(work.exception(), _LOST)):
            _log.warning("run_lost", run_id=run.run_id)
        elif watched.cancel_requested.is_set():
            await self._end(run, lambda: self._runs.cancel(run))
        else:
            message, code = _reason(run, None if work.cancelled() else work.exception())
            await self._end(run, lambda: self._runs.fail(run, message, code=code))

    async def _end(self, run: Run, end: Callable[[], Awaitable[object]]) -> None:
        """Write a run's last event; where the database does not take it, the reaper does."""
        for attempt in range(_END_TRIES):
            try:
                await end()
                return
            except _LOST:
                return
            except (PulseError, *FAULTS) as error:
                _log.warning("run_end_failed", run_id=run.run_id, error=type(error).__name__)
                await asyncio.sleep(_END_RETRY_SECONDS * 2**attempt)


async def echo(run: RunContext) -> AsyncIterator[str]:
    """Say again what the user said, word by word: for a first try of a client."""
    for word in run.last_user_text.split(" "):
        yield f"{word} "
        await asyncio.sleep(0.01)


async def _drive(agent: Agent, context: RunContext) -> None:
    outcome = agent(context)
    if inspect.isawaitable(outcome):
        await outcome
        return
    async with context.text() as text:
        async for piece in outcome:
            await text.push(piece)


def _reason(run: Run, error: BaseException | None) -> tuple[str, str]:
    """Return what is told of a failure: an agent's own words, or nothing of what may hold a secret."""
    if isinstance(error, AgentError):
        return str(error), error.code
    _log.error("agent_failed", run_id=run.run_id, error=type(error).__name__, exc_info=error)
    return "the agent failed; the log of its process says how", "agent_failed"
