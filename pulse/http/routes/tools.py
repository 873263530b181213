"""The routes of tools: an app's tools and sources, their versions, calls on behalf of a user, and the log of calls."""

from __future__ import annotations

import uuid
from typing import Annotated

from starlette.requests import Request
from starlette.responses import Response

from pulse.database import FAULTS
from pulse.errors import DatabaseUnreachableError, InvalidInputError
from pulse.http.edge import problems
from pulse.http.edge.bodies import reply
from pulse.http.edge.owner import PathOwner
from pulse.http.edge.pages import Page, page_of
from pulse.http.edge.roles import asserted_roles, grant_of, require
from pulse.http.edge.routing import APP_PATH, USER_PATH, make_router
from pulse.http.edge.schemas import AppName, Name, View
from pulse.http.edge.services import service
from pulse.http.routes import tools_schemas as schemas
from pulse.tools.records import ExecutionStatus, SourceChange, ToolError, ToolOutcome
from pulse.tools.registries import ToolRegistries

router = make_router("tools", APP_PATH)
user_router = make_router("tools", USER_PATH)

Registries = Annotated[ToolRegistries, service(ToolRegistries)]

_MISSING = problems.documented(problems.NOT_FOUND)
_BODY = problems.documented(*problems.BODY, problems.NOT_FOUND, problems.INVALID_REQUEST)


@router.get("/tools", summary="List tools", dependencies=[require("read")], response_model=schemas.ToolPageView)
async def list_tools(
    app_name: AppName, registries: Registries, page: Annotated[Page, page_of(100)], inactive: bool = False
) -> Response:
    """List the app's tools by their names; on request those too that are disabled or gone from their source."""
    found = await registries.of(app_name).list_tools(inactive=inactive, limit=page.limit, after=page.start(str))
    following = page.next_cursor(found, lambda each: each.name)
    return reply(schemas.ToolPageView(tools=[schemas.ToolView.of(each) for each in found], next_cursor=following))


@router.put(
    "/tool-sources/{source}",
    summary="Add or replace a source of tools",
    dependencies=[require("admin")],
    response_model=schemas.SourceChangeView,
    responses=_BODY,
)
async def put_source(
    app_name: AppName, source: schemas.SourceName, body: schemas.SourceInput, registries: Registries, request: Request
) -> Response:
    """Make tools of an OpenAPI document's operations, or of an MCP server's tools.

    Those that the source no longer has become inactive. A document with a fault is refused whole.
    """
    grant = grant_of(request)
    if (body.credentials or body.allowed_networks) and (grant is None or grant.app_name is not None):
        raise problems.ProblemError(
            problems.ROLE_MISSING, "credentials and allowed_networks are the operator's: this needs an all-apps key"
        )
    given = [each for each in (body.openapi, body.openapi_url, body.mcp_url) if each is not None]
    if len(given) != 1:
        raise InvalidInputError("give one of openapi, openapi_url and mcp_url")
    registry = registries.of(app_name)
    more = {} if body.timeout_seconds is None else {"timeout_seconds": body.timeout_seconds}
    try:
        if body.mcp_url is not None:
            if body.base_url is not None or not set(body.credentials) <= {"bearer"}:
                raise InvalidInputError("an MCP server has no base_url, and one credential: bearer")
            change = await registry.put_mcp(
                source,
                body.mcp_url,
                credential=body.credentials.get("bearer"),
                permissions=body.permissions,
                allowed_networks=body.allowed_networks,
                **more,
            )
        else:
            if body.openapi_url is not None and not body.openapi_url.startswith(("http://", "https://")):
                raise InvalidInputError("openapi_url begins with https://")
            change = await registry.put_openapi(
                source,
                body.openapi if body.openapi is not None else str(body.openapi_url),
                base_url=body.base_url,
                credentials=body.credentials,
                permissions=body.permissions,
                allowed_networks=body.allowed_networks,
                **more,
            )
    except ToolError as error:
        raise InvalidInputError(str(error)) from None
    return reply(_change(change))


@router.get(
    "/tools/{name}",
    summary="Read a tool",
    dependencies=[require("read")],
    response_model=schemas.ToolView,
    responses=_MISSING,
)
async def get_tool(app_name: AppName, name: Name, registries: Registries) -> Response:
    """Read a tool, active or not."""
    return reply(schemas.ToolView.of(await registries.of(app_name).get(name)))


@router.get(
    "/tools/{name}/versions",
    summary="List a tool's versions",
    dependencies=[require("read")],
    response_model=schemas.VersionListView,
    responses=_MISSING,
)
async def list_versions(app_name: AppName, name: Name, registries: Registries) -> Response:
    """List the versions of a tool, the newest first."""
    found = await registries.of(app_name).versions(name)
    views = [
        schemas.VersionView(version=each.version, definition=dict(each.definition), created_at=each.created_at)
        for each in found
    ]
    return reply(schemas.VersionListView(versions=views))


@router.put(
    "/tools/{name}/permissions",
    summary="Set a tool's permissions",
    dependencies=[require("admin")],
    response_model=schemas.ToolView,
    responses=_BODY,
)
async def set_permissions(
    app_name: AppName, name: Name, body: schemas.PermissionsInput, registries: Registries
) -> Response:
    """Replace a tool's permissions, as its next version."""
    return reply(schemas.ToolView.of(await registries.of(app_name).set_permissions(name, body.permissions)))


@router.post(
    "/tools/{name}/disable",
    summary="Disable a tool",
    dependencies=[require("admin")],
    response_model=schemas.ToolView,
    responses=_MISSING,
)
async def disable_tool(app_name: AppName, name: Name, registries: Registries) -> Response:
    """Refuse further calls of a tool. Calls that run end."""
    return reply(schemas.ToolView.of(await registries.of(app_name).set_active(name, is_active=False)))


@router.post(
    "/tools/{name}/enable",
    summary="Enable a tool",
    dependencies=[require("admin")],
    response_model=schemas.ToolView,
    responses=_MISSING,
)
async def enable_tool(app_name: AppName, name: Name, registries: Registries) -> Response:
    """Allow calls of a tool again."""
    return reply(schemas.ToolView.of(await registries.of(app_name).set_active(name, is_active=True)))


@router.post(
    "/tools/{name}/rollback",
    summary="Roll a tool back",
    dependencies=[require("admin")],
    response_model=schemas.ToolView,
    responses=_BODY,
)
async def rollback_tool(app_name: AppName, name: Name, body: schemas.RollbackInput, registries: Registries) -> Response:
    """Give a tool the definition of one of its versions, as its next version."""
    return reply(schemas.ToolView.of(await registries.of(app_name).rollback(name, body.version)))


@router.get(
    "/tool-executions",
    summary="List calls of tools",
    dependencies=[require("admin")],
    response_model=schemas.ExecutionPageView,
)
async def list_executions(
    app_name: AppName,
    registries: Registries,
    page: Annotated[Page, page_of(100)],
    tool: Name | None = None,
    user: Name | None = None,
    status: ExecutionStatus | None = None,
) -> Response:
    """List calls, refused ones too, the newest first."""
    found = await registries.of(app_name).executions(
        name=tool, user_id=user, status=status, limit=page.limit, before=page.start(uuid.UUID)
    )
    following = page.next_cursor(found, lambda each: each.id)
    views = [schemas.ExecutionView.of(each) for each in found]
    return reply(schemas.ExecutionPageView(executions=views, next_cursor=following))


@user_router.post(
    "/tools/{name}/call",
    summary="Call a tool",
    dependencies=[require("append")],
    response_model=schemas.CallView,
    responses=_BODY,
)
async def call_tool(
    owner: PathOwner, name: Name, body: schemas.CallInput, registries: Registries, request: Request
) -> Response:
    """Call a tool on behalf of a user. What fails is a result with a code, such as `rate_limited`."""
    outcome = await registries.of(owner.app_name).call(
        name,
        body.params,
        user_id=owner.user_id,
        tool_call_id=body.tool_call_id,
        roles=asserted_roles(request, body.roles) or None,
    )
    return reply(_outcome(outcome))


@user_router.post(
    "/tool-executions/{execution_id}/decision",
    summary="Confirm or deny a call",
    dependencies=[require("append")],
    response_model=schemas.CallView,
    responses=_BODY,
)
async def decide_call(
    owner: PathOwner, execution_id: uuid.UUID, body: schemas.DecisionInput, registries: Registries
) -> Response:
    """Decide on a call that waits for a person: make it, once, with exactly its arguments, or refuse it."""
    registry = registries.of(owner.app_name)
    return reply(_outcome(await registry.confirm(execution_id, user_id=owner.user_id, approved=body.approved)))


@user_router.post(
    "/tool-executions/{execution_id}/result",
    summary="Give the result of a client's call",
    dependencies=[require("append")],
    response_model=schemas.CallView,
    responses=_BODY,
)
async def answer_call(
    owner: PathOwner, execution_id: uuid.UUID, body: schemas.ResultInput, registries: Registries
) -> Response:
    """Give the result of a call that waits for the user's client; a call that waits for a person has none."""
    return reply(_outcome(await registries.of(owner.app_name).answer(execution_id, body.value, user_id=owner.user_id)))


def _outcome(outcome: ToolOutcome) -> View:
    """Return what became of a call; a database that is down is not the tool's failure."""
    if isinstance(outcome.cause, (DatabaseUnreachableError, *FAULTS)):
        raise outcome.cause
    return schemas.CallView.of(outcome)


def _change(change: SourceChange) -> View:
    return schemas.SourceChangeView(
        added=list(change.added),
        changed=list(change.changed),
        gone=list(change.gone),
        skipped=dict(change.skipped),
    )
