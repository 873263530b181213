"""How long the statements of a process take, by query file and name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Histogram

from pulse.postgres.statements import observe_statements

_BUCKETS_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5, 10.0)


class StatementMetrics:
    """The durations of the statements that run inside `observing`, failed ones included."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "database_statement_duration_seconds",
            "How long statements took.",
            ("statement",),
            buckets=_BUCKETS_SECONDS,
            registry=registry,
        )

    @contextmanager
    def observing(self) -> Iterator[None]:
        """Observe every statement of this process."""
        end = observe_statements(self.observe)
        try:
            yield
        finally:
            end()

    def observe(self, name: str, seconds: float, _succeeded: bool) -> None:
        """Count one statement."""
        self._seconds.labels(name).observe(seconds)
