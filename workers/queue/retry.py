"""When a job is tried again. For minutes and hours; the seconds are the provider's own affair."""

from __future__ import annotations

import asyncio
import datetime
import random

from procrastinate import BaseRetryStrategy, RetryDecision, utils
from procrastinate.exceptions import JobAborted
from procrastinate.jobs import Job

from hippocampus.errors import CallPostponedError, WatermarkMovedError
from workers import failures
from workers.queue import backoff

#: Somebody else just consolidated this thread: what is left can be read at once.
WATERMARK_DELAY_SECONDS = 0.5


class JobRetry(BaseRetryStrategy):
    """Capped exponential delays with full jitter for faults of transport; none for faults of meaning.

    Args:
        tries_max: how often a job is tried before it is failed, since it was enqueued or run again by hand.
        base_seconds: the widest jitter of the first delay.
        cap_seconds: the widest jitter of any delay. A provider's own wish comes on top.
        rng: where chance comes from.
    """

    def __init__(
        self, *, tries_max: int, base_seconds: float, cap_seconds: float, rng: random.Random | None = None
    ) -> None:
        self._tries_max = tries_max
        self._base_seconds = base_seconds
        self._cap_seconds = max(base_seconds, cap_seconds)
        self._rng = rng or random.SystemRandom()

    def get_retry_decision(self, *, exception: BaseException, job: Job) -> RetryDecision | None:
        """Return when to try again; None where the job has failed for good."""
        if isinstance(exception, asyncio.CancelledError | JobAborted):
            # Only a stopping worker asks this: the job goes back untried.
            return RetryDecision()
        if failures.is_postponed(exception):
            return _after(self._postponed_seconds(exception, job))
        if not failures.is_transient(exception) or self.is_last_try(job):
            return None
        return _after(self._delay_seconds(exception, _tried(job)))

    def is_last_try(self, job: Job) -> bool:
        """Return whether the job, as it runs, is failed for good by a fault of transport."""
        return _tried(job) + 1 >= self._tries_max

    def _postponed_seconds(self, error: BaseException, job: Job) -> float:
        # A job that was a probe and failed comes back later each time: it may be what breaks the provider, and the next
        # probe should be another's.
        was_sent = isinstance(error, CallPostponedError) and error.was_sent
        return self._delay_seconds(error, job.attempts if was_sent else 0)

    def _delay_seconds(self, error: BaseException, tried: int) -> float:
        if isinstance(error, WatermarkMovedError):
            return self._rng.uniform(0, WATERMARK_DELAY_SECONDS)
        return backoff.delay_seconds(
            tried, error, base_seconds=self._base_seconds, cap_seconds=self._cap_seconds, rng=self._rng
        )


def _tried(job: Job) -> int:
    """Return how often the job was tried before, since it was enqueued or run again by hand."""
    before = job.task_kwargs.get("tried")
    return job.attempts - (before if isinstance(before, int) else 0)


def _after(seconds: float) -> RetryDecision:
    return RetryDecision(retry_at=utils.utcnow() + datetime.timedelta(seconds=seconds))
