"""Which language a conversation is in: its labels and headers follow."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

Language: TypeAlias = Literal["zh", "en"]
#: The languages as a prompt names them.
LANGUAGE_NAMES: Mapping[Language, str] = {"zh": "Chinese", "en": "English"}

_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
_KANA_OR_HANGUL = re.compile("[\u3040-\u30ff\uac00-\ud7af]")
_LATIN_WORD = re.compile("[A-Za-zÀ-ɏ]+")
#: How much of a text is looked at.
_CHARACTERS_MAX = 300


def language_of(texts: Iterable[str]) -> Language | None:
    """Return the language that most of the texts' words are in: Chinese, or else English; None if there is no word.

    A Chinese character counts as much as a Latin word. Japanese and Korean count as English, whose labels they get.
    """
    chinese = other = 0
    for text in texts:
        beginning = text[:_CHARACTERS_MAX]
        han = len(_HAN.findall(beginning))
        if _KANA_OR_HANGUL.search(beginning):
            other += han + 1
        else:
            chinese += han
        other += len(_LATIN_WORD.findall(beginning))
    if not chinese and not other:
        return None
    return "zh" if chinese >= other else "en"
