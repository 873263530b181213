"""The library's main object: what `add` appends and recognises, what `search` and `context` return."""

from __future__ import annotations

import asyncio
import importlib
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

import hippocampus
from hippocampus import AddedMessages, ErasureRunningError, Hippocampus, engine
from pulse.errors import (
    ConcurrencyConflictError,
    EventConflictError,
    InvalidInputError,
    PulseError,
    SessionExistsError,
    SessionNotFoundError,
)
from pulse.events import Event
from pulse.state_manager import StateManager
from tests.support.waiting import WAIT_SECONDS

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
        ([OK, {"role": "narrator", "content": "Later."}], r"messages\[1\]: role must be one .* not 'narrator'"),
        ([OK, {"content": "Later."}], r"messages\[1\]: role must be one of user, .* not None"),
        ([OK, "ok"], r"messages\[1\] must be a mapping with a role and a content, not str"),
        ([OK, {"role": "user", "content": None, "tool_calls": []}], r"messages\[1\] has no content"),
        ([{**OK, "id": "m1"}, {**OK, "id": "m1"}], "'m1' is given twice"),
        ([{**OK, "id": ""}], "id must have 1 to 512 characters"),
        ([{**OK, "id": 7}], r"messages\[0\].id must be a text"),
        ([{**OK, "name": "A\0"}], r"messages\[0\].name must be a text"),
        ([{**OK, "created_at": "noon"}], r"messages\[0\]: 'noon' is not an ISO 8601 time"),
        ([{**OK, "created_at": "2026-03-01T12:00:00"}], r"messages\[0\]: the time 2026-03-01 12:00:00 needs a zone"),
        ([{**OK, "created_at": True}], r"messages\[0\]: a time must be seconds since 1970"),
        ([{**OK, "created_at": 1e18}], "timestamp must be seconds since 1970"),
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


async def test_messages_with_and_without_an_id_are_told_apart(memory: Hippocampus) -> None:
    first, last = {**ASK, "id": "m1"}, {**BYE, "id": "m2"}
    assert await counts(memory, [first]) == (1, 0)
    # The message that is known takes no number: those that follow keep theirs, and stay erased.
    assert await counts(memory, [first, TELL, OK]) == (2, 1)
    await memory.erasure.erase_events("shop", "ann", "s", sequence_nums=[2])
    assert await counts(memory, [first, TELL, OK, last]) == (1, 3)
    assert await counts(memory, [first, TELL, OK, last, TELL]) == (1, 4)
    assert await counts(memory, [first, TELL, OK, last, TELL]) == (0, 5)
    await memory.erasure.erase_events("shop", "ann", "s", sequence_nums=[1])
    assert await counts(memory, [first, TELL, OK, last, TELL, OK]) == (1, 5)
    texts = [text for _, _, text in await said(memory, "s")]
    assert texts == [None, None, "ok", "Bye.", "Two bottles.", "ok"]


async def test_events_that_are_no_messages_do_not_count(memory: Hippocampus) -> None:
    states = StateManager(memory.sessions)
    talk: list[dict[str, Any]] = []
    for number, message in enumerate((ASK, TELL, OK, OK, BYE)):
        talk.append(message)
        assert await counts(memory, talk) == (1, number)
        await states.update_session_state("shop", "ann", "s", lambda _, number=number: {"turn": number})
        for event_type in ("run_started", "thought", "complete"):
            event = Event(author="model", event_type=event_type, content={"text": "ok"})
            await memory.sessions.append("shop", "ann", "s", [event])
        assert await counts(memory, talk) == (0, number + 1)
    # Nor do they when they are erased.
    events = await memory.sessions.list_events("shop", "ann", "s")
    last = [event.sequence_num or 0 for event in events[-4:]]
    await memory.erasure.erase_events("shop", "ann", "s", sequence_nums=last)
    assert await counts(memory, [*talk, OK]) == (1, 5)


async def test_two_writers_of_one_session_store_each_message_once(memory: Hippocampus) -> None:
    start = [ASK, CALL, RESULT, TELL]
    assert await counts(memory, start) == (4, 0)
    mine, theirs = list(start), list(start)
    for number in range(5):
        for name, talk in (("mine", mine), ("theirs", theirs)):
            known = len(talk)
            talk += [{"role": "user", "content": f"{name} {number}"}, {"role": "assistant", "content": f"to {name}"}]
            assert await counts(memory, talk) == (2, known)
    # One of them was silent for longer than its list is.
    talk = [*theirs, *({"role": "user", "content": f"note {number}"} for number in range(150))]
    assert await counts(memory, talk) == (150, len(theirs))
    assert await counts(memory, mine) == (0, len(mine))
    assert await counts(memory, [*mine, OK]) == (1, len(mine))
    assert len(await said(memory, "s")) == 4 + 10 + 10 + 150 + 1


async def test_turns_that_repeat_older_ones_are_kept(memory: Hippocampus) -> None:
    yes, done = {"role": "user", "content": "yes"}, {"role": "assistant", "content": "Done."}
    for _ in range(3):
        assert await counts(memory, [yes, done]) == (2, 0)
        assert await counts(memory, [ASK, TELL]) == (2, 0)
    for _ in range(2):
        assert await counts(memory, yes) == (1, 0)
        assert await counts(memory, done) == (1, 0)
    call = {**CALL, "tool_calls": [{"id": "c2", "function": {"name": "look"}}]}
    assert await counts(memory, [yes, call, {**RESULT, "tool_call_id": "c2"}, done]) == (4, 0)


async def test_a_time_that_is_given_later_changes_nothing(memory: Hippocampus) -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    talk: list[dict[str, Any]] = [ASK, TELL, {**OK, "id": "m1"}]
    timed = [{**message, "timestamp": noon} for message in talk]
    assert await counts(memory, talk) == (3, 0)
    assert await counts(memory, timed) == (0, 3)
    await memory.erasure.erase_events("shop", "ann", "s", sequence_nums=[1])
    assert await counts(memory, timed) == (0, 3)
    # Nor one that is not given any more.
    assert await counts(memory, timed, "t") == (3, 0)
    await memory.erasure.erase_events("shop", "ann", "t", sequence_nums=[1])
    assert await counts(memory, talk, "t") == (0, 3)


async def test_empty_results_and_replies_are_valid(memory: Hippocampus) -> None:
    empty = {"role": "tool", "tool_call_id": "c1", "content": ""}
    refusal = {"role": "assistant", "content": None, "refusal": "I can't."}
    part = {"role": "assistant", "content": [{"type": "refusal", "refusal": "I won't."}]}
    replies = [{"role": "assistant", "content": content, "tool_calls": []} for content in (None, "", [])]
    talk = [ASK, CALL, empty, {"role": "tool", "content": None}, refusal, part, *replies, {"role": "assistant"}, OK]
    assert await counts(memory, talk) == (7, 0)
    assert await counts(memory, talk) == (0, 7)
    assert await said(memory, "s") == [
        ("user", "user_message", "Is there any milk?"),
        ("model", "tool_call", None),
        ("tool", "message", None),
        ("tool", "message", None),
        ("model", "assistant_message", "I can't."),
        ("model", "assistant_message", "I won't."),
        ("user", "user_message", "ok"),
    ]
    window = await memory.context("ann", "", session="s")
    assert "[assistant]: I won't.\n[user]: ok" in window.text


@pytest.mark.parametrize("stable", [False, True])
async def test_the_window_of_a_session_that_does_not_exist_yet_has_no_history(
    memory: Hippocampus, *, stable: bool
) -> None:
    """A loop asks for its context before it adds its first messages: what other sessions say is found."""
    await memory.add("ann", "I'm allergic to peanuts.", session="monday")
    window = await memory.context("ann", "peanuts?", session="tuesday", stable=stable)
    assert "I'm allergic to peanuts." in window.text
    assert "history" not in {item.context_type for item in window.items}
    assert await memory.sessions.get_session("shop", "ann", "tuesday") is None
    with pytest.raises(SessionNotFoundError, match="'tuesday'"):
        await memory.assembler.assemble(app_name="shop", user_id="ann", session_id="tuesday", query="peanuts?")


async def test_a_session_is_named_alike_everywhere(memory: Hippocampus) -> None:
    await memory.add("ann", "I'm allergic to peanuts.", session=" monday ")
    assert len(await memory.search("ann", "peanuts", session=" monday ")) == 1
    assert "peanuts" in (await memory.context("ann", "", session="monday\n")).text
    for blank in ("", "  "):
        with pytest.raises(InvalidInputError, match="session is blank"):
            await memory.add("ann", "hello", session=blank)
        with pytest.raises(InvalidInputError, match="session is blank"):
            await memory.search("ann", "hello", session=blank)
        with pytest.raises(InvalidInputError, match="session is blank"):
            await memory.context("ann", "hello", session=blank)
    assert len(await memory.sessions.list_sessions("shop", "ann")) == 1


async def test_conflicts_end_with_an_error(
    memory: Hippocampus, pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_ATTEMPTS_MAX", 5)
    await pool.execute(
        "CREATE SEQUENCE attempts;"
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        "   PERFORM nextval('public.attempts'); RAISE EXCEPTION 'another was first' USING ERRCODE = 'HP002'; END $$;"
        "CREATE TRIGGER refuse BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION refuse();"
    )
    with pytest.raises(ConcurrencyConflictError, match="lost the race to other writers 5 times in a row"):
        async with asyncio.timeout(WAIT_SECONDS):
            await memory.add("ann", "hello", session="s")
    assert await pool.fetchval("SELECT last_value FROM attempts") == 5


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
    known = await memory.recall("ann", "what is she allergic to?", max_tokens=100)
    assert known.endswith("\n[user]: I'm allergic to peanuts.")
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
    for name in hippocampus.__all__:
        home = importlib.import_module(hippocampus._PUBLIC[name])
        # An alias of a union has the module of unions.
        assert getattr(getattr(hippocampus, name), "__module__", "types") in (home.__name__, "types"), name
    assert ErasureRunningError is hippocampus.errors.ErasureRunningError
    with pytest.raises(AttributeError, match="no attribute 'Hippocampos'"):
        _ = hippocampus.Hippocampos  # type: ignore[attr-defined]
    script = (
        "import hippocampus, sys; print([name for name in sys.modules if name.startswith(('hippocampus.', 'asyncpg'))])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


async def test_search_filters_by_the_metadata_of_messages(memory: Hippocampus) -> None:
    tagged = {"role": "user", "content": "The garden needs water.", "metadata": {"topic": "garden"}}
    await memory.add("ann", [ASK, tagged], session="s", metadata={"channel": "phone"})
    assert (await memory.add("ann", [ASK, tagged], session="s", metadata={"channel": "phone"})).added == 0
    await memory.add("ann", "The garden is dry.", session="s")
    found = await memory.search("ann", "garden", metadata={"topic": "garden", "channel": "phone"})
    assert [(each.content, each.metadata) for each in found] == [
        ("The garden needs water.", {"topic": "garden", "channel": "phone"})
    ]
    assert len(await memory.search("ann", "garden milk", metadata={"channel": "phone"})) == 2
    events = await memory.sessions.list_events("shop", "ann", "s", limit=10)
    assert [event.metadata for event in events] == [
        {"channel": "phone"},
        {"channel": "phone", "topic": "garden"},
        {},
    ]
    assert all(event.actions.other == {} for event in events)


@pytest.mark.parametrize("metadata", [{"a": "\0"}, {"a": float("nan")}, {"a": -0.0}, {"a": object()}])
async def test_metadata_that_a_filter_could_not_compare_are_refused(memory: Hippocampus, metadata: Any) -> None:
    with pytest.raises(InvalidInputError, match="metadata"):
        await memory.add("ann", "hello", session="s", metadata=metadata)
    with pytest.raises(InvalidInputError, match="metadata"):
        await memory.add("ann", [{"role": "user", "content": "hello", "metadata": metadata}], session="s")
    assert await memory.sessions.get_session("shop", "ann", "s") is None
