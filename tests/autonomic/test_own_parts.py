"""Watchers and executors of a release: they sense and act by registered tools alone, from within the sandbox."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from pulse import InvalidInputError, database
from pulse.autonomic import Effect, ReleaseService, TickLoop, Vitals
from pulse.autonomic.releases import own_kinds, read_rules
from pulse.tools.registries import ToolRegistries
from tests.support.autonomic_scene import promote
from tests.support.tool_service import document, tool_service
from tests.support.waiting import until
from workers.autonomic import gate
from workers.autonomic.executors import Executors
from workers.autonomic.own import OwnParts, OwnWatchers, interval_of, read_measures
from workers.autonomic.restarting import Supervised
from workers.autonomic.sandbox import Sandbox
from workers.settings import load

RULE = """
from typing import Any
async def rule(prev: dict[str, Any], curr: dict[str, Any], inner: Inner) -> Outcome:
    effects, tick_ms = await inner(prev, curr)
    for sample in curr["senses"].get("own-shop", [])[-1:]:
        effects.append({"kind": "own_page", "key": "k", "params": {"waiting": sample["data"]["waiting"]}})
    return effects, tick_ms
"""
WATCHER = """
from typing import Any
INTERVAL_SECONDS = 5
async def collect(call: Call) -> dict[str, Any]:
    found = await call("shop", "orders", {})
    return {"waiting": len(found["path"]), "wake": True}
"""
EXECUTOR = """
from typing import Any
async def execute(effect: dict[str, Any], call: Call) -> None:
    await call("shop", "page", {})
    await call("shop", "page", {})
"""
FILES = {"a.py": RULE, "watchers/shop.py": WATCHER, "executors/page.py": EXECUTOR}
PATHS = {
    "/orders": {"get": {"operationId": "orders"}},
    "/echo": {"post": {"operationId": "page"}},
    "/fail": {"get": {"operationId": "fail"}},
    "/hold": {"get": {"operationId": "hold"}},
}


class Scene:
    """An app with tools, and what runs the parts of a release."""

    def __init__(self, pool: asyncpg.Pool, tools: ToolRegistries, sandbox: Sandbox, asked: list[Any]) -> None:
        self.parts = OwnParts(tools, watching=sandbox, executing=sandbox)
        self.sandbox = sandbox
        self.tools = tools
        self.asked = asked
        self.ended: list[str] = []
        self.executors = Executors(
            pool, load(), Supervised(), on_end=lambda _kind, end: self.ended.append(end), tools=tools, own=self.parts
        )

    async def collect(self, body: str) -> Any:
        text = f"async def collect(call):\n    {body}\n"
        (watcher,) = self.parts.watchers({"watchers/w.py": text})
        return await watcher.collect()


@pytest.fixture
async def scene(pool: asyncpg.Pool) -> AsyncIterator[Scene]:
    async with tool_service() as service, Sandbox(processes_min=0) as sandbox:
        tools = ToolRegistries(pool)
        await tools.of("shop").put_openapi("service", document(service.url, PATHS), allowed_networks="127.0.0.0/8")
        yield Scene(pool, tools, sandbox, service.asked)
        await tools.close()


def test_a_folder_has_rules_watchers_and_executors(tmp_path: Path) -> None:
    """All are one release, by their names; a name that could not be a sense or a kind is refused."""
    for name, text in {f"rules/{name}" if "/" not in name else name: text for name, text in FILES.items()}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert read_rules(tmp_path) == FILES
    assert own_kinds(FILES) == {"own_page"}
    (tmp_path / "executors" / "Page-2.py").write_text(EXECUTOR)
    with pytest.raises(InvalidInputError, match=r"Page-2\.py: the name must have"):
        read_rules(tmp_path)


async def test_the_gate_checks_every_part() -> None:
    async with Sandbox() as sandbox:
        assert (await gate.check(sandbox, FILES)).passed
        for name, text, found in (
            ("watchers/shop.py", "async def rule(prev, curr, inner): pass", "has no `async def collect(call)`"),
            ("watchers/shop.py", "import socket\n" + WATCHER, "ModuleNotFoundError"),
            ("executors/page.py", "async def execute(", "SyntaxError: executors/page.py: line 1"),
            ("executors/page.py", EXECUTOR.replace('"page", {}', '"page", 5'), "types"),
            ("executors/page.py", "while True: pass\n" + EXECUTOR, "TimeoutError"),
        ):
            verdict = await gate.check(sandbox, {**FILES, name: text})
            assert not verdict.passed
            assert found in str(verdict.checks), (name, found)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("return {'text': str(await call('shop', 'orders', {}))}", "InvalidInputError"),
        ("found = await call('shop', 'orders', {}); return {found['path'][1:4]: 1}", "InvalidInputError"),
        ("return [1]", "InvalidInputError"),
        ("await call('shop', 'page', {}); return {}", "tool_not_read_only"),
        ("await call('other', 'orders', {}); return {}", "tool_not_read_only"),
        ("await call('shop', 'fail', {}); return {}", "tool_tool_failed"),
        ("await call('shop', 5, {}); return {}", "invalid_call"),
        ("\n    for _ in range(9): await call('shop', 'orders', {})\n    return {}", "too_many_calls"),
        ("open('/etc/passwd').read()", "PermissionError"),
        ("\n    while True: pass", "TimeoutError"),
    ],
)
async def test_a_watcher_reads_numbers_and_nothing_else(scene: Scene, body: str, code: str) -> None:
    """No text of a tool's result becomes a value or a name; no tool that acts is called."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the code says which
        await scene.collect(body)
    assert (getattr(caught.value, "code", "") or type(caught.value).__name__) == code
    assert not [each for each in scene.asked if each.method == "POST"]


async def test_what_a_watcher_may_return(scene: Scene) -> None:
    body = "return {'n': len((await call('shop', 'orders', {}))['path']), 'ok': True, 'x': None}"
    assert await scene.collect(body) == {"n": 7, "ok": True, "x": None}
    handled = """
    try:
        await call('shop', 'fail', {})
    except RuntimeError:
        return {'failed': 1}"""
    assert await scene.collect(handled) == {"failed": 1}
    for wrong in ({"n": float("nan")}, {"n": 1e300}, {"N": 1}, {"unknown": 1}, {f"n{each}": 1 for each in range(33)}):
        with pytest.raises(InvalidInputError):
            read_measures(wrong, {"n", "N", *(f"n{each}" for each in range(33))})
    seconds = [interval_of(ast.parse(f"INTERVAL_SECONDS = {each}")) for each in ("5", "1", "10**9", "9999", "'x'")]
    assert seconds == [5, 5, 60, 3_600, 60]


async def test_a_release_senses_decides_and_acts_by_its_own_parts(scene: Scene, dsn: str, pool: asyncpg.Pool) -> None:
    """Its watcher wakes the tick, its rule decides, its executor acts once, also after another release came in force;
    with the lead, or the release, its watcher ends."""
    releases = ReleaseService(pool, "main")
    await releases.make_scope()
    release = await releases.stage(FILES)
    await promote(releases, release)
    vitals = Vitals("m1")
    shown: list[set[str]] = []

    async def connect() -> database.Connection:
        return await database.connect(dsn)

    def show(files: Mapping[str, str]) -> None:
        shown.append(set(files))
        watchers.show(files)

    loop = TickLoop(
        connect,
        "main",
        holder="m1:1",
        vitals=vitals,
        load=scene.sandbox.load,
        route=scene.executors.route,
        on_release=show,
    )
    watchers = OwnWatchers(scene.parts, vitals, wake=loop.wake, report=loop.report)
    task = asyncio.create_task(loop.run())

    async def event() -> Any:
        return await pool.fetchrow("SELECT id, meta FROM pulse_events WHERE kind = 'effect' AND key = 'own_page|k'")

    found = await until(event)
    assert (found["meta"]["release"], found["meta"]["params"], found["meta"]["survival"]) == (
        release,
        {"waiting": 7},
        False,
    )
    assert await pool.fetchval("SELECT count(*) FROM vitals WHERE sense = 'own-shop'") >= 1
    await releases.rollback("by hand")
    await until(lambda: shown[-1] == set())
    assert set(FILES) in shown
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert watchers._task is None
    for _ in range(2):
        await scene.executors.execute(found["id"])
    posted = [each for each in scene.asked if each.method == "POST"]
    assert [each.headers["idempotency-key"] for each in posted] == [f"effect-{found['id']}-{n}" for n in (1, 2)]
    assert scene.ended == ["acked"]
    assert await pool.fetchval("SELECT meta FROM pulse_events WHERE kind = 'effect-acked'") == {"calls": 2}


async def test_an_executor_that_fails_ends_its_effect_with_a_code(scene: Scene, pool: asyncpg.Pool) -> None:
    releases = ReleaseService(pool, "main")
    await releases.make_scope()
    bodies = {
        "fails": "await call('shop', 'fail', {})",
        "none": "await call('shop', 'none', {})",
        "raises": "raise KeyError(effect['params']['said'])",
        "spins": "\n    while True: pass",
    }
    files = {f"executors/{name}.py": f"async def execute(effect, call):\n    {body}\n" for name, body in bodies.items()}
    release = await releases.stage({"a.py": RULE, **files})
    for name in (*bodies, "missing"):
        described = {**Effect(f"own_{name}", "k", {"said": "the vault code is 4711"}).to_json(), "release": release}
        (event,) = await pool.fetchval("SELECT end_pulse_tick('main', $1, '{}', '{}', NULL)", [described])
        await scene.executors.execute(event)
    assert scene.ended == ["tool_tool_failed", "tool_unknown_tool", "KeyError", "TimeoutError", "unhandled"]
    ends = await pool.fetch("SELECT meta FROM pulse_events WHERE kind = 'effect-failed'")
    assert "4711" not in str([row["meta"] for row in ends])


async def test_replaced_watchers_end_with_their_calls_and_a_closing_note(scene: Scene) -> None:
    vitals = Vitals("m1")
    errors: list[str] = []
    watchers = OwnWatchers(scene.parts, vitals, wake=lambda: None, report=errors.append)
    broken = "async def collect(call):\n    return [1]\n"
    holds = "async def collect(call):\n    await call('shop', 'hold', {})\n"
    watchers.show({"watchers/bad.py": broken, "watchers/slow.py": holds})
    running = watchers._watchers
    assert running is not None
    await until(lambda: errors and any(each.path == "/hold" for each in scene.asked))
    assert vitals.take_changes() == {"own-bad": "broken"}
    assert len(running._collecting) == 1
    watchers.show({"watchers/shop.py": WATCHER})
    await until(lambda: any(each.sense == "own-shop" for each in vitals.take()))
    assert not running._collecting, "the former ones end before the next ones begin"
    assert vitals.take_changes() == {"own-bad": "ended"}
    await watchers.aclose()
    assert not watchers._ending
    assert errors == ["collect:own-bad:InvalidInputError"]


async def test_an_effect_begins_when_there_is_a_process_for_it(scene: Scene, pool: asyncpg.Pool) -> None:
    """One that waits has not begun, so that it cannot fail for good with nothing called."""
    releases = ReleaseService(pool, "main")
    await releases.make_scope()
    bodies = {"holds": "await call('shop', 'hold', {})", "pages": "await call('shop', 'page', {})"}
    files = {f"executors/{name}.py": f"async def execute(effect, call):\n    {body}\n" for name, body in bodies.items()}
    release = await releases.stage({"a.py": RULE, **files})
    described = [{**Effect(f"own_{name}", "k").to_json(), "release": release} for name in bodies]
    holds, pages = await pool.fetchval("SELECT end_pulse_tick('main', $1, '{}', '{}', NULL)", described)
    async with Sandbox(processes_min=0, processes_max=1, wait_seconds=30) as executing:
        parts = OwnParts(scene.tools, watching=scene.sandbox, executing=executing)
        executors = Executors(pool, load(), Supervised(), tools=scene.tools, own=parts)
        first = asyncio.create_task(executors.execute(holds))
        await until(lambda: any(each.path == "/hold" for each in scene.asked))
        second = asyncio.create_task(executors.execute(pages))
        await until(lambda: parts.places._waiters)
        begun = await pool.fetch("SELECT ref FROM pulse_events WHERE kind = 'effect-executing'")
        assert [row["ref"] for row in begun] == [holds]
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await second
    assert await pool.fetchval("SELECT ref FROM pulse_events WHERE kind = 'effect-acked'") == pages


async def test_a_release_without_a_sandbox_leaves_its_effects_failed(pool: asyncpg.Pool) -> None:
    await ReleaseService(pool, "main").make_scope()
    ended: list[str] = []
    executors = Executors(pool, load(), Supervised(), on_end=lambda _kind, end: ended.append(end))
    described = {**Effect("own_page", "k").to_json(), "release": 1}
    (event,) = await pool.fetchval("SELECT end_pulse_tick('main', $1, '{}', '{}', NULL)", [described])
    await executors.execute(event)
    assert ended == ["no_sandbox"]
