"""Which statements a text repeats, so that a window holds only one of a fact, a summary and a turn that say the same.

A sentence is repeated if another one contains at least `COVERED_MIN` of its terms, as many denials and the same
numbers. A text is repeated if each of its sentences is. Terms are stems without common words, and pairs of CJK
characters. The threshold was measured on pairs of statements that mean the same or do not; see docs/context.md.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import lru_cache

from hippocampus.text import words

COVERED_MIN = 0.8

#: A statement of fewer terms is not compared.
TERMS_MIN = 2

#: How much of a long text is compared.
_CHARACTERS_MAX = 20_000

#: The label that the window puts before a turn or a fact.
_LABEL = re.compile(r"\[[^\]\n]{0,300}\]:? ")
_SENTENCE = re.compile(r"[^.!?。！？\n]+(?:[.!?。！？](?=[^\s])[^.!?。！？\n]*)*")
_DENIALS = frozenset(words.listed("no not never none nobody nothing neither nor cannot without stopped quit"))
#: Words for the person of a fact or a summary that names none.
_SUBJECT = frozenset(("user", "user's"))
_CJK_DENIAL = re.compile("[不没沒别無无非]|ない|ません|않|없|안 ")


@dataclass(frozen=True, slots=True)
class Statement:
    """The parts of a sentence that are compared."""

    terms: frozenset[str]
    numbers: frozenset[str]
    denials: int


@lru_cache(maxsize=256)  # a candidate is compared up to three times
def statements(text: str) -> tuple[Statement, ...]:
    """Return the sentences of a text that state something."""
    body = _LABEL.sub("", text[:_CHARACTERS_MAX], count=1) if text.startswith("[") else text[:_CHARACTERS_MAX]
    found = [_statement(sentence) for sentence in _SENTENCE.findall(body.replace("_", " "))]
    return tuple(statement for statement in found if statement.terms or statement.numbers)


class WindowStatements:
    """The statements of a window so far."""

    def __init__(self) -> None:
        self._texts: list[str] = []  # not yet read: most windows compare little
        self._statements: list[Statement] = []
        self._holding: dict[str, list[int]] = defaultdict(list)  # the statements that hold a term

    def add(self, text: str) -> None:
        """Add what a text says."""
        self._texts.append(text)

    def _read(self, text: str) -> None:
        for statement in statements(text):
            for term in statement.terms:
                self._holding[term].append(len(self._statements))
            self._statements.append(statement)

    def repeats(self, text: str) -> bool:
        """Return whether the window says all of a text already."""
        for said in self._texts:
            self._read(said)
        self._texts.clear()
        stated = statements(text)
        return bool(stated) and all(map(self._holds, stated))

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
    """Return the statement of one token, or of one run of CJK characters."""
    if words.is_cjk(token):
        return Statement(frozenset(words.cjk_terms(token)), frozenset(), len(_CJK_DENIAL.findall(token)))
    if token in _DENIALS or token.endswith(("n't", "n’t")):
        return Statement(frozenset(), frozenset(), 1)
    if token.isdigit():
        return Statement(frozenset(), frozenset((token,)), 0)
    counts = token not in words.STOPWORDS and token not in _SUBJECT
    return Statement(frozenset((words.stem(token),) if counts else ()), frozenset(), 0)
