"""The tick on a real database: what it reads, what it records, who leads."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import asyncpg
import pytest

from pulse import InvalidInputError, database
from pulse.autonomic import (
    Effect,
    Inner,
    ObjectCorruptError,
    Outcome,
    PulseNotFoundError,
    ReleaseService,
    Snapshot,
    TaskService,
    Ticked,
    TickLoop,
    Vitals,
    WatcherDef,
    Watchers,
    WrittenOnceError,
    get_object,
    put_object,
)
from pulse.autonomic.objects import OBJECT_BYTES_MAX
from pulse.autonomic.statements import STATEMENTS
from pulse.autonomic.survival import DISK_EFFECTS
from pulse.autonomic.watchers import SAMPLES_KEPT
from tests.support.autonomic_scene import promote
from tests.support.pace import at_this_pace
from tests.support.waiting import until
from workers.settings import SettingsError, load

FULL = {"memory": 10, "disks": {"/": 95}}


async def make_loop(dsn: str, holder: str = "m1:1", **options: Any) -> TickLoop:
    async def connect() -> database.Connection:
        return await database.connect(dsn)

    return TickLoop(connect, "main", holder=holder, vitals=options.pop("vitals", Vitals("m1")), **options)


@contextlib.asynccontextmanager
async def running(loop: TickLoop) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(loop.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def leader(pool: asyncpg.Pool, scope: str) -> int | None:
    """Return the backend that holds the lock of a scope."""
    pid: int | None = await pool.fetchval(
        """SELECT pid FROM pg_locks
           WHERE locktype = 'advisory' AND granted AND objsubid = 2
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
             AND objid::bigint = hashtext($1)::bigint & 4294967295""",
        scope,
    )
    return pid


async def kinds(pool: asyncpg.Pool) -> list[str]:
    return [row["kind"] for row in await pool.fetch("SELECT kind FROM pulse_events ORDER BY id")]


async def test_the_record_is_written_once(pool: asyncpg.Pool) -> None:
    """Nothing in it is changed or deleted; a content is stored once, and one that was damaged is found."""
    digest = await put_object(pool, {"b": 1, "a": "ü"})
    assert digest == await put_object(pool, {"a": "ü", "b": 1})
    assert await get_object(pool, digest) == {"a": "ü", "b": 1}
    assert await pool.fetchval("SELECT count(*) FROM objects") == 1
    await pool.execute("INSERT INTO pulse_events (scope, kind, key) VALUES ('main', 'tick', '')")
    for statement in (
        "UPDATE pulse_events SET key = 'x'",
        "DELETE FROM pulse_events",
        "TRUNCATE pulse_events",
        "UPDATE objects SET body = ''",
        "DELETE FROM objects",
        "TRUNCATE objects, pulse_events, rule_releases, pulse_scopes",
    ):
        with pytest.raises(WrittenOnceError), STATEMENTS.translating():
            await pool.execute(statement)
    async with pool.acquire() as connection:
        await connection.execute("SET session_replication_role = replica")
        await connection.execute("UPDATE objects SET body = 'damaged'")
        await connection.execute("SET session_replication_role = origin")
    with pytest.raises(ObjectCorruptError, match=digest):
        await get_object(pool, digest)
    with pytest.raises(PulseNotFoundError):
        await get_object(pool, "0" * 64)
    for value in (float("nan"), "\ud800", "x" * OBJECT_BYTES_MAX):
        with pytest.raises(InvalidInputError):
            await put_object(pool, value)


@pytest.mark.parametrize(
    "values",
    [
        "('main', 'Effect', 'k', '{}')",
        "('main', 'effect', repeat('k', 513), '{}')",
        "('main', 'effect', 'k', '[]')",
        "('main', 'effect', 'k', jsonb_build_object('a', repeat('x', 20000)))",
    ],
)
async def test_the_record_refuses_what_is_no_event(conn: asyncpg.Connection, values: str) -> None:
    with pytest.raises(asyncpg.CheckViolationError):
        await conn.execute(f"INSERT INTO pulse_events (scope, kind, key, meta) VALUES {values}")


async def test_a_tick_records_what_it_decided_with_its_jobs(dsn: str, pool: asyncpg.Pool) -> None:
    """Effects and their jobs in one transaction; nothing is recorded twice, nor anything when nothing happens."""
    vitals = Vitals("m1")
    loop = await make_loop(dsn, vitals=vitals, route=lambda effect: f"effects@{effect.kind}")
    connection = await database.connect(dsn)
    with pytest.raises(PulseNotFoundError):
        await loop.tick(connection)
    await ReleaseService(pool, "main").make_scope()
    assert await loop.tick(connection) == 15_000
    assert await loop.tick(connection) == 15_000
    assert await kinds(pool) == ["tick"]
    for _ in range(3):
        vitals.add("system-resource", FULL)
    assert await loop.tick(connection) == 5_000
    assert await loop.tick(connection) == 5_000
    assert await kinds(pool) == ["tick", *["effect"] * 5, "tick"]
    jobs = await pool.fetch("SELECT queue_name, lock, args FROM procrastinate_jobs ORDER BY id")
    assert [job["queue_name"] for job in jobs] == [f"effects@{kind}" for kind in DISK_EFFECTS]
    assert jobs[0]["lock"] == "effect:gc_vitals|m1:/"
    events = await pool.fetch("SELECT id, meta FROM pulse_events WHERE kind = 'effect' ORDER BY id")
    assert [job["args"] for job in jobs] == [{"event_id": event["id"]} for event in events]
    assert Effect.from_json(events[0]["meta"]).rule == "resource_guard"
    note = await pool.fetchval("SELECT meta FROM pulse_events WHERE kind = 'tick' ORDER BY id DESC LIMIT 1")
    assert note["decided"][1] == ["resource_guard", "prune|m1:/"]
    await connection.close()


async def test_a_snapshot_has_the_projections_that_are_asked_for(
    dsn: str, pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`pending-tasks` brings both, `agent-capability-stats` itself alone; a key that there is not is refused."""
    await ReleaseService(pool, "main").make_scope()
    tasks = TaskService(pool, "main")
    await tasks.create("t1", project="p", title="t", prompt="p")
    await tasks.assign("t1", "ann")
    connection = await database.connect(dsn)
    for asked, names in (
        ((), set()),
        (("pending-tasks",), {"pending-tasks", "agent-capability-stats"}),
        (("agent-capability-stats",), {"agent-capability-stats"}),
    ):
        loop = await make_loop(dsn, sense_keys=asked)
        await loop.tick(connection)
        assert loop._prev is not None
        assert loop._prev.projections.keys() == names
        if names:
            assert loop._prev.projections["agent-capability-stats"]["ann"]["assigned"] == 1
    await connection.close()
    monkeypatch.setenv("HIPPOCAMPUS_PULSE_SENSE_KEYS", "pending-tasks, agent-capability-stats")
    assert load().pulse_sense_keys
    monkeypatch.setenv("HIPPOCAMPUS_PULSE_SENSE_KEYS", "tasks")
    with pytest.raises(SettingsError, match="PULSE_SENSE_KEYS"):
        load()


async def test_equal_errors_are_recorded_at_powers_of_ten(dsn: str, pool: asyncpg.Pool) -> None:
    """10,000 of them make five events; a rule sees how many there were."""
    await ReleaseService(pool, "main").make_scope()
    seen: list[Ticked] = []
    loop = await make_loop(dsn, on_tick=seen.append)
    connection = await database.connect(dsn)
    for count in (1, 8, 1, 5_000, 4_990):
        for _ in range(count):
            loop.report("border:KeyError")
        await loop.tick(connection)
    rows = await pool.fetch("SELECT key, meta FROM pulse_events WHERE kind = 'error' ORDER BY id")
    assert [row["meta"]["count"] for row in rows] == [1, 10, 5_010, 10_000]
    assert sum(each.errors.get("border:KeyError", 0) for each in seen) == 10_000
    row = await STATEMENTS.fetchval(connection, "begin_tick", "main", "h", [], False)
    assert row["errors"] == [10_000, 0]
    await connection.close()


async def test_another_process_takes_over_and_nobody_else_ticks(dsn: str, pool: asyncpg.Pool) -> None:
    """A leader whose connection ends is followed at once; one that is suspended loses its session, then the lead."""
    await ReleaseService(pool, "main").make_scope()
    first, second = await make_loop(dsn, "m1:1"), await make_loop(dsn, "m2:2")
    frozen = await database.connect(dsn)
    assert await STATEMENTS.fetchval(frozen, "lead", "main")
    await STATEMENTS.fetchrow(frozen, "limit_idle", "700")
    async with running(first), running(second):
        await until(lambda: first.is_leading or second.is_leading)
        assert not (first.is_leading and second.is_leading)
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError)):
            await STATEMENTS.fetchval(frozen, "begin_tick", "main", "frozen", [], False)
        leader, other = (first, second) if first.is_leading else (second, first)
        await until(lambda: leader._prev is not None)
        await pool.execute(
            """SELECT pg_terminate_backend(pid) FROM pg_locks
               WHERE locktype = 'advisory' AND granted AND objsubid = 2
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
        )
        await until(lambda: other.is_leading or leader.is_leading)
        await until(lambda: (other if other.is_leading else leader)._prev is not None)
    holders = await pool.fetchval("SELECT holder FROM pulse_scopes")
    assert holders in ("m1:1", "m2:2")


@pytest.mark.timing
async def test_a_dead_leader_is_followed_within_two_seconds_and_a_wake_is_immediate(
    dsn: str, pool: asyncpg.Pool
) -> None:
    await ReleaseService(pool, "main").make_scope()
    ticks: list[Ticked] = []
    first, second = await make_loop(dsn, "m1:1"), await make_loop(dsn, "m2:2", on_tick=ticks.append)
    async with contextlib.AsyncExitStack() as stack:
        async with running(first):
            await until(lambda: first.is_leading)
            await stack.enter_async_context(running(second))
        ended = time.monotonic()
        await until(lambda: second.is_leading)
        assert time.monotonic() - ended < at_this_pace(2)
        await until(lambda: ticks)
        await asyncio.sleep(1.1)  # a tick begins a second after the last one, at the earliest
        count = len(ticks)
        await STATEMENTS.execute(pool, "wake", "main")
        await until(lambda: len(ticks) > count)
        woken = ticks[-1].wake_seconds
        assert woken is not None
        assert woken < at_this_pace(0.1)


async def test_a_watcher_that_fails_hangs_or_floods_harms_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its failure is a sample and an error; two of its measurements never overlap; a full window wakes the tick."""
    monkeypatch.setattr("pulse.autonomic.watchers.COLLECT_SECONDS_MAX", 1.0)
    inside, overlaps, works = 0, 0, {"now": False}

    async def hangs() -> Any:
        nonlocal inside, overlaps
        inside += 1
        overlaps += inside > 1
        for seconds in (60, 0.2):  # It goes on for a while after it was cancelled.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(seconds)
        inside -= 1

    def fails() -> Any:
        if not works["now"]:
            raise OSError
        return {"n": 1}

    def large() -> Any:
        return "x" * 100_000

    def unstorable() -> Any:
        return {"text": "a\0b"}

    errors: list[str] = []
    woken: list[int] = []
    vitals = Vitals("m1")
    defs = [
        WatcherDef(each.__name__, each.__name__, each, interval_ms=10) for each in (hangs, fails, large, unstorable)
    ]
    good = WatcherDef(
        "good", "good", lambda: {"n": 1}, lambda window: len(window) >= 5, interval_ms=3_600_000, pace=lambda _: 10
    )
    watchers = Watchers(
        vitals, wake=lambda: woken.append(1), report=errors.append, everywhere=[*defs, good], shared=[], is_leading=bool
    )
    task = asyncio.create_task(watchers.run())
    failed = {"collect:fails:OSError", "collect:large:OverflowError", "collect:unstorable:OverflowError"}
    await until(lambda: inside and woken and failed <= set(errors))
    # The one that hangs has its limit already; a pause of this machine is no failure of the others.
    monkeypatch.setattr("pulse.autonomic.watchers.COLLECT_SECONDS_MAX", 60.0)
    await until(lambda: {"collect:hangs:TimeoutError", "collect:hangs:Overlap"} <= set(errors))
    assert vitals.take_changes() == dict.fromkeys(("hangs", "fails", "large", "unstorable"), "broken")
    works["now"] = True
    await until(lambda: vitals.take_changes() == {"fails": "works"})
    senses = {each.sense for each in vitals.take()}
    assert {"good", "fails", "_error:hangs", "_error:fails"} <= senses
    assert "large" not in senses
    assert overlaps == 0
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("newer", [0, 1, SAMPLES_KEPT])
def test_samples_that_were_not_stored_never_displace_newer_ones(newer: int) -> None:
    vitals = Vitals("m1")
    for number in range(SAMPLES_KEPT):
        vitals.add("s", number)
    taken = vitals.take()
    for number in range(newer):
        vitals.add("s", SAMPLES_KEPT + number)
    vitals.give_back(taken)
    assert [each.data for each in vitals.take()] == list(range(newer, newer + SAMPLES_KEPT))


async def test_rules_that_fail_are_switched_off_and_rolled_back(dsn: str, pool: asyncpg.Pool) -> None:
    """Three failures switch them off, and each tick without them counts: the rollback comes two ticks later."""
    releases = ReleaseService(pool, "main")
    await releases.make_scope()
    calls = []

    async def load(rules: Any) -> Callable[..., Any]:
        async def rule(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
            calls.append(curr.at)
            raise KeyError

        return rule

    await promote(releases, await releases.stage({"a.py": "bad"}))
    loop = await make_loop(dsn, load=load)
    connection = await database.connect(dsn)
    for _ in range(5):
        await loop.tick(connection)
    assert len(calls) == 3
    assert not await pool.fetchval("SELECT EXISTS (SELECT FROM pulse_events WHERE kind = 'effect')")
    await loop.tick(connection)
    effect = await pool.fetchrow("SELECT key, meta FROM pulse_events WHERE kind = 'effect'")
    assert effect["key"] == f"rollback|release:{(await releases.state()).release_id}"
    assert effect["meta"]["params"]["cause"] == "errors"
    assert len(calls) == 3
    await connection.close()


async def test_a_shadow_is_only_counted(dsn: str, pool: asyncpg.Pool) -> None:
    """Twenty ticks beside the rules in force let it pass; its effects are recorded nowhere; an error refuses it."""
    releases = ReleaseService(pool, "main")
    await releases.make_scope()

    async def load(rules: Any) -> Callable[..., Any]:
        async def rule(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
            return [Effect("notify", rules["a.py"])], json.loads(rules["b.py"])

        return rule

    loop = await make_loop(dsn, load=load)
    connection = await database.connect(dsn)
    good, bad = await releases.stage({"a.py": "x", "b.py": "5000"}), await releases.stage({"a.py": "x", "b.py": "[]"})
    for each in (good, bad):
        await releases.check(each, "checked", {})
        await releases.check(each, "shadow", {})
        for _ in range(20):
            await loop.tick(connection)
    # The second one took the first one's place: one shadow at a time. What it passed stays recorded.
    assert (await releases.get(good)).checks["shadow"] == {
        "ticks": 20, "wanted": 20, "errors": {}, "effects": 20, "passed": True,
    }  # fmt: skip
    refused = await releases.get(bad)
    assert (refused.status, refused.checks["shadow"]["errors"]) == ("refused", {"border:InvalidInputError": 1})
    assert not await pool.fetchval("SELECT EXISTS (SELECT FROM pulse_events WHERE kind = 'effect')")
    await connection.close()


async def test_two_scopes_tick_beside_each_other(dsn: str, pool: asyncpg.Pool) -> None:
    """Each has its own leader, senses, errors, effects, release and wakes; losing one's lead leaves the other's."""
    calls: list[str] = []

    async def load(rules: Any) -> Callable[..., Any]:
        async def rule(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
            calls.append(curr.scope)
            assert curr.scope == rules["a.py"]
            return [Effect("notify", rules["a.py"])], 15_000

        return rule

    async def connect() -> database.Connection:
        return await database.connect(dsn)

    ticks: dict[str, list[Ticked]] = {"east": [], "west": []}
    vitals = {scope: Vitals(scope) for scope in ticks}
    loops = {
        scope: TickLoop(connect, scope, holder=f"{scope}:1", vitals=vitals[scope], load=load, on_tick=each.append)
        for scope, each in ticks.items()
    }
    for scope in ticks:
        releases = ReleaseService(pool, scope)
        await releases.make_scope()
        if scope == "west":
            await promote(releases, await releases.stage({"a.py": "west"}))
    for _ in range(3):
        vitals["east"].add("system-resource", FULL)
    loops["east"].report("collect:network:TimeoutError")
    async with running(loops["east"]), running(loops["west"]):
        await until(lambda: all(loop.is_leading for loop in loops.values()) and all(ticks.values()))

        async def seen(scope: str) -> list[str]:
            rows = await pool.fetch(
                "SELECT kind, key FROM pulse_events WHERE scope = $1 AND kind IN ('effect', 'error') ORDER BY id", scope
            )
            return [f"{row['kind']} {row['key']}" for row in rows]

        await until(lambda: ticks["east"][0].effects and ticks["west"][0].effects)
        assert await seen("east") == [
            "error collect:network:TimeoutError", *(f"effect {kind}|east:/" for kind in DISK_EFFECTS)
        ]  # fmt: skip
        assert await seen("west") == ["effect notify|west"]
        assert set(calls) == {"west"}
        counts = {scope: len(each) for scope, each in ticks.items()}
        await STATEMENTS.execute(pool, "wake", "west")
        await until(lambda: len(ticks["west"]) > counts["west"])
        assert ticks["west"][-1].wake_seconds is not None
        assert [each.wake_seconds for each in ticks["east"]] == [None] * len(ticks["east"])
        assert await seen("west") == ["effect notify|west"], "its effect is open"
        # The lead of one is taken away: the other one's connection and lock are its own.
        lost = {scope: await leader(pool, scope) for scope in ticks}
        await pool.execute("SELECT pg_terminate_backend($1)", lost["east"])

        async def is_followed() -> bool:
            return await leader(pool, "east") not in (None, lost["east"])

        await until(is_followed)
        await until(lambda: loops["east"].is_leading)
        assert loops["west"].is_leading
        assert await leader(pool, "west") == lost["west"]
    rows = await pool.fetch("SELECT scope, holder, release_id IS NULL AS is_free FROM pulse_scopes ORDER BY scope")
    assert [tuple(row) for row in rows] == [("east", "east:1", True), ("west", "west:1", False)]
