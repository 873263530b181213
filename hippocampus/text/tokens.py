"""How many tokens a text costs."""

from __future__ import annotations

import re
import string
from typing import Protocol


class TokenCounter(Protocol):
    """Counts the tokens of a text. A text must not count fewer tokens than its beginning."""

    def __call__(self, text: str, /) -> int:
        """Return how many tokens the text costs."""


class WindowCounter(Protocol):
    """Counts a whole window as a model does, by a call: `hippocampus.providers.gemini.provider.GeminiTokenCounter`."""

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


_WORD = re.compile(rb"[A-Za-z]+")
_BEYOND_FIFTH = re.compile(rb"[A-Za-z]{5}([A-Za-z]+)")
_LETTERS, _CAPITALS = string.ascii_letters.encode(), string.ascii_uppercase.encode()
_DIGITS, _BLANKS, _BREAKS = string.digits.encode(), b" \t", b"\n\v\f\r"
# The first byte of a character in UTF-8 says how long it is.
_OF_TWO, _OF_THREE, _OF_FOUR = bytes(range(0xC2, 0xE0)), bytes(range(0xE0, 0xF0)), bytes(range(0xF0, 0xF5))


def count_tokens(text: str) -> int:
    """Return how many tokens a text costs, rather too many than too few.

    In hundredths of a token: 100 for a word of Latin letters and 11 for each letter beyond its fifth, 8 more for a
    capital, 100 for a digit, 75 for punctuation, 90 for a line break, nothing for a blank; beyond ASCII 100 for a
    character of two bytes in UTF-8, 110 of three, 300 of four. Fitted from above to o200k_base over chat, prose, code,
    Chinese and emoji. Equal to the SQL function of the same name.
    """
    encoded = text.encode("utf-8", "surrogatepass")

    def those(characters: bytes) -> int:
        return len(encoded) - len(encoded.translate(None, characters))

    letters, digits, breaks = those(_LETTERS), those(_DIGITS), those(_BREAKS)
    two = three = four = 0
    if len(encoded) > len(text):
        two, three, four = those(_OF_TWO), those(_OF_THREE), those(_OF_FOUR)
    punctuation = len(text) - letters - digits - breaks - two - three - four - those(_BLANKS)
    hundredths = (
        100 * len(_WORD.findall(encoded))
        + 11 * sum(map(len, _BEYOND_FIFTH.findall(encoded)))
        + 8 * those(_CAPITALS)
        + 100 * (digits + two)
        + 75 * punctuation
        + 90 * breaks
        + 110 * three
        + 300 * four
    )
    return -(-hundredths // 100)
