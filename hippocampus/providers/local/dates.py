"""When a statement is about: what its words for a time mean beside those of other texts."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime

from hippocampus.providers.local import patterns_en
from hippocampus.text import holidays, times, words
from hippocampus.text.times import TimeSpan

#: 'the first' and 'the second' are rarely days.
_FIRST_ORDINALS = 4
_DAYS_MAX = 31
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


#: A day without its month: 'the 14th', but not 'the 14th floor'.
_BARE_DAY = re.compile(
    r"\bthe (?:(?P<day>\d{1,2})(?:st|nd|rd|th)|(?P<word>[a-z]+(?:[- ][a-z]+)?))"
    r"(?= of (?:the|this|next) month|$|[,.;!)]| (?:at|in the|with|for|to|so|and|instead|now|from|until|till|because)\b)"
    f"|(?<![0-9一二三四五六七八九十廿月年第.])(?P<han>{_HAN})[号日](?![0-9楼线店院房桌球馆厅门车人]|公寓|出口|选手|文件|电)",
    re.IGNORECASE,
)
_ORDINALS = (
    {
        word: number
        for number, word in enumerate(
            words.listed(
                """first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth
            fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth"""
            ),
            1,
        )
        if number > _FIRST_ORDINALS
    }
    | {
        f"{tens} {word}": number
        for tens, start in (("twenty", 20), ("thirty", 30))
        for number, word in enumerate(
            words.listed("first second third fourth fifth sixth seventh eighth ninth"), start + 1
        )
        if number <= _DAYS_MAX
    }
    | {"thirtieth": 30}
)


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


def bare_day(text: str, now: datetime, *, ahead: bool) -> TimeSpan | None:
    """Return the next day of that number, or the last one, if a text names one without its month."""
    match = _BARE_DAY.search(text)
    if match is None:
        return None
    with suppress(LookupError, ValueError):
        last, coming = times.days_alone(_day_number(match), now)
        return coming if ahead and last.end <= now else last
    return None


def _day_number(match: re.Match[str]) -> int:
    """Return the number of a day in digits or words; 0 if it is no word for one.

    Raises:
        LookupError, ValueError: Chinese digits that are no number.
    """
    if match["day"]:
        return int(match["day"])
    if match["word"]:
        return _ORDINALS.get(match["word"].lower().replace("-", " "), 0)
    return times.number_of(match["han"].replace("廿", "二十"))
