"""The sentences of a conversation's turns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from hippocampus.records import ConversationSlice, Turn
from hippocampus.text import words

#: Characters of a turn that are read: what follows is a pasted document, not what people say of themselves.
TURN_CHARS_MAX = 20_000

_BOUNDARY = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+|(?<=[。！？；])[”」』）]*|[\r\n]+")
_ABBREVIATION = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|St|Prof|Jr|Sr|vs|e\.g|i\.e|etc|a\.m|p\.m|[A-Z])\.$", re.IGNORECASE)
_QUESTION_END = re.compile(r"[?？][\s\"'”’)）!！]*$|[吗么呢][。.！!~～]*$")
_QUESTION_START = re.compile(
    r"^(?:do|does|did|are|is|was|were|have|has|can|could|would|will|should|shall|may"
    r"|what|where|who|why|how|which)\s+(?:you|your|i|we|he|she|they|it|the|that|this)\b",
    re.IGNORECASE,
)
#: Asks only whether it is known: 'Did I tell you we moved?'
_STATES = re.compile(
    r"^(?:and |oh,? |so )*did I (?:say|mention|tell you)\b(?! (?:about|what|how|something|anything))", re.IGNORECASE
)
_ASSISTANTS = frozenset(
    words.listed(
        "assistant model agent ai bot chatbot system tool function developer 助手 助理 ai助手 机器人 系统 工具"
    )
)


#: Who speaks, in a copied conversation: 'Mei: Not at all'.
_LABEL = re.compile(r"^(?P<label>[A-Z][\w'’-]{1,20}(?: [A-Z][\w'’-]{1,20})?|[\u4e00-\u9fff]{1,4})(?::\s+|：\s*)(?=\S)")
_NO_SPEAKER = frozenset(
    words.listed(
        """note notes update correction question answer reminder rule rules example summary ps edit warning subject date
        time re fwd todo tip tips goal goals plan plans idea ideas status work home health food pros cons yes no ok also
        breakfast lunch dinner snack morning afternoon evening night today tomorrow yesterday
        monday tuesday wednesday thursday friday saturday sunday mon tue tues wed thu thurs fri sat sun
        注意 更正 提醒 问题 答案 备注 补充 规则 例如 总结 时间 地点 主题 工作 计划 目标 早餐 午餐 晚餐 早饭 午饭 晚饭
        早上 上午 中午 下午 晚上 今天 明天 昨天 周一 周二 周三 周四 周五 周六 周日"""
    )
)
#: What the author of a copied conversation is called in it.
_OWN = frozenset(words.listed("me myself 我 本人 自己"))
#: Blanks between Chinese characters are commas, unless each word is set apart or a date is.
_BLANK_ZH = re.compile(
    "(?<=[\u4e00-\u9fff])(?<![年月第])[ \u3000]+(?=[\u4e00-\u9fff\\d])|(?<=\\d)[ \u3000]+(?=[我你他她])"
)
_APART_ZH = re.compile("(?:^|[ \u3000])[\u4e00-\u9fff](?=[ \u3000]|$)")
#: '生了！' is completed by what follows.
_EXCLAIMED_ZH = re.compile("[\u4e00-\u9fff]{0,4}[\u4e00-\u9fff]了[！!。]+$")


@lru_cache(maxsize=256)
def _is_cjk(text: str) -> bool:
    letters = sum(character.isalpha() for character in text)
    return letters > 0 and 3 * len(words.CJK_CHARACTER.findall(text)) >= letters


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of one turn."""

    text: str
    turn: Turn
    position: int  # within its turn, from 0
    is_question: bool
    before: str = ""  # the sentence before it in its turn

    @property
    def is_cjk(self) -> bool:
        """Whether at least a third of the letters are CJK characters."""
        return _is_cjk(self.text)


def is_assistant(turn: Turn) -> bool:
    """Return whether the turn is a machine's: what it says of itself is not a fact about a person."""
    return turn.role != "user" or turn.author.strip().casefold() in _ASSISTANTS


def spoken(turns: Sequence[Turn]) -> Iterator[Turn]:
    """Yield turns without the name that their text begins with.

    Where an author's turns name several speakers, each speaks for themself; a name that is the author's own, or the
    only one, says nothing.
    """
    found = [_label(turn) for turn in turns]
    counted = Counter((turn.author, match["label"]) for turn, match in zip(turns, found, strict=True) if match)
    several = Counter(author for author, label in counted if counted[author, label] > 1)
    for turn, match in zip(turns, found, strict=True):
        if match is None:
            yield turn
            continue
        label = match["label"]
        own = label.casefold() == turn.author.casefold() or label.casefold() in _OWN
        if own or counted[turn.author, label] > 1:
            author = label if several[turn.author] > 1 and not own else turn.author
            yield replace(turn, author=author, text=turn.text[match.end() :])
        else:
            yield turn


def _label(turn: Turn) -> re.Match[str] | None:
    match = _LABEL.match(turn.text)
    return match if match and match["label"].casefold() not in _NO_SPEAKER else None


def of_turn(turn: Turn) -> list[Sentence]:
    """Return the sentences of one turn, in order."""
    texts = list(_split(turn.text[:TURN_CHARS_MAX]))
    return [
        Sentence(text=_punctuated(text), turn=turn, position=position, is_question=_is_question(text), before=before)
        for position, (before, text) in enumerate(pairwise(["", *texts]))
    ]


def sentences_of(slice_: ConversationSlice) -> list[Sentence]:
    """Return the sentences of all turns, in order."""
    return [sentence for turn in slice_.turns for sentence in of_turn(turn)]


def _split(text: str) -> Iterator[str]:
    pieces: Sequence[str] = [piece.strip() for piece in _BOUNDARY.split(text) if piece and piece.strip()]
    pending = ""
    for piece in pieces:
        pending = f"{pending} {piece}" if pending else piece
        if _EXCLAIMED_ZH.fullmatch(pending):
            pending = f"{pending.rstrip('！!。')}，"
        elif not _ABBREVIATION.search(pending):
            yield pending
            pending = ""
    if pending:
        yield pending.rstrip("，") if words.CJK_CHARACTER.search(pending) else pending


def _punctuated(text: str) -> str:
    """Return a Chinese text with commas where its writer set blanks: '我辞职了 在家接外包'."""
    if words.CJK_CHARACTER.search(text) is None or len(_APART_ZH.findall(text)) > 2:
        return text
    return _BLANK_ZH.sub("，", text).replace("，，", "，")


def _is_question(text: str) -> bool:
    if _STATES.match(text):
        return False
    return bool(_QUESTION_END.search(text) or _QUESTION_START.match(text))
