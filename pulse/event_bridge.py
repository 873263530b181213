"""Translates the events and open messages of a run to AG-UI events. Pure: no database, no clock.

    stored event                    AG-UI
    the run's first                 RUN_STARTED, MESSAGES_SNAPSHOT and STATE_SNAPSHOT (for joiners), then its own
    user_message, assistant_message TEXT_MESSAGE_START, _CONTENT, _END; of a streamed one only what was not sent
                                    MESSAGES_SNAPSHOT after a message with images or files, which no other event has
    thought                         REASONING_START, REASONING_MESSAGE_START, _CONTENT, _END, REASONING_END
    act                             TOOL_CALL_START, _ARGS, _END; of a streamed one only what was not sent
    with an encrypted_value         REASONING_ENCRYPTED_VALUE, before the message or call is over
    observe                         TOOL_CALL_RESULT
    step_start, step_end            STEP_STARTED, STEP_FINISHED
    custom, activity, subagent_…    CUSTOM, ACTIVITY_…, SUBAGENT_…: see `pulse.agui.wire`
    any with a state delta          STATE_DELTA, from this run, another one or none
    complete, error, cancelled      open messages are closed; RUN_FINISHED or RUN_ERROR
    work_plan and the like          CUSTOM hippocampus:work_plan
    any other                       RAW

An open message becomes TEXT_MESSAGE_START once, and TEXT_MESSAGE_CONTENT for each new piece; thoughts and the arguments
of a call likewise. A message ends on the wire
when it is stored: what a client has seen end is history. If the stored text does not begin with what was sent,
MESSAGES_SNAPSHOT corrects it. `result.interrupts` of a completed run are the questions that the next run answers.

The translation depends on the events and on the cursor alone, so any process can resume another one's stream. The
cursor has the state of its client: one that has an older state than this process, and would not get it by events, gets
a STATE_SNAPSHOT when it resumes. Changes of the user's and the app's state by other sessions are STATE_DELTAs between
two events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pulse.agui import messages, patches, wire
from pulse.agui import types as agui
from pulse.agui.cursor import OPEN_MAX, Cursor, Sent, StateMark, key_of, name_of
from pulse.agui.frames import Audience, Frame
from pulse.agui.interrupts import interrupts_of
from pulse.event_types import ADK_EVENT, RUN_STARTED, STATE_UPDATE, TERMINAL_EVENT_TYPES
from pulse.events import Event
from pulse.live_text import Kind, LiveMessage
from pulse.postgres.json_values import DELETED_ESCAPE, clean_text, escape_state
from pulse.scopes import Scope, parse_state_prefix

_CUSTOM_TYPES = frozenset(
    {"work_plan", "pattern_match", "skill_matched", "skill_execution_start", "skill_execution_complete"}
)
#: The key in the actions of a run's first event, and the name of the CUSTOM event, for keys that the client of the run
#: and another writer changed: the other writer's values stand.
STATE_CONFLICT = "hippocampus:state_conflict"
_SILENT_TYPES = frozenset({RUN_STARTED, STATE_UPDATE, ADK_EVENT})
#: The frames with which a run begins, for a new client.
_OPENING = 3


@dataclass(slots=True)
class _Open:
    """A message that was begun on the wire and is not stored yet."""

    message_id: str | None  # None: known by its digest, from a cursor
    sent: Sent
    is_sure: bool = True  # False: known from a cursor; its text was not seen yet
    is_torn: bool = False  # its text does not begin with what was sent


class KnownState(NamedTuple):
    """A thread's merged and escaped state.

    Attributes:
        mark: which state it is.
        changed: the last event that changed the session's own state.
    """

    state: Mapping[str, Any]
    mark: StateMark
    changed: int = 0


class EventBridge:
    """Translates one run, from its start or from a cursor.

    Args:
        thread_id: the session's id, which clients know as the thread's.
        first_sequence: the number of the run's first event.
        known: the state as it was read; changes before it are not sent again.
        cursor: what the client has; None for a new client.
        with_history: whether a new client gets the conversation before the run.
        before: the state of a client that has followed the thread up to this run, and its conversation.
        is_shared: translate for several clients at once: those that have the state `before`, and those that do not.
        shown_run_id: the run as which an event of no run is sent, and which ends after it.
    """

    def __init__(
        self,
        *,
        thread_id: str,
        run_id: str,
        first_sequence: int,
        known: KnownState | None = None,
        cursor: Cursor | None = None,
        with_history: bool = True,
        before: KnownState | None = None,
        is_shared: bool = False,
        shown_run_id: str | None = None,
    ) -> None:
        self.sequence = first_sequence - 1
        self.is_ended = False
        self._thread_id = thread_id
        self._run_id = run_id
        self._shown_run_id = shown_run_id or run_id
        self._is_single = shown_run_id is not None
        self._first = first_sequence
        self._with_history = with_history and before is None
        self._is_shared = is_shared
        self._client_cursor = cursor
        self._resumes_after = cursor.sequence if cursor is not None and cursor.sequence >= first_sequence else 0
        # Within an event: what it contains of a message is not sent from the open text, which may have it by now.
        is_within = self._resumes_after > 0 and cursor is not None and cursor.frames > 0
        self._live_after = self._resumes_after + int(is_within)
        known = known or KnownState({}, StateMark())
        self._latest = known if before is not None else None
        base = before or known
        self._state = {key: value for key, value in base.state.items() if value != DELETED_ESCAPE}
        self._mark = base.mark
        self._changed = known.changed
        self._has: StateMark | None = None if before is None else before.mark
        self._is_behind = False
        # RUN_STARTED, the messages for joiners, the state: a client that had these has a state of its own.
        if cursor is not None and (self._resumes_after or cursor.frames >= _OPENING):
            self._resume(cursor.state)
        self._open: dict[str, _Open] = {}
        self._stored: set[str] = set()
        self._steps: list[str] = []
        self._subagents: list[str] = []
        self._calls = messages.CallIds()

    def _resume(self, has: StateMark | None) -> None:
        """Find out whether the client will have the state by the events that follow."""
        mark = self._mark
        self._is_behind = has is None or has.user < mark.user or has.app < mark.app or has.sequence < self._changed
        self._has = mark.at_least(has or StateMark())

    @property
    def cursor(self) -> Cursor:
        """The cursor of a client that received every frame so far."""
        return self._cursor(self.sequence, 0, {key: each.sent for key, each in self._open.items()})

    @property
    def known(self) -> KnownState:
        """The state after the last event."""
        return KnownState(self._state, replace(self._mark, sequence=self._sequence_of_state), self._changed)

    @property
    def _sequence_of_state(self) -> int:
        return max(self._mark.sequence, self.sequence)

    def offsets(self) -> dict[str, int]:
        """Return how much of each open message was sent."""
        return {each.message_id: each.sent.length for each in self._open.values() if each.message_id is not None}

    def has_stored(self, message_id: str) -> bool:
        """Return whether a message, or a call, is among the events that were translated."""
        name = clean_text(message_id)
        return name in self._stored or self._calls.has_call(name)

    def store(self, event: Event) -> list[Frame]:
        """Translate the thread's next event, in sequence; an event that was translated before gives no frame."""
        number = event.sequence_num or 0
        if self.is_ended or number <= self.sequence:
            return []
        before = self.cursor
        frames, count = [], 0
        for frame in self._translate(event, number):
            # It replaces the frame before it, where a client has the state before the run.
            count += frame.audience is not Audience.CURRENT
            # At once: the state that the client has may change from one frame to the next.
            frame.id = str(self._cursor(number - 1, count, before.open))
            frames.append(frame)
        self.sequence = number
        if number <= self._resumes_after:
            # Sent before. The cursor has the open messages; only the events have the stored ones and the calls.
            self._open = self._opened_before() if number == self._resumes_after else {}
            return []
        if frames:
            frames[-1].id = str(self.cursor)
        for frame in frames:
            frame.event.timestamp = _millis(event)
        client = self._client_cursor
        if client is not None and client.sequence == number - 1:
            frames = frames[client.frames :] or frames[-1:]
        return [frame for frame in frames if not self._leaves_out(frame)]

    def resume(self) -> list[Frame]:
        """Return what a client that resumes gets first: the state, if it changed while the client was away."""
        client = self._client_cursor
        if not self._is_behind or client is None:
            return []
        self._is_behind = False
        position = self._cursor(client.sequence, client.frames, client.open)
        return [Frame(str(position), agui.StateSnapshotEvent(snapshot=dict(self._state)))]

    def share(self, latest: KnownState) -> list[Frame]:
        """Translate what other sessions changed in the user's and the app's state."""
        if self._latest is not None and self.sequence < self._first:
            self._latest = latest
            return []
        operations = self._take_shared(latest)
        if self._has is None or self.is_ended or not operations:
            return []
        return [Frame(str(self.cursor), agui.StateDeltaEvent.model_validate({"delta": operations}))]

    def _take_shared(self, latest: KnownState) -> list[dict[str, Any]]:
        """Take newer shared states, and return how the client's state changes."""
        operations: list[dict[str, Any]] = []
        mark, has = self._mark, self._has or StateMark()
        for scope, version, own, client in (
            (Scope.USER, latest.mark.user, mark.user, has.user),
            (Scope.APP, latest.mark.app, mark.app, has.app),
        ):
            if version <= own:
                continue
            values = _of_scope(latest.state, scope)
            delta = {key: DELETED_ESCAPE for key in _of_scope(self._state, scope) if key not in values}
            delta |= {
                key: value
                for key, value in values.items()
                if key not in self._state or not patches.same(self._state[key], value)
            }
            self._merge(delta)
            if version > client:
                operations += patches.patch_of(delta, self._state)
        self._mark = replace(mark, user=max(mark.user, latest.mark.user), app=max(mark.app, latest.mark.app))
        if self._has is not None:
            self._has = self._has.at_least(replace(self._mark, sequence=0))
        return operations

    def _cursor(self, sequence: int, frames: int, opened: dict[str, Sent]) -> Cursor:
        state = None if self._has is None else replace(self._has, sequence=max(self._has.sequence, sequence))
        return Cursor(sequence, frames, opened, state)

    def _leaves_out(self, frame: Frame) -> bool:
        """Whether this client has what a frame at the beginning of the run would bring."""
        if frame.audience is Audience.ALL or self._is_shared:
            return False
        return frame.audience is not Audience.CURRENT if self._latest is not None else not self._with_history

    def live(self, message: LiveMessage) -> list[Frame]:
        """Translate what is new of an open message.

        Gives no frame before the events that precede the message, nor once it is stored.
        """
        if self.is_ended or self.sequence < max(self._first, self._live_after, message.after_sequence):
            return []
        name = clean_text(message.message_id)
        if self.has_stored(name):
            return []
        key = key_of(name)
        opened = self._open.get(key)
        frames = []
        if opened is None:
            if message.offset or len(self._open) >= OPEN_MAX:
                return []
            is_thought = message.kind == "thought"
            opened = self._open[key] = _Open(name, Sent.span() if is_thought else Sent(message.kind))
            begun = wire.open_span(name) if is_thought else wire.begin(name, message.kind, meta=message.meta)
            frames.append(Frame(str(self.cursor), begun))
        if opened.sent.is_span:
            opened.sent = Sent("thought")
            frames.append(Frame(str(self.cursor), wire.begin(name, "thought")))
        frames += self._continue(opened, name, message)
        wire.attributed([frame.event for frame in frames], message.meta)
        return frames

    def _continue(self, opened: _Open, name: str, message: LiveMessage) -> Iterator[Frame]:
        begins_at = opened.sent.length - message.offset
        if not opened.is_sure:
            opened.message_id, opened.is_sure = name, True
            opened.is_torn = begins_at != 0 and not (message.offset == 0 and opened.sent.begins(message.text))
        text = message.text[begins_at:] if begins_at >= 0 and not opened.is_torn else ""
        if text:
            opened.sent = opened.sent.and_then(text)
            yield Frame(str(self.cursor), wire.content(name, opened.sent.kind, text))

    def _opened_before(self) -> dict[str, _Open]:
        """Return the messages that were open at the cursor and are not stored."""
        claimed = {} if self._client_cursor is None else self._client_cursor.open
        stored = {key_of(name) for name in self._stored}
        return {key: _Open(name_of(key), sent, is_sure=False) for key, sent in claimed.items() if key not in stored}

    def _translate(self, event: Event, number: int) -> Iterator[Frame]:
        if number == self._first:
            yield from self._begin_run()
        yield from self._change_state(event, number)
        if event.invocation_id == self._run_id:
            yield from self._translate_own(event, number)
        if self._is_single and not self.is_ended:
            yield from self._finish(agui.RunFinishedEvent(thread_id=self._thread_id, run_id=self._shown_run_id))

    def _begin_run(self) -> Iterator[Frame]:
        started = agui.RunStartedEvent(
            thread_id=self._thread_id, run_id=self._shown_run_id, protocol_version=agui.PROTOCOL_VERSION
        )
        # Its cursor has no state: a client that resumes after it begins like a new one.
        has, self._has = self._has, None
        yield _frame(started)
        # Left out for clients that have it, but counted for all, so that a cursor means the same on every route.
        yield Frame("", agui.MessagesSnapshotEvent(messages=[]), history_until=self._first - 1, audience=Audience.NEW)
        self._has = has
        operations = [] if self._latest is None else self._take_shared(self._latest)
        self._has = self._mark if has is None else self._has
        audience = Audience.ALL if self._latest is None else Audience.BEHIND
        yield Frame("", agui.StateSnapshotEvent(snapshot=dict(self._state)), audience=audience)
        if operations:
            changed = agui.StateDeltaEvent.model_validate({"delta": operations})
            yield Frame("", changed, audience=Audience.CURRENT)

    def _change_state(self, event: Event, number: int) -> Iterator[Frame]:
        if not event.actions.state_delta:
            return
        has = self._has or self._mark
        operations: list[dict[str, Any]] = []
        for key, value in escape_state(event.actions.state_delta).items():
            # A change that the client has is left out; the frame is sent, since a cursor counts the frames of an event.
            position, known, clients = self._versions(key, event, number, has)
            if position > max(known, clients):
                operations += patches.patch_of({key: value}, self._state)
            if position > known:
                self._merge({key: value})
        yield _frame(agui.StateDeltaEvent.model_validate({"delta": operations}))

    def _versions(self, key: str, event: Event, number: int, has: StateMark) -> tuple[int, int, int]:
        """Return which version of its scope a change made, which one is known here, and which one the client has.

        A change of a shared state without a version changed nothing. One with a version does not raise the mark:
        further events of the same append have the same version.
        """
        scope = parse_state_prefix(key)[0]
        if scope is Scope.USER:
            return event.shared_versions[0] or 0, self._mark.user, has.user
        if scope is Scope.APP:
            return event.shared_versions[1] or 0, self._mark.app, has.app
        self._changed = max(self._changed, number)
        return number, self._mark.sequence, has.sequence

    def _merge(self, delta: Mapping[str, Any]) -> None:
        for key, value in delta.items():
            if value == DELETED_ESCAPE:
                self._state.pop(key, None)
            else:
                self._state[key] = value

    def _translate_own(self, event: Event, number: int) -> Iterator[Frame]:
        kind = event.event_type
        if number == self._first and (keys := event.actions.other.get(STATE_CONFLICT)) is not None:
            yield _frame(agui.CustomEvent(name=STATE_CONFLICT, value={"keys": escape_state(keys)}))
        if kind in ("user_message", "assistant_message", "message", "thought"):
            yield from self._message(event, number)
        elif kind == "act":
            yield from self._call(event, number)
        elif kind == "observe":
            yield from self._result(event)
        elif kind in ("step_start", "step_end"):
            yield from self._step(event)
        elif kind in TERMINAL_EVENT_TYPES.values():
            yield from self._end(event)
        elif kind in _CUSTOM_TYPES:
            yield _frame(agui.CustomEvent(name=f"hippocampus:{kind}", value=escape_state(event.content)))
        elif (found := wire.in_its_own_terms(kind, event.content)) is not None:
            if self._tracks_subagent(found):
                yield Frame("", found, legacy=wire.legacy_of(found))
        elif kind not in _SILENT_TYPES:
            raw = {"event_type": kind, "author": event.author, "content": event.content}
            yield _frame(agui.RawEvent(event=escape_state(raw), source="hippocampus"))

    def _tracks_subagent(self, event: agui.BaseEvent) -> bool:
        """Record which subagents are at work; False for one that starts twice or ends without a start."""
        if isinstance(event, agui.SubagentStartedEvent):
            is_new = event.subagent_run_id not in self._subagents
            self._subagents += [event.subagent_run_id] if is_new else []
            return is_new
        if isinstance(event, agui.SubagentFinishedEvent | agui.SubagentErrorEvent):
            if event.subagent_run_id not in self._subagents:
                return False
            self._subagents.remove(event.subagent_run_id)
        return True

    def _message(self, event: Event, number: int) -> Iterator[Frame]:
        """Translate a stored message: whole, or what was not sent of it."""
        kind: Kind = "thought" if event.event_type == "thought" else "text"
        text, fields = messages.text_of(event), messages.content_of(event)
        opened = self._open.pop(key_of(messages.message_id(event)), None)
        has_media = messages.parts_of(event) is not None
        if opened is None and not text and not has_media:
            return
        own = self._claim_id(event)
        role = "user" if event.role == "user" else "assistant"
        events = []
        if opened is None and kind == "thought":
            events.append(wire.open_span(own))
        if opened is None or opened.sent.is_span:
            events.append(wire.begin(own, kind, role))
        sent = Sent(kind) if opened is None or opened.sent.is_span else opened.sent
        is_whole = sent.begins(text) and not (opened and opened.is_torn)
        if is_whole and text[sent.length :]:
            events.append(wire.content(own, sent.kind, text[sent.length :]))
        events += wire.close(own, sent.kind, fields)
        wire.attributed(events, fields)
        yield from (Frame("", each, for_input=own if role == "user" else None) for each in events)
        if not is_whole:
            yield from self._correct(number)
        elif has_media:
            yield Frame("", agui.MessagesSnapshotEvent(messages=[]), history_until=number, for_input=own)

    def _correct(self, number: int) -> Iterator[Frame]:
        """Replace what was sent by everything that is stored; open messages are sent from their beginning again."""
        yield from self._close_messages()
        yield Frame("", agui.MessagesSnapshotEvent(messages=[]), history_until=number)

    def _call(self, event: Event, number: int) -> Iterator[Frame]:
        """Translate a stored call: whole, or what was not sent of it."""
        fields = messages.content_of(event)
        text = messages.shown_arguments(fields)
        given = self._calls.given(event)
        opened = None if given is None or self._calls.has_call(given) else self._open.pop(key_of(given), None)
        call = self._calls.call(event)
        sent = Sent("act") if opened is None else opened.sent
        is_whole = sent.begins(text) and not (opened and opened.is_torn)
        events: list[agui.BaseEvent] = []
        if opened is None:
            parent, name = messages.message_id(event), messages.tool_name(event)
            events.append(agui.ToolCallStartEvent(tool_call_id=call, tool_call_name=name, parent_message_id=parent))
        if opened is None or (is_whole and text[sent.length :]):
            events.append(wire.content(call, "act", text[sent.length :]))
        events += wire.close(call, "act", fields)
        yield from map(_frame, wire.attributed(events, fields))
        if not is_whole:
            yield from self._correct(number)

    def _result(self, event: Event) -> Iterator[Frame]:
        fields = messages.content_of(event)
        own = self._claim_id(event)
        result = agui.ToolCallResultEvent(
            message_id=own,
            tool_call_id=self._calls.result(event),
            content=messages.shown_result(fields),
            metadata={wire.ERROR_KEY: True} if fields.get("is_error") is True else None,
        )
        yield from map(_frame, wire.attributed([result], fields))

    def _step(self, event: Event) -> Iterator[Frame]:
        content = messages.content_of(event)
        named = content.get("step_name") or content.get("name") or content.get("step") or "step"
        name = clean_text(str(named))
        if name in self._steps:
            self._steps.remove(name)
            yield _frame(agui.StepFinishedEvent(step_name=name))
        if event.event_type == "step_start":
            self._steps.append(name)
            yield _frame(agui.StepStartedEvent(step_name=name))

    def _end(self, event: Event) -> Iterator[Frame]:
        content = messages.content_of(event)
        usage = wire.usage_of(content)
        finished = agui.RunFinishedEvent(thread_id=self._thread_id, run_id=self._shown_run_id, usage=usage)
        if event.event_type == "error":
            yield from self._finish(_run_error(content))
        elif event.event_type == "cancelled":
            finished.outcome = agui.RunFinishedCancelledOutcome(type="cancelled")
            yield from self._finish(finished, agui.RunErrorEvent(message="the run was cancelled", code="cancelled"))
        else:
            result = content.get("result")
            finished.outcome = _outcome(result, self._calls.unanswered)
            if result is not None and not isinstance(finished.outcome, agui.RunFinishedInterruptOutcome):
                finished.result = escape_state(result)
            # Clients before 1.0 refuse the field of pending calls, and do not know the usage.
            waits = isinstance(finished.outcome, agui.RunFinishedSuccessOutcome)
            outcome = None if waits else finished.outcome
            legacy = finished.model_copy(update={"outcome": outcome, "usage": None}) if waits or usage else None
            yield from self._finish(finished, legacy)

    def _finish(self, last: agui.BaseEvent, legacy: agui.BaseEvent | None = None) -> Iterator[Frame]:
        """Close what is open, then send the last event."""
        if any(each.message_id is None for each in self._open.values()):
            # A message whose id is not known cannot be closed, and only an error may leave it open.
            last, legacy = (
                agui.RunErrorEvent(message="a message was cut off; read the conversation again", code="cut"),
                None,
            )
        yield from self._close_messages()
        for subagent in reversed(self._subagents):
            unfinished = agui.SubagentErrorEvent(subagent_run_id=subagent, message="the run ended before it did")
            yield Frame("", unfinished, legacy=wire.legacy_of(unfinished))
        self._subagents.clear()
        for name in reversed(self._steps):
            yield _frame(agui.StepFinishedEvent(step_name=name))
        self._steps.clear()
        self.is_ended = True
        yield Frame("", last, is_terminal=True, legacy=legacy)

    def _close_messages(self) -> Iterator[Frame]:
        for each in self._open.values():
            if each.message_id is not None:
                if each.sent.is_span:
                    yield _frame(wire.begin(each.message_id, "thought"))
                yield from map(_frame, wire.close(each.message_id, each.sent.kind))
        self._open.clear()

    def _claim_id(self, event: Event) -> str:
        own = messages.unique_id(event, self._stored)
        self._stored.add(own)
        return own


def _frame(event: agui.BaseEvent) -> Frame:
    return Frame("", event)


def _of_scope(state: Mapping[str, Any], scope: Scope) -> dict[str, Any]:
    return {
        key: value for key, value in state.items() if parse_state_prefix(key)[0] is scope and value != DELETED_ESCAPE
    }


def _run_error(content: Mapping[str, Any]) -> agui.RunErrorEvent:
    message, code = content.get("message") or content.get("error"), content.get("code") or content.get("error_code")
    return agui.RunErrorEvent(
        message=clean_text(message) if isinstance(message, str) and message else "the run failed",
        code=clean_text(code) if isinstance(code, str) and code else None,
        usage=wire.usage_of(content),
    )


def _outcome(
    result: Any, unanswered: list[str]
) -> agui.RunFinishedInterruptOutcome | agui.RunFinishedSuccessOutcome | None:
    if interrupts := interrupts_of(result):
        return agui.RunFinishedInterruptOutcome(type="interrupt", interrupts=interrupts)
    return agui.RunFinishedSuccessOutcome(type="success", pending_tool_call_ids=unanswered) if unanswered else None


def _millis(event: Event) -> int | None:
    return None if event.timestamp is None else int(event.timestamp * 1000)
