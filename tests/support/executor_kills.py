"""Ends an executor in its own process at a named point."""

from __future__ import annotations

import os
from pathlib import Path

import asyncpg

from pulse.runs.service import RunService
from tests.support.forked import ForkedProcess
from tests.support.waiting import until


async def killed(pool: asyncpg.Pool, module: str, folder: Path, dsn: str, point: str, *given: str) -> None:
    """Have a process of its own execute `module`, until it kills itself at a point and its run has ended."""
    log = folder / f"{point}.log"
    process = ForkedProcess(module, dsn, point, *given, environment=os.environ, log=log)
    try:
        await until(lambda: process.poll() is not None, point)
    finally:
        process.kill()
    assert process.returncode == -9, (point, log.read_text())
    runs = RunService(pool)

    async def ended() -> bool:
        await runs.reap()
        return bool(await pool.fetchval("SELECT count(*) = 0 FROM runs WHERE status = 'running'"))

    await until(ended, point)
