"""How a model's reply is checked, and how it becomes records.

Lenient about packaging, strict about meaning. Packaging is a byte-order mark, Markdown fences, or a word before or
after the one JSON object. Meaning is every key that was requested and no other, every value of its type and in its
range. A reply that cannot be read completely is refused completely, and kept as evidence: a fact that is dropped
silently is lost for good. `hippocampus.providers.reply_check` holds the checks of single values.

Decisions:
    - Text around the object may hold no bracket or brace: it could be data, and data is not skipped.
    - Duplicate keys in one object, NaN and Infinity are refused: Python's parser would accept them.
    - Confidence may exceed 0 or 1 by 0.01 (rounding) and is clamped; a percentage such as 85 is refused.
    - A source turn that is not in the slice is refused, not skipped: the model invented its evidence. So is the number
      of a known insight that was not listed.
    - Two facts of one type and key with different values are refused: one would overwrite the other. A retraction of
      the key beside its new value is not refused: it says which value ended. So may the statement of the value that
      ended stand beside both: it says which turns of the slice held it true.
    - A retraction may leave out its value: then it ends whatever holds under its key.
    - A NUL or a lone surrogate is refused: the database cannot store it, and changing it would be a guess.

Messages name the path and the kind of problem, never the content: they are logged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias, get_args

from hippocampus.providers.reply_check import ReplyCheck, read_object, refuse
from hippocampus.records import (
    ConversationSlice,
    ExtractedFact,
    ExtractedInsight,
    ExtractedProposal,
    FactType,
    Importance,
    KnownInsight,
)
from hippocampus.text.tokens import count_tokens

SUMMARY_CHARACTERS_MAX = 200
KEY_CHARACTERS_MAX = 255
INSTRUCTION_CHARACTERS_MAX = 500

#: The types that a model may give a fact. ``custom`` is for facts that an application writes.
MODEL_FACT_TYPES: tuple[FactType, ...] = ("preference", "rule", "profile")
IMPORTANCES: tuple[Importance, ...] = get_args(Importance)

_SCALARS: list[dict[str, Any]] = [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]
_SOURCES: dict[str, Any] = {"type": "array", "items": {"type": "integer"}, "minItems": 1}


def _closed(properties: dict[str, Any], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the JSON Schema of an object with exactly these properties, some of which may be left out."""
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


#: JSON Schemas that are sent with the request. The checks below do not rely on them.
SUMMARY_SCHEMA: dict[str, Any] = _closed({"summary": {"type": "string"}})
_FACT_SCHEMA = _closed(
    {
        "type": {"type": "string", "enum": list(MODEL_FACT_TYPES)},
        "key": {"type": "string"},
        "value": {"anyOf": [*_SCALARS, {"type": "array", "items": {"anyOf": _SCALARS}}]},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        "source_turns": _SOURCES,
        "ended": {"type": "boolean"},
    },
    optional=("ended",),
)
_INSIGHT_SCHEMA = _closed(
    {
        "content": {"type": "string"},
        "importance": {"type": "string", "enum": list(IMPORTANCES)},
        "source_turns": _SOURCES,
        "repeats": {"type": "integer"},
    },
    optional=("repeats",),
)
_PROPOSAL_SCHEMA = _closed({"key": {"type": "string"}, "content": {"type": "string"}, "source_turns": _SOURCES})
REFLECTION_SCHEMA: dict[str, Any] = _closed(
    {
        "facts": {"type": "array", "items": _FACT_SCHEMA},
        "insights": {"type": "array", "items": _INSIGHT_SCHEMA},
        "instructions": {"type": "array", "items": _PROPOSAL_SCHEMA},
    }
)

#: The citations come first: a model that writes its evidence before its answer stays with it.
ANSWER_SCHEMA: dict[str, Any] = _closed(
    {
        "citations": {"type": "array", "items": {"type": "integer"}},
        "known": {"type": "boolean"},
        "answer": {"type": "string"},
    }
)

RANKING_SCHEMA: dict[str, Any] = _closed({"best": {"type": "array", "items": {"type": "integer"}}})


def parse_summary(reply: str, *, clip: bool = False) -> str:
    """Return the text of a summary, stripped, with single spaces.

    Args:
        reply: the whole reply of the model.
        clip: shorten a summary that is too long, at the end of a sentence or a word, instead of refusing it.

    Raises:
        MalformedReplyError: it is not one JSON object with one text of 1 to 200 characters.
    """
    check = ReplyCheck(reply)
    root = check.object(read_object(reply), "the reply", ("summary",))
    text = check.text(root, "summary", "")
    check.finish()
    text = " ".join(text.split())
    if len(text) > SUMMARY_CHARACTERS_MAX:
        if not clip:
            refuse(reply, [f"summary has {len(text)} characters; at most {SUMMARY_CHARACTERS_MAX} are allowed"])
        text = clip_text(text, SUMMARY_CHARACTERS_MAX)
    return text


def parse_answer(reply: str, tokens_max: int, *, clip: bool = False) -> tuple[str | None, tuple[int, ...]]:
    """Return the answer, None if the passages do not hold it, and the numbers of the passages that it cites.

    Which passages there are is not checked here: a number that is not one of theirs leads nowhere, and is dropped.

    Args:
        tokens_max: the length of the answer.
        clip: shorten an answer that is too long, at the end of a sentence or a word, instead of refusing it.

    Raises:
        MalformedReplyError: it is not one JSON object with the three keys, or the answer is known and blank.
    """
    check = ReplyCheck(reply)
    root = check.object(read_object(reply), "the reply", ("citations", "known", "answer"))
    is_known = check.flag(root, "known", "")
    text = check.text(root, "answer", "") if is_known else None
    citations = check.whole_numbers(root, "citations")
    check.finish()
    if text is None:
        return None, ()
    if count_tokens(text) > tokens_max:
        if not clip:
            refuse(reply, [f"answer is too long: at most {tokens_max} tokens are allowed"])
        text = _clip_tokens(text, tokens_max)
    return text, citations


def parse_ranking(reply: str, count: int) -> tuple[int, ...]:
    """Return the numbers of texts that help to answer a question, the best first. One that is repeated counts once.

    Args:
        count: how many texts there are, numbered from 1.

    Raises:
        MalformedReplyError: it is not one JSON object with one list of these numbers.
    """
    check = ReplyCheck(reply)
    best = check.whole_numbers(check.object(read_object(reply), "the reply", ("best",)), "best")
    check.finish()
    if wrong := sorted({number for number in best if not 1 <= number <= count}):
        refuse(reply, [f"best has numbers that no text has, such as {wrong[0]}: there are 1 to {count}"])
    return tuple(dict.fromkeys(best))


#: Facts, insights, and proposals for the app's instructions.
Found: TypeAlias = tuple[tuple[ExtractedFact, ...], tuple[ExtractedInsight, ...], tuple[ExtractedProposal, ...]]


def parse_reflection(reply: str, slice_: ConversationSlice) -> Found:
    """Return what a reply found. All may be empty if the reply has empty lists; `instructions` may be left out.

    Raises:
        MalformedReplyError: any part of it breaks the schema; nothing of it is used.
    """
    check = ReplyCheck(reply, frozenset(turn.sequence_num for turn in slice_.turns))
    root = check.object(read_object(reply), "the reply", ("facts", "insights"), ("instructions",))
    facts = [_fact(check, item, path) for path, item in check.items(root, "facts")]
    insights = [_insight(check, item, path, slice_.known_insights) for path, item in check.items(root, "insights")]
    proposals = [_proposal(check, item, path) for path, item in check.items(root, "instructions")]
    check.finish()
    return (
        _merge_repeated(reply, [fact for fact in facts if fact]),
        tuple(one for one in insights if one),
        tuple(one for one in proposals if one),
    )


def clip_text(text: str, characters_max: int) -> str:
    """Return the longest beginning of a text that ends with a sentence, else with a word and an ellipsis."""
    if len(text) <= characters_max:
        return text
    ends = [match.end() for match in re.finditer(r"[。！？]|[.!?](?=\s|$)", text)]
    last = max((end for end in ends if end <= characters_max), default=0)
    if last > characters_max // 2:
        return text[:last]
    head = text[: characters_max - 1]
    space = head.rfind(" ")
    return (head[:space] if space >= characters_max // 2 else head).rstrip(" ,;:，；：、") + "…"


def _clip_tokens(text: str, tokens_max: int) -> str:
    """Return the longest beginning of a text that costs at most this many tokens, as `clip_text` ends it."""
    low, high = 1, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if count_tokens(clip_text(text, middle)) <= tokens_max:
            low = middle
        else:
            high = middle - 1
    return clip_text(text, low)


def _fact(check: ReplyCheck, item: Any, path: str) -> ExtractedFact | None:
    fields = check.object(item, path, ("type", "key", "confidence", "source_turns"), ("value", "ended"))
    if not fields:
        return None
    ended = check.flag(fields, "ended", path)
    found = {
        "fact_type": check.word(fields, "type", path, MODEL_FACT_TYPES),
        "key": check.text(fields, "key", path, characters_max=KEY_CHARACTERS_MAX),
        "value": check.value(fields, path, may_lack=ended),
        "confidence": check.confidence(fields, path),
        "source_seqs": check.sources(fields, path),
        "ended": ended,
    }
    return ExtractedFact(**found)


def _insight(check: ReplyCheck, item: Any, path: str, known: Sequence[KnownInsight]) -> ExtractedInsight | None:
    fields = check.object(item, path, ("content", "importance", "source_turns"), ("repeats",))
    if not fields:
        return None
    found: dict[str, Any] = {
        "content": check.text(fields, "content", path),
        "importance": check.word(fields, "importance", path, IMPORTANCES),
        "source_seqs": check.sources(fields, path),
    }
    number = check.number(fields, "repeats", path, len(known))
    return ExtractedInsight(**found, repeats=None if number is None else known[number - 1].id)


def _proposal(check: ReplyCheck, item: Any, path: str) -> ExtractedProposal | None:
    fields = check.object(item, path, ("key", "content", "source_turns"))
    if not fields:
        return None
    return ExtractedProposal(
        key=check.text(fields, "key", path, characters_max=KEY_CHARACTERS_MAX),
        content=check.text(fields, "content", path, characters_max=INSTRUCTION_CHARACTERS_MAX),
        source_seqs=check.sources(fields, path),
    )


def _merge_repeated(reply: str, facts: list[ExtractedFact]) -> tuple[ExtractedFact, ...]:
    """Merge facts that repeat each other; refuse those that contradict each other.

    A value that another fact of the reply ends does not contradict the one that holds.
    """
    ended = {
        (fact.fact_type, fact.key, _written(value))
        for fact in facts
        if fact.ended
        for value in (fact.value if isinstance(fact.value, list) else [fact.value])
    }
    merged: dict[tuple[str, str, bool, str], ExtractedFact] = {}
    for number, fact in enumerate(facts):
        former = _written(fact.value)
        is_former = not fact.ended and (fact.fact_type, fact.key, former) in ended
        place = (fact.fact_type, fact.key, fact.ended, former if is_former else "")
        known = merged.setdefault(place, fact)
        if known is fact:
            continue
        if _written(known.value) != former:
            refuse(reply, [f"facts[{number}] repeats an earlier type and key with another value: use a list"])
        merged[place] = replace(
            fact,
            confidence=max(known.confidence, fact.confidence),
            source_seqs=tuple(sorted({*known.source_seqs, *fact.source_seqs})),
        )
    return tuple(merged.values())


def _written(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
