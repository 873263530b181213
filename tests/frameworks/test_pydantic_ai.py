"""The conversation store of pydantic-ai beside the library's own, and recall in an agent's run."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import asyncpg
import pytest
from pydantic_ai import Agent, BinaryContent, DeferredToolRequests
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RunUsage

from hippocampus import Hippocampus
from hippocampus.integrations.pydantic_ai import HippocampusConversationStore, RecallMemory
from pulse import InvalidInputError

Store: TypeAlias = ConversationStore
NOW = datetime(2026, 5, 1, 10, tzinfo=UTC)


def asked(text: str, number: int = 0) -> ModelMessage:
    return ModelRequest(parts=[UserPromptPart(text, timestamp=NOW)], timestamp=NOW + timedelta(minutes=number))


def told(text: str, number: int = 0) -> ModelMessage:
    return ModelResponse(parts=[TextPart(text)], timestamp=NOW + timedelta(minutes=number))


def talk(count: int) -> list[ModelMessage]:
    return [message for n in range(count) for message in (asked(f"question {n}", n), told(f"answer {n}", n))]


@pytest.fixture
def memory(pool: asyncpg.Pool) -> Hippocampus:
    return Hippocampus(pool, app="shop")


@pytest.fixture(params=["theirs", "ours"])
def store(request: pytest.FixtureRequest, memory: Hippocampus) -> Store:
    return InMemoryConversationStore() if request.param == "theirs" else HippocampusConversationStore(memory, "ann")


async def messages(store: Store, conversation_id: str, limit: int | None = None) -> list[ModelMessage] | None:
    loaded = await store.load(conversation_id, limit=limit)
    return None if loaded is None else loaded.messages


async def test_a_conversation_comes_back_as_it_was_saved(store: Store) -> None:
    """Whatever its messages hold; with its usage and what it waits for."""
    said: list[ModelMessage] = [
        ModelRequest(
            parts=[
                SystemPromptPart("Be kind."),
                UserPromptPart(["See:", BinaryContent(b"\0\xff", media_type="application/pdf")]),
            ],
            instructions="Be brief.",
            metadata={"a": [1, None, 1e22]},
        ),
        ModelResponse(
            parts=[ThinkingPart("hm", signature="s"), ToolCallPart("look", {"n": 1}, "c")],
            provider_details={"finish_reason": "tool"},
        ),
        ModelRequest(parts=[ToolReturnPart("look", {"found": True}, "c")]),
        told("two"),
    ]
    waiting = DeferredToolRequests(approvals=[ToolCallPart("buy", '{"n": 2}', "d")], metadata={"d": {"why": "price"}})
    usage = RunUsage(requests=2, input_tokens=7, tool_calls=1)
    given = Conversation(conversation_id="c", messages=said, usage=usage, deferred_tool_requests=waiting)
    stored = await store.save(given, scope="team\U0001f642")
    loaded = await store.load("c", scope="team\U0001f642")
    assert loaded is not None
    assert (loaded.messages, loaded.usage, loaded.deferred_tool_requests) == (said, usage, waiting)
    assert (loaded.revision, given.revision) == (given.revision, loaded.revision)
    assert await store.load_entries("c") == stored
    assert [await store.read_entry(each.id) for each in stored] == stored
    assert await store.load("c", scope="other") is None
    assert await store.load("none") is None
    with pytest.raises(KeyError):
        await store.read_entry("none")


async def test_saves_append_and_the_older_of_two_conflicts(store: Store) -> None:
    said = talk(40)
    await store.save(Conversation(conversation_id="c", messages=said[:60]))
    first, second = await store.load("c"), await store.load("c", limit=3)
    assert first is not None
    assert second is not None
    assert second.messages == said[57:60]
    first.messages += said[60:]
    assert [each.message for each in await store.save(first)] == said[60:]
    assert await store.save(first) == []
    second.messages.append(asked("too late"))
    with pytest.raises(ConversationConflict) as conflict:
        await store.save(second)
    assert conflict.value.conversation_id == "c"
    with pytest.raises(ConversationConflict):
        await store.save(Conversation(conversation_id="c", messages=[asked("another beginning")]))
    assert [await messages(store, "c", limit) for limit in (None, 0, 1, 7, 1000)] == [
        said,
        [],
        said[-1:],
        said[-7:],
        said,
    ]

    async def add(number: int) -> None:
        while True:
            loaded = await store.load("c", limit=1)
            assert loaded is not None
            loaded.messages.append(asked(f"by {number}"))
            try:
                await store.save(loaded)
            except ConversationConflict:
                continue
            return

    await asyncio.gather(*(add(number) for number in range(6)))
    last = await messages(store, "c", 6)
    assert sorted(str(each.parts[0].content) for each in last or []) == [f"by {number}" for number in range(6)]  # type: ignore[union-attr]


async def test_branches_keep_what_they_leave(store: Store) -> None:
    said = talk(3)
    entries = await store.save(Conversation(conversation_id="c", messages=said))
    loaded = await store.load("c")
    assert loaded is not None
    branched = await store.branch("c", at=2, expected_revision=loaded.revision)
    assert branched.messages == said[:2]
    branched.messages.append(asked("another question"))
    await store.save(branched)
    assert await messages(store, "c") == [*said[:2], asked("another question")]
    back = await store.branch("c", from_entry=entries[4].id, expected_revision=branched.revision)
    assert back.messages == said[:5]
    assert await messages(store, "c", 2) == said[3:5]
    # A history that was rewritten leaves the stored one as a branch.
    rewritten = Conversation(conversation_id="c", messages=[said[0], told("rewritten")], revision=back.revision)
    await store.save(rewritten)
    assert await messages(store, "c") == [said[0], told("rewritten")]
    (record,) = await store.list_conversations()
    assert record.branches[-1] == entries[4].id
    assert len(record.branches) == 3
    with pytest.raises(ConversationConflict):
        await store.branch("c", at=1, expected_revision=loaded.revision)
    with pytest.raises(UserError):
        await store.branch("c", from_entry="none", expected_revision=rewritten.revision)


async def test_a_fork_keeps_its_history_when_the_other_is_deleted(store: Store) -> None:
    said = talk(2)
    entries = await store.save(Conversation(conversation_id="c", messages=said), scope="team")
    fork = await store.fork("c", at=2, new_conversation_id="f")
    fork.messages.append(asked("only here"))
    await store.save(fork)
    whole = await store.fork("f", new_conversation_id="g", scope="mine")
    assert [each.id for each in (await store.load_entries("g") or [])][:2] == [each.id for each in entries[:2]]
    with pytest.raises(ConversationConflict):
        await store.fork("c", new_conversation_id="f")
    await store.delete("c", scope="other")
    assert await messages(store, "c") == said
    await store.delete("c", scope="team")
    await store.delete("c")
    assert await messages(store, "c") is None
    assert await messages(store, "f") == await messages(store, "g") == [*said[:2], asked("only here")]
    assert (await store.read_entry(entries[0].id)).message == said[0]
    with pytest.raises(KeyError):
        await store.read_entry(entries[3].id)
    await store.save(whole)
    again = Conversation(conversation_id="c", messages=said[:1])
    await store.save(again)
    assert await messages(store, "c") == said[:1]


async def test_records_are_listed_by_scope_last_saved_first(store: Store) -> None:
    for number, (conversation_id, scope) in enumerate((("a", "x"), ("b", None), ("c", "x"), ("d", "y"))):
        record = ConversationRecord(
            conversation_id=conversation_id, head_id=None, scope=scope, updated_at=NOW + timedelta(seconds=number % 3)
        )
        await store.write_record(record, expected_revision=None)
    assert [each.conversation_id for each in await store.list_conversations(scope="x")] == ["c", "a"]
    assert [each.conversation_id for each in await store.list_conversations(limit=2)] == ["c", "b"]
    assert {each.conversation_id for each in await store.list_conversations()} == {"a", "b", "c", "d"}
    assert await store.list_conversations(scope="z") == await store.list_conversations(limit=0) == []


async def test_the_primitives_conflict_where_the_contract_says_so(store: Store) -> None:
    record = ConversationRecord(conversation_id="c", head_id="e")
    entry = ConversationEntry(id="e", parent_id=None, message=asked("hello"))
    cases: list[Callable[[], Any]] = [
        lambda: store.write_record(record, new_entries=[entry], expected_revision="r"),
        lambda: store.write_record(record, expected_revision=None),
        lambda: store.delete_record("c", expected_revision="r"),
    ]
    for case in cases:
        with pytest.raises(ConversationConflict):
            await case()
        assert await store.read_record("c") is None
    await store.write_record(record, new_entries=[entry], expected_revision=None)
    assert await store.read_record("c") == record
    later = dataclasses.replace(record, revision="r2")
    await store.write_record(later, expected_revision=record.revision)
    for case in (lambda: store.delete_record("c", expected_revision=record.revision), *cases):
        with pytest.raises(ConversationConflict):
            await case()
    assert await store.read_history("e") == [entry]
    await store.delete_record("c", expected_revision="r2")
    with pytest.raises(LookupError):
        await store.read_history("e")


async def test_what_was_said_is_remembered_until_it_is_erased(memory: Hippocampus) -> None:
    """A message that was erased is left out of the history; a deleted conversation is forgotten, and its forks stay."""
    store = HippocampusConversationStore(memory, "ann")
    said: list[ModelMessage] = [
        ModelRequest(parts=[SystemPromptPart("a system prompt"), UserPromptPart("My sister Noor lives in Bergen.")]),
        ModelResponse(parts=[ThinkingPart("a thought"), ToolCallPart("look", {"secret": 1}, "c")]),
        ModelRequest(parts=[ToolReturnPart("look", "a secret of the tool", "c")]),
        told("Noted: Bergen."),
        asked("Her cat is Miso."),
        told("Noted: Miso."),
    ]
    entries = await store.save(Conversation(conversation_id="c", messages=said))
    words = "sister Noor Bergen Miso cat secret system thought noted"
    texts = {each.content for each in await memory.search("ann", words)}
    assert texts == {"My sister Noor lives in Bergen.", "Noted: Bergen.", "Her cat is Miso.", "Noted: Miso."}
    await store.fork("c", new_conversation_id="f")
    assert len(await memory.search("ann", words)) == 4
    await memory.erasure.erase_events("shop", "ann", "c", event_ids=[entries[3].id, entries[5].id])
    assert await messages(store, "c") == [*said[:3], said[4]]
    loaded = await store.load("c")
    assert loaded is not None
    loaded.messages.append(told("Hello, Miso."))
    await store.save(loaded)
    assert await messages(store, "c", 3) == [said[2], said[4], told("Hello, Miso.")]
    # What a conversation waits for quotes its last message, and is erased with it.
    loaded.messages.append(ModelResponse(parts=[ToolCallPart("buy", {"for": "Zelda"}, "d")]))
    loaded.deferred_tool_requests = DeferredToolRequests(calls=[ToolCallPart("buy", {"for": "Zelda"}, "d")])
    (paused,) = await store.save(loaded)
    loaded = await store.load("c")
    assert loaded is not None
    assert loaded.deferred_tool_requests is not None
    await memory.erasure.erase_events("shop", "ann", "c", event_ids=[paused.id])
    loaded = await store.load("c")
    assert loaded is not None
    assert (loaded.deferred_tool_requests, loaded.messages[-1]) == (None, told("Hello, Miso."))
    for table in ("events", "threads", "snapshots"):
        assert await memory.pool.fetchval(f"SELECT count(*) FROM {table} AS x WHERE x::text LIKE '%Zelda%'") == 0
    await store.delete("c")
    assert await memory.search("ann", words) == []
    assert await messages(store, "f") == said
    # Users are apart.
    assert await HippocampusConversationStore(memory, "ben").load("f") is None
    with pytest.raises(KeyError):
        await HippocampusConversationStore(memory, "ben").read_entry(entries[0].id)
    for wrong in ("", " c", "c" * 513):
        with pytest.raises(InvalidInputError):
            await store.load(wrong)


async def test_more_entries_than_one_append_takes(memory: Hippocampus) -> None:
    store = HippocampusConversationStore(memory, "ann")
    said = talk(600)
    await store.save(Conversation(conversation_id="c", messages=said))
    assert [await messages(store, "c", limit) for limit in (None, 400)] == [said, said[-400:]]


async def test_recall_stands_before_the_newest_message_of_a_request_alone(memory: Hippocampus) -> None:
    """Each request of a run has it, at the same place; the run's messages, and what is saved of them, do not."""
    store = HippocampusConversationStore(memory, "ann")
    await memory.add("ann", "My sister Noor lives in Bergen.", session="earlier")
    seen: list[list[ModelMessage]] = []

    def answer(request: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append(list(request))
        if any(isinstance(part, ToolReturnPart) for part in request[-1].parts):
            return ModelResponse(parts=[TextPart("Bergen.")])
        return ModelResponse(parts=[ToolCallPart("look", {}, "c")])

    agent = Agent(FunctionModel(answer), capabilities=[RecallMemory(memory, "ann")])

    @agent.tool_plain
    def look() -> str:
        return "nothing"

    result = await agent.run("Where does Noor live?", conversation=Conversation(conversation_id="c"))
    await store.save(result)
    assert len(seen) == 2
    for request in seen:
        # The library joins adjacent requests.
        known, question = request[0].parts
        assert "My sister Noor lives in Bergen." in str(known.content)  # type: ignore[union-attr]
        assert str(known.content).startswith("<memory>\n")  # type: ignore[union-attr]
        assert question.content == "Where does Noor live?"  # type: ignore[union-attr]
    assert len(seen[1]) == 3
    assert "<memory>" not in str(result.all_messages()) + str(await messages(store, "c"))
    assert not any("<memory>" in each.content for each in await memory.search("ann", "Noor Bergen"))
    # Nothing is known of another user.
    other = Agent(FunctionModel(answer), capabilities=[RecallMemory(memory, "ben")], tools=[look])
    await other.run("Where does Noor live?")
    assert [type(part) for part in seen[2][0].parts] == [UserPromptPart]
