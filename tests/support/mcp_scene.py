"""The official client, connected to the MCP server in this process or over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal

import asyncpg
import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult

from hippocampus.answers import AnswerService
from hippocampus.context_assembler import ContextAssembler
from hippocampus.knowledge.service import KnowledgeServices
from hippocampus.memory_service import OpenMemoryService
from hippocampus.providers.local.embedding import LocalEmbedder
from hippocampus.providers.protocols import Answerer, Embedder
from hippocampus.search import MemorySearch
from pulse.api_keys import Grant, Role
from pulse.session_service import OpenSessionService
from pulse.tools.registries import ToolRegistries
from tests.support.waiting import WAIT_SECONDS
from tests.support.writer_process import WriterProcess
from workers.mcp.caller import Caller, Services
from workers.mcp.server import build_server

Era = Literal["auto", "legacy"]
ERAS: tuple[Era, ...] = ("auto", "legacy")


@asynccontextmanager
async def connected(
    pool: asyncpg.Pool,
    user: str = "ann",
    *roles: Role,
    app: str = "shop",
    era: Era = "auto",
    embedder: Embedder | None = None,
    generator: Answerer | None = None,
    tools: bool = False,
) -> AsyncIterator[Client]:
    """A client of a server in this process, on behalf of a user; with every role if none is named."""
    used = embedder or LocalEmbedder()
    sessions = OpenSessionService(pool)
    assembler = ContextAssembler(pool, used)
    registries = ToolRegistries(pool)
    caller = Caller(
        app_name=app,
        user_id=user,
        grant=Grant(key_id="test", app_name=app, roles=frozenset(roles or ("admin",)), user_id=user),
        services=Services(
            pool=pool,
            sessions=sessions,
            memory=OpenMemoryService(pool, used),
            search=MemorySearch(pool, used),
            assembler=assembler,
            answers=AnswerService(assembler, generator),
            tools=registries if tools else None,
            knowledge=KnowledgeServices(pool, used, generator),
        ),
        slot=contextlib.nullcontext,
    )
    try:
        async with Client(build_server(lambda _context: caller), mode=era, read_timeout_seconds=WAIT_SECONDS) as client:
            yield client
    finally:
        await registries.close()
        await sessions.close()


@asynccontextmanager
async def over_http(
    writer: WriterProcess, key: str | None, query: str = "", era: Era = "auto", **headers: str
) -> AsyncIterator[Client]:
    """A client of a running writer, as a desktop client connects: an address and a bearer key."""
    given = {**headers, **({} if key is None else {"Authorization": f"Bearer {key}"})}
    async with (
        httpx2.AsyncClient(headers=given, timeout=WAIT_SECONDS) as http,
        Client(streamable_http_client(f"{writer.url}/mcp{query}", http_client=http), mode=era) as client,
    ):
        yield client


async def answer(client: Client, tool: str, arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Call a tool, and return its structured answer, which the client has checked against the schema."""
    result = await client.call_tool(tool, dict(arguments or {}))
    assert not result.is_error, text_of(result)
    assert result.structured_content is not None
    return result.structured_content


async def refusal(client: Client, tool: str, arguments: Mapping[str, Any] | None = None) -> str:
    """Call a tool that refuses, and return what it says."""
    result = await client.call_tool(tool, dict(arguments or {}))
    assert result.is_error, text_of(result)
    assert result.structured_content is None
    return text_of(result)


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    assert content.type == "text"
    return content.text


def size_of(result: CallToolResult) -> int:
    """Characters of the larger of the two forms of an answer."""
    return max(len(text_of(result)), len(json.dumps(result.structured_content, ensure_ascii=False)))


class WaitingEmbedder(LocalEmbedder):
    """An embedder that waits until it is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def embed(self, texts: Any, task: Any) -> Any:
        self.entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
