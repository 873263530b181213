"""How long a failed job waits before its next attempt. Pure: the caller provides the random numbers and the clock."""

from __future__ import annotations

import math
import random

from hippocampus.errors import RateLimitedError, TransientProviderError
from workers.models.call_gate import DAILY_QUOTA_SECONDS, RETRY_AFTER_SECONDS_MAX


def delay_seconds(
    attempt: int, error: BaseException, *, base_seconds: float, cap_seconds: float, rng: random.Random
) -> float:
    """Return a capped exponential delay with full jitter, never shorter than the provider requested.

    Without a request of the provider: uniform between 0 and ``min(cap, base * 2**attempt)``. With one
    (``retry_after_seconds``) the same jitter is added to it, so that jobs that were refused together do not return
    together. When the day's quota is used up: one to two hours, or the requested time if that is longer.

    Args:
        attempt: how many attempts failed before this one; 0 for the first failure.
        error: why this one failed.
        base_seconds: the widest jitter of the first delay; above 0.
        cap_seconds: the widest jitter of any delay; at least `base_seconds`.
        rng: the source of random numbers.

    Raises:
        ValueError: the attempt is negative, the base is not above 0, or the cap is below the base.
    """
    if attempt < 0 or not 0 < base_seconds <= cap_seconds < math.inf:
        raise ValueError(
            f"attempt must be >= 0 and 0 < base_seconds <= cap_seconds, finite; "
            f"got {attempt}, {base_seconds}, {cap_seconds}"
        )
    jitter = rng.uniform(0.0, _window_seconds(attempt, base_seconds, cap_seconds))
    if isinstance(error, RateLimitedError) and error.daily:
        jitter = rng.uniform(0.0, DAILY_QUOTA_SECONDS)
        return max(DAILY_QUOTA_SECONDS, _requested_seconds(error)) + jitter
    return _requested_seconds(error) + jitter


def _window_seconds(attempt: int, base_seconds: float, cap_seconds: float) -> float:
    # ldexp overflows for absurd attempts; past this exponent every base is above its cap.
    doublings = min(attempt, math.ceil(math.log2(cap_seconds / base_seconds)))
    return min(cap_seconds, math.ldexp(base_seconds, doublings))


def _requested_seconds(error: BaseException) -> float:
    seconds = error.retry_after_seconds if isinstance(error, TransientProviderError) else None
    if seconds is None or math.isnan(seconds):
        return 0.0
    return min(max(seconds, 0.0), RETRY_AFTER_SECONDS_MAX)
