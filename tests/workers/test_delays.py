"""The delay of a failed job."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippocampus.errors import ProviderError, RateLimitedError, TransientProviderError
from workers.models.call_gate import DAILY_QUOTA_SECONDS, RETRY_AFTER_SECONDS_MAX
from workers.queue.delays import delay_seconds

BASE, CAP = 2.0, 600.0
attempts = st.integers(0, 10**6)
seeds = st.integers(0, 2**32)


def delay(attempt: int, error: BaseException, seed: int = 0) -> float:
    return delay_seconds(attempt, error, base_seconds=BASE, cap_seconds=CAP, rng=random.Random(seed))


@given(attempts, seeds)
def test_it_stays_within_its_window(attempt: int, seed: int) -> None:
    """Never negative, never over the cap, never over the attempt's window."""
    waited = delay(attempt, TransientProviderError("x"), seed)
    assert 0 <= waited <= min(CAP, BASE * 2 ** min(attempt, 60))


@given(st.integers(0, 1000), seeds, st.floats(0.001, 10), st.floats(1, 1e6))
def test_any_base_and_cap(attempt: int, seed: int, base: float, factor: float) -> None:
    """The window is exact at its bounds for every base and cap."""
    waited = delay_seconds(attempt, OSError(), base_seconds=base, cap_seconds=base * factor, rng=random.Random(seed))
    assert 0 <= waited <= base * factor


def test_the_jitter_is_full() -> None:
    """Delays fill the whole window, so that jobs that failed together retry at different times."""
    waits = [delay(3, TransientProviderError("x"), seed) for seed in range(400)]
    assert min(waits) < 0.05 * BASE * 8
    assert max(waits) > 0.95 * BASE * 8
    assert sum(waits) / len(waits) == pytest.approx(BASE * 4, rel=0.15)


def test_it_grows() -> None:
    """The mean delay doubles with each attempt until the cap."""
    means = [
        sum(delay(attempt, TransientProviderError("x"), seed) for seed in range(300)) / 300 for attempt in range(12)
    ]
    assert means[:8] == sorted(means[:8])
    assert means[-1] == pytest.approx(CAP / 2, rel=0.1)


@given(attempts, seeds, st.floats(0, RETRY_AFTER_SECONDS_MAX))
def test_it_is_never_earlier_than_requested(attempt: int, seed: int, requested: float) -> None:
    """The provider's delay is a minimum, even beyond the cap; the jitter is added."""
    error = RateLimitedError("x", retry_after_seconds=requested)
    assert requested <= delay(attempt, error, seed) <= requested + CAP


def test_jobs_refused_together_retry_at_different_times() -> None:
    """One requested delay for many jobs is not one moment for all of them."""
    error = RateLimitedError("x", retry_after_seconds=30.0)
    assert len({delay(0, error, seed) for seed in range(50)}) == 50


@given(attempts, seeds, st.none() | st.floats(0, 1e5))
def test_a_daily_quota_is_waited_for_by_hours(attempt: int, seed: int, requested: float | None) -> None:
    """However short the requested delay: no call succeeds before the day is over."""
    error = RateLimitedError("x", retry_after_seconds=requested, daily=True)
    waited = delay(attempt, error, seed)
    assert waited >= DAILY_QUOTA_SECONDS
    assert waited <= RETRY_AFTER_SECONDS_MAX + DAILY_QUOTA_SECONDS


@pytest.mark.parametrize("requested", [math.inf, 1e12])
def test_an_absurd_delay_is_bounded(requested: float) -> None:
    """No reply of a provider can postpone a job for ever."""
    error = TransientProviderError("x", retry_after_seconds=requested)
    assert delay(0, error) <= RETRY_AFTER_SECONDS_MAX + BASE


@pytest.mark.parametrize("requested", [math.nan, -5.0, None])
def test_an_invalid_delay_is_ignored(requested: float | None) -> None:
    """The plain backoff applies."""
    assert 0 <= delay(0, TransientProviderError("x", retry_after_seconds=requested)) <= BASE


def test_any_error_has_a_delay() -> None:
    """The caller decides what is retried; any error has a delay."""
    assert delay(2, ProviderError("x"), 1) == delay(2, ConnectionError(), 1)


@pytest.mark.parametrize(
    ("attempt", "base", "cap"), [(-1, 1, 2), (0, 0, 2), (0, 3, 2), (0, 1, math.inf), (0, math.nan, 2)]
)
def test_invalid_numbers_are_refused(attempt: int, base: float, cap: float) -> None:
    """A wrong setting is named instead of yielding a strange delay."""
    with pytest.raises(ValueError, match="attempt must be"):
        delay_seconds(attempt, OSError(), base_seconds=base, cap_seconds=cap, rng=random.Random(0))
