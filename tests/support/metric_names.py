"""The names of every metric that a process exports, and the names that files use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric

from tests.support.paths import ROOT
from workers.autonomic.metrics import PulseMetrics
from workers.telemetry.metrics import Metrics
from workers.telemetry.writer_metrics import WriterMetrics

DEPLOY = ROOT / "deploy"
#: Exported by Prometheus itself, and by the client library.
FOREIGN = re.compile(r"up|ALERTS|(process|python)_\w+")
_PROMQL_WORD = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_PROMQL_OTHER = re.compile(r'"[^"]*"|\{[^}]*\}|\b(?:by|without|on|ignoring)\s*\([^)]*\)|\[[^\]]*\]|\$\w+')
_PROMQL_FUNCTIONS = frozenset(
    "sum max min count avg rate increase deriv absent topk histogram_quantile and or unless vector bool".split()
)


def registries() -> list[CollectorRegistry]:
    """The registry of a worker that exports the queue and ticks, and that of a writer."""
    worker, writer = Metrics(), WriterMetrics()
    PulseMetrics(worker.registry)
    worker.queue.show({}, {})

    class Idle:
        """Stands for what the writer watches: only the names are read."""

        def __getattr__(self, _: str) -> Any:
            return self

        def __add__(self, _: object) -> Any:
            return self

        def __float__(self) -> float:
            return 0.0

    idle: Any = Idle()
    writer.watch(streams=idle, runner=idle, listener=idle, carrier=idle)
    return [worker.registry, writer.registry]


def exported() -> set[str]:
    """Every sample's name, such as ``x_total`` and ``y_seconds_bucket``, and ``y_seconds`` itself."""
    return set(_names(family for registry in registries() for family in registry.collect()))


def _names(families: Iterable[Metric]) -> Iterator[str]:
    for family in families:
        if family.type == "counter":
            yield f"{family.name}_total"
        else:
            yield family.name
        if family.type == "histogram":
            yield from (f"{family.name}_{suffix}" for suffix in ("bucket", "sum", "count"))


def used_by(expression: str) -> set[str]:
    """The metrics that a PromQL expression reads."""
    words = _PROMQL_WORD.findall(_PROMQL_OTHER.sub(" ", expression))
    return {word for word in words if word not in _PROMQL_FUNCTIONS and not FOREIGN.fullmatch(word)}


def alerts() -> dict[str, dict[str, Any]]:
    """The alert rules by name."""
    (group,) = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def panels() -> dict[str, list[str]]:
    """The expressions of each panel of the dashboard."""
    board = json.loads((DEPLOY / "grafana" / "hippocampus.json").read_text())
    return {
        panel["title"]: [target["expr"] for target in panel["targets"]]
        for panel in board["panels"]
        if panel["type"] != "row"
    }


def exposition() -> bytes:
    """What a worker and a writer answer to a scrape."""
    return b"".join(map(generate_latest, registries()))
