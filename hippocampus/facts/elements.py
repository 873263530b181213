"""The elements of a fact: each value of a collection is stored as a fact of its own, with its own history.

hobbies: ["hiking", "chess"]  ->  hobbies:hiking: "hiking", hobbies:chess: "chess"
home_city: "Lyon"             ->  home_city: "Lyon"

A retraction is split likewise, so that it ends one value at a time: a retraction of hobbies: "chess" ends
hobbies:chess, and one of hobbies without a value ends every element.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hippocampus.facts import keys
from hippocampus.records import ExtractedFact, FactType
from pulse.postgres.json_values import clean_text

#: Texts that say whether there is any, as a JSON boolean does. Those of none equal the ones in `resolve_fact`.
_WHETHER = frozenset("yes no none true false 是 否 有 无 没有".split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """A fact as it is stored, or what ends it.

    Attributes:
        collection: the normal form of the collection's key; None: not an element of one.
        ended: it ends. `value` is what ended; None: whatever holds, and of a collection's own key every element.
    """

    fact_type: FactType
    key: str
    value: Any
    confidence: float
    source_seqs: tuple[int, ...]
    collection: str | None = None
    ended: bool = False


def of_fact(fact: ExtractedFact, styles: keys.Styles | None = None) -> list[Element]:
    """Split a fact by its key's style; a key that already names its element, such as 'allergy:nuts', is kept.

    So is one whose value says only whether: 'nut_allergy': true, 'food_allergies': "none".
    """
    if base_of(fact.key):
        return [_element(fact, fact.key, fact.value, collection_of(fact.fact_type, fact.key, styles))]
    values = fact.value if isinstance(fact.value, list) else [fact.value]
    if _says_whether(fact.value) or keys.style_of(fact.fact_type, fact.key, styles) == "profile":
        ended = values if fact.ended else [fact.value]
        return [_element(fact, fact.key, value, None) for value in ended]
    collection = keys.normal_key(fact.key)
    if fact.ended and fact.value is None:
        return [_element(fact, fact.key, None, collection)]
    elements = {keys.element_key(fact.key, _text(value)): value for value in values}
    return [_element(fact, key, value, collection) for key, value in elements.items()]


def in_order(found: Sequence[Element]) -> list[Element]:
    """Return the elements of one reply by their last turns, what ended before what took its place in the same turn.

    A statement that a later turn of the reply ends is no more certain than its end, and does not cite that turn. An end
    of a whole collection also ends each element that the reply states before it.
    """
    ends = [each for each in found if each.ended]
    ends += [
        replace(end, key=each.key, value=each.value)
        for end in ends
        if end.value is None and end.collection
        for each in found
        if not each.ended and each.collection == end.collection and each.source_seqs[-1] < end.source_seqs[-1]
    ]
    stated = [_until(each, ends) for each in found if not each.ended]
    return sorted([*ends, *stated], key=lambda each: (each.source_seqs[-1], not each.ended))


def _until(stated: Element, ends: Iterable[Element]) -> Element:
    """Return a statement as it was before the turn that ends it."""
    for end in ends:
        if (end.fact_type, end.key) != (stated.fact_type, stated.key):
            continue
        seq = end.source_seqs[-1]
        before = tuple(each for each in stated.source_seqs if each < seq)
        if stated.source_seqs[-1] == seq and before and end.value == stated.value:
            stated = replace(stated, source_seqs=before)
        if stated.source_seqs[-1] < seq:
            stated = replace(stated, confidence=min(stated.confidence, end.confidence))
    return stated


def base_of(key: str) -> str:
    """Return 'allergy' of 'allergy:nuts'; empty if a key names no element."""
    base, _, element = key.rpartition(":")
    return base if element else ""


def collection_of(fact_type: FactType, key: str, styles: keys.Styles | None) -> str | None:
    """Return the normal form of the collection that a key names an element of; None if it names none."""
    base = base_of(key)
    is_element = base and keys.style_of(fact_type, base, styles) == "collection"
    return keys.normal_key(base) if is_element else None


def _says_whether(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, str) and value.strip(" .!。！").lower() in _WHETHER)


def _element(fact: ExtractedFact, key: str, value: Any, collection: str | None) -> Element:
    return Element(
        fact_type=fact.fact_type,
        key=key,
        value=value,
        confidence=fact.confidence,
        source_seqs=fact.source_seqs,
        collection=collection,
        ended=fact.ended,
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def fact_text(key: str, value: Any) -> str:
    """Return a fact as it is embedded and searched; without a value, its key."""
    return clean_text(key if value is None else f"{key}: {value_text(value, is_rule='rule' in key.split(':'))}")


def is_statement(value: Any) -> bool:
    """Return whether a fact's value is a statement about a person: ``{"text": "likes chess", "subject": "Ann"}``."""
    return isinstance(value, dict) and isinstance(value.get("text"), str)


def value_text(value: Any, *, is_rule: bool = False) -> str:
    """Return a fact's value as it is searched: plain text for a text or a statement about a person, else JSON.

    Args:
        is_rule: the text is what the person asked for, not a fact about them.
    """
    if isinstance(value, str):
        return value
    if is_statement(value):
        subject = value.get("subject", "user")
        return value["text"] if subject == "user" else f"{subject}{':' if is_rule else ''} {value['text']}"
    return json.dumps(value, ensure_ascii=False)
