"""How long a failed job waits before its next attempt. Pure: the caller gives chance and keeps the clock."""

from __future__ import annotations

import math
import random

from hippocampus.errors import RateLimitedError, TransientProviderError

#: A day's quota comes back at a time that the provider does not tell: look again every hour or two.
DAILY_QUOTA_SECONDS = 3600.0

#: No wish of a provider is honoured beyond a day: its reply may be wrong, and the job should be seen to move.
RETRY_AFTER_SECONDS_MAX = 86_400.0


def delay_seconds(
    attempt: int, error: BaseException, *, base_seconds: float, cap_seconds: float, rng: random.Random
) -> float:
    """Capped exponential backoff with full jitter, never earlier than the provider asked for.

    Without a wish of the provider: uniform between 0 and ``min(cap, base * 2**attempt)``. With a wish
    (``retry_after_seconds``) the same jitter is added on top of it, so that many jobs that were refused
    together do not come back together. When the day's quota is gone: one to two hours, or the wish if longer.

    Args:
        attempt: attempts that failed before this one; 0 for the first failure.
        error: why this one failed.
        base_seconds: the widest jitter of the first delay; above 0.
        cap_seconds: the widest jitter of any delay; at least `base_seconds`.
        rng: where chance comes from.

    Raises:
        ValueError: a negative attempt, a base that is not above 0, a cap below the base.
    """
    if attempt < 0 or not 0 < base_seconds <= cap_seconds < math.inf:
        raise ValueError(
            f"attempt must be >= 0 and 0 < base_seconds <= cap_seconds, finite; "
            f"got {attempt}, {base_seconds}, {cap_seconds}"
        )
    jitter = rng.uniform(0.0, _window_seconds(attempt, base_seconds, cap_seconds))
    if isinstance(error, RateLimitedError) and error.daily:
        jitter = rng.uniform(0.0, DAILY_QUOTA_SECONDS)
        return max(DAILY_QUOTA_SECONDS, _wish_seconds(error)) + jitter
    return _wish_seconds(error) + jitter


def _window_seconds(attempt: int, base_seconds: float, cap_seconds: float) -> float:
    # ldexp overflows for absurd attempt counts; past this exponent every sane base is over its cap.
    doublings = min(attempt, math.ceil(math.log2(cap_seconds / base_seconds)))
    return min(cap_seconds, math.ldexp(base_seconds, doublings))


def _wish_seconds(error: BaseException) -> float:
    wish = error.retry_after_seconds if isinstance(error, TransientProviderError) else None
    if wish is None or math.isnan(wish):
        return 0.0
    return min(max(wish, 0.0), RETRY_AFTER_SECONDS_MAX)
