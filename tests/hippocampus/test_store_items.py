"""Items of the key-value store: exact, in batches, expired, erased and moved with their user."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippocampus.erasure.service import ErasureService
from hippocampus.store.service import (
    LIMIT_MAX,
    Get,
    ItemStore,
    ListNamespaces,
    Put,
    Search,
    exclusive,
    user_label,
    user_of,
)
from hippocampus.transfer.memory_file import export_memory, import_memory
from pulse import database
from pulse.errors import InvalidInputError
from pulse.postgres.statements import observe_statements
from tests.support.waiting import until
from workers.queue.upkeep import Upkeep
from workers.settings import Settings

NOW = datetime(2031, 5, 1, tzinfo=UTC)
NOTES = ("users", "ann", "notes")


@pytest.fixture
def items(pool: asyncpg.Pool) -> ItemStore:
    return ItemStore(pool, "shop")


@pytest.fixture
async def clocked(dsn: str) -> AsyncIterator[asyncpg.Pool]:
    """A pool of one connection, whose clock `travel` sets."""
    async with await database.create_pool(dsn, min_size=1, max_size=1) as opened:
        await opened.execute("INSERT INTO engine_settings VALUES ('test_clock', 'true')")
        await travel(opened, 0)
        yield opened


async def travel(pool: asyncpg.Pool, seconds: float) -> None:
    moment = NOW + timedelta(seconds=seconds)
    await pool.execute("SELECT set_config('hippocampus.fake_time', $1, false)", str(moment))


async def keys(items: ItemStore, search: Search) -> list[str]:
    (found,) = await items.search_many([search])
    return [item.key for item in found]


async def test_a_value_comes_back_exactly(items: ItemStore) -> None:
    values: list[dict[str, Any]] = [
        {},
        {"z": {"y": 1, "b": 2, "aa": 3}, "a": None, "b": [True, 1, 1.5, "x", {"c": []}]},
        {"text": "U+0000 \0, half \ud83d, 火锅 🦊", "\0": 1, "$hippocampus": "a key of ours"},
        {"big": 10**30, "float": 1e22, "minus": -0.0, "inf": math.inf, "small": 5e-324},
    ]
    await items.put_many([Put(NOTES, str(number), value) for number, value in enumerate(values)])
    found = await items.get_many([Get(NOTES, str(number)) for number in range(len(values))])
    for value, item in zip(values, found, strict=True):
        assert item is not None
        # Equal texts are equal types, signs and orders as well.
        assert repr(item.value) == repr(value)


async def test_an_item_is_replaced_by_its_key_and_deleted(items: ItemStore, pool: asyncpg.Pool) -> None:
    """The last of two operations on one item counts; another app has its own items."""
    await items.put(NOTES, "k", {"n": 1})
    first = await items.get(NOTES, "k")
    await items.put_many([Put(NOTES, "k", {"n": 2}), Put(list(NOTES), "k", {"n": 3}), Put(NOTES, "none", None)])
    second = await items.get(NOTES, "k")
    assert first is not None
    assert second is not None
    assert (second.value, second.created_at) == ({"n": 3}, first.created_at)
    assert second.updated_at > first.updated_at
    assert await ItemStore(pool, "other").get(NOTES, "k") is None
    await items.put_many([Put(NOTES, "k", {"n": 4}), Put(NOTES, "k", None)])
    assert await items.get_many([Get(NOTES, "k"), Get(("users",), "k")]) == [None, None]


async def test_a_batch_is_one_round_trip_for_each_kind(items: ItemStore) -> None:
    names: list[str] = []
    end = observe_statements(lambda name, _seconds, _succeeded: names.append(name))
    try:
        await items.put_many([Put((f"n{number % 7}",), str(number), {"n": number}) for number in range(300)])
        assert all(await items.get_many([Get((f"n{number % 7}",), str(number)) for number in range(300)]))
        found = await items.search_many([Search((f"n{number}",), limit=100) for number in range(7)])
        assert sum(map(len, found)) == 300
        assert [
            len(each) for each in await items.list_namespaces_many([ListNamespaces(), ListNamespaces(limit=3)])
        ] == [7, 3]
    finally:
        end()
    assert names == ["store.put", "store.get", "store.search", "store.list_namespaces"]


async def test_a_prefix_is_whole_labels_in_any_alphabet(items: ItemStore) -> None:
    namespaces = [
        ("a",),
        ("a", "b"),
        ("a", "b", "c"),
        ("a b",),
        ("ab",),
        ("A",),
        ("a", "ba"),
        ("ä", "火"),
        ("\U0010ffff",),
    ]
    await items.put_many([Put(each, "/".join(each), {}) for each in namespaces])
    for prefix in [(), *namespaces, ("a", "b", "c", "d"), ("ä",)]:
        expected = {"/".join(each) for each in namespaces if each[: len(prefix)] == prefix}
        assert set(await keys(items, Search(prefix, limit=100))) == expected


FILTERS: list[tuple[dict[str, Any], str]] = [
    ({"n": 10}, "b"),
    ({"n": 10.0}, "b"),
    ({"n": {"$gt": 9}}, "b d e"),
    ({"n": {"$gte": 9, "$lt": 11}}, "a b"),
    ({"n": {"$lte": 9}}, "a"),
    ({"n": {"$gt": "9"}}, ""),
    ({"n": {"$gt": "1"}}, "c"),
    ({"n": {"$ne": 10}}, "a c d e f g"),
    ({"n": 1e22}, "e"),
    ({"n": 10**22}, "e"),
    ({"n": True}, "f"),
    ({"n": {"$eq": [1, {"x": None}]}}, "g"),
    ({"missing": None}, "a b c d e f g"),
    ({"missing": {"$ne": 1}}, "a b c d e f g"),
    ({"missing": {"$lt": 1}}, ""),
    ({"deep": {"x": {"y": "z"}}}, "d"),
    ({"deep": {"x": {"y": {"$gte": "Z", "$lt": "zz"}}}}, "d"),
    ({"deep": {}}, ""),
    ({"deep": {"\0": "a\0b"}}, "d"),
    ({"n": {"$gt": 5}, "deep": {"$ne": None}}, "d"),
    ({}, "a b c d e f g"),
]


async def test_filters_compare_numbers_as_numbers(items: ItemStore) -> None:
    values = {"a": 9, "b": 10, "c": "10", "d": 11.5, "e": 1e22, "f": True, "g": [1, {"x": None}]}
    await items.put_many(
        [
            Put(("n",), key, {"n": value, **({"deep": {"x": {"y": "z"}, "\0": "a\0b"}} if key == "d" else {})})
            for key, value in values.items()
        ]
    )
    found = await items.search_many([Search(("n",), where) for where, _ in FILTERS])
    keys_found = [" ".join(item.key for item in each) for each in found]
    assert list(zip([where for where, _ in FILTERS], keys_found, strict=True)) == FILTERS


async def test_pages_and_order(items: ItemStore) -> None:
    for number in range(5):
        await items.put(("n",), str(number), {})
    assert await keys(items, Search(("n",), limit=2)) == ["4", "3"]
    assert await keys(items, Search(("n",), limit=2, offset=4)) == ["0"]
    await items.put(("n",), "2", {})
    assert await keys(items, Search()) == ["2", "4", "3", "1", "0"]


async def test_namespaces_are_matched_by_label(items: ItemStore) -> None:
    all_ = [("a", "b"), ("a", "b", "c"), ("a", "x", "c"), ("b",), ("ab", "c")]
    await items.put_many([Put(each, "k", {}) for each in all_])
    await items.put(("gone",), "k", {})
    await items.delete(("gone",), "k")
    asked = [
        (ListNamespaces(), sorted(all_)),
        (ListNamespaces((("a",),)), [("a", "b"), ("a", "b", "c"), ("a", "x", "c")]),
        (ListNamespaces((("a", "*", "c"),)), [("a", "b", "c"), ("a", "x", "c")]),
        (ListNamespaces((("*", "b"),), (("c",),)), [("a", "b", "c")]),
        (ListNamespaces((), (("*", "c"),), depth=1), [("a",), ("ab",)]),
        (ListNamespaces(depth=2, limit=2, offset=1), [("a", "x"), ("ab", "c")]),
        (ListNamespaces((("b", "*"),)), []),
    ]
    assert await items.list_namespaces_many([each for each, _ in asked]) == [found for _, found in asked]


async def test_the_best_of_an_items_vectors_counts(items: ItemStore, pool: asyncpg.Pool) -> None:
    """Vectors are replaced with their item; those of other models, of any size, are never compared."""
    await items.put_many(
        [
            Put(NOTES, "two", {}, vectors={"x.0": [1.0, 0.0], "x.1": [0.0, 1.0]}),
            Put(NOTES, "one", {"n": 1}, vectors={"$": [0.6, 0.8]}),
            Put(NOTES, "none", {"n": 1}),
        ],
        model="small",
    )
    await items.put_many([Put(NOTES, "large", {}, vectors={"$": [0.0, 1.0, 0.0]})], model="large")

    async def near(model: str, **more: Any) -> list[tuple[str, float]]:
        vector = [0.0, 3.0] if model == "small" else [0.0, 1.0, 0.0]
        (found,) = await items.search_many([Search(NOTES, vector=vector, **more)], model=model)
        return [(item.key, round(item.score or 0, 6)) for item in found]

    assert await near("small") == [("two", 1.0), ("one", 0.8)]
    assert await near("small", where={"n": 1}) == [("one", 0.8)]
    assert await near("small", limit=1, offset=1) == [("one", 0.8)]
    assert await near("large") == [("large", 1.0)]
    await items.put_many([Put(NOTES, "two", {}, vectors={"x.0": [1.0, 0.0]})], model="small")
    assert await near("small") == [("one", 0.8), ("two", 0.0)]
    await items.put(NOTES, "two", {})
    await items.delete(NOTES, "one")
    assert await near("small") == []
    assert await pool.fetchval("SELECT count(*) FROM item_vectors") == 1


async def test_vectors_of_two_writers_never_mix(items: ItemStore, pool: asyncpg.Pool) -> None:
    """The later of two writers replaces all vectors of the earlier, whom it waited for."""
    await items.put(NOTES, "k", {})
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        first = ItemStore(connection, "shop")
        await first.put_many([Put(NOTES, "k", {"n": 1}, vectors={"a": [1.0], "b": [1.0]})], model="m")
        second = asyncio.create_task(items.put_many([Put(NOTES, "k", {"n": 2}, vectors={"c": [1.0]})], model="m"))
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        await until(lambda: pool.fetchval(waiting), lambda count: count > 0)
        await transaction.commit()
        await second
    assert [row["path"] for row in await pool.fetch("SELECT path FROM item_vectors")] == ["c"]


async def test_callers_with_the_same_items_do_not_deadlock(items: ItemStore) -> None:
    batch = [Put(("n", str(number)), "k", {} if number % 3 else None) for number in range(40)]
    await items.put_many([Put(each.namespace, "k", {}) for each in batch[::2]])
    await asyncio.gather(*(items.put_many(batch[:: -1 if number % 2 else 1]) for number in range(20)))


async def test_items_expire_after_their_last_use(clocked: asyncpg.Pool) -> None:
    """A read lets the time begin again, unless it asks not to."""
    hidden, shown = ItemStore(clocked, "shop"), ItemStore(clocked, "shop", omit_expired=False)
    await hidden.put(("n",), "short", {}, ttl_seconds=100)
    await hidden.put(("n",), "kept", {})
    await travel(clocked, 0.5)
    item = await hidden.get(("n",), "short")
    assert item is not None
    assert item.expires_at == NOW + timedelta(seconds=100)
    await travel(clocked, 90)
    await hidden.get_many([Get(("n",), "short", refresh=False)])
    assert await clocked.fetchval("SELECT expires_at FROM store_items WHERE key = 'short'") == NOW + timedelta(
        seconds=100.5
    )
    await hidden.search_many([Search()])
    await travel(clocked, 180)
    assert await hidden.get(("n",), "short")
    await travel(clocked, 280)
    for gone in (await hidden.get(("n",), "short"), await keys(hidden, Search(limit=1, where={"x": 1}))):
        assert not gone
    assert await keys(hidden, Search()) == ["kept"]
    assert await hidden.list_namespaces_many([ListNamespaces()]) == [[("n",)]]
    assert await keys(shown, Search(refresh=False)) == ["kept", "short"]
    # A put replaces the time to live too.
    await hidden.put(("m",), "short", {}, ttl_seconds=1)
    await hidden.put(("m",), "short", {})
    await Upkeep(clocked, Settings()).expire_sessions()
    assert await keys(shown, Search(limit=9)) == ["short", "kept"]
    assert await clocked.fetchval("SELECT count(*) FROM store_items WHERE expires_at IS NOT NULL") == 0


async def test_a_sweep_is_bounded_and_skips_what_is_in_use(clocked: asyncpg.Pool, pool: asyncpg.Pool) -> None:
    items = ItemStore(clocked, "shop")
    await items.put_many([Put(("n",), str(number), {}, 1.0 + number) for number in range(5)])
    await travel(clocked, 60)
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SELECT FROM store_items WHERE key = '0' FOR UPDATE")
        assert [await items.expire(2) for _ in range(3)] == [2, 2, 0]
    assert await items.expire(2) == 1


async def test_a_user_is_erased_with_items_and_vectors(items: ItemStore, pool: asyncpg.Pool) -> None:
    """The preview counts what the run deletes; items of others, and those put after the request, stay."""
    erasure = ErasureService(pool)
    mail = "ann@example.com"
    mine = [("users", user_label(mail)), ("users", user_label(mail), "notes")]
    others = [("users", "ann"), ("users",), ("notes", user_label(mail)), ("users", user_label("ann@example%2Ecom"))]
    await items.put_many([Put(each, "k", {}, vectors={"$": [1.0]}) for each in mine + others], model="m")
    assert await ItemStore(pool, "other").get(mine[0], "k") is None
    shown = {each.table_name: each for each in await erasure.preview("shop", mail)}
    assert {name: each.rows for name, each in shown.items()} == {"item_vectors": 2, "store_items": 2}
    assert all("embedding" not in row for row in shown["item_vectors"].sample)
    report = await erasure.erase_user("shop", mail)
    assert report.counts == {"item_vectors": 2, "store_items": 2}
    assert report.is_complete
    await items.put(mine[0], "new", {})
    assert (await erasure.get("shop", mail, report.id)).is_complete
    assert [each for each in mine + others if await items.get(each, "k")] == others


async def test_an_export_moves_items_to_another_user(items: ItemStore, pool: asyncpg.Pool) -> None:
    await items.put(("users", "ann", "notes"), "k", {"text": "火锅 \0"}, ttl_seconds=60)
    await items.put(("notes",), "app", {})
    lines = [line async for line in export_memory(pool, "shop", "ann")]
    # An id exists once in a database.
    await items.delete(("users", "ann", "notes"), "k")
    await import_memory(pool, lines, app_name="other", user_id="b.o")
    theirs = ItemStore(pool, "other")
    moved = await theirs.get(("users", "b%2Eo", "notes"), "k")
    assert moved is not None
    assert moved.value == {"text": "火锅 \0"}
    assert await keys(theirs, Search()) == ["k"]


async def test_a_subtree_is_moved_and_deleted(items: ItemStore) -> None:
    await items.put_many([Put(each, "k", {}) for each in [("a",), ("a", "b"), ("a", "b", "c"), ("ab",)]])
    assert await items.move_below(("a", "b"), ("x", "y", "z")) == 2
    assert (await items.list_namespaces_many([ListNamespaces()]))[0] == [
        ("a",),
        ("ab",),
        ("x", "y", "z"),
        ("x", "y", "z", "c"),
    ]
    with pytest.raises(InvalidInputError, match="already exists"):
        await items.move_below(("a",), ("ab",))
    assert await items.delete_below(("x",)) == 2
    assert await items.delete_below(("nothing",)) == 0
    assert (await items.list_namespaces_many([ListNamespaces()]))[0] == [("a",), ("ab",)]


async def test_exclusive_callers_lose_no_change(pool: asyncpg.Pool) -> None:
    async def add_one() -> None:
        async with exclusive(pool, "shop", NOTES) as items:
            item = await items.get(NOTES, "count")
            await items.put(NOTES, "count", {"n": item.value["n"] + 1 if item else 1})

    await asyncio.gather(*(add_one() for _ in range(20)))
    item = await ItemStore(pool, "shop").get(NOTES, "count")
    assert item is not None
    assert item.value == {"n": 20}


REFUSED: list[tuple[Any, str]] = [
    (Put((), "k", {}), "at least one label"),
    (Put(("a", ""), "k", {}), "label"),
    (Put(("a", "\0"), "k", {}), "label"),
    (Put(("a", 5), "k", {}), "label"),  # type: ignore[arg-type]
    (Put("ab", "k", {}), "tuple of labels"),
    (Put(("a",), "", {}), "key"),
    (Put(("a",), "\ud800", {}), "key"),
    (Put(("a" * 1000,), "k" * 501, {}), "1500 bytes"),
    (Put(("a",) * 51, "k", {}), "50 labels"),
    (Put(("a",), "k", [1]), "object"),  # type: ignore[arg-type]
    (Put(("a",), "k", {"x": object()}), "object is not a JSON value"),
    (Put(("a",), "k", {}, 0), "time to live"),
    (Put(("a",), "k", {}, math.nan), "time to live"),
    (Put(("a",), "k", {}, True), "time to live"),
    (Put(("a",), "k", {}, vectors={"$": [0.0]}), "direction"),
    (Put(("a",), "k", {}, vectors={"$": [1.0]}), "name of their model"),
    (Search(limit=0), "limit"),
    (Search(limit=LIMIT_MAX + 1), "limit"),
    (Search(offset=-1), "offset"),
    (Search(where={"x": {"$in": [1]}}), r"\$eq, \$ne"),
    (Search(where={"x": {"$gt": 1, "y": 2}}), "'y'"),
    (Search(where={"x": {"$gt": None}}), "finite number or a text"),
    (Search(where={"x": {"$lt": math.inf}}), "finite number or a text"),
    (Search(vector=[1.0]), "name of its model"),
    (ListNamespaces(depth=0), "depth"),
]


async def test_bad_input_is_refused_before_anything_is_stored(items: ItemStore) -> None:
    good = Put(("a",), "good", {})
    for operation, said in REFUSED:
        match operation:
            case Put():
                done = items.put_many([good, operation])
            case Search():
                done = items.search_many([operation])
            case _:
                done = items.list_namespaces_many([operation])
        with pytest.raises(InvalidInputError, match=said):
            await done
    assert await keys(items, Search()) == []


@given(st.text(min_size=1), st.text(min_size=1))
def test_each_user_has_one_label(one: str, other: str) -> None:
    assert "." not in user_label(one)
    assert user_of(user_label(one)) == one
    assert (user_label(one) == user_label(other)) == (one == other)
