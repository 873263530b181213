"""Log lines never repeat the text of an exception or of a library's message."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.support.paths import ROOT

SCRIPT = """
import logging
import structlog
from workers.process import logs

logs.configure("debug", "json")
log = structlog.get_logger("ours")

def break_it():
    raise ValueError("SECRET value")

structlog.contextvars.bind_contextvars(job_id="j1", attempt=2)
log.info("plain", count=3)
try:
    break_it()
except ValueError:
    log.exception("ours failed")
    logging.getLogger("theirs").exception("theirs failed: %s", "SECRET argument")
    logging.getLogger("procrastinate.worker").error("SECRET outcome", extra={"action": "job_error"})
"""


def test_exceptions_are_named_and_not_quoted() -> None:
    """For our lines and those of any library: the class and the locations, the bound ids, no
    message and no argument."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "SECRET" not in done.stderr + done.stdout
    plain, ours, theirs = (json.loads(line) for line in done.stderr.splitlines())
    assert (plain["event"], plain["count"], plain["job_id"], plain["attempt"]) == ("plain", 3, "j1", 2)
    assert plain["level"] == "info"
    assert plain["timestamp"].endswith("Z")
    for line, name in ((ours, "ours"), (theirs, "theirs")):
        assert line["logger"] == name
        assert line["error_type"] == "ValueError"
        assert line["frames"][-1].endswith("break_it")
