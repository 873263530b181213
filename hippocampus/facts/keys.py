"""Keys of facts: one normal form for all spellings of a key, and which keys hold many values.

    'favourite food', 'food_preference', 'FavoriteFoods', '最喜欢的食物'   ->   'favorite food'

The form is compared, never shown. It drops case, separators, stop words and plurals, replaces synonyms by one word, and
sorts the rest. A key with digits keeps its order: '2026-01-03' is not '2026-03-01'. In doubt it keeps keys apart: words
that may mean the same are compared by the similarity of their vectors.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

FactStyle: TypeAlias = Literal["profile", "collection"]

KEY_CHARACTERS_MAX = 255

#: One line is one word of the normal form and its synonyms in keys. Lower case, singular.
_SYNONYMS = """
favorite  favourite fav fave preferred preference prefer like liked love loved favorited
color     colour
food      dish meal cuisine
home      residence residential
city      town
job       occupation profession work career role position
employer  company workplace
name      fullname
phone     telephone mobile cellphone
email     mail
birthday  birthdate dob
partner   spouse
child     children kid
mother    mom mum
father    dad
pet       animal
hobby     hobbie pastime interest
allergy   allergie allergic
movie     film
book      novel
language  lang tongue
center    centre
theater   theatre
organization organisation
gray      grey
neighborhood neighbourhood
license   licence
car       vehicle automobile
address   addres
"""

#: What words of a key mean together, sorted, in the words of the table above.
_PHRASES: Mapping[tuple[str, ...], tuple[str, ...]] = MappingProxyType(
    {
        ("birth", "date"): ("birthday",),
        ("birth", "day"): ("birthday",),
        ("cell", "phone"): ("phone",),
        ("job", "title"): ("job",),
        ("full", "name"): ("name",),
        ("home", "location"): ("city", "home"),
        ("city", "current"): ("city", "home"),
        ("city", "residence"): ("city", "home"),
    }
)

#: Words that mean something else as the whole key: 'likes' is not a favourite, and 'home' is where a person lives.
_ALONE: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("like", "liked", "love", "loved"), "like"),
        **{word: word for word in ("preference", "preferred", "prefer", "favorite")},
        **dict.fromkeys(("home", "city", "location", "residence"), "city home"),
    }
)

#: Chinese words of keys, each before those that it contains.
_CHINESE = """
用户 user
最喜欢 favorite
最喜爱 favorite
最爱 favorite
喜欢 favorite
喜爱 favorite
偏好 favorite
偏爱 favorite
爱吃 favorite food
食物 food
食品 food
美食 food
菜肴 food
颜色 color
色彩 color
电影 movie
影片 movie
书籍 book
图书 book
居住城市 home city
所在城市 home city
居住地 home city
住址 address
地址 address
城市 city
职业 job
工作 job
岗位 job
公司 employer
单位 employer
雇主 employer
姓名 name
名字 name
生日 birthday
出生日期 birthday
电话 phone
手机 phone
邮箱 email
爱好 hobby
兴趣 hobby
过敏原 allergy
过敏 allergy
宠物 pet
语言 language
孩子 child
子女 child
配偶 partner
"""

_STOPWORDS = frozenset("a an the of s my his her their our your user users is are was for that which who".split())
#: Chinese particles that join the words of a key.
_PARTICLES = re.compile("[的之我他她]")
_WORD = re.compile(r"\d+(?:[-./]\d+)*|[^\W\d_]+", re.UNICODE)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
#: A key that begins like this says whether one thing is liked: 'preference:hiking'.
_TASTE = re.compile(r"(?:^|:)preference:")
_TASTE_WORD = "taste"

#: Words that distinguish two keys however similar they are: whose, when, where, and whether liked. One line is one
#: meaning.
_CONTRASTS = """
mother 母亲 妈妈
father 父亲 爸爸
sister 姐姐 妹妹 姐妹
brother 哥哥 弟弟 兄弟
daughter 女儿
son 儿子
partner 配偶 妻子 丈夫 wife husband boyfriend girlfriend
friend 朋友
colleague 同事
boss 老板 经理 manager
former previous past old ex last earlier 以前 上次 过去 曾经 前任
next future upcoming dream wish want desired 想要 梦想 下次
birth born 出生
work office business 工作 单位
home private personal 家庭 私人
start begin 开始
end finish 结束
wake morning 起床 早上
dinner evening night 晚饭 晚上
lunch 午饭
weekend 周末
wedding anniversary 结婚
dislike disliked hate hated avoid 讨厌 不喜欢 忌
allergy 过敏
learning learn 学习
car 汽车
eye 眼睛
hair 头发
"""

#: Collections that need no policy: people have several of these.
COLLECTIONS = frozenset(
    "hobby allergy language pet child sibling friend skill medication goal like dislike avoid".split()
)

#: What a key holds several of, whomever it names, and with whatever other words: 'caroline_allergy', 'food_allergies',
#: 'dietary_restrictions'. One that ended another would be lost, and to lose it may do harm.
_SEVERAL = re.compile(
    r"\b(?:allergy|allergen|intolerance)\b|\b(?:diet|dietary|eating|food)\b.*\brestriction\b|不耐受|忌口|忌食|禁忌"
)
#: But not of what only describes one: 'allergy_severity', 'date_of_allergy_test'.
_DETAIL = re.compile(r"\b(?:severity|severe|test|date|doctor|reaction|status)\b|程度|反应|检查|检测|医生|日期")

#: Overrides by (fact type, normal form of the key).
Styles: TypeAlias = Mapping[tuple[str, str], FactStyle]


def _table(lines: str) -> dict[str, str]:
    return {word: line.split()[0] for line in lines.strip().splitlines() for word in line.split()}


_SYNONYM = _table(_SYNONYMS)
_CONTRAST = _table(_CONTRASTS)
_CONTRAST_OF_CHINESE = sorted((word for word in _CONTRAST if not word.isascii()), key=lambda word: -len(word))
_PHRASE_OF_CHINESE = sorted(
    ((line.split()[0], " ".join(line.split()[1:])) for line in _CHINESE.strip().splitlines()),
    key=lambda entry: -len(entry[0]),
)


def normal_key(key: str) -> str:
    """Return the normal form of a key, the same for each known spelling; empty only for an empty key."""
    text = unicodedata.normalize("NFKC", key)
    taste = _TASTE_WORD if _TASTE.search(text.lower()) else ""
    text = _TASTE.sub(lambda match: match[0].replace("preference:", " "), text.lower() if taste else text)
    words = [_singular(word) for word in _WORD.findall(_translated(_CAMEL.sub(" ", text).lower()))]
    kept = [word for word in words if word not in _STOPWORDS] or words
    if len(kept) == 1:
        kept = [_ALONE.get(kept[0], _SYNONYM.get(kept[0], kept[0]))]
    else:
        kept = [_SYNONYM.get(word, word) for word in kept]
    kept = kept if any(word[0].isdigit() for word in kept) else _joined(kept)
    form = " ".join([taste, *kept] if taste else kept)
    return form or " ".join(key.lower().split()) or key


def contrast_of(key: str, people: Collection[str] = ()) -> str:
    """Return what distinguishes a key from similar ones: only keys of one contrast are merged by similarity.

    Args:
        people: names of the speakers; one in the key says whose fact it is.
    """
    if ":" in key:
        return f"={normal_key(key)}"  # it names its element: only its own normal form is like it
    text = unicodedata.normalize("NFKC", key).lower()
    words = [_singular(word) for word in _WORD.findall(text)]
    names = {name.lower() for name in people if name}
    found = {_CONTRAST[word] for word in words if word in _CONTRAST}
    found |= {word for word in words if word in names or word[0].isdigit()}
    for word in _CONTRAST_OF_CHINESE:
        if word in text:
            found.add(_CONTRAST[word])
            text = text.replace(word, " ")
    found |= {name for name in names if not name.isascii() and name in text}
    return " ".join(sorted(found))


def style_of(fact_type: str, key: str, styles: Styles | None = None) -> FactStyle:
    """Return whether a key has one value or many: by the policy, else by `COLLECTIONS` and the words of the key."""
    form = normal_key(key)
    chosen = (styles or {}).get((fact_type, form))
    if chosen is not None:
        return chosen
    if form in COLLECTIONS or (_SEVERAL.search(form) and not _DETAIL.search(form)):
        return "collection"
    return "profile"


def element_key(key: str, value: str) -> str:
    """Return the key of an element of a collection: 'allergies', 'Peanuts' -> 'allergies:peanuts'; at most 255 long."""
    slug = "_".join(re.findall(r"[^\W_]+", value.lower()))[:120] or value[:120]
    return f"{key[: KEY_CHARACTERS_MAX - len(slug) - 1]}:{slug}"


def _translated(text: str) -> str:
    """Return the text with the table's Chinese words replaced by words of the normal form."""
    if text.isascii():
        return text
    for chinese, english in _PHRASE_OF_CHINESE:
        text = text.replace(chinese, f" {english} ")
    return _PARTICLES.sub(" ", text)


def _singular(word: str) -> str:
    if not word.isascii() or len(word) <= 3 or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    return word[:-1] if word.endswith("s") else word


def _joined(words: list[str]) -> list[str]:
    """Return the words sorted, each once, with phrases of several words in one form."""
    found = set(words)
    for phrase, word in _PHRASES.items():
        if found.issuperset(phrase):
            found = found.difference(phrase).union(word)
    return sorted(found)
