"""How a route is made: `make_router` for its path, tag and problems, `require` for its role."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from fastapi import APIRouter, Depends, Request
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.routing import compile_path, get_name

from pulse.http.edge import problems
from pulse.http.edge.bodies import Admission, ExactRequest, FileAdmission, ReadAdmission, StreamAdmission, receive_body
from pulse.http.edge.frame_stream import FrameStream
from pulse.http.edge.roles import check_role, role_of
from pulse.http.edge.services import service_of

APP_PATH: Final = "/v1/apps/{app_name}"
USER_PATH: Final = f"{APP_PATH}/users/{{user_id}}"


async def _reads_file() -> None: ...


#: Held while a route is made: what another thread reads of it then is not there yet. By one thread, for its own reads.
_making: Final = threading.RLock()

#: The dependency of a route that reads a file: `FileAdmission` admits its requests.
READS_FILE: Final = Depends(_reads_file)


class DeferredRoute(APIRoute):
    """A route of which only what selects requests is made at once.

    The rest, such as the parameters and the models, would take much of a writer's start; it is made when it is first
    read, by the first request for the route or for the API's document.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self.path, self.endpoint = path, endpoint
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self.methods = {method.upper() for method in options.get("methods") or ("GET",)}
        self.name = options.get("name") or get_name(endpoint)
        self.dependencies = list(options.get("dependencies") or ())
        self._options: dict[str, Any] | None = options

    def __getattr__(self, name: str) -> Any:
        with _making:
            if name in vars(self):
                return vars(self)[name]  # made by another thread meanwhile
            options = vars(self).get("_options")
            if options is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            self._options = None
            try:
                self._make(options)
            except BaseException:
                self._options = options
                raise
        return getattr(self, name)

    def _make(self, options: Mapping[str, Any]) -> None:
        APIRoute.__init__(self, self.path, self.endpoint, **options)


class ExactRoute(DeferredRoute):
    """A route that requires a role, reads its body without loss, and waits for admission.

    The role is checked before the body is read: a caller without it costs no parsing.

    Raises:
        LookupError: it requires no role; see `pulse.http.edge.roles`.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        if role_of(self) is None:
            raise LookupError(f"the route {path} requires no role: give it dependencies=[require(...)]")

    def _make(self, options: Mapping[str, Any]) -> None:
        super()._make(options)
        note = f"Needs a key with the role `{role_of(self)}`."
        if note not in self.description:
            self.description = f"{self.description}\n\n{note}".strip()

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler, wrapped."""
        handle = super().get_route_handler()
        has_body = self.body_field is not None
        role = role_of(self)
        assert role is not None  # noqa: S101 - checked when the route was made
        admission: type[Admission] = ReadAdmission if role == "read" else Admission
        if self.response_class is FrameStream:
            admission = StreamAdmission
        elif READS_FILE in self.dependencies:
            admission = FileAdmission

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
