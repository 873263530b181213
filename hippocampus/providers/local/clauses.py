"""Clauses of a sentence, and the signs that a sentence states nothing about its speaker.

A fact needs a plain statement in the first person. A sentence that is a question, a condition, a wish, a report of what
another says, a quotation, a joke or irony is skipped as a whole: a missed fact will be repeated, a wrong one is
believed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hippocampus.providers.local.sentences import Sentence

#: A longer sentence is pasted text or a list, and patterns would be slow on it.
SENTENCE_CHARS_MAX = 600

_SUBJECT = r"(?:I|we|my|our|it|he|she|they|you|that|there|every|on)(?:'(?:m|ve|ll|re|s))?\b"
_SPLIT_EN = re.compile(
    r"\s*(?:[;:]\s|—|–|\s-+\s|\s--\s?|[.!]+\s)\s*"
    rf"|,\s+(?=(?:and|but|so|because|since|plus|though|which)?\s*{_SUBJECT})"
    rf"|,?\s+(?:and|but|so|because|since|'cause|cause|plus|though|although|while)\s+(?=(?:also\s+|now\s+"
    rf"|then\s+)?{_SUBJECT})"
    r"|,\s+(?=(?:please|never|don't|no|currently)\b)",
    re.IGNORECASE,
)
_LEAD_EN = re.compile(
    r"^(?:(?:oh|ah|aw+|well|yeah|yes|yep|yup|(?:no|nope|nah)(?=[,.!])|ok|okay|so|and|but|also|btw|by the way"
    r"|honestly|actually|plus"
    r"|besides|fun fact|anyway|thanks|thank you|hey|hi|hello|wow|lol|haha+|sure|right|true|cool|nice|great"
    r"|awesome"
    r"|because|since|though|as for me|for me|personally|to be honest|tbh|i mean|you know|definitely|totally"
    r"|absolutely|of course|as you know|these days|nowadays|lately|recently|currently|right now|now|in"
    r" general"
    r"|normally|still|same here|me too|sorry|unfortunately|luckily|guess what|good news|well then|speaking of"
    r" which"
    r"|for work|for what it's worth|one more thing|please note|note|heads up|in fact|meanwhile"
    r"|then)\b[,!.…]*\s*)+",
    re.IGNORECASE,
)
_VOCATIVE_EN = re.compile(r"^[A-Z][a-z]+[,!]\s+|,\s+[A-Z][a-z]+$")
_NOT_STATED_EN = re.compile(
    r"\b(?:if|unless|wish|wished|imagine|pretend|suppose|supposing|hypothetically"
    r"|used to|no longer live|thought about"
    r"|reads?(?=:)|lyrics?|quote|joke|joking|kidding|sarcas\w*|dreamt|dreamed|in my dream|in the (?:book"
    r"|movie"
    r"|film|game|story|song)"
    r"|character|as if|not!|whether|when I was|as a (?:kid|child)|back then|growing up)\b|\bnot!?$|/s$"
    r"|\byeah,? right\b|🙄",
    re.IGNORECASE,
)
#: Introduces what another person says; what precedes it in the sentence is still the speaker's own.
_REPORTED_EN = re.compile(r"\b(?:said|says|saying|told|tells|asked|asks|thinks|believes|claims|heard)\b", re.IGNORECASE)
_UNREAL_EN = re.compile(r"\b(?:would|could|could've|should've|might|maybe|perhaps|probably)\b|'d\b", re.IGNORECASE)
_QUOTED = re.compile(r"[\"“”][^\"“”]*[\"“”]|[「『][^」』]*[」』]|‘[^’]*’(?!\w)")
_SPLIT_ZH = re.compile(r"[，,；;。！!？?：:\s]+|——|…+|(?:但是?|不过|而且|所以|因为|可是|然后|并且)(?=我|也|还|周|每)")
_LEAD_ZH = re.compile(
    "^(?:嗯+|哦|啊|好的?|是的|对了?|对啊|你好|谢谢|另外|还有|而且|其实|不过|但是?|所以|因为|然后|说实话|老实说|顺便说一下|顺便|总之|现在|目前|最近|那|哈哈+|当然"
    "|告诉你|跟你说)(?=我|以后|请|周|每|不|别|千|麻)"
)
_NAMING_ZH = re.compile("[，,](?=(?:名字)?(?:叫|名叫))")
_SUBJECT_ZH = re.compile("(?:现在|目前|最近|其实)?我(?!妈|爸|女儿|儿子|老|太太|先生|[的家]|哥|姐|弟|妹|爷|奶|外|同)")
_SUBJECTLESS_ZH = re.compile(
    "在|是一|住|喜欢|不|爱|讨厌|对|养|有|每|打算|准备|计划|也|还|来自|最|已经|刚|现在|目前|特别|超"
)
_NOT_STATED_ZH = re.compile(
    "如果|要是|假如|假设|万一|的话|倘若|本来想|曾经|以前|小时候|差点|开玩笑|才怪|梦见|梦到|电影里|小说里|书里|歌词"
    "|可能会|也许|恨不得|是否|好像|要不要|是不是|有没有|能不能|该不该|希望能|不知道"
)
_REPORTED_ZH = re.compile(
    "听说|据说|有人说|[他她你]们?(?:说|问|觉得|以为|认为|告诉)|(?:妈|爸|老板|同事|朋友|老婆|老公|妹妹|姐姐|哥哥|弟弟|医生"
    "|老师)(?:妈|爸)?(?:说|问|觉得|告诉|总说)"
)


def of_sentence(sentence: Sentence) -> Iterator[str]:
    """Yield the clauses of a sentence; none if it states nothing about its speaker."""
    if sentence.is_question or len(sentence.text) > SENTENCE_CHARS_MAX:
        return
    text = " ".join(_unquoted(sentence.text).split())
    if sentence.is_cjk:
        if not _NOT_STATED_ZH.search(text):
            yield from _chinese(text)
    elif not _NOT_STATED_EN.search(text):
        yield from _english(text)


def _unquoted(text: str) -> str:
    """Remove quoted speech, which is another's; keep a quoted title or name without its quotation marks."""

    def keep(match: re.Match[str]) -> str:
        inner = match[0][1:-1]
        speaks = re.search(r"\b(?:I|my|we|you|don't|never)\b|[我你]|不要|别", inner, re.IGNORECASE)
        return " … " if speaks or len(inner) > 60 else inner

    return _QUOTED.sub(keep, text.replace("’", "'"))


def _english(text: str) -> Iterator[str]:
    for piece in _SPLIT_EN.split(text):
        if _REPORTED_EN.search(piece):
            return
        clause = piece.strip(" ,.!…*~")
        for pattern in (_LEAD_EN, _VOCATIVE_EN, _LEAD_EN):
            clause = pattern.sub("", clause).strip(" ,.!…")
        if clause and not _UNREAL_EN.search(clause):
            yield clause


def _chinese(text: str) -> Iterator[str]:
    subject = ""
    for piece in _SPLIT_ZH.split(_NAMING_ZH.sub("", text)):
        if _REPORTED_ZH.search(piece):
            return
        clause = piece.strip(" ~～、")
        while (shorter := _LEAD_ZH.sub("", clause)) != clause:
            clause = shorter
        if clause:
            yield subject + clause if subject and _SUBJECTLESS_ZH.match(clause) else clause
            subject = "我" if _SUBJECT_ZH.match(clause) else subject if _SUBJECTLESS_ZH.match(clause) else ""
