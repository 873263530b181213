"""A real worker whose pauses follow a clock that is set forward: `python -m tests.support.clocked_worker POOL`.

The file that CLOCK_FILE names holds by how many seconds. Everything else that is due is a time of the database, which
the test moves nearer by as much.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any, cast

from workers.models import call_gate
from workers.worker import main_worker


class Clock:
    """In place of the module `time`."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def monotonic(self) -> float:
        return time.monotonic() + float(self._file.read_text())


if __name__ == "__main__":
    cast("Any", call_gate).time = Clock(Path(os.environ["CLOCK_FILE"]))
    sys.exit(main_worker(sys.argv[1]))
