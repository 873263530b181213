"""Messages while they are written: pushed live, exact for late clients, never an event."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence

import asyncpg
import pytest

from pulse.errors import StreamLostError, StreamTooLongError
from pulse.events import Session
from pulse.live_text import COALESCE_SECONDS, LiveMessage, LiveText, RunKey
from pulse.pg_notify_listener import PgNotifyListener
from pulse.session_service import OpenSessionService
from pulse.streams.deltas import PgDeltaCarrier
from tests.support.waiting import WAIT_SECONDS, until


class Reader:
    """Keeps what it receives, and checks that it fits."""

    def __init__(self, run: RunKey) -> None:
        self.run = run
        self.texts: dict[str, str] = {}
        self.pieces = 0

    def offsets(self) -> Mapping[str, int]:
        return {name: len(text) for name, text in self.texts.items()}

    def receive(self, messages: Sequence[LiveMessage]) -> None:
        for message in messages:
            so_far = self.texts.get(message.message_id, "")
            assert message.offset == len(so_far)
            self.texts[message.message_id] = so_far + message.text
            self.pieces += 1


@pytest.fixture
async def carrier(dsn: str, pool: asyncpg.Pool) -> AsyncIterator[PgDeltaCarrier]:
    listener = PgNotifyListener(dsn, pool)
    opened = PgDeltaCarrier(pool, listener)
    await listener.start()
    await opened.start()
    await until(lambda: listener.is_running)
    yield opened
    await opened.stop()
    await listener.stop()


@pytest.fixture
async def session(pool: asyncpg.Pool) -> Session:
    return await OpenSessionService(pool).create_session("app", "ann", session_id="s")


async def test_early_and_late_watchers_get_the_same_text(
    carrier: PgDeltaCarrier, session: Session, pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """500 pieces travel as far fewer, in order. A late watcher gets the whole text, and none of it is an event."""
    monkeypatch.setattr("pulse.live_text._CLOSE_SECONDS", WAIT_SECONDS)
    began = time.monotonic()
    run = RunKey(session.thread_id, "r1")
    early, late = Reader(run), Reader(run)
    carrier.watch(early)
    live = LiveText(carrier, run, "m1")
    pieces = [f"{n}·你好🦊\u2028 " for n in range(500)]
    for number, piece in enumerate(pieces):
        await live.push(piece)
        if number == 250:
            await until(lambda: bool(early.texts))
            stop = carrier.watch(late)
        await asyncio.sleep(0.0005)
    whole = await live.end()
    took = time.monotonic() - began
    assert whole == "".join(pieces)
    await until(lambda: early.texts == late.texts == {"m1": whole})
    # However long a busy machine took.
    assert early.pieces <= max(200, took / COALESCE_SECONDS + 2)
    assert await pool.fetchval("SELECT count(*) FROM live_messages") == 1
    await live.drop()
    assert await pool.fetchval("SELECT (SELECT count(*) FROM live_messages) + (SELECT count(*) FROM events)") == 0
    stop()
    assert carrier.watchers == 1


async def test_a_piece_that_is_sent_twice_is_stored_once(carrier: PgDeltaCarrier, session: Session) -> None:
    """A retry after a lost response changes nothing, even if it has more text. A gap and a lost text are errors."""
    run = RunKey(session.thread_id, "r1")
    reader = Reader(run)
    for offset, piece in ((0, "ab"), (0, "ab"), (2, "cd"), (2, "cdef"), (0, "abcdefg")):
        await carrier.push(run, "m1", kind="text", offset=offset, text=piece)
    (message,) = await carrier.read([reader])
    assert message.text == "abcdefg"
    for name, offset in (("m1", 9), ("m1", 3), ("unknown", 3)):
        with pytest.raises(StreamLostError):
            await carrier.push(run, name, kind="text", offset=offset, text="x")
    with pytest.raises(StreamTooLongError):
        await carrier.push(run, "m2", kind="text", offset=0, text="x" * 1_000_001)


async def test_a_writer_continues_when_its_text_is_lost(
    carrier: PgDeltaCarrier, session: Session, pool: asyncpg.Pool
) -> None:
    """A crash of the server empties the unlogged table. The message is still written to its end."""
    live = LiveText(carrier, RunKey(session.thread_id, "r1"), "m1")
    await live.push("before ")
    while not await pool.fetchval("SELECT count(*) FROM live_messages"):
        await asyncio.sleep(0.01)
    await pool.execute("DELETE FROM live_messages")
    await live.push("after ")
    await asyncio.sleep(0.1)
    await live.push("all")
    assert await live.end() == "before after all"


async def test_old_texts_are_pruned_unless_their_run_is_active(
    pool: asyncpg.Pool, carrier: PgDeltaCarrier, session: Session
) -> None:
    """Upkeep removes texts without recent pieces. The open message of an active run is kept for a day."""
    from pulse.runs.service import RunService

    await RunService(pool).start("app", "ann", "s", "r-live")
    for run in ("r-live", "r-gone"):
        await carrier.push(RunKey(session.thread_id, run), "m", kind="text", offset=0, text="so far")
    assert await pool.fetchval("SELECT prune_live_messages('5 minutes')") == 0
    await pool.execute("UPDATE live_messages SET updated_at = now() - interval '10 minutes'")
    assert await pool.fetchval("SELECT prune_live_messages('5 minutes')") == 1
    assert await pool.fetchval("SELECT run_id FROM live_messages") == "r-live"
    await pool.execute("UPDATE live_messages SET updated_at = now() - interval '2 days'")
    assert await pool.fetchval("SELECT prune_live_messages('5 minutes')") == 1


async def test_a_deleted_session_leaves_no_text(pool: asyncpg.Pool, carrier: PgDeltaCarrier, session: Session) -> None:
    await carrier.push(RunKey(session.thread_id, "r"), "m", kind="text", offset=0, text="private")
    await OpenSessionService(pool).delete_session("app", "ann", "s")
    assert await pool.fetchval("SELECT count(*) FROM live_messages") == 0


async def test_a_text_dropped_while_it_is_sent_stays_dropped(
    carrier: PgDeltaCarrier, session: Session, pool: asyncpg.Pool
) -> None:
    """Its last piece does not reappear after the drop, in whichever order the database executes them."""
    for number in range(60):
        live = LiveText(carrier, RunKey(session.thread_id, "r1"), f"m{number}")
        await live.push("hello")
        # At every stage of the sending, from before its start to after its end.
        for _ in range(number % 20):
            await asyncio.sleep(0)
        await live.drop()
    assert await pool.fetchval("SELECT count(*) FROM live_messages") == 0
