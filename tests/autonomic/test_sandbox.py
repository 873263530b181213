"""Rules of a release in their sandbox: what they may do, what they may not, and what the gate finds."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pulse.autonomic import Effect
from pulse.autonomic.survival import DISK_EFFECTS
from tests.support.autonomic_scene import run, samples, snapshot
from workers.autonomic import gate
from workers.autonomic.sandbox import RuleFailedError, Sandbox

FULL = {"system-resource": samples(*[{"memory": 10, "disks": {"/": 95}}] * 3)}
HEAD = "async def rule(prev, curr, inner):\n    "
OUTER = """
from typing import Any
LIMIT = 1
async def rule(prev: dict[str, Any], curr: dict[str, Any], inner: Inner) -> Outcome:
    effects, tick_ms = await inner(prev, curr)
    return [*effects, {"kind": "notify", "key": f"outer {LIMIT}"}], tick_ms
"""
INNER = """
from typing import Any
LIMIT = 2
async def rule(prev: dict[str, Any], curr: dict[str, Any], inner: Inner) -> Outcome:
    effects, tick_ms = await inner(prev, curr)
    return [{"kind": "tool", "key": f"inner {LIMIT}", "params": {"tool": "t"}, "survival": True}], tick_ms + 1
"""


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox() as opened:
        yield opened


async def test_files_are_rules_around_each_other_with_names_of_their_own(sandbox: Sandbox) -> None:
    rule = await sandbox.load({"b.py": INNER, "a.py": OUTER})
    effects, tick_ms, errors = await run(snapshot(FULL), rule)
    assert [f"{each.kind}|{each.key}" for each in effects][len(DISK_EFFECTS) :] == ["tool|inner 2", "notify|outer 1"]
    assert effects[len(DISK_EFFECTS)] == Effect("tool", "inner 2", {"tool": "t"}, rule="business")
    assert (tick_ms, errors) == (5_000, [])
    verdict = await gate.check(sandbox, {"b.py": INNER, "a.py": OUTER}, [snapshot(FULL)] * 3)
    assert verdict.passed
    assert verdict.checks["self_test"]["snapshots"] == 15


MISBEHAVED = {
    "raise ValueError('the vault code is 4711')": "ValueError",
    "while True: pass": "TimeoutError",
    "return [], 3**10**9": "MemoryError",
    "return ['x' * 10**9], 5000": "MemoryError",
    "return [[0] * 10**9], 5000": "MemoryError",
    "open('/etc/passwd').read()": "PermissionError",
    "import os; return os.environ['HOME'], 5000": "RuntimeError",
    "import socket": "ModuleNotFoundError",
    "for _ in range(100): await inner(prev, curr)": "RuntimeError",
    "return [], float('nan')": "InvalidInputError",
    "return 5": "InvalidInputError",
    "return [print], 5000": "InvalidInputError",
    "return [{'kind': 'notify'}], 5000": "InvalidInputError",
    "return [{'kind': 'notify', 'key': 'k', 'cooldown_seconds': -1}], 5000": "InvalidInputError",
    "return await rule(prev, curr, inner)": "RecursionError",
}


@pytest.mark.parametrize("body", MISBEHAVED)
async def test_a_rule_that_misbehaves_is_an_error_and_the_disk_is_freed(sandbox: Sandbox, body: str) -> None:
    """In the same tick, within a second or so; the gate refuses it."""
    rules = {"a.py": HEAD + body}
    rule = await sandbox.load(rules)
    effects, tick_ms, errors = await run(snapshot(FULL), rule)
    assert [each.kind for each in effects] == list(DISK_EFFECTS)
    assert tick_ms == 5_000
    assert errors == [f"border:{MISBEHAVED[body]}"] or (errors and errors[0] == "border:crashed")
    assert not await gate_passes(sandbox, rules)


async def gate_passes(sandbox: Sandbox, rules: dict[str, str]) -> bool:
    saved, gate.extreme_snapshots = gate.extreme_snapshots, lambda: [snapshot(FULL)]
    try:
        return (await gate.check(sandbox, rules)).passed
    finally:
        gate.extreme_snapshots = saved


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("async def rule(", "SyntaxError: a.py: line 1"),
        ("x = 1", "no_rule"),
        ("def rule(prev, curr, inner): return [], 5000", "no_rule"),
        ("import ctypes\n" + HEAD + "return [], 5000", "ModuleNotFoundError"),
        ("1 / 0\n" + HEAD + "return [], 5000", "ZeroDivisionError"),
        (OUTER.replace("tick_ms\n", "'soon'\n"), "types"),
        (HEAD + "import random; return [], 5000 + random.SystemRandom().random() * 1000", ""),
        (HEAD + "return await inner(prev, curr) if curr['errors'][0] < 10 else 1 / 0", "ZeroDivisionError"),
    ],
)
async def test_the_gate_says_what_is_wrong(sandbox: Sandbox, text: str, found: str) -> None:
    verdict = await gate.check(sandbox, {"a.py": text})
    assert not verdict.passed
    assert found in str(verdict.checks)


async def test_a_sandbox_whose_process_was_killed_goes_on(sandbox: Sandbox) -> None:
    rule = await sandbox.load({"a.py": OUTER})
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and _is_worker(folder):
            os.kill(int(folder.name), signal.SIGKILL)
    began = time.monotonic()
    outcomes = [await run(snapshot(FULL), rule) for _ in range(2)]
    assert outcomes[-1][2] == []
    assert len(outcomes[-1][0]) == len(DISK_EFFECTS) + 1
    assert time.monotonic() - began < 60


def _is_worker(folder: Path) -> bool:
    try:
        parent = folder.joinpath("stat").read_text().rpartition(")")[2].split()[1]
        return int(parent) == os.getpid() and b"monty" in folder.joinpath("cmdline").read_bytes()
    except OSError:
        return False


async def test_a_release_without_rules_that_can_be_loaded_is_refused(sandbox: Sandbox) -> None:
    with pytest.raises(RuleFailedError):
        await sandbox.load({"a.py": "\0"})
