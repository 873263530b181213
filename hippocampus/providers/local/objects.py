"""Turns what a pattern captured into an object worth keeping, or refuses it.

A refusal is None: the words after 'I love' are more often an aside ('how it turned out') than a thing.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping

from hippocampus.providers.local import patterns_en
from hippocampus.providers.local.patterns import Shape
from hippocampus.text import words

_TAIL_EN = re.compile(
    r"\s*(?:[;(]|:\s|\s-+\s|\s[–—]|,(?=\s*(?:and|but|so|which|who|though|you|I|it|we|they|he|she|because"
    r"|especially|like"
    r"|too|right|even|the|that|then|thanks|not|as|if|just|all|this|what|how|also)\b)|\b(?:because|'cause"
    r"|since|but|so|when"
    r"|whenever|while|which|who|although|though|unless|until|as well|too|either|anymore|any more|especially"
    r"|even"
    r"|lately|at the moment|a lot|so much|very much|the most|same as|as always|as usual|or I|or else|too much"
    r"|more than anything|for sure|as a whole|that"
    r"|if|where|whose|if possible|for now|these days|nowadays|recently|already|again|with you|thanks to|(?<!from )now"
    r"|and (?:I|it"
    r"|we|my|he|she|they|that|the|this|have|am|then|was|is|you))\b).*$",
    re.IGNORECASE,
)
_DEICTIC_EN = re.compile(
    r"\b(?:this|that|it|its|it's|those|these|them|you|your|yours|him|his|her|they|their|theirs|he|she|I|what"
    r"|how|why|stuff"
    r"|things?|something|anything|everything|nothing|someone|everyone|somewhere|there|here|one|ones|such|same"
    r"|both|way|idea"
    r"|fact|part|sound|sounds|feeling|look|looks|vibes?|photo|pic|picture|so|lot|lots|bit|kind|sort|more"
    r"|many|much|too)\b",
    re.IGNORECASE,
)
_BAD_START_EN = re.compile(
    r"^(?:the|a|an|all|every|any|some|when|being|seeing|hearing|knowing|having|getting|giving|making|finding"
    r"|helping"
    r"|feeling|sharing|thinking|taking|to (?:see|hear|know|be|have|get|say|think|tell|let|help|make|give"
    r"|share)|by|with|on"
    r"|in|at|of|and|or|but|not|up|out|about|for|from|as|is|are|was|were|no|never|ever|really|just|myself)\b",
    re.IGNORECASE,
)
_RESTRICTED_EN = re.compile(r"^[^,;.]*?[\w']+ (?:that|who|which|where|whose|when) ", re.IGNORECASE)
_DANGLING_EN = re.compile(
    r"\b(?:the|a|an|my|our|and|or|to|of|with|for|in|on|at|from|by|about|is|are|was|were|new|some|got|made"
    r"|took)$",
    re.IGNORECASE,
)
_ARTICLES = re.compile(r"^(?:a|an|the|my|our|their|some)\b", re.IGNORECASE)
_DETERMINER_EN = re.compile(r"^(?:the|a|an|some|my|our|their|to)\s+", re.IGNORECASE)
_ALLOWED_THE = re.compile(
    r"^the (?:beach|outdoors|ocean|sea|mountains|rain|snow|city|countryside|gym|theat(?:er|re)|cold|heat"
    r"|mornings?"
    r"|woods|forest|water|smell of \w+|taste of \w+|piano|guitar|violin|cinema|desert|sun|winter|summer"
    r"|autumn)$"
    r"|^a good \w+(?: \w+)?$|^an? [\w-]+(?: [\w-]+){1,3}$",
    re.IGNORECASE,
)
_SUBJECT_EN = re.compile(r"(?<![\w-])(my|our|myself|ourselves|me|us)(?![\w-])", re.IGNORECASE)
_THIRD_EN = {
    "my": "their",
    "our": "their",
    "myself": "themselves",
    "ourselves": "themselves",
    "me": "them",
    "us": "them",
}
_BAD_ACTION_EN = re.compile(
    r"^(?:check|see|let|tell|do|be|talk|keep|try|think|say|miss|need|give|make sure|have to|get back|look"
    r"|find|ask"
    r"|show|happen|remember|stop|pass|cry|die|bed|sleep|head|call|continue|feel|know|love|enjoy|stay|share"
    r"|focus|use"
    r"|make the most|take it|take care|take a (?:look|break)|embrace|work hard|be|have fun|help|push|give)\b",
    re.IGNORECASE,
)
_UNCLEAR_EN = re.compile(
    r"\b(?:you|your|yours|it|its|it's|this (?!week|weekend|month|year|morning|afternoon|evening|summer|winter"
    r"|spring"
    r"|fall|autumn|Christmas|past)|that|these|those|them|him|her|his|one(?! (?:year|month|week|day))|ones"
    r"|there|here|I|something|some stuff"
    r"|stuff|things?|everyone|(?:what|how)(?! to )|(?:a few|some|any) more|some (?:new )?people|progress|for"
    r" the last (?:half |few )?(?:hours?|minutes))\b|\b(?:this|that|there)$",
    re.IGNORECASE,
)
_TIME_EN = re.compile(
    rf"\b(?:{patterns_en.TIME}|(?:a few|\w+) (?:days?|weeks?|months?|years?) ago|(?:last|this|next)"
    rf" \w+|yesterday|today)\b",
    re.I,
)
#: An event that is described by these words alone is not worth a fact: 'saw a movie', 'working on a project'.
_VAGUE = frozenset(
    words.stem(word)
    for word in words.listed(
        """project movie film show store shop walk book game fun ambition dream break thing few bit photo
        picture photograph pic work working watch morning evening afternoon night back week
        weekend month year last saw read watched play playing chase chasing hike trip lunch
        dinner event call meeting day days time hour stuff new big huge great nice amazing good fun long short little
        old ago couple several lovely wonderful fantastic busy first really party weekend people friend place class
        started began got made took went had did spent start starting begin leave
        leaving go going take taking have having get getting make making do doing be being return come coming"""
    )
)
_THIRD_VERBS = {"have": "has", "do": "does", "go": "goes", "am": "is", "don't": "doesn't"}
_NOT_A_NAME = frozenset(
    words.listed(
        "the a an so just not very really here back sure fine good great when"
        " who and but in on at it he she they"
        " we you"
        " i me my your is are was"
    )
)
_UNCLEAR_ZH = re.compile("[你您他她它]|这|那[个些种样么]|什么|怎么|哪|一下|东西|事情|不知道|为什么|一点$|[吗呢吧]$")
_BAD_START_ZH = re.compile("的|了|过(?!敏)|到|在|是|有|上(?![海市证饶])|和(?!平|牛|果)|也|都|就|自己")
_NOT_A_NAME_ZH = re.compile(
    "[让叫带帮陪问催嫌骂说在是其出车要也都给来去今最刚已经那时候搬不会很天总想又还就没有过的了太每特真跟和一两早晚"
    "租合伙做开学教考读买卖送吃喝住走跑打病班工下上转调退休辞职被把从到对能可应该什么啥谁怎自己人家里"
    "喜欢讨厌爱怕觉得老是身体血压怀孕结婚离岁月号周]"
)
#: A name of a person, in a list of them.
NAME_ZH = f"(?:(?!{_NOT_A_NAME_ZH.pattern})[\u4e00-\u9fff]){{2,3}}"
_NOTHING_ZH = re.compile(
    "(?:一?个)?(?:社团|兴趣班|班|课|团|队|项目)|吃|喝|看|玩|听|做|去|说|买|睡觉?|人|自己|大家|生活|热闹|干净|美|笑|聊"
    "|钱|谁|上|下|死|多|少|慢|快|好|坏|气|哭|情|家"
)
_NOT_A_PLACE_ZH = re.compile(
    "[一两二三四五六七八九十几半0-9](?:个|天|晚|年|周|月)|安全|家里|楼[上下]|宿舍|公司|医院|学校|单位|一起|附近|隔壁"
    "|外面|里面|路上|地铁|车上|店里|床上|网上|心里|手里|酒店|这"
    "|那|哪|旁边|对面|等|忙|想|看|做|开|写|吃|睡|加班|开会"
)
_UNDECIDED_ZH = re.compile("还?没(?:有)?(?:定(?!期)|想好|决定|确定|着落)")
#: Homework and meetings of a day, by a bare verb.
_ERRAND_ZH = re.compile(
    "(?:今天|明天|后天|今晚|明晚|周[一二三四五六日天]|下周[一二三四五六日天]?)(?:就|要|得|会)*[交写背起睡说见看聊]"
)
_PARTICLE_ZH = re.compile("(?:了|呢|啊|呀|啦|哦|嘛|哈+)+$")
_TAIL_ZH = re.compile(
    "(?:(?<!^生)(?<![^学先医考新]生)了|呢|啊|呀|啦|哦|嘛|的时候.*|因为.*|所以.*|但是?.*|不过.*|而且.*|来着|的说|哈+)$"
)


def clean(raw: str, shape: Shape, *, chinese: bool) -> str | None:
    """Return the object as it is stored, in the third person; None if it is not worth a fact."""
    return _clean_zh(raw, shape) if chinese else _clean_en(raw, shape)


def _clean_zh(raw: str, shape: Shape) -> str | None:
    text = raw.strip(" ，。！!、~～\"'“”")
    text = (_TAIL_ZH if shape not in ("rule", "rule_zh") else _PARTICLE_ZH).sub("", text).strip()
    if not text or _UNCLEAR_ZH.search(text if shape not in ("rule", "rule_zh") else ""):
        return None
    if _UNDECIDED_ZH.search(text):
        return None
    if shape in ("rule", "rule_zh"):
        if "什么" in text or len(text) < 3 or text.endswith(("时", "时候")):
            return None
        return re.sub("我们?", "本人", text)
    if shape not in ("plain", "kin_state", "habit", "occasion", "event_zh") and _BAD_START_ZH.match(text):
        return None
    if shape == "kin_name" and (_NOT_A_NAME_ZH.search(text) or len(text) < 2):
        return None
    if shape in ("list", "role", "plain") and _NOTHING_ZH.fullmatch(text):
        return None
    if shape == "role" and text.startswith("不"):
        return None
    if shape == "place" and _NOT_A_PLACE_ZH.search(text):
        return None
    if shape == "action" and _ERRAND_ZH.fullmatch(text):
        return None
    if shape in ("action", "occasion", "event_zh"):
        return re.sub("^([^我]{1,8})我们?(?=都|要|会|想|得|去|就|打算|准备|计划)", r"\1", text).replace("我", "自己")
    return text.replace("我", "自己")


def _clean_en(raw: str, shape: Shape) -> str | None:
    text = raw.strip()
    if shape in ("thing", "list", "items") and _RESTRICTED_EN.match(text):
        return None
    if shape == "rule":
        text = re.sub(r"(?:,? because\b.*|,? please|(?<!from) now| again)$", "", text)
    elif shape not in ("plain", "title", "titles"):
        text = _TAIL_EN.sub("", text)
    text = " ".join(text.split()).strip(" ,.;:!?-–—\"'“”()*")
    if not any(character.isalnum() for character in text) or len(text) > 120:
        return None
    checked = _CHECKS[shape](text)
    if checked is None:
        return None
    if re.match(r"[A-Z][a-z]+ing\b", checked):
        checked = checked[0].lower() + checked[1:]
    return in_third_person(checked)


def in_third_person(text: str) -> str:
    """Return 'my dog' as 'their dog'."""
    return _SUBJECT_EN.sub(lambda match: _THIRD_EN[match[1].lower()], text)


def _plain(text: str) -> str | None:
    unclear = re.search(
        r"\b(?:you|your|this (?!\w+day|week|weekend|month|year|[A-Z]\w+|spring|summer|autumn|winter)"
        r"|that|it)\b",
        text,
        re.IGNORECASE,
    )
    return None if unclear else text


def _thing(text: str) -> str | None:
    if len(text.split()) > 8 or "," in text or _DEICTIC_EN.search(text):
        return None
    if _BAD_START_EN.match(text) and not _ALLOWED_THE.match(text):
        return None
    return text if _has_content(text) else None


def _title(text: str) -> str | None:
    text = re.split(r",? (?:because|since|which|but|and (?:I|it|the)|by far|right now)\b|[,;]", text)[0]
    return text if len(text.split()) <= 9 and not _UNCLEAR_EN.search(text) and _has_content(text) else None


def _titles(text: str) -> str | None:
    if len(titles(text, chinese=False)) > 1:
        return text if not _UNCLEAR_EN.search(text) and _has_content(text) else None
    return _title(text)


def _action(text: str) -> str | None:
    if _BAD_ACTION_EN.match(text):
        return None
    return _event(text) if len(text.split()) >= 2 else None


def _event(text: str) -> str | None:
    spoken = text.split()
    if len(spoken) == 2 and spoken[0] in ("got", "had"):
        return None
    if not 2 <= len(spoken) <= 16 or _UNCLEAR_EN.search(text) or _DANGLING_EN.search(text):
        return None
    return text if says_something(text) else None


def says_something(text: str) -> bool:
    """Return whether an English description has a word beside its times and the words that say little."""
    return any(term not in _VAGUE for term in words.terms(_TIME_EN.sub(" ", text)))


def _habit(text: str) -> str | None:
    return None if _UNCLEAR_EN.search(text) or len(text.split()) > 14 else text


def _rule(text: str) -> str | None:
    if re.fullmatch(
        r"(?:please |don't |do not |never |always |stop )*[a-z]+ (?:that|this|it|me|them)", text, re.IGNORECASE
    ):
        return None
    return text if len(text.split()) <= 20 and not re.search(r"\byourself\b", text, re.IGNORECASE) else None


def _place(text: str) -> str | None:
    text = re.split(
        r",? (?:with|for|to|after|before|about|last|this|next|and|in (?=\d)|by|on|just|from|right)\b", text
    )[0]
    match = re.match(
        r"(?:the |a small town in |a village near |downtown |central |north |south |east |west )*"
        r"[A-Z][\w'’.-]*(?:[ ,]+(?:of |de |la |the )?[A-Z][\w'’.-]*)*",
        text,
    )
    return match[0].strip(" ,.") if match and match[0].split()[0] not in ("I", "I'm", "Mars") else None


_TITLES = frozenset(("Mr", "Mrs", "Ms", "Dr", "Prof", "Sir", "Madam", "Miss"))


def _name(text: str) -> str | None:
    match = re.match(r"(?:(?:Mr|Mrs|Ms|Dr|Prof)\.? )?[A-Z][\w'’-]*(?: [A-Z][\w'’-]*){0,2}", text)
    if match is None or (len(match[0]) > 3 and match[0].isupper()) or match[0].split()[0].lower() in _NOT_A_NAME:
        return None
    if match[0] in _TITLES or match[0].lower() in words.STOPWORDS:
        return None
    return match[0].removesuffix("'s")


def _org(text: str) -> str | None:
    text = re.split(
        r",? (?:as|for|from|on (?=\d|[A-Z])|since|now|and|in charge|where|with|because|last|this|until)\b",
        text,
    )[0]
    if len(text.split()) > 7 or _DEICTIC_EN.search(text):
        return None
    named = re.match(r"(?:an? |the |my |our )", text) or text[:1].isupper()
    return text if named and not re.match(r"(?:the|a) (?:moment|time|while|long|few|bit|year|night)\b", text) else None


def _role(text: str) -> str | None:
    text = re.split(r",? (?:at|for|since|in (?=[A-Z])|and|with|from|now|on|right|here|where|last|this)\b", text)[0]
    if len(text.split()) > 6 or _DEICTIC_EN.search(text):
        return None
    return text if _has_content(text) else None


def _workplace(text: str) -> str | None:
    text = re.split(
        r",? (?:for (?=\d|almost|over|nearly|the (?:past|last)|many|years)|since|and|from|now|right|here|where|last"
        r"|this|these|so|but|until)\b|[,;]",
        text,
    )[0]
    return None if len(text.split()) > 12 or _DEICTIC_EN.search(text) or _DANGLING_EN.search(text) else text


def _given_name(text: str) -> str | None:
    return None if text.lower() in _NOT_A_NAME or text.lower() in words.STOPWORDS else text.title()


def _birth(text: str) -> str | None:
    return text if len(text.split()) <= 14 else " ".join(text.split()[:14])


def _occasion(text: str) -> str | None:
    return None if len(text.split()) > 14 or re.search(r"\b(?:you|your|yours)\b", text, re.IGNORECASE) else text


def _has_content(text: str) -> bool:
    return bool(words.terms(text))


_CHECKS: Mapping[Shape, Callable[[str], str | None]] = {
    "plain": _plain,
    "thing": _thing,
    "list": _thing,
    "items": _thing,
    "names": _plain,
    "titles": _titles,
    "languages": _plain,
    "title": _title,
    "action": _action,
    "event": _event,
    "habit": _habit,
    "rule": _rule,
    "place": _place,
    "name": _name,
    "org": _org,
    "role": _role,
    "workplace": _workplace,
    "given_name": _given_name,
    "birth": _birth,
    "occasion": _occasion,
}


_ITEM_TAIL_EN = re.compile(
    r"\s(?:at|in|on|when|during|with|tonight|today|since|so|because|but|which|who|as|for|unless|anymore|any more"
    r"|either|, tell)\b.*$"
    r"|,\s*(?:tell|so|but|please|which|who|that|it|I|and (?:I|it|my|that|so|the))\b.*$",
    re.IGNORECASE,
)
#: What follows the things says how much, not another thing: 'buckwheat, badly enough to carry a pen'.
_DEGREE_EN = re.compile(
    r"(?:so|very|really|quite|enough|extremely|highly|badly|severely|seriously|deathly|terribly|horribly"
    r"|violently|mildly"
    r"|slightly|to the point|both of|I|it|carry(?:ing)?|keep(?:ing)?|always|never|have|had|got|gets?|us(?:e|ing)"
    r"|need(?:s|ing)?|been|avoid(?:ing)?|since|found|find|diagnosed|no|not|just|only|will|can|can't|don't|do|did|go"
    r"|goes|going|went|swell|breaks?|come|comes|end|ended|tak(?:e|es|ing)|wear(?:ing)?|sadly|unfortunately|properly"
    r"|proper|reacts?|nearly|almost|like|is|was|are|were|makes?|ask|check(?:ing)?|tell|watch|beware|life[- ]threatening"
    r"|by the way|apparently)\b",
    re.IGNORECASE,
)


def items(text: str, *, chinese: bool) -> list[str]:
    """Return the members of a list of things that are always apart: 'shellfish, nuts and amoxicillin' are three."""
    if chinese:
        return parts(text, chinese=True)
    text = _ITEM_TAIL_EN.sub("", text)
    pieces = re.split(r",?\s+(?:and|or|nor|plus|as well as)\s+(?:to\s+)?|,\s+|\s*[&/]\s*", text)
    named = itertools.takewhile(lambda piece: not _DEGREE_EN.match(piece), filter(None, pieces))
    return [
        re.sub(r"^(?:all |any |the |to |both |most |also |some |an? (?:(?:bit of|little) )?)+", "", piece)
        for piece in named
    ]


_TIMES_EN = re.compile(r" (?:once|twice|[\w ]+ times)$", re.IGNORECASE)
_DEGREE_OF_EN = re.compile(
    r"(?P<degree>fluent|basic|conversational|native|some|broken|decent|good|an? (?:little )?bit of"
    r"|a little) (?P<what>.+)",
    re.IGNORECASE,
)

_DEGREE_OF_ZH = re.compile("(?P<degree>一点点?|一些|点|简单的?|流利的?)(?P<what>.+)")


def names(text: str) -> list[str]:
    """Return the members of a list of names; how often is said of one of them is said of no other."""
    pieces = re.split(r",\s+and\s+|,\s+|\s+and\s+|\s+&\s+", text)
    return pieces if len(pieces) == 1 else [_TIMES_EN.sub("", piece) for piece in pieces]


def titles(text: str, *, chinese: bool) -> list[str]:
    """Return the members of a list of titles; 'and' between only two may be in one, as in 'Salt and Pepper'."""
    if chinese:
        pieces = re.split("、|(?<=》)[和跟与]" if "《" in text else "、|[和跟](?!平)", text)
    else:
        pieces = re.split(r",\s+and\s+|,\s+|\s+and\s+", text)
    if len(pieces) > 1 + (not chinese) and all(1 <= len(piece.split()) <= 4 for piece in pieces):
        return pieces
    return [text]


def one_of(several: str) -> str:
    """Return what one of several relatives is: 'daughters' as 'daughter'."""
    return _ONE_OF.get(several.lower(), several.removesuffix("s"))


_ONE_OF = {
    "kids": "child",
    "children": "child",
    "grandkids": "grandchild",
    "grandchildren": "grandchild",
} | dict.fromkeys(("boys", "girls", "twins"), "child")


def degree(text: str, *, chinese: bool) -> tuple[str, str]:
    """Return 'a bit of Polish' as 'a bit of' and 'Polish'."""
    match = (_DEGREE_OF_ZH if chinese else _DEGREE_OF_EN).match(text)
    return (match["degree"], match["what"]) if match else ("", text)


def parts(text: str, *, chinese: bool) -> list[str]:
    """Return the members of a plain list ('reading, painting and long walks'), or a text that is not a list itself."""
    if chinese:
        return [part for part in re.split("、|以及|(?<!呼)和(?![田平县])|跟|还有", text) if part]
    if "," in text and not re.search(r", .* and ", text):
        head = text.partition(",")[0]
        broken = re.search(r"\b(?:a|an|the) \w+$", head)  # 'a quiet, sunny room' is not a list
        return [] if broken else [head]
    pieces = re.split(r",\s+and\s+|,\s+|\s+and\s+|\s+&\s+", text)
    if len(pieces) == 1:
        return [text]
    gerunds = all(re.match(r"[a-z]+ing\b", piece, re.IGNORECASE) for piece in pieces)
    listed = bool(re.search(r", .* and ", text)) and all(1 <= len(piece.split()) <= 4 for piece in pieces)
    return [piece for piece in pieces if piece] if gerunds or listed else [text]


_BARE_HABIT_ZH = re.compile("^(?P<when>.*?)(?P<verb>去|打|练|上|学|跑|踢|跳|游|画|弹|做|玩)(?:一次|一回|两次|几次)?$")


def complete_habit(text: str, carried: str) -> str | None:
    """Return a habit with the activity that was mentioned just before it: '每周三晚上去' -> '每周三晚上去攀岩'."""
    match = _BARE_HABIT_ZH.match(text)
    if match is None or match["verb"] in ("游", "跑", "跳"):
        return text
    if not carried:
        return None
    joined = carried if match["verb"] in carried else f"{match['verb']}{carried}"
    return f"{match['when']}{joined}"


def state_of(text: str) -> str:
    """Return the part of a key that says what a statement about a relative is about: its verb."""
    for name, starts in _STATES:
        if re.match(starts, text, re.IGNORECASE):
            return name
    return slug(text.split(maxsplit=1)[0] if " " in text else text[:2])


_STATES = (
    ("place", r"lives?\b|living|moved|moving|in [A-Z]|在|住|搬"),
    ("work", r"works?\b|is an? |an? |started at|got a job|是|当|教|退休|retired"),
    ("studies", r"studies|studying|goes to|at (?:uni|college|school)|in year|上|读|念|学|考"),
    ("health", r"has |pregnant|expecting|due|怀|得|患|有|diabetic|allergic|对"),
    ("end", r"passed away|died|去世|过世|走了"),
    ("marriage", r"got (?:married|engaged|divorced)|getting married|engaged|divorced|结婚|离婚|订婚|要结婚|快结婚"),
    ("name", "姓"),
)


def with_article(noun: str) -> str:
    """Return 'dog' as 'a dog'; a plural and a noun with an article stay as they are."""
    if (
        _ARTICLES.match(noun)
        or (noun.endswith("s") and not noun.endswith(("ss", "us")))
        or noun in ("kids", "children")
    ):
        return noun
    return f"an {noun}" if noun[0].lower() in "aeiou" else f"a {noun}"


def third_person(action: str) -> str:
    """Return 'run in the park' as 'runs in the park'."""
    verb, _, rest = action.partition(" ")
    if verb in _THIRD_VERBS:
        verb = _THIRD_VERBS[verb]
    elif re.search(r"(?:s|sh|ch|x|z|o)$", verb):
        verb += "es"
    elif re.search(r"[^aeiou]y$", verb):
        verb = verb[:-1] + "ies"
    else:
        verb += "s"
    return f"{verb} {rest}".strip()


def slug(text: str) -> str:
    """Return a part of a key: lower case, words joined by underscores, no articles, at most 80 characters."""
    tokens = words.tokens(_DETERMINER_EN.sub("", text))
    return "_".join(token.replace("'", "") for token in tokens)[:80].strip("_") or "other"


_POLARITY_WORDS = frozenset(
    words.listed("never always don't do not no ever please fine ok okay free open good possible now again me them my")
)
_POLARITY_ZH = re.compile("请|不要|别|永远|务必|千万|一定要?|不能|本人|任何|再|给|在|安排|约|开(?=会)")
_DAY_ZH = re.compile("(?:周|星期|礼拜)([一二三四五六日天])")
_DAY_NAMES = dict(
    zip(
        "一二三四五六日天",
        words.listed("monday tuesday wednesday thursday friday saturday sunday sunday"),
        strict=True,
    )
)
_DAY_EN = re.compile(r"\b(mon|tues|wednes|thurs|fri|satur|sun)days?\b", re.IGNORECASE)
_AS_EVER = re.compile(
    r",?\s+(?:same\s+)?as (?:always|ever|usual|before)$|[，,]?(?:跟|和|像)?(?:以前|往常|之前)一样$", re.IGNORECASE
)
_ABOUT_RULE = re.compile(r"\b(meeting|call|email|message|appointment|reminder)s?\b|(会议?)|(电话)", re.IGNORECASE)


def rule_slug(text: str) -> str:
    """Return the key of a rule: its subject without its polarity, so that its reversal has the same key."""
    text = _AS_EVER.sub("", text)
    day = _DAY_EN.search(text)
    name = f"{day[1].lower()}day" if day else ""
    if day_zh := _DAY_ZH.search(text):
        name = _DAY_NAMES[day_zh[1]]
    about = _ABOUT_RULE.search(text)
    if name and about:
        return f"{'meeting' if about[2] else 'call' if about[3] else about[1].lower()}s_on_{name}"
    if words.CJK_CHARACTER.search(text):
        return slug(_POLARITY_ZH.sub("", text))
    tokens = [token for token in words.tokens(text) if token not in _POLARITY_WORDS]
    return slug(" ".join(_singular(token) for token in tokens))


def _singular(token: str) -> str:
    return token[:-1] if len(token) > 3 and token.endswith("s") and not token.endswith("ss") else token
