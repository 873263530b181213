"""A correction that gives nothing but what is right: the sentence before it is read again with that in its place.

'I'm allergic to penicillin.' 'No wait, it was amoxicillin.'    the same kind of thing
'We have two cats.' 'Actually three.'                           a number
'The call is on Tuesday.' 'Sorry, Thursday.'                    a time
'我住在杭州。' '不对，是苏州。'                                   a place
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hippocampus.providers.local import corrections, patterns_en, patterns_zh, people
from hippocampus.providers.local.corrections import Held
from hippocampus.text import words

#: Opens a correction, and by itself says that one follows.
_OPENING = (
    r"(?:no,? wait|wait,? (?:no|sorry|actually)|wait|sorry|no|nope|oops|whoops|actually|correction|scratch that"
    r"|hold on|hang on|my (?:mistake|bad)|(?:or )?rather|I mean|I meant?|I misspoke)\b"
)
_MARK = r"[,.:;!…—–-]*\s*"
_PLAIN_EN = re.compile(
    rf"^(?:(?:oh|ah|er|um|well|ugh|hmm)[,.…]* )?(?P<opening>{_OPENING}(?:{_MARK}{_OPENING})*){_MARK}"
    r"(?P<lead>(?:it|that|she|he|they)(?:'s| is| was|'re| are)(?: called)?|there(?:'s| are| is)|make (?:that|it)"
    r"|(?:we|I)(?:'ve got| have| said| meant?))?\s*"
    r"(?P<place>(?:at|in|on|to|from) )?(?P<article>the |an? )?(?P<new>[\w'&-]+(?: [\w'&-]+){0,2}?)"
    r"(?:,? (?:not .{2,40}|now|actually|sorry|instead))?"
    r"(?:[,;.…—–-]+ ?(?:I (?:always|keep|constantly|often) (?:mix|get|confus|forget)\w*\b.{0,30}|I"
    r" (?:got|get|mixed|misread|mistyped"
    r"|misspoke|misremembered|was (?:thinking of|looking at))\b.{0,40}|my (?:mistake|bad"
    r"|memory.{0,20})|silly me|typo|sorry about that))?$",
    re.IGNORECASE,
)
#: Opens nothing but a correction.
_FIRM_EN = re.compile(
    r"\b(?:no,? wait|wait,? no|correction|scratch that|I mean|I meant|rather|my (?:mistake|bad)|misspoke)\b", re.I
)
#: These and a name may speak to somebody: 'Wait, Sarah!'
_DENIES_EN = re.compile(r"\b(?:no|nope)\b", re.I)
_NUMBER_EN = re.compile(
    r"\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|[a-z]+teen"
    r"|(?:twen|thir|for|fif|six|seven|eigh|nine)ty(?:-[a-z]+)?|\d+)\b",
    re.IGNORECASE,
)
_PROPER_EN = re.compile(r"\b[A-Z][\w'&-]+(?: [A-Z][\w'&-]+)*")
_NOUN_EN = re.compile(r"[a-z][a-z-]{2,}(?: [a-z][a-z-]{2,})?")
_NO_NOUN = (
    words.STOPWORDS
    | words.CHATTER
    | frozenset(
        words.listed(
            """nothing none both neither worries problem problems idea way wrong true false correct incorrect mistake
            bad fine done later soon tomorrow busy late tired joking kidding clue chance matter rush exactly different
            similar better worse gone over finished cancelled here there them him her us you me quite pretty very so
            too really rather kind sort nights days weekends"""
        )
    )
)
#: The object of a fact, by what its text begins with.
_OBJECT_EN = re.compile(
    r"^(?:is allergic to|takes|is on|plays|speaks|studies|likes|dislikes|(?:is|works as) an?|has an?|is"
    r"|has as favou?rite [a-z]+|has \w+ allergic to|has an? [a-z ]+ (?:who is an?|allergic to)"
    r"|does not (?:eat or drink|eat|drink))"
    r" (?P<object>[a-z][a-z -]+)$"
)
#: What may be an adjective or a verb, unless it has an article, is one of the substances, or what it replaces ends so.
_NO_NOUN_EN = re.compile(r"(?:ary|ful|ous|ate|ible|able|ive|ed|y|al|ic|ish|less|ing)$")
_SUBSTANCE_EN = re.compile(
    r"(?:[a-z]+(?:cillin|mycin|floxacin|profen|statin|sartan|prazole|olol|opram|azepam)|aspirin|codeine|morphine"
    r"|penicillin|ibuprofen|paracetamol|sulfa|latex|nickel|iodine|insulin|metformin|warfarin|sesame|pollen|gluten"
    r"|lactose|dairy|milk|eggs?|soya?|wheat|barley|rye|nuts?|peanuts?|walnuts?|almonds?|cashews?|hazelnuts?|fish"
    r"|shellfish|shrimps?|prawns?|crabs?|mussels?|honey|celery|mustard|garlic|chocolate|strawberry|strawberries"
    r"|kiwis?|mango(?:e?s)?|bananas?|wasps?|bees?|cats?|dogs?|horses?|dust|mould|mold|grass|bee stings?)"
)
_TAKEN_EN = re.compile(r"\b(?:allergic to|takes)\b")
_NO_NAME_EN = frozenset(
    words.listed(
        """ok okay thanks thank lol lmao rofl haha omg wtf yes yeah yep no nope nah sorry please god jesus christ damn
        wow hey hi hello bye cheers great good sure right true false alexa siri google cortana claude chatgpt gpt
        gemini copilot hippocampus christmas easter halloween mum mom dad mama papa sir madam mate dude bro i"""
    )
)
#: First names that are no places.
_FIRST_NAMES = frozenset(
    words.listed(
        """aaron adam alan alex alice alison amy andrea andrew andy angela anna anne annie anthony barbara ben benjamin
        beth betty bill bob brian carla carol caroline catherine charles chris christine claire clara dan daniel dave
        david deborah dennis diana diane donna ed edward ella ellen emily emma eric erik eva eve frank fred gary
        george grace greg hannah harry heather helen henry ian isabel jack jacob jake james jane janet jason jean jeff
        jen jenny jess jessica jim joan joe john jon jonas jonathan joseph josh judy julia julie karen kate katie keith
        kelly ken kevin kim kyle lars laura lauren leo lily linda lisa liz louise lucas lucy luke maria marie mark
        martha martin mary matt matthew max megan mei melissa michael michelle mike molly nancy nick nicole nils nina
        oliver olivia oscar pam pat patricia paul peter phil rachel rebecca richard rob robert robin ron rosa rose ruth
        ryan sam samuel sara sarah scott sean sharon simon sophia sophie stephen steve steven sue susan tessa thomas
        tim tina tom tony tracy vera vicky walter wendy will william zoe"""
    )
)
#: Programs, machines and languages, and those that are a person's or a place's name as well.
_THINGS_EN = frozenset(
    words.listed(
        """windows linux macos ubuntu android ios iphone ipad mac macbook chromebook python javascript typescript kotlin
        golang rust perl php sql excel powerpoint photoshop figma notion slack zoom teams skype whatsapp telegram chrome
        firefox safari postgres postgresql mysql mongodb redis docker kubernetes"""
    )
)
_THINGS_OR_NOT_EN = frozenset(words.listed("java ruby julia swift scala dart pascal ada basic haskell word edge"))
_DEMONYM_EN = re.compile(
    r"(?!dalian$)(?:[a-z]+(?:ish|ese|ian|ican)|german|french|dutch|greek|thai|czech|swiss|korean"
    r"|catalan|arabic|hindi)$",
    re.I,
)
_MONTH_EN = re.compile(patterns_en.MONTH, re.IGNORECASE)
_CALENDAR_EN = re.compile(rf"(?:{patterns_en.DAYS}|{patterns_en.MONTH}|I\b.*)$", re.IGNORECASE)
_OPENING_ZH = (
    "(?:不对(?:不对)?|不(?=[，,、])|不是|[哦噢]不|错了|[说写打记讲弄搞][错反岔]了|等等|等一下"
    "|更正(?:一下)?|口误|抱歉|不好意思)"
)
_PLAIN_ZH = re.compile(
    f"^(?:(?:哦|噢|啊|呃|哎呀?|额)[，,]?)?(?P<opening>{_OPENING_ZH})[，,。！!、：: ]+"
    "(?P<lead>(?:应该|其实|我是想说|我想说的|我说的)?(?:是|改成|在)|应该说?|[她他]在)?(?P<new>[^，。,、！!？?]{1,10}?)"
    "(?:才对|来着|哈|啊|吧|呢|啦)?[。！!~]*$"
)
_FIRM_ZH = re.compile("^不$|不对|错|反|岔|更正|口误")
_NUMBER_ZH = re.compile(f"(?P<number>{patterns_zh.NUMBER})(?P<unit>[只条头匹个岁年月天次套台辆口间]?)")
_TIME_ZH = re.compile(patterns_zh.TIME)
_WEEK_ZH = re.compile("[这本下]+(?=周|星期|礼拜)")
_DAY_ZH = re.compile("周|星期|礼拜")
_OBJECT_ZH = re.compile(
    "(?:住在?|来自|叫(?:做|作)?|最喜欢的.{1,6}?是|不?喜欢|在读?|会说|专业是|学的?是?)(?P<object>[^，。在]{1,10}?)"
    "(?:工作|上班|上学|做.{1,6}|当.{1,6})?$"
    "|对(?P<cause>[^，。]{1,10}?)(?:严重)?过敏|(?<!的)是(?P<kind>[^，。]{1,8})$|在吃(?P<medicine>[^，。]{1,8})$"
)
#: Says something of its own: 'the courier comes', 'my hand slipped'.
_PREDICATE_ZH = re.compile(
    "[是要来到在有忘接想等让被给去滑]|迟|今天|昨天|刚才|已经|下雨|下雪|手抖|打[电错字]|听[错说]"
    "|看[错到]|电话|快递|外卖|开会"
)
_PLACE_ZH = re.compile(f"{patterns_zh.CITY}|.{{1,6}}[省市区县镇村路街]")
_NO_NOUN_ZH = re.compile("[我你他她它这那没不了吗呢吧]|什么|怎么|谢|好的|知道|明白|可以|对的")


def in_place(
    text: str, sentence: str, stated: Sequence[Held], *, chinese: bool, answers: bool, elsewhere: bool = False
) -> str | None:
    """Return a sentence with what a correction of it gives in the place of what was wrong; None if it corrects nothing.

    Args:
        text: what may correct it.
        sentence: the last one that stated something.
        stated: the facts that it stated.
        answers: the text may answer a question instead: 'No, Ben.'
        elsewhere: something that a later sentence names may be wrong instead.
    """
    text = " ".join(text.replace("’", "'").split()).strip(" .!…")
    match = (_PLAIN_ZH if chinese else _PLAIN_EN).match(text)
    if match is None or (answers and not (_FIRM_ZH if chinese else _FIRM_EN).search(match["opening"])):
        return None
    sentence = sentence.replace("’", "'")
    if chinese:
        return _chinese(match, sentence, stated)
    return _english(match, sentence, stated, elsewhere=elsewhere)


def _english(match: re.Match[str], sentence: str, stated: Sequence[Held], *, elsewhere: bool) -> str | None:
    new, place = match["new"], match["place"] or ""
    time = corrections.find_time(f"{place}{new}", chinese=False)
    if (
        _MONTH_EN.fullmatch(new)
        and (named := corrections.find_time(sentence, chinese=False))
        and _MONTH_EN.search(named)
    ):
        return corrections.moved_en(sentence, f"in {new}") if new.lower() not in named.lower() else None
    if time is not None and len(time) >= len(new):
        old = corrections.find_time(sentence, chinese=False)
        return corrections.moved_en(sentence, time) if old and old.lower() != time.lower() else None
    if _NUMBER_EN.fullmatch(new.split()[0]):
        return _renumbered(sentence, new)
    firm = _FIRM_EN.search(match["opening"]) is not None
    if _PROPER_EN.fullmatch(new):
        by_itself = not (match["lead"] or match["place"])
        if by_itself and (elsewhere or not _names_only(sentence, stated)):
            return None
        return _renamed(match, sentence, stated, firm=firm)
    if not _NOUN_EN.fullmatch(new) or any(
        word in _NO_NOUN or word.endswith("ly") or words.is_past(word) for word in new.split()
    ):
        return None
    substance = _SUBSTANCE_EN.fullmatch(new) is not None
    olds = [
        found["object"]
        for each in stated
        if (firm or (match["lead"] and substance and _TAKEN_EN.search(each.text)))
        and (found := _OBJECT_EN.match(each.text))
    ]
    if not (substance or match["article"]) and (ending := _NO_NOUN_EN.search(new)):
        olds = [old for old in olds if old.endswith(ending[0])]
    return _last_replaced(sentence, olds, new)


def _renamed(match: re.Match[str], sentence: str, stated: Sequence[Held], *, firm: bool) -> str | None:
    """Return a sentence with another name of a person or a place.

    Without words that introduce it a name is taken only after 'no', and only if the sentence names nothing else.
    """
    new, place, lead = match["new"], match["place"] or "", (match["lead"] or "").lower()
    if any(word.lower() in _NO_NAME_EN for word in new.split()) or _CALENDAR_EN.match(new):
        return None
    if lead.startswith(("there", "we", "i'", "i have")):
        return None
    if lead.startswith(("he", "she", "they")):
        stated = [each for each in stated if is_of_another(each)]
        if len({person(each) for each in stated}) != 1:
            return None
    names = {
        name[0]: _kind_of(each.text, name.start())
        for each in stated
        for name in _PROPER_EN.finditer(each.text)
        if not _CALENDAR_EN.match(name[0])
    }
    if place:
        led = [old for old in names if f"{place}{old}".lower() in sentence.lower()]
        if len(led) == 1:
            return _last_replaced(sentence, [f"{place}{led[0]}"], f"{place}{new}")
        names = {old: kind for old, kind in names.items() if kind == "place"}
    names = {old: kind for old, kind in names.items() if _may_be_one_kind(old, new)}
    kinds = set(names.values())
    if len(kinds) != 1:
        return None
    kind = kinds.pop()
    if kind == "place" and (new.split()[0].lower() in _FIRST_NAMES or _DEMONYM_EN.match(new)):
        return None
    if not (firm or lead or place) and (
        len(names) != 1 or kind == "other" or _DENIES_EN.search(match["opening"]) is None
    ):
        return None
    return _last_replaced(sentence, list(names), new)


def _names_only(sentence: str, stated: Sequence[Held]) -> bool:
    """Return whether all that a sentence names stands in what it stated."""
    told = {word for each in stated for name in _PROPER_EN.findall(each.text) for word in name.split()}
    return set(named(sentence)) <= told


def named(sentence: str) -> list[str]:
    """Return the words of the names within an English sentence: what it begins with is none."""
    return [
        word
        for name in _PROPER_EN.finditer(sentence)
        for word in name[0].split()[not name.start() :]
        if not _CALENDAR_EN.match(word)
    ]


def _may_be_one_kind(old: str, new: str) -> bool:
    """Return whether two names may be of the same kind: a program or a language does not take a person's place."""
    things = {name.split()[0].lower() in _THINGS_EN for name in (old, new) if name.lower() not in _THINGS_OR_NOT_EN}
    return len(things) < len((old, new))


def _kind_of(text: str, start: int) -> str:
    """Return what a fact's name is of, by the word before it."""
    before = text[:start].rstrip().rpartition(" ")[2].lower()
    if before in ("called", "named", "is"):
        return "name"
    return "place" if before in ("in", "at", "from", "to", "for") else "other"


def _renumbered(sentence: str, new: str) -> str | None:
    """Return a sentence with another number of the same things: the only one that it has, or that of the noun."""
    number, _, noun = new.partition(" ")
    numbers = list(_NUMBER_EN.finditer(sentence))
    if noun:
        numbers = [each for each in numbers if sentence[each.end() :].lower().startswith(f" {noun.lower()}")]
    if len(numbers) != 1 or numbers[0][0].lower() == number.lower():
        return None
    return sentence[: numbers[0].start()] + number + sentence[numbers[0].end() :]


def _chinese(match: re.Match[str], sentence: str, stated: Sequence[Held]) -> str | None:
    new, lead = match["new"], match["lead"] or ""
    if _NO_NOUN_ZH.search(new) or not (lead or _FIRM_ZH.search(match["opening"])):
        return None
    if _TIME_ZH.fullmatch(new):
        old = corrections.find_time(sentence, chinese=True)
        if old is None or old == new:
            return None
        week = _WEEK_ZH.match(old)
        return corrections.moved_zh(sentence, week[0] + new if week and _DAY_ZH.match(new) else new)
    if _PREDICATE_ZH.search(new):
        return None
    if number := _NUMBER_ZH.match(new):
        numbers = [
            each
            for each in _NUMBER_ZH.finditer(sentence)
            if each["unit"] == number["unit"] or (number.end() == len(new) and not number["unit"])
        ]
        if len(numbers) == 1 and numbers[0]["number"] != number["number"] and number.end() == len(new):
            return sentence[: numbers[0].start("number")] + number["number"] + sentence[numbers[0].end("number") :]
        return None
    if lead.startswith(("她", "他")):
        stated = [each for each in stated if is_of_another(each)]
    olds = [next(filter(None, found.groups())) for each in stated if (found := _OBJECT_ZH.search(each.text))]
    places = [old for old in olds if _PLACE_ZH.fullmatch(old)]
    if _PLACE_ZH.fullmatch(new) and places:
        olds = places
    elif places and not lead:
        return None
    return _replaced(sentence, olds[0], new) if len(set(olds)) == 1 else None


def _replaced(sentence: str, old: str, new: str) -> str | None:
    place = sentence.lower().rfind(old.lower())
    if place < 0 or old.lower() == new.lower():
        return None
    return sentence[:place] + new + sentence[place + len(old) :]


def _last_replaced(sentence: str, olds: Sequence[str], new: str) -> str | None:
    """Return a sentence with another word in place of the one of `olds` that it has last."""
    placed = [(sentence.lower().rfind(old.lower()), len(old), old) for old in olds]
    place, _, old = max(placed, default=(-1, 0, ""))
    return _replaced(sentence, old, new) if place >= 0 else None


def parts(text: str) -> list[str]:
    """Return a sentence, or what it states and what puts that right: 'I live in Leeds, no wait, in York.'"""
    match = _WITHIN.match(text)
    if (
        match is None
        or _SAID.match(text)
        or not any(each.match(match["after"].strip(" .!…。")) for each in (_PLAIN_EN, _PLAIN_ZH))
    ):
        return [text]
    return [match["before"], match["after"]]


#: Says itself what was said, and what is right.
_SAID = re.compile(r"I (?:said|wrote|told you)\b", re.IGNORECASE)
_WITHIN = re.compile(
    r"(?P<before>.{4,200}?)\s*(?:[,，;；—–…-]+|\.{3})\s*"
    rf"(?P<after>(?:(?:no,? wait|wait,? no|sorry|I mean|or rather|correction"
    rf"|(?:不对|哦不|噢不|[说写打记讲]错了)[，,]).{{1,60}}|no,? (?:on |in |at )?(?:{patterns_en.DAYS}"
    rf"|{patterns_en.MONTH})[.!]?"
    rf"|不[，,、](?:是|在)?{patterns_zh.TIME}[。！]?))$",
    re.IGNORECASE,
)


def is_of_another(held: Held) -> bool:
    """Return whether a fact is of a relative or an animal of its speaker's."""
    return held.topic in ("family", "pet")


def person(held: Held) -> str:
    """Return of which relative or animal a fact is."""
    who = _WHO.search(held.text)
    return who[0].lower() if who else held.text


_WHO = re.compile(rf"\b(?:{people.WHO})\b|{patterns_zh.KIN.replace('?P<about>', '?:')}|[妈爸姐哥弟妹]", re.IGNORECASE)


def is_first_name(name: str) -> bool:
    """Return whether a word is a common first name, and no place."""
    return name.lower() in _FIRST_NAMES


def opens(text: str) -> bool:
    """Return whether a turn begins as a correction does: 'he' in it is who was meant before."""
    return bool(_OPENS.match(text))


_OPENS = re.compile(
    rf"{_OPENING}{_MARK}(?:he|she|they|it)\b|(?:不对|不是|[说写打记讲弄搞]错了|更正)[，,。！ ]+(?:应该)?[他她]",
    re.I,
)
