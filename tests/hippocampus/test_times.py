"""Expressions of time are resolved against a moment, in English and Chinese."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippocampus.text import times
from hippocampus.text.time_cues import time_cues
from hippocampus.text.times import YEARS_BACK, iso_dates, resolve, time_spans
from tests.support.properties import examples

NOW = datetime(2022, 5, 18, 15, 30, tzinfo=UTC)  # a Wednesday


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("what did I do yesterday?", "2022-05-17", "2022-05-17"),
        ("the day before yesterday", "2022-05-16", "2022-05-16"),
        ("Who called last night", "2022-05-17", "2022-05-17"),
        ("last Friday", "2022-05-13", "2022-05-13"),
        ("last Wednesday", "2022-05-11", "2022-05-11"),
        ("next Wednesday", "2022-05-25", "2022-05-25"),
        ("two days ago", "2022-05-16", "2022-05-16"),
        ("a couple of weeks ago", "2022-05-01", "2022-05-07"),
        ("On 16 March 2022", "2022-03-16", "2022-03-16"),
        ("on March 16th, 2022", "2022-03-16", "2022-03-16"),
        ("2022-03-16", "2022-03-16", "2022-03-16"),
        ("the 1st of May, 2021", "2021-05-01", "2021-05-01"),
        ("in May 2021", "2021-05-01", "2021-05-31"),
        ("mid-August 2021", "2021-08-11", "2021-08-21"),
        ("the beginning of November 2021", "2021-11-01", "2021-11-10"),
        ("summer 2021", "2021-06-01", "2021-08-31"),
        ("last summer", "2021-06-01", "2021-08-31"),
        ("last May", "2021-05-01", "2021-05-31"),
        ("last month", "2022-04-01", "2022-04-30"),
        ("last year", "2021-01-01", "2021-12-31"),
        ("last weekend", "2022-05-14", "2022-05-15"),
        ("in 2021", "2021-01-01", "2021-12-31"),
        ("four years ago", "2018-01-01", "2018-12-31"),
        ("the Sunday before October 25, 2021", "2021-10-25", "2021-10-25"),
        ("3/16/2022", "2022-03-16", "2022-03-16"),
        ("16/3/2022", "2022-03-16", "2022-03-16"),
        ("on 16.03.2022", "2022-03-16", "2022-03-16"),
        ("a fortnight ago", "2022-05-01", "2022-05-07"),
        ("half a year ago", "2021-10-02", "2021-12-30"),
        ("the week before last", "2022-05-02", "2022-05-08"),
        ("the month before last", "2022-03-01", "2022-03-31"),
        ("two weekends ago", "2022-05-07", "2022-05-08"),
        ("three Fridays ago", "2022-04-29", "2022-04-29"),
        ("the Friday before last", "2022-05-06", "2022-05-06"),
        ("a week on Monday", "2022-05-30", "2022-05-30"),
        ("Tuesday week", "2022-05-31", "2022-05-31"),
        ("the first week of July 2021", "2021-07-01", "2021-07-07"),
        ("in the last week of February 2021", "2021-02-22", "2021-02-28"),
        ("两年前的夏天", "2020-06-01", "2020-08-31"),
        ("前几天说了什么", "2022-05-11", "2022-05-18"),
        ("昨天去了哪里", "2022-05-17", "2022-05-17"),
        ("昨晚", "2022-05-17", "2022-05-17"),
        ("前天", "2022-05-16", "2022-05-16"),
        ("大前天", "2022-05-15", "2022-05-15"),
        ("上周五", "2022-05-13", "2022-05-13"),
        ("上个星期日", "2022-05-15", "2022-05-15"),
        ("上上周一", "2022-05-02", "2022-05-02"),
        ("下周三", "2022-05-25", "2022-05-25"),
        ("上个月", "2022-04-01", "2022-04-30"),
        ("去年夏天", "2021-06-01", "2021-08-31"),
        ("三年前", "2019-01-01", "2019-12-31"),
        ("两个星期前", "2022-05-01", "2022-05-07"),
        ("2021年5月1日", "2021-05-01", "2021-05-01"),
        ("二〇二一年五月", "2021-05-01", "2021-05-31"),
        ("去年十二月二十三号", "2021-12-23", "2021-12-23"),
        ("21年5月底", "2021-05-22", "2021-05-31"),
        ("at Christmas 2021", "2021-12-24", "2021-12-26"),
        ("last Christmas", "2021-12-24", "2021-12-26"),
        ("Christmas Eve of 2020", "2020-12-24", "2020-12-24"),
        ("next Easter", "2023-04-07", "2023-04-10"),
        ("Thanksgiving 2021", "2021-11-25", "2021-11-25"),
        ("Memorial Day 2021", "2021-05-31", "2021-05-31"),
        ("New Year's Eve 2021", "2021-12-31", "2021-12-31"),
        ("Chinese New Year 2021", "2021-02-11", "2021-02-18"),
        ("去年国庆节", "2021-10-01", "2021-10-07"),
        ("2021年的春节", "2021-02-11", "2021-02-18"),
        ("去年中秋", "2021-09-21", "2021-09-21"),
        ("2020年端午节", "2020-06-25", "2020-06-25"),
        ("去年除夕", "2021-02-11", "2021-02-11"),
        ("from 3 to 9 May 2021", "2021-05-03", "2021-05-09"),
        ("between the 3rd and the 9th of May 2021", "2021-05-03", "2021-05-09"),
        ("May 3-9, 2021", "2021-05-03", "2021-05-09"),
        ("from 3 May to 9 June 2021", "2021-05-03", "2021-06-09"),
        ("3 May 2021 to 9 June", "2021-05-03", "2021-06-09"),
        ("from 2021-05-03 to 2021-05-09", "2021-05-03", "2021-05-09"),
        ("from May to July 2021", "2021-05-01", "2021-07-31"),
        ("from November to January 2021", "2020-11-01", "2021-01-31"),
        ("June to August 2021", "2021-06-01", "2021-08-31"),
        ("November-January 2021", "2020-11-01", "2021-01-31"),
        ("上周五一起吃饭", "2022-05-13", "2022-05-13"),
        ("下周五一整天", "2022-05-27", "2022-05-27"),
        ("今年三十岁", "2022-01-01", "2022-12-31"),
        ("2021年三十个人", "2021-01-01", "2021-12-31"),
        ("去年三十号", "2021-01-01", "2021-12-31"),
        ("去年大年三十", "2021-02-11", "2021-02-11"),
        ("去年五一早上", "2021-05-01", "2021-05-05"),
        ("去年五一三天假", "2021-05-01", "2021-05-05"),
        ("去年五一一起去爬山", "2021-05-01", "2021-05-05"),
        ("去年五一二日游", "2021-05-01", "2021-05-05"),
        ("去年国庆说好去北京", "2021-10-01", "2021-10-07"),
        ("去年过年少不了饺子", "2021-02-11", "2021-02-18"),
        ("去年过年假期", "2021-02-11", "2021-02-18"),
        ("去年国庆和妈妈去了海边", "2021-10-01", "2021-10-07"),
        ("去年过年会回家吗", "2021-02-11", "2021-02-18"),
        ("between 2019 and 2021", "2019-01-01", "2021-12-31"),
        ("from last Friday to yesterday", "2022-05-13", "2022-05-17"),
        ("2021年5月3日到9日", "2021-05-03", "2021-05-09"),
        ("去年五月三号至六月二号", "2021-05-03", "2021-06-02"),
        ("2021年5月到7月", "2021-05-01", "2021-07-31"),
        ("2019年到2021年", "2019-01-01", "2021-12-31"),
    ],
)
def test_an_expression_is_one_span(text: str, first: str, last: str) -> None:
    (span,) = time_spans(text, NOW)
    assert (str(span.start.date()), str((span.end - timedelta(seconds=1)).date()), span.recurs) == (first, last, False)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Sunday 13 December", "2020-12-13"),
        ("on Tuesday the 8th of December", "2020-12-08"),
        ("8 December, Tuesday", "2020-12-08"),
        ("12月13号星期天", "2020-12-13"),
        ("星期天，12月13日", "2020-12-13"),
        ("Sunday 13 December 2020", "2020-12-13"),
    ],
)
def test_a_weekday_beside_a_date_tells_its_year_and_is_no_time_of_its_own(text: str, first: str) -> None:
    spans = time_spans(text, NOW)
    assert str(max(span.start for span in spans if span.start < NOW).date()) == first
    assert {span.start.weekday() for span in spans} == {spans[0].start.weekday()}
    # A weekday that no year has is a mistake.
    assert len(time_spans("Monday 13 December 2020", NOW)) == 1


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("what happened on the 3rd?", ["2022-05-03", "2022-06-03"]),
        ("It's been moved to the 14th", ["2022-05-14", "2022-06-14"]),
        ("on the 31st and at home", ["2022-03-31", "2022-05-31"]),
        ("on the 3rd floor", []),
        ("to the 14th street", []),
        ("for the 5th time", []),
        ("on the 3rd of nothing", []),
        ("on the 35th", []),
    ],
)
def test_a_day_of_no_month_is_the_last_or_the_coming_one(text: str, days: list[str]) -> None:
    assert [str(span.start.date()) for span in time_spans(text, NOW)] == days


@pytest.mark.parametrize("text", ["on 1 May", "May 1st", "五月一号", "5月1日"])
def test_a_date_without_a_year_recurs(text: str) -> None:
    spans = time_spans(text, NOW)
    assert [(span.start.month, span.start.day) for span in spans] == [(5, 1)] * (YEARS_BACK + 1)
    assert {span.start.year for span in spans} == set(range(NOW.year - YEARS_BACK + 1, NOW.year + 2))
    assert all(span.recurs and span.end - span.start == timedelta(days=1) for span in spans)


@pytest.mark.parametrize(
    "text",
    "where does she live?|this may be|we march on|room 2023|30 February 2022|第三章|the second one|星期|年|月|几|3:45"
    "|version 2.10.12|she may come|from 3 to 9|pages 3-9|一到三号楼|the holidays|李国庆是谁|王国庆的电话|周国庆来了"
    "|国庆哥来了|参加过年会|见过年轻人|吃过年夜饭|超过年薪|老五一直睡|五一二地震|十五一共|五一广场|清明上河图|吃元宵|圣诞树"
    "|on 3/4/2022|works at Easter Road"
    "|lives in Christmas Street|Christmas Island|a Christmas tree|Easter eggs|Easter bunny".split("|"),
)
def test_what_names_no_time_has_no_span(text: str) -> None:
    assert time_spans(text, NOW) == []


def test_a_weekday_alone_is_the_one_before_or_after() -> None:
    assert [str(span.start.date()) for span in time_spans("on Friday", NOW)] == ["2022-05-13", "2022-05-20"]
    assert [str(span.start.date()) for span in time_spans("周五", NOW)] == ["2022-05-13", "2022-05-20"]


def test_the_cues_of_a_day_are_turns_of_the_day_and_later_ones_that_speak_of_it() -> None:
    cues = time_cues("on 16 March 2022", NOW)  # a Wednesday
    day = datetime(2022, 3, 16, tzinfo=UTC)
    assert (cues[0].start, cues[0].end, cues[0].words) == (day, day + timedelta(days=1), "")
    by_words = {cue.words: (cue.start, cue.end) for cue in cues if cue.words}
    assert by_words["'last' <-> 'wednesday'"] == (day + timedelta(days=1), day + timedelta(days=8))
    assert by_words["'two' <-> 'day' <-> 'ago'"] == (day + timedelta(days=2), day + timedelta(days=3))
    assert by_words["!'上上' & '上周' <-> '周三'"] == (day + timedelta(days=5), day + timedelta(days=12))
    assert time_cues("where does she live?", NOW) == []


@pytest.mark.parametrize(
    "asked", ["What happened {}?", "What did I do {}?", "What did you and I do {}?", "{}我做了什么？"]
)
def test_a_time_counts_more_where_nothing_else_is_asked_for(asked: str) -> None:
    time = "2022年5月1日" if asked.endswith("？") else "on 1 May 2022"
    alone = time_cues(asked.format(time), NOW)
    beside = time_cues(asked.replace("do", "cook").replace("happened", "cooked").replace("做", "煮").format(time), NOW)
    assert [cue.words for cue in alone] == [cue.words for cue in beside]
    assert max(cue.weight for cue in beside) == 1.0
    assert max(cue.weight for cue in alone) > 1.0


@pytest.mark.parametrize(
    ("query", "is_raised"),
    [
        ("What happened in April?", True),
        ("What happened on Sunday?", True),
        ("What happened on Saturday and Sunday?", True),
        ("What happened in June or July?", True),
        ("What happened between Monday and Friday?", True),
        ("What happened last April?", True),
        ("What will happen in July?", True),
        ("What happened at Christmas?", True),
        ("What is Sunday Times?", False),
        ("What is Sunday?", False),
        ("Tell me about April", False),
        ("What did April do?", False),
        ("What happened with April?", False),
        ("What happened to April in May 2022?", False),
        ("What happened to Rex in July?", False),
        ("What happened to Will in July?", False),
        ("What did we say about Paris in May?", False),
    ],
)
def test_a_name_beside_a_time_is_asked_for_too(query: str, is_raised: bool) -> None:
    """A month or weekday that nothing marks as a time may be a name."""
    assert (max(cue.weight for cue in time_cues(query, NOW)) > 1.0) is is_raised


@pytest.mark.parametrize(
    ("text", "ahead", "when"),
    [
        ("plans to visit Easter Island in July", True, "2022-07"),
        ("goes shopping on Friday for Christmas", True, "2022-05-20"),
        ("meets them on 3 June, for Easter", True, "2022-06-03"),
        ("visits Rome next year at Easter", True, "2023-04-07/2023-04-10"),
        ("visits Rome in December, at Christmas", True, "2022-12-24/2022-12-26"),
        ("went to the Christmas market", False, "2021-12-24/2021-12-26"),
        ("booked it last week, leaves at Christmas", True, "2022-12-24/2022-12-26"),
        ("the dinner is on Sunday 13 November, not Saturday", True, "2022-11-13"),
        ("it isn't on Friday, it's on 3 June", True, "2022-06-03"),
        ("是6月3号，不是5月20号", True, "2022-06-03"),
        ("打算周五一起去爬山", True, "2022-05-20"),
        ("打算五一去爬山", True, "2023-05-01/2023-05-05"),
    ],
)
def test_a_statement_means_the_time_that_it_does_not_take_back_and_not_a_holiday_beside_it(
    text: str, ahead: bool, when: str
) -> None:
    span = resolve(text, NOW, ahead=ahead)
    assert span is not None
    assert iso_dates(span) == when


_PIECES = st.sampled_from(
    "last next this may march in on 31 30 February 9999 0001 1900 ago weeks few 一 十 百 年 月 号 周 上 前 几 半 个 "
    "大前 天 christmas 春节 easter to from between 到 - 2022-13-45 ٣ ² th of , . \0 \ud800".split(" ")
)


@examples(100)
@given(st.one_of(st.text(max_size=60), st.lists(_PIECES, max_size=12).map(" ".join), st.lists(_PIECES).map("".join)))
def test_any_text_is_read_and_every_span_has_a_length(text: str) -> None:
    """At either end of the calendar too: no text makes a search fail."""
    for now in (NOW, datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)):
        assert all(span.start < span.end for span in time_spans(text, now))
        assert all(cue.start < cue.end for cue in time_cues(text, now))


@examples(100)
@given(st.sampled_from(sorted(times._CHINESE, key=lambda rule: rule.pattern)).flatmap(st.from_regex))
def test_what_a_chinese_expression_matches_has_a_chinese_character(text: str) -> None:
    """Texts without one are not searched for it."""
    assert times.HAN_LETTER.search(text)
