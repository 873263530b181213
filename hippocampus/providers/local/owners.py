"""Find whom each part of a sentence is about: the speaker, another person, or someone unknown.

    'Tom dropped out of the choir'              Tom
    'I told Tom that I quit', 'Tom and I quit'  the speaker
    'it's off', 'dropped out of the choir'      the speaker, or the person of the part before

What is said of another person ends and changes only facts that name that person; what is said of someone unknown ends
nothing. A subject that is not recognised is taken as the speaker. This is decided here, once for each sentence, before
anything that is known is compared with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hippocampus.providers.local import clauses, corrections, patterns_en, patterns_zh, slots, updates
from hippocampus.providers.local.corrections import Held
from hippocampus.providers.local.people import People
from hippocampus.providers.local.sentences import Sentence
from hippocampus.text import words


@dataclass(frozen=True, slots=True)
class Owner:
    """Somebody by the words that name them, as 'tom' or 'sister'. The speaker and an unknown one have none."""

    names: frozenset[str] = frozenset()
    is_speaker: bool = True


SPEAKER = Owner()
#: A thing, or what was spoken of before: anything that is known.
IT = Owner(frozenset(("it",)))
UNKNOWN = Owner(is_speaker=False)
#: A person or an animal that was spoken of elsewhere.
THEY = Owner(frozenset(("they",)), is_speaker=False)


@dataclass(frozen=True, slots=True)
class Part:
    """What a sentence says of one owner."""

    text: str
    owner: Owner

    def changeable(self, held: list[Held]) -> list[Held]:
        """Return which of these facts it may end or change."""
        owner = self.owner
        if owner is IT or not held:
            return held
        if owner is SPEAKER:
            if _OF_ANOTHER.search(self.text):
                return held
            said = self.text.lower()
            return [each for each in held if each.topic != "family" or _is_mentioned(each, said)]
        return [each for each in held if _is_about(each, owner)]


class Reader:
    """Tells whose the parts of one turn's sentences are.

    A part without a subject goes on about the part before: in English of the same sentence, in Chinese of the turn.
    """

    def __init__(self, relatives: People) -> None:
        self._relatives = relatives
        self._other: Owner | None = None  # whom 'he' and 'she' mean
        self._goes_on = IT  # whose a part without a subject is

    def parts(self, sentence: Sentence) -> list[Part]:
        """Return the parts of a sentence, in order; what is said of the speaker and of things stays together."""
        text = sentence.text.replace("’", "'")
        if corrections.puts_right(text, chinese=sentence.is_cjk):
            return [Part(text, IT)]
        if not sentence.is_cjk:
            self._goes_on = IT
        found = [(0, self._goes_on)]
        for start, owner in (self._chinese if sentence.is_cjk else self._english)(text):
            begun = found[-1][0]
            opens = _OPENING.fullmatch(text, begun, start) is not None
            if opens:
                found.pop()
            if not found or (owner != found[-1][1] and not (owner.is_speaker and found[-1][1].is_speaker)):
                found.append((begun if opens else start, owner))
        if found[0][1].is_speaker:
            self._goes_on = IT
        ends = [start for start, _ in found[1:]] + [len(text)]
        return [Part(text[start:end].strip(), owner) for (start, owner), end in zip(found, ends, strict=True)]

    def _somebody(self, *names: str) -> Owner:
        known = {self._relatives.kin_called(name) for name in names}
        spelled = {slots.MEANS.get(name.lower(), name.lower()) for name in (*names, *known) if name}
        spelled |= {name.lower() for name in names}
        self._other = Owner(frozenset(spelled), is_speaker=False)
        return self._other

    def _meant(self) -> Owner:
        if self._other is None and (last := self._relatives.last):
            return self._somebody(last)
        return self._other or THEY

    def _english(self, text: str) -> Iterator[tuple[int, Owner]]:
        for match in _SUBJECT_EN.finditer(text):
            before = text[max(0, match.start() - _BEFORE_CHARS) : match.start()]
            owner = self._of_subject(match, begins=_BEGINS_EN.search(before) is not None, before=before)
            if owner is None:
                continue
            yield match.start(), owner
            self._goes_on = IT if owner.is_speaker else owner
            if not owner.is_speaker and (report := _REPORTS_EN.match(text, match.end())):
                self._goes_on = IT
                yield report.end(), IT

    def _of_subject(self, match: re.Match[str], *, begins: bool, before: str) -> Owner | None:
        """Return whom a match of `_SUBJECT_EN` means, None if it is no subject."""
        kind = match.lastgroup
        if kind == "speaker":
            return SPEAKER
        if kind == "it":
            return self._goes_on if begins else None
        if kind == "thing":
            return IT if begins else None
        if kind == "he":
            return self._meant()
        if kind == "they":
            return self._other or IT
        possessed = kind == "name" and "'" in match["name"]
        if possessed:
            acts = begins or _is_finite(match["name"].split()[-1])
        else:
            acts = _acts(match.string, match.end(), begins=begins)
        if kind == "some":
            return UNKNOWN if begins and acts else None
        if kind == "person":
            if not (begins or acts):
                return None
            kin, *called = match["person"].split()
            kin = kin if kin.endswith("ss") else kin.removesuffix("s")
            if _arranges(match.string, match.end(), kin):
                return IT
            return self._somebody(kin, *called)
        names = [each for each in match["name"].split("'")[0].split() if each.lower() not in _NO_NAMES]
        if not acts or not names or (not begins and _LINKS_EN.search(before)):
            return None
        if not possessed and (
            _BEFALLS_EN.match(match.string, match.end()) or _arranges(match.string, match.end(), match["name"][:2])
        ):
            return IT
        return self._somebody(*names)

    def _chinese(self, text: str) -> Iterator[tuple[int, Owner]]:
        start = 0
        for piece in _PIECES_ZH.finditer(text):
            start = piece.start()
            while start < piece.end():
                owner, end = self._of_piece(text, start, piece.end())
                yield start, owner
                self._goes_on = IT if owner.is_speaker or owner is UNKNOWN or owner.names & _SERVING_ZH else owner
                if owner.names & _SERVING_ZH:
                    self._other = None
                report = None if owner.is_speaker else _REPORTS_ZH.search(text, end, piece.end())
                if report is None:
                    break
                start = report.end()
                if not _PREDICATE_ZH.match(text, start):
                    self._goes_on = IT

    def _of_piece(self, text: str, start: int, end: int) -> tuple[Owner, int]:
        """Return whom a piece of a Chinese sentence speaks of, and where its subject ends."""
        start = _OPENING_ZH.match(text, start, end).end()  # type: ignore[union-attr]
        if match := _TOGETHER_ZH.match(text, start, end):
            return SPEAKER, match.end()
        if match := _PERSON_ZH.match(text, start, end):
            if match.end() == end:
                return IT, end  # spoken to
            if _serves_zh(match) and _ARRANGES_ZH.match(text, match.end(), end):
                return IT, match.end()
            return self._somebody(*filter(None, match.groups())), match.end()
        if name := self._relatives.named_at(text[start:end]):
            return self._somebody(name), start + len(name)
        if match := _SPEAKER_ZH.match(text, start, end):
            return SPEAKER, match.end()
        if match := _HE_ZH.match(text, start, end):
            meant = self._meant()
            fits = all(patterns_zh.may_mean(match[0], name) for name in meant.names)
            return meant if fits else THEY, match.end()
        if match := _SOME_ZH.match(text, start, end):
            return UNKNOWN, match.end()
        if start == end or _PREDICATE_ZH.match(text, start, end):
            return self._goes_on, start
        return IT, start


_BEFORE_CHARS = 16
#: Words before a subject that are nobody's: 'Mom, I moved', 'and then she left'.
_OPENING = re.compile(r"(?:[A-Za-z]{1,12},? ){0,2}")
_PERSON = (
    rf"(?:{patterns_en.KIN.replace('?P<about>', '?:')}|{patterns_en.ANIMAL}|friend|mate|colleague|co-?worker|teammate"
    r"|classmate|neighbou?r|boss|landlord|landlady|ex|kid|child|children|parent|grandparent|folk|in-law|guy|man|woman"
    r"|girl|boy|lady|bloke|teacher|coach|client|customer|student|team)s?"
)
_NAME = r"(?:(?:Dr|Mr|Mrs|Ms|Miss|Prof)\.? )?[A-Z][a-z]+(?: [A-Z][a-z]+)?"
_SOMEBODY = rf"(?:[Mm]y (?:[a-z-]+ )?{_PERSON}(?: [A-Z][a-z]+)?|{_NAME})"
#: What may be the subject of a clause.
_SUBJECT_EN = re.compile(
    rf"\b(?:(?P<speaker>(?:{_SOMEBODY}|[a-z]+) (?:and|&) (?:[Ii]|me)\b|[Mm]e and {_SOMEBODY}"
    r"|(?:[Ii]|[Ii]m|[Ii]ve|[Ww]e)\b(?!\.\w))"
    r"|(?P<he>[Hh]e|[Ss]he)\b|(?P<they>[Tt]hey)\b|(?P<it>[Ii]t|[Tt]hat|[Tt]his)(?='s| is| was| has| got)"
    r"|(?P<some>(?i:some(?:one|body)|every(?:one|body)|no ?body|no one|people))\b"
    rf"|(?:[Mm]y|[Oo]ur|[Aa]n?|[Aa]nother|[Tt]he|[Hh]is|[Hh]er|[Tt]heir|[Oo]ne of (?:my|our|the)) (?:[a-z-]+ ){{0,2}}?"
    rf"(?P<person>{_PERSON}(?: [A-Z][a-z]+)?)\b(?:'s(?! (?:appointment|surgery|office)) [a-z]+)?"
    rf"|(?P<name>{_NAME}(?:'s [a-z]+)?|^[a-z]{{3,}})\b"
    r"|(?P<thing>(?:[Tt]he|[Mm]y|[Oo]ur)(?: [A-Za-z-]+){1,4}?)(?= (?:is|was|has|got|moved|isn't)\b))"
)
#: A clause begins after it.
_BEGINS_EN = re.compile(
    r"(?:^|[,.;:!?…(—–-]\s*|\b(?:and|but|so|because|since|if|when|while|though|although|that|plus|or|then|now|as) )$",
    re.IGNORECASE,
)
#: What follows belongs to the noun phrase before it.
_LINKS_EN = re.compile(
    r"\b(?:to|in|at|for|with|from|of|by|on|near|the|an?|my|our|your|his|her|their|this|new|old|about|into) $",
    re.IGNORECASE,
)
_REPORTS_EN = re.compile(
    r"(?:'s)? (?:just |also |now )?(?:said|says|thinks?|thought|reckons|confirmed|confirms|announced|wrote"
    r"|(?:told|tells|texted|informed) (?:me|us|[A-Z][a-z]+))\b(?! to\b)(?: that\b)?"
)
#: What becomes of a plan: 'Arran never happened', 'Yoga is off'.
_BEFALLS_EN = re.compile(
    r"(?: never| didn't| won't| isn't)? (?:happen|fell through|came off|went ahead)"
    r"|(?:'s| is| was| has| got)(?: been| now| just)? (?:off\b|cancel|postpon|reschedul|call(?:ed)? off|push|delay)"
)
#: What somebody does to what is the speaker's: 'Tom moved our flight'; 'the trip' if they act for the speaker.
_ARRANGES_EN = re.compile(
    r"(?: has|'s| have)?(?: just| already| now)? (?:moved|cancell?ed|postponed|rescheduled|delayed|pushed(?: back)?"
    r"|called off|brought forward|shifted|changed) "
    r"(?:(?P<own>(?:my|our)\b|the (?:[a-z]+ )?(?:meeting|flight|call|appointment|class|lesson|interview)\b)"
    r"|(?:the|it)\b)"
)
_SERVING_EN = frozenset(words.listed("boss landlord landlady teacher coach client customer team fiancé fiancée Dr"))
_FINITE_EN = frozenset(
    words.listed(
        f"""{clauses.IRREGULAR.replace("|", " ")} is was are were has have had will would can could may might must
        should do does did isn't wasn't aren't weren't hasn't haven't hadn't won't wouldn't can't couldn't doesn't
        don't didn't told said says works lives goes wants moves plans sings plays no"""
    )
)
_ADVERB_EN = frozenset(
    words.listed("just also now finally recently already still never both once even really then actually who all")
)
#: Words that begin a sentence before a verb and name nobody.
_NO_NAMES = (
    words.STOPWORDS
    | _ADVERB_EN
    | frozenset(
        words.listed(
            """got had have has was is been being did do does can could should would may might must let not what
            who which how why where when there here everything nothing something plans things work life school
            news weather today tonight yesterday tomorrow monday tuesday wednesday thursday friday saturday
            sunday january february march april june july august september october november december sadly
            luckily unfortunately apparently eventually officially suddenly since after before and but so or as
            if because though although while that this it these those you your i we turns almost nearly only
            always maybe yes no ok okay well oh ye ya btw fyi lol ugh hey hi anyway anyways basically honestly
            regretfully happily reluctantly guess update dr mr mrs ms miss prof one"""
        )
    )
)
_WORD_EN = re.compile(r" ([a-z]+(?:'[a-z]+)?)\b")


def _acts(text: str, end: int, *, begins: bool) -> bool:
    """Return whether a verb with a subject follows: 'Tom' 'just left'."""
    if text.startswith(("'s ", "'ve ", "'ll ", "'d "), end):
        if begins or not text.startswith("'s", end):
            return True
        end += 2
    for _ in range(_ADVERBS_MAX + 1):
        match = _WORD_EN.match(text, end)
        if match is None:
            return False
        word, end = match[1], match.end()
        if _is_finite(word):
            return True
        if word not in _ADVERB_EN and not word.endswith("ly"):
            return begins and word.endswith("s") and len(word) > _ED_MIN and not word.endswith("ss")
    return False


def _arranges(text: str, end: int, who: str) -> bool:
    """Return whether somebody moves or cancels what is the speaker's."""
    match = _ARRANGES_EN.match(text, end)
    return match is not None and (match["own"] is not None or who in _SERVING_EN)


def _is_finite(word: str) -> bool:
    return word in _FINITE_EN or (word.endswith("ed") and len(word) > _ED_MIN) or word.endswith("n't")


_ADVERBS_MAX = 2
_ED_MIN = 3

_PIECES_ZH = re.compile("[^，,；;。！!？?：:、…—\\s]+")
_KIN = (
    f"{patterns_zh.KIN.replace('?P<about>', '?:')}|爸妈|父母|[妈爸姐哥弟妹](?![妈爸姐哥弟妹夫])|媳妇|闺女|同事|朋友"
    "|同学|同桌|邻居|老板|领导|老师|医生|客户|[组店队班]长|上司|前任|前[夫妻]|房东|队友|徒弟|师傅"
)
_NAMES = (
    # Surnames that are no other word at the start of a name (not 白, 高, 方, 万, 安, 周, 马, 孙, 黄, 何, 林).
    f"(?:{clauses.NAME_ZH}|[\u4e00-\u9fff]阿姨"
    "|[王李张刘陈杨赵吴徐朱郭罗梁宋郑谢韩唐冯董萧曹袁邓傅沈彭吕苏卢蒋蔡贾丁魏薛叶阎潘杜戴姜范姚谭廖邹陆郝崔邱秦侯邵孟尹黎乔贺赖龚]"
    "[\u4e00-\u9fff]{1,2}?|[A-Z][a-z]+)"
)
_VERB_ZH = (
    "(?=[从被把因也又就已经都刚还要会想走去来说在是辞回调搬给生结离病住开考买卖换升跟和有做当教学读嫁娶退不没的昨今"
    "上下终最对推改停放丢取告])"
)
_OPENING_ZH = re.compile(f"(?:听说?|据|但是?|不过|而且|所以|因为|然后|结果|{clauses.TIME_ZH}){{0,3}}")
_PERSON_ZH = re.compile(
    "(?:(?:我|咱|俺)们?)?(?:公司|部门|单位|班上?|组|宿舍|学校|团队|楼下|隔壁|小区|村)?(?:里|的|家|有)?(?:[一两几那这另]?[一]?[个位名])?"
    f"(?:(?:大|小|二|老)?(?P<kin>{_KIN})(?:的)?(?P<called>{_NAMES}{_VERB_ZH})?|(?P<name>{_NAMES}){_VERB_ZH})"
)
#: They act for the speaker: what they move is the speaker's, and 'he' is somebody else.
_SERVING_ZH = frozenset(("老板", "领导", "上司", "老师", "医生", "客户", "房东"))
_ARRANGES_ZH = re.compile("(?:有事|临时)?(?:已经|又)?(?:把|改到|推迟|推到|提前|取消|不?[让许准给]我)(?!他|她|自己)")
_TOGETHER_ZH = re.compile(f"(?:我?(?:{_KIN})|{_NAMES})[和跟与]我们?(?!说|讲|聊|提|借|要|抱怨)")
_SPEAKER_ZH = re.compile("我|咱|俺|本人")
_HE_ZH = re.compile("[他她]们?(?!的?老家)")
_SOME_ZH = re.compile("有人|大家|人家|别人|谁")
_REPORTS_ZH = re.compile("(?:跟|对|和|告诉|通知)我们?(?:说|讲)?|说|(?<![不没])[让叫]我|建议|[后时候](?=我)")
#: Goes on about whom the piece before spoke of.
_PREDICATE_ZH = re.compile(
    f"(?!会议)(?:{clauses.SUBJECTLESS_ZH.pattern}|改|推|挪|取消|退|卖|停|放弃|提前|延|丢|被|把|没)"
)


def _serves_zh(person: re.Match[str]) -> bool:
    return person["kin"] in _SERVING_ZH or (person["name"] or "").endswith(("总", "经理", "主任", "医生", "老师"))


def named_in(fact: str) -> str:
    """Return the relative or the person whom a fact's text begins with, '' if it is the speaker's."""
    chinese = words.CJK_CHARACTER.search(fact) is not None
    match = (_PERSON_ZH if chinese else _FACT_OF_EN).match(fact)
    return "" if match is None else next(filter(None, match.groups()), "").lower()


_FACT_OF_EN = re.compile(
    rf"(?:(?i:their|has an?) )?(?:[a-z-]+ )?(?P<kin>{_PERSON})\b(?! of\b)|(?P<name>{_NAME})"
    r"(?:'s| is| has| was| (?:and [A-Z][a-z]+ )?[a-z]+ed)\b"
)


_OF_ANOTHER = re.compile(r"\b(?:he|she|they|his|her|their|him|them|it)(?:'s|'ve|'re|'ll)?\b|[他她它]", re.IGNORECASE)
#: A name within a sentence.
NAMED_EN = re.compile(r"(?<=[a-z] )[A-Z][a-z]+")
_KIN_ZH = re.compile(patterns_zh.KIN)


def _is_mentioned(held: Held, said: str) -> bool:
    """Return whether a text in lower case names the relative or the animal of a fact."""
    who = held.key.split("family:", 1)[-1].partition(":")[0].replace("_", " ")
    kin = [word for word, english in patterns_zh.KIN_ENGLISH.items() if english.replace("_", " ") == who]
    named = [name.lower() for name in NAMED_EN.findall(held.text)]
    kin += _KIN_ZH.findall(held.text)
    return any(word and word in said for word in (who, *kin, *named))


def _is_about(held: Held, owner: Owner) -> bool:
    if owner is UNKNOWN:
        return False
    if owner is THEY:
        return held.topic in ("family", "pet") or slots.kin_of("", held.text) != ""
    text = held.text.lower()
    return slots.kin_of(held.key, held.text) in owner.names or any(updates.has_word(text, name) for name in owner.names)
