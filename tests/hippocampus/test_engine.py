"""The library's main object: what `add` appends and recognises, what `search` and `context` return."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

import hippocampus
from hippocampus import AddedMessages, ErasureRunningError, Hippocampus
from pulse.errors import EventConflictError, InvalidInputError, PulseError, SessionExistsError
from pulse.events import Event

ASK = {"role": "user", "content": "Is there any milk?"}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": {"name": "look"}}]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "two bottles"}
TELL = {"role": "assistant", "content": "Two bottles."}
OK = {"role": "user", "content": "ok"}
BYE = {"role": "assistant", "content": "Bye."}


@pytest.fixture
def memory(pool: asyncpg.Pool) -> Hippocampus:
    return Hippocampus(pool, app="shop")


async def said(memory: Hippocampus, session: str) -> list[tuple[str, str, Any]]:
    events = await memory.sessions.list_events("shop", "ann", session, limit=1000)
    return [(event.author, event.event_type, event.content.get("text")) for event in events]


async def counts(memory: Hippocampus, messages: Any, session: str = "s") -> tuple[int, int]:
    done = await memory.add("ann", messages, session=session)
    return done.added, done.known


async def test_a_growing_conversation_is_appended_once(memory: Hippocampus) -> None:
    """Agents send the whole conversation each turn."""
    talk = [{"role": "system", "content": "Be kind."}, ASK, CALL, RESULT, TELL, OK]
    assert await memory.add("ann", talk, session="s") == AddedMessages(session_id="s", added=5, known=0)
    assert await counts(memory, talk) == (0, 5)
    talk = [{"role": "system", "content": "It is noon."}, *talk[1:], BYE, OK, OK]
    assert await counts(memory, talk) == (3, 5)
    assert await counts(memory, talk) == (0, 8)
    assert await said(memory, "s") == [
        ("user", "user_message", "Is there any milk?"),
        ("model", "tool_call", None),
        ("tool", "message", "two bottles"),
        ("model", "assistant_message", "Two bottles."),
        ("user", "user_message", "ok"),
        ("model", "assistant_message", "Bye."),
        ("user", "user_message", "ok"),
        ("user", "user_message", "ok"),
    ]


async def test_single_turns_keep_repeated_messages(memory: Hippocampus) -> None:
    for reply in ("first", "second"):
        assert await counts(memory, OK) == (1, 0)
        assert await counts(memory, [OK, {"role": "assistant", "content": reply}]) == (1, 1)
    assert [text for _, _, text in await said(memory, "s")] == ["ok", "first", "ok", "second"]
    # A window of the newest turns, as agents truncate their history.
    assert await counts(memory, [OK, {"role": "assistant", "content": "second"}, BYE]) == (1, 2)


async def test_a_string_is_a_user_message_and_begins_a_session(memory: Hippocampus) -> None:
    one = await memory.add("ann", "I'm allergic to peanuts.")
    two = await memory.add("ann", "I'm allergic to peanuts.")
    assert (one.added, two.added) == (1, 1)
    assert one.session_id != two.session_id
    assert await said(memory, one.session_id) == [("user", "user_message", "I'm allergic to peanuts.")]


async def test_explicit_ids_are_recognised_at_any_position(memory: Hippocampus) -> None:
    first, second = {**ASK, "id": "m1"}, {**TELL, "id": "m2"}
    assert await counts(memory, [first]) == (1, 0)
    assert await counts(memory, [second]) == (1, 0)
    assert await counts(memory, [first]) == (0, 1)
    assert await counts(memory, [first, second, OK]) == (1, 2)
    with pytest.raises(EventConflictError):
        await memory.add("ann", {**TELL, "id": "m1"}, session="s")
    with pytest.raises(InvalidInputError, match="id of its own"):
        await memory.add("ann", [{**OK, "id": "m9"}, {**BYE, "id": "m9"}], session="s")
    assert len(await said(memory, "s")) == 3


async def test_names_times_and_parts_are_kept(memory: Hippocampus) -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    parts = [{"type": "text", "text": "Look:"}, {"type": "image_url", "image_url": {"url": "https://example.org/a"}}]
    picture = {"role": "user", "content": parts[1:], "created_at": noon.timestamp()}
    talk = [
        {"role": "user", "name": "Ann", "content": parts, "timestamp": "2026-03-01T13:00:00+01:00"},
        {**OK, "timestamp": noon},
        picture,
    ]
    assert await counts(memory, talk) == (3, 0)
    assert await counts(memory, talk) == (0, 3)
    events = await memory.sessions.list_events("shop", "ann", "s")
    assert [event.occurred_at for event in events] == [noon] * 3
    assert events[0].author == "Ann"
    assert events[0].role == "user"
    assert events[0].content == {"text": "Look:", "parts": parts}
    assert (events[2].event_type, events[2].content) == ("attachment", {"parts": parts[1:]})
    # The same words at another time are another message.
    assert await counts(memory, {**picture, "created_at": noon.timestamp() + 1}) == (1, 0)


async def test_a_client_librarys_reply_is_a_message(memory: Hippocampus) -> None:
    class Reply:
        def model_dump(self, *, exclude_none: bool) -> dict[str, Any]:
            assert exclude_none
            return {"role": "assistant", "content": "Bye."}

    assert await counts(memory, [OK, Reply()]) == (2, 0)


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ([], "messages is empty"),
        ("  ", r"messages\[0\] has no content"),
        ([OK, {"role": "user", "content": ""}], r"messages\[1\] has no content"),
        ([OK, {"role": "user"}], r"messages\[1\] has no content"),
        ([OK, {"role": "user", "content": []}], r"messages\[1\] has no content"),
        ([OK, {"role": "narrator", "content": "Later."}], r"messages\[1\]: role is one of user, .* not 'narrator'"),
        ([OK, {"content": "Later."}], r"messages\[1\]: role is one of user, .* not None"),
        ([OK, "ok"], r"messages\[1\] is a mapping with a role and a content, not str"),
        ([{**OK, "id": ""}], "id is 1 to 512 characters"),
        ([{**OK, "id": 7}], r"messages\[0\].id is a text"),
        ([{**OK, "name": "A\0"}], r"messages\[0\].name is a text"),
        ([{**OK, "created_at": "noon"}], r"messages\[0\]: 'noon' is not an ISO 8601 time"),
        ([{**OK, "created_at": "2026-03-01T12:00:00"}], r"messages\[0\]: the time 2026-03-01 12:00:00 needs a zone"),
        ([{**OK, "created_at": True}], r"messages\[0\]: a time is seconds since 1970"),
        ([{**OK, "created_at": 1e18}], "timestamp is seconds since 1970"),
        ([{**OK, "more": object()}], r"messages\[0\].*is not a JSON value"),
    ],
)
async def test_invalid_input_writes_nothing(memory: Hippocampus, pool: asyncpg.Pool, messages: Any, error: str) -> None:
    with pytest.raises(InvalidInputError, match=error):
        await memory.add("ann", messages, session="s")
    assert await pool.fetchval("SELECT count(*) FROM threads") == 0


async def test_the_same_list_added_concurrently_is_stored_once(dsn: str, memory: Hippocampus) -> None:
    talk = [ASK, TELL, OK, OK]
    async with Hippocampus(dsn, app="shop") as other:
        done = await asyncio.gather(*(each.add("ann", talk, session="s") for each in (memory, other) * 5))
    assert sum(each.added for each in done) == 4
    assert len(await said(memory, "s")) == 4
    # Lists that grew differently at the same time are kept, without duplicates.
    mine, theirs = [*talk, TELL], [*talk, BYE]
    await asyncio.gather(memory.add("ann", mine, session="s"), memory.add("ann", theirs, session="t"))
    await asyncio.gather(*(memory.add("ann", f"note {number}", session="n") for number in range(20)))
    assert sorted(text for _, _, text in await said(memory, "n")) == sorted(f"note {number}" for number in range(20))


async def test_another_process_recognises_added_messages(dsn: str, memory: Hippocampus) -> None:
    talk = [ASK, CALL, RESULT, TELL, OK, OK]
    script = (
        "import asyncio, sys\n"
        "from hippocampus import Hippocampus\n"
        "async def main():\n"
        "    async with Hippocampus(sys.argv[1], app='shop') as memory:\n"
        f"        print(await memory.add('ann', {talk!r}, session='s'))\n"
        "asyncio.run(main())\n"
    )
    for added, known in ((6, 0), (0, 6)):
        done = subprocess.run([sys.executable, "-c", script, dsn], capture_output=True, text=True, check=False)
        assert (done.stderr, done.stdout) == ("", f"AddedMessages(session_id='s', added={added}, known={known})\n")
    assert await counts(memory, [*talk, BYE]) == (1, 6)


async def test_an_erased_message_is_not_added_again(memory: Hippocampus) -> None:
    await memory.add("ann", [ASK, TELL], session="s")
    await memory.erasure.erase_events("shop", "ann", "s", sequence_nums=[1])
    assert await counts(memory, [ASK, TELL, OK]) == (1, 2)
    assert [text for _, _, text in await said(memory, "s")] == [None, "Two bottles.", "ok"]


async def test_messages_of_other_writers_are_recognised_by_their_content(memory: Hippocampus) -> None:
    session = await memory.sessions.create_session("shop", "ann", session_id="s")
    await memory.sessions.append_event(session, Event(author="user", content={"text": "ok"}))
    assert await counts(memory, [OK, BYE]) == (1, 1)


async def test_more_than_one_batch_is_added_and_recognised(memory: Hippocampus) -> None:
    talk = [{"role": "user", "content": f"line {number}"} for number in range(1200)] + [OK] * 1100
    assert await counts(memory, talk) == (2300, 0)
    assert await counts(memory, [*talk, BYE]) == (1, 2300)


async def test_a_reserved_thread_name_is_refused(memory: Hippocampus, pool: asyncpg.Pool) -> None:
    name = await pool.fetchval("SELECT memory_thread('shop', 'ann', 'elsewhere')")
    with pytest.raises(SessionExistsError):
        await memory.add("ann", "hello", session=name)


async def test_added_messages_are_searchable_and_packed_immediately(memory: Hippocampus) -> None:
    await memory.add("ann", "I'm allergic to peanuts.", session="monday")
    await memory.add("ben", "I'm allergic to cats.", session="monday")
    [found] = await memory.search("ann", "what is she allergic to?", session="monday", limit=3)
    assert (found.content, found.source) == ("I'm allergic to peanuts.", "message")
    window = await memory.context("ann", "a snack?", session="monday", max_tokens=200, system_prompt="Be kind.")
    assert window.text == "Be kind.\n\n## Conversation history\n[user]: I'm allergic to peanuts."
    assert window.total_tokens <= 200
    chinese = Hippocampus(memory.pool, app="shop", language="zh", embedder=None)
    assert (await chinese.context("ann", "", session="monday")).text.startswith("## 对话历史")


async def test_it_holds_every_service_and_opens_a_url(dsn: str, pool: asyncpg.Pool) -> None:
    closed = Hippocampus(dsn, app="shop")
    with pytest.raises(PulseError, match="not connected"):
        await closed.add("ann", "hello")
    memory = await Hippocampus.connect(dsn, app="shop")
    await memory.add("ann", "hello", session="s")
    assert await memory.memory.list_memories(app_name="shop", user_id="ann") == []
    assert await memory.facts.list_candidates(app_name="shop", user_id="ann") == []
    assert await memory.instructions.active("shop") == []
    assert (await memory.retention.cleanup_low_value_memories()).total_memories == 0
    assert await memory.archive.page("shop", "ann") == []
    assert (await memory.erasure.erase_session("shop", "ann", "s")).is_complete
    opened = memory.pool
    await memory.close()
    await memory.close()
    assert opened.is_closing()
    # Entering it again opens it again; a pool passed by the caller stays open.
    async with memory:
        await memory.add("ann", "hello again", session="s")
    async with Hippocampus(pool, app="shop"):
        pass
    assert await pool.fetchval("SELECT 1") == 1


def test_every_public_name_is_exported_lazily() -> None:
    assert hippocampus.__all__ == sorted(hippocampus.__all__)
    for name in hippocampus.__all__:
        assert getattr(hippocampus, name).__module__ == hippocampus._PUBLIC[name], name
    assert set(hippocampus.__all__) <= set(dir(hippocampus))
    assert ErasureRunningError is hippocampus.errors.ErasureRunningError
    with pytest.raises(AttributeError, match="no attribute 'Hippocampos'"):
        _ = hippocampus.Hippocampos
    script = (
        "import hippocampus, sys; print([name for name in sys.modules if name.startswith(('hippocampus.', 'asyncpg'))])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
