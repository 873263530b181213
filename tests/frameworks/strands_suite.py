"""The memory store of Strands Agents, in its own manager and agent. Run by `tests/system/test_frameworks.py`.

strands-agents needs an older mcp than this checkout's, so that it has a virtual environment of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from strands import Agent
from strands.memory import AddMessagesContext, AggregateMemoryError, MemoryEntry, MemoryManager, MemoryStore
from strands.models import Model

from hippocampus import Hippocampus
from hippocampus.integrations.strands import HippocampusMemoryStore
from pulse import InvalidInputError, database


class Echo(Model):
    """A model that answers with the text of its last message, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def update_config(self, **_config: Any) -> None:
        return

    def get_config(self) -> Any:
        return {}

    async def structured_output(self, *_arguments: Any, **_named: Any) -> AsyncIterator[Any]:
        raise NotImplementedError
        yield

    async def stream(self, messages: Any, *_arguments: Any, **_named: Any) -> AsyncIterator[Any]:
        self.asked.append(str(messages))
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockDelta": {"delta": {"text": f"Noted: {messages[-1]['content'][-1]['text']}"}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


@pytest.fixture
async def store(pool: asyncpg.Pool) -> HippocampusMemoryStore:
    return HippocampusMemoryStore(pool, app="shop", user="ann", session="s")


async def turns(pool: asyncpg.Pool) -> list[tuple[str, str]]:
    rows = await pool.fetch("SELECT role::text, content FROM messages ORDER BY thread_id, sequence_num")
    return [(row["role"], row["content"]) for row in rows]


async def test_an_agent_remembers_what_was_said_in_another_session(dsn: str, pool: asyncpg.Pool) -> None:
    """Each invocation is appended; a later agent of the same user gets it injected, another user's does not."""
    store = HippocampusMemoryStore(dsn, app="shop", user="ann")
    manager = MemoryManager(stores=[store])
    await Agent(model=Echo(), memory_manager=manager, callback_handler=None).invoke_async("My cat is called Miso.")
    await manager.flush()
    assert await turns(pool) == [("user", "My cat is called Miso."), ("assistant", "Noted: My cat is called Miso.")]
    for user, knows in (("ann", True), ("ben", False)):
        other = HippocampusMemoryStore(dsn, app="shop", user=user)
        model, manager = Echo(), MemoryManager(stores=[other], add_tool_config=True)
        await Agent(model=model, memory_manager=manager, callback_handler=None).invoke_async("What is my cat called?")
        await manager.flush()
        assert ("Miso" in model.asked[0]) is knows
        await other.close()
    await store.close()


def test_an_agent_without_an_event_loop_is_served(dsn: str) -> None:
    """Strands starts a loop for each call; what was said is stored when the call has returned and was flushed."""
    store = HippocampusMemoryStore(dsn, app="shop", user="ann", session="s")
    manager = MemoryManager(stores=[store])
    agent = Agent(model=Echo(), memory_manager=manager, callback_handler=None)
    agent("My cat is called Miso.")
    agent("My dog is called Kurt.")
    asyncio.run(manager.flush())

    async def read() -> list[tuple[str, str]]:
        connection = await database.connect(dsn)
        try:
            return await turns(connection)
        finally:
            await connection.close()

    assert [text for role, text in asyncio.run(read()) if role == "user"] == [
        "My cat is called Miso.",
        "My dog is called Kurt.",
    ]


async def test_the_store_keeps_the_contract(store: Any, pool: asyncpg.Pool) -> None:
    manager = MemoryManager(stores=[store], add_tool_config=True)
    await manager.add("The user prefers aisle seats.", {"metadata": {"source": "form"}})
    await store.add("The user prefers aisle seats.", {"source": "form"})
    (entry,) = await manager.search("aisle seats")
    assert isinstance(entry, MemoryEntry)
    assert (entry.content, entry.store_name) == ("The user prefers aisle seats.", "hippocampus")
    assert entry.metadata is not None
    assert entry.metadata["source"] == "form"
    assert entry.metadata["hippocampus"]["kind"] == "semantic"
    await asyncio.gather(*(store.add(f"The user has flown to aisle {number}.") for number in range(4)))
    assert [len(await store.search("aisle", {"max_search_results": n} if n else None)) for n in (1, 3, 0)] == [1, 3, 5]
    assert await store.search(" \0 ") == []
    assert await store.search("aisle " * 5000)
    with pytest.raises(InvalidInputError):
        await store.add(" ")
    with pytest.raises(AggregateMemoryError):
        await manager.add("a", {"metadata": {"x": object()}})
    protocol: MemoryStore = store
    assert protocol.writable


async def test_a_batch_that_is_repeated_after_an_error_is_stored_once(store: Any, pool: asyncpg.Pool) -> None:
    """Also if the first attempt was stored and its reply was lost; the same words said again are stored again."""
    batch: Any = [
        {"role": "user", "content": [{"text": "ok"}, {"image": {"format": "png", "source": {"bytes": b"x"}}}]},
        {"role": "assistant", "content": [{"reasoningContent": {"reasoningText": {"text": "hm"}}}]},
        {"role": "user", "content": [{"text": "ok"}]},
    ]
    run = store._run

    async def lost(work: Any) -> None:
        await run(work)
        raise ConnectionError("the reply was lost")

    store._run = lost
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await store.add_messages(batch, AddMessagesContext(sequence_numbers=[0, 1, 2]))
    store._run = run
    await store.add_messages(batch, AddMessagesContext(sequence_numbers=[0, 1, 2]))
    assert await turns(pool) == [("user", "ok")] * 2
    # Another agent with the same store, whose numbers begin again.
    await store.add_messages(batch[:1], AddMessagesContext(sequence_numbers=[0]))
    await store.add_messages(batch[:1])
    assert await turns(pool) == [("user", "ok")] * 4
    assert [each.content for each in await Hippocampus(pool, app="shop").search("ann", "ok")] == ["ok"] * 4
