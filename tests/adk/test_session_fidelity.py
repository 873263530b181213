"""What goes into a session comes out unchanged: the same tests for both of ADK's own services and for ours."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from fastapi.openapi.models import APIKey
from google.adk.auth.auth_tool import AuthConfig
from google.adk.events import Event, EventActions
from google.adk.sessions import BaseSessionService
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types

from tests.support.adk.events import EVENTS, parts
from tests.support.adk.services import Who, calling, changing, differs, said

#: Strings that some databases refuse.
NUL, SURROGATE = "a\0b", "a\ud800b"
JSONB_REFUSES = "fails, and the event is lost"
JSONB_REWRITES = "the database rewrites the value"
OBJECTS = "keeps Python objects unconverted"


async def stored(sessions: BaseSessionService, who: Who, event: Event) -> Event:
    """The event as read back after an append."""
    session = await sessions.create_session(**who)
    await sessions.append_event(session, event)
    found = await sessions.get_session(**who, session_id=session.id)
    assert found is not None
    [read] = found.events
    return read


async def stored_state(sessions: BaseSessionService, who: Who, state: dict[str, Any]) -> dict[str, Any]:
    """The state as read back: half of it is set at creation, the other half, under ``again:``, by an event."""
    session = await sessions.create_session(**who, state=state)
    await sessions.append_event(session, changing({f"{key}:again": value for key, value in state.items()}))
    found = await sessions.get_session(**who, session_id=session.id)
    assert found is not None
    return found.state


@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
async def test_an_event_round_trips(sessions: BaseSessionService, who: Who, event: Callable[[], Event]) -> None:
    given = event()
    assert await stored(sessions, who, given.model_copy(deep=True)) == given


@pytest.mark.parametrize("name", [None, "", "another"])
async def test_a_function_response_keeps_its_name(sessions: BaseSessionService, who: Who, name: str | None) -> None:
    """Also when the response has none and its call has one."""
    session = await sessions.create_session(**who)
    await sessions.append_event(session, calling({}))
    answer = types.FunctionResponse(id="c1", name=name, response={"a": 1})
    await sessions.append_event(session, parts(types.Part(function_response=answer)))
    read = await sessions.get_session(**who, session_id=session.id)
    assert read is not None
    assert read.events == session.events
    assert read.events[1].get_function_responses()[0].name == name


@differs(database="reads back another type of scheme")
async def test_a_credential_request_round_trips(sessions: BaseSessionService, who: Who) -> None:
    scheme = APIKey.model_validate({"type": "apiKey", "name": "key", "in": "header"})
    config = AuthConfig(auth_scheme=scheme, credential_key="k")
    given = Event(author="agent", actions=EventActions(requested_auth_configs={"c1": config}))
    read = await stored(sessions, who, given.model_copy(deep=True))
    assert read.actions.requested_auth_configs["c1"].auth_scheme == scheme


@differs(database=JSONB_REFUSES)
@pytest.mark.parametrize("text", [NUL, SURROGATE], ids=["NUL", "surrogate"])
async def test_text_of_any_characters_round_trips(sessions: BaseSessionService, who: Who, text: str) -> None:
    given = said(text, "agent", custom_metadata={text: text})
    assert (await stored(sessions, who, given)).model_dump() == given.model_dump()
    given = calling({text: [text]})
    assert (await stored(sessions, who, given)).model_dump() == given.model_dump()


@differs(database=JSONB_REFUSES)
@pytest.mark.parametrize("text", [NUL, SURROGATE], ids=["NUL", "surrogate"])
async def test_state_of_any_characters_round_trips(sessions: BaseSessionService, who: Who, text: str) -> None:
    given = {"a": text, "user:b": {text: 1}, "app:c": [text], f"k{text}": 1}
    again = {f"{key}:again": value for key, value in given.items()}
    assert await stored_state(sessions, who, given) == given | again


@differs(database="stores null instead")
async def test_non_json_numbers_survive_in_events(sessions: BaseSessionService, who: Who) -> None:
    read = await stored(sessions, who, calling({"a": math.nan, "b": math.inf, "c": [-math.inf]}))
    arguments = read.get_function_calls()[0].args
    assert arguments is not None
    assert math.isnan(arguments["a"])
    assert (arguments["b"], arguments["c"]) == (math.inf, [-math.inf])


@differs(database=JSONB_REFUSES)
async def test_non_json_numbers_survive_in_state(sessions: BaseSessionService, who: Who) -> None:
    state = await stored_state(sessions, who, {"a": math.nan, "user:b": math.inf, "app:c": [-math.inf]})
    assert math.isnan(state["a"])
    assert math.isnan(state["a:again"])
    assert (state["user:b"], state["app:c:again"]) == (math.inf, [-math.inf])


@differs(database=JSONB_REWRITES)
async def test_keys_keep_their_order(sessions: BaseSessionService, who: Who) -> None:
    read = await stored(sessions, who, calling({"zeta": 1, "alpha": {"y": 1, "b": 2}, "b": 3}))
    assert repr(read.get_function_calls()[0].args) == "{'zeta': 1, 'alpha': {'y': 1, 'b': 2}, 'b': 3}"


NUMBERS = {"a": 1e22, "b": -0.0, "c": 2**70, "d": 10**30, "e": 1.0, "f": 5e-324, "g": 1.7976931348623157e308, "h": 0.1}


@differs(database=JSONB_REWRITES)
async def test_numbers_in_events_keep_type_and_value(sessions: BaseSessionService, who: Who) -> None:
    read = await stored(sessions, who, calling(NUMBERS))
    assert repr(read.get_function_calls()[0].args) == repr(NUMBERS)


@differs(database=JSONB_REWRITES)
async def test_numbers_in_state_keep_type_and_value(sessions: BaseSessionService, who: Who) -> None:
    state = await stored_state(sessions, who, dict(NUMBERS))
    assert {key: repr(state[key]) for key in NUMBERS} == {key: repr(value) for key, value in NUMBERS.items()}
    assert {key: repr(state[f"{key}:again"]) for key in NUMBERS} == {k: repr(v) for k, v in NUMBERS.items()}


@differs(memory=OBJECTS)
async def test_state_without_a_json_form_becomes_a_string(sessions: BaseSessionService, who: Who) -> None:
    moment = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
    state = await stored_state(sessions, who, {"f": stored, "t": moment, "p": types.Part(text="x"), "l": (1, 2)})
    for key in ("f", "f:again"):
        assert isinstance(state[key], str)
        assert "stored" in state[key]
    assert state["t"].startswith("2026-03-01T09:30")
    assert state["p"]["text"] == "x"
    assert state["l"] == state["l:again"] == [1, 2]


async def test_an_event_survives_state_without_a_json_form(sessions: BaseSessionService, who: Who) -> None:
    given = said("hello", actions=EventActions(state_delta={"f": stored, "a": 1}))
    read = await stored(sessions, who, given)
    assert read.content == given.content
    assert read.actions.state_delta["a"] == 1


@differs(memory=OBJECTS)
async def test_state_that_contains_itself_is_refused_and_changes_nothing(
    sessions: BaseSessionService, who: Who
) -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(ValueError, match=r"(?i)circular|itself"):
        await sessions.create_session(**who, state={"a": circle})
    session = await sessions.create_session(**who)
    with pytest.raises(ValueError, match=r"(?i)circular|itself"):
        await sessions.append_event(session, changing({"a": {"b": circle}}))
    assert (await sessions.list_sessions(**who)).sessions == [session]


@differs(memory=OBJECTS, database="fails, and the event is lost")
async def test_bytes_in_state_become_text(sessions: BaseSessionService, who: Who) -> None:
    state = await stored_state(sessions, who, {"a": b"text", "b": b"\xff\xfe"})
    assert (state["a"], state["b"], state["b:again"]) == ("text", "__4=", "__4=")


@differs(database="fails, and the event is lost")
async def test_a_tool_result_without_a_json_form_does_not_lose_the_event(
    sessions: BaseSessionService, who: Who
) -> None:
    response = types.FunctionResponse(id="c1", name="f", response={"tool": stored, "ok": 1})
    read = await stored(sessions, who, parts(types.Part(function_response=response)))
    result = read.get_function_responses()[0].response
    assert result is not None
    assert "stored" in str(result["tool"])
    assert result["ok"] == 1


@differs(database="its columns are limited to 128 and 256 characters")
async def test_ids_may_be_long(sessions: BaseSessionService, who: Who) -> None:
    app, user, session_id = who["app_name"] + "a" * 200, "u" * 250, "s" * 512
    session = await sessions.create_session(app_name=app, user_id=user, session_id=session_id)
    event = said("x", "a" * 300, id="e" * 512, invocation_id="i" * 1000)
    await sessions.append_event(session, event)
    found = await sessions.get_session(app_name=app, user_id=user, session_id=session_id)
    assert found is not None
    assert found.events == [event]


@pytest.mark.parametrize("key", ["state:a", "user:", "app::b", "$hippocampus", "", "temp", "a b"])
async def test_a_key_may_have_any_characters(sessions: BaseSessionService, who: Who, key: str) -> None:
    session = await sessions.create_session(**who, state={key: [1]})
    await sessions.append_event(session, changing({key: {"$hippocampus": ["text", "x"]}}))
    found = await sessions.get_session(**who, session_id=session.id, config=GetSessionConfig(num_recent_events=0))
    assert found is not None
    assert found.state == {key: {"$hippocampus": ["text", "x"]}}


async def test_a_large_state_and_a_large_event_round_trip(sessions: BaseSessionService, who: Who) -> None:
    session = await sessions.create_session(**who, state={f"k{n}": "x" * 1000 for n in range(200)})
    await sessions.append_event(session, said("y" * 500_000, actions=EventActions(state_delta={"k7": "z"})))
    found = await sessions.get_session(**who, session_id=session.id)
    assert found == session
