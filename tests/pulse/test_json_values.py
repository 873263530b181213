"""JSON values come back from PostgreSQL exactly as they were stored."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.errors import InvalidInputError
from pulse.postgres.json_values import clean_text, decode_body, encode_body, escape_state, unescape
from tests.support.properties import examples

HARD_VALUES = [
    "a\0b",
    "\ud800 alone",
    "\udc00\ud800",
    "emoji \U0001f9e0",
    "\\u0000 is text here",
    float("nan"),
    float("inf"),
    float("-inf"),
    -0.0,
    1e22,
    1e16,
    5e-324,
    1.7976931348623157e308,
    0.1,
    10**40,
    -(10**300),
    {"\0key": 1, "\ud800": 2},
    {"$hippocampus": ["text", "not ours"]},
    {"$hippocampus:x": 1},
    {"$hippocampus": {"$hippocampus": 1}},
    [[], {}, "", None, True, False, 0, 1.0],
]


def same(left: Any, right: Any) -> bool:
    """Equality that distinguishes NaN, -0.0, 1 and 1.0."""
    if isinstance(left, float) and isinstance(right, float):
        return struct.pack("d", left) == struct.pack("d", right) or (math.isnan(left) and math.isnan(right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and bool(left == right)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None), max_size=20)
    | st.just("$hippocampus"),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec=None), max_size=6) | st.just("$hippocampus"), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("value", HARD_VALUES, ids=repr)
async def test_hard_values_round_trip_in_both_columns(conn: asyncpg.Connection, value: Any) -> None:
    """Through jsonb with the escape, and through json as text."""
    row = await conn.fetchrow(
        "SELECT $1::jsonb AS state, $2::json::text AS body",
        escape_state({"v": value}),
        encode_body(value, where="body"),
    )
    assert row is not None
    assert same(unescape(row["state"]), {"v": value})
    assert same(decode_body(row["body"]), value)


@examples(100)
@given(value=json_values)
async def test_any_value_round_trips_in_both_columns(conn: asyncpg.Connection, value: Any) -> None:
    """As above, for generated values."""
    row = await conn.fetchrow(
        "SELECT $1::jsonb AS state, $2::json::text AS body",
        escape_state({"v": value}),
        encode_body(value, where="body"),
    )
    assert row is not None
    assert same(unescape(row["state"]), {"v": value})
    assert same(decode_body(row["body"]), value)


@pytest.mark.parametrize("value", [{1: "a"}, {"a": {None: 1}}, {"a": object()}, [b"x"], {"a": {1, 2}}])
def test_a_value_that_is_not_json_is_refused_by_name(value: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"state"):
        escape_state(value)


def test_a_value_that_is_nested_too_deeply_is_refused() -> None:
    value: list[Any] = []
    for _ in range(300):
        value = [value]
    with pytest.raises(InvalidInputError, match="200 deep"):
        escape_state(value)


def test_plain_values_are_stored_unescaped() -> None:
    """The column stays readable for other clients."""
    assert escape_state({"语言": "中文", "n": [1, 2.5]}) == {"语言": "中文", "n": [1, 2.5]}
    assert encode_body({"text": "中文"}, where="content") == '{"text":"中文"}'
    assert json.loads(encode_body("\ud800", where="content")) == "\ud800"


def test_search_text_replaces_only_what_postgresql_refuses() -> None:
    assert clean_text("a\0b\ud800c 中") == "a\ufffdb\ufffdc 中"
