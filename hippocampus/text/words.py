"""Words of a text: folding, tokens, light English stems, common words.

Everything here is deterministic and knows no vocabulary beyond the short lists below.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

CJK = "\u2e80-\u2fdf\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
CJK_CHARACTER = re.compile(f"[{CJK}]")
_TOKEN = re.compile(f"[{CJK}]+|[^\\W_]+(?:['’][^\\W_{CJK}]+)?")
_SPLIT_CJK = re.compile(f"[{CJK}]+|[^{CJK}]+")


def listed(words: str) -> tuple[str, ...]:
    """Return the words of a list that is written as running text."""
    return tuple(words.split())


#: Words that say little about what a text is about.
STOPWORDS = frozenset(
    listed(
        """a about above after again all also am an and any are aren't as at be because been before being
        below between both but by can can't cannot could couldn't did didn't do does doesn't doing
        don't down during each few for from further get gets getting got had hadn't has hasn't
        have haven't having he he'd he'll he's her here here's hers herself him himself his how
        how's i i'd i'll i'm i've if in into is isn't it it's its itself just let's like me more
        most my myself no nor not now of off on once only or other ought our ours ourselves out
        over own same she she'd she'll she's should shouldn't so some such than that that's the
        their theirs them themselves then there there's these they they'd they'll they're they've
        this those through to too under until up us very was wasn't we we'd we'll we're we've were
        weren't what what's when when's where where's which while who who's whom whose why why's
        will with won't would wouldn't you you'd you'll you're you've your yours yourself
        yourselves im ive dont gonna wanna gotta ya yall y'all"""
    )
)

#: Words of small talk: they are in too many turns to distinguish them.
CHATTER = frozenset(
    listed(
        """absolutely actually agree always amazing awesome back best better big bit bye congrats cool day
        definitely even ever everything excited exciting feel feeling feels fun glad go going gone
        good gosh great guess guy guys haha happy hear heard hello hey hi hope huge kind know
        lately lol long look looking looks lot lots love loved luck made make makes making maybe
        mean means much need never new nice oh ok okay one people pretty proud re really right
        said say saying see seeing seen sounds sound still stuff super sure take taking talk thank
        thanks thing things think thinking time today told totally true try trying wait want
        wanted way well went wonderful wow yeah yep yes"""
    )
)

_CJK_STOP = frozenset("的了是我你他她它们们在有和就不也都这那吗呢吧啊呀着过很要会说到个与及被把让给")

_IRREGULAR = dict(
    pair.split(":")
    for pair in listed(
        """went:go gone:go goes:go bought:buy brought:bring built:build caught:catch chose:choose
        chosen:choose came:come did:do done:do does:do drew:draw drawn:draw drove:drive
        driven:drive drank:drink ate:eat eaten:eat fell:fall felt:feel fought:fight found:find
        flew:fly forgot:forget gave:give given:give got:get grew:grow grown:grow heard:hear
        held:hold kept:keep knew:know known:know left:leave lost:lose made:make meant:mean
        met:meet paid:pay ran:run said:say saw:see seen:see sold:sell sent:send sang:sing
        slept:sleep spoke:speak spent:spend stood:stand swam:swim took:take taken:take
        taught:teach told:tell thought:think threw:throw understood:understand woke:wake wore:wear
        won:win wrote:write written:write rode:ride ridden:ride broke:break broken:break
        began:begin begun:begin became:become children:child kids:child kid:child people:person
        women:woman men:man feet:foot teeth:tooth mice:mouse lives:life wives:wife mom:mother
        mum:mother dad:father photo:photograph photos:photograph pic:photograph pics:photograph
        picture:photograph pictures:photograph movie:film movies:film"""
    )
)


def is_past(word: str) -> bool:
    """Return whether a word is an irregular past form that is known here: 'went'."""
    return word in _IRREGULAR and word not in ("goes", "does", "lives", "wives")


def fold(text: str) -> str:
    """Return the one spelling of a word: compatibility forms, case and Latin accents are folded."""
    text = unicodedata.normalize("NFKC", text).casefold()
    if text.isascii():
        return text
    decomposed = unicodedata.normalize("NFD", text.replace("’", "'"))
    bare = "".join(c for c in decomposed if not "\u0300" <= c <= "\u036f")
    return unicodedata.normalize("NFC", bare)


def is_cjk(token: str) -> bool:
    """Return whether a token begins with a Chinese, Japanese or Korean character."""
    return CJK_CHARACTER.match(token) is not None


def tokens(text: str) -> list[str]:
    """Return the folded words in order; a run of CJK characters is one token."""
    found: list[str] = []
    for token in _TOKEN.findall(fold(text)):
        if is_cjk(token) or CJK_CHARACTER.search(token):
            found.extend(_SPLIT_CJK.findall(token))
        else:
            found.append(token)
    return found


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """Return a light English stem: plural, -ing, -ed, -ly and the commonest irregular forms."""
    word = word.removesuffix("'s")
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    for ending, least in (
        ("ings", 7),
        ("ing", 6),
        ("ied", 5),
        ("ies", 5),
        ("ed", 5),
        ("es", 5),
        ("s", 4),
        ("ly", 6),
    ):
        if word.endswith(ending) and len(word) >= least and not word.endswith(("ss", "us", "is")):
            return _tidy(word[: -len(ending)], ending)
    return word[:-1] if len(word) > 4 and word.endswith("e") else word


def _tidy(base: str, ending: str) -> str:
    if ending in ("ied", "ies"):
        return base + "y"
    if len(base) > 3 and base[-1] == base[-2] and base[-1] not in "lsz":
        base = base[:-1]
    return base[:-1] if len(base) > 4 and base.endswith("e") else base


def terms(text: str) -> list[str]:
    """Return the terms of a text: stems without common words; CJK as pairs of characters (a lone one by itself)."""
    found: list[str] = []
    for token in tokens(text):
        if is_cjk(token):
            found.extend(cjk_terms(token))
        elif token not in STOPWORDS and token not in CHATTER:
            found.append(stem(token))
    return found


def cjk_terms(run: str) -> list[str]:
    """Return the neighbouring pairs of a run of CJK characters, without pairs of particles."""
    if len(run) == 1:
        return [] if run in _CJK_STOP else [run]
    pairs = (run[i : i + 2] for i in range(len(run) - 1))
    return [pair for pair in pairs if not (pair[0] in _CJK_STOP or pair[1] in _CJK_STOP)]
