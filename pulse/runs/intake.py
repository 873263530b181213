"""Stores the input of an AG-UI client, once: the session, the new messages, the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ag_ui.core import AssistantMessage, Message, RunAgentInput, ToolMessage, UserMessage

from pulse.agui.interrupts import interrupts_of
from pulse.errors import (
    InterruptOpenError,
    InvalidInputError,
    RunActiveError,
    RunConflictError,
    RunNotFoundError,
    SessionExistsError,
)
from pulse.events import Event, Session
from pulse.postgres.json_values import decode_body
from pulse.postgres.statements import Statements
from pulse.runs.agents import RunInput
from pulse.runs.records import Run
from pulse.runs.service import RunService
from pulse.scopes import split_delta
from pulse.session_key import SessionKey
from pulse.session_service import BATCH_SIZE_MAX, OpenSessionService

if TYPE_CHECKING:
    from pulse.database import Pool

_STATEMENTS = Statements("pulse.runs", "runs.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """A run that a client requested.

    Attributes:
        created: False if the run existed already: it is followed, not executed.
        given: the agent's input.
        sent_ids: the ids of the messages that the client has.
    """

    run: Run
    created: bool
    given: RunInput
    sent_ids: frozenset[str]


class RunIntake:
    """Starts the runs that AG-UI clients request."""

    def __init__(self, pool: Pool, sessions: OpenSessionService, runs: RunService) -> None:
        self._pool = pool
        self._sessions = sessions
        self._runs = runs

    async def find(self, app_name: str, user_id: str, requested: RunAgentInput) -> Run | None:
        """Return the run of an input that was sent before.

        Raises:
            RunConflictError: it is a run of another session.
        """
        try:
            run = await self._runs.get(app_name, user_id, requested.run_id)
        except RunNotFoundError:
            return None
        if run.session_id != requested.thread_id.strip():
            raise RunConflictError(f"run {requested.run_id!r} belongs to another thread: use a new id for a new run")
        return run

    async def begin(self, app_name: str, user_id: str, requested: RunAgentInput, *, alone: bool = False) -> Intake:
        """Store what is new of an input and start its run, or return the run that was started with it before.

        The session is created if need be, with the input's state. New are the user's messages and the results of the
        client's tools after the last message of the assistant. With `alone` the run is refused while another run of
        the session is active.

        Raises:
            RunConflictError: the run id is another session's.
            RunActiveError: `alone`, and another run is active.
            InterruptOpenError: the last run waits for answers that the input does not have.
            InvalidInputError, EventConflictError, EventTooLargeError, StateTooLargeError: nothing was started.
        """
        run = await self.find(app_name, user_id, requested)
        session = await self._session(app_name, user_id, requested)
        given = _run_input(requested, session)
        sent_ids = frozenset(message.id for message in requested.messages)
        if run is not None:
            return Intake(run=run, created=False, given=given, sent_ids=sent_ids)
        if alone:
            await self._require_no_active_run(session)
        await self._require_answers(session, requested)
        events = await self._new_events(session, requested.messages)
        first = events.pop() if events and events[-1].author == "user" else None
        if events:
            await self._sessions.append(app_name, user_id, session.id, events)
        started = await self._runs.start(app_name, user_id, session.id, requested.run_id, first, alone=alone)
        return Intake(run=started.run, created=started.created, given=given, sent_ids=sent_ids)

    async def _session(self, app_name: str, user_id: str, requested: RunAgentInput) -> Session:
        found = await self._sessions.get_session(app_name, user_id, requested.thread_id, num_recent_events=0)
        if found is not None:
            return found
        # No session is created for a request that is refused.
        if await _STATEMENTS.fetchval(self._pool, "run_is_taken", app_name, requested.run_id):
            raise RunConflictError(f"run {requested.run_id!r} belongs to another thread: use a new id for a new run")
        # A client sends back the state that it received, including the user's and the app's, which it may not set.
        state = dict(split_delta(requested.state).session) if isinstance(requested.state, dict) else {}
        try:
            return await self._sessions.create_session(app_name, user_id, state, session_id=requested.thread_id)
        except SessionExistsError:
            found = await self._sessions.get_session(app_name, user_id, requested.thread_id, num_recent_events=0)
        if found is None:
            raise SessionKey(app_name, user_id, requested.thread_id).not_found()
        return found

    async def _require_no_active_run(self, session: Session) -> None:
        """Refuse early, before results of tools are stored; of two concurrent requests `start_run` refuses one."""
        live = await _STATEMENTS.fetchval(self._pool, "live_run", session.thread_id)
        if live is not None:
            raise RunActiveError(f"run {live} of this session goes on")

    async def _require_answers(self, session: Session, requested: RunAgentInput) -> None:
        content = await _STATEMENTS.fetchval(self._pool, "last_event_of_run", session.thread_id)
        ended = {} if content is None else decode_body(content)
        result = ended.get("result") if isinstance(ended, dict) else None
        answered = {entry.interrupt_id for entry in requested.resume or ()}
        missing = [each.id for each in interrupts_of(result) if each.id not in answered]
        if missing:
            raise InterruptOpenError(f"the last run waits for answers to {', '.join(missing)[:300]}")

    async def _new_events(self, session: Session, messages: Sequence[Message]) -> list[Event]:
        start = max(
            (number for number, each in enumerate(messages, 1) if isinstance(each, AssistantMessage)), default=0
        )
        events = [_event(each) for each in messages[start:] if isinstance(each, UserMessage | ToolMessage)]
        if len(events) > BATCH_SIZE_MAX:
            raise InvalidInputError(
                f"a run starts with at most {BATCH_SIZE_MAX} new messages, not {len(events)}: append them first"
            )
        rows = await _STATEMENTS.fetch(self._pool, "known_events", session.thread_id, [each.id for each in events])
        known = {row["id"] for row in rows}
        return [each for each in events if each.id not in known]


def _event(message: UserMessage | ToolMessage) -> Event:
    if isinstance(message, ToolMessage):
        content = {
            "tool_call_id": message.tool_call_id,
            "observation": _plain(message.content),
            "message_id": message.id,
            "is_error": message.error is not None,
        }
        return Event(author="tool", event_type="observe", content=content, id=message.id)
    content = _plain(message.content)
    key = "content" if isinstance(content, str) else "parts"
    return Event(
        author="user", event_type="user_message", content={key: content, "message_id": message.id}, id=message.id
    )


def _plain(content: Any) -> Any:
    """Return a message's content as JSON: its text, or its parts."""
    if isinstance(content, str):
        return content
    return [part.model_dump(by_alias=True, mode="json") for part in content]


def _run_input(requested: RunAgentInput, session: Session) -> RunInput:
    try:
        # Not as text, since a lone surrogate has no UTF-8.
        plain = requested.model_dump(by_alias=True, mode="json")
    except ValueError:
        raise InvalidInputError("the input is nested too deeply; flatten it") from None
    return RunInput(
        messages=plain["messages"],
        state=session.state,
        tools=plain.get("tools", ()),
        context=plain.get("context", ()),
        forwarded_props=plain.get("forwardedProps"),
        resume=plain.get("resume", ()),
    )
