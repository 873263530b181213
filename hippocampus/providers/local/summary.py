"""Extractive summaries: the sentences that say most about a slice, each with its speaker."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hippocampus.providers.local import facts
from hippocampus.providers.local.sentences import Sentence, is_assistant, sentences_of
from hippocampus.records import ConversationSlice, Turn
from hippocampus.text import words

SUMMARY_CHARS_MAX = 200
#: A sentence shorter than this is cut only when nothing else fits.
_PIECE_CHARS_MIN = 60
_SENTENCES_MAX = 3
#: A slice has about 2,000 tokens; far longer ones are ranked by their first sentences.
_RANKED_MAX = 2_000

_DECISION = re.compile(
    r"\b(?:decid(?:e|ed|ing)|agreed?|settled on|going with|plan(?:ning)?|booked|signed|accepted|quit|moved"
    r"|moving"
    r"|started|finished|bought|won|got the|promise|deadline|never|always|allergic)\b"
    r"|决定|同意|打算|计划|准备|预订|订了|买了|开始|完成|搬|换|辞职|过敏|以后|不要",
    re.IGNORECASE,
)
_FIRST_PERSON = re.compile(r"\b(?:I|I'm|I've|my|we|our)\b|我")
_NAMED = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]+|\d")
_GREETING = re.compile(
    r"^(?:hey|hi|hello|wow|thanks|thank you|yeah|bye|cool|nice|great|congrats|sounds|aww*)\b"
    r"|^(?:你好|谢谢|好的|嗯)",
    re.IGNORECASE,
)


def of_slice(slice_: ConversationSlice) -> str:
    """Return a summary of at most 200 characters, in the conversation's own words; never empty."""
    reading = facts.read(slice_)
    sentences = _as_they_stand(slice_, reading)
    if not sentences:
        return _wordless(slice_.turns)
    chosen: list[Sentence] = []
    for _, sentence in _ranked(sentences, reading):
        if len(chosen) == _SENTENCES_MAX:
            break
        if chosen and _is_scrap(sentence):
            continue
        if len(_compose([*chosen, sentence])) <= SUMMARY_CHARS_MAX:
            chosen.append(sentence)
        elif not chosen:
            return _cut(_compose([sentence]), SUMMARY_CHARS_MAX)
    return _fill(chosen, sentences, reading)


def _as_they_stand(slice_: ConversationSlice, reading: facts.Reading) -> list[Sentence]:
    """Return the sentences with what later ones put right, without those that were taken back."""
    sentences = [s for s in sentences_of(slice_)[:_RANKED_MAX] if _has_words(s.text)]
    corrected = reading.corrected
    if not corrected:
        return sentences
    stand = []
    for sentence in sentences:
        text = corrected.get((sentence.turn.sequence_num, sentence.position), sentence.text)
        if text is not None:
            stand.append(sentence if text is sentence.text else replace(sentence, text=text))
    return stand or sentences


def _is_scrap(sentence: Sentence) -> bool:
    """Return whether a sentence is too short to add something to another one."""
    return len(sentence.text) < (8 if sentence.is_cjk else 25)


def _fill(chosen: list[Sentence], sentences: Sequence[Sentence], reading: facts.Reading) -> str:
    text = _compose(chosen)
    left = SUMMARY_CHARS_MAX - len(text)
    if left < _PIECE_CHARS_MIN or len(chosen) == _SENTENCES_MAX:
        return text
    for _, sentence in _ranked(sentences, reading):
        if sentence not in chosen and not _is_scrap(sentence):
            label = f" {_label(sentence.turn)}"
            return f"{text}{_cut(label + sentence.text, left)}" if len(label) + 30 < left else text
    return text


def _ranked(sentences: Sequence[Sentence], reading: facts.Reading) -> list[tuple[float, Sentence]]:
    """Return the sentences by salience, the most salient first, equals in their order in the conversation."""
    bags = [set(words.terms(sentence.text)) for sentence in sentences]
    frequency = Counter(term for bag in bags for term in bag)
    scored = [
        (_salience(sentence, bag, frequency, len(sentences), reading), -number, sentence)
        for number, (sentence, bag) in enumerate(zip(sentences, bags, strict=True))
    ]
    scored.sort(key=lambda entry: entry[:2], reverse=True)
    return [(score, sentence) for score, _, sentence in scored]


def _salience(sentence: Sentence, bag: set[str], frequency: Counter[str], total: int, reading: facts.Reading) -> float:
    """Score terms that recur in the slice, lower if they are everywhere, and signs of a statement."""
    if not bag:
        return -1.0
    assistant = is_assistant(sentence.turn)
    score = sum(math.log1p(frequency[term] - 0.5) * math.log(1 + total / frequency[term]) for term in sorted(bag))
    score /= math.sqrt(len(bag) + 3.0)
    score *= 1.4 if _DECISION.search(sentence.text) else 1.0
    score *= 1.3 if _FIRST_PERSON.search(sentence.text) else 1.0
    score *= 1.0 + 0.1 * min(3, len(_NAMED.findall(sentence.text)))
    score *= 1.5 if (sentence.turn.sequence_num, sentence.position) in reading.stated else 1.0
    score *= 0.4 if _is_scrap(sentence) else 1.0
    score *= 0.4 if assistant else 1.0
    score *= 0.5 if sentence.is_question else 1.0
    return score * (0.4 if _GREETING.match(sentence.text) else 1.0)


def _compose(sentences: Sequence[Sentence]) -> str:
    """Join the sentences in their order in the conversation, each speaker named once in a row."""
    pieces: list[str] = []
    speaker = None
    for sentence in sorted(sentences, key=lambda s: (s.turn.sequence_num, s.position)):
        label = "" if sentence.turn.author == speaker else _label(sentence.turn)
        pieces.append(label + " ".join(sentence.text.split()))
        speaker = sentence.turn.author
    return re.sub(r"(?<=[。！？；…]) ", "", " ".join(pieces))


def _label(turn: Turn) -> str:
    chinese = words.CJK_CHARACTER.search(turn.text) is not None
    if turn.author == "user":
        return "用户：" if chinese else "User: "
    if turn.author in ("model", "assistant"):
        return "助手：" if chinese else "Assistant: "
    author = _cut(" ".join(turn.author.split()) or "?", 40)
    return f"{author}：" if chinese else f"{author}: "


def _wordless(turns: Sequence[Turn]) -> str:
    signs = " ".join("".join(turn.text for turn in turns).split())
    return _cut(signs, SUMMARY_CHARS_MAX) if signs else f"{len(turns)} messages without words."


def _has_words(text: str) -> bool:
    return any(character.isalnum() for character in text)


def _cut(text: str, chars_max: int) -> str:
    """Cut a text to `chars_max` between words (CJK: between characters), with an ellipsis."""
    if len(text) <= chars_max:
        return text
    end = chars_max - 1
    while end > 0 and _joined(text[end - 1], text[end]):
        end -= 1
    return (text[:end] if end > chars_max // 3 else _cut_anywhere(text, chars_max - 1)).rstrip(" ,;:，；：-") + "…"


def _cut_anywhere(text: str, end: int) -> str:
    """Cut a word that is longer than the limit, but not inside one written character."""
    while end > 1 and _one_character(text[end - 1], text[end]):
        end -= 1
    return text[:end]


def _joined(left: str, right: str) -> bool:
    """Return whether a cut between these two characters would cut a word or a written character."""
    if _one_character(left, right):
        return True
    if words.is_cjk(left) or words.is_cjk(right):
        return False
    return not (left.isspace() or right.isspace())


def _one_character(left: str, right: str) -> bool:
    """Return whether the two belong to one written character: a letter and its accent, the parts of a family emoji."""
    return left == "\u200d" or _extends(right)


def _extends(character: str) -> bool:
    return unicodedata.category(character) in ("Mn", "Me", "Mc", "Cf", "Sk")
