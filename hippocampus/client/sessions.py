"""The calls about sessions, their events and their state."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from hippocampus.client.calls import Calls
from hippocampus.client.records import (
    AppendOutcome,
    NewEvent,
    SessionRecord,
    StateChange,
    StateChanges,
    StoredEvent,
    ThreadRecord,
    Ticket,
    pick,
)


class SessionCalls(Calls):
    """Creates, reads, lists, appends to, finalizes and deletes sessions; reads their state; issues tickets."""

    async def create_session(
        self,
        user_id: str,
        session_id: str | None = None,
        *,
        state: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> SessionRecord:
        """Create a session; ConflictError if the id is taken."""
        body = {"session_id": session_id, "state": dict(state or {}), "metadata": dict(metadata or {})}
        return _session(await self._call("POST", self._user(user_id, "sessions"), json=body))

    async def get_session(self, user_id: str, session_id: str, *, num_recent_events: int = 100) -> SessionRecord:
        """Read a session with its newest events."""
        path = self._user(user_id, "sessions", session_id)
        return _session(await self._call("GET", path, params={"num_recent_events": num_recent_events}))

    async def list_sessions(self, user_id: str, *, page_size: int = 100) -> AsyncIterator[SessionRecord]:
        """Yield a user's sessions, newest first."""
        async for each in self._pages(self._user(user_id, "sessions"), "sessions", limit=page_size):
            yield _session(each)

    async def delete_session(self, user_id: str, session_id: str, *, expected_version: int | None = None) -> None:
        """Delete a session. Memories that were extracted from it remain."""
        path = self._user(user_id, "sessions", session_id)
        await self._call("DELETE", path, headers=_if_match(expected_version))

    async def finalize_session(
        self, user_id: str, session_id: str, *, expected_version: int | None = None
    ) -> Mapping[str, str]:
        """Finalize a session; return the jobs that consolidate it, by type."""
        path = self._user(user_id, "sessions", session_id, "finalize")
        body = await self._call("POST", path, headers=_if_match(expected_version))
        return dict(body["jobs"])

    async def append(
        self, user_id: str, session_id: str, events: Sequence[NewEvent], *, expected_version: int | None = None
    ) -> AppendOutcome:
        """Append events, all or none. The call is retried if the API is busy: nothing is stored twice."""
        body = {"events": [event_body(event) for event in events], "expected_version": expected_version}
        path = self._user(user_id, "sessions", session_id, "events")
        found = await self._call("POST", path, json=body, is_safe=True)
        appended = {each["id"]: each["appended"] for each in found["events"]}
        return AppendOutcome(thread_id=found["thread_id"], version=found["version"], appended=appended)

    async def list_events(
        self, user_id: str, session_id: str, *, after_sequence: int = 0, page_size: int = 100
    ) -> AsyncIterator[StoredEvent]:
        """Yield a session's events in sequence."""
        path = self._user(user_id, "sessions", session_id, "events")
        async for each in self._pages(path, "events", limit=page_size, after_sequence=after_sequence):
            yield pick(StoredEvent, each)

    async def state(self, user_id: str, session_id: str) -> Mapping[str, Mapping[str, Any]]:
        """Read a session's state by scope: session, user, app."""
        found = await self._call("GET", self._user(user_id, "sessions", session_id, "state"))
        return {scope: found[scope] for scope in ("session", "user", "app")}

    async def state_changes(
        self, user_id: str, session_id: str, *, version: int = 0, user_version: int = 0, app_version: int = 0
    ) -> StateChanges:
        """Read the keys that were set since the versions of an earlier read; 0 for every key."""
        path = self._user(user_id, "sessions", session_id, "state", "changes")
        params = {"since_version": version, "since_user_version": user_version, "since_app_version": app_version}
        return pick(StateChanges, await self._call("GET", path, params=params))

    async def state_history(self, user_id: str, session_id: str, *, page_size: int = 100) -> AsyncIterator[StateChange]:
        """Yield the events that changed the state, newest first."""
        path = self._user(user_id, "sessions", session_id, "state", "history")
        async for each in self._pages(path, "changes", limit=page_size):
            yield pick(StateChange, each)

    async def timeline(
        self, user_id: str, session_id: str, *, page_size: int = 100
    ) -> AsyncIterator[Mapping[str, Any]]:
        """Yield messages, thoughts, tool calls and results, in the API's format."""
        path = self._user(user_id, "conversations", session_id, "messages")
        async for each in self._pages(path, "timeline", limit=page_size):
            yield each

    async def threads(self, user_id: str, *, contains: str = "", page_size: int = 100) -> AsyncIterator[ThreadRecord]:
        """Yield a user's threads whose ids contain a text, with their newest runs, the most recently changed first."""
        named = self._owner(user_id)
        async for each in self._pages("/api/threads", "threads", limit=page_size, contains=contains, **named):
            yield pick(ThreadRecord, each)

    async def ticket(
        self, user_id: str, session_id: str, run_id: str | None = None, *, may_run: bool = False
    ) -> Ticket:
        """Issue a ticket with which a browser may follow a session's streams, or those of one run, until it expires.

        Args:
            user_id, session_id: the session.
            run_id: one run of it; by default the ticket is for all of them.
            may_run: whether it also runs agents in the session; needs a key with the role `append`.
        """
        body = {"thread_id": session_id, "run_id": run_id, "may_run": may_run}
        return pick(Ticket, await self._call("POST", "/api/tickets", params=self._owner(user_id), json=body))


def _if_match(expected_version: int | None) -> dict[str, str]:
    return {} if expected_version is None else {"If-Match": f'"{expected_version}"'}


def event_body(event: NewEvent) -> dict[str, Any]:
    """Return an event in the API's format."""
    fields = {each.name: getattr(event, each.name) for each in dataclasses.fields(event)}
    delta = dict(fields.pop("state_delta"))
    return {**fields, "actions": {"state_delta": delta}}


def _session(body: Mapping[str, Any]) -> SessionRecord:
    events = tuple(pick(StoredEvent, each) for each in body.get("events", ()))
    return pick(SessionRecord, {**body, "events": events})
