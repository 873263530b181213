"""The route that reports what the caller's key allows."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from pulse.api_keys import ROLES
from pulse.http.edge import problems
from pulse.http.edge.bodies import reply
from pulse.http.edge.roles import grant_of
from pulse.http.edge.routing import DeferredRoute
from pulse.http.routes.me_schemas import CallerView

# Not an `ExactRoute`: it requires no role, and names no app. It reads nothing but what the check of the key found.
router = APIRouter(
    prefix="/api", tags=["operation"], route_class=DeferredRoute, responses=problems.documented(*problems.COMMON)
)


@router.get("/me", summary="Read what the key allows", response_model=CallerView)
async def read_caller(request: Request) -> Response:
    """Read the roles of the key, and the app and the user that it is bound to. Needs a key of any role."""
    grant = grant_of(request)
    if grant is None:
        raise problems.ProblemError(problems.WRONG_KEY)
    roles = [role for role in ROLES if grant.has(role)]
    return reply(
        CallerView(
            key_id=grant.key_id,
            app_name=grant.app_name,
            user_id=grant.user_id,
            roles=roles,
            user_roles=None if grant.user_roles is None else list(grant.user_roles),
        )
    )
