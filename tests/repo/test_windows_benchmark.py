"""The benchmark of context windows counts what stands in them."""

from __future__ import annotations

import json
from pathlib import Path

import asyncpg
import pytest

from benchmarks import windows
from tests.repo.test_locomo_benchmark import CONVERSATION


async def test_evidence_counts_if_its_text_stands_in_the_window(
    pool: asyncpg.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a real consolidation, and none of it where the budget holds no turn; a missing turn counts as missed."""
    path = tmp_path / "talk.json"
    path.write_text(json.dumps([CONVERSATION]), encoding="utf-8")
    monkeypatch.setattr(windows, "BUDGETS", (1, 2000))
    await windows.remember(pool, path)
    assert await pool.fetchval("SELECT count(*) FROM memories WHERE memory_type = 'episodic'") == 2
    table = await windows.evaluate(pool, path)
    # One of three questions names a turn that does not exist.
    assert {key: (round(found.share, 2), round(found.any, 2)) for key, found in table.items()} == {
        ("new", 1): (0, 0),
        ("running", 1): (0, 0),
        ("stable", 1): (0, 0),
        ("new", 2000): (0.67, 0.67),
        ("running", 2000): (0.67, 0.67),
        ("stable", 2000): (0.67, 0.67),
    }


def test_what_every_session_holds_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Stable windows too, which have no must: they are not the default."""
    windows.report({(kind, 2000): windows.Found(0.5, 0.75) for kind in ("new", "running", "stable")})
    lines = capsys.readouterr().out.splitlines()
    assert "stable       2,000     0.500      0.750" in lines
    assert sum(line.startswith("gold turns in 2,000 tokens") for line in lines) == 2
