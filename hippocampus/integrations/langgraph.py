"""LangGraph's long-term store on Hippocampus."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar

from hippocampus.integrations.extras import missing_library

try:
    from langchain_core.embeddings import Embeddings
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        InvalidNamespaceError,
        Item,
        ListNamespacesOp,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        TTLConfig,
        ensure_embeddings,
        get_text_at_path,
        tokenize_path,
        validate_op_namespace,
    )
except ModuleNotFoundError as error:
    raise missing_library("langgraph", error) from error

from typing_extensions import override

from hippocampus.search import LIMIT_MAX as MEMORIES_MAX
from hippocampus.search import MemorySearch, SearchMemoryResult
from hippocampus.store.service import Get, ItemStore, ListNamespaces, Put, Search, StoredItem, user_of
from pulse.errors import InvalidInputError, PulseError
from pulse.loop_pools import LoopPools
from pulse.postgres.statements import without_secrets

if TYPE_CHECKING:
    from hippocampus.engine import Hippocampus
    from hippocampus.providers.protocols import Embedder
    from hippocampus.records import Vector
    from pulse.database import Pool

__all__ = ["MEMORIES", "HippocampusStore", "StoreIndex"]

#: ``(*MEMORIES, user_label(U))`` is user U's memory: it can be searched, and not written.
MEMORIES: Final = ("hippocampus", "memories")
_EXTRA_KEYS = frozenset({"dims", "embed", "fields", "model"})
_SECONDS_PER_MINUTE = 60

Done = TypeVar("Done")


class StoreIndex(TypedDict, total=False):
    """What is embedded, and by what: LangGraph's own ``index``, with `model`.

    Attributes:
        dims: the size of the vectors of `embed`.
        embed: LangChain embeddings, a function, or ``provider:model``; without it, the embedder of the `Hippocampus`
            object.
        fields: paths of the texts in an item, such as ``$`` (the whole item, the default), ``a.b``, ``x[*].t``.
        model: what `embed` is called in the database. Vectors of two names are never compared. The default is made of
            what `embed` says of itself.
    """

    dims: int
    embed: Any
    fields: list[str] | None
    model: str


class HippocampusStore(BaseStore):
    """LangGraph's ``BaseStore``: items in namespaces, exact, replaced by key, with filters, time to live and vectors::

        async with Hippocampus("postgresql://localhost/agents", app="shop") as memory:
            store = HippocampusStore(memory, index={"fields": ["text"]})
            graph = builder.compile(store=store, checkpointer=checkpointer)

    Items below ``("users", user_label(U))`` belong to user U, and are erased with that user. Below `MEMORIES` are the
    memories, facts and turns that `Hippocampus` holds of a user: ``search((*MEMORIES, "ann"), query="…")``.

    The methods that begin with ``a`` use the object's pool, in its event loop. The others may be called from any
    thread. If the object was made from a URL, they run in a thread of the store with its own connections, even
    where an event loop runs, which they block; `close` ends it. If it was made from a pool, they run in the pool's
    loop, and raise `asyncio.InvalidStateError` there.

    Raises, from every method:
        InvalidNamespaceError: a label is empty, or holds a period or U+0000; a write to `MEMORIES`; from `put` and
            `aput`, the root ``langgraph``.
        InvalidInputError: another argument is out of its bounds (a ValueError); nothing was changed.
    """

    supports_ttl = True

    def __init__(self, memory: Hippocampus, *, index: StoreIndex | None = None, ttl: TTLConfig | None = None) -> None:
        """Serve the app of a `Hippocampus` object, which stays the caller's to close.

        Args:
            index: None: items have no vectors, and the query of a search has no effect.
            ttl: in minutes. ``default_ttl``, ``refresh_on_read`` and ``omit_expired`` are as LangGraph describes them;
                the workers delete expired items every minute, whatever ``sweep_interval_minutes`` says.

        Raises:
            InvalidInputError: `index` cannot be used.
        """
        self.ttl_config = ttl
        #: As in LangGraph's own stores.
        self.index_config = index
        self._memory = memory
        self._index = None if index is None else _make_index(index, memory.embedder)
        self._own = _OwnLoop()
        self._home: asyncio.AbstractEventLoop | None = None
        with contextlib.suppress(RuntimeError):
            self._home = asyncio.get_running_loop()

    @override
    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Execute operations: the reads first, then the writes, in at most one round trip for each kind."""
        pool = self._memory.pool
        self._home = asyncio.get_running_loop()
        return await self._execute(pool, list(ops))

    @override
    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Execute operations from any thread; see the class."""
        wanted = list(ops)
        return self._wait(lambda pool: self._execute(pool, wanted))

    async def sweep_ttl(self) -> int:
        """Delete items whose time to live is over, as the workers do; return how many."""
        return await _sweep(self._memory.pool, self._memory.app)

    def close(self) -> None:
        """End the thread of calls without ``await``, and its connections. Idempotent; a later call starts it again."""
        self._own.close()

    def _wait(self, work: Callable[[Pool], Awaitable[Done]]) -> Done:
        if (dsn := self._memory.dsn) is not None:
            return self._own.run(dsn, self._memory.schema, work)
        home = self._home
        if home is None or not home.is_running():
            raise PulseError(
                "the loop of this store's pool does not run: make Hippocampus from a URL to use the store without one"
            )
        with contextlib.suppress(RuntimeError):
            if asyncio.get_running_loop() is home:
                raise asyncio.InvalidStateError(
                    "a call without await in the event loop of the store's pool would wait for itself: await aget,"
                    " aput, asearch, adelete or abatch, or make Hippocampus from a URL"
                )
        return asyncio.run_coroutine_threadsafe(_awaited(work(self._memory.pool)), home).result()

    async def _execute(self, pool: Pool, ops: Sequence[Op]) -> list[Result]:
        for op in ops:
            _check(op)
        # All vectors first: no connection is held while a model is called, and nothing is written if it fails.
        vectors = _Embedded() if self._index is None else await self._index.embed(pool, self._memory.app, ops)
        omit_expired = bool(self.ttl_config and self.ttl_config.get("omit_expired"))
        items = ItemStore(pool, self._memory.app, omit_expired=omit_expired)
        model = self._index.model if self._index else None
        results: list[Result] = [None] * len(ops)

        gets = [(place, op) for place, op in enumerate(ops) if isinstance(op, GetOp)]
        found = await items.get_many([Get(op.namespace, op.key, op.refresh_ttl) for _, op in gets])
        for (place, _), item in zip(gets, found, strict=True):
            results[place] = None if item is None else Item(**_fields(item))

        searches = [(place, op) for place, op in enumerate(ops) if isinstance(op, SearchOp)]
        memories = [(place, op) for place, op in searches if _is_memory(op.namespace_prefix)]
        searches = [(place, op) for place, op in searches if not _is_memory(op.namespace_prefix)]
        listed = await items.search_many(
            [
                Search(
                    each.namespace_prefix,
                    each.filter,
                    each.limit,
                    each.offset,
                    vectors.queries.get(each.query),
                    each.refresh_ttl,
                )
                for _, each in searches
            ],
            model=model,
        )
        for (place, _), each in zip(searches, listed, strict=True):
            results[place] = [SearchItem(**_fields(item), score=item.score) for item in each]
        search = MemorySearch(pool, self._memory.embedder)
        for place, op in memories:
            results[place] = await _search_memory(search, self._memory.app, op)

        lists = [(place, op) for place, op in enumerate(ops) if isinstance(op, ListNamespacesOp)]
        namespaces = await items.list_namespaces_many([_list(op) for _, op in lists])
        for (place, _), names in zip(lists, namespaces, strict=True):
            results[place] = names

        puts = [(place, op) for place, op in enumerate(ops) if isinstance(op, PutOp)]
        await items.put_many(
            [
                Put(
                    op.namespace,
                    op.key,
                    op.value,
                    None if op.ttl is None else op.ttl * _SECONDS_PER_MINUTE,
                    vectors.items.get(place, {}),
                )
                for place, op in puts
            ],
            model=model,
        )
        return results


class _Embedded:
    """The vectors of a batch: of items by their operation's place and path, of queries by their text."""

    def __init__(self) -> None:
        self.items: dict[int, dict[str, Vector]] = {}
        self.queries: dict[str | None, Vector] = {}


class _Index:
    """Embeds what a batch of operations needs: all texts in one call, each of its queries in one."""

    def __init__(
        self,
        model: str,
        fields: Sequence[str],
        documents: Callable[[list[str]], Awaitable[Sequence[Sequence[float]]]],
        query: Callable[[str], Awaitable[Sequence[float]]],
        dims: int | None,
    ) -> None:
        self.model = model
        self._fields = [(field, tokenize_path(field)) for field in fields]
        self._documents = documents
        self._query = query
        self._dims = dims

    async def embed(self, pool: Pool, app: str, ops: Sequence[Op]) -> _Embedded:
        places: list[tuple[int, str, str]] = []
        for place, op in enumerate(ops):
            if isinstance(op, PutOp) and op.value is not None and op.index is not False:
                places.extend((place, path, text) for path, text in self._texts(op.value, op.index))
        queries = {
            op.query
            for op in ops
            if isinstance(op, SearchOp) and op.query and op.query.strip() and not _is_memory(op.namespace_prefix)
        }
        embedded = _Embedded()
        if places:
            # One text may be in several places.
            texts = list(dict.fromkeys(text for _, _, text in places))
            vectors = await self._documents(await without_secrets(pool, app, texts))
            if len(vectors) != len(texts):
                raise InvalidInputError(f"{self.model} returned {len(vectors)} vectors for {len(texts)} texts")
            by_text = dict(zip(texts, map(self._checked, vectors), strict=True))
            for place, path, text in places:
                embedded.items.setdefault(place, {})[path] = by_text[text]
        found = await asyncio.gather(*map(self._query, await without_secrets(pool, app, list(queries))))
        embedded.queries = dict(zip(queries, map(self._checked, found), strict=True))
        return embedded

    def _texts(self, value: Mapping[str, Any], paths: Sequence[str] | None) -> Iterable[tuple[str, str]]:
        tokenized = self._fields if paths is None else [(path, tokenize_path(path)) for path in paths]
        for path, tokens in tokenized:
            texts = get_text_at_path(value, path if path == "$" else tokens)
            for number, text in enumerate(texts):
                if text.strip():
                    yield (path if len(texts) == 1 else f"{path}.{number}"), text

    def _checked(self, vector: Sequence[float]) -> Vector:
        if self._dims is not None and len(vector) != self._dims:
            raise InvalidInputError(f"{self.model} returned a vector of {len(vector)} dimensions, not of {self._dims}")
        return list(map(float, vector))


def _make_index(given: StoreIndex, embedder: Embedder | None) -> _Index:
    if unknown := given.keys() - _EXTRA_KEYS:
        raise InvalidInputError(
            f"index takes {', '.join(sorted(_EXTRA_KEYS))}, not {', '.join(sorted(unknown))}: similarity is the cosine,"
            " and no vector index has to be configured"
        )
    fields = given.get("fields") or ["$"]
    if given.get("embed") is None:
        if embedder is None:
            raise InvalidInputError("index needs embed, because this Hippocampus object has no embedder")
        own = embedder

        async def embed_documents(texts: list[str]) -> Sequence[Sequence[float]]:
            return await own.embed(texts, "document")

        async def embed_query(text: str) -> Sequence[float]:
            (vector,) = await own.embed([text], "query")
            return vector

        return _Index(own.model, fields, embed_documents, embed_query, given.get("dims"))
    dims = given.get("dims")
    if not isinstance(dims, int) or dims < 1:
        raise InvalidInputError(f"index needs dims, the dimensions of the vectors of embed, not {dims!r}")
    embeddings = ensure_embeddings(given["embed"])
    name = given.get("model") or _name(given["embed"])
    # Two sizes of one model must not be compared.
    return _Index(f"{name}@{dims}", fields, embeddings.aembed_documents, embeddings.aembed_query, dims)


def _name(embed: Any) -> str:
    """Return what is stored as the model of an `embed` without a name."""
    if isinstance(embed, str):
        return embed
    if isinstance(embed, Embeddings):
        model = getattr(embed, "model", None) or getattr(embed, "model_name", None)
        return f"{type(embed).__qualname__}:{model}" if isinstance(model, str) else type(embed).__qualname__
    return str(getattr(embed, "__qualname__", type(embed).__qualname__))


class _OwnLoop:
    """An event loop in a thread of its own, with connections of its own, for callers that do not await."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pools: LoopPools | None = None

    def run(self, dsn: str, schema: str | None, work: Callable[[Pool], Awaitable[Done]]) -> Done:
        """Return what `work` returns, and raise what it raises."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                # It ends with the program, even if it is never closed.
                self._thread = threading.Thread(
                    target=_serve, args=(self._loop,), name="hippocampus-store", daemon=True
                )
                self._thread.start()
                self._pools = LoopPools(dsn, schema=schema)
            loop, pools = self._loop, self._pools
        assert pools is not None  # noqa: S101  # made with the loop
        return asyncio.run_coroutine_threadsafe(pools.run(work), loop).result()

    def close(self) -> None:
        """Close the connections and end the thread. Idempotent."""
        with self._lock:
            loop, thread, pools = self._loop, self._thread, self._pools
            self._loop = self._thread = self._pools = None
        if loop is None or thread is None or pools is None:
            return
        asyncio.run_coroutine_threadsafe(pools.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()


def _awaited(work: Awaitable[Done]) -> Coroutine[Any, Any, Done]:
    async def wait() -> Done:
        return await work

    return wait()


def _check(op: Op) -> None:
    """Refuse an operation before any is executed."""
    validate_op_namespace(op)
    if isinstance(op, PutOp):
        # `put` refuses the root ``langgraph``, which is for LangGraph itself: a batch may write there.
        if not op.namespace:
            raise InvalidNamespaceError("an item needs a namespace of at least one label, not ()")
        if _is_memory(op.namespace):
            raise InvalidNamespaceError(
                f"{MEMORIES!r} cannot be written, it answers from memory: use Hippocampus.add or remember. Got:"
                f" {tuple(op.namespace)!r}"
            )
    elif isinstance(op, GetOp) and _is_memory(op.namespace):
        raise InvalidNamespaceError(f"{MEMORIES!r} can be searched only. Got: {tuple(op.namespace)!r}")
    elif isinstance(op, SearchOp) and _is_memory(op.namespace_prefix):
        if len(op.namespace_prefix) != len(MEMORIES) + 1:
            raise InvalidNamespaceError(
                f"{MEMORIES!r} is searched for one user: (*MEMORIES, user_label(user)). Got:"
                f" {tuple(op.namespace_prefix)!r}"
            )
        if op.filter:
            raise InvalidInputError(f"{MEMORIES!r} has no filters: filter what is found, or use Hippocampus.search")
        if not op.query:
            raise InvalidInputError(f"{MEMORIES!r} is searched with a query; Hippocampus.memory lists without one")


def _is_memory(namespace: Sequence[str]) -> bool:
    return tuple(namespace[: len(MEMORIES)]) == MEMORIES


async def _search_memory(search: MemorySearch, app: str, op: SearchOp) -> list[SearchItem]:
    upto = op.offset + op.limit
    if not 1 <= op.limit <= upto <= MEMORIES_MAX:
        raise InvalidInputError(f"limit and offset reach the first {MEMORIES_MAX} memories, not {upto}")
    user = user_of(op.namespace_prefix[-1])
    found = await search.search(app_name=app, user_id=user, query=op.query or "", limit=upto)
    return [_memory_item(tuple(op.namespace_prefix), each) for each in found.memories[op.offset :]]


def _memory_item(namespace: tuple[str, ...], found: SearchMemoryResult) -> SearchItem:
    said = found.occurred_at
    assert said is not None  # noqa: S101  # every row of a search has its time
    value = {
        "content": found.content,
        "kind": found.memory_type,
        "source": found.source,
        "session_id": found.session_id,
        "metadata": dict(found.metadata),
    }
    return SearchItem(namespace, str(found.memory_id), value, said, said, found.relevance_score)


def _fields(item: StoredItem) -> dict[str, Any]:
    return {
        "namespace": item.namespace,
        "key": item.key,
        "value": dict(item.value),
        "created_at": item.created_at,
        "updated_at": item.updated_at,
    }


def _list(op: ListNamespacesOp) -> ListNamespaces:
    conditions = op.match_conditions or ()
    by_kind = {
        kind: [tuple(each.path) for each in conditions if each.match_type == kind and each.path]
        for kind in ("prefix", "suffix")
    }
    return ListNamespaces(by_kind["prefix"], by_kind["suffix"], op.max_depth, op.limit, op.offset)


async def _sweep(pool: Pool, app: str) -> int:
    items, total = ItemStore(pool, app), 0
    while count := await items.expire():
        total += count
    return total
