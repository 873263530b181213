"""State restored from events equals the stored state, with and without a snapshot."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import itertools
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse import database
from pulse.errors import InvalidInputError, SessionNotFoundError
from pulse.events import Event, EventActions, Session
from pulse.postgres.json_values import DELETED, unescape
from pulse.postgres.statements import load_queries
from pulse.runs.service import RunService
from pulse.scopes import split_delta
from pulse.session_service import OpenSessionService
from pulse.state.history import StateHistory
from pulse.state_debug import StateDebugService
from tests.support.properties import examples
from workers.embedded.server import EmbeddedServer

KEYS = st.sampled_from(["a", "b", "", "你好", "a\0b", "\ud800", "$hippocampus", "$hippocampus:x", "a:b", "user", "🍵"])
PREFIXES = st.sampled_from(["", "", "user:", "app:", "temp:"])
NUMBERS = st.integers(-(10**30), 10**30) | st.floats(allow_nan=False) | st.sampled_from([-0.0, 1e22, 5e-324])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=8) | st.sampled_from(["\0", "\ud800", "x" * 3000]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
DELTAS = st.dictionaries(st.builds("{}{}".format, PREFIXES, KEYS), VALUES | st.just(DELETED), max_size=4)


@pytest.fixture
def sessions(pool: asyncpg.Pool) -> OpenSessionService:
    return OpenSessionService(pool)


@pytest.fixture
def history(pool: asyncpg.Pool) -> StateHistory:
    return StateHistory(pool)


@pytest.fixture
async def session(sessions: OpenSessionService) -> Session:
    return await sessions.create_session("app", "mei", {"theme": "dark", "user:lang": "en"}, session_id="s")


def change(**delta: Any) -> Event:
    return Event(author="system", event_type="state_update", actions=EventActions(state_delta=delta))


async def read(sessions: OpenSessionService, name: str = "s") -> Session:
    found = await sessions.get_session("app", "mei", name, num_recent_events=0)
    assert found is not None
    return found


@pytest.mark.hypothesis
def test_the_restored_state_is_the_stored_state(dsn: str) -> None:
    """For any deltas: three scopes, nulls, deletions, escapes, sessions, batches, and at each past version."""

    async def tell(pool: asyncpg.Pool, first: dict[str, Any], batches: list[tuple[int, list[dict[str, Any]]]]) -> None:
        app = f"app-{next(numbers)}"
        sessions, history = OpenSessionService(pool), StateHistory(pool)
        names = ("one", "two")
        opened = [await sessions.create_session(app, "mei", first, session_id=name) for name in names]
        past: list[list[tuple[int, dict[str, Any]]]] = [[(0, split_delta(each.state).session)] for each in opened]
        for which, deltas in batches:
            events = [change(**delta) for delta in deltas]
            each = await sessions.get_session(app, "mei", names[which], num_recent_events=0)
            assert each is not None
            await sessions.append_events(each, events)
            past[which].append((each.events[-1].sequence_num or 0, split_delta(each.state).session))
        for name, states in zip(names, past, strict=True):
            stored = await sessions.get_session(app, "mei", name, num_recent_events=0)
            assert stored is not None
            scopes = split_delta(stored.state)
            for from_snapshot in (True, False):
                restored = await history.restore(app, "mei", name, from_snapshot=from_snapshot)
                assert restored.state == scopes.session == states[-1][1]
                assert (restored.version, restored.sequence_num) == (stored.version, states[-1][0])
                assert repr(sorted(restored.state.items())) == repr(sorted(scopes.session.items()))
                for sequence_num, state in states:
                    before = await history.restore(
                        app, "mei", name, sequence_num=sequence_num, from_snapshot=from_snapshot
                    )
                    assert before.state == state
            shared = await history.rebuild_shared(app, "mei")
            assert (shared.user_state, shared.app_state) == (scopes.user, scopes.app)
            assert shared.user_is_complete
            assert shared.app_is_complete
        await sessions.close()

    numbers = itertools.count()

    @examples(30)
    @given(
        first=DELTAS,
        batches=st.lists(st.tuples(st.integers(0, 1), st.lists(DELTAS, min_size=1, max_size=3)), max_size=6),
    )
    def check(first: dict[str, Any], batches: list[tuple[int, list[dict[str, Any]]]]) -> None:
        runner.run(tell(pool, first, batches))

    # One loop for all examples: hypothesis calls a plain function.
    with asyncio.Runner() as runner:
        pool = runner.run(database.create_pool(dsn, max_size=2))
        runner.run(pool.execute("UPDATE app_policies SET snapshot_events = 3"))
        check()
        runner.run(pool.close())


async def test_snapshots_are_taken_at_intervals_and_at_the_end_of_a_run(
    sessions: OpenSessionService, pool: asyncpg.Pool, session: Session
) -> None:
    """Only if the state has changed since the last one. A batch counts with all its events."""
    await pool.execute("UPDATE app_policies SET snapshot_events = 5")
    for n in range(12):
        await sessions.append_event(session, change(n=n))
    for _ in range(6):
        await sessions.append_event(session, Event(author="user", content={"text": "hello"}))
    assert await snapshots(pool) == [(5, 4), (10, 9), (15, 11)]
    runs = RunService(pool)
    for n in range(2):
        run = (await runs.start("app", "mei", "s", f"run-{n}")).run
        await runs.finish(run, "done", state_delta={"n": 99} if n == 0 else None)
    assert await snapshots(pool) == [(5, 4), (10, 9), (15, 11), (21, 99)]
    assert await pool.fetchval("SELECT events_summary FROM snapshots WHERE sequence_num = 21") == {
        "after_seq": 15,
        "events": 6,
    }
    await runs.fail((await runs.start("app", "mei", "s", "run-9")).run, "no")
    assert len(await snapshots(pool)) == 4


async def snapshots(pool: asyncpg.Pool) -> list[tuple[int, int]]:
    rows = await pool.fetch("SELECT sequence_num, state -> 'n' FROM snapshots ORDER BY version")
    return [tuple(row) for row in rows]


async def test_restoring_starts_from_the_newest_snapshot_before_the_requested_event(
    sessions: OpenSessionService, history: StateHistory, pool: asyncpg.Pool, session: Session
) -> None:
    """Restoring from a damaged snapshot shows the damage, so it is really used. Without snapshots the result is the
    same."""
    await pool.execute("UPDATE app_policies SET snapshot_events = 4")
    for n in range(10):
        await sessions.append_event(session, change(n=n))
    now = await history.restore("app", "mei", "s")
    assert (now.state, now.sequence_num, now.version) == ({"theme": "dark", "n": 9}, 10, 10)
    assert (now.snapshot_sequence_num, now.deltas) == (8, 2)
    then = await history.restore("app", "mei", "s", sequence_num=6)
    assert (then.state["n"], then.version, then.snapshot_sequence_num, then.deltas) == (5, 6, 4, 2)
    first = await history.restore("app", "mei", "s", sequence_num=0)
    assert (first.state, first.version, first.snapshot_sequence_num, first.deltas) == ({"theme": "dark"}, 0, 0, 0)
    whole = await history.restore("app", "mei", "s", from_snapshot=False)
    assert (whole.state, whole.snapshot_sequence_num, whole.deltas) == (now.state, 0, 10)
    await pool.execute("UPDATE snapshots SET state = '{\"damaged\": true}' WHERE sequence_num = 8")
    assert (await history.restore("app", "mei", "s")).state == {"damaged": True, "n": 9}
    for wrong in (11, -1):
        with pytest.raises(InvalidInputError, match="no event"):
            await history.restore("app", "mei", "s", sequence_num=wrong)
    assert await history.take_snapshot("app", "mei", "s")
    assert not await history.take_snapshot("app", "mei", "s")


async def test_pruning_keeps_the_newest_snapshot_and_every_past_state(
    sessions: OpenSessionService, history: StateHistory, pool: asyncpg.Pool, session: Session
) -> None:
    """In batches, by the time at which each was superseded. Every past state can still be restored."""
    await pool.execute("UPDATE app_policies SET snapshot_events = 1")
    for n in range(6):
        await sessions.append_event(session, change(n=n))
    assert await history.prune(datetime.timedelta(hours=1)) == 0
    await pool.execute("UPDATE snapshots SET superseded_at = superseded_at - interval '1 day' WHERE sequence_num < 5")
    assert [await history.prune(datetime.timedelta(hours=1), limit=3) for _ in range(3)] == [3, 1, 0]
    assert [sequence_num for sequence_num, _ in await snapshots(pool)] == [5, 6]
    for sequence_num in range(1, 7):
        restored = await history.restore("app", "mei", "s", sequence_num=sequence_num)
        assert restored.state["n"] == sequence_num - 1


async def test_a_changed_key_of_a_large_state_is_sent_alone(pool: asyncpg.Pool, server: EmbeddedServer) -> None:
    """With 200 kB of state, its append, the read of one key, and its changes take hundreds of bytes each."""
    name = await pool.fetchval("SELECT current_database()")
    async with counting_proxy(server.tcp_dsn) as (proxied, count):
        async with await database.create_pool(f"{proxied}/{name}", max_size=1) as wired:
            sessions, history = OpenSessionService(wired), StateHistory(wired)
            large = {f"key-{n}": "x" * 1000 for n in range(200)}
            session = await sessions.create_session("app", "mei", large, session_id="s")
            await sessions.append_event(session, change(small=0, **{"user:lang": "zh"}))
            await history.changes_since("app", "mei", "s", 1)
            await sessions.get_session("app", "mei", "s", state_keys=["small"])
            await sessions.close()  # By now every statement is prepared, and every notification is sent.
            assert count["bytes"] > 200_000

            count["bytes"] = 0
            await sessions.append_event(session, change(small=1))
            appended = count["bytes"]
            found = await history.changes_since("app", "mei", "s", 1, user_version=1)
            some = await sessions.get_session("app", "mei", "s", state_keys=["small", "user:lang", "none", "app:x"])
            assert appended < 2000
            assert count["bytes"] < 5000
            assert found.state == {"small": 1}
            assert (found.version, found.sequence_num, found.user_version, found.app_version) == (2, 2, 1, 0)
            assert some is not None
            assert some.state == {"small": 1, "user:lang": "zh"}
            assert (await history.changes_since("app", "mei", "s", 2, user_version=1)).state == {}
            everything = await history.changes_since("app", "mei", "s", 0)
            assert everything.state == session.state
            nothing = await sessions.get_session("app", "mei", "s", state_keys=[])
            assert nothing is not None
            assert nothing.state == {}
            await sessions.close()


@contextlib.asynccontextmanager
async def counting_proxy(dsn: str) -> AsyncIterator[tuple[str, dict[str, int]]]:
    """The address of a proxy to the server, and a count of the bytes in both directions."""
    parts = urlsplit(dsn)
    count = {"bytes": 0}

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            count["bytes"] += len(data)
            target.write(data)
        target.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = await asyncio.open_connection(parts.hostname, parts.port)
        await asyncio.gather(copy(reader, upstream[1]), copy(upstream[0], writer))

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with listener:
        yield dsn.rpartition("/")[0].replace(f":{parts.port}", f":{port}"), count


async def test_the_changes_since_any_version_lead_to_the_current_state(
    sessions: OpenSessionService, history: StateHistory, session: Session
) -> None:
    """Whatever version a reader has, with batches in between."""
    known = [(session.version, session.user_version, session.app_version, dict(session.state))]
    for n in range(6):
        await sessions.append_events(session, [change(n=n), change(**{"user:n": n, "app:n": n, f"k{n % 2}": None})])
        known.append((session.version, session.user_version, session.app_version, dict(session.state)))
    for version, user_version, app_version, state in known:
        found = await history.changes_since(
            "app", "mei", "s", version, user_version=user_version, app_version=app_version
        )
        assert {**state, **found.state} == session.state
    with pytest.raises(InvalidInputError, match="not yet"):
        await history.changes_since("app", "mei", "s", 7)


async def test_shared_state_is_incomplete_after_a_session_that_changed_it_is_deleted(
    sessions: OpenSessionService, history: StateHistory, session: Session
) -> None:
    other = await sessions.create_session("app", "mei", {"app:model": "flash"}, session_id="other")
    await sessions.append_event(other, change(**{"user:lang": "zh"}))
    whole = await history.rebuild_shared("app", "mei")
    assert (whole.user_state, whole.app_state) == ({"lang": "zh"}, {"model": "flash"})
    assert whole.user_is_complete
    await sessions.delete_session("app", "mei", "other")
    rest = await history.rebuild_shared("app", "mei")
    assert (rest.user_state, rest.user_is_complete, rest.app_is_complete) == ({"lang": "en"}, False, False)
    assert (await read(sessions)).state["user:lang"] == "zh"


async def test_the_debugger_shows_state_by_scope_and_the_events_that_set_it(
    sessions: OpenSessionService, pool: asyncpg.Pool, session: Session
) -> None:
    """By default the last 20, newest first, and by cursor all. An unknown session is an error."""
    debug = StateDebugService(pool)
    for n in range(25):
        await sessions.append_event(session, Event(author="user", content={"text": "between"}))
        await sessions.append_event(
            session,
            Event(
                author="model",
                event_type="act",
                invocation_id=f"run-{n}",
                actions=EventActions(state_delta={"n": n, "app:n": n, "temp:t": n}),
            ),
        )
    info = await debug.get_debug_info("app", "mei", "s")
    assert info.thread_id == session.thread_id
    assert info.current_state == {"theme": "dark", "n": 24, "user:lang": "en", "app:n": 24}
    assert info.prefix_breakdown == {"": {"theme": "dark", "n": 24}, "user:": {"lang": "en"}, "app:": {"n": 24}}
    assert [change.delta["n"] for change in info.state_history] == list(range(24, 4, -1))
    newest = info.state_history[0]
    assert (newest.sequence_num, newest.version, newest.event_type, newest.author) == (50, 50, "act", "model")
    assert (newest.invocation_id, newest.delta) == ("run-24", {"n": 24, "app:n": 24})
    rest = await debug.get_history("app", "mei", "s", before=12)
    assert ([change.delta["n"] for change in rest.changes], rest.next_cursor) == ([4, 3, 2, 1, 0], None)
    page = await debug.get_history("app", "mei", "s", limit=5)
    assert page.next_cursor == page.changes[-1].sequence_num == 42
    for wrong in (0, 1001):
        with pytest.raises(InvalidInputError):
            await debug.get_history("app", "mei", "s", limit=wrong)
    for user in ("tom", ""):
        with pytest.raises(SessionNotFoundError):
            await debug.get_debug_info("app", user, "s")
        with pytest.raises(SessionNotFoundError):
            await debug.get_history("app", user, "s")


async def test_the_delta_columns_equal_the_deltas_in_the_actions(
    sessions: OpenSessionService, pool: asyncpg.Pool, session: Session
) -> None:
    """The columns that SQL reads never differ from the opaque body, which is returned unchanged."""
    delta = {"a": "\0", "user:b": -0.0, "app:c": {"d": None}, "temp:x": 1}
    await sessions.append_event(session, change(**delta))
    row = await pool.fetchrow(
        "SELECT version, session_delta, user_delta, app_delta, user_version, app_version FROM events"
    )
    assert row is not None
    (event,) = await sessions.list_events("app", "mei", "s")
    scopes = split_delta(event.actions.state_delta)
    stored = [unescape(row[name]) for name in ("session_delta", "user_delta", "app_delta")]
    assert stored == [scopes.session, scopes.user, scopes.app]
    assert (row["version"], row["user_version"], row["app_version"]) == (1, 2, 1)


async def test_past_states_are_read_by_their_index(pool: asyncpg.Pool, session: Session) -> None:
    """However many events changed nothing, neither a page of history nor the changes since a version read them."""
    await pool.execute(
        """INSERT INTO events (thread_id, sequence_num, id, author, event_type, content, occurred_at, version,
                               session_delta)
           SELECT t.id, n, n::text, 'user', 'user_message', '{}', now(), n,
                  CASE WHEN n % 500 = 0 THEN '{"a": 1}'::jsonb END
           FROM threads AS t, generate_series(1, 20000) AS n;
           UPDATE threads SET last_seq = 20000, version = 20000;
           ANALYZE events; ANALYZE threads"""
    )
    queries = load_queries("pulse.state", "state.sql")
    for name, arguments in (
        ("list_changes", ("app", "mei", "s", None, 21)),
        ("list_changes", ("app", "mei", "s", 9000, 21)),
        ("changes_since", ("app", "mei", "s", 100, 0, 0)),
    ):
        async with pool.acquire() as connection:
            await connection.execute("SET plan_cache_mode = force_generic_plan")
            await connection.execute("DEALLOCATE ALL")
            literals = ", ".join("NULL" if each is None else repr(each) for each in arguments)
            types = ["text", "text", "text", "bigint" if name == "list_changes" else "integer", "bigint", "bigint"]
            await connection.execute(f"PREPARE guarded ({', '.join(types[: len(arguments)])}) AS {queries[name]}")
            plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN ANALYZE EXECUTE guarded ({literals})"))
            await connection.execute("DEALLOCATE ALL")
        assert "events_changes_idx" in plan, plan
        removed = [int(each) for each in re.findall(r"Rows Removed by Filter: (\d+)", plan)]
        assert sum(removed) <= 40, plan


async def test_an_erased_event_is_gone_from_the_state_and_its_past(
    sessions: OpenSessionService, history: StateHistory, pool: asyncpg.Pool, session: Session
) -> None:
    """What it set is gone from the stored state and from restored states. A reader of changes gets the whole state."""
    await pool.execute("UPDATE app_policies SET snapshot_events = 3")
    for n in range(4):
        await sessions.append_event(session, change(n=n, **{f"only-{n}": n, "user:n": n}))
    await sessions.append_event(session, change(theme="light"))
    await pool.execute("SELECT erase_events('app', 'mei', 's', ARRAY[4, 5], NULL)")
    expected = {"theme": "dark", "n": 2, "only-0": 0, "only-1": 1, "only-2": 2}
    stored = await read(sessions)
    assert split_delta(stored.state).session == expected
    assert stored.state["user:n"] == 2
    for from_snapshot in (True, False):
        assert (await history.restore("app", "mei", "s", from_snapshot=from_snapshot)).state == expected
    known = (session.version, session.user_version, session.app_version)
    found = await history.changes_since("app", "mei", "s", known[0], user_version=known[1], app_version=known[2])
    assert found.is_whole
    assert found.state == {**expected, "user:lang": "en", "user:n": 2}
    assert not (await history.changes_since("app", "mei", "s", found.version)).is_whole
    await sessions.append_event(stored, change(later=1))
    after = await history.changes_since("app", "mei", "s", found.version, user_version=found.user_version)
    assert {**expected, "later": 1} == after.state
    assert len((await history.list_changes("app", "mei", "s")).changes) == 4
