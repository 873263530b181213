"""A slice of conversation as text for a model: one line per turn, which no turn can forge.

    BEGIN CONVERSATION
    2026-03-01 Sunday
    12 09:30 U "Where did I leave the key?"
    13 A "You said:\\n under the flower pot."
    END CONVERSATION

The text of a turn is a JSON string, so every line break in it is escaped: no speaker can begin a line, and thereby
forge another turn or the closing line. A name that could be misread is quoted likewise. What a line repeats of the one
before it is left out: a slice is paid for by its length.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC

from hippocampus.records import ConversationSlice, Question, Turn
from hippocampus.text.languages import Language

BEGIN = "BEGIN CONVERSATION"
END = "END CONVERSATION"
KNOWN = "KNOWN INSIGHTS"
BEGIN_MEMORY = "BEGIN MEMORY"
END_MEMORY = "END MEMORY"
BEGIN_TEXTS = "BEGIN TEXTS"
END_TEXTS = "END TEXTS"

#: Characters of a question and of one text that a model ranks, and of all these texts.
RANKED_QUESTION_MAX = 2_000
RANKED_TEXT_MAX = 1_200
RANKED_TEXTS_MAX = 40_000

_LABELS: Mapping[Language, Mapping[str, str]] = {
    "zh": {"user": "用户", "agent": "助手", "model": "助手", "assistant": "助手", "tool": "工具"},
    "en": {"user": "User", "agent": "Assistant", "model": "Assistant", "assistant": "Assistant", "tool": "Tool"},
}
_ALL_LABELS = frozenset(label for labels in _LABELS.values() for label in labels.values())

#: The roles in a transcript, as the prompts explain them.
_MARKS = {"user": "U", "agent": "A", "model": "A", "assistant": "A", "tool": "T"}

#: A name that can stand without quotes: letters, digits and a few signs, at most 64 characters.
_PLAIN_NAME = re.compile(r"\w(?:[\w .@'\-]{0,62}\w)?")

#: What JSON leaves unescaped although some readers break lines there (C1, NEL, LS, PS), and lone surrogates.
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def label(author: str, language: Language = "zh") -> str:
    """Return the speaker as a stored slice names it: a role's label in a language, else the author's own name.

    A name that resembles a role's label, or that is more than a plain name, is quoted.
    """
    return _named(author, _LABELS[language], _ALL_LABELS)


def mark(author: str) -> str:
    """Return the speaker as a transcript names it: a role's letter, else as `label` does."""
    return _named(author, _MARKS, _MARKS.values())


def format_turns(turns: Sequence[Turn]) -> list[str]:
    """Return one line per turn: number, time, speaker, text as a JSON string; a line with the date where it changes.

    Times are in UTC. One that is the same as in the line before is left out.
    """
    lines: list[str] = []
    date = time = ""
    for turn in turns:
        spoken = turn.occurred_at.astimezone(UTC)
        if (today := spoken.strftime("%Y-%m-%d %A")) != date:
            lines.append(today)
            date, time = today, ""
        now = spoken.strftime("%H:%M")
        shown = "" if now == time else f"{now} "
        time = now
        lines.append(f"{turn.sequence_num} {shown}{mark(turn.author)} {quoted(turn.text)}")
    return lines


def format_transcript(slice_: ConversationSlice) -> str:
    """Return the whole slice between its two delimiting lines."""
    return "\n".join((BEGIN, *format_turns(slice_.turns), END))


def format_known(slice_: ConversationSlice) -> str:
    """Return the insights that are known already as numbered lines below their heading; empty if there are none."""
    if not slice_.known_insights:
        return ""
    return "\n".join((KNOWN, *(f"{n} {quoted(each.content)}" for n, each in enumerate(slice_.known_insights, start=1))))


def format_question(question: Question) -> str:
    """Return the passages between their delimiting lines, then the time, the language and the question."""
    lines = [BEGIN_MEMORY, question.passages, END_MEMORY]
    zone = f" {question.asked_at:%z}" if question.asked_at.utcoffset() else ""
    lines.append(f"ASKED {question.asked_at:%Y-%m-%d %A %H:%M}{zone}")
    if question.language is not None:
        lines.append(f"LANGUAGE {question.language}")
    return "\n".join((*lines, f"QUESTION {quoted(question.text)}"))


def format_ranking(query: str, texts: Sequence[str]) -> str:
    """Return the beginnings of texts between their delimiting lines, numbered from 1, then the question."""
    most = min(RANKED_TEXT_MAX, RANKED_TEXTS_MAX // max(len(texts), 1))
    shown = (f"{number} {quoted(beginning(text, most))}" for number, text in enumerate(texts, 1))
    return "\n".join((BEGIN_TEXTS, *shown, END_TEXTS, f"QUESTION {quoted(query[:RANKED_QUESTION_MAX])}"))


def beginning(text: str, length: int) -> str:
    """Return the first characters of a text with single blanks between its words."""
    return " ".join(text.split(maxsplit=length)[:length])[:length]


def _named(author: str, roles: Mapping[str, str], reserved: Collection[str]) -> str:
    known = roles.get(author.strip().lower())
    if known is not None:
        return known
    if author not in reserved and _PLAIN_NAME.fullmatch(author):
        return author
    return quoted(author)


def quoted(text: str) -> str:
    """Return a text as a JSON string of one line, in which no reader finds a line break."""
    encoded = json.dumps(text, ensure_ascii=False)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match.group()):04x}", encoded)
