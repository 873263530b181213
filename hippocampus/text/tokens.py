"""How many tokens a text costs."""

from __future__ import annotations

import string
from functools import lru_cache
from typing import Protocol


class TokenCounter(Protocol):
    """Counts the tokens of a text. A text must not count fewer tokens than its beginning."""

    def __call__(self, text: str, /) -> int:
        """Return how many tokens the text costs."""


class WindowCounter(Protocol):
    """Counts a whole window as a model does, by a call: `hippocampus.GeminiTokenCounter`."""

    @property
    def model(self) -> str:
        """The model's name."""

    async def count(self, text: str) -> int:
        """Return how many tokens the text costs.

        Raises:
            ProviderError: the call failed.
        """


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a model counts: a quarter per ASCII character, one per other character.

    Cheap and rough, for policies; a window is packed by `count_tokens`. Equal to the SQL function of the same name:
    what is beyond ASCII follows from the length in UTF-8, at three bytes a character.
    """
    beyond = (len(text.encode("utf-8", "surrogatepass")) - len(text) + 1) // 2
    return (len(text) + 3 * beyond + 3) // 4


_LETTERS, _CAPITALS = string.ascii_letters.encode(), string.ascii_uppercase.encode()
_DIGITS, _BLANKS, _BREAKS = string.digits.encode(), b" \t", b"\n\v\f\r"
# The first byte of a character in UTF-8 says how long it is.
_OF_TWO, _OF_THREE, _OF_FOUR = bytes(range(0xC2, 0xE0)), bytes(range(0xE0, 0xF0)), bytes(range(0xF0, 0xF5))
_BREAK = 90
#: Longer lines are not kept.
_LINE_CHARACTERS = 1000
_PROSE = _LETTERS + _BLANKS
#: Every letter as "a", all else as a blank: then the words of at least n letters begin with a blank and n times "a".
_WORDS = bytes(ord("a") if byte in _LETTERS else ord(" ") for byte in range(256))
_BEGINNINGS = tuple(b" " + b"a" * letters for letters in range(1, 6))


def count_tokens(text: str) -> int:
    """Return how many tokens a text costs, rather too many than too few.

    In hundredths of a token: 100 for a word of Latin letters and 11 for each letter beyond its fifth, 8 more for a
    capital, 100 for a digit, 75 for punctuation, 90 for a line break, nothing for a blank; beyond ASCII 100 for a
    character of two bytes in UTF-8, 110 of three, 300 of four. Fitted from above to o200k_base over chat, prose, code,
    Chinese and emoji. Equal to the SQL function of the same name.
    """
    return -(-count_hundredths(text) // 100)


def count_hundredths(text: str) -> int:
    """Return the same in hundredths of a token: those of a text's words add up to those of the text."""
    if "\n" not in text:
        return _count_line(text) if len(text) <= _LINE_CHARACTERS else _count(text)
    lines = text.split("\n")
    return _BREAK * (len(lines) - 1) + sum(map(count_hundredths, lines))


@lru_cache(maxsize=8192)  # the turns of a user are measured for window after window
def _count_line(line: str) -> int:
    return _count(line)


def _count(text: str) -> int:
    encoded = text.encode("utf-8", "surrogatepass")
    words = b" " + encoded.translate(_WORDS)
    beginnings = [words.count(beginning) for beginning in _BEGINNINGS]  # bytes.count is faster than a regex
    letters = _count_of(encoded, _LETTERS)
    rest = encoded.translate(None, _PROSE)
    digits, breaks = _count_of(rest, _DIGITS), _count_of(rest, _BREAKS)
    two = three = four = 0
    if len(encoded) > len(text):
        two, three, four = _count_of(rest, _OF_TWO), _count_of(rest, _OF_THREE), _count_of(rest, _OF_FOUR)
    blanks = len(encoded) - letters - len(rest)
    punctuation = len(text) - letters - blanks - digits - breaks - two - three - four
    return (
        100 * beginnings[0]
        + 11 * (letters - sum(beginnings))
        + 8 * _count_of(encoded, _CAPITALS)
        + 100 * (digits + two)
        + 75 * punctuation
        + _BREAK * breaks
        + 110 * three
        + 300 * four
    )


def _count_of(encoded: bytes, characters: bytes) -> int:
    return len(encoded) - len(encoded.translate(None, characters))
