"""Whose a thread is, where the path does not say: the query or two headers name the app and the user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated
from urllib.parse import unquote_to_bytes

from fastapi import Depends, Header, Query

from pulse.http.edge import problems
from pulse.http.routes import schemas

_QUERY_NOTE = "Or the header {header}, percent-encoded. One of the two."


@dataclass(frozen=True, slots=True)
class Owner:
    """The app and the user in whose name a call is made."""

    app_name: str
    user_id: str


def path_owner(app_name: schemas.AppName, user_id: schemas.UserId) -> Owner:
    """Return the owner that a path names."""
    return Owner(app_name, user_id)


def asserted_owner(
    app_name: Annotated[
        schemas.Name | None, Query(description=f"The application. {_QUERY_NOTE.format(header='X-App-Name')}")
    ] = None,
    user_id: Annotated[
        schemas.Name | None, Query(description=f"The user. {_QUERY_NOTE.format(header='X-User-Id')}")
    ] = None,
    x_app_name: Annotated[str | None, Header(max_length=3000)] = None,
    x_user_id: Annotated[str | None, Header(max_length=3000)] = None,
) -> Owner:
    """Return the owner that the query or the headers name.

    Raises:
        ProblemError: one of the two is missing, or named twice and differently.
    """
    return Owner(_one("app_name", app_name, "X-App-Name", x_app_name), _one("user_id", user_id, "X-User-Id", x_user_id))


#: For a route whose path names both.
PathOwner = Annotated[Owner, Depends(path_owner)]
#: For a route whose path names neither app nor user.
AssertedOwner = Annotated[Owner, Depends(asserted_owner)]


def _one(name: str, asked: str | None, header: str, given: str | None) -> str:
    try:
        decoded = None if given is None else unquote_to_bytes(given).decode()
    except UnicodeDecodeError:
        raise problems.ProblemError(problems.INVALID_REQUEST, f"header {header} is not percent-encoded UTF-8") from None
    if asked is not None and decoded is not None and asked != decoded:
        raise problems.ProblemError(
            problems.INVALID_REQUEST, f"query {name} and header {header} differ: send one of them"
        )
    found = asked if asked is not None else decoded
    if found is None or not 1 <= len(found) <= 255 or "\0" in found:
        raise problems.ProblemError(
            problems.INVALID_REQUEST, f"name it in the query as {name}, or in the header {header}: 1 to 255 characters"
        )
    return found
