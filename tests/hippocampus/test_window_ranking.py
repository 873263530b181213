"""The order in which a window takes the turns that match a query."""

from __future__ import annotations

import tracemalloc

import pytest

from hippocampus.context.ranking import LEADING, MatchedTurn, says_little, turn_terms, window_order

HIKES = [f"We walked the coastal trail near Ericeira, day {n}" for n in range(LEADING)]
OFFICE = "The printer in the office is out of toner again"


def listed(*texts: str, authors: dict[str, str] | None = None) -> list[MatchedTurn]:
    """Turns whose scores fall slowly behind the leading ones."""
    scores = [0.6 - n / 1000 for n in range(len(texts))]
    return [
        MatchedTurn(text, (authors or {}).get(text, "user"), score) for text, score in zip(texts, scores, strict=True)
    ]


@pytest.mark.parametrize(
    ("leading", "other", "like"),
    [
        (HIKES, OFFICE, "My boots were wet from the trail for a week"),
        ([f"周末我们沿着海边小径走了第{n}段" for n in range(LEADING)], "办公室的打印机又没墨了", "那条海边小径风很大"),
    ],
    ids=["en", "zh"],
)
def test_what_shares_rare_words_with_the_best_turns_comes_before_what_does_not(
    leading: list[str], other: str, like: str
) -> None:
    turns = listed(*leading, other, like)
    assert window_order(turns, "?") == [*range(LEADING), LEADING + 1, LEADING]


@pytest.mark.parametrize(("others", "compared"), [(20, False), (200, True)])
def test_the_more_turns_a_window_is_offered_the_more_of_them_are_compared_with(others: int, compared: bool) -> None:
    boats = [f"The ferry to the island left at dawn, crossing {n}" for n in range(LEADING)]
    filler = [f"{word} {n}" for n in range(others // 2) for word in ("Tuesday", "Friday")]
    turns = listed(*HIKES, *boats, *filler, OFFICE, "That ferry was late at the island again")
    order = window_order(turns, "?")
    assert (order.index(len(turns) - 1) < order.index(len(turns) - 2)) is compared


def test_what_is_like_a_better_turn_comes_first() -> None:
    trail, ferry = "My boots were wet from the trail", "My boots were wet from the ferry"
    turns = [
        MatchedTurn("We walked the trail", "user", 0.9),
        MatchedTurn("We took the ferry", "user", 0.3),
        *(MatchedTurn(f"Tuesday {n}", "user", 0.2) for n in range(LEADING)),
        MatchedTurn(ferry, "user", 0.101),
        MatchedTurn(trail, "user", 0.1),
    ]
    order = [turns[place].text for place in window_order(turns, "?")]
    assert order.index(trail) < order.index(ferry)


def test_the_best_turns_keep_their_places() -> None:
    turns = listed(OFFICE, *HIKES[1:])
    assert window_order(turns, "trail") == list(range(LEADING))
    assert window_order([], "trail") == []
    assert window_order([MatchedTurn("", None, 0.0)] * 20, "trail") == list(range(20))


@pytest.mark.parametrize(
    ("author", "query", "first"),
    [
        ("Mei", "What does Mei grow?", True),
        ("Mei-Ling", "And Mei-Ling's garden?", True),
        ("美玲", "美玲种了什么？", True),
        ("美", "美玲种了什么？", False),
        ("—", "What — tell me", False),
        ("Mei", "What does Meike grow?", False),
        ("user", "What does the user grow?", False),
    ],
)
def test_a_turn_whose_speaker_is_named_comes_first(author: str, query: str, first: bool) -> None:
    plain, by_author = "Nothing much happened on Tuesday", "Nothing much happened on Monday"
    turns = listed(*HIKES, plain, by_author, authors={by_author: author, plain: "Tom"})
    assert (window_order(turns, query)[LEADING] == LEADING + 1) is first


def test_a_long_turn_is_no_small_talk() -> None:
    assert says_little("Wow, thanks! That's so great to hear!")
    assert not says_little("In June we hike from Porto to Braga with two friends of my brother")
    assert not says_little("ha " * 200)


def test_what_is_kept_of_a_turn_is_small() -> None:
    """A process keeps the terms of a turn's beginning for the next window, not the turn, whatever its length."""
    tracemalloc.start()
    try:
        for number in range(100):
            start = 0x4E00 + number * 97
            turn_terms("".join(map(chr, range(start, start + 400))) + "." * 50_000)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept / 100 < 50_000
