"""What an app's tools are: registered, read, changed, and the log of their calls. `ToolRegistry` calls them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from pulse.errors import InvalidInputError, ToolNotFoundError
from pulse.names import check_app, check_name
from pulse.outbound import addresses
from pulse.outbound.client import OutboundClient
from pulse.postgres.json_values import clean_text, escape_state, unescape
from pulse.postgres.limits import check_limit
from pulse.postgres.statements import Statements
from pulse.sandbox.records import read_limits
from pulse.tools import credentials as credential_rules
from pulse.tools import mcp_source, openapi
from pulse.tools.functions import DescribedTool, PythonTool
from pulse.tools.permissions import read_permissions
from pulse.tools.records import (
    EXECUTION_STATUSES,
    ExecutionStatus,
    FrontendTool,
    Nature,
    SourceChange,
    Tool,
    ToolExecution,
    ToolKind,
    ToolVersion,
)
from pulse.tools.requests import download
from pulse.tools.schemas import SchemaCheck

if TYPE_CHECKING:
    from pulse.database import Pool

#: How long the answer of a user's client is waited for.
CLIENT_SECONDS = 60.0
LIST_LENGTH_MAX = 1000
_DOWNLOAD_SECONDS = 30.0
_NAME_LENGTH_MAX = 255

_STATEMENTS = Statements("pulse.tools", "tools.sql")


class ToolCatalog:
    """The tools of an app: what is registered, its versions, and the log.

    Args:
        read_secret: returns the secret of a reference such as ``env:TOOL_KEY``.
        resolve: looks names up.
    """

    def __init__(
        self,
        pool: Pool,
        app_name: str,
        *,
        read_secret: credential_rules.ReadSecret = credential_rules.read_secret,
        resolve: addresses.Resolve = addresses.resolve,
    ) -> None:
        self.app_name = check_name("app_name", app_name)
        self._pool = pool
        self._read_secret = read_secret
        self._resolve = resolve
        self._functions: dict[str, PythonTool | DescribedTool] = {}

    # Registering

    async def register_tool(
        self,
        name: str,
        func: Callable[..., Any] | None = None,
        *,
        display_name: str = "",
        description: str | None = None,
        openapi_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        permissions: Mapping[str, Any] | None = None,
        nature: Nature = "once",
        timeout_seconds: float = 30.0,
    ) -> Tool:
        """Register a Python function as a tool; the same definition again changes nothing.

        The row is the app's, the function this process's: a process without it answers calls with ``tool_failed``.

        Args:
            func: plain or a coroutine; None registers what another process, or this one later, has the function of.
            description: the function's docstring by default.
            openapi_schema: the JSON Schema of the arguments; by default that of the function's annotations.
            permissions: see `read_permissions`.
            nature: ``again`` if a call may be repeated, such as one that only reads.
            timeout_seconds: up to 3,600.

        Raises:
            InvalidInputError: an argument is out of its bounds, or the name is taken by a source; nothing was stored.
        """
        function = None if func is None else PythonTool(func) if openapi_schema is None else DescribedTool(func)
        if openapi_schema is None and not isinstance(function, PythonTool):
            raise InvalidInputError(f"the tool {name!r:.80} needs a function, or openapi_schema with its arguments")
        schema = function.input_schema if isinstance(function, PythonTool) else dict(openapi_schema or {})
        if description is None:
            description = function.description if function is not None else ""
        tool = await self._put(
            name,
            kind="python",
            display_name=display_name,
            description=description,
            openapi_schema=openapi_schema,
            input_schema=schema,
            output_schema=output_schema,
            permissions=permissions,
            nature=nature,
            timeout_seconds=timeout_seconds,
        )
        if function is not None:
            self._functions[name] = function
        return tool

    async def register_frontend_tool(self, tool: FrontendTool) -> Tool:
        """Register a tool that the user's client executes. Raises as `register_tool`."""
        return await self._put(
            tool.name,
            kind="client",
            description=tool.description,
            input_schema=dict(tool.parameters),
            permissions={"requires_confirmation": True} if tool.requires_confirmation else None,
            operation={"render_component": tool.render_component},
            timeout_seconds=CLIENT_SECONDS,
        )

    async def register_sandbox_tool(
        self,
        name: str,
        *,
        code: str | None = None,
        description: str,
        input_schema: Mapping[str, Any] | None = None,
        permissions: Mapping[str, Any] | None = None,
        limits: Mapping[str, Any] | None = None,
        timeout_seconds: float = 30.0,
    ) -> Tool:
        """Register code that runs in the sandbox. Raises as `register_tool`.

        Args:
            code: with the arguments in ``inputs``; None: the code is the argument ``code``.
            input_schema: the schema of the arguments of `code`.
            limits: see `pulse.sandbox`.
        """
        if (code is None) != (input_schema is None):
            raise InvalidInputError("input_schema describes the arguments of code: give both, or neither")
        schema = input_schema or {
            "type": "object",
            "properties": {"code": {"type": "string", "maxLength": 100_000, "description": "Python."}},
            "required": ["code"],
            "additionalProperties": False,
        }
        return await self._put(
            name,
            kind="sandbox",
            description=description,
            input_schema=dict(schema),
            permissions=permissions,
            operation={"code": code, "limits": _checked_limits(limits), "is_safe": True},
            nature="again",
            timeout_seconds=timeout_seconds,
        )

    async def put_openapi(
        self,
        source: str,
        document: str | Path | Mapping[str, Any],
        *,
        base_url: str | None = None,
        credentials: Mapping[str, str] | None = None,
        permissions: Mapping[str, Any] | None = None,
        allowed_networks: str = "",
        timeout_seconds: float = 30.0,
    ) -> SourceChange:
        """Make tools of the operations of an OpenAPI document (3.0 or 3.1); a further call replaces the source.

        Operations that it no longer has become inactive, changed ones get their next version: in one transaction.

        Args:
            document: a file, a URL, the text (JSON, or YAML without aliases), or the object.
            base_url: instead of the document's servers.
            credentials: for each security scheme, ``env:TOOL_NAME`` or ``file:/run/secrets/name``; used for the
                origin of the source alone, and those of OAuth2 for the document's token URL. Of ``basic`` the secret is
                ``user:password``, of OAuth2's client credentials ``client_id:client_secret``, of its other flows and of
                OpenID Connect an access token. Of alternatives, the one that has credentials is used.
            permissions: for all its tools.
            allowed_networks: private ones that it may reach, such as ``10.1.0.0/16``. For operators only.

        Raises:
            DocumentError: the document has a fault, or a credential is missing; nothing was stored.
            InvalidInputError: another argument is wrong; nothing was stored.
            ToolError: the URL could not be read.
        """
        check_app(self.app_name)
        check_name("source", source, 64)
        networks = read_networks(allowed_networks)
        where = None
        if isinstance(document, Path):
            given: str | bytes | Mapping[str, Any] = await asyncio.to_thread(openapi.read_file, document)
        elif isinstance(document, str) and document.startswith(("http://", "https://")):  # noqa: ASYNC240 - a text
            where = document
            given = await self._download(document, networks, secret=bool(credentials))
        else:
            given = document
        references = dict(credentials or {})
        loaded = openapi.load(openapi.parse(given), base_url=base_url, where=where, credentials=references)
        origins = {credential_rules.origin_of(each.call["url"]) for each in loaded.operations}
        self._check_credentials(loaded, references, origins, networks)
        rules = _written(permissions)
        tools = []
        for operation in loaded.operations:
            definition = _definition(
                kind="http",
                display_name=operation.display_name,
                description=operation.description,
                openapi_schema=operation.described,
                input_schema=operation.input_schema,
                output_schema=operation.output_schema,
                permissions=rules,
                nature=operation.nature,
                operation={**operation.call, "is_safe": operation.is_safe},
                timeout_seconds=timeout_seconds,
            )
            tools.append({"name": operation.name, "definition": definition})
        options = {
            "credentials": references,
            "schemes": loaded.schemes,
            "allowed_networks": [str(each) for each in networks],
        }
        first = loaded.operations[0].call["url"] if loaded.operations else base_url or ""
        change = await self._put_source(source, "openapi", loaded.raw, loaded.sha256, first, options, tools)
        return replace(change, skipped=dict(loaded.skipped))

    async def put_mcp(
        self,
        source: str,
        url: str,
        *,
        credential: str | None = None,
        permissions: Mapping[str, Any] | None = None,
        allowed_networks: str = "",
        timeout_seconds: float = 60.0,
    ) -> SourceChange:
        """Make tools of those of an MCP server (streamable HTTP); a further call reads its list again.

        Args:
            credential: where a bearer token is, ``env:TOOL_NAME`` or ``file:/run/secrets/name``.
            permissions, allowed_networks: as for `put_openapi`.

        Raises:
            InvalidInputError: an argument or a tool's schema is wrong; nothing was stored.
            ToolError: the server cannot be used.
        """
        check_app(self.app_name)
        check_name("source", source, 64)
        openapi.check_url(url)
        networks = read_networks(allowed_networks)
        if credential is not None:
            credential_rules.check_reference(credential)
            if not networks and credential_rules.origin_of(url).startswith("http://"):
                raise InvalidInputError(credential_rules.UNENCRYPTED)
        token = None if credential is None else credential_rules.resolve(credential, self._read_secret)
        rules = _written(permissions)
        tools = []
        for each in await mcp_source.list_definitions(url, token, networks, self._resolve):
            definition = _definition(
                kind="mcp",
                display_name=each["display_name"],
                description=each["description"],
                input_schema=each["input_schema"],
                output_schema=each["output_schema"],
                permissions=rules,
                nature=each["nature"],
                operation={"name": each["remote_name"], "is_safe": each["is_safe"]},
                timeout_seconds=timeout_seconds,
            )
            tools.append({"name": each["name"], "definition": definition})
        options = {"credential": credential, "allowed_networks": [str(each) for each in networks]}
        described = {"tools": [each["definition"]["input_schema"] for each in tools]}
        digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).digest()
        return await self._put_source(source, "mcp", described, digest, url, options, tools)

    # Reading and changing

    async def list_tools(self, *, inactive: bool = False, limit: int = 100, after: str | None = None) -> list[Tool]:
        """List the app's tools by their names.

        Args:
            inactive: those too that are disabled, or gone from their source.
            after: the last name of the previous page.

        Raises:
            InvalidInputError: limit is not 1 to 1,000.
        """
        check_limit(limit, LIST_LENGTH_MAX)
        rows = await _STATEMENTS.fetch(self._pool, "list_tools", self.app_name, inactive, after, limit)
        return [read_tool(row) for row in rows]

    async def get(self, name: str) -> Tool:
        """Return a tool, active or not.

        Raises:
            ToolNotFoundError: there is none.
        """
        row = await _STATEMENTS.fetchrow(self._pool, "get_tool", self.app_name, name)
        if row is None:
            raise _no_tool(name)
        return read_tool(row)

    async def set_active(self, name: str, *, is_active: bool) -> Tool:
        """Disable a tool, or enable it again. Calls that run end.

        Raises:
            ToolNotFoundError: there is none.
        """
        if await _STATEMENTS.fetchval(self._pool, "set_active", self.app_name, name, is_active) is None:
            raise _no_tool(name)
        return await self.get(name)

    async def set_permissions(self, name: str, permissions: Mapping[str, Any]) -> Tool:
        """Replace a tool's permissions, as a version of its own.

        Raises:
            ToolNotFoundError: there is none.
            InvalidInputError: the permissions are wrong.
        """
        rules = _written(permissions)
        if await _STATEMENTS.fetchrow(self._pool, "set_permissions", self.app_name, name, rules) is None:
            raise _no_tool(name)
        return await self.get(name)

    async def versions(self, name: str) -> list[ToolVersion]:
        """Return the versions of a tool, the newest first.

        Raises:
            ToolNotFoundError: there is none.
        """
        rows = await _STATEMENTS.fetch(self._pool, "tool_versions", self.app_name, name)
        if not rows:
            raise _no_tool(name)
        return [ToolVersion(row["version"], unescape(row["definition"]), row["created_at"]) for row in rows]

    async def rollback(self, name: str, version: int) -> Tool:
        """Give a tool the definition of one of its versions, as its next version.

        Raises:
            InvalidInputError: there is no such version.
        """
        await _STATEMENTS.fetchrow(self._pool, "roll_tool_back", self.app_name, name, version)
        return await self.get(name)

    async def executions(
        self,
        *,
        name: str | None = None,
        user_id: str | None = None,
        status: ExecutionStatus | None = None,
        run_id: uuid.UUID | None = None,
        limit: int = 100,
        before: uuid.UUID | None = None,
    ) -> list[ToolExecution]:
        """List calls, the newest first.

        Raises:
            InvalidInputError: limit is not 1 to 1,000, or there is no such status.
        """
        check_limit(limit, LIST_LENGTH_MAX)
        if status is not None and status not in EXECUTION_STATUSES:
            raise InvalidInputError(f"there is no status {status!r:.40}; there are {', '.join(EXECUTION_STATUSES)}")
        rows = await _STATEMENTS.fetch(
            self._pool, "list_executions", self.app_name, name, user_id, status, run_id, before, limit
        )
        return [_execution(row) for row in rows]

    async def last_execution(
        self,
        tool_call_id: str,
        *,
        user_id: str,
        session_id: str,
        asked_at: datetime | None = None,
        outside_runs: bool = False,
    ) -> ToolExecution | None:
        """Return the last attempt of a call of a session, in whichever of its runs; None if it was not begun.

        Args:
            asked_at: the time of the event that asks for the call: an earlier one with the same id is another.
            outside_runs: the session has no runs, and its calls belong to none.
        """
        row = await _STATEMENTS.fetchrow(
            self._pool, "last_execution", self.app_name, user_id, tool_call_id, session_id, asked_at, outside_runs
        )
        return None if row is None else _execution(row)

    # Helpers

    async def _put(self, name: str, **given: Any) -> Tool:
        check_app(self.app_name)
        check_name("a tool's name", name, 64)
        given["permissions"] = _written(given.get("permissions"))
        definition = _definition(**given)
        await _STATEMENTS.fetchrow(self._pool, "put_tool", self.app_name, name, None, definition)
        return await self.get(name)

    async def _put_source(
        self,
        name: str,
        kind: Literal["openapi", "mcp"],
        document: Mapping[str, Any],
        digest: bytes,
        base_url: str,
        options: Mapping[str, Any],
        tools: Sequence[Mapping[str, Any]],
    ) -> SourceChange:
        row = await _STATEMENTS.fetch_one(
            self._pool,
            "put_tool_source",
            self.app_name,
            name,
            kind,
            escape_state(document),
            digest,
            base_url,
            escape_state(options),
            list(tools),
        )
        return SourceChange(added=tuple(row["added"]), changed=tuple(row["changed"]), gone=tuple(row["gone"]))

    async def _download(self, url: str, networks: Sequence[addresses.Network], *, secret: bool) -> bytes:
        client = OutboundClient(networks, secret=secret, resolve=self._resolve)
        try:
            return await download(client, url, max_bytes=openapi.DOCUMENT_BYTES_MAX, timeout_seconds=_DOWNLOAD_SECONDS)
        finally:
            await client.close()

    def _check_credentials(
        self,
        loaded: openapi.Document,
        references: Mapping[str, str],
        origins: Collection[str],
        networks: Sequence[addresses.Network],
    ) -> None:
        unknown = set(references) - set(loaded.schemes)
        if unknown:
            known = ", ".join(loaded.schemes) or "none"
            raise InvalidInputError(
                f"no operation uses the security scheme {min(unknown)!r:.80}; those in use: {known:.400}"
            )
        for reference in references.values():
            credential_rules.check_reference(reference)
        missing = {
            f"/components/securitySchemes/{name}": "its operations need a credential: name one"
            for name in loaded.schemes
            if name not in references
        }
        if missing:
            raise openapi.DocumentError(missing)
        if references and len(origins) > 1:
            raise openapi.DocumentError(
                {"/servers": "its operations have several origins, credentials only one: split it by origin"}
            )
        addressed = [*origins, *(each["token_url"] for each in loaded.schemes.values() if each["type"] == "oauth2")]
        if references and not networks and any(urlsplit(each).scheme == "http" for each in addressed):
            raise openapi.DocumentError({"/servers": credential_rules.UNENCRYPTED})


def _definition(
    *,
    kind: ToolKind,
    input_schema: Mapping[str, Any],
    permissions: Mapping[str, Any],
    display_name: str = "",
    description: str = "",
    openapi_schema: Mapping[str, Any] | None = None,
    output_schema: Mapping[str, Any] | None = None,
    operation: Mapping[str, Any] | None = None,
    nature: Nature = "once",
    timeout_seconds: float = 30.0,
) -> dict[str, Any]:
    """Return what a version of a tool holds, checked.

    Raises:
        InvalidInputError: a schema is not one, or a value is out of its bounds.
    """
    SchemaCheck(input_schema, what="the schema of its arguments")
    if input_schema.get("type") != "object":
        found = input_schema.get("type")
        raise InvalidInputError(f"the schema of a tool's arguments must be of the type object, not {found!r:.40}")
    if output_schema is not None:
        SchemaCheck(output_schema, what="the schema of its result")
    if nature not in ("again", "once"):
        raise InvalidInputError(f"the nature of a tool must be again or once, not {nature!r:.40}")
    if isinstance(timeout_seconds, bool) or not 0 < timeout_seconds <= 3600:
        raise InvalidInputError(
            f"timeout_seconds of a tool must be above 0 and at most 3,600, not {timeout_seconds!r:.40}"
        )
    if len(description) > 8192 or len(display_name) > _NAME_LENGTH_MAX:
        raise InvalidInputError(
            f"a tool's description must have at most 8,192 characters, its display name {_NAME_LENGTH_MAX},"
            f" not {len(description):,} and {len(display_name):,}"
        )
    definition: dict[str, Any] = escape_state(
        {
            "display_name": display_name,
            "description": clean_text(description),
            "openapi_schema": openapi_schema,
            "permissions": permissions,
            "kind": kind,
            "input_schema": input_schema,
            "output_schema": output_schema,
            "operation": operation or {},
            "nature": nature,
            "timeout_seconds": float(timeout_seconds),
        },
        where="tool",
    )
    return definition


def _written(permissions: Mapping[str, Any] | None) -> dict[str, Any]:
    read_permissions(permissions)
    return dict(permissions or {})


def _checked_limits(limits: Mapping[str, Any] | None) -> dict[str, Any]:
    read_limits(limits or {})
    return dict(limits or {})


def _execution(row: Any) -> ToolExecution:
    values = {"input_params": unescape(row["input_params"]), "output_result": unescape(row["output_result"])}
    return ToolExecution(**{**dict(row), **values})


def _no_tool(name: str) -> ToolNotFoundError:
    return ToolNotFoundError(f"there is no tool {name!r:.80} in this app: see `hippocampus tools list`")


def read_tool(row: Any) -> Tool:
    """Return a tool from a row."""
    fields = dict(row)
    for name in ("input_schema", "output_schema", "operation", "permissions"):
        fields[name] = unescape(fields[name])
    return Tool(**fields)


def read_networks(text: str) -> tuple[addresses.Network, ...]:
    """Return the networks of a source.

    Raises:
        InvalidInputError: one of them is not a network.
    """
    try:
        return addresses.parse_networks(text)
    except ValueError as error:
        raise InvalidInputError(f"allowed_networks: {error}") from None
