"""Each format is recognised and read as a stream: speaker, time and line of each turn, and the
reason of each reject."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.intake import documents, files, moments, reader
from workers.intake.records import FileFormatError, Rejected, SessionHead, Turn
from workers.intake.source import RECORD_BYTES_MAX, Source

MAY_8 = 1715173000.0  # 2024-05-08T12:56:40Z


def write(folder: Path, content: Any, name: str = "talk.json") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        content if isinstance(content, bytes) else content.encode() if isinstance(content, str) else _json(content)
    )
    return path


def _json(content: Any) -> bytes:
    return json.dumps(content).encode()


def lines(*values: Any) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


def said(path: Path, **options: Any) -> list[tuple[str, str, str, float | None]]:
    """Session, role, text and time of every turn."""
    turns = [item for item in reader.read(path, **options).items if isinstance(item, Turn)]
    return [(turn.session_id, turn.event.role, turn.event.text or "", turn.event.timestamp) for turn in turns]


def rejected(path: Path) -> list[tuple[int, str]]:
    return [(item.line, item.error) for item in reader.read(path).items if isinstance(item, Rejected)]


def format_of(path: Path) -> str:
    return reader.read(path).file_format


EXPORTED = {
    "title": "Trip to Turin",
    "conversation_id": "c-1",
    "create_time": MAY_8,
    "current_node": "n4",
    "mapping": {
        "root": {"id": "root", "message": None, "parent": None, "children": ["n0"]},
        "n0": {"message": {"author": {"role": "system"}, "content": {"parts": [""]}}, "parent": "root"},
        "n1": {
            "message": {
                "id": "m1", "author": {"role": "user"}, "create_time": MAY_8,
                "content": {"content_type": "text", "parts": ["When does the train leave?"]},
            },
            "parent": "n0", "children": ["n2", "n3"],
        },
        "n2": {"message": {"author": {"role": "assistant"}, "content": {"parts": ["Replaced."]}}, "parent": "n1"},
        "n3": {
            "message": {
                "author": {"role": "assistant"}, "create_time": MAY_8 + 9,
                "content": {"content_type": "multimodal_text", "parts": ["At nine.", {"asset_pointer": "file-1"}]},
            },
            "parent": "n1", "children": ["n4"],
        },
        "n4": {
            "message": {
                "author": {"role": "user"}, "create_time": MAY_8 + 20, "content": {"parts": ["hidden"]},
                "metadata": {"is_visually_hidden_from_conversation": True},
            },
            "parent": "n3",
        },
    },
}  # fmt: skip

ADK = {
    "id": "s-9",
    "appName": "shop",
    "userId": "ann",
    "state": {"cart": 2, "user:name": "Ann", "app:motto": "x"},
    "lastUpdateTime": MAY_8,
    "events": [
        {
            "id": "e1", "invocationId": "i1", "author": "user", "timestamp": MAY_8,
            "content": {"role": "user", "parts": [{"text": "Two pears, please."}]}, "actions": {"stateDelta": {}},
        },
        {
            "id": "e2", "invocationId": "i1", "author": "seller", "timestamp": MAY_8 + 1,
            "content": {"role": "model", "parts": [{"functionCall": {"name": "add", "args": {"n": 2}}}]},
            "actions": {"stateDelta": {"cart": 2, "user:name": "Ann"}, "skipSummarization": True},
        },
        {"id": "e3", "author": "seller", "timestamp": MAY_8 + 2, "content": {"parts": [{"text": "Done."}]}},
    ],
}  # fmt: skip


def test_an_exported_conversation_is_the_displayed_path(tmp_path: Path) -> None:
    """Only the replies on the path to the current one are read from the tree; hidden ones stay hidden."""
    path = write(tmp_path, [EXPORTED, {**EXPORTED, "conversation_id": "c-2", "current_node": "lost"}])
    assert format_of(path) == "exported conversations"
    assert said(path) == [
        ("c-1", "user", "When does the train leave?", MAY_8),
        ("c-1", "assistant", "At nine.", MAY_8 + 9),
    ]
    head = next(item for item in reader.read(path).items if isinstance(item, SessionHead))
    assert head.title == "Trip to Turin"
    assert rejected(path) == [(1, "node 'lost' of the mapping is missing, or is its own ancestor")]


def test_an_adk_session_keeps_ids_runs_and_state(tmp_path: Path) -> None:
    """Keys of the user or the app are not imported from an old file."""
    path = write(tmp_path, ADK)
    assert format_of(path) == "ADK sessions"
    items = list(reader.read(path).items)
    head = items[0]
    assert isinstance(head, SessionHead)
    assert (head.session_id, head.user_id, head.state) == ("s-9", "ann", {"cart": 2})
    first, call, last = [item.event for item in items if isinstance(item, Turn)]
    assert (first.id, first.invocation_id, first.role, first.text, first.timestamp) == (
        "e1", "i1", "user", "Two pears, please.", MAY_8,
    )  # fmt: skip
    assert (call.event_type, call.text, call.actions.state_delta) == ("tool_call", None, {"cart": 2})
    assert call.actions.other == {"skipSummarization": True, "sharedStateDelta": {"user:name": "Ann"}}
    assert (last.author, last.role, last.text) == ("seller", "assistant", "Done.")
    snake = {"id": "s", "app_name": "shop", "user_id": "ann", "events": [{"author": "user", "invocation_id": "i7"}, {}]}
    path = write(tmp_path, lines(snake, snake), "sessions.jsonl")
    assert [item.event.invocation_id for item in reader.read(path).items if isinstance(item, Turn)] == ["i7", "i7"]
    assert rejected(path) == [(1, "event 2: an event needs an author"), (2, "event 2: an event needs an author")]


@pytest.mark.parametrize(
    "messages",
    [
        [
            {"type": "human", "data": {"content": "Hi", "additional_kwargs": {}, "type": "human"}},
            {"type": "ai", "data": {"content": [{"type": "text", "text": "Hello"}], "tool_calls": []}},
        ],
        [
            {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "HumanMessage"],
             "kwargs": {"content": "Hi"}},
            {"lc": 1, "type": "constructor", "id": ["langchain_core", "messages", "AIMessageChunk"],
             "kwargs": {"content": "Hello", "response_metadata": {"model": "x"}}},
        ],
        [{"type": "human", "content": "Hi", "id": "1"}, {"type": "ai", "content": "Hello"}],
        [{"type": "chat", "content": "Hi", "role": "user"}, {"type": "AIMessage", "content": "Hello"}],
    ],
)  # fmt: skip
def test_langchain_dumps_in_each_of_their_forms(tmp_path: Path, messages: list[Any]) -> None:
    for place, content in enumerate((messages, {"messages": messages}, [messages], lines(*messages))):
        path = write(tmp_path, content, f"talk{place}.json")
        if messages[0]["type"] != "chat":
            assert format_of(path) == "LangChain messages"
        assert said(path, name="talk") == [("talk", "user", "Hi", None), ("talk", "assistant", "Hello", None)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ann: Hi.\nBen: Hello,\n  how are you?\n\nAnn: Fine: really.\n", [
            ("Ann", "Hi.", None), ("Ben", "Hello,\n  how are you?", None), ("Ann", "Fine: really.", None)]),
        ("[2024-05-08 12:56:40] Ann: Hi.\nNote: this goes on.\n[2024-05-08T12:57:00Z] Assistant: Yes.\n", [
            ("Ann", "Hi.\nNote: this goes on.", MAY_8), ("Assistant", "Yes.", MAY_8 + 20)]),
        ("[5/8/24 12:56 PM] Ann: Hi.\n[5/8/24 12:57\u202fPM] Ben: Yes.\n", [
            ("Ann", "Hi.", MAY_8 - 40), ("Ben", "Yes.", MAY_8 + 20)]),
        ("[8/5/24 12:56] Ann: Hi.\n[13/5/24 12:56] Ann: Bye.\n", [
            ("Ann", "Hi.", MAY_8 - 40), ("Ann", "Bye.", MAY_8 - 40 + 5 * 86400)]),
        ("[12:56] Ann: Hi.\n[12:57] Ben: Yes.\n", [("Ann", "Hi.", None), ("Ben", "Yes.", None)]),
        ("小美：你好。\n助手：你好，请说。\n", [("小美", "你好。", None), ("助手", "你好，请说。", None)]),
    ],
)  # fmt: skip
def test_transcripts_with_and_without_times(tmp_path: Path, text: str, expected: list[Any]) -> None:
    path = write(tmp_path, text, "chat.txt")
    assert format_of(path) == "transcript"
    events = [item.event for item in reader.read(path).items if isinstance(item, Turn)]
    assert [(event.author, event.text, event.timestamp) for event in events] == expected
    assert {event.role for event in events if event.author in ("Assistant", "助手")} <= {"assistant"}


def test_a_name_with_a_dash_or_digits_is_a_name(tmp_path: Path) -> None:
    """Where the clock was read, or a colon or dash ends the date, nothing of the time is left; else it has a word."""
    names = {
        "2024-05-08 12:56 ": ("Ann - Sales", "安娜 - 销售", "Room 2.15", "room 2.15 - Ann"),
        "2024-05-08: ": ("Version 1.25 note", "room 2.15 - Ann"),
        "2024-05-08 - ": ("room 2.15 - Ann",),
        "2024-05-08 ": ("Ann - Sales", "Room 2.15 - Ann", "room 2.15", "version 1.25 note", "unit 42.15 Ann"),
    }
    for time, name in [(time, name) for time, each in names.items() for name in each]:
        path = write(tmp_path, f"{time}{name}: Hi\nmore\n", "chat.txt")
        (turn,) = [item for item in reader.read(path).items if isinstance(item, Turn)]
        assert (turn.event.author, turn.event.text) == (name, "Hi\nmore")
        assert turn.event.timestamp == (MAY_8 - 40 if "12:56" in time else 1715126400.0)
        assert rejected(path) == []


def test_letters_that_begin_a_name_are_no_part_of_the_time(tmp_path: Path) -> None:
    for rest, name in (
        ("Zoe", "Zoe"), ("Amy", "Amy"), ("pma", "pma"), ("PM Amy", "Amy"), ("p.m. Zoe", "Zoe"), ("Z Zoe", "Zoe"),
        ("UTC - Ann", "Ann"), ("GMT Ann", "Ann"), ("GMTV", "GMTV"), ("Zü", "Zü"), ("Pm\u1ef9", "Pm\u1ef9"),
        ("Z\u0301oe", "Z\u0301oe"), ("Z_x", "Z_x"), ("PM张三", "张三"), ("Z张三", "张三"), ("UTC张三", "张三"),
        ("GMTИван", "Иван"), ("+0000张三", "张三"), ("+00:00Ann", "Ann"),
    ):  # fmt: skip
        path = write(tmp_path, f"2024-05-08 12:56 {rest}: Hi\n", "chat.txt")
        (turn,) = [item for item in reader.read(path).items if isinstance(item, Turn)]
        assert (turn.event.author, turn.event.timestamp) == (name, MAY_8 - 40), rest


def test_bad_lines_of_a_transcript_are_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    text = b"stray\n[2024-05-08 12:56] Ann: Hi.\n[99.99.2024 12:00] Ben: When?\n[2024-05-08 12:58] Ben:\n"
    path = write(tmp_path, text + b"[2024-05-08 12:59] Cy: \xff\n[2024-05-08 13:00] Ann: Bye.\n", "chat.txt")
    assert [turn[2] for turn in said(path)] == ["Hi.", "Bye."]
    rejects = rejected(path)
    assert [line for line, _ in rejects] == [1, 3, 5, 4]
    for (_, error), part in zip(
        rejects, ("has no speaker", "is not a time", "not valid UTF-8", "is empty"), strict=True
    ):
        assert part in error
    assert [turn[3] for turn in said(path)] == [MAY_8 - 40, MAY_8 + 200]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (MAY_8, MAY_8),
        (str(int(MAY_8)), MAY_8),
        (int(MAY_8 * 1000), MAY_8),
        (int(MAY_8 * 1_000_000), MAY_8),
        ("2024-05-08T12:56:40Z", MAY_8),
        ("2024-05-08 14:56:40+02:00", MAY_8),
        ("20240508T125640", MAY_8),
        ("12:56 pm on 8 May, 2024", MAY_8 - 40),
        ("Wed, 08 May 2024 12:56:40 +0000", MAY_8),
        ("Wed, 08 May 2024 12:56:40 GMT", MAY_8),
        ("2024-05-08 12:56:40 UTC", MAY_8),
        ("5/8/2024, 12:56:40 PM", MAY_8),
        ("8.5.2024 12:56", MAY_8 - 40),
        ("5/8/24 12:56 p.m.", MAY_8 - 40),
    ],
)
def test_times_in_human_and_machine_formats(given: Any, expected: float) -> None:
    assert moments.moment(given) == expected


def test_the_order_of_day_and_month_can_be_specified() -> None:
    assert moments.moment("8/5/2024 12:56", day_first=True) == MAY_8 - 40
    assert moments.moment("31/12/2024", day_first=True) == moments.moment("12/31/2024")


@pytest.mark.parametrize(
    "given", ["soon", "", "2024-13-45", "31/12/2024", True, {}, float("nan"), "99999-01-01", -1e300, "1e400"]
)
def test_an_invalid_time_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        moments.moment(given)


@given(value=st.one_of(st.text(max_size=40), st.floats(), st.integers(), st.none()))
def test_any_value_is_a_time_or_refused(value: Any) -> None:
    error: Exception | None = None
    try:
        assert isinstance(moments.moment(value), float)
    except ValueError as raised:
        error = raised
    assert error is None or "is not a time" in str(error)


def test_bad_lines_are_reported_with_their_numbers_and_the_rest_is_read(tmp_path: Path) -> None:
    good = {"role": "user", "content": "Hi"}
    content = b"\n".join([
        _json(good), b'{"role": "user", "content": "cut', b"", b'{"role": "user", "content": "\xff"}', b"[1, 2]",
        b'{"role": "user", "content": "' + b"x" * RECORD_BYTES_MAX + b'"}', b'{"content": "whose?"}',
        b"[" * 100_000, _json({**good, "timestamp": "soon"}), _json(good),
    ])  # fmt: skip
    path = write(tmp_path, content, "talk.jsonl")
    assert [turn[2] for turn in said(path)] == ["Hi", "Hi"]
    rejects = rejected(path)
    assert [line for line, _ in rejects] == [2, 4, 5, 6, 7, 8, 9]
    expected = (
        "not valid JSON",
        "not valid UTF-8",
        "neither a chat nor a message",
        "over 8 MB",
        "neither",
        "not valid JSON",
        "is not a time",
    )
    for (_, error), part in zip(rejects, expected, strict=True):
        assert part in error


def test_items_of_an_array_have_their_lines(tmp_path: Path) -> None:
    """Over many lines, with a wrong one; after a syntax error nothing more can be read, which is reported."""
    good = {"role": "user", "content": "Hi\nthere"}
    path = write(tmp_path, json.dumps([good, {"role": ""}, good, 7, good], indent=2))
    assert [item.line for item in reader.read(path).items if isinstance(item, Turn)] == [2, 9, 14]
    assert [line for line, _ in rejected(path)] == [6, 13]
    path = write(tmp_path, json.dumps([good, good], indent=2)[:-10], "cut.json")
    assert len(said(path)) == 1
    assert (
        rejected(path) == [(6, "not valid JSON from here on (the file ends in the middle of the document)")]
        or "not valid JSON" in rejected(path)[0][1]
    )


def test_a_chat_may_be_one_document(tmp_path: Path) -> None:
    chat = {"id": "c", "user": "ann", "messages": [{"role": "user", "content": "Hi"}, {"content": "?"}]}
    path = write(tmp_path, json.dumps(chat, indent=1))
    assert said(path) == [("c", "user", "Hi", None)]
    assert rejected(path) == [(1, "message 2: a message needs a role, such as user or assistant")]
    # The first line is longer than the part that is read to recognise the file.
    long = {**chat, "title": "t" * 100_000}
    path = write(tmp_path, lines(long, {**chat, "id": "d"}), "long.jsonl")
    assert [turn[0] for turn in said(path)] == ["c", "d"]


def test_one_document_over_the_bound_of_a_record_is_read_member_by_member(tmp_path: Path) -> None:
    """The fields that identify a chat may follow its messages."""
    count = 2 * RECORD_BYTES_MAX // 8000
    messages = [{"role": "user", "content": f"{place} " + "x" * 8000} for place in range(count)]
    path = write(tmp_path, {"messages": messages, "id": "late", "user": "ann"})
    found = said(path)
    assert len(found) == count
    assert {turn[0] for turn in found} == {"late"}
    assert found[-1][2].startswith(f"{count - 1} ")
    cut = write(tmp_path, path.read_bytes()[: -RECORD_BYTES_MAX // 2], "cut.json")
    items = list(reader.read(cut).items)
    assert count // 2 < sum(isinstance(item, Turn) for item in items) < count
    (error,) = [item.error for item in items if isinstance(item, Rejected)]
    assert "the file ends" in error or "not valid JSON" in error
    huge = write(tmp_path, {"blob": "x" * (3 * RECORD_BYTES_MAX), "messages": []}, "huge.json")
    with pytest.raises(FileFormatError, match="over 8 MB"):
        reader.read(huge)


@pytest.mark.parametrize(
    ("content", "name", "part"),
    [
        (b"", "a.json", "file is empty"),
        (b" \n\t\n", "a.json", "file is empty"),
        (b"\xef\xbb\xbf", "a.json", "file is empty"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "a.json", "is not text"),
        ("Ann: Hi".encode("utf-16"), "a.txt", "is UTF-16"),
        (b"\xe9\xe8\xe7 " * 50, "a.txt", "is not valid UTF-8"),
        (b"To be or not to be,\nthat is the question.\n", "a.txt", "not in a known format"),
        (b'{"some": "object"}', "a.json", "not in a known format"),
        (b"[1, 2, 3]", "a.json", "not in a known format"),
        (b'{"a" 1}', "a.json", "not valid JSON"),
        (gzip.compress(b"x" * 1000, mtime=0)[:20], "a.json.gz", "truncated or corrupt"),
        (b"\x1f\x8bnonsense", "a.json.gz", "truncated or corrupt"),
    ],
)
def test_a_file_in_an_unknown_format_is_refused(tmp_path: Path, content: bytes, name: str, part: str) -> None:
    path = write(tmp_path, content, name)
    with pytest.raises(FileFormatError, match=part) as raised:
        list(reader.read(path).items)
    assert str(path) in str(raised.value)


def test_a_compressed_file_is_read_up_to_its_truncation(tmp_path: Path) -> None:
    rows = [{"role": "user", "content": f"{place} {place * 7919 % 10007}"} for place in range(6_000)]
    whole = gzip.compress(lines(*rows).encode())
    assert len(said(write(tmp_path, whole, "talk.jsonl.gz"))) == 6_000
    path = write(tmp_path, whole[: len(whole) // 2], "half.jsonl.gz")
    found = said(path)
    assert 0 < len(found) < 6_000
    ((line, error),) = rejected(path)
    assert line == len(found) + 1
    assert "truncated or corrupt" in error


def test_the_same_file_gives_the_same_ids(tmp_path: Path) -> None:
    """Interleaved sessions, equal texts: each turn has its own id, the same on every read."""
    rows = [{"role": "user", "content": "yes", "session_id": name} for name in "ababab"]
    path = write(tmp_path, lines(*rows), "log.jsonl")

    def ids() -> list[str]:
        return [item.event.id for item in reader.read(path).items if isinstance(item, Turn)]

    assert ids() == ids()
    assert len(set(ids())) == 6


def test_files_of_folders_are_found_and_distinguished(tmp_path: Path) -> None:
    for name in (
        "a/chat.json",
        "b/chat.json",
        "b/deep/talk.jsonl.gz",
        "b/.hidden.json",
        "b/x.rejects.jsonl",
        "b/photo.png",
    ):
        write(tmp_path, b"{}", name)
    found = files.find([tmp_path / "a", tmp_path / "b", tmp_path / "a" / "chat.json"])
    assert [each.name for each in found] == ["a/chat", "b/chat", "talk"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileFormatError, match="without a file"):
        files.find([tmp_path / "empty"])
    write(tmp_path, b"{}", "c/a/chat.json")
    with pytest.raises(FileFormatError, match="one by one"):
        files.find([tmp_path])


def test_a_large_file_is_a_stream(tmp_path: Path) -> None:
    """No format holds more than a few records at once: the file is read as its turns are consumed."""
    big = [{"role": "user", "content": "x" * 1000}] * 8_000
    for name, content in (
        ("a.jsonl", lines(*big)),
        ("a.json", json.dumps(big)),
        ("b.json", json.dumps({"messages": big})),
    ):
        reading = reader.read(write(tmp_path, content, name))
        first = list(itertools.islice(reading.items, 10))
        assert sum(isinstance(item, Turn) for item in first) >= 5
        if name != "b.json":
            assert reading.source.read_bytes < reading.source.size_bytes // 10
        assert (
            sum(isinstance(item, Turn) for item in reading.items) + sum(isinstance(item, Turn) for item in first)
            == 8_000
        )


@given(values=st.lists(st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)), max_leaves=8)),
    indent=st.sampled_from([None, 0, 2]))  # fmt: skip
def test_an_array_is_read_as_json_reads_it(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any], indent: int | None
) -> None:
    path = tmp_path_factory.getbasetemp() / "array.json"
    path.write_text(json.dumps(values, indent=indent))
    assert [record.value for record in read_all(path)] == values


def read_all(path: Path) -> Iterator[documents.Record]:
    for record in documents.read_array(Source(path)):
        assert isinstance(record, documents.Record), record
        yield record
