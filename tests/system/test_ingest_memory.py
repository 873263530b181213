"""A file larger than the program's memory limit is ingested completely."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from tests.support import cli_process

pytestmark = pytest.mark.system

FILE_BYTES = 200 * 2**20
TURNS = 21_000
MEMORY_BYTES_MAX = 200 * 2**20
# Linux counts the memory that a process had before its exec, which is that of the program it was forked from: the
# suite's own. A small program between the two resets the count.
MEASURE = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=sys.stderr, check=False).returncode
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""


async def test_a_file_of_200_mb_takes_less_memory_than_that(dsn: str, pool: asyncpg.Pool, tmp_path: Path) -> None:
    """One array of messages, ten kilobytes each; every one is stored."""
    path = tmp_path / "large.json"
    with path.open("w") as file:
        file.write("[")
        for place in range(TURNS):
            row = {"role": "user", "session_id": f"s{place // 700}", "content": f"{place} " + "word " * 2_000}
            file.write(("," if place else "") + json.dumps(row) + "\n")
        file.write("]")
    assert path.stat().st_size > FILE_BYTES
    measured = subprocess.run(
        [sys.executable, "-c", MEASURE, sys.executable, "-P", "-m", "workers", "ingest", str(path)],
        env=cli_process.environment(tmp_path / "home", DATABASE_URL=dsn),
        stdout=subprocess.PIPE,
        check=True,
    )
    exit_code, memory_bytes = map(int, measured.stdout.split())
    assert exit_code == 0
    assert memory_bytes < MEMORY_BYTES_MAX
    assert await pool.fetchval("SELECT count(*) FROM events") == TURNS
