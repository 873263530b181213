"""The worker pools: which processes serve which queues. One kind of work never waits for another."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType


class UnknownPoolError(ValueError):
    """There is no worker pool of this name. The message lists those that there are."""


@dataclass(frozen=True, slots=True)
class WorkerPool:
    """What a process of this pool does. Its concurrency and its metrics port are settings under its name."""

    name: str
    queues: tuple[str, ...]
    is_scheduler: bool = False  # enqueues the periodic tasks, and exports the metrics of the queue as a whole


POOLS = MappingProxyType(
    {
        pool.name: pool
        for pool in (
            WorkerPool("fast_replay", ("fast_replay",)),
            WorkerPool("deep_reflection", ("deep_reflection",)),
            WorkerPool("retention", ("maintenance", "embedding", "webhooks", "knowledge"), is_scheduler=True),
            # Beside `effects`, each process serves the queue of its machine.
            WorkerPool("pulse", ("effects",)),
        )
    }
)


def get_pool(name: str) -> WorkerPool:
    """Return a pool by its name.

    Raises:
        UnknownPoolError: there is none.
    """
    if name not in POOLS:
        raise UnknownPoolError(f"There is no worker pool {name!r}; there are {', '.join(POOLS)}.")
    return POOLS[name]
