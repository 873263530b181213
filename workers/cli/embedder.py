"""The models of commands: subject to the limits and the breakers that all processes share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from workers.models.call_gate import embedder_gate, generator_gate
from workers.models.factory import make_generator, make_query_embedder
from workers.telemetry.call_metrics import CallMetrics

if TYPE_CHECKING:
    from hippocampus.providers.protocols import Embedder, Generator
    from pulse.database import Pool
    from workers.settings import Settings

#: The pool of its breakers, as `hippocampus status` shows it.
ROLE = "cli"


def open_embedder(config: Settings, pool: Pool) -> Embedder:
    """Return the embedder that the settings name; the caller closes it. A command's metrics are not collected."""
    return make_query_embedder(config, gate=embedder_gate(config, pool, CallMetrics(CollectorRegistry()), ROLE))


def open_generator(config: Settings, pool: Pool) -> Generator:
    """Return the generator that the settings name; the caller closes it. A command's metrics are not collected."""
    return make_generator(config, gate=generator_gate(config, pool, CallMetrics(CollectorRegistry()), ROLE))
