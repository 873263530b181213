"""A slice of conversation as text for a model: one line per turn, which no turn can forge.

    BEGIN CONVERSATION
    [12] 2026-03-01 09:30 用户: "Where did I leave the key?"
    [13] 2026-03-01 09:30 助手: "You said:\\n under the flower pot."
    END CONVERSATION

The text of a turn is a JSON string, so every line break in it is escaped: no speaker can begin a line, and thereby
forge another turn or the closing line. A name that could be misread is quoted likewise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC

from hippocampus.records import ConversationSlice, Turn
from hippocampus.text.languages import Language

BEGIN = "BEGIN CONVERSATION"
END = "END CONVERSATION"

_LABELS: Mapping[Language, Mapping[str, str]] = {
    "zh": {"user": "用户", "agent": "助手", "model": "助手", "assistant": "助手", "tool": "工具"},
    "en": {"user": "User", "agent": "Assistant", "model": "Assistant", "assistant": "Assistant", "tool": "Tool"},
}
_ALL_LABELS = frozenset(label for labels in _LABELS.values() for label in labels.values())

#: A name that can stand without quotes: letters, digits and a few signs, at most 64 characters.
_PLAIN_NAME = re.compile(r"\w(?:[\w .@'\-]{0,62}\w)?")

#: What JSON leaves unescaped although some readers break lines there (C1, NEL, LS, PS), and lone surrogates.
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def label(author: str, language: Language = "zh") -> str:
    """Return the speaker: a role's label, which the prompts explain in Chinese, else the author's own name.

    A name that resembles a role's label, or that is more than a plain name, is quoted.
    """
    known = _LABELS[language].get(author.strip().lower())
    if known is not None:
        return known
    if author not in _ALL_LABELS and _PLAIN_NAME.fullmatch(author):
        return author
    return _quoted(author)


def format_turn(turn: Turn) -> str:
    """Return a turn as one line: number, time in UTC, speaker, text as a JSON string."""
    spoken = turn.occurred_at.astimezone(UTC).strftime("%Y-%m-%d %H:%M")
    return f"[{turn.sequence_num}] {spoken} {label(turn.author)}: {_quoted(turn.text)}"


def format_transcript(slice_: ConversationSlice) -> str:
    """Return the whole slice between its two delimiting lines."""
    return "\n".join((BEGIN, *(format_turn(turn) for turn in slice_.turns), END))


def _quoted(text: str) -> str:
    encoded = json.dumps(text, ensure_ascii=False)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match.group()):04x}", encoded)
