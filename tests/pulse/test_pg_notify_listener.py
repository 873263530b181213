"""The listener on a real server: events in sequence, each once, whatever happens to its connection."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

import asyncpg
import pytest

from pulse.events import Event
from pulse.notify import connection
from pulse.notify.connection import ListenerTiming
from pulse.pg_notify_listener import PgNotifyListener
from pulse.postgres.statements import Statements
from pulse.session_service import OpenSessionService
from tests.support.listener_drill import Watch, drill, kill_listener
from tests.support.waiting import until

QUICK = ListenerTiming(heartbeat_seconds=0.2, answer_seconds=2.0, poll_seconds=30.0, retry_seconds_max=0.1)


@pytest.fixture
async def listener(dsn: str, pool: asyncpg.Pool) -> AsyncIterator[PgNotifyListener]:
    opened = PgNotifyListener(dsn, pool, timing=QUICK)
    await opened.start()
    await until(lambda: opened.is_running)
    yield opened
    await opened.stop()


@pytest.fixture
async def sessions(pool: asyncpg.Pool) -> AsyncIterator[OpenSessionService]:
    service = OpenSessionService(pool)
    yield service
    await service.close()


async def test_every_watcher_gets_each_event_once_in_sequence(
    listener: PgNotifyListener, sessions: OpenSessionService
) -> None:
    """Three threads, ten writers, watchers from the start and from the middle: each gets its own thread, in order."""
    threads = [await sessions.create_session("app", "ann", session_id=f"s{n}") for n in range(3)]
    early = [Watch(listener, each) for each in threads]

    async def write(writer: int) -> None:
        for n in range(12):
            await sessions.append(
                "app", "ann", f"s{(writer + n) % 3}", [Event(author="user", content={"text": f"{n}"})]
            )

    await asyncio.gather(*(write(n) for n in range(10)))
    late = [Watch(listener, each, after=17) for each in threads]
    await until(lambda: all(watch.last == 40 for watch in early + late))
    assert [watch.numbers for watch in early] == [list(range(1, 41))] * 3
    assert [watch.numbers for watch in late] == [list(range(18, 41))] * 3
    for watch in early + late:
        watch.close()
    assert listener.subscriptions == 0


async def test_plain_sql_notifies_it_too_and_a_rollback_does_not(
    listener: PgNotifyListener, sessions: OpenSessionService, pool: asyncpg.Pool
) -> None:
    """The trigger notifies for inserts by SQL. An event of 1 MB arrives complete."""
    session = await sessions.create_session("app", "ann", session_id="s")
    watch = Watch(listener, session)
    text = "x" * 1_000_000
    call = "SELECT append_event('app', 'ann', 's', NULL, $1, 'user', 'user_message', $2)"
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(call, "gone", '{"text": "gone"}')
        await transaction.rollback()
        await connection.execute(call, "kept", f'{{"text": "{text}"}}')
    await until(lambda: watch.last == 1)
    assert [event.id for event in watch.events] == ["kept"]
    assert watch.events[0].content["text"] == text


async def test_foreign_notifications_are_skipped(
    listener: PgNotifyListener, sessions: OpenSessionService, pool: asyncpg.Pool
) -> None:
    """Any client may notify. A payload that is not ours changes nothing."""
    session = await sessions.create_session("app", "ann", session_id="s")
    watch = Watch(listener, session)
    for payload in (
        "",
        "x",
        "[]",
        "{}",
        '{"thread_id": 7}',
        '{"thread_id": "test-thread", "sequence_num": "x"}',
        "null",
    ):
        await pool.execute("SELECT pg_notify('agent_events', $1), pg_notify('agent_deltas', $1)", payload)
    await sessions.append("app", "ann", "s", [Event(author="user", content="hi")])
    await until(lambda: watch.last == 1)
    await until(lambda: listener.is_running)


async def test_a_failing_watcher_does_not_affect_the_others(
    listener: PgNotifyListener, sessions: OpenSessionService
) -> None:
    session = await sessions.create_session("app", "ann", session_id="s")

    def fail(events: Sequence[Event]) -> None:
        raise RuntimeError("the watcher failed")

    listener.subscribe(session.thread_id, fail, after_sequence=0)
    watch = Watch(listener, session)
    await sessions.append("app", "ann", "s", [Event(author="user", content="hi")])
    await until(lambda: watch.last == 1)
    assert listener.subscriptions == 1


async def test_repeated_kills_lose_and_duplicate_nothing(
    dsn: str, listener: PgNotifyListener, sessions: OpenSessionService
) -> None:
    """Its backend is killed five times at 100 events a second. Each watcher gets each event once, in order."""
    await drill(listener, sessions, lambda: kill_listener(dsn), seconds=2.5, every_seconds=0.5, strikes_min=5)
    assert listener.connects >= 5


async def test_a_session_that_lost_its_channels_is_detected(
    dsn: str, listener: PgNotifyListener, sessions: OpenSessionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A live connection that receives nothing is replaced, and no event is lost meanwhile."""
    session = await sessions.create_session("app", "ann", session_id="s")
    watch = Watch(listener, session)
    connects = listener.connects
    # The server answers, as behind a pooler that gave the session to another client.
    statements = connection._STATEMENTS
    other = "SELECT '{x}'::text[] AS channels, false AS is_read_only"
    monkeypatch.setattr(statements, "_texts", {**statements._texts, "session": other})
    await until(lambda: listener.connects > connects)
    await sessions.append("app", "ann", "s", [Event(author="user", content="hi")])
    await until(lambda: watch.last == 1)


async def test_no_driver_error_stops_it_permanently(
    dsn: str, listener: PgNotifyListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection cut between two protocol messages raises an error of its own class."""
    faults = [asyncpg.InternalClientError("cut"), ZeroDivisionError("unexpected")]
    watch = listener._connection._watch

    async def failing(*arguments: Any) -> None:
        if faults:
            raise faults.pop()
        await watch(*arguments)

    monkeypatch.setattr(listener._connection, "_watch", failing)
    connects = listener.connects
    await kill_listener(dsn)
    await until(lambda: listener.connects >= connects + 3 and listener.is_running)


async def test_it_reports_that_it_is_deaf_and_the_poll_still_delivers(
    dsn: str, pool: asyncpg.Pool, sessions: OpenSessionService
) -> None:
    """Without a connection `is_running` is false, and events arrive only by the poll."""
    nowhere = "postgresql://nobody@127.0.0.1:1/none"
    timing = ListenerTiming(heartbeat_seconds=0.2, answer_seconds=1.0, poll_seconds=0.2, retry_seconds_max=0.1)
    deaf = PgNotifyListener(nowhere, pool, timing=timing)
    session = await sessions.create_session("app", "ann", session_id="s")
    await deaf.start()
    watch = Watch(deaf, session)
    await sessions.append("app", "ann", "s", [Event(author="user", content="hi")])
    await until(lambda: watch.last == 1)
    assert not deaf.is_running
    await deaf.stop()


async def test_one_statement_reads_all_notified_threads(
    dsn: str, listener: PgNotifyListener, sessions: OpenSessionService, pool: asyncpg.Pool
) -> None:
    """Fifty threads that are written to at once are read in a few statements, not in fifty."""
    threads = [await sessions.create_session("app", "ann", session_id=f"s{n}") for n in range(50)]
    watches = [Watch(listener, each) for each in threads]
    await until(lambda: not listener._watched._marked)
    reads: list[int] = []
    deliver = listener._watched.read

    async def counted(batch: Sequence[uuid.UUID]) -> None:
        reads.append(len(batch))
        await deliver(batch)

    listener._watched.read = counted
    rows = [(f"s{n}",) for n in range(50)]
    async with pool.acquire() as connection, connection.transaction():
        for (name,) in rows:
            await connection.execute(
                "SELECT append_event('app', 'ann', $1, NULL, 'e', 'user', 'user_message', '{}')", name
            )
    await until(lambda: all(watch.last == 1 for watch in watches))
    assert len(reads) <= 5


async def test_a_notification_does_not_wait_for_the_disk(pool: asyncpg.Pool) -> None:
    """It would compete with the appends that it follows; the setting ends with its transaction."""
    statements = Statements("pulse.notify", "notify.sql")
    async with pool.acquire() as session:
        await session.execute("SET synchronous_commit = on")  # the tests' server has it off
        async with session.transaction():
            await statements.execute(session, "notify", ["{}"], [], [])
            assert await session.fetchval("SHOW synchronous_commit") == "off"
        assert await session.fetchval("SHOW synchronous_commit") == "on"
        await session.execute("RESET synchronous_commit")
