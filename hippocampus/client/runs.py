"""The calls about runs: reading and cancelling them, and executing them in this process.

    run = await client.start_run("ann", "order-17", run_id="run-1", holder="worker-1", message="Where is my parcel?")
    text = ""
    for piece in model():
        lease = await client.stream_text("ann", "run-1", "m2", text, piece, holder="worker-1")
        text += piece
    await client.finish_run("ann", "run-1", text, message_id="m2", holder="worker-1")

Between two writes of more than some seconds, `heartbeat_run` shows that the run continues. All these calls are safe to
repeat, and are retried if the API is busy.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote

from hippocampus.client.calls import Calls
from hippocampus.client.records import AgentRecord, NewEvent, RunLease, RunRecord, pick
from hippocampus.client.sessions import event_body


class RunCalls(Calls):
    """Reads, lists and cancels runs, and executes them."""

    async def run(self, user_id: str, run_id: str) -> RunRecord:
        """Read a run."""
        return pick(RunRecord, await self._call("GET", _path(run_id), params=self._owner(user_id)))

    async def runs(self, user_id: str, session_id: str, *, page_size: int = 100) -> AsyncIterator[RunRecord]:
        """Yield the runs of a session, the newest first."""
        path = f"/api/threads/{quote(session_id, safe='')}/runs"
        async for each in self._pages(path, "runs", limit=page_size, **self._owner(user_id)):
            yield pick(RunRecord, each)

    async def run_messages(self, user_id: str, run_id: str, *, limit: int = 200) -> Sequence[Mapping[str, Any]]:
        """Read the newest part of the conversation of a run's session, as AG-UI's messages."""
        params = {"limit": limit, **self._owner(user_id)}
        return tuple((await self._call("GET", _path(run_id, "messages"), params=params))["messages"])

    async def agents(self, user_id: str) -> Sequence[AgentRecord]:
        """List the agents that the writer runs."""
        found = await self._call("GET", "/api/agents", params=self._owner(user_id))
        return tuple(pick(AgentRecord, each) for each in found["agents"])

    async def cancel_run(self, user_id: str, run_id: str) -> RunRecord:
        """Request the cancellation of a run. A run that has ended is not changed."""
        return pick(RunRecord, await self._call("POST", _path(run_id, "cancel"), params=self._owner(user_id)))

    async def start_run(
        self,
        user_id: str,
        session_id: str,
        *,
        holder: str,
        run_id: str | None = None,
        message: str | Sequence[Mapping[str, Any]] | None = None,
        message_id: str | None = None,
        alone: bool = False,
        lease_seconds: float | None = None,
    ) -> RunRecord:
        """Start a run that this process executes; the session is created if there is none.

        Args:
            user_id, session_id: the session.
            holder: the name of this process, which every further call about the run repeats.
            run_id: unique in the app; a new UUID by default.
            message: the user's message that the run answers: its text, or AG-UI's parts.
            message_id: the message's id; by default one that follows from the run's id.
            alone: refuse while another run of the session is in progress (ConflictError).
            lease_seconds: how long the run outlives this call without another one; 30 by default.
        """
        run_id = run_id or str(uuid.uuid4())
        body: dict[str, Any] = {"thread_id": session_id, "run_id": run_id, "holder": holder, "alone": alone}
        if message is not None:
            content = message if isinstance(message, str) else [dict(part) for part in message]
            body["message"] = {"id": message_id or f"question-of-{run_id}", "content": content}
        if lease_seconds is not None:
            body["lease_seconds"] = lease_seconds
        return pick(RunRecord, await self._post("/api/runs", user_id, body))

    async def write_run(self, user_id: str, run_id: str, events: Sequence[NewEvent], *, holder: str) -> RunLease:
        """Store events of a run, all or none, and renew its lease."""
        body = {"holder": holder, "events": [event_body(event) for event in events]}
        return pick(RunLease, await self._post(_path(run_id, "events"), user_id, body))

    async def stream_text(
        self,
        user_id: str,
        run_id: str,
        message_id: str,
        text_so_far: str,
        piece: str,
        *,
        holder: str,
        kind: Literal["text", "thought"] = "text",
    ) -> RunLease:
        """Stream a piece of a message that is being written; store the whole message when it is complete.

        An empty piece, as models send some, only shows that the run continues.
        """
        if not piece:
            return await self.heartbeat_run(user_id, run_id, holder=holder)
        delta = {"message_id": message_id, "kind": kind, "offset": len(text_so_far), "text": piece}
        return pick(RunLease, await self._post(_path(run_id, "deltas"), user_id, {"holder": holder, "deltas": [delta]}))

    async def send_event(
        self, user_id: str, run_id: str, event_type: str, content: Mapping[str, Any], *, holder: str
    ) -> RunLease:
        """Send an event to the clients that follow the run now, and store nothing.

        Args:
            event_type: ``custom``, ``activity`` or ``activity_delta``.
        """
        body = {"holder": holder, "transients": [{"event_type": event_type, "content": content}]}
        return pick(RunLease, await self._post(_path(run_id, "deltas"), user_id, body))

    async def heartbeat_run(
        self, user_id: str, run_id: str, *, holder: str, lease_seconds: float | None = None
    ) -> RunLease:
        """Renew a run's lease; 30 seconds by default."""
        body: dict[str, Any] = {"holder": holder}
        if lease_seconds is not None:
            body["lease_seconds"] = lease_seconds
        return pick(RunLease, await self._post(_path(run_id, "heartbeat"), user_id, body))

    async def finish_run(
        self,
        user_id: str,
        run_id: str,
        answer: str | None = None,
        *,
        holder: str,
        message_id: str | None = None,
        result: Any = None,
        state_delta: Mapping[str, Any] | None = None,
        usage: Sequence[Mapping[str, Any]] = (),
    ) -> RunRecord:
        """End a run as completed.

        Args:
            user_id, run_id, holder: as at its start.
            answer: the whole last message, if it is not stored yet.
            message_id: the id under which the answer was streamed.
            result: any JSON value.
            state_delta: keys of the state to set with the end.
            usage: AG-UI's TokenUsage, one for each provider and model.
        """
        more = {"answer": answer, "message_id": message_id, "result": result, "state_delta": dict(state_delta or {})}
        return await self._end(user_id, run_id, holder, "completed", usage, more)

    async def fail_run(
        self,
        user_id: str,
        run_id: str,
        error: str,
        *,
        holder: str,
        error_code: str = "agent_failed",
        usage: Sequence[Mapping[str, Any]] = (),
    ) -> RunRecord:
        """End a run as failed; clients receive the error and its code."""
        return await self._end(user_id, run_id, holder, "failed", usage, {"error": error, "error_code": error_code})

    async def end_cancelled_run(
        self, user_id: str, run_id: str, *, holder: str, reason: str = "", usage: Sequence[Mapping[str, Any]] = ()
    ) -> RunRecord:
        """End a run as cancelled, after `cancel_requested`."""
        return await self._end(user_id, run_id, holder, "cancelled", usage, {"reason": reason})

    async def _end(
        self,
        user_id: str,
        run_id: str,
        holder: str,
        status: str,
        usage: Sequence[Mapping[str, Any]],
        more: Mapping[str, Any],
    ) -> RunRecord:
        body = {"holder": holder, "status": status, "usage": [dict(each) for each in usage], **more}
        return pick(RunRecord, await self._post(_path(run_id, "end"), user_id, body))

    async def _post(self, path: str, user_id: str, body: Mapping[str, Any]) -> Any:
        return await self._call("POST", path, is_safe=True, params=self._owner(user_id), json=body)


def _path(run_id: str, *more: str) -> str:
    return "/".join(("/api/runs", quote(run_id, safe=""), *more))
