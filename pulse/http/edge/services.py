"""The services that routes use, by class. The process that builds the app provides them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fastapi import Depends, FastAPI
from starlette.requests import HTTPConnection

Service = TypeVar("Service")


def provide(app: FastAPI, services: Mapping[Any, object]) -> None:
    """Give the app's routes their services, each under the class by which routes request it."""
    app.state.services = dict(services)


def service_of(connection: HTTPConnection, kind: Callable[..., Service]) -> Service:
    """Return the app's service of a class.

    Raises:
        KeyError: the process that built the app did not provide it.
    """
    found: Service = connection.app.state.services[kind]
    return found


def service(kind: Callable[..., Any]) -> Any:
    """Return the dependency of a route on a service: ``Annotated[RunService, service(RunService)]``."""

    # Not a plain function: FastAPI would call that in a thread.
    async def find(connection: HTTPConnection) -> Any:
        return service_of(connection, kind)

    return Depends(find)
