"""What `make demo` costs on a machine that has nothing yet: how long it takes, and how much of the disk.

python -m benchmarks.demo

A copy of this checkout's files gets an environment of its own, with the packages of requirements.lock as they are
downloaded or taken from pip's cache, and an embedded database; then the demo runs to its end.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks import options
from benchmarks.figures import figure
from benchmarks.server import fresh_folder, row
from workers.cli import interrupts

ROOT = Path(__file__).parent.parent
#: What would lead the demo to another program, another database or a model, or `make` to another Makefile's options.
_LEFT_OUT = ("HIPPOCAMPUS_", "DATABASE_URL", "GOOGLE_API_KEY", "PYTHONPATH", "VIRTUAL_ENV", "MAKE", "MFLAGS", "FILE")
_STOP_SECONDS_MAX = 30.0


@dataclass(frozen=True, slots=True)
class Demo:
    """What one run took and left on the disk; `said` is what it printed."""

    seconds: float
    packages_bytes: int
    database_bytes: int
    said: str

    @property
    def megabytes(self) -> float:
        """Of packages and database together."""
        return (self.packages_bytes + self.database_bytes) / 1e6


def run(folder: Path) -> Demo:
    """Run `make demo` in a copy of the checkout, with its database beside it, both in this folder.

    Raises:
        RuntimeError: it failed.
    """
    checkout, home = folder / "checkout", folder / "home"
    copy(checkout)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_LEFT_OUT)}
    began = time.perf_counter()
    process = subprocess.Popen(
        ["make", "demo", f"PYTHON={sys.executable}"],
        cwd=checkout,
        env={**environment, "HIPPOCAMPUS_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate()
    finally:
        if process.returncode is None:
            # To all that it has started: the demo stops its server itself.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            process.wait(_STOP_SECONDS_MAX)
    took = time.perf_counter() - began
    if process.returncode != 0:
        raise RuntimeError(f"`make demo` ended with {process.returncode}:\n{said}")
    return Demo(took, size_of(checkout / ".venv"), size_of(home), said)


def copy(checkout: Path) -> None:
    """Copy the files of this checkout that git knows, as they are now."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (source := ROOT / name).exists():
            target = checkout / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def size_of(folder: Path) -> int:
    """Return what all files below a folder take on the disk, in bytes."""
    files = (Path(parent) / name for parent, _, names in os.walk(folder) for name in names)
    return sum(file.lstat().st_blocks * 512 for file in files)


def main() -> None:
    with fresh_folder() as folder:
        demo = run(folder)
    row("packages in its environment", f"{demo.packages_bytes / 1e6:.0f} MB")
    row("its database", f"{demo.database_bytes / 1e6:.0f} MB")
    figure("demo_seconds", demo.seconds, "downloads included")
    figure("demo_megabytes", demo.megabytes)


if __name__ == "__main__":
    options.parser().parse_args()
    interrupts.raise_on_all()
    main()
