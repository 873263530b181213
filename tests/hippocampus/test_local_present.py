"""What the local provider's facts say of the present after other conversations: moves, promotions, corrections."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from hippocampus.providers.local import facts as local_facts
from hippocampus.records import ConversationSlice, ExtractedFact, Turn

START = datetime(2026, 3, 2, 9, tzinfo=UTC)


def held_after(*conversations: Sequence[str], author: str = "user") -> dict[str, str]:
    """Return by key the texts that hold after conversations two months apart."""
    known: dict[tuple[str, str], ExtractedFact] = {}
    seq = 0
    for number, lines in enumerate(conversations):
        turns = []
        for line in lines:
            seq += 1
            when = START + timedelta(days=60 * number)
            turns.append(Turn(sequence_num=seq, author=author, role="user", text=line, occurred_at=when))
        slice_ = ConversationSlice(turns=tuple(turns), known_facts=tuple(known.values()))
        for fact in local_facts.of_slice(slice_):
            known.pop((fact.fact_type, fact.key), None)
            if not fact.ended:
                known[fact.fact_type, fact.key] = fact
    return {fact.key: fact.value["text"] for fact in known.values()}


@pytest.mark.parametrize(
    ("before", "after", "gone", "holds"),
    [
        # A relative's work, home or studies have one value; what they no longer do gives way to what they do.
        ("我媳妇在超市收银", "媳妇不在超市干了 去幼儿园当生活老师了", "超市", "生活老师"),
        ("我妈住院了 肺炎", "我妈好了 能下地干活了", "肺炎", None),
        ("My mum is in hospital with pneumonia.", "Mum's out of hospital.", "pneumonia", None),
        # One boss at a time.
        ("My boss is called Gaz", "new boss is called Winston", "Gaz", "Winston"),
        # A plan ends when it has come about, or has another date.
        ("I've got my driving test on the 11th of Feb.", "PASSED MY DRIVING TEST", "11th", None),
        ("下个月十五号店庆，搞个活动", "店庆改成二十五号了", "十五号店庆", "二十五号"),
        ("每周三晚上有组会", "组会改到周五下午了", "周三", "周五"),
        # An end of a pursuit ends every fact about it.
        ("我最近在学古琴，每周六上午一节课。", "古琴停了，医生不让弹。", "古琴", None),
        # A partnership at work, and a rule.
        ("我跟我表哥合伙的", "我跟表哥散伙了", "合伙", None),
        ("请您以后的文稿都用表格。", "表格的要求取消吧。", "表格", None),
        # Corrections are read in their normal spelling.
        ("keep answers to one line", "u can write more than one line now", "keep answers", None),
        # New work in another conversation is the work.
        ("I'm a nurse at a clinic.", "I'm head of platform at a bank.", "nurse", "head of platform"),
    ],
)
def test_a_later_conversation_says_what_holds(before: str, after: str, gone: str, holds: str | None) -> None:
    assert any(gone in text for text in held_after([before]).values())
    texts = held_after([before], [after]).values()
    assert not any(gone in text for text in texts)
    assert holds is None or any(holds in text for text in texts)


@pytest.mark.parametrize(
    ("before", "after", "stays"),
    [
        ("My husband is a chef.", "I quit my job.", "chef"),
        ("我老公在银行上班。", "我辞职了。", "银行"),
        ("I'm a nurse at a clinic.", "I also work as a barista at weekends.", "nurse"),
        ("My sister Ana lives in Madrid.", "My sister Bea lives in Rome.", "Ana"),
        # Neither where somebody still lives nor one shared name means that a plan has come about.
        ("I'm moving to Spain in June.", "I live in Leeds.", "Spain"),
        ("I'm going on a trip to Japan with Anna in June.", "My friend Anna got married.", "Japan"),
        ("我妈在医院上班。", "我老板娘住院了。", "医院上班"),
    ],
)
def test_what_is_of_another_or_beside_it_stays(before: str, after: str, stays: str) -> None:
    assert any(stays in text for text in held_after([before], [after]).values())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "I run a small flower shop in Hexham, people buy more if there's cake",
            {"runs a small flower shop in Hexham"},
        ),
        ("我店在绵阳 开了六年了 八张桌子", {"店在绵阳"}),
        ("生了！六月二号 女儿", {"生了，六月二号，女儿"}),
        ("阿毛辞职了 回老家结婚去了", set()),
        ("She came. Changed her mind in September.", set()),
        ("It's been a long week. Moved to Bristol.", {"lives in Bristol"}),
        ("名字叫啥", set()),
        ("四川人不吃辣", set()),
        ("如果考上了我就请客", set()),
    ],
)
def test_a_text_is_read_by_its_grammar(text: str, said: set[str]) -> None:
    assert set(held_after([text]).values()) >= said
    assert said or not held_after([text])


def test_a_turn_that_names_its_speaker_is_read_without_the_name() -> None:
    """Several names in one author's turns are several people; a single one is the author."""
    assert held_after(["Mei: Not at all", "Mei: I live in Porto"], author="Mei") == {"mei:home": "lives in Porto"}
    texts = held_after(["Mei: I live in Porto", "Bo: I live in Rome", "Mei: ok", "Bo: ok"])
    assert texts == {"mei:home": "lives in Porto", "bo:home": "lives in Rome"}
    assert held_after(["Note: I live in Porto"]) == {"home": "lives in Porto"}
    meals = held_after(["Breakfast: I had eggs", "Lunch: I live in Porto", "Breakfast: eggs", "Lunch: soup"])
    assert set(meals) == {"home"}
    copied = held_after(["Me: I live in Porto", "Mum: ok", "Me: good", "Mum: I live in Rome"])
    assert copied["home"] == "lives in Porto"
