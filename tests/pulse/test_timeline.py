"""The timeline of a conversation: one order for everything, whole messages only, six rows for a long answer."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import asyncpg
import pytest

from hippocampus.context_assembler import ContextAssembler
from hippocampus.providers.local.provider import LocalEmbedder
from pulse.errors import InvalidInputError, SessionNotFoundError
from pulse.event_types import DELTA_EVENT_TYPES, PERSISTENT_EVENT_TYPES
from pulse.events import Event, Session
from pulse.runs import events as run_events
from pulse.runs.service import RunService
from pulse.session_service import OpenSessionService
from pulse.timeline import TimelineService, timeline_item
from tests.support.run_process import LEASE_SECONDS
from tests.support.waiting import WAIT_SECONDS


@pytest.fixture
def sessions(pool: asyncpg.Pool) -> OpenSessionService:
    return OpenSessionService(pool)


@pytest.fixture
def timelines(pool: asyncpg.Pool) -> TimelineService:
    return TimelineService(pool)


@pytest.fixture
async def session(sessions: OpenSessionService) -> Session:
    return await sessions.create_session("app", "mei", session_id="s")


def stored(event_type: str, content: Any, *, sequence_num: int = 3, timestamp: float = 1700000000.123) -> Event:
    return Event(author="model", event_type=event_type, content=content, sequence_num=sequence_num, timestamp=timestamp)


def test_the_persistent_kinds_are_these_fourteen() -> None:
    assert (
        frozenset(
            "user_message thought act observe assistant_message work_plan step_start step_end pattern_match"
            " skill_matched skill_execution_start skill_execution_complete complete error".split()
        )
        == PERSISTENT_EVENT_TYPES
    )
    assert not PERSISTENT_EVENT_TYPES & DELTA_EVENT_TYPES


@pytest.mark.parametrize(
    ("event_type", "content", "item"),
    [
        ("user_message", {"content": "hi", "message_id": "m1"}, ("m1", "user_message", {"content": "hi"})),
        (
            "assistant_message",
            {"content": "hi", "message_id": None},
            ("assistant_message-3", "assistant_message", {"content": "hi"}),
        ),
        ("assistant_message", {"text": ""}, ("assistant_message-3", "assistant_message", {"content": ""})),
        ("user_message", "just text", ("user_message-3", "user_message", {"content": "just text"})),
        ("thought", {"content": "hm", "message_id": "m1"}, ("thought-3", "thought", {"content": "hm"})),
        ("thought", {"thought": "hm"}, ("thought-3", "thought", {"content": "hm"})),
        (
            "act",
            {"tool_name": "f", "tool_input": {"a": [1]}},
            ("act-3", "tool_call", {"toolName": "f", "toolInput": {"a": [1]}}),
        ),
        (
            "observe",
            {"tool_name": "f", "observation": "42"},
            ("observe-3", "tool_result", {"toolName": "f", "toolOutput": "42", "isError": False}),
        ),
        (
            "observe",
            {"tool_name": "f", "observation": None, "is_error": True},
            ("observe-3", "tool_result", {"toolName": "f", "toolOutput": None, "isError": True}),
        ),
        ("act", None, ("act-3", "tool_call", {"toolName": "", "toolInput": None})),
        ("act", {"tool_name": 7}, ("act-3", "tool_call", {"toolName": "7", "toolInput": None})),
        ("thought", {"thought": "a\0\ud800"}, ("thought-3", "thought", {"content": "a\ufffd\ufffd"})),
        ("user_message", {"content": "a\0", "message_id": 5}, ("5", "user_message", {"content": "a\ufffd"})),
    ],
)
def test_each_kind_is_shown_with_its_fields(event_type: str, content: Any, item: tuple[str, str, Any]) -> None:
    shown = timeline_item(stored(event_type, content))
    assert shown is not None
    assert (shown.id, shown.type, shown.fields) == item
    assert (shown.sequence_number, shown.timestamp) == (3, 1700000000123)


def test_other_events_and_blank_thoughts_are_left_out() -> None:
    hidden = PERSISTENT_EVENT_TYPES - {"user_message", "thought", "act", "observe", "assistant_message"}
    for event_type in (*hidden, "state_update", "run_started", "cancelled", "message", "anything"):
        assert timeline_item(stored(event_type, {"content": "x"})) is None
    for blank in ({"content": " \n"}, {}, None, {"content": None}):
        assert timeline_item(stored("thought", blank)) is None


async def answer(runs: RunService, turn: int, tokens: int = 1000) -> None:
    """One turn of an agent. The pieces of its answer are pushed to watchers and stored in no table."""
    asked = run_events.user_message(f"question {turn}", f"q{turn}")
    run = (await runs.start("app", "mei", "s", f"run-{turn}", asked)).run
    await runs.think(run, f"thinking of {turn}")
    run = (await runs.call_tool(run, "search", {"q": turn}, tool_call_id=f"c{turn}")).run
    await runs.tool_result(run, f"c{turn}", {"found": turn})
    pieces = [f"word{n} " for n in range(tokens)]
    await runs.finish(run, "".join(pieces), message_id=f"a{turn}")


async def test_an_answer_of_a_thousand_tokens_is_six_rows(
    pool: asyncpg.Pool, sessions: OpenSessionService, session: Session
) -> None:
    """And two messages, joined to their events. The answer is stored before the turn is complete."""
    await answer(RunService(pool), 1)
    rows = await pool.fetch("SELECT event_type, sequence_num FROM events ORDER BY sequence_num")
    assert [row["event_type"] for row in rows] == [
        "user_message", "thought", "act", "observe", "assistant_message", "complete",
    ]  # fmt: skip
    messages = await pool.fetch(
        """SELECT m.role, m.content, e.content ->> 'message_id' AS message_id FROM messages AS m
           JOIN events AS e ON (e.thread_id, e.id) = (m.thread_id, m.event_id) ORDER BY m.sequence_num"""
    )
    assert [(row["role"], row["message_id"]) for row in messages] == [("user", "q1"), ("assistant", "a1")]
    assert messages[1]["content"].split() == [f"word{n}" for n in range(1000)]


async def test_pieces_of_a_stream_are_stored_in_no_table(
    pool: asyncpg.Pool, sessions: OpenSessionService, session: Session
) -> None:
    """Neither through the library nor by plain SQL: alone, in a batch or within a run."""
    runs = RunService(pool)
    run = (await runs.start("app", "mei", "s", "run-1")).run
    for kind in sorted(DELTA_EVENT_TYPES):
        piece = Event(author="model", event_type=kind, content={"text": "a"})
        with pytest.raises(InvalidInputError, match="whole message"):
            await sessions.append("app", "mei", "s", [Event(author="user", content="hello"), piece])
        with pytest.raises(InvalidInputError, match="whole message"):
            await runs.write(run, [piece])
        with pytest.raises(asyncpg.CheckViolationError, match="events_hold_no_pieces"):
            await pool.execute("SELECT append_event('app', 'mei', 's', NULL, 'e', 'model', $1, '{}')", kind)
    assert await pool.fetchval("SELECT count(*) FROM events") == 1


async def test_turns_keep_their_order_after_a_reload_and_across_pages(
    pool: asyncpg.Pool, sessions: OpenSessionService, timelines: TimelineService, session: Session
) -> None:
    """Three turns with other events in between. Each page starts where the one before ended."""
    runs = RunService(pool)
    for turn in range(3):
        await answer(runs, turn, tokens=3)
        await sessions.append("app", "mei", "s", [Event(author="system", event_type="state_update", content={})])
    expected = []
    for turn in range(3):
        expected += [f"q{turn}", "thought", "act", "observe", f"a{turn}"]
    for reader in (timelines, TimelineService(pool)):
        for limit in (1, 2, 4, 5, 15, 1000):
            found, cursor, pages = [], 0, 0
            while True:
                page = await reader.get_conversation_messages("app", "mei", "s", after_sequence=cursor, limit=limit)
                found += page.items
                pages += 1
                if page.next_cursor is None:
                    break
                cursor = page.next_cursor
            assert [item.id.partition("-")[0] for item in found] == expected
            assert pages == -(-15 // limit)
            numbers = [item.sequence_number for item in found]
            assert numbers == sorted(set(numbers))


async def test_the_timeline_of_an_unknown_session_is_an_error(timelines: TimelineService, session: Session) -> None:
    empty = await timelines.get_conversation_messages("app", "mei", " s ")
    assert (empty.conversation_id, empty.items, empty.next_cursor) == ("s", [], None)
    for app, user, name in (("app", "tom", "s"), ("other", "mei", "s"), ("app", "mei", "t")):
        with pytest.raises(SessionNotFoundError):
            await timelines.get_conversation_messages(app, user, name)
    for wrong in ({"limit": 0}, {"limit": 1001}, {"after_sequence": -1}):
        with pytest.raises(InvalidInputError):
            await timelines.get_conversation_messages("app", "mei", "s", **wrong)


async def test_a_killed_process_leaves_complete_events_and_a_final_error(
    dsn: str, pool: asyncpg.Pool, sessions: OpenSessionService, timelines: TimelineService, session: Session
) -> None:
    """SIGKILL while it generates an answer, under a lease that its heartbeat renews. What it has not streamed is no
    message."""
    runs = RunService(pool)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.run_process", dsn, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    deadline = asyncio.get_running_loop().time() + 2 * LEASE_SECONDS
    while asyncio.get_running_loop().time() < deadline:
        assert await asyncio.wait_for(process.stdout.readline(), WAIT_SECONDS)
    assert (await runs.get("app", "mei", "run-1")).status == "running"
    process.kill()
    await process.wait()
    async with asyncio.timeout(WAIT_SECONDS):
        while await runs.reap() == 0:
            await asyncio.sleep(0.05)
    shown = await timelines.get_conversation_messages("app", "mei", "s")
    assert [item.type for item in shown.items] == ["user_message", "thought", "tool_call"]
    events = await sessions.list_events("app", "mei", "s")
    assert [event.event_type for event in events] == ["user_message", "thought", "act", "error"]
    assert await pool.fetchval("SELECT count(*) FROM messages") == 1
    run = await runs.get("app", "mei", "run-1")
    assert (run.status, run.error_code) == ("failed", "orphaned")


async def test_context_and_history_read_every_kind_of_message(
    pool: asyncpg.Pool, sessions: OpenSessionService, session: Session
) -> None:
    """user_message, assistant_message and message, in any form of their text. Thoughts are not messages."""
    said = {
        "user_message": {"content": "one apple", "message_id": "m1"},
        "assistant_message": {"text": "two pears"},
        "message": {"message": "three plums"},
        "thought": {"content": "four figs"},
    }
    events = [Event(author="model", event_type=kind, content=content) for kind, content in said.items()]
    await sessions.append("app", "mei", "s", events)
    window = await ContextAssembler(pool, LocalEmbedder()).assemble(
        app_name="app", user_id="mei", session_id="s", query="fruit"
    )
    texts = [item.content for item in window.items]
    for text in ("one apple", "two pears", "three plums"):
        assert any(text in each for each in texts), texts
    assert not any("four figs" in each for each in texts)
