"""What an idle installation costs: processor time of every role, of `hippocampus up`, and of its PostgreSQL.

    python -m benchmarks.idle [--seconds 180] [--settle 45] [--pulse]

It starts `hippocampus up` with an embedded server in a new folder, waits until the start is over, and compares the
processes' clocks at both ends of the time. Processes that ended in between, such as autovacuum's, which begins every
three minutes, count through their parent (/proc/PID/stat, in hundredths of a second). Roles are named by what they
reported of themselves, which is read after the measurement.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psycopg

from benchmarks import options
from benchmarks.figures import figure
from benchmarks.server import fresh_folder, row
from workers.cli import interrupts
from workers.embedded.data import DATABASE, ROLE

READY_SECONDS_MAX = 90.0
STOP_SECONDS_MAX = 20.0
_TICKS = os.sysconf("SC_CLK_TCK")


class Clock(NamedTuple):
    """What a process has used, with its ended children, and how often it gave up the processor by itself."""

    name: str
    seconds: float
    wakes: int


def read_all(home: str) -> dict[int, Clock]:
    """Return the clocks of the processes that name this folder in their arguments or environment, by process id.

    With their descendants: the server is not a child of `up`, and its processes have titles in place of arguments.
    """
    parents: dict[int, int] = {}
    roots = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(ValueError, OSError):
            pid = int(entry.name)
            parents[pid] = int(_stat(pid)[1])
            if any(home.encode() in (entry / file).read_bytes() for file in ("cmdline", "environ")):
                roots.add(pid)
    found: dict[int, Clock] = {}
    for pid in parents:
        above = pid
        while above not in roots and above in parents:
            above = parents[above]
        if above in roots:
            with contextlib.suppress(OSError):
                found[pid] = clock_of(pid)
    return found


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def clock_of(pid: int) -> Clock:
    """Read the clocks of a process. Its own is exact: half a hundred processes that use a few milliseconds each would
    be rounded by more than they use."""
    of_children = sum(map(int, _stat(pid)[13:15])) / _TICKS
    seconds = time.clock_gettime((~pid << 3) | 2) + of_children  # clock_getcpuclockid(3)
    status = Path(f"/proc/{pid}/task").glob("*/status")
    lines = (line for path in status for line in path.read_text().splitlines())
    wakes = sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
    command = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
    return Clock(_name(command), seconds, wakes)


def _name(command: str) -> str:
    if command.startswith("postgres:"):
        words = command.removeprefix("postgres:").split()
        return f"postgres: {' '.join(word for word in words if word != 'idle')}"[:57]
    _, _, role = command.partition("-m workers ")
    return role.removesuffix(" --with-parent") or Path(command.split(" ", maxsplit=1)[0]).name


@contextlib.contextmanager
def installation(*, with_pulse: bool) -> Iterator[str]:
    """Run every role on an embedded server in a new folder, `pulse` if it is asked for, and return the folder."""
    interrupts.raise_on_all()
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    with fresh_folder() as folder:
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "HIPPOCAMPUS_HOME": str(folder / "home"),
            "HIPPOCAMPUS_API_PORT": str(port),
            "HIPPOCAMPUS_PULSE_ENABLED": str(with_pulse).lower(),
        }
        command = [sys.executable, "-m", "workers", "up"]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        try:
            _wait_until_ready(port, process)
            yield str(folder)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(STOP_SECONDS_MAX)


def _wait_until_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + READY_SECONDS_MAX
    while True:
        with contextlib.suppress(OSError, urllib.error.URLError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("hippocampus up did not become ready")
        time.sleep(0.2)


def roles_of(home: str) -> dict[int, str]:
    """Return the roles that reported to an installation's database, by process id."""
    folder = Path(home) / "home"
    port, password = (int((folder / "port-18").read_text()), (folder / "password-18").read_text().strip())
    with psycopg.connect(host="127.0.0.1", port=port, user=ROLE, password=password, dbname=DATABASE) as connection:
        return dict(connection.execute("SELECT pid, role FROM metrics_targets").fetchall())


def measure(home: str, seconds: float) -> dict[int, Clock]:
    """Return what each process of an installation used in this time."""
    before = read_all(home)
    time.sleep(seconds)
    after = read_all(home)
    none = Clock("", 0.0, 0)
    return {
        pid: Clock(now.name, now.seconds - before.get(pid, none).seconds, now.wakes - before.get(pid, none).wakes)
        for pid, now in after.items()
    }


def main() -> None:
    """Print a line for each process and the sum."""
    parser = options.parser()
    parser.add_argument("--seconds", type=float, default=180.0, help="how long to measure")
    parser.add_argument("--settle", type=float, default=45.0, help="how long to wait before")
    parser.add_argument("--pulse", action="store_true", help="with the role pulse, which `up` leaves out by default")
    given = parser.parse_args()
    with installation(with_pulse=given.pulse) as home:
        time.sleep(given.settle)
        used = measure(home, given.seconds)
        roles = roles_of(home)
    row("process", "% of a core", "wakes/s")
    for pid, clock in sorted(used.items(), key=lambda each: -each[1].seconds):
        row(
            roles.get(pid, clock.name),
            f"{100 * clock.seconds / given.seconds:.3f}",
            f"{clock.wakes / given.seconds:.1f}",
        )
    share = sum(clock.seconds for clock in used.values()) / given.seconds
    wakes = sum(clock.wakes for clock in used.values()) / given.seconds
    row("together", f"{100 * share:.3f}", f"{wakes:.1f}")
    figure("idle_share_pulse" if given.pulse else "idle_share", 100 * share)


if __name__ == "__main__":
    main()
