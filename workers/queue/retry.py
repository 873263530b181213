"""When a job is attempted again, in minutes and hours; retries within seconds are the provider's."""

from __future__ import annotations

import asyncio
import datetime
import random

from procrastinate import BaseRetryStrategy, RetryDecision, utils
from procrastinate.exceptions import JobAborted
from procrastinate.jobs import Job

from hippocampus.errors import CallPostponedError, WatermarkMovedError
from workers import failures
from workers.queue.delays import delay_seconds

#: Another attempt just consolidated this thread: the rest can be read at once.
WATERMARK_DELAY_SECONDS = 0.5


class JobRetry(BaseRetryStrategy):
    """Capped exponential delays with full jitter for faults of transport; none for faults of meaning.

    Args:
        attempts_max: before a job is failed, counted since it was enqueued or retried by an operator.
        base_seconds: the widest jitter of the first delay.
        cap_seconds: the widest jitter of any delay. A delay that the provider requested is added.
        rng: the source of the jitter.
    """

    def __init__(
        self, *, attempts_max: int, base_seconds: float, cap_seconds: float, rng: random.Random | None = None
    ) -> None:
        self._attempts_max = attempts_max
        self._base_seconds = base_seconds
        self._cap_seconds = max(base_seconds, cap_seconds)
        self._rng = rng or random.SystemRandom()

    def get_retry_decision(self, *, exception: BaseException, job: Job) -> RetryDecision | None:
        """Return when to attempt the job again; None if it has failed for good."""
        if isinstance(exception, asyncio.CancelledError | JobAborted):
            # Only a stopping worker asks this: the attempt does not count.
            return RetryDecision()
        if failures.is_postponed(exception):
            return _after(self._postponed_seconds(exception, job))
        if not failures.is_transient(exception) or self.is_last_attempt(job):
            return None
        return _after(self._delay_seconds(exception, _attempts_before(job)))

    def is_last_attempt(self, job: Job) -> bool:
        """Return whether a transient failure of the running attempt fails the job for good."""
        return _attempts_before(job) + 1 >= self._attempts_max

    def _postponed_seconds(self, error: BaseException, job: Job) -> float:
        # A job that was a probe and failed comes back later each time: it may be what breaks the provider, and another
        # job should be the next probe.
        was_sent = isinstance(error, CallPostponedError) and error.was_sent
        return self._delay_seconds(error, job.attempts if was_sent else 0)

    def _delay_seconds(self, error: BaseException, attempts: int) -> float:
        if isinstance(error, WatermarkMovedError):
            return self._rng.uniform(0, WATERMARK_DELAY_SECONDS)
        return delay_seconds(
            attempts, error, base_seconds=self._base_seconds, cap_seconds=self._cap_seconds, rng=self._rng
        )


def _attempts_before(job: Job) -> int:
    """Return how many attempts the job had, since it was enqueued or retried by an operator."""
    before = job.task_kwargs.get("tried")
    return job.attempts - (before if isinstance(before, int) else 0)


def _after(seconds: float) -> RetryDecision:
    return RetryDecision(retry_at=utils.utcnow() + datetime.timedelta(seconds=seconds))
