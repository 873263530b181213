"""Appending: one transaction for the event, its message, its state and its job, or nothing."""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
import os
import time
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from pulse import database
from pulse.errors import (
    ConcurrencyConflictError,
    EventConflictError,
    EventTooLargeError,
    InvalidInputError,
    PulseError,
    SessionNotFoundError,
    StateTooLargeError,
)
from pulse.event_rows import event_input
from pulse.events import Event, EventActions, Session
from pulse.notify.notifier import Newest, Notifier
from pulse.session_service import OpenSessionService
from tests.support.waiting import WAIT_SECONDS


@pytest.fixture
def sessions(pool: asyncpg.Pool) -> OpenSessionService:
    return OpenSessionService(pool)


@pytest.fixture
async def session(sessions: OpenSessionService) -> Session:
    return await sessions.create_session("app", "mei", {"theme": "dark"}, session_id="s")


def said(text: str, **delta: Any) -> Event:
    return Event(author="user", content={"text": text}, actions=EventActions(state_delta=delta))


async def fresh(sessions: OpenSessionService, session: Session) -> Session:
    read = await sessions.get_session(session.app_name, session.user_id, session.id)
    assert read is not None
    return read


async def counts(conn: asyncpg.Connection) -> dict[str, int]:
    tables = ("events", "messages", "consolidation_jobs", "procrastinate_jobs")
    return {table: await conn.fetchval(f"SELECT count(*) FROM {table}") for table in tables}


async def test_the_session_after_an_append_equals_a_fresh_read(sessions: OpenSessionService, session: Session) -> None:
    event = Event(
        author="model",
        content={"parts": [{"text": "你好"}, {"function_call": {"name": "f", "args": {"x": 1.0}}}]},
        invocation_id="e-0e4c",
        actions=EventActions(state_delta={"a": 1, "user:b": None, "app:c": [1]}, other={"transfer_to": "x"}),
        timestamp=1700000000.25,
    )
    stored = await sessions.append_event(session, event)
    assert stored.sequence_num == 1
    assert session == await fresh(sessions, session)
    assert session.state == {"theme": "dark", "a": 1, "user:b": None, "app:c": [1]}
    assert session.events[0].content == event.content
    assert session.events[0].actions == event.actions
    assert session.events[0].timestamp == 1700000000.25


async def test_temp_keys_reach_only_the_callers_session(
    sessions: OpenSessionService, session: Session, conn: asyncpg.Connection
) -> None:
    await sessions.append_event(
        session, Event(author="user", actions=EventActions(state_delta={"temp:x": "zzz1", "a": 1}))
    )
    assert session.state["temp:x"] == "zzz1"
    for column in ("state::text FROM threads", "actions::text FROM events", "content::text FROM events"):
        assert "zzz1" not in await conn.fetchval(f"SELECT {column}")
    assert await conn.fetchval("SELECT count(*) FROM user_states") == 0


async def test_a_stale_session_is_refused_and_unchanged(sessions: OpenSessionService, session: Session) -> None:
    """Also without a state delta: every append increments the version."""
    stale = await fresh(sessions, session)
    await sessions.append_event(session, said("first"))
    before = copy.deepcopy(stale)
    with pytest.raises(ConcurrencyConflictError, match="version 1, not 0"):
        await sessions.append_event(stale, said("second", theme="light"))
    assert stale == before
    assert [event.text for event in (await fresh(sessions, session)).events] == ["first"]


async def test_one_of_two_concurrent_appends_from_equal_sessions_wins(
    sessions: OpenSessionService, session: Session
) -> None:
    for _ in range(10):
        twins = [await fresh(sessions, session), await fresh(sessions, session)]
        outcomes = await asyncio.gather(
            *(sessions.append_event(twin, said("x")) for twin in twins), return_exceptions=True
        )
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["ConcurrencyConflictError", "Event"]


async def test_an_event_is_stored_once_however_often_it_is_sent(
    sessions: OpenSessionService, session: Session, conn: asyncpg.Connection
) -> None:
    """The id is checked before the version, so a retry after a lost response succeeds."""
    event = said("hello", n=1)
    lost_answer = await fresh(sessions, session)
    first = await sessions.append_event(session, event)
    again = await sessions.append_event(lost_answer, event)
    assert again == first
    assert lost_answer == session
    await sessions.append_event(session, said("later", n=2))
    assert (await sessions.append_event(session, event)) == first
    assert session == await fresh(sessions, session)
    assert session.state["n"] == 2
    assert await conn.fetchval("SELECT count(*) FROM events") == 2


async def test_a_retried_event_does_not_hide_other_appends(sessions: OpenSessionService, session: Session) -> None:
    """A session that is behind other appends stays stale after a retry, so its next append is refused."""
    event = said("hello")
    stale = await fresh(sessions, session)
    await sessions.append_event(session, event)
    await sessions.append_event(session, said("by somebody else", n=5))
    await sessions.append_event(stale, event)
    with pytest.raises(ConcurrencyConflictError):
        await sessions.append_event(stale, said("n is still unset here", n=1))


async def test_a_retry_of_a_known_event_does_not_hide_the_next_one(
    sessions: OpenSessionService, session: Session
) -> None:
    """An event is sent again after another append. The session stays unchanged and stale."""
    event = said("hello", n=1)
    await sessions.append_event(session, event)
    await sessions.append(session.app_name, session.user_id, session.id, [said("by somebody else", n=2)])
    before = copy.deepcopy(session)
    await sessions.append_event(session, event)
    assert session == before
    with pytest.raises(ConcurrencyConflictError):
        await sessions.append_event(session, said("n is still 1 here", n=2))


@pytest.mark.parametrize(
    "wrong",
    [
        {"author": "a\0"},
        {"author": "a\ud800"},
        {"invocation_id": "\0"},
        {"event_type": "x\0"},
        {"id": "\ud800"},
        {"timestamp": float("nan")},
        {"timestamp": 1e20},
        {"content": 10**5000},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
async def test_what_postgresql_cannot_store_is_invalid_input(
    sessions: OpenSessionService, session: Session, wrong: dict[str, Any]
) -> None:
    """The error quotes no content, and nothing changes."""
    with pytest.raises(InvalidInputError):
        await sessions.append_event(session, replace(said("hello"), **wrong))
    assert session == await fresh(sessions, session)


async def test_a_long_id_of_any_characters_still_notifies_listeners(
    sessions: OpenSessionService, session: Session, conn: asyncpg.Connection
) -> None:
    received: asyncio.Queue[str] = asyncio.Queue()
    await conn.add_listener("agent_events", lambda *arguments: received.put_nowait(arguments[3]))
    event = replace(said("hello"), id="\U0001f600" * 512, invocation_id="\U0001f680" * 512)
    await sessions.append_event(session, event)
    assert json.loads(await asyncio.wait_for(received.get(), WAIT_SECONDS))["event_id"] == event.id


@pytest.mark.parametrize(
    "change",
    [
        {"content": {"text": "other"}},
        {"author": "model", "event_type": "user_message"},
        {"event_type": "thought"},
        {"invocation_id": "other"},
        {"actions": EventActions(state_delta={"a": 2})},
        {"timestamp": 5.0},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_the_same_id_with_other_content_is_refused(
    sessions: OpenSessionService, session: Session, change: dict[str, Any]
) -> None:
    event = replace(said("hello", a=1), timestamp=4.0)
    await sessions.append_event(session, event)
    before = copy.deepcopy(session)
    with pytest.raises(EventConflictError):
        await sessions.append_event(session, replace(event, **change))
    assert session == before == await fresh(sessions, session)


async def test_an_event_id_is_free_in_another_session(sessions: OpenSessionService, session: Session) -> None:
    other = await sessions.create_session("app", "mei")
    event = said("hello")
    await sessions.append_event(session, event)
    assert (await sessions.append_event(other, replace(event, content={"text": "else"}))).sequence_num == 1


async def test_a_batch_increments_the_version_once_and_keeps_its_order(
    sessions: OpenSessionService, session: Session
) -> None:
    stored = await sessions.append_events(session, [said(str(n), last=n) for n in range(50)])
    assert [event.sequence_num for event in stored] == list(range(1, 51))
    assert session.version == 1
    assert session.state["last"] == 49
    assert session == await fresh(sessions, session)


async def test_a_partly_stored_batch_appends_the_rest(sessions: OpenSessionService, session: Session) -> None:
    events = [said(str(n), **{f"k{n}": n}) for n in range(4)]
    await sessions.append_events(session, events[:2])
    outcome = await sessions.append("app", "mei", "s", [events[3], events[0], events[2], events[1]])
    assert [event.sequence_num for event in outcome.events] == [3, 1, 4, 2]
    assert [event.text for event in outcome.new_events] == ["3", "2"]
    assert (await fresh(sessions, session)).state == {"theme": "dark", "k0": 0, "k1": 1, "k2": 2, "k3": 3}


async def test_a_batch_with_one_invalid_event_changes_nothing(
    sessions: OpenSessionService, session: Session, conn: asyncpg.Connection
) -> None:
    taken = said("taken")
    await sessions.append_event(session, taken)
    before = copy.deepcopy(session)
    twin = said("twin")
    batches: list[tuple[list[Event], type[PulseError]]] = [
        ([said("a", x=1), replace(taken, content={"text": "changed"})], EventConflictError),
        ([twin, replace(twin)], InvalidInputError),
        ([], InvalidInputError),
        ([said(str(n)) for n in range(1001)], InvalidInputError),
        ([said("a", x=1), replace(said("b"), event_type="text_delta")], InvalidInputError),
        ([said("a", x=1), replace(said("b"), id="")], InvalidInputError),
        ([said("a", x=1), replace(said("b"), id="x" * 513)], InvalidInputError),
        ([said("a", x=1), replace(said("b"), author="")], InvalidInputError),
        ([said("a", x=1), replace(said("b"), content={"raw": b"bytes"})], InvalidInputError),
    ]
    for batch, expected in batches:
        with pytest.raises(expected):
            await sessions.append_events(session, batch)
    assert session == before == await fresh(sessions, session)
    assert await counts(conn) == {"events": 1, "messages": 1, "consolidation_jobs": 0, "procrastinate_jobs": 0}


async def test_state_over_the_limit_is_refused_in_every_scope(
    sessions: OpenSessionService, session: Session, conn: asyncpg.Connection
) -> None:
    before = copy.deepcopy(session)
    for key in ("big", "user:big", "app:big"):
        with pytest.raises(StateTooLargeError, match="1048576"):
            await sessions.append_event(session, said("x", **{key: "x" * 1_100_000}))
        with pytest.raises(StateTooLargeError):
            await sessions.create_session("app", "mei", {key: "x" * 1_100_000})
    await sessions.append_event(session, said("fits", big="x" * 1_000_000))
    with pytest.raises(StateTooLargeError):
        await sessions.append_event(session, said("one too many", more="x" * 100_000))
    assert await conn.fetchval("SELECT count(*) FROM threads") == 1
    assert before.events == []
    assert [event.text for event in (await fresh(sessions, session)).events] == ["fits"]


async def test_a_session_over_a_lowered_limit_accepts_events_that_leave_its_state_alone(
    sessions: OpenSessionService, conn: asyncpg.Connection
) -> None:
    large = {f"{scope}large": os.urandom(1000).hex() for scope in ("", "user:", "app:")}
    session = await sessions.create_session("app", "mei", large)
    await conn.execute("""SELECT set_app_policy('app', '{"max_state_bytes": 1000}')""")
    await sessions.append_event(session, said("hi"))
    await sessions.append_events(session, [said("hi"), said("again")])
    for scope in ("", "user:", "app:"):
        for count in (1, 2):
            with pytest.raises(StateTooLargeError):
                await sessions.append_events(session, [said("more", **{f"{scope}x": 1}) for _ in range(count)])
    other = await sessions.create_session("app", "jun", {"user:x": 1, "x": 1})
    await sessions.append_event(other, said("hi", **{"user:y": 1, "y": 1}))


async def test_limits_and_policy_are_read_from_the_apps_row(
    sessions: OpenSessionService, session: Session, conn: asyncpg.Connection
) -> None:
    await conn.execute("INSERT INTO app_policies (app_name, max_event_bytes, fast_events) VALUES ('app', 1000, 2)")
    with pytest.raises(EventTooLargeError, match="over the limit of 1000"):
        await sessions.append_event(session, said("x" * 1000))
    await sessions.append_events(session, [said("a"), said("b")])
    assert (await counts(conn))["consolidation_jobs"] == 1


async def test_two_megabytes_of_distinct_words_are_stored_and_found_by_their_first(
    sessions: OpenSessionService, session: Session, conn: asyncpg.Connection
) -> None:
    text = "zebra " + " ".join(f"w{n:x}" for n in range(300_000))
    assert len(text) > 2_000_000
    await sessions.append_event(session, said(text))
    assert (await fresh(sessions, session)).events[0].text == text
    assert await conn.fetchval("SELECT search @@ 'zebra' FROM messages")


async def test_what_postgresql_refuses_round_trips_escaped(
    sessions: OpenSessionService, session: Session, conn: asyncpg.Connection
) -> None:
    hard = {"text": "nul \0 and \ud83d alone", "n": [float("inf"), -0.0, 1e22, 10**30], "\0": "\0"}
    await sessions.append_event(
        session, Event(author="user", content=hard, actions=EventActions(state_delta={"hard": hard, "user:\0": 1}))
    )
    read = await fresh(sessions, session)
    assert repr(read.events[0].content) == repr(hard)
    assert repr(read.state["hard"]) == repr({key: read.state["hard"][key] for key in read.state["hard"]})
    assert read.state["hard"] == hard
    assert read.state["user:\0"] == 1
    assert await conn.fetchval("SELECT content FROM messages") == "nul \ufffd and \ufffd alone"


async def test_only_events_with_text_become_messages(
    sessions: OpenSessionService, session: Session, conn: asyncpg.Connection
) -> None:
    events = [
        said("question"),
        Event(author="model", event_type="thought", content={"text": "hm"}),
        Event(author="model", event_type="act", content={"tool_name": "f"}),
        Event(author="tool", content="result"),
        Event(author="model", content={"parts": [{"text": "thinking", "thought": True}, {"text": "answer"}]}),
        Event(author="Caroline", event_type="user_message", content={"message": "hi"}),
        said("   "),
        Event(author="user", content=None),
    ]
    await sessions.append_events(session, events)
    assert [
        tuple(row) for row in await conn.fetch("SELECT role, author, content FROM messages ORDER BY sequence_num")
    ] == [
        ("user", "user", "question"),
        ("tool", "tool", "result"),
        ("assistant", "model", "answer"),
        ("user", "Caroline", "hi"),
    ]


async def test_concurrent_writers_leave_no_gaps_and_a_cursor_skips_nothing(
    sessions: OpenSessionService, session: Session, conn: asyncpg.Connection
) -> None:
    """While ten writers append, a reader after its cursor sees every number exactly once."""
    seen: list[int] = []

    async def write(author: str) -> None:
        for n in range(20):
            await sessions.append("app", "mei", "s", [Event(author=author, content={"text": str(n)})])

    async def read() -> None:
        while len(seen) < 200:
            rows = await conn.fetch(
                "SELECT sequence_num FROM events WHERE sequence_num > $1 ORDER BY sequence_num", seen[-1] if seen else 0
            )
            seen.extend(row[0] for row in rows)

    await asyncio.gather(read(), *(write(f"writer-{n}") for n in range(10)))
    assert seen == list(range(1, 201))
    assert (await fresh(sessions, session)).version == 200


async def test_a_change_is_visible_to_others_only_after_commit(
    session: Session, sessions: OpenSessionService, conn: asyncpg.Connection
) -> None:
    transaction = conn.transaction()
    await transaction.start()
    await conn.execute(
        """SELECT append_event('app', 'mei', 's', 0, 'e', 'user', 'user_message', '{"text":"x"}', 'user', 'x',
                               '{"theme":"light"}', '{"u":1}', '{"a":1}')"""
    )
    unseen = await fresh(sessions, session)
    await transaction.commit()
    seen = await fresh(sessions, session)
    assert (unseen.state, unseen.version, unseen.events) == ({"theme": "dark"}, 0, [])
    assert (seen.state, seen.version) == ({"theme": "light", "user:u": 1, "app:a": 1}, 1)


async def test_a_rolled_back_append_leaves_no_event_no_job_and_no_delivery(
    session: Session, conn: asyncpg.Connection
) -> None:
    empty = await counts(conn)
    transaction = conn.transaction()
    await transaction.start()
    await conn.execute(
        """SELECT append_events('app', 'mei', 's', 0, array_agg(ROW('e' || n, 'user', 'user_message', '',
               '{}', '{}', NULL, NULL, NULL, 'user', 'hello', NULL)::event_input)) FROM generate_series(1, 25) AS n"""
    )
    assert await counts(conn) == {"events": 25, "messages": 25, "consolidation_jobs": 1, "procrastinate_jobs": 1}
    await transaction.rollback()
    assert await counts(conn) == empty == dict.fromkeys(empty, 0)


async def test_the_policy_enqueues_by_events_and_tokens_and_coalesces(
    sessions: OpenSessionService, session: Session, conn: asyncpg.Connection
) -> None:
    async def jobs() -> list[tuple[str, int]]:
        rows = await conn.fetch("SELECT job_type, upto_seq FROM consolidation_jobs ORDER BY created_at, job_type DESC")
        return [(row[0], row[1]) for row in rows]

    for _ in range(19):
        await sessions.append_event(session, said("hi"))
    assert await jobs() == []
    await sessions.append_event(session, said("hi"))
    assert await jobs() == [("fast_replay", 20)]
    await sessions.append_event(session, said("word " * 1200))
    assert await jobs() == [("fast_replay", 21)], "did not join the pending job"
    for _ in range(6):
        await sessions.append_event(session, said("word " * 1100))
    assert await jobs() == [("fast_replay", 27), ("deep_reflection", 26)]
    assert await conn.fetchval("SELECT count(*) FROM procrastinate_jobs") == 2


async def test_a_running_job_is_not_joined(
    sessions: OpenSessionService, session: Session, conn: asyncpg.Connection
) -> None:
    """It may have read its slice already. Later events get another job behind the same lock."""
    await sessions.append_events(session, [said("hi") for _ in range(20)])
    worker = await conn.fetchval("SELECT worker_id FROM procrastinate_register_worker_v1()")
    await conn.fetch("SELECT * FROM procrastinate_fetch_job_v2(ARRAY['fast_replay'], $1)", worker)
    await sessions.append_events(session, [said("hi") for _ in range(20)])
    rows = await conn.fetch("SELECT status, attempts, upto_seq FROM consolidation_jobs ORDER BY created_at")
    assert [tuple(row) for row in rows] == [("running", 1, 20), ("pending", 0, 40)]
    assert await conn.fetchval("SELECT count(DISTINCT lock) FROM procrastinate_jobs") == 1


async def test_events_are_append_only(sessions: OpenSessionService, session: Session, conn: asyncpg.Connection) -> None:
    await sessions.append_event(session, said("hi"))
    for statement in ("UPDATE events SET author = 'x'", "DELETE FROM events"):
        with pytest.raises(asyncpg.PostgresError) as caught:
            await conn.execute(statement)
        assert caught.value.sqlstate == "HP013"


async def test_plain_sql_notifies_once_per_event_and_never_after_a_rollback(
    sessions: OpenSessionService, session: Session, conn: asyncpg.Connection
) -> None:
    """The payload has only ids, however large the event, and whatever characters the ids have."""
    received: asyncio.Queue[str] = asyncio.Queue()
    listener = "agent_events", lambda *arguments: received.put_nowait(arguments[3])
    await conn.add_listener(*listener)
    append = "SELECT append_event('app', 'mei', 's', NULL, $1, 'user', 'user_message', $2, p_invocation_id => $3)"
    odd = '"' * 512, "\\" * 512
    transaction = conn.transaction()
    await transaction.start()
    await conn.execute(append, "rolled back", '{"text":"zzz"}', "")
    await transaction.rollback()
    async with conn.transaction():
        await conn.execute(append, "e1", '{"text":"zzz"}', "")
        await conn.execute(append, "e2", '{"text":"%s"}' % ("zzz" * 100_000), "")
    await conn.execute(append, odd[0], "{}", odd[1])
    payloads = [json.loads(await asyncio.wait_for(received.get(), WAIT_SECONDS)) for _ in range(3)]
    assert [payload["sequence_num"] for payload in payloads] == [1, 2, 3]
    assert (payloads[2]["event_id"], payloads[2]["run_id"]) == odd
    assert "zzz" not in str(payloads)
    await conn.remove_listener(*listener)


async def test_the_library_notifies_listeners_after_commit_once_per_thread(
    sessions: OpenSessionService, session: Session, conn: asyncpg.Connection
) -> None:
    received: asyncio.Queue[str] = asyncio.Queue()
    listener = "agent_events", lambda *arguments: received.put_nowait(arguments[3])
    await conn.add_listener(*listener)
    await sessions.append_events(session, [said("a"), said("b"), said("c")])
    with pytest.raises(ConcurrencyConflictError):
        await sessions.append("app", "mei", "s", [said("refused")], expected_version=77)
    first = json.loads(await asyncio.wait_for(received.get(), WAIT_SECONDS))
    assert (first["thread_id"], first["sequence_num"]) == (str(session.thread_id), 3)
    await sessions.append_events(session, [said("d")])
    await sessions.close()
    assert json.loads(await asyncio.wait_for(received.get(), WAIT_SECONDS))["sequence_num"] == 4
    assert received.empty()
    await conn.remove_listener(*listener)


async def test_a_failed_notification_does_not_fail_the_append(
    dsn: str, session: Session, conn: asyncpg.Connection
) -> None:
    pool = await database.create_pool(dsn)
    service = OpenSessionService(pool)
    await service.append("app", "mei", "s", [said("kept")])
    await pool.close()
    await service.close()
    assert await conn.fetchval("SELECT count(*) FROM events") == 1


async def test_a_cancelled_close_loses_no_notification(
    pool: asyncpg.Pool, conn: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that has not been sent yet."""
    monkeypatch.setattr("pulse.notify.notifier._PAUSE_SECONDS", 60.0)
    monkeypatch.setattr("pulse.notify.notifier._CLOSE_SECONDS_MAX", WAIT_SECONDS)
    received: asyncio.Queue[str] = asyncio.Queue()
    listener = "agent_events", lambda *arguments: received.put_nowait(json.loads(arguments[3])["event_id"])
    await conn.add_listener(*listener)
    notifier, thread = Notifier(pool), uuid.uuid4()
    async with asyncio.timeout(WAIT_SECONDS):
        notifier.announce(thread, Newest(1, "before the pause", "", "user_message"))
        while notifier._pause is None:
            await asyncio.sleep(0.01)
        notifier.announce(thread, Newest(2, "in the pause", "", "user_message"))
        closing = asyncio.create_task(notifier.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        notifier.announce(thread, Newest(3, "afterwards", "", "user_message"))
        await notifier.close()
        assert [await received.get() for _ in range(3)] == ["before the pause", "in the pause", "afterwards"]
    await conn.remove_listener(*listener)


def test_an_event_loop_that_ends_without_a_close_begins_no_task(dsn: str) -> None:
    """Its last iterations, in which it waits for threads, begin no notification that nobody would wait for."""
    begun: list[str] = []

    def begin(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        begun.append(coroutine.__qualname__)
        return asyncio.Task(coroutine, loop=loop, **options)

    async def announce() -> None:
        loop = asyncio.get_running_loop()
        pool = await database.create_pool(dsn, min_size=1, max_size=1)
        await pool.acquire()
        notifier = Notifier(pool)
        notifier.announce(uuid.uuid4(), Newest(1, "waits for a connection", "", "user_message"))
        await asyncio.sleep(0)
        notifier.announce(uuid.uuid4(), Newest(2, "would be sent next", "", "user_message"))

        def end() -> None:
            time.sleep(0.1)  # longer than a pause between two notifications
            loop.call_soon_threadsafe(pool.terminate)

        loop.run_in_executor(None, end)
        loop.set_task_factory(begin)

    asyncio.run(announce())
    assert not [name for name in begun if name.startswith("Notifier")]


async def test_appending_to_an_unknown_session_gives_a_hint(sessions: OpenSessionService) -> None:
    with pytest.raises(SessionNotFoundError, match="create it first"):
        await sessions.append("app", "mei", "nowhere", [said("hi")])


async def test_state_folded_from_the_events_equals_the_stored_state(
    sessions: OpenSessionService, session: Session
) -> None:
    deltas: list[dict[str, Any]] = [{"a": 1}, {"b": {"x": 1}}, {"a": None, "b": {"y": 2}}, {"user:c": 1}, {}, {"a": 3}]
    for one, two in itertools.pairwise(deltas):
        await sessions.append_events(session, [said("x", **one), said("y", **two)])
    read = await fresh(sessions, session)
    folded: dict[str, Any] = {"theme": "dark"}
    for event in read.events:
        folded.update(event.actions.state_delta)
    assert folded == read.state


DIFFERING = """
(SELECT to_jsonb(t) - '{id, app_name, created_at, updated_at, last_event_at, fast_due_at, deep_due_at}'::text[]
    FROM threads AS t WHERE app_name = $1)
UNION ALL
(SELECT to_jsonb(e) - '{thread_id, created_at}'::text[] FROM events AS e JOIN threads AS t ON t.id = e.thread_id
    WHERE t.app_name = $1 ORDER BY sequence_num)
UNION ALL
(SELECT to_jsonb(m) - '{id, thread_id, app_name, created_at}'::text[] FROM messages AS m
    WHERE app_name = $1 ORDER BY sequence_num)
UNION ALL
(SELECT to_jsonb(s) - '{id, thread_id, created_at, superseded_at}'::text[] FROM snapshots AS s
    JOIN threads AS t ON t.id = s.thread_id WHERE t.app_name = $1 ORDER BY sequence_num)
UNION ALL
(SELECT jsonb_build_array(j.job_type, j.upto_seq, j.status) FROM consolidation_jobs AS j
    JOIN threads AS t ON t.id = j.thread_id WHERE t.app_name = $1 ORDER BY job_type)
UNION ALL
(SELECT jsonb_build_array(u.state, u.version) FROM user_states AS u WHERE app_name = $1)
UNION ALL
(SELECT jsonb_build_array(a.state, a.version) FROM app_states AS a WHERE app_name = $1)
"""
ONE_BY_ONE = {
    "next": "SELECT to_jsonb(s) - 'thread_id' FROM append_next_event($1, 'mei', 's', $2, $3::event_input, true) AS s",
    "batch": """SELECT to_jsonb(s) - '{thread_id, event_id}'::text[]
                FROM append_events($1, 'mei', 's', $2, ARRAY[$3::event_input]) AS s""",
}


async def test_one_event_is_stored_like_a_batch_of_one(sessions: OpenSessionService, conn: asyncpg.Connection) -> None:
    """Rows, states, versions, snapshots and jobs are equal after each event."""
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    deltas: list[dict[str, Any]] = [{}, {"a": 1}, {"user:b": 2}, {"app:c": 3}, {"a": None, "user:b": 4, "app:d": [5]}]
    stored: dict[str, list[Any]] = {}
    for app in ONE_BY_ONE:
        await conn.execute("INSERT INTO app_policies (app_name, fast_events, snapshot_events) VALUES ($1, 7, 5)", app)
        await sessions.create_session(app, "mei", {"theme": "dark"}, session_id="s")
    for version in range(30):
        event = said("hello " * version, **deltas[version % 5])
        event = replace(event, id=f"e{version}", timestamp=None if version % 3 else now.timestamp())
        answers = [
            await conn.fetchval(statement, app, version, event_input(event)) for app, statement in ONE_BY_ONE.items()
        ]
        for answer in answers:
            del answer["created_at"]
            if version % 3:
                del answer["occurred_at"]
        assert answers[0] == answers[1]
    for app in ONE_BY_ONE:
        stored[app] = [row[0] for row in await conn.fetch(DIFFERING, app)]
        for row in stored[app]:
            if isinstance(row, dict) and row.get("occurred_at", "").startswith(str(now.date())) is False:
                row.pop("occurred_at", None)
    assert stored["next"] == stored["batch"]
    assert len(stored["next"]) == 1 + 30 + 29 + 6 + 1 + 2


READ_BY_INDEX = """
SELECT indexrelname, idx_tup_read::float / idx_scan AS rows_a_scan FROM pg_stat_user_indexes
WHERE relname IN ('threads', 'events', 'messages') AND idx_scan >= 100
"""


async def test_an_append_reads_no_more_rows_of_a_long_session(conn: asyncpg.Connection) -> None:
    """Nor of a user with many sessions, also under plans that were made before the tables had statistics."""
    for number in range(100):
        await conn.execute("SELECT create_session('app', 'mei', $1)", f"s{number}")
    for version in range(150):
        await conn.execute(
            "SELECT append_event('app', 'mei', 's7', $1, $2, 'user', 'user_message', '{}', 'user', 'hello')",
            version,
            f"e{version}",
        )
    await conn.execute("SELECT pg_stat_force_next_flush()")
    read = dict(await conn.fetch(READ_BY_INDEX))
    assert {"events_id_idx", "threads_app_name_user_id_session_id_key"} <= read.keys()
    # Row versions that are not vacuumed yet are read too.
    assert max(read.values()) < 5, read
