"""Parts: what is too long for one generate call, cut for several."""

from __future__ import annotations

from dataclasses import replace

from hippocampus.providers.embedding_chunks import split
from hippocampus.records import Turn
from hippocampus.text.tokens import estimate_tokens


def cut(turns: tuple[Turn, ...], tokens_max: int) -> list[tuple[Turn, ...]]:
    """Return the turns in parts of about `tokens_max` estimated tokens each; in one part if they fit.

    A longer turn becomes several of the same number and author: each ends with a paragraph, a sentence or a word.
    Joined, they are its text, apart from pieces that are blank.
    """
    if sum(estimate_tokens(turn.text) for turn in turns) <= tokens_max:
        return [turns]
    parts: list[list[Turn]] = [[]]
    left = tokens_max
    for turn in turns:
        for piece in filter(str.strip, split(turn.text, tokens_max)):
            tokens = estimate_tokens(piece)
            if parts[-1] and tokens > left:
                parts.append([])
                left = tokens_max
            parts[-1].append(replace(turn, text=piece))
            left -= tokens
    return [tuple(part) for part in parts]
