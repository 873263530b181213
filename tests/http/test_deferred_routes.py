"""Routes that are made when they are first read."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pulse.http.edge.routing import DeferredRoute


def test_a_thread_that_reads_a_route_waits_while_another_makes_it() -> None:
    """Neither finds a route that lacks a part; a name that no route has is still an AttributeError."""
    begun, may_end = threading.Event(), threading.Event()

    class SlowRoute(DeferredRoute):
        def _make(self, options: Mapping[str, Any]) -> None:
            begun.set()
            assert may_end.wait(30)
            super()._make(options)

    async def answer(number: int) -> int:
        return number

    route = SlowRoute("/numbers", answer)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(lambda: route.dependant)
        assert begun.wait(30)
        second = threads.submit(lambda: route.dependant)
        try:
            with pytest.raises(TimeoutError):
                second.result(timeout=0.2)
        finally:
            may_end.set()
        assert first.result() is second.result()
    with pytest.raises(AttributeError, match="no_such_part"):
        route.no_such_part  # noqa: B018 - reading it is the point
