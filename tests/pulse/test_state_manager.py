"""Safe state changes: no update is lost, and an abandoned one leaves no trace."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import asyncpg
import pytest

from pulse.adk import PostgresSessionService
from pulse.errors import ConcurrencyConflictError, InvalidInputError, SessionNotFoundError, StateTooLargeError
from pulse.events import Event, EventActions, Session
from pulse.postgres.json_values import DELETED
from pulse.session_service import OpenSessionService
from pulse.state.overlay import StateOverlay
from pulse.state_manager import StateManager


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


def said(**delta: Any) -> Event:
    return Event(author="user", content={"text": "hello"}, actions=EventActions(state_delta=delta))


async def test_ten_tasks_with_five_increments_each_make_fifty(states: StateManager, session: Session) -> None:
    async def increment() -> None:
        for _ in range(5):
            await states.update_session_state("app", "mei", "s", one_more, max_attempts=200)

    await asyncio.gather(*(increment() for _ in range(10)))
    assert await states.get_state("app", "mei", "s", "count") == 50


async def test_concurrent_increments_of_shared_keys_are_all_kept(
    states: StateManager, sessions: OpenSessionService
) -> None:
    """The version of a session does not cover what another session did to the user's state or the app's."""
    await asyncio.gather(*(sessions.create_session("app", "mei", session_id=f"s{n}") for n in range(10)))

    def both(state: Mapping[str, Any]) -> Mapping[str, Any]:
        return {key: state.get(key, 0) + 1 for key in ("user:count", "app:count")}

    async def increment(n: int) -> None:
        for _ in range(5):
            await states.update_session_state("app", "mei", f"s{n}", both, max_attempts=200)

    await asyncio.gather(*(increment(n) for n in range(10)))
    assert await states.get_state("app", "mei", "s0", "user:count") == 50
    assert await states.get_state("app", "mei", "s9", "app:count") == 50


async def test_a_conflicting_change_of_a_shared_key_is_refused_only_on_request(
    sessions: OpenSessionService,
) -> None:
    """A refused change has no effect in either scope. A delta that depends on nothing succeeds."""
    one = await sessions.create_session("app", "mei", {"user:lang": "en"}, session_id="one")
    other = await sessions.create_session("app", "mei", session_id="other")
    await sessions.append_event(other, said(**{"user:lang": "zh"}))
    with pytest.raises(ConcurrencyConflictError, match="shared"):
        await sessions.append_event(one, said(**{"user:lang": "pt", "app:a": 1, "b": 2}), guard_shared=True)
    read = await sessions.get_session("app", "mei", "one")
    assert read is not None
    assert (read.version, read.state, read.events) == (0, {"user:lang": "zh"}, [])
    await sessions.append_event(one, said(b=2), guard_shared=True)
    assert one.user_version == 1
    await sessions.append_event(one, said(**{"user:lang": "pt"}))
    assert one.user_version == 1, "the session skipped a change it has not read"
    with pytest.raises(ConcurrencyConflictError):
        await sessions.append_event(one, said(**{"user:lang": "fr"}), guard_shared=True)


async def test_an_update_that_always_conflicts_gives_up_and_changes_nothing(
    states: StateManager, sessions: OpenSessionService, session: Session
) -> None:
    """The rival appends inside the change itself, so every attempt is late."""
    calls = 0

    class Rival(OpenSessionService):
        async def append_event(self, session: Session, event: Event, *, guard_shared: bool = False) -> Event:
            await sessions.append("app", "mei", "s", [Event(author="user", content={"text": "first!"})])
            return await super().append_event(session, event, guard_shared=guard_shared)

    def change(state: Mapping[str, Any]) -> Mapping[str, Any]:
        nonlocal calls
        calls += 1
        return one_more(state)

    losing = StateManager(Rival(sessions._pool))
    with pytest.raises(ConcurrencyConflictError, match="3 times"):
        await losing.update_session_state("app", "mei", "s", change, max_attempts=3)
    assert calls == 3
    assert await states.get_state("app", "mei", "s", "count") == 0


async def test_reads_merge_the_scopes_and_accept_a_default(states: StateManager, session: Session) -> None:
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


async def test_an_invocation_reads_its_pending_changes_and_commits_them_as_one_event(
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


async def test_overlays_are_found_by_invocation_and_released_with_it(
    states: StateManager, sessions: OpenSessionService, session: Session
) -> None:
    """Invocations of a session do not see each other. An ended one, however it ended, is gone with its temp: keys."""
    other = await sessions.create_session("app", "mei", session_id="other")
    async with states.invocation(session, "run-1") as first, states.invocation(other, "run-1") as second:
        first["temp:step"] = first["count"] = 7
        second["user:lang"] = "pt"
        assert states.overlay("app", "mei", "s", "run-1") is first
        seen = await states.get_all_state("app", "mei", "s", invocation_id="run-1")
        assert seen == {"count": 7, "temp:step": 7, "user:lang": "zh"}
        assert await states.get_state("app", "mei", "s", "temp:step", invocation_id="run-1") == 7
        assert await states.get_state("app", "mei", "s", "count", invocation_id="run-1") == 7
        assert await states.get_state("app", "mei", "s", "user:lang", invocation_id="run-1") == "zh"
        assert await states.get_state("app", "mei", "s", "temp:step") is None
        with pytest.raises(InvalidInputError, match="open already"):
            async with states.invocation(session, "run-1"):
                pass
        first.discard()
    for name in ("s", "other"):
        with pytest.raises(InvalidInputError, match="no invocation"):
            states.overlay("app", "mei", name, "run-1")
    assert await states.get_state("app", "mei", "other", "user:lang") == "pt"
    assert states._overlays == {}
    async with states.invocation(session, "run-1") as again:
        assert "temp:step" not in again


async def test_an_invocation_can_commit_early_and_continue(
    states: StateManager, sessions: OpenSessionService, session: Session
) -> None:
    """What was committed stays, even if the rest is dropped. temp: keys stay, and its own appends are visible."""

    async def broken() -> None:
        async with states.invocation(session, "run-1") as overlay:
            overlay["count"] = 1
            overlay["temp:step"] = 1
            await states.commit(session, "run-1")
            await states.commit(session, "run-1")
            await sessions.append_event(session, said(word="hello"))
            assert (overlay["count"], overlay["temp:step"], overlay["word"]) == (1, 1, "hello")
            overlay["count"] = 2
            raise TimeoutError

    with pytest.raises(TimeoutError):
        await broken()
    read = await sessions.get_session("app", "mei", "s")
    assert read is not None
    assert read.state == {"count": 1, "user:lang": "zh", "word": "hello"}
    assert [event.event_type for event in read.events] == ["state_update", "user_message"]


async def test_an_invocation_behind_other_appends_is_refused_and_dropped(
    states: StateManager, sessions: OpenSessionService, session: Session
) -> None:
    async def overtaken() -> None:
        async with states.invocation(session, "run-1") as overlay:
            overlay["count"] = 9
            await sessions.append("app", "mei", "s", [said(count=1)])

    with pytest.raises(ConcurrencyConflictError):
        await overtaken()
    assert await states.get_state("app", "mei", "s", "count") == 1
    assert states._overlays == {}


async def test_state_over_its_limit_is_refused_before_anything_changes(
    states: StateManager, sessions: OpenSessionService, session: Session, pool: asyncpg.Pool
) -> None:
    """By the app's policy, in each scope, also on creation. The error has a hint. Setting a key to null frees
    space."""
    await pool.execute("UPDATE app_policies SET max_state_bytes = 2000")
    for key in ("big", "user:big", "app:big"):
        with pytest.raises(StateTooLargeError, match="remove keys"):
            await states.set_state("app", "mei", "s", {"count": 5, key: "x" * 2000})
        with pytest.raises(StateTooLargeError):
            await sessions.create_session("app", "mei", {key: "x" * 2000}, session_id="other")
    assert await states.get_all_state("app", "mei", "s") == {"count": 0, "user:lang": "zh"}
    assert await pool.fetchval("SELECT count(*) FROM events") == 0
    assert await pool.fetchval("SELECT count(*) FROM threads") == 1
    await states.set_state("app", "mei", "s", {"a": "x" * 1800})
    await states.set_state("app", "mei", "s", {"a": None})
    await states.set_state("app", "mei", "s", {"b": "x" * 1800})


def test_an_overlay_is_a_mapping() -> None:
    overlay = StateOverlay({"a": 1, "c": 0})
    overlay["b"] = 2
    overlay["a"] = 3
    assert (dict(overlay), len(overlay)) == ({"a": 3, "b": 2, "c": 0}, 3)
    del overlay["a"]
    assert (dict(overlay), len(overlay), "a" in overlay) == ({"b": 2, "c": 0}, 2, False)
    assert overlay.delta == {"a": DELETED, "b": 2}
    with pytest.raises(KeyError):
        del overlay["a"]
    overlay.discard()
    assert dict(overlay) == {"a": 1, "c": 0}


async def test_a_deleted_key_reads_as_missing(
    pool: asyncpg.Pool, sessions: OpenSessionService, states: StateManager, session: Session
) -> None:
    """In each scope, within an invocation and after it. The default is returned, while a null stays a null."""
    names = (session.app_name, session.user_id, session.id)
    await states.set_state(*names, {"a": 1, "b": 2, "n": None, "user:u": 1, "app:p": 1})
    fresh = await sessions.get_session(*names)
    assert fresh is not None
    async with states.invocation(fresh, "i") as overlay:
        del overlay["a"]
        assert await states.get_state(*names, "a", "default", invocation_id="i") == "default"
        assert "a" not in await states.get_all_state(*names, invocation_id="i")
        assert await states.get_state(*names, "a") == 1
    assert "a" not in fresh.state
    await states.set_state(*names, {"user:u": DELETED, "app:p": DELETED})
    left = {"b": 2, "n": None}
    assert {
        key: value for key, value in (await states.get_all_state(*names)).items() if key not in session.state
    } == left
    assert await states.get_state(*names, "user:u", "default") == "default"
    again = await sessions.get_session(*names)
    assert again is not None
    stored = await PostgresSessionService(pool).get_session(app_name=names[0], user_id=names[1], session_id=names[2])
    assert stored is not None
    assert stored.state == again.state
    deltas = [event.actions.state_delta for event in stored.events]
    assert {"a": None} in deltas
    assert {"user:u": None, "app:p": None} in deltas
    listed = await sessions.list_sessions(names[0], names[1])
    assert listed[0].state == again.state
    await states.set_state(*names, {"a": "back"})
    assert await states.get_state(*names, "a") == "back"


@pytest.mark.parametrize(
    "event",
    [
        Event(author="user", actions=EventActions(state_delta={"a": {"within": DELETED}})),
        Event(author="user", actions=EventActions(state_delta={"a": [DELETED]})),
        Event(author="user", content={"a": DELETED}),
    ],
)
async def test_only_top_level_keys_can_be_deleted(sessions: OpenSessionService, session: Session, event: Event) -> None:
    with pytest.raises(InvalidInputError, match="only a key of the state"):
        await sessions.append_event(session, event)
