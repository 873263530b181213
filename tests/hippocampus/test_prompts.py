"""The prompts: packaged, hashed, and consistent with the code that parses the replies."""

from __future__ import annotations

import hashlib
import json
import re
from importlib import resources
from typing import get_args

import pytest

from hippocampus import prompts
from hippocampus.providers import extraction, transcript
from hippocampus.records import ConversationSlice, Turn
from tests.support.provider_conformance import START

NAMES = get_args(prompts.PromptName)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_a_file_of_the_package(name: prompts.PromptName) -> None:
    """Each prompt is found in the installed package, and is not blank."""
    assert prompts.load(name).text


@pytest.mark.parametrize("name", NAMES)
def test_the_hash_is_that_of_the_file(name: prompts.PromptName) -> None:
    """The file alone identifies the memories that were made with it."""
    content = resources.files("hippocampus.prompts").joinpath(f"{name}.md").read_bytes()
    assert prompts.load(name).sha256 == hashlib.sha256(content).hexdigest()
    assert prompts.load(name) == prompts.load(name)


def test_every_prompt_file_has_a_name() -> None:
    """The package contains no unused prompt."""
    files = {entry.name for entry in resources.files("hippocampus.prompts").iterdir()}
    assert {name for name in files if name.endswith(".md")} == {f"{name}.md" for name in NAMES}


def test_a_missing_prompt_is_an_error() -> None:
    """A missing prompt is never an empty text."""
    with pytest.raises(FileNotFoundError):
        prompts.load("no_such_prompt")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["fast_replay", "deep_reflection"])
def test_it_names_the_delimiters_and_labels(name: prompts.PromptName) -> None:
    """The prompt explains the transcript as it is written."""
    text = prompts.load(name).text
    for word in (
        transcript.BEGIN,
        transcript.END,
        *(f"`{transcript.mark(role)}`" for role in ("user", "model", "tool")),
    ):
        assert word in text


def test_the_prompt_of_answers_names_what_it_is_given() -> None:
    """Its delimiters and its lines; and the reply shown in it would be accepted."""
    text = prompts.load("answer").text
    for word in (transcript.BEGIN_MEMORY, transcript.END_MEMORY, "LANGUAGE", "`note`", '"citations"'):
        assert word in text.replace("`citations`", '"citations"')
    assert extraction.parse_answer(text.rpartition("around it: ")[2], 400) == ("the text", (3, 7))


def test_the_prompt_of_rankings_names_what_it_is_given() -> None:
    text = prompts.load("rerank").text
    assert transcript.BEGIN_TEXTS in text
    assert transcript.END_TEXTS in text
    assert extraction.parse_ranking(text.rpartition("around it: ")[2], 7) == (7, 2)


def test_the_example_of_the_reflection_is_valid() -> None:
    """The reply shown in the prompt would be accepted; what it proposes as an instruction holds at once as a rule."""
    example = re.search(r'\{"facts".*\Z', prompts.load("deep_reflection").text, re.DOTALL)
    assert example
    turns = tuple(
        Turn(sequence_num=seq, author="user", role="user", text="x", occurred_at=START) for seq in range(1, 9)
    )
    facts, insights, proposals = extraction.parse_reflection(example.group(), ConversationSlice(turns=turns))
    assert facts
    assert insights
    assert proposals
    assert {each.key for each in proposals} == {each.key for each in facts if each.fact_type == "rule"}


def test_the_example_of_the_summary_is_valid() -> None:
    """The reply shown in the prompt would be accepted, and its limit is the one that is checked."""
    text = prompts.load("fast_replay").text
    assert json.loads(text[text.rindex("{") :]) == {"summary": "the text"}
    assert f"At most {extraction.SUMMARY_CHARACTERS_MAX} characters" in text


def test_it_explains_the_accepted_types() -> None:
    """Each type and importance that the checks accept is explained to the model."""
    text = prompts.load("deep_reflection").text
    for word in (*extraction.MODEL_FACT_TYPES, *extraction.IMPORTANCES, "ended", "repeats", transcript.KNOWN):
        assert f"`{word}`" in text


#: What a prompt asks for, by the words that ask: corrections, dates and people, and the language in which it is kept.
ASKED = {
    "deep_reflection": {
        "corrections": (
            "true for what is taken back",
            "key and value are then those that it was known by",
            "replaces an old one from before the slice by itself",
            "given as it was stated, with the turns that stated it, and again with `ended`",
            "the value that holds instead",
        ),
        "dates": ('"Yesterday", "next May" become dates', "worked out from the turn's time", "a plan keeps its date"),
        "people": (
            "Of somebody other than the user it begins with their name",
            "A relation is the user's fact, its value says who",
        ),
        "language": ("in the language of the conversation", "以后请用中文回答"),
    },
    "fast_replay": {
        "corrections": ("decisions, conclusions and corrections", "what was corrected stands as corrected"),
        "dates": ("Names, numbers, dates and places stay exact",),
        "people": ("Call the speakers by their names",),
        "language": ("in the language of most of the conversation",),
    },
}


@pytest.mark.parametrize(
    ("name", "subject"), [(name, subject) for name, subjects in ASKED.items() for subject in subjects], ids=str
)
def test_it_asks_for_corrections_dates_and_people(name: prompts.PromptName, subject: str) -> None:
    """Each is asked for in plain words, which may be wrapped anywhere; to leave one out is a decision."""
    text = " ".join(prompts.load(name).text.split())
    assert [words for words in ASKED[name][subject] if words not in text] == []
