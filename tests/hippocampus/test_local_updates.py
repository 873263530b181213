"""What the local provider makes of facts of earlier slices when later sentences speak of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hippocampus.providers.local import facts as local_facts
from hippocampus.records import ExtractedFact
from tests.support.provider_conformance import conversation


def held_after(*slices: list[str]) -> list[str]:
    """The texts of the facts that hold after slices of a user's lines, each read with what held before it."""
    known: dict[tuple[str, str], ExtractedFact] = {}
    for lines in slices:
        read = replace(conversation(*(("user", line) for line in lines)), known_facts=tuple(known.values()))
        for fact in local_facts.of_slice(read):
            known.pop((fact.fact_type, fact.key), None)
            if not fact.ended:
                known[fact.fact_type, fact.key] = fact
    return [fact.value["text"] for fact in known.values()]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("I lost my keys in the boathouse yesterday.", "A boathouse would be lovely, but I'll take a shed."),
        ("I won the regional spelling bee on Friday.", "The spelling people have moved to a new hall."),
        ("Every Monday I row with the harbour crew.", "My crew could do with a new boat, but never mind."),
        ("每周三晚上我去合唱团唱歌。", "好想念合唱团了，大家都很好。"),
    ],
)
def test_what_is_known_stands_against_weak_words(before: str, after: str) -> None:
    """What happened, and what somebody does, is not replaced by what might be or how somebody feels."""
    (stated,) = held_after([before])
    assert stated in held_after([before], [after])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("I cook for my family every evening.", "I miss cooking shows on TV."),
        ("I train every day.", "I miss morning training sessions."),
        ("I go running every morning.", "I miss running into old friends."),
        ("I got a bike.", "It's not for me to judge."),
        ("I bought a guitar.", "They are gifts for life."),
        ("I got a bike.", "It's a great gift for cycling."),
        ("I plan to move to Berlin.", "We moved in together."),
        ("I plan to move to Berlin.", "I moved in with Tom for now."),
        ("I plan to move to Berlin.", "I moved to tears."),
        ("I plan to move to Berlin.", "I was moved to tears."),
        ("I plan to move my savings to another bank.", "We moved house."),
        ("I plan to move to Berlin.", "We moved on to dessert."),
    ],
)
def test_what_shares_only_words_with_an_end_ends_nothing(before: str, after: str) -> None:
    stated = held_after([before])
    assert stated
    assert set(stated) <= set(held_after([before, after]))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("I go running every morning.", "I miss running."),
        ("I go running every morning.", "I really miss running these days."),
        ("I got a bike.", "It's not for me, it's for my son."),
        ("I got a bike.", "It's a gift for Tom."),
        ("I bought a guitar.", "It's a lovely present for our nephew."),
        ("I plan to move to Berlin.", "We moved into our new flat."),
        ("I plan to move to Berlin.", "I moved to Berlin last week."),
        ("We're moving house in May.", "We moved in on Saturday."),
        ("I'm moving to Leeds in June.", "We've moved in."),
    ],
)
def test_what_is_missed_given_or_made_ends(before: str, after: str) -> None:
    (stated,) = held_after([before])
    assert stated not in held_after([before, after])


@pytest.mark.parametrize(
    ("before", "after", "texts"),
    [
        ("Every Monday I row with the harbour crew.", "I miss rowing so much.", []),
        ("We're moving to Turin in May.", "We moved to Turin on Saturday.", ["lives in Turin"]),
        ("我们打算五月搬到无锡。", "我们上周六搬到无锡了。", ["上周六搬到无锡了"]),
        ("We're moving to Turin in May.", "The move has been put off to June.", ["is moving to Turin in June"]),
    ],
)
def test_what_is_over_ends(before: str, after: str, texts: list[str]) -> None:
    """A habit that is missed and a move that was made end; a date that moves does not make a move."""
    assert held_after([before], [after]) == texts


def test_what_is_handed_over_is_kept_beside_what_happened() -> None:
    held = held_after(["我爸上周摔了一跤，住院了。"], ["我爸把果园过户给我了。"])
    assert any("住院" in text or "摔" in text for text in held)
    assert any("果园过户" in text for text in held)


def test_a_name_implies_no_second_fact_of_its_bearer() -> None:
    """Whoever has a name is known with it, so that what is stored is the same whether the name was known before."""
    about = ["Pim slept on the sofa.", "Aron is at sea again."]
    held = held_after(["My brother is called Aron.", "We have a cat named Pim."], about)
    assert {"has a brother called Aron", "has a cat named Pim"} <= set(held)
    assert not {"has a brother", "has a cat"} & set(held)


@pytest.mark.parametrize(
    ("lines", "has", "bought"),
    [
        (["I bought a camera as a gift for my son."], False, True),
        (["I bought a camera for my niece."], False, True),
        (["I bought a camera. It's a present for my nephew."], False, False),
        (["I bought a camera.", "It's a present from me to me."], True, False),
        (["I bought a new camera for work."], True, False),
    ],
)
def test_what_is_bought_for_another_is_not_ones_own(lines: list[str], *, has: bool, bought: bool) -> None:
    held = held_after(lines)
    assert any(text.startswith("has a") and text.endswith("camera") for text in held) is has
    assert any(text.startswith("bought a camera") and " their " in text for text in held) is bought


@pytest.mark.parametrize(
    "lines",
    [
        ["Got a console, it's a gift for my brother."],
        ["I bought a console, but it's for my son."],
        ["I bought a console. It's for my son."],
        ["I ordered a drone to give to my nephew."],
        ["I picked up a guitar for a friend."],
        ["I bought my mum a tablet."],
        ["We bought Tom a guitar."],
        ["I got a phone for Mum."],
        ["I got a puppy for Tom."],
        ["帮我妈买了部手机。"],
        ["I gave my brother my old guitar."],
        ["We got a puppy for my sister."],
        ["We adopted a cat for my grandmother."],
        ["给我侄子买了个游戏机。"],
        ["给朋友买了把吉他。"],
        ["买了个游戏机，送给我弟的。"],
        ["我买了辆车，是给我爸的。"],
        ["我买了个相机。送给我爸的。"],
        ["我买了台电脑送给我妹妹。"],
        ["买了只猫送我女儿。"],
    ],
)
def test_whoever_buys_for_another_owns_nothing(lines: list[str]) -> None:
    """It is kept that it was bought, whether the clause, the next one or the next sentence says for whom."""
    stated = local_facts.of_slice(conversation(*(("user", line) for line in lines)))
    assert not {"owns", "pet"} & {fact.key.partition(":")[0] for fact in stated}
    assert any(fact.key.startswith("event:") for fact in stated)


@pytest.mark.parametrize(
    "line",
    [
        "I bought a tablet from my mum.",
        "I got a camera as a gift.",
        "I bought a bike for me and my wife.",
        "I bought myself a new bike.",
        "I bought a guitar, my sister plays too.",
        "I bought a camera. It's a present from me to me.",
        "We got a dog for Christmas.",
        "We have a dog, it's for my sanity.",
        "我给自己买了个相机。",
        "我买了辆车，给我自己的。",
        "爸妈给我买了辆车。",
    ],
)
def test_what_somebody_buys_or_gets_themselves_is_theirs(line: str) -> None:
    (stated,) = (
        fact
        for fact in local_facts.of_slice(conversation(("user", line)))
        if fact.key.startswith(("owns:", "pet:")) and not fact.ended
    )
    assert stated.value["text"].startswith(("has a ", "给自己", "买了", "爸妈"))


@pytest.mark.parametrize(
    "line",
    [
        "My husband's called Jonas, he's a paramedic.",
        "My husband's name is Jonas, he's a paramedic.",
        "I've got a husband called Jonas, paramedic.",
        "husband called Jonas, paramedic",
        "My husband (Jonas, paramedic) says hi.",
        "We live here, my husband Jonas, a paramedic, and I.",
    ],
)
def test_a_name_and_work_beside_a_relative_are_the_relatives(line: str) -> None:
    held = held_after([line])
    assert {"has a husband called Jonas", "has a husband who is a paramedic"} <= set(held)
    assert not any("paramedic" in text and "husband who" not in text for text in held)


@pytest.mark.parametrize(
    ("before", "after", "held"),
    [
        ("考试在周四。", "是周五，不是周四", "考试在周五"),
        ("考试在周四。", "不是周四，是周五", "考试在周五"),
        ("我住在苏州。", "是杭州，不是苏州。", "住在杭州"),
        ("我住在苏州。", "杭州很美，不是苏州能比的", "住在苏州"),
    ],
)
def test_what_is_right_may_be_named_before_or_after_what_is_wrong(before: str, after: str, held: str) -> None:
    assert held in held_after([before, after])


@pytest.mark.parametrize(
    ("before", "after", "held"),
    [
        (
            "The dinner is on Saturday 12 December at 7pm.",
            "Sorry, the dinner is on Sunday 13 December, not Saturday.",
            "Sunday 13 December",
        ),
        ("My sister's wedding is on 5 June.", "Actually the wedding is on 6 June, not 5 June.", "on 6 June"),
        ("The dentist is on March 3.", "It's March 4, not March 3.", "on March 4"),
        ("The exam is on Thursday.", "It's Friday, not Thursday.", "on Friday"),
        ("The exam is on Thursday.", "The exam is on Friday, not Thursday.", "on Friday"),
    ],
)
def test_a_corrected_day_takes_the_place_of_the_whole_former_one(before: str, after: str, held: str) -> None:
    """Not of its weekday or number alone, which would leave two days in the text."""
    found = held_after([before, after])
    assert found
    for text in found:
        day = text.partition(" is ")[2].removesuffix(" at 7pm")
        assert day in (held, f"on {held}")
