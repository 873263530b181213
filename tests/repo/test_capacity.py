"""The model of capacity: its formulas are those of the books and of a simulation, its table is in the documentation."""

from __future__ import annotations

import heapq
import math
import random

import pytest

from benchmarks import capacity
from benchmarks.capacity import MEASURED, USERS, need, servers_for, wait_quantile, waiting_share


@pytest.mark.parametrize(
    ("servers", "load", "share"),
    # One server waits as often as it is busy; the others are Erlang's own tables.
    [(1, 0.5, 0.5), (2, 1.0, 1 / 3), (3, 2.0, 4 / 9), (10, 5.0, 0.036105), (1, 0.0, 0.0)],
)
def test_erlangs_formula(servers: int, load: float, share: float) -> None:
    assert waiting_share(servers, load) == pytest.approx(share, rel=1e-4)


@pytest.mark.parametrize(("servers", "rate", "seconds"), [(1, 6.0, 0.1), (3, 21.0, 0.1), (8, 65.0, 0.1)])
def test_the_wait_is_that_of_simulated_requests(servers: int, rate: float, seconds: float) -> None:
    random_ = random.Random(11)
    free_at = [0.0] * servers
    now, waits = 0.0, []
    for _ in range(60_000):
        now += random_.expovariate(rate)
        begins = max(now, heapq.heappop(free_at))
        waits.append(begins - now)
        heapq.heappush(free_at, begins + random_.expovariate(1 / seconds))
    waits.sort()
    simulated = waits[int(len(waits) * 0.99)]
    assert wait_quantile(servers, rate, seconds, 0.99) == pytest.approx(simulated, rel=0.15)


def test_there_are_just_enough_servers() -> None:
    servers = servers_for(50.0, 0.1, 0.05, share=0.95)
    assert wait_quantile(servers, 50.0, 0.1, 0.99) <= 0.05 < wait_quantile(servers - 1, 50.0, 0.1, 0.99)
    assert servers_for(50.0, 0.1, math.inf, share=0.5) == 10


def test_the_table_in_the_documentation_is_the_codes() -> None:
    page = capacity.DOC.read_text(encoding="utf-8")
    assert capacity.table() in page, "python -m benchmarks.capacity --write"
    assert capacity.write(page) == page


def test_more_users_need_more_of_everything() -> None:
    few, some, many = (need(users, MEASURED) for users in USERS)
    for name in ("appends", "database_cores", "writer_cores", "worker_slots", "model_calls", "gigabytes_a_year"):
        assert getattr(few, name) <= getattr(some, name) < getattr(many, name), name
    assert few.cells == 1
