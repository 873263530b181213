"""Run every benchmark, one after another: `make bench`; with FILE=… also recall on a LoCoMo file.

Each is a process with its own server, so that none affects the next.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

MEASUREMENTS = {
    "Sessions": ["benchmarks.sessions"],
    "State": ["benchmarks.state"],
    "Sessions of ADK": ["benchmarks.adk"],
    "Ingest": ["benchmarks.ingest"],
    "Live streams": ["benchmarks.streams"],
    "Jobs": ["benchmarks.enqueue_to_start"],
    "Recovery": ["benchmarks.recovery"],
    "More workers": ["benchmarks.scaling"],
    "Consolidation": ["benchmarks.consolidation"],
    "Costs": ["benchmarks.costs"],
    "Search and context": ["benchmarks.search"],
    "Limit of model calls": ["benchmarks.limiter"],
    "Forgetting": ["benchmarks.retention"],
    "Merging facts and insights": ["benchmarks.merge_thresholds"],
    "Facts of conversations": ["benchmarks.facts", "--set", "both"],
}


def recall(path: Path) -> dict[str, list[str]]:
    """Return the benchmarks of recall: with local vectors, and with sentence vectors if they are beside the file."""
    runs = {
        "Recall, local": ["benchmarks.locomo", str(path), "--provider", "local"],
        "Context windows": ["benchmarks.windows", str(path)],
    }
    vectors = path.with_name(f"{path.stem}_minilm.npz")
    if vectors.exists():
        runs["Recall, MiniLM"] = ["benchmarks.locomo", str(path), "--provider", "minilm", "--vectors", str(vectors)]
    return runs


def main(arguments: list[str]) -> int:
    """Run all of them; the exit code is the number that failed."""
    runs = dict(MEASUREMENTS)
    if arguments:
        runs |= recall(Path(arguments[0]))
    failed = 0
    for title, command in runs.items():
        print(f"\n{title}\n{'-' * len(title)}", flush=True)
        failed += subprocess.run([sys.executable, "-m", *command], check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
