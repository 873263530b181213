"""The bridge alone: whatever is stored and pushed, its streams follow the protocol's rules, cut or not."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jsonpatch
import pytest
from ag_ui.core import EventType, MessagesSnapshotEvent
from hypothesis import given
from hypothesis import strategies as st

from pulse.agui.cursor import Cursor, StateMark
from pulse.agui.frames import Frame
from pulse.agui.messages import messages_of
from pulse.agui.patches import patch_of
from pulse.errors import InvalidInputError
from pulse.event_bridge import EventBridge, KnownState
from pulse.events import Event, EventActions
from pulse.live_text import LiveMessage, RunKey
from pulse.postgres.json_values import DELETED, escape_state
from pulse.scopes import Scope, parse_state_prefix, without_deleted
from tests.support.agui_rules import Reducer, StreamRules
from tests.support.properties import examples

RUN = RunKey(uuid.uuid4(), "run-1")
FIRST = 3


News = Event | LiveMessage | KnownState


@dataclass
class World:
    """What has been stored and pushed so far: the events of a thread, the open texts, changes by other sessions."""

    events: list[Event] = field(default_factory=list)
    texts: dict[str, LiveMessage] = field(default_factory=dict)
    news: list[News] = field(default_factory=list)
    shared: dict[str, Any] = field(default_factory=dict)
    versions: dict[Scope, int] = field(default_factory=lambda: {Scope.USER: 0, Scope.APP: 0})

    def store(
        self, kind: str, content: Any = None, *, author: str = "model", run: str = RUN.run_id, **fields: Any
    ) -> None:
        number = len(self.events) + 1
        delta = fields["actions"].state_delta if "actions" in fields else {}
        changed = self.change(delta)
        event = Event(
            shared_versions=tuple(self.versions[scope] if scope in changed else None for scope in self.versions),
            author=author,
            event_type=kind,
            content=content,
            invocation_id=run,
            sequence_num=number,
            timestamp=1_700_000_000.5 + number,
            **{"id": f"e{number}", **fields},
        )
        self.events.append(event)
        self.news.append(event)
        if changed:
            self.news.append(self.known(0))

    def change(self, delta: dict[str, Any]) -> set[Scope]:
        """Change the shared states, and return which ones changed."""
        mine = {key: value for key, value in delta.items() if parse_state_prefix(key)[0] in self.versions}
        self.shared.update(escape_state(mine))
        changed = {parse_state_prefix(key)[0] for key in mine}
        for scope in changed:
            self.versions[scope] += 1
        return changed

    def elsewhere(self, delta: dict[str, Any]) -> None:
        """Another session changes the shared states."""
        if self.change(delta):
            self.news.append(self.known(0))

    def push(self, name: str, text: str, kind: Any = "text") -> None:
        known = self.texts.get(name)
        offset = len(known.text) if known else 0
        after = known.after_sequence if known else len(self.events)
        message = LiveMessage(run=RUN, message_id=name, kind=kind, after_sequence=after, offset=offset, text=text)
        whole = (known.text if known else "") + text
        self.texts[name] = LiveMessage(run=RUN, message_id=name, kind=kind, after_sequence=after, offset=0, text=whole)
        self.news.append(message)

    def known(self, until: int) -> KnownState:
        """The state after this many events, with the shared states as they are now."""
        state: dict[str, Any] = {}
        changed = 0
        for number, event in enumerate(self.events[:until], 1):
            delta = escape_state(event.actions.state_delta)
            own = {key: value for key, value in delta.items() if parse_state_prefix(key)[0] is Scope.SESSION}
            state.update(own)
            changed = number if own else changed
        mark = StateMark(until, self.versions[Scope.USER], self.versions[Scope.APP])
        return KnownState({**state, **self.shared}, mark, changed)

    def fill(self, frames: list[Frame]) -> list[Frame]:
        for frame in frames:
            if isinstance(frame.event, MessagesSnapshotEvent) and frame.history_until is not None:
                until = self.events[: frame.history_until]
                frame.event.messages = messages_of(
                    event
                    for position, event in enumerate(until, 1)
                    if position < FIRST or event.invocation_id == RUN.run_id
                )
        return frames


def translate(bridge: EventBridge, news: News) -> list[Frame]:
    if isinstance(news, Event):
        return bridge.store(news)
    return bridge.live(news) if isinstance(news, LiveMessage) else bridge.share(news)


def at(world: World, position: int) -> World:
    """The world after this many changes."""
    then = World(news=world.news[:position])
    for news in then.news:
        if isinstance(news, Event):
            then.events.append(news)
        elif isinstance(news, KnownState):
            # With the notification comes what the event before it changed.
            then.shared = dict(news.state)
            then.versions = {Scope.USER: news.mark.user, Scope.APP: news.mark.app}
        else:
            so_far = then.texts[news.message_id].text if news.message_id in then.texts else ""
            then.texts[news.message_id] = LiveMessage(
                run=RUN,
                message_id=news.message_id,
                kind=news.kind,
                after_sequence=news.after_sequence,
                offset=0,
                text=so_far + news.text,
            )
    return then


def bridge_at(world: World, cursor: Cursor | None = None, *, until: int | None = None) -> EventBridge:
    """The bridge of a process that starts when the world is like this."""
    return EventBridge(
        thread_id="T",
        run_id=RUN.run_id,
        first_sequence=FIRST,
        known=world.known(len(world.events) if until is None else until),
        cursor=cursor,
    )


def begun(world: World) -> tuple[EventBridge, list[News]]:
    """The bridge of a client that comes right before the run, and what happens from then on."""
    before = next(n for n, news in enumerate(world.news) if isinstance(news, Event) and news.sequence_num == FIRST)
    return bridge_at(at(world, before)), world.news[before:]


def uncut(world: World) -> list[Frame]:
    bridge, following = begun(world)
    return [frame for news in following for frame in world.fill(translate(bridge, news))]


def resumed(world: World, cut_after: int, away: int, joined_after: int = 0) -> list[Frame]:
    """The frames of a client that is cut after this many frames and resumes this many changes later."""
    bridge, following = begun(world)
    if joined_after:
        got, position = joined(world, joined_after), joined_after
    else:
        got, position = [], len(world.news) - len(following)
    for news in following if not joined_after else ():
        if len(got) >= cut_after:
            break
        position += 1
        got += world.fill(translate(bridge, news))
    cut = min(cut_after, len(got))
    return got[:cut] + resume_after(world, got[cut - 1].id, min(position + away, len(world.news)))


def joined(world: World, position: int) -> list[Frame]:
    """The first frames of a client that joins after so many changes."""
    return caught_up(world, bridge_at(at(world, position)), position)[0]


def caught_up(world: World, bridge: EventBridge, position: int) -> tuple[list[Frame], EventBridge]:
    then = at(world, position)
    frames = bridge.resume()
    for event in then.events:
        frames += [frame for text in then.texts.values() for frame in bridge.live(text)]
        frames += bridge.store(event)
    frames += bridge.share(then.known(0))
    frames += [frame for text in then.texts.values() for frame in bridge.live(text)]
    return world.fill(frames), bridge


def resume_after(world: World, last_id: str, position: int) -> list[Frame]:
    """Everything after a frame, from a new bridge that starts after `position` changes."""
    frames, bridge = caught_up(world, bridge_at(at(world, position), Cursor.parse(last_id)), position)
    return frames + world.fill([frame for news in world.news[position:] for frame in translate(bridge, news)])


def check(frames: list[Frame]) -> Reducer:
    rules, reducer = StreamRules(), Reducer()
    for frame in frames:
        reducer.event(rules.frame(frame.sse()))
    rules.end()
    return reducer


TEXTS = st.text(st.sampled_from('ab 你好\n\u2028\u2029\x85\0\ud800🦊\r"\\~/'), min_size=1, max_size=12)
NAMES = st.sampled_from(["m1", "m2", "m 3 with blanks~:", "长" * 70])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(["a", "b/c~d", "user:lang", "app:model", ""])
DELTAS = st.dictionaries(KEYS, VALUES | st.just(DELETED), max_size=3)
ACTS = st.one_of(
    st.tuples(st.just("say"), NAMES, st.lists(TEXTS, max_size=4), st.sampled_from(["stored", "changed", "dropped"])),
    st.tuples(st.just("think"), NAMES, st.lists(TEXTS, max_size=3), st.sampled_from(["stored", "changed", "dropped"])),
    st.tuples(st.just("call"), NAMES, st.lists(TEXTS, max_size=3), st.sampled_from(["stored", "changed", "dropped"])),
    st.tuples(st.just("image"), TEXTS | st.just("")),
    st.tuples(st.just("own"), st.sampled_from(["custom", "activity", "subagent_start", "subagent_end"]), VALUES),
    st.tuples(st.just("state"), DELTAS, st.sampled_from([RUN.run_id, "another", ""])),
    st.tuples(st.just("elsewhere"), DELTAS),
    st.tuples(st.just("tool"), st.sampled_from(["look", "find"]), VALUES, st.booleans()),
    st.tuples(st.just("step"), st.sampled_from(["step_start", "step_end"]), st.sampled_from(["plan", "do"])),
    st.tuples(st.just("other"), st.sampled_from(["work_plan", "run_started", "anything"]), VALUES),
    st.tuples(st.just("stranger"), TEXTS),
    st.tuples(st.just("user"), TEXTS),
)
ENDS = st.sampled_from(
    [
        ("complete", {}),
        ("complete", {"result": {"interrupts": [{"id": "i1", "reason": "ask"}]}}),
        ("complete", {"result": {"interrupts": [{"wrong": 1}]}}),
        ("complete", None),
        ("error", {"message": "no", "code": "x"}),
        ("cancelled", {}),
    ]
)


ENDED = {"complete", "error", "cancelled"}


def play(world: World, acts: list[Any], end: tuple[str, Any]) -> None:
    """Perform the generated acts as one run: one message at a time, state changes in between."""
    world.store("user_message", "before", author="user", run="")
    world.store("state_update", actions=EventActions(state_delta={"a": {"n": [1, 2]}, "kept": 1}), run="")
    world.store("user_message", {"content": "hi", "message_id": "u1"}, author="user")
    for position, act in enumerate(acts, 1):
        match act:
            case ("say" | "think" | "call" as verb, name, pieces, fate):
                # An unfinished message ends the run.
                fate = fate if position == len(acts) or fate == "changed" else "stored"
                stream(world, verb, f"{name}{len(world.events)}", pieces, fate)
            case ("state", delta, run):
                world.store("state_update", actions=EventActions(state_delta=delta), run=run)
            case ("elsewhere", delta):
                world.elsewhere(delta)
            case ("tool", name, value, answered):
                world.store("act", {"tool_name": name, "tool_input": value, "tool_call_id": f"c{len(world.events)}"})
                if answered:
                    world.store("observe", {"tool_name": name, "observation": value}, author="tool")
            case ("step", kind, name):
                world.store(kind, {"name": name})
            case ("other", kind, value):
                world.store(kind, value)
            case ("stranger", text):
                world.store("assistant_message", text, run="another")
            case ("image", text):
                image = {"type": "image", "source": {"type": "data", "value": "aGk=", "mimeType": "image/png"}}
                parts = [*([{"type": "text", "text": text}] if text else []), image]
                world.store("user_message", {"parts": parts}, author="user")
            case ("own", kind, value):
                world.store(kind, own_fields(kind, value, len(world.events)))
            case ("user", text):
                world.store("user_message", text, author="user")
    world.store(end[0], end[1], author="system")


def own_fields(kind: str, value: Any, number: int) -> dict[str, Any]:
    """Fields of an event that an agent writes in the protocol's own terms; for some values, wrong ones."""
    match kind:
        case "custom":
            return {"name": "shop:stock", "value": value}
        case "activity":
            return {"message_id": "plan", "activity_type": "PLAN", "content": value if number % 3 else {"n": number}}
        case "subagent_start":
            return {"subagent_run_id": f"s{number % 2}", "name": "helper"}
    return {"subagent_run_id": f"s{number % 2}", "result": value}


def stream(world: World, verb: str, name: str, pieces: list[str], fate: str) -> None:
    kind = {"think": "thought", "call": "act"}.get(verb, "text")
    for position, piece in enumerate(pieces):
        world.push(name, piece.replace("\0", "\ufffd").replace("\ud800", "\ufffd"), kind)
        if position == 1:
            world.store("state_update", actions=EventActions(state_delta={"n": len(world.events)}))
    if fate != "dropped":
        text = "".join(pieces) + (" and more" if fate == "stored" else "")
        text = text if fate == "stored" else f"not {text}"
        if verb == "call":
            call = {"tool_name": "tool", "tool_args": text, "tool_call_id": name, "message_id": name}
            world.store("act", call, id=f"{name}-event")
            return
        event_type = "thought" if verb == "think" else "assistant_message"
        marks = {"partial": True} if fate == "changed" else {"encrypted_value": "x1"}
        world.store(event_type, {"content": text, "message_id": name, **marks}, id=f"{name}-event")


@given(st.lists(ACTS, max_size=8), ENDS)
@examples(80)
def test_every_stream_follows_the_rules(acts: list[Any], end: tuple[str, Any]) -> None:
    """Any complete stream satisfies a checker of the protocol's rules, and ends with the stored state."""
    world = World()
    play(world, acts, end)
    reducer = check(uncut(world))
    joined = check(joined_at_the_end(world))
    assert json.dumps(joined.state, sort_keys=True) == json.dumps(reducer.state, sort_keys=True)
    assert joined.messages == reducer.messages


def joined_at_the_end(world: World) -> list[Frame]:
    """A new client that joins when everything is over."""
    return joined(world, len(world.news))


@given(st.lists(ACTS, max_size=6), ENDS, st.data())
@examples(80)
def test_a_cut_client_ends_like_an_uncut_one(acts: list[Any], end: tuple[str, Any], data: st.DataObject) -> None:
    """Cut after any frame and resumed at any time, it follows the rules and ends with the same messages and state."""
    world = World()
    play(world, acts, end)
    whole = uncut(world)
    expected = check(whole)
    cut_after = data.draw(st.integers(1, len(whole)), label="cut after")
    away = data.draw(st.integers(0, len(world.news)), label="away for")
    got = check(resumed(world, cut_after, away))
    assert got.messages == expected.messages
    assert json.dumps(got.state, sort_keys=True) == json.dumps(expected.state, sort_keys=True)


@given(st.lists(ACTS, max_size=6), ENDS, st.lists(DELTAS, max_size=2), st.data())
@examples(80)
def test_no_cut_leaves_an_older_state(
    acts: list[Any], end: tuple[str, Any], later: list[Any], data: st.DataObject
) -> None:
    """A client that joins at any time has the newest state; cut anywhere, and resumed any number of times, it ends
    with no older one."""
    world = World()
    play(world, acts, end)
    for delta in later:
        world.store("state_update", actions=EventActions(state_delta=delta), run="another")
        world.elsewhere(delta)
    position = data.draw(st.integers(FIRST, len(world.news)), label="joined after")
    position = max(position, next(n for n, each in enumerate(world.news, 1) if each is world.events[FIRST - 1]))
    bridge = bridge_at(at(world, position))
    got, bridge = caught_up(world, bridge, position)
    got += world.fill([frame for news in world.news[position:] for frame in translate(bridge, news)])
    expected = check(got)
    whole, place = got, 0
    while place < len(whole) - 1:
        place = data.draw(st.integers(place + 1, len(whole) - 1), label="cut after") if len(whole) > 1 else 1
        away = data.draw(st.integers(position, len(world.news)), label="resumed after")
        whole = [*whole[:place], *resume_after(world, whole[place - 1].id, away)]
        if data.draw(st.booleans(), label="no further cut"):
            break
    ended = check(whole)
    assert ended.messages == expected.messages
    # What was changed after the run may be newer: a client that comes back is sent it.
    assert json.dumps(ended.state, sort_keys=True) in {
        json.dumps(state, sort_keys=True) for state in [expected.state, *states_from(world, position)]
    }


def states_from(world: World, joined_at: int) -> Iterator[Any]:
    """The states that a client which came at this time may end with, by coming back after the end of the run."""
    for position in range(joined_at, len(world.news) + 1):
        then = at(world, position)
        if any(event.event_type in ENDED for event in then.events):
            yield without_escapes(then.known(len(then.events)).state)


def without_escapes(state: Any) -> Any:
    return {key: value for key, value in state.items() if value != {"$hippocampus": ["deleted"]}}


@given(DELTAS, DELTAS)
@examples(80)
def test_a_patch_produces_the_stored_state(before: dict[str, Any], delta: dict[str, Any]) -> None:
    """Whether or not the state is known, applying the patch gives the merged state, with the type of each value."""
    before, merged = without_deleted(before), without_deleted({**before, **delta})
    before, delta, merged = escape_state(before), escape_state(delta), json.dumps(escape_state(merged), sort_keys=True)
    for known in (before, None):
        patched = jsonpatch.apply_patch(before, patch_of(delta, known))
        assert json.dumps(patched, sort_keys=True) == merged


def test_one_changed_key_of_a_large_value_is_a_small_patch() -> None:
    """Keys with ~ and / are escaped."""
    table = {"a/b~c": {f"row{n}": n for n in range(1000)}}
    changed = {"a/b~c": {**table["a/b~c"], "row7": -1}}
    assert patch_of(changed, table) == [{"op": "replace", "path": "/a~1b~0c/row7", "value": -1}]


@pytest.mark.parametrize("text", ["", "-1", "x", "1..2", "1~m", "1~m:1:zz", "99999999999999999999", "1\n", "１"])
def test_an_invalid_cursor_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="cursor"):
        Cursor.parse(text)


def test_a_text_that_was_rewritten_is_corrected() -> None:
    """If the stored message does not continue the streamed one, the client ends with what is stored."""
    world = World()
    play(world, [("say", "m1", ["The capital is ", "Sydney"], "dropped")], ("complete", {}))
    world.events.pop(), world.news.pop()
    name = next(iter(world.texts))
    world.store("assistant_message", {"content": "The capital is Canberra", "message_id": name})
    world.store("complete", {})
    reducer = check(uncut(world))
    assert [each["content"] for each in reducer.messages] == ["before", "hi", "The capital is Canberra"]


@pytest.mark.parametrize(("verb", "event_type"), [("say", "assistant_message"), ("think", "thought"), ("call", "act")])
def test_a_client_cut_within_a_stored_message_does_not_get_its_last_piece_again(verb: str, event_type: str) -> None:
    """Its connection has read the stored message before the piece came; the next one has the piece already."""
    world = World()
    play(world, [(verb, "m1", ["Hm. "], "dropped")], ("complete", {}))
    world.events.pop(), world.news.pop()
    (name,) = world.texts
    call = {"tool_name": "tool", "tool_args": "Hm. Well.", "tool_call_id": name}
    world.store(event_type, {**(call if verb == "call" else {"content": "Hm. Well."}), "message_id": name})
    world.store("complete", {})
    whole = uncut(world)
    expected = check(whole).messages
    late = replace(world.texts[name], text="Hm. Well.")
    for cut in range(1, len(whole)):
        bridge = bridge_at(world, Cursor.parse(whole[cut - 1].id))
        frames = bridge.resume()
        for event in world.events:
            frames += [*bridge.live(late), *bridge.store(event)]
        assert check([*whole[:cut], *world.fill(frames)]).messages == expected


def test_old_clients_receive_a_cancelled_run_as_an_error() -> None:
    """Clients before 1.0 do not know the outcome `cancelled`."""
    world = World()
    play(world, [], ("cancelled", {}))
    last = uncut(world)[-1]
    assert json.loads(last.json())["outcome"] == {"type": "cancelled"}
    assert json.loads(last.json(legacy=True))["code"] == "cancelled"


def test_the_documented_event_types_are_those_of_the_protocol() -> None:
    """The table has every type of the installed package, and those that it says are sent are sent."""
    page = (Path(__file__).parents[2] / "docs" / "streams.md").read_text()
    table = page.split("### Event types")[1].split("###")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ") and "_" in line]
    rows += [["CUSTOM", ""], ["RAW", ""]]
    named = {name: not use.startswith("never") for types, use in rows for name in types.split(", ") if name != "type"}
    assert sorted(named) == sorted(each.value for each in EventType)

    world = World()
    acts: list[Any] = [
        ("step", "step_start", "plan"),
        ("think", "m", ["a", "b"], "stored"),
        ("say", "m", ["a"], "changed"),
        ("tool", "look", 1, True),
        ("image", "see"),
        ("state", {"a": 1}, RUN.run_id),
        ("other", "anything", 1),
        ("own", "custom", 1),
        ("own", "subagent_start", 1),
    ]
    play(world, acts, ("complete", {}))
    world.events.pop(), world.news.pop()
    world.store("activity", {"message_id": "p", "activity_type": "PLAN", "content": {}})
    world.store("activity_delta", {"message_id": "p", "activity_type": "PLAN", "patch": []})
    started = next(each.content for each in world.events if each.event_type == "subagent_start")
    world.store("subagent_end", {"subagent_run_id": started["subagent_run_id"]})
    world.store("subagent_start", {"subagent_run_id": "another", "name": "helper"})
    world.store("subagent_error", {"subagent_run_id": "another", "message": "no"})
    failing = World(list(world.events), dict(world.texts), list(world.news))
    world.store("complete", {})
    failing.store("error", {"message": "no"})
    sent = {json.loads(frame.json())["type"] for each in (world, failing) for frame in uncut(each)}
    assert sent == {name for name, is_sent in named.items() if is_sent}
