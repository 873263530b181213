"""Insights by cue: decisions, commitments, milestones and strong feelings, in the speaker's own words."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hippocampus.providers.local.sentences import Sentence, is_assistant, sentences_of
from hippocampus.records import ConversationSlice, ExtractedInsight, Importance
from hippocampus.text import words

INSIGHTS_MAX = 4
CONTENT_CHARS_MAX = 300
_SAME_WORDS = 0.6  # the Jaccard index from which two sentences count as the same


@dataclass(frozen=True, slots=True)
class _Cue:
    importance: Importance
    regex: re.Pattern[str]


_RANK: dict[Importance, int] = {"high": 0, "medium": 1, "low": 2}
_CUES = (
    _Cue(
        "high",
        re.compile(
            r"\b(?:I|we)(?:'ve)? (?:\w+ ){0,2}?(?:decided|quit|resigned|got (?:married|engaged|divorced"
            r"|promoted|hired|fired"
            r"|accepted|the job|laid off|diagnosed)|graduated|moved to|bought (?:a|our|my) (?:first |new"
            r" )?(?:house|home"
            r"|apartment|flat)|won|lost my|adopted|passed (?:the|my)|gave birth|broke up|retired|was"
            r" diagnosed"
            r"|was promoted|was accepted|had (?:surgery|an accident|a (?:baby|heart)))\b"
            r"|\b(?:passed away|is pregnant|I'm pregnant|was born|had to be hospitali[sz]ed)\b",
            re.IGNORECASE,
        ),
    ),
    _Cue(
        "medium",
        re.compile(
            r"\b(?:I|we)(?:'ve)? (?:\w+ ){0,2}?(?:finished|started|signed up|joined|launched|published|opened"
            r"|applied|booked"
            r"|signed|completed|submitted|received|got accepted|met with|agreed|committed|promised|enrolled"
            r"|performed"
            r"|volunteered|realized|realised|learned that)\b|\bI (?:promise|commit)\b|\blet's go with\b"
            r"|\bwe'll go with\b"
            r"|\bI(?:'m| am| was| felt) (?:\w+ )?(?:heartbroken|devastated|terrified|thrilled|proud of myself"
            r"|exhausted"
            r"|burned out|depressed|overwhelmed|relieved|scared)\b",
            re.IGNORECASE,
        ),
    ),
)
_CUES_ZH = (
    _Cue(
        "high",
        re.compile(
            "(?:我|我们)[^，。]{0,8}(?:决定|辞职|离职|结婚|离婚|订婚|升职|被录取|毕业|搬到|搬家|搬去|买了房|确诊"
            "|怀孕|生了|失业|被裁|考上|拿到了?(?:offer|录用)"
            "|退休)|去世",
            re.IGNORECASE,
        ),
    ),
    _Cue(
        "medium",
        re.compile(
            "(?:我|我们)[^，。]{0,8}(?:完成了|开始|报名|加入|答应|承诺|同意|订了|预订了|签了|通过了|获得|意识到"
            "|发现|崩溃|难过|激动|松了一口气|焦虑)"
        ),
    ),
)
_NOT_STATED = re.compile(r"\b(?:if|unless|would|wish)\b|如果|要是|的话", re.IGNORECASE)


def of_slice(slice_: ConversationSlice) -> list[ExtractedInsight]:
    """Return the insights of a slice, the most important first: at most four, and no two alike."""
    sentences = [
        sentence for sentence in sentences_of(slice_) if not sentence.is_question and not is_assistant(sentence.turn)
    ]
    found = [(importance, sentence) for sentence in sentences if (importance := _importance(sentence))]
    found.sort(key=lambda entry: (_RANK[entry[0]], entry[1].turn.sequence_num, entry[1].position))
    chosen: list[tuple[Importance, Sentence]] = []
    for importance, sentence in found:
        if len(chosen) < INSIGHTS_MAX and not any(_alike(sentence, other) for _, other in chosen):
            chosen.append((importance, sentence))
    return [_insight(importance, sentence) for importance, sentence in chosen]


def _importance(sentence: Sentence) -> Importance | None:
    text = sentence.text.replace("’", "'")
    if len(text) < (5 if sentence.is_cjk else 12) or len(text) > CONTENT_CHARS_MAX or _NOT_STATED.search(text):
        return None
    for cue in _CUES_ZH if sentence.is_cjk else _CUES:
        if cue.regex.search(text):
            return cue.importance
    return None


def _insight(importance: Importance, sentence: Sentence) -> ExtractedInsight:
    return ExtractedInsight(
        content=_label(sentence) + " ".join(sentence.text.split()),
        importance=importance,
        source_seqs=(sentence.turn.sequence_num,),
    )


def _label(sentence: Sentence) -> str:
    author = sentence.turn.author
    if author == "user":
        return "用户：" if sentence.is_cjk else "User: "
    return f"{author}：" if sentence.is_cjk else f"{author}: "


def _alike(left: Sentence, right: Sentence) -> bool:
    a, b = set(words.terms(left.text)), set(words.terms(right.text))
    return len(a & b) >= _SAME_WORDS * max(1, len(a | b))
