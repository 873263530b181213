"""What becomes of something known when a sentence speaks of it again in words that no rule knows.

    'We run forty head.' … 'We sold down to eighteen head.'          the same things in another number
    'Temi comes in May.' … 'Temi is coming with mum instead.'        the same person or thing, with a word of change
    'It's in December.' … 'Hold on, I said December, it's January.'  what was said last, put right
    'My sister is called Bec.' … 'Bec bought Wren a swing.'          somebody known: the sentence is kept beside it

The sentence itself takes the place of what was known, or stands beside it. Names, homes, birthdays and allergies do not
change so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from hippocampus.providers.local import corrections, patterns_en, patterns_zh
from hippocampus.providers.local.corrections import Held
from hippocampus.text import words

#: What a sentence that merely speaks of the same may replace.
_REPLACEABLE = frozenset(
    (
        "diet",
        "business",
        "work_change",
        "medication",
        "employment",
        "plan",
        "goal",
        "event",
        "activity",
        "work_terms",
        "habit",
        "member",
        "pregnancy",
        "studies",
    )
)
_COUNTED = _REPLACEABLE | {"owns", "plays", "children", "pet", "medication", "work_terms", "family", "business"}
_CHANGE_EN = re.compile(
    r"\b(?:instead|any ?more|no longer|changed (?:her|his|my|our|their) minds?|after all|in the end|turn(?:s|ed) out"
    r"|ended up|now|these days|switched|swapped|rather than|became|has become|got rid of|stopped|finally)\b",
    re.IGNORECASE,
)
_CHANGE_ZH = re.compile(
    "改|换|现在|后来|结果|最后|终于|转(?=[学做去到])|不[^，。]{1,6}了|没[^，。]{0,3}成|变成|提前|推|挪"
)
#: Allows again what a rule forbade.
_RELEASE_EN = re.compile(
    r"\b(?:we|you) can (?:quit|drop|lose|skip|stop)\b|\byou (?:don't|do not) (?:need"
    r"|have)(?: to)? .*\b(?:now|any ?more|any longer)\b|\b(?:you (?:can|may)|(?:it's|that's|are|is)"
    r" (?:ok|okay"
    r"|fine|alright|allowed)|feel free|I don't mind|go ahead|okay to)\b.*\b"
    r"(?:again|now|after all|any ?more|from now on|these days)\b",
    re.IGNORECASE,
)
_RELEASE_ZH = re.compile(
    "(?:不必|不用|作废|取消|不算)了?(?=$|[，,。！ ])|你?(?:现在|以后|偶尔)[^，。]{0,8}(?:可以|也[中行成]|随便"
    "|都行|没关系)|(?:可以|不用|不必)[^，。]{0,10}(?:了|也[中行成])$|也[中行成]了?(?=$|[，。！ ])"
)
_NUMBERS_EN = r"(?:\d+|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|[a-z]+teen|[a-z]+ty(?:[- ][a-z]+)?)"
_COUNT_EN = re.compile(
    rf"\b(?P<number>{_NUMBERS_EN}) (?P<noun>(?!years?|months?|weeks?|days?|hours?|minutes?|times?|of|percent|and|or|to"
    rf"|miles?|more|people|o'clock|am|pm)[a-z]{{3,}})",
    re.IGNORECASE,
)
_COUNT_ZH = re.compile(f"(?P<number>{patterns_zh.NUMBER})(?P<noun>[只条头匹亩间节盆棵桌台套门])(?!手)")
_NAMES_EN = re.compile(
    rf"\b(?:called|named) (?P<named>[A-Z]\w+)|\b(?:{patterns_en.KIN.replace('?P<about>', '?:')}"
    rf"|{patterns_en.ANIMAL}),?"
    r" (?:is )?(?P<kin>[A-Z][a-z]+)\b"
)
_NOT_A_NAME_ZH = "(?![在是当做叫今也都要给来去最刚已会很想有的][\u4e00-\u9fff]?)"
_NAMES_ZH = re.compile(
    "叫(?:做|作)?(?P<named>[\u4e00-\u9fff]{1,3})(?=$|[，的])"
    f"|{patterns_zh.KIN.replace('?P<about>', '?:')}{_NOT_A_NAME_ZH}(?P<kin>[\u4e00-\u9fff]{{2}})(?=在|是|做|今年"
    f"|上|开|[，]|$)"
)


def names_in(text: str, *, chinese: bool) -> Iterable[str]:
    """Yield the names of people and animals in the text of a fact: 'has a dog named Rex'."""
    for match in (_NAMES_ZH if chinese else _NAMES_EN).finditer(text):
        yield match["named"] or match["kin"]


#: Weaker words of change: enough where a sentence of a later slice shares a rare word with what is known.
_TURN_EN = re.compile(
    r"\b(?:but|stayed|never|not|out of|sold|done with|back|gone|gave|chucked|shar(?:e|ing)|since|already|won"
    r"|lost|quit|had"
    r"|may|can|allowed|cleared|moved|moving|went|over|got)\b|n't\b|'s (?:mine|back|off|gone|over|done)\b",
    re.IGNORECASE,
)
_TURN_ZH = re.compile("了|没|不(?!好意思)|改|换|已经|过户|作废|也行")
_AS_SAID_EN = re.compile(r"^I said [^,]{2,30},\s*", re.IGNORECASE)
#: Says how somebody felt or spoke, or asks for something: nothing to keep beside a name.
_SLIGHT_EN = re.compile(
    r"\b(?:cried|cries|crying|laugh\w*|smil\w*|says?|said|thinks?|thought|wants?|wanted|would|delighted|thrilled"
    r"|jealous"
    r"|ask(?:s|ed)?|wish\w*|looks?|sounds?|ignor\w*|miss(?:es|ed)?|scream\w*|blam\w*|sulk\w*|kidding|tell|told"
    r"|call(?:s|ed)? it"
    r"|homework|funny|mad|cute|sends?|hi|hello|reckons?|hates? me|loves? (?:it|me|you))\b"
    r"|^(?:please |can you |could you |oh,? |and )*(?:explain|translate|write|give|make|help|find|look|remind"
    r"|suggest|draft"
    r"|bring|read|say|sing|come|imagine|guess|poor|happy|love|thanks|thank|what|who|how|don't|let)\b",
    re.IGNORECASE,
)
_SLIGHT_ZH = re.compile("[你您说讲问哭笑催吵闹睡骂嫌怕想]|觉得|不肯|管我|像|好玩|可爱|吃[^素药]")
GENERIC = frozenset(
    words.listed(
        """call name work second third three two four first btw end ago give sell home mother mom mum dad father wife
        husband kid brother sister son daughter friend school house flat bed start love like thing week year month day
        time old new old hour january february march april may june july august september october november december
        monday tuesday wednesday thursday friday saturday sunday play cook swim run read write mate boy girl baby
        definition hundr meet live leav long walk morning move mov chang change finish back stop switch swap sold end
        quit becam final book order last best right wrong sure main thursday meal food doctor"""
    )
)


#: Says what might be, or how somebody feels: what is known stands.
_UNCERTAIN_EN = re.compile(
    r"\b(?:would|could|might|wish|hope|maybe|perhaps|if|(?:I|we) (?:(?:really|already|still|so|do) )*(?:miss|feel|felt"
    r"|worry|love|hate))\b|\b(?:I|we|it|that|they|he|she)'d\b(?! (?:been|already))",
    re.IGNORECASE,
)
_UNCERTAIN_ZH = re.compile("如果|要是|假如|也许|可能|说不定|想念|好想|怀念|舍不得")
#: Ends a habit, where a sentence of a later slice shares a rare word with it.
_ENDS_EN = re.compile(r"\b(?:out of|sold|done with|quit|never|not|gone|gave|since)\b|n't\b", re.IGNORECASE)
_ENDS_ZH = re.compile("不|没|改|换|停|退|卖")


def _gives_way_to_weak(held: Held, text: str, *, chinese: bool) -> bool:
    if held.topic == "event":
        return False  # what happened has happened
    return held.topic != "habit" or (_ENDS_ZH if chinese else _ENDS_EN).search(text) is not None


@dataclass(frozen=True, slots=True)
class Update:
    """A known fact that a sentence speaks of, and whether the sentence takes its place."""

    held: Held
    replaces: bool
    text: str  # the sentence without what says that something was wrong


def of_sentence(text: str, held: Sequence[Held], beside: Sequence[Held], turn: int, *, chinese: bool) -> Update | None:
    """Return which known fact a sentence speaks of, the latest that shares most with it, and what becomes of it.

    Args:
        held: whose place it may take.
        beside: what it may be kept beside.
    """
    counted = _counted(text, held, chinese=chinese)
    if counted is not None:
        return Update(counted, replaces=True, text=text)
    lowered, spoken = text.lower(), corrections.content(text)
    mistaken = corrections.puts_right(text, chinese=chinese)
    if mistaken:
        said = _AS_SAID_EN.sub("", text[: mistaken.start()] + text[mistaken.end() :])
        recent = [each for each in held if each.turn is not None and 0 < turn - each.turn <= _REACH]
        recent = [each for each in recent if each.topic in _REPLACEABLE or each.topic == "family"]
        meant = [each for each in recent if each.about & spoken] or recent
        if meant and _says_enough(said, chinese=chinese):
            return Update(meant[-1], replaces=True, text=said)
    if (_RELEASE_ZH if chinese else _RELEASE_EN).search(text):
        rules = [each for each in held if each.topic == "rule" and each.about & spoken]
        if rules:
            return Update(rules[-1], replaces=True, text=text)
    changes = (_CHANGE_ZH if chinese else _CHANGE_EN).search(text) is not None
    turns = (_TURN_ZH if chinese else _TURN_EN).search(text) is not None
    found: list[tuple[int, int, Held, bool]] = []
    slight = (_UNCERTAIN_ZH if chinese else _UNCERTAIN_EN).search(text) is not None
    for each in held if (changes or turns) and not slight else ():
        if each.turn == turn or each.topic not in _REPLACEABLE:
            continue
        named = _named(each, lowered, chinese=chinese)
        shared = each.about & spoken
        common = {term for term in shared if term not in GENERIC and not term[:1].isdigit() and term[:1] != "="}
        if changes and (len(shared) >= 2 or (named and (common or chinese))):
            found.append((2 + len(common) + named, each.order, each, True))
        elif turns and each.turn is None and (common or named) and _gives_way_to_weak(each, text, chinese=chinese):
            found.append((1 + len(common) + named, each.order, each, True))
    replaced = {id(each) for _, _, each, _ in found}
    for each in beside:
        if each.turn == turn or each.topic not in _KEPT_BESIDE or id(each) in replaced:
            continue
        if named := _named(each, lowered, chinese=chinese):
            found.append((named, each.order, each, False))
    if not found:
        return None
    _, _, known, replaces = max(found, key=lambda entry: entry[:2])
    if not replaces and (
        (_SLIGHT_ZH if chinese else _SLIGHT_EN).search(text) or not _says_enough(text, chinese=chinese)
    ):
        return None
    return Update(known, replaces=replaces, text=text)


#: How many turns back a correction can reach.
_REACH = 6
_KEPT_BESIDE = frozenset(("family", "pet", "children", "relationship_status", "plan", "event", "home"))
_WORDS_MIN = 5
_CHARS_MIN = 7


def _says_enough(text: str, *, chinese: bool) -> bool:
    return len(words.CJK_CHARACTER.findall(text)) >= _CHARS_MIN if chinese else len(text.split()) >= _WORDS_MIN


_PROPER_EN = re.compile(
    r"(?<=[a-z,'] )(?!(?:January|February|March|April|May|June|July|August|September|October|November|December"
    r"|Christmas"
    r"|Easter|English|French|German|Spanish|Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday|New|Mr|Mrs"
    r"|Ms|Dr|The)\b)"
    r"[A-Z][a-z]{2,}"
)


@lru_cache(maxsize=4_096)
def _names_of(text: str, *, chinese: bool) -> frozenset[str]:
    if chinese:
        return frozenset(names_in(text, chinese=True))
    return frozenset(name.lower() for name in (*names_in(text, chinese=False), *_PROPER_EN.findall(text)))


def _named(held: Held, lowered: str, *, chinese: bool) -> int:
    return sum(1 for name in _names_of(held.text, chinese=chinese) if has_word(lowered, name))


def has_word(lowered: str, name: str) -> bool:
    """Return whether a name is a word of a text in lower case; a Chinese one need not stand apart."""
    place = lowered.find(name)
    while place >= 0:
        around = lowered[max(place - 1, 0) : place], lowered[place + len(name) : place + len(name) + 1]
        if not name.isascii() or not any(each.isalnum() or each == "_" for each in around):
            return True
        place = lowered.find(name, place + 1)
    return False


def _counted(text: str, held: Sequence[Held], *, chinese: bool) -> Held | None:
    pattern = _COUNT_ZH if chinese else _COUNT_EN
    for match in pattern.finditer(text):
        for each in reversed(held):
            if each.topic not in _COUNTED:
                continue
            for other in pattern.finditer(each.text):
                same = other["noun"].lower().rstrip("s") == match["noun"].lower().rstrip("s")
                differs = same and other["number"].lower() != match["number"].lower()
                if differs and (not chinese or each.about & corrections.content(text)):
                    return each
    return None
