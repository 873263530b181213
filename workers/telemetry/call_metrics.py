"""Calls of a model, counted alike by every process that makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram

if TYPE_CHECKING:
    from hippocampus.providers.calls import CallRecord

_BUCKETS_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class CallMetrics:
    """How often a model was called, how it answered, how long it took, how many tokens went in and out."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Counter("gemini_requests_total", "Calls of the model.", ("operation", "code"), registry=registry)
        self._seconds = Histogram(
            "gemini_request_duration_seconds",
            "How long calls took.",
            ("operation",),
            buckets=_BUCKETS_SECONDS,
            registry=registry,
        )
        self._tokens = Counter("gemini_tokens_total", "Tokens in and out.", ("operation", "kind"), registry=registry)

        self._waits = Histogram(
            "gemini_rate_limit_wait_seconds",
            "How long calls waited for their turn.",
            ("operation",),
            buckets=_BUCKETS_SECONDS,
            registry=registry,
        )
        self.postponed = Counter(
            "gemini_calls_postponed_total",
            "Calls that nobody could make, or that met a provider that is down.",
            ("operation", "reason"),
            registry=registry,
        )

    def observe_wait(self, operation: str, seconds: float) -> None:
        """Count how long a call waited before it was let through."""
        self._waits.labels(operation).observe(seconds)

    def observe(self, record: CallRecord) -> None:
        """Count one call."""
        self._calls.labels(record.operation, record.code).inc()
        self._seconds.labels(record.operation).observe(record.seconds)
        self._tokens.labels(record.operation, "prompt").inc(record.prompt_tokens)
        self._tokens.labels(record.operation, "output").inc(record.output_tokens)
