"""The sentences of a conversation's turns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of one turn."""

    text: str
    turn: Turn
    position: int  # within its turn, from 0
    is_question: bool

    @property
    def is_cjk(self) -> bool:
        """Whether at least a third of the letters are CJK characters."""
        letters = sum(character.isalpha() for character in self.text)
        return letters > 0 and 3 * len(words.CJK_CHARACTER.findall(self.text)) >= letters


def is_assistant(turn: Turn) -> bool:
    """Return whether the turn is a machine's: what it says of itself is not a fact about a person."""
    return turn.role != "user" or turn.author.strip().casefold() in _ASSISTANTS


def of_turn(turn: Turn) -> list[Sentence]:
    """Return the sentences of one turn, in order."""
    texts = list(_split(turn.text[:TURN_CHARS_MAX]))
    return [
        Sentence(text=text, turn=turn, position=position, is_question=_is_question(text))
        for position, text in enumerate(texts)
    ]


def sentences_of(slice_: ConversationSlice) -> list[Sentence]:
    """Return the sentences of all turns, in order."""
    return [sentence for turn in slice_.turns for sentence in of_turn(turn)]


def _split(text: str) -> Iterator[str]:
    pieces: Sequence[str] = [piece.strip() for piece in _BOUNDARY.split(text) if piece and piece.strip()]
    pending = ""
    for piece in pieces:
        pending = f"{pending} {piece}" if pending else piece
        if not _ABBREVIATION.search(pending):
            yield pending
            pending = ""
    if pending:
        yield pending


def _is_question(text: str) -> bool:
    if _STATES.match(text):
        return False
    return bool(_QUESTION_END.search(text) or _QUESTION_START.match(text))
