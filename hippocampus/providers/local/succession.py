"""Which facts give way to a new one under another key: a pregnancy to a birth, a job to the next one."""

from __future__ import annotations

import re

from hippocampus.providers.local import (
    corrections,
    owners,
    patterns_en_life,
    patterns_zh,
    slots,
    statements,
    updates,
)
from hippocampus.providers.local.corrections import Held
from hippocampus.records import ExtractedFact
from hippocampus.text import words

#: What a person does for a living, in whichever words: a new one ends the former one.
_WORK = frozenset(
    ("employer", "occupation", "business", "new_job", "field_of_work", "work_change", "work_terms", "employment")
)
#: What is somebody's own: it gives way only to what is said of the same person.
_OF_ONE = _WORK | statements.DATED_TOPICS
POSTS = frozenset(("employer", "occupation", "business", "new_job", "employment"))
#: Work that somebody has beside other work.
BESIDES = re.compile(
    r"\b(?:also|as well|on the side|side (?:job|gig|hustle)|weekends?|besides|second job"
    r"|volunteer\w*)\b"
    r"|兼职|副业|业余|周末|同时|顺便|也|还在",
    re.IGNORECASE,
)
_LEAVING = re.compile(
    r"辞职|离职|找工作|换工作|跳槽|\b(?:quit|leave (?:my|the) job|new job|find a job|job hunting|apply)\b",
    re.IGNORECASE,
)
_NEW_WORK = re.compile(
    r"\b(?:now|start(?:s|ed|ing)?|new|promoted|made me|got the|left|quit|became|joined|retired?|switched|self-employed"
    r"|freelance|no longer|g[ai]ve up|going|since|handed)\b|现在|入职|换|转岗|跳槽|报到|去了?一家|开了|辞|升|单干"
    r"|合伙|不[送跑做干教]|进了|开始|退休了",
    re.IGNORECASE,
)
_NEW_JOB = re.compile(
    r"\bstart(?:s|ed|ing)? (?:a|my|their|the) new (?:job|role|position|post)\b|\bgot (?:a|the) (?:new )?job\b",
    re.IGNORECASE,
)
_NEW_SUBJECT = re.compile(
    r"转专业(?:了|成功)|转到|转去|改学|换专业|\b(?:switched|changed|transferred)\b.*\b(?:to|major|course|school)\b",
    re.IGNORECASE,
)
#: Words that rules about different things share.
_SAID_OF_RULES = corrections.content(
    "answer answers reply replies respond keep please use call write give speak message messages always never short"
    " sentence sentences words text rule me them 以后 回答 回复 说话 本人 不要 给本 推荐 提醒 时候 写上 一点"
    " 简短 叫本 跟本"
)
_LANGUAGE = (
    r"(?:English|French|German|Italian|Spanish|Portuguese|Japanese|Chinese|Mandarin|Cantonese|Korean|Arabic|Russian|Polish"
    r"|Dutch|Swedish|Danish|Norwegian|Finnish|Greek|Turkish|Hindi|Vietnamese|Thai|Czech|Hungarian|Ukrainian|Hebrew)"
)
#: One language holds for all that is said.
_IN_LANGUAGE = re.compile(
    rf"\b(?:answer|reply|respond|speak|talk|write|chat)(?:ing|s)?(?: (?:to )?(?:me|them|us|back|only|always"
    rf"|everything))* (?:in )?{_LANGUAGE}\b|\b(?:use|switch(?: back)? to) (?:only )?{_LANGUAGE}\b"
    r"|[用说讲换成以](?:[英日法德韩俄]|西班牙|意大利)[文语]|[用说讲换成以](?:中文|汉语|普通话|国语|粤语|广东话)",
    re.IGNORECASE,
)
_CONDITION = re.compile(
    r"\b(?:when|whenever|if|unless|about|for|with|to my|during|except)\b|的时候|如果|要是|除了|[和跟对给](?!我|本人)",
    re.IGNORECASE,
)
_GRADED = frozenset(("school", "studies", "occupation"))
_GRADE = re.compile(
    r"[初高大研博][一二三四五]|\b(?:freshman|sophomore|junior|senior|(?:first|second|third|fourth|final) year"
    r"|year \d+|\d+th"
    r" grade)\b",
    re.IGNORECASE,
)
_SUBJECT = re.compile(
    r"学的|专业|学院|[大研博][一二三四]|\b(?:studies|studying|major(?:ing)?|degree|course|student|sophomore"
    r"|freshman)\b",
    re.IGNORECASE,
)
_COUPLE = re.compile(r":(?:girlfriend|boyfriend|partner|fianc\w+|husband|wife)(?::|$)|男朋友|女朋友|男友|女友")
_PARTED = re.compile(
    r"\b(?:split|broke|broken|parted|separated|divorced|move out|dumped|left them|(?:are|is|'re) (?:done|over"
    r"|through|history)"
    r"|together|called it|ended|single)\b|分手|分了|离婚|掰了",
    re.IGNORECASE,
)
_SWITCHED = re.compile(r"\b(?:switched|changed|swapped|instead|moved (?:me )?to|now)\b|改|换", re.IGNORECASE)
_DOSE = re.compile(r"\b(?:takes?|on)\b|吃[^，。]{0,4}[片粒颗]|药")
_LOST = re.compile(
    r"\b(?:lost|died|passed away|put (?:him|her|it) down|gone|gave .* away)\b|走了|死了|没了|去世|送给|送人|走丢"
    r"|走失|跑丢|丢了|安乐",
    re.IGNORECASE,
)
_BORN = re.compile(
    r"\bborn\b|\bdelivered\b.*\b(?:boy|girl|baby|twins|son|daughter)\b|\bgave birth\b|\bhad (?:our|my|a) (?:\w+ "
    r")?(?:baby|son|daughter|boy|girl)|\bis here\b|生了|出生|号生",
    re.IGNORECASE,
)
_EXPECTED = re.compile(
    r"\b(?:pregnant|expecting|carrying|due|having (?:a|twins))\b|怀孕|怀上|怀了|怀二胎|预产期|要当[爸妈]|月.{0,3}生$",
    re.IGNORECASE,
)
_WORKPLACE = re.compile(r" (?:at|for|in|on) |在.+(?:做|当|工作)")


def gives_way(held: Held, topic: str, fact: ExtractedFact, sentence: str) -> bool:
    """Return whether a fact under another key ends with a new one: a pregnancy with a birth, a job with the next.

    Args:
        sentence: what states the new fact.
    """
    text = fact.value["text"]
    again = held.turn == fact.source_seqs[-1] and not (topic == "family" and _NO_LONGER.search(held.text))
    if held.key == fact.key or again or _owner(held.key) != _owner(fact.key):
        return False
    if _BORN.search(text):
        return bool(_EXPECTED.search(held.text))
    if {topic, held.topic} <= _OF_ONE and owners.named_in(held.text) != owners.named_in(text):
        return False  # 'my wedding', 'my sister's wedding'
    if topic in ("event", "plan") and held.topic in _WORK and held.topic != "work_change" and _NEW_JOB.search(text):
        return True
    if topic in _WORK and held.topic in _WORK:
        if BESIDES.search(sentence):
            return False
        if topic in POSTS and held.topic in _WORK and held.turn is None and not held.about & corrections.content(text):
            return True
        if held.topic != topic and _WORKPLACE.search(held.text) and topic in ("employer", "business", "occupation"):
            return True
        if held.topic == "occupation" and topic != "occupation" and not _WORKPLACE.search(held.text):
            return bool(held.about & corrections.content(text))
        return bool(_NEW_WORK.search(sentence))
    if topic in _WORK and held.topic == "plan" and _NEW_WORK.search(sentence):
        return bool(_LEAVING.search(held.text))
    if topic == "rule" and held.topic == "rule":
        if all(_IN_LANGUAGE.search(each) and not _CONDITION.search(each) for each in (held.text, text)):
            return True
        return bool((held.about & corrections.content(text)) - _SAID_OF_RULES)
    if (
        topic in _GRADED
        and held.topic in _GRADED
        and (was := _GRADE.search(held.text))
        and (now := _GRADE.search(text))
    ):
        return was[0] != now[0]
    if topic in ("studies", "event") and held.topic == "studies" and _NEW_SUBJECT.search(sentence):
        return bool(_SUBJECT.search(held.text))
    if topic == "relationship_status" and held.topic in ("relationship_status", "plan") and _PARTED.search(text):
        return held.topic != "plan" or bool(
            {word.lower() for word in owners.NAMED_EN.findall(held.text)} & {word.lower() for word in text.split()}
        )
    if topic == "relationship_status" and held.topic == "family":
        named = corrections.content(held.text) & corrections.content(text)
        return _COUPLE.search(held.key) is not None and (bool(named) or _PARTED.search(text) is not None)
    if topic == "medication" and held.topic in ("medication", "habit"):
        return bool(_SWITCHED.search(sentence)) and (held.topic == "medication" or bool(_DOSE.search(held.text)))
    if topic in ("family", "health") and held.topic in ("family", "health"):
        former, stated = slots.of_fact(held.topic, held.key, held.text), slots.of_fact(topic, fact.key, text)
        return former is not None and stated is not None and slots.same(former, stated, statements.SEVERAL)
    if held.topic in ("plan", "goal") and topic not in ("plan", "goal", "rule") and _is_done(held, text):
        return True
    if topic == "home" and held.topic in ("plan", "goal"):
        if _MOVE.search(held.text) is None or statements.AHEAD.search(text):
            return False
        return _MOVED.search(sentence) is not None or bool(_matter(held.text) & _matter(text))
    if topic in ("plan", "event") and held.topic in ("plan", "goal", "event") and held.turn != fact.source_seqs[-1]:
        return _is_redated(held, text)
    if (held.topic == "pet" or held.key.endswith(":called")) and _LOST.search(text):
        return bool(corrections.content(held.text) & corrections.content(text))
    return False


_DONE = re.compile(
    r"\b(?:passed|failed|did|done|had|finished|completed|got|went|ran|won|started|joined|booked|bought|sold|moved|married|came)\b"
    r"|[过完到成好]了|考上|了$|了，|拿到|通过",
    re.IGNORECASE,
)


def _is_done(held: Held, text: str) -> bool:
    """Return whether a text states that what was planned has come about: 'passed my test' after 'my test is on…'."""
    if not _DONE.search(text) or statements.AHEAD.search(text):
        return False
    matter = _matter(held.text)
    least = _REDATED_ZH_MIN if words.CJK_CHARACTER.search(text) else min(2, max(len(matter), 1))
    return len(matter & _matter(text)) >= least


def _matter(text: str) -> frozenset[str]:
    """Return the words that say what a plan is about: neither its time nor words of every plan."""
    found = corrections.content(statements.TIME.sub(" ", text)) - updates.GENERIC
    return frozenset(term for term in found if not term[:1].isdigit() and term[:1] != "=")


_NO_LONGER = re.compile(r"\b(?:no longer|n't .*any ?more|left|quit)\b|不[^，。]{1,8}了$|辞", re.IGNORECASE)
_MOVE = re.compile(r"\b(?:mov(?:e|es|ing)|relocat\w+|buy(?:ing)? (?:a|the) (?:house|flat|place))\b|搬", re.IGNORECASE)
_MOVED = re.compile(r"\bmoved\b|搬", re.IGNORECASE)
_RETURNS = re.compile(r"\b(?:back|return\w*|home)\b|回", re.IGNORECASE)
_REDATED_ZH_MIN = 2


def _is_redated(held: Held, text: str) -> bool:
    """Return whether a text states what is known for another time: one matter has one date."""
    chinese = words.CJK_CHARACTER.search(text) is not None
    was, now = (corrections.find_time(each, chinese=chinese) for each in (held.text, text))
    if was is None or now is None or was == now or bool(_RETURNS.search(held.text)) != bool(_RETURNS.search(text)):
        return False
    spoken = {term for each in (was, now) for term in corrections.content(each)}
    common = (corrections.content(held.text) & corrections.content(text)) - spoken - updates.GENERIC
    return len([term for term in common if not term[:1].isdigit()]) >= _REDATED_ZH_MIN


def _owner(key: str) -> str:
    first = key.partition(":")[0]
    return "" if first in _TOPICS else first


_TOPICS = frozenset(pattern.topic.partition(":")[0] for pattern in (*patterns_en_life.PATTERNS, *patterns_zh.PATTERNS))
