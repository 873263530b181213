"""Whose facts a sentence ends or changes: those of whom it speaks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hippocampus.providers.local import facts as local_facts
from hippocampus.providers.local import owners, people
from hippocampus.providers.local.sentences import Sentence
from tests.support.pace import cpu_seconds
from tests.support.provider_conformance import conversation

CHOIR = "I sing in a choir."
ACME = "I work at Acme."
WEDDING = "My wedding is on 14 June."
HUAWEI = "我在华为工作。"
HUNLI = "我的婚礼定在五月二十号。"
CLASS = "我报名了瑜伽班。"

#: What was said before, what is said then, what is known of the speaker, and whether it still holds.
KEPT = [
    ([CHOIR], "Tom dropped out of the choir.", "choir"),
    ([CHOIR], "Tom quit the choir.", "choir"),
    ([CHOIR], "My sister gave up the choir last week.", "choir"),
    ([CHOIR], "A colleague of mine dropped out of her choir.", "choir"),
    ([CHOIR], "I had lunch with Tom, he dropped out of the choir.", "choir"),
    ([CHOIR], "I still love it, but Tom dropped out of the choir.", "choir"),
    ([CHOIR], "Tom told me he's dropped out of the choir.", "choir"),
    ([CHOIR], "I heard that Mei dropped out of the choir.", "choir"),
    ([CHOIR], "Tom rang. He dropped out of the choir.", "choir"),
    ([CHOIR], "My friend Tom has dropped out of choir.", "choir"),
    ([CHOIR], "Dr Patel dropped out of her choir.", "choir"),
    ([CHOIR], "Sarah's dropped out of the choir.", "choir"),
    ([CHOIR], "Apparently Ben left the choir.", "choir"),
    ([WEDDING], "Mia and Josh moved their wedding to 2 August.", "14 June"),
    ([ACME], "Tom no longer works at Acme.", "Acme"),
    ([ACME], "My brother quit his job at Acme.", "Acme"),
    ([ACME], "My husband got a new job at Bosch.", "Acme"),
    ([ACME], "My neighbour retired from Acme, she is 66 now.", "Acme"),
    (["I live in Leeds."], "My sister moved out of Leeds.", "Leeds"),
    (["I live in Leeds."], "Tom moved to York.", "Leeds"),
    (["I'm allergic to peanuts."], "Turns out Tom isn't allergic to peanuts after all.", "peanuts"),
    (["I'm allergic to peanuts."], "My son's peanut allergy is gone.", "peanuts"),
    ([WEDDING], "My sister moved her wedding to 5 July.", "14 June"),
    ([WEDDING], "Tom postponed his wedding to August.", "14 June"),
    ([WEDDING], "My sister's wedding was moved to 5 July.", "14 June"),
    (["I'm training for the marathon in May."], "Ana pulled out of the marathon.", "marathon"),
    (["I'm flying to Oslo on Friday."], "My boss is flying to Oslo on Saturday instead.", "Friday"),
    (["I take metformin every day."], "My dad stopped taking metformin.", "metformin"),
    (["I'm vegan."], "My flatmate isn't vegan any more.", "vegan"),
    ([HUAWEI], "小王从华为离职了。", "华为"),
    ([HUAWEI], "我同事小王上周从华为离职了。", "华为"),
    ([HUAWEI], "我妹妹从华为辞职了。", "华为"),
    ([HUAWEI], "听小李说，老张被裁了。", "华为"),
    ([HUAWEI], "我们部门的小李离职了。", "华为"),
    ([HUAWEI], "张伟从华为离职了。", "华为"),
    ([HUAWEI], "我们组长离职了。", "华为"),
    ([HUAWEI], "我有个朋友刚从华为离职。", "华为"),
    ([HUAWEI], "我老公换工作了，他离职了。", "华为"),
    ([HUNLI], "我妹妹的婚礼改到六月一号了。", "五月二十号"),
    ([HUNLI], "小王的婚礼推迟到八月了。", "五月二十号"),
    (["我每天早上跑步。"], "我爸爸不跑步了。", "跑步"),
    ([CLASS], "小李退出瑜伽班了。", "瑜伽班"),
    ([CLASS], "我同学不上瑜伽班了。", "瑜伽班"),
    (["我对芒果过敏。"], "我儿子对芒果不过敏了。", "芒果"),
    (["我住在杭州。"], "我姐姐搬到成都了。", "杭州"),
    (["我下周五去北京出差。"], "老板的出差改到周六了。", "周五"),
    (["我爸爸在学校工作。"], "我爸爸很好，她辞职了。", "在学校工作"),
]
#: So, but of the speaker: what was known holds no longer.
ENDED = [
    ([CHOIR], "my sister left and i dropped out of the choir", "choir"),
    ([CHOIR], "btw dropped out of the choir", "choir"),
    ([WEDDING], "My boss moved my wedding to 2 August.", "14 June"),
    (["我下周三和小王吃饭。"], "小王说改到周四。", "下周三"),
    ([HUAWEI], "今天天气不错，" * 100 + "我从华为离职了。", "华为"),
    ([CHOIR], "Dropped out of the choir last week.", "in a choir"),
    ([CHOIR], "I quit the choir.", "in a choir"),
    ([CHOIR], "Tom and I dropped out of the choir.", "in a choir"),
    ([CHOIR], "I told Tom that I dropped out of the choir.", "in a choir"),
    ([CHOIR], "Mom, I dropped out of the choir.", "in a choir"),
    ([CHOIR], "Tom was sad, but I dropped out of the choir.", "in a choir"),
    (["I'm allergic to shellfish."], "Actually I'm not, it was a mistake.", "shellfish"),
    (["I'm allergic to latex."], "Dr Patel says I'm not allergic to latex after all.", "latex"),
    (["I live in York."], "Tom and I moved to Leeds.", "York"),
    (["I live in York."], "Mom, I moved to Leeds.", "York"),
    ([WEDDING], "My wedding was moved to 5 July.", "14 June"),
    ([WEDDING], "The wedding has been moved to 5 July.", "14 June"),
    (["I'm moving to Berlin next spring."], "The move to Berlin is off.", "Berlin"),
    (["My sister's wedding is on 3 May."], "My sister moved her wedding to 5 July.", "3 May"),
    (["My sister Ana works at Acme."], "Ana works at Bosch now.", "works at Acme"),
    ([HUAWEI], "我从华为离职了。", "在华为工作"),
    ([HUAWEI], "离职了。", "在华为工作"),
    ([HUAWEI], "上周从华为离职了。", "在华为工作"),
    ([HUAWEI], "我和小王都从华为离职了。", "在华为工作"),
    ([HUAWEI], "我跟小王说我从华为离职了。", "在华为工作"),
    ([HUAWEI], "妈，我辞职了。", "在华为工作"),
    (["我对芒果过敏。"], "医生说我对芒果不过敏了。", "芒果"),
    ([HUNLI], "婚礼改到六月一号了。", "五月二十号"),
    ([WEDDING], "The venue moved our wedding to 2 August.", "14 June"),
    (["我下个月去云南旅游。"], "老公说云南不去了。", "云南"),
    (["我女儿住院了。"], "我女儿出院了。", "女儿住院"),
]
#: What is said of others is not kept as the speaker's own.
OTHERS = [
    ("Tom moved to York.", "home"),
    ("My sister moved to York.", "home"),
    ("My doctor is allergic to latex.", "allergy"),
    ("小王搬到了成都。", "home"),
    ("我妹妹对花生过敏。", "allergy"),
    ("小李在腾讯上班。", "employer"),
]
#: A pronoun, of whom nothing is said if it cannot be this relative.
PRONOUNS = [
    ("我爸爸是老师，她住在北京。", ["爸爸是老师"]),
    ("我爸爸是老师，他住在北京。", ["爸爸是老师", "爸爸住在北京"]),
    ("我妈妈是老师。她住在北京。", ["妈妈是老师", "妈妈住在北京"]),
    ("我妈妈是老师。他住在北京。", ["妈妈是老师"]),
    ("我外公是老师。她住在北京。", ["外公是老师"]),
    ("我外婆是老师。她住在北京。", ["外婆是老师", "外婆住在北京"]),
    ("我室友是老师。她住在北京。", ["室友是老师", "室友住在北京"]),
]
#: What the speaker says of themselves beside others is theirs.
OWN = [
    ("Mom, I moved to Leeds.", "home"),
    ("Tom and I moved to Leeds.", "home"),
    ("Dr Patel says I'm allergic to latex.", "allergy:latex"),
    ("我和小王搬到了成都。", "home"),
]
#: What some rule might read over and over.
PIECES = ["a", "my ", "My sister ", "Tom and ", "Aa Bb ", "the x-", "not a ", "one of my ", "I ", "'s ", "and "]
PIECES += ["现在", "小", "我妹妹", "我们公司的一个", "听说", "王李", "说", "，我"]
CASES = [(*case, True) for case in KEPT] + [(*case, False) for case in ENDED]


@pytest.mark.parametrize("later", [False, True], ids=["in one session", "in a later session"])
@pytest.mark.parametrize(("before", "sentence", "what", "holds"), CASES)
def test_a_sentence_ends_the_facts_of_whom_it_speaks(
    before: list[str], sentence: str, what: str, holds: bool, later: bool
) -> None:
    """What is said of another leaves the speaker's facts alone; what the speaker says of themselves ends them."""
    stated = local_facts.of_slice(conversation(*(("user", line) for line in before)))
    assert any(what in fact.value["text"] for fact in stated), [fact.value["text"] for fact in stated]
    if later:
        slice_ = replace(conversation(("user", sentence), first_seq=len(before) + 1), known_facts=tuple(stated))
    else:
        slice_ = conversation(*(("user", line) for line in (*before, sentence)))
    known = {(fact.fact_type, fact.key): fact for fact in stated}
    known.update({(fact.fact_type, fact.key): fact for fact in local_facts.of_slice(slice_)})
    current = {identity: fact.value["text"] for identity, fact in known.items() if not fact.ended}
    if holds:
        kept = {(fact.fact_type, fact.key): fact.value["text"] for fact in stated}
        assert kept.items() <= current.items()
    else:
        assert not any(what in text for text in current.values()), current


@pytest.mark.parametrize(("sentence", "topic"), OTHERS)
def test_what_is_said_of_others_is_not_the_speakers(sentence: str, topic: str) -> None:
    """A home, an employer or an allergy of another is none of the speaker's."""
    stated = local_facts.of_slice(conversation(("user", sentence)))
    assert not [fact.key for fact in stated if fact.key.split(":")[0] == topic]


@pytest.mark.parametrize(("turn", "texts"), PRONOUNS)
def test_a_pronoun_means_nobody_of_another_gender(turn: str, texts: list[str]) -> None:
    assert [fact.value["text"] for fact in local_facts.of_slice(conversation(("user", turn)))] == texts


@pytest.mark.parametrize(("sentence", "key"), OWN)
def test_what_a_speaker_says_beside_others_is_their_own(sentence: str, key: str) -> None:
    """Whoever is addressed, quoted or comes along: what the speaker says of themselves is kept."""
    assert key in [fact.key for fact in local_facts.of_slice(conversation(("user", sentence)))]


@pytest.mark.parametrize(
    "piece",
    PIECES,
)
def test_no_text_makes_owners_slow(piece: str) -> None:
    """The time to tell owners, and to compare a text with what is known, grows as the text does."""
    text = piece * (20_000 // len(piece))
    sentence = Sentence(text=text, turn=conversation(("user", text)).turns[0], position=0, is_question=False)
    assert cpu_seconds(lambda: owners.Reader(people.People()).parts(sentence)) < 5
    assert cpu_seconds(lambda: local_facts.of_slice(conversation(("user", CHOIR), ("user", text)))) < 5


@pytest.mark.parametrize("said", ["I quit the choir. ", "我退出了合唱团。"])
def test_what_is_ended_again_and_again_takes_no_longer_each_time(said: str) -> None:
    sung = "我参加了合唱团。" if said.startswith("我") else CHOIR
    assert cpu_seconds(lambda: local_facts.of_slice(conversation(("user", sung), ("user", said * 60)))) < 5


def test_what_somebody_forbids_is_not_kept_as_what_the_speaker_does() -> None:
    stated = local_facts.of_slice(conversation(("user", "我每天早上跑步。"), ("user", "医生不让我跑步了。")))
    assert "跑步了" not in [fact.value["text"] for fact in stated]
