"""Conversations in the form of LoCoMo: people who talk over months, session by session.

    {"sample_id": "mei", "conversation": {"speaker_a": "Mei", "speaker_b": "Assistant",
     "session_1_date_time": "1:56 pm on 8 May, 2023", "session_1": [{"speaker": "Mei", "text": "…"}, …], …},
     "qa": [{"question": "…"}, …]}

Each session_N becomes a session.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pulse.events import Event
from workers.intake.documents import Parse, Record
from workers.intake.moments import moment
from workers.intake.records import TURN_SECONDS, BadRecordError, Item, Naming, Question, Rejected, SessionHead

_SESSION = re.compile(r"session_(\d+)")
_ASSISTANTS = frozenset({"assistant", "agent", "model", "ai", "bot", "助手", "助理"})


def parser_of(value: Any) -> Parse | None:
    """Return the parser of a conversation."""
    talk = _talk(value) if isinstance(value, Mapping) else None
    return sessions if isinstance(talk, Mapping) and _names(talk) else None


def is_assistant(speaker: str) -> bool:
    """Whether a speaker's name is an assistant's."""
    return speaker.strip().casefold() in _ASSISTANTS


def sessions(record: Record, naming: Naming) -> Iterator[Item]:
    """Read the sessions of a conversation in order; empty ones are left out."""
    sample = record.value
    name = naming.session(sample.get("sample_id"))
    talk = _talk(sample)
    for key in _names(talk):
        session_id = f"{name}-{key.replace('_', '-')}"
        try:
            turns, start = _turns(talk, key, naming)
        except BadRecordError as error:
            yield Rejected(line=record.line, error=str(error), record={key: talk[key]})
            continue
        if turns:
            yield SessionHead(session_id=session_id, user_id=name, line=record.line)
        for number, turn in enumerate(turns):
            try:
                event = _event(turn, start + TURN_SECONDS * number)
            except BadRecordError as error:
                yield Rejected(line=record.line, error=f"turn {number + 1} of {key} {error}", record=turn)
            else:
                yield naming.turn(session_id, event, record.line)
    yield from _questions(sample)


def _talk(sample: Mapping[str, Any]) -> Any:
    return sample.get("conversation", sample)


def _questions(sample: Mapping[str, Any]) -> Iterator[Question]:
    rows = sample.get("qa")
    for row in rows if isinstance(rows, list) else ():
        question = row.get("question") if isinstance(row, dict) else None
        if isinstance(question, str) and question.strip():
            yield Question(text=question)


def _names(talk: Mapping[str, Any]) -> list[str]:
    names = [name for name in talk if _SESSION.fullmatch(name)]
    return sorted(names, key=lambda name: int(name.removeprefix("session_")))


def _turns(talk: Mapping[str, Any], name: str, naming: Naming) -> tuple[list[Any], float]:
    turns = talk[name]
    if not isinstance(turns, list):
        raise BadRecordError(f"{name} must be a list of turns")
    if not turns:
        return [], 0.0
    given = talk.get(f"{name}_date_time")
    try:
        return turns, moment(given, day_first=naming.day_first)
    except ValueError:
        raise BadRecordError(
            f"{name}_date_time is {given!r}: write it as '1:56 pm on 8 May, 2023' or as 2023-05-08T13:56:00"
        ) from None


def _event(turn: Any, timestamp: float) -> Event:
    if not isinstance(turn, dict) or not isinstance(turn.get("speaker"), str) or not turn["speaker"].strip():
        raise BadRecordError("needs a speaker and a text")
    speaker, text = turn["speaker"], turn.get("text")
    if not isinstance(text, str):
        raise BadRecordError("needs a text")
    caption = turn.get("blip_caption")
    said_by_assistant = is_assistant(speaker) or turn.get("role") == "assistant"
    return Event(
        author=speaker,
        # Both speakers count as users: what either says about themselves is worth remembering.
        event_type="assistant_message" if said_by_assistant else "user_message",
        content={
            "text": f"{text} [photo: {caption}]" if caption else text,
            **({"source_id": turn["dia_id"]} if "dia_id" in turn else {}),
        },
        timestamp=timestamp,
    )
