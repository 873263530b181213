"""How many tokens a text costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

#: Counts the tokens of a text. It must not count less for a longer text than for its beginning.
TokenCounter: TypeAlias = Callable[[str], int]


def estimate_tokens(text: str) -> int:
    """About how many tokens a model counts: a quarter per ASCII character, one per other character.

    Equal to the SQL function of the same name: what is beyond ASCII follows from the length in UTF-8, at three
    bytes a character.
    """
    beyond = (len(text.encode("utf-8", "surrogatepass")) - len(text) + 1) // 2
    return (len(text) + 3 * beyond + 3) // 4
