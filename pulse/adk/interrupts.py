"""ADK's calls that wait for input from outside: reported to AG-UI as interrupts, answered by its ``resume``.

A long-running tool, a confirmation, a question to the user: each is a function call that ADK marks as long-running,
and continues once the function's response arrives. An interrupt's id is the call's id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from google.adk.events import Event
from google.genai import types

from pulse import events as engine
from pulse.runs import events as run_events
from pulse.runs.agents import AgentError

_CONFIRMATION: Final = "adk_request_confirmation"
_REASONS: Final[Mapping[str, str]] = {
    _CONFIRMATION: "confirmation",
    "adk_request_input": "input",
    "adk_request_credential": "credential",
}
_SHOWN_MAX = 300


def waiting_calls(events: Iterable[Event]) -> dict[str, tuple[types.FunctionCall, str]]:
    """Return the long-running calls that were not answered from outside, each with its invocation, by id.

    The first response of a long-running tool itself is not an answer.
    """
    waiting: dict[str, tuple[types.FunctionCall, str]] = {}
    for event in events:
        for call in event.get_function_calls():
            if call.id and call.id in (event.long_running_tool_ids or ()):
                waiting[call.id] = call, event.invocation_id
        if event.author == "user":
            for answer in event.get_function_responses():
                waiting.pop(answer.id or "", None)
    return waiting


def interrupts_of(events: Sequence[Event], client_tools: Iterable[str]) -> list[dict[str, Any]]:
    """Return the interrupts of a run's events, except calls of the client's tools and calls that have a response."""
    answered = {answer.id for event in events for answer in event.get_function_responses()}
    left_out = set(client_tools)
    return [
        _interrupt(call_id, call)
        for call_id, (call, _) in waiting_calls(events).items()
        if call_id not in answered and call.name not in left_out
    ]


def answers_of(resume: Sequence[Mapping[str, Any]], events: Iterable[Event]) -> dict[str, engine.Event]:
    """Return the results to store for the entries of ``resume``, by their ids.

    Args:
        resume: entries of AG-UI: ``interruptId``, ``status`` (resolved or cancelled), ``payload``.
        events: the session's events.

    Raises:
        AgentError: ``unknown_interrupt``, ``resume_apart`` or ``wrong_answer``; nothing was stored.
    """
    waiting = waiting_calls(events)
    ids = [entry["interruptId"] for entry in resume]
    if unknown := [each for each in ids if each not in waiting]:
        raise AgentError(
            f"nothing in this session waits for an answer to {', '.join(unknown)[:_SHOWN_MAX]}: 'resume' answers calls"
            " of long-running tools, confirmations and questions that are open",
            "unknown_interrupt",
        )
    if len({waiting[each][1] for each in ids}) > 1:
        raise AgentError("these answers belong to several invocations: resume them one by one", "resume_apart")
    if len(set(ids)) < len(ids):
        raise AgentError("an interrupt is answered twice: send one entry for each", "wrong_answer")
    answers = {}
    for entry in resume:
        name = waiting[entry["interruptId"]][0].name or ""
        observed = run_events.observe(name, _response(name, entry), tool_call_id=entry["interruptId"])
        answers[observed.id] = observed
    return answers


def _interrupt(call_id: str, call: types.FunctionCall) -> dict[str, Any]:
    arguments = call.args or {}
    confirmation = arguments.get("toolConfirmation")
    hint = confirmation.get("hint") if isinstance(confirmation, Mapping) else arguments.get("message")
    schema = arguments.get("response_schema")
    interrupt = {"id": call_id, "toolCallId": call_id, "reason": _REASONS.get(call.name or "", "tool_call")}
    if isinstance(hint, str) and hint:
        interrupt["message"] = hint
    return {**interrupt, "responseSchema": schema} if isinstance(schema, dict) else interrupt


def _response(name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    payload, is_cancelled = entry.get("payload"), entry["status"] == "cancelled"
    if name == _CONFIRMATION:
        return {"confirmed": False} if is_cancelled else _confirmation(payload)
    if is_cancelled:
        return {"status": "cancelled"}
    return dict(payload) if isinstance(payload, Mapping) else {"result": payload}


def _confirmation(payload: Any) -> dict[str, Any]:
    """Return ADK's ToolConfirmation for an answer. An unclear answer is never a confirmation."""
    match payload:
        case bool():
            return {"confirmed": payload}
        case {"confirmed": bool(confirmed), **rest}:
            return {"confirmed": confirmed, **({"payload": rest["payload"]} if "payload" in rest else {})}
        case {"approved": bool(approved)}:
            return {"confirmed": approved, "payload": dict(payload)}
    raise AgentError(
        'a confirmation is answered with true or false, {"confirmed": …} or {"approved": …}', "wrong_answer"
    )
