"""The words that a window adds to what is stored, in each language."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, TypeAlias

from hippocampus.text.languages import Language
from hippocampus.text.times import MONTHS

ContextType: TypeAlias = Literal["system", "memory", "history", "fact", "document"]
#: Under one header. Earlier turns are memories that do not depend on the query: see `ContextAssembler.assemble`.
Section: TypeAlias = Literal["system", "fact", "earlier", "memory", "document", "history"]

HEADERS: Mapping[Language, Mapping[Section, str]] = {
    "zh": {
        "fact": "## 用户偏好",
        "earlier": "## 以前的对话",
        "memory": "## 相关记忆",
        "document": "## 相关文档",
        "history": "## 对话历史",
    },
    "en": {
        "fact": "## User preferences",
        "earlier": "## Earlier conversations",
        "memory": "## Relevant memories",
        "document": "## Relevant documents",
        "history": "## Conversation history",
    },
}


def _speakers(user: str, assistant: str, tool: str) -> Mapping[str, str]:
    """Return the names of roles by the names that sessions, frameworks and transcripts give them, in lower case."""
    return {
        **dict.fromkeys(("user", "用户"), user),
        **dict.fromkeys(("model", "agent", "assistant", "助手"), assistant),
        **dict.fromkeys(("tool", "工具"), tool),
    }


_SPEAKERS: Mapping[Language, Mapping[str, str]] = {
    "zh": _speakers("用户", "助手", "工具"),
    "en": _speakers("user", "assistant", "tool"),
}
#: The names of fact types.
_FACT_KINDS: Mapping[Language, Mapping[str, str]] = {
    "zh": {
        "rule": "规则",
        "preference": "偏好",
        "profile": "资料",
        "custom": "其他",
        "insight": "见解",
        "instruction": "指令",
    },
    "en": {},
}
_CHANGED = {"zh": "后来变为：{holds}，自{date}起", "en": "since changed: {holds}, from {date}"}
_ENDED = {"zh": "自{date}起不再如此", "en": "no longer so since {date}"}


def speaker(author: str, language: Language) -> str:
    """Return the name of a speaker as a window shows it: a role in the language, any other author as it is."""
    return _SPEAKERS[language].get(author.strip().lower(), author)


def fact_kind(fact_type: str, language: Language) -> str:
    """Return the name of a fact's type."""
    return _FACT_KINDS[language].get(fact_type, fact_type)


def day(moment: datetime, language: Language, *, with_year: bool = True) -> str:
    """Return a moment's day in its zone in words: "8 May 2023", "2023年5月8日"; without its year: "8 May", "5月8日"."""
    if language == "zh":
        return f"{moment.year}年" * with_year + f"{moment.month}月{moment.day}日"
    return f"{moment.day} {MONTHS[moment.month - 1]}" + f" {moment.year}" * with_year


def change(holds: str, since: datetime, language: Language) -> str:
    """Return the note on a text that is out of date: what holds now, or that nothing does, and since when."""
    return (_CHANGED if holds else _ENDED)[language].format(holds=holds, date=day(since, language))
