"""A model's reply is parsed completely, or rejected completely with the reply as evidence."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippocampus.errors import MalformedReplyError
from hippocampus.providers import extraction
from hippocampus.records import ConversationSlice, ExtractedFact, ExtractedInsight, KnownInsight, Turn

SEQS = (3, 4, 7)
CONVERSATION = ConversationSlice(
    turns=tuple(
        Turn(
            sequence_num=seq,
            author="user",
            role="user",
            text="…",
            occurred_at=datetime(2026, 1, 1, tzinfo=UTC),
        )
        for seq in SEQS
    )
)
FACT: dict[str, Any] = {
    "type": "profile",
    "key": "home_city",
    "value": "Lyon",
    "confidence": 0.9,
    "source_turns": [3],
}
INSIGHT: dict[str, Any] = {"content": "She plans ahead.", "importance": "high", "source_turns": [4, 3]}
GOOD = json.dumps({"facts": [FACT], "insights": [INSIGHT]})


def facts_reply(**changes: Any) -> str:
    """A reply whose second fact is changed; the first one is valid, and must not be taken alone."""
    return json.dumps({"facts": [{**FACT, "key": "good"}, {**FACT, **changes}], "insights": []})


def without(item: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key != name}


def insight_reply(**changes: Any) -> str:
    return json.dumps({"facts": [FACT], "insights": [{**INSIGHT, **changes}]})


PACKAGED = {
    "bare": GOOD,
    "fence": f"```\n{GOOD}\n```",
    "json fence": f"```json\n{GOOD}\n```",
    "upper-case fence": f"```JSON\n{GOOD}\n```",
    "fence of tildes": f"~~~json\n{GOOD}\n~~~",
    "open fence": f"```json\n{GOOD}",
    "preface": f"Here is what I found:\n\n{GOOD}",
    "trailing text": f"{GOOD}\n\nLet me know if you need more!",
    "preface, fence and trailing text": f"Sure.\n```json\n{GOOD}\n```\nDone.",
    "byte-order mark": f"\ufeff{GOOD}",
    "pretty printed": json.dumps(json.loads(GOOD), indent=4),
    "Windows lines": json.dumps(json.loads(GOOD), indent=1).replace("\n", "\r\n"),
    "escaped Unicode": GOOD.replace("Lyon", "\\u004cyon"),
}

MALFORMED = {
    # Wrapping that cannot be distinguished from data.
    "empty": "",
    "blank": " \n",
    "prose": "There is nothing worth keeping.",
    "null": "null",
    "a list as root": f"[{GOOD}]",
    "a list of facts as root": json.dumps([FACT]),
    "two objects": f"{GOOD}\n{GOOD}",
    "one object per line": json.dumps(FACT) + "\n" + json.dumps(FACT),
    "facts before the object": f"{json.dumps([FACT])} {GOOD}",
    "a JSON text in a JSON text": json.dumps(GOOD),
    "an envelope": json.dumps({"result": json.loads(GOOD)}),
    # broken JSON
    "cut off": GOOD[:-20],
    "cut off within a fence": f"```json\n{GOOD[:60]}\n```",
    "trailing comma": GOOD.replace("}]", "},]", 1),
    "single quotes": GOOD.replace('"', "'"),
    "comment": GOOD.replace("[{", "[ // facts\n{", 1),
    "bare line break in a text": GOOD.replace("Lyon", "Ly\non"),
    "key twice": '{"facts": [' + json.dumps(FACT) + '], "insights": [], "facts": []}',
    "NaN": GOOD.replace("0.9", "NaN"),
    "Infinity": GOOD.replace("0.9", "Infinity"),
    "infinite by size": GOOD.replace('"Lyon"', "1e999"),
    "too deep": '{"facts": ' + "[" * 100_000,
    "5,000 digits": GOOD.replace("0.9", "9" * 5000),
    # wrong root
    "facts missing": '{"insights": []}',
    "insights missing": json.dumps({"facts": [FACT]}),
    "facts null": '{"facts": null, "insights": []}',
    "insights null": json.dumps({"facts": [FACT], "insights": None}),
    "facts as an object": json.dumps({"facts": {"home_city": FACT}, "insights": []}),
    "unknown list": json.dumps({"facts": [], "insights": [], "preferences": [FACT]}),
    # invalid facts
    "fact as text": json.dumps({"facts": ["lives in Lyon"], "insights": []}),
    "fact null": json.dumps({"facts": [FACT, None], "insights": []}),
    **{f"fact without {name}": json.dumps({"facts": [without(FACT, name)], "insights": []}) for name in FACT},
    "fact with more keys": facts_reply(valid_until="2027"),
    "unknown type": facts_reply(type="opinion"),
    "type of others": facts_reply(type="custom"),
    "type null": facts_reply(type=None),
    "key blank": facts_reply(key="  "),
    "key null": facts_reply(key=None),
    "key a number": facts_reply(key=7),
    "key of 256": facts_reply(key="k" * 256),
    "value null": facts_reply(value=None),
    "value empty": facts_reply(value=""),
    "value blank": facts_reply(value=" \t"),
    "value an empty list": facts_reply(value=[]),
    "value an empty object": facts_reply(value={}),
    "value with NUL": facts_reply(value="Ly\x00on"),
    "value with half a character": facts_reply(value=["Ly\ud83d"]),
    "confidence as word": facts_reply(confidence="high"),
    "confidence as numeric text": facts_reply(confidence="0.9"),
    "confidence true": facts_reply(confidence=True),
    "confidence null": facts_reply(confidence=None),
    "confidence in percent": facts_reply(confidence=90),
    "confidence 1.2": facts_reply(confidence=1.2),
    "confidence negative": facts_reply(confidence=-0.5),
    "no source": facts_reply(source_turns=[]),
    "source null": facts_reply(source_turns=None),
    "source not a list": facts_reply(source_turns=3),
    "source outside the slice": facts_reply(source_turns=[3, 5]),
    "source as text": facts_reply(source_turns=["3"]),
    "source true": facts_reply(source_turns=[True]),
    "source a fraction": facts_reply(source_turns=[3.5]),
    "source a list": facts_reply(source_turns=[[3]]),
    "two values of one key": json.dumps({"facts": [FACT, {**FACT, "value": "Nice"}], "insights": []}),
    "two endings of one key": json.dumps(
        {"facts": [{**FACT, "ended": True}, {**FACT, "ended": True, "value": "Nice"}], "insights": []}
    ),
    "ended as text": facts_reply(ended="yes"),
    "value null and not ended": facts_reply(value=None, ended=False),
    "value empty and ended": facts_reply(value="", ended=True),
    "one and true of one key": json.dumps({"facts": [{**FACT, "value": 1}, {**FACT, "value": True}], "insights": []}),
    # invalid insights
    "insight as text": json.dumps({"facts": [FACT], "insights": ["She plans ahead."]}),
    **{
        f"insight without {name}": json.dumps({"facts": [FACT], "insights": [without(INSIGHT, name)]})
        for name in INSIGHT
    },
    "insight blank": insight_reply(content=" "),
    "insight null": insight_reply(content=None),
    "importance unknown": insight_reply(importance="critical"),
    "importance a number": insight_reply(importance=1),
    "repeats what was not listed": insight_reply(repeats=1),
    "repeats as text": insight_reply(repeats="1"),
    "insight's source outside": insight_reply(source_turns=[99]),
}


class TestReflection:
    @pytest.mark.parametrize("reply", PACKAGED.values(), ids=PACKAGED)
    def test_wrapping_is_ignored(self, reply: str) -> None:
        """One valid object is read, whatever harmless text surrounds it."""
        facts, insights, _ = extraction.parse_reflection(reply, CONVERSATION)
        assert facts == (
            ExtractedFact(fact_type="profile", key="home_city", value="Lyon", confidence=0.9, source_seqs=(3,)),
        )
        assert insights == (ExtractedInsight(content="She plans ahead.", importance="high", source_seqs=(3, 4)),)

    @pytest.mark.parametrize("reply", MALFORMED.values(), ids=MALFORMED)
    def test_a_malformed_reply_loses_nothing_silently(self, reply: str) -> None:
        """Whatever is wrong, and wherever, nothing is taken from the reply, and all of it is kept."""
        with pytest.raises(MalformedReplyError) as caught:
            extraction.parse_reflection(reply, CONVERSATION)
        assert caught.value.raw_reply == reply
        assert caught.value.code == "malformed"

    def test_an_empty_reflection_is_valid(self) -> None:
        """Explicit empty lists are an empty reflection, not an error."""
        assert extraction.parse_reflection('{"facts": [], "insights": []}', CONVERSATION) == ((), (), ())

    def test_the_message_names_each_problem_and_no_content(self) -> None:
        """A repair receives all problems at once; a log line contains none of the conversation."""
        reply = facts_reply(type="secret", confidence="secret", value=["secret", "\x00"])
        with pytest.raises(MalformedReplyError) as caught:
            extraction.parse_reflection(reply, CONVERSATION)
        message = str(caught.value)
        assert all(place in message for place in ("facts[1].type", "facts[1].confidence", "facts[1].value"))
        assert "secret" not in message

    def test_the_message_is_bounded(self) -> None:
        """A reply with a thousand invalid facts yields a message of a few lines."""
        with pytest.raises(MalformedReplyError, match="and 980 more") as caught:
            extraction.parse_reflection(json.dumps({"facts": [None] * 1000, "insights": []}), CONVERSATION)
        assert len(str(caught.value)) < 2000

    @pytest.mark.parametrize(("given_value", "kept"), [(1, 1.0), (0, 0.0), (1.004, 1.0), (-0.004, 0.0), (0.25, 0.25)])
    def test_confidence_is_a_float_in_range(self, given_value: float, kept: float) -> None:
        """Integers are accepted, and values that exceed the range by rounding are clamped."""
        facts, _, _ = extraction.parse_reflection(facts_reply(confidence=given_value), CONVERSATION)
        assert facts[1].confidence == kept
        assert isinstance(facts[1].confidence, float)

    @pytest.mark.parametrize("value", [0, False, 3.5, "7", ["a", 1], {"since": 2020}, "你好"])
    def test_values_keep_their_type(self, value: Any) -> None:
        """Zero and false are values; lists and objects are kept unchanged."""
        facts, _, _ = extraction.parse_reflection(facts_reply(value=value), CONVERSATION)
        assert facts[1].value == value
        assert type(facts[1].value) is type(value)

    def test_keywords_ignore_case_and_surrounding_spaces(self) -> None:
        """Types and importances are matched without case; keys and texts are stripped."""
        facts, _, _ = extraction.parse_reflection(facts_reply(type=" Rule ", key=" k ", value=" v "), CONVERSATION)
        assert (facts[1].fact_type, facts[1].key, facts[1].value) == ("rule", "k", "v")
        _, insights, _ = extraction.parse_reflection(insight_reply(importance="LOW"), CONVERSATION)
        assert insights[0].importance == "low"

    def test_sources_are_ascending_and_unique(self) -> None:
        """The order and repetition of source turns have no meaning; 7.0 is the integer 7."""
        facts, _, _ = extraction.parse_reflection(facts_reply(source_turns=[7.0, 3, 3]), CONVERSATION)
        assert facts[1].source_seqs == (3, 7)
        assert all(type(seq) is int for seq in facts[1].source_seqs)

    def test_a_repeated_fact_is_merged(self) -> None:
        """Equal facts merge their sources and keep the higher confidence."""
        twice = {"facts": [FACT, {**FACT, "confidence": 0.95, "source_turns": [7]}], "insights": []}
        facts, _, _ = extraction.parse_reflection(json.dumps(twice), CONVERSATION)
        assert [(fact.confidence, fact.source_seqs) for fact in facts] == [(0.95, (3, 7))]

    @given(
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["facts", "insights", *FACT, *INSIGHT]), inner, max_size=4)
            ),
            max_leaves=20,
        )
    )
    def test_any_json_is_read_completely_or_rejected(self, value: Any) -> None:
        """No reply raises any other error, and no accepted reply loses a fact."""
        reply = json.dumps(value)
        try:
            facts, insights, _ = extraction.parse_reflection(reply, CONVERSATION)
        except MalformedReplyError as error:
            assert error.raw_reply == reply  # noqa: PT017 - both ends are right, the other is checked below
        else:
            assert (len(facts), len(insights)) == (len(value["facts"]), len(value["insights"]))

    @given(st.text(alphabet='{}[]":,\\ntruefalsx0.9-\ufeff` ', max_size=60))
    def test_any_text_is_read_or_rejected(self, text: str) -> None:
        """Text that is barely JSON raises no other error."""
        try:
            extraction.parse_reflection(text, CONVERSATION)
        except MalformedReplyError as error:
            assert error.raw_reply == text  # noqa: PT017 - most texts are refused, some may be read

    def test_a_retraction_stands_beside_the_new_value(self) -> None:
        """What ended and what took its place share a key; what ended may be left unnamed."""
        reply = [
            FACT,
            {**FACT, "value": "Nice", "ended": True},
            {**without(FACT, "value"), "key": "pet", "ended": True},
        ]
        facts, _, _ = extraction.parse_reflection(json.dumps({"facts": reply, "insights": []}), CONVERSATION)
        assert [(fact.key, fact.value, fact.ended) for fact in facts] == [
            ("home_city", "Lyon", False),
            ("home_city", "Nice", True),
            ("pet", None, True),
        ]

    def test_what_a_turn_corrects_is_given_as_it_was_stated(self) -> None:
        """Beside its end and, if there is one, the value that holds; another value without an end is refused."""
        stated = [{**FACT, "value": value} for value in ("Nice", "Rome")]
        ends = [{**FACT, "value": ["Nice", "Rome"], "ended": True}]
        facts, _, _ = extraction.parse_reflection(
            json.dumps({"facts": [*stated, *ends, FACT], "insights": []}), CONVERSATION
        )
        assert [(fact.value, fact.ended) for fact in facts] == [
            ("Nice", False),
            ("Rome", False),
            (["Nice", "Rome"], True),
            ("Lyon", False),
        ]
        with pytest.raises(MalformedReplyError, match="another value"):
            extraction.parse_reflection(
                json.dumps({"facts": [*stated, {**FACT, "value": "Nice", "ended": True}, FACT], "insights": []}),
                CONVERSATION,
            )

    def test_a_repeated_insight_names_the_known_one(self) -> None:
        """By its number in the list of the request; it becomes an id."""
        known = tuple(KnownInsight(id=f"id{n}", content="...") for n in (1, 2))
        slice_ = replace(CONVERSATION, known_insights=known)
        _, (insight,), _ = extraction.parse_reflection(insight_reply(repeats=2), slice_)
        assert insight.repeats == "id2"
        for number in (0, 3, True, 1.5):
            with pytest.raises(MalformedReplyError, match="repeats"):
                extraction.parse_reflection(insight_reply(repeats=number), slice_)

    def test_the_schema_matches_the_checks(self) -> None:
        """The schema sent to the model and the checks name the same keys and words."""
        lists = extraction.REFLECTION_SCHEMA["properties"]
        assert lists["facts"]["items"]["required"] == list(FACT)
        assert lists["insights"]["items"]["required"] == list(INSIGHT)
        assert lists["facts"]["items"]["properties"]["type"]["enum"] == ["preference", "rule", "profile"]


class TestSummary:
    @pytest.mark.parametrize("reply", ['{"summary": "It rained."}', '```json\n{"summary": " It  rained.\\n"}\n```'])
    def test_it_is_one_paragraph(self, reply: str) -> None:
        """Spaces and line breaks are collapsed into one space."""
        assert extraction.parse_summary(reply) == "It rained."

    @pytest.mark.parametrize(
        "reply",
        [
            "It rained.",
            "",
            '{"summary": ""}',
            '{"summary": "  "}',
            '{"summary": null}',
            '{"summary": ["It rained."]}',
            '{"text": "It rained."}',
            '{"summary": "It rained.", "more": 1}',
            '["It rained."]',
            '{"summary": "It rained.',
            '{"summary": "It\\u0000rained."}',
            json.dumps({"summary": "x" * 201}),
        ],
    )
    def test_an_invalid_summary_is_rejected(self, reply: str) -> None:
        """No summary is made up from a reply that is not one."""
        with pytest.raises(MalformedReplyError) as caught:
            extraction.parse_summary(reply)
        assert caught.value.raw_reply == reply

    def test_two_hundred_characters_are_allowed(self) -> None:
        """The limit counts characters, in any script."""
        assert extraction.parse_summary(json.dumps({"summary": "字" * 200})) == "字" * 200

    @pytest.mark.parametrize(
        ("text", "clipped"),
        [
            ("一二三四五六七八。九十", "一二三四五六七八。"),
            ("One two three. Four", "One two…"),
            ("Cost 3.50 eur. More", "Cost 3.50…"),
            ("It costs 3.50 eur.", "It costs…"),
            ("abcdefghijklm", "abcdefghi…"),
            ("short", "short"),
        ],
    )
    def test_clipping_ends_at_a_sentence_or_a_word(self, text: str, clipped: str) -> None:
        """A clipped text is within its limit and ends at a sentence or word boundary, if that keeps half of it."""
        assert extraction.clip_text(text, 10) == clipped

    @given(st.text(max_size=500), st.integers(1, 300))
    def test_clipping_keeps_the_limit(self, text: str, limit: int) -> None:
        """No clipped text exceeds its limit."""
        assert len(extraction.clip_text(text, limit)) <= limit


def test_a_fact_that_is_taken_back_says_so() -> None:
    """`ended` is optional and false by default."""
    facts, _, _ = extraction.parse_reflection(facts_reply(ended=True), CONVERSATION)
    assert [fact.ended for fact in facts] == [False, True]
