"""LangGraph's contract of stores, as its documentation and its own stores' tests state it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from langchain_core.embeddings import Embeddings
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    SearchItem,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import AsyncPostgresStore

from hippocampus import Hippocampus
from hippocampus.integrations.langgraph import MEMORIES, HippocampusStore
from hippocampus.store.service import user_label
from pulse import database
from pulse.errors import InvalidInputError, PulseError
from pulse.postgres.statements import observe_statements
from workers.migrate import migrate

NOW = datetime(2031, 5, 1, tzinfo=UTC)
WORDS = ("apple", "car", "dog", "bird", "red", "green", "blue", "text", "long")


class WordVectors(Embeddings):
    """Vectors that count words: predictable, and without a model."""

    model = "words"
    dims = len(WORDS) + 1

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.calls.append(list(texts))
        return [[*(float(text.lower().count(word)) for word in WORDS), 0.01] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


@pytest.fixture
def store(dsn: str) -> Iterator[HippocampusStore]:
    """A store whose methods are called without ``await``, and without an event loop."""
    opened = HippocampusStore(Hippocampus(dsn, app="shop", embedder=None))
    yield opened
    opened.close()


@pytest.fixture
async def memory(dsn: str) -> AsyncIterator[Hippocampus]:
    async with Hippocampus(dsn, app="shop") as opened:
        yield opened


def vector_store(memory: Hippocampus, fields: Sequence[str] | None = None) -> HippocampusStore:
    embed = WordVectors()
    return HippocampusStore(memory, index={"dims": embed.dims, "embed": embed, "fields": fields and list(fields)})


# Sequences of batches. Our store must answer each as LangGraph's own store in memory does.
BATCHES: dict[str, list[list[Op]]] = {
    "results are in the order of the operations, and a batch reads what was there before it": [
        [PutOp(("t", "foo"), "k1", {"d": "v1"}), PutOp(("t", "bar"), "k2", {"d": "v2"})],
        [
            GetOp(("t", "foo"), "k1"),
            PutOp(("t", "bar"), "k2", {"d": "v3"}),
            SearchOp(("t",), {"d": "v1"}),
            ListNamespacesOp(limit=10),
            GetOp(("t", "bar"), "k3"),
        ],
        [
            SearchOp(("t",), None, 5, 0),
            GetOp(("t", "bar"), "k2"),
            ListNamespacesOp(limit=5),
            PutOp(("t",), "k3", {"d": "new"}),
            GetOp(("t", "foo"), "k1"),
            GetOp(("t", "foo"), "k3"),
        ],
        [GetOp(("t",), "k3"), PutOp(("t",), "k3", None)],
        [GetOp(("t",), "k3")],
    ],
    "the last of two writes to an item counts": [
        [PutOp(("t",), "k", {"n": 1}), PutOp(("t",), "k", {"n": 2})],
        [PutOp(("t",), "gone", {}), PutOp(("t",), "gone", None)],
        [GetOp(("t",), "k"), GetOp(("t",), "gone")],
        [PutOp(("t",), "k", None), PutOp(("t",), "k", {"n": 3})],
        [SearchOp(())],
    ],
    "a batch may be large": [
        [PutOp(("t", str(number % 3)), str(number), {"n": number}) for number in range(200)],
        [GetOp(("t", str(number % 3)), str(number)) for number in range(250)],
        [PutOp(("t", "0"), str(number), None) for number in range(0, 200, 6)],
        [ListNamespacesOp(), SearchOp(("t", "0"), limit=500), SearchOp(("t",), {"n": {"$gte": 195}}, 50)],
    ],
    "filters compare values": [
        [
            PutOp(("t", "a"), "1", {"n": 9, "tag": "x", "on": True, "deep": {"a": {"b": 1}, "c": 2}}),
            PutOp(("t", "b"), "2", {"n": 10, "tag": "y", "list": [1, 2]}),
            PutOp(("t", "ab"), "3", {"n": 10.5, "tag": None}),
            PutOp(("u",), "4", {"n": 100}),
        ],
        [
            SearchOp(("t",), filter_, 50)
            for filter_ in (
                {"tag": "x"}, {"tag": "x", "n": 9}, {"tag": "x", "n": 10}, {"n": {"$gt": 9}},
                {"n": {"$gte": 10, "$lt": 10.5}},
                {"n": {"$lte": 10}}, {"tag": {"$ne": "x"}}, {"tag": {"$eq": "y"}}, {"tag": None}, {"list": [1, 2]},
                {"list": [2, 1]}, {"deep": {"a": {"b": 1}}}, {"deep": {"a": {"b": 2}}}, {"on": True}, {"none": None},
                {"deep": {"c": {"$gt": 1}, "a": {"b": 1}}},
            )
        ],
    ],
    "a prefix is whole labels, whatever characters they have": [
        [
            PutOp(labels, "k", {})
            for labels in (
                ("foo",), ("foo", "bar"), ("foobar",), ("foo_", "x"), ("fooX", "x"), ("a%",), ("ab",), ("a\\",),
                ("x\n",),
                ("x",),
            )
        ],
        [
            SearchOp(labels, limit=50)
            for labels in ((), ("foo",), ("foo_",), ("a%",), ("a\\",), ("fo",), ("x",), ("x\n",), ("foo", "bar", "z"))
        ],
        [
            ListNamespacesOp((MatchCondition(kind, path),), limit=50)
            for kind in ("prefix", "suffix")
            for path in (
                ("foo",), ("foo", "*"), ("*", "bar"), ("*", "x"), ("x",), ("x\n",), ("fo",), ("*", "*", "*"), (),
            )
        ],
    ],
    "namespaces are listed by their labels": [
        [
            PutOp(("test" if number < 4 else "prod", kind, access), "k", {})
            for number, (kind, access) in enumerate(
                [("docs", "open"), ("docs", "own"), ("pics", "open"), ("pics", "own"), ("docs", "open")]
            )
        ]
        + [PutOp(("a", "b", "d", end), "k", {}) for end in "ei"] + [PutOp(("a", "c", "f"), "k", {})],
        [
            ListNamespacesOp(),
            ListNamespacesOp(max_depth=2),
            ListNamespacesOp(max_depth=2, limit=2, offset=1),
            ListNamespacesOp((MatchCondition("prefix", ("test",)),)),
            ListNamespacesOp((MatchCondition("suffix", ("open",)),)),
            ListNamespacesOp((MatchCondition("prefix", ("test",)), MatchCondition("suffix", ("own",))), limit=1),
            ListNamespacesOp((MatchCondition("prefix", ("a", "*", "d")),), max_depth=3),
            ListNamespacesOp((MatchCondition("prefix", ("*", "docs")),), offset=1),
        ],
    ],
}  # fmt: skip


def told(results: Sequence[Any]) -> list[Any]:
    """What a batch returned, without times. Items of one batch have one time, and so no order."""
    shown: list[Any] = []
    for result in results:
        match result:
            case Item():
                shown.append((type(result), result.namespace, result.key, result.value))
            case [SearchItem(), *_]:
                assert all(item.score is None for item in result)
                shown.append(sorted((item.namespace, item.key, str(item.value)) for item in result))
            case _:
                shown.append(result)
    return shown


@pytest.mark.parametrize("case", BATCHES)
def test_batches_are_answered_as_by_langgraphs_own_store(store: HippocampusStore, case: str) -> None:
    theirs = InMemoryStore()
    for ops in BATCHES[case]:
        assert told(store.batch(ops)) == told(theirs.batch(ops))


def test_an_item_keeps_its_creation_and_the_newest_come_first(store: HippocampusStore) -> None:
    """Also: lists are accepted for namespaces, and labels come back as a tuple."""
    store.put(("t", "docs"), "1", {"title": "First"})
    first = store.get(("t", "docs"), "1")
    store.put(("t", "docs"), "2", {"title": "Second"})
    store.put(("t", "docs"), "1", {"title": "Third"})
    again = store.get(["t", "docs"], "1")  # type: ignore[arg-type]
    assert first is not None
    assert again is not None
    assert again.namespace == ("t", "docs")
    assert again.created_at == first.created_at
    assert again.updated_at > first.updated_at
    assert again.created_at.tzinfo is not None
    found = store.search(["t"])  # type: ignore[arg-type]
    assert [item.key for item in found] == ["1", "2"]
    assert [item.key for item in store.search(("t",), limit=1, offset=1)] == ["2"]
    # Without an index a query has no effect.
    assert [item.key for item in store.search(("t",), query="Third")] == ["1", "2"]
    store.delete(("t", "docs"), "1")
    store.delete(("t", "docs"), "1")
    assert store.get(("t", "docs"), "1") is None
    assert store.list_namespaces(prefix=("*",), max_depth=1) == [("t",)]


@pytest.mark.parametrize(
    ("namespace", "said"),
    [
        ((), "amespace"),
        (("",), "empty"),
        (("a.b",), "periods"),
        (("a\0",), "NUL"),
        ((5,), "strings"),
        ((*MEMORIES, "ann"), "Hippocampus.add"),
    ],
)
def test_invalid_namespaces_are_refused_in_batches_too(
    store: HippocampusStore, namespace: tuple[Any, ...], said: str
) -> None:
    """Nothing of the batch is stored then."""
    with pytest.raises(InvalidNamespaceError, match=said):
        store.put(namespace, "k", {})
    with pytest.raises(InvalidNamespaceError, match=said):
        store.batch([PutOp(("good",), "k", {}), PutOp(namespace, "k", {})])
    assert store.search(()) == []


def test_the_root_of_langgraph_itself_is_written_in_batches_alone(store: HippocampusStore) -> None:
    """As in LangGraph's own stores: `put` keeps programs away from it, and LangGraph writes there by operations."""
    with pytest.raises(InvalidNamespaceError, match="langgraph"):
        store.put(("langgraph", "x"), "k", {})
    store.batch([PutOp(("langgraph", "x"), "k", {"n": 1})])
    item = store.get(("langgraph", "x"), "k")
    assert item is not None
    assert item.value == {"n": 1}


def test_settings_are_kept_where_langgraphs_stores_keep_them(dsn: str) -> None:
    """`omit_expired` may be changed while the store is in use."""
    embed = WordVectors()
    index: Any = {"dims": embed.dims, "embed": embed}
    store = HippocampusStore(Hippocampus(dsn, app="shop", embedder=None), index=index, ttl={"refresh_on_read": False})
    try:
        assert store.index_config == index
        store.put(("t",), "k", {"text": "dog"}, ttl=1e-6)
        assert store.get(("t",), "k")
        assert store.ttl_config is not None
        store.ttl_config["omit_expired"] = True
        assert store.get(("t",), "k") is None
    finally:
        store.close()


def test_bad_values_are_refused(store: HippocampusStore) -> None:
    for ops, said in (
        ([PutOp(("t",), "k", {"x": object()})], "object"),
        ([PutOp(("t",), "k", {}, ttl=0)], "time to live"),
        ([SearchOp(("t",), {"x": {"$like": 1}})], r"\$like"),
        ([SearchOp(("t",), limit=0)], "limit"),
        ([GetOp((*MEMORIES, "ann"), "k")], "searched only"),
        ([SearchOp(MEMORIES, query="x")], "one user"),
        ([SearchOp((*MEMORIES, "ann"))], "query"),
        ([SearchOp((*MEMORIES, "ann"), {"x": 1}, query="x")], "filters"),
        ([SearchOp((*MEMORIES, "ann"), query="x", limit=1001)], "limit"),
    ):
        with pytest.raises(ValueError, match=said):
            store.batch([PutOp(("good",), "k", {}), *ops])
    assert store.search(()) == []


# -- Vectors --------------------------------------------------------------------------------------


async def test_what_is_put_is_embedded_and_found_by_meaning(memory: Hippocampus) -> None:
    """The whole item by default; an item that is put again, or with index=False, loses its former vectors."""
    store = vector_store(memory)
    for key, value in {
        "d1": {"text": "a dog, a dog"},
        "d2": {"about": "birds and a dog"},
        "d3": {"text": "red apple", "color": "red", "score": 4.5},
        "d4": {"text": "red car", "color": "red", "score": 3.0},
        "d5": {"text": "green apple", "color": "green", "score": 10},
        "d6": {"text": "blue car", "color": "blue", "score": 3.5},
    }.items():
        await store.aput(("t",), key, value)
    found = await store.asearch(("t",), query="dog")
    assert [item.key for item in found[:2]] == ["d1", "d2"]
    scores = [item.score for item in found if item.score is not None]
    assert len(scores) == 6
    assert scores == sorted(scores, reverse=True)

    async def keys(query: str, **more: Any) -> list[str]:
        return [item.key for item in await store.asearch(("t",), query=query, **more)]

    assert await keys("apple", filter={"color": "red"}) == ["d3", "d4"]
    assert await keys("car", filter={"color": "red"}) == ["d4", "d3"]
    assert (await keys("blue", filter={"score": {"$gt": 3.2}}))[0] == "d6"
    assert await keys("apple", filter={"score": {"$gte": 4.0}, "color": "green"}) == ["d5"]
    assert await keys("dog", limit=1) + await keys("dog", limit=1, offset=1) == ["d1", "d2"]
    before = found[0].score or 0
    await store.aput(("t",), "d1", {"text": "birds"})
    (after,) = [item.score for item in await store.asearch(("t",), query="dog") if item.key == "d1"]
    assert after is not None
    assert after < before
    await store.aput(("t",), "d2", {"text": "dog"}, index=False)
    assert "d2" not in await keys("dog")
    assert len(await keys("")) == 6
    assert all(item.score is None for item in await store.asearch(("t",)))
    assert (await store.aget(("t",), "d2")) is not None


async def test_paths_make_several_vectors_and_the_best_counts(memory: Hippocampus) -> None:
    """Missing fields, nulls and blank texts have none; a put names its own paths; lists have a vector per element."""
    store = vector_store(memory, ["a", "deep.b", "many[*].t", "{x,y}"])
    embed = WordVectors()
    many = [{"t": "dog"}, {"t": " "}, {"n": 1}]
    await store.aput(("t",), "1", {"a": "apple", "deep": {"b": "car"}, "many": many, "x": None})
    await store.aput(("t",), "2", {"a": "car", "other": "bird", "many": [{"t": "text"}, {"t": "long long"}]})
    await store.aput(("t",), "3", {"other": "bird", "a": "green"}, index=["other"])
    for query, expected in (("apple", "1"), ("dog", "1"), ("long", "2"), ("text", "2"), ("bird", "3")):
        best, *rest = await store.asearch(("t",), query=query)
        assert best.key == expected
        assert best.score == pytest.approx(1, abs=1e-3)
        assert all((item.score or 0) < 0.5 for item in rest)
    # Equal texts of two items are equally near; `score` is the cosine.
    one, other, _ = await store.asearch(("t",), query="car")
    assert {one.key, other.key} == {"1", "2"}
    assert one.score == pytest.approx(other.score)
    (near,) = await store.asearch((), query="red bird", limit=1)
    left, right = embed.embed_query("red bird"), embed.embed_query("bird")
    assert near.score == pytest.approx(
        sum(a * b for a, b in zip(left, right, strict=True))
        / (sum(a * a for a in left) * sum(b * b for b in right)) ** 0.5
    )


async def test_a_batch_embeds_all_its_texts_in_one_call(memory: Hippocampus) -> None:
    """Equal texts are sent once. If the model fails, nothing of the batch is stored."""
    embed = WordVectors()
    store = HippocampusStore(memory, index={"dims": embed.dims, "embed": embed, "fields": ["a", "b"]})
    names: list[str] = []
    end = observe_statements(lambda name, _seconds, _succeeded: names.append(name))
    try:
        await store.abatch(
            [PutOp(("t",), str(number), {"a": f"apple {number % 5}", "b": "dog"}) for number in range(50)]
        )
        await store.abatch([SearchOp(("t",), query=word) for word in ("dog", "apple", "dog")])
    finally:
        end()
    assert [len(call) for call in embed.calls] == [6, 1, 1]
    assert names == ["store.put", "store.search"]
    broken = HippocampusStore(memory, index={"dims": 3, "embed": embed})
    with pytest.raises(InvalidInputError, match="10 dimensions, not of 3"):
        await broken.abatch([PutOp(("t",), "new", {}, index=False), PutOp(("t",), "x", {"a": "dog"})])
    assert await store.aget(("t",), "new") is None


@pytest.mark.parametrize("query", [" ", "\n"])
async def test_a_blank_query_lists_the_newest(memory: Hippocampus, query: str) -> None:
    """It has no vector; models refuse such a text."""
    embed = WordVectors()
    store = HippocampusStore(memory, index={"dims": embed.dims, "embed": embed})
    for key in ("first", "second"):
        await store.aput(("t",), key, {"text": "dog"})
    embed.calls.clear()
    assert [item.key for item in await store.asearch(("t",), query=query)] == ["second", "first"]
    assert embed.calls == []


async def test_text_of_any_language_with_our_own_embedder(memory: Hippocampus) -> None:
    store = HippocampusStore(memory, index={"fields": ["text"]})
    texts = {"zh": "这是中文", "ja": "これは日本語です", "ko": "이건 한국어야", "ru": "Это русский", "hi": "यह रूसी है"}
    await store.abatch([PutOp(("ann", "notes"), key, {"text": text}) for key, text in texts.items()])
    for key, text in texts.items():
        (best,) = await store.asearch(("ann",), query=text, limit=1)
        assert best.key == key
        assert best.score == pytest.approx(1, abs=1e-3)
    # Another model's vectors are never compared with these.
    other = HippocampusStore(memory, index={"dims": 2, "embed": lambda texts: [[1.0, 0.0] for _ in texts]})
    assert await other.asearch(("ann",), query="中文") == []


async def test_embedding_functions_and_their_names(memory: Hippocampus, pool: asyncpg.Pool) -> None:
    """A model's name is in the database with its dimensions, so that two are never compared."""

    async def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, float(len(text))] for text in texts]

    for index in (
        {"dims": 2, "embed": embed, "model": "mine"},
        {"dims": 2, "embed": embed},
        {"dims": WordVectors.dims, "embed": WordVectors()},
        {},
    ):
        store = HippocampusStore(memory, index=index)  # type: ignore[arg-type]
        await store.aput(("t",), str(index), {"text": "dog"})
        (found,) = await store.asearch(("t",), query="dog")
        assert found.key == str(index)
    models = {row["model"] for row in await pool.fetch("SELECT model FROM item_vectors")}
    name = "test_embedding_functions_and_their_names.<locals>.embed@2"
    assert models == {"mine@2", name, f"WordVectors:words@{WordVectors.dims}", memory.embedder.model}  # type: ignore[union-attr]
    for wrong, said in (
        ({"dims": 2, "embed": embed, "distance_type": "l2"}, "cosine"),
        ({"embed": embed}, "dims"),
        ({"dims": 0, "embed": embed}, "dims"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            HippocampusStore(memory, index=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="no embedder"):
        HippocampusStore(Hippocampus(pool, app="shop", embedder=None), index={})


# -- Time to live ---------------------------------------------------------------------------------


async def test_items_expire_as_langgraph_describes_it(dsn: str) -> None:
    """Reads let the time begin again unless they say otherwise; expired items are found until the sweep, or omitted."""
    async with await database.create_pool(dsn, min_size=1, max_size=1) as clocked:
        await clocked.execute("INSERT INTO engine_settings VALUES ('test_clock', 'true')")

        async def travel(minutes: float) -> None:
            moment = str(NOW + timedelta(minutes=minutes))
            await clocked.execute("SELECT set_config('hippocampus.fake_time', $1, false)", moment)

        await travel(0)
        memory = Hippocampus(clocked, app="shop")
        store = HippocampusStore(memory, ttl={"default_ttl": 10, "refresh_on_read": True})
        strict = HippocampusStore(memory, ttl={"refresh_on_read": False, "omit_expired": True})
        assert store.supports_ttl
        await store.aput(("t",), "default", {"a": 1})
        await store.aput(("t",), "own", {"a": 1}, ttl=100.5)
        await store.aput(("t",), "never", {"a": 1}, ttl=None)
        await travel(9)
        assert await store.aget(("t",), "default")
        await travel(18)
        assert len(await store.asearch(("t",), query="a")) == 3
        await travel(27)
        assert await store.aget(("t",), "default", refresh_ttl=False)
        assert await strict.aget(("t",), "default")
        await travel(29)
        assert await store.aget(("t",), "default", refresh_ttl=False)
        assert await strict.aget(("t",), "default") is None
        assert len(await strict.asearch(("t",))) == 2
        assert await store.sweep_ttl() == 1
        assert await store.aget(("t",), "default", refresh_ttl=False) is None
        await travel(118.4)
        assert {item.key for item in await strict.asearch(("t",))} == {"own", "never"}
        await travel(118.6)
        assert [item.key for item in await strict.asearch(("t",))] == ["never"]
        assert await strict.alist_namespaces() == [("t",)]


# -- Memory, users, threads -----------------------------------------------------------------------


async def test_memory_is_searched_below_a_read_only_root(memory: Hippocampus) -> None:
    """What was just said is found, of this user only; items are not."""
    store = HippocampusStore(memory)
    mail = "ann@example.com"
    for number in range(3):
        await memory.add(mail, f"I have {number} allergies to peanuts.", session="s")
    await memory.add("ben", "I'm allergic to peanuts too.")
    await store.aput(("users", user_label(mail)), "k", {"text": "peanuts"})
    namespace = (*MEMORIES, user_label(mail))
    found = await store.asearch(namespace, query="peanuts")
    assert sorted(item.value["content"] for item in found) == [f"I have {n} allergies to peanuts." for n in range(3)]
    first = found[0]
    assert (first.namespace, first.value["source"], first.value["session_id"]) == (namespace, "message", "s")
    assert 0 < (first.score or 0) <= 1
    assert (await store.asearch(namespace, query="peanuts", limit=1, offset=1))[0].key == found[1].key
    assert [item.key for item in await store.asearch((), query="peanuts")] == ["k"]
    assert (await memory.erasure.erase_user("shop", mail)).is_complete
    assert await store.asearch(namespace, query="peanuts") == []
    assert await store.asearch(()) == []


async def test_langgraphs_own_store_works_beside_ours(memory: Hippocampus, dsn: str) -> None:
    """Its tables have other names, so that items can be moved from one to the other in one database."""
    embed = WordVectors()
    ours = vector_store(memory)
    async with AsyncPostgresStore.from_conn_string(dsn, index={"dims": embed.dims, "embed": embed}) as theirs:
        await theirs.setup()
        for store, key in ((ours, "ours"), (theirs, "theirs")):
            await store.aput(("t",), key, {"text": "dog"})
            assert [item.key for item in await store.asearch(("t",), query="dog")] == [key]


async def test_calls_without_await_work_where_a_loop_runs(memory: Hippocampus) -> None:
    """Made from a URL: in the loop's own thread and in others at once, with connections of its own."""
    store = HippocampusStore(memory)
    try:
        store.put(("t",), "loop", {})
        await asyncio.gather(*(asyncio.to_thread(store.put, ("t",), str(number), {}) for number in range(20)))
        assert len(await store.asearch(("t",), limit=50)) == 21
        with pytest.raises(InvalidInputError):
            store.search(("t",), limit=0)
    finally:
        store.close()
        store.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "hippocampus-store"]
    store.put(("t",), "after", {})
    store.close()


async def test_calls_without_await_reach_the_schema_that_was_given(dsn: str) -> None:
    """Beside the same tables in another schema of the database."""
    await migrate(dsn, schema="second")
    async with Hippocampus(dsn, app="shop", schema="second", embedder=None) as memory:
        store = HippocampusStore(memory)
        try:
            await asyncio.to_thread(store.put, ("t",), "sync", {})
            await store.aput(("t",), "async", {})
            assert {item.key for item in await store.asearch(("t",))} == {"sync", "async"}
            assert {item.key for item in await asyncio.to_thread(store.search, ("t",))} == {"sync", "async"}
        finally:
            store.close()


async def test_calls_without_await_use_the_loop_of_a_given_pool(pool: asyncpg.Pool) -> None:
    """From other threads; in the loop's own thread they would wait for themselves, and raise instead."""
    store = HippocampusStore(Hippocampus(pool, app="shop"))
    await asyncio.to_thread(store.put, ("t",), "k", {"n": 1})
    item = await asyncio.to_thread(store.get, ("t",), "k")
    assert item is not None
    assert item.value == {"n": 1}
    with pytest.raises(asyncio.InvalidStateError, match="await aget"):
        store.get(("t",), "k")
    unstarted = await asyncio.to_thread(HippocampusStore, Hippocampus(pool, app="shop"))
    with pytest.raises(PulseError, match="from a URL"):
        await asyncio.to_thread(unstarted.get, ("t",), "k")
