"""Authorization: the role that a call needs, in the app that it names. `check_role` checks it for every route.

Every route declares its role: ``dependencies=[require("read")]``. A call with an app's key must name that app: in the
path, or else in the query or the header X-App-Name. A route that names no app needs an all-apps key. In the same
way, a call with a user's key must name that user, and a route that names no user needs a key of every user. The check
comes before any lookup, so that a refusal does not reveal what exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote_to_bytes

from fastapi import Depends
from fastapi.routing import APIRoute
from starlette.requests import HTTPConnection
from starlette.routing import BaseRoute

from pulse.actor import act_as
from pulse.api_keys import Grant, Role
from pulse.http.edge import problems
from pulse.tracing.manager import current_tracing


class _RoleCheck:
    """The dependency of a route on a role."""

    def __init__(self, role: Role) -> None:
        self.role = role

    async def __call__(self, connection: HTTPConnection) -> None:
        check_role(connection, self.role)
        if current_tracing().is_on:
            # Only once the caller may act for them: a refused request belongs to no user.
            _note_owners(connection)


def require(role: Role) -> Any:
    """Return the dependency of a route that needs this role; `admin` includes the other two."""
    return Depends(_RoleCheck(role))


async def _check_every_app(connection: HTTPConnection) -> None:
    grant = grant_of(connection)
    if grant is not None and grant.app_name is not None:
        raise problems.ProblemError(problems.WRONG_APP)


#: The dependency of a route about the whole installation: a key of one app is refused, even if the call names its app.
EVERY_APP = Depends(_check_every_app)


def grant_of(connection: HTTPConnection) -> Grant | None:
    """Return what the caller's key allows; None for a caller with a ticket, which defines what it allows."""
    grant: Grant | None = connection.scope["state"].get("grant")
    return grant


def check_role(connection: HTTPConnection, role: Role) -> None:
    """Check that the caller's key has a role in the app that the request names.

    Raises:
        ProblemError: the key belongs to another app or another user, or lacks the role.
    """
    grant = grant_of(connection)
    if grant is None:
        return
    if grant.app_name is not None and set(_named_apps(connection)) != {grant.app_name}:
        raise problems.ProblemError(problems.WRONG_APP)
    if grant.user_id is not None and set(_named_users(connection)) != {grant.user_id}:
        raise problems.ProblemError(problems.WRONG_USER)
    check_grant(grant, role)
    act_as(f"key:{grant.key_id}")


def check_grant(grant: Grant, role: Role) -> None:
    """Check that a key grants a role.

    Raises:
        ProblemError: it does not; the message names the role.
    """
    if not grant.has(role):
        raise problems.ProblemError(problems.ROLE_MISSING, f"this needs a key with the role '{role}'")


def asserted_roles(connection: HTTPConnection, roles: list[str]) -> list[str]:
    """Return the roles of a user that a call has, of which the caller names some: as far as the key allows.

    Raises:
        ProblemError: the key may not name one of them.
    """
    grant = grant_of(connection)
    if grant is None:
        return roles
    found = grant.roles_of_user(roles)
    if found is not None:
        return found
    if grant.user_roles is None:
        detail = "a user's roles are the app's to assert: this needs a key without a user, or one that has the roles"
    else:
        allowed = f"only {', '.join(grant.user_roles)}" if grant.user_roles else "none"
        detail = f"of the roles of users this key may name {allowed}"
    raise problems.ProblemError(problems.ROLE_MISSING, detail)


def role_of(route: BaseRoute) -> Role | None:
    """Return the role that a route requires; None if it requires none."""
    if not isinstance(route, APIRoute):
        return None
    found = {each.dependency.role for each in route.dependencies if isinstance(each.dependency, _RoleCheck)}
    return found.pop() if len(found) == 1 else None


def _note_owners(connection: HTTPConnection) -> None:
    """Say whose the request's span is."""
    apps, users = set(_named_apps(connection)), set(_named_users(connection))
    session = connection.path_params.get("session_id")
    current_tracing().annotate(
        app_name=apps.pop() if len(apps) == 1 else None,
        user_id=users.pop() if len(users) == 1 else None,
        session_id=None if session is None else _decode(session),
    )


def _named_apps(connection: HTTPConnection) -> Iterator[str]:
    """Yield every app that a request names; a name that is not valid UTF-8 matches no app."""
    if "app_name" in connection.path_params:
        yield _decode(connection.path_params["app_name"])
        return
    yield from connection.query_params.getlist("app_name")
    yield from (_decode(each) for each in connection.headers.getlist("x-app-name"))


def _named_users(connection: HTTPConnection) -> Iterator[str]:
    """Yield every user that a request names. A path that names an app but no user concerns all of the app."""
    if "app_name" in connection.path_params:
        if "user_id" in connection.path_params:
            yield _decode(connection.path_params["user_id"])
        return
    yield from connection.query_params.getlist("user_id")
    yield from (_decode(each) for each in connection.headers.getlist("x-user-id"))


def _decode(text: str) -> str:
    return unquote_to_bytes(text).decode(errors="replace")
