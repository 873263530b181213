"""Statements that a clause makes about its speaker by the words in it, whatever its construction.

The patterns know sentences; a family knows what a statement is about: a condition, a medicine, a place to live, work, a
relative, an animal, a day of the week, a date. Where no pattern matches a clause, the first family whose words occur in
it keeps the clause itself, in the third person. A family is one row: its topic, the words, and of whom the clause must
speak.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from hippocampus.providers.local import clauses, objects
from hippocampus.providers.local.patterns import Pattern
from hippocampus.records import FactType
from hippocampus.text import words

#: Whom a clause must be about: the speaker, any named person, or no one in particular.
Whom = Literal["self", "own", "anyone", "named"]


@dataclass(frozen=True, slots=True)
class Family:
    """`regex` is searched in a clause; its group `object`, or the clause, is the key's last part."""

    pattern: Pattern
    whom: Whom
    refuse: re.Pattern[str] | None


def family(
    topic: str,
    fact_type: FactType,
    regex: str,
    *,
    whom: Whom = "self",
    refuse: str = "",
    confidence: float = 0.8,
    single: bool = False,
    text: str = "{clause}",
) -> Family:
    """Return a family; its regex ignores case except in `[A-Z]`."""
    compiled = re.compile(regex.replace("[A-Z]", "(?-i:[A-Z])"), re.IGNORECASE)
    pattern = Pattern(topic, fact_type, compiled, text, "clause", confidence, single)
    # 吉他, 其他 and 氯雷他定 are nobody.
    refuse = refuse.replace("[A-Z]", "(?-i:[A-Z])").replace("[你他她]", "(?:[你您她]|(?<![吉其])他(?![汀定林唑滨]))")
    refusing = re.compile(refuse, re.IGNORECASE) if refuse else None
    return Family(pattern, whom, refusing)


_SELF_EN = re.compile(r"^(?:I|we)\b|^(?:my|our)\b", re.IGNORECASE)
_MINE_EN = re.compile(r"\b(?:I|I'm|I've|we|me|my|our|us|mine)\b", re.IGNORECASE)
_STRANGER_EN = re.compile(
    r"^(?:you|your|he|she|they|it|that|this|those|these|there|his|her|their|its|what|who|how|why|people|everyone"
    r"|somebody|someone|let)\b|^(?-i:[A-Z][a-z]+(?:'s)?) (?:is|was|has|had|does|got|(?!works|lives (?:in|at|with)"
    r" my)[a-z]{2,}(?:s|ed))\b",
    re.IGNORECASE,
)
_MINE_ZH = re.compile("[我咱俺]")
_OTHER_ZH = re.compile("[他她它你您]|大家|人家|别人|隔壁|嫂子|老板|领导|学生|客人|老师|医生")
_STRANGER_ZH = re.compile("^(?:你|您|他|她|它|大家|人家|别人|谁|这|那|哪|什么|怎么|为什么|为啥|多少)")


def is_of_speaker(clause: str, *, speaks: bool) -> bool:
    """Return whether a Chinese clause, and those after it without a subject, speak of the speaker."""
    if _MINE_ZH.search(clause):
        return True
    return speaks and not (_OTHER_ZH.match(clause) or clauses.OTHERS_ZH.match(clause))


def speaks_of(clause: str, whom: Whom, *, chinese: bool, speaks: bool, between_names: bool) -> bool:
    """Return whether a clause speaks of whom a family wants.

    Args:
        speaks: its sentence spoke of the speaker before.
        between_names: the speaker has a name, and people who know each other speak of others by name.
    """
    if chinese:
        if whom == "anyone":
            return True
        return not _STRANGER_ZH.match(clause) and (bool(_MINE_ZH.search(clause)) or speaks)
    if whom == "anyone":
        return True
    if whom == "named":
        return between_names or bool(_MINE_EN.search(clause))
    if whom == "self":
        return bool(_SELF_EN.match(clause))
    return bool(_MINE_EN.search(clause)) or (speaks and not _STRANGER_EN.match(clause))


#: What somebody does not do is worth keeping.
_MAY_DENY = frozenset(("rule", "diet", "allergy", "preference", "family", "work_change", "health"))
_TOLD = frozenset(("event", "plan"))
_DENIES_EN = re.compile(r"\b(?:not|no longer|never|cannot|without)\b|n't\b", re.IGNORECASE)


def matching(
    table: Sequence[Family], clause: str, *, chinese: bool, speaks: bool, between_names: bool
) -> Iterator[tuple[Pattern, re.Match[str]]]:
    """Yield the first family that a clause belongs to, with its match."""
    of_whom = {
        whom: speaks_of(clause, whom, chinese=chinese, speaks=speaks, between_names=between_names)
        for whom in get_args(Whom)
    }
    if len(clause) > CLAUSE_CHARS_MAX:
        return
    denies = not chinese and _DENIES_EN.search(clause) is not None
    for each in table:
        topic = each.pattern.topic
        if not of_whom[each.whom] or (denies and topic not in _MAY_DENY):
            continue
        match = each.pattern.regex.search(clause)
        if match is None or (each.refuse is not None and each.refuse.search(clause)):
            continue
        if chinese or topic not in _TOLD or objects.says_something(clause):
            yield each.pattern, match
            return


_AUX_EN = {"'m": "is", "'re": "is", "'ve": "has", "'ll": "will", "'d": "would"}
_FULL_EN = {
    "am": "is",
    "are": "is",
    "have": "has",
    "were": "was",
    "don't": "doesn't",
    "haven't": "hasn't",
    "aren't": "isn't",
    "weren't": "wasn't",
    "do": "does",
}
_SAME_EN = frozenset(
    words.listed(
        """was will would can can't could couldn't may might must should shall won't didn't did had hadn't wasn't got
        read put cut set quit hurt let shut hit bet cost met won lost lent ran made sold bought took went saw gave found
        wasn never cannot has doesn't isn't hasn't"""
    )
)
_ADVERBS_EN = re.compile(
    r"(?:(?:also|just|still|now|never|always|really|finally|already|only|usually|often|sometimes|even|actually|both"
    r"|recently|currently|mostly|normally|then|all)\s+)*",
    re.IGNORECASE,
)
_OPENING_EN = re.compile(r"^(?:I|we)(?P<aux>'(?:m|re|ve|ll|d))?(?=\s|$)\s*", re.IGNORECASE)
_LATER_EN = (
    (re.compile(r"\bI'm\b", re.IGNORECASE), "they're"),
    (re.compile(r"\bI've\b", re.IGNORECASE), "they've"),
    (re.compile(r"\bI'll\b", re.IGNORECASE), "they'll"),
    (re.compile(r"\bI'd\b", re.IGNORECASE), "they'd"),
    (re.compile(r"\bI\b"), "they"),
    (re.compile(r"\bwe(?=\b)", re.IGNORECASE), "they"),
    (re.compile(r"\bmine\b", re.IGNORECASE), "theirs"),
)
CLAUSE_CHARS_MAX = 160
_UNCLEAR_EN = re.compile(
    r"\b(?:you|your|yours|yourself|ya|y'all|thinking (?:about|of)|considering|wondering|dreaming of)\b", re.IGNORECASE
)
_UNCLEAR_ZH = re.compile(
    "[你您]|还?没(?:有)?(?:定(?!期)|想好|决定|确定|着落)|怎么|什么|吗$|呢$|哪[里儿个]|为啥|咋(?!地)|几号|几点"
    "|来得及|能不能|注意|小心|怕啥|真好$|不容易|恭喜|加油"
    "|保重|[^没有]没$|不$|啥$|吧$|^本来|虽然|试过"
    "|^(?:是|就是)?吧$|多好|该多|的专业$|人家"
)
_EMPTY_ZH = re.compile(
    "自己|我们?|终于|已经|刚刚?|其实|真的|从来|就|都|也|还|又|再|很|太|了|的|得|着|过|地|不|没|能|会|要|想|敢|吃|喝"
    "|买|去|来|做|生|个|是|有|在|这|那|天天|每天|每周|上午|下午|晚上|早上"
)
#: Says enough in two characters.
_TURNING_ZH = re.compile("(?:怀|分|离|赢|输|辞|生)了")
_CONTENT_ZH = re.compile("[\u4e00-\u9fffA-Za-z0-9]{2}")
_EDGE_EN = re.compile(r"^[\s,.;:!?…~*\-–—]+|[\s,.;:!?…~*\-–—]+$")


def statement(clause: str, *, chinese: bool, rule: bool = False) -> str | None:
    """Return a clause in the third person; None if it speaks to somebody, is very long or says next to nothing."""
    clause = _EDGE_EN.sub("", clause)
    if len(clause) > CLAUSE_CHARS_MAX or not clause:
        return None
    if chinese:
        clause = clause.strip("，。！～~ ")
        if rule:
            return re.sub("我们?", "本人", clause)
        if _UNCLEAR_ZH.search(clause) or not (
            _CONTENT_ZH.search(_EMPTY_ZH.sub("", clause)) or _TURNING_ZH.search(clause)
        ):
            return None
        said = re.sub("^(?:我们|我)(?!们|家|的|妈|爸|哥|姐|弟|妹|儿|女|老|媳|爷|奶|婆|公|孙|岳|外|表|堂)", "", clause)
        return re.sub("我们?", "自己", said)
    if rule:
        return clause
    if _UNCLEAR_EN.search(clause) or len(clause.split()) < 2 or not words.terms(clause):
        return None
    return third_person(clause)


def third_person(clause: str) -> str:
    """Return 'I live in my van' as 'lives in their van'."""
    opening = _OPENING_EN.match(clause)
    if opening is None:
        said = clause
    else:
        rest = clause[opening.end() :]
        if opening["aux"]:
            said = f"{_AUX_EN[opening['aux'].lower()]} {rest}"
        else:
            adverbs = _ADVERBS_EN.match(rest)
            start = adverbs.end() if adverbs else 0
            verb, _, tail = rest[start:].partition(" ")
            said = f"{rest[:start]}{_conjugated(verb)} {tail}".strip()
    for pattern, word in _LATER_EN:
        said = pattern.sub(word, said)
    return objects.in_third_person(said)


def _conjugated(verb: str) -> str:
    bare = verb.lower()
    if bare in _FULL_EN:
        return _FULL_EN[bare]
    if bare in _SAME_EN or bare.endswith("ed") or not bare.isalpha() or words.is_past(bare):
        return verb
    return objects.third_person(verb)
