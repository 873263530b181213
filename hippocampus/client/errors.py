"""Everything that the client raises.

ClientError
├── ConnectionFailedError   no response: refused, disconnected, or timed out; the request may have been executed
└── ProblemError            the API returned a problem: `type`, `status`, `detail`, `request_id`
    ├── KeyRefusedError     401, 403: the key is wrong, belongs to another app, or lacks the role
    ├── NotFoundError       404, 410: there is no such session, memory, job…
    ├── ConflictError       409, 412: the session has changed, or the id is taken; read again, and redo the change
    ├── InvalidRequestError 400, 405, 413, 415, 422: fix what `detail` names
    └── UnavailableError    429, 502, 503: try again later; safe calls were already retried
"""

from __future__ import annotations

from collections.abc import Mapping

import httpx


class ClientError(Exception):
    """Base of every error of the client."""


class ConnectionFailedError(ClientError):
    """There was no response. An append can be repeated with the same event ids; check the outcome of other calls."""


class ProblemError(ClientError):
    """The API returned a problem (RFC 9457). Branch on `type`."""

    def __init__(self, type_: str, status: int, detail: str, request_id: str) -> None:
        super().__init__(f"{detail} ({type_}, {status})")
        self.type = type_
        self.status = status
        self.detail = detail
        self.request_id = request_id


class KeyRefusedError(ProblemError):
    """The key is missing, wrong, belongs to another app, or lacks the role. Retrying does not help."""


class NotFoundError(ProblemError):
    """The app and user have no such object."""


class ConflictError(ProblemError):
    """The session has changed, or an id is taken. Read again, redo the change, send it again."""


class InvalidRequestError(ProblemError):
    """The request is wrong; nothing was changed. Fix what `detail` names."""


class UnavailableError(ProblemError):
    """The API cannot serve the request now. Try again later."""


_BY_STATUS: Mapping[int, type[ProblemError]] = {
    **dict.fromkeys((401, 403), KeyRefusedError),
    **dict.fromkeys((404, 410), NotFoundError),
    **dict.fromkeys((409, 412), ConflictError),
    **dict.fromkeys((400, 405, 413, 415, 422), InvalidRequestError),
    **dict.fromkeys((429, 502, 503), UnavailableError),
}


def problem_of(response: httpx.Response) -> ProblemError:
    """Return the error of a response."""
    is_problem = response.headers.get("content-type", "").startswith("application/problem+json")
    body = response.json() if is_problem else {}
    kind = _BY_STATUS.get(response.status_code, ProblemError)
    detail = body.get("detail") or f"the response has status {response.status_code} and is not a problem of this API"
    return kind(body.get("type", "about:blank"), response.status_code, detail, body.get("request_id", ""))
