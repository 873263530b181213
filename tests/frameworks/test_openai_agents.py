"""The session of the OpenAI Agents SDK: items come back exactly, what was said is remembered, and can be taken back."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from hippocampus import Hippocampus, LocalEmbedder, MemoryConsolidationWorker
from hippocampus.providers.local.provider import LocalGenerator
from pulse import Event, InvalidInputError
from tests.support.queue_claims import work_off

SAID: Any = {"role": "user", "content": "My sister Noor lives in Bergen."}
ITEMS: list[Any] = [
    {"role": "system", "content": "Be kind."},
    SAID,
    {"role": "user", "content": [{"type": "input_text", "text": "See:"}, {"type": "input_image", "image_url": "u"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "a\0\ud800"},
    {"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"n": 1e22}', "id": "__fake_id__"},
    {"type": "function_call_output", "call_id": "c", "output": "a secret of the tool"},
    {
        "type": "message",
        "role": "assistant",
        "id": "msg_1",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Noted: Bergen.", "annotations": [], "logprobs": []}],
    },
    {"role": "user", "content": "  "},
    {"role": "user", "content": "ok\0"},
    {"role": "user", "content": "ok\0"},
    {"type": "compaction", "$hippocampus": ["deleted"], "nested": [{"x": None, "y": -0.0, "z": True}]},
]


@pytest.fixture
def memory(pool: asyncpg.Pool) -> Hippocampus:
    return Hippocampus(pool, app="shop")


async def found(memory: Hippocampus, query: str) -> list[str]:
    return [each.content for each in await memory.search("ann", query)]


@pytest.mark.parametrize("kind", ["theirs", "ours"])
async def test_items_are_kept_as_in_the_session_of_the_sdk(kind: str, memory: Hippocampus) -> None:
    """The same calls on SQLiteSession and on ours."""
    from agents import SessionSettings, SQLiteSession
    from agents.memory import Session

    from hippocampus.integrations.openai_agents import HippocampusSession

    session: Session = SQLiteSession("s") if kind == "theirs" else HippocampusSession(memory, "ann", "s")
    assert isinstance(session, Session)
    assert (await session.get_items(), await session.pop_item()) == ([], None)
    await session.clear_session()
    await session.add_items([])
    await session.add_items(ITEMS[:3])
    await session.add_items(ITEMS[3:])
    assert await session.get_items() == ITEMS
    assert [await session.get_items(limit) for limit in (1, 4, 99, 0)] == [ITEMS[-1:], ITEMS[-4:], ITEMS, []]
    session.session_settings = SessionSettings(limit=2)
    assert (await session.get_items(), await session.get_items(3)) == (ITEMS[-2:], ITEMS[-3:])
    session.session_settings = None
    assert [await session.pop_item() for _ in range(2)] == ITEMS[:-3:-1]
    assert await session.get_items() == ITEMS[:-2]
    await session.add_items(ITEMS[-1:])
    assert await session.get_items(2) == [ITEMS[-3], ITEMS[-1]]
    await session.clear_session()
    assert await session.get_items() == []
    await session.add_items([SAID])
    assert (await session.pop_item(), await session.pop_item(), await session.get_items()) == (SAID, None, [])


async def test_what_was_said_is_remembered_until_it_is_popped_or_cleared(
    memory: Hippocampus, pool: asyncpg.Pool
) -> None:
    """Texts of users and assistants are turns. What was extracted from a popped or cleared one goes with it."""
    from hippocampus.integrations.openai_agents import HippocampusSession

    worker = MemoryConsolidationWorker(pool, LocalGenerator(), LocalEmbedder())
    session = HippocampusSession(memory, "ann", "s")
    await session.add_items(ITEMS[:7])
    assert set(await found(memory, "Bergen Noor secret kind See")) == {SAID["content"], "See:", "Noted: Bergen."}
    await session.add_items([{"role": "user", "content": "I live in Oslo."}])
    await memory.sessions.finalize_session("shop", "ann", "s")
    await work_off(pool, worker)
    assert await pool.fetchval("SELECT count(*) FROM facts WHERE content LIKE '%Oslo%'") >= 1
    assert await session.pop_item() == {"role": "user", "content": "I live in Oslo."}
    await work_off(pool, worker)
    assert not any("Oslo" in text for text in await found(memory, "Where does she live? Oslo"))
    assert any("Bergen" in text for text in await found(memory, "Bergen"))
    left = "SELECT count(*) FROM %s AS x WHERE x::text LIKE '%%Oslo%%'"
    tables = ("events", "messages", "memories", "facts", "fact_versions", "model_replies")
    assert [await pool.fetchval(left % table) for table in tables] == [0] * len(tables)

    await session.clear_session()
    assert await found(memory, "Bergen Noor Noted") == []
    assert await pool.fetchval("SELECT count(*) FROM memories") == 0


async def test_a_session_is_shared_with_other_clients_and_writers(memory: Hippocampus) -> None:
    """What others append to the session is an item if a participant said it; other events are none."""
    from hippocampus.integrations.openai_agents import HippocampusSession

    await memory.add("ann", "I'm Ann.", session="s")
    await memory.sessions.append("shop", "ann", "s", [Event(author="agent", event_type="work_plan", content={"n": 1})])
    session = HippocampusSession(memory, "ann", "s")
    await memory.add("ann", [{"role": "assistant", "content": "Hello."}], session="s")
    assert await session.get_items(2) == [
        {"role": "user", "content": "I'm Ann."},
        {"role": "assistant", "content": "Hello."},
    ]
    many: list[Any] = [{"role": "user", "content": f"turn {number}"} for number in range(12)]
    await asyncio.gather(*(session.add_items([item]) for item in many))
    popped = await asyncio.gather(*(HippocampusSession(memory, "ann", "s").pop_item() for _ in range(12)))
    assert sorted(str(each) for each in popped) == sorted(map(str, many))
    assert len(await session.get_items()) == 2
    # Another user's session of the same id is another one.
    assert await HippocampusSession(memory, "ben", "s").get_items() == []


async def test_what_cannot_be_stored_is_refused_and_changes_nothing(memory: Hippocampus) -> None:
    from hippocampus.integrations.openai_agents import HippocampusSession

    session = HippocampusSession(memory, "ann", "s")
    wrong: Any
    for wrong in ({"role": "user", "content": object()}, "text", {"role": "user", "content": "x", 1: 2}):
        with pytest.raises(InvalidInputError):
            await session.add_items([SAID, wrong])
    assert await session.get_items() == []
    for user, session_id in (("", "s"), (" ", "s"), ("ann", ""), ("ann", " s"), ("ann", "s" * 513)):
        with pytest.raises(InvalidInputError):
            HippocampusSession(memory, user, session_id)


async def test_many_items_are_added_and_cleared(memory: Hippocampus) -> None:
    from hippocampus.integrations.openai_agents import HippocampusSession

    session = HippocampusSession(memory, "ann", "s")
    many: list[Any] = [{"type": "item_reference", "id": str(number)} for number in range(1100)]
    await session.add_items(many)
    assert (await session.get_items(), await session.get_items(1050)) == (many, many[50:])
