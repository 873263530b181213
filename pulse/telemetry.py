"""Metrics of the engine in this process, for Prometheus: the same in a host of the library and in our own processes.

| metric | labels | meaning |
| --- | --- | --- |
| events_appended_total | | new events, without those that were stored before |
| version_conflicts_total | | statements refused because a session or a shared state had changed |
| version_conflict_retries_total | | changes that were computed and sent again after a conflict |
| states_near_limit_total | | appends that left a state over 80 % of its app's limit |
| notification_lag_seconds | | from an event's append until its notification had it read, by the database's clock |
| database_statement_duration_seconds | statement | how long statements took, by query file and name |
| database_pool_connections | state | connections of this process's pools: used, idle, and max that may be opened |
| database_pool_waiting | | callers that wait for a connection now |
| database_pool_waits_total, database_pool_wait_seconds_total | | callers that had to wait, and for how long together |
| tool_call_duration_seconds | kind, status | how long calls of tools took, with their checks and their records |
| redactions_total | kind, outcome | secrets that were masked or refused |
| tracing_spans_total | exit, outcome | spans by destination (postgres, otlp): sent, dropped |

A host of the library serves them with its own: ``prometheus_client.REGISTRY.register(pulse.metrics_registry())``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pulse.postgres.bounded_pool import open_pools
from pulse.postgres.statements import observe_statements
from pulse.process.counts import COUNTS
from pulse.redaction import observe_redactions
from pulse.tracing.manager import current_tracing

_STATEMENT_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5, 10.0)
_LAG_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.03, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0)
_CALL_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.5, 10.0, 60.0)
_COUNTERS = (
    ("events_appended_total", "New events stored.", "events_appended"),
    ("version_conflicts_total", "Statements refused because the session had changed.", "version_conflicts"),
    ("version_conflict_retries_total", "Changes sent again after a conflict.", "conflict_retries"),
    ("states_near_limit_total", "Appends that left a state near its limit.", "states_near_limit"),
    ("database_pool_waits_total", "Callers that waited for a connection.", "pool_waits"),
    ("database_pool_wait_seconds_total", "How long they waited.", "pool_wait_seconds"),
)


@functools.cache
def metrics_registry() -> CollectorRegistry:
    """Return the registry of this process; what it observes, it observes from the first call on."""
    registry = CollectorRegistry()
    statements = Histogram(
        "database_statement_duration_seconds",
        "How long statements took.",
        ("statement",),
        buckets=_STATEMENT_SECONDS,
        registry=registry,
    )
    observe_statements(lambda name, seconds, _succeeded: statements.labels(name).observe(seconds))
    lag = Histogram("notification_lag_seconds", "From append to delivery.", buckets=_LAG_SECONDS, registry=registry)
    COUNTS.on_notified.append(lag.observe)
    calls = Histogram(
        "tool_call_duration_seconds",
        "How long calls of tools took.",
        ("kind", "status"),
        buckets=_CALL_SECONDS,
        registry=registry,
    )
    COUNTS.on_tool_call.append(lambda kind, status, seconds: calls.labels(kind, status).observe(seconds))
    redactions = Counter("redactions_total", "Secrets that were found.", ("kind", "outcome"), registry=registry)
    observe_redactions(lambda kind, outcome, count: redactions.labels(kind, outcome).inc(count))
    registry.register(_Engine())
    return registry


class _Engine(Collector):
    """What the engine counts by itself."""

    def collect(self) -> Iterator[Metric]:
        for name, meaning, attribute in _COUNTERS:
            yield CounterMetricFamily(name, meaning, value=getattr(COUNTS, attribute))
        pools = open_pools()
        idle = sum(pool.get_idle_size() + pool.aside for pool in pools)
        connections = GaugeMetricFamily("database_pool_connections", "Connections of the pools.", labels=("state",))
        connections.add_metric(("used",), sum(pool.get_size() for pool in pools) - idle)
        connections.add_metric(("idle",), idle)
        connections.add_metric(("max",), sum(pool.get_max_size() for pool in pools))
        yield connections
        yield GaugeMetricFamily(
            "database_pool_waiting", "Callers that wait for a connection.", value=sum(pool.waiting for pool in pools)
        )
        spans = CounterMetricFamily("tracing_spans_total", "Spans by destination.", labels=("exit", "outcome"))
        for name, counts in current_tracing().counts().items():
            spans.add_metric((name, "sent"), counts.sent)
            spans.add_metric((name, "dropped"), counts.dropped)
        yield spans
