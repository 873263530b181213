"""The provider without a model: conformance, and its further guarantees."""

from __future__ import annotations

import asyncio
import json
import os
import sys

import pytest

from hippocampus.providers.local import embedding, facts, summary
from hippocampus.providers.local import insights as local_insights
from hippocampus.providers.local.provider import LocalEmbedder, LocalGenerator
from hippocampus.records import ConversationSlice
from tests.support.paths import EXAMPLES, ROOT
from tests.support.provider_conformance import (
    CHINESE,
    EmbedderConformance,
    GeneratorConformance,
    assert_unit,
    conversation,
    cosine,
)


class TestLocalGenerator(GeneratorConformance):
    @pytest.fixture
    def generator(self) -> LocalGenerator:
        return LocalGenerator()


class TestLocalEmbedder(EmbedderConformance):
    long_text_chars = 2_000_000

    @pytest.fixture
    def embedder(self) -> LocalEmbedder:
        return LocalEmbedder()


def english_chat(turns: int = 40) -> ConversationSlice:
    lines = [
        ("user", "We finally signed the lease for the bakery on Mill Street, so the opening is on 4 May."),
        ("model", "Congratulations! Shall I prepare a list for the opening?"),
        ("user", "Yes please."),
        ("user", "The bakery needs two ovens, and the second oven has to fit through the narrow door."),
        ("model", "I have noted the ovens and the narrow door."),
    ]
    return conversation(*(lines * (turns // len(lines))))


def long_words() -> ConversationSlice:
    return conversation(("user", "x" * 5_000), ("user", "字" * 5_000))


class TestSummaries:
    @pytest.mark.parametrize(
        "conversation_slice",
        [
            english_chat(),
            long_words(),
            conversation(("user", "字" * 900)),
            conversation(("user", "👩‍👩‍👧‍👦" * 300)),
            conversation(("user", "e\u0301" * 400)),
            conversation(("user", ""), ("model", "  \n ")),
            conversation(("x" * 500, "hello there, we booked the boat")),
        ],
    )
    def test_a_summary_is_bounded_and_never_empty(self, conversation_slice: ConversationSlice) -> None:
        """At most 200 characters and never blank, whatever the slice contains."""
        text = summary.of_slice(conversation_slice)
        assert text.strip()
        assert len(text) <= summary.SUMMARY_CHARS_MAX
        assert not text.removesuffix("…").endswith("\u200d")

    def test_a_summary_quotes_the_conversation(self) -> None:
        """Each piece is from the conversation, with its speaker, and the decision is among them."""
        text = summary.of_slice(english_chat())
        assert text.startswith("User: ")
        assert "signed the lease" in text
        assert "Yes please" not in text

    def test_a_long_sentence_is_cut_between_words(self) -> None:
        """A sentence over the limit ends with a whole word and an ellipsis."""
        words = " ".join(f"harbour{n} lantern{n}" for n in range(60))
        text = summary.of_slice(conversation(("Ana", f"We decided on {words}.")))
        assert text.endswith("…")
        assert f" {text.removesuffix('…').split()[-1]} " in f" {words} "

    def test_a_summary_is_in_the_language_of_its_slice(self) -> None:
        """A Chinese slice has a Chinese summary and label."""
        text = summary.of_slice(CHINESE)
        assert text.startswith("用户：")
        assert "我住在杭州" in text

    def test_a_summary_has_the_corrected_date(self) -> None:
        """What a later turn puts right is summarised as it is then."""
        text = summary.of_slice(
            conversation(("user", "I'm flying to Oslo on Friday."), ("user", "No wait, I meant Saturday."))
        )
        assert text == "User: I'm flying to Oslo on Saturday."

    def test_a_summary_leaves_out_what_was_taken_back(self) -> None:
        """An allergy that was a mistake is not summarised."""
        text = summary.of_slice(
            conversation(("user", "I'm allergic to shellfish."), ("user", "I'm not allergic to shellfish after all."))
        )
        assert text == "User: I'm not allergic to shellfish after all."


class TestInsights:
    def test_decisions_and_milestones_are_found(self) -> None:
        """Important ones come first, in the speaker's words, with their turns."""
        insights = local_insights.of_slice(
            conversation(
                ("Ana", "I signed up for the rowing course."),
                ("Bo", "Good for you!"),
                ("Ana", "And we decided to sell the boat."),
                ("Bo", "我们决定明年结婚。"),
            )
        )
        assert [(i.importance, i.content, i.source_seqs) for i in insights] == [
            ("high", "Ana: And we decided to sell the boat.", (3,)),
            ("high", "Bo：我们决定明年结婚。", (4,)),
            ("medium", "Ana: I signed up for the rowing course.", (1,)),
        ]

    def test_small_talk_yields_none(self) -> None:
        """If nothing is found, the result is empty, not invented."""
        chat = conversation(("Ana", "Hi! How are you?"), ("Bo", "Fine, thanks."), ("Ana", "Shall we decide now?"))
        assert local_insights.of_slice(chat) == []

    def test_the_same_news_is_reported_once(self) -> None:
        """Two sentences of nearly the same words are one insight."""
        chat = conversation(("user", "We decided to sell the boat."), ("user", "Yes, we decided to sell the boat!"))
        assert len(local_insights.of_slice(chat)) == 1

    def test_a_frequent_word_is_not_an_insight(self) -> None:
        """The number of mentions of a name or a topic yields no conclusion."""
        chat = conversation(*[("user", f"The greenhouse needs work, part {n}.") for n in range(6)])
        assert local_insights.of_slice(chat) == []


class TestVectors:
    @pytest.mark.parametrize(
        ("text", "near", "far"),
        [
            ("I love hiking in the mountains", "A hike up the mountain", "The invoice is due on Monday"),
            ("Her kids start school", "The children go to class", "The engine needs oil"),
            ("我喜欢爬山", "周末去爬山吗", "发票已经寄出"),
            ("我养了一只狗", "We adopted a puppy", "The train was late"),
            ("Café Zoë opens early", "cafe zoe OPENS", "museum closes late"),
        ],
    )
    def test_related_texts_are_nearer(self, text: str, near: str, far: str) -> None:
        """Shared words, subwords and word families bring texts together, across spellings."""
        query = embedding.vector_of(text)
        assert cosine(query, embedding.vector_of(near)) > cosine(query, embedding.vector_of(far)) + 0.05

    def test_case_and_punctuation_do_not_matter(self) -> None:
        """The same words yield the same vector."""
        left, right = embedding.vector_of("Hello, World!"), embedding.vector_of("hello world")
        assert cosine(left, right) == pytest.approx(1.0)

    def test_signs_without_letters_stay_apart(self) -> None:
        """Texts without words are equal only to themselves."""
        left, right = embedding.vector_of("🙂"), embedding.vector_of("🙃")
        assert cosine(left, left) == pytest.approx(1.0)
        assert abs(cosine(left, right)) < 0.99

    def test_lone_surrogates_have_a_vector(self) -> None:
        """Text that is not valid Unicode is embedded, not rejected."""
        assert_unit([embedding.vector_of("\ud83d broken"), embedding.vector_of("\ud83d")])

    async def test_the_loop_runs_while_a_large_batch_is_embedded(self) -> None:
        """Other tasks of the process run during a batch of thousands."""
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.005)

        ticker = asyncio.create_task(tick())
        await LocalEmbedder().embed([f"text number {n} about harbours and lanterns" for n in range(3_000)], "document")
        ticker.cancel()
        assert ticks >= 5


@pytest.mark.system
async def test_every_process_gives_the_same_results() -> None:
    """Nothing depends on Python's hash seed: two workers extract the same facts and vectors."""
    started = {
        seed: await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.support.local_results"),
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=asyncio.subprocess.PIPE,
        )
        for seed in ("0", "4242")
    }
    results = {seed: (await process.communicate())[0].decode() for seed, process in started.items()}
    assert [process.returncode for process in started.values()] == [0, 0]
    assert results["0"] == results["4242"] != ""


def test_the_sample_conversation_is_understood() -> None:
    """The shipped conversation yields its speaker's statements: moves, jobs and rules that change."""
    (item,) = json.loads((EXAMPLES / "mei.json").read_text(encoding="utf-8"))
    said: dict[str, list[str]] = {}
    number = 1
    while f"session_{number}" in item["conversation"]:
        lines = [(line["speaker"], line["text"]) for line in item["conversation"][f"session_{number}"]]
        for fact in facts.of_slice(conversation(*lines)):
            said.setdefault(fact.key, []).append(fact.value["text"])
        number += 1
    assert said["mei:home"] == ["lives in Rotterdam", "lives in Ghent", "住在根特"]
    assert said["mei:rule:meetings_on_friday"][0] == "never schedule meetings on Fridays"
    assert said["mei:rule:meetings_on_friday"][-1] == "Fridays are fine for meetings"
    assert said["mei:allergy:buckwheat"] == ["is allergic to buckwheat"]
    assert "works at Declercq Orgelbouw" in said["mei:employer"]
    assert not any(key.startswith("assistant") for key in said)
