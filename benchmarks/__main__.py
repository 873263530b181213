"""Run every benchmark, one after another: `make bench`; with FILE=… also recall on a LoCoMo file.

Each is a process with its own server, so that none affects the next. The figures are written to `bench.json`, and the
run ends with an error where a benchmark fails or a figure misses its must (`benchmarks.figures`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import options
from benchmarks.figures import FILE_VARIABLE, collect
from workers.cli import interrupts

MEASUREMENTS = {
    "Sessions": ["benchmarks.sessions"],
    "State": ["benchmarks.state"],
    "Sessions of ADK": ["benchmarks.adk"],
    "Ingest": ["benchmarks.ingest"],
    "Live streams": ["benchmarks.streams"],
    "Jobs": ["benchmarks.enqueue_to_start"],
    "Recovery": ["benchmarks.recovery"],
    "Start": ["benchmarks.starting"],
    "Idle": ["benchmarks.idle"],
    "Idle, with the role pulse": ["benchmarks.idle", "--pulse"],
    "Autonomic layer": ["benchmarks.autonomic"],
    "More workers": ["benchmarks.scaling"],
    "Growth": ["benchmarks.growth", "100000", "500000"],
    "Moving an app": ["benchmarks.moving"],
    "Consolidation": ["benchmarks.consolidation"],
    "Costs": ["benchmarks.costs"],
    "Search and context": ["benchmarks.search"],
    "Knowledge": ["benchmarks.knowledge"],
    "Limit of model calls": ["benchmarks.limiter"],
    "Tracing": ["benchmarks.tracing"],
    "Tools and sandbox": ["benchmarks.tools"],
    "Forgetting": ["benchmarks.retention"],
    "Merging facts and insights": ["benchmarks.merge_thresholds"],
    "Facts of conversations": ["benchmarks.facts", "--set", "unread"],
}


RESULT = Path("bench.json")


def recall(path: Path) -> dict[str, list[str]]:
    """The benchmarks of recall by default calls: with local vectors, and with those of MiniLM if they lie beside."""
    runs = {
        "Recall, local": ["benchmarks.locomo", str(path), "--sources", "default"],
        "Context windows": ["benchmarks.windows", str(path)],
    }
    vectors = path.with_name(f"{path.stem}_minilm.npz")
    if vectors.exists():
        minilm = ["--provider", "minilm", "--vectors", str(vectors), "--sources", "default"]
        runs["Recall, MiniLM"] = ["benchmarks.locomo", str(path), *minilm]
    return runs


def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a benchmark and return its exit code; interrupted, let it end what it has started."""
    process = subprocess.Popen(command, env=environment)
    try:
        return process.wait()
    finally:
        with interrupts.postponed():
            process.terminate()
            process.wait()


def main(file: Path | None = None) -> int:
    """Run all of them; the exit code is the number of benchmarks that failed and of musts that were missed."""
    runs = dict(MEASUREMENTS)
    if file is not None:
        runs |= recall(file)
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        reported = Path(folder) / "figures"
        reported.touch()
        for title, command in runs.items():
            print(f"\n{title}\n{'-' * len(title)}", flush=True)
            environment = {**os.environ, FILE_VARIABLE: str(reported)}
            if run([sys.executable, "-m", *command], environment) != 0:
                failed.append(title)
        figures = collect(reported)
    missed = [name for name, each in figures.items() if not each["met"]]
    report = {"at": datetime.now(UTC).isoformat(), "figures": figures, "failed": failed, "missed": missed}
    RESULT.write_text(json.dumps(report, indent=2) + "\n")
    print(f"\n{len(figures)} figures in {RESULT}; failed: {failed or 'none'}; below their must: {missed or 'none'}")
    return min(len(failed) + len(missed), 100)


if __name__ == "__main__":
    parser = options.parser()
    parser.add_argument("file", nargs="?", type=Path, help="a LoCoMo file")
    given = parser.parse_args()
    if given.file is not None and not given.file.is_file():
        parser.error(f"there is no file {given.file}; one benchmark is run as `python -m benchmarks.NAME`")
    interrupts.raise_on_all()
    sys.exit(main(given.file))
