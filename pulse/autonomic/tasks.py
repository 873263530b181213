"""Tasks that agents are given: events with a checked order, and what follows from them by pure folds.

    created -> assigned -> executing -> acked -> closed
       |          |^  |        ||
       |          |'--+--------''   assigned to another agent
       '----------'---'------------> given-up

The same folds are SQL views: `pulse_tasks`, `pulse_pending_tasks`, `pulse_agent_stats`. A task's title and prompt are
stored as an object; its events hold names, numbers and codes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pulse.autonomic.errors import IllegalTransitionError, PulseNotFoundError
from pulse.autonomic.objects import get_object, put_object
from pulse.autonomic.statements import STATEMENTS
from pulse.errors import InvalidInputError

if TYPE_CHECKING:
    from pulse.postgres.statements import Session

#: Which status may follow which; a task begins with created. The table `task_transitions` is the same.
TRANSITIONS: Mapping[str, frozenset[str]] = {
    "": frozenset({"created"}),
    "created": frozenset({"assigned", "given-up"}),
    "assigned": frozenset({"executing", "assigned", "given-up"}),
    "executing": frozenset({"acked", "assigned", "given-up"}),
    "acked": frozenset({"closed"}),
}
PENDING_TASKS = "pending-tasks"
AGENT_STATS = "agent-capability-stats"

_OVER = ("closed", "given-up")
_NAME = re.compile(r"[\w.:@/-]{1,128}")
_CODE = re.compile(r"[a-z0-9_.-]{1,64}")


class TaskEvent(NamedTuple):
    """An event of a task: its status after it, and when, in Unix seconds."""

    id: int
    task_id: str
    status: str
    at: float
    meta: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TaskState:
    """A task. `result` is a code; `prompt` and `title` are empty where only the events were read."""

    id: str
    project: str
    priority: int
    status: str
    agent: str | None = None
    result: str | None = None
    title: str = ""
    prompt: str = ""


@dataclass(frozen=True, slots=True)
class PendingTasks:
    """The tasks that are not over, the most urgent first."""

    pending_count: int
    tasks: Sequence[TaskState]
    by_project: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class AgentStats:
    """What became of the tasks that an agent was assigned. Failures in a row begin again after a task was closed."""

    assigned: int = 0
    closed: int = 0
    given_up: int = 0
    consecutive_failures: int = 0
    durations_ms: tuple[float, ...] = field(default=(), repr=False)

    @property
    def avg_duration_ms(self) -> float | None:
        """From the last assignment to the close, on average."""
        return sum(self.durations_ms) / len(self.durations_ms) if self.durations_ms else None


def fold_task(state: TaskState | None, event: TaskEvent) -> TaskState:
    """Return a task after an event.

    Raises:
        IllegalTransitionError: the event cannot follow.
    """
    before = "" if state is None else state.status
    if event.status not in TRANSITIONS.get(before, frozenset()):
        raise IllegalTransitionError(
            f"task {event.task_id!r} is {before or 'not created'}: {event.status} cannot follow"
        )
    if state is None:
        return TaskState(event.task_id, event.meta["project"], event.meta["priority"], "created")
    if event.status == "assigned":
        return replace(state, status="assigned", agent=event.meta["agent"])
    return replace(state, status=event.status, result=event.meta.get("result", state.result))


def fold_tasks(events: Iterable[TaskEvent]) -> dict[str, TaskState]:
    """Return every task after its events, in the order of their creation."""
    tasks: dict[str, TaskState] = {}
    for event in events:
        tasks[event.task_id] = fold_task(tasks.get(event.task_id), event)
    return tasks


def pending_tasks(events: Iterable[TaskEvent]) -> PendingTasks:
    """Return the tasks that are not over."""
    pending = [each for each in fold_tasks(events).values() if each.status not in _OVER]
    by_project: dict[str, int] = {}
    for each in pending:
        by_project[each.project] = by_project.get(each.project, 0) + 1
    return PendingTasks(len(pending), sorted(pending, key=lambda each: -each.priority), by_project)


def agent_capability_stats(events: Iterable[TaskEvent]) -> dict[str, AgentStats]:
    """Return what became of each agent's tasks."""
    stats: dict[str, AgentStats] = {}
    assigned: dict[str, tuple[str, float]] = {}
    for event in events:
        if event.status == "assigned":
            assigned[event.task_id] = (event.meta["agent"], event.at)
        if event.task_id not in assigned:
            continue
        agent, since = assigned[event.task_id]
        mine = stats.get(agent, AgentStats())
        if event.status == "assigned":
            mine = replace(mine, assigned=mine.assigned + 1)
        elif event.status == "given-up":
            mine = replace(mine, given_up=mine.given_up + 1, consecutive_failures=mine.consecutive_failures + 1)
        elif event.status == "closed":
            durations = (*mine.durations_ms, (event.at - since) * 1000)
            mine = replace(mine, closed=mine.closed + 1, consecutive_failures=0, durations_ms=durations)
        stats[agent] = mine
    return stats


class TaskService:
    """The tasks of one scope. Each method appends one event, or raises and appends none.

    Raises:
        PulseNotFoundError: there is no such scope.
        IllegalTransitionError: the task cannot go there from where it is.
        InvalidInputError: a name or a code has other characters, or is too long.
    """

    def __init__(self, db: Session, scope: str) -> None:
        self._db = db
        self._scope = scope

    async def create(self, task_id: str, *, project: str, title: str, prompt: str, priority: int = 0) -> int:
        """Create a task. Title and prompt are the operator's, and are kept for good."""
        _require(_NAME, task_id=task_id, project=project)
        if isinstance(priority, bool) or not -1_000 <= priority <= 1_000:
            raise InvalidInputError(f"a priority must be from -1,000 to 1,000, not {priority!r:.80}")
        digest = await put_object(self._db, {"title": title, "prompt": prompt})
        return await self._append(task_id, "created", {"project": project, "priority": priority}, digest)

    async def assign(self, task_id: str, agent: str) -> int:
        """Assign a task to an agent, or reassign it to another one."""
        _require(_NAME, agent=agent)
        return await self._append(task_id, "assigned", {"agent": agent})

    async def begin(self, task_id: str) -> int:
        """Note that its agent works on it."""
        return await self._append(task_id, "executing", {})

    async def acknowledge(self, task_id: str, result: str) -> int:
        """Note what its agent made of it: a code, such as 'done' or 'merged'."""
        _require(_CODE, result=result)
        return await self._append(task_id, "acked", {"result": result})

    async def close(self, task_id: str) -> int:
        """Accept the result."""
        return await self._append(task_id, "closed", {})

    async def give_up(self, task_id: str, reason: str) -> int:
        """End a task without a result; the reason is a code."""
        _require(_CODE, reason=reason)
        return await self._append(task_id, "given-up", {"reason": reason})

    async def get(self, task_id: str) -> TaskState:
        """Return a task with its title and prompt.

        Raises:
            PulseNotFoundError: there is no such task.
        """
        rows = [dict(row) for row in await STATEMENTS.fetch(self._db, "task_events", self._scope, task_id)]
        if not rows:
            raise PulseNotFoundError(f"scope {self._scope!r} has no task {task_id!r:.80}")
        state = fold_tasks(map(_event, rows))[task_id]
        words = await get_object(self._db, rows[0]["hash"])
        return replace(state, title=words["title"], prompt=words["prompt"])

    async def events(self) -> list[TaskEvent]:
        """Return the events of all tasks, the oldest first."""
        return [_event(dict(row)) for row in await STATEMENTS.fetch(self._db, "task_events", self._scope, None)]

    async def list(self, *, include_over: bool = False, limit: int = 100) -> list[Mapping[str, Any]]:
        """Return tasks as the view has them, the most urgent first."""
        rows = await STATEMENTS.fetch(self._db, "list_tasks", self._scope, include_over, limit)
        return [dict(row) for row in rows]

    async def projections(self) -> Mapping[str, Any]:
        """Return what a snapshot gets: `pending-tasks` and `agent-capability-stats`."""
        found: Mapping[str, Any] = await STATEMENTS.fetchval(self._db, "task_projections", self._scope)
        return found

    async def _append(self, task_id: str, status: str, meta: dict[str, Any], digest: str | None = None) -> int:
        arguments = (self._scope, task_id, f"task-{status}", meta, digest)
        return int(await STATEMENTS.fetchval(self._db, "task_transition", *arguments))


def _event(row: Mapping[str, Any]) -> TaskEvent:
    return TaskEvent(
        row["id"], row["key"], row["kind"].removeprefix("task-"), row["occurred_at"].timestamp(), row["meta"]
    )


def _require(pattern: re.Pattern[str], **texts: str) -> None:
    for name, text in texts.items():
        if not isinstance(text, str) or not pattern.fullmatch(text):
            raise InvalidInputError(f"{name} is {text!r:.80}: it must match {pattern.pattern}")
