"""A client of the HTTP API: async, typed, thin. It needs httpx, and neither a database driver nor a web framework.

    ClientError
    ├── ConnectionFailedError   no answer: refused, cut, or too late; what was sent may have arrived
    └── ProblemError            the API answered with a problem: `type`, `status`, `detail`, `request_id`
        ├── KeyRefusedError     401, 403: the key is wrong, another app's, or lacks the role
        ├── NotFoundError       404: no such session, memory, job…
        ├── ConflictError       409, 412: the session moved on, or an id is taken; read again, and redo the change
        ├── InvalidRequestError 400, 413, 415, 422: mend what `detail` names
        └── UnavailableError    429, 502, 503: try again later; the safe calls did already

Safe calls are tried again on 429 and 503, as long as Retry-After says and no longer than the bound: all that read, and
appends, whose events always have ids.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx

TIMEOUT_SECONDS = 30.0
TRIES_MAX = 4
RETRY_WAIT_SECONDS_MAX = 10.0
_FIRST_WAIT_SECONDS = 0.2
_PASSING = frozenset({429, 503})

Record = TypeVar("Record")


class ClientError(Exception):
    """Base of every error of the client."""


class ConnectionFailedError(ClientError):
    """There was no answer. An append can be repeated with the same event ids; of anything else, look what became."""


class ProblemError(ClientError):
    """The API answered with a problem (RFC 9457). Branch on `type`."""

    def __init__(self, type_: str, status: int, detail: str, request_id: str) -> None:
        super().__init__(f"{detail} ({type_}, {status})")
        self.type = type_
        self.status = status
        self.detail = detail
        self.request_id = request_id


class KeyRefusedError(ProblemError):
    """The key is missing, wrong, another app's, or lacks the role. Another try does not help."""


class NotFoundError(ProblemError):
    """There is no such thing for this app and user."""


class ConflictError(ProblemError):
    """The session moved on, or an id is taken. Read again, redo the change, send it again."""


class InvalidRequestError(ProblemError):
    """The request is wrong; nothing was changed. Mend what `detail` names."""


class UnavailableError(ProblemError):
    """The API can't serve this now. Try again later."""


_BY_STATUS: Mapping[int, type[ProblemError]] = {
    **dict.fromkeys((401, 403), KeyRefusedError),
    **dict.fromkeys((404, 410), NotFoundError),
    **dict.fromkeys((409, 412), ConflictError),
    **dict.fromkeys((400, 405, 413, 415, 422), InvalidRequestError),
    **dict.fromkeys((429, 502, 503), UnavailableError),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event to append. Its id makes the append safe to repeat: give one of your own, or keep this object."""

    author: str
    content: Any = None
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    event_type: str = ""
    invocation_id: str = ""
    state_delta: Mapping[str, Any] = field(default_factory=dict)
    timestamp: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    """An event of a session; `actions` as the API shows them."""

    id: str
    sequence_num: int
    author: str
    event_type: str
    invocation_id: str
    content: Any
    actions: Mapping[str, Any]
    timestamp: float
    created_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """A session as it was read; without events where it comes from a list."""

    id: str
    app_name: str
    user_id: str
    thread_id: str
    version: int
    state: Mapping[str, Any]
    metadata: Mapping[str, Any]
    created_at: str
    last_update_time: float
    finalized_at: str | None
    events: tuple[StoredEvent, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendOutcome:
    """What an append did: the session's version, and by event id whether it is new."""

    thread_id: str
    version: int
    appended: Mapping[str, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """One row that matches."""

    memory_id: str
    source: str
    memory_type: str
    content: str
    relevance_score: float
    score: float
    metadata: Mapping[str, Any]
    session_id: str | None
    source_seqs: Sequence[int]
    occurred_at: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A packed context window."""

    text: str
    total_tokens: int
    max_tokens: int
    items: Sequence[Mapping[str, Any]]
    degraded: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRecord:
    """A memory."""

    id: str
    memory_type: str
    content: str
    metadata: Mapping[str, Any]
    retention_score: float
    access_count: int
    pinned: bool
    created_at: str | None
    occurred_at: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FactRecord:
    """What holds of a user."""

    id: str
    fact_type: str
    key: str
    value: Any
    confidence: float
    valid_from: str | None
    valid_until: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A consolidation job."""

    id: str
    job_type: str
    status: str
    attempts: int
    error: str | None
    error_code: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Whether the API can do its work."""

    is_ok: bool
    database: str
    listener_running: bool


class HippocampusClient:
    """Calls the API in the name of one app.

    Args:
        base_url: such as http://127.0.0.1:8000.
        api_key: of `hippocampus keys create`; None where the API needs none.
        timeout_seconds: for each try.
        retry_wait_seconds_max: for all waits between the tries of one call together.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        app_name: str,
        timeout_seconds: float = TIMEOUT_SECONDS,
        retry_wait_seconds_max: float = RETRY_WAIT_SECONDS_MAX,
    ) -> None:
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._http = httpx.AsyncClient(base_url=base_url, headers=headers, timeout=timeout_seconds)
        self._app = f"/v1/apps/{quote(app_name, safe='')}"
        self._retry_wait_seconds_max = retry_wait_seconds_max

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def create_session(
        self,
        user_id: str,
        session_id: str | None = None,
        *,
        state: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> SessionRecord:
        """Create a session; ConflictError where the id is taken."""
        body = {"session_id": session_id, "state": dict(state or {}), "metadata": dict(metadata or {})}
        return _session(await self._call("POST", self._user(user_id, "sessions"), json=body))

    async def get_session(self, user_id: str, session_id: str, *, num_recent_events: int = 100) -> SessionRecord:
        """Read a session with its newest events."""
        path = self._user(user_id, "sessions", session_id)
        return _session(await self._call("GET", path, params={"num_recent_events": num_recent_events}))

    async def list_sessions(self, user_id: str, *, page_size: int = 100) -> AsyncIterator[SessionRecord]:
        """Yield a user's sessions, the newest first."""
        async for each in self._pages(self._user(user_id, "sessions"), "sessions", limit=page_size):
            yield _session(each)

    async def delete_session(self, user_id: str, session_id: str, *, expected_version: int | None = None) -> None:
        """Delete a session; what was learned from it stays."""
        headers = {} if expected_version is None else {"If-Match": f'"{expected_version}"'}
        await self._call("DELETE", self._user(user_id, "sessions", session_id), headers=headers)

    async def finalize_session(self, user_id: str, session_id: str) -> Mapping[str, str]:
        """End a session for now; return the jobs that consolidate it, by type."""
        body = await self._call("POST", self._user(user_id, "sessions", session_id, "finalize"))
        return dict(body["jobs"])

    async def append(
        self, user_id: str, session_id: str, events: Sequence[NewEvent], *, expected_version: int | None = None
    ) -> AppendOutcome:
        """Append events, all or none. Tried again where it did not come through: nothing is stored twice."""
        body = {"events": [_event_body(event) for event in events], "expected_version": expected_version}
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
            yield _pick(StoredEvent, each)

    async def state(self, user_id: str, session_id: str) -> Mapping[str, Mapping[str, Any]]:
        """Read a session's state by scope: session, user, app."""
        found = await self._call("GET", self._user(user_id, "sessions", session_id, "state"))
        return {scope: found[scope] for scope in ("session", "user", "app")}

    async def timeline(
        self, user_id: str, session_id: str, *, page_size: int = 100
    ) -> AsyncIterator[Mapping[str, Any]]:
        """Yield what was said, thought and done, as the API shows it."""
        path = self._user(user_id, "conversations", session_id, "messages")
        async for each in self._pages(path, "timeline", limit=page_size):
            yield each

    async def search(self, user_id: str, query: str, *, limit: int = 10, **narrow: Any) -> tuple[SearchResult, ...]:
        """Search memories, facts and recent turns; `narrow` as in the API's body, such as session_id or as_of."""
        body = {"query": query, "limit": limit, **narrow}
        found = await self._call("POST", self._user(user_id, "search"), json=body, is_safe=True)
        return tuple(_pick(SearchResult, each) for each in found["results"])

    async def context(
        self, user_id: str, query: str = "", *, session_id: str | None = None, max_tokens: int = 8000, **more: Any
    ) -> Window:
        """Pack a context window; `more` as in the API's body, such as system_prompt."""
        body = {"query": query, "session_id": session_id, "max_tokens": max_tokens, **more}
        return _pick(Window, await self._call("POST", self._user(user_id, "context"), json=body, is_safe=True))

    async def memories(self, user_id: str, *, page_size: int = 100) -> AsyncIterator[MemoryRecord]:
        """Yield a user's memories, the strongest first."""
        async for each in self._pages(self._user(user_id, "memories"), "memories", limit=page_size):
            yield _pick(MemoryRecord, each)

    async def facts(self, user_id: str, *, page_size: int = 100) -> AsyncIterator[FactRecord]:
        """Yield what holds of a user, by type and key."""
        async for each in self._pages(self._user(user_id, "facts"), "facts", limit=page_size):
            yield _pick(FactRecord, each)

    async def consolidate(self, user_id: str, session_id: str, job_type: str = "full_consolidation") -> str:
        """Enqueue a consolidation and return its job's id."""
        path = self._user(user_id, "sessions", session_id, "jobs")
        # A second one joins the first, as long as that waits.
        return str((await self._call("POST", path, json={"job_type": job_type}, is_safe=True))["job_id"])

    async def job(self, user_id: str, job_id: str) -> JobRecord:
        """Read how a job stands."""
        return _pick(JobRecord, await self._call("GET", self._user(user_id, "jobs", job_id)))

    async def jobs(self, user_id: str, *, page_size: int = 100) -> AsyncIterator[JobRecord]:
        """Yield a user's jobs, the newest first."""
        async for each in self._pages(self._user(user_id, "jobs"), "jobs", limit=page_size):
            yield _pick(JobRecord, each)

    async def health(self) -> Health:
        """Ask whether the API can do its work; it needs no key."""
        response = await self._send("GET", "/health")
        if response.status_code not in (200, 503):
            raise _problem(response)
        found = response.json()
        return Health(
            is_ok=found["status"] == "ok", database=found["database"], listener_running=found["listener_running"]
        )

    def _user(self, user_id: str, *parts: str) -> str:
        return "/".join((f"{self._app}/users", *(quote(part, safe="") for part in (user_id, *parts))))

    async def _pages(self, path: str, name: str, **params: Any) -> AsyncIterator[Mapping[str, Any]]:
        while True:
            page = await self._call("GET", path, params=params)
            for each in page[name]:
                yield each
            following = page.get("next_cursor") or page.get("nextCursor")
            if following is None:
                return
            params["cursor"] = following

    async def _call(self, method: str, path: str, *, is_safe: bool = False, **request: Any) -> Any:
        """Send a request, again where it is safe and the API says later; return its body."""
        waited_seconds = 0.0
        for tries in range(1, TRIES_MAX + 1):
            response = await self._send(method, path, **request)
            if response.status_code < 400:
                return response.json() if response.content else None
            wait_seconds = _wait_seconds(response, tries)
            is_over = tries == TRIES_MAX or waited_seconds + wait_seconds > self._retry_wait_seconds_max
            if response.status_code not in _PASSING or not (is_safe or method == "GET") or is_over:
                break
            await asyncio.sleep(wait_seconds)
            waited_seconds += wait_seconds
        raise _problem(response)

    async def _send(self, method: str, path: str, **request: Any) -> httpx.Response:
        try:
            return await self._http.request(method, path, **request)
        except httpx.TransportError as error:
            said = f"{method} {path}: no answer from {self._http.base_url} ({type(error).__name__})"
            raise ConnectionFailedError(said) from error


def _event_body(event: NewEvent) -> dict[str, Any]:
    fields = {each.name: getattr(event, each.name) for each in dataclasses.fields(event)}
    delta = dict(fields.pop("state_delta"))
    return {**fields, "actions": {"state_delta": delta}}


def _session(body: Mapping[str, Any]) -> SessionRecord:
    events = tuple(_pick(StoredEvent, each) for each in body.get("events", ()))
    return _pick(SessionRecord, {**body, "events": events})


def _pick(record: type[Record], body: Mapping[str, Any]) -> Record:
    """Make a record of the fields that it knows: a newer API may send more."""
    names = (each.name for each in dataclasses.fields(record))  # type: ignore[arg-type]  # every record is one
    return record(**{name: body[name] for name in names})


def _wait_seconds(response: httpx.Response, tries: int) -> float:
    """As long as Retry-After says, and a little more, so that not all come at once."""
    given = response.headers.get("retry-after", "")
    least = float(given) if given.isdecimal() else _FIRST_WAIT_SECONDS * 2 ** (tries - 1)
    return least * (1 + random.random() / 4)  # noqa: S311 - no secret


def _problem(response: httpx.Response) -> ProblemError:
    is_problem = response.headers.get("content-type", "").startswith("application/problem+json")
    body = response.json() if is_problem else {}
    kind = _BY_STATUS.get(response.status_code, ProblemError)
    detail = body.get("detail") or f"the answer is {response.status_code}, and no problem of this API"
    return kind(body.get("type", "about:blank"), response.status_code, detail, body.get("request_id", ""))
