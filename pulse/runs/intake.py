"""Stores the input of an AG-UI client, once: the session, the new messages, the run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pulse.agui import types as agui
from pulse.agui.interrupts import interrupts_of
from pulse.agui.wire import PARTIAL_KEY
from pulse.errors import (
    ConcurrencyConflictError,
    HistoryChangedError,
    InterruptOpenError,
    InvalidInputError,
    RunActiveError,
    RunConflictError,
    RunNotFoundError,
    SessionExistsError,
)
from pulse.event_bridge import STATE_CONFLICT
from pulse.event_types import RUN_STARTED
from pulse.events import Event, EventActions, Session
from pulse.postgres.backoff import Backoff
from pulse.postgres.json_values import decode_body
from pulse.postgres.statements import Statements
from pulse.process.counts import COUNTS
from pulse.runs.agents import RunInput
from pulse.runs.client_view import ClientViews, own_keys
from pulse.runs.records import Run
from pulse.runs.service import RunService
from pulse.scopes import apply_delta
from pulse.session_key import SessionKey
from pulse.session_service import BATCH_SIZE_MAX, OpenSessionService

if TYPE_CHECKING:
    from pulse.database import Pool

#: How long a run waits for the end of a cancelled one.
CANCEL_SECONDS_MAX = 5.0
_POLL_SECONDS = 0.01
_POLL_SECONDS_MAX = 0.2
# Each is a change of the session by another writer while this one is taken in.
_ATTEMPTS_MAX = 5
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
        self._views = ClientViews(pool)

    async def find(self, app_name: str, user_id: str, requested: agui.RunAgentInput) -> Run | None:
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

    async def begin(
        self,
        app_name: str,
        user_id: str,
        requested: agui.RunAgentInput,
        *,
        alone: bool = False,
        takes_history: bool = False,
        cancel_active: Callable[[Run], None] | None = None,
    ) -> Intake:
        """Store what is new of an input and start its run, or return the run that was started with it before.

        The session is created if need be, with the input's state and messages. New are the user's messages and the
        results of the client's tools after the last stored message, and the state's changed keys: see
        `pulse.runs.client_view`. With `alone` the run is refused while another run of the session is active; it waits
        some seconds for the end of one whose cancellation was requested.

        Args:
            app_name, user_id: the session's.
            requested: the client's input.
            alone: see `pulse.runs.agents.runs_alone`.
            takes_history: the client takes the session's conversation instead of its own, whatever it sent.
            cancel_active: with `alone`, request the end of an active run, and call this with it.

        Raises:
            RunConflictError: the run id is another session's.
            RunActiveError: `alone`, and another run is active.
            InterruptOpenError: the last run waits for answers that the input does not have.
            HistoryChangedError: the client's messages are not the session's.
            ConcurrencyConflictError: other writers changed the session each time that the state was to be changed.
            InvalidInputError, EventConflictError, EventTooLargeError, StateTooLargeError: nothing was started.
        """
        for attempt in range(_ATTEMPTS_MAX):
            run = await self.find(app_name, user_id, requested)
            session = await self._session(app_name, user_id, requested)
            if run is not None:
                given = _run_input(requested, session)
                return Intake(run=run, created=False, given=given, sent_ids=_ids_of(requested))
            if alone:
                await self._require_no_active_run(session, cancel_active)
            try:
                return await self._start(session, requested, alone=alone, takes_history=takes_history)
            except ConcurrencyConflictError:
                if attempt == _ATTEMPTS_MAX - 1:
                    raise
                COUNTS.conflict_retries += 1
        raise AssertionError

    async def _start(
        self, session: Session, requested: agui.RunAgentInput, *, alone: bool, takes_history: bool
    ) -> Intake:
        await self._require_answers(session, requested)
        position = await self._views.position(session, requested)
        events = _new_events(session, requested.messages, position.known)
        if not takes_history:
            await self._views.require_same_messages(session, requested.messages, position)
            if position.is_answered and not events and not requested.resume and requested.messages[-1].role == "user":
                raise HistoryChangedError(
                    f"message {requested.messages[-1].id[:80]!r} was answered: to ask again, send a new message"
                )
        edits = await self._views.state_edits(session, requested.state, position)
        given = _run_input(requested, session, edits.delta, new_ids=frozenset(each.id for each in events))
        first = events.pop() if events and events[-1].author == "user" else None
        version = session.version if edits.delta else None
        if edits.delta or edits.conflicts:
            actions = {STATE_CONFLICT: list(edits.conflicts)} if edits.conflicts else {}
            first = first or Event(author="user", event_type=RUN_STARTED, content={})
            first = replace(first, actions=EventActions(state_delta=edits.delta, other=actions))
        if events:
            appended = await self._sessions.append(*session.key, events, expected_version=version)
            version = None if version is None else appended.version
        started = await self._runs.start(*session.key, requested.run_id, first, alone=alone, expected_version=version)
        return Intake(run=started.run, created=started.created, given=given, sent_ids=_ids_of(requested))

    async def _session(self, app_name: str, user_id: str, requested: agui.RunAgentInput) -> Session:
        found = await self._sessions.get_session(app_name, user_id, requested.thread_id, num_recent_events=0)
        if found is not None:
            return found
        # No session is created for a request that is refused.
        if await _STATEMENTS.fetchval(self._pool, "run_is_taken", app_name, requested.run_id):
            raise RunConflictError(f"run {requested.run_id!r} belongs to another thread: use a new id for a new run")
        # A client sends back the state that it received, including the user's and the app's, which it may not set.
        state = own_keys(requested.state)
        try:
            return await self._sessions.create_session(app_name, user_id, state, session_id=requested.thread_id)
        except SessionExistsError:
            found = await self._sessions.get_session(app_name, user_id, requested.thread_id, num_recent_events=0)
        if found is None:
            raise SessionKey(app_name, user_id, requested.thread_id).not_found()
        return found

    async def _require_no_active_run(self, session: Session, cancel: Callable[[Run], None] | None) -> None:
        """Refuse early, before results of tools are stored; of two concurrent requests `start_run` refuses one."""
        backoff = Backoff(_POLL_SECONDS, _POLL_SECONDS_MAX, jitter=0)
        deadline = time.monotonic() + CANCEL_SECONDS_MAX
        while (live := await _STATEMENTS.fetchrow(self._pool, "live_run", session.thread_id)) is not None:
            if cancel is not None and not live["is_cancelled"]:
                cancel(await self._runs.request_cancel(session.app_name, session.user_id, live["run_id"]))
            elif not live["is_cancelled"] or time.monotonic() > deadline:
                raise RunActiveError(
                    f"run {live['run_id']} of this session is still running: wait for its end, or cancel it"
                )
            await backoff.wait()

    async def _require_answers(self, session: Session, requested: agui.RunAgentInput) -> None:
        content = await _STATEMENTS.fetchval(self._pool, "last_event_of_run", session.thread_id)
        ended = {} if content is None else decode_body(content)
        result = ended.get("result") if isinstance(ended, dict) else None
        answered = {entry.interrupt_id for entry in requested.resume or ()}
        missing = [each.id for each in interrupts_of(result) if each.id not in answered]
        if missing:
            raise InterruptOpenError(f"the last run waits for answers to {', '.join(missing)[:300]}")


def _new_events(session: Session, messages: Sequence[agui.Message], known: Container[str]) -> list[Event]:
    """Return the events of the messages that are not stored yet.

    In a session that has messages, these are the user's messages and the results of the client's tools after the
    client's last stored message; if none of its messages is stored, after its last message of the assistant.
    """
    if not session.version:
        # A new session: the client brings the conversation with it, as for a branch of another one.
        new = messages
    else:
        last = _last(isinstance(each, agui.AssistantMessage) for each in messages)
        # Answers that the client made up, such as 'Something went wrong', follow the last stored message: they are no
        # reason to leave out what the user said before them. Nor are results of their calls stored.
        start = _last(each.id in known for each in messages) or last
        made_up = {call.id for each in messages[start:last] for call in getattr(each, "tool_calls", None) or ()}
        before = [each for each in messages[start:last] if getattr(each, "tool_call_id", None) not in made_up]
        new = [each for each in (*before, *messages[max(start, last) :]) if not isinstance(each, agui.AssistantMessage)]
    events = [event for each in new for event in _events_of(each)]
    if len(events) > BATCH_SIZE_MAX:
        raise InvalidInputError(
            f"a run must start with at most {BATCH_SIZE_MAX} new messages, not {len(events)}: append them first"
        )
    return [each for each in events if each.id not in known]


def _last(are_such: Iterable[bool]) -> int:
    """Return the number of the last one that is such, counted from 1; 0 if none is."""
    return max((number for number, is_such in enumerate(are_such, 1) if is_such), default=0)


def _ids_of(requested: agui.RunAgentInput) -> frozenset[str]:
    return frozenset(message.id for message in requested.messages)


def _events_of(message: agui.Message) -> list[Event]:
    """Return the events of a client's message; none for instructions and thoughts."""
    if isinstance(message, agui.UserMessage | agui.ToolMessage):
        return [_event(message)]
    if not isinstance(message, agui.AssistantMessage):
        return []
    events = []
    if message.content:
        content: dict[str, Any] = {"content": message.content, "message_id": message.id}
        events.append(Event(author="model", event_type="assistant_message", content=content, id=message.id))
    for call in message.tool_calls or ():
        content = {
            "tool_name": call.function.name,
            "tool_input": _arguments(call.function.arguments),
            "tool_args": call.function.arguments,
            "tool_call_id": call.id,
            "message_id": message.id,
            **({"partial": True} if PARTIAL_KEY in (call.metadata or {}) else {}),
        }
        own = f"{message.id}/{call.id}" if events else message.id
        events.append(Event(author="model", event_type="act", content=content, id=own))
    return events


def _arguments(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _event(message: agui.UserMessage | agui.ToolMessage) -> Event:
    if isinstance(message, agui.ToolMessage):
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


def _run_input(
    requested: agui.RunAgentInput,
    session: Session,
    delta: Mapping[str, Any] | None = None,
    *,
    new_ids: frozenset[str] = frozenset(),
) -> RunInput:
    try:
        # Not as text, since a lone surrogate has no UTF-8.
        plain = requested.model_dump(by_alias=True, mode="json")
    except ValueError:
        raise InvalidInputError("the input is nested too deeply; flatten it") from None
    merged = dict(session.state)
    apply_delta(merged, delta or {})
    return RunInput(
        messages=plain["messages"],
        state=merged,
        tools=plain.get("tools", ()),
        context=plain.get("context", ()),
        forwarded_props=plain.get("forwardedProps"),
        resume=plain.get("resume", ()),
        new_ids=new_ids,
    )
