"""What an AG-UI client sends to run an agent, taken in: the session, the messages that are new, the run, once."""

from __future__ import annotations

import json
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
    SessionNotFoundError,
)
from pulse.events import Event, Session
from pulse.postgres.json_values import decode_body
from pulse.postgres.statements import load_queries
from pulse.runs.agents import RunInput
from pulse.runs.records import Run
from pulse.runs.service import RunService
from pulse.scopes import split_delta
from pulse.session_service import BATCH_SIZE_MAX, OpenSessionService

if TYPE_CHECKING:
    from pulse.database import Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """A run that a client asked for.

    Attributes:
        created: False where the run was there already: it is followed, not executed.
        given: for the agent.
        sent_ids: the messages that the client has, by their ids.
    """

    run: Run
    created: bool
    given: RunInput
    sent_ids: frozenset[str]


class RunIntake:
    """Takes in what AG-UI clients send."""

    def __init__(self, pool: Pool, sessions: OpenSessionService, runs: RunService) -> None:
        self._pool = pool
        self._sessions = sessions
        self._runs = runs
        self._queries = load_queries("pulse", "streams.sql")

    async def find(self, app_name: str, user_id: str, asked: RunAgentInput) -> Run | None:
        """Return the run of an input that was sent before.

        Raises:
            RunConflictError: it is a run of another session.
        """
        try:
            run = await self._runs.get(app_name, user_id, asked.run_id)
        except RunNotFoundError:
            return None
        if run.session_id != asked.thread_id.strip():
            raise RunConflictError(f"run {asked.run_id!r} belongs to another thread: use a new id for a new run")
        return run

    async def begin(self, app_name: str, user_id: str, asked: RunAgentInput, *, alone: bool = False) -> Intake:
        """Store what is new of an input and start its run, or return the run that was started with it before.

        The session is made if need be, with the input's state. New are the user's messages and the results of the
        client's tools after the last message of the assistant. A run that is to be alone is refused while another of
        the session goes on.

        Raises:
            RunConflictError: the run id is another session's.
            RunActiveError: another run goes on, and this one is to be alone.
            InterruptOpenError: the last run asks for answers that the input does not have.
            InvalidInputError, EventConflictError, EventTooLargeError, StateTooLargeError: nothing was started.
        """
        run = await self.find(app_name, user_id, asked)
        session = await self._session(app_name, user_id, asked)
        given = _run_input(asked, session)
        sent_ids = frozenset(message.id for message in asked.messages)
        if run is not None:
            return Intake(run=run, created=False, given=given, sent_ids=sent_ids)
        if alone:
            await self._require_no_run(session)
        await self._require_answers(session, asked)
        events = await self._new_events(session, asked.messages)
        first = events.pop() if events and events[-1].author == "user" else None
        if events:
            await self._sessions.append(app_name, user_id, session.id, events)
        started = await self._runs.start(app_name, user_id, session.id, asked.run_id, first, alone=alone)
        return Intake(run=started.run, created=started.created, given=given, sent_ids=sent_ids)

    async def _session(self, app_name: str, user_id: str, asked: RunAgentInput) -> Session:
        found = await self._sessions.get_session(app_name, user_id, asked.thread_id, num_recent_events=0)
        if found is not None:
            return found
        # Nothing is made for a request that is refused.
        if await self._pool.fetchval(self._queries["run_is_taken"], app_name, asked.run_id):
            raise RunConflictError(f"run {asked.run_id!r} belongs to another thread: use a new id for a new run")
        # A client sends back the state that it was shown, with what it saw of the user's and the app's: those are
        # not its to set.
        state = dict(split_delta(asked.state).session) if isinstance(asked.state, dict) else {}
        try:
            return await self._sessions.create_session(app_name, user_id, state, session_id=asked.thread_id)
        except SessionExistsError:
            found = await self._sessions.get_session(app_name, user_id, asked.thread_id, num_recent_events=0)
        if found is None:
            raise SessionNotFoundError(f"session {asked.thread_id!r} was deleted meanwhile")
        return found

    async def _require_no_run(self, session: Session) -> None:
        """Refuse early, before results of tools are stored; of two that come at once, `start_run` refuses one."""
        live = await self._pool.fetchval(self._queries["live_run"], session.thread_id)
        if live is not None:
            raise RunActiveError(f"run {live} of this session goes on")

    async def _require_answers(self, session: Session, asked: RunAgentInput) -> None:
        content = await self._pool.fetchval(self._queries["last_event_of_run"], session.thread_id)
        ended = {} if content is None else decode_body(content)
        result = ended.get("result") if isinstance(ended, dict) else None
        answered = {entry.interrupt_id for entry in asked.resume or ()}
        missing = [each.id for each in interrupts_of(result) if each.id not in answered]
        if missing:
            raise InterruptOpenError(f"the last run asks for answers to {', '.join(missing)[:300]}")

    async def _new_events(self, session: Session, messages: Sequence[Message]) -> list[Event]:
        start = max((place for place, each in enumerate(messages, 1) if isinstance(each, AssistantMessage)), default=0)
        events = [_event(each) for each in messages[start:] if isinstance(each, UserMessage | ToolMessage)]
        if len(events) > BATCH_SIZE_MAX:
            raise InvalidInputError(f"a run begins with at most {BATCH_SIZE_MAX} new messages: append them before")
        rows = await self._pool.fetch(self._queries["known_events"], session.thread_id, [each.id for each in events])
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
    said = _plain(message.content)
    key = "content" if isinstance(said, str) else "parts"
    return Event(author="user", event_type="user_message", content={key: said, "message_id": message.id}, id=message.id)


def _plain(content: Any) -> Any:
    """Return a message's content as JSON: its text, or its parts."""
    if isinstance(content, str):
        return content
    return [part.model_dump(by_alias=True, mode="json") for part in content]


def _run_input(asked: RunAgentInput, session: Session) -> RunInput:
    plain = json.loads(asked.model_dump_json(by_alias=True))
    return RunInput(
        messages=plain["messages"],
        state=session.state,
        tools=plain.get("tools", ()),
        context=plain.get("context", ()),
        forwarded_props=plain.get("forwardedProps"),
        resume=plain.get("resume", ()),
    )
