"""Pause the garbage collector while thousands of objects are created."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Suspend the collection of cycles in the block, which must only create objects or import, and not await.

    A process that imports ADK has some hundred thousand objects; each full collection traverses all of them. A list of
    10,000 sessions would cause one or two, which take as long as the list itself; they are a fifth of the time of a
    role's imports. The new objects are traversed once afterwards, unless `gc.freeze` keeps them for good. If the
    process has disabled the collector, it stays disabled.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
