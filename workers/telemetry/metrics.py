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
| worker_restarts_total | reason | how often this process began to serve its queues again |
| model_requests_total | provider, operation, code | calls of the model; timeout, connection, cancelled count as codes |
| model_request_duration_seconds | provider, operation | how long calls took |
| model_tokens_total | provider, operation, kind | tokens in (prompt) and out (output) |
| model_rate_limit_wait_seconds | provider, operation | how long calls waited for the rate limit |
| model_calls_postponed_total | provider, operation, reason | calls held back: limited, breaker_*, down |
| consolidation_turns_skipped_total | | turns that the model refused, and that a later job skipped |
| embedding_backfill_texts_total | outcome | texts that got their vector later (given), or were refused one (refused) |
| knowledge_chunks_total | outcome | chunks of ingested documents: embedded, or kept from the former version (kept) |
| memories_stored_total | app, memory_type | memories that consolidations stored |
| retention_memories_deleted_total | app | memories that the clean-up archived |
| retention_batch_duration_seconds | | one transaction of the clean-up |
| retention_memories | strength | memories left by this process's last clean-up: high, medium, low |
| queue_pool_connections | state | connections of the queue's own driver: used, idle, and max that may be opened |
| queue_pool_waits_total, queue_pool_wait_seconds_total | | callers that waited for one, and for how long together |
| database_commit_duration_seconds | | how long the heartbeat's commit of one row takes, every 20 s |
| webhook_deliveries_total | outcome | attempts at deliveries: delivered, retried, failed, gone (410: disabled) |
| webhook_attempt_duration_seconds | | from the lookup of the receiver's name to its answer |
| webhook_oldest_waiting_seconds | | how long the oldest delivery that is due has waited (one process exports it) |
| queue_jobs | queue, status | jobs that wait, run, or have failed (one process exports it) |
| queue_oldest_job_age_seconds | queue | how long the oldest job that could run has waited (one process exports it) |
| embedding_refused_texts | model | texts that stay without a vector of this model (one process exports it) |
| model_breaker_state | breaker, state | 1 for the state that each breaker is in (one process exports it) |
| model_limit_blocked_seconds | limit | for how long the provider refuses calls of a model (one process exports it) |

With those of `pulse.telemetry`. The label `app` has the first 100 apps that a process sees; the others are ``other``.

Outcomes: succeeded, failed, retried, postponed (does not count as an attempt), released, aborted, fenced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pulse.telemetry import metrics_registry
from workers.telemetry.call_metrics import CallMetrics
from workers.telemetry.metrics_server import CommitMetrics

if TYPE_CHECKING:
    from hippocampus.providers.calls import CallRecord

#: Values of the label `app` in one process.
APPS_MAX = 100
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


class AppLabels:
    """Bounds a label: the first apps by their names, and `other` for what comes after them."""

    def __init__(self, apps_max: int = APPS_MAX) -> None:
        self._max = apps_max
        self._seen: set[str] = set()

    def of(self, app_name: str) -> str:
        """Return the label of an app."""
        if app_name not in self._seen:
            if len(self._seen) >= self._max:
                return "other"
            self._seen.add(app_name)
        return app_name


class QueuePool(Collector):
    """The connections of the queue's driver, as it counts them; nothing before it is opened."""

    def __init__(self) -> None:
        self.stats: Callable[[], Mapping[str, int]] = dict

    def collect(self) -> Iterable[Metric]:
        """Yield every family."""
        stats = self.stats()
        connections = GaugeMetricFamily("queue_pool_connections", "Connections of the queue's pool.", labels=("state",))
        size, idle = stats.get("pool_size", 0), stats.get("pool_available", 0)
        for state, count in (("used", size - idle), ("idle", idle), ("max", stats.get("pool_max", 0))):
            connections.add_metric((state,), count)
        yield connections
        yield CounterMetricFamily(
            "queue_pool_waits_total", "Callers that waited for a connection.", value=stats.get("requests_queued", 0)
        )
        yield CounterMetricFamily(
            "queue_pool_wait_seconds_total", "How long they waited.", value=stats.get("requests_wait_ms", 0) / 1000
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
        self.commits = CommitMetrics(own)
        own.register(metrics_registry())
        self.apps = AppLabels()
        self.stored = Counter(
            "memories_stored_total", "Memories that consolidations stored.", ("app", "memory_type"), registry=own
        )
        self.skipped = Counter("consolidation_turns_skipped_total", "Turns that were skipped.", registry=own)
        self.backfilled = Counter(
            "embedding_backfill_texts_total", "Texts whose vector was made later.", ("outcome",), registry=own
        )
        self.chunks = Counter(
            "knowledge_chunks_total", "Chunks of documents that were ingested.", ("outcome",), registry=own
        )
        self.deleted = Counter(
            "retention_memories_deleted_total", "Memories that the clean-up archived.", ("app",), registry=own
        )
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
        self.queue_pool = QueuePool()
        self.registry.register(self.queue_pool)

    def observe_call(self, record: CallRecord) -> None:
        """Count one call of a model."""
        self.model_calls.observe(record)
