"""How a role is started again: by what supervises it, by this process, or by an operator's command."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from workers import settings as configuration
from workers.process.roles import KILL_MARGIN_SECONDS, ROLES
from workers.settings import Settings

COMMAND_SECONDS_MAX = 60.0
POLL_SECONDS = 0.05
#: A process registers itself a moment after it began: one of the same id that began at another time is another one.
START_SECONDS_BEFORE = 120.0
START_SECONDS_AFTER = 5.0


class CommandFailedError(Exception):
    """An operator's command failed. `code` says how."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Restarter(Protocol):
    """Starts a role again whose process has ended."""

    async def start(self, process: Mapping[str, Any]) -> None:
        """Start what a process did: its role, machine and former id are in `process`."""


class Supervised:
    """Leaves it to what started the process: `hippocampus up`, systemd with Restart=, a pod's restart policy."""

    async def start(self, process: Mapping[str, Any]) -> None:
        """Do nothing: the end of the process was enough."""


class Spawning:
    """Starts the role as a process of its own, which outlives this one."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[bytes]] = []

    async def start(self, process: Mapping[str, Any]) -> None:
        """Start the role."""
        self._started = [each for each in self._started if each.poll() is None]
        role = next((each for each in ROLES if each.name == process["role"]), None)
        if role is None:
            raise CommandFailedError("unknown_role")
        self._started.append(
            subprocess.Popen(  # noqa: S603, ASYNC220 - our own program; it returns at once
                [sys.executable, "-P", "-m", "workers", *role.arguments],
                env=configuration.child_environment(PYTHONPATH=configuration.import_path()),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        )


class Commanded:
    """Runs the operator's command, such as `kubectl delete pod $MACHINE`."""

    def __init__(self, command: str) -> None:
        self._command = command

    async def start(self, process: Mapping[str, Any]) -> None:
        """Run the command."""
        await run_command(self._command, ROLE=process["role"], MACHINE=process["machine"], PID=str(process["pid"]))


def make_restarter(settings: Settings) -> Restarter:
    """Return the way that the settings name."""
    if settings.pulse_restart == "spawn":
        return Spawning()
    if settings.pulse_restart == "supervisor":
        return Supervised()
    return Commanded(settings.pulse_restart_command)


async def end_process(pid: int, registered_at: float, *, grace_seconds: float) -> bool:
    """End a process of ours: SIGTERM, then SIGKILL; return whether it still ran.

    A process of the same id that began at another time is left alone.
    """
    if not is_same(pid, registered_at):
        return False
    for number, seconds in ((signal.SIGTERM, grace_seconds + KILL_MARGIN_SECONDS), (signal.SIGKILL, 5.0)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not is_same(pid, registered_at):
                return True
            await asyncio.sleep(POLL_SECONDS)
    raise CommandFailedError("not_ended")


def is_same(pid: int, registered_at: float) -> bool:
    """Whether a process runs that registered itself at this Unix time, and is not a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = next(
            int(line.split()[1]) for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime ")
        )
    except (OSError, StopIteration):
        return False
    began = boot + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return fields[0] != "Z" and -START_SECONDS_AFTER <= registered_at - began <= START_SECONDS_BEFORE


async def run_command(command: str, given: bytes = b"", **environment: str) -> None:
    """Run a shell command of the operator.

    Raises:
        CommandFailedError: it did not exit with 0 within a minute.
    """
    if not command:
        raise CommandFailedError("no_command")
    process = await asyncio.create_subprocess_shell(
        command,
        env=configuration.child_environment(**environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(COMMAND_SECONDS_MAX):
            await process.communicate(given)
    except TimeoutError:
        raise CommandFailedError("timeout") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode != 0:
        raise CommandFailedError(f"exit_{process.returncode}")
