"""Facts by patterns: what people plainly say of themselves, in English and Chinese.

The key is `topic` if a person has one value ('home'), and `topic:object` if they have several ('preference:hiking'); in
a conversation of named people it begins with the name ('caroline:home'). A later statement about the same thing has the
same key. The value is {"subject": who, "text": the fact in the third person}; that of a plan also has the time of the
statement.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from hippocampus.providers.local import clauses, objects, patterns_en_life, patterns_zh, sentences
from hippocampus.providers.local.patterns import Pattern
from hippocampus.providers.local.sentences import Sentence
from hippocampus.records import ConversationSlice, ExtractedFact, Turn

KEY_CHARS_MAX = 255
#: Facts of one slice; a slice with more of them is a list, not a conversation.
FACTS_MAX = 100

_DATED_TOPICS = frozenset(("plan", "goal", "event", "activity"))
#: Topics that may occur together in one clause: 'I work for a bank as a clerk'.
_COMPANIONS = frozenset(("employer", "occupation", "children", "pet"))
_TOPICS_BY_ABOUT = frozenset(("family", "pet", "favorite"))
#: What changes when the same plan is stated again, and so is not part of its key.
_TIME = re.compile(rf"\b(?:{patterns_en_life.TIME})\b|{patterns_zh.TIME}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Found:
    pattern: Pattern
    about: str
    object: str
    chinese: bool


def of_slice(slice_: ConversationSlice) -> list[ExtractedFact]:
    """Return the facts of a slice in the order in which they were first stated, each once."""
    facts: dict[tuple[str, str], ExtractedFact] = {}
    for turn in slice_.turns:
        if sentences.is_assistant(turn):
            continue
        for sentence in sentences.of_turn(turn):
            for found in _of_sentence(sentence):
                _keep(facts, _fact(found, turn))
    return list(facts.values())[:FACTS_MAX]


def states_fact(sentence: Sentence) -> bool:
    """Return whether a pattern finds something in this sentence."""
    return next(_of_sentence(sentence), None) is not None


def _of_sentence(sentence: Sentence) -> Iterator[_Found]:
    table = patterns_zh.PATTERNS if sentence.is_cjk else patterns_en_life.PATTERNS
    for clause in clauses.of_sentence(sentence):
        topics: set[str] = set()
        for pattern in table:
            if topics and not (pattern.topic in _COMPANIONS and topics <= _COMPANIONS and pattern.topic not in topics):
                continue
            match = pattern.regex.match(clause)
            for found in _objects(pattern, match, chinese=sentence.is_cjk) if match else ():
                topics.add(pattern.topic)
                yield found
        if not sentence.is_cjk:
            yield from _mentions(clause)


def _mentions(clause: str) -> Iterator[_Found]:
    """Yield the facts that a clause takes for granted: 'my wife drove' implies a wife."""
    for pattern in patterns_en_life.MENTIONS:
        if match := pattern.regex.match(clause):
            yield from _objects(pattern, match, chinese=False)


def _objects(pattern: Pattern, match: re.Match[str], *, chinese: bool) -> Iterator[_Found]:
    raw = match["object"]
    about = (match.groupdict().get("about") or "").strip()
    about = about[:1].lower() + about[1:]
    pieces = objects.parts(raw, chinese=chinese) if pattern.shape == "list" else [raw]
    for piece in pieces:
        cleaned = objects.clean(piece, pattern.shape, chinese=chinese)
        if cleaned is not None:
            yield _Found(pattern=pattern, about=about, object=cleaned, chinese=chinese)


def _fact(found: _Found, turn: Turn) -> ExtractedFact:
    statement = _statement(found)
    said_on = turn.occurred_at.date().isoformat()
    value: dict[str, Any] = {"subject": turn.author, "text": statement}
    if found.pattern.topic in _DATED_TOPICS:
        value["said_on"] = said_on
    return ExtractedFact(
        fact_type=found.pattern.fact_type,
        key=_key(found, turn.author, said_on),
        value=value,
        confidence=found.pattern.confidence,
        source_seqs=(turn.sequence_num,),
    )


def _statement(found: _Found) -> str:
    words = {
        "{about}": found.about,
        "{object}": found.object,
        "{a_object}": found.object if found.chinese else objects.with_article(found.object),
        "{does}": found.object if found.chinese else objects.third_person(found.object),
    }
    return re.sub(r"\{\w+\}", lambda match: words[match[0]], found.pattern.text)


def _key(found: _Found, author: str, said_on: str) -> str:
    topic, _, detail = found.pattern.topic.partition(":")
    parts = [] if author == "user" else [objects.slug(author)]
    parts.append(topic)
    if topic == "event":
        parts.append(said_on)
    if found.about and topic in _TOPICS_BY_ABOUT:
        parts.append(patterns_zh.KIN_ENGLISH.get(found.about, objects.slug(found.about)))
    elif topic == "rule":
        parts.append(objects.rule_slug(found.object))
    elif not found.pattern.single:
        parts.append(objects.slug(_TIME.sub(" ", found.object) if topic == "plan" else found.object))
    if detail:
        parts.append(detail)
    return _bounded(":".join(parts))


def _bounded(key: str) -> str:
    if len(key) <= KEY_CHARS_MAX:
        return key
    digest = hashlib.blake2b(key.encode(), digest_size=8).hexdigest()
    return f"{key[: KEY_CHARS_MAX - 17]}:{digest}"


def _keep(facts: dict[tuple[str, str], ExtractedFact], fact: ExtractedFact) -> None:
    """Keep a fact: a repeated one gains sources and a little confidence; a changed one replaces the earlier one."""
    identity = (fact.fact_type, fact.key)
    before = facts.get(identity)
    if before is None or before.value != fact.value:
        facts[identity] = fact
        return
    facts[identity] = replace(
        before,
        source_seqs=tuple(sorted({*before.source_seqs, *fact.source_seqs})),
        confidence=round(min(0.99, max(before.confidence, fact.confidence) + 0.02), 2),
    )
