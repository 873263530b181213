"""Splitting an event of ADK into the events of a run, and joining them again.

ADK puts a thought, a text and tool calls into one event; timelines, streams and searches have an event for each. An
event that is stored in a run is therefore split into pieces, in order, in one transaction:

    text parts                    assistant_message     content, message_id
    thought parts                 thought               content
    a function call               act                   tool_name, tool_input, tool_call_id
    a function response           observe               tool_name, observation, tool_call_id
    none of these                 adk_event             nothing: only ADK sees it

Each piece has its own parts, so that an erased piece is erased for ADK too. The last piece has the event's other
fields, under ``adk`` in its actions, and its state delta.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

from pulse import events as engine
from pulse.event_types import ADK_EVENT

#: The key in an event's actions of the fields that only ADK uses.
REST: Final = "adk"
# Within it: the id of the piece's event, its position in it, its parts if they do not follow from its content, the
# remaining fields (of the last piece), and the ids of the messages that the event repeats.
_OF, _POSITION, _PARTS, _FIELDS, _REPEATS = "of", "place", "parts", "fields", "repeats"

Part: TypeAlias = Mapping[str, Any]
#: id, author, invocation id, time in seconds, content, actions; as `get_adk_session` returns them.
Row: TypeAlias = Sequence[Any]


def split(event: engine.Event, run_id: str, streamed: Mapping[str, str]) -> list[engine.Event]:
    """Return the events to store in a run for an event of ADK.

    Args:
        event: as `pulse.adk.events.to_engine` returns it.
        run_id: the run of the new events.
        streamed: ids of the messages that were streamed, by type; the first piece of the type gets the id.
    """
    content = event.content or {}
    groups = list(_groups(content.get("parts") or ()))
    ids = _ids(event.id, [kind for kind, _ in groups], dict(streamed))
    carriers = [own for own, (kind, _) in zip(ids, groups, strict=True) if kind in ("assistant_message", "act")]
    pieces = []
    for position, ((kind, parts), own) in enumerate(zip(groups, ids, strict=True)):
        piece_content = _content_of(kind, parts, own, carriers)
        kept: dict[str, Any] = {_OF: event.id, _POSITION: position}
        if _parts_of(piece_content) != parts:
            kept[_PARTS] = parts
        actions = engine.EventActions(other={REST: kept})
        pieces.append(
            engine.Event(
                id=own,
                author=event.author,
                event_type=kind,
                invocation_id=run_id,
                content=piece_content,
                actions=actions,
                timestamp=event.timestamp,
            )
        )
    pieces[-1] = replace(pieces[-1], actions=_with_fields(event, pieces[-1], content.get("role")))
    return pieces


def repeat(event: engine.Event, run_id: str, repeated: Sequence[str], *, is_changed: bool) -> engine.Event:
    """Return the event to store for an event of ADK that repeats stored messages, without a copy of their content.

    Args:
        event: as for `split`.
        run_id: as for `split`.
        repeated: the ids of the stored messages.
        is_changed: its content differs from theirs, and is stored.
    """
    (piece,) = split(replace(event, content=None), run_id, {})
    content = event.content or {}
    kept: dict[str, Any] = {**piece.actions.other[REST], _REPEATS: list(repeated)}
    if is_changed:
        kept[_PARTS] = content.get("parts") or []
    kept[_FIELDS]["role"] = content.get("role", "user")
    other = {**piece.actions.other, REST: kept}
    return replace(piece, actions=replace(piece.actions, other=other))


def join(rows: Sequence[Row]) -> list[list[Any]]:
    """Join rows: one for each event of ADK, or of another client."""
    whole: list[list[Any]] = []
    pieces: dict[str, list[Row]] = {}
    contents = {row[0]: row[4] for row in rows}
    repeated: set[str] = set()
    for row in rows:
        kept = row[5].get(REST) or {}
        repeated.update(kept.get(_REPEATS, ()))
        if _OF in kept:
            pieces.setdefault(kept[_OF], []).append(row)
        else:
            whole.append(list(row))
    return [
        *(row for row in whole if row[0] not in repeated),
        *(_joined(event_id, some, contents) for event_id, some in pieces.items()),
    ]


def written_elsewhere(rows: Sequence[Row]) -> set[str]:
    """Return the ids of the joined events whose content was written without ADK."""
    kept = ((row[0], row[5].get(REST)) for row in rows)
    return {row_id if rest is None else rest[_OF] for row_id, rest in kept if rest is None or _REPEATS in rest}


def parts_of_elsewhere(content: Any) -> list[dict[str, Any]]:
    """Return the parts of an event that was stored without ADK: its text, call or result."""
    parts = _parts_of(content)
    if not parts and (text := engine.message_text(content)) is not None:
        parts = [{"text": text}]
    return parts


def _joined(event_id: str, some: list[Row], contents: Mapping[str, Any]) -> list[Any]:
    some.sort(key=lambda row: int(row[5][REST][_POSITION]))
    _, author, invocation_id, seconds, _, actions = some[-1]
    kept = actions[REST]
    fields = dict(kept.get(_FIELDS) or {})
    parts = [part for row in some for part in row[5][REST].get(_PARTS, _parts_of(row[4]))]
    if _REPEATS in kept and _PARTS not in kept:
        parts = [part for each in kept[_REPEATS] for part in _parts_of(contents.get(each))]
    role = fields.pop("role", None)
    content = {"role": role, "parts": parts} if role is not None else {"parts": parts} if parts else None
    actions = {key: value for key, value in actions.items() if key != REST}
    return [event_id, author, invocation_id, seconds, content, {**actions, REST: fields}]


def _with_fields(event: engine.Event, last: engine.Event, role: str | None) -> engine.EventActions:
    fields = {**event.actions.other[REST], "invocationId": event.invocation_id}
    if role is not None:
        fields["role"] = role
    kept = {**last.actions.other[REST], _FIELDS: fields}
    return engine.EventActions(state_delta=event.actions.state_delta, other={**event.actions.other, REST: kept})


def _groups(parts: Sequence[Part]) -> Iterator[tuple[str, list[Part]]]:
    """Yield the kinds of pieces in an event, each with its parts; a part without a kind joins the piece before it."""
    kind, group = "", list[Part]()
    for part in parts:
        own = _kind_of(part)
        goes_on = own == ADK_EVENT or (own == kind and own in ("thought", "assistant_message"))
        if group and not goes_on:
            yield kind, group
            group = []
        if not group or not goes_on:
            kind = own
        group.append(part)
    yield kind or ADK_EVENT, group


def _kind_of(part: Part) -> str:
    if "functionCall" in part:
        return "act"
    if "functionResponse" in part:
        return "observe"
    if part.get("text"):
        return "thought" if part.get("thought") else "assistant_message"
    return ADK_EVENT


def _ids(event_id: str, kinds: Sequence[str], streamed: dict[str, str]) -> list[str]:
    numbered = [f"{event_id}.{number}" if number < len(kinds) - 1 else event_id for number in range(len(kinds))]
    return [streamed.pop(kind, own) for kind, own in zip(kinds, numbered, strict=True)]


def _content_of(kind: str, parts: Sequence[Part], own: str, carriers: Sequence[str]) -> dict[str, Any]:
    match kind:
        case "assistant_message" | "thought":
            return {"content": "".join(part.get("text", "") for part in parts), "message_id": own}
        case "act":
            call = parts[0]["functionCall"]
            tool = {"tool_name": call.get("name"), "tool_input": call.get("args", {})}
            # The calls of one event belong to one message: the text before them, or the first call.
            return {**tool, "tool_call_id": call.get("id") or own, "message_id": carriers[0]}
        case "observe":
            answer = parts[0]["functionResponse"]
            tool = {"tool_name": answer.get("name"), "observation": answer.get("response", {})}
            # The key in which ADK's tools, and Gemini's API, report a failure.
            response = answer.get("response")
            is_error = isinstance(response, Mapping) and bool(response.get("error"))
            return {**tool, "tool_call_id": answer.get("id") or own, "is_error": is_error}
    return {}


def _parts_of(content: Any) -> list[dict[str, Any]]:
    """Return the parts that correspond to an event's content; none if it has no text, call or result."""
    if not isinstance(content, Mapping):
        return []
    if "tool_input" in content:
        return [{"functionCall": _named(content, args=_object(content["tool_input"]))}]
    if "observation" in content:
        return [{"functionResponse": _named(content, response=_answer(content["observation"]))}]
    text = content.get("content")
    if isinstance(text, str) and text:
        return [{"text": text}]
    parts = content.get("parts")
    return [each for part in parts for each in _part_of(part)] if isinstance(parts, list) else []


def _named(content: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    named = {"id": content.get("tool_call_id"), "name": content.get("tool_name")}
    return {key: value for key, value in {**named, **fields}.items() if value is not None}


def _part_of(part: Any) -> list[dict[str, Any]]:
    """Return a part of AG-UI as one of ADK, and a part of ADK unchanged."""
    if not isinstance(part, Mapping) or "type" not in part:
        return [dict(part)] if isinstance(part, Mapping) else []
    if part["type"] == "text":
        return [{"text": part.get("text", "")}]
    source = part.get("source") or {}
    kind = {"mimeType": source["mimeType"]} if source.get("mimeType") else {}
    match source.get("type"):
        case "data":
            return [{"inlineData": {"data": source["value"], **kind}}]
        case "url":
            return [{"fileData": {"fileUri": source["value"], **kind}}]
    return []


def _object(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {"input": value}


def _answer(value: Any) -> dict[str, Any]:
    """Return a tool's result as an object, as ADK requires; a client sends it as text, usually JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {"result": value}
    return dict(value) if isinstance(value, Mapping) else {"result": value}
