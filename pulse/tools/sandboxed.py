"""Code as a tool: executed in the sandbox, with its result or what went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pulse.errors import InvalidInputError
from pulse.sandbox.records import SandboxRequest, read_limits
from pulse.sandbox.service import Sandbox
from pulse.tools.records import ToolContext, ToolError, ToolErrorCode

_SHOWN = 4000
_CODES: Mapping[str, ToolErrorCode] = {"timeout": "timeout", "output": "too_large"}


async def run_tool(
    sandbox: Sandbox,
    operation: Mapping[str, Any],
    given: Mapping[str, Any],
    *,
    context: ToolContext,
    timeout_seconds: float,
) -> Any:
    """Return what code prints and its last value: that of the tool with the arguments as ``inputs``, or an argument's.

    Raises:
        ToolError: it failed, exceeded a limit, or the sandbox does not work here.
    """
    own = operation.get("code")
    try:
        limits = read_limits({"seconds": timeout_seconds, **operation.get("limits", {})})
    except InvalidInputError as error:
        raise ToolError(str(error)) from None
    request = SandboxRequest(
        code=given["code"] if own is None else own,
        inputs={} if own is None else {"inputs": dict(given)},
        limits=limits,
    )
    result = await sandbox.execute(request, user_id=context.user_id, run_id=context.run_id)
    if result.status == "ok":
        return result.value if own is not None else {"value": result.value, "stdout": result.stdout[:_SHOWN]}
    said = (result.stderr.strip() or result.error or result.status)[-_SHOWN:]
    raise ToolError(f"the code ended as {result.status}: {said}", _CODES.get(result.status, "tool_failed"))
