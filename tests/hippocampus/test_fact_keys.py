"""Fact keys: spellings of one key match, keys of different things never do."""

from __future__ import annotations

import itertools

import asyncpg
import hypothesis
import pytest
from hypothesis import strategies as st

from benchmarks import merge_thresholds as bench
from hippocampus.facts import elements
from hippocampus.facts.keys import contrast_of, element_key, normal_key, style_of
from hippocampus.providers.local.provider import LocalEmbedder
from hippocampus.records import ExtractedFact

FAMILIES = [
    [
        "favourite food",
        "favorite_food",
        "food_preference",
        "FavouriteFoods",
        "food: preferred",
        "最喜欢的食物",
        "食物偏好",
    ],
    ["home_city", "city_of_residence", "home", "current_city", "居住城市", "City"],
    ["occupation", "job", "profession", "job_title", "user_occupation", "职业"],
    ["date_of_birth", "birthday", "birth-date", "生日"],
    ["hobbies", "hobby", "用户的爱好"],
    ["caroline_occupation", "caroline:job", "occupation of Caroline"],
    ["preference:hiking", "Preference:hiking"],
    ["event:2026-01-03:trip"],
    ["event:2026-03-01:trip"],
    ["preference:food"],
    ["melanie_occupation"],
    ["likes"],
    ["dislikes"],
]


def test_spellings_of_a_key_share_one_form_and_other_keys_do_not() -> None:
    forms = [{normal_key(key) for key in family} for family in FAMILIES]
    assert [len(each) for each in forms] == [1] * len(FAMILIES), forms
    for left, right in itertools.combinations(forms, 2):
        assert not left & right, (left, right)


@hypothesis.given(st.text(min_size=1, max_size=255))
def test_a_form_is_never_empty_is_idempotent_and_accepts_any_text(key: str) -> None:
    form = normal_key(key)
    assert form
    assert normal_key(key.upper().lower()) == normal_key(key.upper().lower())
    assert normal_key(key) == form
    contrast_of(key)
    assert 0 < len(element_key(key, "x" * 400)) <= 255


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("mother_job", "sister_job"),
        ("former_employer", "employer"),
        ("likes", "dislikes"),
        ("caroline_pet", "melanie_pet"),
        ("room_5", "room_7"),
        ("喜欢的运动", "讨厌的运动"),
    ],
)
def test_contrasts_between_keys_are_detected(left: str, right: str) -> None:
    people = ("Caroline", "Melanie")
    assert contrast_of(left, people) != contrast_of(right, people)


def fact(key: str, value: object) -> ExtractedFact:
    return ExtractedFact(fact_type="profile", key=key, value=value, confidence=0.9, source_seqs=(1,))


def test_a_collection_is_split_and_a_profile_is_not() -> None:
    split = [(each.key, each.value, each.collection) for each in elements.of_fact(fact("Hobbies", ["chess", "Go"]))]
    assert split == [("Hobbies:chess", "chess", "hobby"), ("Hobbies:go", "Go", "hobby")]
    (one,) = elements.of_fact(fact("home_cities", ["Lyon", "Nice"]))
    assert (one.key, one.value, one.collection) == ("home_cities", ["Lyon", "Nice"], None)
    (element,) = elements.of_fact(fact("allergy:nuts", {"subject": "user", "text": "is allergic to nuts"}))
    assert (element.key, element.collection) == ("allergy:nuts", "allergy")


def test_several_allergies_and_restrictions_hold_whoever_has_them() -> None:
    """By the words of the key, in each form that a model writes; what tells more of one has one value."""
    for key in (
        "caroline_allergy", "foodAllergies", "nut_allergy", "allergens", "lactose_intolerance", "dietary_restrictions",
        "tom_food_restrictions", "女儿的过敏原", "食物过敏", "饮食禁忌", "family:allergy",
    ):  # fmt: skip
        assert style_of("profile", key) == "collection", key
        first, second = (elements.of_fact(fact(key.replace(":", "_"), value))[0].key for value in ("peanuts", "milk"))
        assert first != second
    for key in ("diet", "caroline_diet", "allergy_severity", "allergy_test_date", "travel_restrictions", "过敏程度"):
        assert style_of("profile", key) == "profile", key
    (one,) = elements.of_fact(fact("nut_allergy", value=True))
    assert (one.key, one.collection) == ("nut_allergy", None)
    styles = {("profile", normal_key("caroline_allergy")): "profile"}
    assert style_of("profile", "caroline_allergy", styles) == "profile"  # type: ignore[arg-type]  # as below


def test_the_apps_policy_decides_the_style() -> None:
    styles = {("profile", normal_key("hobbies")): "profile", ("profile", normal_key("cars")): "collection"}
    assert style_of("profile", "Hobby", styles) == "profile"  # type: ignore[arg-type]  # mypy widens the literals
    assert style_of("profile", "my car", styles) == "collection"  # type: ignore[arg-type]  # as above
    assert style_of("preference", "car", styles) == "profile"  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize(("kind", "pairs_min", "recall_min"), [("fact", 50, 0.6), ("insight", 60, 0.05)])
async def test_the_stored_thresholds_of_the_local_vectors_match_the_measurement(
    conn: asyncpg.Connection, kind: str, pairs_min: int, recall_min: float
) -> None:
    """Over written pairs, half of them adversarial: nine of ten merges are right at the stored threshold."""
    assert len(bench.PAIRS.read_text(encoding="utf-8").split("\n")) > 160
    pairs = [pair for pair in bench.read_pairs() if pair.kind == kind]
    found = await bench.similarities(LocalEmbedder(), pairs)
    stored = await conn.fetchval(
        "SELECT threshold FROM merge_thresholds WHERE embedding_model = $1 AND kind = $2", LocalEmbedder().model, kind
    )
    result = bench.measure(pairs, found, stored)
    print(f"{kind}: {len(pairs)} pairs, precision {result.precision:.2f}, recall {result.recall:.2f} from {stored}")
    assert len(pairs) >= pairs_min
    assert stored == bench.choose(pairs, found)
    assert result.precision >= bench.PRECISION_MIN
    assert result.recall >= recall_min
