"""What the local provider ends or changes by words that do not repeat what was said, and what it leaves alone."""

from __future__ import annotations

import json

import pytest

from hippocampus.providers.local import ended, summary
from hippocampus.providers.local import facts as local_facts
from tests.hippocampus.test_local_present import held_after
from tests.support.pace import cpu_seconds
from tests.support.paths import EXAMPLES
from tests.support.provider_conformance import conversation

ENDED = [
    ("I work at Lidl.", "I got fired from Lidl.", "works at Lidl"),
    ("I work at Lidl.", "I was laid off last week.", "works at Lidl"),
    ("I work at Lidl.", "I've been made redundant.", "works at Lidl"),
    ("I work at Lidl.", "I got the sack.", "works at Lidl"),
    ("I work at Lidl.", "I don't work there anymore.", "works at Lidl"),
    ("I work at Lidl.", "I no longer work there.", "works at Lidl"),
    ("I work at Lidl.", "I've left Lidl.", "works at Lidl"),
    ("I work at Lidl.", "Lidl let me go.", "works at Lidl"),
    ("I work at Lidl.", "They fired me.", "works at Lidl"),
    ("I work at Lidl.", "I'm out of work at the moment.", "works at Lidl"),
    ("I'm allergic to shellfish.", "I can eat shellfish again.", "shellfish"),
    ("I'm allergic to shellfish.", "I'm able to eat shellfish now.", "shellfish"),
    ("I'm allergic to shellfish.", "I'm allowed to eat shellfish again!", "shellfish"),
    ("I'm allergic to shellfish.", "I tested negative for the allergy.", "allerg"),
    ("I'm allergic to shellfish.", "I tested negative for the shellfish allergy.", "allerg"),
    ("I'm allergic to shellfish.", "My allergy test came back negative.", "is allergic to"),
    ("I'm allergic to shellfish.", "I've grown out of the shellfish allergy.", "is allergic to"),
    ("I'm allergic to shellfish.", "Turns out the shellfish allergy was a mistake.", "shellfish"),
    ("I'm allergic to shellfish.", "The shellfish allergy was a false alarm.", "shellfish"),
    ("I'm allergic to shellfish.", "My shellfish allergy turned out to be a misdiagnosis.", "shellfish"),
    ("I'm allergic to shellfish.", "Good news, no shellfish allergy after all!", "shellfish"),
    ("I'm allergic to shellfish.", "They tested me and the shellfish allergy isn't real.", "shellfish"),
    ("I'm allergic to shellfish.", "I'm fine with shellfish now.", "is allergic to"),
    ("I'm allergic to milk.", "It's actually lactose intolerance.", "allergic"),
    ("I'm vegetarian.", "I've started eating meat again.", "is vegetarian"),
    ("I'm vegetarian.", "I eat fish again.", "is vegetarian"),
    ("I'm vegan.", "I'm back to eating cheese.", "is vegan"),
    ("Always use bullet points.", "Bullet points aren't needed any more.", "bullet"),
    ("Please keep your answers short.", "You can be more detailed now.", "short"),
    ("Please keep your answers short.", "Longer answers are fine now.", "short"),
    ("Please keep your answers short.", "Detailed replies are OK again.", "short"),
    ("Please keep your answers short.", "You can write longer answers again.", "keep your answers short"),
    ("Please always keep your answers short.", "Forget the short answers.", "short"),
    ("I love coffee.", "I've gone off coffee.", "likes coffee"),
    ("I love coffee.", "I've lost interest in coffee.", "likes coffee"),
    ("I'm a student at Leeds University.", "I graduated in June.", "student"),
    ("I'm studying law.", "I've finished uni!", "studies law"),
    ("I'm studying law.", "I got my degree last week.", "studies law"),
    ("I'm single.", "I've met someone.", "single"),
    ("I'm single.", "I got a girlfriend.", "is single"),
    ("I have a bad hip.", "They replaced the hip in January.", "bad hip"),
    ("I have a bad knee.", "I finally had the knee done.", "bad knee"),
    ("I've got my driving test on the 11th of Feb.", "PASSED MY TEST", "11th"),
    ("I have an exam on 11 February.", "I've passed the exam!", "11 February"),
    ("I work as a lecturer.", "I stepped down as a lecturer.", "works as a lecturer"),
    ("I'm an au pair in Dublin.", "Not an au pair anymore.", "is an au pair"),
    ("Please always correct my English.", "You don't need to correct my English any more.", "always"),
    ("以后你帮我算账都按市斤算。", "算账那个，你用公斤也行了。", "按市斤"),
    ("我打算五月十号考B级。", "B级拿下了。", "打算"),
    ("我在京东上班。", "我被裁了。", "京东"),
    ("我在京东上班。", "我被公司开除了。", "京东"),
    ("我在京东上班。", "我已经不在那儿上班了。", "京东上班"),
    ("我吃素。", "我又开始吃肉了。", "吃素"),
    ("我吃素。", "我现在吃肉了。", "吃素"),
    ("我对虾过敏。", "能吃虾了。", "过敏"),
    ("我对虾过敏。", "我现在可以吃虾了。", "过敏"),
    ("我对虾过敏。", "虾过敏那个是误诊。", "虾"),
    ("我对虾过敏。", "过敏是误诊。", "虾"),
    ("我对虾过敏。", "复查过敏原，结果是阴性。", "对虾过敏"),
    ("我对牛奶过敏。", "其实是乳糖不耐受。", "过敏"),
    ("以后请简短回答。", "可以详细一点了。", "简短"),
    ("以后回答请简短一点。", "可以说得详细些了。", "简短"),
    ("以后回答请简短一点。", "不用那么简短了。", "简短一点"),
    ("以后不要用表情符号。", "表情符号可以用了。", "不要"),
    ("以后别发表情。", "表情可以发了。", "别"),
    ("我是大学生。", "我毕业了。", "大学生"),
    ("我在读研二。", "我硕士毕业了。", "研二"),
    ("我戒烟了。", "我又抽上烟了。", "不吃"),
    ("我每天早上跑步。", "我不跑步了。", "跑步"),
]


@pytest.mark.parametrize(("before", "after", "gone"), ENDED)
def test_what_is_over_in_other_words_ends(before: str, after: str, gone: str) -> None:
    """In the same conversation and in a later one."""
    assert held_after([before])
    for held in (held_after([before], [after]), held_after([before, after])):
        assert not any(gone in text for text in held.values()), held
        assert "relationship_status" not in held or "met" in held["relationship_status"] or "girl" in str(held)


CHANGED = [
    ("My mum lives with us.", "Mum moved into a care home.", {"has a mum who moved into a care home"}),
    ("My mum lives with us.", "Mum's gone back to Leeds.", {"has a mum who moved back to Leeds"}),
    ("Please always answer in French.", "Go back to English please.", {"always answer in English"}),
    ("Please always answer in French.", "Back to English, please.", {"always answer in English"}),
    ("Please always answer in French.", "English again please.", {"always answer in English"}),
    ("Please always answer in French.", "English is fine again.", {"always answer in English"}),
    ("Call me Liz.", "Actually I prefer Elizabeth.", {"is called Elizabeth"}),
    ("Call me Liz.", "I prefer to be called Beth.", {"is called Beth"}),
    ("Call me Liz.", "I go by Elizabeth now.", {"is called Elizabeth"}),
    ("I'm learning Spanish.", "I'm learning Portuguese instead of Spanish.", {"studies Portuguese"}),
    ("I play the cello.", "I play the viola instead of the cello.", {"plays viola"}),
    ("My number is 07700 900123.", "New number: 07700 900456.", {"has the number 07700 900456"}),
    ("My number is 07700 900123.", "I have a new number: 07700 900456.", {"has the number 07700 900456"}),
    ("My number is 07700 900123.", "My new number is 07700 900456.", {"has the number 07700 900456"}),
    ("My number is 07700 900123.", "My number has changed, it's 07700 900456.", {"has the number 07700 900456"}),
    ("I'm allergic to nuts and eggs.", "Only nuts actually, not eggs.", {"is allergic to nuts"}),
    ("I'm allergic to nuts and eggs.", "Actually just nuts, not eggs.", {"is allergic to nuts"}),
    ("My flight is on 10 April.", "It's been moved to the 14th.", {"flight is on the 14th of April"}),
    ("My flight is on 10 April.", "The flight got pushed back to the 14th.", {"flight is on the 14th of April"}),
    ("I live in Bristol.", "I said Bristol but it's actually Bath.", {"lives in Bath"}),
    ("I live in Bristol.", "I said Bristol, I meant Bath.", {"lives in Bath"}),
    ("以后请用英语回答。", "还是用中文吧。", {"以后请用中文回答"}),
    ("以后请用英语回答。", "换回中文吧。", {"以后请用中文回答"}),
    ("我每天早上跑步。", "不跑了，改游泳。", {"每天早上游泳"}),
    ("我女儿叫小雪。", "女儿改名叫小雨。", {"女儿叫小雨"}),
    ("叫我小李。", "以后叫我李老师。", {"名叫李老师", "以后叫本人李老师"}),
    ("我对虾和鸡蛋过敏。", "其实只有虾，没有鸡蛋。", {"对虾过敏"}),
    ("我住在苏州。", "刚才说苏州，其实是杭州。", {"住在杭州"}),
]


@pytest.mark.parametrize(("before", "after", "holds"), CHANGED)
def test_what_is_another_one_now_has_its_place(before: str, after: str, holds: set[str]) -> None:
    for held in (held_after([before], [after]), held_after([before, after])):
        assert set(held.values()) == holds


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["We're moving in February.", "Correction: it's January."], "is moving in January"),
        (["The wedding is in February.", "Sorry, March."], "wedding is in March"),
        (["My daughter was born in May.", "Sorry, June."], "has a daughter who was born in June"),
        (["My birthday is on 3 May.", "Wait no, 5 May, I always mix it up."], "has their birthday on 5 May"),
        (["My birthday is on 3 May.", "Sorry, 5 May, my mistake."], "has their birthday on 5 May"),
        (["The party is on Friday — no, Saturday."], "party is on Saturday"),
        (["We're flying on Friday, no, Saturday."], "is flying on Saturday"),
        (["聚会在周五，不，周六。"], "聚会在周六"),
        (["我们周五飞广州——不，周六。"], "打算周六飞广州"),
    ],
)
def test_a_time_is_put_right(lines: list[str], text: str) -> None:
    assert list(held_after(lines).values()) == [text]


def test_a_summary_has_the_month_as_it_was_put_right() -> None:
    slice_ = conversation(("user", "My daughter was born in May."), ("user", "Sorry, June."))
    assert summary.of_slice(slice_) == "User: My daughter was born in June."


STANDING = [
    ("I work at Lidl.", "I got fired up about the match."),
    ("I work at Lidl.", "My brother got fired from Aldi."),
    ("I work at Lidl.", "I was laid off from Aldi in 2019."),
    ("I work at Lidl.", "I was laid off in 2019."),
    ("I work at Lidl.", "I got fired once."),
    ("I work at Lidl.", "I was dismissed from jury duty."),
    ("I work at Lidl.", "I let go of the rope."),
    ("I work at Lidl.", "They let me go home early."),
    ("I work at Lidl.", "Aldi fired me."),
    ("I work at Lidl.", "I've left my keys at home."),
    ("I work at Lidl.", "Nobody works there anymore at night."),
    ("I'm a nurse.", "I was laid off last week."),
    ("I'm allergic to shellfish.", "I can eat peanuts again."),
    ("I'm allergic to shellfish.", "I tested negative for Covid."),
    ("I'm allergic to shellfish.", "I tested negative for the peanut allergy."),
    ("I'm allergic to shellfish and eggs.", "I tested negative for the allergy."),
    ("I'm allergic to shellfish.", "If only I could eat shellfish again!"),
    ("I'm allergic to shellfish.", "Can I eat shellfish again?"),
    ("I'm allergic to shellfish.", "The shellfish allergy is real."),
    ("I'm allergic to shellfish.", "No peanut allergy after all!"),
    ("I'm allergic to shellfish.", "I'm fine with peanuts now."),
    ("I'm allergic to shellfish.", "It was a mistake to order the soup."),
    ("I'm allergic to nuts.", "It's actually lactose intolerance."),
    ("I'm vegetarian.", "My wife eats meat again."),
    ("My mum lives with us.", "Mum moved to the front row."),
    ("My mum lives with us.", "Mum went to Paris."),
    ("My mum lives with us.", "Mum's appointment moved to Tuesday."),
    ("My mum lives with us.", "Mum has gone to Leeds for a week."),
    ("My mum lives with us.", "Tom moved into a care home."),
    ("Please always answer in French.", "I went back to English class."),
    ("Please always answer in French.", "How do you say that in English?"),
    ("Please keep your answers short.", "Longer walks are fine now."),
    ("Please keep your answers short.", "Forget the shopping list."),
    ("Call me Liz.", "I prefer Italy."),
    ("Call me Liz.", "I prefer Android."),
    ("I love coffee.", "The coffee has gone off."),
    ("I love coffee.", "I went off to get coffee."),
    ("I'm studying law.", "My brother graduated in June."),
    ("I'm studying law.", "I graduated from school in 2015."),
    ("I'm learning Spanish.", "I graduated in June."),
    ("I'm learning Spanish.", "I had tea instead of coffee."),
    ("My number is 07700 900123.", "My work number is 0113 496 0000."),
    ("I'm single.", "I met someone from Leeds who knows you."),
    ("I'm allergic to nuts and eggs.", "Only a little tired actually, not ill."),
    ("I have a bad hip.", "They replaced the boiler in January."),
    ("I have a bad hip.", "They're going to fix the hip."),
    ("I've got my driving test on the 11th of Feb.", "I passed my French exam."),
    ("I've got my driving test on the 11th of Feb.", "My sister passed her test."),
    ("I work as a lecturer.", "The dean stepped down as dean."),
    ("我打算五月十号考B级。", "我弟弟驾照拿下了。"),
    ("我在京东上班。", "我朋友被裁了。"),
    ("我在京东上班。", "我差点被裁了。"),
    ("我吃素。", "我老公又开始吃肉了。"),
    ("我对虾过敏。", "我能吃花生了。"),
    ("我对虾过敏。", "我不能吃虾了。"),
    ("我对虾过敏。", "什么时候能吃虾了就好了。"),
    ("我对虾过敏。", "花生过敏那个是误诊。"),
    ("我对猫过敏，对狗没事。", "对狗没事的。"),
    ("以后请用英语回答。", "我同事用中文聊天。"),
    ("以后请简短回答。", "这道菜可以咸一点了。"),
    ("以后不要用表情符号。", "洗手间可以用了。"),
    ("我是大学生。", "我弟弟毕业了。"),
    ("我是大学生。", "我快毕业了。"),
    ("我每天早上跑步。", "我不打游戏了。"),
    ("我女儿叫小雪。", "公司改名叫小雨。"),
    ("我叫李小明。", "以后叫我李老师。"),
]


@pytest.mark.parametrize(("before", "after"), STANDING)
def test_what_only_sounds_like_an_end_ends_nothing(before: str, after: str) -> None:
    stated = held_after([before])
    assert stated
    for held in (held_after([before], [after]), held_after([before, after])):
        assert set(stated.values()) <= set(held.values())


@pytest.mark.parametrize(
    "lines",
    [
        ["I got the job! I start at Declercq on 2 June.", "I quit my job there this morning."],
        ["I got a job at Declercq.", "I quit my job at Halden."],
        ["I work at Declercq now.", "I quit my old job last week."],
        ["I work at Declercq now.", "How did Halden take it?", "I handed in my notice there."],
        ["我下个月入职青木公司。我在青木公司上班。", "那边的工作我辞了。"],
    ],
)
def test_who_leaves_a_job_keeps_the_next_one(lines: list[str]) -> None:
    """'There' is the place that the question names, or the former one."""
    held = held_after(["I work at Halden & Vos."], lines)
    assert any("Declercq" in text or "青木" in text for key, text in held.items() if key == "employer"), held
    assert held_after(["I work at Halden & Vos."], ["I quit my job there."]).get("employer") is None


def test_the_sample_conversation_keeps_the_next_job() -> None:
    """'I quit my job there' is about the place that the assistant asked about."""
    sample = json.loads((EXAMPLES / "mei.json").read_text())[0]["conversation"]
    turns = [("user" if turn["speaker"] == "Mei" else "model", turn["text"]) for turn in sample["session_5"]]
    held = {fact.key: fact for fact in local_facts.of_slice(conversation(*turns))}
    assert not held["employer"].ended
    assert "Declercq" in held["employer"].value["text"]


def test_an_allergy_that_was_none_is_not_stated() -> None:
    """Also if no such allergy is known."""
    for line in ("Turns out the shellfish allergy was a mistake.", "虾过敏那个是误诊。"):
        assert not any(key.startswith("allergy") for key in held_after([line]))
        assert ended.takes_back_allergy(line)
    assert not ended.takes_back_allergy("The shellfish allergy is real.")


@pytest.mark.parametrize(
    "piece",
    [
        "just ",
        "they have just ",
        "allergy ",
        "can eat ",
        "actually, ",
        "instead of a ",
        "new number ",
        "过敏",
        "可以吃",
        "不跑了，",
    ],
)
def test_no_text_makes_ends_slow(piece: str) -> None:
    """The time to compare a text with what is known grows as the text does."""
    known = [
        "I work at Lidl.",
        "I'm allergic to shellfish.",
        "Call me Liz.",
        "My mum lives with us.",
        "我每天早上跑步。",
    ]
    lines = [("user", line) for line in (*known, piece * (20_000 // len(piece)))]
    assert cpu_seconds(lambda: local_facts.of_slice(conversation(*lines))) < 5
