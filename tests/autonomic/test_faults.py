"""What may not stop the ticks: a sense that hangs, rules that cannot be loaded or stored, rows of another release."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import asyncpg
import pytest
from structlog.testing import capture_logs

from pulse import InvalidInputError, database
from pulse.autonomic import (
    Effect,
    Inner,
    Outcome,
    ReleaseService,
    Snapshot,
    TickLoop,
    Vitals,
    WatcherDef,
    Watchers,
    survival,
)
from pulse.autonomic.onion import failure_code
from pulse.autonomic.survival import DISK_EFFECTS
from pulse.autonomic.types import KEY_BYTES_MAX
from pulse.process.background import in_background
from tests.support.autonomic_scene import process, promote, run, samples, snapshot
from tests.support.waiting import until
from workers.autonomic.executors import Executors
from workers.autonomic.restarting import Supervised
from workers.autonomic.sandbox import RuleFailedError
from workers.autonomic.senses import Network, Resources
from workers.settings import load

FULL = {"memory": 10, "disks": {"/": 95}}


def make_loop(dsn: str, vitals: Vitals, **options: Any) -> TickLoop:
    async def connect() -> database.Connection:
        return await database.connect(dsn)

    return TickLoop(connect, "main", holder="m1:1", vitals=vitals, **options)


async def put_in_force(pool: asyncpg.Pool) -> None:
    releases = ReleaseService(pool, "main")
    await releases.make_scope()
    await promote(releases, await releases.stage({"a.py": "1"}))


async def kinds(pool: asyncpg.Pool) -> list[str]:
    rows = await pool.fetch("SELECT meta ->> 'kind' FROM pulse_events WHERE kind = 'effect' ORDER BY id")
    return [row[0] for row in rows]


async def test_a_plain_sense_that_hangs_keeps_one_thread_and_harms_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """No second one begins beside it, the common threads stay free, and it works again once it returns."""
    monkeypatch.setattr("pulse.autonomic.watchers.COLLECT_SECONDS_MAX", 1.0)
    hang, inside, errors = threading.Event(), [0], []
    vitals = Vitals("m1")

    def hangs() -> Any:
        inside[0] += 1
        hang.wait(60)
        return {"n": 1}

    watchers = Watchers(
        vitals,
        wake=lambda: None,
        report=errors.append,
        everywhere=[
            WatcherDef("hangs", "hangs", hangs, interval_ms=10),
            WatcherDef("good", "good", lambda: {"n": 1}, lambda window: len(window) >= 5, interval_ms=10),
        ],
    )
    task = asyncio.create_task(watchers.run())
    try:
        await until(lambda: inside[0] and any(each.sense == "good" for each in vitals.take()))
        # The one that hangs has its limit already; a pause of this machine is no failure of the other.
        monkeypatch.setattr("pulse.autonomic.watchers.COLLECT_SECONDS_MAX", 60.0)
        await until(lambda: "collect:hangs:Overlap" in errors)
        assert "_error:hangs" in {each.sense for each in vitals.take()}
        await until(lambda: any(each.sense == "good" for each in vitals.take()))
        assert inside == [1]
        hang.set()
        await until(lambda: any(each.sense == "hangs" for each in vitals.take()))
        assert vitals.take_changes() == {"hangs": "works"}
    finally:
        hang.set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert not [each for each in errors if "good" in each]


async def test_a_watcher_that_cannot_begin_or_ends_by_an_error_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without room for a thread, or a lead that cannot be asked for, is a failure of one sense."""
    start, has_room, asked, errors = threading.Thread.start, [False], [0], []

    def begin(thread: threading.Thread) -> None:
        if not has_room[0]:
            raise RuntimeError("can't start new thread")
        start(thread)

    def is_leading() -> bool:
        asked[0] += 1
        if asked[0] == 1:
            raise KeyError
        return True

    async def measure() -> Any:
        return {"n": 1}

    monkeypatch.setattr(threading.Thread, "start", begin)
    vitals = Vitals("m1")
    watchers = Watchers(
        vitals,
        wake=lambda: None,
        report=errors.append,
        everywhere=[
            WatcherDef("plain", "plain", lambda: {"n": 1}, interval_ms=10),
            WatcherDef("other", "other", measure, interval_ms=10),
        ],
        shared=[WatcherDef("shared", "shared", measure, interval_ms=10)],
        is_leading=is_leading,
    )
    task = asyncio.create_task(watchers.run())
    try:
        await until(lambda: {"collect:plain:RuntimeError", "collect:shared:KeyError"} <= set(errors))
        vitals.take()
        await until(lambda: any(each.sense == "other" for each in vitals.take()))
        has_room[0] = True
        seen: set[str] = set()
        await until(lambda: seen.update(each.sense for each in vitals.take()) or {"plain", "shared"} <= seen)
        assert vitals.take_changes() == {"plain": "works", "shared": "works"}
    finally:
        has_room[0] = True
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_work_in_the_background_that_fails_is_logged() -> None:
    async def fails() -> None:
        raise KeyError

    with capture_logs() as logs:
        async with in_background(fails()):
            await until(lambda: logs)
    assert [(each["event"], each["error_type"]) for each in logs] == [("background_failed", "KeyError")]


async def test_watchers_end_with_their_measurements_and_take_turns() -> None:
    """No measurement runs on after they ended; of many, as many measure at once as there is room for."""
    inside, most, ended = [0], [0], []

    def watcher(name: str) -> WatcherDef:
        async def collect() -> Any:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            try:
                await asyncio.sleep(0.1)
            finally:
                await asyncio.sleep(0)
                inside[0] -= 1
                ended.append(name)
            return {"n": 1}

        return WatcherDef(name, name, collect, interval_ms=10)

    vitals = Vitals("m1")
    watchers = Watchers(
        vitals, wake=lambda: None, report=lambda _key: None, everywhere=[watcher(each) for each in "abc"], at_once=1
    )
    task = asyncio.create_task(watchers.run())
    await until(lambda: {"a", "b", "c"} <= set(ended) and inside[0])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (most, inside) == ([1], [0])


async def test_what_became_of_senses_is_recorded_after_a_tick_that_failed(dsn: str, pool: asyncpg.Pool) -> None:
    await ReleaseService(pool, "main").make_scope()
    vitals = Vitals("m1")
    loop = make_loop(dsn, vitals)
    connection = await database.connect(dsn)
    vitals.note("queue", "broken")
    vitals.note("network", "broken")
    signature = "(text, jsonb, jsonb, jsonb, jsonb)"
    await pool.execute(f"ALTER FUNCTION end_pulse_tick{signature} RENAME TO elsewhere")
    with pytest.raises(asyncpg.UndefinedFunctionError):
        await loop.tick(connection)
    vitals.note("network", "works")
    await pool.execute(f"ALTER FUNCTION elsewhere{signature} RENAME TO end_pulse_tick")
    await loop.tick(connection)
    await connection.close()
    rows = await pool.fetch("SELECT key, meta ->> 'state' FROM pulse_events WHERE kind = 'collect' ORDER BY key")
    assert [tuple(row) for row in rows] == [("network", "works"), ("queue", "broken")]


async def test_deleting_measurements_waits_for_nobody_goes_on_and_costs_no_lead(
    dsn: str, pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of another process's deletion are left to it; what is over the limit follows with the next tick."""
    monkeypatch.setattr("pulse.autonomic.tick.GARBAGE_ROWS_MAX", 1)
    await ReleaseService(pool, "main").make_scope()
    await pool.execute(
        """INSERT INTO vitals (scope, sense, machine, at, data)
           SELECT 'main', 'queue', 'm' || n, now() - interval '26 h' + n * interval '1 min', '{}'
           FROM generate_series(1, 3) AS n"""
    )

    async def left() -> list[str]:
        return [row[0] for row in await pool.fetch("SELECT machine FROM vitals WHERE sense = 'queue' ORDER BY machine")]

    loop = make_loop(dsn, Vitals("m1"))
    connection = await database.connect(dsn)
    async with pool.acquire() as other, other.transaction():
        await other.execute("SELECT FROM vitals WHERE machine = 'm1' FOR UPDATE")
        await loop.tick(connection)
        assert await left() == ["m1", "m3"]
        await loop.tick(connection)
        assert await left() == ["m1"]
    await pool.execute(
        """CREATE OR REPLACE FUNCTION gc_vitals(p_limit integer DEFAULT 10000) RETURNS integer LANGUAGE plpgsql
           AS $$ BEGIN RAISE deadlock_detected; END $$"""
    )
    await loop.tick(connection)
    await loop.tick(connection)
    await connection.close()
    assert await pool.fetchval("SELECT key FROM pulse_events WHERE kind = 'error'") == "gc_vitals:DeadlockDetectedError"


async def test_names_that_hang_are_no_network_and_use_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolver that takes half a minute is waited for by the next measurements, not started again by each."""
    hang, calls = threading.Event(), []

    def resolve(*_: Any, **__: Any) -> Any:
        calls.append(1)
        hang.wait(60)
        raise socket.gaierror

    monkeypatch.setattr("workers.autonomic.senses.NETWORK_SECONDS_MAX", 0.05)
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    network = Network("http://provider.example")
    for _ in range(3):
        assert await network.collect() == {"dns": False, "http": False}
    assert len(calls) == 1
    hang.set()
    assert await network.collect() == {"dns": False, "http": False}


async def test_a_disk_that_is_not_there_hides_no_other(pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPPOCAMPUS_PULSE_DISKS", "/, /mnt/unmounted")
    resources = Resources.make(load(), pool)
    assert resources is not None
    reading = resources.collect()
    assert isinstance(reading, dict)
    assert reading["disks"]["/mnt/unmounted"] is reading["inodes"]["/mnt/unmounted"] is None
    assert reading["disks"]["/"] is not None
    full = {"memory": 10.0, "disks": {"/mnt/unmounted": None, "/": 95.0}}
    assert [each.key for each in (await run(snapshot({"system-resource": samples(full, full, full)})))[0]] == [
        "m1:/"
    ] * len(DISK_EFFECTS)


@pytest.mark.parametrize("failure", [RuleFailedError("crashed"), KeyError("x"), TimeoutError()])
async def test_rules_that_cannot_be_loaded_leave_the_survival_rules_and_count(
    dsn: str, pool: asyncpg.Pool, failure: Exception
) -> None:
    """In the same tick the disk is freed; each further tick tries again and counts, until the rollback."""
    await put_in_force(pool)

    async def loads(_rules: Any) -> Any:
        raise failure

    vitals = Vitals("m1")
    ticks: list[Any] = []
    loop = make_loop(dsn, vitals, load=loads, on_tick=ticks.append)
    connection = await database.connect(dsn)
    for _ in range(3):
        vitals.add("system-resource", FULL)
    for _ in range(6):
        await loop.tick(connection)
    await connection.close()
    assert await kinds(pool) == [*DISK_EFFECTS, "rollback"]
    code = failure_code(failure)
    assert [each.errors for each in ticks] == [{f"border:{code}": 1}] * 6


async def test_effects_that_cannot_be_stored_take_no_survival_effect_with_them(dsn: str, pool: asyncpg.Pool) -> None:
    """1e308 is seven bytes of JSON, and 309 in the database: what a release asks for may be larger there."""
    await put_in_force(pool)

    async def load_rules(_rules: Any) -> Any:
        async def rule(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
            return [Effect("notify", "n", {"n": [1e308] * 1000})], 15_000

        return rule

    vitals = Vitals("m1")
    loop = make_loop(dsn, vitals, load=load_rules)
    connection = await database.connect(dsn)
    for _ in range(3):
        vitals.add("system-resource", FULL)
    await loop.tick(connection)
    assert await kinds(pool) == list(DISK_EFFECTS)
    await loop.tick(connection)
    assert await pool.fetchval("SELECT count(*) FROM pulse_events WHERE key = 'border:not_stored'") == 1
    await connection.close()


async def test_a_key_fits_the_record_in_every_language(pool: asyncpg.Pool) -> None:
    """The column holds 512 bytes; a rule that names a machine of a long name goes on restarting its processes."""
    for key in ("夢" * 150, '"' * 200, "\x01" * 100):
        with pytest.raises(InvalidInputError, match=f"at most {KEY_BYTES_MAX} bytes"):
            Effect("notify", key)
    longest = Effect("k" * 64, "夢" * 132, cooldown_seconds=0)
    await ReleaseService(pool, "main").make_scope()
    decided = [["business", f"{longest.kind}|{longest.key}"]] * 32
    described = [longest.to_json()]
    assert await pool.fetchval("SELECT end_pulse_tick('main', $1, '{}', '{}', $2)", described, {"decided": decided})
    lost = [{"processes": [process(60) | {"machine": "机" * 150}], "report_seconds": 20.0}] * 2
    effects, _, failures = await run(snapshot({"process-alive": samples(*lost)}))
    assert [each.kind for each in effects] == ["restart_role"]
    assert effects[0].params["machine"] == "机" * 150
    assert failures == []
    assert survival._bounded("机" * 150) != survival._bounded("机" * 151)


async def test_a_snapshot_of_another_release_and_old_measurements_do_not_stop_the_lead(
    dsn: str, pool: asyncpg.Pool
) -> None:
    """The next leader ticks all the same; what is over is deleted by the leader, without any other role."""
    await ReleaseService(pool, "main").make_scope()
    for sense, age, data in (
        ("_snapshot", "0 min", '{"moment": 5}'),
        ("_snapshot", "61 min", "{}"),
        ("queue", "25 h", "{}"),
        ("queue", "23 h", "{}"),
    ):
        await pool.execute(
            f"""INSERT INTO vitals (scope, sense, machine, at, data)
                VALUES ('main', '{sense}', 'm1', now() - interval '{age}', '{data}')"""
        )
    ticks: list[Any] = []
    loop = make_loop(dsn, Vitals("m1"), on_tick=ticks.append)
    task = asyncio.create_task(loop.run())
    await until(lambda: ticks)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    rows = await pool.fetch("SELECT sense, at > now() - interval '24 h' AS is_kept FROM vitals")
    assert {tuple(row) for row in rows} == {("_snapshot", True), ("queue", True)}


async def test_an_effect_that_outlived_its_time_is_not_executed(pool: asyncpg.Pool, dsn: str) -> None:
    """Its job waited while no process ran: neither its executor nor the next leader acts on a past that is over."""
    await ReleaseService(pool, "main").make_scope()

    async def decided(key: str, minutes: int) -> int:
        event: int = await pool.fetchval(
            """INSERT INTO pulse_events (scope, kind, key, occurred_at, meta)
               VALUES ('main', 'effect', $1, engine_now() - $2 * interval '1 min',
                       '{"kind": "restart_command", "key": "b", "params": {"breaker": "b"}, "survival": true}')
               RETURNING id""",
            key,
            minutes,
        )
        return event

    fresh, stale, lost = await decided("a", 14), await decided("b", 16), await decided("c", 60 * 24 * 2)
    settings = load().model_copy(update={"pulse_llm_command": "true"})
    ended: list[str] = []
    executors = Executors(pool, settings, Supervised(), on_end=lambda _kind, end: ended.append(end))
    for each in (fresh, stale):
        await executors.execute(each)
    assert ended == ["acked", "expired"]
    loop = make_loop(dsn, Vitals("m1"))
    connection = await database.connect(dsn)
    await loop.tick(connection)
    await connection.close()
    code = await pool.fetchval(
        "SELECT meta ->> 'code' FROM pulse_events WHERE kind = 'effect-failed' AND ref = $1", lost
    )
    assert code == "expired"


def test_a_failure_is_a_code_or_a_class() -> None:
    """Whatever an exception carries as its code: no text reaches the record."""

    class WordyError(Exception):
        code = "Ann said: my PIN is 4711"

    assert failure_code(WordyError("secret")) == "WordyError"
    assert failure_code(RuleFailedError("crashed", "secret")) == "crashed"
    assert failure_code(KeyError("secret")) == "KeyError"
