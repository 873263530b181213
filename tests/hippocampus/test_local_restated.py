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
