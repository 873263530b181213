"""Conversations in the form of LoCoMo: people who talk over months, session by session."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pulse.events import Event

#: The file dates sessions, not turns: each turn is taken to follow the one before by so much.
TURN_SECONDS = 30
_SESSION = re.compile(r"session_(\d+)")
_DATE_FORMATS = ("%I:%M %p on %d %B, %Y", "%I:%M %p on %d %b, %Y", "%H:%M on %d %B, %Y")
_ASSISTANTS = frozenset({"assistant", "agent", "model", "ai", "bot", "助手", "助理"})


class LocomoError(ValueError):
    """A conversation that is nearly in this form. The message says what is wrong."""


def conversations(whole: Any) -> list[Mapping[str, Any]] | None:
    """Return the conversations of a parsed file, or None where it is not in this form at all."""
    samples = whole if isinstance(whole, list) else [whole]
    if not samples or not all(isinstance(sample, dict) for sample in samples):
        return None
    found = [sample if "conversation" in sample else {"conversation": sample} for sample in samples]
    if not all(isinstance(each["conversation"], dict) and _names(each["conversation"]) for each in found):
        return None
    return found


def sessions(sample: Mapping[str, Any]) -> Iterator[tuple[str, list[Event]]]:
    """Yield the sessions of a conversation in order, as a name and its events; empty ones are left out.

    Raises:
        LocomoError: a date or a turn that can't be read.
    """
    conversation = sample["conversation"]
    for name in _names(conversation):
        turns = conversation[name]
        if not isinstance(turns, list):
            raise LocomoError(f"{name} must be a list of turns")
        if turns:
            start = _moment(name, conversation.get(f"{name}_date_time"))
            yield name.replace("_", "-"), [_event(name, place, turn, start) for place, turn in enumerate(turns)]


def questions(sample: Mapping[str, Any]) -> list[str]:
    """Return the questions that stand beside a conversation."""
    rows = sample.get("qa")
    found = (row.get("question") for row in rows if isinstance(row, dict)) if isinstance(rows, list) else ()
    return [question for question in found if isinstance(question, str) and question.strip()]


def _names(conversation: Mapping[str, Any]) -> list[str]:
    names = [name for name in conversation if _SESSION.fullmatch(name)]
    return sorted(names, key=lambda name: int(name.removeprefix("session_")))


def _event(name: str, place: int, turn: Any, start: datetime) -> Event:
    if not isinstance(turn, dict) or not isinstance(turn.get("speaker"), str) or not turn["speaker"].strip():
        raise LocomoError(f"turn {place + 1} of {name} needs a speaker and a text")
    speaker, text = turn["speaker"], turn.get("text")
    if not isinstance(text, str):
        raise LocomoError(f"turn {place + 1} of {name} needs a text")
    caption = turn.get("blip_caption")
    shown = f"{text} [photo: {caption}]" if caption else text
    is_assistant = speaker.strip().casefold() in _ASSISTANTS or turn.get("role") == "assistant"
    return Event(
        author=speaker,
        # Both people of a conversation are heard as people: what either says of themselves is worth remembering.
        event_type="assistant_message" if is_assistant else "user_message",
        content={"text": shown, **({"source_id": turn["dia_id"]} if "dia_id" in turn else {})},
        timestamp=(start + timedelta(seconds=TURN_SECONDS * place)).timestamp(),
    )


def _moment(name: str, given: Any) -> datetime:
    """Parse '1:56 pm on 8 May, 2023' or ISO 8601, which counts as UTC without a zone of its own."""
    for form in _DATE_FORMATS:
        try:
            return datetime.strptime(str(given), form).replace(tzinfo=UTC)
        except ValueError:
            continue
    try:
        moment = datetime.fromisoformat(str(given))
    except ValueError:
        raise LocomoError(
            f"{name}_date_time is {given!r}; write it as '1:56 pm on 8 May, 2023' or as 2023-05-08T13:56:00"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
