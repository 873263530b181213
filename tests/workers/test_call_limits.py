"""The call limit that all processes share and the breaker of a pool, in SQL and as the gate before each call."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest
from prometheus_client import CollectorRegistry

from hippocampus.errors import (
    CallPostponedError,
    PermanentProviderError,
    ProviderError,
    RateLimitedError,
    TransientProviderError,
)
from tests.support.pace import slowdown
from tests.support.paths import ROOT
from tests.support.waiting import WAIT_SECONDS, until
from workers.models import call_gate
from workers.models.call_gate import GateRule, SharedCallGate, embedder_gate, generator_gate, reranker_gate
from workers.settings import Settings, load
from workers.telemetry.call_metrics import CallMetrics

RATE, BURST = 50, 5
RULE = {"provider": "gemini", "limit": "m", "breaker": "p/m"}
# The start of each admitted call, in the order of the row's lock.
STARTS = f"""
CREATE TABLE starts (at timestamptz);
CREATE FUNCTION note_start() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO starts
    VALUES (greatest(NEW.full_at - make_interval(secs => {BURST}::float / {RATE}), clock_timestamp()));
    RETURN NULL;
END $$;
CREATE TRIGGER note_start AFTER UPDATE OF full_at ON call_limits FOR EACH ROW EXECUTE FUNCTION note_start();
"""
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
WAITING_SINCE = """
SELECT max(query_start) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()
"""
OTHER_PROCESS = """
import asyncio, json, sys
from tests.workers.test_call_limits import try_calls
print(json.dumps(asyncio.run(try_calls(sys.argv[1], int(sys.argv[2])))))
"""

MakeGate = Callable[..., SharedCallGate]


class Sleeps(list[float]):
    """A sleep that only records its durations."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def make_gate(pool: asyncpg.Pool, registry: CollectorRegistry) -> MakeGate:
    metrics = CallMetrics(registry)

    def make(sleep: Any = asyncio.sleep, **rule: Any) -> SharedCallGate:
        return SharedCallGate(pool, GateRule(**{**RULE, **rule}), metrics, sleep=sleep)

    return make


async def try_calls(dsn: str, count: int) -> list[str]:
    """In another process, make successful calls, all at once; report the outcome of each."""
    from pulse import database

    async with await database.create_pool(dsn, min_size=1, max_size=count) as pool:
        gate = SharedCallGate(pool, GateRule(**RULE), CallMetrics(CollectorRegistry()))
        return list(await asyncio.gather(*(outcome(gate) for _ in range(count))))


async def outcome(gate: SharedCallGate, error: ProviderError | None = None) -> str:
    """Make one call through a gate, which raises the error if there is one; return the outcome's code."""
    try:
        async with gate.admit("summarize"):
            await asyncio.sleep(0.05)
            if error is not None:
                raise error
    except ProviderError as raised:
        return f"{type(raised).__name__} {raised.code}"
    return "ok"


async def in_another_process(dsn: str, count: int = 1) -> list[str]:
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", OTHER_PROCESS, dsn, str(count)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


async def breaker(pool: asyncpg.Pool) -> str | None:
    state: str | None = await pool.fetchval("SELECT state FROM call_breakers WHERE name = 'p/m'")
    return state


async def _is_half_open(pool: asyncpg.Pool) -> bool:
    return await breaker(pool) == "half_open"


async def let_time_pass(pool: asyncpg.Pool) -> None:
    """End the open breaker's wait."""
    await pool.execute("UPDATE call_breakers SET next_probe_at = clock_timestamp()")


DOWN = TransientProviderError("no answer", code="503")


# -- the limit


@pytest.mark.timing
async def test_no_second_has_more_calls_than_rate_and_burst(pool: asyncpg.Pool, make_gate: MakeGate) -> None:
    """40 callers at once for 2 s: at most 50 + 5 calls start in any second, and at least 50 a second do."""
    await pool.execute(STARTS)
    gate = make_gate(calls_per_second=RATE, burst=BURST)
    done = 0

    async def call_on_and_on() -> None:
        nonlocal done
        while True:
            async with gate.admit("summarize"):
                done += 1

    callers = [asyncio.create_task(call_on_and_on()) for _ in range(40)]
    await asyncio.sleep(2)
    for caller in callers:
        caller.cancel()
    await asyncio.gather(*callers, return_exceptions=True)
    # Reservations beyond the end count as well: the last 40 callers each hold one.
    worst, total, seconds = await pool.fetchrow(
        "SELECT max(n), count(*), extract(epoch FROM max(at) - min(at))::float FROM"
        " (SELECT at, count(*) OVER (ORDER BY at RANGE BETWEEN CURRENT ROW AND interval '999999 us' FOLLOWING) AS n"
        " FROM starts) AS windows"
    )
    assert worst <= RATE + BURST
    # What a busy machine does not ask for in time is lost beyond the burst.
    assert (RATE * seconds + BURST) / slowdown() ** 2 - 2 <= total <= RATE * seconds + BURST + 2
    assert done >= (2 * RATE - 5) / slowdown() ** 2


async def test_a_wait_that_is_too_long_is_not_slept(pool: asyncpg.Pool, make_gate: MakeGate) -> None:
    """The call is postponed with the time to retry, and takes no slot from the waiting callers."""
    sleeps = Sleeps()
    gate = make_gate(sleeps, calls_per_second=0.01, burst=1, wait_seconds_max=150)
    assert [await outcome(gate) for _ in range(2)] == ["ok", "ok"]
    assert sleeps == [pytest.approx(100, abs=40)]
    full_at = await pool.fetchval("SELECT full_at FROM call_limits")
    with pytest.raises(RateLimitedError) as caught:
        async with gate.admit("summarize"):
            raise AssertionError("it was sent")
    assert isinstance(caught.value, CallPostponedError)
    assert caught.value.retry_after_seconds == pytest.approx(200, abs=40)
    assert await pool.fetchval("SELECT full_at FROM call_limits") == full_at
    assert gate.pause_seconds() == pytest.approx(50, abs=40)


async def test_calls_that_yield_are_delayed_first(pool: asyncpg.Pool, make_gate: MakeGate) -> None:
    """Where the limit is reached, a deep reflection waits for a free slot, and whoever comes later goes before it."""
    rule = {"calls_per_second": 0.01, "burst": 1, "wait_seconds_max": 150}
    assert await outcome(make_gate(**rule)) == "ok"
    overtaken = Sleeps()

    async def overtake(seconds: float) -> None:
        if not overtaken:
            await pool.fetch("SELECT reserve_call('m', 0.01, 1, 1, 150)")
        await overtaken(seconds)

    yielding = make_gate(overtake, yields=True, **rule)
    assert await outcome(yielding) == "CallPostponedError limited"
    assert overtaken == [pytest.approx(100, abs=40)]
    assert yielding.pause_seconds() == pytest.approx(50, abs=40)
    # Nobody else wants the slot: it is taken once it is free.
    began = time.monotonic()
    await pool.execute("UPDATE call_limits SET full_at = clock_timestamp() + interval '0.4 seconds'")
    assert await outcome(make_gate(yields=True, **{**rule, "calls_per_second": 100})) == "ok"
    assert time.monotonic() - began > 0.3
    # An open breaker and another role's gate are as they were.
    for role, yields in (("deep_reflection", True), ("retention", True), ("fast_replay", False), ("writer", False)):
        for make in (generator_gate, embedder_gate):
            gate = make(Settings(), pool, CallMetrics(CollectorRegistry()), role)
            assert gate._rule.yields == yields


@pytest.mark.parametrize(("seconds", "expected"), [(0.2, "CallPostponedError limited"), (30.0, "ok")])
async def test_a_reranker_waits_for_a_small_part_of_its_time(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch, seconds: float, expected: str
) -> None:
    """Most of it is for the call, so that a server that is too slow is seen to fail."""
    monkeypatch.setenv("HIPPOCAMPUS_RERANKER", "openai:m")
    monkeypatch.setenv("HIPPOCAMPUS_RERANKER_BASE_URL", "http://127.0.0.1:9/v1")
    settings = load().model_copy(
        update={"generate_calls_per_second": 1.0, "generate_calls_burst": 1, "rerank_seconds": seconds}
    )
    await pool.execute("SELECT reserve_call('m', 1, 1, 1, 150)")
    ahead = 0.49 if expected == "ok" else 60.0  # refused, however late the request comes
    await pool.execute("UPDATE call_limits SET full_at = clock_timestamp() + make_interval(secs => $1)", ahead)
    gate = reranker_gate(settings, pool, CallMetrics(CollectorRegistry()), "writer")
    assert gate is not None
    assert gate._rule.wait_seconds_max == pytest.approx(min(0.5, 0.05 * seconds))
    assert await outcome(gate) == expected


async def test_a_rate_of_zero_reserves_nothing(pool: asyncpg.Pool, make_gate: MakeGate) -> None:
    assert set(await asyncio.gather(*(outcome(make_gate()) for _ in range(50)))) == {"ok"}
    assert await pool.fetchval("SELECT count(*) FROM call_limits") == 0


@pytest.mark.parametrize("rate", [0, 1000])
async def test_a_429_holds_back_every_process(dsn: str, pool: asyncpg.Pool, make_gate: MakeGate, rate: int) -> None:
    """After a 429 no process makes a call before the time the provider named, with or without a limit."""
    refused = RateLimitedError("slow down", retry_after_seconds=300)
    gate = make_gate(calls_per_second=rate, burst=10)
    assert await outcome(gate, refused) == "RateLimitedError 429"
    assert await in_another_process(dsn) == ["CallPostponedError limited"]
    assert await outcome(gate) == "CallPostponedError limited"
    assert 200 < gate.pause_seconds() <= 295
    # A shorter one does not end it.
    await pool.execute("SELECT penalise_limit('m', 1)")
    assert await pool.fetchval("SELECT blocked_seconds('m')") > 200


async def test_a_penalty_applies_to_waiting_callers(pool: asyncpg.Pool, make_gate: MakeGate) -> None:
    """A slot that was reserved before the 429 is not used during the penalty."""

    async def penalised_meanwhile(_seconds: float) -> None:
        await pool.execute("SELECT penalise_limit('m', 60)")

    gate = make_gate(penalised_meanwhile, calls_per_second=0.02, burst=1)
    assert [await outcome(gate) for _ in range(2)] == ["ok", "CallPostponedError limited"]


async def test_after_a_penalty_there_is_no_burst(pool: asyncpg.Pool) -> None:
    """Delayed callers start one by one."""
    now = "extract(epoch FROM clock_timestamp())::double precision"
    penalised_at = await pool.fetchval(f"SELECT {now}")
    await pool.execute("SELECT penalise_limit('m', 20)")
    starts = [await pool.fetchval(f"SELECT {now} + wait_seconds FROM reserve_call('m', 1, 4, 1, 60)") for _ in range(4)]
    assert starts[0] - penalised_at > 20.9
    assert [later - sooner for sooner, later in itertools.pairwise(starts)] == pytest.approx([1] * 3, abs=0.3)


@pytest.mark.parametrize("daily", [True, False])
async def test_a_daily_quota_is_a_long_penalty(pool: asyncpg.Pool, make_gate: MakeGate, daily: bool) -> None:
    """An hour without calls, whatever RetryInfo says; for a minute's 429 without RetryInfo, some seconds."""
    before = await pool.fetchval("SELECT clock_timestamp()")
    await outcome(make_gate(), RateLimitedError("x", daily=daily, retry_after_seconds=20 if daily else None))
    blocked = await pool.fetchval("SELECT extract(epoch FROM blocked_until - $1)::float FROM call_limits", before)
    assert (3600 <= blocked < 3700) if daily else (2 <= blocked < 40)


@pytest.mark.parametrize("arguments", ["'m', -1", "'m', 1, 0", "'m', 1, 1, 0"])
async def test_an_invalid_rate_is_an_error(pool: asyncpg.Pool, arguments: str) -> None:
    with pytest.raises(asyncpg.PostgresError) as caught:
        await pool.fetch(f"SELECT reserve_call({arguments})")
    assert caught.value.sqlstate == "HP007"


async def test_waits_and_refusals_are_measured(make_gate: MakeGate, registry: CollectorRegistry) -> None:
    gate = make_gate(Sleeps(), calls_per_second=0.01, burst=1, wait_seconds_max=150)
    assert [await outcome(gate) for _ in range(3)] == ["ok", "ok", "CallPostponedError limited"]
    labels = {"provider": "gemini", "operation": "summarize"}
    assert registry.get_sample_value("model_rate_limit_wait_seconds_count", labels) == 2
    assert registry.get_sample_value("model_rate_limit_wait_seconds_sum", labels) == pytest.approx(100, abs=40)
    labels["reason"] = "limited"
    assert registry.get_sample_value("model_calls_postponed_total", labels) == 1


# -- the breaker


async def test_the_breaker_opens_lets_one_probe_through_and_closes(
    dsn: str, pool: asyncpg.Pool, make_gate: MakeGate
) -> None:
    """closed -> open -> half open, one probe among 20 callers of two processes -> closed."""
    gate = make_gate(open_seconds=300)
    outcomes = [await outcome(gate, DOWN) for _ in range(5)]
    assert outcomes == ["TransientProviderError 503"] * 4 + ["CallPostponedError 503"]
    assert await breaker(pool) == "open"
    assert await in_another_process(dsn) == ["CallPostponedError breaker_open"]
    await let_time_pass(pool)
    async with gate.admit("summarize"):
        here = await asyncio.gather(*(outcome(gate) for _ in range(7)))
        there = await in_another_process(dsn, 12)
    assert here + there == ["CallPostponedError breaker_half_open"] * 19
    assert await breaker(pool) == "closed"
    assert await pool.fetchval("SELECT probes FROM call_breakers") == 1
    assert await in_another_process(dsn) == ["ok"]
    assert await outcome(gate) == "ok"


async def test_exactly_one_probe_over_two_processes(dsn: str, pool: asyncpg.Pool, make_gate: MakeGate) -> None:
    """While a probe runs in one process, no call of another is admitted."""
    gate = make_gate(failures_max=1)
    await outcome(gate, DOWN)
    await let_time_pass(pool)
    async with gate.admit("summarize"):
        assert await breaker(pool) == "half_open"
        assert await in_another_process(dsn, 10) == ["CallPostponedError breaker_half_open"] * 10
        assert await outcome(gate) == "CallPostponedError breaker_half_open"
    assert await breaker(pool) == "closed"
    assert await in_another_process(dsn, 2) == ["ok", "ok"]


async def test_two_simultaneous_requests_are_one_probe(pool: asyncpg.Pool, make_gate: MakeGate) -> None:
    """Both saw that the breaker's wait was over; the row's lock decides, and the other is refused."""
    gate = make_gate(failures_max=1)
    await outcome(gate, DOWN)
    await let_time_pass(pool)
    refused = asyncio.Event()

    async def rival() -> str:
        try:
            async with gate.admit("summarize"):
                # A probe that was answered closes the breaker: not before the other has been refused.
                await asyncio.wait_for(refused.wait(), WAIT_SECONDS)
        except CallPostponedError as error:
            refused.set()
            return f"{type(error).__name__} {error.code}"
        return "ok"

    async with pool.acquire() as holder, holder.transaction():
        await holder.execute("SELECT FROM call_breakers FOR UPDATE")
        rivals = [asyncio.create_task(rival()) for _ in range(2)]
        async with asyncio.timeout(WAIT_SECONDS):
            while await pool.fetchval(WAITING) < 2:
                await asyncio.sleep(0.005)
    assert sorted(await asyncio.gather(*rivals)) == ["CallPostponedError breaker_half_open", "ok"]
    assert await pool.fetchval("SELECT probes FROM call_breakers") == 1


async def test_a_failed_probe_opens_for_twice_as_long(pool: asyncpg.Pool, make_gate: MakeGate) -> None:
    """Up to 16 times; the job that was the probe is not blamed."""
    gate = make_gate(failures_max=1, open_seconds=100)
    waits = []
    for _ in range(6):
        assert await outcome(gate, DOWN) == "CallPostponedError 503"
        waits.append(await pool.fetchval("SELECT probe_seconds FROM call_breaker_states()"))
        await let_time_pass(pool)
    assert waits == pytest.approx([100, 200, 400, 800, 1600, 1600], abs=40)


async def test_a_cancelled_or_lost_probe_makes_room_for_another(pool: asyncpg.Pool, make_gate: MakeGate) -> None:
    """After a stopped or a killed worker the breaker does not stay half open for ever."""
    gate = make_gate(failures_max=2)
    await outcome(gate, DOWN)
    await outcome(gate, DOWN)
    await let_time_pass(pool)

    async def call_without_end() -> None:
        async with gate.admit("summarize"):
            await asyncio.Event().wait()

    probe = asyncio.create_task(call_without_end())
    await until(lambda: _is_half_open(pool))
    probe.cancel()
    with pytest.raises(asyncio.CancelledError):
        await probe
    lost = gate.admit("summarize")
    await lost.__aenter__()
    assert await outcome(gate) == "CallPostponedError breaker_half_open"
    await let_time_pass(pool)
    assert await outcome(gate) == "ok"
    assert await breaker(pool) == "closed"
    # The late end of the lost one is one failure like any other.
    await lost.__aexit__(TransientProviderError, DOWN, None)
    assert (await breaker(pool), await pool.fetchval("SELECT failures FROM call_breakers")) == ("closed", 1)


async def test_the_outcome_of_a_probe_is_reported_again(
    pool: asyncpg.Pool, make_gate: MakeGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement that takes too long once does not hold back all calls for as long as a call may take."""
    monkeypatch.setattr(call_gate, "REPORT_SECONDS_MAX", 0.5)
    monkeypatch.setattr(call_gate, "PROBE_REPORTS_MAX", 1_000)
    gate = make_gate(failures_max=1, open_seconds=100)
    await outcome(gate, DOWN)
    await let_time_pass(pool)
    probe = gate.admit("summarize")
    await probe.__aenter__()
    async with pool.acquire() as holder, holder.transaction():
        await holder.execute("SELECT FROM call_breakers FOR UPDATE")
        end = asyncio.create_task(probe.__aexit__(TransientProviderError, DOWN, None))
        first = await until(lambda: pool.fetchval(WAITING_SINCE))
        await until(lambda: pool.fetchval(f"SELECT ({WAITING_SINCE}) > $1", first))
    with pytest.raises(CallPostponedError):
        await end
    assert (await breaker(pool), await pool.fetchval("SELECT openings FROM call_breakers")) == ("open", 2)


@pytest.mark.parametrize(
    "error", [PermanentProviderError("x", code="400"), RateLimitedError("x", retry_after_seconds=0.001)], ids=str
)
async def test_responses_of_any_kind_never_open_it(
    pool: asyncpg.Pool, make_gate: MakeGate, error: ProviderError
) -> None:
    """A refusal is a response, too: it interrupts a row of failures, and as a probe it closes the breaker."""
    gate = make_gate(failures_max=2)
    for each in (DOWN, error, DOWN, error, error, error):
        await outcome(gate, each)
    assert await breaker(pool) == "closed"
    await outcome(gate, DOWN)
    await outcome(gate, DOWN)
    await let_time_pass(pool)
    await outcome(gate, error)
    assert await breaker(pool) == "closed"


async def test_failures_far_apart_are_not_an_outage(pool: asyncpg.Pool, make_gate: MakeGate) -> None:
    gate = make_gate(failures_max=2)
    await outcome(gate, DOWN)
    await pool.execute("UPDATE call_breakers SET first_failure_at = clock_timestamp() - interval '2 minutes'")
    await outcome(gate, DOWN)
    assert await breaker(pool) == "closed"


async def test_zero_failures_disables_the_breaker(pool: asyncpg.Pool, make_gate: MakeGate) -> None:
    gate = make_gate(failures_max=0)
    assert {await outcome(gate, DOWN) for _ in range(20)} == {"TransientProviderError 503"}
    assert await breaker(pool) is None


async def test_a_failed_report_costs_no_reply(pool: asyncpg.Pool, make_gate: MakeGate) -> None:
    """The database goes down during a call: its reply is still returned."""
    gate = make_gate(failures_max=3)
    await outcome(gate, DOWN)
    async with gate.admit("summarize"):
        await pool.execute("DROP FUNCTION report_success")
