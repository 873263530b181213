"""Errors as the API returns them: ``application/problem+json`` (RFC 9457), each with a stable type.

A client branches on ``type``; ``detail`` says for people what is wrong and what to do. Neither contains the content of
events, the database's address, or a position in the code. Routes raise; `install` turns what they raise into responses.
Which error class is which problem is written down once: here for pulse, and in `hippocampus.http.problems`, which joins
its table to this one with `register`.
"""

from __future__ import annotations

import json
import random
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
from starlette.types import Scope

from pulse import errors
from pulse.database import FAULTS
from pulse.http.edge.origins import page_headers

MEDIA_TYPE = "application/problem+json"
_SCHEMAS = "#/components/schemas/"
RETRY_AFTER_SECONDS = 1
_ERRORS_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of problem: the last part of its URI, its HTTP status, its title, and what to do about it."""

    slug: str
    status: int
    title: str
    advice: str

    @property
    def uri(self) -> str:
        """The type's URI, relative to the API."""
        return f"/problems/{self.slug}"


INVALID_JSON = Kind("invalid-json", 400, "The body is not JSON", "Send one JSON value in UTF-8.")
BAD_REQUEST = Kind("bad-request", 400, "The request cannot be read", "Send a well-formed HTTP request.")
WRONG_KEY = Kind(
    "wrong-key",
    401,
    "The key is missing, wrong, revoked or expired",
    "Send the header 'Authorization: Bearer' with a key of `hippocampus keys create`, or HIPPOCAMPUS_API_KEY.",
)
WRONG_APP = Kind("wrong-app", 403, "The key is for another app", "Name the key's own app, or use a key of that app.")
WRONG_USER = Kind(
    "wrong-user", 403, "The key is for another user", "Name the key's own user, or use a key without a user."
)
ROLE_MISSING = Kind(
    "role-missing", 403, "The key lacks the role for this", "Use a key with the role that 'detail' names."
)
WRONG_HOST = Kind(
    "wrong-host", 403, "This host name is not served", "Use the address that the API listens on, or set an API key."
)
WRONG_TICKET = Kind(
    "wrong-ticket", 401, "The ticket has expired or does not allow this", "POST /api/tickets makes a new one."
)
WRONG_ORIGIN = Kind(
    "wrong-origin",
    403,
    "Pages of this site may not follow streams",
    "Serve the page from this host, or add its site to HIPPOCAMPUS_STREAM_ORIGINS.",
)
NO_SUCH_AGENT = Kind(
    "no-such-agent", 404, "There is no such agent", "Register it with the program, or call one that is registered."
)
NO_SUCH_ROUTE = Kind("no-such-route", 404, "There is nothing at this path", "GET /docs lists every route.")
SESSION_NOT_FOUND = Kind(
    "session-not-found", 404, "There is no such session", "Check the app, the user and the session."
)
RUN_NOT_FOUND = Kind(
    "run-not-found", 404, "There is no such run", "Start it first, or check the app, the user and the run."
)
TRACE_NOT_FOUND = Kind(
    "trace-not-found",
    404,
    "There is no such trace",
    "It is stored a second after its end, if HIPPOCAMPUS_TRACING has postgres, and for HIPPOCAMPUS_TRACES_KEEP_DAYS.",
)
NOT_FOUND = Kind("not-found", 404, "There is no such thing", "Check the app, the user and the id.")
METHOD_NOT_ALLOWED = Kind(
    "method-not-allowed", 405, "This path has no such method", "The header Allow lists the methods that it has."
)
SESSION_EXISTS = Kind("session-exists", 409, "The session id is taken", "Get that session, or choose another id.")
VERSION_CONFLICT = Kind(
    "version-conflict", 409, "The session has changed", "Read the session again, recompute the change, append again."
)
EVENT_CONFLICT = Kind(
    "event-conflict", 409, "The event id belongs to an event with other content", "Use a new id for a new event."
)
RUN_CONFLICT = Kind(
    "run-conflict",
    409,
    "The run id belongs to another session",
    "Use a new id for a new run; it is unique within the app.",
)
RUN_ACTIVE = Kind(
    "run-active",
    409,
    "Another run of the session is in progress",
    "Wait for it to end, or cancel it, then send this again.",
)
RUN_ENDED = Kind("run-ended", 409, "The run has already ended", "Read it; start a new one to continue.")
RUN_FENCED = Kind("run-fenced", 409, "Another process executes the run", "Follow it; do not execute it.")
STREAM_LOST = Kind(
    "stream-lost",
    409,
    "The text before the offset is missing",
    "Send the message from offset 0 under the same id, or store it when it is complete.",
)
HISTORY_CHANGED = Kind(
    "history-changed",
    409,
    "The client's conversation is not the session's",
    "Read the conversation again and send a new message; or send yours under a new threadId, as a branch; or set"
    " ?history=server, and the stream begins with the session's conversation.",
)
INTERRUPT_OPEN = Kind(
    "interrupt-open",
    409,
    "The last run waits for answers",
    "Send an entry of 'resume' for each interrupt that the last run ended with.",
)
RUN_PRUNED = Kind(
    "run-pruned", 410, "The run's events are no longer kept", "Read the conversation instead: there is no stream."
)
BODY_TOO_LARGE = Kind(
    "body-too-large", 413, "The body is too large", "Send smaller batches, or raise HIPPOCAMPUS_MAX_BODY_BYTES."
)
SECRET_REFUSED = Kind(
    "secret-refused", 422, "The text holds a secret", "Remove what 'detail' names: the app's policy refuses secrets."
)
EVENT_TOO_LARGE = Kind(
    "event-too-large", 413, "An event is over the app's limit", "Keep the payload elsewhere and append a reference."
)
PRECONDITION_FAILED = Kind(
    "precondition-failed", 412, "The session is at another version", "Read the session again, and redo the change."
)
ENCODED_BODY = Kind(
    "encoded-body", 415, "The body is compressed", "Send it uncompressed, without the header Content-Encoding."
)
TOO_MANY_REQUESTS = Kind(
    "too-many-requests", 429, "The key's rate limit is exceeded", "Wait as long as Retry-After says, then try again."
)
NOT_JSON = Kind(
    "unsupported-media-type", 415, "The body's type is not JSON", "Send the header 'Content-Type: application/json'."
)
INVALID_REQUEST = Kind("invalid-request", 422, "The request is wrong", "Nothing was changed: correct it.")
STATE_TOO_LARGE = Kind(
    "state-too-large", 422, "The state would be over the app's limit", "Remove keys, or keep large values elsewhere."
)
INTERNAL = Kind(
    "internal-error", 500, "Internal error", "Give 'request_id' to the operator of this API; it is in the log."
)
OVERLOADED = Kind("overloaded", 503, "Too many requests at once", "Wait as long as Retry-After says, then try again.")
_TRY_AGAIN = "Try again with the same event ids: what is already stored is not stored twice."
#: The kinds after which the same request may succeed soon.
BUSY_STATUSES = frozenset({429, 503})
ENDING = Kind(
    "ending", 503, "This process is shutting down", "Connect again, with the id of the last frame that you received."
)
TIMED_OUT = Kind("timed-out", 503, "The request took too long", _TRY_AGAIN)
DATABASE_UNREACHABLE = Kind("database-unreachable", 503, "The database does not respond", _TRY_AGAIN)
DISK_FULL = Kind(
    "disk-full",
    503,
    "The database's disk is full",
    "Nothing was stored. The operator must free space on the disk of PostgreSQL; then try again with the same ids.",
)
CONNECTIONS_EXHAUSTED = Kind(
    "connections-exhausted",
    503,
    "The database allows no more connections",
    "Try again. The operator must lower HIPPOCAMPUS_DATABASE_POOL_SIZE or raise max_connections: see `hippocampus"
    " doctor`.",
)
APP_MOVING = Kind("app-moving", 503, "The app is being moved to another cell", _TRY_AGAIN)
WRONG_CELL = Kind(
    "wrong-cell",
    421,
    "The app is served by another cell",
    "Send the request to a writer of the cell that 'detail' names.",
)
SCHEMA_MISMATCH = Kind(
    "schema-mismatch", 503, "The database is not at this program's schema", "Run `hippocampus migrate`."
)
#: Every kind, by slug: those above, and those of `register`.
KINDS: dict[str, Kind] = {each.slug: each for each in list(globals().values()) if isinstance(each, Kind)}

_BY_ERROR: dict[type[Exception], Kind] = {
    errors.SecretRefusedError: SECRET_REFUSED,
    errors.EventTooLargeError: EVENT_TOO_LARGE,
    errors.StateTooLargeError: STATE_TOO_LARGE,
    errors.InvalidInputError: INVALID_REQUEST,
    errors.SessionNotFoundError: SESSION_NOT_FOUND,
    errors.SessionExistsError: SESSION_EXISTS,
    errors.ConcurrencyConflictError: VERSION_CONFLICT,
    errors.RedactionChangedError: VERSION_CONFLICT,
    errors.EventConflictError: EVENT_CONFLICT,
    errors.RunNotFoundError: RUN_NOT_FOUND,
    errors.ToolNotFoundError: NOT_FOUND,
    errors.RunConflictError: RUN_CONFLICT,
    errors.RunActiveError: RUN_ACTIVE,
    errors.RunEndedError: RUN_ENDED,
    errors.RunFencedError: RUN_FENCED,
    errors.RunPrunedError: RUN_PRUNED,
    errors.HistoryChangedError: HISTORY_CHANGED,
    errors.InterruptOpenError: INTERRUPT_OPEN,
    errors.StreamLostError: STREAM_LOST,
    errors.StreamsClosedError: ENDING,
    errors.DatabaseUnreachableError: DATABASE_UNREACHABLE,
    errors.SchemaError: SCHEMA_MISMATCH,
    errors.AppMovingError: APP_MOVING,
    errors.WrongCellError: WRONG_CELL,
    asyncpg.InterfaceError: DATABASE_UNREACHABLE,
    asyncpg.InternalClientError: DATABASE_UNREACHABLE,  # disconnected between two messages of the protocol
    OSError: DATABASE_UNREACHABLE,  # refused, reset, no such host; no such file: the socket of a stopped server
    TimeoutError: TIMED_OUT,
}
_BY_STATUS = {400: BAD_REQUEST, 404: NO_SUCH_ROUTE, 405: METHOD_NOT_ALLOWED, 413: BODY_TOO_LARGE, 415: NOT_JSON}

_BY_SQLSTATE = {"53100": DISK_FULL, "53300": CONNECTIONS_EXHAUSTED}
# Connection, rollback, resources, operator intervention, read-only, lock timeout: the same call may succeed later.
_TRANSIENT_SQLSTATES = ("08", "40", "53", "57", "25006", "55P03")
# Undefined table, column or function.
_SCHEMA_SQLSTATES = ("42P01", "42703", "42883", "3F000")


class FieldError(BaseModel):
    """A field that is wrong."""

    pointer: Annotated[str, Field(description="Where the field is: body, path or query, then its name.")]
    detail: str


class Problem(BaseModel):
    """An error (RFC 9457)."""

    type: Annotated[str, Field(description="Stable; branch on it.", examples=["/problems/version-conflict"])]
    title: str
    status: int
    detail: Annotated[str, Field(description="What is wrong and what to do about it, for people.")]
    request_id: Annotated[str, Field(description="The id of this request in the server's log.")]
    errors: Annotated[list[FieldError] | None, Field(description="The fields that are wrong, if any.")] = None


class ProblemError(HTTPException):
    """A problem that is not an error of a service: raised by the routes themselves."""

    def __init__(self, kind: Kind, detail: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(kind.status, detail or kind.advice, dict(headers or {}))
        self.kind = kind


def register(kinds: Iterable[Kind], by_error: Mapping[type[Exception], Kind]) -> None:
    """Add the problems of another package."""
    KINDS.update({each.slug: each for each in kinds})
    _BY_ERROR.update(by_error)


def kind_of(error: Exception) -> Kind:
    """Return the type of problem of an exception; `INTERNAL` for one that is not expected."""
    if isinstance(error, ProblemError):
        return error.kind
    state = getattr(error, "sqlstate", None) or getattr(error.__cause__, "sqlstate", None) or ""
    if state in _BY_SQLSTATE:
        return _BY_SQLSTATE[state]
    for each in type(error).__mro__:
        if each in _BY_ERROR:
            return _BY_ERROR[each]
    if isinstance(error, asyncpg.PostgresError) and state.startswith(_TRANSIENT_SQLSTATES):
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
    """Return the response of a problem; one with the status 503 says when to try again."""
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


def response_of(error: Exception, request_id: str) -> Response:
    """Return the response of an exception."""
    kind = kind_of(error)
    if isinstance(error, ProblemError):
        return render(kind, request_id, error.detail, headers=error.headers)
    return render(kind, request_id, _detail(kind, error))


def for_event_source(scope: Scope, response: Response) -> Response:
    """Return the response of a problem, in a form that an EventSource survives.

    It gives up for good on any status but 200. So where trying again may help, and it asks for `text/event-stream` by
    GET, it gets an empty stream that says when to reconnect, which it does with its last id. A page of another site
    that may follow streams may read it: to an EventSource, a response that it may not read is final, too.
    """
    is_event_source = scope["type"] == "http" and scope["method"] == "GET"
    is_event_source = is_event_source and b"text/event-stream" in dict(scope["headers"]).get(b"accept", b"")
    if not is_event_source or response.status_code not in BUSY_STATUSES:
        return response
    wait_ms = 1000 * int(response.headers.get("retry-after", RETRY_AFTER_SECONDS))
    retry_ms = random.randint(wait_ms, 3 * wait_ms)  # noqa: S311 - to spread load
    kind = json.loads(bytes(response.body))["type"]
    scope["state"]["error"] = kind
    body = f": {kind}\nretry: {retry_ms}\n\n"
    headers = {"Cache-Control": "no-store", **page_headers(scope)}
    return Response(body, headers=headers, media_type="text/event-stream")


def install(app: FastAPI, on_problem: Callable[[Kind], None]) -> None:
    """Have the app answer every expected exception of a route with its problem.

    Args:
        on_problem: called for each expected exception with its kind.
    """

    async def on_error(request: Request, error: Exception) -> Response:
        kind = kind_of(error)
        if kind is INTERNAL:
            raise error  # The edge logs it.
        on_problem(kind)
        request.scope["state"]["error"] = type(error).__name__
        return for_event_source(request.scope, response_of(error, request_id(request)))

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101  # it is registered for nothing else
        if isinstance(error, ProblemError):
            return for_event_source(request.scope, response_of(error, request_id(request)))
        kind = _BY_STATUS.get(error.status_code, INTERNAL)
        headers = (_allow(request, app) if kind is METHOD_NOT_ALLOWED else {}) or error.headers
        return render(kind, request_id(request), headers=headers)

    async def on_invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)  # noqa: S101  # as above
        wrong = [_field_error(each) for each in error.errors()[:_ERRORS_SHOWN_MAX]]
        detail = f"{wrong[0].pointer}: {wrong[0].detail}" if wrong else ""
        return render(INVALID_REQUEST, request_id(request), detail, wrong=wrong)

    async def on_crash(request: Request, _error: Exception) -> Response:
        return render(INTERNAL, request_id(request))  # Starlette raises it again afterwards: the edge logs it.

    app.add_exception_handler(Exception, on_crash)
    expected: list[type[Exception]] = [*_BY_ERROR, asyncpg.PostgresError]
    for each in expected:
        app.add_exception_handler(each, on_error)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(RequestValidationError, on_invalid)


def request_id(request: Request) -> str:
    """Return the id that the edge gave to a request."""
    return str(request.scope.get("state", {}).get("request_id", ""))


def documented(*kinds: Kind) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI responses of problems; those of one status share an entry, with an example of each."""
    responses: dict[int | str, dict[str, Any]] = {}
    for kind in kinds:
        entry = responses.setdefault(
            kind.status,
            # By reference and not by model: FastAPI would build a serializer for each problem of each route.
            {"description": "", "content": {MEDIA_TYPE: {"schema": {"$ref": _SCHEMAS + "Problem"}, "examples": {}}}},
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


def schemas() -> dict[str, Any]:
    """Return the schemas to which the responses of `documented` refer, by name."""
    problem = Problem.model_json_schema(ref_template=_SCHEMAS + "{model}")
    return {**problem.pop("$defs"), Problem.__name__: problem}


#: The problems that any route may answer with.
COMMON = (
    WRONG_KEY,
    WRONG_HOST,
    WRONG_APP,
    WRONG_USER,
    ROLE_MISSING,
    METHOD_NOT_ALLOWED,
    TOO_MANY_REQUESTS,
    INTERNAL,
    OVERLOADED,
    TIMED_OUT,
    DATABASE_UNREACHABLE,
)
#: The further problems of a route with a body.
BODY = (INVALID_JSON, BAD_REQUEST, BODY_TOO_LARGE, NOT_JSON, ENCODED_BODY)


def _allow(request: Request, app: FastAPI) -> dict[str, str]:
    """Return the header Allow with every method of the path; Starlette lists those of one route only.

    Nothing for a route of another protocol, which is not in the document.
    """
    template = getattr(request.scope.get("route"), "path", "")
    methods = app.openapi()["paths"].get(template, {})
    return {"Allow": ", ".join(sorted(method.upper() for method in methods))} if methods else {}


def _detail(kind: Kind, error: Exception) -> str:
    """Return the exception's message, unless it could contain the database's address."""
    if kind.status >= 500 or isinstance(error, FAULTS):
        return kind.advice
    return f"{error}. {kind.advice}" if kind.advice not in str(error) else str(error)


def _field_error(error: Mapping[str, Any]) -> FieldError:
    """Describe one of pydantic's errors without the value that was sent."""
    pointer = "/".join(str(part).replace("~", "~0").replace("/", "~1") for part in error["loc"])
    message = str(error["msg"]).removeprefix("Value error, ")
    return FieldError(pointer=pointer[:300], detail=message[:500])
