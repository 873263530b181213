"""Split texts that are longer than an embedding model reads into chunks, and average the vectors of these."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass

from hippocampus.records import Vector

#: The limit of a chunk, by estimate; the model reads 2,048 tokens and silently ignores the rest.
CHUNK_TOKENS_MAX = 1800

#: Where to split, best first: after a paragraph, a line, a sentence, a word.
_BREAKS = tuple(map(re.compile, (r"\n\s*\n", r"\n", r"[。！？；]|[.!?;]\s", r"\s")))


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingLimits:
    """What one call may hold.

    Attributes:
        texts: inputs of one call.
        text_tokens: estimated tokens of one input; a longer text is embedded in chunks.
        call_tokens: estimated tokens of one call.
    """

    texts: int
    text_tokens: float = CHUNK_TOKENS_MAX
    call_tokens: float = 200_000.0

    def __post_init__(self) -> None:
        if self.texts < 1 or self.text_tokens < 1 or self.call_tokens < 1:
            raise ValueError("each limit must be at least 1")


def estimate_tokens(text: str) -> float:
    """Return a high estimate of a text's tokens: one per 4 ASCII characters, one per other character."""
    ascii_characters = len(text.encode("ascii", "ignore"))
    return ascii_characters / 4 + (len(text) - ascii_characters)


def split(text: str, tokens_max: float = CHUNK_TOKENS_MAX) -> list[str]:
    """Split a text into chunks of at most `tokens_max` estimated tokens, at the best break near the end.

    Joined, the chunks are the text: nothing is dropped. A text within the limit is one chunk.
    """
    chunks: list[str] = []
    start = 0
    while True:
        end = _reach(text, start, tokens_max)
        if end == len(text):
            return [*chunks, text[start:]]
        end = _best_break(text, start, end)
        chunks.append(text[start:end])
        start = end


def average(vectors: Sequence[Vector], weights: Sequence[float]) -> Vector:
    """Return the weighted mean of unit vectors, as a unit vector."""
    columns = zip(*vectors, strict=True)
    return normalise([sum(map(operator.mul, column, weights)) for column in columns])


def normalise(vector: Sequence[float]) -> Vector:
    """Return the vector scaled to length 1.

    Raises:
        ValueError: its length is 0 or not finite, so that it has no direction.
    """
    length = math.hypot(*vector)
    if not 1e-100 < length < math.inf:
        # The length of large doubles overflows, that of tiny ones has few digits.
        largest = max(map(abs, vector)) or 1.0
        vector = [component / largest for component in vector]
        length = math.hypot(*vector)
        if not 0 < length < math.inf:
            raise ValueError("a vector of length 0 or infinity has no direction")
    return [component / length for component in vector]


def _reach(text: str, start: int, tokens_max: float) -> int:
    """Return the furthest end for which text[start:end] is within the limit; at least one character."""
    tokens = 0.0
    for position in range(start, len(text)):
        tokens += 0.25 if text[position] < "\x80" else 1.0
        if tokens > tokens_max:
            return max(position, start + 1)
    return len(text)


def _best_break(text: str, start: int, end: int) -> int:
    """Return the last good break in the second half of the chunk, else `end`."""
    middle = start + (end - start) // 2
    for pattern in _BREAKS:
        last = max((match.end() for match in pattern.finditer(text, middle, end)), default=0)
        if last > start:
            return last
    return end
