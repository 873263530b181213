"""Metrics of the calls of models, the same in every process that makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram

if TYPE_CHECKING:
    from hippocampus.providers.calls import CallRecord

_BUCKETS_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class CallMetrics:
    """How often each provider was called, how it answered, how long it took, how many tokens went in and out."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("provider", "operation")
        self._calls = Counter("model_requests_total", "Calls of a model.", (*labels, "code"), registry=registry)
        self._seconds = Histogram(
            "model_request_duration_seconds",
            "How long calls took.",
            labels,
            buckets=_BUCKETS_SECONDS,
            registry=registry,
        )
        self._tokens = Counter("model_tokens_total", "Tokens in and out.", (*labels, "kind"), registry=registry)
        self._waits = Histogram(
            "model_rate_limit_wait_seconds",
            "How long calls waited for the rate limit.",
            labels,
            buckets=_BUCKETS_SECONDS,
            registry=registry,
        )
        self._postponed = Counter(
            "model_calls_postponed_total", "Calls that were held back.", (*labels, "reason"), registry=registry
        )

    def observe_wait(self, provider: str, operation: str, seconds: float) -> None:
        """Record how long a call waited before it was admitted."""
        self._waits.labels(provider, operation).observe(seconds)

    def observe_postponed(self, provider: str, operation: str, reason: str) -> None:
        """Count a call that was held back, or that found the provider down."""
        self._postponed.labels(provider, operation, reason).inc()

    def observe(self, record: CallRecord) -> None:
        """Count one call."""
        labels = (record.provider, record.operation)
        self._calls.labels(*labels, record.code).inc()
        self._seconds.labels(*labels).observe(record.seconds)
        self._tokens.labels(*labels, "prompt").inc(record.prompt_tokens)
        self._tokens.labels(*labels, "output").inc(record.output_tokens)
