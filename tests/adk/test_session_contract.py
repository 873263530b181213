"""The contract of ADK's session services: the same tests for both of ADK's own and for ours."""

from __future__ import annotations

import asyncio
import copy
import time
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.sessions import BaseSessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig

from tests.support.adk.services import Who, changing, differs, said

BLANKS_KEPT = "does not strip ids"
NO_MARKER = "does not detect a stale writer"
TIME_AS_MARKER = "compares only the time of the last event"
TEMP_KEPT = "leaves temp: keys of a refused event in the session"


async def reread(sessions: BaseSessionService, session: Session, **config: Any) -> Session:
    """The session as it is stored."""
    found = await sessions.get_session(
        app_name=session.app_name,
        user_id=session.user_id,
        session_id=session.id,
        config=GetSessionConfig(**config) if config else None,
    )
    assert found is not None
    return found


def ids(session: Session) -> list[str]:
    return [event.id for event in session.events]


async def with_times(sessions: BaseSessionService, who: Who, *times: float) -> Session:
    """A session with one event for each time, with the ids a, b, c, …"""
    session = await sessions.create_session(**who)
    for letter, at in zip("abcdefgh", times, strict=False):
        await sessions.append_event(session, said(letter, id=letter, timestamp=at))
    return session


# Creating


async def test_a_created_session_reads_back_equal(sessions: BaseSessionService, who: Who) -> None:
    created = await sessions.create_session(**who, state={"a": 1, "user:b": 2, "app:c": [3]}, session_id="s")
    assert await sessions.get_session(**who, session_id="s") == created
    assert created.state == {"a": 1, "user:b": 2, "app:c": [3]}


async def test_a_given_id_is_kept(sessions: BaseSessionService, who: Who) -> None:
    assert (await sessions.create_session(**who, session_id="s/1 二")).id == "s/1 二"


async def test_sessions_without_an_id_get_distinct_ids(sessions: BaseSessionService, who: Who) -> None:
    first, second = await sessions.create_session(**who), await sessions.create_session(**who)
    assert first.id != second.id
    assert len(first.id) >= 32


@differs(database=BLANKS_KEPT)
async def test_blanks_around_an_id_are_stripped(sessions: BaseSessionService, who: Who) -> None:
    assert (await sessions.create_session(**who, session_id="  s \n")).id == "s"
    found = await sessions.get_session(**who, session_id=" s")
    assert found is not None
    await sessions.delete_session(**who, session_id="s ")
    assert await sessions.get_session(**who, session_id="s") is None


@differs(database=BLANKS_KEPT)
@pytest.mark.parametrize("blank", ["", "   "])
async def test_a_blank_id_counts_as_none(sessions: BaseSessionService, who: Who, blank: str) -> None:
    assert (await sessions.create_session(**who, session_id=blank)).id.strip() != ""


async def test_an_id_in_use_is_refused(sessions: BaseSessionService, who: Who) -> None:
    await sessions.create_session(**who, session_id="s", state={"user:a": 1})
    with pytest.raises(AlreadyExistsError):
        await sessions.create_session(**who, session_id="s", state={"user:a": 2})
    assert await sessions.get_user_state(**who) == {"a": 1}


@differs(database=BLANKS_KEPT)
async def test_an_id_that_differs_only_in_blanks_is_refused(sessions: BaseSessionService, who: Who) -> None:
    await sessions.create_session(**who, session_id="s")
    with pytest.raises(AlreadyExistsError):
        await sessions.create_session(**who, session_id=" s ")


async def test_the_same_id_is_free_for_other_users_and_apps(sessions: BaseSessionService, who: Who) -> None:
    for app, user in ((who["app_name"], "bob"), (who["app_name"] + "x", "ann"), (who["app_name"], "ann")):
        await sessions.create_session(app_name=app, user_id=user, session_id="s", state={"owner": [app, user]})
    found = await sessions.get_session(**who, session_id="s")
    assert found is not None
    assert found.state == {"owner": [who["app_name"], "ann"]}


async def test_one_of_ten_concurrent_creations_of_an_id_succeeds(sessions: BaseSessionService, who: Who) -> None:
    done = await asyncio.gather(
        *(sessions.create_session(**who, session_id="s") for _ in range(10)), return_exceptions=True
    )
    assert sum(isinstance(each, Session) for each in done) == 1
    assert sum(isinstance(each, AlreadyExistsError) for each in done) == 9


async def test_temporary_keys_of_an_initial_state_are_dropped(sessions: BaseSessionService, who: Who) -> None:
    created = await sessions.create_session(**who, state={"temp:a": 1, "b": 2})
    assert created.state == {"b": 2}
    assert (await reread(sessions, created)).state == {"b": 2}


async def test_the_update_time_of_a_new_session_is_now(sessions: BaseSessionService, who: Who) -> None:
    before = time.time()
    created = await sessions.create_session(**who)
    assert before - 5 < created.last_update_time < time.time() + 5


# Reading


async def test_an_unknown_session_is_none(sessions: BaseSessionService, who: Who) -> None:
    await sessions.create_session(**who, session_id="s")
    assert await sessions.get_session(**who, session_id="t") is None
    assert await sessions.get_session(**who, session_id=None) is None  # type: ignore[arg-type]  # as ADK's own take it
    assert await sessions.get_session(app_name=who["app_name"], user_id="bob", session_id="s") is None
    assert await sessions.get_session(app_name="other", user_id="ann", session_id="s") is None


@differs(memory="returns events in append order")
async def test_events_are_ordered_by_time(sessions: BaseSessionService, who: Who) -> None:
    session = await with_times(sessions, who, 300.5, 100.25, 200.0)
    assert ids(await reread(sessions, session)) == ["b", "c", "a"]


@differs(memory="returns events in append order")
async def test_events_with_equal_times_are_ordered_by_id(sessions: BaseSessionService, who: Who) -> None:
    session = await sessions.create_session(**who)
    for event_id in ("b", "d", "a", "c"):
        await sessions.append_event(session, said("x", id=event_id, timestamp=100.5))
    assert ids(await reread(sessions, session)) == ["a", "b", "c", "d"]
    assert ids(await reread(sessions, session, num_recent_events=2)) == ["c", "d"]


async def test_only_the_newest_events_can_be_read(sessions: BaseSessionService, who: Who) -> None:
    session = await with_times(sessions, who, 1.0, 2.0, 3.0, 4.0)
    assert ids(await reread(sessions, session, num_recent_events=2)) == ["c", "d"]
    assert ids(await reread(sessions, session, num_recent_events=9)) == ["a", "b", "c", "d"]


async def test_a_session_can_be_read_without_events(sessions: BaseSessionService, who: Who) -> None:
    session = await with_times(sessions, who, 1.0, 2.0)
    found = await reread(sessions, session, num_recent_events=0)
    assert (found.events, found.last_update_time) == ([], 2.0)


async def test_events_after_a_time_include_that_time(sessions: BaseSessionService, who: Who) -> None:
    session = await with_times(sessions, who, 1.0, 2.0, 3.0)
    assert ids(await reread(sessions, session, after_timestamp=2.0)) == ["b", "c"]
    assert ids(await reread(sessions, session, after_timestamp=3.5)) == []


async def test_both_limits_apply(sessions: BaseSessionService, who: Who) -> None:
    session = await with_times(sessions, who, 1.0, 2.0, 3.0, 4.0)
    assert ids(await reread(sessions, session, after_timestamp=2.0, num_recent_events=2)) == ["c", "d"]
    assert ids(await reread(sessions, session, after_timestamp=4.0, num_recent_events=3)) == ["d"]


@differs(database="compares times to the microsecond")
async def test_after_timestamp_is_exact(sessions: BaseSessionService, who: Who) -> None:
    at = 1_700_000_000.1234567
    session = await with_times(sessions, who, at, at + 2.4e-7)
    assert session.events[0].timestamp < session.events[1].timestamp
    assert ids(await reread(sessions, session, after_timestamp=session.events[1].timestamp)) == ["b"]


@pytest.mark.parametrize("at", [1_700_000_000.1234567, 0.1, 1_761_440_400.000001])
async def test_the_timestamp_of_an_event_round_trips_exactly(sessions: BaseSessionService, who: Who, at: float) -> None:
    session = await with_times(sessions, who, at)
    assert (await reread(sessions, session)).events[0].timestamp == at


async def test_the_repeated_hour_of_a_clock_change_keeps_its_order(sessions: BaseSessionService, who: Who) -> None:
    zone = ZoneInfo("Europe/Lisbon")
    first = datetime(2025, 10, 26, 1, 30, tzinfo=zone).timestamp()
    second = datetime(2025, 10, 26, 1, 30, fold=1, tzinfo=zone).timestamp()
    session = await with_times(sessions, who, first, second)
    assert [event.timestamp for event in (await reread(sessions, session)).events] == [first, first + 3600]


def test_a_negative_number_of_events_is_refused() -> None:
    with pytest.raises(ValueError, match="num_recent_events"):
        GetSessionConfig(num_recent_events=-1)


# Appending


async def test_a_session_after_appends_equals_a_fresh_read(sessions: BaseSessionService, who: Who) -> None:
    session = await sessions.create_session(**who)
    await sessions.append_event(session, said("hello"))
    await sessions.append_event(session, changing({"a": 1, "user:b": {"c": [2]}, "app:d": "e"}))
    await sessions.append_event(session, said("good bye", "agent"))
    assert await reread(sessions, session) == session
    assert session.last_update_time == (await reread(sessions, session)).last_update_time


@differs(database="rounds the session's time to the microsecond")
async def test_the_update_time_of_a_session_is_that_of_its_last_event(sessions: BaseSessionService, who: Who) -> None:
    session = await with_times(sessions, who, 1_700_000_000.1234567)
    assert session.last_update_time == 1_700_000_000.1234567
    assert (await reread(sessions, session)).last_update_time == 1_700_000_000.1234567


async def test_the_update_time_may_go_back(sessions: BaseSessionService, who: Who) -> None:
    session = await with_times(sessions, who, 200.5, 100.25)
    assert session.last_update_time == (await reread(sessions, session)).last_update_time == 100.25


async def test_append_returns_the_given_event(sessions: BaseSessionService, who: Who) -> None:
    session = await sessions.create_session(**who)
    event = said("hello")
    assert await sessions.append_event(session=session, event=event) is event
    assert session.events[-1] is event


async def test_a_partial_event_changes_nothing(sessions: BaseSessionService, who: Who) -> None:
    session = await sessions.create_session(**who)
    event = changing({"a": 1, "temp:b": 2}, partial=True)
    assert await sessions.append_event(session, event) is event
    assert (session.state, session.events, event.actions.state_delta) == ({}, [], {"a": 1, "temp:b": 2})
    assert await reread(sessions, session) == session


async def test_temporary_keys_reach_only_the_live_session(sessions: BaseSessionService, who: Who) -> None:
    session = await sessions.create_session(**who)
    event = await sessions.append_event(session, changing({"temp:a": 1, "b": 2}))
    assert session.state == {"temp:a": 1, "b": 2}
    assert event.actions.state_delta == {"b": 2}
    stored = await reread(sessions, session)
    assert stored.state == {"b": 2}
    assert stored.events[0].actions.state_delta == {"b": 2}


async def test_a_prefix_selects_the_scope_of_a_key(sessions: BaseSessionService, who: Who) -> None:
    session = await sessions.create_session(**who)
    await sessions.append_event(session, changing({"a": 1, "user:b": 2, "app:c": 3}))
    same_user = await sessions.create_session(**who)
    other_user = await sessions.create_session(app_name=who["app_name"], user_id="bob")
    assert same_user.state == {"user:b": 2, "app:c": 3}
    assert other_user.state == {"app:c": 3}
    assert await sessions.get_user_state(**who) == {"b": 2}


async def test_a_value_replaces_the_old_one_completely(sessions: BaseSessionService, who: Who) -> None:
    session = await sessions.create_session(**who, state={"a": {"x": 1, "y": 2}, "b": 1, "c": 1, "user:d": {"z": 1}})
    await sessions.append_event(session, changing({"a": {"x": 3}, "b": None, "c": True, "user:d": {}}))
    expected = {"a": {"x": 3}, "b": None, "c": True, "user:d": {}}
    assert session.state == (await reread(sessions, session)).state == expected
    assert session.state["c"] is True


async def test_a_session_stays_current_without_a_new_read(sessions: BaseSessionService, who: Who) -> None:
    session = await sessions.create_session(**who)
    for n in range(5):
        await sessions.append_event(session, changing({"n": n, f"k{n}": n}))
    assert session.state["n"] == 4
    assert await reread(sessions, session) == session


@differs(memory=NO_MARKER)
async def test_a_writer_that_has_not_seen_the_last_event_is_refused(sessions: BaseSessionService, who: Who) -> None:
    session = await sessions.create_session(**who)
    stale = await reread(sessions, session)
    await sessions.append_event(session, said("first"))
    with pytest.raises(StaleSessionError, match="modified in storage"):
        await sessions.append_event(stale, changing({"a": 1, "user:b": 1, "app:c": 1}))
    assert await reread(sessions, session) == session


@differs(memory=NO_MARKER, database=TIME_AS_MARKER)
async def test_events_with_equal_times_do_not_hide_a_stale_writer(sessions: BaseSessionService, who: Who) -> None:
    session = await with_times(sessions, who, 100.5)
    stale = await reread(sessions, session)
    await sessions.append_event(session, said("b", timestamp=100.5))
    with pytest.raises(StaleSessionError):
        await sessions.append_event(stale, said("c", timestamp=101.5))


@differs(memory=NO_MARKER, database=TIME_AS_MARKER)
async def test_a_repeated_time_does_not_hide_a_stale_writer(sessions: BaseSessionService, who: Who) -> None:
    session = await with_times(sessions, who, 100.5)
    stale = await reread(sessions, session)
    await sessions.append_event(session, said("b", timestamp=102.5))
    await sessions.append_event(session, said("c", timestamp=100.5))
    with pytest.raises(StaleSessionError):
        await sessions.append_event(stale, said("d", timestamp=103.5))


@differs(memory=NO_MARKER)
async def test_one_of_many_appends_to_the_same_snapshot_succeeds(sessions: BaseSessionService, who: Who) -> None:
    session = await sessions.create_session(**who)
    snapshots = [await reread(sessions, session) for _ in range(8)]
    done = await asyncio.gather(
        *(sessions.append_event(each, changing({f"k{n}": n})) for n, each in enumerate(snapshots)),
        return_exceptions=True,
    )
    assert sum(isinstance(each, StaleSessionError) for each in done) == 7
    [winner] = (each for each, outcome in zip(snapshots, done, strict=True) if not isinstance(outcome, Exception))
    assert await reread(sessions, session) == winner


@differs(memory="applies the refused append", database=TEMP_KEPT)
async def test_a_refused_append_changes_neither_session_nor_event(sessions: BaseSessionService, who: Who) -> None:
    session = await sessions.create_session(**who)
    stale = await reread(sessions, session)
    await sessions.append_event(session, said("first"))
    event = changing({"temp:a": 1, "b": 2})
    before, event_before = copy.deepcopy(stale), copy.deepcopy(event)
    with pytest.raises(StaleSessionError):
        await sessions.append_event(stale, event)
    assert (stale, event) == (before, event_before)


async def test_branches_that_share_a_session_object_append_in_turn(sessions: BaseSessionService, who: Who) -> None:
    session = await sessions.create_session(**who)
    await asyncio.gather(*(sessions.append_event(session, changing({f"k{n}": n})) for n in range(12)))
    assert session.state == {f"k{n}": n for n in range(12)}
    assert (await reread(sessions, session)).state == session.state


async def test_a_small_drift_of_the_update_time_is_ignored(sessions: BaseSessionService, who: Who) -> None:
    session = await with_times(sessions, who, 1_700_000_000.5)
    session.last_update_time -= 1e-4
    await sessions.append_event(session, said("b", timestamp=1_700_000_001.5))
    assert len((await reread(sessions, session)).events) == 2


def deserialized(session: Session, **changes: Any) -> Session:
    """The session as parsed from JSON, without the service's private attributes."""
    return Session.model_validate({**session.model_dump(), **changes})


async def test_a_deserialized_session_is_accepted_if_it_has_the_last_event(
    sessions: BaseSessionService, who: Who
) -> None:
    session = await with_times(sessions, who, 100.5, 101.5)
    handmade = deserialized(session)
    await sessions.append_event(handmade, said("c", timestamp=102.5))
    await sessions.append_event(handmade, said("d", timestamp=103.5))
    assert len((await reread(sessions, session)).events) == 4


async def test_a_deserialized_session_without_events_is_accepted_if_there_are_none(
    sessions: BaseSessionService, who: Who
) -> None:
    session = await sessions.create_session(**who)
    handmade = Session(**who, id=session.id)
    await sessions.append_event(handmade, said("a"))
    assert len((await reread(sessions, session)).events) == 1


@differs(memory=NO_MARKER)
async def test_a_deserialized_session_without_the_last_event_is_refused(sessions: BaseSessionService, who: Who) -> None:
    session = await with_times(sessions, who, 100.5, 101.5)
    for events in (session.events[:1], []):
        handmade = deserialized(session, events=[each.model_dump() for each in events], last_update_time=50.0)
        with pytest.raises(StaleSessionError):
            await sessions.append_event(handmade, said("c", timestamp=102.5))


async def test_an_append_to_a_deleted_session_is_refused(sessions: BaseSessionService, who: Who) -> None:
    session = await sessions.create_session(**who)
    await sessions.delete_session(**who, session_id=session.id)
    with pytest.raises(SessionNotFoundError):
        await sessions.append_event(session, changing({"user:a": 1}))
    assert await sessions.get_user_state(**who) == {}


@differs(memory=NO_MARKER)
async def test_an_append_of_the_old_object_to_a_recreated_session_is_refused(
    sessions: BaseSessionService, who: Who
) -> None:
    old = await sessions.create_session(**who, session_id="s")
    await sessions.delete_session(**who, session_id="s")
    await sessions.create_session(**who, session_id="s")
    with pytest.raises(StaleSessionError):
        await sessions.append_event(old, said("a"))


@differs(database="raises the database's own error")
async def test_a_redelivered_event_is_stored_once(sessions: BaseSessionService, who: Who) -> None:
    session = await sessions.create_session(**who)
    event = changing({"a": 1, "temp:b": 1}, id="e")
    await sessions.append_event(session, event)
    await sessions.append_event(session, event)
    assert ids(session) == ids(await reread(sessions, session)) == ["e"]
    await sessions.append_event(session, said("next"))
    assert (await reread(sessions, session)).state == {"a": 1}


# Listing, deleting, user state


async def test_listed_sessions_have_state_and_no_events(sessions: BaseSessionService, who: Who) -> None:
    session = await sessions.create_session(**who, state={"a": 1})
    await sessions.append_event(session, changing({"user:b": 2, "app:c": 3}))
    await sessions.create_session(app_name=who["app_name"], user_id="bob")
    [listed] = (await sessions.list_sessions(**who)).sessions
    assert (listed.id, listed.events, listed.state) == (session.id, [], {"a": 1, "user:b": 2, "app:c": 3})
    assert listed.last_update_time == session.last_update_time


async def test_a_listed_session_accepts_an_event(sessions: BaseSessionService, who: Who) -> None:
    session = await with_times(sessions, who, 100.5)
    [listed] = (await sessions.list_sessions(**who)).sessions
    await sessions.append_event(listed, said("b", timestamp=101.5))
    assert len((await reread(sessions, session)).events) == 2


async def test_sessions_of_all_users_are_listed_without_a_user(sessions: BaseSessionService, who: Who) -> None:
    app = who["app_name"]
    for user in ("bob", "ann", "ann"):
        await sessions.create_session(app_name=app, user_id=user, state={"user:name": user, "app:x": 1})
    listed = (await sessions.list_sessions(app_name=app)).sessions
    assert sorted(each.user_id for each in listed) == ["ann", "ann", "bob"]
    assert all(each.state == {"user:name": each.user_id, "app:x": 1} for each in listed)
    assert (await sessions.list_sessions(app_name=app, user_id="")).sessions == []
    assert (await sessions.list_sessions(app_name="nobody-has-this")).sessions == []


async def test_a_list_starts_with_the_least_recently_updated_session(sessions: BaseSessionService, who: Who) -> None:
    app = who["app_name"]
    for user, session_id, at in (("ann", "z", 30.5), ("bob", "a", 20.5), ("ann", "b", 20.5), ("ann", "a", 20.5)):
        session = await sessions.create_session(app_name=app, user_id=user, session_id=session_id)
        await sessions.append_event(session, said("x", timestamp=at))
    listed = (await sessions.list_sessions(app_name=app)).sessions
    assert [(each.user_id, each.id) for each in listed] == [("ann", "a"), ("ann", "b"), ("bob", "a"), ("ann", "z")]


async def test_deleting_removes_events_and_keeps_shared_state(sessions: BaseSessionService, who: Who) -> None:
    session = await sessions.create_session(**who, session_id="s", state={"user:a": 1, "app:b": 2})
    await sessions.append_event(session, said("x", id="e1"))
    await sessions.delete_session(**who, session_id="s")
    assert await sessions.get_session(**who, session_id="s") is None
    again = await sessions.create_session(**who, session_id="s")
    assert (again.events, again.state) == ([], {"user:a": 1, "app:b": 2})
    await sessions.append_event(again, said("y", id="e1"))


async def test_deleting_an_unknown_session_is_not_an_error(sessions: BaseSessionService, who: Who) -> None:
    await sessions.delete_session(**who, session_id="never")
    session = await sessions.create_session(**who, session_id="s")
    await sessions.delete_session(app_name=who["app_name"], user_id="bob", session_id="s")
    assert await reread(sessions, session) == session


async def test_the_keys_of_a_users_state_have_no_prefix(sessions: BaseSessionService, who: Who) -> None:
    assert await sessions.get_user_state(**who) == {}
    await sessions.create_session(**who, state={"user:a": {"b": None}, "app:c": 1, "d": 2})
    assert await sessions.get_user_state(**who) == {"a": {"b": None}}
    assert await sessions.get_user_state(app_name=who["app_name"], user_id="bob") == {}


async def test_flush_works_with_nothing_to_flush(sessions: BaseSessionService, who: Who) -> None:
    await sessions.flush()
    session = await sessions.create_session(**who)
    await sessions.append_event(session, said("x"))
    await sessions.flush()
    assert len((await reread(sessions, session)).events) == 1


# Concurrency


@differs(database="overwrites concurrent changes")
async def test_concurrent_creations_lose_no_key(sessions: BaseSessionService, who: Who) -> None:
    await asyncio.gather(*(sessions.create_session(**who, state={f"user:k{n}": n, f"app:k{n}": n}) for n in range(20)))
    expected = {f"k{n}": n for n in range(20)}
    assert await sessions.get_user_state(**who) == expected
    assert (await sessions.create_session(app_name=who["app_name"], user_id="bob")).state == {
        f"app:{key}": value for key, value in expected.items()
    }


@differs(database="overwrites concurrent changes")
async def test_concurrent_appends_and_creations_lose_no_key(sessions: BaseSessionService, who: Who) -> None:
    opened = [await sessions.create_session(**who) for _ in range(10)]

    async def append(number: int) -> None:
        for n in range(5):
            await sessions.append_event(opened[number], changing({f"app:a{number}-{n}": n, f"user:a{number}-{n}": n}))

    async def create(number: int) -> None:
        for n in range(5):
            await sessions.create_session(**who, state={f"app:c{number}-{n}": n, f"user:c{number}-{n}": n})

    await asyncio.gather(*map(append, range(10)), *map(create, range(10)))
    assert len(await sessions.get_user_state(**who)) == 100
    assert len((await sessions.create_session(app_name=who["app_name"], user_id="bob")).state) == 100
