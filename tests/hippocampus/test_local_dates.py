"""The dates that the local provider keeps with plans and events."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from hippocampus.providers.local import dates
from hippocampus.providers.local import facts as local_facts
from hippocampus.records import ConversationSlice, Turn
from hippocampus.text import times
from tests.support.provider_conformance import START, conversation

NOW = datetime(2025, 10, 6, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "ahead", "when"),
    [
        ("going to Bath for Christmas", True, "2025-12-24/2025-12-26"),
        ("flying home at Easter", True, "2026-04-03/2026-04-06"),
        ("went to Bath at Easter", False, "2025-04-18/2025-04-21"),
        ("bought it for Christmas", False, None),
        ("has been there since Christmas", True, "2024-12-24/2024-12-26"),
        ("打算国庆节去成都", True, "2025-10-01/2025-10-07"),
        ("打算春节回老家", True, "2026-02-16/2026-02-23"),
        ("打算明年国庆去成都", True, "2026-10-01/2026-10-07"),
        ("去年过年去了海口", False, "2024-02-09/2024-02-16"),
        ("is in Rome from 3 to 9 May", True, "2026-05-03/2026-05-09"),
        ("is in Rome May 3-9", True, "2026-05-03/2026-05-09"),
        ("is away from the 28th of December to the 3rd of January", True, "2025-12-28/2026-01-03"),
        ("was in Rome between 3 and 9 May 2024", False, "2024-05-03/2024-05-09"),
        ("五月三号到九号去云南", True, "2026-05-03/2026-05-09"),
        ("12月28日至1月3日出差", True, "2025-12-28/2026-01-03"),
        ("meets them on 9 May", True, "2026-05-09"),
        ("is away from 9 to 3 May", True, None),
    ],
)
def test_ranges_and_holidays_are_dates(text: str, ahead: bool, when: str | None) -> None:
    span = dates.resolve(text, NOW, ahead=ahead)
    assert (span and times.iso_dates(span)) == when


@pytest.mark.parametrize(
    ("line", "text", "when"),
    [
        ("We're going to my aunt's for Christmas.", "is going to their aunt's for Christmas", "-12-24/"),
        ("We'll be in Crete from 3 to 9 May.", "will be in Crete from 3 to 9 May", "-05-03/"),
        ("国庆节我们打算去成都。", "打算国庆节去成都", "-10-01/"),
        ("我春节要回老家。", "打算春节回老家", "-02-"),
        ("圣诞节去我妈家。", "圣诞节去自己妈妈家", "-12-24/"),
        ("国庆去我姐家住几天。", "国庆去自己姐姐家住几天", "-10-01/"),
    ],
)
def test_a_plan_keeps_its_date(line: str, text: str, when: str) -> None:
    (plan,) = local_facts.of_slice(conversation(("user", line)))
    assert plan.value["text"] == text
    assert when in plan.value["when"]
    assert plan.value["when"] > START.date().isoformat()


@pytest.mark.parametrize(
    ("line", "when"),
    [
        ("I'm flying to Oslo in two weeks.", "2026-03-13/2026-03-19"),
        ("We're moving to Berlin in three days.", "2026-03-05"),
        ("I'm starting a new job next month.", "2026-04"),
        ("We're going hiking this weekend.", "2026-03-07/2026-03-08"),
        ("I'm meeting Tom the week after next.", "2026-03-16/2026-03-22"),
        ("We're moving house six weeks from now.", "2026-04-10/2026-04-16"),
        ("我两周后要去东京。", "2026-03-13/2026-03-19"),
        ("三天后我要去北京出差。", "2026-03-05"),
        ("两天之后我有考试。", "2026-03-04"),
        ("我下个月要搬到上海。", "2026-04"),
        ("我下个月15号要去体检。", "2026-04-15"),
        ("月底我要去深圳。", "2026-03-22/2026-03-31"),
        ("我们这个周末去爬山。", "2026-03-07/2026-03-08"),
    ],
)
def test_a_plan_at_a_distance_keeps_the_date_that_is_meant(line: str, when: str) -> None:
    """Said on Monday, 2 March 2026."""
    (plan,) = local_facts.of_slice(conversation(("user", line)))
    assert (plan.key.partition(":")[0], plan.value["when"]) == ("plan", when)


@pytest.mark.parametrize(
    ("line", "when"),
    [
        ("Signed up for a half marathon in October.", "2026-10"),
        ("I signed up for the marathon in April.", "2026-04"),
        ("I enrolled on a course starting in January.", "2026-01"),
        ("I signed up for a course in October last year.", "2025-10"),
        ("I ran a half marathon in October.", "2025-10"),
        ("I won a race in October.", "2025-10"),
        ("The flight got pushed back to the 14th.", "2025-11-14"),
        ("The exam was postponed to the 3rd.", "2025-12-03"),
        ("The party is on the twentieth.", "2025-11-20"),
        ("I have surgery on the thirty-first.", "2025-12-31"),
        ("航班改到14号了。", "2025-11-14"),
        ("考试推迟到二十号。", "2025-11-20"),
        ("My birthday is 3 May.", None),
        ("My birthday is in May.", None),
        ("我的生日是五月三号。", None),
        ("我生日5月3日。", None),
    ],
)
def test_a_time_without_its_year_is_the_one_that_is_meant(line: str, when: str | None) -> None:
    """What is entered is to come, a bare day is the next of its number, and a birthday is each year's."""
    said = datetime(2025, 11, 10, 9, tzinfo=UTC)
    turn = Turn(sequence_num=1, author="user", role="user", text=line, occurred_at=said)
    (stated,) = local_facts.of_slice(ConversationSlice(turns=(turn,)))
    assert stated.value.get("when") == when


@pytest.mark.parametrize(
    ("before", "after", "when"),
    [
        ("My flight is on 10 April.", "The flight got pushed back to the 14th.", "2026-04-14"),
        ("My flight is on 28 April.", "The flight got pushed back to the 3rd.", "2026-05-03"),
        ("My exam is on 3 May.", "The exam got brought forward to the 28th.", "2026-04-28"),
        ("航班是4月10号。", "航班改到14号了。", "2026-04-14"),
        ("航班是4月28号。", "航班推迟到3号了。", "2026-05-03"),
        ("考试是5月3号。", "考试提前到28号了。", "2026-04-28"),
        ("My trip to Rome is on 2 March.", "The Rome trip is now on the 30th.", "2026-03-30"),
        ("My trip to Rome is on 2 March.", "We pushed the trip back to the 28th.", "2026-03-28"),
    ],
)
def test_a_day_that_takes_the_place_of_another_is_in_its_month(before: str, after: str, when: str) -> None:
    (plan,) = local_facts.of_slice(conversation(("user", before), ("user", after)))
    assert plan.value["when"] == when


@pytest.mark.parametrize("line", ["I live on the 14th floor.", "It's my 3rd marathon.", "我住14号楼。"])
def test_a_number_is_not_a_day(line: str) -> None:
    assert not [fact for fact in local_facts.of_slice(conversation(("user", line))) if "when" in fact.value]


@pytest.mark.parametrize("line", ["三天后我们到了拉萨。", "两个月后他完成了比赛。"])
def test_what_was_over_after_a_while_is_no_plan(line: str) -> None:
    assert not [fact for fact in local_facts.of_slice(conversation(("user", line))) if fact.key.startswith("plan")]


@pytest.mark.parametrize(
    "line",
    [
        "I have been in 3 places this year.",
        "We have been to Rome this year.",
        "I'm in 3 clubs.",
        "I'm on 2 teams.",
    ],
)
def test_a_number_or_a_perfect_is_neither_an_age_nor_a_plan(line: str) -> None:
    assert not {"age", "plan"} & {
        fact.key.partition(":")[0] for fact in local_facts.of_slice(conversation(("user", line)))
    }


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("I'm mia, 34 and happy.", "is 34 years old"),
        ("I have surgery on Monday.", "will have surgery on Monday"),
    ],
)
def test_an_age_or_a_plan_stays_one(line: str, text: str) -> None:
    assert text in [fact.value["text"] for fact in local_facts.of_slice(conversation(("user", line)))]


@pytest.mark.parametrize(
    "line", ["I'm in Oslo from 3 to 9 May.", "We're in Oslo for Christmas.", "I'm in Oslo until Friday."]
)
def test_where_somebody_is_for_a_while_is_not_their_home(line: str) -> None:
    home, stay = local_facts.of_slice(conversation(("user", "I live in Leeds."), ("user", line)))
    assert (home.value["text"], stay.key.partition(":")[0]) == ("lives in Leeds", "plan")
    assert "when" in stay.value
