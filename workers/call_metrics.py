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

    def observe(self, record: CallRecord) -> None:
        """Count one call."""
        self._calls.labels(record.operation, record.code).inc()
        self._seconds.labels(record.operation).observe(record.seconds)
        self._tokens.labels(record.operation, "prompt").inc(record.prompt_tokens)
        self._tokens.labels(record.operation, "output").inc(record.output_tokens)
