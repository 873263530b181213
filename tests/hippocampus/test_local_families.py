"""Facts of the local provider where no pattern knows the sentence: what a clause is about, by its words."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from hippocampus.providers.local import facts
from hippocampus.records import ConversationSlice, ExtractedFact, Turn
from hippocampus.text import times
from tests.support.pace import cpu_seconds

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)  # a Monday


def stated(*lines: str, author: str = "user") -> list[ExtractedFact]:
    turns = [
        Turn(sequence_num=number, author=author, role="user", text=line, occurred_at=NOW)
        for number, line in enumerate(lines, 1)
    ]
    return facts.of_slice(ConversationSlice(turns=tuple(turns)))


def held(*lines: str) -> dict[str, str]:
    """The texts that hold in the end, by key."""
    return {fact.key: fact.value["text"] for fact in stated(*lines) if not fact.ended}


@pytest.mark.parametrize(
    ("line", "key", "words"),
    [
        ("no beans for me, doc's orders", "diet:beans", "beans"),
        ("my back's shot these days", "health:back", "back"),
        ("doc also put me on allopurinol for the gout", "medication:allopurinol", "allopurinol"),
        ("shrimp makes my face swell up", "allergy:shrimp", "shrimp"),
        ("they made me sous chef last week!", "occupation", "sous chef"),
        ("doing local deliveries for a bakery supply outfit now", "occupation", "deliveries"),
        ("we're in a second floor flat in Walthamstow", "home", "Walthamstow"),
        ("first week in Hitchin, boxes everywhere", "home", "Hitchin"),
        ("so the dog's name is Waylon in the end", "pet:waylon", "Waylon"),
        ("practice is 5am monday wednesday friday", "habit:practice", "5am"),
        ("can't abide sultanas", "preference:sultanas", "sultanas"),
        ("my mum finished chemo in January", "family:mum:chemo:medication", "chemo"),
        ("10 day trip to Brittany booked for the end of July", "plan", "Brittany"),
        ("can you give me distances in miles please, always", "rule", "miles"),
        ("我这腰不行了，坐久了就麻", "health:腰", "腰"),
        ("上个礼拜进了京东仓库当分拣员", "occupation", "分拣员"),
        ("我跟一个同事合租，在静安寺附近", "home", "静安寺"),
        ("改吃氯沙坦了", "medication:氯沙坦", "氯沙坦"),
        ("跟我说话别整那些虚的", "rule", "虚"),
        ("我练太极，每天早晨六点在小区练四十分钟", "habit", "太极"),
        ("媳妇儿又怀上了，十月份生", "family", "十月"),
        ("一点辣的都吃不了", "diet", "辣"),
    ],
)
def test_a_clause_is_kept_for_what_it_is_about(line: str, key: str, words: str) -> None:
    """The words decide, not the construction; the clause is kept in the third person."""
    found = [(each, text) for each, text in held(line).items() if words in text]
    assert any(each.startswith(key) for each, _ in found), held(line)
    assert not any(text.startswith(("I ", "we ", "我")) for _, text in found)


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("I'm seeing the doctor in 10 days", "plan:seeing_the_doctor"),
        ("I'm seeing a physio on Friday", "plan:seeing_a_physio"),
        ("I'm meeting the accountant in two weeks", "plan:meeting_the_accountant"),
        ("I'm calling the electrician in 2 days", "plan:calling_the_electrician"),
        ("I'm talking to the lawyer in 2 days", "plan:talking_to_the_lawyer"),
        ("We're hiring a nanny from May", "plan:hiring_a_nanny"),
        ("I'm waiting for the plumber in the kitchen", None),
        ("I'm off to the dentist in an hour", None),
        ("I'm paying the plumber in cash", None),
        ("I'm the new head chef at the Ivy", "occupation"),
        ("I'm head nurse at the Royal", "occupation"),
        ("I'm becoming a teacher in Bath", "occupation"),
        ("I'm working as a doctor in Leeds", "occupation"),
    ],
)
def test_whom_somebody_sees_is_not_what_they_are(line: str, key: str | None) -> None:
    """A determiner within what would be the occupation says that it is another's."""
    assert list(held(line)) == ([] if key is None else [key])


@pytest.mark.parametrize("whom", ["aunt", "brother", "dad", "parents", "friend", "nan"])
@pytest.mark.parametrize("time", ["two weeks from now", "ten days from today", "a month from now", "3 weeks from now"])
def test_how_long_until_then_is_nobodys_name(whom: str, time: str) -> None:
    """A relative before a distance in time: the plan is that of any other time, and no name is kept."""
    line = f"I'm visiting my {whom}"
    assert set(held(f"{line} {time}")) == set(held(f"{line} in two weeks"))
    assert f"plan:visiting_their_{whom}" in held(f"{line} {time}")


@pytest.mark.parametrize(
    "line",
    [
        "I'm picking up my dad two hours from now",
        "We see my cousin six months from now",
        "I've spoken to my brother three times",
        "I see my mum most days",
    ],
)
def test_a_number_of_times_is_nobodys_name(line: str) -> None:
    assert not [key for key in held(line) if key.endswith(":name")]
    assert "family:brother:dave:name" in held("my brother dave works nights")


@pytest.mark.parametrize(
    "line",
    [
        "what is a good recipe without dairy",
        "thinking about getting a cat",
        "The 9th is fine.",
        "guess who has a kitten",
        "I'm considering a move to Spain.",
        "Tom has asthma and lives in Rome.",
        "试过了。",
        "还有三周，来得及。",
        "异地不容易哦",
        "下雨停了",
    ],
)
def test_chatter_is_not_kept(line: str) -> None:
    """Asides, considerations and what is said of strangers state nothing."""
    assert held(line) == {}


@pytest.mark.parametrize(
    ("lines", "gone", "there"),
    [
        (["I live in Leeds.", "First week in Hitchin, boxes everywhere."], "Leeds", "Hitchin"),
        (["I'm a chef at Fado.", "They made me head chef at Luz!"], "Fado", "Luz"),
        (["Cow's milk is out for me.", "It was reflux, so I'm back on the cheese."], "milk", ""),
        (["I surf a little bit.", "I don't surf anymore since I hurt the shoulder."], "surf", "shoulder"),
        (["I take amlodipine every day.", "Switched to losartan, I take it now."], "amlodipine", "losartan"),
        (["每天吃一片氨氯地平", "上个月换了药，改吃氯沙坦了"], "氨氯地平", "氯沙坦"),
        (["我想考武大的法学", "不考武大了，换成中南财大"], "武大", "中南财大"),
        (["我在福州教吉他", "吉他班我停了，在家带娃"], "福州", "带娃"),
        (["我准备辞职了", "去一家公司做设计，八月一号入职"], "辞职", "设计"),
    ],
)
def test_what_changed_gives_way(lines: list[str], gone: str, there: str) -> None:
    """The former state ends with the new one, or with what takes it back."""
    texts = list(held(*lines).values())
    assert not any(gone in text for text in texts), texts
    assert any(there in text for text in texts) or not there, texts


@pytest.mark.parametrize(
    ("line", "when"),
    [
        ("We're flying to Rome next Friday.", "2026-03-06"),
        ("My wedding is on 14 June.", "2026-06-14"),
        ("I graduated from nursing school last year.", "2025"),
        ("下周三去北京出差", "2026-03-11"),
        ("我打算五月搬家", "2026-05"),
    ],
)
def test_a_time_is_kept_as_a_date(line: str, when: str) -> None:
    """Relative times are resolved against the turn's; a plan's month is the next one, an event's the last one."""
    assert [fact.value.get("when") for fact in stated(line)] == [when]


def test_a_moved_plan_has_the_new_date() -> None:
    """The date follows the correction."""
    moved = stated("My wedding is on 14 June.", "Scratch that, the wedding is on the 21st of June.")
    assert [fact.value["when"] for fact in moved if not fact.ended] == ["2026-06-21"]


def test_spans_are_written_as_short_as_they_are() -> None:
    """A day, a month and a year have their own form; anything else has two days."""
    texts = ("yesterday", "last month", "last year", "last week")
    spans = [times.resolve(text, NOW, ahead=False) for text in texts]
    assert [times.iso_dates(span) for span in spans if span] == [
        "2026-03-01",
        "2026-02",
        "2025",
        "2026-02-23/2026-03-01",
    ]
    assert times.resolve("no time at all", NOW, ahead=True) is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Please remember that my mother is deaf.", "mother is deaf"),
        ("Don't forget I work nights on Fridays.", "nights"),
        ("记住，我左耳听不见", "左耳"),
    ],
)
def test_what_is_to_be_remembered_is_a_rule(line: str, words: str) -> None:
    """Rules have their place in every window."""
    assert any(fact.fact_type == "rule" and words in fact.value["text"] for fact in stated(line))


@pytest.mark.parametrize("line", ["Remember when we went to Rome?", "Don't forget to buy milk.", "别忘了买牛奶"])
def test_a_reminder_is_no_rule(line: str) -> None:
    """What is to be done once does not last."""
    assert not any(fact.fact_type == "rule" for fact in stated(line))


def test_friends_are_kept_by_name_only_between_named_speakers() -> None:
    """People who know each other speak of others by name; a user's stranger is nobody's fact."""
    assert stated("Frank has been diagnosed with diabetes.") == []
    (fact,) = stated("Frank has been diagnosed with diabetes.", author="Ivy")
    assert fact.value["subject"] == "Ivy"
    assert "Frank" in fact.value["text"]


@pytest.mark.parametrize(
    "line", ["I have a " + "very " * 90 + "dog", "my " + "a " * 75, "I'm " + "going to " * 16, "我" + "在学" * 70]
)
def test_long_clauses_cost_little(line: str) -> None:
    """A clause that no fact could hold is not searched at all; the longest that is takes milliseconds."""
    assert cpu_seconds(lambda: stated(line)) < 3
