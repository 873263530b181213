"""A plugin of pytest: `subprocess.TimeoutExpired` keeps what its command had printed, and shows nothing of it."""

from __future__ import annotations

import subprocess
from collections.abc import Generator

import pytest

#: Enough for a traceback, or for the last tests of a run.
CHARACTERS_MAX = 4_000


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """End the message of a command's time-out with the end of what it had printed."""
    error = call.excinfo.value if call.excinfo is not None else None
    if isinstance(error, subprocess.TimeoutExpired):
        for printed in (error.stdout, error.stderr):
            if printed:
                text = printed.decode(errors="replace") if isinstance(printed, bytes) else printed
                error.add_note(text[-CHARACTERS_MAX:])
    return (yield)
