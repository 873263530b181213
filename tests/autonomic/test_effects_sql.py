"""Effects, releases and tasks as the database keeps them: ends are unique, orders are checked, nothing is half done."""

from __future__ import annotations

import asyncio
import collections
import random
from typing import Any

import asyncpg
import pytest

from pulse import InvalidInputError
from pulse.autonomic import (
    Effect,
    IllegalTransitionError,
    PulseNotFoundError,
    ReleaseMovedError,
    ReleaseRefusedError,
    ReleaseService,
    TaskService,
    agent_capability_stats,
    fold_tasks,
    pending_tasks,
)
from pulse.autonomic.releases import read_rules
from pulse.autonomic.statements import STATEMENTS
from pulse.autonomic.tasks import TRANSITIONS


async def record(pool: asyncpg.Pool, *effects: Effect) -> list[int]:
    described = [each.to_json() for each in effects]
    ids: list[int] = await STATEMENTS.fetchval(pool, "end_tick", "main", described, {}, {}, None)
    return ids


async def record_earlier(pool: asyncpg.Pool, key: str, minutes: int) -> int:
    """An effect that was decided some minutes ago, and whose job was lost."""
    event: int = await pool.fetchval(
        """INSERT INTO pulse_events (scope, kind, key, occurred_at, meta)
           VALUES ('main', 'effect', $1, engine_now() - $2 * interval '1 min', '{"survival": true}') RETURNING id""",
        key,
        minutes,
    )
    return event


async def test_an_effect_begins_once_ends_once_and_is_followed_up(pool: asyncpg.Pool) -> None:
    """Twenty executors at once: one may begin what must not happen twice, and one end counts."""
    await ReleaseService(pool, "main").make_scope()
    once, again = await record(pool, *(Effect("notify", key, survival=True) for key in ("once", "again")))

    async def begin(event: int, is_once: bool) -> bool:
        return bool(await pool.fetchval("SELECT begin_effect($1, $2, '{}')", event, is_once))

    assert sum(await asyncio.gather(*(begin(once, True) for _ in range(20)))) == 1
    assert sum(await asyncio.gather(*(begin(again, False) for _ in range(3)))) == 3
    ends = await asyncio.gather(
        *(pool.fetchval('SELECT end_effect($1, $2, \'{"code": "c"}\')', once, bool(index % 2)) for index in range(20))
    )
    assert sum(ends) == 1
    states = {each["key"]: each["state"] for each in await pool.fetchval("SELECT pulse_effect_states('main')")}
    assert states.pop("notify|once") in ("acked", "failed")
    assert states == {"notify|again": "open"}
    # What waits without a job gets another after two minutes; what had not begun after a quarter of an hour is over.
    waits, stale, began = [await record_earlier(pool, f"notify|{n}", n) for n in (3, 16, 17)]
    await begin(began, True)
    assert await pool.fetchval("SELECT reconcile_effects('main')") == 3
    assert await pool.fetchval("SELECT reconcile_effects('main')") == 0
    jobs = await pool.fetch("SELECT args FROM procrastinate_jobs WHERE status = 'todo' ORDER BY id")
    assert [job["args"]["event_id"] for job in jobs] == [once, again, waits, began]
    assert await pool.fetchval("SELECT meta FROM pulse_events WHERE kind = 'effect-failed' AND ref = $1", stale) == {
        "code": "expired"
    }
    assert await pool.fetchval("SELECT (open_effect($1)).id", stale) is None
    assert await pool.fetchval("SELECT (open_effect($1)).id", began) == began


async def test_failures_in_a_row_are_counted_by_target(pool: asyncpg.Pool) -> None:
    await ReleaseService(pool, "main").make_scope()
    for failed in (True, False, True, True):
        (event,) = await record(pool, Effect("restart_role", "w", survival=True))
        await pool.execute("SELECT end_effect($1, $2, '{}')", event, failed)
    (state,) = await pool.fetchval("SELECT pulse_effect_states('main')")
    assert {name: state[name] for name in ("key", "state", "survival", "failures", "recent")} == {
        "key": "restart_role|w", "state": "failed", "survival": True, "failures": 2, "recent": 4,
    }  # fmt: skip


async def test_releases_move_one_pointer_under_a_version_check(pool: asyncpg.Pool) -> None:
    """One of two promotions at once wins; a rollback finds the newest release that had proved itself."""
    releases = ReleaseService(pool, "main")
    with pytest.raises(PulseNotFoundError, match="pulse init"):
        await releases.stage({"a.py": "1"})
    assert await releases.make_scope()
    assert not await releases.make_scope()
    with pytest.raises(InvalidInputError):
        await ReleaseService(pool, "Main!").make_scope()
    with pytest.raises(PulseNotFoundError, match="nothing to roll back"):
        await releases.rollback("by hand")
    with pytest.raises(PulseNotFoundError, match="no release 99"):
        await releases.promote(99, expected_version=1)
    ids = [await releases.stage({"a.py": str(number)}) for number in range(4)]
    assert await releases.rules(ids[2]) == {"a.py": "2"}
    assert await releases.stage({"a.py": "0"}) != ids[0]
    with pytest.raises(ReleaseRefusedError, match="is staged"):
        await releases.promote(ids[0], expected_version=1)
    with pytest.raises(IllegalTransitionError):
        await releases.check(ids[0], "shadow", {})
    await releases.check(ids[3], "refused", {"syntax": "bad"})
    with pytest.raises(IllegalTransitionError):
        await releases.check(ids[3], "checked", {})
    for minutes, each in ((25, ids[0]), (5, ids[1]), (0, ids[2])):
        await releases.check(each, "checked", {})
        await releases.check(each, "shadow", {})
        with pytest.raises(ReleaseRefusedError, match="shadow"):
            await releases.promote(each, expected_version=(await releases.state()).version)
        await releases.check(each, "shadow", {"shadow": {"passed": True}})
        version = (await releases.state()).version
        attempts = [releases.promote(each, expected_version=version) for _ in range(5)]
        found = await asyncio.gather(*attempts, return_exceptions=True)
        assert collections.Counter(map(type, found)) == {ReleaseMovedError: 4, int: 1}
        await pool.execute(
            "UPDATE rule_releases SET promoted_at = engine_now() - make_interval(mins => $2) WHERE id = $1",
            each,
            minutes,
        )
    # The second one was in force for five minutes only: the first one is what is known to work.
    assert await releases.rollback("late", release_id=ids[1]) == (False, ids[2])
    assert await releases.rollback("errors", release_id=ids[2]) == (True, ids[0])
    assert [each.status for each in await releases.list()][::-1][:4] == ["active", "retired", "rolled_back", "refused"]
    assert await releases.rollback("by hand") == (True, None)
    events = await pool.fetch(
        "SELECT kind, key, meta FROM pulse_events WHERE kind IN ('promote', 'rollback') ORDER BY id"
    )
    assert [event["kind"] for event in events] == [*["promote"] * 3, *["rollback"] * 2]
    assert events[3]["meta"]["cause"] == "errors"


def test_a_folder_of_rules_is_read_or_refused(tmp_path: Any) -> None:
    folder = tmp_path / "rules"
    folder.mkdir()
    with pytest.raises(InvalidInputError, match="no rules"):
        read_rules(tmp_path)
    (folder / "b.py").write_text("b")
    (folder / "a.py").write_text("a")
    (folder / "notes.md").write_text("n")
    assert list(read_rules(tmp_path).items()) == [("a.py", "a"), ("b.py", "b")]
    (folder / "c.py").write_bytes(b"# \xff")
    with pytest.raises(InvalidInputError, match="UTF-8 at byte 2"):
        read_rules(tmp_path)
    (folder / "c.py").write_text("x" * 262_144)
    with pytest.raises(InvalidInputError, match="at most 262144"):
        read_rules(tmp_path)
    for number in range(64):
        (folder / f"r{number}.py").write_text("")
    with pytest.raises(InvalidInputError, match="67 files"):
        read_rules(tmp_path)


async def test_tasks_follow_their_table_and_both_folds_agree(pool: asyncpg.Pool) -> None:
    """Random events: what the table refuses, the folds refuse; what it accepts, both projections read alike."""
    await ReleaseService(pool, "main").make_scope()
    tasks, rng = TaskService(pool, "main"), random.Random(5)
    pairs = await pool.fetch("SELECT from_kind, to_kind FROM task_transitions")
    assert {tuple(pair) for pair in pairs} == {
        (before and f"task-{before}", f"task-{after}") for before, afters in TRANSITIONS.items() for after in afters
    }
    names = [f"t{number}" for number in range(6)]
    refused = 0
    for _ in range(150):
        name, agent = rng.choice(names), rng.choice(["ann", "bob"])
        act = rng.choice(
            [
                lambda name=name: tasks.create(
                    name, project="p", title="T", prompt="do it", priority=rng.randint(0, 3)
                ),
                lambda name=name, agent=agent: tasks.assign(name, agent),
                lambda name=name, agent=agent: tasks.assign(name, agent),
                lambda name=name: tasks.begin(name),
                lambda name=name: tasks.acknowledge(name, "done"),
                lambda name=name: tasks.close(name),
                lambda name=name: tasks.give_up(name, "stuck"),
            ]
        )
        try:
            await act()
        except IllegalTransitionError:
            refused += 1
    events = await tasks.events()
    assert 0 < refused < 150
    assert len(events) == 150 - refused
    folded = fold_tasks(events)
    listed = {row["id"]: row for row in await tasks.list(include_over=True)}
    assert {name: (each.status, each.agent, each.result, each.priority) for name, each in folded.items()} == {
        name: (row["status"], row["agent"], row["result"], row["priority"]) for name, row in listed.items()
    }
    seen = await tasks.projections()
    pending, stats = pending_tasks(events), agent_capability_stats(events)
    assert seen["pending-tasks"]["pendingCount"] == pending.pending_count
    assert seen["pending-tasks"]["byProject"] == pending.by_project
    assert [each["id"] for each in seen["pending-tasks"]["tasks"]] == [each.id for each in pending.tasks]
    assert seen["agent-capability-stats"].keys() == stats.keys()
    for agent, each in stats.items():
        row = seen["agent-capability-stats"][agent]
        assert (row["assigned"], row["closed"], row["givenUp"], row["consecutiveFailures"]) == (
            each.assigned, each.closed, each.given_up, each.consecutive_failures,
        )  # fmt: skip
        assert row["avgDurationMs"] == (None if each.avg_duration_ms is None else pytest.approx(each.avg_duration_ms))
    assert (await tasks.get(events[0].task_id)).prompt == "do it"
    row = await STATEMENTS.fetchval(pool, "begin_tick", "main", "h", [], True)
    assert row["projections"].keys() == {"pending-tasks", "agent-capability-stats"}
    for wrong in ({"task_id": "t x"}, {"project": ""}, {"priority": 5_000}):
        with pytest.raises(InvalidInputError):
            await tasks.create(**{"task_id": "new", "project": "p", "title": "", "prompt": "", **wrong})
    with pytest.raises(PulseNotFoundError):
        await tasks.get("new")
    with pytest.raises(InvalidInputError):
        await tasks.acknowledge("t1", "what the user said")
