"""Tracing of one of our processes, by its settings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pulse.tracing.manager import TracingManager
from pulse.tracing.table import CLOSE_SECONDS_MAX
from workers.process import signals

#: The least time for sending what is queued, even if the process has used up its grace time.
CLOSE_SECONDS_MIN = 0.3

if TYPE_CHECKING:
    from workers.settings import Settings


@contextlib.contextmanager
def traced(settings: Settings, role: str) -> Iterator[None]:
    """Make spans within the block, and send what is queued at its end, within what is left of the grace time.

    Raises:
        InvalidInputError: OTLP is set, and the extra that it needs is not installed.
    """
    ways = settings.tracing.split(",")
    manager = TracingManager(
        f"hippocampus-{role}",
        settings.dsn if "postgres" in ways else None,
        settings.otlp_endpoint if "otlp" in ways else None,
        schema=settings.schema_name,
        otlp_headers=settings.otlp_header_values(),
        sample_ratio=settings.trace_sample_ratio,
        content=settings.trace_content,
    )
    manager.start()
    try:
        yield
    finally:
        left = settings.shutdown_grace_seconds - signals.seconds_since_stop()
        manager.close(min(CLOSE_SECONDS_MAX, max(left, CLOSE_SECONDS_MIN)))
