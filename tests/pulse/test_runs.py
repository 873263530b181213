"""Runs: one transaction for events and the run's row, one end, one owner."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import asyncpg
import pytest

from pulse.errors import (
    EventConflictError,
    EventTooLargeError,
    InvalidInputError,
    PulseError,
    RunConflictError,
    RunEndedError,
    RunFencedError,
    RunNotFoundError,
    SessionNotFoundError,
)
from pulse.event_types import TERMINAL_EVENT_TYPES
from pulse.events import Event, Session
from pulse.runs.heartbeat import RunHeartbeat
from pulse.runs.records import Run, RunStatus
from pulse.runs.service import RunService
from pulse.session_service import OpenSessionService
from tests.support.lock_gates import until_one_waits_for_a_lock
from tests.support.waiting import WAIT_SECONDS


@pytest.fixture
def sessions(pool: asyncpg.Pool) -> OpenSessionService:
    return OpenSessionService(pool)


@pytest.fixture
def runs(pool: asyncpg.Pool) -> RunService:
    return RunService(pool)


@pytest.fixture
async def session(sessions: OpenSessionService) -> Session:
    return await sessions.create_session("app", "mei", session_id="s")


def question(text: str = "Where is my parcel?") -> Event:
    return Event(author="user", content={"content": text, "message_id": "m1"}, id="m1")


async def test_a_run_from_its_question_to_its_answer(
    runs: RunService, sessions: OpenSessionService, session: Session
) -> None:
    started = await runs.start("app", "mei", "s", "run-1", question())
    assert started.created
    assert started.run.status is RunStatus.RUNNING
    await runs.think(started.run, "I have to look it up")
    called = await runs.call_tool(started.run, "parcels", {"id": 7}, tool_call_id="c1")
    await runs.tool_result(called.run, "c1", {"eta": "tomorrow"})
    done = await runs.finish(called.run, "It arrives tomorrow.", message_id="m2")
    assert done.run.status is RunStatus.COMPLETED
    assert done.run == await runs.get("app", "mei", "run-1")
    events = await sessions.list_events("app", "mei", "s")
    assert [event.event_type for event in events] == [
        "user_message", "thought", "act", "observe", "assistant_message", "complete",
    ]  # fmt: skip
    assert {event.invocation_id for event in events} == {"run-1"}
    assert (done.run.first_sequence_num, done.run.last_sequence_num) == (1, 6)
    assert done.run.thinking_steps == [{"sequence_num": 2, "event_id": events[1].id}]
    assert done.run.tool_calls == [
        {"tool_call_id": "c1", "tool_name": "parcels", "sequence_num": 3, "result_sequence_num": 4, "is_error": False}
    ]
    assert set(TERMINAL_EVENT_TYPES.values()) & {event.event_type for event in events} == {"complete"}


async def started(runs: RunService, run_id: str = "run-1") -> Run:
    return (await runs.start("app", "mei", "s", run_id)).run


async def types(sessions: OpenSessionService) -> list[str]:
    return [event.event_type for event in await sessions.list_events("app", "mei", "s")]


async def orphan(pool: asyncpg.Pool) -> None:
    """As if the leases of all runs had expired."""
    await pool.execute("UPDATE runs SET lease_until = now() - interval '1 second'")


async def test_the_same_run_id_is_not_executed_again(
    runs: RunService, sessions: OpenSessionService, pool: asyncpg.Pool, session: Session
) -> None:
    """Also from another process, with another message, after the run's end, and ten times at once."""
    outcomes = await asyncio.gather(
        *(RunService(pool).start("app", "mei", "s", "run-1", Event(author="user", content=str(n))) for n in range(10))
    )
    assert [outcome.created for outcome in outcomes].count(True) == 1
    assert len({(outcome.run.id, outcome.run.holder) for outcome in outcomes}) == 1
    (winner,) = (outcome for outcome in outcomes if outcome.created)
    await runs_of(winner.run, pool).finish(winner.run, "done")
    again = await runs.start("app", "mei", "s", "run-1", question())
    assert (again.created, again.run.status, again.events) == (False, RunStatus.COMPLETED, ())
    assert await types(sessions) == ["user_message", "assistant_message", "complete"]


async def test_unknown_and_foreign_runs_are_clear_errors(
    runs: RunService, sessions: OpenSessionService, session: Session
) -> None:
    run = await started(runs)
    await sessions.create_session("app", "tom", session_id="s")
    await sessions.create_session("other", "mei", session_id="s")
    with pytest.raises(RunConflictError, match="another session"):
        await runs.start("app", "tom", "s", "run-1")
    assert (await runs.start("other", "mei", "s", "run-1")).created
    for app, user, run_id in (("app", "tom", "run-1"), ("app", "mei", "run-2"), ("nowhere", "mei", "run-1")):
        with pytest.raises(RunNotFoundError):
            await runs.get(app, user, run_id)
        with pytest.raises(RunNotFoundError):
            await runs.request_cancel(app, user, run_id)
    with pytest.raises(SessionNotFoundError):
        await runs.start("app", "mei", "nowhere", "run-3")
    with pytest.raises(InvalidInputError):
        await runs.start("app", "mei", "s", "")
    with pytest.raises(InvalidInputError):
        RunService(runs._pool, lease_seconds=0.5)
    assert [each.run_id for each in await runs.list_runs("app", "mei", "s")] == ["run-1"]
    assert run == await runs.get("app", "mei", "run-1")


async def test_only_the_holder_writes_to_a_run_until_it_ends(
    runs: RunService, sessions: OpenSessionService, pool: asyncpg.Pool, session: Session
) -> None:
    """A refused write leaves neither an event nor a changed row. A repeated write changes nothing."""
    run = await started(runs)
    with pytest.raises(RunFencedError):
        await runs.think(replace(run, holder="another process"), "mine now")
    thought = await runs.think(run, "hmm", event_id="t1")
    assert (await runs.think(run, "hmm", event_id="t1")).events == thought.events
    for forbidden in ("complete", "error", "cancelled"):
        with pytest.raises(InvalidInputError, match="end_run"):
            await runs.write(run, [Event(author="system", event_type=forbidden, content={})])
    done = await runs.finish(run, "done", message_id="m2")
    assert (await runs.finish(run, "done", message_id="m2")) == done
    before = await types(sessions)
    for late in (runs.think(run, "one more"), runs.fail(run, "too late"), runs.cancel(run), runs.finish(run, "other")):
        with pytest.raises(PulseError):
            await late
    with pytest.raises(asyncpg.PostgresError, match="cannot change"):
        await pool.execute("UPDATE runs SET status = 'running', completed_at = NULL")
    assert await types(sessions) == before == ["run_started", "thought", "assistant_message", "complete"]
    assert await runs.get("app", "mei", "run-1") == done.run
    assert done.run.thinking_steps == [{"sequence_num": 2, "event_id": "t1"}]


async def test_the_event_and_the_runs_row_are_one_transaction(
    runs: RunService, sessions: OpenSessionService, pool: asyncpg.Pool, session: Session
) -> None:
    """A failure after the events were written leaves neither them nor the run, and vice versa."""
    await pool.execute(
        """CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$;
           CREATE TRIGGER fail AFTER UPDATE ON runs FOR EACH ROW EXECUTE FUNCTION fail()"""
    )
    run = await started(runs)
    for write in (runs.think(run, "a"), runs.finish(run, "b"), runs.fail(run, "c"), runs.reap()):
        await orphan_without_trigger(pool)
        with pytest.raises(asyncpg.RaiseError):
            await write
    assert await types(sessions) == ["run_started"]
    await pool.execute("DROP TRIGGER fail ON runs")
    too_large = Event(author="user", content="x" * 9_000_000)
    with pytest.raises(EventTooLargeError):
        await runs.start("app", "mei", "s", "run-2", too_large)
    with pytest.raises(EventConflictError):
        await runs.start("app", "mei", "s", "run-2", replace(question(), id=(await _first_id(sessions))))
    assert [each.run_id for each in await runs.list_runs("app", "mei", "s")] == ["run-1"]


async def test_an_orphaned_run_is_ended_with_an_error_event_by_any_reaper(
    runs: RunService, sessions: OpenSessionService, pool: asyncpg.Pool, session: Session
) -> None:
    """Once, with many reapers. A partial answer is not a message. An owner that wakes up can neither continue nor
    finish."""
    run = await started(runs)
    await runs.think(run, "it was working")
    assert await runs.reap() == 0
    await orphan(pool)
    assert sum(await asyncio.gather(*(RunService(pool).reap() for _ in range(6)))) == 1
    ended = await runs.get("app", "mei", "run-1")
    assert (ended.status, ended.error_code) == (RunStatus.FAILED, "orphaned")
    events = await sessions.list_events("app", "mei", "s")
    assert [event.event_type for event in events] == ["run_started", "thought", "error"]
    assert events[-1].content == {"message": ended.error, "code": "orphaned"}
    assert (events[-1].invocation_id, events[-1].sequence_num) == ("run-1", ended.last_sequence_num)
    for late in (runs.think(run, "where was I"), runs.finish(run, "done"), runs.fail(run, "x")):
        with pytest.raises(PulseError, match="ended"):
            await late
    assert await types(sessions) == ["run_started", "thought", "error"]
    assert (await runs.renew([run.id]))[run.id] == (RunStatus.FAILED, False)


async def test_an_orphan_with_a_requested_cancellation_ends_as_cancelled(
    runs: RunService, sessions: OpenSessionService, pool: asyncpg.Pool, session: Session
) -> None:
    await started(runs)
    assert (await runs.request_cancel("app", "mei", "run-1")).cancel_requested
    await orphan(pool)
    assert await runs.reap() == 1
    ended = await runs.get("app", "mei", "run-1")
    assert (ended.status, ended.error, ended.error_code) == (RunStatus.CANCELLED, None, None)
    assert await types(sessions) == ["run_started", "cancelled"]


async def test_a_reaper_skips_locked_runs_and_ends_the_rest_in_batches(
    runs: RunService, sessions: OpenSessionService, pool: asyncpg.Pool, session: Session
) -> None:
    for n in range(5):
        await sessions.create_session("app", "mei", session_id=f"s{n}")
        await runs.start("app", "mei", f"s{n}", f"run-{n}")
    await orphan(pool)
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SELECT FROM threads WHERE session_id = 's0' FOR UPDATE")
        assert await asyncio.wait_for(runs.reap(limit=3), WAIT_SECONDS) == 2
        assert await asyncio.wait_for(runs.reap(limit=3), WAIT_SECONDS) == 2
    assert await runs.reap() == 1
    assert await runs.reap() == 0


async def test_a_run_ends_once_when_owner_and_reaper_race(
    runs: RunService, sessions: OpenSessionService, pool: asyncpg.Pool, session: Session
) -> None:
    """Gated by a lock, each of them first once. The second finds the run ended."""
    for first in ("owner", "reaper"):
        run = await started(runs, first)
        await orphan(pool)
        async with pool.acquire() as gate:
            async with gate.transaction():
                await gate.execute("SELECT FROM runs FOR UPDATE")
                if first == "owner":
                    ending = asyncio.create_task(runs.finish(run, "done"))
                    await until_one_waits_for_a_lock(pool)
                    # The owner has locked the session by now, so this reaper skips it.
                    assert await runs.reap() == 0
                else:
                    await gate.execute("SELECT reap_runs()")
                    ending = asyncio.create_task(runs.finish(run, "done"))
                    await until_one_waits_for_a_lock(pool)
            if first == "owner":
                assert (await ending).run.status is RunStatus.COMPLETED
            else:
                with pytest.raises(RunEndedError):
                    await ending
        assert await runs.reap() == 0
        read = await runs.get("app", "mei", first)
        assert read.status is (RunStatus.COMPLETED if first == "owner" else RunStatus.FAILED)
        last = [each async for each in _of_run(sessions, first) if each in TERMINAL_EVENT_TYPES.values()]
        assert last == [TERMINAL_EVENT_TYPES[read.status]]


async def test_many_concurrent_ends_leave_one(
    runs: RunService, sessions: OpenSessionService, pool: asyncpg.Pool, session: Session
) -> None:
    for n in range(5):
        run = await started(runs, f"run-{n}")
        await orphan(pool)
        await asyncio.gather(
            runs.finish(run, "done"), runs.fail(run, "no"), runs.cancel(run), runs.reap(), runs.reap(),
            return_exceptions=True,
        )  # fmt: skip
        await runs.reap()
        status = (await runs.get("app", "mei", f"run-{n}")).status
        last = [each async for each in _of_run(sessions, f"run-{n}") if each in TERMINAL_EVENT_TYPES.values()]
        assert last == [TERMINAL_EVENT_TYPES[status]]


async def test_a_cancellation_or_lost_lease_is_reported_to_the_owner(
    runs: RunService, sessions: OpenSessionService, pool: asyncpg.Pool, session: Session
) -> None:
    """The heartbeat of one process renews all its runs, and returns those that have ended."""
    heartbeat = RunHeartbeat(runs, interval_seconds=0.05)
    one, other = await started(runs, "one"), await started(runs, "other")
    async with heartbeat.watch(one) as first, heartbeat.watch(other) as second:
        await orphan(pool)
        async with asyncio.timeout(WAIT_SECONDS):
            while await pool.fetchval("SELECT count(*) FROM runs WHERE lease_until < now()"):
                await asyncio.sleep(0.01)
        await runs.request_cancel("app", "mei", "one")
        await asyncio.wait_for(first.cancel_requested.wait(), WAIT_SECONDS)
        assert not second.cancel_requested.is_set()
        assert not first.lost.is_set()
        await runs.cancel(one, "as you wish")
        await RunService(pool, holder=runs.holder).fail(other, "elsewhere")
        await asyncio.wait_for(second.lost.wait(), WAIT_SECONDS)
    await heartbeat.close()
    await heartbeat.close()
    assert (await runs.request_cancel("app", "mei", "one")).status is RunStatus.CANCELLED
    assert await types(sessions) == ["run_started", "run_started", "cancelled", "error"]


async def test_a_heartbeat_renews_only_its_own_active_runs(
    runs: RunService, pool: asyncpg.Pool, session: Session
) -> None:
    run = await started(runs)
    await orphan(pool)
    stranger = RunService(pool)
    assert await stranger.renew([run.id]) == {run.id: (RunStatus.RUNNING, False)}
    assert await pool.fetchval("SELECT lease_until < now() FROM runs")
    assert await runs.renew([run.id]) == {run.id: (RunStatus.RUNNING, False)}
    assert await pool.fetchval("SELECT lease_until > now() FROM runs")
    async with pool.acquire() as connection, connection.transaction():
        # Locked by a write of its own, which renews it. The heartbeat of the other runs does not wait.
        await connection.execute("SELECT FROM runs FOR UPDATE")
        assert run.id in await asyncio.wait_for(runs.renew([run.id]), WAIT_SECONDS)
    assert await runs.renew([]) == {}


async def test_deleting_a_session_deletes_its_runs(
    runs: RunService, sessions: OpenSessionService, session: Session
) -> None:
    run = await started(runs)
    await sessions.delete_session("app", "mei", "s")
    for late in (runs.think(run, "x"), runs.finish(run, "x"), runs.get("app", "mei", "run-1")):
        with pytest.raises(RunNotFoundError):
            await late
    assert await runs.renew([run.id]) == {}


async def test_a_runs_row_keeps_its_newest_200_steps(runs: RunService, session: Session) -> None:
    run = await started(runs)
    for part in range(3):
        events = [
            Event(author="model", event_type="thought", content={"content": "hm"}, id=f"t{part * 90 + n}")
            for n in range(90)
        ]
        run = (await runs.write(run, events)).run
    assert [step["event_id"] for step in run.thinking_steps] == [f"t{n}" for n in range(70, 270)]


async def test_finish_can_change_the_state_and_store_a_result(
    runs: RunService, sessions: OpenSessionService, pool: asyncpg.Pool, session: Session
) -> None:
    run = await started(runs)
    outcome = {"type": "interrupt", "interrupts": [{"id": "i1"}]}
    await runs.finish(run, result=outcome, state_delta={"step": 2, "user:lang": "zh"})
    events = await sessions.list_events("app", "mei", "s")
    assert events[-1].content == {"result": outcome}
    read = await sessions.get_session("app", "mei", "s")
    assert read is not None
    assert read.state == {"step": 2, "user:lang": "zh"}
    assert await pool.fetchval("SELECT state FROM snapshots") == {"step": 2}


def runs_of(run: Run, pool: asyncpg.Pool) -> RunService:
    return RunService(pool, holder=run.holder)


async def _of_run(sessions: OpenSessionService, run_id: str) -> AsyncIterator[str]:
    for event in await sessions.list_events("app", "mei", "s", limit=1000):
        if event.invocation_id == run_id:
            yield event.event_type


async def _first_id(sessions: OpenSessionService) -> str:
    return (await sessions.list_events("app", "mei", "s"))[0].id


async def orphan_without_trigger(pool: asyncpg.Pool) -> None:
    await pool.execute("ALTER TABLE runs DISABLE TRIGGER fail")
    await orphan(pool)
    await pool.execute("ALTER TABLE runs ENABLE TRIGGER fail")
