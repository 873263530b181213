"""`make demo` on a machine that has nothing yet, within its time and its disk: own environment, own database."""

from __future__ import annotations

import pytest

from benchmarks import demo
from benchmarks.figures import FIGURES
from benchmarks.server import fresh_folder
from tests.support import cli_process
from tests.support.pace import slowdown

pytestmark = [pytest.mark.system, pytest.mark.timing, pytest.mark.timeout(900)]


def test_make_demo_shows_memories_within_its_time_and_its_disk() -> None:
    """In a copy of this checkout. The time is for a quiet machine, and extended by the current load."""
    with fresh_folder() as folder:
        before = slowdown()
        done = demo.run(folder)
        pace = max(before, slowdown()) ** 2
        assert cli_process.processes_of(folder / "home") == []
    assert "Summaries (8)" in done.said
    assert "Facts (" in done.said
    assert done.packages_bytes > 50e6
    assert done.database_bytes > 10e6
    assert FIGURES["demo_megabytes"].is_met(done.megabytes), done
    assert FIGURES["demo_seconds"].is_met(done.seconds / pace), (done.seconds, pace)
