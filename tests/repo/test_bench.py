"""`make bench` ends with an error where a figure misses its must or a benchmark fails, and writes both as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import __main__ as bench
from benchmarks.figures import FIGURES

#: A benchmark that reports what its arguments say, and fails where they say so.
REPORT = """
import sys
from benchmarks.figures import figure
for name, value in zip(sys.argv[1::2], sys.argv[2::2]):
    if name == "fail":
        raise SystemExit(2)
    figure(name, float(value))
"""


def test_a_missed_must_and_a_failure_are_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "reporting.py").write_text(REPORT)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(bench.__file__).parent.parent}")
    monkeypatch.setattr(bench, "RESULT", tmp_path / "bench.json")
    slow, fine = FIGURES["notify_p99"].must * 2, FIGURES["append_vs_sql"].must + 0.1

    def run(*benchmarks: list[str]) -> tuple[int, dict[str, object]]:
        runs = {f"Benchmark {number}": ["reporting", *each] for number, each in enumerate(benchmarks)}
        monkeypatch.setattr(bench, "MEASUREMENTS", runs)
        return bench.main([]), json.loads((tmp_path / "bench.json").read_text())

    code, report = run(["append_vs_sql", str(fine)])
    assert (code, report["failed"], report["missed"]) == (0, [], [])
    code, report = run(["append_vs_sql", str(fine)], ["notify_p99", str(slow)], ["fail", "1"])
    assert (code, report["failed"], report["missed"]) == (2, ["Benchmark 2"], ["notify_p99"])
    printed = capfd.readouterr().out
    assert FIGURES["notify_p99"].text in printed
    assert "below their must: ['notify_p99']" in printed
