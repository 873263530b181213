"""What a sentence states: which pattern or family its clauses match, of whom, and the fact that is made of it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Generator, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

from hippocampus.providers.local import (
    clauses,
    corrections,
    dates,
    families,
    families_en,
    families_zh,
    gifts,
    objects,
    patterns_en,
    patterns_en_life,
    patterns_zh,
    people,
)
from hippocampus.providers.local.patterns import Pattern
from hippocampus.providers.local.sentences import Sentence
from hippocampus.records import ExtractedFact, Turn
from hippocampus.text import times, words

KEY_CHARS_MAX = 255

#: A time in these is no date.
_TIMELESS = frozenset(
    (
        "name",
        "age",
        "birthday",
        "origin",
        "habit",
        "rule",
        "diet",
        "allergy",
        "preference",
        "favorite",
        "plays",
        "speaks",
        "work_history",
    )
)
AHEAD = re.compile(
    r"\b(?:will|going to|due|expecting|moving|starting|starts|flying|coming|visiting|getting|next|tomorrow|until"
    r"|till)\b|要|将|打算|准备|预产期|[下明]",
    re.IGNORECASE,
)
#: What somebody entered is to come, though they entered it: 'signed up for a marathon in October'.
_ENTERED = re.compile(
    r"^(?!.*\b(?:last|ago|yesterday)\b).*\b(?:signed up|registered|enrolled|entered|got (?:tickets|a place|a spot)"
    r"|bought tickets)\b.*\b(?:marathon|half|10k|5k|race|triathlon|ironman|ultra|tournament|competition|championship"
    r"|course|class|workshop|retreat|camp|conference|exam|test|trip|tour|festival|concert|gig|show|match|game|event|ride|swim|walk|hike"
    r"|fair|hackathon|audition|programme|program|bootcamp|cup|league)s?\b",
    re.IGNORECASE,
)
DATED_TOPICS = frozenset(("plan", "goal", "event", "activity"))
#: In these 'the 14th' and '14号' are days, not numbers of houses and sizes.
_ON_DAYS = DATED_TOPICS | {"family", "pregnancy", "work_change"}
#: Topics that may occur together in one clause: 'I work for a bank as a clerk'.
_COMPANIONS = frozenset(
    (
        "name",
        "age",
        "home",
        "employer",
        "occupation",
        "children",
        "pet",
        "family:name",
        "family:work",
        "family:life",
        "family:age",
        "family:allergy",
        "work_history",
        "family:surname",
    )
)
_TOPICS_BY_ABOUT = frozenset(("family", "pet", "favorite"))
#: Relatives of whom people have several.
SEVERAL = frozenset(
    (
        "son",
        "daughter",
        "child",
        "grandchild",
        "stepson",
        "stepdaughter",
        "sister",
        "brother",
        "friend",
        "cousin",
        "aunt",
        "uncle",
        "niece",
        "nephew",
        "colleague",
        "neighbor",
        "neighbour",
        "grandson",
        "granddaughter",
        "女儿",
        "儿子",
        "孩子",
        "姐姐",
        "妹妹",
        "哥哥",
        "弟弟",
        "孙子",
        "孙女",
        "舅舅",
        "姑姑",
        "阿姨",
        "叔叔",
    )
)
#: Persons of whom people have one at a time.
_POST_HOLDERS = frozenset(
    words.listed("boss manager supervisor landlord landlady coach trainer 上司 领导 老板 导师 班主任 教练 主管 经理")
)
#: What changes when the same plan is stated again, and so is not part of its key.
TIME = re.compile(
    rf"{dates.RANGE_EN}|{dates.RANGE_ZH}|\b(?:on |at |in |by |from )?{patterns_en.TIME}(?=\W|$)|{patterns_zh.TIME}",
    re.IGNORECASE,
)


#: A Chinese clause of fewer characters is kept with the one before it.
_SHORT_ZH = 7
_BEFORE_ZH = 16
#: What goes on with the clause before it: a time, a place, a name, what kind.
_FRAGMENT_ZH = re.compile(
    f"(?!.*[我你您])(?:(?:{patterns_zh.TIME})[^，。]{{0,8}}|在(?!.*(?:带|上班|工作|教|当|做|读|学))[^，。]{{2,8}}"
    f"|(?:名|就|小名|大名)?叫[^，。]{{1,5}}|从[^，。]{{1,10}}|是个?[^，。]{{1,8}}|[^，。]{{1,8}}的|[转做学读考住]"
    f"[^，。]{{1,7}}|{patterns_zh.CITY}[^，。]{{0,3}}|{patterns_zh.NUMBER}[^，。]{{1,6}}"
    f"|{patterns_zh.EVERY}[^，。]{{0,8}}|(?!.*[太很好真哈吧嗯累忙烦爽难笑了不没])[^，。]{{2,4}})$"
)
_REMEMBER_EN = re.compile(
    r"^(?:(?:and|also|oh|please|pls|but|so|just|always),? )*(?:remember|keep in mind|bear in mind|don't (?:ever"
    r" )?forget|make a note|take note"
    r"|note down)(?::|,)? (?:that |always )*(?P<object>(?:I|we|my|our)(?:'m|'ve|'re|'ll|'d)?\b (?!was\b|were\b|had\b"
    r"|said|told|asked|mentioned).+)",
    re.IGNORECASE,
)
_REMEMBER_ZH = re.compile(
    "^(?:还有|另外|对了|请|麻烦|你|一定要?|务必|千万|要|帮我|，)*(?:记住|记着|记好|别忘了|不要忘了|记一下"
    "|记下来)(?:了|啊|哈)?[，,：:]?(?P<object>我(?!说|刚|昨天|上次).{2,40}?)[。.!！]*$"
)
_REMEMBERED = Pattern("rule", "rule", _REMEMBER_EN, "{clause}", "clause", 0.9)
_KIN_FIRST = re.compile(
    rf"(?:my|our) {patterns_en.KIN_MODIFIER}{patterns_en.KIN}\b(?! and I\b)|我(?:的"
    rf"|家)?{patterns_zh.KIN.replace('<about>', '<kin>')}",
    re.IGNORECASE,
)
_GOES_ON_WITH = frozenset(("plan", "event", "relationship_status", "pet", "owns", "family", "family:birth"))
#: Besides these, a clause may state more.
_SLIGHT = frozenset(("family:name", "family:surname", "name"))
#: Topics for which a Chinese clause without a subject says too little by itself.
_GOING_ON = frozenset(("habit", "medication", "work_terms"))


@dataclass(frozen=True, slots=True)
class Found:
    """What a pattern found in a clause."""

    pattern: Pattern
    about: str
    object: str
    chinese: bool
    clause: str = ""  # the clause in the third person, of a family
    name: str = ""  # whom the clause calls by name, where it was read as a relative or an animal


#: A rule that says when, and not yet what.
_OPEN_RULE_ZH = re.compile(
    "(?:时|时候|的话)$|^(?:以后|今后|往后)?你?(?:[给帮跟对和](?:我|本人))?[^，。]{0,2}(?:讲|说|写|回答|推荐|算|答)(?:药|账|题|事|话|东西)?$"
)


def of_sentence(sentence: Sentence, relatives: people.People) -> Iterator[Found]:
    """Yield what a sentence states; the names that it gives are known from then on."""
    chinese, introduced = sentence.is_cjk, ""
    if chinese:
        sentence = relatives.continued(sentence)
    if sentence.is_question:
        yield from _asked(sentence)
    elif not chinese and (match := _INTRODUCED_EN.search(sentence.text.replace("’", "'"))):
        sentence = yield from _introduced(sentence, match, relatives)
        introduced = match["about"].lower()
    for found in _of_clauses(sentence, relatives):
        if introduced and found.pattern.topic == "family" and found.object == introduced:
            continue
        if chinese or found.pattern.shape == "clause":
            relatives.learn(found.clause or _statement(found))
        yield found if chinese or found.pattern.topic != "rule" else _on_condition(found, sentence)
    yield from _remembered(sentence)
    if not chinese and not sentence.is_question:
        yield from _parting(sentence, relatives)


#: Who somebody's relative is, and their work: 'husband called Jonas, paramedic'.
_INTRODUCED_EN = re.compile(
    rf"(?:^|[,;.&+] |\b(?:[Mm]y|[Oo]ur|an?|and|have|got|with) ){patterns_en.KIN_MODIFIER}"
    rf"(?P<who>{patterns_en.KIN}(?:'s| is)?(?:,? (?:called|named))? \(?(?P<name>{patterns_en.NAME})"
    rf"(?:, | \()(?:who's |who is )?(?:an? )?"
    rf"(?P<object>{patterns_en.OCCUPATION}))(?=\)|$|[,.;!]| and\b)"
)
_KIN_CALLED = Pattern("family:name", "profile", _INTRODUCED_EN, "has a {about} called {object}", "name", 0.9)
_KIN_WORKS = Pattern("family:work", "profile", _INTRODUCED_EN, "has a {about} who is {a_object}", "role", 0.85)


def _introduced(sentence: Sentence, match: re.Match[str], relatives: people.People) -> Generator[Found, None, Sentence]:
    """Yield a relative's name and work; return the sentence without both."""
    about, name = match["about"].lower(), match["name"]
    for pattern, what in ((_KIN_CALLED, name), (_KIN_WORKS, match["object"])):
        yield Found(pattern=pattern, about=about, object=what, chinese=False)
    relatives.note("family:name", about, name)
    before, after = sentence.text[: match.start("who")], sentence.text[match.end("who") :].lstrip(")")
    listed = re.fullmatch("(.*?)[,;.&+ ]+", before)  # 'two kids, husband called …'
    bare = listed is not None and match[0][0] in ",;.&+"
    return replace(sentence, text=f"{listed[1]}{after}" if listed and bare else f"{before}{about}{after}")


def _of_clauses(sentence: Sentence, relatives: people.People) -> Iterator[Found]:
    chinese = sentence.is_cjk
    carried = ""
    said_clauses = list(clauses.of_sentence(sentence))
    if not said_clauses:
        yield from _ruled(sentence)
        relatives.mention(sentence)
    continued = _continued(said_clauses, sentence.text) if chinese else {}
    consumed = -1
    names, read = set[str](), list[str]()
    speaks = True
    for place, clause in enumerate(said_clauses):
        read.append(clause)
        resolved = clause if chinese else relatives.resolve(clause)
        name = relatives.named_at(clause)
        if chinese:
            speaks = bool(name) or families.is_of_speaker(clause, speaks=speaks)
        named: set[str] = set()
        known = False
        goes_on = chinese and _goes_on(clause, sentence.text, read)
        following = _following(sentence, said_clauses, place)
        for stated in of_clause(resolved, chinese=chinese, carried=carried):
            found = _given(stated, resolved, following)
            known = known or found.pattern.topic not in _SLIGHT
            if goes_on and found.pattern.topic == "habit" and found.object in clause:
                before = _said_before(read)
                found = replace(found, object=f"{families.statement(before, chinese=True) or before}，{found.object}")
            if place in continued and found.pattern.topic in _GOES_ON_WITH:
                consumed = place + continued[place].count("，")
                found = replace(found, object=found.object + continued[place])
            if found.pattern.topic in ("preference", "member", "studies", "activity", "pet"):
                carried = found.object
            if found.pattern.topic.startswith(("family", "pet")):
                named.update((found.about, f"{found.about}s"))
            relatives.note(found.pattern.topic, found.about, found.object)
            if found.pattern.topic == "family:name":
                names.add(found.about)
            yield replace(found, name=name)
        if not known and place > consumed:
            for stated in of_family(
                resolved,
                chinese=chinese,
                speaks=speaks,
                before=_said_before(read),
                goes_on=goes_on,
                between_names=sentence.turn.author != "user" or bool(name),
            ):
                if named and stated.pattern.topic.startswith(("family", "pet")):
                    continue
                whole, end = _completed(stated, place, said_clauses, continued)
                if whole is None:
                    continue
                found, consumed = _stayed(_given(whole, resolved, following), resolved), max(consumed, end)
                named.add(found.about or found.object)
                known = True
                yield replace(found, name=name)
            if chinese and name and not known and not named:
                yield from _of_known(name, clause)
        if not chinese:
            yield from _mentions(clause, following, named, named | names)
    yield from _named_kin(sentence, read, names, relatives)


#: A stay: where a person is for a while is not their home.
_STAY_EN = re.compile(
    rf"^(?:I'm|I am|we're|we are) (?:back )?in\b.*(?:{dates.RANGE_EN}|\b(?:until|till)\b|\bthis week(?:end)?\b"
    r"|\b(?:for|over) (?:the|an?|two|three|four|five|six|\d+|Christmas|Easter|New Year)\b)",
    re.IGNORECASE,
)
_STAYS = Pattern("plan", "custom", _STAY_EN, "{clause}", "clause", 0.8)


def _retold(found: Found, pattern: Pattern, clause: str) -> Found:
    """Return what was found as the whole clause, under another pattern; as it was if the clause states nothing."""
    stated = families.statement(clause, chinese=found.chinese)
    return found if stated is None else replace(found, pattern=pattern, object=stated, clause=stated)


def _stayed(found: Found, clause: str) -> Found:
    """Return what a clause states as a plan if it says where the speaker is for a while."""
    if found.pattern.topic != "home" or found.chinese or not _STAY_EN.search(clause):
        return found
    return _retold(found, _STAYS, clause)


def _given(found: Found, clause: str, following: str) -> Found:
    """Return what a clause states as an event if it bought something for somebody else: the speaker has it not."""
    if found.pattern.topic not in _BOUGHT:
        return found
    said = gifts.given(clause, following, chinese=found.chinese)
    return found if said is None else _retold(found, gifts.BOUGHT_FOR, said)


_BOUGHT = frozenset(("owns", "pet"))


def _following(sentence: Sentence, said: list[str], place: int) -> str:
    """Return the clause after one, or what its turn goes on with.

    Where another sentence says that a thing is a present, `corrections` ends what the first one stated.
    """
    if place + 1 < len(said):
        return said[place + 1]
    after = sentence.turn.text.partition(sentence.text)[2].strip()
    return "" if _PRESENT_EN.search(after) else after


_PRESENT_EN = re.compile(r"^[^.!?]*\b(?:gifts?|presents?|surprise|not for me)\b", re.IGNORECASE)


def _completed(found: Found, place: int, said: list[str], continued: Mapping[int, str]) -> tuple[Found | None, int]:
    """Return what a family found in a clause with the clauses that go on with it, and the place of the last one.

    A rule that says only when it applies is None if nothing follows.
    """
    end = -1
    if place in continued:
        end = place + continued[place].count("，")
        found = replace(found, clause=found.clause + continued[place])
    if found.chinese and found.pattern.topic == "rule" and _OPEN_RULE_ZH.search(found.object):
        if place + 1 == len(said):
            return None, end
        end = place + 1
        found = replace(found, object=f"{found.object}，{said[end]}")
    return found, end


def _named_kin(sentence: Sentence, read: list[str], names: set[str], relatives: people.People) -> Iterator[Found]:
    """Yield the names of relatives that a sentence mentions beside something else, but for those in `names`."""
    chinese = sentence.is_cjk
    said = f"{sentence.text} {' '.join(read)}" if chinese else sentence.text
    pattern = patterns_zh.NAMED_KIN if chinese else patterns_en_life.NAMED_KIN
    for match in pattern.regex.finditer(said.replace("’", "'")):
        for found in _objects(pattern, match, chinese=chinese):
            if found.about not in names:
                names.add(found.about)
                relatives.note(found.pattern.topic, found.about, found.object)
                yield found


def _continued(said: list[str], sentence: str) -> dict[int, str]:
    """Return by place what the fragments after a Chinese clause add to it: '我有演出，5月2号，在三坊七巷'."""
    added: dict[int, str] = {}
    start = 0
    for place in range(1, len(said)):
        spoken = said[place]
        while spoken and spoken not in sentence:
            spoken = spoken[1:]
        if spoken and _FRAGMENT_ZH.match(spoken) and len(added.get(start, "")) < _BEFORE_ZH:
            added[start] = f"{added.get(start, '')}，{spoken}"
        else:
            start = place
    return added


def _ruled(sentence: Sentence) -> Iterator[Found]:
    """Yield the lasting wishes in a sentence that states nothing: 'Tell me if I'm wrong, no sugar coating.'"""
    chinese = sentence.is_cjk
    table = families_zh.RULES if chinese else families_en.RULES
    text = sentence.text.rstrip("?？!！。. ").replace("’", "'")
    pieces = re.split("[，,；;]", text) if chinese else [clauses.without_lead(text), *re.split(r"[,;]\s+", text)[1:]]
    for piece in pieces:
        spoken = piece.strip()
        for pattern, match in families.matching(table, spoken, chinese=chinese, speaks=True, between_names=False):
            yield Found(
                pattern=pattern, about="", object=match["object"].strip(" ,，。"), chinese=chinese, clause=spoken
            )
            return


def _remembered(sentence: Sentence) -> Iterator[Found]:
    """Yield what a speaker asks to be remembered: it has its place in every window, as rules have."""
    chinese = sentence.is_cjk
    match = (_REMEMBER_ZH if chinese else _REMEMBER_EN).match(sentence.text.replace("’", "'"))
    if match is None or sentence.is_question:
        return
    yield from _whole(_REMEMBERED, match["object"], chinese=chinese)


_PARTNER = r"(?:(?:him|her)(?=$|[ ,.])|my (?:boy|girl)friend|my (?:husband|wife|partner))"
#: Two people who are no longer a couple: 'Ada and I parted in May', 'me and Tom are done', 'Dev's history'.
_PARTING = re.compile(
    rf"(?:^|[,.;!]\s+|\b(?:and|so|but|also|that|because) )(?P<said>(?:(?:{patterns_en.NAME}|[Mm]y (?:boy|girl"
    rf")friend|he|she|[a-z]+) and (?:I|me)"
    rf"|(?:me|I) and (?:{patterns_en.NAME}|my (?:boy|girl)friend|him|her|[a-z]+)|we)(?:'ve|'re| have| are| were"
    rf")?(?: (?:have|finally|sort"
    r" of|just|actually|recently|both))* (?:parted(?: ways)?|done|over|through|finished|history|split(?: up)?|broke up"
    r"|broken up|separated|called it (?:a day|quits)|no longer together|not together|went our separate ways"
    r"|divorced)(?! by)\b"
    rf"[^,.;!?]*|(?:{patterns_en.NAME}|my (?:boy|girl)friend|my (?:husband|wife|partner)) (?:has |just )?"
    rf"(?:dumped|left) me\b[^,.;!?]*"
    r"|(?:I|I've) (?:\w+ )?(?:dumped|broke up with|broken up with|split (?:up )?with|finished with|ended "
    r"(?:it|things) with)"
    rf" (?:{patterns_en.NAME}|{_PARTNER})[^,.;!?]*|(?:I|I've) (?:\w+ )?left"
    rf" (?:(?P<left>{patterns_en.NAME})(?! at\b| in\b)|{_PARTNER})[^,.;!?]*"
    r"|(?:I'm|I am) (?:single|on my own) (?:again|now)\b[^,.;!?]*)"
)
_NO_COUPLE = re.compile(
    r"\bwe(?:'re| are)? (?:done|over|through|finished)\b|\bdone (?:with|for|at)\b|\b(?:for (?:lunch|today)|the"
    r" [a-z]+ and)",
    re.I,
)
_PARTED_KEY = Pattern("relationship_status", "profile", _PARTING, "{clause}", "clause", 0.9, single=True)


def _parting(sentence: Sentence, relatives: people.People) -> Iterator[Found]:
    """Yield that a couple parted, in the words of the sentence; 'I left Lidl' is about work, unless it is a person."""
    text = " ".join(sentence.text.replace("’", "'").split())
    match = _PARTING.search(text)
    if match is not None and match["left"] and not relatives.knows(match["left"]):
        return
    if match is None or _NO_COUPLE.search(match["said"]) or clauses.is_unreal(text):
        return
    yield from _whole(_PARTED_KEY, match["said"], chinese=False)


def _whole(pattern: Pattern, said: str, *, chinese: bool) -> Iterator[Found]:
    """Yield a clause as a statement, which is all that is known of it."""
    stated = families.statement(said, chinese=chinese)
    if stated is not None:
        yield Found(pattern=pattern, about="", object=stated, chinese=chinese, clause=stated)


#: When a rule is to apply: 'When I write after midnight, keep it short.'
_CONDITION_EN = re.compile(
    r"^(?:and |also |but |so )?(?P<when>(?:when(?:ever)?|after|before|until|during|in|on|at|for) [^,.;]{3,60}), "
    r"(?=please|pls"
    r"|always|never|don't|do not|just|only|keep|use|give|write|answer|speak|talk|call|be|avoid|make|stick)",
    re.IGNORECASE,
)


def _on_condition(found: Found, sentence: Sentence) -> Found:
    """Return a rule with the condition that its sentence begins with."""
    match = _CONDITION_EN.match(" ".join(sentence.text.replace("’", "'").split()))
    if match is None or match["when"].lower() in found.object.lower():
        return found
    return replace(found, object=f"{found.object} {match['when'][0].lower()}{match['when'][1:]}")


_KNOWN_ONE = Pattern("family:state", "profile", _REMEMBER_ZH, "{clause}", "clause", 0.8)
#: What a short statement about somebody known may be about.
_STATE_ZH = re.compile(
    "了$|了[^，。]{1,10}$|[在上读念学去来考进入当做开得病走搬转住生教改回][^，。]{2,}|结婚|订婚|离婚|分手|毕业"
    "|工作|退休|放[^，。]*养"
)


def _of_known(name: str, clause: str) -> Iterator[Found]:
    """Yield what a clause says of a person or an animal whose name is known: '妞妞上了实验小学'."""
    said = families.statement(clause, chinese=True)
    if said is not None and len(said) >= len(name) + 4 and _STATE_ZH.search(said) and not _OPINION_ZH.search(said):
        yield Found(pattern=_KNOWN_ONE, about=name, object=said.removeprefix(name)[:6], chinese=True, clause=said)


_OPINION_ZH = re.compile("[说问讲]|觉得|真|太|好[^学考上转友]|笑|哭|睡|吃[^素]|看起来|今天|等|呗|哈")


def _said_before(read: list[str]) -> str:
    """Return the clause before the last one that was read, if it is short."""
    return read[-2] if len(read) > 1 and len(read[-2]) <= _BEFORE_ZH else ""


def _goes_on(clause: str, sentence: str, read: list[str]) -> bool:
    """Return whether a Chinese clause continues the one before it: no subject of its own was said."""
    return bool(_said_before(read)) and not (clause.startswith("我") and clause in sentence)


def _asked(sentence: Sentence) -> Iterator[Found]:
    """Yield the lasting wishes that are put as a question: 'Could you always answer in French?'"""
    if sentence.is_cjk:
        return
    clause = clauses.without_lead(sentence.text.rstrip("?？! ")).replace("’", "'")
    for pattern in patterns_en_life.ASKED:
        if match := pattern.regex.match(clause):
            yield from _objects(pattern, match, chinese=False)
            return


def of_clause(clause: str, *, chinese: bool, carried: str = "") -> Iterator[Found]:
    """Yield what the first pattern finds that matches a clause, and what others find beside it.

    Args:
        carried: a short clause before it.
    """
    topics: set[str] = set()
    for pattern in patterns_zh.PATTERNS if chinese else patterns_en_life.PATTERNS:
        if topics and not (pattern.topic in _COMPANIONS and topics <= _COMPANIONS and pattern.topic not in topics):
            continue
        match = pattern.regex.match(clause)
        for found in _objects(pattern, match, chinese=chinese, carried=carried) if match else ():
            topics.add(pattern.topic)
            yield found


def of_family(
    clause: str, *, chinese: bool, speaks: bool, before: str, goes_on: bool, between_names: bool
) -> Iterator[Found]:
    """Yield the statement of the first family that a clause belongs to; a short Chinese clause continues another."""
    table = families_zh.FAMILIES if chinese else families_en.FAMILIES
    for pattern, match in families.matching(table, clause, chinese=chinese, speaks=speaks, between_names=between_names):
        stated = families.statement(clause, chinese=chinese, rule=pattern.topic == "rule")
        if stated is not None and not chinese and pattern.topic == "plan" and _is_past_of_another(clause):
            continue
        if stated is not None:
            if (
                chinese
                and pattern.topic != "rule"
                and (len(stated) < _SHORT_ZH or (goes_on and pattern.topic in _GOING_ON))
                and not corrections.is_off(before)
            ):
                stated = "，".join(filter(None, (families.statement(before, chinese=True), stated)))
            groups = match.groupdict()
            about = (groups.get("about") or "").strip()
            topic = pattern
            if (kin := _KIN_FIRST.match(clause)) and not pattern.topic.startswith(("family", "pet", "rule", "plan")):
                # It is about a relative: their job is not the speaker's.
                about = next(filter(None, kin.groups())).lower()
                topic = replace(pattern, topic=f"family:{pattern.topic.partition(':')[0]}", single=False)
            yield Found(
                pattern=topic,
                about=about,
                object=(groups.get("object") or "").strip(" ,.") or (groups.get("about") or "").strip() or stated,
                chinese=chinese,
                clause=stated,
            )


_ARRANGED = re.compile(
    r"\b(?:booked|planned|scheduled|decided|moved|got|agreed|signed|invited|set|put|arranged)\b", re.IGNORECASE
)


def _is_past_of_another(clause: str) -> bool:
    """Return whether a clause tells what somebody else did: 'the builder vanished in May'."""
    if re.match(r"(?:I|we)\b", clause) or AHEAD.search(clause) or _ARRANGED.search(clause):
        return False
    return any(words.is_past(word) or word.endswith("ed") for word in clause.lower().split()[:4])


def _mentions(clause: str, following: str, named: Set[str], known: Set[str]) -> Iterator[Found]:
    """Yield the facts that a clause takes for granted: 'my wife drove' implies a wife.

    Args:
        following: what goes on to say whether it was bought for somebody else.
        named: the relatives and animals that the clause was read to be about.
        known: these, and those whose names its sentence gave.
    """
    for pattern in patterns_en_life.MENTIONS:
        match = pattern.regex.match(clause)
        if match is None or (pattern.topic in _BOUGHT and gifts.given(clause, following, chinese=False) is not None):
            continue
        for found in _objects(pattern, match, chinese=False):
            if found.object not in known and not (found.pattern.topic == "pet" and named):
                yield found


def _objects(pattern: Pattern, match: re.Match[str], *, chinese: bool, carried: str = "") -> Iterator[Found]:
    raw = match["object"] or ""
    about = (match.groupdict().get("about") or "").strip()
    if not about[:2].isupper() and about[:1].isupper() and pattern.topic not in ("family:birth", "relationship_status"):
        about = about[:1].lower() + about[1:]
    if not raw and about:
        raw, about = about, ""
    if chinese and pattern.topic == "habit":
        completed = objects.complete_habit(raw, carried)
        if completed is None:
            return
        raw = completed
    if pattern.shape == "names" and pattern.topic == "family:name":
        about = objects.one_of(about)
    for piece in _members(pattern, raw, about, chinese=chinese):
        degree, member = objects.degree(piece, chinese=chinese) if pattern.shape == "languages" else (about, piece)
        cleaned = objects.clean(member, pattern.shape, chinese=chinese)
        if cleaned is not None:
            yield Found(pattern=pattern, about=degree, object=cleaned, chinese=chinese)


def _members(pattern: Pattern, raw: str, about: str, *, chinese: bool) -> list[str]:
    """Return what a pattern captured, or each of it where it is a list; of a kind of thing there is one best."""
    if pattern.shape == "items":
        return objects.items(raw, chinese=chinese)
    if pattern.shape in ("names", "languages"):
        return objects.parts(raw, chinese=True) if chinese else objects.names(raw)
    if pattern.shape == "titles":
        return [raw] if about else objects.titles(raw, chinese=chinese)
    return objects.parts(raw, chinese=chinese) if pattern.shape == "list" else [raw]


def fact_of(found: Found, turn: Turn, cited: tuple[int, ...] = ()) -> ExtractedFact:
    """Return the fact that a turn states; `cited`: other turns that it rests on."""
    statement = _statement(found)
    said_on = turn.occurred_at.date().isoformat()
    value: dict[str, Any] = {"subject": turn.author, "text": statement}
    if found.pattern.topic in DATED_TOPICS:
        value["said_on"] = said_on
    if when := when_of(statement, found.pattern.topic, turn):
        value["when"] = when
    return ExtractedFact(
        fact_type=found.pattern.fact_type,
        key=key_of(found, turn.author, said_on),
        value=value,
        confidence=found.pattern.confidence,
        source_seqs=tuple(sorted({*cited, turn.sequence_num})),
    )


def when_of(statement: str, topic: str, turn: Turn) -> str | None:
    """Return the day, month or year that a statement names, resolved against when it was made, or None."""
    if topic.partition(":")[0] in _TIMELESS:
        return None
    ahead = topic in ("plan", "goal", "pregnancy") or bool(AHEAD.search(statement) or _ENTERED.search(statement))
    span = dates.resolve(statement, turn.occurred_at, ahead=ahead)
    if span is None and topic.partition(":")[0] in _ON_DAYS:
        span = dates.bare_day(statement, turn.occurred_at, ahead=ahead)
    return times.iso_dates(span) if span is not None else None


def _statement(found: Found) -> str:
    parts = {
        "{about}": found.about,
        "{object}": found.object,
        "{clause}": found.clause,
        "{a_object}": found.object if found.chinese else objects.with_article(found.object),
        "{does}": found.object if found.chinese else objects.third_person(found.object),
    }
    text = " ".join(re.sub(r"\{\w+\}", lambda match: parts[match[0]], found.pattern.text).replace(" :", ":").split())
    if found.chinese and found.pattern.text == "打算{object}":
        text = _INTENDS_ZH.sub("打算\\g<time>", text)
    if found.name and found.name.lower() not in text.lower():
        text = re.sub(rf"\b({people.WHO})\b", rf"\1 {found.name}", text, count=1)
    return text


#: '打算国庆打算去' says once what is meant.
_INTENDS_ZH = re.compile(
    f"^打算(?P<time>(?:{patterns_zh.TIME})?)(?:我们?)?(?:打算|准备|计划|要|想)(?=[\u4e00-\u9fff]{{2}})"
)


def key_of(found: Found, author: str, said_on: str) -> str:
    """Return the key of a fact: its topic, and what tells it from others of the topic."""
    topic, _, detail = found.pattern.topic.partition(":")
    parts = [] if author == "user" else [objects.slug(author)]
    parts.append(topic)
    if topic == "event":
        parts.append(said_on)
    if topic == "rule":
        parts.append(objects.rule_slug(found.object))
    elif found.about and topic in _TOPICS_BY_ABOUT:
        parts.append(patterns_zh.KIN_ENGLISH.get(found.about, objects.slug(found.about)))
        if found.clause and detail and not (detail == "name" and found.about.lower() in _POST_HOLDERS):
            parts.append(objects.slug(found.object))
        elif (detail == "name" and found.about in SEVERAL) or detail == "allergy":
            parts.append(objects.slug(found.object))
            detail = "" if detail == "name" else detail
        elif detail in ("life", "plan"):
            detail = objects.state_of(found.object)
    elif found.pattern.shape == "occasion":
        parts.append(objects.slug(found.about or TIME.sub(" ", found.object)))
    elif not found.pattern.single:
        parts.append(objects.slug(TIME.sub(" ", found.object) if topic == "plan" else found.object))
    if detail:
        parts.append(detail)
    return bounded(":".join(parts))


def bounded(key: str) -> str:
    """Return a key, cut to `KEY_CHARS_MAX` with a digest in place of the rest."""
    if len(key) <= KEY_CHARS_MAX:
        return key
    digest = hashlib.blake2b(key.encode(), digest_size=8).hexdigest()
    return f"{key[: KEY_CHARS_MAX - 17]}:{digest}"
