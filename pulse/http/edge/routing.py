"""How a route is made: `make_router` for its path, tag and problems, `require` for its role."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from pulse.http.edge import problems
from pulse.http.edge.bodies import Admission, ExactRequest, ReadAdmission, StreamAdmission, receive_body
from pulse.http.edge.frame_stream import FrameStream
from pulse.http.edge.roles import check_role, role_of
from pulse.http.edge.services import service_of

APP_PATH: Final = "/v1/apps/{app_name}"
USER_PATH: Final = f"{APP_PATH}/users/{{user_id}}"


class ExactRoute(APIRoute):
    """A route that requires a role, reads its body without loss, and waits for admission.

    The role is checked before the body is read: a caller without it costs no parsing.

    Raises:
        LookupError: it requires no role; see `pulse.http.edge.roles`.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        note = f"Needs a key with the role `{role_of(self)}`."
        if note not in self.description:
            self.description = f"{self.description}\n\n{note}".strip()

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler, wrapped."""
        handle = super().get_route_handler()
        has_body = self.body_field is not None
        role = role_of(self)
        if role is None:
            raise LookupError(f"the route {self.path} requires no role: give it dependencies=[require(...)]")
        admission: type[Admission] = ReadAdmission if role == "read" else Admission
        if self.response_class is FrameStream:
            admission = StreamAdmission

        async def handle_exactly(request: Request) -> Response:
            exact = ExactRequest(request.scope, request.receive)
            check_role(exact, role)
            if has_body:
                await receive_body(exact)
            async with service_of(request, admission).slot():
                return await handle(exact)

        return handle_exactly


def make_router(
    tag: str, prefix: str = "", *kinds: problems.Kind, responses: dict[int | str, Any] | None = None
) -> APIRouter:
    """Return the router of one noun's routes.

    Args:
        tag: the section of the API's document.
        prefix: of every path, such as `USER_PATH`.
        kinds: problems of every route, in addition to those that any route may answer.
        responses: further responses of every route.
    """
    documented = problems.documented(*problems.COMMON, problems.INVALID_REQUEST, *kinds)
    return APIRouter(prefix=prefix, tags=[tag], route_class=ExactRoute, responses={**(responses or {}), **documented})
