"""ADK's session service within one run: the agent's events are stored as events of the run, and thereby streamed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from google.adk.events import Event
from google.adk.sessions import BaseSessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse
from google.genai import types
from typing_extensions import override

from pulse.adk import events as adk_events
from pulse.adk import pieces
from pulse.adk.sessions import PostgresSessionService
from pulse.runs.agents import RunContext
from pulse.scopes import apply_delta

#: Called before an event of the agent is stored; returns the ids of the messages that were streamed for it, by type.
Streamed = Callable[[], "Mapping[str, str]"]


class RunSessions(BaseSessionService):
    """Reads like `PostgresSessionService`, and writes to the run.

    Events that other clients append to the session meanwhile do not make the run's session stale, as that would fail
    the run. Other runs of the same session are refused before they begin.

    Args:
        stored: reads, and writes to every session other than the run's.
        run: the run that executes the agent.
        inputs: the contents of the messages that the agent answers, by id. They are already stored; the agent's runner
            appends them again, as one event.
        streamed: returns the messages that were streamed for the next event to store.
        again: the parts of `inputs`, if an earlier run was lost before it answered them: they are not stored again.

    Attributes:
        message: the message that the agent answers.
    """

    def __init__(
        self,
        stored: PostgresSessionService,
        run: RunContext,
        inputs: Mapping[str, Any],
        streamed: Streamed,
        *,
        again: Sequence[types.Part] = (),
    ) -> None:
        self._stored = stored
        self._run = run
        self._inputs = list(inputs)
        parts = list(again)
        if not again:
            given = [part for content in inputs.values() for part in pieces.parts_of_elsewhere(content)]
            parts = [types.Part.model_validate(part) for part in given]
        self.message = types.Content(role="user", parts=parts)
        self._is_repeated = bool(again)
        self._inputs_at: float | None = None
        self._streamed = streamed

    @override
    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        return await self._stored.create_session(app_name=app_name, user_id=user_id, state=state, session_id=session_id)

    @override
    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        session = await self._stored.get_session(
            app_name=app_name, user_id=user_id, session_id=session_id, config=config
        )
        if session is not None and self._inputs and self._is_of_the_run(session):
            repeated = [event for event in session.events if event.id in self._inputs]
            self._inputs_at = max((event.timestamp for event in repeated), default=self._inputs_at)
            # The events that end a run are not for the agent: ADK does not know their author.
            session.events = [
                event for event in session.events if event.id not in self._inputs and not _is_of_the_system(event)
            ]
        return session

    @override
    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        return await self._stored.list_sessions(app_name=app_name, user_id=user_id)

    @override
    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        await self._stored.delete_session(app_name=app_name, user_id=user_id, session_id=session_id)

    @override
    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        return await self._stored.get_user_state(app_name=app_name, user_id=user_id)

    @override
    async def append_event(self, session: Session, event: Event) -> Event:
        """Store an event in the run, and update the session object; on an error both are unchanged.

        Raises:
            pulse.errors.RunEndedError, pulse.errors.RunFencedError: this process no longer holds the run.
            pulse.errors.EventTooLargeError, pulse.errors.StateTooLargeError: it would exceed the app's limits.
        """
        if not self._is_of_the_run(session):
            return await self._stored.append_event(session, event)
        if event.partial:
            return event
        stored = adk_events.to_engine(event)
        run_id = self._run.run.run_id
        if self._inputs and self._is_repeated and event.author == "user":
            self._inputs = []
        elif self._inputs and event.author == "user":
            # At the time of the messages that it repeats, so that a reader of the newest events gets both or none.
            again = pieces.repeat(stored, run_id, self._inputs, is_changed=event.content != self.message)
            await self._run.write(replace(again, timestamp=self._inputs_at or again.timestamp))
            self._inputs = []
        else:
            await self._run.write(*pieces.split(stored, run_id, self._streamed()))
        apply_delta(self._run.state, stored.actions.state_delta)
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        session.last_update_time = event.timestamp
        self._update_session_state(session, event)
        session.events.append(event)
        return event

    def _is_of_the_run(self, session: Session) -> bool:
        run = self._run.run
        return (session.app_name, session.user_id, session.id.strip()) == (run.app_name, run.user_id, run.session_id)


def _is_of_the_system(event: Event) -> bool:
    # The last event of a failed run has the error message.
    is_silent = event.content is None or event.id.startswith("end-of-")
    return event.author == "system" and is_silent and not event.actions.state_delta
