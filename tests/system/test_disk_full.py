"""A disk that fills up and is freed again, under appends: nothing acknowledged is lost, and appends go on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pulse import database
from pulse.events import Event
from pulse.session_service import OpenSessionService
from tests.support import cli_process
from tests.support.waiting import until
from workers.embedded.server import EmbeddedServer
from workers.migrate import migrate

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file system"),
]
#: A new cluster takes 60 MB, and its log up to twice its limit.
SIZE = "224m"
SETTINGS = {"max_wal_size": "48MB", "min_wal_size": "32MB"}
EVENT_BYTES = 8_000
#: Two segments of the log, and some data.
FREE_BYTES = 36 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = Path("/tmp") / f"hippo-full-{os.getpid()}"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=711", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()


async def test_a_full_disk_loses_no_acknowledged_event(small_disk: Path) -> None:
    """PostgreSQL may end itself where its log cannot grow: it is started again once there is space."""
    with EmbeddedServer(small_disk / "home", settings=SETTINGS) as server:
        await migrate(server.dsn)
        acknowledged = await _fill(server.dsn, small_disk)
        assert len(acknowledged) > 10
        (small_disk / "ballast").unlink()
        if not await _answers(server.dsn):
            server.stop()
            server.start()
        await until(lambda: _answers(server.dsn))
        async with await database.create_pool(server.dsn, max_size=1) as pool:
            service = OpenSessionService(pool)
            await service.append("app", "user", "s", [_event("after")])
            stored = {row["id"] for row in await pool.fetch("SELECT id FROM events")}
        assert acknowledged | {"after"} <= stored
        # The one whose acknowledgement was lost may be stored; sent again under its id, it would be stored once.
        assert len(stored - acknowledged) <= 2


async def test_doctor_finds_a_full_disk(small_disk: Path, tmp_path: Path) -> None:
    """The disk of PostgreSQL, which may be another machine's: found by what the server can write."""
    with EmbeddedServer(small_disk / "home", settings=SETTINGS) as server:
        await migrate(server.dsn)

        async def line() -> dict[str, str]:
            done = await asyncio.to_thread(cli_process.run, tmp_path, "doctor", "--json", DATABASE_URL=server.dsn)
            (found,) = [each for each in json.loads(done.stdout) if each["check"] == "database disk"]
            return dict(found)

        assert (await line())["found"] == "can be written"
        connection = await database.connect(server.dsn)
        # A fresh segment of the log, so that the log is not what has no space.
        await connection.execute("SELECT pg_switch_wal()")
        await connection.execute("CHECKPOINT")
        await connection.close()
        with (small_disk / "ballast").open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
            while True:
                ballast.write(bytes(1 << 16))
        found = await line()
        assert (found["verdict"], found["found"]) == ("problem", "full: nothing can be stored")
        assert "free space" in found["fix"]
        (small_disk / "ballast").unlink()
        assert (await line())["verdict"] == "ok"


async def _fill(dsn: str, folder: Path) -> set[str]:
    """Append until an append fails for want of space; return the events that were acknowledged."""
    acknowledged: set[str] = set()
    async with await database.create_pool(dsn, max_size=1) as pool:
        service = OpenSessionService(pool)
        await service.create_session("app", "user", session_id="s")
        with (folder / "ballast").open("wb") as ballast:
            ballast.write(bytes(max(shutil.disk_usage(folder).free - FREE_BYTES, 0)))
        for number in range(20_000):
            try:
                await service.append("app", "user", "s", [_event(f"e{number}")])
            except Exception:  # noqa: BLE001 - disk full, or a connection that PostgreSQL's end has cut
                pool.terminate()
                return acknowledged
            acknowledged.add(f"e{number}")
    raise AssertionError("the disk never filled up")


async def _answers(dsn: str) -> bool:
    try:
        async with asyncio.timeout(5):
            connection = await database.connect(dsn)
            await connection.execute("CHECKPOINT")
            await connection.close()
    except Exception:  # noqa: BLE001 - any error means not yet
        return False
    return True


def _event(own_id: str) -> Event:
    return Event(id=own_id, author="user", content={"text": os.urandom(EVENT_BYTES // 2).hex()})
