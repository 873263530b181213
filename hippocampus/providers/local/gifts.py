"""What is bought for somebody else: its buyer does not have it."""

from __future__ import annotations

import re

from hippocampus.providers.local import clauses, patterns_en, patterns_zh
from hippocampus.providers.local.patterns import Pattern

_PEOPLE_EN = (
    rf"(?:{patterns_en.KIN_MODIFIER}(?:{patterns_en.KIN.replace('?P<about>', '?:')}|kid|child|boy|girl|folk|parent"
    r"|friend|mate|pal|buddy|colleague|co-?worker|neighbou?r|teacher|tutor|student|in-law|godchild|grandkid)s?"
    r"|children|grandchildren)"
)
_OCCASION_EN = r"(?:birthday|wedding|graduation|christening|shower|leaving do|retirement|anniversary)"
#: Not 'for my sister's room', nor 'for my wife and me'.
_SOMEBODY_EN = (
    rf"(?:(?:my|our|an?|the|some|his|her|their) {_PEOPLE_EN}\b(?!'s? (?!(?:[a-z0-9]+ )?{_OCCASION_EN}))"
    r"(?!,? and (?:me|I|myself|us)\b)|him\b|her\b(?! \w)|them\b|(?:someone|somebody) else\b)"
)
#: No feast, no month, and nowhere that things are bought for.
_NAME_EN = (
    r"(?-i:(?!I\b|Christmas|Easter|Xmas|Diwali|Eid|Hanukkah|Thanksgiving|Halloween|New\b|Uni\b|University|Work|School"
    r"|(?:Jan|Febr)uary|March|April|May|June|July|August|(?:Sept|Nov|Dec)ember|October|[A-Z][a-z]*day\b)[A-Z][a-z]+)"
)
_TO_GIVE_EN = (
    r"\b(?:gifts?|presents?|surprise) for (?!me\b|myself|us\b|ourselves|life\b|[a-z]+ing\b)"
    rf"|\bto give (?:to )?(?:{_SOMEBODY_EN}|{_NAME_EN})"
)
#: What was bought, and for whom, in one clause; after 'got as a gift' it is the speaker's.
_FOR_EN = re.compile(
    rf"{_TO_GIVE_EN}|\bfor {_SOMEBODY_EN}|\bfor {_NAME_EN}(?: and {_NAME_EN})?(?=$|[,.!;]| (?:for|as|on|to|last|this)\b"
    rf"|'s {_OCCASION_EN})|(?<!got )\b(?:bought|ordered|picked up|made|chose|choosing|buying) .*\bas an?"
    r" (?:[a-z]+ )?(?:gift|present|surprise)\b",
    re.IGNORECASE,
)
#: 'I bought my mum a tablet', 'we got Tom and Ada a toaster'.
_TWO_OBJECTS_EN = re.compile(
    r"\b(?:bought|buying|got|getting|gotten|ordered|ordering|made|built|gave|given|giving|sent|lent|found|chose|picked)"
    rf" (?:(?:my|our) {_PEOPLE_EN}(?!')(?: and (?:(?:my|our) )?{_PEOPLE_EN})?(?: {_NAME_EN})?"
    rf"|{_NAME_EN}(?: and {_NAME_EN})?|him|them|her)"
    r" (?:an?|the|some|one|two|three|new|another|this|that|his|her|their|my|our) ",
    re.IGNORECASE,
)
#: The same, where the next clause or sentence says for whom.
_IT_IS_FOR_EN = re.compile(
    r"^\W*(?:(?:and|but|though|well|actually|so),? )*(?:(?:it|that|this|they|which)(?:'s| is| was|'re| are| were) )?"
    rf"(?:actually |really |all |just |meant (?:as |to be )?|as )*(?:(?:an? |the )?(?:[a-z]+ ){{0,2}}?{_TO_GIVE_EN}"
    rf"|for (?:{_SOMEBODY_EN}|{_NAME_EN}(?! and (?:I|me|us)\b))|not for me\b)",
    re.IGNORECASE,
)
#: Having something is not buying it.
_BOUGHT_EN = re.compile(
    r"\b(?:bought|buy(?:ing)?|got|get(?:ting)?|gotten|ordered|ordering|picked up|picking up|adopted|adopting|chose|made"
    r"|built|found|gave|given|giving|sent|lent|treated|rescued)\b",
    re.IGNORECASE,
)

_SELF_ZH = "(?!我们|自己|我(?:买|换|自己|的?[车房])|咱)"
_PERSON_ZH = (
    f"(?:{patterns_zh.KIN.replace('?P<about>', '?:')}|[妈爸爹娘姐哥弟妹]{{1,2}}|爸妈|父母|媳妇儿?|闺女|儿媳妇?|女婿"
    f"|外孙|外甥|小姨|大姨|同事|朋友|同学|老师|老板|领导|邻居|徒弟|师傅|别人|人家|[他她]们?|{clauses.NAME_ZH})"
)
_FOR_ZH = re.compile(
    f"[给帮替]{_SELF_ZH}我?(?:家|的|们)?{_PERSON_ZH}[^，。我]{{0,4}}?(?:买|换|订|定|入手|挑|选|配|置办|添|养|领养|抱)"
    f"|(?:买|换|订|定|入手|挑|选|领养|抱)[^，。]{{1,14}}?(?:送给?|给)(?!我(?:[的，。]|$)){_SELF_ZH}我?(?:家|的|们)?{_PERSON_ZH}"
)
_IT_IS_FOR_ZH = re.compile(
    f"^(?:不过|但是?|其实|都|就|我)*(?:是|这是)?(?:要|准备|打算|想|用来)?(?:送给?|给|买给|替)(?!我(?:[的，。]|$))"
    f"{_SELF_ZH}我?(?:家|的|们)?{_PERSON_ZH}"
)
_BOUGHT_ZH = re.compile("买|换了|订了|入手|挑了|选了|领养|抱了|抱回")
#: What is kept of it: that it was bought.
BOUGHT_FOR = Pattern("event", "custom", _FOR_EN, "{clause}", "clause", 0.8)


def given(clause: str, following: str, *, chinese: bool) -> str | None:
    """Return what a clause says that was bought for somebody else, with what goes on to say so; else None.

    Args:
        following: the clause or sentence after it: 'Got a console, it's for my brother.'
    """
    bought, for_another, it_is_for = (
        (_BOUGHT_ZH, (_FOR_ZH,), _IT_IS_FOR_ZH) if chinese else (_BOUGHT_EN, (_FOR_EN, _TWO_OBJECTS_EN), _IT_IS_FOR_EN)
    )
    if not bought.search(clause):
        return None
    if any(pattern.search(clause) for pattern in for_another):
        return clause
    if following and it_is_for.match(following):
        return (
            f"{clause}，{following.removeprefix('我')}"
            if chinese
            else f"{clause}, {following[0].lower()}{following[1:]}"
        )
    return None
