"""What a pattern captured, made into an object worth keeping, or refused.

A refusal is None: the words after 'I love' are more often an aside ('how it turned out') than a thing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from hippocampus.providers import local_words
from hippocampus.providers.local_patterns import Shape

_TAIL_EN = re.compile(
    r"\s*(?:[;:(]|\s-+\s|\s[–—]|,(?=\s*(?:and|but|so|which|who|though|you|I|it|we|they|he|she|because|especially|like"
    r"|too|right|even|the|that|then|thanks|not|as|if|just|all|this|what|how|also)\b)|\b(?:because|'cause|since|but|so|when"
    r"|whenever|while|which|who|although|though|unless|until|as well|too|either|anymore|any more|especially|even"
    r"|lately|at the moment|a lot|so much|very much|the most|too much|more than anything|for sure|as a whole|that"
    r"|if|where|whose|if possible|for now|these days|nowadays|recently|already|again|with you|thanks to|now|and (?:I|it"
    r"|we|my|he|she|they|that|the|this|have|am|then|was|is|you))\b).*$",
    re.IGNORECASE,
)
_DEICTIC_EN = re.compile(
    r"\b(?:this|that|it|its|it's|those|these|them|you|your|yours|him|his|her|they|their|theirs|he|she|I|what|how|why|stuff"
    r"|things?|something|anything|everything|nothing|someone|everyone|somewhere|there|here|one|ones|such|same|both|way|idea"
    r"|fact|part|sound|sounds|feeling|look|looks|vibes?|photo|pic|picture|so|lot|lots|bit|kind|sort|more|many|much|too)\b",
    re.IGNORECASE,
)
_BAD_START_EN = re.compile(
    r"^(?:the|a|an|all|every|any|some|when|being|seeing|hearing|knowing|having|getting|giving|making|finding|helping"
    r"|feeling|sharing|thinking|taking|to (?:see|hear|know|be|have|get|say|think|tell|let|help|make|give|share)|by|with|on"
    r"|in|at|of|and|or|but|not|up|out|about|for|from|as|is|are|was|were|no|never|ever|really|just|myself)\b",
    re.IGNORECASE,
)
_DETERMINER_EN = re.compile(r"^(?:the|a|an|some|my|our|their|to)\s+", re.IGNORECASE)
_ALLOWED_THE = re.compile(
    r"^the (?:beach|outdoors|ocean|sea|mountains|rain|snow|city|countryside|gym|theat(?:er|re)|cold|heat|mornings?"
    r"|woods|forest|water|smell of \w+|taste of \w+|piano|guitar|violin|cinema|desert|sun|winter|summer|autumn)$"
    r"|^a good \w+(?: \w+)?$",
    re.IGNORECASE,
)
_SUBJECT_EN = re.compile(r"\b(my|our|myself|ourselves|me|us)\b", re.IGNORECASE)
_THIRD_EN = {
    "my": "their",
    "our": "their",
    "myself": "themselves",
    "ourselves": "themselves",
    "me": "them",
    "us": "them",
}
_BAD_ACTION_EN = re.compile(
    r"^(?:check|see|let|tell|do|be|talk|keep|try|think|say|miss|need|give|make sure|have to|get back|look|find|ask"
    r"|show|put|happen|remember|stop|pass|cry|die|bed|sleep|head|call|work on|use|continue|take a look|go|it|that|the)"
    r"\b(?=\s*$|\s+(?:it|this|that|out|about|more|into|some|the|a|an|back|off|soon|up|on|now|to|for)\b)"
    r"|^(?:be|see|let|say|tell|miss|say|need|have|feel|know|love|remember|it|give)\b",
    re.IGNORECASE,
)
_NOT_A_NAME = frozenset(
    "the a an so just not very really here back sure fine good great when who and but in on at it he she they we you"
    " i me my your is are was".split()
)
_BAD_ZH = re.compile(
    "[你您他她它]|这|那[个些种样么]|什么|怎么|哪|自己|一下|这样|那样|东西|事情|不知道|为什么|一点$|^(?:的|了|过|到|在|是|有|上|和|也|都|就)|吗$|呢$|吧$"
)
_TAIL_ZH = re.compile("(?:了|呢|啊|呀|啦|哦|嘛|的时候.*|因为.*|所以.*|但是?.*|不过.*|而且.*|来着|的说|哈+)$")


def clean(raw: str, shape: Shape, *, chinese: bool) -> str | None:
    """The object as it is stored, in the third person; None where it is not worth a fact."""
    return _clean_zh(raw) if chinese else _clean_en(raw, shape)


def _clean_zh(raw: str) -> str | None:
    text = _TAIL_ZH.sub("", raw.strip(" ，。！!、~～\"'“”")).strip()
    if not text or _BAD_ZH.search(text):
        return None
    return text.replace("我们", "自己").replace("我", "自己")


def _clean_en(raw: str, shape: Shape) -> str | None:
    text = raw.strip()
    if shape != "plain":
        text = _TAIL_EN.sub("", text)
    text = " ".join(text.split()).strip(" ,.;:!?-–—\"'“”()*")
    if not any(character.isalnum() for character in text) or len(text) > 120:
        return None
    checked = _CHECKS[shape](text)
    return None if checked is None else _SUBJECT_EN.sub(lambda match: _THIRD_EN[match[1].lower()], checked)


def _plain(text: str) -> str | None:
    return text if not re.search(r"\b(?:you|your|this|that|it)\b", text, re.IGNORECASE) else None


def _thing(text: str) -> str | None:
    words = text.split()
    if len(words) > 8 or _DEICTIC_EN.search(text):
        return None
    if _BAD_START_EN.match(text) and not _ALLOWED_THE.match(text):
        return None
    return text if _has_content(text) else None


def _action(text: str) -> str | None:
    if len(text.split()) > 14 or _BAD_ACTION_EN.match(text):
        return None
    if re.search(r"\b(?:you|your|it|this one|that|these|those|them|him|her)\b", text, re.IGNORECASE):
        return None
    return text if _has_content(text) and len(text.split()) >= 2 else None


def _rule(text: str) -> str | None:
    return text if len(text.split()) <= 20 else None


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


def _name(text: str) -> str | None:
    match = re.match(r"[A-Z][\w'’-]*(?: [A-Z][\w'’-]*){0,2}", text)
    if match is None or match[0].split()[0].lower() in _NOT_A_NAME:
        return None
    return match[0]


def _org(text: str) -> str | None:
    text = re.split(r",? (?:as|for|since|now|and|in charge|where|with|because|last|this|until)\b", text)[0]
    if len(text.split()) > 7 or _DEICTIC_EN.search(text):
        return None
    named = re.match(r"(?:an? |the |my |our )", text) or text[:1].isupper()
    return (
        text
        if named and not re.match(r"(?:the|a) (?:moment|time|while|long|few|bit|year|night)\b", text)
        else None
    )


def _role(text: str) -> str | None:
    text = re.split(
        r",? (?:at|for|since|in (?=[A-Z])|and|with|from|now|on|right|here|where|last|this)\b", text
    )[0]
    if len(text.split()) > 6 or _DEICTIC_EN.search(text):
        return None
    return text if _has_content(text) else None


def _has_content(text: str) -> bool:
    return bool(local_words.terms(text))


_CHECKS: Mapping[Shape, Callable[[str], str | None]] = {
    "plain": _plain,
    "thing": _thing,
    "action": _action,
    "rule": _rule,
    "place": _place,
    "name": _name,
    "org": _org,
    "role": _role,
}


def parts(text: str, *, chinese: bool) -> list[str]:
    """The members of a plain list ('reading, painting and long walks'); one member where it is none."""
    if chinese:
        return [part for part in re.split("、|以及|和|跟|还有", text) if part]
    pieces = re.split(r",\s+and\s+|,\s+|\s+and\s+|\s+&\s+", text)
    if len(pieces) == 1:
        return [text]
    gerunds = all(re.match(r"[a-z]+ing\b", piece, re.IGNORECASE) for piece in pieces)
    listed = "," in text and all(1 <= len(piece.split()) <= 4 for piece in pieces)
    return [piece for piece in pieces if piece] if gerunds or listed else [text]


def slug(text: str) -> str:
    """A key's part: lower case, words joined by underscores, articles dropped, at most 80 characters."""
    words = local_words.tokens(_DETERMINER_EN.sub("", text))
    return "_".join(word.replace("'", "") for word in words)[:80].strip("_") or "other"
