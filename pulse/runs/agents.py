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
from pulse.postgres.backoff import Backoff
from pulse.runs.heartbeat import RunHeartbeat, WatchedRun
from pulse.runs.records import Run
from pulse.runs.service import RunService
from pulse.scopes import apply_delta

#: How many agents run at once in a process; further ones are refused.
RUNS_AT_ONCE_MAX = 500
_END_ATTEMPTS = 6
_END_RETRY_SECONDS = 0.2
_END_RETRY_SECONDS_MAX = 6.4
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
        messages: the client's conversation, as objects of the protocol.
        state: the session's merged state when the run began.
        resume: answers to the interrupts of the previous run.
    """

    messages: Sequence[Mapping[str, Any]] = ()
    state: Mapping[str, Any] = field(default_factory=dict)
    tools: Sequence[Mapping[str, Any]] = ()
    context: Sequence[Mapping[str, Any]] = ()
    forwarded_props: Any = None
    resume: Sequence[Mapping[str, Any]] = ()


class RunContext:
    """The interface of a run to its agent: what it writes is stored at once."""

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
        """The user's last message."""
        for message in reversed(self.input.messages):
            content = message.get("content")
            if message.get("role") == "user" and isinstance(content, str):
                return content
        return ""

    @asynccontextmanager
    async def text(self, message_id: str | None = None) -> AsyncIterator[LiveText]:
        """Stream a message; it is stored at the end of the block, unless the block raises."""
        async with self._streamed("text", message_id) as live:
            yield live

    @asynccontextmanager
    async def thought(self, message_id: str | None = None) -> AsyncIterator[LiveText]:
        """Stream a thought, as `text`."""
        async with self._streamed("thought", message_id) as live:
            yield live

    def open_text(self, kind: Kind = "text", message_id: str | None = None) -> LiveText:
        """Open a message that the caller stores: `end` it, `write` the event with its id, then `drop` it."""
        return LiveText(
            self._carrier, RunKey(self.run.thread_id, self.run.run_id), message_id or str(uuid.uuid4()), kind
        )

    async def call_tool(self, tool_name: str, tool_input: Any, *, tool_call_id: str | None = None) -> str:
        """Store the call of a tool before it is made, and return its id. The client answers calls of its own tools."""
        self._require_closed()
        tool_call_id = tool_call_id or str(uuid.uuid4())
        self.run = (await self._runs.call_tool(self.run, tool_name, tool_input, tool_call_id=tool_call_id)).run
        return tool_call_id

    async def tool_result(self, tool_call_id: str, observation: Any, *, is_error: bool = False) -> None:
        """Store the result of a tool."""
        self._require_closed()
        self.run = (await self._runs.tool_result(self.run, tool_call_id, observation, is_error=is_error)).run

    @asynccontextmanager
    async def step(self, name: str) -> AsyncIterator[None]:
        """Mark the block as a step of the run."""
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
        """End the run, when the agent returns, with questions that the next run must answer.

        Args:
            interrupts: each with ``id``, ``reason``, and the other fields of AG-UI's Interrupt.
        """
        self.result = {"interrupts": [dict(each) for each in interrupts]}

    @asynccontextmanager
    async def _streamed(self, kind: Kind, message_id: str | None) -> AsyncIterator[LiveText]:
        self._require_closed()
        live = self._open = self.open_text(kind, message_id)
        message_id = live.message_id
        try:
            yield live
            text = await live.end()
        except BaseException:
            # The message is not stored; its text so far can be read until it expires.
            live.abandon()
            raise
        finally:
            self._open = None
        if text.strip():
            event_type = "thought" if kind == "thought" else "assistant_message"
            content = {"content": text, "message_id": message_id}
            await self.write(Event(author="model", event_type=event_type, content=content, id=message_id))
        await live.drop()

    def _require_closed(self) -> None:
        if self._open is not None:
            raise InvalidInputError("a message is open: only the state can be written before its block ends")


#: Executes a run; an async generator's strings are one message.
Agent: TypeAlias = Callable[[RunContext], Awaitable[None] | AsyncIterator[str]]


def runs_alone(agent: Agent) -> bool:
    """Return whether the agent has a true `runs_alone`: its run is refused while another of the session is active."""
    return bool(getattr(agent, "runs_alone", False))


class AgentRunner:
    """Executes runs, each in a task of its own, and writes their ends."""

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
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
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


async def _drive(agent: Agent, context: RunContext) -> None:
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
