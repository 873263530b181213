"""Turns per second of `hippocampus ingest`, in sessions short and long, against COPY of the bare texts; and its memory.

The program is a separate process; its whole run is timed.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import options
from benchmarks.server import fresh_pool, row

TURNS = 30_000
TEXT = "I moved to Lisbon last spring, and I still miss the dumplings near my old office. " * 2


def write(path: Path, turns_per_session: int) -> None:
    with path.open("w") as file:
        for session in range(TURNS // turns_per_session):
            messages = [
                {"role": "assistant" if turn % 2 else "user", "content": f"{session}.{turn} {TEXT}"}
                for turn in range(turns_per_session)
            ]
            file.write(json.dumps({"id": f"{path.stem}-{session}", "user": "ann", "messages": messages}) + "\n")


async def ingest(path: Path, dsn: str) -> tuple[float, float]:
    """Seconds, and the peak memory in MB."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "workers", "ingest", str(path)],
        env={**os.environ, "DATABASE_URL": dsn},
        stdout=subprocess.DEVNULL,
    )
    try:
        _, status, usage = await asyncio.to_thread(os.wait4, process.pid, 0)
    except asyncio.CancelledError:
        process.terminate()
        raise
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return time.perf_counter() - began, usage.ru_maxrss / 1024


async def main() -> None:
    """Print one line for each kind of file."""
    with tempfile.TemporaryDirectory() as folder:
        for turns_per_session in (10, 300):
            path = Path(folder) / f"chats{turns_per_session}.jsonl"
            write(path, turns_per_session)
            async with fresh_pool(2) as (pool, server):
                seconds, megabytes = await ingest(path, server.dsn)
                await pool.execute("CREATE TABLE bare (session text, turn int, said text)")
                began = time.perf_counter()
                rows = ((f"s{n // turns_per_session}", n % turns_per_session, f"{n} {TEXT}") for n in range(TURNS))
                await pool.copy_records_to_table("bare", records=rows)
                copied = TURNS / (time.perf_counter() - began)
                rate = TURNS / seconds
                row(
                    f"sessions of {turns_per_session} turns",
                    f"{rate:,.0f} turns/s",
                    f"{rate / copied:.3f} of COPY",
                    "3,000",
                )
                row("  memory", f"{megabytes:.0f} MB", f"file {path.stat().st_size / 2**20:.0f} MB")


if __name__ == "__main__":
    options.parser().parse_args()
    asyncio.run(main())
