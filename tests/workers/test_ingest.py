"""Files of conversations become sessions: recognised, in order, with their own times, and each event once."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from hippocampus.transfer.given_memories import GivenMemories
from pulse.events import Event
from pulse.session_service import OpenSessionService
from tests.support.paths import EXAMPLES
from workers.intake import conversations, ingest, reader, samples
from workers.intake.ingest import Ingest
from workers.intake.records import FileFormatError, Item, Rejected, SessionHead, Turn

CHATS = EXAMPLES / "chat.jsonl"
TALK = {
    "sample_id": "ada",
    "conversation": {
        "speaker_a": "Ada",
        "speaker_b": "Assistant",
        "session_2_date_time": "9:05 am on 1 June, 2024",
        "session_2": [{"speaker": "Ada", "text": "I moved to Turin."}],
        "session_10_date_time": "2024-07-02T10:00:00+02:00",
        "session_10": [{"speaker": "Ada", "dia_id": "D10:1", "text": "Look", "blip_caption": "a bridge at night"}],
        "session_1_date_time": "11:30 pm on 31 May, 2024",
        "session_1": [{"speaker": "Ada", "text": "Hi."}, {"speaker": "Assistant", "text": "Hello."}],
        "session_3_date_time": "1:00 pm on 3 June, 2024",
        "session_3": [],
    },
    "qa": [{"question": "Where does Ada live?", "category": 4}, {"question": ""}],
}


def write(folder: Path, content: Any, name: str = "talk.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_locomo_sessions_come_in_the_order_of_their_numbers_with_their_times(tmp_path: Path) -> None:
    read = conversations.read(write(tmp_path, [TALK]))
    assert read.file_format == "LoCoMo JSON"
    assert [session.session_id for session in read.sessions] == ["ada-session-1", "ada-session-2", "ada-session-10"]
    assert {session.user_id for session in read.sessions} == {"ada"}
    hello = read.sessions[0].events[1]
    assert (hello.author, hello.role, hello.text) == ("Assistant", "assistant", "Hello.")
    assert hello.occurred_at == datetime(2024, 5, 31, 23, 30, 30, tzinfo=UTC)
    photo = read.sessions[2].events[0]
    assert photo.text == "Look [photo: a bridge at night]"
    assert photo.occurred_at == datetime(2024, 7, 2, 8, tzinfo=UTC)
    assert read.queries == ("Where does Ada live?",)


def test_both_people_of_a_conversation_are_users(tmp_path: Path) -> None:
    talk = {"session_1_date_time": "1:00 pm on 3 June, 2024", "session_1": [{"speaker": "Ida", "text": "Hi"}]}
    (session,) = conversations.read(write(tmp_path, talk)).sessions
    assert (session.session_id, session.user_id) == ("talk-session-1", "talk")
    assert session.events[0].role == "user"


def test_chats_one_per_line(tmp_path: Path) -> None:
    """Roles, names, parts, tool calls and instructions are kept."""
    chat = {
        "id": "support-7",
        "user": "ann",
        "created_at": "2025-01-01T00:00:00Z",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "name": "Ann", "content": [{"type": "text", "text": "Hi"}, {"type": "image_url"}]},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]},
            {"role": "tool", "tool_call_id": "c1", "content": "42", "timestamp": 1735689700},
        ],
    }
    read = conversations.read(write(tmp_path, json.dumps(chat) + "\n\n" + json.dumps({"messages": chat["messages"]})))
    assert read.file_format == "chat JSON"
    first, second = read.sessions
    assert (first.session_id, first.user_id) == ("support-7", "ann")
    assert (second.session_id, second.user_id) == ("talk-2", "talk")
    system, user, call, tool = first.events
    assert (system.event_type, system.text) == ("instruction", None)
    assert (user.author, user.role, user.text) == ("Ann", "user", "Hi")
    assert user.content["parts"] == chat["messages"][1]["content"]
    assert (call.event_type, call.content["tool_calls"]) == ("tool_call", [{"id": "c1"}])
    assert (tool.role, tool.text, tool.timestamp) == ("tool", "42", 1735689700)
    assert user.timestamp == datetime(2025, 1, 1, 0, 0, 30, tzinfo=UTC).timestamp()
    assert second.events[0].timestamp is None


def test_chats_one_message_per_line(tmp_path: Path) -> None:
    lines = [
        {"role": "user", "content": "Hi", "session_id": "a"},
        {"role": "assistant", "content": "Hello", "session_id": "a"},
        {"role": "user", "content": "Hi", "session_id": "b"},
    ]
    path = write(tmp_path, "\n".join(map(json.dumps, lines)), "log.jsonl")
    sessions = conversations.read(path).sessions
    assert [(each.session_id, len(each.events)) for each in sessions] == [("a", 2), ("b", 1)]
    ids = {event.id for each in sessions for event in each.events}
    assert len(ids) == 3


def test_the_shipped_examples_are_read() -> None:
    """The sample is bilingual and has a user; the chats have several sessions."""
    mei = conversations.read(samples.sample_path())
    assert mei.file_format == "LoCoMo JSON"
    assert mei.event_count > 150
    chats = conversations.read(CHATS)
    assert chats.file_format == "chat JSON"
    assert len({each.session_id for each in chats.sessions}) == len(chats.sessions) > 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "the file is empty"),
        ("{", "line 1: not valid JSON"),
        ('{"role": "user"}\nnonsense', "line 2: not valid JSON"),
        ("[1, 2]", "is not in a known format"),
        ('{"messages": []}', "line 1: messages must be a list that is not empty"),
        ('{"messages": [{"content": "Hi"}]}', "message 1: a message needs a role"),
        ('{"role": "user", "content": "Hi", "timestamp": "soon"}', "'soon' is not a time"),
        (
            {"session_1": [{"speaker": "A", "text": "x"}], "session_1_date_time": "soon"},
            "session_1_date_time is 'soon'",
        ),
        ({"session_1": [{"speaker": "A", "text": "x"}]}, "session_1_date_time is None"),
        ({"session_1": [{"text": "x"}], "session_1_date_time": "2024-01-01"}, "turn 1 of session_1 needs a speaker"),
        ({"session_1": {}, "session_1_date_time": "2024-01-01"}, "session_1 must be a list"),
    ],
)
def test_a_file_that_is_not_a_conversation_is_refused_with_its_position(
    tmp_path: Path, content: Any, said: str
) -> None:
    path = write(tmp_path, content)
    with pytest.raises(FileFormatError) as error:
        conversations.read(path)
    assert str(path) in str(error.value)
    assert said in str(error.value)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "photo.json"
    path.write_bytes(b"\xff\xd8\xff")
    with pytest.raises(FileFormatError, match="not valid UTF-8"):
        conversations.read(path)
    with pytest.raises(FileFormatError, match="can't be read"):
        conversations.read(tmp_path)


async def statements_of(pool: asyncpg.Pool) -> list[int]:
    """The number of events of each transaction, in order."""
    rows = await pool.fetch("SELECT count(*) FROM events GROUP BY xmin ORDER BY min(sequence_num)")
    return [row["count"] for row in rows]


async def test_batches_are_bounded_by_number_and_by_bytes(pool: asyncpg.Pool) -> None:
    """Nothing is omitted, and the order is kept."""
    service = OpenSessionService(pool)
    for name, size, count, sizes in (("small", 1, 450, [200, 200, 50]), ("large", 700_000, 3, [1, 1, 1])):
        texts = [f"{place}{'x' * size}" for place in range(count)]
        items: list[Item] = [SessionHead(session_id=name, user_id="ann", line=1)]
        items += [Turn(session_id=name, event=Event(author="user", content={"text": text}), line=1) for text in texts]
        done = await ingest.ingest(
            service, GivenMemories(pool), items, app_name=name, user_id="ann", file_format="test"
        )
        assert (done.sessions, done.events_new) == (1, count)
        assert await statements_of(pool) == sizes
        session = await service.get_session(name, "ann", name)
        assert session is not None
        assert [event.text for event in session.events] == texts
        await service.delete_session(name, "ann", name)
    await service.close()


async def test_ingesting_twice_appends_once(pool: asyncpg.Pool, tmp_path: Path) -> None:
    """An interrupted run is completed by the next."""
    service = OpenSessionService(pool)
    path = write(tmp_path, [TALK])
    file = conversations.read(path)
    await service.create_session("app", "ada", session_id="ada-session-1")
    await service.append("app", "ada", "ada-session-1", file.sessions[0].events[:1])

    seen: list[int] = []
    one = {"app_name": "app", "user_id": "talk", "file_format": "LoCoMo JSON", "finalize": True}
    first = await ingest.ingest(service, GivenMemories(pool), reader.read(path).items, **one, on_progress=seen.append)
    assert (first.sessions, first.events_new, first.events_known) == (3, 3, 1)
    assert first.jobs_enqueued == 6
    assert sum(seen) == 4
    again = await ingest.ingest(service, GivenMemories(pool), file.items(), **one)
    assert (again.events_new, again.events_known) == (0, 4)
    assert await pool.fetchval("SELECT count(*) FROM consolidation_jobs") == 6
    session = await service.get_session("app", "ada", "ada-session-1")
    assert session is not None
    assert [event.text for event in session.events] == ["Hi.", "Hello."]
    assert session.events[0].occurred_at == datetime(2024, 5, 31, 23, 30, tzinfo=UTC)
    await service.close()


async def test_the_user_can_be_given(pool: asyncpg.Pool, tmp_path: Path) -> None:
    service = OpenSessionService(pool)
    one = Ingest(
        service, GivenMemories(pool), app_name="app", user_id="somebody", is_user_fixed=True, file_format="LoCoMo JSON"
    )
    await one.run(reader.read(write(tmp_path, [TALK])).items)
    assert await pool.fetch("SELECT DISTINCT user_id FROM threads") == [("somebody",)]
    assert await pool.fetchval("SELECT count(*) FROM consolidation_jobs") == 0
    await service.close()


async def test_a_refused_turn_blocks_no_other(pool: asyncpg.Pool) -> None:
    """Too large for the app, an id with other content, a session that cannot be created: each is reported, the rest is
    stored."""
    service = OpenSessionService(pool)
    await pool.execute("INSERT INTO app_policies (app_name, max_event_bytes) VALUES ('app', 2000)")
    texts = ["one", "x" * 5_000, "three", "other words under one id", "five"]
    ids = ["a", "b", "c", "a", "e"]
    items: list[Item] = [
        SessionHead(session_id="s", user_id=None, line=1),
        SessionHead(session_id="x" * 600, user_id=None, line=9),
    ]
    for line, (text, event_id) in enumerate(zip(texts, ids, strict=True), 2):
        event = Event(author="user", content={"text": text}, id=event_id)
        items.append(Turn(session_id="s", event=event, line=line))
    items += [
        Turn(session_id="x" * 600, event=Event(author="user", content={"text": "lost"}), line=n) for n in (10, 11)
    ]
    rejects: list[Rejected] = []
    one = Ingest(
        service, GivenMemories(pool), app_name="app", user_id="ann", file_format="test", on_rejected=rejects.append
    )
    done = await one.run(items)
    assert (done.sessions, done.events_new, done.rejected) == (1, 3, 4)
    assert sorted(each.line for each in rejects) == [3, 5, 9]
    session = await service.get_session("app", "ann", "s")
    assert session is not None
    assert [event.text for event in session.events] == ["one", "three", "five"]
    await service.close()
