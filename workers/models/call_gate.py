"""The gate before every call of a model: a limit that all processes share, and a breaker for each pool and model.

    admit          one statement, then the wait for the slot that it reserved
    429            a penalty for all processes: no call starts before the time that the provider requested
    no answer      counted by the breaker; while it is open, one call at a time is admitted, as a probe
    yielding       deep reflections and upkeep take a slot that is free now, and reserve none: others go first
    postponed      a job that may not call goes back to the queue; `pause_seconds` stops this process from fetching more

No connection is held during a call. Its outcome is reported once it has ended; a report that cannot be written is only
logged, since the reply is worth more than the report.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import asyncpg
import structlog
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt

from hippocampus.errors import CallPostponedError, ProviderError, RateLimitedError, TransientProviderError
from pulse.errors import PulseError
from pulse.postgres.statements import Statements
from workers.failures import DATABASE_FAULTS

if TYPE_CHECKING:
    from hippocampus.providers.calls import Sleep
    from hippocampus.providers.registry import Kind
    from pulse.database import Pool
    from workers.settings import Settings
    from workers.telemetry.call_metrics import CallMetrics

_log = structlog.get_logger(__name__)
_STATEMENTS = Statements("workers.models", "call_gate.sql")

#: Failures that lie further apart are not an outage.
FAILURES_WINDOW_SECONDS = 60.0
#: Another process makes the probe, and will soon report its outcome.
PROBE_POLL_SECONDS = 1.0
#: How long after the time limit of a call its probe counts as lost.
PROBE_MARGIN_SECONDS = 5.0
#: A 429 that names no time.
PENALTY_SECONDS = 2.0
#: The provider does not say when a day's quota is available again: retry every hour or two.
DAILY_QUOTA_SECONDS = 3600.0
#: A provider's retry-after is honoured up to a day: the reply may be wrong, and the job should be seen to move.
RETRY_AFTER_SECONDS_MAX = 86_400.0
#: How long a search waits for the vector of its words.
SEARCH_WAIT_SECONDS_MAX = 0.5
#: The part that this wait may take of the time that a search gives its reranker: the call needs most of the rest.
_RERANK_WAIT_PART = 0.05
REPORT_SECONDS_MAX = 2.0
#: A probe whose outcome is missing holds back all calls until its time is over, a minute or so.
PROBE_REPORTS_MAX = 3
_REPORT_FAULTS = (*DATABASE_FAULTS, asyncpg.PostgresError, PulseError)
#: Roles whose calls give way to those of the others where a limit is reached: no user waits for them.
YIELDING_ROLES = frozenset({"deep_reflection", "retention"})
#: The pause between two requests for a slot that is nearly free.
_YIELD_SECONDS_MIN = 0.02
STATEMENT_SECONDS_MAX = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRule:
    """The limits of one gate."""

    provider: str
    limit: str  # of a model: all processes share it
    breaker: str  # of a pool and a model
    calls_per_second: float = 0.0  # 0: no limit but the provider's penalties
    burst: int = 1
    wait_seconds_max: float = 5.0  # for longer ones the call is postponed
    yields: bool = False  # waits without a reservation, so that every call that reserves goes first
    call_seconds_max: float = 60.0
    failures_max: int = 5  # in a row, which open the breaker; 0: never
    open_seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class _Admission:
    probe: int | None
    failures: int  # of the breaker, as it was on entry

    @property
    def is_answer_news(self) -> bool:
        return self.probe is not None or self.failures > 0


class SharedCallGate:
    """`hippocampus.providers.calls.CallGate` whose state all processes share in PostgreSQL."""

    def __init__(self, pool: Pool, rule: GateRule, metrics: CallMetrics, *, sleep: Sleep = asyncio.sleep) -> None:
        self._pool = pool
        self._rule = rule
        self._metrics = metrics
        self._sleep = sleep
        self._paused_until = 0.0

    def pause_seconds(self) -> float:
        """Return for how long this process knows that no call will be admitted."""
        return max(0.0, self._paused_until - time.monotonic())

    def admit(self, operation: str) -> AbstractAsyncContextManager[None]:
        """Surround one call; see `CallGate.admit`.

        Raises:
            CallPostponedError: as `CallGate.admit`.
            asyncpg.PostgresError, OSError: the database failed on entry; nothing was sent.
        """
        return self._admit(operation)

    @asynccontextmanager
    async def _admit(self, operation: str) -> AsyncIterator[None]:
        admission = await self._enter(operation)
        try:
            yield
        except RateLimitedError as error:
            await self._penalise(error)
            await self._report_answer(admission)
            raise
        except TransientProviderError as error:
            await self._report_failure(operation, admission, error)
            raise
        except ProviderError:
            await self._report_answer(admission)
            raise
        except BaseException:
            await self._release(admission)
            raise
        await self._report_answer(admission)

    async def _enter(self, operation: str) -> _Admission:
        rule = self._rule
        waited = 0.0
        while True:
            row = await _STATEMENTS.fetch_one(
                self._pool,
                "admit_call",
                rule.limit,
                rule.breaker,
                rule.calls_per_second,
                rule.burst,
                0.0 if rule.yields else rule.wait_seconds_max,
                rule.call_seconds_max + PROBE_MARGIN_SECONDS,
                timeout=STATEMENT_SECONDS_MAX,
            )
            pause = max(row["wait_seconds"], _YIELD_SECONDS_MIN)
            if not rule.yields or row["refusal"] != "limited" or waited + pause > rule.wait_seconds_max:
                break
            await self._sleep(pause)
            waited += pause
        if row["refusal"] is not None:
            raise self._postpone(operation, row["refusal"], row["wait_seconds"])
        admission = _Admission(row["probe"], row["failures"])
        await self._wait(operation, admission, row["wait_seconds"], waited)
        return admission

    async def _wait(self, operation: str, admission: _Admission, seconds: float, waited: float) -> None:
        """Wait for the reserved slot; a penalty that was reported meanwhile applies to it too."""
        try:
            if seconds > 0:
                await self._sleep(seconds)
                blocked = await _STATEMENTS.fetchval(
                    self._pool, "blocked_seconds", self._rule.limit, timeout=STATEMENT_SECONDS_MAX
                )
                if blocked > 0:
                    raise self._postpone(operation, "limited", blocked)  # noqa: TRY301 - as if it came from entry
            self._metrics.observe_wait(self._rule.provider, operation, waited + seconds)
        except BaseException:
            await self._release(admission)
            raise

    def _postpone(self, operation: str, refusal: str, seconds: float) -> CallPostponedError:
        if refusal == "limited":
            # A call that arrives a little before its slot can wait for it.
            self._pause(seconds - self._rule.wait_seconds_max)
            what = f"the limit of {self._rule.limit} is reached"
        else:
            seconds = min(seconds, PROBE_POLL_SECONDS) if refusal == "breaker_half_open" else seconds
            self._pause(seconds)
            what = f"the breaker of {self._rule.breaker} is {refusal.removeprefix('breaker_').replace('_', ' ')}"
        self._metrics.observe_postponed(self._rule.provider, operation, refusal)
        return CallPostponedError(f"no call now: {what}", code=refusal, retry_after_seconds=seconds)

    async def _penalise(self, error: RateLimitedError) -> None:
        requested = error.retry_after_seconds or PENALTY_SECONDS
        seconds = min(max(requested, DAILY_QUOTA_SECONDS) if error.daily else requested, RETRY_AFTER_SECONDS_MAX)
        pause = seconds - self._rule.wait_seconds_max
        self._pause(pause)
        reason = "the day's quota is used up" if error.daily else "429"
        await self._report("penalise_limit", self._rule.limit, seconds, reason)
        # The database counts from the report on: a caller that wakes earlier is refused once more.
        self._pause(pause)

    async def _report_failure(self, operation: str, admission: _Admission, error: TransientProviderError) -> None:
        """Count a failure.

        Raises:
            CallPostponedError: the provider is considered down, by this failure or by earlier ones.
        """
        rule = self._rule
        if rule.failures_max == 0:
            return
        seconds = await self._report_end(
            "report_failure", admission, error.code, rule.failures_max, FAILURES_WINDOW_SECONDS, rule.open_seconds
        )
        if seconds is None:
            return
        self._pause(seconds)
        self._metrics.observe_postponed(rule.provider, operation, "down")
        raise CallPostponedError(
            f"{error}; the breaker of {rule.breaker} is open",
            code=error.code,
            retry_after_seconds=max(seconds, error.retry_after_seconds or 0.0),
            was_sent=True,
            raw_reply=error.raw_reply,
        ) from None

    async def _report_answer(self, admission: _Admission) -> None:
        if admission.is_answer_news:
            await self._report_end("report_success", admission)

    async def _release(self, admission: _Admission) -> None:
        """Give up the probe of a call that ended without a reply of the provider: another call may be the probe."""
        if admission.probe is not None:
            await self._report_end("release_probe", admission)

    async def _report_end(self, name: str, admission: _Admission, *arguments: Any) -> Any:
        """Report a call's end to the breaker: what was reported of a probe once changes nothing the second time."""
        attempts = 1 if admission.probe is None else PROBE_REPORTS_MAX
        return await self._report(name, self._rule.breaker, admission.probe, *arguments, attempts=attempts)

    async def _report(self, name: str, *arguments: Any, attempts: int = 1) -> Any:
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(_REPORT_FAULTS), stop=stop_after_attempt(attempts), reraise=True
        )
        try:
            async for attempt in retrying:
                with attempt:
                    return await _STATEMENTS.fetchval(self._pool, name, *arguments, timeout=REPORT_SECONDS_MAX)
        except _REPORT_FAULTS as error:
            _log.warning("call_not_reported", report=name, error_type=type(error).__name__)
        return None

    def _pause(self, seconds: float) -> None:
        self._paused_until = max(self._paused_until, time.monotonic() + seconds)


def _rule(settings: Settings, kind: Kind, role: str) -> GateRule:
    """Return what the gates of all kinds of models have in common."""
    chosen = settings.chosen(kind)
    return GateRule(
        provider=chosen.provider,
        limit=chosen.model,
        breaker=f"{role}/{chosen.model}",
        wait_seconds_max=settings.limit_wait_seconds_max,
        failures_max=settings.breaker_failures,
        open_seconds=settings.breaker_open_seconds,
    )


def generator_gate(settings: Settings, pool: Pool, metrics: CallMetrics, role: str) -> SharedCallGate:
    """Return the gate before the calls for text that a role's processes make."""
    rule = replace(
        _rule(settings, "generator", role),
        calls_per_second=settings.generate_calls_per_second,
        burst=settings.generate_calls_burst,
        yields=role in YIELDING_ROLES,
        call_seconds_max=settings.generate_timeout_seconds,
    )
    return SharedCallGate(pool, rule, metrics)


def reranker_gate(settings: Settings, pool: Pool, metrics: CallMetrics, role: str) -> SharedCallGate | None:
    """Return the gate before the calls of the reranker, None if there is none.

    Its limit is the model's, its breaker its own: that a model is too slow for a search says nothing of other calls.
    """
    if "reranker" not in settings.kinds:
        return None
    common = _rule(settings, "reranker", f"{role} rerank")
    patience = min(SEARCH_WAIT_SECONDS_MAX, _RERANK_WAIT_PART * settings.rerank_seconds)
    rule = replace(
        common,
        calls_per_second=settings.generate_calls_per_second,
        burst=settings.generate_calls_burst,
        wait_seconds_max=min(common.wait_seconds_max, patience),
        call_seconds_max=settings.rerank_seconds,
    )
    return SharedCallGate(pool, rule, metrics)


def embedder_gate(settings: Settings, pool: Pool, metrics: CallMetrics, role: str) -> SharedCallGate:
    """Return the gate before the calls for vectors that a role's processes make."""
    # A user waits for a search, which works by text alone if necessary; a job has time.
    searches = role in ("writer", "cli")
    patience = SEARCH_WAIT_SECONDS_MAX if searches else math.inf
    common = _rule(settings, "embedder", role)
    rule = replace(
        common,
        calls_per_second=settings.embed_calls_per_second,
        burst=settings.embed_calls_burst,
        wait_seconds_max=min(common.wait_seconds_max, patience),
        yields=role in YIELDING_ROLES,
        call_seconds_max=settings.query_embed_seconds if searches else settings.embed_timeout_seconds,
    )
    return SharedCallGate(pool, rule, metrics)
