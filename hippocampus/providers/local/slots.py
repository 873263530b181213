"""Which single thing of a person a fact states: their work, their home, their studies.

A person has one of each at a time, so that a later statement about the same one takes the place of the former, in
whatever words and under whatever key: 'my wife works in a shop' … 'my wife's at the nursery now'.
"""

from __future__ import annotations

import re

from hippocampus.providers.local import patterns_en, patterns_zh

_WORK = re.compile(
    rf"\b(?:works?|working|job|office|hired|employed|retired|promoted|freelanc\w+|apprentice\w*|shifts?|{patterns_en.OCCUPATION})\b"
    f"|上班|工作|打工|收银|当[^，。年]{{1,6}}|开(?:店|车|出租|滴滴|公司)|跑(?:车|运输|外卖|滴滴|旅游)|调到|调回|退休|辞职"
    f"|不[^，。]{{0,6}}干了|干活|{patterns_zh.JOB[len('[^，。的了]{0,10}?') :]}",
    re.IGNORECASE,
)
_HOME = re.compile(
    r"\b(?:lives?|living|moved|based in|flat|house in|apartment)\b|住(?!院)|搬(?:到|来|去|回|进)|定居", re.IGNORECASE
)
_STUDY = re.compile(
    r"\b(?:stud(?:y|ies|ying)|uni(?:versity)?|college|school|sixth form|(?:first|second|third|fourth"
    r"|final) year|degree|phd|masters?)\b"
    r"|[初高大研博小][一二三四五六](?!十)|年级|考上|录取|读(?:书|博|研|大学|高中)|幼儿园(?!.*(?:当|老师))|中考|高考|毕业|学的?是?[\u4e00-\u9fff]{2,}专业",
    re.IGNORECASE,
)
_HEALTH = re.compile(
    r"\b(?:hospital|ill|sick|surgery|operation|broke (?:her|his)|recover\w*|pneumonia)\b|住院|出院|手术|生病"
    r"|病了|[肺胃肝肾]炎|骨折|摔了|康复",
    re.IGNORECASE,
)
_CLASSES = (("health", _HEALTH), ("study", _STUDY), ("work", _WORK), ("home", _HOME))
#: Words for relatives that mean the same one.
_ZH = {
    **patterns_zh.KIN_ENGLISH,
    "媳妇": "wife",
    "闺女": "daughter",
    "我妈": "mother",
    "我爸": "father",
    "爹": "father",
    "娘": "mother",
}
#: People who are named with a word for a relative, and are none.
_NO_KIN_ZH = re.compile("老板娘|姑娘|新娘|伴娘|奶娘|婆娘|大娘")
_EN = re.compile(rf"\b(?P<kin>{patterns_en.KIN.replace('?P<about>', '?:')})\b", re.IGNORECASE)
_NAME_EN = re.compile(r"(?<=[a-z] )(?!Dr|Mr)[A-Z][a-z]+")
MEANS = {"mum": "mother", "mom": "mother", "mama": "mother", "dad": "father", "papa": "father"}


def of_fact(topic: str, key: str, text: str) -> tuple[str, str, frozenset[str]] | None:
    """Return of whom a fact about a relative states which single thing, and the names in it; None if it does not."""
    if topic not in ("family", "health") or key.endswith((":name", ":called", ":loss", ":birth", ":surname", ":age")):
        return None
    kin = kin_of(key, text)
    if not kin:
        return None
    found = next((name for name, pattern in _CLASSES if pattern.search(text)), None)
    return (kin, found, frozenset(_NAME_EN.findall(text))) if found else None


def kin_of(key: str, text: str) -> str:
    """Return the relative whom a fact names first, '' if none."""
    text = _NO_KIN_ZH.sub("", text)
    chinese = min(((text.find(word), -len(word), who) for word, who in _ZH.items() if word in text), default=None)
    if chinese:
        return chinese[2]
    match = _EN.search(text) or _EN.search(key.replace(":", " ").replace("_", " "))
    who = match["kin"].lower() if match else ""
    return MEANS.get(who, who)


def same(was: tuple[str, str, frozenset[str]], now: tuple[str, str, frozenset[str]], several: frozenset[str]) -> bool:
    """Return whether two facts state the same thing of the same person: of several sisters, by their names."""
    if was[:2] != now[:2]:
        return False
    return bool(was[2] & now[2]) if was[0] in several and (was[2] or now[2]) else True
