"""Runs: the executions of agents, as events of their sessions.

    started = await runs.start("shop", "mei", "order-17", "run-1", user_message("Where is my parcel?"))
    if started.created:
        await runs.think(started.run, "I have to find the parcel")
        await runs.finish(started.run, "It arrives tomorrow.")

Each write is one transaction: the event, its message, its state, the run's row. A run has exactly one last event,
``complete``, ``error`` or ``cancelled``; if its process is lost, `reap` writes it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import asyncpg

from pulse import event_types
from pulse.errors import InvalidInputError, RunNotFoundError
from pulse.event_rows import event_input, read_appended, read_event_to_deliver
from pulse.events import Event, EventActions
from pulse.names import ID_LENGTH_MAX
from pulse.notify.notifier import Notifier
from pulse.postgres.json_values import clean_text
from pulse.postgres.limits import check_limit
from pulse.postgres.statements import Statements
from pulse.runs import events as run_events
from pulse.runs.records import Run, RunLease, RunStatus, RunWritten, read_run
from pulse.session_key import SessionKey
from pulse.tracing.manager import current_tracing

if TYPE_CHECKING:
    from pulse.database import Pool

#: How long a run outlives the last renewal by its process.
LEASE_SECONDS = 30.0
PAGE_SIZE_MAX = 1000

#: Token counts, one for each provider and model, with AG-UI's names: inputTokens, outputTokens and so on.
Usage: TypeAlias = Sequence[Mapping[str, Any]]

_ERROR_LENGTH_MAX = 10_000
_STATEMENTS = Statements("pulse.runs", "runs.sql")
#: The statement that also hands the context of the current span to the jobs.
_TRACED = {"start_run": "start_run_traced", "write_run": "write_run_traced", "end_run": "end_run_traced"}


class RunService:
    """Starts, writes and ends runs, and ends those whose process was lost.

    One per process and event loop: it holds the runs that it starts. Raises, from every method:
        InvalidInputError: an argument is out of its bounds; nothing was changed.
    """

    def __init__(self, pool: Pool, *, lease_seconds: float = LEASE_SECONDS, holder: str | None = None) -> None:
        """Hold runs as `holder`, by default under a unique name.

        Args:
            pool: a pool of `pulse.create_pool`.
            lease_seconds: 1 to 3,600; a run whose lease is not renewed within this time is ended as failed.
            holder: 1 to 255 characters. Services with the same holder may write to the same runs.
        """
        self.lease_seconds = _checked(lease_seconds) or LEASE_SECONDS
        self.holder = holder or str(uuid.uuid4())
        self._pool = pool
        self._notifier = Notifier(pool)

    async def close(self) -> None:
        """Send the notifications that wait. Runs that it still holds end with their leases."""
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
        holder: str | None = None,
        lease_seconds: float | None = None,
        expected_version: int | None = None,
    ) -> RunWritten:
        """Start a run with the user's message, or with the event ``run_started``.

        Args:
            run_id: 1 to 512 characters, unique in the app. For an id that exists, the stored run is returned, with
                `created` False and without events, whatever the message: do not execute it.
            message: its `invocation_id` becomes the run id.
            alone: refuse while another run of the session is active. Runs of lost processes are ended first.
            holder: who executes it, instead of this service's holder.
            lease_seconds: the length of the first lease, instead of this service's.
            expected_version: refuse if the session is at another version: the message has a state that was computed
                from it.

        Raises:
            SessionNotFoundError: no such session for this app and user.
            ConcurrencyConflictError: the session is at another version; nothing was started.
            RunConflictError: the run id belongs to another session.
            RunActiveError: `alone`, and another run of the session is active.
            EventConflictError: the message's id is taken.
            EventTooLargeError, StateTooLargeError: as `OpenSessionService.append`.
        """
        if not 1 <= len(run_id) <= ID_LENGTH_MAX or "\0" in run_id:
            raise InvalidInputError(
                f"run_id must have 1 to {ID_LENGTH_MAX} characters without U+0000, not {run_id[:40]!r}"
            )
        key = SessionKey(app_name, user_id, session_id.strip())
        first = message or run_events.system_event(event_types.RUN_STARTED, {})
        events = [replace(first, invocation_id=run_id)]
        row = await self._fetch_one(
            "start_run",
            *key,
            run_id,
            holder or self.holder,
            _checked(lease_seconds) or self.lease_seconds,
            [event_input(event) for event in events],
            alone,
            expected_version,
        )
        run = read_run(row["run"], user_id=key.user_id, session_id=key.session_id)
        if not row["created"]:
            return RunWritten(run=run, events=(), created=False)
        return self._written(run, events, row["stored"])

    async def think(self, run: Run, text: str, *, event_id: str | None = None) -> RunWritten:
        """Append a whole thought."""
        return await self.write(run, [run_events.thought(text, event_id)])

    async def call_tool(
        self, run: Run, tool_name: str, tool_input: Any, *, tool_call_id: str | None = None, event_id: str | None = None
    ) -> RunWritten:
        """Append the call of a tool, before it is made."""
        tool_call_id = tool_call_id or str(uuid.uuid4())
        return await self.write(
            run, [run_events.act(tool_name, tool_input, tool_call_id=tool_call_id, event_id=event_id)]
        )

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
        """Append the result of a tool."""
        name = tool_name or name_of_call(run, tool_call_id)
        event = run_events.observe(name, observation, tool_call_id=tool_call_id, is_error=is_error, event_id=event_id)
        return await self.write(run, [event])

    async def write(self, run: Run, events: Sequence[Event]) -> RunWritten:
        """Append any events of a run but its last, and renew its lease. The same events again change nothing.

        Calls of tools and their results are recorded in the run's row, if they have the id of the call.

        Raises, as all that write to a run:
            RunNotFoundError: its session was deleted.
            RunEndedError, RunFencedError: the run ended or has another holder; stop working on it.
            EventConflictError, EventTooLargeError, StateTooLargeError: as `OpenSessionService.append`.
        """
        marked = [replace(event, invocation_id=run.run_id) for event in events]
        rows = [event_input(event) for event in marked]
        tools = [recorded for event in marked if (recorded := _recorded(event))]
        row = await self._fetch_one("write_run", run.app_name, run.run_id, run.holder, self.lease_seconds, rows, tools)
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
        usage: Usage = (),
    ) -> RunWritten:
        """End a run as completed: its answer as ``assistant_message``, if any, then ``complete``.

        Args:
            run: the run.
            answer: the whole text.
            message_id: the id under which the answer was streamed, which becomes the id of its event; by default one
                that follows from the run, so that the same end again changes nothing.
            result: any JSON value, stored as ``result`` of ``complete``, such as an AG-UI outcome.
            state_delta: keys of the state to set with the end.
            usage: the tokens that the run used, one AG-UI TokenUsage for each provider and model.
        """
        complete = {**({} if result is None else {"result": result}), **_usage(usage)}
        events = []
        if answer:
            events.append(run_events.assistant_message(answer, message_id or f"answer-of-{run.id}"))
            complete["message_id"] = events[0].id
        last = run_events.system_event(event_types.COMPLETE, complete, event_id=f"end-of-{run.id}")
        events.append(replace(last, actions=EventActions(state_delta=state_delta or {})))
        return await self._end(run, RunStatus.COMPLETED, events)

    async def fail(self, run: Run, message: str, *, code: str = "failed", usage: Usage = ()) -> RunWritten:
        """End a run as failed. What it has streamed and not stored is stored before, marked as partial."""
        message = message.replace("\0", "\ufffd")[:_ERROR_LENGTH_MAX] or code
        content = {"message": message, "code": code, **_usage(usage)}
        last = run_events.system_event(event_types.ERROR, content, event_id=f"end-of-{run.id}")
        return await self._end(run, RunStatus.FAILED, [last], error=message, error_code=code)

    async def cancel(self, run: Run, reason: str = "", *, usage: Usage = ()) -> RunWritten:
        """End a run as cancelled: the holder's answer to `request_cancel`. Streamed texts are stored, as by `fail`."""
        content = {**({"reason": reason} if reason else {}), **_usage(usage)}
        last = run_events.system_event(event_types.CANCELLED, content, event_id=f"end-of-{run.id}")
        return await self._end(run, RunStatus.CANCELLED, [last])

    async def request_cancel(self, app_name: str, user_id: str, run_id: str) -> Run:
        """Request the cancellation of a run from its holder, and return the run. One that ended stays as it is.

        Raises:
            RunNotFoundError: no such run for this app and user.
        """
        return _read(await _STATEMENTS.fetch_one(self._pool, "request_cancel", app_name, user_id, run_id), user_id)

    async def get(self, app_name: str, user_id: str, run_id: str) -> Run:
        """Read a run.

        Raises:
            RunNotFoundError: no such run for this app and user.
        """
        row = await _STATEMENTS.fetchrow(self._pool, "get_run", app_name, user_id, run_id)
        if row is None:
            raise RunNotFoundError(f"there is no run {run_id!r} for app {app_name!r} and user {user_id!r}")
        return _read(row, user_id)

    async def list_runs(
        self, app_name: str, user_id: str, session_id: str, *, limit: int = 100, before: uuid.UUID | None = None
    ) -> list[Run]:
        """List a session's runs, the newest first; `before` is the `id` of the last run of the previous page."""
        check_limit(limit, PAGE_SIZE_MAX)
        key = SessionKey(app_name, user_id, session_id.strip())
        rows = await _STATEMENTS.fetch(self._pool, "list_runs", *key, before, limit)
        return [_read(row, user_id) for row in rows]

    async def history(self, run: Run, *, limit: int = 200) -> list[dict[str, Any]]:
        """Return the conversation of a run's session as it is stored, with the run's own messages, as AG-UI's messages.

        Calls whose arguments were cut off by the end of their run are left out: they were never made, and no model
        accepts half of a JSON value.

        Args:
            run: any run of the session.
            limit: how many of the newest events that are messages, thoughts, calls and results, 1 to 1,000.
        """
        from pulse.agui.messages import MESSAGE_TYPES, is_partial_call, messages_of  # the extra [http]

        check_limit(limit, PAGE_SIZE_MAX)
        rows = await _STATEMENTS.fetch(self._pool, "history", run.thread_id, sorted(MESSAGE_TYPES), limit)
        events = [read_event_to_deliver(list(row)) for row in reversed(rows)]
        whole = [event for event in events if not is_partial_call(event)]
        found = messages_of(whole, is_cut=len(rows) == limit or len(whole) < len(events))
        return [each.model_dump(by_alias=True, exclude_none=True, mode="json") for each in found]

    async def ending(self, run: Run) -> tuple[str, Any]:
        """Return a run's last answer and the `result` of its end, as they are stored; '' and None if it has none."""
        rows = await _STATEMENTS.fetch(self._pool, "ending", run.thread_id, run.run_id)
        found = {event.event_type: event.content for event in (read_event_to_deliver(list(row)) for row in rows)}
        answer, end = found.get("assistant_message"), found.get(event_types.COMPLETE)
        return (
            str(answer.get("content") or "") if isinstance(answer, Mapping) else "",
            end.get("result") if isinstance(end, Mapping) else None,
        )

    async def renew(
        self, runs: Iterable[uuid.UUID], *, holder: str | None = None, lease_seconds: float | None = None
    ) -> dict[uuid.UUID, RunLease]:
        """Renew the leases of runs that are executed here; `pulse.runs.heartbeat` does it in time.

        Args:
            runs: the engine's ids; the leases of runs of another holder are not renewed.
            holder: another holder of the runs than this service's.
            lease_seconds: from now, instead of this service's.

        Returns:
            The runs that still exist.
        """
        seconds = _checked(lease_seconds) or self.lease_seconds
        rows = await _STATEMENTS.fetch(self._pool, "renew_runs", holder or self.holder, list(runs), seconds)
        return {row["id"]: RunLease(RunStatus(row["status"]), row["cancel_requested"]) for row in rows}

    async def reap(self, *, limit: int = 100) -> int:
        """End runs whose lease expired, as `fail` does, and return how many. If it is `limit`, there may be more.

        Any number of processes may call it at the same time.
        """
        return int(await _STATEMENTS.fetchval(self._pool, "reap_runs", limit))

    async def _end(
        self,
        run: Run,
        status: RunStatus,
        events: Sequence[Event],
        *,
        error: str | None = None,
        error_code: str | None = None,
    ) -> RunWritten:
        marked = [replace(event, invocation_id=run.run_id) for event in events]
        rows = [event_input(event) for event in marked]
        row = await self._fetch_one(
            "end_run", run.app_name, run.run_id, run.holder, str(status), rows, error, error_code
        )
        return self._written(
            read_run(row["run"], user_id=run.user_id, session_id=run.session_id), marked, row["stored"]
        )

    def _written(self, run: Run, events: Sequence[Event], stored: Sequence[asyncpg.Record]) -> RunWritten:
        outcome = read_appended(run.thread_id, events, stored)
        if outcome.new_events:
            self._notifier.wake(outcome)
        return RunWritten(run=run, events=outcome.events, new_events=outcome.new_events)

    async def _fetch_one(self, name: str, *arguments: Any) -> asyncpg.Record:
        tracing = current_tracing()
        if tracing.is_on and (traceparent := tracing.traceparent) is not None:
            return await _STATEMENTS.fetch_one(self._pool, _TRACED[name], *arguments, traceparent)
        return await _STATEMENTS.fetch_one(self._pool, name, *arguments)


def _usage(usage: Usage) -> dict[str, Any]:
    return {"usage": [dict(each) for each in usage]} if usage else {}


def _checked(lease_seconds: float | None) -> float | None:
    if lease_seconds is not None and not 1 <= lease_seconds <= 3600:
        raise InvalidInputError(f"a lease must be from 1 to 3600 seconds, not {lease_seconds}")
    return lease_seconds


def _recorded(event: Event) -> dict[str, Any] | None:
    """Return what the run's row keeps of a call or a result; None for any other event."""
    content = event.content if isinstance(event.content, Mapping) else {}
    call = content.get("tool_call_id")
    if event.event_type not in ("act", "observe") or not isinstance(call, str):
        return None
    recorded: dict[str, Any] = {"event_id": event.id, "tool_call_id": clean_text(call)}
    if event.event_type == "act":
        return {**recorded, "tool_name": clean_text(str(content.get("tool_name") or ""))}
    return {**recorded, "is_error": bool(content.get("is_error"))}


def name_of_call(run: Run, tool_call_id: str) -> str:
    """Return the tool's name of a call; '' if the run no longer has the call."""
    return next((call["tool_name"] for call in run.tool_calls if call["tool_call_id"] == tool_call_id), "")


def _read(row: asyncpg.Record, user_id: str) -> Run:
    return read_run(row["run"], user_id=user_id, session_id=row["session_id"])
