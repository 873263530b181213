"""A program that is called as an engine of containers is, for tests of what calls it.

It notes its calls, takes memory, and runs the code without isolation where the image is called ``python``.
"""

from __future__ import annotations

import sys
from pathlib import Path

ENGINE = """import pathlib, subprocess, sys, time
log, command, given = sys.argv[1], sys.argv[2], sys.argv[3:]
named = given[given.index("--name") + 1] if command == "run" else given[-1]
with pathlib.Path(log).open("a") as file:
    file.write(f"{command} {named}\\n")
held = b"x" * (150 << 20 if command == "run" else 0)
if command == "run":
    pathlib.Path(f"{log}.run").write_text("\\n".join(given))
    image, options = given[-4], given[-3:]
    if image == "slow":
        time.sleep(600)
    if image != "python":
        sys.exit("no such image" if image == "missing" else int(image))
    sys.exit(subprocess.run([sys.executable, *options[1:]]).returncode)
sys.exit(1)
"""


def engine_command(log: Path) -> list[str]:
    """Return the engine, which adds a line to `log` for each call and writes the words of its last `run` beside it."""
    return [sys.executable, "-I", "-S", "-c", ENGINE, str(log)]


def given_to_run(log: Path) -> list[str]:
    """Return the words of the last `run`."""
    return log.with_name(f"{log.name}.run").read_text().split("\n")
