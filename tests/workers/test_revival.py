"""The embedded server is started again when it dies, and never in place of what it held."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import psycopg
import pytest

from tests.conftest import FAST_SETTINGS, copied
from tests.support.cli_process import is_alive
from tests.support.waiting import until
from workers.embedded import revival
from workers.embedded.server import EmbeddedServer

RUNS_AGAIN = "runs again at the same address"
HEALTHY_SECONDS = 0.4


@pytest.fixture(scope="module")
def kept_home(made: Path, home_root: Path) -> Path:
    """A home whose database has a table called kept; no server runs."""
    home = copied(made, home_root / "revived")
    with EmbeddedServer(home, settings=FAST_SETTINGS) as server, psycopg.connect(server.dsn) as connection:
        connection.execute("CREATE TABLE kept ()")
    return home


def server_pid(home: Path) -> int:
    return int((home / "postgres-18" / "postmaster.pid").read_text().split()[0])


async def kill(home: Path) -> None:
    pid = server_pid(home)
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not is_alive(pid))


async def test_it_goes_on_until_the_server_runs_again(kept_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lost data are named and not made anew, an error that nobody foresaw ends nothing, and the waits grow."""
    monkeypatch.setattr(revival, "POLL_SECONDS", 3600.0)  # The kernel reports the end.
    monkeypatch.setattr(revival, "RESTART_SECONDS_MIN", 0.1)
    monkeypatch.setattr(revival, "RESTART_SECONDS_MAX", 0.4)
    monkeypatch.setattr(revival, "HEALTHY_SECONDS", HEALTHY_SECONDS)
    data, lost = kept_home / "postgres-18", kept_home / "lost"
    password, hidden = kept_home / "password-18", kept_home / "hidden"
    changes: list[str] = []

    def failed(words: str) -> int:
        return sum(change.startswith("could not be started again") and words in change for change in changes)

    async with revival.revived(kept_home, changes.append):
        began = time.monotonic()
        await until(lambda: time.monotonic() > began + HEALTHY_SECONDS)
        pid = server_pid(kept_home)
        data.rename(lost)  # before its end is reported
        os.kill(pid, signal.SIGKILL)
        await until(lambda: failed(f"{data} of the embedded PostgreSQL is gone") >= 3)
        waits = [float(change.split(" again in ")[1].split()[0]) for change in changes if "again in" in change]
        assert waits[:3] == [0.1, 0.2, 0.4]
        assert not data.exists()
        password.rename(hidden)
        lost.rename(data)
        await until(lambda: failed(f"{password} of the embedded PostgreSQL is gone"))
        (data / "postmaster.pid").write_bytes(b"\xff")
        hidden.rename(password)
        await until(lambda: failed("UnicodeDecodeError"))
        (data / "postmaster.pid").unlink()
        await until(lambda: RUNS_AGAIN in changes)
        with EmbeddedServer(kept_home) as server, psycopg.connect(server.dsn) as connection:
            connection.execute("SELECT FROM kept")
        pid = server_pid(kept_home)
    assert not is_alive(pid)


async def test_an_end_does_not_wait_for_a_server_that_is_never_ready(kept_home: Path) -> None:
    """A standby without a primary waits for ever; the end of the block ends it."""
    data = kept_home / "postgres-18"
    pid_file = data / "postmaster.pid"
    settings, standby = data / "postgresql.auto.conf", data / "standby.signal"
    before = settings.read_text()
    try:
        async with asyncio.timeout(60):
            async with revival.revived(kept_home, lambda _: None):
                settings.write_text(f"{before}hot_standby = off\n")
                standby.touch()
                os.chown(standby, data.stat().st_uid, data.stat().st_gid)
                await kill(kept_home)
                pid_file.unlink()
                await until(lambda: pid_file.exists() and "standby" in pid_file.read_text())
                pid = server_pid(kept_home)
            assert not is_alive(pid)
    finally:
        settings.write_text(before)
        standby.unlink(missing_ok=True)
