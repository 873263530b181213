"""Facts by patterns: what people plainly say of themselves, in English and Chinese.

Keys: `topic` where a person has one value ('home'), `topic:object` where they have several ('preference:hiking');
in a conversation of named people the name stands before ('caroline:home'). A later statement about the same thing
has the same key. Values: {"subject": who, "text": the fact in the third person}; a plan says also when it was said.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from hippocampus.providers import (
    local_clauses,
    local_objects,
    local_patterns_en,
    local_patterns_zh,
    local_sentences,
)
from hippocampus.providers.local_patterns import Pattern
from hippocampus.providers.local_sentences import Sentence
from hippocampus.records import ConversationSlice, ExtractedFact, Turn

KEY_CHARS_MAX = 255
#: Facts of one slice; a slice that says more is a list, not a conversation.
FACTS_MAX = 100

_DATED_TOPICS = frozenset(("plan", "goal"))
#: Words that turn a rule round but leave what it is about.
_POLARITY = re.compile(
    r"\b(?:never|always|don't|do not|no|not|please|ever)\b|请|不要|别|永远|务必|千万|一定要?|不能|再",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _Found:
    pattern: Pattern
    about: str
    object: str
    chinese: bool


def of_slice(conversation_slice: ConversationSlice) -> list[ExtractedFact]:
    """The facts of a slice in the order in which they were first said; a restated one stands once."""
    facts: dict[tuple[str, str], ExtractedFact] = {}
    for turn in conversation_slice.turns:
        if local_sentences.is_assistant(turn):
            continue
        for sentence in local_sentences.of_turn(turn):
            for found in _of_sentence(sentence):
                _keep(facts, _fact(found, turn))
    return list(facts.values())[:FACTS_MAX]


def _of_sentence(sentence: Sentence) -> Iterator[_Found]:
    table = local_patterns_zh.PATTERNS if sentence.is_cjk else local_patterns_en.PATTERNS
    for clause in local_clauses.of_sentence(sentence):
        for pattern in table:
            match = pattern.regex.match(clause)
            found = list(_objects(pattern, match, sentence.is_cjk)) if match else []
            if found:
                yield from found
                break


def _objects(pattern: Pattern, match: re.Match[str], chinese: bool) -> Iterator[_Found]:
    raw = match["object"]
    about = (match.groupdict().get("about") or "").strip().casefold()
    pieces = local_objects.parts(raw, chinese=chinese) if pattern.shape == "thing" else [raw]
    for piece in pieces:
        cleaned = local_objects.clean(piece, pattern.shape, chinese=chinese)
        if cleaned is not None:
            yield _Found(pattern=pattern, about=about, object=cleaned, chinese=chinese)


def _fact(found: _Found, turn: Turn) -> ExtractedFact:
    statement = found.pattern.text.replace("{about}", found.about).replace("{object}", found.object)
    value: dict[str, Any] = {"subject": turn.author, "text": statement}
    if found.pattern.topic in _DATED_TOPICS:
        value["said_on"] = turn.occurred_at.date().isoformat()
    return ExtractedFact(
        fact_type=found.pattern.fact_type,
        key=_key(found, turn.author),
        value=value,
        confidence=found.pattern.confidence,
        source_seqs=(turn.sequence_num,),
    )


def _key(found: _Found, author: str) -> str:
    parts = [] if author == "user" else [local_objects.slug(author)]
    parts.append(found.pattern.topic)
    if found.about and found.pattern.topic in ("family", "pet", "favorite"):
        parts.append(local_objects.slug(found.about))
    if not found.pattern.single and found.pattern.topic not in ("favorite",):
        thing = _POLARITY.sub(" ", found.object) if found.pattern.topic == "rule" else found.object
        parts.append(local_objects.slug(thing))
    return _bounded(":".join(parts))


def _bounded(key: str) -> str:
    if len(key) <= KEY_CHARS_MAX:
        return key
    digest = hashlib.blake2b(key.encode(), digest_size=8).hexdigest()
    return f"{key[: KEY_CHARS_MAX - 17]}:{digest}"


def _keep(facts: dict[tuple[str, str], ExtractedFact], fact: ExtractedFact) -> None:
    """A repeated fact gains sources and a little confidence; a changed one replaces what was said before."""
    place = (fact.fact_type, fact.key)
    before = facts.get(place)
    if before is None or before.value != fact.value:
        facts[place] = fact
        return
    facts[place] = replace(
        before,
        source_seqs=tuple(sorted({*before.source_seqs, *fact.source_seqs})),
        confidence=round(min(0.99, max(before.confidence, fact.confidence) + 0.02), 2),
    )
