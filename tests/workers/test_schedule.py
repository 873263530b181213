"""When periodic tasks are due, also after the clock jumped."""

from __future__ import annotations

from collections.abc import Awaitable

import procrastinate
from procrastinate import testing

from workers.queue.schedule import Schedule

DAY = 86_400
#: A midnight, in UTC.
START = 1_900_022_400


def find_upkeep() -> Awaitable[frozenset[str]]:
    raise AssertionError("nothing is enqueued here")


def test_what_a_jump_of_the_clock_passed_over_is_due_once_and_the_rest_goes_on() -> None:
    app = procrastinate.App(connector=testing.InMemoryConnector())

    @app.periodic(cron="* * * * *")
    @app.task(name="often")
    def often(timestamp: int) -> None:
        pass

    @app.periodic(cron="0 3 * * *")
    @app.task(name="nightly")
    def nightly(timestamp: int) -> None:
        pass

    schedule = Schedule(app.periodic_registry, DAY, find_upkeep)

    def due(at: float) -> list[tuple[str, int]]:
        return [(each.task.name, timestamp - START) for each, timestamp in schedule.get_previous_tasks(at)]

    assert due(START + 30) == [("often", 0), ("nightly", 3 * 3600 - DAY)]
    assert due(START + 59) == []
    assert due(START + 61) == [("often", 60)]
    ahead = START + 3 * DAY + 90
    assert due(ahead) == [("often", 3 * DAY + 60), ("nightly", 2 * DAY + 3 * 3600)]
    assert due(ahead + 1) == []
    # Back: without waiting for three days. The database enqueues no moment twice: the night before is refused there.
    assert due(START + 125) == [("often", 120), ("nightly", 3 * 3600 - DAY)]
    assert due(START + 185) == [("often", 180)]
    assert due(START + 3 * 3600 + 1) == [("often", 3 * 3600), ("nightly", 3 * 3600)]
