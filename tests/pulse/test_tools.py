"""The registry of tools: permissions, limits, confirmation, versions, and a row for every call."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import uuid
from collections.abc import Collection
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from pulse.errors import InvalidInputError
from pulse.runs.service import RunService
from pulse.session_service import OpenSessionService
from pulse.tools.records import FrontendTool, ToolContext, ToolError
from pulse.tools.registry import ToolRegistry
from tests.support import tool_caller
from tests.support.forked import ForkedProcess
from tests.support.paths import ROOT
from tests.support.waiting import WAIT_SECONDS, until

NUMBERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


async def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


def code_of(found: Any) -> str | None:
    return found["error"]["code"] if isinstance(found, dict) and "error" in found else None


async def last(registry: ToolRegistry) -> Any:
    return (await registry.executions(limit=1))[0]


async def test_a_function_is_a_tool_with_the_schema_of_its_annotations(registry: ToolRegistry) -> None:
    """Its arguments and its result are JSON; a context is passed, and is no argument; every call is a row."""
    seen: list[ToolContext] = []

    def whoami(context: ToolContext, name: str = "x") -> dict[str, str]:
        seen.append(context)
        return {"user": context.user_id, "name": name}

    tool = await registry.register_tool("add", add)
    assert tool.description == "Add two numbers."
    assert tool.input_schema["required"] == ["a"]
    await registry.register_tool("whoami", whoami)
    assert await registry.invoke_tool("add", {"a": 1}, user_id="ann") == 3
    assert await registry.invoke_tool("whoami", {}, user_id="ann", tool_call_id="c1") == {"user": "ann", "name": "x"}
    assert seen[0].tool_call_id == "c1"
    found = await last(registry)
    assert (found.tool_name, found.status, found.output_result, found.tool_call_id, found.attempt) == (
        "whoami", "succeeded", {"user": "ann", "name": "x"}, "c1", 1,
    )  # fmt: skip
    # The same definition again is the same version; another is the next. A process without the function says so.
    assert (await registry.register_tool("add", add)).version == 1
    assert (await registry.register_tool("add", add, description="Sum.")).version == 2
    async with ToolRegistry(registry._pool, "shop") as other:
        assert "has no function for add" in (await other.invoke_tool("add", {"a": 1}))["error"]["message"]


async def test_what_fails_is_a_result_with_a_code_and_never_raises(registry: ToolRegistry) -> None:
    """Each failure has its code and its row, and none contains a value that was sent or a secret that was raised."""

    async def fail(how: str) -> Any:
        match how:
            case "own":
                raise ToolError("the shop is closed")
            case "raise":
                raise ValueError("postgresql://root:hunter2@db/x")
            case "strange":
                return object()
        return None

    async def hang() -> None:
        await asyncio.Event().wait()

    async def lose() -> None:
        try:
            await hang()
        finally:
            raise ConnectionError("its connection was closed")

    await registry.register_tool("fail", fail)
    await registry.register_tool("hang", hang, timeout_seconds=0.05)
    await registry.register_tool("lose", lose, timeout_seconds=0.05)
    await registry.register_tool("large", lambda: "x" * 5000, permissions={"max_response_bytes": 1000})
    await registry.register_tool(
        "wrong", lambda a, b: "text", output_schema={"type": "integer"}, openapi_schema=NUMBERS
    )
    cases = [
        ("nothing", {}, "unknown_tool", "refused", "there is no tool"),
        ("fail", {"how": 1}, "invalid_arguments", "refused", "/how: type"),
        ("fail", {"how": "own", "marker-key": "marker-value"}, "invalid_arguments", "refused", "not described"),
        ("fail", ["own"], "invalid_arguments", "refused", "an object"),
        ("fail", {"how": "own"}, "tool_failed", "failed", "the shop is closed"),
        ("fail", {"how": "raise"}, "tool_failed", "failed", "ValueError: postgresql://root:[redacted]@db/x"),
        ("hang", {}, "timeout", "timeout", "may have happened"),
        ("lose", {}, "timeout", "timeout", "no result within 0.05 s"),
        ("fail", {"how": "strange"}, "tool_failed", "failed", "not JSON"),
        ("large", {}, "too_large", "failed", "ask for less"),
        ("wrong", {"a": 1, "b": 2}, "tool_failed", "failed", "not as the tool describes"),
    ]
    for name, given, code, status, said in cases:
        found = await registry.invoke_tool(name, given, user_id="ann")  # type: ignore[arg-type]
        assert code_of(found) == code, (name, given, found)
        assert said in found["error"]["message"], found
        row = await last(registry)
        assert (row.tool_name, row.status, row.error_code) == (name, status, code)
        assert "marker" not in found["error"]["message"]
        assert "hunter2" not in json.dumps(row.error)
    deep: Any = {}
    for _ in range(500):
        deep = {"how": deep}
    assert code_of(await registry.invoke_tool("fail", deep)) == "invalid_arguments"


async def test_permissions_decide_who_sees_and_calls_a_tool(registry: ToolRegistry) -> None:
    """By user, role and agent; what a user may not call is not listed. A wrong key or value changes nothing."""
    await registry.register_tool("open", add)
    await registry.register_tool("anns", add, permissions={"allowed_users": ["ann"]})
    await registry.register_tool("clerks", add, permissions={"allowed_roles": ["clerk"], "allowed_agents": ["till"]})
    listed = [each.name for each in await registry.get_available_tools("ann")]
    assert listed == ["anns", "open"]
    assert [each.name for each in await registry.get_available_tools("ben", roles=["clerk"], agent="till")] == [
        "clerks", "open",
    ]  # fmt: skip
    assert code_of(await registry.invoke_tool("anns", {"a": 1}, user_id="ben")) == "not_allowed"
    assert (await registry.call("clerks", {"a": 1}, user_id="ben", roles=["clerk"], agent="till")).value == 3
    assert (await registry.call("clerks", {"a": 1}, user_id="ben", roles=["clerk"])).error_code == "not_allowed"
    for wrong in (
        {"allowed_user": ["ann"]}, {"rate_limit": 0}, {"rate_limit": True}, {"allowed_users": "ann"},
        {"requires_confirmation": "yes"}, {"burst": 1.5}, {"max_concurrency": 0}, [],
    ):  # fmt: skip
        with pytest.raises(InvalidInputError):
            await registry.register_tool("open", add, permissions=wrong)  # type: ignore[arg-type]
    for schema in (
        {"type": "array"},
        {"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}},
        {"type": 1},
    ):
        with pytest.raises(InvalidInputError):
            await registry.register_tool("open", add, openapi_schema=schema)
    assert (await registry.get("open")).version == 1


async def test_the_rate_of_a_user_is_one_for_all_processes(
    pool: asyncpg.Pool, dsn: str, registry: ToolRegistry, tmp_path: Path
) -> None:
    """Three processes share a user's burst; another user has one of its own; the wait is in the answer."""
    logs = [tmp_path / name for name in ("one", "two")]
    processes = [ForkedProcess("tests.support.tool_caller", dsn, environment=os.environ, log=log) for log in logs]
    codes = await tool_caller.codes(registry)
    for process in processes:
        assert await asyncio.to_thread(process.wait, WAIT_SECONDS) == 0
    elsewhere = [json.loads(log.read_text()) for log in logs]
    codes += [code for each in elsewhere for code in each]
    assert (codes.count(None), codes.count("rate_limited")) == (10, 35)
    refused = await registry.call("add", {"a": 1}, user_id="ann")
    assert refused.retry_after_seconds is not None
    assert 0 < refused.retry_after_seconds <= 120
    assert (await registry.call("add", {"a": 1}, user_id="ben")).value == 3
    assert await pool.fetchval("SELECT count(*) FROM tool_executions WHERE status = 'refused'") == 36
    assert await pool.fetchval("SELECT count(*) FROM call_limit_states()") == 0


async def test_only_so_many_calls_run_at_once(registry: ToolRegistry) -> None:
    go = asyncio.Event()

    async def wait() -> str:
        await go.wait()
        return "done"

    await registry.register_tool("wait", wait, permissions={"max_concurrency": 2})
    running = [asyncio.create_task(registry.call("wait", {})) for _ in range(2)]
    await until(lambda: registry._pool.fetchval("SELECT count(*) = 2 FROM tool_executions WHERE status = 'running'"))
    assert (await registry.call("wait", {})).error_code == "rate_limited"
    go.set()
    assert [each.value for each in await asyncio.gather(*running)] == ["done", "done"]
    assert (await registry.call("wait", {})).value == "done"


async def test_counters_are_exact_over_parallel_calls_of_two_registries(pool: asyncpg.Pool) -> None:
    """300 calls at once: the count is exact, and the mean is that of the rows."""
    registries = [ToolRegistry(pool, "shop") for _ in range(2)]
    for each in registries:
        await each.register_tool("add", add)
    await asyncio.gather(*(each.invoke_tool("add", {"a": 1}) for each in registries for _ in range(150)))
    tool = await registries[0].get("add")
    rows = await pool.fetchrow("SELECT count(*) AS n, avg(latency_ms) AS mean FROM tool_executions")
    assert tool.call_count == rows["n"] == 300
    assert tool.avg_latency_ms == pytest.approx(rows["mean"])


async def test_a_call_that_a_person_confirms_is_made_once_with_its_arguments(registry: ToolRegistry) -> None:
    """It waits, with its exact arguments; one decision makes it, further ones and other users' do nothing."""
    paid: list[dict[str, Any]] = []

    def pay(amount: int, api_key: str) -> str:
        paid.append({"amount": amount, "api_key": api_key})
        return "paid"

    await registry.register_tool("pay", pay, permissions={"requires_confirmation": True})
    given = {"amount": 5, "api_key": "k-123456"}
    waiting = await registry.call("pay", given, user_id="ann")
    assert (waiting.status, waiting.error_code, paid) == ("waiting", "waiting", [])
    assert waiting.execution_id is not None
    assert (await last(registry)).input_params == {"amount": 5, "api_key": "[redacted]"}
    assert (await registry.confirm(waiting.execution_id, user_id="ben", approved=True)).error_code == "denied"
    found = await asyncio.gather(
        *(registry.confirm(waiting.execution_id, user_id="ann", approved=True) for _ in range(5))
    )
    assert sorted(str(each.error_code) for each in found) == ["None", *["denied"] * 4]
    assert paid == [given]
    row = await last(registry)
    assert (row.status, row.output_result) == ("succeeded", "paid")
    assert await registry._pool.fetchval("SELECT held_params FROM tool_executions") is None
    refused = await registry.call("pay", given, user_id="ann")
    assert refused.execution_id is not None
    assert (await registry.confirm(refused.execution_id, user_id="ann", approved=False)).error_code == "denied"
    # A tool that was disabled while it waited is not called, however late the confirmation.
    waiting = await registry.call("pay", given, user_id="ann")
    assert waiting.execution_id is not None
    await registry.set_active("pay", is_active=False)
    assert (await registry.confirm(waiting.execution_id, user_id="ann", approved=True)).error_code == "unknown_tool"
    assert len(paid) == 1
    assert (await registry.get("pay")).call_count == 1


async def test_calls_that_wait_count_and_keep_to_their_limits(registry: ToolRegistry) -> None:
    """Asking counts toward the rate; a confirmation over `max_concurrency` waits on; a result is the client's alone."""
    go = asyncio.Event()

    async def pay() -> str:
        await go.wait()
        return "paid"

    rules = {"requires_confirmation": True, "rate_limit": 0.1, "burst": 2, "max_concurrency": 1}
    await registry.register_tool("pay", pay, permissions=rules)
    first, second, third = [await registry.call("pay", {}, user_id="ann") for _ in range(3)]
    assert (first.status, second.status, third.error_code) == ("waiting", "waiting", "rate_limited")
    assert first.execution_id is not None
    assert second.execution_id is not None
    assert (await registry.answer(first.execution_id, "paid", user_id="ann")).status == "waiting"
    # A process without the function cannot make it, and takes it from nobody.
    async with ToolRegistry(registry._pool, registry.app_name) as other:
        elsewhere = await other.confirm(first.execution_id, user_id="ann", approved=True)
    assert (elsewhere.status, "this process has no function for" in (elsewhere.error or "")) == ("waiting", True)
    running = asyncio.create_task(registry.confirm(first.execution_id, user_id="ann", approved=True))
    await until(lambda: registry._pool.fetchval("SELECT count(*) = 1 FROM tool_executions WHERE status = 'running'"))
    assert await registry._pool.fetchval(
        "SELECT expires_at < now() + interval '10 minutes' FROM tool_executions WHERE status = 'running'"
    )
    busy = await registry.confirm(second.execution_id, user_id="ann", approved=True)
    assert (busy.status, busy.error_code) == ("waiting", "rate_limited")
    go.set()
    assert (await running).value == "paid"
    assert (await registry.confirm(second.execution_id, user_id="ann", approved=True)).value == "paid"
    form = FrontendTool(name="form", description="Show a form.", parameters=NUMBERS)
    await registry.register_frontend_tool(form)
    shown = await registry.call("form", {"a": 1, "b": 2}, user_id="ann")
    assert shown.execution_id is not None
    assert (await registry.confirm(shown.execution_id, user_id="ann", approved=True)).status == "waiting"
    assert (await registry.answer(shown.execution_id, 3, user_id="ann")).value == 3
    # Nobody confirms in time: it was not made, and its row says so.
    await registry.register_tool("wire", pay, permissions={"requires_confirmation": True})
    assert (await registry.call("wire", {}, user_id="ann")).status == "waiting"
    await registry._pool.execute("UPDATE tool_executions SET expires_at = now() WHERE status = 'waiting'")
    await registry._pool.fetchval("SELECT prune_tool_calls(interval '30 days')")
    row = await last(registry)
    assert (row.status, row.error_code, "was not made" in row.error) == ("cancelled", "expired", True)


async def test_a_call_whose_caller_leaves_while_it_is_recorded_was_not_made(
    registry: ToolRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row does not say that it runs: a person would be asked for a result, and it would count as concurrent."""
    made, recorded = [], asyncio.Event()
    begin = registry._begin

    async def begin_late(*arguments: Any, **options: Any) -> Any:
        row = await begin(*arguments, **options)
        recorded.set()
        await asyncio.sleep(0.1)  # the answer is on its way
        return row

    async def pay() -> None:
        made.append(1)

    await registry.register_tool("pay", pay)
    monkeypatch.setattr(registry, "_begin", begin_late)
    calling = asyncio.create_task(registry.call("pay", {}))
    await recorded.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    (row,) = await registry.executions(name="pay")
    assert (row.status, row.error, made) == ("failed", "the run ended before this call was made", [])


async def test_every_refused_call_is_a_row(pool: asyncpg.Pool) -> None:
    """Whatever it is refused for, also a run that is not the user's; a user's roles may come from the app."""

    async def roles_of(user: str) -> Collection[str]:
        if user == "eve":
            raise RuntimeError("the directory is down")
        return ["clerk"] if user == "ann" else []

    sessions = OpenSessionService(pool)
    await sessions.create_session(app_name="shop", user_id="ben", session_id="s")
    bens = (await RunService(pool).start("shop", "ben", "s", "r1")).run
    async with ToolRegistry(pool, "shop", roles_of=roles_of) as registry:
        await registry.register_tool("till", add, permissions={"allowed_roles": ["clerk"]})
        assert [each.name for each in await registry.get_available_tools("ann")] == ["till"]
        assert await registry.get_available_tools("ben") == []
        assert await registry.invoke_tool("till", {"a": 1}, user_id="ann") == 3
        refused = [
            await registry.call("till", {"a": 1}, user_id="ben"),
            await registry.call("till", {"a": 1}, user_id="ben", roles=["*"]),
            await registry.call("till", {"a": 1}, user_id="eve"),
            await registry.call("till", {"a": 1}, user_id="ann", run_id="no such run"),
            await registry.call("till", {"a": 1}, user_id="ann", run_id=bens.id),
            await registry.call("till", {}, user_id="ann"),
            await registry.call("gone", {}, user_id="ann"),
            await registry.refuse("till", {"a": 1}, ("rate_limited", "too many at once"), user_id="ann"),
        ]
        rows = {each.id: each for each in await registry.executions(status="refused")}
    assert [each.error_code for each in refused] == [
        "not_allowed", "not_allowed", "not_allowed", "tool_failed", "tool_failed", "invalid_arguments", "unknown_tool",
        "rate_limited",
    ]  # fmt: skip
    assert [rows[each.execution_id].error_code for each in refused if each.execution_id] == [
        each.error_code for each in refused
    ]
    assert all(each.error for each in rows.values())
    await sessions.close()


async def test_a_change_reaches_another_process_without_a_poll(pool: asyncpg.Pool, dsn: str) -> None:
    """A process of its own lists the change, and its call that runs ends on the version that it began with."""
    arguments = [sys.executable, "-m", "tests.support.tools_process", dsn]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*arguments, cwd=ROOT, stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(WAIT_SECONDS), ToolRegistry(pool, "shop") as registry:
            assert await process.stdout.readline() == b"running 1\n"
            await registry.set_permissions("slow", {"rate_limit": 60})
            began = time.monotonic()
            assert await process.stdout.readline() == b"version 2\n"
            assert time.monotonic() - began < 15  # it would read again after 30 s
            await registry.set_active("slow", is_active=False)
            began = time.monotonic()
            assert await process.stdout.readline() == b"gone\n"
            assert time.monotonic() - began < 15  # it would read again after 30 s
            process.stdin.write(b"go\n")
            assert await process.stdout.readline() == b"succeeded done\n"
            (row,) = await registry.executions()
            assert (row.status, row.tool_version) == ("succeeded", 1)
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_client_answers_the_calls_of_its_own_tools(registry: ToolRegistry) -> None:
    form = FrontendTool(name="form", description="Show a form.", parameters=NUMBERS, render_component="Form")
    await registry.register_frontend_tool(form)
    waiting = await registry.call("form", {"a": 1, "b": 2}, user_id="ann")
    assert waiting.execution_id is not None
    found = await registry.answer(waiting.execution_id, {"name": "Ann"}, user_id="ann")
    assert found.value == {"name": "Ann"}
    assert (await last(registry)).output_result == {"name": "Ann"}


async def test_a_change_is_in_force_in_another_process_with_its_next_call(pool: asyncpg.Pool, dsn: str) -> None:
    """A call checks that its tool is the current one; a listening registry lists the change without being asked."""
    async with ToolRegistry(pool, "shop") as here, ToolRegistry(pool, "shop") as there:
        there.listen(dsn)
        began, go = asyncio.Event(), asyncio.Event()

        async def slow() -> str:
            began.set()
            await go.wait()
            return "of the first version"

        for each in (here, there):
            await each.register_tool("slow", slow)
        running = asyncio.create_task(there.call("slow", {}, user_id="ann"))
        await began.wait()
        await here.set_permissions("slow", {"allowed_users": ["ben"]})
        assert (await there.call("slow", {}, user_id="ann")).error_code == "not_allowed"
        await until(lambda: there._listener.is_listening if there._listener else False)
        assert await there.get_available_tools("ann") == []
        await here.set_active("slow", is_active=False)
        await until(lambda: there._is_marked)
        assert await there.get_available_tools("ben") == []
        assert (await there.call("slow", {}, user_id="ben")).error_code == "unknown_tool"
        go.set()
        assert (await running).value == "of the first version"
        versions = await here.versions("slow")
        assert [each.version for each in versions] == [2, 1]
        restored = await here.rollback("slow", 1)
        assert (restored.version, restored.is_active, dict(restored.permissions)) == (3, False, {})
        # A process that starts and registers it again does not enable what a person has disabled.
        await there.register_tool("slow", slow)
        assert await there.get_available_tools("ann") == []
        await here.set_active("slow", is_active=True)
        await until(lambda: there._is_marked)
        assert [each.name for each in await there.get_available_tools("ann")] == ["slow"]
        with pytest.raises(InvalidInputError):
            await here.rollback("slow", 9)


async def test_a_lost_notification_is_made_up_for(
    pool: asyncpg.Pool, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list that is older than the poll is read again, whether or not its registry was told of a change.

    Nothing else tells it: after a second a change is in the list.
    """
    async with ToolRegistry(pool, "shop") as registry:
        monkeypatch.setattr(registry, "_mark", lambda _payload: None)
        registry.listen(dsn)
        await until(lambda: registry._listener.is_listening if registry._listener else False)
        assert await registry.get_available_tools() == []
        await ToolRegistry(pool, "shop").register_tool("add", add)
        changed, read = time.monotonic(), registry._read_at
        while not await registry.get_available_tools():
            await asyncio.sleep(0.01)
        # However long this process waited for its turn: it was read at the first list that came late enough.
        assert registry._read_at - max(changed, read) < 15  # it would be read again after 30 s
        monkeypatch.setattr("pulse.tools.registry._POLL_SECONDS", 60)
        await until(lambda: registry._listener.is_listening if registry._listener else False)
        await registry.get_available_tools()
        await ToolRegistry(pool, "shop").register_tool("less", add)
        assert len(await registry.get_available_tools()) == 1


@pytest.mark.parametrize("address", [None, "postgresql://127.0.0.1:1/nowhere", ""])
async def test_a_list_is_the_current_one_where_nothing_is_listened_to(
    pool: asyncpg.Pool, dsn: str, address: str | None
) -> None:
    """Without `listen`, with a listener that reaches no server, and with one whose connection was cut: at once."""
    async with ToolRegistry(pool, "shop") as here, ToolRegistry(pool, "shop") as there:
        await there.register_tool("add", add)
        if address is not None:
            here.listen(address or dsn)
        if address == "":
            assert here._listener is not None
            await until(lambda: here._listener.is_listening if here._listener else False)
            assert await here.get_available_tools()
            await here._listener.stop()
        assert [each.name for each in await here.get_available_tools("ann")] == ["add"]
        for active in (False, True, False):
            await there.set_active("add", is_active=active)
            assert bool(await here.get_available_tools("ann")) is active


async def test_calls_of_a_run_are_its_rows_and_go_with_it(pool: asyncpg.Pool, registry: ToolRegistry) -> None:
    """The run gives the user; an attempt of the same call has its number; deleting the session deletes the rows."""
    sessions = OpenSessionService(pool)
    await sessions.create_session(app_name="shop", user_id="ann", session_id="s")
    runs = RunService(pool)
    run = (await runs.start("shop", "ann", "s", "r1")).run
    await registry.register_tool("add", add)
    for _ in range(2):
        assert await registry.invoke_tool("add", {"a": 1}, run_id="r1", tool_call_id="c1") == 3
    assert [each.attempt for each in await registry.executions(run_id=run.id)] == [2, 1]
    assert {each.user_id for each in await registry.executions()} == {"ann"}
    assert code_of(await registry.invoke_tool("add", {"a": 1}, run_id="r2")) == "tool_failed"
    assert code_of(await registry.invoke_tool("add", {"a": 1}, run_id=uuid.uuid4(), user_id="ann")) == "tool_failed"
    await sessions.delete_session(app_name="shop", user_id="ann", session_id="s")
    # Those of a run that there is not are the user's.
    assert [each.status for each in await registry.executions()] == ["refused", "refused"]
    assert {each.run_id for each in await registry.executions()} == {None}
    await sessions.close()


async def test_a_cancelled_call_is_recorded_and_a_lost_one_becomes_unknown(registry: ToolRegistry) -> None:
    began = asyncio.Event()

    async def forever() -> None:
        began.set()
        await asyncio.sleep(600)

    await registry.register_tool("forever", forever)
    task = asyncio.create_task(registry.invoke_tool("forever", {}))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await last(registry)).status == "cancelled"
    pool = registry._pool
    await pool.execute(
        "UPDATE tool_executions SET status = 'running', ended_at = NULL, expires_at = now() - interval '1 s'"
    )
    assert await pool.fetchval("SELECT prune_tool_calls(interval '30 days')") == 1
    assert (await last(registry)).status == "unknown"
    await pool.execute("UPDATE tool_executions SET created_at = now() - interval '31 days'")
    await pool.execute("INSERT INTO call_limits (name, full_at) VALUES ('tool:x', now() - interval '2 hours')")
    assert await pool.fetchval("SELECT prune_tool_calls(interval '30 days')") == 1
    assert await pool.fetchval("SELECT count(*) FROM tool_executions") == 0
    assert await pool.fetchval("SELECT count(*) FROM call_limits") == 0


async def test_what_is_stored_is_bounded_and_without_secrets(registry: ToolRegistry) -> None:
    """By key, by the schema, by form; not what only looks similar; cut before it is searched."""
    schema = {"type": "object", "properties": {"pin": {"type": "string", "writeOnly": True}}}
    await registry.register_tool("echo", lambda **given: given, openapi_schema=schema)
    jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc"
    kept = {"max_tokens": 5, "token_count": 3, "next_page_token": "p2", "id": str(uuid.UUID(int=7)), "text": "記得"}
    secret = {
        "pin": "4711", "clientSecret": "s", "X-Api-Key": "s", "password": "s", "auth": f"Bearer {jwt}",
        "note": f"it is {jwt}",
        "aws": "AKIAABCDEFGHIJKLMNOP", "url": "https://me:pass@example.org/", "\0key": "nul\0",
    }  # fmt: skip
    assert await registry.invoke_tool("echo", {**kept, **secret}) == {**kept, **secret}
    row = await last(registry)
    assert {name: row.input_params[name] for name in kept} == kept
    text = json.dumps([row.input_params, row.output_result["note"]])
    assert not [each for each in ("4711", '"s"', "eyJ", "AKIA", "me:pass") if each in text]
    await registry.invoke_tool("echo", {"text": "x" * 50_000})
    row = await last(registry)
    assert row.output_bytes > 50_000
    assert len(row.output_result["cut"]) <= 16_384
    # Also behind a reference, in parts and items, and of a value that is cut.
    login = {"allOf": [{"properties": {"pin": {"type": "string", "format": "password"}}}]}
    schema = {
        "type": "object",
        "properties": {"body": {"$ref": "#/$defs/Login"}, "list": {"items": {"$ref": "#/$defs/Login"}}},
        "$defs": {"Login": login},
    }
    await registry.register_tool("echo", lambda **given: "done", openapi_schema=schema)
    for filler in ("", "記" * 20_000):
        given = {"body": {"pin": "pin-4711"}, "list": [{"pin": "pin-4712"}], "password": "correct horse", "z": filler}
        assert await registry.invoke_tool("echo", given) == "done"
        kept = json.dumps((await last(registry)).input_params, ensure_ascii=False)
        assert not [each for each in ("pin-471", "correct horse") if each in kept], kept[:300]
        assert len(kept.encode()) < 20_000
