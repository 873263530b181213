"""Files of other programs, in the shapes in which they write them: what comes in, what is left out and why."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from hippocampus.transfer.given_memories import GivenMemories
from pulse.session_service import OpenSessionService
from workers.intake import conversations, formats, reader
from workers.intake.ingest import Ingest, Ingested
from workers.intake.records import FileFormatError, Given, LeftOut, Rejected, Turn

MAY_8 = 1715173000.0  # 2024-05-08T12:56:40Z
AT = "2024-05-08T12:56:40Z"

CLAUDE = [
    {"uuid": "c1", "name": "A cat", "created_at": AT, "account": {"uuid": "a"}, "chat_messages": [
        {"uuid": "m1", "sender": "human", "text": "My cat is Miso.", "created_at": AT,
         "content": [{"type": "text", "text": "My cat is Miso."}],
         "attachments": [{"file_name": "vet.txt", "file_size": 9, "extracted_content": "Miso, 4 kg"},
                         {"file_name": "scan.pdf", "extracted_content": ""}],
         "files": [{"file_name": "miso.png"}]},
        {"uuid": "m2", "sender": "assistant", "text": "", "created_at": AT, "attachments": [], "files": [],
         "content": [{"type": "thinking", "thinking": "A cat."}, {"type": "text", "text": "A lovely name."}]},
        {"uuid": "m3", "sender": "human", "text": "", "content": [], "created_at": AT},
        {"uuid": "m4", "sender": "human", "text": "Bye.", "content": [], "created_at": AT}]},
    {"uuid": "c2", "name": "", "created_at": AT, "chat_messages": []},
]  # fmt: skip
MEM0 = {
    "results": [
        {"id": "1", "memory": "Lives in Oslo", "hash": "x", "created_at": "2024-05-01T00:00:00-07:00", "updated_at": AT,
         "user_id": "ann", "metadata": {"category": "home"}},
        {"id": "2", "memory": "Likes rowing", "created_at": AT, "updated_at": None, "user_id": "ben"},
        {"id": "3", "memory": "Has a voucher", "created_at": AT, "user_id": "ann", "expiration_date": "2024-06-01"},
        {"id": "4", "memory": None, "created_at": AT, "user_id": "ann"},
    ],
    "relations": [{"source": "ann", "relationship": "lives_in", "target": "oslo"}],
}  # fmt: skip
ZEP_THREAD = {"messages": [
    {"uuid": "z1", "role": "user", "name": "Ann", "content": "I moved.", "created_at": AT, "processed": True},
    {"uuid": "z2", "role": "assistant", "name": None, "content": "Where to?", "created_at": AT,
     "reference_time": "2024-05-08T12:57:40Z"},
    {"uuid": "z3", "role_type": "user", "role": "Ann", "content": "To Oslo.", "created_at": AT},
], "row_count": 3, "total_count": 3}  # fmt: skip
ZEP_GRAPH = {
    "edges": [
        {"uuid": "e1", "fact": "Ann lives in Turin", "name": "LIVES_IN", "source_node_name": "Ann",
         "target_node_name": "Turin", "created_at": AT, "valid_at": "2020-01-01T00:00:00Z", "invalid_at": AT,
         "expired_at": AT, "episodes": ["p1"]},
        {"uuid": "e2", "fact": "Ann lives in Oslo", "name": "LIVES_IN", "created_at": AT, "valid_at": AT}],
    "nodes": [{"uuid": "n1", "name": "Ann", "labels": ["Person"], "summary": "A rower.", "created_at": AT},
              {"uuid": "n2", "name": "Oslo", "summary": "", "created_at": AT}],
    "episodes": [{"uuid": "p1", "content": "I moved."}],
}  # fmt: skip
LETTA = {
    "agents": [{"id": "agent-0", "name": "helper", "block_ids": ["block-0"], "messages": [
        {"id": "message-0", "role": "system", "content": [{"type": "text", "text": "Be kind."}], "created_at": AT},
        {"id": "message-1", "role": "user", "created_at": AT, "content": [{"type": "text", "text": json.dumps(
            {"type": "user_message", "message": "I row.", "time": "noon"})}]},
        {"id": "message-2", "role": "assistant", "created_at": AT, "content": [{"type": "text", "text": "A rower!"}],
         "tool_calls": [{"id": "t", "type": "function", "function": {
             "name": "send_message", "arguments": "{\"message\": \"Where?\"}"}}]},
        {"id": "message-3", "role": "tool", "created_at": AT, "content": [{"type": "text", "text": json.dumps(
            {"status": "OK", "message": "None", "time": "noon"})}]},
        {"id": "message-4", "role": "user", "created_at": AT, "content": [{"type": "text", "text": "In Oslo."}]}]}],
    "blocks": [{"id": "block-0", "label": "human", "value": "Ann, from Turin", "limit": 5000},
               {"id": "block-1", "label": "persona", "value": ""}],
    "tools": [{"id": "tool-0"}], "sources": [], "files": [], "groups": [], "mcp_servers": [],
}  # fmt: skip
STORE = [
    {"prefix": "memories.ann", "key": "k1", "value": {"text": "Lives in Oslo"}, "created_at": AT, "updated_at": AT,
     "expires_at": None, "ttl_minutes": None},
    {"prefix": "memories.ann", "key": "k2", "value": {"kind": "Memory", "content": {"content": "Rows"}},
     "created_at": "2024-05-08T12:56:40+00:00", "updated_at": AT, "expires_at": None, "ttl_minutes": None},
    {"prefix": "prefs", "key": "k3", "value": {"tea": "green", "sugar": 0}, "created_at": AT, "updated_at": AT},
    {"prefix": "prefs", "key": "k4", "value": {"text": "old"}, "created_at": AT, "updated_at": AT, "expires_at": AT},
]  # fmt: skip
THREAD = {"object": "list", "first_id": "m2", "last_id": "m1", "has_more": True, "data": [
    {"id": "m2", "object": "thread.message", "thread_id": "thread_1", "role": "assistant", "created_at": MAY_8 + 5,
     "content": [{"type": "text", "text": {"value": "Hello", "annotations": []}}]},
    {"id": "m1", "object": "thread.message", "thread_id": "thread_1", "role": "user", "created_at": MAY_8,
     "content": [{"type": "text", "text": {"value": "Hi", "annotations": []}}]}]}  # fmt: skip
ITEMS = {"object": "list", "has_more": False, "data": [
    {"id": "msg_2", "type": "message", "status": "completed", "role": "assistant",
     "content": [{"type": "output_text", "text": "18 degrees", "annotations": []}]},
    {"id": "fo_1", "type": "function_call_output", "call_id": "c", "output": "18"},
    {"id": "fc_1", "type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"},
    {"id": "rs_1", "type": "reasoning", "summary": []},
    {"id": "msg_1", "type": "message", "role": "user",

     "content": [{"type": "input_text", "text": "Warm?"}]}]}  # fmt: skip

IOS = (
    "\ufeff[08/05/2024, 12:56:40] Rowers: \u200eMessages and calls are end-to-end encrypted.\r\n"
    "\u200e[08/05/2024, 12:56:41] Ann: \u200eimage omitted\r\n"
    "[08/05/2024, 12:57:00] ~\u202fBen M\u00fcller: Yes:\r\nat ten \u200e<This message was edited>\r\n"
    "[13/05/2024, 12:57:00] +47 170 12 34: \u200ePOLL:\r\nRow?\r\n\u200eOPTION: Yes (1 vote)\r\n"
    "[13/05/2024, 12:58:00] Ann: \u200eThis message was deleted.\r\n"
)
ANDROID = (
    "5/8/24, 12:56\u202fPM - Messages and calls are end-to-end encrypted. No one can read them.\n"
    '5/8/24, 12:56\u202fPM - Ben created group "Trip: Oslo"\n'
    "5/8/24, 12:57\u202fPM - Ann Bee: <Media omitted>\n"
    "5/8/24, 12:58\u202fPM - Ann Bee: IMG-1.jpg (file attached)\nThe boat\n"
    "5/13/24, 12:58\u202fPM - Ben: I omitted <b> it\n\nsecond paragraph\n"
)


def write(folder: Path, content: Any, name: str) -> Path:
    path = folder / name
    lines = name.endswith(".jsonl")
    text = (
        content if isinstance(content, str) else "\n".join(map(json.dumps, content)) if lines else json.dumps(content)
    )
    path.write_text(text, encoding="utf-8", newline="")
    return path


def left_out(items: list[Any]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for item in items:
        if isinstance(item, LeftOut):
            counts[item.reason] += item.count
    return dict(counts)


#: file, content, title, turns (session, author, text), memories (user, text), left out, rejected
CASES: list[tuple[str, Any, str, list[tuple[str, str, str]], list[tuple[str | None, str]], list[int], list[str]]] = [
    ("conversations.json", CLAUDE, "Claude conversations",
     [("c1", "user", "My cat is Miso."), ("c1", "user", "[attachment: vet.txt]\nMiso, 4 kg"),
      ("c1", "model", "A lovely name."), ("c1", "user", "Bye.")], [], [1, 1, 1, 1, 1], []),
    ("memories.json", MEM0, "mem0 memories", [], [("ann", "Lives in Oslo"), ("ben", "Likes rowing")], [1, 1],
     ["memory 4: the text of a memory must be a string, not NoneType"]),
    ("memories.jsonl", MEM0["results"][:2], "mem0 memories", [],
     [("ann", "Lives in Oslo"), ("ben", "Likes rowing")], [], []),
    ("thread.json", ZEP_THREAD, "Zep messages or graph",
     [("thread", "Ann", "I moved."), ("thread", "model", "Where to?"), ("thread", "Ann", "To Oslo.")], [], [], []),
    ("graph.json", ZEP_GRAPH, "Zep messages or graph", [],
     [(None, f"Ann lives in Turin (no longer true: it held from 2020-01-01T00:00:00Z until {AT})"),
      (None, "Ann lives in Oslo"), (None, "Ann: A rower.")], [1, 1], []),
    ("helper.af", LETTA, "Letta agent file",
     [("helper", "system", ""), ("helper", "user", "I row."), ("helper", "model", "Where?"),
      ("helper", "user", "In Oslo.")], [(None, "human: Ann, from Turin")], [1, 1, 1], []),
    ("store.jsonl", STORE, "LangGraph store", [],
     [(None, "Lives in Oslo"), (None, "Rows"), (None, '{"tea": "green", "sugar": 0}')], [1], []),
    ("thread.json", THREAD, "OpenAI threads or conversations",
     [("thread_1", "user", "Hi"), ("thread_1", "model", "Hello")], [], [], ["has_more is true"]),
    ("items.json", ITEMS, "OpenAI threads or conversations",
     [("items", "user", "Warm?"), ("items", "model", ""), ("items", "tool", "18"), ("items", "model", "18 degrees")],
     [], [1], []),
    ("_chat.txt", IOS, "WhatsApp chat",
     [("_chat", "Ben M\u00fcller", "Yes:\nat ten"), ("_chat", "+47 170 12 34", "POLL:\nRow?\nOPTION: Yes (1 vote)")],
     [], [2, 1], []),
    ("chat.txt", ANDROID, "WhatsApp chat",
     [("chat", "Ann Bee", "The boat"), ("chat", "Ben", "I omitted <b> it\nsecond paragraph")], [], [2, 1], []),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "title", "turns", "memories", "counts", "errors"), CASES)
def test_a_file_of_another_program_is_read(
    tmp_path: Path,
    name: str,
    content: Any,
    title: str,
    turns: list[Any],
    memories: list[Any],
    counts: list[int],
    errors: list[str],
) -> None:
    path = write(tmp_path, content, name)
    reading = reader.read(path)
    items = list(reading.items)
    assert reading.file_format == title
    events = [(item.session_id, item.event) for item in items if isinstance(item, Turn)]
    assert [(session, event.author, event.text or "") for session, event in events] == turns
    given = [item for item in items if isinstance(item, Given)]
    assert [(item.user_id, item.memory.content) for item in given] == memories
    assert len({item.memory.name for item in given}) == len(given)
    assert all(item.memory.occurred_at is not None for item in given) or title.startswith("Letta")
    assert sorted(left_out(items).values(), reverse=True) == counts, left_out(items)
    rejects = [item.error for item in items if isinstance(item, Rejected)]
    assert len(rejects) == len(errors)
    assert all(error.startswith(part) for error, part in zip(rejects, errors, strict=True)), rejects
    # A format that is named is the one that is found, and a wrong one is refused.
    (slug,) = [each.name for each in (*formats.RECORD_FORMATS, *formats.TEXT_FORMATS) if each.title == title]
    assert reader.read(path, file_format=slug).file_format == title
    if not name.endswith(".txt"):
        with pytest.raises(FileFormatError, match="not in the format locomo"):
            reader.read(path, file_format="locomo")


def test_times_come_with_what_was_said(tmp_path: Path) -> None:
    def times(content: Any, name: str, **options: Any) -> list[float | None]:
        items = reader.read(write(tmp_path, content, name), **options).items
        return [item.event.timestamp for item in items if isinstance(item, Turn)]

    assert times(IOS, "_chat.txt") == [MAY_8 + 20, MAY_8 + 20 + 5 * 86400]
    assert times(ANDROID, "chat.txt") == [MAY_8 + 80, MAY_8 + 80 + 5 * 86400]
    assert times(ZEP_THREAD, "z.json") == [MAY_8, MAY_8 + 60, MAY_8]
    assert times(THREAD, "t.json") == [MAY_8, MAY_8 + 5]
    for line in (
        "08.05.24, 12:56 - Ann: Hi", "2024-05-08, 12:56 - Ann: Hi", "[2024/5/8 下午12:56:00] Ann: Hi",
        "[08.05.24, 12:56:00] Ann: Hi", "08-05-2024, 12:56 p. m. - Ann: Hi",
    ):  # fmt: skip
        assert times(line, "w.txt") == [MAY_8 - 40], line


def test_the_order_of_day_and_month_is_found_in_the_whole_file_or_asked_for(tmp_path: Path) -> None:
    """By a number over 12, by the order of the dates; otherwise the file is refused, and an option says it."""

    def first(*dates: str, **options: Any) -> float | None:
        text = "".join(f"{date}, 12:56 - Ann: Hi\n" for date in dates)
        items = reader.read(write(tmp_path, text, "w.txt"), **options).items
        return next(item.event.timestamp for item in items if isinstance(item, Turn))

    august_5 = 1722862560.0
    assert first("8/5/24", "9/5/24", "13/5/24") == MAY_8 - 40
    assert first("5/8/24", "5/9/24", "5/13/24") == MAY_8 - 40
    assert first("8/5/24", "9/5/24", "1/6/24") == MAY_8 - 40  # read as 8 May, 9 May, 1 June
    assert first("5/8/24", "5/9/24", "6/1/24") == MAY_8 - 40
    with pytest.raises(FileFormatError, match=r"such as 5/8/24, .* --day-first or --month-first"):
        first("5/8/24")
    assert first("5/8/24", day_first=True) == august_5
    assert first("5/8/24", day_first=False) == MAY_8 - 40


def test_a_memory_with_a_role_is_a_memory_not_a_message(tmp_path: Path) -> None:
    memory = {"id": "1", "memory": "Lives in Oslo", "user_id": "ann", "role": "user", "actor_id": "Ann"}
    for name, content in (("m.jsonl", [memory]), ("m.json", [memory])):
        reading = reader.read(write(tmp_path, content, name))
        (given,) = [item for item in reading.items if isinstance(item, Given)]
        assert (reading.file_format, given.memory.content) == ("mem0 memories", "Lives in Oslo")
        assert given.memory.metadata["role"] == "user"


def test_an_edge_keeps_its_episodes_and_attributes(tmp_path: Path) -> None:
    kept = {"episode_uuids": ["p1"], "attributes": {"since": "May"}}
    edges = {"edges": [{"uuid": "e1", "fact": "Ann lives in Oslo", "created_at": AT, **kept}]}
    (given,) = [item for item in reader.read(write(tmp_path, edges, "g.json")).items if isinstance(item, Given)]
    assert {key: given.memory.metadata.get(key) for key in kept} == kept


def test_a_call_of_a_tool_was_not_shown(tmp_path: Path) -> None:
    mapping = {}
    for number, recipient in enumerate(("all", "python", None)):
        message = {"author": {"role": "assistant"}, "recipient": recipient, "content": {"parts": [f"part {number}"]}}
        mapping[f"n{number}"] = {"parent": f"n{number - 1}" if number else None, "message": message}
    chat = {"conversation_id": "c", "current_node": "n2", "mapping": mapping}
    items = list(reader.read(write(tmp_path, [chat], "conversations.json")).items)
    assert [item.event.text for item in items if isinstance(item, Turn)] == ["part 0", "part 2"]
    assert left_out(items) == {"messages that were not shown": 1}


#: The headers of one time, as the phones of other regions write them; 13:05 on 1 February 2024, before a name.
HEADERS = (
    "1.2.2024 klo 13.05 - ", "[1.2.2024 klo 13.05.00] ", "[1.2.2024 klo 1.05.00 ip.] ",  # Finnish
    "01.02.2024 kl. 13.05 - ", "2024-02-01 kl. 13:05 - ", "[01.02.2024 13.05.00] ",  # Danish, Norwegian, Swedish
    "2024. 02. 01. 13:05 - ", "[2024. 02. 01. 13:05:00] ", "2024. 02. 01. du. 1:05 - ",  # Hungarian
    "1.02.24 г., 13:05 ч. - ", "[1.02.24 г., 13:05:00 ч.] ", "1.2.2024 г., 13:05 - ",  # Bulgarian, Macedonian
    "2024/2/1 下午1:05 - ", "[2024/2/1 下午1:05:00] ", "2024/2/1\u2009下午1:05 - ",  # Chinese
    "2024/02/01 午後1:05 - ",  # Japanese
    "24. 2. 1. 오후 1:05 - ", "[2024. 2. 1. 오후 1:05:00] ",  # Korean
    "١\u200f/٢\u200f/٢٠٢٤، ١:٠٥ م - ", "[1\u200f/2\u200f/2024، 1:05:00 م] ",  # Arabic
    "\u200f٠١\u200f/٠٢\u200f/٢٠٢٤، ١٣:٠٥ - ",
    "۲۰۲۴/۰۲/۰۱, ۱۳:۰۵ - ", "۲۰۲۴/۰۲/۰۱, ۱:۰۵ ب.ظ. - ", "१/२/२४, १:०५ PM - ",  # Persian, Marathi
    "1/2/24, 1:05\u202fPM - ", "1/2/24, 1:05\u202fp.\u00a0m. - ", "1/2/24, 1:05 μ.μ. - ",  # English, Spanish, Greek
    "01/02/2024 à 13:05 - ", "2024-02-01 13 h 05 - ", "2024-02-01 13 h 05 min 00 s - ",  # French
    "1. 2. 2024, 13:05 - ", "01. 02. 2024. 13:05 - ", "1. 2. 2024. u 13:05 - ",  # Slovene, Croatian, Bosnian
    "13:05 1/2/24 - ", "01:05 CH 1/2/24 - ", "[13:05, 1/2/2024] ", "[1:05 PM, 1/2/2024] ",  # Vietnamese; WhatsApp Web
    "1/02/24, 1:05 PTG - ", "01/02/2024 1:05 ከሰዓት - ", "1.2.24, 1:05 m.d. - ",  # Malay, Amharic, Albanian
    "1.02.2024 ÖS 01:05 - ", "01.02.24, 01:05 пп - ",  # Turkish, Ukrainian
)  # fmt: skip


def test_headers_of_other_regions_are_read_as_time_and_name(tmp_path: Path) -> None:
    """None is taken for a part of the name, which would make another author of every minute."""
    for header in HEADERS:
        path = write(tmp_path, f"{header}Anna Liisa: Moi\r\n{header}Ben: Hei: hei\r\ntoo\r\n", "w.txt")
        reading = reader.read(path, day_first=True)
        events = [item.event for item in reading.items if isinstance(item, Turn)]
        said = [(event.author, event.text, event.timestamp) for event in events]
        assert said == [("Anna Liisa", "Moi", 1706792700.0), ("Ben", "Hei: hei\ntoo", 1706792700.0)], header
        assert reading.file_format == "WhatsApp chat"


def test_brackets_around_a_plain_time_are_those_of_a_transcript(tmp_path: Path) -> None:
    for time in ("2024-02-01 13:05", "13/02/2024 13:05", "2/13/2024 1:05 PM", "01.02.2024 13:05:00"):
        assert reader.read(write(tmp_path, f"[{time}] Ann: Hi", "w.txt")).file_format == "transcript", time


def test_both_halves_of_the_day_have_a_twelve(tmp_path: Path) -> None:
    for header, hour in (
        ("1/2/24, 12:05 AM - ", 0), ("1/2/24, 12:05 p.m. - ", 12), ("1/2/24, 12:05 π.μ. - ", 0),
        ("2024/2/1 凌晨12:05 - ", 0), ("2024/2/1 中午12:05 - ", 12), ("2024/2/1 晚上12:05 - ", 0),
        ("2024/2/1 晚上11:05 - ", 23), ("2024/2/1 午後0:05 - ", 12), ("24. 2. 1. 오전 12:05 - ", 0),
        ("1/2/24, 12:05 ص - ", 0), ("1.2.2024 klo 0.05 ap. - ", 0), ("1/2/24, 0:05 a. m. - ", 0),
    ):  # fmt: skip
        items = reader.read(write(tmp_path, f"{header}Ann: Hi", "w.txt"), day_first=True).items
        assert [item.event.timestamp for item in items if isinstance(item, Turn)] == [1706745900 + 3600 * hour], header


def test_a_year_of_another_calendar_is_refused(tmp_path: Path) -> None:
    for header in ("1/2/2567 13:05 - ", "1/2/67 13:05 - ", "۱۴۰۲/۱۱/۱۲, ۱۳:۰۵ - "):
        (rejected,) = [
            item
            for item in reader.read(write(tmp_path, f"{header}Ann: Hi", "w.txt"), day_first=True).items
            if isinstance(item, Rejected)
        ]
        assert "Gregorian" in rejected.error, header


def test_a_header_in_an_unknown_form_never_becomes_an_author(tmp_path: Path) -> None:
    """Where the other lines are WhatsApp's it is text, and counted; else it is refused, with what follows it."""
    quoted = "1/2/24, 13:05 - Ann: She wrote:\n1/2/24, 1:05 ኤኤም - Ben: Hi\n1/2/24 at noon: soup\n1.2.2024: 2.20 paid\n"
    items = list(reader.read(write(tmp_path, quoted, "w.txt"), day_first=True).items)
    (turn,) = [item for item in items if isinstance(item, Turn)]
    assert turn.event.text == "She wrote:\n1/2/24, 1:05 ኤኤም - Ben: Hi\n1/2/24 at noon: soup\n1.2.2024: 2.20 paid"
    assert list(left_out(items).values()) == [1]
    for time in (
        "1.2.2024 kello 13.05 -", "1.2.2024 kello 13.05", "1.2.2024 kello 1.05 ip. -", "01/02/2024 às 13h05 -",
        "1.2.2024 в 13.05.00 -",
    ):  # fmt: skip
        text = f"1.2.2024 13:04 Ann: Hi\n{time} Anna Liisa Maria: Moi\nyes\n1.2.2024 13:06 Ann: Bye\n"
        reading = reader.read(write(tmp_path, text, "w.txt"))
        items = list(reading.items)
        assert reading.file_format == "transcript"
        events = [item.event for item in items if isinstance(item, Turn)]
        assert [(event.author, event.text) for event in events] == [("Ann", "Hi"), ("Ann", "Bye")], time
        errors = [item.error for item in items if isinstance(item, Rejected)]
        assert (len(errors), "unknown form" in errors[0]) == (2, True), time
        alone = list(reader.read(write(tmp_path, f"{time} Ben: Moi\n" * 3, "w.txt")).items)
        assert [type(item) for item in alone[1:]] == [Rejected] * 3, time


def test_messages_copied_into_another_stay_its_text(tmp_path: Path) -> None:
    """A file has one form of header, that of its first; the dates of others do not show the order of day and month."""

    def read(text: str, **options: Any) -> tuple[list[tuple[str, str | None]], list[int]]:
        items = list(reader.read(write(tmp_path, text, "w.txt"), **options).items)
        events = [item.event for item in items if isinstance(item, Turn)]
        return [(event.author, event.text) for event in events], list(left_out(items).values())

    for first, copied in (
        ("08.05.24, 13:56 - ", "[13:50, 1.5.2024] Bob: I quit"),
        ("08.05.24, 13:56 - ", "12:30, 01.02.2024 - Lunch: at home"),
        ("08.05.24, 13:56 - ", "08.05.2024, 13:50 - Bob: I quit"),
        ("[08.05.24, 13:56:00] ", "[08.05.24, 13:50] Bob: I quit"),
        ("5/8/24, 1:56 PM - ", "5/8/24, 13:50 - Bob: I quit"),
    ):
        text = f"{first}Ann: Look:\n{copied}\nWell\n{first}Ben: Oh\n"
        assert read(text, day_first=False) == ([("Ann", f"Look:\n{copied}\nWell"), ("Ben", "Oh")], [1]), copied
    # What differs between the headers of one export is no other form.
    same = (
        "1/2/24, 9:05 AM - Ann: a\n", "11/12/24, 11:05 p.\u202fm. - Ann: b\n",
        "\u200e\u200f1\u200f/2\u200f/24,  1:05\u202fPM - Ann: c\n",
    )  # fmt: skip
    assert read("".join(same), day_first=False) == ([("Ann", "a"), ("Ann", "b"), ("Ann", "c")], [])
    for header in HEADERS:
        text = f"2024.02.01, 13:05:00 - Ann: Look:\n{header}Bob: I quit\n"
        assert read(text) == ([("Ann", f"Look:\n{header.strip(chr(0x200F))}Bob: I quit")], [1]), header
    with pytest.raises(FileFormatError, match=r"such as 5/8/24"):
        read("5/8/24, 13:56 - Ann: Look:\n[13:50, 1/25/2024] Bob: I quit\n")


def test_a_chat_whose_form_changes_for_good_is_refused_at_the_line_to_split(tmp_path: Path) -> None:
    """Its further messages would be the words of one person; each part can be read, and so can what was copied."""

    def said(text: str) -> list[tuple[str, str | None]]:
        items = list(reader.read(write(tmp_path, text, "w.txt"), day_first=True).items)
        return [(item.event.author, item.event.text) for item in items if isinstance(item, Turn)]

    copied = "[13:50, 1/5/2024] Bob: a\n"
    first = f"08/05/2024, 13:56 - Ann: Hi\n{2 * copied}08/05/2024, 13:57 - Ben: So\n"
    for begun, header in (
        ("", "[08/05/2024, 13:58:00] "), ("", "08/05/24, 13:58 - "), ("", "2024-05-08, 13:58 - "),
        ("08/05/24, 13:58 - Messages are end-to-end encrypted.\n", "08/05/24, 13:58 - "),
        # What was copied does not hide where the form changes.
        (copied, "[08/05/2024, 13:58:00] "),
    ):  # fmt: skip
        second = f"{begun}{header}Cid: Mine\nalso\n{header}Dee: No\n"
        line = 6 if begun == copied else 5
        for day_first in (True, None):
            with pytest.raises(FileFormatError, match=rf"w\.txt, line {line}: .* split .* one of line 4, .*'> '"):
                reader.read(write(tmp_path, first + second, "w.txt"), day_first=day_first)
        if line == 5:
            assert [author for author, _ in said(second)] == ["Cid", "Dee"], header
        quoted = "\n".join(f"> {each}" for each in second.splitlines())
        assert said(first + quoted)[-1] == ("Ben", f"So\n{quoted}")
        assert said(f"{first}{second}08/05/2024, 13:59 - Ann: Oh\n")[-1] == ("Ann", "Oh")
    for last in ("08/05/24, 13:58 - Cid: Mine", "1/5/24, 10:30 - rowing\n2/5/24, 10:30 - running"):
        assert said(f"{first}{last}\n")[-1] == ("Ben", f"So\n{last}")


#: Deleted, edited, attached with and without a caption, and left out, by language.
PHRASES = {
    "English": ("This message was deleted", "You deleted this message.", "This message was edited", "(file attached)",
                "<attached: 1-PHOTO.jpg>", "<Media omitted>"),
    "German": ("Diese Nachricht wurde gelöscht.", "Du hast diese Nachricht gelöscht",
               "Diese Nachricht wurde bearbeitet.", "(Datei angehängt)", "<Anhang: 1-PHOTO.jpg>",
               "<Medien ausgeschlossen>"),
    "Spanish": ("Se eliminó este mensaje.", "Eliminaste este mensaje", "Se editó este mensaje.", "(archivo adjunto)",
                "<adjunto: 1-PHOTO.jpg>", "<Multimedia omitido>"),
    "Russian": ("Данное сообщение удалено", "Вы удалили данное сообщение", "Сообщение изменено", "(файл добавлен)",
                "<прикреплено: 1-PHOTO.jpg>", "<Без медиафайлов>"),
    "French": ("Ce message a été supprimé", "Vous avez supprimé ce message", "Ce message a été modifié",
               "(fichier joint)", "< pièce jointe : 1-PHOTO.jpg >", "<Médias omis>"),
    "Italian": ("Questo messaggio è stato eliminato", "Hai eliminato questo messaggio",
                "Questo messaggio è stato modificato", "(file allegato)", "<allegato: 1-PHOTO.jpg>", "<Media omessi>"),
    "Portuguese": ("Mensagem apagada", "Você apagou esta mensagem", "Mensagem editada", "(arquivo anexado)",
                   "<anexado: 1-PHOTO.jpg>", "<Mídia oculta>"),
    "Portuguese of Portugal": ("Esta mensagem foi apagada.", "Apagou esta mensagem.", "Esta mensagem foi editada",
                               "(ficheiro anexado)", "<anexo: 1-PHOTO.jpg>", "<Ficheiro não revelado>"),
    "Dutch": ("Dit bericht is verwijderd", "U hebt dit bericht verwijderd", "Dit bericht is bewerkt",
              "(bestand bijgevoegd)", "<bijgevoegd: 1-PHOTO.jpg>", "<Media weggelaten>"),
}  # fmt: skip


@pytest.mark.parametrize("language", PHRASES)
def test_lines_about_deleted_edited_and_attached_messages_are_known(tmp_path: Path, language: str) -> None:
    deleted, deleted_here, edited, attached, tag, omitted = PHRASES[language]
    said = (
        deleted, deleted_here, f"Ahoy <{edited}>", f"IMG-1.jpg {attached}", f"IMG-2.jpg {attached}\nThe boat", tag,
        f"{tag}\nThe sea", omitted, f"I said: {deleted}",
    )  # fmt: skip
    text = "".join(f"08.05.24, 12:56 - Ann: {line}\n" for line in said)
    items = list(reader.read(write(tmp_path, text, "w.txt")).items)
    events = [item.event for item in items if isinstance(item, Turn)]
    assert [event.text for event in events] == ["Ahoy", "The boat", "The sea", f"I said: {deleted}"]
    assert [event.content.get("file_name") for event in events] == [None, "IMG-2.jpg", "1-PHOTO.jpg", None]
    assert sorted(left_out(items).values()) == [2, 3]


def test_polls_and_places_that_ios_marks_are_kept_in_every_language(tmp_path: Path) -> None:
    sent = (
        "UMFRAGE:\r\nRudern?\r\n\u200eOPTION: Ja (1 Stimme)", "POLL:\r\nRow?\r\n\u200eOPTION: Yes (1 vote)",
        "SONDAGE :\r\nRamer ?\r\nDemain\r\n\u200eOPTION : Oui : 8 h (1 vote)\r\n\u200eOPTION : Non (0 vote)",
        "استطلاع:\r\nنجدف؟\r\n\u200eالخيار: نعم (صوت واحد)", "投票：\r\n划船？\r\n\u200e选项：是（1 票）",
        "Standort: https://maps.google.com/?q=59.91,10.75", "Location: https://maps.google.com/?q=59.91,10.75",
        "Café (Quay 1\r\nOslo): https://foursquare.com/v/4b0", "Lieu : https://www.google.com/maps/place/Oslo",
    )  # fmt: skip
    own = (
        "Verpasster Sprachanruf", "Bild weggelassen", "Το μήνυμα διαγράφηκε", "Du hast diese Nachricht gelöscht.",
        "Ann changed this group's description\r\nto: hello", "Ann changed the description to:\r\nhello\r\nBen",
        "Ann changed the description to:\r\nRules\r\nFirst: be kind\r\nThen: row", "Ann: see https://faq.whatsapp.com/1",
    )  # fmt: skip
    text = "".join(f"[08.05.24, 12:56:00] Ann: \u200e{line}\r\n" for line in (*sent, *own))
    items = list(reader.read(write(tmp_path, text, "_chat.txt")).items)
    said = [item.event.text for item in items if isinstance(item, Turn)]
    assert said == [line.replace("\r\n", "\n").replace("\u200e", "") for line in sent]
    assert left_out(items) == {"lines of WhatsApp itself": len(own)}


def test_shards_of_an_export_belong_to_one_user(tmp_path: Path) -> None:
    node = {"parent": None, "message": {"author": {"role": "user"}, "content": {"parts": ["Hi"]}}}
    hidden = {"parent": "n1", "message": {"metadata": {"is_visually_hidden_from_conversation": True}}}
    other = {"parent": "n1", "message": {"author": {"role": "assistant"}, "content": {"parts": ["Hm"]}}}
    mapping = {"n1": node, "n2": hidden, "n3": other}
    for number in range(2):
        chat = {"conversation_id": f"c{number}", "current_node": "n2", "mapping": mapping}
        reading = reader.read(write(tmp_path, [chat], f"conversations-00{number}.json"))
        assert (reading.name, reading.file_format) == ("conversations", "exported conversations")
        items = list(reading.items)
        assert [item.session_id for item in items if isinstance(item, Turn)] == [f"c{number}"]
        assert left_out(items) == {"messages that were not shown": 1, "messages of other branches": 1}


def test_the_demo_takes_what_has_a_conversation(tmp_path: Path) -> None:
    path = write(tmp_path, LETTA, "helper.json")
    file = conversations.read(path, user="ann")
    assert [session.user_id for session in file.sessions] == ["ann"]
    assert len([item for item in file.items() if isinstance(item, Given)]) == 1
    with pytest.raises(FileFormatError, match="has no conversation"):
        conversations.read(write(tmp_path, MEM0["results"][:1], "m.json"))


async def test_memories_are_stored_once_and_refused_ones_named(pool: asyncpg.Pool, tmp_path: Path) -> None:
    results = [*MEM0["results"][:3], {"id": "5", "memory": "x", "user_id": "u" * 600}, *MEM0["results"][3:]]
    path = write(tmp_path, {"results": results}, "m.json")
    service = OpenSessionService(pool)
    rejects: list[Rejected] = []

    async def store() -> Ingested:
        rejects.clear()
        one = Ingest(
            service, GivenMemories(pool), app_name="app", user_id="m", file_format="mem0", on_rejected=rejects.append
        )
        return await one.run(reader.read(path).items)

    for _ in range(2):
        done = await store()
        assert (done.memories, done.rejected, done.left_out) == (2, 2, {"memories that have expired": 1})
        assert sorted("refused" in each.error for each in rejects) == [False, True]
    rows = await pool.fetch("SELECT user_id, content, occurred_at, metadata FROM memories ORDER BY user_id")
    assert [(row["user_id"], row["content"]) for row in rows] == [("ann", "Lives in Oslo"), ("ben", "Likes rowing")]
    assert rows[0]["occurred_at"].timestamp() == MAY_8
    await service.close()


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ({"results": 7}, "results must be a list"),
        ({**ZEP_GRAPH, "nodes": True}, "nodes must be a list"),
        ({**LETTA, "blocks": {"a": 1}}, "blocks must be a list"),
        ({**LETTA, "tools": 3}, "tools must be a list"),
        ({"mapping": {"a": {"parent": ["a"]}}}, "node ['a'] of the mapping is missing"),
        ({**ITEMS, "data": [*ITEMS["data"], {"type": ["message"]}]}, None),
        ({**THREAD, "data": [{**THREAD["data"][0], "thread_id": {"id": 1}}]}, None),
    ],
)
def test_members_of_another_type_are_rejected(tmp_path: Path, content: Any, error: str | None) -> None:
    """Found by fuzzing: each ended in a TypeError."""
    path = write(tmp_path, content, "file.json")
    rejected = [item.error for item in reader.read(path).items if isinstance(item, Rejected)]
    assert [error in each for each in rejected if error] == ([True] if error else [])
