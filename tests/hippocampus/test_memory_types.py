"""The registry of memory types matches the database."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import get_args

import asyncpg

from hippocampus import ContextAssembler, MemoryRetentionManager, MemorySearch
from hippocampus.client import records
from hippocampus.memory_types import MEMORY_TYPES, initial_score
from hippocampus.records import Importance, MemoryType

NOW = datetime.now(UTC)


async def test_the_registry_and_the_database_know_the_same_types(conn: asyncpg.Connection) -> None:
    checks = await conn.fetch(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'memories'::regclass AND contype = 'c'"
    )
    (allowed,) = (check for (check,) in checks if "memory_type" in check)
    assert set(re.findall(r"'(\w+)'", allowed)) == set(MEMORY_TYPES) == set(get_args(MemoryType))


async def test_each_type_is_found_where_its_entry_says(pool: asyncpg.Pool) -> None:
    await pool.executemany(
        "INSERT INTO memories (app_name, user_id, memory_type, content, initial_score, occurred_at)"
        " VALUES ('shop', 'ann', $1, $2, $3, $4)",
        [(name, f"a parcel of {name}", entry.initial_score, NOW) for name, entry in MEMORY_TYPES.items()],
    )
    found = await MemorySearch(pool).search(app_name="shop", user_id="ann", query="parcel", record_access=False)
    assert {hit.memory_type for hit in found.memories} == set(MEMORY_TYPES)
    window = await ContextAssembler(pool).assemble(app_name="shop", user_id="ann", session_id=None, query="parcel")
    assert {item.metadata["kind"] for item in window.items} == set(MEMORY_TYPES)
    blank = await ContextAssembler(pool).assemble(app_name="shop", user_id="ann", session_id=None, query="")
    expected = {name for name, entry in MEMORY_TYPES.items() if entry.in_blank_context}
    assert {item.metadata["kind"] for item in blank.items} == expected
    slices = await MemoryRetentionManager(pool).get_episodic_memories_by_time_slice(
        app_name="shop", user_id="ann", start_time=NOW - timedelta(days=1), end_time=NOW + timedelta(days=1)
    )
    expected = {name for name, entry in MEMORY_TYPES.items() if entry.in_time_slices}
    assert {memory.memory_type for memory in slices} == expected


def test_the_client_knows_the_same_types() -> None:
    """It has a list of its own, since it imports only httpx."""
    assert get_args(records.MemoryType) == get_args(MemoryType)


def test_each_entry_has_its_scores() -> None:
    for name, entry in MEMORY_TYPES.items():
        assert set(entry.by_importance) in (set(), set(get_args(Importance)))
        for importance in (None, *get_args(Importance)):
            assert 0 < initial_score(name, importance) <= 1
