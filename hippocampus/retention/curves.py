"""The two decay curves, pure: what the database computes when a score is read, for plots, tests and advice.

``strength`` (the default) starts at a memory's initial score and decays more slowly the more often it was used::

    initial_score * exp(-decay_rate * days / (1 + ln(1 + access_count)))

``classic`` ignores importance: a fresh memory that was never used has 0.2::

    min(1, exp(-decay_rate * days) * (1 + ln(1 + access_count)) / 5)

`days` are those since the last access, with their fraction. Both agree with the SQL function `retention_score` to 1e-9.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

Curve: TypeAlias = Literal["strength", "classic"]

#: Bounds of a score: `high` from HIGH on, `medium` from MEDIUM on, `low` below.
HIGH = 0.7
MEDIUM = 0.3


def strength(initial_score: float, access_count: int, days: float, decay_rate: float = 0.1) -> float:
    """Return the score, 0 to 1, of a memory under the curve ``strength``.

    Args:
        initial_score: its score when fresh, 0 to 1.
        access_count: how often it was used; negative counts as 0.
        days: since its last access; negative, from a clock that is ahead, counts as 0.
        decay_rate: per day; negative counts as 0.
    """
    return min(1.0, max(initial_score, 0.0) * _fading(days, decay_rate, flatness=_gain(access_count)))


def classic(access_count: int, days: float, decay_rate: float = 0.1) -> float:
    """Return the score, 0 to 1, of a memory under the curve ``classic``. Arguments as in `strength`."""
    return min(1.0, _gain(access_count) / 5.0 * _fading(days, decay_rate, flatness=1.0))


def score(curve: Curve, initial_score: float, access_count: int, days: float, decay_rate: float) -> float:
    """Return the score under either curve."""
    if curve == "classic":
        return classic(access_count, days, decay_rate)
    return strength(initial_score, access_count, days, decay_rate)


def days_above(curve: Curve, threshold: float, initial_score: float, access_count: int, decay_rate: float) -> float:
    """Return for how many days after its last access a memory keeps a score of at least `threshold`.

    0.0 if it is below from the start, infinity if it never falls below. A policy's minimum age is not considered.
    """
    fresh = score(curve, initial_score, access_count, 0.0, decay_rate)
    if fresh < threshold:
        return 0.0
    if threshold <= 0.0 or decay_rate <= 0.0:
        return math.inf
    if curve == "classic":
        return math.log(_gain(access_count) / 5.0 / threshold) / decay_rate
    return math.log(initial_score / threshold) / decay_rate * _gain(access_count)


def _gain(access_count: int) -> float:
    return 1.0 + math.log(1.0 + max(access_count, 0))


def _fading(days: float, decay_rate: float, *, flatness: float) -> float:
    return math.exp(-max(decay_rate, 0.0) * max(days, 0.0) / flatness)
