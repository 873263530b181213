"""The MCP server on standard input and output, for one user: what a desktop client starts.

Nothing but the protocol is written to standard output; logs go to standard error.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import stat
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, cast

import structlog
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp.types import INVALID_REQUEST, ErrorData, JSONRPCError

from hippocampus.answers import AnswerService
from hippocampus.context_assembler import ContextAssembler
from hippocampus.knowledge.service import KnowledgeServices
from hippocampus.memory_service import OpenMemoryService
from hippocampus.search import MemorySearch
from pulse.api_keys import Grant, Role
from pulse.session_service import OpenSessionService
from pulse.tools.registries import ToolRegistries
from workers.mcp.caller import Caller, Services
from workers.mcp.server import build_server

if TYPE_CHECKING:
    from collections.abc import Collection

    import anyio

    from hippocampus.providers.protocols import Embedder, Generator
    from hippocampus.rerank import RerankOptions
    from pulse.database import Pool
    from pulse.sandbox.records import SandboxBackend

#: The longest message that is read, as the largest body of a request over HTTP.
_LINE_BYTES_MAX = 8 * 1024 * 1024
#: What is kept of a longer one, to find its id.
_PIECE_BYTES = 1024
_ID = rb'"id"\s*:\s*(?P<id>-?\d{1,18}|"[\w.:/ -]{1,128}")'
_ID_FIRST = re.compile(rb'\s*\{(?:\s*"(?:jsonrpc|method)"\s*:\s*"[^"\\]*"\s*,)*\s*' + _ID + rb"\s*,")
_ID_LAST = re.compile(_ID + rb"\s*\}\s*\Z")
_log = structlog.get_logger(__name__)


async def serve(
    pool: Pool,
    embedder: Embedder,
    generator: Generator,
    *,
    app_name: str,
    user_id: str,
    roles: Collection[Role],
    reranked: RerankOptions,
    user_roles: Collection[str] = (),
    sandbox: SandboxBackend | None = None,
) -> None:
    """Serve one client until it closes standard input. The caller closes pool and models.

    Args:
        roles: what the client may do.
        reranked: how searches are.
        user_roles: the user's, for corpora and registered tools.
        sandbox: where registered tools run code; closed at the end.
    """
    sessions = OpenSessionService(pool)
    assembler = ContextAssembler(pool, embedder, **reranked)
    tools = ToolRegistries(pool, sandbox)
    caller = Caller(
        app_name=app_name,
        user_id=user_id,
        grant=Grant(key_id="stdio", app_name=app_name, roles=frozenset(roles), user_id=user_id),
        services=Services(
            pool=pool,
            sessions=sessions,
            memory=OpenMemoryService(pool, embedder, **reranked),
            search=MemorySearch(pool, embedder, **reranked),
            assembler=assembler,
            answers=AnswerService(assembler, generator),
            tools=tools,
            knowledge=KnowledgeServices(pool, embedder, generator, **reranked),
        ),
        slot=contextlib.nullcontext,
        roles=tuple(user_roles),
    )
    server = build_server(lambda _context: caller)
    try:
        overlong = _Overlong()
        async with _lines(overlong) as lines, stdio_server(stdin=lines) as (incoming, outgoing):
            overlong.outgoing = outgoing
            await server.run(incoming, outgoing, server.create_initialization_options())
    finally:
        await tools.close()
        await sessions.close()


class _Overlong:
    """Answers a message that is too long to be read, so that its sender does not wait for an answer."""

    def __init__(self) -> None:
        self.outgoing: Any = None

    async def refuse(self, beginning: bytes, end: bytes) -> None:
        """Send an error to the request whose line begins and ends like this."""
        error = ErrorData(
            code=INVALID_REQUEST, message=f"A message has at most {_LINE_BYTES_MAX // 2**20} MB: send less at once."
        )
        _log.warning("mcp_message_refused", reason="too_long")
        await self.outgoing.send(
            SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id_of(beginning, end), error=error))
        )


def request_id_of(beginning: bytes, end: bytes) -> int | str | None:
    """Return the id of a request of which two pieces are known; None if it is in neither.

    Clients write it before the parameters, or as the last member.
    """
    found = _ID_FIRST.match(beginning) or _ID_LAST.search(end)
    return None if found is None else json.loads(found["id"])


@contextlib.asynccontextmanager
async def _lines(overlong: _Overlong) -> AsyncIterator[anyio.AsyncFile[str] | None]:
    """Yield the lines of standard input, read by the event loop: a thread that waits for one cannot be cancelled.

    None where the loop cannot read it, as from a file or a terminal: then the library does.
    """
    descriptor = sys.stdin.fileno()
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        yield None
        return
    # The programs that this process starts get nothing to read.
    private = os.dup(descriptor)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, descriptor)
    os.close(nothing)
    reader = asyncio.StreamReader(limit=_LINE_BYTES_MAX)
    pipe = os.fdopen(private, "rb", buffering=0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    try:
        yield cast("Any", _texts(reader, overlong))
    finally:
        transport.close()


async def _texts(reader: asyncio.StreamReader, overlong: _Overlong) -> AsyncIterator[str]:
    while True:
        try:
            line = await reader.readuntil()
        except asyncio.IncompleteReadError as error:
            if error.partial:
                yield error.partial.decode(errors="replace")
            return
        except asyncio.LimitOverrunError:
            await overlong.refuse(*await _skip_line(reader))
            continue
        yield line.decode(errors="replace")


async def _skip_line(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Read the rest of a line without keeping it; return its beginning and its end."""
    beginning = end = b""
    while True:
        try:
            piece = await reader.readuntil()
        except asyncio.LimitOverrunError as error:
            piece = await reader.readexactly(error.consumed or 1)
        except asyncio.IncompleteReadError as error:
            return beginning, (end + error.partial)[-_PIECE_BYTES:]
        beginning = beginning or piece[:_PIECE_BYTES]
        end = (end + piece[-_PIECE_BYTES:])[-_PIECE_BYTES:]
        if piece.endswith(b"\n"):
            return beginning, end
