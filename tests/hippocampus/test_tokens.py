"""The default token counter against a real vocabulary, whose counts `tests/system/test_token_counts.py` checks."""

from __future__ import annotations

import json

import pytest

from hippocampus.text.tokens import count_hundredths, count_tokens
from tests.support.paths import DATA

COUNTED = json.loads((DATA / "token_counts.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("sample", COUNTED, ids=[sample["name"] for sample in COUNTED])
def test_the_counter_undercounts_by_at_most_five_percent(sample: dict[str, object]) -> None:
    """English, Chinese, code, tables, numbers, emoji and other scripts, as counted by o200k_base."""
    text, tokens = sample["text"], sample["tokens"]
    assert isinstance(text, str)
    assert isinstance(tokens, int)
    assert 0.95 * tokens <= count_tokens(text) <= 3 * tokens


def test_prose_code_and_chinese_are_not_overcounted_much() -> None:
    """At most 30 % of a budget is lost to overestimates."""
    for sample in COUNTED:
        if sample["name"] in ("english prose", "english chat", "chinese dialogue", "python", "sql", "json"):
            assert count_tokens(sample["text"]) <= 1.3 * sample["tokens"], sample["name"]


def test_a_longer_text_never_counts_less() -> None:
    text = COUNTED[0]["text"][:300] + COUNTED[-1]["text"] + "🍵 tea"
    counts = [count_tokens(text[:end]) for end in range(len(text) + 1)]
    assert counts == sorted(counts)
    assert counts[0] == 0


def test_a_text_counts_what_its_lines_count() -> None:
    """In hundredths; lines that were counted before, and those too long to be kept, count the same."""
    lines = ["Mei: I live in Lisbon", "", "用户：我住在里斯本", "x" * 2000, "A1, b2 🍵 é", "Mei: I live in Lisbon"]
    for _ in range(2):
        whole = count_hundredths("\n".join(lines))
        assert whole == sum(map(count_hundredths, lines)) + 90 * (len(lines) - 1)
    assert count_hundredths("Internationale") == 100 + 11 * 9 + 8
