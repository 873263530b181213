"""Fact patterns, and the vocabulary that the tables share."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from hippocampus.records import FactType

#: How the captured object is cleaned and checked.
Shape = Literal[
    "thing",
    "list",
    "items",
    "names",
    "titles",
    "languages",
    "title",
    "action",
    "event",
    "habit",
    "rule",
    "place",
    "name",
    "org",
    "role",
    "plain",
    "workplace",
    "given_name",
    "birth",
    "occasion",
    "kin_state",
    "kin_name",
    "event_zh",
    "rule_zh",
    "clause",
]


@dataclass(frozen=True, slots=True)
class Pattern:
    """One way of stating one kind of fact.

    `regex` matches at the start of a clause and may capture `object` and `about`; `text` is the fact in the third
    person with {object} and {about} ({a_object} adds an article, {does} conjugates a verb); `confidence` is how often
    such a sentence means the fact.
    """

    topic: str  # the key's first part
    fact_type: FactType
    regex: re.Pattern[str]
    text: str
    shape: Shape
    confidence: float
    single: bool = False  # one value per person: the key is the topic alone


_ADVERBS_EN = (
    r"(?:(?:really|absolutely|totally|truly|still|also|genuinely|do(?= (?:love|like|enjoy|have|live|work|want|prefer"
    r"|hate|need|own|play|speak))|definitely|personally|always|just"
    r"|actually"
    r"|especially|particularly|mainly|mostly|currently|now|recently|finally|both|completely|so|very|super"
    r"|pretty"
    r"|quite|severely|highly|usually|normally|typically|often|only|even|already|originally|meanwhile|just|together"
    r"|basically|maybe|again|once)\s+)*"
)


def english(
    topic: str,
    fact_type: FactType,
    regex: str,
    text: str,
    shape: Shape,
    confidence: float,
    *,
    single: bool = False,
) -> Pattern:
    """Return a pattern for English clauses: `~` stands for any adverbs, `^` for the clause's start."""
    spelled = regex.replace("~", _ADVERBS_EN).replace("[A-Z]", "(?-i:[A-Z])")
    compiled = re.compile(spelled, re.IGNORECASE)
    return Pattern(topic, fact_type, compiled, text, shape, confidence, single)


_ADVERBS_ZH = (
    "(?:还是|还|也|真的|确实|一直|都|现在|目前|其实|最近|已经|平时|一向|特别|非常|最|很|超级|超|挺|比较|尤其"
    "|真|就|可|又|更|转头|后来|干脆|终于|本来就|刚刚|刚|终于|上个?月|去年|今年|昨天|前几天|上周|前年|这个月|上个星期"
    "|今天|年初)*"
)


def chinese(
    topic: str,
    fact_type: FactType,
    regex: str,
    text: str,
    shape: Shape,
    confidence: float,
    *,
    single: bool = False,
) -> Pattern:
    """Return a pattern for Chinese clauses: `~` stands for any adverbs."""
    return Pattern(topic, fact_type, re.compile(regex.replace("~", _ADVERBS_ZH)), text, shape, confidence, single)
