"""Making thousands of objects without looking for garbage among them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Keep Python from collecting cycles in the block, which makes objects alone, and awaits nothing.

    Whoever imports ADK has some hundred thousand objects; each full collection passes over all of them, and a list of
    10,000 sessions would bring about one or two, which take as long as the list itself. What the block makes is looked
    at once afterwards. A process that has switched collecting off is left so.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
