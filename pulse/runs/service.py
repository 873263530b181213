"""Runs: what an agent does in one execution, as events of its session.

    started = await runs.start("shop", "mei", "order-17", "run-1", user_message("Where is my parcel?"))
    if started.created:
        await runs.think(started.run, "I have to look it up")
        await runs.finish(started.run, "It arrives tomorrow.")

Each write is one transaction: the event, its message, its state, the run's row. A run has exactly one last event,
``complete``, ``error`` or ``cancelled``; if its process is lost, `reap` writes it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import asyncpg

from pulse import event_types
from pulse.errors import InvalidInputError, RunNotFoundError
from pulse.event_rows import ID_LENGTH_MAX, event_input, read_appended
from pulse.events import Event, EventActions
from pulse.notify.notifier import Notifier
from pulse.postgres.json_values import clean_text
from pulse.postgres.statements import load_queries, translate
from pulse.runs import events as run_events
from pulse.runs.records import Run, RunStatus, RunWritten, read_run

if TYPE_CHECKING:
    from pulse.database import Pool

#: How long a run outlives the last sign of its process.
LEASE_SECONDS = 30.0
PAGE_SIZE_MAX = 1000

_ERROR_LENGTH_MAX = 10_000


class RunService:
    """Starts, writes and ends runs, and finds those whose process is gone.

    One per process and event loop: what it starts, it holds. Raises, from every method:
        InvalidInputError: an argument is out of its bounds; nothing was changed.
    """

    def __init__(self, pool: Pool, *, lease_seconds: float = LEASE_SECONDS, holder: str | None = None) -> None:
        """Hold runs as `holder`, by default a name that nobody else has.

        Args:
            pool: where.
            lease_seconds: 1 to 3,600; a run whose process is not heard of for so long is ended as failed.
            holder: 1 to 255 characters. Whoever uses the same one may write to the same runs.
        """
        if not 1 <= lease_seconds <= 3600:
            raise InvalidInputError(f"a lease is 1 to 3600 seconds, not {lease_seconds}")
        self.lease_seconds = lease_seconds
        self.holder = holder or str(uuid.uuid4())
        self._pool = pool
        self._queries = load_queries("pulse", "runs.sql")
        self._notifier = Notifier(pool)

    async def close(self) -> None:
        """Send the notifications that wait. What it holds still is left to its lease."""
        await self._notifier.close()

    async def start(
        self,
        app_name: str,
        user_id: str,
        session_id: str,
        run_id: str,
        message: Event | None = None,
        *,
        alone: bool = False,
    ) -> RunWritten:
        """Start a run with the user's message, or with the event ``run_started``.

        Args:
            run_id: 1 to 512 characters, unique in the app. One that is known gives back the stored run, `created`
                False and without events, whatever the message: look at it, do not execute it.
            message: its `invocation_id` becomes the run id.
            alone: only where no other run of the session goes on. Those of dead processes are ended before.

        Raises:
            SessionNotFoundError: no such session for this app and user.
            RunConflictError: the run id belongs to another session.
            RunActiveError: another run of the session goes on, and this one is to be alone.
            EventConflictError: the message's id is taken.
            EventTooLargeError, StateTooLargeError: as `OpenSessionService.append`.
        """
        if not 1 <= len(run_id) <= ID_LENGTH_MAX or "\0" in run_id:
            raise InvalidInputError(f"run_id is 1 to {ID_LENGTH_MAX} characters without U+0000")
        first = message or run_events.of_the_system(event_types.RUN_STARTED, {})
        events = [replace(first, invocation_id=run_id)]
        row = await self._fetchrow(
            "start_run",
            app_name,
            user_id,
            session_id.strip(),
            run_id,
            self.holder,
            self.lease_seconds,
            [event_input(event) for event in events],
            alone,
        )
        run = read_run(row["run"], user_id=user_id, session_id=session_id.strip())
        if not row["created"]:
            return RunWritten(run=run, events=(), created=False)
        return self._written(run, events, row["stored"])

    async def think(self, run: Run, text: str, *, event_id: str | None = None) -> RunWritten:
        """Append a thought, whole."""
        return await self.write(run, [run_events.thought(text, event_id)])

    async def call_tool(
        self, run: Run, tool_name: str, tool_input: Any, *, tool_call_id: str | None = None, event_id: str | None = None
    ) -> RunWritten:
        """Append the call of a tool, before it is made."""
        tool_call_id = tool_call_id or str(uuid.uuid4())
        return await self.write(run, [run_events.act(tool_name, tool_input, tool_call_id, event_id)])

    async def tool_result(
        self,
        run: Run,
        tool_call_id: str,
        observation: Any,
        *,
        tool_name: str = "",
        is_error: bool = False,
        event_id: str | None = None,
    ) -> RunWritten:
        """Append what a tool answered."""
        name = tool_name or _name_of_call(run, tool_call_id)
        event = run_events.observe(name, observation, tool_call_id, is_error=is_error, event_id=event_id)
        return await self.write(run, [event])

    async def write(self, run: Run, events: Sequence[Event]) -> RunWritten:
        """Append any events of a run but its last, and prolong its lease. The same events again change nothing.

        Calls of tools and their results are noted in the run's row, if they have the id of the call.

        Raises, as all that write to a run:
            RunNotFoundError: its session was deleted.
            RunEndedError, RunFencedError: it is not ours any more: stop working on it.
            EventConflictError, EventTooLargeError, StateTooLargeError: as `OpenSessionService.append`.
        """
        marked = [replace(event, invocation_id=run.run_id) for event in events]
        rows = [event_input(event) for event in marked]
        tools = [noted for event in marked if (noted := _noted(event))]
        row = await self._fetchrow("write_run", run.app_name, run.run_id, run.holder, self.lease_seconds, rows, tools)
        return self._written(
            read_run(row["run"], user_id=run.user_id, session_id=run.session_id), marked, row["stored"]
        )

    async def finish(
        self,
        run: Run,
        answer: str | None = None,
        *,
        message_id: str | None = None,
        result: Any = None,
        state_delta: Mapping[str, Any] | None = None,
    ) -> RunWritten:
        """End a run as completed: its answer as ``assistant_message``, where it has one, then ``complete``.

        Args:
            run: to end.
            answer: the whole text.
            message_id: under which the answer was streamed; it becomes the id of its event.
            result: any JSON value, kept as ``result`` of ``complete``, such as an AG-UI outcome.
            state_delta: set together with the end.
        """
        complete: dict[str, Any] = {} if result is None else {"result": result}
        events = []
        if answer:
            events.append(run_events.assistant_message(answer, message_id))
            complete["message_id"] = events[0].id
        last = run_events.of_the_system(event_types.COMPLETE, complete, f"end-of-{run.id}")
        events.append(replace(last, actions=EventActions(state_delta=state_delta or {})))
        return await self._end(run, RunStatus.COMPLETED, events)

    async def fail(self, run: Run, message: str, *, code: str = "failed") -> RunWritten:
        """End a run as failed. A partial answer is not kept: nothing of it is a message."""
        message = message.replace("\0", "\ufffd")[:_ERROR_LENGTH_MAX] or code
        last = run_events.of_the_system(event_types.ERROR, {"message": message, "code": code}, f"end-of-{run.id}")
        return await self._end(run, RunStatus.FAILED, [last], message, code)

    async def cancel(self, run: Run, reason: str = "") -> RunWritten:
        """End a run as cancelled: the owner's answer to `request_cancel`."""
        content = {"reason": reason} if reason else {}
        return await self._end(
            run, RunStatus.CANCELLED, [run_events.of_the_system(event_types.CANCELLED, content, f"end-of-{run.id}")]
        )

    async def request_cancel(self, app_name: str, user_id: str, run_id: str) -> Run:
        """Ask whoever executes a run to cancel it, and return it as it is now. One that ended stays as it is.

        Raises:
            RunNotFoundError: no such run for this app and user.
        """
        return _read(await self._fetchrow("request_cancel", app_name, user_id, run_id), user_id)

    async def get(self, app_name: str, user_id: str, run_id: str) -> Run:
        """Read a run.

        Raises:
            RunNotFoundError: no such run for this app and user.
        """
        rows = await self._fetch("get_run", app_name, user_id, run_id)
        if not rows:
            raise RunNotFoundError(f"there is no run {run_id!r} for app {app_name!r} and user {user_id!r}")
        return _read(rows[0], user_id)

    async def list_runs(
        self, app_name: str, user_id: str, session_id: str, *, limit: int = 100, before: uuid.UUID | None = None
    ) -> list[Run]:
        """List a session's runs, the newest first; `before` is the `id` of the last one of the page before."""
        if not 1 <= limit <= PAGE_SIZE_MAX:
            raise InvalidInputError(f"limit is 1 to {PAGE_SIZE_MAX}, not {limit}")
        rows = await self._fetch("list_runs", app_name, user_id, session_id.strip(), before, limit)
        return [_read(row, user_id) for row in rows]

    async def renew(self, runs: Iterable[uuid.UUID]) -> dict[uuid.UUID, tuple[RunStatus, bool]]:
        """Prolong the leases of runs that are executed here; see `pulse.runs.heartbeat`, which does it in time.

        Returns:
            Of each that is still there its status and whether somebody asked to cancel it.
        """
        rows = await self._fetch("renew_runs", self.holder, list(runs), self.lease_seconds)
        return {row["id"]: (RunStatus(row["status"]), row["cancel_requested"]) for row in rows}

    async def reap(self, *, limit: int = 100) -> int:
        """End runs whose process was not heard of within its lease. Any process may; many at once do not meet.

        Returns:
            How many; as many as `limit` say that there may be more.
        """
        return int((await self._fetchrow("reap_runs", limit))[0])

    async def _end(
        self,
        run: Run,
        status: RunStatus,
        events: Sequence[Event],
        error: str | None = None,
        error_code: str | None = None,
    ) -> RunWritten:
        marked = [replace(event, invocation_id=run.run_id) for event in events]
        rows = [event_input(event) for event in marked]
        row = await self._fetchrow(
            "end_run", run.app_name, run.run_id, run.holder, str(status), rows, error, error_code
        )
        return self._written(
            read_run(row["run"], user_id=run.user_id, session_id=run.session_id), marked, row["stored"]
        )

    def _written(self, run: Run, events: Sequence[Event], stored: Sequence[asyncpg.Record]) -> RunWritten:
        outcome = read_appended(run.thread_id, events, stored)
        if outcome.new_events:
            self._notifier.wake(outcome)
        return RunWritten(run=run, events=outcome.events)

    async def _fetch(self, name: str, *arguments: Any) -> list[asyncpg.Record]:
        try:
            return await self._pool.fetch(self._queries[name], *arguments)
        except asyncpg.PostgresError as error:
            raise translate(error) from error

    async def _fetchrow(self, name: str, *arguments: Any) -> asyncpg.Record:
        return (await self._fetch(name, *arguments))[0]


def _noted(event: Event) -> dict[str, Any] | None:
    """Return what the run's row keeps of a call or a result; None for any other event."""
    content = event.content if isinstance(event.content, Mapping) else {}
    call = content.get("tool_call_id")
    if event.event_type not in ("act", "observe") or not isinstance(call, str):
        return None
    noted: dict[str, Any] = {"event_id": event.id, "tool_call_id": clean_text(call)}
    if event.event_type == "act":
        return {**noted, "tool_name": clean_text(str(content.get("tool_name") or ""))}
    return {**noted, "is_error": bool(content.get("is_error"))}


def _name_of_call(run: Run, tool_call_id: str) -> str:
    """Return the tool's name as it stands with the call, '' where the call is not known any more."""
    return next((call["tool_name"] for call in run.tool_calls if call["tool_call_id"] == tool_call_id), "")


def _read(row: asyncpg.Record, user_id: str) -> Run:
    return read_run(row["run"], user_id=user_id, session_id=row["session_id"])
