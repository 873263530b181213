"""The decay curves themselves, without a database."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippocampus.retention import curves
from hippocampus.retention.policies import PRESETS

CURVES = st.sampled_from(["strength", "classic"])
SCORES = st.floats(0, 1)
COUNTS = st.integers(-5, 2**31 - 1)
DAYS = st.floats(-1000, 40_000)
RATES = st.floats(0, 100)


@pytest.mark.parametrize(
    ("access_count", "days", "expected"),
    [
        (0, 0, 0.2),
        (1, 0, 0.3386294361),
        (5, 0, 0.5583518938),
        (10, 0, 0.6795790546),
        (54, 0, 1.0),
        (5, 3, 0.4136372565),
    ],
)
def test_classic_has_its_published_values(access_count: int, days: float, expected: float) -> None:
    assert curves.classic(access_count, days) == pytest.approx(expected, abs=1e-9)


@given(CURVES, SCORES, COUNTS, DAYS, RATES, st.floats(0, 1000))
def test_time_never_strengthens(
    curve: curves.Curve, initial: float, count: int, days: float, rate: float, more: float
) -> None:
    before = curves.score(curve, initial, count, days, rate)
    assert 0.0 <= curves.score(curve, initial, count, days + more, rate) <= before <= 1.0


@given(CURVES, SCORES, st.integers(0, 2**31 - 2), DAYS, RATES)
def test_an_access_never_weakens_and_restarts_the_curve(
    curve: curves.Curve, initial: float, count: int, days: float, rate: float
) -> None:
    before = curves.score(curve, initial, count, days, rate)
    later = max(days, 0.0)
    assert curves.score(curve, initial, count + 1, later, rate) >= before - 1e-12
    assert curves.score(curve, initial, count + 1, 0.0, rate) >= before


@given(st.integers(0, 1000), st.floats(0.1, 100), st.floats(0.01, 0.39))
def test_more_important_memories_last_longer(count: int, rate: float, threshold: float) -> None:
    """Accessed equally often and equally long ago, the more important memory lasts longer."""
    lives = [curves.days_above("strength", threshold, initial, count, rate) for initial in (0.4, 0.7, 1.0)]
    assert lives[0] < lives[1] < lives[2]


def test_each_access_flattens_the_curve() -> None:
    """A memory accessed ten times takes over three times as long to fade as one never accessed."""
    lives = [curves.days_above("strength", 0.1, 0.5, count, 0.1) for count in (0, 1, 3, 10)]
    assert lives == pytest.approx([16.09, 27.25, 38.41, 54.69], abs=0.01)


# Days until a memory without accesses falls below its policy's threshold. The minimum age comes on top.
LIFETIMES = {
    "default": {"decay_rate": 0.1, "cleanup_threshold": 0.1},
    **PRESETS,
}


@pytest.mark.parametrize(
    ("preset", "high", "summary", "medium", "raw_slice", "low", "classic"),
    [
        ("default", 23.03, 20.79, 19.46, 16.09, 13.86, 6.93),
        ("high_interaction", 12.65, 11.16, 10.27, 8.03, 6.54, 1.92),
        ("low_interaction", 59.91, 55.45, 52.78, 46.05, 41.59, 27.73),
        ("sensitive", 5.36, 4.62, 4.18, 3.05, 2.31, 0.0),
        ("knowledge", 195.60, 184.44, 177.77, 160.94, 149.79, 115.13),
    ],
)
def test_preset_lifetimes(
    preset: str, high: float, summary: float, medium: float, raw_slice: float, low: float, classic: float
) -> None:
    rate, threshold = LIFETIMES[preset]["decay_rate"], LIFETIMES[preset]["cleanup_threshold"]
    lives = [curves.days_above("strength", threshold, initial, 0, rate) for initial in (1.0, 0.8, 0.7, 0.5, 0.4)]
    assert lives == pytest.approx([high, summary, medium, raw_slice, low], abs=0.01)
    assert curves.days_above("classic", threshold, 1.0, 0, rate) == pytest.approx(classic, abs=0.01)


@given(CURVES, st.floats(0.01, 1), st.integers(0, 100), st.floats(0.001, 10), st.floats(0.001, 1))
def test_a_lifetime_ends_where_the_score_meets_the_threshold(
    curve: curves.Curve, initial: float, count: int, rate: float, threshold: float
) -> None:
    days = curves.days_above(curve, threshold, initial, count, rate)
    if days == 0.0:
        assert curves.score(curve, initial, count, 0.0, rate) <= threshold + 1e-12
    elif curves.score(curve, initial, count, 0.0, rate) < 1.0:
        assert curves.score(curve, initial, count, days, rate) == pytest.approx(threshold, rel=1e-6)
    else:
        assert curves.score(curve, initial, count, days * 1.001, rate) < threshold


def test_without_decay_or_threshold_no_memory_ever_becomes_too_weak() -> None:
    assert curves.days_above("strength", 0.1, 0.5, 0, 0.0) == math.inf
    assert curves.days_above("classic", 0.0, 0.5, 0, 0.1) == math.inf
    assert curves.days_above("strength", 0.6, 0.5, 0, 0.1) == 0.0


@pytest.mark.parametrize("days", [1e9, 1e300])
def test_the_far_future_is_zero_and_not_an_error(days: float) -> None:
    assert curves.strength(1.0, 0, days, 100) == pytest.approx(0.0, abs=1e-12)
