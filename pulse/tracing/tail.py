"""Decides at the end of a trace what is exported: what was sampled, and any trace with an error."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

Ended = TypeVar("Ended")

#: Traces that were not sampled and still run, and spans of one, that are kept for the case of an error.
TRACES_MAX: Final = 512
SPANS_MAX: Final = 512


class Tail(Generic[Ended]):
    """Exports a sampled span as it ends, and the spans of another trace if one of them failed.

    That is known when the trace's first span in this process ends. A trace that is longer than `SPANS_MAX` keeps its
    newest spans.
    """

    def __init__(self, export: Callable[[Ended], None]) -> None:
        self._export = export
        self._lock = threading.Lock()
        self._held: dict[str, list[Ended]] = {}
        self._failed: set[str] = set()

    def end(self, span: Ended, *, trace_id: str, is_root: bool, is_sampled: bool, has_failed: bool) -> None:
        """Take a span that has ended."""
        if is_sampled:
            self._export(span)
            return
        with self._lock:
            if trace_id not in self._held and len(self._held) >= TRACES_MAX:
                oldest = next(iter(self._held))
                del self._held[oldest]
                self._failed.discard(oldest)
            held = self._held.setdefault(trace_id, [])
            held.append(span)
            if len(held) > SPANS_MAX:
                del held[0]
            if has_failed:
                self._failed.add(trace_id)
            if not is_root:
                return
            kept = self._held.pop(trace_id)
            is_kept = trace_id in self._failed
            self._failed.discard(trace_id)
        if is_kept:
            for each in kept:
                self._export(each)
