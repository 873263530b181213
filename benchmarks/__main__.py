"""Run every benchmark, one after another: `make bench`; with FILE=… also recall on a LoCoMo file.

Each is a process with its own server, so that none affects the next. The figures are written to `bench.json`. The run
ends with an error where a benchmark fails, a figure misses its must (`benchmarks.figures`), or one is not reported. Of
those that need FILE=… it only says that they were not measured, where it is not given.
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
from benchmarks.figures import FIGURES, FILE_VARIABLE, collect, unmeasured
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
    "Demo": ["benchmarks.demo"],
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
    vectors = minilm_of(path)
    if vectors.exists():
        minilm = ["--provider", "minilm", "--vectors", str(vectors), "--sources", "default"]
        runs["Recall, MiniLM"] = ["benchmarks.locomo", str(path), *minilm]
    return runs


def minilm_of(path: Path) -> Path:
    """Where the vectors of MiniLM for a file are, if there are any."""
    return path.with_name(f"{path.stem}_minilm.npz")


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
    """Run all of them; the exit code counts failed benchmarks, missed musts and figures that were not reported."""
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
    minilm = file is not None and minilm_of(file).exists()
    absent, unasked = unmeasured(figures, file=file is not None, minilm=minilm)
    report = {
        "at": datetime.now(UTC).isoformat(),
        "figures": figures,
        "failed": failed,
        "missed": missed,
        "absent": absent,
        "not_measured": unasked,
    }
    RESULT.write_text(json.dumps(report, indent=2) + "\n")
    print(f"\n{len(figures)} figures in {RESULT}; failed: {failed or 'none'}; below their must: {missed or 'none'}")
    print(f"not reported by their benchmark: {absent or 'none'}")
    by_hand = [name for name in unasked if FIGURES[name].by_hand]
    if without := [name for name in unasked if name not in by_hand]:
        lacks = "FILE=…" if file is None else f"{minilm_of(file).name} beside the file"
        print(f"not measured without {lacks}: {without}")
    if by_hand:
        print(f"measured by hand only: {by_hand}")
    return min(len(failed) + len(missed) + len(absent), 100)


if __name__ == "__main__":
    parser = options.parser()
    parser.add_argument("file", nargs="?", type=Path, help="a LoCoMo file")
    given = parser.parse_args()
    if given.file is not None and not given.file.is_file():
        parser.error(f"there is no file {given.file}; one benchmark is run as `python -m benchmarks.NAME`")
    interrupts.raise_on_all()
    sys.exit(main(given.file))
