"""Tools of MCP servers, by the official client: to checked addresses, as every other tool over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from pulse.errors import InvalidInputError
from pulse.outbound import addresses
from pulse.outbound.client import CheckedBackend, TooLargeError, tls_context
from pulse.process.extras import install_command
from pulse.tools import credentials
from pulse.tools.openapi import tool_name
from pulse.tools.records import Nature, ToolError
from pulse.tools.redaction import without

LIST_SECONDS = 30.0
LIST_BYTES_MAX = 8 * 2**20
#: Over a result: the protocol's own words, and JSON's escapes.
_FRAME_BYTES = 65_536
TOOLS_MAX = 500


@asynccontextmanager
async def _connected(
    url: str,
    token: str | None,
    allowed: Sequence[addresses.Network],
    resolve: addresses.Resolve,
    seconds: float,
    max_bytes: int,
) -> AsyncIterator[Any]:
    """Connect to a server, and receive at most this many bytes.

    Raises:
        ToolError: the extra is missing.
    """
    try:
        import httpcore2
        import httpx2
        from mcp.client.client import Client
        from mcp.client.streamable_http import streamable_http_client
    except ImportError:
        raise ToolError(f"tools of MCP servers need mcp, which is not installed: {install_command('mcp')}") from None

    received = 0

    class Body(httpx2.AsyncByteStream):
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            nonlocal received
            async for piece in self._stream:
                received += len(piece)
                if received > max_bytes:
                    raise TooLargeError
                yield piece

        async def aclose(self) -> None:
            await self._stream.aclose()

    class Transport(httpx2.AsyncBaseTransport):
        """httpx2 over connections to checked addresses."""

        def __init__(self) -> None:
            backend = CheckedBackend(
                httpcore2.AnyIOBackend(),
                allowed,
                private=token is not None and httpx2.URL(url).scheme != "https",
                resolve=resolve,
                failure=httpcore2.ConnectError,
            )
            self._pool = httpcore2.AsyncConnectionPool(
                ssl_context=tls_context(),
                network_backend=backend,  # type: ignore[arg-type]  # it has the methods that are called
            )

        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            sent = httpcore2.Request(
                method=request.method,
                url=httpcore2.URL(
                    scheme=request.url.raw_scheme,
                    host=request.url.raw_host,
                    port=request.url.port,
                    target=request.url.raw_path,
                ),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
            answer = await self._pool.handle_async_request(sent)
            if any(name.lower() == b"content-encoding" and value != b"identity" for name, value in answer.headers):
                await answer.aclose()
                raise TooLargeError  # it was asked not to compress: how large it is is not known
            return httpx2.Response(
                status_code=answer.status,
                headers=answer.headers,
                stream=Body(answer.stream),
                extensions=answer.extensions,
            )

        async def aclose(self) -> None:
            await self._pool.aclose()

    headers = {"accept-encoding": "identity", **({} if token is None else {"authorization": f"Bearer {token}"})}
    async with (
        httpx2.AsyncClient(
            headers=headers, timeout=seconds, transport=Transport(), trust_env=False, follow_redirects=False
        ) as http,
        Client(streamable_http_client(url, http_client=http), read_timeout_seconds=seconds) as client,
    ):
        yield client


async def list_definitions(
    url: str, token: str | None, allowed: Sequence[addresses.Network], resolve: addresses.Resolve
) -> list[dict[str, Any]]:
    """Return a server's tools: name, title, description, schemas, and what it says of their nature.

    Raises:
        ToolError: it cannot be reached, or does not answer as a server of MCP does.
        InvalidInputError: it has over 500 tools.
    """
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    is_complete = False
    limit = asyncio.timeout(LIST_SECONDS)
    try:
        async with (
            limit,
            _connected(url, token, allowed, resolve, LIST_SECONDS, LIST_BYTES_MAX) as client,
        ):
            while not is_complete and len(found) <= TOOLS_MAX:
                page = await client.list_tools(cursor=cursor)
                found.extend(map(_definition, page.tools))
                cursor = page.next_cursor
                is_complete = not cursor
    except ToolError:
        raise
    except Exception as error:  # noqa: BLE001 - groups of errors of several libraries
        if limit.expired():
            raise ToolError(
                f"the MCP server did not list its tools within {LIST_SECONDS:g} s: try again", "timeout"
            ) from None
        raise _failure(error) from None
    if len(found) > TOOLS_MAX:
        raise InvalidInputError(f"the server has over {TOOLS_MAX} tools, and nothing was stored: divide it")
    return found


def _definition(tool: Any) -> dict[str, Any]:
    hints = tool.annotations
    is_safe = bool(getattr(hints, "read_only_hint", None))
    repeats = is_safe or bool(getattr(hints, "idempotent_hint", None))
    nature: Nature = "again" if repeats else "once"
    return {
        "name": tool_name(tool.name),
        "remote_name": tool.name,
        "display_name": str(tool.title or tool.name)[:255],
        "description": str(tool.description or "")[:8192],
        "input_schema": dict(tool.input_schema),
        "output_schema": None if tool.output_schema is None else dict(tool.output_schema),
        "nature": nature,
        "is_safe": is_safe,
    }


async def call(
    url: str,
    token: str | None,
    allowed: Sequence[addresses.Network],
    resolve: addresses.Resolve,
    *,
    name: str,
    arguments: Mapping[str, Any],
    timeout_seconds: float,
    nature: Nature,
    max_bytes: int,
) -> Any:
    """Call a tool of a server and return its result, of which at most about `max_bytes` are received.

    Args:
        timeout_seconds: of each wait for the server; the caller bounds the whole.

    Raises:
        ToolError: it failed, or says that it did.
    """
    is_sent = False
    try:
        async with _connected(url, token, allowed, resolve, timeout_seconds, max_bytes + _FRAME_BYTES) as client:
            is_sent = True
            reply = await client.call_tool(name, dict(arguments))
    except ToolError:
        raise
    except Exception as error:  # noqa: BLE001 - as above
        failure = _failure(error)
        if is_sent and nature == "once" and failure.code == "tool_failed":
            raise ToolError(
                "the MCP server did not answer: it may have happened; check before you repeat it", "outcome_unknown"
            ) from None
        if is_sent and nature == "once" and failure.code == "too_large":
            raise ToolError(f"the call was made, but {failure}", "too_large") from None
        raise failure from None
    secrets = [] if token is None else credentials.forms(token)
    texts = [block.text for block in reply.content if getattr(block, "type", "") == "text"]
    if reply.is_error:
        raise ToolError(str(without(" ".join(texts), secrets))[:500] or "the MCP server says that the tool failed")
    if reply.structured_content is not None:
        return without(reply.structured_content, secrets)
    others = [getattr(block, "type", "") for block in reply.content if getattr(block, "type", "") != "text"]
    text = without("\n".join(texts), secrets)
    return {"text": text, "left_out": others} if others else text


def _failure(error: BaseException) -> ToolError:
    """Return what an error, or a group of them, says."""
    leaves = [error]
    found: list[BaseException] = []
    while leaves:
        each = leaves.pop()
        if isinstance(each, BaseExceptionGroup):
            leaves.extend(each.exceptions)
        else:
            found.append(each)
            leaves.extend(filter(None, (each.__cause__,)))
    if any(isinstance(each, addresses.UnencryptedError) for each in found):
        return ToolError(credentials.UNENCRYPTED, "blocked_address")
    if any(isinstance(each, addresses.RefusedAddressError) for each in found):
        return ToolError(
            "the address of this MCP server is not public, nor in its allowed_networks; tell its operator",
            "blocked_address",
        )
    if any(isinstance(each, TooLargeError) for each in found):
        return ToolError("the answer of the MCP server is too large, or compressed: ask for less", "too_large")
    return ToolError(
        f"the MCP server cannot be used ({', '.join(sorted({type(each).__name__ for each in found}))[:120]})"
    )
