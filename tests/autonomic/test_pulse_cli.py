"""`hippocampus pulse`, in this process, on a real database: what it prints, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.support.forked import ForkedProcess
from tests.support.waiting import until
from workers.cli import main


@pytest.fixture
def cli(dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.setenv("DATABASE_URL", dsn)

    def run(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        found = main.run(["pulse", *words])
        said = capsys.readouterr()
        assert found == code, said
        return said.out if code == 0 else said.out + said.err

    return run


def test_a_release_goes_the_whole_way_and_every_refusal_changes_nothing(cli: Any, tmp_path: Path) -> None:
    folder = ("--folder", str(tmp_path))
    assert "there is no scope 'main'" in cli("status", code=1)
    assert "no rules" in cli("stage", *folder, code=1)
    made = cli("init", *folder)
    assert "Scope main created" in made
    assert f"pulse deploy --folder {tmp_path}" in made
    assert "No process ticks in this scope. Start one with `hippocampus worker pulse`" in cli("status")
    assert "Scope main exists" in cli("init", *folder)
    assert json.loads(cli("stage", *folder, "--json")) == {"release": 1, "scope": "main", "files": 1}
    assert "is staged and was not promoted" in cli("promote", "1", code=1)
    assert json.loads(cli("gate", "1", "--json"))["passed"]
    assert "its shadow run is not over: 0 of 20 ticks, which the role pulse runs" in cli("promote", "1", code=1)
    (tmp_path / "rules" / "first.py").write_text("async def rule(prev, curr, inner):\n    return 5\n")
    cli("stage", *folder)
    assert "InvalidInputError" in cli("gate", "2", code=1)
    assert "refused" in cli("deploy", *folder, code=1)
    assert "has no release 9" in cli("gate", "9", code=1)
    assert "nothing to roll back" in cli("rollback", code=1)
    assert "there is no scope 'other'" in cli("rollback", "--scope", "other", code=1)
    statuses = [each["status"] for each in json.loads(cli("releases", "--json"))]
    assert statuses == ["refused", "refused", "shadow"]
    kinds = [each["kind"] for each in json.loads(cli("events", "--json"))]
    assert kinds == ["stage"] * 3
    assert json.loads(cli("tasks", "--json")) == []
    assert json.loads(cli("archive", "--months", "1", "--json")) == []
    assert "does not exist" in cli("archive", "--to", str(tmp_path / "none"), code=2)
    assert json.loads(cli("archive", "--to", str(tmp_path), "--json")) == []
    assert "sense, tick, execute" in cli("daemon", "start", "--help")
    shown = json.loads(cli("status", "--json"))
    assert (shown["scope"]["version"], shown["decisions"]) == (1, [])


def save(path: Path, content: bytes) -> None:
    """At once, as editors do."""
    unfinished = path.with_suffix(".new")
    unfinished.write_bytes(content)
    unfinished.replace(path)


async def test_dev_checks_a_folder_each_time_that_it_changes(dsn: str, tmp_path: Path) -> None:
    """As a process, as people run it: what it prints follows the files, it survives a file that cannot be read, stores
    nothing, and ends at Ctrl-C."""
    rules, log = tmp_path / "rules", tmp_path / "log"
    rules.mkdir()
    rule = rules / "a.py"
    works = "async def rule(prev, curr, inner):\n    return await inner(prev, curr)\n"
    save(rule, works.encode())
    environment = {**os.environ, "DATABASE_URL": dsn, "PYTHONUNBUFFERED": "1"}
    process = ForkedProcess("workers", "pulse", "dev", "--folder", str(tmp_path), environment=environment, log=log)
    try:

        async def says(count: int, text: str) -> None:
            await until(lambda: len(log.read_text().splitlines()) >= count if log.exists() else False)
            lines = log.read_text().splitlines()
            assert len(lines) == count, lines
            assert text in lines[-1]

        await says(1, "passed: {'load': 'ok'")
        save(rule, works.replace("await inner(prev, curr)", "5").encode())
        await says(2, "REFUSED: {'load': 'ok'")
        save(rule, b"\xff")
        await says(3, "is not valid UTF-8 at byte 0")
        save(rule, works.encode())
        await says(4, "passed: {'load': 'ok'")
        save(rules / "b.py", b"async def rule(")
        await says(5, "SyntaxError: b.py: line 1")
        (rules / "b.py").unlink()
        await says(6, "passed: {'load': 'ok'")
        process.send_signal(signal.SIGINT)
        await until(lambda: process.poll() is not None)
    finally:
        process.kill()
        process.wait()
    connection = await asyncpg.connect(dsn)
    assert (
        await connection.fetchval("SELECT (SELECT count(*) FROM rule_releases) + (SELECT count(*) FROM objects)") == 0
    )
    await connection.close()
