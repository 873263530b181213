"""The conversations of the facts benchmark are well-formed, and its scorer counts correctly."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from benchmarks.facts import FOLDER, MUSTS, SETS, STATES, Conversation, Score, Statement, StoredFact, read, score
from tests.support.paths import ROOT

FILES = sorted(FOLDER.glob("*/*.json"))


@pytest.mark.parametrize("name", SETS)
def test_a_set_is_balanced(name: str) -> None:
    """Twelve conversations, or six from the seventh on: half of them English, half Chinese; a third between friends."""
    conversations = [read(path) for path in FILES if path.parent.name == name]
    half = 6 if SETS.index(name) < SETS.index("seventh") else 3
    assert [sum(each.language == language for each in conversations) for language in ("en", "zh")] == [half, half]
    friends = [each for each in conversations if len({turn["speaker"] for turn in each.turns.values()}) == 2]
    assert sum(all(turn["role"] == "user" for turn in each.turns.values()) for each in friends) == 2 * half // 3


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_conversation_is_well_formed(path: Path) -> None:
    given = json.loads(path.read_text(encoding="utf-8"))
    turns = [turn for session in given["sessions"] for turn in session["turns"]]
    speakers = {turn["id"]: turn["speaker"] for turn in turns}
    starts = [datetime.fromisoformat(session["start"]) for session in given["sessions"]]
    assert 25 <= len(turns) <= 50
    assert len(speakers) == len(turns)
    assert starts == sorted(starts)
    assert all(start.tzinfo for start in starts)
    assert all(turn["text"].strip() and turn["role"] in ("user", "assistant") for turn in turns)
    facts = {fact["id"]: fact for fact in given["facts"]}
    assert len(facts) == len(given["facts"])
    for fact in given["facts"]:
        assert fact["state"] in STATES
        assert fact["kind"]
        assert ("superseded_by" in fact) == (fact["state"] == "superseded")
        assert last(fact, facts)["state"] != "superseded"
    for statement in [*given["facts"], *given["acceptable"]]:
        assert statement["statement"].strip()
        assert statement["turns"]
        # What holds of one friend may be told by the other.
        assert statement["about"] in speakers.values()
        assert set(statement["turns"]) <= speakers.keys()
        assert statement["any_of"]
        assert all(group and all(keyword.strip() for keyword in group) for group in statement["any_of"])


def last(fact: dict[str, Any], facts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    for _ in facts:
        if "superseded_by" not in fact:
            return fact
        fact = facts[fact["superseded_by"]]
    raise AssertionError("the facts supersede each other in a circle")


def said(
    name: str, words: str, turn: str, *, state: str = "current", superseded_by: str = "", without: str = ""
) -> Statement:
    return Statement(
        about="user",
        text=name,
        any_of=tuple(tuple(group.split("/")) for group in words.split("&")),
        turns=frozenset({turn}),
        none_of=tuple(without.split()),
        id=name,
        state=state,
        superseded_by=superseded_by or None,
    )


TALK = Conversation(
    name="talk",
    language="en",
    sessions=(),
    facts=(
        said("leeds", "leeds", "t1", state="superseded", superseded_by="york"),
        said("york", "york", "t2"),
        said("nuts", "allerg&nut", "t3", state="retracted"),
        said("rule", "short/brief", "t4"),
    ),
    acceptable=(said("no-nuts", "nut&not", "t5"),),
)


def stored(key: str, value: object, *turns: str, current: bool = True) -> StoredFact:
    return StoredFact(key, value, frozenset(turns), current)


def test_everything_right_is_counted_right() -> None:
    """A former value is no error in the history."""
    result = score(
        TALK,
        [
            stored("home", "lives in Leeds", "t1", current=False),
            stored("home", "lives in York", "t2"),
            stored("allergies", ["nuts"], "t3", current=False),
            stored("answers", {"text": "keep it short"}, "t4"),
            stored("diet", "is not allergic to nuts", "t5"),
        ],
    )
    assert result.shares == {"precision": (5, 5), "recall": (2, 2), "current state": (2, 2), "all changes": (2, 2)}
    assert result.missed_musts == []


def test_a_stale_fact_is_wrong_and_its_change_too() -> None:
    """Also if it cites the turn that took it back."""
    result = score(TALK, [stored("home", "lives in Leeds", "t1"), stored("allergy", "nuts", "t5")])
    assert [fact.key for fact in result.wrong] == ["home", "allergy"]
    assert result.shares == {"precision": (0, 2), "recall": (0, 2), "current state": (0, 2), "all changes": (0, 2)}
    assert result.missed_musts == list(MUSTS)


def test_a_present_fact_does_not_excuse_a_stale_one() -> None:
    result = score(TALK, [stored("home", "Leeds", "t1"), stored("city", "York", "t2")])
    assert result.shares["precision"] == (1, 2)
    assert result.shares["current state"] == (0, 1)
    assert [(end.id, fact.key) for end, fact in result.stale if fact] == [("york", "home")]


def test_a_fact_must_cite_a_turn_that_states_it() -> None:
    assert score(TALK, [stored("home", "York", "t1")]).shares["recall"] == (0, 2)
    assert score(TALK, [stored("home", "York")]).shares["precision"] == (0, 1)


def test_a_fact_of_another_speaker_does_not_match() -> None:
    york, turns = {"text": "lives in York"}, frozenset({"t2"})
    assert score(TALK, [StoredFact("home", york, turns, True, "user")]).shares["precision"] == (1, 1)
    assert score(TALK, [StoredFact("home", york, turns, True, "Ines")]).shares["precision"] == (0, 1)


def test_a_wanted_fact_that_was_ended_is_missing() -> None:
    result = score(TALK, [stored("home", "York", "t2", current=False)])
    assert result.shares["precision"] == (1, 1)
    assert [fact.id for fact in result.missing] == ["york", "rule"]
    assert result.shares["current state"] == (0, 1)


def test_nothing_found_is_no_success() -> None:
    """A retraction is right where nothing is known, but not counted as a change that was followed."""
    result = score(TALK, [])
    assert result.shares == {"precision": (0, 0), "recall": (0, 2), "current state": (0, 0), "all changes": (1, 2)}
    assert result.missed_musts == list(MUSTS)


def test_the_start_of_a_chain_ends_at_its_last_version() -> None:
    chain = Conversation(
        name="chain",
        language="en",
        sessions=(),
        facts=(
            said("a", "march", "t1", state="superseded", superseded_by="b"),
            said("b", "april", "t2", state="superseded", superseded_by="c"),
            said("c", "may", "t3"),
        ),
        acceptable=(),
    )
    assert score(chain, [stored("trip", "in April", "t2")]).shares["all changes"] == (0, 1)
    assert score(chain, [stored("trip", "in May", "t3")]).shares["all changes"] == (1, 1)


@pytest.mark.parametrize(
    ("words", "text", "found"),
    [
        ("allerg", "Allergies: nuts", True),
        ("son", "in this season", False),
        ("3", "on May 31", False),
        ("3", "on May 3rd", True),
        ("gp practice", "works_at gp_practice", True),
        ("五一", "改到五一。", True),
        ("三月", "２０２５年 三 月", True),
        ("leeds/york&live", "lives in York", True),
        ("leeds/york&live", "likes York", False),
    ],
)
def test_keywords_begin_words(words: str, text: str, found: bool) -> None:
    assert said("x", words, "t1").matches(stored("", text, "t1")) is found


def test_an_excluded_word_and_the_day_of_the_statement_do_not_match() -> None:
    statement = said("plan", "05 17/hip", "t1", without="june")
    assert statement.matches(stored("plan", "hip replacement", "t1"))
    assert not statement.matches(stored("plan", "hip replacement in June", "t1"))
    assert not statement.matches(stored("plan", {"text": "a walk", "said_on": "2025-05-17"}, "t1"))


def test_scores_add_up() -> None:
    total = Score()
    for _ in range(2):
        total += score(TALK, [stored("home", "York", "t2"), stored("noise", "went to an event", "t1")])
    assert total.shares == {"precision": (2, 4), "recall": (2, 4), "current state": (2, 2), "all changes": (4, 4)}
    assert len(total.wrong) == 2


def test_a_set_that_is_not_read_is_not_shown_unasked() -> None:
    command = [sys.executable, "-m", "benchmarks.facts", "--set", "unread", "--show", "wrong"]
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "may not read it" in refused.stderr
    assert refused.stdout == ""
