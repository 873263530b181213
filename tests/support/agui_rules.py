"""The rules of an AG-UI stream as a state machine, independent of the code that makes the stream."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import jsonpatch
from ag_ui.core import Event as AguiEvent
from pydantic import TypeAdapter

_EVENTS: TypeAdapter[Any] = TypeAdapter(AguiEvent)
_OPENERS = {"TEXT_MESSAGE_START": "messageId", "REASONING_MESSAGE_START": "messageId", "TOOL_CALL_START": "toolCallId"}
_KINDS = {"TEXT_MESSAGE": "messageId", "REASONING_MESSAGE": "messageId", "TOOL_CALL": "toolCallId"}
_TEXT_ROLES = {"developer", "system", "assistant", "user"}


class RuleBrokenError(AssertionError):
    """A stream broke a rule; the message names it."""


class StreamRules:
    """Checks every event of a stream, in order; call `end` afterwards."""

    def __init__(self, *, legacy: bool = False) -> None:
        self.legacy = legacy
        self.thread: str | None = None
        self.runs: set[str] = set()
        self.run: str | None = None
        self.last = ""
        self.open: dict[tuple[str, str], None] = {}
        self.steps: set[str] = set()
        self.spans: set[str] = set()
        self.subagents: set[str] = set()
        self.message_ids: set[str] = set()
        self.calls: set[str] = set()
        self.state: Any = None
        self.frame_ids: set[str] = set()

    def frame(self, frame: bytes) -> dict[str, Any]:
        """One SSE frame: its framing, its id, its event."""
        text = frame.decode()
        self.check("\r" not in text and not any(mark in text for mark in "\u2028\u2029\x85"), "15, 19: line ends", text)
        *identity, data, end, rest = text.split("\n")
        self.check((end, rest) == ("", "") and data.startswith("data: "), "15: framing", text)
        event = json.loads(data[6:])
        # What is not stored, and the last event of a stream that cannot continue, have no position.
        is_transient = event["type"] in ("RAW", "CUSTOM", "ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA")
        if identity or not (is_transient or event.get("code") in ("session_gone", "stream_failed")):
            (line,) = identity
            self.check(line.startswith("id: ") and line not in self.frame_ids, "an id for each frame", line)
            self.frame_ids.add(line)
        self.event(event)
        return event

    def event(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        model = _EVENTS.validate_python(event)
        known = {field.alias or name for name, field in type(model).model_fields.items()}
        self.check(event.keys() <= known, "10: no field beyond the protocol", event.keys() - known)
        self.check(all(value is not None for key, value in event.items() if key != "value"), "9: no null", event)
        self.check(isinstance(event.get("timestamp", 0), int), "9: whole timestamps", event)
        if kind == "RUN_STARTED":
            self._start(event)
        elif kind == "RUN_ERROR":
            self.check(self.last != "RUN_ERROR", "2: nothing but RUN_STARTED after RUN_ERROR", event)
            self.run = None
            for each in (self.open, self.steps, self.spans, self.subagents):
                each.clear()
        else:
            self.check(self.run is not None, "1, 2: only within a run", event)
            self._inside(kind, event)
        self.last = kind

    def end(self) -> None:
        self.check(self.last in ("RUN_FINISHED", "RUN_ERROR"), "16: a last event", self.last)

    def _start(self, event: dict[str, Any]) -> None:
        self.check(self.run is None, "3: no run within a run", event)
        self.check(event.get("protocolVersion") == "1.0", "13: protocolVersion", event)
        self.check(self.thread in (None, event["threadId"]), "4: one thread", event)
        self.check(event["runId"] not in self.runs, "4: a run id once", event)
        self.thread, self.run = event["threadId"], event["runId"]
        self.runs.add(self.run)

    def _inside(self, kind: str, event: dict[str, Any]) -> None:
        if kind == "RUN_FINISHED":
            same = (event["threadId"], event["runId"]) == (self.thread, self.run)
            self.check(same, "4: the ids of RUN_STARTED", event)
            left = [*self.open, *self.steps, *self.spans, *self.subagents]
            self.check(not left, "5: everything closed", left)
            outcome = event.get("outcome", {"type": "success"})
            self.check(not (self.legacy and outcome["type"] == "cancelled"), "14: old clients", event)
            self.check(outcome["type"] != "interrupt" or outcome["interrupts"], "20: interrupts", event)
            self.run = None
        elif kind.startswith(tuple(_KINDS)) and kind != "TOOL_CALL_RESULT":
            self._piece(*kind.rsplit("_", 1), event)
        elif kind == "TOOL_CALL_RESULT":
            self.check(isinstance(event["content"], str), "7: a result is text", event)
            self.new_message(event["messageId"])
        elif kind in ("REASONING_START", "REASONING_END"):
            self._span(kind, event["messageId"])
        elif kind == "REASONING_ENCRYPTED_VALUE":
            known = self.calls if event["subtype"] == "tool-call" else self.message_ids
            self.check(event["entityId"] in known, "a value for something that was sent", event)
        elif kind.startswith("SUBAGENT_"):
            begins = kind == "SUBAGENT_STARTED"
            self.check((event["subagentRunId"] in self.subagents) != begins, "5: subagents in pairs", event)
            self.subagents ^= {event["subagentRunId"]}
        elif kind == "ACTIVITY_SNAPSHOT":
            self.message_ids.add(event["messageId"])
        elif kind == "ACTIVITY_DELTA":
            self.check(event["messageId"] in self.message_ids, "5: a snapshot comes first", event)
        elif kind.startswith("STEP_"):
            self._step(kind, event["stepName"])
        elif kind == "STATE_SNAPSHOT":
            self.state = event["snapshot"]
        elif kind == "STATE_DELTA":
            self.check(self.state is not None, "11: a base for a patch", event)
            self.state = jsonpatch.apply_patch(self.state, event["delta"])
        elif kind == "MESSAGES_SNAPSHOT":
            self.check(not self.open and not self.spans, "17: nothing open that the snapshot drops", event)
            self.message_ids = {message["id"] for message in event["messages"]}
            self.check(len(self.message_ids) == len(event["messages"]), "6: unique ids", event)
        elif kind == "CUSTOM":
            self.check("value" in event and ":" in event["name"], "12: CUSTOM has a prefixed name and a value", event)
        else:
            self.check(kind == "RAW", "10: a known type", event)

    def _piece(self, kind: str, piece: str, event: dict[str, Any]) -> None:
        key = (kind, event[_KINDS[kind]])
        if piece == "START":
            self.check(key not in self.open, "5: opened once", event)
            self.check(event.get("role", "assistant") in _TEXT_ROLES | {"reasoning"}, "8: roles", event)
            self.check(kind != "REASONING_MESSAGE" or key[1] in self.spans, "5: a span around a thought", event)
            self.open[key] = None
            if kind == "TOOL_CALL":
                self.check(key[1] not in self.calls, "7: a call's id once", event)
                self.calls.add(key[1])
                self.message_ids.add(event["parentMessageId"])
            else:
                self.new_message(key[1])
        else:
            self.check(key in self.open, "5: START comes first", event)
            if piece == "END":
                del self.open[key]

    def _span(self, kind: str, name: str) -> None:
        self.check((name in self.spans) == (kind == "REASONING_END"), "5: spans in pairs", (kind, name))
        self.check(("REASONING_MESSAGE", name) not in self.open, "5: a thought ends before its span", name)
        self.spans ^= {name}

    def _step(self, kind: str, name: str) -> None:
        self.check((name in self.steps) == (kind == "STEP_FINISHED"), "5: steps in pairs", (kind, name))
        self.steps ^= {name}

    def new_message(self, message_id: str) -> None:
        self.check(message_id not in self.message_ids, "6: a message's id once", message_id)
        self.message_ids.add(message_id)

    @staticmethod
    def check(holds: bool, rule: str, seen: object) -> None:
        if not holds:
            raise RuleBrokenError(f"{rule}: {seen}")


class Reducer:
    """The client's final messages and state, reduced as the protocol's own client does."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.state: Any = {}
        self.ends: list[dict[str, Any]] = []

    def apply(self, events: Iterable[dict[str, Any]]) -> Reducer:
        for event in events:
            self.event(event)
        return self

    def event(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        if kind in ("TEXT_MESSAGE_START", "REASONING_MESSAGE_START"):
            message = self._find(event["messageId"])
            if message is None:
                role = event.get("role", "assistant")
                self.messages.append({"id": event["messageId"], "role": role, "content": "", **_attribution(event)})
            else:
                message.setdefault("content", "")
        elif kind in ("TEXT_MESSAGE_CONTENT", "REASONING_MESSAGE_CONTENT"):
            self._find(event["messageId"])["content"] += event["delta"]
        elif kind in ("TEXT_MESSAGE_END", "REASONING_MESSAGE_END"):
            if "metadata" in event:
                self._find(event["messageId"])["metadata"] = event["metadata"]
        elif kind == "REASONING_ENCRYPTED_VALUE":
            holder = self._tool_call(event["entityId"]) or self._find(event["entityId"])
            holder["encryptedValue"] = event["encryptedValue"]
        elif kind == "TOOL_CALL_END":
            if "metadata" in event:
                self._tool_call(event["toolCallId"])["metadata"] = event["metadata"]
        elif kind.startswith("ACTIVITY_"):
            self._activity(event)
        elif kind == "TOOL_CALL_START":
            self._call(event)
        elif kind == "TOOL_CALL_ARGS":
            self._tool_call(event["toolCallId"])["function"]["arguments"] += event["delta"]
        elif kind == "TOOL_CALL_RESULT":
            self.messages.append(
                {
                    "id": event["messageId"],
                    "role": "tool",
                    "toolCallId": event["toolCallId"],
                    "content": event["content"],
                    **({"metadata": event["metadata"]} if "metadata" in event else {}),
                    **_attribution(event),
                }
            )
        elif kind == "MESSAGES_SNAPSHOT":
            self.messages = json.loads(json.dumps(event["messages"]))
        elif kind == "STATE_SNAPSHOT":
            self.state = event["snapshot"]
        elif kind == "STATE_DELTA":
            self.state = jsonpatch.apply_patch(self.state, event["delta"])
        elif kind in ("RUN_FINISHED", "RUN_ERROR"):
            self.ends.append(event)

    def _call(self, event: dict[str, Any]) -> None:
        call = {
            "id": event["toolCallId"],
            "type": "function",
            "function": {"name": event["toolCallName"], "arguments": ""},
        }
        message = self._find(event["parentMessageId"])
        if message is None:
            message = {"id": event["parentMessageId"], "role": "assistant", **_attribution(event)}
            self.messages.append(message)
        message.setdefault("toolCalls", []).append(call)

    def _find(self, message_id: str) -> Any:
        return next((message for message in self.messages if message["id"] == message_id), None)

    def _tool_call(self, call_id: str) -> Any:
        calls = (call for message in self.messages for call in message.get("toolCalls", ()))
        return next((call for call in calls if call["id"] == call_id), None)

    def _activity(self, event: dict[str, Any]) -> None:
        message = self._find(event["messageId"])
        if event["type"] == "ACTIVITY_DELTA":
            message["content"] = jsonpatch.apply_patch(message["content"], event["patch"])
        elif message is None:
            fields = {"role": "activity", "activityType": event["activityType"], "content": event["content"]}
            self.messages.append({"id": event["messageId"], **fields, **_attribution(event)})
        else:
            message["content"] = event["content"]


def _attribution(event: dict[str, Any]) -> dict[str, Any]:
    return {"subagentRunId": event["subagentRunId"]} if "subagentRunId" in event else {}
