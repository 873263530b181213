"""What a call needs: a role, in the app that it names.

Every route says ``dependencies=[require("read")]`` or another role. A key of an app must name that app: in the path, or
where the path has none in the query or the header X-App-Name. A route that names no app needs a key of every app. What
is refused here is refused before anything is looked up, so that the answer says nothing of what there is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote_to_bytes

from fastapi import Depends
from fastapi.routing import APIRoute
from starlette.requests import HTTPConnection
from starlette.routing import BaseRoute

from pulse.api_keys import Grant, Role
from pulse.http.edge import problems


class _RoleCheck:
    """The dependency of a route."""

    def __init__(self, role: Role) -> None:
        self.role = role

    def __call__(self, connection: HTTPConnection) -> None:
        check_role(connection, self.role)


def require(role: Role) -> Any:
    """Return the dependency of a route that needs this role; `admin` has the other two as well."""
    return Depends(_RoleCheck(role))


def grant_of(connection: HTTPConnection) -> Grant | None:
    """Return what the caller's key allows; None for who brings a ticket, which says itself what it allows."""
    grant: Grant | None = connection.scope["state"].get("grant")
    return grant


def check_role(connection: HTTPConnection, role: Role) -> None:
    """Let only those pass who may.

    Raises:
        ProblemError: the key is another app's, or it lacks the role.
    """
    grant = grant_of(connection)
    if grant is None:
        return
    if grant.app_name is not None and set(_named_apps(connection)) != {grant.app_name}:
        raise problems.ProblemError(problems.WRONG_APP)
    if not grant.has(role):
        raise problems.ProblemError(problems.ROLE_MISSING, f"this needs a key with the role '{role}'")


def role_of(route: BaseRoute) -> Role | None:
    """Return the role that a route needs; None where it says none."""
    if not isinstance(route, APIRoute):
        return None
    found = {each.call.role for each in route.dependant.dependencies if isinstance(each.call, _RoleCheck)}
    return found.pop() if len(found) == 1 else None


def _named_apps(connection: HTTPConnection) -> Iterator[str]:
    """Yield every app that a request names; one that is not UTF-8 is nobody's."""
    if "app_name" in connection.path_params:
        yield _decode(connection.path_params["app_name"])
        return
    yield from connection.query_params.getlist("app_name")
    yield from (_decode(each) for each in connection.headers.getlist("x-app-name"))


def _decode(text: str) -> str:
    return unquote_to_bytes(text).decode(errors="replace")
