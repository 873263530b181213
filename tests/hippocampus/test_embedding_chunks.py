"""Long texts are split into chunks that a model reads completely."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippocampus.providers import embedding_chunks


@given(st.text(max_size=300), st.integers(1, 40))
def test_chunks_join_to_the_text(text: str, limit: int) -> None:
    """Nothing is lost, nothing is duplicated, and no chunk exceeds the limit."""
    chunks = embedding_chunks.split(text, limit)
    assert "".join(chunks) == text
    assert all(embedding_chunks.estimate_tokens(chunk) <= limit for chunk in chunks)
    assert len(chunks) == 1 or all(chunks)


def test_a_short_text_is_one_chunk() -> None:
    """The usual case is unchanged."""
    assert embedding_chunks.split("short") == ["short"]
    assert embedding_chunks.split("") == [""]


def test_chunks_end_between_sentences() -> None:
    """A chunk ends at the end of a sentence if one ends in its second half."""
    chunks = embedding_chunks.split("The river rose again. " * 40, 50)
    assert all(chunk.strip().endswith("again.") for chunk in chunks)
    assert all(chunk.endswith("。") for chunk in embedding_chunks.split("河水又涨了。" * 40, 50))


def test_token_estimates_are_high() -> None:
    """Four ASCII characters count as one token, and so does any other character."""
    assert embedding_chunks.estimate_tokens("abcd你好") == 3


def test_the_average_is_weighted_by_length() -> None:
    """A long chunk has more weight than a short one, and the result is a unit vector."""
    vector = embedding_chunks.average([[1.0, 0.0], [0.0, 1.0]], [3.0, 1.0])
    assert vector == pytest.approx([3 / math.sqrt(10), 1 / math.sqrt(10)])


@pytest.mark.parametrize("vector", [[0.0, 0.0], [math.inf, 1.0], [math.nan, 1.0]])
def test_a_vector_without_a_direction_is_an_error(vector: list[float]) -> None:
    """A vector that cannot be compared is not stored."""
    with pytest.raises(ValueError, match="no direction"):
        embedding_chunks.normalise(vector)


def test_a_megabyte_is_split_quickly() -> None:
    """The largest event that may be stored is split in linear time."""
    assert len(embedding_chunks.split("word " * 200_000)) > 130
