"""Sessions: created, read, listed, deleted, strictly by app and user."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from pulse.errors import InvalidInputError, SessionExistsError, SessionNotFoundError
from pulse.events import Event
from pulse.session_service import OpenSessionService


@pytest.fixture
def sessions(pool: asyncpg.Pool) -> OpenSessionService:
    return OpenSessionService(pool)


async def test_a_created_session_equals_a_fresh_read(sessions: OpenSessionService) -> None:
    state = {"theme": "dark", "user:lang": "zh", "app:model": "flash", "n": {"deep": [1, 2.5, None]}}
    created = await sessions.create_session("app", "mei", state, session_id="s-1", metadata={"from": "test"})
    assert created == await sessions.get_session("app", "mei", "s-1")
    assert created.state == state


async def test_initial_state_goes_to_its_scopes_and_temp_is_dropped(
    sessions: OpenSessionService, conn: asyncpg.Connection
) -> None:
    created = await sessions.create_session("app", "mei", {"a": 1, "user:b": 2, "app:c": 3, "temp:d": 4})
    row = await conn.fetchrow(
        """SELECT t.state, u.state AS user_state, a.state AS app_state,
                  jsonb_typeof(t.state) AS t, jsonb_typeof(u.state) AS u, jsonb_typeof(a.state) AS a
           FROM threads t, user_states u, app_states a WHERE t.id = $1""",
        created.thread_id,
    )
    assert row is not None
    assert (row["state"], row["user_state"], row["app_state"]) == ({"a": 1}, {"b": 2}, {"c": 3})
    assert (row["t"], row["u"], row["a"]) == ("object", "object", "object")
    assert "temp:d" not in created.state


async def test_user_and_app_state_are_shared_and_session_state_is_not(sessions: OpenSessionService) -> None:
    await sessions.create_session("app", "mei", {"a": 1, "user:b": 2, "app:c": 3})
    second = await sessions.create_session("app", "mei")
    stranger = await sessions.create_session("app", "tom")
    elsewhere = await sessions.create_session("other", "mei")
    assert second.state == {"user:b": 2, "app:c": 3}
    assert stranger.state == {"app:c": 3}
    assert elsewhere.state == {}


async def test_a_session_of_another_user_or_app_is_not_found(sessions: OpenSessionService) -> None:
    await sessions.create_session("app", "mei", session_id="s")
    assert await sessions.get_session("app", "tom", "s") is None
    assert await sessions.get_session("other", "mei", "s") is None
    for app, user in (("app", "tom"), ("other", "mei")):
        with pytest.raises(SessionNotFoundError):
            await sessions.delete_session(app, user, "s")
        with pytest.raises(SessionNotFoundError):
            await sessions.append(app, user, "s", [Event(author="user", content={"text": "hi"})])
        with pytest.raises(SessionNotFoundError):
            await sessions.finalize_session(app, user, "s")
    session = await sessions.get_session("app", "mei", "s")
    assert session is not None
    assert session.events == []


async def test_the_same_id_is_free_for_another_user(sessions: OpenSessionService) -> None:
    first = await sessions.create_session("app", "mei", session_id="s")
    second = await sessions.create_session("app", "tom", session_id="s")
    assert first.thread_id != second.thread_id


async def test_an_id_in_use_is_refused_and_one_of_ten_racers_wins(sessions: OpenSessionService) -> None:
    outcomes = await asyncio.gather(
        *(sessions.create_session("app", "mei", {"n": n, "user:n": n}, session_id="s") for n in range(10)),
        return_exceptions=True,
    )
    winners = [o for o in outcomes if not isinstance(o, BaseException)]
    assert len(winners) == 1
    assert sum(isinstance(o, SessionExistsError) for o in outcomes) == 9
    assert await sessions.get_session("app", "mei", "s") == winners[0]


async def test_ids_are_stripped_and_a_blank_one_is_generated(sessions: OpenSessionService) -> None:
    padded = await sessions.create_session("app", "mei", session_id="  s  ")
    assert padded.id == "s"
    assert await sessions.get_session("app", "mei", " s ") == padded
    assert len((await sessions.create_session("app", "mei", session_id="  ")).id) == 36


@pytest.mark.parametrize(
    ("app", "user", "session"),
    [
        ("", "u", "s"),
        ("a", "", "s"),
        ("a" * 256, "u", "s"),
        ("a", "u" * 256, "s"),
        ("a", "u", "s" * 513),
        ("*", "u", "s"),
        ("a\0", "u", "s"),
        ("a", "u", "s\0"),
    ],
)
async def test_names_out_of_bounds_are_refused(
    sessions: OpenSessionService, conn: asyncpg.Connection, app: str, user: str, session: str
) -> None:
    with pytest.raises(InvalidInputError):
        await sessions.create_session(app, user, session_id=session)
    assert await conn.fetchval("SELECT count(*) FROM threads") == 0


async def test_listing_reads_every_session_once_newest_first(sessions: OpenSessionService) -> None:
    made = [await sessions.create_session("app", "mei", session_id=f"s{n}") for n in range(7)]
    await sessions.create_session("app", "tom", session_id="not-mine")
    seen, cursor = [], None
    for _ in range(4):
        page = await sessions.list_sessions("app", "mei", limit=2, cursor=cursor)
        seen += [session.id for session in page]
        cursor = page.next_cursor
    assert cursor is None
    assert seen == [session.id for session in reversed(made)]


@pytest.mark.parametrize("arguments", [{"limit": 0}, {"limit": 1001}, {"cursor": "not a cursor"}, {"cursor": ""}])
async def test_listing_refuses_invalid_pages(sessions: OpenSessionService, arguments: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError):
        await sessions.list_sessions("app", "mei", **arguments)  # type: ignore[arg-type]


async def test_reading_returns_the_newest_events_or_those_after_a_number(sessions: OpenSessionService) -> None:
    session = await sessions.create_session("app", "mei", session_id="s")
    await sessions.append_events(session, [Event(author="user", content={"text": str(n)}) for n in range(1, 6)])

    async def numbers(**arguments: int) -> list[int | None]:
        read = await sessions.get_session("app", "mei", "s", **arguments)  # type: ignore[arg-type]
        assert read is not None
        return [event.sequence_num for event in read.events]

    assert await numbers() == [1, 2, 3, 4, 5]
    assert await numbers(num_recent_events=2) == [4, 5]
    assert await numbers(num_recent_events=0) == []
    assert await numbers(after_sequence=3) == [4, 5]
    with pytest.raises(InvalidInputError):
        await numbers(num_recent_events=-1)


async def test_deleting_removes_everything_of_the_session_and_cancels_its_jobs(
    sessions: OpenSessionService, conn: asyncpg.Connection
) -> None:
    session = await sessions.create_session("app", "mei", {"user:kept": 1}, session_id="s")
    await sessions.append_event(session, Event(author="user", content={"text": "hello"}))
    await sessions.finalize_session("app", "mei", "s")
    await conn.execute(
        """INSERT INTO memories (thread_id, user_id, app_name, content) VALUES ($1, 'mei', 'app', 'kept')""",
        session.thread_id,
    )
    await sessions.delete_session("app", "mei", "s")
    for table in ("threads", "events", "messages", "consolidation_jobs", "runs", "snapshots"):
        assert await conn.fetchval(f"SELECT count(*) FROM {table}") == 0, table
    assert await conn.fetch("SELECT thread_id, content FROM memories") == [(None, "kept")]
    assert {row[0] for row in await conn.fetch("SELECT status::text FROM procrastinate_jobs")} == {"cancelled"}
    assert await conn.fetchval("SELECT count(*) FROM procrastinate_jobs") == 2
    with pytest.raises(SessionNotFoundError):
        await sessions.delete_session("app", "mei", "s")


async def test_finalising_enqueues_both_jobs_once(sessions: OpenSessionService, conn: asyncpg.Connection) -> None:
    session = await sessions.create_session("app", "mei", session_id="s")
    assert await sessions.finalize_session("app", "mei", "s") == {}
    await sessions.append_event(session, Event(author="user", content={"text": "hello"}))
    jobs = await sessions.finalize_session("app", "mei", "s")
    assert set(jobs) == {"fast_replay", "deep_reflection"}
    assert await sessions.finalize_session("app", "mei", "s") == jobs
    assert await conn.fetchval("SELECT count(*) FROM procrastinate_jobs") == 2
    read = await sessions.get_session("app", "mei", "s")
    assert read is not None
    assert read.finalized_at is not None
    await sessions.append_event(read, Event(author="user", content={"text": "one more thing"}))
    reopened = await sessions.get_session("app", "mei", "s")
    assert reopened is not None
    assert reopened.finalized_at is None
