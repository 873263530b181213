"""Credentials of tools, at a real writer: sent to their servers, and in no table, log, trace or answer."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import asyncpg
import pytest
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError

from hippocampus.client import HippocampusClient
from tests.support.http_server import plain, running
from tests.support.tool_service import document, tool_service
from tests.support.waiting import until
from tests.support.writer_process import KEY, WriterProcess

ALLOWED = "127.0.0.0/8"
#: Each is spelled otherwise in a URL, in a form and in JSON.
SECRETS = {
    name: f'q{name}+z/"k {name}=w'
    for name in ("header", "query", "cookie", "bearer", "basic", "client", "mcp")
}  # fmt: skip
TOKEN = "tok-of-the-service"


def schemes(url: str) -> dict[str, Any]:
    flow = {"clientCredentials": {"tokenUrl": f"{url}/token", "scopes": {}}}
    return {
        "header": {"type": "apiKey", "in": "header", "name": "X-Shop"},
        "query": {"type": "apiKey", "in": "query", "name": "k"},
        "cookie": {"type": "apiKey", "in": "cookie", "name": "c"},
        "bearer": {"type": "http", "scheme": "bearer"},
        "basic": {"type": "http", "scheme": "basic"},
        "client": {"type": "oauth2", "flows": flow},
    }


def forms(text: str) -> set[str]:
    """How a text may be written: by a server that echoes it, in JSON, and as bytes of a row."""
    spelled = {text, quote(text, safe=""), quote(text), quote_plus(text), json.dumps(text)[1:-1]}
    encoded = {base64.b64encode(text.encode()).decode().rstrip("="), text.encode().hex()}
    return spelled | {json.dumps(each)[1:-1] for each in spelled} | encoded


@contextlib.asynccontextmanager
async def echoing_server() -> AsyncIterator[str]:
    """A server of MCP that answers with what it was sent, in several spellings."""
    server = MCPServer("echo")

    def shown(ctx: Context) -> str:
        given = (ctx.headers or {})["authorization"].removeprefix("Bearer ")
        return f"{given} {quote(given, safe='')} {json.dumps(given)}"

    @server.tool()
    def mcp_echo(ctx: Context) -> str:
        """Echo."""
        return shown(ctx)

    @server.tool()
    def mcp_fail(ctx: Context) -> str:
        """Fail."""
        raise ToolError(shown(ctx))

    async with running(plain(server.streamable_http_app())) as served:
        yield f"{served.url}/mcp"


async def every_row(pool: asyncpg.Pool) -> dict[str, str]:
    """The text of all rows of each table, its JSON and its bytes included."""
    names = await pool.fetch(
        "SELECT c.oid::regclass::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE c.relkind = 'r' AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')"
    )
    found = {}
    for (name,) in names:
        rows = await pool.fetch(f"SELECT t::text FROM {name} AS t")
        found[name] = "\n".join(row[0] for row in rows)
    return found


async def test_no_table_and_no_line_holds_a_credential(
    dsn: str, pool: asyncpg.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each security scheme and MCP, whatever its server echoes; the reference and what was called are stored."""
    for name, secret in SECRETS.items():
        monkeypatch.setenv(f"TOOL_{name.upper()}", f"me:{secret}" if name in ("basic", "client") else secret)
    settings = {"api_key": KEY, "log_level": "debug", "tracing": "postgres", "trace_content": "true"}
    answers = []
    async with tool_service() as service, echoing_server() as server:
        with WriterProcess(dsn, tmp_path / "log", **settings) as writer:
            async with HippocampusClient(writer.url, KEY, app_name="shop") as client:
                for name, scheme in schemes(service.url).items():
                    paths = {
                        f"/{how}/{name}": {"post": {"operationId": f"{how}_{name}", "security": [{name: []}]}}
                        for how in ("echo", "told", "broken")
                    }
                    given = document(service.url, paths, components={"securitySchemes": {name: scheme}})
                    references = {name: f"env:TOOL_{name.upper()}"}
                    await client.put_tool_source(name, openapi=given, credentials=references, allowed_networks=ALLOWED)
                await client.put_tool_source(
                    "mcp", mcp_url=server, credentials={"bearer": "env:TOOL_MCP"}, allowed_networks=ALLOWED
                )
                async for tool in client.tools():
                    answers.append(repr(tool))
                    answers.append(repr(await client.call_tool("ann", tool.name, {})))
                answers += [repr(each) async for each in client.tool_executions()]

            async def traced() -> bool:
                return await pool.fetchval("SELECT count(*) FROM traces WHERE operation_name LIKE '%mcp_fail%'") > 0

            await until(traced)
        log = (tmp_path / "log").read_text()
        # What arrived: each secret went where it belongs.
        arrived = repr([(each.headers, each.query, each.body) for each in service.asked])
    for name in ("header", "bearer", "cookie"):
        assert SECRETS[name] in arrived or repr(SECRETS[name])[1:-1] in arrived
    tables = await every_row(pool)
    assert "[redacted]" in tables["tool_executions"]
    assert (
        len(await pool.fetch("SELECT FROM tool_executions WHERE tool_name LIKE 'echo%' AND status = 'succeeded'")) == 6
    )
    assert tables["tool_sources"].count("env:TOOL_") == len(SECRETS)
    hidden = {TOKEN, *SECRETS.values(), *(f"me:{SECRETS[name]}" for name in ("basic", "client"))}
    for secret in hidden:
        for form in forms(secret):
            places = [name for name, rows in tables.items() if form in rows]
            assert places == [], (form, places)
            assert form not in log, form
            assert form not in "".join(answers), form
