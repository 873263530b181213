"""Errors as the API shows them: ``application/problem+json`` (RFC 9457), one stable type each.

A client branches on ``type``; ``detail`` is for the person who reads it and says what to do. Neither holds content of
events, an address of the database, or where in the code it happened. `kind_of` is the one place that knows which
exception is which problem; other rooms add theirs with `register`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import asyncpg
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from pulse import errors

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 1
_ERRORS_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True)
class Kind:
    """A problem's type: the last part of its URI, its HTTP status, its title, and what to do about it."""

    slug: str
    status: int
    title: str
    advice: str

    @property
    def uri(self) -> str:
        """The problem's type, relative to the API."""
        return f"/problems/{self.slug}"


INVALID_JSON = Kind("invalid-json", 400, "The body is not JSON", "Send one JSON value in UTF-8.")
BAD_REQUEST = Kind("bad-request", 400, "The request cannot be read", "Send a well-formed HTTP request.")
WRONG_KEY = Kind(
    "wrong-key",
    401,
    "The key is missing, wrong, revoked or too old",
    "Send the header 'Authorization: Bearer' with a key of `hippocampus keys create`, or HIPPOCAMPUS_API_KEY.",
)
WRONG_APP = Kind("wrong-app", 403, "The key is for another app", "Name the key's own app, or use a key of that app.")
ROLE_MISSING = Kind(
    "role-missing", 403, "The key lacks the role for this", "Use a key with the role that 'detail' names."
)
WRONG_HOST = Kind(
    "wrong-host", 403, "This host name is not served", "Use the address that the API listens on, or set an API key."
)
WRONG_TICKET = Kind(
    "wrong-ticket", 401, "The ticket allows none of this", "POST /api/tickets makes a new one, for one connection."
)
WRONG_ORIGIN = Kind(
    "wrong-origin",
    403,
    "Pages of this site may not follow",
    "Serve the page from this host, or name its site in HIPPOCAMPUS_STREAM_ORIGINS.",
)
NO_SUCH_AGENT = Kind(
    "no-such-agent", 404, "There is no such agent", "Register it with the program, or call one that is registered."
)
NO_SUCH_ROUTE = Kind("no-such-route", 404, "There is nothing at this path", "GET /docs lists every route.")
SESSION_NOT_FOUND = Kind(
    "session-not-found", 404, "There is no such session", "Create it first, or check app, user and session."
)
RUN_NOT_FOUND = Kind("run-not-found", 404, "There is no such run", "Start it first, or check app, user and run.")
NOT_FOUND = Kind("not-found", 404, "There is no such thing", "Check the app, the user and the id.")
METHOD_NOT_ALLOWED = Kind(
    "method-not-allowed", 405, "This path has no such method", "The header Allow names the methods that it has."
)
SESSION_EXISTS = Kind("session-exists", 409, "The session id is taken", "Get that session, or choose another id.")
VERSION_CONFLICT = Kind(
    "version-conflict", 409, "The session moved on", "Read the session again, recompute the change, append again."
)
EVENT_CONFLICT = Kind("event-conflict", 409, "The event id is taken by other content", "Use a new id for a new event.")
RUN_CONFLICT = Kind(
    "run-conflict", 409, "The run id is another session's", "Use a new id for a new run; it is unique within the app."
)
RUN_ACTIVE = Kind(
    "run-active", 409, "Another run of the session goes on", "Wait for its end or cancel it, then send this again."
)
RUN_ENDED = Kind("run-ended", 409, "The run ended already", "Read it; start a new one to go on.")
RUN_FENCED = Kind("run-fenced", 409, "Another process executes the run", "Follow it; do not execute it.")
INTERRUPT_OPEN = Kind(
    "interrupt-open",
    409,
    "The last run asks for answers",
    "Send an entry of 'resume' for each interrupt that the last run ended with.",
)
RUN_PRUNED = Kind(
    "run-pruned", 410, "The run's events are not kept any more", "Read the conversation as it is: there is no stream."
)
BODY_TOO_LARGE = Kind(
    "body-too-large", 413, "The body is too large", "Send smaller batches, or raise HIPPOCAMPUS_MAX_BODY_BYTES."
)
EVENT_TOO_LARGE = Kind(
    "event-too-large", 413, "An event is over the app's limit", "Keep the payload elsewhere and append a reference."
)
PRECONDITION_FAILED = Kind(
    "precondition-failed", 412, "The session is at another version", "Read the session again, and redo the change."
)
ENCODED_BODY = Kind(
    "encoded-body", 415, "The body is compressed", "Send it as it is, without the header Content-Encoding."
)
TOO_MANY_REQUESTS = Kind(
    "too-many-requests", 429, "The key's rate is used up", "Wait as long as Retry-After says, then try again."
)
NOT_JSON = Kind(
    "unsupported-media-type", 415, "The body's type is not JSON", "Send the header 'Content-Type: application/json'."
)
INVALID_REQUEST = Kind("invalid-request", 422, "The request is wrong", "Mend what 'detail' and 'errors' name.")
STATE_TOO_LARGE = Kind(
    "state-too-large", 422, "The state would be over the app's limit", "Remove keys, or keep large values elsewhere."
)
INTERNAL = Kind(
    "internal-error", 500, "Something went wrong here", "Give 'request_id' to whoever runs this API; it is in the log."
)
OVERLOADED = Kind("overloaded", 503, "Too many requests at once", "Wait as long as Retry-After says, then try again.")
ENDING = Kind("ending", 503, "This process ends", "Connect again, with the id of the last frame that you received.")
TIMED_OUT = Kind(
    "timed-out",
    503,
    "It took too long",
    "Try again with the same event ids: what is stored already is not stored twice.",
)
DATABASE_UNREACHABLE = Kind(
    "database-unreachable",
    503,
    "The database does not answer",
    "Try again with the same event ids: what is stored already is not stored twice.",
)
SCHEMA_MISMATCH = Kind(
    "schema-mismatch", 503, "The database is not at this program's schema", "Run `hippocampus migrate`."
)
#: Every kind of this room, by slug; others join with `register`.
KINDS: dict[str, Kind] = {each.slug: each for each in list(globals().values()) if isinstance(each, Kind)}

_BY_ERROR: dict[type[Exception], Kind] = {
    errors.EventTooLargeError: EVENT_TOO_LARGE,
    errors.StateTooLargeError: STATE_TOO_LARGE,
    errors.InvalidInputError: INVALID_REQUEST,
    errors.SessionNotFoundError: SESSION_NOT_FOUND,
    errors.SessionExistsError: SESSION_EXISTS,
    errors.ConcurrencyConflictError: VERSION_CONFLICT,
    errors.EventConflictError: EVENT_CONFLICT,
    errors.RunNotFoundError: RUN_NOT_FOUND,
    errors.RunConflictError: RUN_CONFLICT,
    errors.RunActiveError: RUN_ACTIVE,
    errors.RunEndedError: RUN_ENDED,
    errors.RunFencedError: RUN_FENCED,
    errors.RunPrunedError: RUN_PRUNED,
    errors.InterruptOpenError: INTERRUPT_OPEN,
    errors.StreamsClosedError: ENDING,
    errors.DatabaseUnreachableError: DATABASE_UNREACHABLE,
    errors.SchemaError: SCHEMA_MISMATCH,
    asyncpg.InterfaceError: DATABASE_UNREACHABLE,
    asyncpg.InternalClientError: DATABASE_UNREACHABLE,  # cut between two messages of the protocol
    OSError: DATABASE_UNREACHABLE,  # refused, reset, no such host; no such file, where a stopped server's socket was
    TimeoutError: TIMED_OUT,
}
_BY_STATUS = {400: BAD_REQUEST, 404: NO_SUCH_ROUTE, 405: METHOD_NOT_ALLOWED, 413: BODY_TOO_LARGE, 415: NOT_JSON}

# Connection, roll-back, resources, operator, read-only, lock time-out: another moment, the same call.
_PASSING_SQLSTATES = ("08", "40", "53", "57", "25006", "55P03")
# Undefined table, column or function.
_SCHEMA_SQLSTATES = ("42P01", "42703", "42883", "3F000")


class FieldError(BaseModel):
    """One wrong field."""

    pointer: Annotated[str, Field(description="Where it is: body, path or query, then the field.")]
    detail: str


class Problem(BaseModel):
    """An error (RFC 9457)."""

    type: Annotated[str, Field(description="Stable; branch on it.", examples=["/problems/version-conflict"])]
    title: str
    status: int
    detail: Annotated[str, Field(description="What is wrong and what to do, for people.")]
    request_id: Annotated[str, Field(description="The id of this request in the server's log.")]
    errors: Annotated[list[FieldError] | None, Field(description="Only where fields are wrong.")] = None


class ProblemError(HTTPException):
    """Raised where a route or a reader of bodies knows the problem itself."""

    def __init__(self, kind: Kind, detail: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(kind.status, detail or kind.advice, dict(headers or {}))
        self.kind = kind


def register(kinds: Iterable[Kind], by_error: Mapping[type[Exception], Kind]) -> None:
    """Add another room's problems."""
    KINDS.update({each.slug: each for each in kinds})
    _BY_ERROR.update(by_error)


def kind_of(error: Exception) -> Kind:
    """Return the problem that an exception is; `INTERNAL` for one that nobody foresaw."""
    if isinstance(error, ProblemError):
        return error.kind
    for each in type(error).__mro__:
        if each in _BY_ERROR:
            return _BY_ERROR[each]
    state = getattr(error, "sqlstate", None) or ""
    if isinstance(error, asyncpg.PostgresError) and state.startswith(_PASSING_SQLSTATES):
        return DATABASE_UNREACHABLE
    if isinstance(error, asyncpg.PostgresError) and state in _SCHEMA_SQLSTATES:
        return SCHEMA_MISMATCH
    return INTERNAL


def render(
    kind: Kind,
    request_id: str,
    detail: str = "",
    *,
    wrong: list[FieldError] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return the response of a problem; a status of 503 says when to try again."""
    problem = Problem(
        type=kind.uri,
        title=kind.title,
        status=kind.status,
        detail=detail or kind.advice,
        request_id=request_id,
        errors=wrong,
    )
    extra = {503: {"Retry-After": str(RETRY_AFTER_SECONDS)}, 401: {"WWW-Authenticate": "Bearer"}}.get(kind.status, {})
    body = json.dumps(problem.model_dump(exclude_none=True), separators=(",", ":")).encode()
    return Response(body, kind.status, {**extra, **(headers or {})}, MEDIA_TYPE)


def install(app: FastAPI, on_conflict: Callable[[], None]) -> None:
    """Answer every foreseen exception of a route with its problem.

    Args:
        on_conflict: called for each append that was refused because the session had moved on.
    """

    async def on_error(request: Request, error: Exception) -> Response:
        if isinstance(error, asyncpg.PostgresError):
            error = errors.from_postgres(error) or error
        kind = kind_of(error)
        if kind is INTERNAL:
            raise error  # The edge logs it.
        if kind is VERSION_CONFLICT:
            on_conflict()
        request.scope["state"]["error"] = type(error).__name__
        return render(kind, request_id(request), _detail(kind, error))

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101  # it is registered for nothing else
        kind = error.kind if isinstance(error, ProblemError) else _BY_STATUS.get(error.status_code, INTERNAL)
        detail = error.detail if isinstance(error, ProblemError) else ""
        headers = _allow(request, app) if kind is METHOD_NOT_ALLOWED else error.headers
        return render(kind, request_id(request), detail, headers=headers)

    async def on_invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)  # noqa: S101  # as above
        wrong = [_field_error(each) for each in error.errors()[:_ERRORS_SHOWN_MAX]]
        detail = f"{wrong[0].pointer}: {wrong[0].detail}" if wrong else ""
        return render(INVALID_REQUEST, request_id(request), detail, wrong=wrong)

    async def on_crash(request: Request, _error: Exception) -> Response:
        return render(INTERNAL, request_id(request))  # Raised on, once it is answered: the edge logs it.

    app.add_exception_handler(Exception, on_crash)
    foreseen: list[type[Exception]] = [*_BY_ERROR, asyncpg.PostgresError]
    for each in foreseen:
        app.add_exception_handler(each, on_error)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(RequestValidationError, on_invalid)


def request_id(request: Request) -> str:
    """Return the id that the edge gave this request."""
    return str(request.scope.get("state", {}).get("request_id", ""))


def documented(*kinds: Kind) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI responses of these problems; several of one status share an entry, with an example each."""
    responses: dict[int | str, dict[str, Any]] = {}
    for kind in kinds:
        entry = responses.setdefault(
            kind.status, {"model": Problem, "description": "", "content": {MEDIA_TYPE: {"examples": {}}}}
        )
        entry["description"] = f"{entry['description']} {kind.title} (`{kind.uri}`).".strip()
        entry["content"][MEDIA_TYPE]["examples"][kind.slug] = {
            "value": {
                "type": kind.uri,
                "title": kind.title,
                "status": kind.status,
                "detail": kind.advice,
                "request_id": "0197f6a2c1d04d0b8a7f2d5b7c9e1f00",
            }
        }
    return responses


#: What any route of the API may answer.
COMMON = (
    WRONG_KEY,
    WRONG_HOST,
    WRONG_APP,
    ROLE_MISSING,
    METHOD_NOT_ALLOWED,
    TOO_MANY_REQUESTS,
    INTERNAL,
    OVERLOADED,
    TIMED_OUT,
    DATABASE_UNREACHABLE,
)
#: What any route with a body may answer beside.
BODY = (INVALID_JSON, BAD_REQUEST, BODY_TOO_LARGE, NOT_JSON, ENCODED_BODY)


def _allow(request: Request, app: FastAPI) -> dict[str, str]:
    """Return the header Allow with every method of the path; Starlette names those of one route only."""
    template = getattr(request.scope.get("route"), "path", "")
    methods = app.openapi()["paths"].get(template, {})
    return {"Allow": ", ".join(sorted(method.upper() for method in methods))}


def _detail(kind: Kind, error: Exception) -> str:
    """Return what the exception says, where it is one of ours and says nothing of the database's address."""
    if kind.status >= 500 or isinstance(error, asyncpg.PostgresError | asyncpg.InterfaceError | OSError):
        return kind.advice
    return f"{error}. {kind.advice}" if kind.advice not in str(error) else str(error)


def _field_error(error: Mapping[str, Any]) -> FieldError:
    """Describe one of pydantic's errors without the value that was given."""
    pointer = "/".join(str(part).replace("~", "~0").replace("/", "~1") for part in error["loc"])
    message = str(error["msg"]).removeprefix("Value error, ")
    return FieldError(pointer=pointer[:300], detail=message[:500])
