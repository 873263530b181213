"""The MCP server beside the writer: streamable HTTP at ``/mcp``, without sessions, on the services of the API.

A request passes the same middleware as every other: keys, limits of rate and body, logs. A key that is bound to an app
and a user needs nothing else. Otherwise the connection names them: ``/mcp?app_name=shop&user_id=ann``, or the headers
X-App-Name and X-User-Id; with a key without a user also the user's roles, ``&role=editor``. Any writer answers any
request, since none is kept open between two.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import asyncpg
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request

from hippocampus.answers import AnswerService
from hippocampus.context_assembler import ContextAssembler
from hippocampus.knowledge.service import KnowledgeServices
from hippocampus.memory_service import OpenMemoryService
from hippocampus.search import MemorySearch
from pulse.http.edge import problems
from pulse.http.edge.bodies import Admission
from pulse.http.edge.owner import bound_owner
from pulse.http.edge.roles import asserted_roles, grant_of
from pulse.http.edge.services import service_of
from pulse.session_service import OpenSessionService
from pulse.tools.registries import ToolRegistries
from workers.mcp.caller import Caller, Services
from workers.mcp.server import Context, build_server

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from workers.settings import Settings

ROLES_MAX = 100
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[ASGIApp]:
    """Yield the application of the route, which answers until the block is left."""
    manager = StreamableHTTPSessionManager(
        build_server(_caller_of),
        stateless=True,
        security_settings=_security(settings),
        max_request_body_size=settings.max_body_bytes,
    )
    async with manager.run():
        yield _Endpoint(manager)


class _Endpoint:
    """Finds out on whose behalf a request is, before the protocol sees it."""

    def __init__(self, manager: StreamableHTTPSessionManager) -> None:
        self._manager = manager

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request.

        Raises:
            ProblemError: it names no user, or another than its key is for, or roles that it may not assert.
        """
        request = Request(scope)
        scope["state"]["mcp_owner"] = await bound_owner(request)
        scope["state"]["mcp_roles"] = asserted_roles(request, _roles_of(request))
        await self._manager.handle_request(scope, receive, send)


def _roles_of(request: Request) -> list[str]:
    roles = request.query_params.getlist("role")
    if len(roles) > ROLES_MAX or not all(1 <= len(role) <= 255 and "\0" not in role for role in roles):
        raise problems.ProblemError(
            problems.INVALID_REQUEST, f"role in the query: up to {ROLES_MAX}, each of 1 to 255 characters"
        )
    return roles


def _caller_of(context: Context) -> Caller:
    request = context.request
    assert isinstance(request, Request)  # noqa: S101 - of this transport
    owner, grant = request.scope["state"]["mcp_owner"], grant_of(request)
    assert grant is not None  # noqa: S101 - a ticket opens streams alone
    return Caller(
        app_name=owner.app_name,
        user_id=owner.user_id,
        grant=grant,
        services=Services(
            pool=service_of(request, asyncpg.Pool),
            sessions=service_of(request, OpenSessionService),
            memory=service_of(request, OpenMemoryService),
            search=service_of(request, MemorySearch),
            assembler=service_of(request, ContextAssembler),
            answers=service_of(request, AnswerService),
            tools=service_of(request, ToolRegistries),
            knowledge=service_of(request, KnowledgeServices),
        ),
        slot=service_of(request, Admission).slot,
        request_id=request.scope["state"]["request_id"],
        roles=tuple(request.scope["state"]["mcp_roles"]),
    )


def _security(settings: Settings) -> TransportSecuritySettings:
    """Return which hosts and origins are served: loopback's, and those of the settings."""
    hosts = [*_LOOPBACK, settings.api_host, *filter(None, settings.mcp_hosts.split(","))]
    origins = [f"http://{host}" for host in _LOOPBACK]
    return TransportSecuritySettings(
        allowed_hosts=[*hosts, *(f"{host}:*" for host in hosts)],
        allowed_origins=[
            *origins,
            *(f"{origin}:*" for origin in origins),
            *filter(None, settings.cors_origins.split(",")),
        ],
    )
