"""When a statement is about: what its words for a time mean beside those of other texts."""

from __future__ import annotations

import re
from datetime import datetime

from hippocampus.providers.local import patterns_en
from hippocampus.text import holidays, times
from hippocampus.text.times import TimeSpan

_NTH = r"(?:the )?\d{1,2}(?:st|nd|rd|th)?"
_TO = r" ?(?:to|till|until|through|[-–—]) ?"
#: 'from 3 to 9 May', '3 May to 9 June', 'May 3-9'.
RANGE_EN = (
    rf"\b(?:from |between )?(?:{_NTH}(?:(?: of)? {patterns_en.MONTH})?(?:{_TO}| and )"
    rf"{_NTH}(?: of)? {patterns_en.MONTH}\b(?:,? \d{{4}})?"
    rf"|{patterns_en.MONTH} {_NTH}{_TO}{_NTH}(?!\d| {patterns_en.MONTH}\b)(?:,? \d{{4}})?)"
)
_HAN = "[0-9一二三四五六七八九十廿]{1,3}"
#: '五月三号到九号'
RANGE_ZH = f"(?:[今明后去]年)?{_HAN}月(?:份)?{_HAN}[号日]?(?:到|至|[-–—~～])(?:{_HAN}月)?{_HAN}[号日]"
#: 'bought for Christmas' was not bought then; 'since Christmas' is the last one.
_FOR_OR_SINCE = re.compile(rf"\b(?P<word>for|since) (?:{holidays.ENGLISH}|{holidays.CHINESE})", re.IGNORECASE)


def resolve(text: str, now: datetime, *, ahead: bool) -> TimeSpan | None:
    """Return the one span that a statement means, or None if it names none.

    Args:
        now: when the statement was made, with a zone.
        ahead: it speaks of what is to come; else of what was last.
    """
    text = text.replace("’", "'")
    if match := _FOR_OR_SINCE.search(text):
        if match["word"].lower() == "since":
            ahead = False
        elif not ahead:
            text = text[: match.start()] + text[match.end() :]
    return times.resolve(text, now, ahead=ahead)
