"""What a session writer reports to Prometheus. Base units; labels name routes and statuses, never a thread or a user.

| metric | labels | meaning |
| --- | --- | --- |
| writer_requests_total | method, route, status | requests answered; 499: the client disconnected first |
| writer_request_duration_seconds | method, route | from the head of the request to the end of the response |
| streams_open, streams_runs_followed | | clients that follow a run, and the runs |
| streams_let_go_total | | clients that read too slowly and were disconnected |
| streams_failures_total | | reads for streams that failed and were retried, and followers that a fault disconnected |
| runs_executing | | runs whose agent this process executes |
| listener_running, listener_connects_total | | whether notifications are received, and how often it began to listen |
| search_degraded_total | reason | searches by text alone, because the query could not be embedded |
| database_commit_duration_seconds | | how long the heartbeat's commit of one row takes, every 20 s |

With those of `pulse.telemetry`, and of `workers.telemetry.call_metrics`: queries are embedded and questions answered
here.

`route` is a template such as /v1/apps/{app_name}/users/{user_id}/sessions, or ``unmatched``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from pulse.telemetry import metrics_registry
from workers.telemetry.call_metrics import CallMetrics
from workers.telemetry.metrics_server import CommitMetrics

if TYPE_CHECKING:
    from pulse.pg_notify_listener import PgNotifyListener
    from pulse.runs.agents import AgentRunner
    from pulse.streams.deltas import PgDeltaCarrier
    from pulse.streams.run_streams import RunStreams

_BUCKETS_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class WriterMetrics:
    """The metrics of one writer, with a registry of their own; a `pulse.http.edge.middleware.Telemetry`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        GCCollector(self.registry)
        PlatformCollector(self.registry)
        ProcessCollector(registry=self.registry)
        own = self.registry
        self.calls = CallMetrics(own)
        self.commits = CommitMetrics(own)
        own.register(metrics_registry())
        self._requests = Counter(
            "writer_requests_total", "Requests answered.", ("method", "route", "status"), registry=own
        )
        self._seconds = Histogram(
            "writer_request_duration_seconds",
            "How long requests took.",
            ("method", "route"),
            buckets=_BUCKETS_SECONDS,
            registry=own,
        )
        self._degraded = Counter("search_degraded_total", "Searches by text alone.", ("reason",), registry=own)

    def watch(
        self, *, streams: RunStreams, runner: AgentRunner, listener: PgNotifyListener, carrier: PgDeltaCarrier
    ) -> None:
        """Report the counts that these keep, from now on."""
        gauges: tuple[tuple[str, str, Callable[[], float]], ...] = (
            ("streams_open", "Clients that follow a run.", lambda: streams.followers),
            ("streams_runs_followed", "Runs that are followed.", lambda: streams.hubs),
            ("runs_executing", "Runs that this process executes.", lambda: runner.running),
            ("listener_running", "Whether notifications are received.", lambda: listener.is_running),
        )
        for name, meaning, value in gauges:
            Gauge(name, meaning, registry=self.registry).set_function(value)
        counters: tuple[tuple[str, str, Callable[[], float]], ...] = (
            ("streams_let_go_total", "Clients that were too slow.", lambda: streams.disconnected),
            (
                "streams_failures_total",
                "Reads that failed, and followers that a fault disconnected.",
                lambda: listener.failures + carrier.failures + streams.gone.failures,
            ),
            ("listener_connects_total", "Times that it began to listen.", lambda: listener.connects),
        )
        for name, meaning, value in counters:
            self.registry.register(_Counted(name, meaning, value))

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def degraded(self, reason: str) -> None:
        """Count a search whose query could not be embedded; `reason` is the error's class."""
        self._degraded.labels(reason).inc()


class _Counted(Collector):
    """A count that another object keeps."""

    def __init__(self, name: str, meaning: str, value: Callable[[], float]) -> None:
        self._name, self._meaning, self._value = name, meaning, value

    def collect(self) -> Iterator[CounterMetricFamily]:
        yield CounterMetricFamily(self._name, self._meaning, value=self._value())
