"""The routes of tools, at a real writer, through the client; and who may name credentials."""

from __future__ import annotations

from pathlib import Path

import asyncpg
import pytest

from hippocampus.client import HippocampusClient, InvalidRequestError, KeyRefusedError, NotFoundError
from pulse.database import create_pool
from pulse.sandbox.monty import MontyBackend
from pulse.tools.records import FrontendTool
from pulse.tools.registry import ToolRegistry
from tests.support.key_scene import made
from tests.support.sandbox_service import TOKEN, sandbox_service
from tests.support.tool_service import document, tool_service
from tests.support.writer_process import KEY, WriterProcess


async def test_tools_through_the_client(writer: WriterProcess, writer_dsn: str, app: str) -> None:
    """A document becomes tools, which are called, changed, disabled and rolled back; every call is in the log."""
    async with (
        tool_service() as service,
        HippocampusClient(writer.url, KEY, app_name=app) as client,
    ):
        paths = {f"/{name}": {how: {"operationId": name}} for name, how in (("echo", "get"), ("pay", "post"))}
        given = document(service.url, paths)
        change = await client.put_tool_source("shop", openapi=given, allowed_networks="127.0.0.0/8")
        assert list(change.added) == ["echo", "pay"]
        assert (await client.tool("echo")).timeout_seconds == 30
        assert [each.name async for each in client.tools(page_size=1)] == ["echo", "pay"]
        found = await client.call_tool("ann", "echo", {})
        assert (found.status, found.error_code) == ("succeeded", None)
        assert (await client.call_tool("ann", "echo", {"x": 1})).error_code == "invalid_arguments"
        changed = await client.set_tool_permissions("pay", {"requires_confirmation": True})
        assert changed.version == 2
        waiting = await client.call_tool("ann", "pay", {})
        assert waiting.status == "waiting"
        assert waiting.execution_id is not None
        assert (await client.decide_tool_call("ann", waiting.execution_id, approved=True)).status == "succeeded"
        assert (await client.decide_tool_call("ann", waiting.execution_id, approved=True)).error_code == "denied"
        assert not (await client.disable_tool("echo")).is_active
        assert (await client.call_tool("ann", "echo", {})).error_code == "unknown_tool"
        assert (await client.enable_tool("echo")).is_active
        assert (await client.rollback_tool("pay", 1)).version == 3
        assert [each["version"] for each in await client.tool_versions("pay")] == [3, 2, 1]
        assert (await client.tool("pay")).permissions == {}
        log = [each async for each in client.tool_executions(tool="echo", page_size=1)]
        assert [each.status for each in log] == ["refused", "refused", "succeeded"]
        with pytest.raises(NotFoundError):
            await client.tool("nobody")
        for wrong in ({}, {"openapi": {"openapi": "2"}}, {"openapi_url": "file:///etc/passwd"}):
            with pytest.raises(InvalidRequestError):
                await client.put_tool_source("wrong", **wrong)  # type: ignore[arg-type]
        held = document(service.url, {"/hold": {"get": {"operationId": "hold"}}})
        await client.put_tool_source("slow", openapi=held, allowed_networks="127.0.0.0/8", timeout_seconds=0.5)
        assert (await client.call_tool("ann", "hold", {})).error_code == "timeout"
        for seconds in (0, 3601, float("nan")):
            with pytest.raises((InvalidRequestError, ValueError)):
                await client.put_tool_source("slow", openapi=held, timeout_seconds=seconds)
        with pytest.raises(InvalidRequestError, match="not public"):
            await client.put_tool_source("inside", openapi_url=f"{service.url}/openapi.json")


async def test_roles_and_a_clients_tools(writer: WriterProcess, writer_dsn: str, app: str) -> None:
    """The app vouches for its users' roles, a key of one user for none; a client gives the results of its own calls."""
    nothing = {"type": "object"}
    async with await create_pool(writer_dsn, max_size=2) as pool, ToolRegistry(pool, app) as registry:
        await registry.register_frontend_tool(FrontendTool(name="form", description="Ask.", parameters=nothing))
        await registry.register_tool(
            "till", openapi_schema=nothing, permissions={"allowed_roles": ["clerk"], "requires_confirmation": True}
        )
    async with HippocampusClient(writer.url, KEY, app_name=app) as client:
        assert (await client.call_tool("ann", "till", {})).error_code == "not_allowed"
        till = await client.call_tool("ann", "till", {}, roles=["clerk"])
        form = await client.call_tool("ann", "form", {})
        assert (till.status, form.status) == ("waiting", "waiting")
        assert till.execution_id is not None
        assert form.execution_id is not None
        # Neither is the other's: both wait on.
        assert (await client.answer_tool_call("ann", till.execution_id, "done")).status == "waiting"
        assert (await client.decide_tool_call("ann", form.execution_id, approved=True)).status == "waiting"
        assert (await client.answer_tool_call("ann", form.execution_id, {"name": "Ann"})).value == {"name": "Ann"}
        assert (await client.answer_tool_call("ann", form.execution_id, {"name": "Ben"})).error_code == "denied"
    key = await made(writer_dsn, app, "append", user_id="ann")
    async with HippocampusClient(writer.url, key.text, app_name=app) as client:
        with pytest.raises(KeyRefusedError):
            await client.call_tool("ann", "till", {}, roles=["clerk"])


async def test_only_a_key_of_every_app_names_credentials_and_networks(
    writer: WriterProcess, writer_dsn: str, app: str
) -> None:
    """An admin of one app could else name another app's secret, or reach into the operator's network."""
    key = await made(writer_dsn, app, "admin")
    given = document("https://example.org", {"/a": {"get": {"operationId": "a"}}})
    async with HippocampusClient(writer.url, key.text, app_name=app) as client:
        for more in ({"credentials": {"k": "env:TOOL_K"}}, {"allowed_networks": "10.0.0.0/8"}):
            with pytest.raises(KeyRefusedError):
                await client.put_tool_source("s", openapi=given, **more)  # type: ignore[arg-type]
        assert list((await client.put_tool_source("s", openapi=given)).added) == ["a"]
        assert (await client.call_tool("ann", "a", {"x": 1})).error_code == "invalid_arguments"


async def test_a_writer_runs_code_in_the_sandbox_of_its_settings(dsn: str, pool: asyncpg.Pool, tmp_path: Path) -> None:
    """Here a service: where it refuses, nothing runs, and nothing replaces it."""
    async with ToolRegistry(pool, "shop") as registry:
        await registry.register_sandbox_tool("run", description="Run Python.")
    backend = MontyBackend()
    async with sandbox_service(backend) as url:
        given = {"api_key": KEY, "sandbox": f"remote:{url}", "sandbox_networks": "127.0.0.1"}
        for token, status in ((TOKEN, "succeeded"), ("another", "failed")):
            with WriterProcess(dsn, tmp_path / f"{status}.log", sandbox_token=token, **given) as writer:
                async with HippocampusClient(writer.url, KEY, app_name="shop") as client:
                    assert (await client.call_tool("ann", "run", {"code": "6 * 7"})).status == status
    await backend.close()
    assert await pool.fetch("SELECT sandbox_type, status FROM sandbox_executions ORDER BY id") == [
        ("remote", "ok"), ("remote", "unavailable"),
    ]  # fmt: skip
    code, said = WriterProcess(dsn, tmp_path / "wrong.log", sandbox="docker").refusal()
    assert code != 0
    assert "there is no sandbox 'docker'" in said
