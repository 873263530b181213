"""The fast conversion of an event stores the same as the full one, or declines."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from google.adk.events import Event, EventActions
from google.adk.events.event import NodeInfo
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from pulse.adk.events import from_rows, to_engine
from pulse.adk.pieces import REST
from pulse.adk.usual_events import usual_input
from pulse.errors import InvalidInputError
from pulse.event_rows import EventInput, event_input
from pulse.postgres.json_values import MARK
from tests.support.adk.events import EVENTS
from tests.support.adk.services import calling, changing, said
from tests.support.properties import examples


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def later_artifact() -> Event:
    event = said("x")
    event.actions.artifact_delta["f"] = 1
    return event


def assigned(**fields: Any) -> Callable[[], Event]:
    """An event with fields that were assigned without validation."""

    def event() -> Event:
        made = said("x")
        for name, value in fields.items():
            setattr(made, name, value)
        return made

    return event


def changed_by(change: Callable[[Event], object]) -> Callable[[], Event]:
    def event() -> Event:
        made = said("x")
        change(made)
        return made

    return event


class NotedContent(types.Content):
    note: str = "an application's own"


def part_of(event: Event) -> Any:
    assert event.content is not None
    assert event.content.parts is not None
    return event.content.parts


USUAL = {
    **{name: EVENTS[name] for name in ("text", "no content", "empty content", "bytes", "thought", "code", "file")},
    "long-running": EVENTS["long-running"],
    "a call": lambda: calling({"q": "dumplings", "n": [1, 2.5, True]}),
    "an answer's columns": lambda: said("hi", "agent", usage_metadata=None, turn_complete=True, branch="a.b"),
    "several parts": lambda: Event(
        author="agent",
        content=types.Content(
            role="model", parts=[types.Part(text="a"), types.Part(text="hm", thought=True), types.Part(text="b")]
        ),
    ),
    "blank": lambda: said(" \n"),
    "scopes": lambda: changing({"a": {"b": [1]}, "user:c": "x", "app:d": 2, "plain:e": 0.5}),
    "a node's output": lambda: said("x", node_info=NodeInfo(output_for=["a"])),
    "a node's message": lambda: said("x", node_info=NodeInfo(message_as_output=True)),
    "control characters": lambda: said('\x01\x1f\x7f\x80\u2028\\ " / é 世界'),
}
DECLINED: dict[str, Callable[[], Event]] = {
    "NaN in a call": lambda: calling({"a": float("nan")}),
    "null in a call": lambda: calling({"a": None}),
    "NaN beside": lambda: said("x", avg_logprobs=float("nan")),
    "NUL": lambda: said("a\0b"),
    "surrogate": lambda: said("a\ud800b"),
    "surrogate in the state": lambda: changing({"a": "\ud800"}),
    "surrogate in the author": lambda: said("x", "a\ud800"),
    "NUL in the invocation": lambda: said("x", invocation_id="e\0"),
    "large float": lambda: changing({"a": 1e22}),
    "negative zero": lambda: changing({"a": -0.0}),
    "an infinity": lambda: changing({"a": float("inf")}),
    "bytes in the state": lambda: changing({"a": b"\xff"}),
    "our own mark": lambda: changing({"a": {MARK: 1}}),
    "our own mark in a call": lambda: calling({MARK: 1}),
    "temp": lambda: changing({"temp:a": 1, "b": 2}),
    "a long number": lambda: calling({"a": 10**4200}),
    "deep": lambda: calling({"a": nested(150)}),
    "an artifact": lambda: Event(author="agent", actions=EventActions(artifact_delta={"f": 1})),
    "an artifact, set later": later_artifact,
    "a transfer": lambda: Event(author="agent", actions=EventActions(transfer_to_agent="other")),
    "a subclass of content": lambda: Event(author="a", content=NotedContent(parts=[types.Part(text="x")])),
    "a dict for content": assigned(content={"role": "model", "parts": [{"text": "x"}]}),
    "a dict for a part": changed_by(lambda event: part_of(event).append({"text": "y"})),
    "a number for a text": changed_by(lambda event: setattr(part_of(event)[0], "text", 5)),
    "None for a delta": changed_by(lambda event: setattr(event.actions, "state_delta", None)),
    "a delta without end": lambda: changing({"a": nested(5000)}),
    "no author": lambda: said("x", author=""),
    "a long author": lambda: said("x", author="a" * 300),
}


@pytest.mark.parametrize("event", USUAL.values(), ids=USUAL)
def test_the_fast_conversion_equals_the_full_one(event: Callable[[], Event]) -> None:
    given_event = event()
    assert usual_input(given_event) == event_input(to_engine(given_event))


@pytest.mark.filterwarnings("ignore:Pydantic serializer")
@pytest.mark.parametrize("event", DECLINED.values(), ids=DECLINED)
def test_an_event_that_may_need_rewriting_is_declined(event: Callable[[], Event]) -> None:
    assert usual_input(event()) is None


def test_a_delta_is_stored_as_it_was_at_the_call() -> None:
    """The caller continues while the event waits for a connection."""
    values = [1]
    stored = usual_input(changing({"a": values}))
    values.append(2)
    assert stored is not None
    assert stored.session_delta == {"a": [1]}
    assert json.loads(stored.actions)["state_delta"] == {"a": [1]}


@pytest.mark.parametrize("event_id", ["", "x" * 513, "a\0b"])
def test_an_id_out_of_bounds_is_refused(event_id: str) -> None:
    event = said("x")
    event.id = event_id
    with pytest.raises(InvalidInputError, match="id"):
        usual_input(event)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters())
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)


@examples(50)
@given(st.text(st.characters()), st.dictionaries(st.text(min_size=1), VALUES), st.dictionaries(st.text(), VALUES))
def test_any_event_is_stored_equally_or_declined(text: str, delta: dict[str, Any], arguments: dict[str, Any]) -> None:
    event = calling(arguments, actions=EventActions(state_delta=delta))
    assert event.content is not None
    assert event.content.parts is not None
    event.content.parts.append(types.Part(text=text))
    usual = usual_input(event)
    assert usual is None or parsed(usual) == parsed(event_input(to_engine(event)))


def parsed(stored: EventInput) -> EventInput:
    """Pydantic writes 1e-5 where json writes 1e-05."""
    return stored._replace(content=json.loads(stored.content), actions=json.loads(stored.actions))


def test_an_event_made_from_a_template_equals_a_validated_one_and_shares_nothing() -> None:
    """What was stored of a usual event is not validated again when it is read."""
    rows: list[list[Any]] = [
        ["e1", "ann", "i", 1.5, {"role": "user", "parts": [{"text": "a"}, {"text": "b"}]}, {REST: {"timestamp": 1.5}}],
        ["e2", "bot", "", 2.5, {"role": "model", "parts": []}, {"state_delta": {"k": [1]}, REST: {"timestamp": 2.5}}],
        ["e3", "bot", "i", 3.5, {"role": "model", "parts": []}, {REST: {"timestamp": 3.5, "partial": False}}],
    ]
    made, count = from_rows(json.dumps(rows))
    assert count == 3
    for event, (event_id, author, invocation_id, _, content, actions) in zip(made, rows, strict=True):
        fields = {"id": event_id, "author": author, "invocation_id": invocation_id, "content": content}
        rest = {key: value for key, value in actions.items() if key != REST}
        validated = Event.model_validate({**fields, **actions[REST], "actions": rest})
        assert event == validated
        assert event.model_dump(exclude_unset=True) == validated.model_dump(exclude_unset=True)
        assert event.model_dump_json() == validated.model_dump_json()
    made[0].actions.state_delta["x"] = 1
    made[0].actions.artifact_delta["a"] = 1
    assert "x" not in made[1].actions.state_delta
    [again] = from_rows(json.dumps(rows[:1]))[0]
    assert (again.actions.state_delta, again.actions.artifact_delta) == ({}, {})
