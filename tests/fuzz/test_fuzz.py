"""A short run of the fuzzer, and proof that it notices what it searches for."""

from __future__ import annotations

import random
from pathlib import Path

import asyncpg
import pytest

from tests.fuzz import __main__ as fuzz
from tests.fuzz import families
from tests.fuzz.values import Values
from workers.intake import exported

INPUTS = 500


async def test_hostile_inputs_crash_nothing_and_lose_nothing(dsn: str) -> None:
    """Replies, files, providers' answers, filters, cursors, tickets, appends and every route of the API."""
    outcome = await fuzz.run(dsn, INPUTS, seed=1)
    assert outcome.findings == []
    assert set(outcome.inputs) == set(fuzz.SHARES)
    assert outcome.acknowledged > 0


async def test_a_lost_event_is_noticed(dsn: str, pool: asyncpg.Pool) -> None:
    async with fuzz.opened(dsn) as (known, ledger, _):
        for number in range(10):
            rng = random.Random(number)
            assert await known["appends"](rng, Values(rng)) is None
        assert await ledger.lost(pool) == []
        await pool.execute("DELETE FROM threads")
        assert len(await ledger.lost(pool)) == ledger.acknowledged > 0


async def test_a_crash_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def crash(*_: object) -> None:
        raise TypeError("unhashable")

    monkeypatch.setattr(exported, "_path", crash)
    family = families.read_file(tmp_path)
    found = [await fuzz._try(family, 1, "files", number) for number in range(100)]
    assert any(each is not None and "unhashable" in each for each in found)
