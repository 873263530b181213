"""Whose a session is: the path names the app and the user, or the query or two headers do."""

from __future__ import annotations

from typing import Annotated, NamedTuple
from urllib.parse import unquote_to_bytes

from fastapi import Depends, Header, Query

from pulse.http.edge import problems
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


#: For a route whose path names both.
PathOwner = Annotated[Owner, Depends(path_owner)]
#: For a route whose path names neither app nor user.
AssertedOwner = Annotated[Owner, Depends(asserted_owner)]


async def _path_session(owner: PathOwner, session_id: SessionId) -> SessionKey:
    return SessionKey(*owner, session_id)


async def _asserted_session(owner: AssertedOwner, session_id: SessionId) -> SessionKey:
    return SessionKey(*owner, session_id)


#: For a route whose path names app, user and session.
PathSession = Annotated[SessionKey, Depends(_path_session)]
#: For a route whose path names the session alone.
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
