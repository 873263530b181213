"""What counts as a repetition, measured on pairs of statements with the same and with different meanings."""

from __future__ import annotations

import pytest

from hippocampus.context.packing import pack
from hippocampus.context.window import ContextItem
from hippocampus.text.repetition import WindowStatements

RATIOS = {"system": 0.1, "memory": 0.3, "history": 0.4, "fact": 0.2}

# A text in the window, and a candidate that adds nothing to it.
SAME = [
    ("[user]: My favourite tea is oolong.", "[preference] favourite_tea: oolong"),
    ("[user]: I've been vegetarian for 6 years", "Vegetarian for 6 years."),
    ("Mei plays the cello in an orchestra in Porto.", "[custom] plays: cello in an orchestra"),
    ("We met in 2019. Anna moved to Oslo with her two cats.", "Anna moved to Oslo with two cats"),
    ("[Tom]: my flight leaves at 7 from gate B", "The flight leaves at 7 from gate B."),
    ("He is allergic to peanuts.", "[rule] allergic: peanuts"),
    ("The invoices go to accounting every Friday", "invoices go to accounting on Fridays"),
    ("[user]: 我最喜欢喝乌龙茶。", "[preference] 喜欢: 喝乌龙茶"),
    ("她在上海的一家医院当护士，住在浦东。", "在上海的一家医院当护士"),
    ("[用户]: 我对花生过敏，不能吃海鲜。", "对花生过敏，不能吃海鲜"),
    ("昨日は京都で抹茶を飲みました。", "京都で抹茶を飲みました"),
    ("Summary: the user moved to Lisbon and works as a nurse.", "User moved to Lisbon; works as a nurse"),
    ("[user]: Please always answer in short sentences", "[rule] answer: always in short sentences"),
    ("The garden needs water twice a week in summer", "garden: water twice a week in summer"),
    ("My sister sells tulips. She lives in Ghent.", "My sister sells tulips. Lives in Ghent."),
]
# Similar words, but a different or an additional statement.
OTHER = [
    ("[user]: I live in Porto and may move to Lisbon.", "[profile] city: Lisbon"),
    ("[user]: I do not like oolong tea at all.", "likes oolong tea"),
    ("[user]: I like oolong tea.", "does not like oolong tea"),
    ("Mei has been vegetarian for 6 years", "vegetarian for 7 years"),
    ("The meeting is on 4 March at 10", "The meeting is on 5 March at 10"),
    ("Anna moved to Oslo with her two cats.", "Anna moved to Oslo, then back to Graz, with her dog"),
    ("He is allergic to peanuts.", "[rule] allergic: shellfish"),
    ("[user]: 我喜欢喝乌龙茶。", "不喜欢喝乌龙茶"),
    ("[user]: 我以前住在北京。", "[profile] 住在: 上海"),
    ("她在上海的一家医院当护士。", "她在上海的一家学校当老师"),
    ("私は東京に住んでいます。", "大阪に住んでいます"),
    ("The invoices go to accounting every Friday", "The invoices go to the lawyer on Mondays"),
    ("Tom plays the violin. Ann plays chess.", "Tom plays chess against Ann every week"),
    ("My sister sells tulips.", "My sister sells tulips. My brother grows roses."),
    ("[user]: What is my favourite tea?", "[preference] favourite_tea: oolong"),
    ("tea", "[preference] tea: oolong"),
    ("", "anything at all"),
    ("[user]: hello", "hello"),
]


def test_the_threshold_drops_no_news_and_most_repetitions() -> None:
    """None of 18 near misses is dropped; at least 13 of 15 repetitions are."""
    dropped_news = [pair for pair in OTHER if repeats(*pair)]
    assert dropped_news == []
    found = sum(repeats(*pair) for pair in SAME)
    assert found >= 13, [pair for pair in SAME if not repeats(*pair)]


def test_many_sentences_are_covered_by_several_texts() -> None:
    said = WindowStatements()
    said.add("[user]: I bought a red kayak. We paddle on Sundays.")
    said.add("The lake is near the old mill")
    assert said.repeats("Bought a red kayak. The lake is near the mill.")
    assert not said.repeats("Bought a red kayak. The lake is frozen.")


@pytest.mark.parametrize("budget", [200, 2000])
def test_a_fact_a_summary_and_a_turn_with_one_meaning_are_paid_for_once(budget: int) -> None:
    window = pack(
        {
            "history": [ContextItem(context_type="history", content="[user]: My favourite tea is oolong.")],
            "memory": [ContextItem(context_type="memory", content="The user's favourite tea is oolong.")],
            "fact": [
                ContextItem(context_type="fact", content="[preference] favourite_tea: oolong"),
                ContextItem(context_type="fact", content="[preference] favourite_cup: porcelain"),
            ],
        },
        max_tokens=budget,
        ratios=RATIOS,  # type: ignore[arg-type]
    )
    assert [item.content for item in window.items] == [
        "[preference] favourite_cup: porcelain",
        "[user]: My favourite tea is oolong.",
    ]
    assert {(left.item.context_type, left.reason) for left in window.left_out} == {
        ("memory", "repeats"),
        ("fact", "repeats"),
    }


def repeats(window: str, candidate: str) -> bool:
    said = WindowStatements()
    said.add(window)
    return said.repeats(candidate)
