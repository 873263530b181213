"""The order in which a window takes the turns that match a query.

Search ranks for the ten results that are read. A window holds fifty to three hundred turns, most of which share one
word with the query or none, and there the query alone says little. So behind the best turns, a turn moves up by what
it shares with them, and if the query names its speaker.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from math import log1p, sqrt
from typing import NamedTuple

from hippocampus.text import words

#: Turns that stay where search ranks them.
LEADING = 10
#: The part of the turns that all are compared with, at least the leading ones: a larger window asks for more of them.
_COMPARED_PART = 0.1
#: What the turn that is most like them gains, and one whose speaker is named, as parts of the best turn's score.
_LIKENESS = 0.5
_NAMED = 0.15
#: A turn with fewer terms beside small talk says little.
_SMALL_TALK_TERMS = 6
#: How much of a turn is read.
_CHARACTERS_MAX = 400
#: Authors that are not names.
_ROLES = frozenset(("user", "model", "assistant", "tool", "agent"))
_NO_WORD = re.compile(r"[\W_]+")


class MatchedTurn(NamedTuple):
    """A turn that matches a query, its speaker, and its score in the search."""

    text: str
    author: str | None
    score: float


def window_order(turns: Sequence[MatchedTurn], query: str) -> list[int]:
    """Return the positions of turns, which are given by score, the best first, in the order to take them in.

    Likeness is the cosine of rare terms, summed over the best turns, each by its score; how rare is counted over the
    given turns.
    """
    places = list(range(len(turns)))
    best = turns[0].score if turns else 0.0
    if len(turns) <= LEADING or best <= 0:
        return places
    found = [turn_terms(turn.text) for turn in turns]
    squares = _squares(found)
    lengths = [sqrt(sum(map(squares.__getitem__, terms))) or 1.0 for terms in found]
    wanted: defaultdict[str, float] = defaultdict(float)
    for place in range(max(LEADING, round(len(turns) * _COMPARED_PART))):
        weight = turns[place].score / (best * lengths[place])
        for term in found[place]:
            wanted[term] += squares[term] * weight
    leading = frozenset(wanted)
    likeness = [
        sum(map(wanted.__getitem__, leading.intersection(terms))) / length
        for terms, length in zip(found, lengths, strict=True)
    ]
    most = max(likeness) or 1.0
    asked = _spaced(query)
    named = {author for author in {turn.author for turn in turns} if author and _is_named(author, asked)}

    def score(place: int) -> float:
        turn = turns[place]
        return turn.score + best * (_LIKENESS * likeness[place] / most + _NAMED * (turn.author in named))

    return places[:LEADING] + sorted(places[LEADING:], key=score, reverse=True)


def says_little(text: str) -> bool:
    """Whether a turn is small talk."""
    return len(text) <= _CHARACTERS_MAX and len(turn_terms(text)) < _SMALL_TALK_TERMS


def turn_terms(text: str) -> tuple[str, ...]:
    """Return the terms that a turn begins with, each once, without those of small talk."""
    return _terms(text[:_CHARACTERS_MAX])


# The turns of a user are candidates of window after window. Full of Chinese turns, it holds less than 50 MB.
@lru_cache(maxsize=1024)
def _terms(beginning: str) -> tuple[str, ...]:
    return tuple(frozenset(words.terms(beginning)) - words.CHATTER)


def _squares(found: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return the square of each term's weight: the fewer turns hold it, the more."""
    held = Counter(chain.from_iterable(found))
    return {term: log1p((len(found) - count + 0.5) / (count + 0.5)) ** 2 for term, count in held.items()}


def _is_named(author: str, asked: str) -> bool:
    """Whether a query, as `_spaced`, holds a name: as words of its own, or anywhere if it is Chinese."""
    name = _spaced(author)
    if words.CJK_CHARACTER.search(name):
        return len(name.strip()) > 1 and name.strip() in asked
    return author not in _ROLES and bool(name.strip()) and name in asked


def _spaced(text: str) -> str:
    return f" {_NO_WORD.sub(' ', text.lower()).strip()} "
