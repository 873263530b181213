"""One attempt at one delivery: begun and ended in short transactions, with the request between them.

A process that is killed in between leaves the delivery as it is; its job is given back, and the event is sent again
under the same id. A receiver that got it already recognises it by that.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import structlog

from hippocampus.errors import BY_SQLSTATE
from pulse.outbound.addresses import Resolve, parse_networks, resolve
from pulse.postgres.statements import Statements
from workers.settings import Settings
from workers.telemetry.metrics import Metrics
from workers.webhooks import signing

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.webhooks.http_post import Answer

_log = structlog.get_logger(__name__)
#: What is logged of an attempt's end, by its outcome.
_EVENTS = {
    "delivered": "webhook_delivered",
    "retried": "webhook_retried",
    "failed": "webhook_failed",
    "gone": "webhook_gone",
}
_STATEMENTS = Statements("workers.webhooks", "deliveries.sql", errors=BY_SQLSTATE)

#: What a receiver asks for by Retry-After is followed up to this.
RETRY_AFTER_SECONDS_MAX = 86_400.0
#: Up to this share is added to each delay, so that deliveries that failed together do not return together.
JITTER = 0.2


class Attempt(NamedTuple):
    """An attempt at a job of the queue: the job, the worker that fetched it, the attempts before."""

    job_id: int | None
    worker_id: int | None
    attempts: int


class WebhookSender:
    """Sends deliveries, and decides when they are sent again."""

    def __init__(
        self,
        pool: Pool,
        settings: Settings,
        metrics: Metrics,
        *,
        resolve_host: Resolve = resolve,
        rng: random.Random | None = None,
    ) -> None:
        self._pool = pool
        self._metrics = metrics
        self._resolve = resolve_host
        self._rng = rng or random.SystemRandom()
        self._timeout_seconds = settings.webhook_timeout_seconds
        self._delays = tuple(map(float, settings.webhook_retry_seconds.split(",")))
        self._allowed = parse_networks(settings.webhook_networks)
        self._limits = (settings.webhook_endpoint_concurrency, settings.webhook_concurrency)

    async def deliver(self, delivery_id: UUID, attempt: Attempt) -> bool:
        """Make one attempt at a delivery, and end the job's attempt with it; return whether the job is over.

        Raises:
            JobFencedError: the job now belongs to another attempt; nothing was recorded.
        """
        row = await _STATEMENTS.fetchrow(self._pool, "begin_webhook", *attempt, delivery_id, *self._limits)
        if row is None:
            return True
        # It takes a tenth of a second, and most processes never send.
        from workers.webhooks.http_post import post

        body = signing.body_of(row["event_type"], row["created_at"], row["data"])
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "Hippocampus-Webhooks",
            **signing.headers_of(str(row["event_id"]), row["sent_at"], body, row["secrets"]),
        }
        started = time.perf_counter()
        answer = await post(
            row["url"],
            headers,
            body,
            timeout_seconds=self._timeout_seconds,
            allowed=self._allowed,
            resolve=self._resolve,
        )
        self._metrics.webhook_seconds.observe(time.perf_counter() - started)
        outcome, delay_seconds = self._judge(answer, row["attempt"])
        await _STATEMENTS.execute(
            self._pool,
            "end_webhook",
            *attempt,
            delivery_id,
            outcome,
            answer.status,
            answer.error_code,
            delay_seconds,
            *self._limits,
        )
        self._metrics.webhooks.labels(outcome).inc()
        # Not the address: its path or query may hold a token.
        _log.info(
            _EVENTS[outcome],
            delivery_id=str(delivery_id),
            endpoint_id=str(row["endpoint_id"]),
            webhook_attempt=row["attempt"],
            response_status=answer.status,
            error_code=answer.error_code,
        )
        return outcome != "retried"

    async def reconcile(self) -> None:
        """Give deliveries a job whose job was lost."""
        if count := await _STATEMENTS.fetchval(self._pool, "reconcile_webhooks", *self._limits):
            _log.warning("webhooks_reconciled", count=count)

    def _judge(self, answer: Answer, attempt: int) -> tuple[str, float]:
        """Return the outcome of an attempt, and the seconds until the next one."""
        if answer.error_code is None:
            return "delivered", 0.0
        if answer.error_code == "gone":
            return "gone", 0.0
        if attempt > len(self._delays):
            return "failed", 0.0
        asked_seconds = min(answer.retry_after_seconds or 0.0, RETRY_AFTER_SECONDS_MAX)
        least_seconds = max(self._delays[attempt - 1], asked_seconds)
        return "retried", least_seconds * (1 + self._rng.uniform(0, JITTER))
