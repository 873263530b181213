"""What a lost run left open: calls without a result, and messages and results that the agent has not answered.

ADK leaves calls without a response out of what the model is shown, and begins an invocation only with a message.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from google.adk.events import Event
from google.genai import types

from pulse.adk.interrupts import interrupts_of
from pulse.adk.session_rows import moment
from pulse.adk.toolset import idempotency_key
from pulse.runs.agents import LostCall
from pulse.session_key import SessionKey

#: The calls by which ADK asks a person have names that begin with this.
_ASKING: Final = "adk_request_"
_CONFIRMATION: Final = "adk_request_confirmation"


class Unanswered(NamedTuple):
    """What is to be answered, and the ids of its events."""

    parts: list[types.Part]
    ids: list[str]


def open_turn(events: Sequence[Event], cut: Collection[str]) -> list[Event]:
    """Return the events after the agent's last whole answer.

    Args:
        cut: ids of messages that end where their run was lost.
    """
    turn: list[Event] = []
    for event in reversed(events):
        is_cut = event.id in cut or event.finish_reason is types.FinishReason.MAX_TOKENS
        if _is_answer(event) and not is_cut:
            break
        turn.append(event)
    return turn[::-1]


def lost_calls(turn: Sequence[Event], key: SessionKey) -> list[LostCall]:
    """Return the calls of a turn that get no answer, in their order.

    A call that waits for a person or for the client is not one of them. One on which a person has decided is, until it
    has a response after the decision.
    """
    calls: dict[str, LostCall] = {}
    confirmations: dict[str, str] = {}
    waiting: set[str] = set()
    answered: set[str] = set()
    for event in turn:
        for call in event.get_function_calls():
            if call.id and call.name == _CONFIRMATION:
                confirmations[call.id] = original = _original_id(call)
                waiting.add(original)
            elif call.id and call.name and call.id not in (event.long_running_tool_ids or ()):
                calls[call.id] = LostCall(
                    id=call.id,
                    name=call.name,
                    arguments=call.args or {},
                    agent=event.author,
                    idempotency_key=idempotency_key(*key, event.invocation_id, call.id),
                    asked_at=moment(event.timestamp),
                )
        for answer in event.get_function_responses():
            decided = confirmations.get(answer.id or "")
            if decided is None:
                answered.add(answer.id or "")
            elif decided in calls:
                # Its first response was that it waits.
                waiting.discard(decided)
                answered.discard(decided)
                calls[decided] = replace(calls[decided], is_decided=True)
    return [call for call in calls.values() if call.id not in answered | waiting]


def unanswered(turn: Sequence[Event]) -> Unanswered | None:
    """Return what the agent has to answer: messages of the user, else the last results; None if there is nothing."""
    last: list[Event] = []
    invocation_id = ""
    for event in reversed(turn):
        if event.get_function_calls():
            invocation_id = event.invocation_id
            break
        last.insert(0, event)
    asked = [event for event in last if _is_question(event)]
    if asked:
        return Unanswered(list(_parts(asked)), [event.id for event in asked])
    if interrupts_of(turn, ()):
        return None
    results: list[Event] = []
    for event in reversed(last):
        if not event.get_function_responses():
            continue
        if results and _is_of_a_person(event) != _is_of_a_person(results[0]):
            break
        results.insert(0, event)
    # Responses to another invocation are in the session, and ADK continues with one. Of two to a call, the last counts.
    own = {call.id for event in turn if event.invocation_id == invocation_id for call in event.get_function_calls()}
    found = {
        part.function_response.id: part
        for part in _parts(results)
        if part.function_response and part.function_response.id in own
    }
    ids = [event.id for event in results if any(answer.id in found for answer in event.get_function_responses())]
    return Unanswered(list(found.values()), ids) if found else None


def was_lost_after_answer(turn: Sequence[Event]) -> bool:
    """Whether the run that stored the last whole answer failed afterwards: there is nothing left to do."""
    return bool(turn) and turn[0].author == "system" and turn[0].id.startswith("end-of-") and bool(turn[0].content)


def _is_answer(event: Event) -> bool:
    if event.author in ("user", "system") or event.get_function_calls() or event.get_function_responses():
        return False
    return any(part.text and part.text.strip() and not part.thought for part in _parts([event]))


def _is_question(event: Event) -> bool:
    return event.author == "user" and bool(event.content and event.content.parts) and not event.get_function_responses()


def _is_of_a_person(event: Event) -> bool:
    return any((answer.name or "").startswith(_ASKING) for answer in event.get_function_responses())


def _original_id(call: types.FunctionCall) -> str:
    original = (call.args or {}).get("originalFunctionCall")
    return str(original.get("id") or "") if isinstance(original, Mapping) else ""


def _parts(events: Sequence[Event]) -> Iterator[types.Part]:
    for event in events:
        yield from (event.content and event.content.parts) or ()
