"""What a model's reply must look like, and how it becomes records.

Lenient about packaging, strict about meaning. Packaging: a byte-order mark, Markdown fences, a word before
or after the one JSON object. Meaning: every key that was asked for and no other, every value of its type and
in its range. There is no third way: what cannot be read whole is refused whole, and the reply is kept as
evidence, since a fact that is dropped silently is lost for good.

Decisions:
    - Text around the object may hold no bracket or brace: it could be data, and data is not skipped.
    - The same key twice in one object, NaN and Infinity are refused: Python's parser would let them pass.
    - Confidence may overshoot 0 or 1 by 0.01 (rounding) and is clamped; a percentage such as 85 is refused.
    - A source turn that is not in the slice is refused, not skipped: the model made up its evidence.
    - Two facts of one type and key with different values are refused: one would overwrite the other.
    - A NUL or a lone surrogate is refused: the database cannot store it, and changing it would be a guess.

Messages name the place and the kind of problem, never the content: they are logged.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, TypeAlias, get_args

from hippocampus.errors import MalformedReplyError
from hippocampus.records import (
    ConversationSlice,
    ExtractedFact,
    ExtractedInsight,
    ExtractedProposal,
    FactType,
    Importance,
)

SUMMARY_CHARACTERS_MAX = 200
KEY_CHARACTERS_MAX = 255
INSTRUCTION_CHARACTERS_MAX = 500
CONFIDENCE_TOLERANCE = 0.01
#: Problems that a message lists; a repair needs the kinds, not a thousand repetitions.
PROBLEMS_LISTED_MAX = 20

#: What a model may call a fact. ``custom`` belongs to those who write facts by hand.
MODEL_FACT_TYPES: tuple[FactType, ...] = ("preference", "rule", "profile")
IMPORTANCES: tuple[Importance, ...] = get_args(Importance)

_SCALARS: list[dict[str, Any]] = [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]
_SOURCES: dict[str, Any] = {"type": "array", "items": {"type": "integer"}, "minItems": 1}


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    """An object of exactly these properties, as JSON Schema."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


#: JSON Schemas that are sent with the request. The checks below do not trust that they were honoured.
SUMMARY_SCHEMA: dict[str, Any] = _closed({"summary": {"type": "string"}})
_FACT_SCHEMA = _closed(
    {
        "type": {"type": "string", "enum": list(MODEL_FACT_TYPES)},
        "key": {"type": "string"},
        "value": {"anyOf": [*_SCALARS, {"type": "array", "items": {"anyOf": _SCALARS}}]},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        "source_turns": _SOURCES,
    }
)
_INSIGHT_SCHEMA = _closed(
    {
        "content": {"type": "string"},
        "importance": {"type": "string", "enum": list(IMPORTANCES)},
        "source_turns": _SOURCES,
    }
)
_PROPOSAL_SCHEMA = _closed({"key": {"type": "string"}, "content": {"type": "string"}, "source_turns": _SOURCES})
REFLECTION_SCHEMA: dict[str, Any] = _closed(
    {
        "facts": {"type": "array", "items": _FACT_SCHEMA},
        "insights": {"type": "array", "items": _INSIGHT_SCHEMA},
        "instructions": {"type": "array", "items": _PROPOSAL_SCHEMA},
    }
)


def parse_summary(reply: str, *, clip: bool = False) -> str:
    """The summary's text out of a reply, stripped, with single spaces.

    Args:
        reply: the whole reply of the model.
        clip: shorten a summary that is too long, at the end of a sentence or a word, instead of refusing it.

    Raises:
        MalformedReplyError: it is not one JSON object with one text of 1 to 200 characters.
    """
    check = _Check(reply)
    root = check.object(read_object(reply), "the reply", ("summary",))
    text = check.text(root, "summary", "")
    check.finish()
    text = " ".join(text.split())
    if len(text) > SUMMARY_CHARACTERS_MAX:
        if not clip:
            refuse(reply, [f"summary has {len(text)} characters; at most {SUMMARY_CHARACTERS_MAX} are allowed"])
        text = clip_text(text, SUMMARY_CHARACTERS_MAX)
    return text


#: Facts, insights, and proposals for the app's instructions.
Found: TypeAlias = tuple[tuple[ExtractedFact, ...], tuple[ExtractedInsight, ...], tuple[ExtractedProposal, ...]]


def parse_reflection(reply: str, conversation: ConversationSlice) -> Found:
    """What a reply found. All may be empty, if the reply says so with empty lists; `instructions` may be left out.

    Raises:
        MalformedReplyError: any part of it breaks the form; nothing of it is taken then.
    """
    check = _Check(reply, frozenset(turn.sequence_num for turn in conversation.turns))
    root = check.object(read_object(reply), "the reply", ("facts", "insights"), ("instructions",))
    facts = [_fact(check, item, path) for path, item in check.items(root, "facts")]
    insights = [_insight(check, item, path) for path, item in check.items(root, "insights")]
    proposals = [_proposal(check, item, path) for path, item in check.items(root, "instructions")]
    check.finish()
    return (
        _merge_repeated(reply, [fact for fact in facts if fact]),
        tuple(one for one in insights if one),
        tuple(one for one in proposals if one),
    )


def refuse(reply: str, problems: Iterable[str]) -> NoReturn:
    """Raise the one error of this module, with the whole reply as evidence."""
    listed = list(problems)
    more = len(listed) - PROBLEMS_LISTED_MAX
    shown = listed[:PROBLEMS_LISTED_MAX] + ([f"and {more} more"] if more > 0 else [])
    raise MalformedReplyError(
        "the model's reply breaks the schema: " + "; ".join(shown), code="malformed", raw_reply=reply
    )


def read_object(reply: str) -> Any:
    """The one JSON value of a reply, whatever harmless packaging stands around it.

    Raises:
        MalformedReplyError: no JSON object, more than one, or one that is broken.
    """
    text = reply.strip("\ufeff \t\r\n")
    start = text.find("{")
    if start < 0:
        refuse(reply, ["it holds no JSON object"])
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError) as error:
        # The parser's message quotes a position, never the text; ours for repeated keys and NaN likewise.
        refuse(reply, [f"it is not valid JSON: {error}"])
    if re.search(r"[\[\]{}]", text[:start] + text[end:]):
        refuse(reply, ["it must be one JSON object and nothing else: there is more JSON around it"])
    return value


def clip_text(text: str, characters_max: int) -> str:
    """The longest beginning of `text` that ends with a sentence, else with a word and an ellipsis."""
    if len(text) <= characters_max:
        return text
    ends = [match.end() for match in re.finditer(r"[。！？]|[.!?](?=\s|$)", text)]
    last = max((end for end in ends if end <= characters_max), default=0)
    if last > characters_max // 2:
        return text[:last]
    head = text[: characters_max - 1]
    space = head.rfind(" ")
    return (head[:space] if space >= characters_max // 2 else head).rstrip(" ,;:，；：、") + "…"


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("the same key stands twice in one object")
    return found


def _no_constant(_name: str) -> NoReturn:
    raise ValueError("NaN and Infinity are no JSON numbers")


def _finite_float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("a number is too large")
    return number


_DECODER = json.JSONDecoder(object_pairs_hook=_unique_keys, parse_constant=_no_constant, parse_float=_finite_float)


def _fact(check: _Check, item: Any, path: str) -> ExtractedFact | None:
    fields = check.object(item, path, ("type", "key", "value", "confidence", "source_turns"))
    if not fields:
        return None
    found = {
        "fact_type": check.word(fields, "type", path, MODEL_FACT_TYPES),
        "key": check.text(fields, "key", path, characters_max=KEY_CHARACTERS_MAX),
        "value": check.value(fields, path),
        "confidence": check.confidence(fields, path),
        "source_seqs": check.sources(fields, path),
    }
    return ExtractedFact(**found)


def _insight(check: _Check, item: Any, path: str) -> ExtractedInsight | None:
    fields = check.object(item, path, ("content", "importance", "source_turns"))
    if not fields:
        return None
    found: dict[str, Any] = {
        "content": check.text(fields, "content", path),
        "importance": check.word(fields, "importance", path, IMPORTANCES),
        "source_seqs": check.sources(fields, path),
    }
    return ExtractedInsight(**found)


def _proposal(check: _Check, item: Any, path: str) -> ExtractedProposal | None:
    fields = check.object(item, path, ("key", "content", "source_turns"))
    if not fields:
        return None
    return ExtractedProposal(
        key=check.text(fields, "key", path, characters_max=KEY_CHARACTERS_MAX),
        content=check.text(fields, "content", path, characters_max=INSTRUCTION_CHARACTERS_MAX),
        source_seqs=check.sources(fields, path),
    )


def _merge_repeated(reply: str, facts: list[ExtractedFact]) -> tuple[ExtractedFact, ...]:
    """Join facts that say the same twice; refuse those that contradict each other."""
    merged: dict[tuple[str, str], ExtractedFact] = {}
    for number, fact in enumerate(facts):
        known = merged.setdefault((fact.fact_type, fact.key), fact)
        if known is fact:
            continue
        if json.dumps(known.value, sort_keys=True) != json.dumps(fact.value, sort_keys=True):
            refuse(reply, [f"facts[{number}] repeats an earlier type and key with another value: use a list"])
        merged[(fact.fact_type, fact.key)] = ExtractedFact(
            fact_type=fact.fact_type,
            key=fact.key,
            value=fact.value,
            confidence=max(known.confidence, fact.confidence),
            source_seqs=tuple(sorted({*known.source_seqs, *fact.source_seqs})),
        )
    return tuple(merged.values())


class _Check:
    """One reply under examination. Collects every problem, so that a repair can be told of all at once.

    After a problem a method answers with a stand-in, so that the others still look; `finish` then raises.
    """

    def __init__(self, reply: str, turns: frozenset[int] = frozenset()) -> None:
        self._reply = reply
        self._turns = turns
        self.problems: list[str] = []

    def finish(self) -> None:
        if self.problems:
            refuse(self._reply, self.problems)

    def object(self, value: Any, path: str, keys: tuple[str, ...], optional: tuple[str, ...] = ()) -> Mapping[str, Any]:
        """An object of exactly these keys, and perhaps the optional ones; empty where it is not one."""
        if not isinstance(value, dict):
            self.problems.append(f"{path} must be an object, it is {_kind(value)}")
            return {}
        if missing := [key for key in keys if key not in value]:
            self.problems.append(f"{path} lacks {', '.join(missing)}")
        if extra := len(value.keys() - {*keys, *optional}):
            asked = ", ".join((*keys, *optional))
            self.problems.append(f"{path} has {extra} keys that were not asked for; only {asked}")
        return value if not missing else {}

    def items(self, root: Mapping[str, Any], name: str) -> list[tuple[str, Any]]:
        """The items of a list with the path of each."""
        if name not in root:
            return []
        if not isinstance(root[name], list):
            self.problems.append(f"{name} must be a list, it is {_kind(root[name])}")
            return []
        return [(f"{name}[{number}]", item) for number, item in enumerate(root[name])]

    def text(self, fields: Mapping[str, Any], name: str, path: str, characters_max: int | None = None) -> str:
        """A text that is not blank, stripped."""
        value, place = fields.get(name), f"{path}.{name}".lstrip(".")
        if name not in fields:
            return ""
        if not isinstance(value, str):
            self.problems.append(f"{place} must be a text, it is {_kind(value)}")
            return ""
        text = value.strip()
        if not text:
            self.problems.append(f"{place} is blank")
        if characters_max is not None and len(text) > characters_max:
            self.problems.append(f"{place} has {len(text)} characters; at most {characters_max} are allowed")
        self._storable(text, place)
        return text

    def word(self, fields: Mapping[str, Any], name: str, path: str, allowed: tuple[str, ...]) -> Any:
        """One of a few words; case and spaces around it mean nothing."""
        value = fields[name]
        word = value.strip().lower() if isinstance(value, str) else None
        if word not in allowed:
            self.problems.append(f"{path}.{name} must be one of {', '.join(allowed)}")
        return word

    def value(self, fields: Mapping[str, Any], path: str) -> Any:
        """A JSON value that says something."""
        value = fields["value"]
        if value is None or value in ([], {}) or (isinstance(value, str) and not value.strip()):
            self.problems.append(f"{path}.value is null or empty")
        for text in _texts(value):
            self._storable(text, f"{path}.value")
        return value.strip() if isinstance(value, str) else value

    def confidence(self, fields: Mapping[str, Any], path: str) -> float:
        """A number from 0 to 1; a rounding error over the edge is clamped."""
        value = fields["confidence"]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.problems.append(f"{path}.confidence must be a number from 0 to 1, it is {_kind(value)}")
            return 0.0
        if not -CONFIDENCE_TOLERANCE <= value <= 1 + CONFIDENCE_TOLERANCE:
            self.problems.append(f"{path}.confidence must be from 0 to 1")
        return float(min(max(value, 0), 1))

    def sources(self, fields: Mapping[str, Any], path: str) -> tuple[int, ...]:
        """Numbers of turns of this slice; at least one."""
        value, place = fields["source_turns"], f"{path}.source_turns"
        if not isinstance(value, list) or not value:
            self.problems.append(f"{place} must be a list of at least one turn number")
            return ()
        numbers = [number for number in value if _is_whole(number)]
        if len(numbers) < len(value):
            self.problems.append(f"{place} must hold whole numbers only")
        if not self._turns.issuperset(numbers):
            self.problems.append(f"{place} names turns that are not in the conversation")
        return tuple(sorted({int(number) for number in numbers}))

    def _storable(self, text: str, place: str) -> None:
        if re.search("[\x00\ud800-\udfff]", text):
            self.problems.append(f"{place} holds a NUL or half a character, which cannot be stored")


def _is_whole(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, (int, float)) and value == int(value)


def _texts(value: Any) -> Iterable[str]:
    """Every text in a JSON value, keys of objects included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        yield from value
        for item in value.values():
            yield from _texts(item)


_KINDS: tuple[tuple[type, str], ...] = (
    (bool, "true or false"),
    (str, "text"),
    (int, "a number"),
    (float, "a number"),
    (list, "a list"),
    (dict, "an object"),
)


def _kind(value: Any) -> str:
    return next((name for kind, name in _KINDS if isinstance(value, kind)), "null")
