"""AG-UI's own client, in the current version and the last one before 1.0, against a real writer."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stream_client import OWNER
from tests.support.writer_process import KEY, WriterProcess

pytestmark = pytest.mark.system

SCENARIOS = 13


@pytest.fixture(scope="module")
def writer(agents_dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WriterProcess]:
    log = tmp_path_factory.mktemp("clients") / "log"
    with WriterProcess(agents_dsn, log, module="tests.support.stream_agents", api_key=KEY) as process:
        yield process


@pytest.mark.parametrize("package", ["@ag-ui/client", "client-before-1"])
def test_real_client_accepts_every_stream(writer: WriterProcess, node_folder: Path, package: str) -> None:
    """Text, tools, state, errors, cancel, interrupts, an agent's own events, edits and further runs, over POST, GET and
    WebSocket: the client's pipeline accepts each stream without a warning, sees its end, and shows the same."""
    headers = json.dumps({"Authorization": f"Bearer {KEY}", **OWNER})
    done = subprocess.run(
        ["node", "check.mjs", package, writer.url],
        check=False,
        cwd=node_folder,
        env={**os.environ, "CHECK_HEADERS": headers},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert {name: outcome for name, outcome in report.items() if outcome != "ok"} == {}
    assert len(report) == SCENARIOS
