"""Growing delays: they double up to a maximum, vary by jitter, and start again after a success."""

from __future__ import annotations

import pytest

from pulse.postgres.backoff import Backoff


def test_delays_double_up_to_the_maximum() -> None:
    """Without jitter. There is a delay after any number of attempts."""
    backoff = Backoff(0.1, 1.0, jitter=0)
    assert [backoff.next_seconds() for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert [backoff.next_seconds() for _ in range(5000)][-1] == 1.0


def test_jitter_shortens_a_delay_by_at_most_its_share() -> None:
    """Half jitter keeps half of each delay, full jitter may keep none."""
    for jitter in (0.5, 1.0):
        waits = []
        for _ in range(200):
            backoff = Backoff(2.0, 2.0, jitter=jitter)
            waits.append(backoff.next_seconds())
        assert 2.0 * (1 - jitter) <= min(waits) < max(waits) <= 2.0


def test_a_success_starts_again_with_the_first_delay() -> None:
    """So the next outage is noticed as soon as this one."""
    backoff = Backoff(0.1, 1.0, jitter=0)
    assert [backoff.next_seconds(), backoff.next_seconds()] == [0.1, 0.2]
    backoff.reset()
    assert backoff.next_seconds() == 0.1


def test_an_attempt_that_lasted_counts_as_a_success() -> None:
    """The next failure is a first one. Without `begin`, only `reset` starts again."""
    backoff = Backoff(0.1, 1.0, jitter=0, healthy_seconds=-1.0)
    assert backoff.next_seconds() == pytest.approx(0.1)
    assert backoff.next_seconds() == pytest.approx(0.1)
    patient = Backoff(0.1, 1.0, jitter=0, healthy_seconds=60.0)
    for expected in (0.1, 0.2, 0.4):
        patient.begin()
        assert patient.next_seconds() == pytest.approx(expected)
