"""Benchmarks: what `make bench` reports, the help of each, and what is left of one that is ended by a signal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as bench
from benchmarks import figures as module
from benchmarks.figures import FIGURES
from tests.support import cli_process
from tests.support.paths import ROOT
from tests.support.waiting import WAIT_SECONDS

#: A benchmark that reports what its arguments say, and fails where they say so.
REPORT = """
import sys
from benchmarks.figures import figure
for name, value in zip(sys.argv[1::2], sys.argv[2::2]):
    if name == "fail":
        raise SystemExit(2)
    figure(name, float(value))
"""

#: Ends with 1 at the first benchmark that does not answer `--help`, and names it: each alone, and with the arguments
#: that `make bench` gives it, which are parsed before.
HELP = """
import contextlib, io, pathlib, runpy, sys
from benchmarks import __main__ as bench

file = pathlib.Path(sys.argv[1])
each = [[f"benchmarks.{path.stem}"] for path in sorted(pathlib.Path("benchmarks").glob("*.py"))
        if '__name__ == "__main__"' in path.read_text()]
for module, *arguments in [*each, *bench.MEASUREMENTS.values(), *bench.recall(file).values()]:
    sys.argv = [module, *arguments, "--help"]
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code == 0 and printed.getvalue().startswith("usage: "):
            print(module, *arguments, flush=True)
            continue
    sys.exit(f"no help of {module} {arguments}: {printed.getvalue()}")
"""

#: A benchmark that says where its server is, and does not end by itself.
SERVING = """
import asyncio
from benchmarks.server import fresh_server

async def main():
    async with fresh_server() as server:
        print(server.home, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""

#: `make bench` with this benchmark alone.
BENCH = """
import sys
from benchmarks import __main__ as bench
from workers.cli import interrupts

bench.MEASUREMENTS = {"Serving": ["serving"]}
interrupts.raise_on_all()
sys.exit(bench.main())
"""


Bench = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Run benchmarks that report what their arguments say, where there are no figures but these."""
    (tmp_path / "reporting.py").write_text(REPORT)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(bench.__file__).parent.parent}")
    monkeypatch.setattr(bench, "RESULT", tmp_path / "bench.json")

    def run(*benchmarks: list[str], figures: Sequence[str], file: Path | None = None) -> tuple[int, dict[str, Any]]:
        monkeypatch.setattr(module, "FIGURES", {name: FIGURES[name] for name in figures})
        runs = {f"Benchmark {number}": ["reporting", *each] for number, each in enumerate(benchmarks)}
        monkeypatch.setattr(bench, "MEASUREMENTS", runs)
        monkeypatch.setattr(bench, "recall", lambda _: {})
        return bench.main(file), json.loads((tmp_path / "bench.json").read_text())

    return run


FINE = str(FIGURES["append_vs_sql"].must + 0.1)
SLOW, QUICK = str(FIGURES["notify_p99"].must * 2), str(FIGURES["notify_p99"].must / 2)


def test_a_missed_must_and_a_failure_are_the_exit_code(made_up: Bench, capfd: pytest.CaptureFixture[str]) -> None:
    code, report = made_up(["append_vs_sql", FINE], figures=["append_vs_sql"])
    assert (code, report["failed"], report["missed"]) == (0, [], [])
    code, report = made_up(
        ["append_vs_sql", FINE], ["notify_p99", SLOW], ["fail", "1"], figures=["append_vs_sql", "notify_p99"]
    )
    assert (code, report["failed"], report["missed"]) == (2, ["Benchmark 2"], ["notify_p99"])
    printed = capfd.readouterr().out
    assert FIGURES["notify_p99"].text in printed
    assert "below their must: ['notify_p99']" in printed


def test_a_figure_that_no_benchmark_reports_is_named_and_an_error(
    made_up: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also where all that is reported reaches its must."""
    code, report = made_up(["append_vs_sql", FINE], figures=["notify_p99", "append_vs_sql", "frame_p99"])
    assert (code, report["missed"], report["absent"]) == (2, [], ["notify_p99", "frame_p99"])
    assert "not reported by their benchmark: ['notify_p99', 'frame_p99']" in capfd.readouterr().out


def test_a_figure_that_misses_once_is_missed(made_up: Bench) -> None:
    """Two parts of a benchmark report one figure: the second does not hide what the first has measured."""
    for values in ([SLOW, QUICK], [QUICK, SLOW]):
        code, report = made_up(*(["notify_p99", value] for value in values), figures=["notify_p99"])
        assert (code, report["missed"]) == (1, ["notify_p99"])
        assert report["figures"]["notify_p99"]["value"] == float(SLOW)


def test_the_figures_of_a_file_are_named_as_not_measured_without_it(
    made_up: Bench, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """They are an error with it, except for those of vectors that do not lie beside it."""
    of_file = [name for name, wanted in FIGURES.items() if wanted.of_file]
    assert [name.rpartition("_")[0] for name in of_file] == ["recall"] * 2 + ["window_new"] * 3 + ["window_running"] * 3
    everything = ["append_vs_sql", *of_file]
    (by_hand,) = [name for name, wanted in FIGURES.items() if wanted.by_hand]

    code, report = made_up(["append_vs_sql", FINE], figures=[*everything, by_hand])
    assert (code, report["absent"], report["not_measured"]) == (0, [], [*of_file, by_hand])
    printed = capfd.readouterr().out
    assert f"not measured without FILE=…: {of_file}" in printed
    assert f"measured by hand only: ['{by_hand}']" in printed

    talk = tmp_path / "talk.json"
    code, report = made_up(["append_vs_sql", FINE], figures=everything, file=talk)
    assert (code, report["not_measured"]) == (7, ["recall_minilm"])
    assert "not measured without talk_minilm.npz beside the file: ['recall_minilm']" in capfd.readouterr().out

    bench.minilm_of(talk).touch()
    code, report = made_up(["append_vs_sql", FINE], figures=everything, file=talk)
    assert (code, report["absent"], report["not_measured"]) == (8, of_file, [])


@pytest.mark.system
def test_every_benchmark_has_help(tmp_path: Path) -> None:
    """It is printed before anything is measured: no database is started, none is needed."""
    (tmp_path / "talk_minilm.npz").touch()
    done = subprocess.run(
        [sys.executable, "-c", HELP, str(tmp_path / "talk.json")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    assert {f"benchmarks.{name}" for name in ("__main__", "adk", "capacity", "locomo", "recovery")} <= set(printed)
    assert "benchmarks.facts --set unread" in printed
    assert [line for line in printed if "--provider minilm" in line]


@pytest.mark.system
def test_a_benchmark_ended_by_a_signal_leaves_neither_server_nor_folder(tmp_path: Path) -> None:
    """Nor does `make bench`, which passes the signal on and waits until the benchmark has cleaned up."""
    (tmp_path / "serving.py").write_text(SERVING)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    with cli_process.from_a_terminal():
        running = subprocess.Popen(
            [sys.executable, "-c", BENCH], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
        )
    with running:
        assert running.stdout is not None
        home = next(Path(line.strip()) for line in running.stdout if line.startswith("/tmp/"))
        assert cli_process.processes_of(home) != []
        running.terminate()
        assert running.wait(WAIT_SECONDS) == -signal.SIGINT
    assert not home.parent.exists()
    assert cli_process.processes_of(home) == []


def test_a_file_that_does_not_exist_is_refused_before_the_first_benchmark() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks", "facts"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
    )
    assert ended.returncode == 2
    assert "there is no file facts; one benchmark is run as `python -m benchmarks.NAME`" in ended.stderr
