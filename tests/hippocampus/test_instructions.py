"""Instructions: a change adds a version, nothing is overwritten, and concurrent changes get different numbers."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from hippocampus.errors import InstructionConflictError
from hippocampus.instructions import InstructionStore
from pulse.errors import InvalidInputError


@pytest.fixture
def store(pool: asyncpg.Pool) -> InstructionStore:
    return InstructionStore(pool)


async def test_a_change_adds_a_version_and_the_newest_is_in_force(store: InstructionStore) -> None:
    first = await store.put("app", "tone", "Be brief.", metadata={"by": "ops", "zero": -0.0})
    second = await store.put("app", "tone", "Be kind.")
    assert (first.version, second.version) == (1, 2)
    assert await store.get("app", "tone") == second
    assert await store.get("app", "tone", 1) == first
    assert str(first.metadata["zero"]) == "-0.0"
    assert await store.history("app", "tone") == [second, first]
    assert await store.history("app", "tone", limit=1) == [second]


async def test_an_unchanged_text_adds_nothing(store: InstructionStore) -> None:
    first = await store.put("app", "tone", "Be brief.", metadata={"a": 1, "b": 2})
    assert await store.put("app", "tone", "Be brief.", metadata={"b": 2, "a": 1}) == first
    assert (await store.put("app", "tone", "Be brief.")).version == 2


async def test_a_rollback_is_a_new_version_with_the_old_content(store: InstructionStore) -> None:
    await store.put("app", "tone", "one", metadata={"n": 1})
    await store.put("app", "tone", "two")
    restored = await store.rollback("app", "tone", 1)
    assert (restored.version, restored.content, restored.metadata) == (3, "one", {"n": 1})
    assert [i.content for i in await store.history("app", "tone")] == ["one", "two", "one"]
    with pytest.raises(LookupError, match="no version 9"):
        await store.rollback("app", "tone", 9)


async def test_concurrent_changes_get_different_numbers(store: InstructionStore) -> None:
    await asyncio.gather(*(store.put("app", "tone", f"text {n}") for n in range(20)))
    assert [i.version for i in await store.history("app", "tone")] == list(range(20, 0, -1))


async def test_of_two_changes_of_one_version_the_second_is_refused(store: InstructionStore) -> None:
    results = await asyncio.gather(
        *(store.put("app", "tone", f"text {n}", expected_version=0) for n in range(5)), return_exceptions=True
    )
    assert sum(isinstance(result, InstructionConflictError) for result in results) == 4
    with pytest.raises(InstructionConflictError, match="is at version 1, not 7"):
        await store.rollback("app", "tone", 1, expected_version=7)
    assert len(await store.history("app", "tone")) == 1


async def test_apps_and_keys_are_separate_and_a_missing_one_is_none(store: InstructionStore) -> None:
    await store.put("app", "tone", "x")
    assert await store.get("other", "tone") is None
    assert await store.get("app", "other") is None
    assert await store.get("app", "tone", 2) is None
    assert await store.history("other", "tone") == []


@pytest.mark.parametrize(
    ("app", "key", "content"),
    [
        ("", "k", "c"),
        ("a", "", "c"),
        ("a" * 256, "k", "c"),
        ("a", "k" * 256, "c"),
        ("a", "k\0", "c"),
        ("a", "k", "c\0"),
    ],
)
async def test_bad_input_changes_nothing(
    store: InstructionStore, pool: asyncpg.Pool, app: str, key: str, content: str
) -> None:
    with pytest.raises(InvalidInputError):
        await store.put(app, key, content)
    assert await pool.fetchval("SELECT count(*) FROM instructions") == 0


async def test_a_page_of_no_rows_is_refused(store: InstructionStore) -> None:
    with pytest.raises(InvalidInputError, match="limit"):
        await store.history("app", "tone", limit=0)
