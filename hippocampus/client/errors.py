"""Everything that the client raises.

ClientError
├── ConnectionFailedError   no answer: refused, cut, or too late; what was sent may have arrived
└── ProblemError            the API answered with a problem: `type`, `status`, `detail`, `request_id`
    ├── KeyRefusedError     401, 403: the key is wrong, another app's, or lacks the role
    ├── NotFoundError       404, 410: no such session, memory, job…
    ├── ConflictError       409, 412: the session moved on, or an id is taken; read again, and redo the change
    ├── InvalidRequestError 400, 405, 413, 415, 422: mend what `detail` names
    └── UnavailableError    429, 502, 503: try again later; the safe calls did already
"""

from __future__ import annotations

from collections.abc import Mapping

import httpx


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


def problem_of(response: httpx.Response) -> ProblemError:
    """Return the error of an answer that is none of the calls' own."""
    is_problem = response.headers.get("content-type", "").startswith("application/problem+json")
    body = response.json() if is_problem else {}
    kind = _BY_STATUS.get(response.status_code, ProblemError)
    detail = body.get("detail") or f"the answer is {response.status_code}, and no problem of this API"
    return kind(body.get("type", "about:blank"), response.status_code, detail, body.get("request_id", ""))
