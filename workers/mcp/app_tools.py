"""The app's own registered tools, beside those of the memory, for keys with the role `append`.

A tool of the memory keeps its name; a registered one of the same name is not listed. A process without the extra
`tools` lists none.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from typing import Any

from mcp.types import CallToolResult, TextContent, ToolAnnotations
from mcp.types import Tool as ListedTool

from pulse.api_keys import Role
from pulse.tools.records import ToolErrorCode
from workers.mcp.caller import Caller

ROLE: Role = "append"
#: Others need the process that has the function, or the user's client.
_KINDS = ("http", "mcp", "sandbox")


async def listed(caller: Caller, taken: Mapping[str, object]) -> list[ListedTool]:
    """Return the registered tools that the caller's user may call."""
    if caller.services.tools is None or not caller.may(ROLE) or importlib.util.find_spec("jsonschema_rs") is None:
        return []
    found = await caller.services.tools.of(caller.app_name).get_available_tools(
        caller.user_id, roles=caller.roles or None
    )
    return [
        ListedTool(
            name=tool.name,
            title=tool.display_name or None,
            description=tool.description,
            input_schema=dict(tool.input_schema),
            annotations=ToolAnnotations(
                read_only_hint=tool.operation.get("is_safe") is True, idempotent_hint=tool.nature == "again"
            ),
        )
        for tool in found
        if tool.name not in taken and tool.kind in _KINDS
    ]


async def call(caller: Caller, name: str, arguments: Mapping[str, Any]) -> CallToolResult | None:
    """Call a registered tool; None if there is none that the caller may call."""
    if caller.services.tools is None or not caller.may(ROLE) or importlib.util.find_spec("jsonschema_rs") is None:
        return None
    registry = caller.services.tools.of(caller.app_name)
    async with caller.slot():
        roles = caller.roles or None
        kinds = {tool.name: tool.kind for tool in await registry.get_available_tools(caller.user_id, roles=roles)}
        if kinds.get(name, "http") in _KINDS:
            outcome = await registry.call(name, arguments, user_id=caller.user_id, roles=roles)
        else:
            refusal: tuple[ToolErrorCode, str] = ("not_allowed", "this tool is not called over MCP")
            outcome = await registry.refuse(name, arguments, refusal, user_id=caller.user_id)
    if outcome.error_code in ("unknown_tool", "not_allowed"):
        return None  # for this caller it does not exist; the call is in the log
    shown = outcome.for_model()
    text = shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
    return CallToolResult(content=[TextContent(text=text)], is_error=outcome.is_error)
