"""Which statements a text repeats, so that a window pays once for a fact, a summary and a turn that say the same.

A sentence is repeated where another one holds at least `COVERED_MIN` of its terms, and as many denials and the same
numbers. A text is repeated where every one of its sentences is. Terms are stems without common words, and pairs of
CJK characters. The threshold was measured on pairs of statements that mean the same or do not; see docs/context.md.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import lru_cache

from hippocampus.text import words

COVERED_MIN = 0.8

#: Fewer terms than this say too little to be compared.
TERMS_MIN = 2

#: Of a long text, this much is compared.
_CHARACTERS_MAX = 20_000

#: The label that the window puts before a turn or a fact.
_LABEL = re.compile(r"\[[^\]\n]{0,300}\]:? ")
_SENTENCE = re.compile(r"[^.!?。！？\n]+(?:[.!?。！？](?=[^\s])[^.!?。！？\n]*)*")
_DENIALS = frozenset(words.listed("no not never none nobody nothing neither nor cannot without stopped quit"))
#: Whom a fact or a summary means that names no person.
_SUBJECT = frozenset(("user", "user's"))
_CJK_DENIAL = re.compile("[不没沒别無无非]|ない|ません|않|없|안 ")


@dataclass(frozen=True, slots=True)
class Statement:
    """What is compared of a sentence."""

    terms: frozenset[str]
    numbers: frozenset[str]
    denials: int


@lru_cache(maxsize=256)  # a candidate is compared up to three times
def statements(text: str) -> tuple[Statement, ...]:
    """Return the sentences of a text that say something."""
    body = _LABEL.sub("", text[:_CHARACTERS_MAX], count=1) if text.startswith("[") else text[:_CHARACTERS_MAX]
    found = [_statement(sentence) for sentence in _SENTENCE.findall(body.replace("_", " "))]
    return tuple(statement for statement in found if statement.terms or statement.numbers)


class Said:
    """What a window says so far."""

    def __init__(self) -> None:
        self._statements: list[Statement] = []
        self._holding: dict[str, list[int]] = defaultdict(list)  # the statements that hold a term

    def add(self, text: str) -> None:
        """Add what a text says."""
        for statement in statements(text):
            for term in statement.terms:
                self._holding[term].append(len(self._statements))
            self._statements.append(statement)

    def repeats(self, text: str) -> bool:
        """Return whether the window says all of a text already."""
        said = statements(text)
        return bool(said) and all(map(self._holds, said))

    def _holds(self, statement: Statement) -> bool:
        size = len(statement.terms)
        if size < TERMS_MIN:
            return False
        shared = Counter(index for term in statement.terms for index in self._holding.get(term, ()))
        return any(
            count >= COVERED_MIN * size
            and self._statements[index].denials == statement.denials
            and self._statements[index].numbers >= statement.numbers
            for index, count in shared.items()
        )


def _statement(sentence: str) -> Statement:
    terms: set[str] = set()
    numbers: set[str] = set()
    denials = 0
    for token in words.tokens(sentence):
        found = _token_statement(token)
        terms.update(found.terms)
        numbers.update(found.numbers)
        denials += found.denials
    return Statement(frozenset(terms), frozenset(numbers), denials)


@lru_cache(maxsize=65_536)
def _token_statement(token: str) -> Statement:
    """What one token says, or one run of CJK characters."""
    if words.is_cjk(token):
        return Statement(frozenset(words.cjk_terms(token)), frozenset(), len(_CJK_DENIAL.findall(token)))
    if token in _DENIALS or token.endswith(("n't", "n’t")):
        return Statement(frozenset(), frozenset(), 1)
    if token.isdigit():
        return Statement(frozenset(), frozenset((token,)), 0)
    said = token not in words.STOPWORDS and token not in _SUBJECT
    return Statement(frozenset((words.stem(token),) if said else ()), frozenset(), 0)
