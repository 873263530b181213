"""What the role `pulse` reports to Prometheus, beside what every worker does.

| metric | labels | meaning |
| --- | --- | --- |
| pulse_ticks_total | | ticks of this process |
| pulse_tick_duration_seconds | | from the first statement of a tick to its last |
| pulse_wake_duration_seconds | | from a call that ended the sleep to the tick |
| pulse_errors_total | source | what went wrong: rule, border, collect, tick |
| pulse_effects_total | kind, end | effects that this process ended: acked, or the code of the failure |
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from pulse.autonomic.tick import Ticked

_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)


class PulseMetrics:
    """The metrics of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._ticks = Counter("pulse_ticks_total", "Ticks.", registry=registry)
        self._seconds = Histogram("pulse_tick_duration_seconds", "Ticks.", buckets=_FAST, registry=registry)
        self._wakes = Histogram("pulse_wake_duration_seconds", "From wake to tick.", buckets=_FAST, registry=registry)
        self._errors = Counter("pulse_errors_total", "Errors.", ("source",), registry=registry)
        self._effects = Counter("pulse_effects_total", "Effects that ended.", ("kind", "end"), registry=registry)

    def observe_tick(self, ticked: Ticked) -> None:
        """Count a tick."""
        self._ticks.inc()
        self._seconds.observe(ticked.seconds)
        if ticked.wake_seconds is not None:
            self._wakes.observe(ticked.wake_seconds)
        for key, count in ticked.errors.items():
            self._errors.labels(key.partition(":")[0]).inc(count)

    def observe_end(self, kind: str, end: str) -> None:
        """Count an effect that ended."""
        self._effects.labels(kind, end).inc()
