"""Conditional requests (RFC 9110, section 13): a session's entity tag begins with its version.

``ETag: "7-5f1c0a93"`` is version 7 and a hash of the response, which also contains the state that sessions share.
If-None-Match compares the whole tag; If-Match compares only the session's version, so ``If-Match: "7"`` is enough.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Header
from starlette.responses import Response

from pulse.errors import ConcurrencyConflictError
from pulse.http.edge import problems
from pulse.session_key import SessionKey
from pulse.session_service import OpenSessionService

_HEADER_LENGTH_MAX = 4000
_TAG = re.compile(r'(?P<weak>W/)?"(?P<text>[\x21\x23-\x7e\x80-\xff]*)"')
_VERSION = re.compile(r"(\d{1,10})(-.*)?")

NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    304: {"description": "The client has the current state (If-None-Match)."}
}


@dataclass(frozen=True, slots=True)
class IfMatch:
    """The versions at which a session may be changed; None for any version of an existing session."""

    versions: frozenset[int] | None

    async def version_for(self, sessions: OpenSessionService, key: SessionKey) -> int | None:
        """Return the version that the session must have; None for any.

        Raises:
            ProblemError: the session has none of the versions.
            SessionNotFoundError: there is no such session.
        """
        if self.versions is None:
            return None
        if len(self.versions) == 1:
            return next(iter(self.versions))
        session = await sessions.get_session(*key, num_recent_events=0, state_keys=())
        if session is None:
            raise key.not_found()
        if session.version not in self.versions:
            raise problems.ProblemError(problems.PRECONDITION_FAILED)
        return session.version


async def _if_match(
    if_match: Annotated[
        str | None,
        Header(
            max_length=_HEADER_LENGTH_MAX,
            description='Refuse the call unless the session is at this version: "7", or its ETag.',
        ),
    ] = None,
) -> IfMatch | None:
    if if_match is None:
        return None
    if if_match.strip() == "*":
        return IfMatch(None)
    # The strong comparison: a weak tag matches nothing.
    texts = [match["text"] for match in _tags("If-Match", if_match) if not match["weak"]]
    found = [match for match in map(_VERSION.fullmatch, texts) if match]
    return IfMatch(frozenset(int(match[1]) for match in found if int(match[1]) < 2**31))


#: The precondition of every route that changes a session.
Precondition = Annotated[IfMatch | None, Depends(_if_match)]
IfNoneMatch = Annotated[
    str | None,
    Header(max_length=_HEADER_LENGTH_MAX, description="ETags that the client has: 304 if one of them is current."),
]


async def _only_new(
    if_none_match: Annotated[
        str | None,
        Header(max_length=_HEADER_LENGTH_MAX, description="`*`: create it, and change none that exists."),
    ] = None,
) -> bool:
    if if_none_match is None:
        return False
    if if_none_match.strip() != "*":
        raise problems.ProblemError(problems.INVALID_REQUEST, "header If-None-Match: write *, since it has no ETag")
    return True


#: Whether a PUT is to create something, and to leave what exists as it is.
OnlyNew = Annotated[bool, Depends(_only_new)]


@contextmanager
def precondition(condition: IfMatch | None) -> Iterator[None]:
    """Turn a conflict of versions in the block into a failed precondition, if the request has a condition."""
    try:
        yield
    except ConcurrencyConflictError as error:
        if condition is None:
            raise
        raise problems.ProblemError(
            problems.PRECONDITION_FAILED, f"{error}. {problems.PRECONDITION_FAILED.advice}"
        ) from None


def tagged(response: Response, version: int, if_none_match: str | None) -> Response:
    """Return a session's response with its entity tag, or a 304 for a client that has it."""
    tag = f"{version}-{hashlib.sha256(response.body).hexdigest()[:16]}"
    headers = {"ETag": f'"{tag}"', "Cache-Control": "private, no-cache"}
    if if_none_match is not None:
        known = if_none_match.strip() == "*" or any(
            match["text"] == tag for match in _tags("If-None-Match", if_none_match)
        )
        if known:
            return Response(status_code=304, headers=headers)
    response.headers.update(headers)
    return response


def _tags(header: str, text: str) -> list[re.Match[str]]:
    """Return the entity tags of a list.

    Raises:
        ProblemError: it is not a list of entity tags. A condition that cannot be read must not count as met.
    """
    found, position = [], 0
    for match in _TAG.finditer(text):
        if text[position : match.start()].strip(" \t,"):
            break
        found.append(match)
        position = match.end()
    if not found or text[position:].strip(" \t,"):
        raise problems.ProblemError(
            problems.INVALID_REQUEST, f'header {header}: write "7", W/"7", a list of these, or *'
        )
    return found
