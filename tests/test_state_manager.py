"""State that changes safely: nobody's update is lost, an abandoned one leaves no trace."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import asyncpg
import pytest

from pulse.errors import ConcurrencyConflictError, InvalidInputError, SessionNotFoundError
from pulse.events import Event, Session
from pulse.session_service import OpenSessionService
from pulse.state_manager import StateManager, StateOverlay


@pytest.fixture
def sessions(pool: asyncpg.Pool) -> OpenSessionService:
    return OpenSessionService(pool)


@pytest.fixture
def states(sessions: OpenSessionService) -> StateManager:
    return StateManager(sessions)


@pytest.fixture
async def session(sessions: OpenSessionService) -> Session:
    return await sessions.create_session("app", "mei", {"count": 0, "user:lang": "zh"}, session_id="s")


def one_more(state: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"count": state["count"] + 1}


async def test_ten_tasks_with_five_increments_each_make_fifty(states: StateManager, session: Session) -> None:
    async def increment() -> None:
        for _ in range(5):
            await states.update_session_state("app", "mei", "s", one_more)

    await asyncio.gather(*(increment() for _ in range(10)))
    assert await states.get_state("app", "mei", "s", "count") == 50


async def test_an_update_that_always_loses_gives_up_and_changes_nothing(
    states: StateManager, sessions: OpenSessionService, session: Session
) -> None:
    """The rival appends inside the change itself, so that every try is late."""
    calls = 0

    class Rival(OpenSessionService):
        async def append_event(self, session: Session, event: Event) -> Event:
            await sessions.append("app", "mei", "s", [Event(author="user", content={"text": "first!"})])
            return await super().append_event(session, event)

    def change(state: Mapping[str, Any]) -> Mapping[str, Any]:
        nonlocal calls
        calls += 1
        return one_more(state)

    losing = StateManager(Rival(sessions._pool))
    with pytest.raises(ConcurrencyConflictError, match="3 times"):
        await losing.update_session_state("app", "mei", "s", change, max_attempts=3)
    assert calls == 3
    assert await states.get_state("app", "mei", "s", "count") == 0


async def test_reads_merge_the_scopes_and_know_a_default(states: StateManager, session: Session) -> None:
    await states.set_state("app", "mei", "s", {"app:model": "flash", "nothing": None})
    assert await states.get_all_state("app", "mei", "s") == {
        "count": 0,
        "user:lang": "zh",
        "app:model": "flash",
        "nothing": None,
    }
    assert await states.get_state("app", "mei", "s", "nothing", "default") is None
    assert await states.get_state("app", "mei", "s", "missing", "default") == "default"


async def test_an_unknown_session_is_an_error(states: StateManager) -> None:
    with pytest.raises(SessionNotFoundError):
        await states.get_all_state("app", "mei", "nowhere")
    with pytest.raises(SessionNotFoundError):
        await states.set_state("app", "mei", "nowhere", {"a": 1})


async def test_an_invocation_reads_its_own_pending_changes_and_commits_them_as_one_event(
    states: StateManager, sessions: OpenSessionService, session: Session
) -> None:
    async with states.invocation(session, "run-1") as overlay:
        overlay["count"] = 5
        overlay["temp:step"] = "one"
        overlay["user:lang"] = overlay["user:lang"] + "-CN"
        assert (overlay["count"], overlay["temp:step"], overlay["user:lang"]) == (5, "one", "zh-CN")
        assert session.state["count"] == 0
        unseen = await states.get_all_state("app", "mei", "s")
        assert unseen == {"count": 0, "user:lang": "zh"}
    read = await sessions.get_session("app", "mei", "s")
    assert read is not None
    assert read.state == {"count": 5, "user:lang": "zh-CN"}
    assert [(event.event_type, event.invocation_id) for event in read.events] == [("state_update", "run-1")]
    assert read == session


async def test_an_aborted_invocation_leaves_no_trace(
    states: StateManager, sessions: OpenSessionService, session: Session
) -> None:
    async def aborted() -> None:
        async with states.invocation(session, "run-1") as overlay:
            seen.append(overlay)
            overlay["count"] = 5
            raise TimeoutError

    seen: list[StateOverlay] = []
    with pytest.raises(TimeoutError):
        await aborted()
    (overlay,) = seen
    assert overlay["count"] == 0
    assert session == await sessions.get_session("app", "mei", "s")


async def test_an_invocation_that_set_nothing_appends_nothing(
    states: StateManager, sessions: OpenSessionService, session: Session
) -> None:
    async with states.invocation(session, "run-1") as overlay:
        overlay["temp:only"] = 1
    read = await sessions.get_session("app", "mei", "s")
    assert read is not None
    assert (read.version, read.events) == (0, [])


def test_an_overlay_is_a_mapping_without_deletion() -> None:
    overlay = StateOverlay({"a": 1})
    overlay["b"] = 2
    overlay["a"] = 3
    assert (dict(overlay), len(overlay)) == ({"a": 3, "b": 2}, 2)
    with pytest.raises(InvalidInputError, match="None"):
        del overlay["a"]
    overlay.discard()
    assert dict(overlay) == {"a": 1}
