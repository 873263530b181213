"""The MCP server on standard input and output, for one user: what a desktop client starts.

Nothing but the protocol is written to standard output; logs go to standard error.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, cast

from mcp.server.stdio import stdio_server

from hippocampus.context_assembler import ContextAssembler
from hippocampus.memory_service import OpenMemoryService
from hippocampus.search import MemorySearch
from pulse.api_keys import Grant, Role
from pulse.session_service import OpenSessionService
from workers.mcp.caller import Caller, Services
from workers.mcp.server import build_server

if TYPE_CHECKING:
    from collections.abc import Collection

    import anyio

    from hippocampus.providers.protocols import Embedder
    from pulse.database import Pool

#: The longest message that is read, as the largest body of a request over HTTP.
_LINE_BYTES_MAX = 8 * 1024 * 1024


async def serve(pool: Pool, embedder: Embedder, *, app_name: str, user_id: str, roles: Collection[Role]) -> None:
    """Serve one client until it closes standard input. The caller closes pool and embedder.

    Args:
        roles: what the client may do.
    """
    sessions = OpenSessionService(pool)
    caller = Caller(
        app_name=app_name,
        user_id=user_id,
        grant=Grant(key_id="stdio", app_name=app_name, roles=frozenset(roles), user_id=user_id),
        services=Services(
            pool=pool,
            sessions=sessions,
            memory=OpenMemoryService(pool, embedder),
            search=MemorySearch(pool, embedder),
            assembler=ContextAssembler(pool, embedder, language="en"),
        ),
        slot=contextlib.nullcontext,
    )
    server = build_server(lambda _context: caller)
    try:
        async with _lines() as lines, stdio_server(stdin=lines) as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())
    finally:
        await sessions.close()


@contextlib.asynccontextmanager
async def _lines() -> AsyncIterator[anyio.AsyncFile[str] | None]:
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
        yield cast("Any", _texts(reader))
    finally:
        transport.close()


async def _texts(reader: asyncio.StreamReader) -> AsyncIterator[str]:
    async for line in reader:
        yield line.decode(errors="replace")
