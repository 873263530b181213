"""Policies: presets, changes, and refused values."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import asyncpg
import pytest

from hippocampus.retention import policies
from pulse.errors import InvalidInputError
from pulse.names import EVERY_APP
from tests.support.waiting import WAIT_SECONDS

SQL_REFUSALS = (
    {"decay_rate": -1},
    {"decay_rate": None},
    {"cleanup_threshold": 2},
    {"retention_curve": "linear"},
    {"fast_events": 0},
)


async def test_an_app_without_a_policy_uses_the_default_one(pool: asyncpg.Pool) -> None:
    found = await policies.get_policy(pool, "shop")
    assert found == await policies.get_policy(pool)
    assert (found.app_name, found.retention_curve, found.decay_rate, found.cleanup_threshold, found.min_age_days) == (
        EVERY_APP,
        "strength",
        0.1,
        0.1,
        7.0,
    )


async def test_presets_set_only_the_rate_and_the_threshold(pool: asyncpg.Pool) -> None:
    """The four presets have their published numbers; curve, age and the rest stay; explicit fields win."""
    default = await policies.get_policy(pool)
    published = {
        "high_interaction": (0.15, 0.15),
        "low_interaction": (0.05, 0.05),
        "sensitive": (0.3, 0.2),
        "knowledge": (0.02, 0.02),
    }
    assert set(published) == set(policies.PRESETS)
    for name, numbers in published.items():
        found = await policies.set_policy(pool, f"app-{name}", preset=name)  # type: ignore[arg-type]
        assert (found.decay_rate, found.cleanup_threshold) == numbers
        rest = {"app_name": "*", "decay_rate": 0.1, "cleanup_threshold": 0.1, "updated_at": default.updated_at}
        assert dataclasses.replace(found, **rest) == default
        assert found == await policies.get_policy(pool, f"app-{name}")
    mixed = await policies.set_policy(pool, "mixed", preset="sensitive", cleanup_threshold=0)
    assert (mixed.decay_rate, mixed.cleanup_threshold) == (0.3, 0.0)


async def test_a_change_touches_the_named_fields_of_the_named_app(pool: asyncpg.Pool) -> None:
    await policies.set_policy(pool, "shop", decay_rate=0.4, retention_curve="classic")
    found = await policies.set_policy(pool, "shop", fast_events=3, consolidate=False)
    assert (found.decay_rate, found.retention_curve, found.fast_events, found.consolidate) == (0.4, "classic", 3, False)
    assert (await policies.get_policy(pool, "bank")).app_name == EVERY_APP
    assert (await policies.get_policy(pool, "bank")).decay_rate == 0.1


async def test_a_change_for_every_app_reaches_those_without_their_own(pool: asyncpg.Pool) -> None:
    await policies.set_policy(pool, "shop", min_age_days=1)
    await policies.set_policy(pool, EVERY_APP, decay_rate=0.7)
    assert (await policies.get_policy(pool, "bank")).decay_rate == 0.7
    assert (await policies.get_policy(pool, "shop")).decay_rate == 0.1
    assert await policies.reset_policy(pool, "shop")
    assert not await policies.reset_policy(pool, "shop")
    assert (await policies.get_policy(pool, "shop")).decay_rate == 0.7


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"decay_rat": 0.1}, "did you mean 'decay_rate'"),
        ({"nonsense": 0.1}, "there are consolidate, fast_events"),
        ({"preset": "sensitve"}, "did you mean 'sensitive'"),
        ({"preset": "xyz"}, "there are high_interaction"),
        ({"decay_rate": -0.1}, "decay_rate must be from 0 to 100"),
        ({"decay_rate": float("nan")}, "decay_rate must be a number"),
        ({"decay_rate": float("inf")}, "decay_rate must be from 0 to 100"),
        ({"decay_rate": True}, "decay_rate must be a number"),
        ({"decay_rate": "0.1"}, "decay_rate must be a number"),
        ({"cleanup_threshold": 1.01}, "cleanup_threshold must be from 0 to 1"),
        ({"min_age_days": 36501}, "min_age_days must be from 0 to 36500"),
        ({"fast_events": 0}, "fast_events must be a whole number"),
        ({"fast_events": 2.5}, "fast_events must be a whole number"),
        ({"deep_tokens": 2**31}, "deep_tokens must be a whole number"),
        ({"consolidate": 1}, "consolidate must be True or False"),
        ({"retention_curve": "linear"}, "retention_curve must be one of strength, classic"),
        ({"app_name": ""}, "app_name must have 1 to 255 characters"),
        ({"app_name": "a" * 256}, "app_name must have 1 to 255 characters"),
        ({"app_name": "a\0b"}, "app_name must have 1 to 255 characters"),
        ({}, "name at least one field"),
    ],
)
async def test_invalid_values_are_refused_without_the_database(fields: dict[str, Any], message: str) -> None:
    """The message says what to do; no connection was used."""
    with pytest.raises(InvalidInputError, match=message):
        await policies.set_policy(None, **({"app_name": "shop"} | fields))  # type: ignore[arg-type]


async def test_a_refused_change_changes_nothing(pool: asyncpg.Pool) -> None:
    """Neither through Python nor, for callers of the SQL function, by the table's own checks."""
    before = await policies.set_policy(pool, "shop", decay_rate=0.4)
    with pytest.raises(InvalidInputError):
        await policies.set_policy(pool, "shop", decay_rate=0.9, cleanup_threshold=7)
    for fields in SQL_REFUSALS:
        with pytest.raises(asyncpg.IntegrityConstraintViolationError):
            await pool.execute("SELECT set_app_policy('shop', $1)", fields)
    assert await policies.get_policy(pool, "shop") == before
    with pytest.raises(InvalidInputError, match="must stay"):
        await policies.reset_policy(pool, EVERY_APP)


async def test_without_the_default_policy_the_error_says_so(pool: asyncpg.Pool) -> None:
    await pool.execute("DELETE FROM app_policies")
    with pytest.raises(InvalidInputError, match="no row '\\*'"):
        await policies.get_policy(pool, "shop")
    with pytest.raises(InvalidInputError, match="no row '\\*'"):
        await policies.set_policy(pool, "shop", decay_rate=0.1)


async def test_two_concurrent_changes_of_one_policy_both_take_effect(pool: asyncpg.Pool) -> None:
    """The second waits for the first and continues from its result, whether or not the row existed."""
    for rate, age in ((0.5, 3), (0.6, 4)):
        async with pool.acquire() as conn, conn.transaction():
            await conn.execute("SELECT set_app_policy('shop', $1)", {"decay_rate": rate})
            second = asyncio.create_task(policies.set_policy(pool, "shop", min_age_days=age))
            async with asyncio.timeout(WAIT_SECONDS):
                while not await conn.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                    await asyncio.sleep(0.01)
        found = await second
        assert (found.decay_rate, found.min_age_days) == (rate, age)
