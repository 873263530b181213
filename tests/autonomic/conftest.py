"""What every test of the autonomic layer needs."""

from __future__ import annotations

import pytest

from pulse.autonomic import onion
from workers.autonomic import sandbox


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause of this machine is no fault of a rule; those that never end still meet a limit."""
    monkeypatch.setattr(onion, "BUSINESS_SECONDS_MAX", 30.0)
    monkeypatch.setattr(sandbox, "REQUEST_SECONDS_MAX", 30.0)
    monkeypatch.setitem(sandbox.Sandbox.__init__.__kwdefaults__, "wait_seconds", 30.0)  # bound at the definition
    for limits in (sandbox.LIMITS, sandbox.PART_LIMITS):
        monkeypatch.setitem(limits, "max_feed_duration_secs", 1.0)
