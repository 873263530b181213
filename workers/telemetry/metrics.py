"""What a worker process reports to Prometheus. Base units; labels name queues and kinds, never a thread or a user.

| metric | labels | meaning |
| --- | --- | --- |
| worker_jobs_total | queue, task, outcome | ended attempts, by their outcome (see below) |
| worker_job_duration_seconds | queue, task | how long attempts ran |
| worker_job_queue_latency_seconds | queue | from a consolidation job's enqueue to its first start |
| worker_jobs_in_progress | queue | attempts that run now |
| worker_job_retries_total | task, reason | attempts that will be repeated, by error code |
| worker_jobs_rescued_total | | jobs of dead workers that this process gave back to the queue |
| worker_fenced_total | queue | ends that came too late: another attempt owned the job |
| database_statement_duration_seconds | statement | how long statements took, by query file and name |
| worker_restarts_total | reason | how often this process began to serve its queues again |
| model_requests_total | provider, operation, code | calls of the model; timeout, connection, cancelled count as codes |
| model_request_duration_seconds | provider, operation | how long calls took |
| model_tokens_total | provider, operation, kind | tokens in (prompt) and out (output) |
| model_rate_limit_wait_seconds | provider, operation | how long calls waited for the rate limit |
| model_calls_postponed_total | provider, operation, reason | calls held back: limited, breaker_*, down |
| consolidation_turns_skipped_total | | turns that the model refused, and that a later job skipped |
| embedding_backfill_texts_total | outcome | texts that got their vector later (given), or were refused one (refused) |
| retention_memories_deleted_total | | memories that the clean-up archived |
| retention_batch_duration_seconds | | one transaction of the clean-up |
| retention_memories | strength | memories left by this process's last clean-up: high, medium, low |
| webhook_deliveries_total | outcome | attempts at deliveries: delivered, retried, failed, gone (410: disabled) |
| webhook_attempt_duration_seconds | | from the lookup of the receiver's name to its answer |
| webhook_oldest_waiting_seconds | | how long the oldest delivery that is due has waited (one process exports it) |
| queue_jobs | queue, status | jobs that wait, run, or have failed (one process exports it) |
| queue_oldest_job_age_seconds | queue | how long the oldest job that could run has waited (one process exports it) |
| embedding_refused_texts | model | texts that stay without a vector of this model (one process exports it) |
| model_breaker_state | breaker, state | 1 for the state that each breaker is in (one process exports it) |
| model_limit_blocked_seconds | limit | for how long the provider refuses calls of a model (one process exports it) |

Outcomes: succeeded, failed, retried, postponed (does not count as an attempt), released, aborted, fenced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from workers.telemetry.call_metrics import CallMetrics
from workers.telemetry.statement_metrics import StatementMetrics

if TYPE_CHECKING:
    from hippocampus.providers.calls import CallRecord

BREAKER_STATES = ("closed", "open", "half_open")

_FAST = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300)
_SLOW = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class QueueGauges(Collector):
    """The queue as a whole, as last read; nothing while another process exports it."""

    def __init__(self) -> None:
        self._depths: Mapping[tuple[str, str], int] = {}
        self._ages: Mapping[str, float] = {}
        self._breakers: Mapping[str, str] = {}
        self._limits: Mapping[str, float] = {}
        self._refused: Mapping[str, int] = {}
        self._webhook_seconds = 0.0
        self._is_shown = False

    def show(self, depths: Mapping[tuple[str, str], int], ages: Mapping[str, float]) -> None:
        """Export these numbers: jobs by (queue, status), ages in seconds by queue."""
        self._depths, self._ages, self._is_shown = depths, ages, True

    def show_refused(self, refused: Mapping[str, int]) -> None:
        """Export this too: texts that stay without a vector, by the model that refused them."""
        self._refused = refused

    def show_webhooks(self, oldest_seconds: float) -> None:
        """Export this too: how long the oldest webhook delivery that is due has waited."""
        self._webhook_seconds = oldest_seconds

    def show_gates(self, breakers: Mapping[str, str], limits: Mapping[str, float]) -> None:
        """Export these too: each breaker's state, the seconds for which each limit is blocked."""
        self._breakers, self._limits = breakers, limits

    def hide(self) -> None:
        """Export nothing."""
        self._is_shown = False

    def collect(self) -> Iterable[Metric]:
        """Yield every family."""
        if not self._is_shown:
            return
        depths = GaugeMetricFamily("queue_jobs", "Jobs by queue and status.", labels=("queue", "status"))
        for labels, count in self._depths.items():
            depths.add_metric(labels, count)
        yield depths
        ages = GaugeMetricFamily(
            "queue_oldest_job_age_seconds", "Age of the oldest job that could run.", labels=("queue",)
        )
        for queue, seconds in self._ages.items():
            ages.add_metric((queue,), seconds)
        yield ages
        states = GaugeMetricFamily("model_breaker_state", "Breakers by state.", labels=("breaker", "state"))
        for breaker, now in self._breakers.items():
            for state in BREAKER_STATES:
                states.add_metric((breaker, state), float(state == now))
        yield states
        blocked = GaugeMetricFamily("model_limit_blocked_seconds", "Seconds without calls.", labels=("limit",))
        for limit, seconds in self._limits.items():
            blocked.add_metric((limit,), seconds)
        yield blocked
        refused = GaugeMetricFamily("embedding_refused_texts", "Texts that a model refused.", labels=("model",))
        for model, count in self._refused.items():
            refused.add_metric((model,), count)
        yield refused
        yield GaugeMetricFamily(
            "webhook_oldest_waiting_seconds", "Age of the oldest delivery that is due.", value=self._webhook_seconds
        )


class Metrics:
    """The metrics of one process, with a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        GCCollector(self.registry)
        PlatformCollector(self.registry)
        ProcessCollector(registry=self.registry)
        own = self.registry
        self.jobs = Counter("worker_jobs_total", "Attempts that ended.", ("queue", "task", "outcome"), registry=own)
        self.job_seconds = Histogram(
            "worker_job_duration_seconds", "How long attempts ran.", ("queue", "task"), buckets=_FAST, registry=own
        )
        self.queue_seconds = Histogram(
            "worker_job_queue_latency_seconds", "From enqueue to start.", ("queue",), buckets=_FAST, registry=own
        )
        self.in_progress = Gauge("worker_jobs_in_progress", "Attempts that run now.", ("queue",), registry=own)
        self.retries = Counter("worker_job_retries_total", "Attempts to be repeated.", ("task", "reason"), registry=own)
        self.rescued = Counter("worker_jobs_rescued_total", "Jobs of dead workers given back.", registry=own)
        self.fenced = Counter("worker_fenced_total", "Ends that came too late.", ("queue",), registry=own)
        self.restarts = Counter("worker_restarts_total", "Restarts of the worker within.", ("reason",), registry=own)
        self.model_calls = CallMetrics(own)
        self.statements = StatementMetrics(own)
        self.skipped = Counter("consolidation_turns_skipped_total", "Turns that were skipped.", registry=own)
        self.backfilled = Counter(
            "embedding_backfill_texts_total", "Texts whose vector was made later.", ("outcome",), registry=own
        )
        self.deleted = Counter("retention_memories_deleted_total", "Memories that the clean-up archived.", registry=own)
        self.batch_seconds = Histogram(
            "retention_batch_duration_seconds", "One transaction of the clean-up.", buckets=_SLOW, registry=own
        )
        self.strength = Gauge(
            "retention_memories", "Memories by strength, after the last clean-up.", ("strength",), registry=own
        )
        self.webhooks = Counter("webhook_deliveries_total", "Attempts at deliveries.", ("outcome",), registry=own)
        self.webhook_seconds = Histogram(
            "webhook_attempt_duration_seconds", "How long receivers took.", buckets=_SLOW, registry=own
        )
        self.queue = QueueGauges()
        self.registry.register(self.queue)

    def observe_call(self, record: CallRecord) -> None:
        """Count one call of a model."""
        self.model_calls.observe(record)
