"""Holidays that people name as times, English and Chinese, and their days in a year.

Those of the Chinese calendar are in a table; the others follow from rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date, timedelta
from typing import TypeAlias

#: The first day of a holiday in a year, and how many days it lasts.
_Days: TypeAlias = "Callable[[int], tuple[date, int]]"

#: Month and day, from this year on, of the first of the first lunar month, the fifth of the fifth, the fifteenth of the
#: eighth.
_FIRST_YEAR = 1990
_LUNAR_NEW_YEARS = """
0127 0215 0204 0123 0210 0131 0219 0207 0128 0216 0205 0124 0212 0201 0122 0209 0129 0218 0207 0126 0214 0203 0123 0210
0131 0219 0208 0128 0216 0205 0125 0212 0201 0122 0210 0129 0217 0206 0126 0213 0203 0123 0211 0131 0219 0208 0128 0215
0204 0124 0212 0201 0122 0210 0130 0217 0206 0126 0214 0202 0123 0211 0201 0219 0208 0128 0215 0204 0124 0212 0202
""".split()
_DRAGON_BOATS = """
0528 0616 0605 0624 0613 0602 0620 0609 0530 0618 0606 0625 0615 0604 0622 0611 0531 0619 0608 0528 0616 0606 0623 0612
0602 0620 0609 0530 0618 0607 0625 0614 0603 0622 0610 0531 0619 0609 0528 0616 0605 0624 0612 0601 0620 0610 0530 0618
0607 0527 0614 0603 0622 0611 0531 0619 0608 0529 0615 0604 0623 0613 0601 0620 0610 0530 0617 0606 0625 0614 0603
""".split()
_MID_AUTUMNS = """
1003 0922 0911 0930 0920 0909 0927 0916 1005 0924 0912 1001 0921 0911 0928 0918 1006 0925 0914 1003 0922 0912 0930 0919
0908 0927 0915 1004 0924 0913 1001 0921 0910 0929 0917 1006 0925 0915 1003 0922 0912 1001 0919 0908 0927 0916 1004 0924
0913 1002 0920 0910 0928 0917 1005 0925 0915 1004 0922 0911 0930 0919 0907 0926 0916 1005 0924 0913 1002 0921 0909
""".split()


def holiday(name: str, year: int) -> tuple[date, int]:
    """Return the first day of a holiday and how many days it has.

    Args:
        name: what `ENGLISH` or `CHINESE` matched, in lower case.

    Raises:
        LookupError: the year is out of the table of the Chinese calendar.
    """
    for pattern, days in _HOLIDAYS:
        if pattern.fullmatch(name):
            return days(year)
    raise LookupError(name)


def spoken_on(first: date, end: date) -> Iterator[str]:
    """Yield how a turn names the holidays that begin in a range of days: as queries of the text search."""
    for words, name in _SPOKEN:
        with suppress(LookupError):
            if first <= holiday(name, first.year)[0] < end:
                yield words


def _fixed(month: int, day: int, days: int = 1) -> _Days:
    return lambda year: (date(year, month, day), days)


def _nth(number: int, weekday: int, month: int, shift: int = 0) -> _Days:
    """The nth such weekday of a month, the last one for 0, and this many days later."""

    def days(year: int) -> tuple[date, int]:
        if number == 0:
            end = date(year, month + 1, 1)
            return end - timedelta(days=(end.weekday() - weekday - 1) % 7 + 1), 1
        first = date(year, month, 1)
        return first + timedelta(days=(weekday - first.weekday()) % 7 + 7 * (number - 1) + shift), 1

    return days


def _lunar(table: list[str], shift: int = 0, days: int = 1) -> _Days:
    def found(year: int) -> tuple[date, int]:
        if year < _FIRST_YEAR:
            raise LookupError(year)
        day = table[year - _FIRST_YEAR]
        return date(year, int(day[:2]), int(day[2:])) + timedelta(days=shift), days

    return found


def _easter(shift: int, days: int = 1) -> _Days:
    """The Gregorian computus."""

    def found(year: int) -> tuple[date, int]:
        century, golden = year // 100, year % 19
        moon = (century - century // 4 - (8 * century + 13) // 25 + 19 * golden + 15) % 30
        moon -= (moon // 28) * (1 - (29 // (moon + 1)) * ((21 - golden) // 11))
        weekday = (year + year // 4 + moon + 2 - century + century // 4) % 7
        ahead = moon - weekday
        month = 3 + (ahead + 40) // 44
        return date(year, month, ahead + 28 - 31 * (month // 4)) + timedelta(days=shift), days

    return found


# A longer name comes before its part.
_ENGLISH: dict[str, _Days] = {
    r"christmas eve": _fixed(12, 24),
    r"christmas day": _fixed(12, 25),
    r"christmas|xmas": _fixed(12, 24, 3),
    r"boxing day": _fixed(12, 26),
    r"chinese new year(?:['’]s eve)?|lunar new year|(?:the )?spring festival": _lunar(_LUNAR_NEW_YEARS, -1, 8),
    r"new year['’]?s eve": _fixed(12, 31),
    r"new year['’]?s(?: day)?": _fixed(1, 1),
    r"halloween": _fixed(10, 31),
    r"valentine['’]?s(?: day)?": _fixed(2, 14),
    r"st\.? patrick['’]?s day": _fixed(3, 17),
    r"thanksgiving(?: day)?": _nth(4, 3, 11),
    r"black friday": _nth(4, 3, 11, 1),
    r"labor day": _nth(1, 0, 9),
    r"memorial day": _nth(0, 0, 5),
    r"mother['’]?s['’]? day": _nth(2, 6, 5),
    r"father['’]?s['’]? day": _nth(3, 6, 6),
    r"independence day|the fourth of july": _fixed(7, 4),
    r"good friday": _easter(-2),
    r"easter monday": _easter(1),
    r"easter sunday": _easter(0),
    r"easter": _easter(-2, 4),
    r"(?:the )?mid-autumn (?:festival|day)": _lunar(_MID_AUTUMNS),
    r"(?:the )?dragon boat festival": _lunar(_DRAGON_BOATS),
    r"(?:the )?lantern festival": _lunar(_LUNAR_NEW_YEARS, 14),
}
# A given name after these is that of a person: 李国庆. 周 may also end 上周.
_NO_SURNAME = (
    "(?<![王李张刘陈杨赵黄吴徐孙胡朱高林郭马罗梁宋郑谢韩唐冯董程曹袁邓许沈曾彭吕苏卢蒋蔡贾丁魏薛叶潘杜戴钟汪姜范姚谭"
    "邹熊陆郝孔崔邱秦顾侯邵孟钱汤尹黎乔贺赖龚叫姓])(?<!(?<![上下这本])周)"
)
# 周五一起, 十五一共 and 五一二 are not 五一.
_MAY_DAY = (
    _NO_SURNAME + "(?<![周期拜初第〇零一二三四五六七八九十])五一"
    "(?!起|早(?!上)|晚(?!上)|下(?!午)|[整点样直共些定个]|广场|路|大道|[〇零二三四五六七八九十百千](?![天日]))"
)
# 超过年薪, 见过年轻人, 参加过年会, but 过年会回家.
_SPRING = (
    "春节|(?<![加开办超通])过年(?![轻底夜糕货级龄薪终度代检限审月岁末幼复]|假(?!期)|少(?!不)|初(?![一二三四五六七八九十])"
    "|会(?![不回去来要有很]))"
)
_CHINESE: dict[str, _Days] = {
    "元旦节?": _fixed(1, 1),
    "除夕夜?|大年三十": _lunar(_LUNAR_NEW_YEARS, -1),
    "大年初一": _lunar(_LUNAR_NEW_YEARS),
    _SPRING: _lunar(_LUNAR_NEW_YEARS, -1, 8),
    "元宵节|(?<![吃煮包做买])元宵": _lunar(_LUNAR_NEW_YEARS, 14),
    f"清明节|{_NO_SURNAME}清明(?!上河)": _fixed(4, 4, 2),
    f"五一(?:劳动节|黄金周|假期|节)|{_MAY_DAY}|劳动节": _fixed(5, 1, 5),
    "端午节?": _lunar(_DRAGON_BOATS),
    f"中秋节|{_NO_SURNAME}中秋": _lunar(_MID_AUTUMNS),
    f"(?:十一)?国庆节|{_NO_SURNAME}(?:十一)?国庆(?!是谁|[哥姐叔]|说(?!好)|先生|老师|同学|路)"
    "|(?<![二三四五六七八九])十一(?:黄金周|假期|长假)": _fixed(10, 1, 7),
    "圣诞节|圣诞(?![树卡岛帽袜歌]|老人)": _fixed(12, 24, 3),
    "平安夜": _fixed(12, 24),
    "情人节": _fixed(2, 14),
    "(?:三八)?妇女节": _fixed(3, 8),
    "(?:六一)?儿童节": _fixed(6, 1),
    "教师节": _fixed(9, 10),
    "双十一": _fixed(11, 11),
    "万圣节": _fixed(10, 31),
    "感恩节": _nth(4, 3, 11),
    "母亲节": _nth(2, 6, 5),
    "父亲节": _nth(3, 6, 6),
    "复活节": _easter(-2, 4),
}
_HOLIDAYS = [(re.compile(pattern), days) for pattern, days in (*_ENGLISH.items(), *_CHINESE.items())]

#: How the text search holds the commonest: English stems, Chinese pairs.
_SPOKEN = (
    ("'christma'", "christmas"),
    ("'christma'", "christmas day"),
    ("'圣诞'", "圣诞"),
    ("'圣诞'", "christmas day"),
    ("'平安' <-> '安夜'", "平安夜"),
    ("'new' <-> 'year' <-> 'eve'", "new year's eve"),
    ("'new' <-> 'year'", "new year's"),
    ("'元旦'", "元旦"),
    ("'春节'", "春节"),
    ("'春节'", "大年初一"),
    ("'除夕'", "除夕"),
    ("'chines' <-> 'new' <-> 'year'", "春节"),
    ("'中秋'", "中秋"),
    ("'端午'", "端午"),
    ("'清明'", "清明"),
    ("'国庆'", "国庆"),
    ("'easter'", "easter"),
    ("'easter'", "easter sunday"),
    ("'thanksgiv'", "thanksgiving"),
    ("'halloween'", "halloween"),
    ("'valentin'", "valentine's"),
)

#: Nouns that a holiday names, and that say nothing of a time: Easter Island, a Christmas tree.
_NAMED_AFTER = (
    "island|road|street|avenue|lane|square|park|drive|court|hill|village|tree"
    "|card|egg|bunny|bunnies|carol|sweater|jumper|stocking|ornament|cactus|lily|lilies|rising"
)
#: What matches the name of any, for a pattern.
ENGLISH = "(?:" + "|".join(_ENGLISH) + rf")(?! (?:{_NAMED_AFTER})s?\b)"
CHINESE = "(?:" + "|".join(_CHINESE) + ")"
