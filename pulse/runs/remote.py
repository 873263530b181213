"""Runs that are executed elsewhere: an agent in any process and language starts one, and writes it over the API.

Such a run has a holder of its own, which the agent names with each call, and the same lease as any other: it is renewed
by each write, by what is streamed and by a heartbeat, and a run whose agent fell silent is ended by the reaper. What is
written reaches the followers in the same way as what an agent in this process writes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pulse.agui import wire
from pulse.errors import InvalidInputError, RunEndedError, RunFencedError, SessionExistsError, SessionNotFoundError
from pulse.events import Event
from pulse.live_text import DeltaCarrier, Kind, RunKey
from pulse.postgres.json_values import clean_text
from pulse.runs.records import Run, RunLease, RunWritten
from pulse.runs.service import RunService
from pulse.session_service import OpenSessionService

#: A prefix that no process gives to the runs that it executes itself.
_PREFIX = "api:"
HOLDER_LENGTH_MAX = 255 - len(_PREFIX)
#: Events whose text, thought or call may have been streamed under their id.
_STREAMED_TYPES = frozenset({"assistant_message", "message", "thought", "act"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """A piece of an open message.

    Attributes:
        offset: where the piece begins, in characters; 0 opens the message.
        meta: as of a `LiveMessage`.
    """

    message_id: str
    kind: Kind
    offset: int
    text: str
    meta: Mapping[str, Any] = field(default_factory=dict)


class RemoteRuns:
    """Starts, writes and ends runs on behalf of agents elsewhere.

    Raises, from every method that writes to a run:
        RunNotFoundError: no such run for this app and user.
        RunFencedError: it has another holder, or is executed by a process of the engine.
        RunEndedError: it has ended; stop working on it.
        InvalidInputError: nothing was changed.
    """

    def __init__(self, runs: RunService, sessions: OpenSessionService, carrier: DeltaCarrier) -> None:
        self._runs = runs
        self._sessions = sessions
        self._carrier = carrier

    async def start(
        self,
        app_name: str,
        user_id: str,
        session_id: str,
        run_id: str,
        *,
        holder: str,
        message: Event | None = None,
        alone: bool = False,
        lease_seconds: float | None = None,
    ) -> RunWritten:
        """Start a run, as `RunService.start`; the session is created if there is none.

        The same id and holder again return the run: an agent that lost the first answer continues with it.

        Raises:
            RunFencedError: the run exists and has another holder.
            others: as `RunService.start`.
        """
        if not session_id.strip():
            raise InvalidInputError("the session's id is blank: name a session, or a new id to create one")
        owner = app_name, user_id
        options: dict[str, Any] = {"alone": alone, "holder": _stored(holder), "lease_seconds": lease_seconds}
        try:
            written = await self._runs.start(*owner, session_id, run_id, message, **options)
        except SessionNotFoundError:
            # If it exists now, another request got in first.
            with contextlib.suppress(SessionExistsError):
                await self._sessions.create_session(*owner, session_id=session_id)
            written = await self._runs.start(*owner, session_id, run_id, message, **options)
        _check_holder(written.run, holder)
        return written

    async def write(
        self, app_name: str, user_id: str, run_id: str, *, holder: str, events: Sequence[Event]
    ) -> RunWritten:
        """Append events of a run, as `RunService.write`; the texts that were streamed under their ids are over."""
        run = await self._held(app_name, user_id, run_id, holder)
        if wrong := next((each for each in events if each.invocation_id not in ("", run_id)), None):
            raise InvalidInputError(
                f"invocation_id must be the run's id, {run_id[:40]!r}, or be left out, not {wrong.invocation_id[:40]!r}"
            )
        written = await self._runs.write(run, [_carried(event) for event in events])
        await self._drop_streamed(run, events)
        return written

    async def push(
        self,
        app_name: str,
        user_id: str,
        run_id: str,
        *,
        holder: str,
        deltas: Sequence[Delta] = (),
        transients: Sequence[Mapping[str, Any]] = (),
    ) -> RunLease:
        """Stream pieces of open messages, and renew a lease that is half over. The same pieces again change nothing.

        Args:
            transients: events (``event_type``, ``content``) for the present followers alone; sent again each time.

        Raises:
            InvalidInputError: an event cannot be sent to a client, or is too large. The events before it were sent.
            StreamLostError: the text before an offset is missing; send the message from offset 0, or store it.
            StreamTooLongError: the message would be too long.
            others: as above.
        """
        run = await self._held(app_name, user_id, run_id, holder)
        if run.status.is_terminal:
            raise RunEndedError(f"run {run_id} has ended as {run.status}")
        for sent in transients:
            if wire.transient(sent) is None:
                raise InvalidInputError(
                    f"an event {sent.get('event_type')!r} that is not stored lacks a field, or has a wrong one: custom"
                    " has name and value; activity has message_id, activity_type and content; activity_delta has"
                    " message_id, activity_type and patch"
                )
        key = RunKey(run.thread_id, run.run_id)
        for each in deltas:
            text = clean_text(each.text)
            await self._carrier.push(
                key, each.message_id, kind=each.kind, offset=each.offset, text=text, meta=each.meta
            )
        for sent in transients:
            await self._carrier.send(key, sent)
        # An agent that streams all the time need not say that its run continues.
        if run.lease_until - datetime.now(UTC) < timedelta(seconds=self._runs.lease_seconds / 2):
            return await self._renewed(run)
        return RunLease(run.status, run.cancel_requested)

    async def renew(
        self, app_name: str, user_id: str, run_id: str, *, holder: str, lease_seconds: float | None = None
    ) -> RunLease:
        """Renew a run's lease, and return whether it continues and whether its cancellation was requested."""
        return await self._renewed(await self._held(app_name, user_id, run_id, holder), lease_seconds)

    async def _renewed(self, run: Run, lease_seconds: float | None = None) -> RunLease:
        leases = await self._runs.renew([run.id], holder=run.holder, lease_seconds=lease_seconds)
        return leases.get(run.id, RunLease(run.status, run.cancel_requested))

    async def finish(
        self, app_name: str, user_id: str, run_id: str, *, holder: str, answer: str | None = None, **options: Any
    ) -> RunWritten:
        """End a run as completed; the options are those of `RunService.finish`."""
        run = await self._held(app_name, user_id, run_id, holder)
        written = await self._runs.finish(run, answer, **options)
        await self._drop_streamed(run, written.events)
        return written

    async def fail(self, app_name: str, user_id: str, run_id: str, message: str, *, holder: str, **options: Any) -> Run:
        """End a run as failed; the options are those of `RunService.fail`."""
        run = await self._held(app_name, user_id, run_id, holder)
        return (await self._runs.fail(run, message, **options)).run

    async def cancel(self, app_name: str, user_id: str, run_id: str, *, holder: str, **options: Any) -> Run:
        """End a run as cancelled, as was requested; the options are those of `RunService.cancel`."""
        run = await self._held(app_name, user_id, run_id, holder)
        return (await self._runs.cancel(run, **options)).run

    async def _held(self, app_name: str, user_id: str, run_id: str, holder: str) -> Run:
        run = await self._runs.get(app_name, user_id, run_id)
        _check_holder(run, holder)
        return run

    async def _drop_streamed(self, run: Run, events: Sequence[Event]) -> None:
        streamed = [each for each in events if each.event_type in _STREAMED_TYPES]
        names = {name for each in streamed for name in (each.id, *_named(each.content)) if name}
        if names:
            await self._carrier.drop(RunKey(run.thread_id, run.run_id), sorted(names))


def _stored(holder: str) -> str:
    if not 1 <= len(holder) <= HOLDER_LENGTH_MAX or "\0" in holder:
        raise InvalidInputError(
            f"holder must have 1 to {HOLDER_LENGTH_MAX} characters without U+0000, not {holder[:40]!r}"
        )
    return _PREFIX + holder


def _check_holder(run: Run, holder: str) -> None:
    if run.holder != _stored(holder):
        raise RunFencedError(f"run {run.run_id} is executed by another process than {holder[:40]!r}: follow it")


def _carried(event: Event) -> Event:
    """Return the event of a streamed call with the id of the message that its followers have seen it in."""
    content = event.content if isinstance(event.content, Mapping) else {}
    if event.event_type != "act" or "tool_args" not in content or not isinstance(content.get("tool_call_id"), str):
        return event
    return replace(event, content={"message_id": content["tool_call_id"], **content})


def _named(content: Any) -> list[str]:
    """Return the ids under which an event's text or call may have been streamed, besides its own."""
    if not isinstance(content, Mapping):
        return []
    return [each for each in (content.get("message_id"), content.get("tool_call_id")) if isinstance(each, str)]
