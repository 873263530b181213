"""Whose a session is: the path names the app and the user, or the query or two headers do."""

from __future__ import annotations

from typing import Annotated, NamedTuple
from urllib.parse import unquote_to_bytes

from fastapi import Depends, Header, Query
from starlette.requests import HTTPConnection

from pulse.http.edge import problems
from pulse.http.edge.roles import grant_of
from pulse.http.edge.schemas import AppName, Name, SessionId, UserId
from pulse.session_key import SessionKey

_QUERY_NOTE = "Or the header {header}, percent-encoded. One of the two."


class Owner(NamedTuple):
    """The app and the user on whose behalf a call is made."""

    app_name: str
    user_id: str


async def path_owner(app_name: AppName, user_id: UserId) -> Owner:
    """Return the owner that a path names."""
    return Owner(app_name, user_id)


async def asserted_owner(
    app_name: Annotated[
        Name | None, Query(description=f"The application. {_QUERY_NOTE.format(header='X-App-Name')}")
    ] = None,
    user_id: Annotated[Name | None, Query(description=f"The user. {_QUERY_NOTE.format(header='X-User-Id')}")] = None,
    x_app_name: Annotated[str | None, Header(max_length=3000)] = None,
    x_user_id: Annotated[str | None, Header(max_length=3000)] = None,
) -> Owner:
    """Return the owner that the query or the headers name.

    Raises:
        ProblemError: a name is missing, or the query and the header differ.
    """
    return Owner(_one("app_name", app_name, "X-App-Name", x_app_name), _one("user_id", user_id, "X-User-Id", x_user_id))


async def bound_owner(connection: HTTPConnection) -> Owner:
    """Return the owner that the caller's key is bound to; the query or the headers name what it leaves open.

    Raises:
        ProblemError: a name is missing, the query and the header differ, or the key is for another app or user.
    """
    query, headers = connection.query_params, connection.headers
    grant = grant_of(connection)
    app_name = query.get("app_name"), headers.get("x-app-name")
    user_id = query.get("user_id"), headers.get("x-user-id")
    if grant is not None and grant.app_name is not None and app_name == (None, None):
        app_name = grant.app_name, None
    if grant is not None and grant.user_id is not None and user_id == (None, None):
        user_id = grant.user_id, None
    owner = await asserted_owner(app_name[0], user_id[0], app_name[1], user_id[1])
    if grant is not None and grant.app_name not in (None, owner.app_name):
        raise problems.ProblemError(problems.WRONG_APP)
    if grant is not None and grant.user_id not in (None, owner.user_id):
        raise problems.ProblemError(problems.WRONG_USER)
    return owner


#: The owner for a route whose path names app and user.
PathOwner = Annotated[Owner, Depends(path_owner)]
#: The owner for a route whose path names neither app nor user.
AssertedOwner = Annotated[Owner, Depends(asserted_owner)]


async def _path_session(owner: PathOwner, session_id: SessionId) -> SessionKey:
    return SessionKey(*owner, session_id)


async def _asserted_session(owner: AssertedOwner, session_id: SessionId) -> SessionKey:
    return SessionKey(*owner, session_id)


#: The session for a route whose path names app, user and session.
PathSession = Annotated[SessionKey, Depends(_path_session)]
#: The session for a route whose path names only the session.
AssertedSession = Annotated[SessionKey, Depends(_asserted_session)]


def _one(name: str, in_query: str | None, header: str, in_header: str | None) -> str:
    try:
        decoded = None if in_header is None else unquote_to_bytes(in_header).decode()
    except UnicodeDecodeError:
        raise problems.ProblemError(problems.INVALID_REQUEST, f"header {header} is not percent-encoded UTF-8") from None
    if in_query is not None and decoded is not None and in_query != decoded:
        raise problems.ProblemError(
            problems.INVALID_REQUEST, f"query {name} and header {header} differ: send one of them"
        )
    found = in_query if in_query is not None else decoded
    if found is None or not 1 <= len(found) <= 255 or "\0" in found:
        raise problems.ProblemError(
            problems.INVALID_REQUEST, f"name it in the query as {name}, or in the header {header}: 1 to 255 characters"
        )
    return found
