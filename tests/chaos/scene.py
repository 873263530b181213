"""The environment of a run: a durable PostgreSQL, a failing Gemini, the roles. All of it is removed afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.chaos import roles
from tests.support import least_privilege
from tests.support.cli_process import is_alive
from tests.support.paths import ROOT
from tests.support.stalling_proxy import StallingProxy, stalling_proxy
from workers.embedded import keeper
from workers.embedded.server import EmbeddedServer
from workers.migrate import migrate

FAULT_RATE = 0.2
LATENCY_SECONDS = 0.4
PROCESSES = {"writer": 1, "fast_replay": 2, "deep_reflection": 2, "retention": 2, "pulse": 2}
READY_SECONDS_MAX = 60.0
DEATH_SECONDS_MAX = 10.0

#: Everything that takes long in production takes seconds here, so that it happens often.
SETTINGS = {
    "GOOGLE_API_KEY": "AIza-not-a-key-0123456789abcdefghij",
    "HIPPOCAMPUS_GENERATE_TIMEOUT_SECONDS": "2",
    "HIPPOCAMPUS_EMBED_TIMEOUT_SECONDS": "2",
    "HIPPOCAMPUS_RETRY_BASE_SECONDS": "0.2",
    "HIPPOCAMPUS_RETRY_DELAY_SECONDS_MAX": "5",
    "HIPPOCAMPUS_RETENTION_CRON": "* * * * * */15",
    "HIPPOCAMPUS_SLICE_TOKENS": "200",
    "HIPPOCAMPUS_GENERATE_CALLS_PER_SECOND": "50",
    "HIPPOCAMPUS_EMBED_CALLS_PER_SECOND": "50",
    # One process could do the work of both: the recovery time of a job is measured, not its queueing time.
    "HIPPOCAMPUS_FAST_REPLAY_CONCURRENCY": "8",
    "HIPPOCAMPUS_DEEP_REFLECTION_CONCURRENCY": "8",
    "HIPPOCAMPUS_DATABASE_POOL_SIZE": "12",
    # The drill starts the roles. What the autonomic layer decides is executed, with a command that does nothing.
    "HIPPOCAMPUS_PULSE_RESTART": "remote_command",
    "HIPPOCAMPUS_PULSE_RESTART_COMMAND": "true",
    "HIPPOCAMPUS_PULSE_DISKS": "",
}
POLICY = {"fast_events": 5, "fast_idle_seconds": 5, "deep_tokens": 120, "deep_idle_seconds": 10}


@dataclass(frozen=True, slots=True)
class Scene:
    """A running environment.

    Attributes:
        dsn: of the server itself.
        network: between the roles and the server.
    """

    server: EmbeddedServer
    dsn: str
    network: StallingProxy
    slots: tuple[roles.Slot, ...]
    api_url: str
    gemini_url: str

    async def restart_database(self) -> None:
        """Stop PostgreSQL as a crash would, and start it again."""
        await asyncio.to_thread(_restart, self.server)
        if self.server.dsn != self.dsn:
            raise RuntimeError("another program took the database's port during its restart; run again")

    async def late(self) -> list[str]:
        """Wait until a process of each slot is ready; return the slots that are not ready in time."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while late := [slot.name for slot in self.slots if not slot.is_ready]:
            if time.monotonic() > deadline:
                return late
            await asyncio.sleep(0.05)
        return []


@contextlib.contextmanager
def folder_of_a_run(keep_logs: list[str]) -> Iterator[Path]:
    """A short folder that the server's user can enter; deleted, unless files were written to `keep_logs`."""
    folder = Path(tempfile.mkdtemp(prefix="hippo-chaos-", dir="/tmp"))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder / "home", ignore_errors=True)
        if not keep_logs:
            shutil.rmtree(folder)


@contextlib.asynccontextmanager
async def set_scene(folder: Path, seed: int) -> AsyncIterator[Scene]:
    """Start everything; stop it gracefully, or kill it if that fails."""
    home = folder / "home"
    with EmbeddedServer(home) as server, keeper.kept(home, grace_seconds=0.1):
        await migrate(server.dsn)
        await asyncio.to_thread(least_privilege.grant, server.dsn)
        async with _gemini(seed, folder) as gemini_url, stalling_proxy(server.dsn) as network:
            slots, port = _slots(network.dsn, gemini_url, folder)
            supervisors = [asyncio.create_task(slot.keep(), name=slot.name) for slot in slots]
            try:
                yield Scene(server, server.dsn, network, slots, f"http://127.0.0.1:{port}", gemini_url)
                await asyncio.gather(*(slot.end() for slot in slots))
                await asyncio.wait_for(asyncio.gather(*supervisors), DEATH_SECONDS_MAX)
            finally:
                for slot in slots:
                    slot.kill()
                await asyncio.gather(*supervisors, return_exceptions=True)


def _slots(dsn: str, gemini_url: str, folder: Path) -> tuple[tuple[roles.Slot, ...], int]:
    port = _free_port()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("HIPPOCAMPUS_")},
        **SETTINGS,
        "PYTHONPATH": str(ROOT),
        "HIPPOCAMPUS_PROVIDER_BASE_URL": gemini_url,
        "HIPPOCAMPUS_API_PORT": str(port),
    }
    commands = roles.commands()
    if commands.keys() != PROCESSES.keys():
        raise RuntimeError(f"the Procfile has the roles {', '.join(commands)}; set the number of processes of each")
    return tuple(
        roles.Slot(f"{role}-{number}", role, words, _placed(environment, dsn, role, number), folder)
        for role, words in commands.items()
        for number in range(1, PROCESSES[role] + 1)
    ), port


def _placed(environment: dict[str, str], dsn: str, role: str, number: int) -> dict[str, str]:
    """Return a slot's environment: on machines of their own, those that tick end no process of the others."""
    login = least_privilege.LOGINS["writer" if role == "writer" else "worker"]
    own = {"HIPPOCAMPUS_MACHINE": f"{role}-{number}"} if role == "pulse" else {}
    return {**environment, **own, "DATABASE_URL": least_privilege.as_login(dsn, login)}


@contextlib.asynccontextmanager
async def _gemini(seed: int, folder: Path) -> AsyncIterator[str]:
    with (folder / "gemini.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.support.fake_gemini", "--seed", str(seed), "--every-kind"),
            *("--faults", str(FAULT_RATE), "--latency-seconds", str(LATENCY_SECONDS)),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            preexec_fn=roles.die_with_parent,
            start_new_session=True,
        )
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), READY_SECONDS_MAX)).decode()
        yield line.removeprefix("listening on ").strip()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def _restart(server: EmbeddedServer) -> None:
    pid = server.pid
    os.kill(pid, signal.SIGQUIT)
    deadline = time.monotonic() + DEATH_SECONDS_MAX
    while is_alive(pid):
        if time.monotonic() > deadline:
            raise TimeoutError(f"PostgreSQL did not stop within {DEATH_SECONDS_MAX:g} s of SIGQUIT")
        time.sleep(0.01)
    server.stop()  # The keeper holds the server too: this only releases the dead one.
    server.start()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
