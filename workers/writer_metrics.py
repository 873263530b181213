"""What a session writer counts.

    hippocampus_http_requests_total{method,route,status}             requests answered; 499: the client went away
    hippocampus_http_request_duration_seconds{method,route}          from the first byte of the head to the last sent
    hippocampus_events_appended_total                                new events, not those that were stored before
    hippocampus_version_conflicts_total                              appends refused: the session had moved on

`route` is a template such as /v1/apps/{app_name}/…: few labels, none of a user or a thread.
"""

from __future__ import annotations

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

# The aims of the product (25 and 100 ms) are among them.
_BUCKETS_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class WriterMetrics:
    """Counts in a registry of prometheus-client; a `pulse.http.edge.Telemetry`."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        labels = ["method", "route"]
        self._requests = Counter(
            "hippocampus_http_requests", "Requests answered.", [*labels, "status"], registry=registry
        )
        self._seconds = Histogram(
            "hippocampus_http_request_duration_seconds",
            "How long requests took.",
            labels,
            buckets=_BUCKETS_SECONDS,
            registry=registry,
        )
        self._appended = Counter("hippocampus_events_appended", "New events stored.", registry=registry)
        self._conflicts = Counter(
            "hippocampus_version_conflicts", "Appends refused because the session had moved on.", registry=registry
        )

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def appended(self, events: int) -> None:
        """Count new events."""
        self._appended.inc(events)

    def conflict(self) -> None:
        """Count a refused append."""
        self._conflicts.inc()
