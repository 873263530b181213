"""What a window may hold: how many candidates a budget asks for, and what the rows of the database say of each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from hippocampus.context.languages import fact_kind, speaker
from hippocampus.context.packing import CUT_MARK
from hippocampus.context.ranking import MatchedTurn, window_order
from hippocampus.context.window import ContextItem, ContextType
from hippocampus.text.languages import Language, language_of
from hippocampus.text.times import in_zone

if TYPE_CHECKING:
    from datetime import tzinfo

    import asyncpg

#: Candidates that are fetched: one per this many tokens of the budget, between two bounds; of memories always the most
#: that are allowed. From `FULL_TOKENS` on, the upper bounds grow with the square root of the budget, at most
#: `GROWTH_MAX` times.
MEMORIES_MAX = 20
FACT_TOKENS, FACTS_MIN, FACTS_MAX = 100, 20, 60
TURN_TOKENS, TURNS_MIN, TURNS_MAX = 40, 30, 200
PASSAGE_TOKENS, PASSAGES_MIN, PASSAGES_MAX = 20, 20, 400
FULL_TOKENS, GROWTH_MAX = 8000, 4
#: Characters of one candidate that are packed; the rest is cut off, with the mark of a cut.
CHARACTERS_MAX = 500_000

Candidates: TypeAlias = Mapping[ContextType, Sequence[ContextItem]]


class Limits(NamedTuple):
    """How many candidates are fetched of each kind."""

    memories: int
    facts: int
    turns: int
    passages: int


def limits_of(budget: int) -> Limits:
    """Return how many candidates a budget asks for."""
    growth = min(max(math.sqrt(budget / FULL_TOKENS), 1), GROWTH_MAX)
    return Limits(
        int(MEMORIES_MAX * growth),
        min(max(budget // FACT_TOKENS, FACTS_MIN), int(FACTS_MAX * growth)),
        min(max(budget // TURN_TOKENS, TURNS_MIN), int(TURNS_MAX * growth)),
        min(max(budget // PASSAGE_TOKENS, PASSAGES_MIN), int(PASSAGES_MAX * growth)),
    )


def in_order(rows: Sequence[asyncpg.Record], query: str) -> list[asyncpg.Record]:
    """Return rows with the turns that match in the order in which a window takes them."""
    turns = [row for row in rows if _is_match(row)]
    order = window_order([MatchedTurn(row["content"], row["author"], row["score"]) for row in turns], query)
    ordered = iter([turns[place] for place in order])
    return [next(ordered) if _is_match(row) else row for row in rows]


def matched(rows: Sequence[asyncpg.Record]) -> list[asyncpg.Record]:
    """Return what the query found, the best first, with turns in their order among the rows."""
    turns = iter([row for row in rows if _is_match(row)])
    found = [row for row in rows if row["context_type"] in ("memory", "fact") and row["score"] > 0]
    found.sort(key=lambda row: -row["score"])
    return [next(turns) if _is_match(row) else row for row in found]


def read_candidates(rows: Sequence[asyncpg.Record], language: Language, zone: tzinfo | None) -> Candidates:
    """Return the candidates of rows; what was fetched twice counts where it comes first."""
    candidates: dict[ContextType, list[ContextItem]] = {"fact": [], "memory": [], "history": []}
    seen = set()
    for row in rows:
        if row["context_type"] is not None and (row["context_type"], row["id"]) not in seen:
            seen.add((row["context_type"], row["id"]))
            candidates[row["context_type"]].append(read_item(row, language, zone))
    return candidates


def _is_match(row: asyncpg.Record) -> bool:
    """Whether a row is a turn that matches, and not one beside it."""
    return row["context_type"] == "memory" and row["source"] == "message" and row["beside"] is None


def language_of_rows(rows: Sequence[asyncpg.Record], query: str) -> Language:
    """Return the language of the session's newest turns and the query; if they have no words, that of what was found.

    The turns are what does not change from one call to the next, so that neither do the labels.
    """
    found = [row for row in rows if row["context_type"] is not None]
    spoken = language_of([query, *(row["content"] for row in found if row["context_type"] == "history")])
    return spoken or language_of(row["content"] for row in found) or "en"


def read_item(row: asyncpg.Record, language: Language, zone: tzinfo | None) -> ContextItem:
    """Return a row as an item of a window, labelled in a language, with the times of a zone."""
    names = {"memory": "memory_id", "fact": "fact_id", "message": "message_id"}
    content = row["content"]
    if len(content) > CHARACTERS_MAX:
        content = content[:CHARACTERS_MAX] + CUT_MARK
    if row["context_type"] == "history":
        content = f"[{speaker(row['author'], language)}]: {content}"
    elif row["context_type"] == "fact":
        content = f"[{fact_kind(row['kind'], language)}] {content}"
    metadata = {
        names[row["source"]]: row["id"],
        "source": row["source"],
        "kind": row["kind"],
        "thread_id": row["thread_id"],
        "session_id": row["session_id"],
        "from_seq": row["from_seq"],
        "upto_seq": row["upto_seq"],
        "source_seqs": tuple(row["source_seqs"] or ()),
        "occurred_at": in_zone(row["occurred_at"], zone),
    }
    if row["source"] == "message":
        metadata |= {"author": row["author"], "beside": row["beside"]}
    if row["context_type"] == "history":
        today = in_zone(row["now"], zone).date()
        metadata["is_today"] = metadata["occurred_at"].date() == today
    if row["source"] == "fact":
        metadata |= {"key": row["fact_key"], "is_standing": row["is_standing"]}
    if row["changed"] is not None:
        metadata |= {"changed": row["changed"], "changed_at": in_zone(row["changed_at"], zone)}
    return ContextItem(
        context_type=row["context_type"], content=content, relevance_score=row["relevance"], metadata=metadata
    )
