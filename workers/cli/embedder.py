"""The models of commands: subject to the limits and the breakers that all processes share."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from hippocampus.errors import ProviderError
from hippocampus.rerank import RerankOptions
from workers.models.call_gate import embedder_gate, generator_gate, reranker_gate
from workers.models.factory import make_generator, make_query_embedder, make_reranker
from workers.telemetry.call_metrics import CallMetrics

if TYPE_CHECKING:
    from hippocampus.providers.protocols import Embedder, Generator
    from pulse.database import Pool
    from workers.settings import Settings

#: The pool of its breakers, as `hippocampus status` shows it.
ROLE = "cli"


def open_embedder(config: Settings, pool: Pool, *, ready: bool = True) -> Embedder:
    """Return the embedder that the settings name; the caller closes it. A command's metrics are not collected.

    Args:
        ready: a query waits until a model that runs in this process is loaded, for which its time may be too short.
    """
    made = make_query_embedder(config, gate=embedder_gate(config, pool, CallMetrics(CollectorRegistry()), ROLE))
    from hippocampus.providers.in_process import InProcessEmbedder

    if ready and isinstance(made, InProcessEmbedder):
        made.query_seconds = None
    return made


def open_generator(config: Settings, pool: Pool) -> Generator:
    """Return the generator that the settings name; the caller closes it. A command's metrics are not collected."""
    return make_generator(config, gate=generator_gate(config, pool, CallMetrics(CollectorRegistry()), ROLE))


@asynccontextmanager
async def reranking(config: Settings, pool: Pool, *, ready: bool = True) -> AsyncIterator[RerankOptions]:
    """Yield the arguments of searches for the reranker that the settings name, if any. Its metrics are not collected.

    Args:
        ready: wait until a model that runs in this process is loaded, for which the time of a search may be too short.
    """
    made = make_reranker(config, gate=reranker_gate(config, pool, CallMetrics(CollectorRegistry()), ROLE))
    options = RerankOptions(reranker=made, rerank_seconds=config.rerank_seconds)
    if made is None:
        yield options
        return
    from hippocampus.providers.in_process import InProcessReranker

    try:
        if ready and isinstance(made, InProcessReranker):
            # A search reports the same.
            with contextlib.suppress(ProviderError):
                await made.check()
        yield options
    finally:
        await made.close()
