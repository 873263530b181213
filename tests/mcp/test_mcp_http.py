"""The MCP server beside a real writer: keys, owners, hosts, origins, several writers, and its end."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
from mcp.shared.exceptions import MCPError

from hippocampus.knowledge.service import KnowledgeService
from pulse import create_pool
from pulse.tools.registry import ToolRegistry
from tests.support.key_scene import made
from tests.support.mcp_scene import ERAS, Era, answer, over_http, refusal, text_of
from tests.support.paths import ROOT
from tests.support.tool_service import document, tool_service
from tests.support.waiting import WAIT_SECONDS, until
from tests.support.writer_process import KEY, WriterProcess, problem

SECRET = "quokkalantern"
DISCOVER = {
    "jsonrpc": "2.0", "id": 1, "method": "tools/list",
}  # fmt: skip
PLAIN = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


async def listed(writer: WriterProcess, query: str = "", method: str = "POST", **headers: str) -> httpx.Response:
    """One request of the protocol without its client."""
    async with httpx.AsyncClient(timeout=WAIT_SECONDS) as http:
        return await http.request(
            method, f"{writer.url}/mcp{query}", headers={**PLAIN, **headers}, content=json.dumps(DISCOVER)
        )


@pytest.mark.parametrize("era", ERAS)
async def test_a_users_key_is_all_that_a_client_needs(
    writer: WriterProcess, writer_dsn: str, app: str, rows: asyncpg.Connection, era: Era
) -> None:
    """URL and bearer key: what is stored is that user's, and the HTTP API finds it."""
    key = await made(writer_dsn, app, "read", "append", user_id="ann")
    async with over_http(writer, key.text, era=era) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        assert "search_memory" in tools
        assert "forget_memory" not in tools
        memory = await answer(client, "remember", {"content": f"The boat is called {SECRET}."})
        turns = [{"role": "user", "text": "I live in Turin."}]
        await answer(client, "add_turns", {"session_id": "s1", "turns": turns})
        found = await answer(client, "search_memory", {"query": "boat"})
        assert memory["id"] in [each["id"] for each in found["results"]]
        assert "role 'admin'" in await refusal(client, "forget_memory", {"memory_id": memory["id"]})
        assert SECRET in (await client.read_resource("memory://profile")).contents[0].text  # type: ignore[union-attr]
        assert (await client.get_prompt("recall")).messages
    owner = await rows.fetchrow("SELECT app_name, user_id FROM memories WHERE id = $1::text::uuid", memory["id"])
    assert tuple(owner) == (app, "ann")
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {key.text}"}, timeout=WAIT_SECONDS) as http:
        session = await http.get(f"{writer.url}/v1/apps/{app}/users/ann/sessions/s1")
        assert session.status_code == 200
    requests = [each for each in writer.log() if each["event"] == "request" and each["route"] == "/mcp"]
    assert {each["status"] for each in requests} <= {200, 202, 400}
    assert any(each["event"] == "mcp_tool_called" and each["tool"] == "remember" for each in writer.log())
    assert SECRET not in writer.log_path.read_text()


@pytest.mark.parametrize("era", ERAS)
async def test_an_apps_key_names_the_user_in_the_connection(
    writer: WriterProcess, writer_dsn: str, app: str, era: Era
) -> None:
    """By the query or a header, percent-encoded; two connections of one key have two users."""
    key = await made(writer_dsn, app, "admin")
    async with (
        over_http(writer, key.text, "?user_id=ann%20b", era=era) as ann,
        over_http(writer, key.text, era=era, **{"X-User-Id": "bob"}) as bob,
        over_http(writer, KEY, f"?app_name={app}&user_id=ann%20b", era=era) as operator,
    ):
        memory = await answer(ann, "remember", {"content": "She rows."})
        assert (await answer(bob, "search_memory", {"query": "rows"}))["results"] == []
        assert (await answer(bob, "forget_memory", {"memory_id": memory["id"]})) == {"forgotten": False}
        assert len((await answer(operator, "search_memory", {"query": "rows"}))["results"]) == 1
        assert (await answer(ann, "forget_memory", {"memory_id": memory["id"]})) == {"forgotten": True}


async def test_a_users_roles_open_corpora_and_tools(writer: WriterProcess, writer_dsn: str, app: str) -> None:
    """They are the app's to assert. Who lacks one, or is another app's, finds nothing, and is told of no such thing."""
    apps = await made(writer_dsn, app, "read", "append")
    other = await made(writer_dsn, f"{app}-2", "read", "append")
    bound = await made(writer_dsn, app, "read", "append", user_id="ann")
    with_roles = await made(writer_dsn, app, "read", "append", user_id="ann", user_roles=["it", "hr"])
    async with (
        tool_service() as service,
        await create_pool(writer_dsn, max_size=2) as pool,
        ToolRegistry(pool, app) as registry,
    ):
        knowledge = KnowledgeService(pool, app)
        await knowledge.put_corpus("pay", readers=["role:hr"])
        added = await knowledge.add("pay", "The salary of a glassblower is paid monthly.", source_uri="p", inline=True)
        of_tool = document(service.url, {"/pay": {"get": {"operationId": "pay"}}})
        rules = {"allowed_roles": ["hr"], "allowed_users": ["ann"]}
        await registry.put_openapi("s", of_tool, allowed_networks="127.0.0.0/8", permissions=rules)
        passage = {"document_id": str(added.document_id)}
        async with over_http(writer, apps.text, "?user_id=ann&role=it&role=hr") as client:
            assert "pay" in {tool.name for tool in (await client.list_tools()).tools}
            assert '"/pay"' in text_of(await client.call_tool("pay", {}))
            (hit,) = (await answer(client, "search_knowledge", {"query": "salary"}))["results"]
            assert (hit["corpus"], hit["document_id"]) == ("pay", str(added.document_id))
            assert "glassblower" in (await answer(client, "read_document", passage))["content"]
        # A key of one user that has roles brings them, or those of them that are named.
        async with over_http(writer, with_roles.text) as client:
            assert '"/pay"' in text_of(await client.call_tool("pay", {}))
            assert (await answer(client, "search_knowledge", {"query": "salary"}))["results"]
        asked = len(service.asked)
        for key, query in (
            (apps.text, "?user_id=ann"),
            (apps.text, "?user_id=ann&role=it"),
            (apps.text, "?user_id=ann&role=*"),
            (bound.text, ""),
            (with_roles.text, "?role=it"),
            (other.text, "?user_id=ann&role=hr"),
        ):
            async with over_http(writer, key, query) as client:
                assert "pay" not in {tool.name for tool in (await client.list_tools()).tools}
                with pytest.raises(MCPError, match="no such tool"):
                    await client.call_tool("pay", {})
                assert (await answer(client, "search_knowledge", {"query": "salary"}))["results"] == []
                assert "what this user may not read is not there" in await refusal(client, "read_document", passage)
        # The role opens what it is for, and not what the tool's users are.
        async with over_http(writer, apps.text, "?user_id=bob&role=hr") as client:
            assert "pay" not in {tool.name for tool in (await client.list_tools()).tools}
            assert (await answer(client, "search_knowledge", {"query": "salary"}))["results"]
        assert len(service.asked) == asked
        refused = [(each.user_id, each.error_code) for each in await registry.executions(status="refused")]
        assert refused == [("ann", "not_allowed")] * 5


async def test_whoever_may_not_gets_the_apis_problems(writer: WriterProcess, writer_dsn: str, app: str) -> None:
    """401 without a good key, 403 for another app or user, 422 without a user; nothing depends on what exists."""
    bound = await made(writer_dsn, app, "admin", user_id="ann")
    apps = await made(writer_dsn, app, "admin")
    it_alone = await made(writer_dsn, app, "admin", user_roles=["it"])
    for key, query, headers, status, slug in (
        (None, "", {}, 401, "wrong-key"),
        ("hip_nonsense", "", {}, 401, "wrong-key"),
        (bound.text, "?user_id=bob", {}, 403, "wrong-user"),
        (bound.text, "?app_name=other", {}, 403, "wrong-app"),
        (bound.text, "", {"X-User-Id": "bob"}, 403, "wrong-user"),
        (bound.text, "?user_id=ann", {"X-User-Id": "bob"}, 422, "invalid-request"),
        (apps.text, "", {}, 422, "invalid-request"),
        (apps.text, "?user_id=", {}, 422, "invalid-request"),
        (apps.text, "?user_id=ann&role=", {}, 422, "invalid-request"),
        (apps.text, f"?user_id=ann{'&role=x' * 101}", {}, 422, "invalid-request"),
        (bound.text, "?role=hr", {}, 403, "role-missing"),
        (it_alone.text, "?user_id=ann&role=it&role=hr", {}, 403, "role-missing"),
        (apps.text, "?user_id=ann&app_name=other", {}, 403, "wrong-app"),
        (KEY, "?user_id=ann", {}, 422, "invalid-request"),
    ):
        given = {**headers, **({} if key is None else {"Authorization": f"Bearer {key}"})}
        refused = await listed(writer, query, **given)
        assert (refused.status_code, problem(refused)["type"]) == (status, f"/problems/{slug}"), (query, headers)
    unknown = await listed(writer)
    assert unknown.headers["www-authenticate"] == "Bearer"


async def test_only_known_hosts_and_origins_are_served(dsn: str, tmp_path: Path) -> None:
    """A page of another site, or a name that an attacker's DNS points here, is refused whatever its key."""
    settings = {"api_key": KEY, "mcp_hosts": "memory.example,inner:8443", "cors_origins": "https://one.example"}
    with WriterProcess(dsn, tmp_path / "log", **settings) as writer:
        key = {"Authorization": f"Bearer {KEY}"}
        owner = "?app_name=a&user_id=u"
        for host, status in (
            (f"127.0.0.1:{writer.port}", 200),
            (f"localhost:{writer.port}", 200),
            ("memory.example", 200),
            ("memory.example:443", 200),
            ("inner:8443", 200),
            ("inner:8444", 421),
            ("evil.example", 421),
            ("memory.example.evil.example", 421),
        ):
            assert (await listed(writer, owner, Host=host, **key)).status_code == status, host
        for origin, status in (
            ("http://localhost:6274", 200),
            ("https://one.example", 200),
            ("https://evil.example", 403),
            ("null", 403),
        ):
            assert (await listed(writer, owner, Origin=origin, **key)).status_code == status, origin
        for method in ("GET", "DELETE", "PUT"):
            refused = await listed(writer, owner, method, **key)
            assert (refused.status_code, refused.headers["allow"]) == (405, "POST"), method
        async with httpx.AsyncClient(timeout=WAIT_SECONDS) as http:
            asked = {"Origin": "https://one.example", "Access-Control-Request-Method": "POST",
                     "Access-Control-Request-Headers": "authorization,mcp-protocol-version,mcp-method"}  # fmt: skip
            assert (await http.options(f"{writer.url}/mcp", headers=asked)).status_code == 200
            body = await http.post(f"{writer.url}/mcp{owner}", headers={**PLAIN, **key}, content=b"{" * 100)
            assert body.status_code == 400


@pytest.mark.parametrize("era", ERAS)
async def test_without_a_key_only_loopback_is_served(dsn: str, tmp_path: Path, era: Era) -> None:
    """As the whole API. The settings of two writers need not agree on anything: none keeps a session."""
    with WriterProcess(dsn, tmp_path / "one") as first, WriterProcess(dsn, tmp_path / "two") as second:
        async with over_http(first, None, "?app_name=a&user_id=ann", era=era) as client:
            memory = await answer(client, "remember", {"content": "She rows."})
            async with over_http(second, None, "?app_name=a&user_id=ann", era=era) as other:
                assert await answer(other, "forget_memory", {"memory_id": memory["id"]}) == {"forgotten": True}
        refused = await listed(first, "?app_name=a&user_id=ann", Host="evil.example")
        assert (refused.status_code, problem(refused)["type"]) == (403, "/problems/wrong-host")


async def test_a_client_that_leaves_cancels_its_call(
    writer: WriterProcess, writer_dsn: str, app: str, rows: asyncpg.Connection
) -> None:
    """The writer stops waiting for a locked row as soon as the connection is closed."""
    key = await made(writer_dsn, app, "append", user_id="ann")
    call: dict[str, Any] = {
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "add_turns", "arguments": {
            "session_id": "held", "turns": [{"role": "user", "text": "hello again"}],
        }},
    }  # fmt: skip
    async with over_http(writer, key.text) as client:
        turns = [{"role": "user", "text": "hello"}]
        await answer(client, "add_turns", {"session_id": "held", "turns": turns})
    before = len(writer.log())
    async with rows.transaction():
        await rows.execute("SELECT 1 FROM threads WHERE app_name = $1 AND session_id = 'held' FOR UPDATE", app)
        async with httpx.AsyncClient(timeout=WAIT_SECONDS) as http:
            headers = {**PLAIN, "Authorization": f"Bearer {key.text}"}
            request = asyncio.create_task(http.post(f"{writer.url}/mcp", headers=headers, json=call))
            waiting = (
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )

            async def is_waiting() -> bool:
                return bool(await rows.fetchval(waiting))

            await until(is_waiting, "the append waits for the lock")
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)

        def outcomes() -> list[str]:
            return [each["outcome"] for each in writer.log()[before:] if each["event"] == "mcp_tool_called"]

        assert await until(outcomes, "the call ends while the row is still locked") == ["cancelled"]


async def test_a_writer_with_clients_ends_in_time(dsn: str, tmp_path: Path) -> None:
    """Connections that are open do not hold it up."""
    with WriterProcess(dsn, tmp_path / "log") as writer:
        async with over_http(writer, None, "?app_name=a&user_id=ann") as client:
            await answer(client, "list_facts")
            assert await asyncio.to_thread(writer.stop) == 0


async def test_the_server_starts_with_its_first_request(dsn: str, tmp_path: Path) -> None:
    """A writer without such clients imports nothing for them; requests that come together start one server."""
    with WriterProcess(dsn, tmp_path / "log") as writer:
        started = [each for each in writer.log() if each["event"] == "mcp_server_started"]
        assert started == []
        replies = await asyncio.gather(*(listed(writer, "?app_name=a&user_id=ann") for _ in range(3)))
        assert [reply.status_code for reply in replies] == [200] * 3
        assert [each["event"] for each in writer.log()].count("mcp_server_started") == 1


def test_the_writer_imports_the_extra_only_to_serve_it() -> None:
    """A program without it has everything else."""
    script = "import sys, workers.writer; print([name for name in sys.modules if name in ('mcp', 'workers.mcp')])"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
