"""The verdict of a soak, on made-up runs, and a short soak of the whole installation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos import scene
from tests.soak.__main__ import soak
from tests.soak.verdict import Run, Sample, judge

MB = 2**20


def run_of(
    memory: Callable[[int], float] = lambda _: 100,
    connections: Callable[[int], int] = lambda _: 30,
    files: Callable[[int], int] = lambda _: 40,
) -> Run:
    samples = [
        Sample(
            seconds=at,
            memory={"writer": int(memory(at) * MB)},
            connections=connections(at),
            files={"writer": files(at)},
        )
        for at in range(60)
    ]
    return Run(samples=samples, appends=[0.01] * 1000)


def test_a_quiet_run_passes_although_caches_fill_at_its_start() -> None:
    assert judge(run_of(memory=lambda at: 60 + 2 * min(at, 20))) == []


@pytest.mark.parametrize(
    ("run", "wrong"),
    [
        (run_of(memory=lambda at: 100 + at), "writer grew"),
        (run_of(connections=lambda at: 30 + at // 2), "PostgreSQL grew"),
        (run_of(files=lambda at: 40 + at), "open files"),
    ],
)
def test_growth_is_noticed(run: Run, wrong: str) -> None:
    (found,) = judge(run)
    assert wrong in found


def test_what_is_left_lost_slow_or_refused_is_noticed() -> None:
    run = run_of()
    run.appends = [0.01] * 980 + [3.0] * 20
    run.failed, run.waiting, run.missing = {"503": 2}, {"fast_replay": 5}, 1
    assert judge(run) == [
        "2 calls failed with 503",
        "5 jobs are left in fast_replay",
        "1 events or sessions are missing or behind",
        "99 % of the appends took up to 3.00 s, not 1 s",
    ]
    assert judge(Run()) == ["nothing was appended"]


@pytest.mark.system
@pytest.mark.timeout(600)
async def test_a_short_soak_drains_and_loses_nothing() -> None:
    """Twenty seconds are too short for a verdict on memory: everything else must hold."""
    with scene.folder_of_a_run([]) as folder:
        run = await soak(Path(folder), seconds=20, writers=20, threads=100)
    run.samples.clear()
    assert len(run.appends) > 50
    assert [each for each in judge(run) if "%" not in each] == []
