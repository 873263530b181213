"""LangGraph's own tests of stores, as its source distributions ship them, on ours.

Run by `tests/system/test_langgraph_cases.py`, with CASES naming one of their modules below PYTHONPATH, and DATABASE_URL
a migrated database. Their cases are not changed: the fixtures, and the names that make their stores, are ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row

from hippocampus import Hippocampus
from hippocampus.integrations.langgraph import HippocampusStore

DSN = os.environ["DATABASE_URL"]
theirs: Any = importlib.import_module(os.environ["CASES"])
OF_MEMORY = hasattr(theirs, "InMemoryStore")
IS_ASYNC = hasattr(theirs, "AsyncPostgresStore")
#: Helpers, statements and connections of their stores, which another store does not have.
INTERNALS = {
    "test_escape_like_literal",
    "test_namespace_match_pattern",
    "test_nonnull_migrations",
    "test_abatch_uses_single_pool_checkout",
    "test_async_batch_store",
    "test_async_batch_store_handles_cancellation",
    "test_dedupe_ops_maps_repeated_reads_and_puts_to_one_op",
    "test_get_text_at_path",
    "test_get_text_at_path_with_non_dict_mapping",
    "test_validate_op_namespace_rejects_invalid_labels",
    "test_validate_op_namespace_allows_empty_prefix_and_wildcards",
}
#: What some cases read and write of their table.
VIEW = """
    CREATE TEMPORARY VIEW store AS
    SELECT array_to_string(namespace, '.') AS prefix, key, expires_at, updated_at
    FROM store_items WHERE app_name = {}"""

for _name, _case in vars(theirs).items():
    if _name.startswith("test_") and _name not in INTERNALS:
        globals()[_name] = _case


class Ours(HippocampusStore):
    """Our store, made as theirs are, with what the cases use of theirs beside the interface."""

    #: What the stores of one case are made from: each an app of its own.
    unused: Iterator[Hippocampus]

    def __init__(self, memory: Hippocampus | None = None, *, index: Any = None, ttl: Any = None) -> None:
        self.memory = memory or next(self.unused)
        super().__init__(self.memory, index=index, ttl=ttl)
        self._sweeper: threading.Thread | None = None
        self._stopped = threading.Event()

    def start_ttl_sweeper(self) -> Any:
        """Delete what has expired, as the workers do."""
        if self._sweeper is None:
            self._stopped.clear()
            self._sweeper = threading.Thread(target=self._sweep)
            self._sweeper.start()
        return asyncio.sleep(0) if IS_ASYNC else None

    def stop_ttl_sweeper(self) -> Any:
        if self._sweeper is not None:
            self._stopped.set()
            self._sweeper.join()
            self._sweeper = None
        return asyncio.sleep(0) if IS_ASYNC else None

    def _sweep(self) -> None:
        with psycopg.connect(DSN, autocommit=True) as connection:
            while not self._stopped.wait(0.2):
                connection.execute("SELECT expire_store_items(1000)")

    def _cursor(self) -> Any:
        return self._async_cursor() if IS_ASYNC else self._sync_cursor()

    @contextlib.contextmanager
    def _sync_cursor(self) -> Iterator[Any]:
        with psycopg.connect(DSN, autocommit=True, row_factory=dict_row) as connection:
            connection.execute(sql.SQL(VIEW).format(self.memory.app))
            yield connection.cursor()

    @contextlib.asynccontextmanager
    async def _async_cursor(self) -> AsyncIterator[Any]:
        connection = await psycopg.AsyncConnection.connect(DSN, autocommit=True, row_factory=dict_row)
        async with connection:
            await connection.execute(sql.SQL(VIEW).format(self.memory.app))
            yield connection.cursor()


@contextlib.contextmanager
def opened(memory: Hippocampus | None = None, **settings: Any) -> Iterator[Ours]:
    store = Ours(memory, **settings)
    try:
        yield store
    finally:
        store.stop_ttl_sweeper()
        store.close()


@contextlib.contextmanager
def make_vector_store(
    _vector_type: str,
    _distance_type: str,
    embeddings: Any,
    text_fields: list[str] | None = None,
    enable_ttl: bool = True,
) -> Iterator[Ours]:
    ttl = {"default_ttl": 2, "refresh_on_read": True} if enable_ttl else None
    with opened(index={"dims": embeddings.dims, "embed": embeddings, "fields": text_fields}, ttl=ttl) as store:
        yield store


@contextlib.asynccontextmanager
async def make_async_vector_store(*arguments: Any, **named: Any) -> AsyncIterator[Ours]:
    with make_vector_store(*arguments, **named, enable_ttl=False) as store:
        yield store


@pytest.fixture(autouse=True)
async def memory() -> AsyncIterator[Hippocampus]:
    made = [Hippocampus(DSN, app=uuid.uuid4().hex, embedder=None) for _ in range(2)]
    async with made[0], made[1]:
        Ours.unused = iter(made)
        yield made[0]


@pytest.fixture
def fake_embeddings() -> Any:
    return theirs.CharacterEmbeddings(dims=500)


if OF_MEMORY:
    theirs.InMemoryStore = Ours
else:
    theirs._create_vector_store = make_async_vector_store if IS_ASYNC else make_vector_store
    vector_store = theirs.vector_store

    @pytest.fixture(params=["url", "pool"] if IS_ASYNC else ["url"])
    async def store(request: pytest.FixtureRequest, memory: Hippocampus) -> AsyncIterator[Ours]:
        made = Hippocampus(memory.pool, app=memory.app, embedder=None) if request.param == "pool" else memory
        ttl = {"default_ttl": theirs.TTL_MINUTES, "refresh_on_read": True}
        with opened(made, ttl=ttl) as each:
            each.start_ttl_sweeper()
            yield each
