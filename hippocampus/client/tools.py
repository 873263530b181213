"""The calls about an app's tools: their sources, versions, permissions, calls and log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from hippocampus.client.calls import Calls, plain
from hippocampus.client.records import ToolCallRecord, ToolExecutionRecord, ToolRecord, ToolSourceChange, pick


class ToolCalls(Calls):
    """Lists tools, changes their sources and permissions, calls them on behalf of a user, and reads the log."""

    async def tools(self, *, inactive: bool = False, page_size: int = 100) -> AsyncIterator[ToolRecord]:
        """Yield the app's tools by their names."""
        async for each in self._pages(self._app("tools"), "tools", limit=page_size, inactive=inactive):
            yield pick(ToolRecord, each)

    async def tool(self, name: str) -> ToolRecord:
        """Read a tool."""
        return pick(ToolRecord, await self._call("GET", self._app("tools", name)))

    async def tool_versions(self, name: str) -> list[dict[str, Any]]:
        """Return the versions of a tool, the newest first: ``version``, ``definition``, ``created_at``."""
        found = await self._call("GET", self._app("tools", name, "versions"))
        return list(found["versions"])

    async def put_tool_source(
        self,
        source: str,
        *,
        openapi: Mapping[str, Any] | None = None,
        openapi_url: str | None = None,
        mcp_url: str | None = None,
        base_url: str | None = None,
        permissions: Mapping[str, Any] | None = None,
        credentials: Mapping[str, str] | None = None,
        allowed_networks: str = "",
        timeout_seconds: float | None = None,
    ) -> ToolSourceChange:
        """Make tools of an OpenAPI document, or of an MCP server; a further call replaces the source."""
        given = {
            "openapi": openapi,
            "openapi_url": openapi_url,
            "mcp_url": mcp_url,
            "base_url": base_url,
            "permissions": permissions,
            "credentials": credentials or {},
            "allowed_networks": allowed_networks,
            "timeout_seconds": timeout_seconds,
        }
        body = {name: value for name, value in given.items() if value is not None}
        return pick(ToolSourceChange, await self._call("PUT", self._app("tool-sources", source), json=body))

    async def set_tool_permissions(self, name: str, permissions: Mapping[str, Any]) -> ToolRecord:
        """Replace a tool's permissions."""
        body = {"permissions": permissions}
        return pick(ToolRecord, await self._call("PUT", self._app("tools", name, "permissions"), json=body))

    async def disable_tool(self, name: str) -> ToolRecord:
        """Refuse further calls of a tool."""
        return pick(ToolRecord, await self._call("POST", self._app("tools", name, "disable")))

    async def enable_tool(self, name: str) -> ToolRecord:
        """Allow calls of a tool again."""
        return pick(ToolRecord, await self._call("POST", self._app("tools", name, "enable")))

    async def rollback_tool(self, name: str, version: int) -> ToolRecord:
        """Give a tool the definition of one of its versions."""
        body = {"version": version}
        return pick(ToolRecord, await self._call("POST", self._app("tools", name, "rollback"), json=body))

    async def call_tool(
        self,
        user_id: str,
        name: str,
        params: Mapping[str, Any],
        *,
        tool_call_id: str | None = None,
        roles: Sequence[str] = (),
    ) -> ToolCallRecord:
        """Call a tool on behalf of a user. What fails is a result with an `error_code`.

        Args:
            roles: the user's, which the caller vouches for: not with a key of one user.
        """
        body = plain({"params": params, "tool_call_id": tool_call_id, "roles": list(roles)})
        path = self._user(user_id, "tools", name, "call")
        return pick(ToolCallRecord, await self._call("POST", path, json=body))

    async def decide_tool_call(self, user_id: str, execution_id: str, *, approved: bool) -> ToolCallRecord:
        """Confirm or deny a call that waits for a person."""
        path = self._user(user_id, "tool-executions", execution_id, "decision")
        return pick(ToolCallRecord, await self._call("POST", path, json={"approved": approved}))

    async def answer_tool_call(self, user_id: str, execution_id: str, value: Any) -> ToolCallRecord:
        """Give the result of a call that waits for the user's client."""
        path = self._user(user_id, "tool-executions", execution_id, "result")
        return pick(ToolCallRecord, await self._call("POST", path, json={"value": value}))

    async def tool_executions(
        self, *, tool: str | None = None, user: str | None = None, status: str | None = None, page_size: int = 100
    ) -> AsyncIterator[ToolExecutionRecord]:
        """Yield calls of tools, the newest first."""
        filters = {"tool": tool, "user": user, "status": status}
        async for each in self._pages(self._app("tool-executions"), "executions", limit=page_size, **filters):
            yield pick(ToolExecutionRecord, each)
