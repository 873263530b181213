"""Corrections that give nothing but what is right, as the local provider reads them."""

from __future__ import annotations

import pytest

from hippocampus.providers.local import facts as local_facts
from tests.support.provider_conformance import conversation

PUT_RIGHT = [
    (["I live in Turin.", "No wait, it's Genoa."], ["lives in Genoa"]),
    (["I'm allergic to codeine.", "No wait, it was morphine."], ["is allergic to morphine"]),
    (
        ["I'm allergic to wasps and codeine.", "Sorry, it's morphine."],
        ["is allergic to wasps", "is allergic to morphine"],
    ),
    (["We have two goats.", "Actually three."], ["has three goats"]),
    (["My daughter is nine.", "Sorry, ten."], ["has a daughter aged ten"]),
    (["The audit is on Tuesday.", "No, Thursday."], ["audit is on Thursday"]),
    (["I work at Arup.", "Correction: at Mott."], ["works at Mott"]),
    (["My brother is called Nils.", "Sorry, it's Lars."], ["has a brother called Lars"]),
    (["My aunt lives in Bath.", "No, she lives in Wells."], ["has a aunt who lives in Wells"]),
    (["My aunt lives in Bath. She is a tailor. No, she lives in Wells."], ["lives in Wells", "is a tailor"]),
    (["I live in Turin, no wait, in Genoa."], ["lives in Genoa"]),
    (["我住在无锡。", "不对，是常州。"], ["住在常州"]),
    (["我住在无锡，不对，是常州。"], ["住在常州"]),
    (["我对虾过敏。", "说错了，是蟹。"], ["对蟹过敏"]),
    (["我养了两只兔子。", "不对，是三只。"], ["三只兔子"]),
    (["我儿子今年七岁。", "不对，八岁。"], ["儿子八岁"]),
    (["下周三我要去开会。", "不对，是周四。"], ["下周四去开会"]),
    (["我舅舅住在无锡。", "不对，他住在常州。"], ["舅舅住在常州"]),
    (["I live in Turin.", "No, Bristol."], ["lives in Bristol"]),
    (["I live in Turin.", "Sorry, I meant Genoa."], ["lives in Genoa"]),
    (["I live in Turin.", "Actually, it's Genoa."], ["lives in Genoa"]),
    (["My name is Anna.", "Sorry, it's Hanna."], ["is called Hanna"]),
    (["My brother is called Nils.", "No, Lars."], ["has a brother called Lars"]),
    (["My brother is called Nils.", "It was a nice day in July.", "No, Lars."], ["has a brother called Lars"]),
    (["I program in Java.", "No, Python."], ["programs in Python"]),
    (["My dog is called Rex.", "Sorry, it's Max."], ["has a dog called Max"]),
    (["I work at Arup and live in Leeds.", "No, at Mott."], ["works at Mott", "lives in Leeds"]),
    (["I work at Arup and live in Leeds.", "No, in York."], ["works at Arup", "lives in York"]),
    (["My sister Ann lives in Leeds.", "No, she lives in York."], ["has a sister called Ann", "lives in York"]),
    (["My aunt lives in Bath. I live in Leeds.", "No, she lives in York."], ["lives in York", "lives in Leeds"]),
    (["I speak Spanish.", "No wait, Italian."], ["speaks Italian"]),
    (["I play the cello.", "No wait, the viola."], ["plays viola"]),
    (["I like hiking.", "I mean climbing."], ["likes climbing"]),
    (["I study history.", "I mean geography."], ["studies geography"]),
    (["I'm a nurse.", "I mean a secretary."], ["is a secretary"]),
    (["I'm allergic to penicillin.", "Actually it's amoxicillin."], ["is allergic to amoxicillin"]),
    (["I'm allergic to codeine.", "No wait, garlic."], ["is allergic to garlic"]),
    (["I take insulin.", "Sorry, it's metformin."], ["takes metformin"]),
    (["我叫小明。", "不好意思，是小亮。"], ["名叫小亮"]),
    (["我住在无锡。", "不好意思，应该是常州。"], ["住在常州"]),
    (["我住在无锡。", "不对，常州。"], ["住在常州"]),
    (["我叫小明，住在无锡。", "不对，是常州。"], ["名叫小明", "住在常州"]),
    (["我对虾过敏。", "不对，螃蟹。"], ["对螃蟹过敏"]),
    (["我喜欢打篮球。", "不对，是羽毛球。"], ["喜欢羽毛球"]),
    (["妈妈住在北京。", "不对，她在天津。"], ["妈妈住在天津"]),
    (["下周三我要去开会。", "不好意思，是周四。"], ["下周四去开会"]),
]


@pytest.mark.parametrize(("lines", "texts"), PUT_RIGHT)
def test_what_was_wrong_gives_way_to_what_is_right(lines: list[str], texts: list[str]) -> None:
    """The statement is read again with what is right in it, whatever became of its key."""
    held = [fact for fact in local_facts.of_slice(conversation(*(("user", line) for line in lines))) if not fact.ended]
    assert len(held) == len(texts)
    for fact, text in zip(held, texts, strict=True):
        assert text.split(" ", 2)[-1] in fact.value["text"]
    assert max(seq for fact in held for seq in fact.source_seqs) == len(lines)


@pytest.mark.parametrize(
    "answer",
    [
        "No, thanks.",
        "No worries.",
        "Wait, never.",
        "No, Ben is.",
        "Actually good idea.",
        "Sorry, Tim.",
        "不对吧。",
        "不是，谢谢。",
    ],
)
def test_an_answer_that_corrects_nothing_changes_nothing(answer: str) -> None:
    (held,) = local_facts.of_slice(conversation(("user", "My cousin is called Tom."), ("user", answer)))
    assert (held.value["text"], held.ended) == ("has a cousin called Tom", False)


#: What was stated, and what sounds like a correction of it.
HARMLESS = [
    (["I live in Turin.", "No, Thanks."], ["lives in Turin"]),
    (["I live in Turin.", "Oops, LOL."], ["lives in Turin"]),
    (["I'm off sugar, no wait, salt."], ["is off sugar"]),
    (["I take warfarin.", "Sorry, it's embarrassing."], ["takes warfarin"]),
    (["I'm a nurse.", "I mean nights."], ["is a nurse"]),
    (["I'm a nurse.", "I mean mornings."], ["is a nurse"]),
    (["I take warfarin.", "Actually it's working."], ["takes warfarin"]),
    (["I'm allergic to penicillin.", "Sorry, it's hereditary."], ["is allergic to penicillin"]),
    (["I'm allergic to nuts.", "No, it's awful."], ["is allergic to nuts"]),
    (["I'm allergic to nuts.", "I mean pretty bad."], ["is allergic to nuts"]),
    (["I live in Turin.", "Wait, Sarah!"], ["lives in Turin"]),
    (["I live in Turin.", "Wait, Genoveva!"], ["lives in Turin"]),
    (["I live in Turin.", "Hold on, Tim."], ["lives in Turin"]),
    (["I live in Turin.", "No, Alexa."], ["lives in Turin"]),
    (["I live in Turin.", "Actually, OK."], ["lives in Turin"]),
    (["I live in Turin.", "Sorry, it's Sarah."], ["lives in Turin"]),
    (["I live in Turin.", "Sorry, I have Netflix."], ["lives in Turin"]),
    (["I live in Turin.", "No, it's Italian."], ["lives in Turin"]),
    (["I live in Turin.", "Actually, she is Anna."], ["lives in Turin"]),
    (["I work at Google and live in Leeds.", "No, Microsoft."], ["works at Google", "lives in Leeds"]),
    (
        ["My brother is called Nils and my son is called Tim.", "No, Lars."],
        ["has a brother called Nils", "has a son called Tim"],
    ),
    (
        ["My sister lives in Leeds and my aunt lives in Bath.", "No, she lives in York."],
        ["has a sister who lives in Leeds", "has a aunt who lives in Bath"],
    ),
    (
        ["My sister lives in Leeds. My aunt lives in Bath. No, she lives in York."],
        ["has a sister who lives in Leeds", "has a aunt who lives in Bath"],
    ),
    (["妈妈住在北京。我住在上海。", "不对，她在天津。"], ["妈妈住在北京", "住在上海"]),
    (["我妈妈住在北京，我爸爸住在上海。", "不对，她在天津。"], ["妈妈住在北京", "爸爸住在上海"]),
    (["我妈妈住在北京。我爸爸住在上海。", "不对，她住在天津。"], ["妈妈住在北京", "爸爸住在上海"]),
    (["我叫小明。", "不好意思，迟到"], ["名叫小明"]),
    (["我叫小明，住在无锡。", "不对，是小亮。"], ["名叫小明", "住在无锡"]),
    (["我住在无锡。", "等一下，快递来"], ["住在无锡"]),
    (["我住在无锡。", "不对，今天是周三。"], ["住在无锡"]),
    (["我住在无锡。", "不对，下雨。"], ["住在无锡"]),
    (["我对虾过敏。", "不好意思，手滑"], ["对虾过敏"]),
    (["我喜欢打篮球。", "等一下，接个电话"], ["喜欢打篮球"]),
    (["My brother is called Tom.", "No, Monday."], ["has a brother called Tom"]),
    (["My brother is called Tom.", "No, Windows."], ["has a brother called Tom"]),
    (["My son is called Ben.", "No, Python."], ["has a son called Ben"]),
    (["My brother Tom loves Linux.", "No, Debian."], ["has a brother called Tom"]),
    (["My brother is called Tom.", "I watched Alien.", "No, Brazil."], ["has a brother called Tom"]),
    (["My brother is called Tom. I watched Alien.", "No wait, Brazil."], ["has a brother called Tom"]),
    (["I live in Leeds.", "No, Windows."], ["lives in Leeds"]),
]


@pytest.mark.parametrize(("lines", "texts"), HARMLESS)
def test_what_only_sounds_like_a_correction_changes_nothing(lines: list[str], texts: list[str]) -> None:
    """Nothing ends unless the statement, read again, states as much as before."""
    held = local_facts.of_slice(conversation(*(("user", line) for line in lines)))
    assert [(fact.value["text"], fact.ended) for fact in held] == [(text, False) for text in texts]


@pytest.mark.parametrize("answer", ["No, Ben.", "No, Thursday?"])
def test_an_answer_to_a_question_is_no_correction(answer: str) -> None:
    lines = [("user", "Our call with Tom is on Tuesday."), ("model", "Will Tom lead it?"), ("user", answer)]
    assert [fact.value["text"] for fact in local_facts.of_slice(conversation(*lines))] == [
        "their call with Tom is on Tuesday"
    ]


def test_a_summary_has_the_statement_as_it_was_put_right() -> None:
    reading = local_facts.read(
        conversation(("user", "I'm allergic to codeine."), ("user", "No wait, it was morphine."))
    )
    assert dict(reading.corrected) == {(1, 0): "I'm allergic to morphine.", (2, 0): None}


@pytest.mark.parametrize(
    ("before", "after", "holds"),
    [
        ("Answer in Danish from now on.", "Answer in English from now on.", 1),
        ("Please always reply in Czech.", "From now on, always reply in English.", 1),
        ("以后都用英文回复我。", "以后用中文回答我吧。", 1),
        ("Always answer in Danish when I ask about my thesis.", "Answer in English from now on.", 2),
    ],
)
def test_one_language_holds(before: str, after: str, holds: int) -> None:
    """A rule to answer in a language ends with the next one, unless it is for something in particular."""
    facts = local_facts.of_slice(conversation(("user", before), ("user", after)))
    assert len([fact for fact in facts if not fact.ended]) == holds
