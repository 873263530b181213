"""Runs: events and the run's row in one transaction, one end, one owner."""

from __future__ import annotations

import asyncpg
import pytest

from pulse.event_types import TERMINAL_EVENT_TYPES
from pulse.events import Event, Session
from pulse.run_service import RunService
from pulse.runs import RunStatus
from pulse.session_service import OpenSessionService


@pytest.fixture
def sessions(pool: asyncpg.Pool) -> OpenSessionService:
    return OpenSessionService(pool)


@pytest.fixture
def runs(pool: asyncpg.Pool) -> RunService:
    return RunService(pool)


@pytest.fixture
async def session(sessions: OpenSessionService) -> Session:
    return await sessions.create_session("app", "mei", session_id="s")


def question(text: str = "Where is my parcel?") -> Event:
    return Event(author="user", content={"content": text, "message_id": "m1"}, id="m1")


async def test_a_run_from_its_question_to_its_answer(
    runs: RunService, sessions: OpenSessionService, session: Session
) -> None:
    started = await runs.start("app", "mei", "s", "run-1", question())
    assert started.created
    assert started.run.status is RunStatus.RUNNING
    await runs.think(started.run, "I have to look it up")
    called = await runs.call_tool(started.run, "parcels", {"id": 7}, tool_call_id="c1")
    await runs.tool_result(called.run, "c1", {"eta": "tomorrow"})
    done = await runs.finish(called.run, "It arrives tomorrow.", message_id="m2")
    assert done.run.status is RunStatus.COMPLETED
    assert done.run == await runs.get("app", "mei", "run-1")
    events = await sessions.list_events("app", "mei", "s")
    assert [event.event_type for event in events] == [
        "user_message", "thought", "act", "observe", "assistant_message", "complete",
    ]  # fmt: skip
    assert {event.invocation_id for event in events} == {"run-1"}
    assert (done.run.first_sequence_num, done.run.last_sequence_num) == (1, 6)
    assert done.run.thinking_steps == [{"sequence_num": 2, "event_id": events[1].id}]
    assert done.run.tool_calls == [
        {"tool_call_id": "c1", "tool_name": "parcels", "sequence_num": 3, "result_sequence_num": 4, "is_error": False}
    ]
    assert set(TERMINAL_EVENT_TYPES.values()) & {event.event_type for event in events} == {"complete"}
