"""Facts by patterns: what people plainly say of themselves, in English and Chinese.

The key is `topic` if a person has one value ('home'), and `topic:object` if they have several ('preference:hiking'); in
a conversation of named people it begins with the name ('caroline:home'). A later statement about the same thing has the
same key. The value is {"subject": who, "text": the fact in the third person}; that of a plan also has the time of the
statement. What a later sentence takes back or puts right is so in the result.
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hippocampus.providers.local import (
    clauses,
    corrections,
    dates,
    families,
    families_en,
    families_zh,
    objects,
    owners,
    patterns_en,
    patterns_en_life,
    patterns_zh,
    people,
    restated,
    sentences,
    slots,
    updates,
)
from hippocampus.providers.local.corrections import Held
from hippocampus.providers.local.patterns import Pattern
from hippocampus.providers.local.sentences import Sentence
from hippocampus.records import ConversationSlice, ExtractedFact, Turn
from hippocampus.text import times, words

KEY_CHARS_MAX = 255
#: Facts of one slice; a slice with more of them is a list, not a conversation.
FACTS_MAX = 100

#: A time in these is no date.
_TIMELESS = frozenset(
    (
        "name",
        "age",
        "origin",
        "habit",
        "rule",
        "diet",
        "allergy",
        "preference",
        "favorite",
        "plays",
        "speaks",
        "work_history",
    )
)
_AHEAD = re.compile(
    r"\b(?:will|going to|due|expecting|moving|starting|starts|flying|coming|visiting|getting|next|tomorrow|until"
    r"|till)\b|要|将|打算|准备|预产期|[下明]",
    re.IGNORECASE,
)
_DATED_TOPICS = frozenset(("plan", "goal", "event", "activity"))
#: Topics that may occur together in one clause: 'I work for a bank as a clerk'.
_COMPANIONS = frozenset(
    (
        "name",
        "age",
        "home",
        "employer",
        "occupation",
        "children",
        "pet",
        "family:name",
        "family:work",
        "family:life",
        "family:age",
        "family:allergy",
        "work_history",
        "family:surname",
    )
)
_TOPICS_BY_ABOUT = frozenset(("family", "pet", "favorite"))
#: Of these relatives people have several.
_SEVERAL = frozenset(
    (
        "son",
        "daughter",
        "sister",
        "brother",
        "friend",
        "cousin",
        "aunt",
        "uncle",
        "niece",
        "nephew",
        "colleague",
        "neighbor",
        "neighbour",
        "grandson",
        "granddaughter",
        "女儿",
        "儿子",
        "孩子",
        "姐姐",
        "妹妹",
        "哥哥",
        "弟弟",
        "孙子",
        "孙女",
        "舅舅",
        "姑姑",
        "阿姨",
        "叔叔",
    )
)
#: Of these people have one at a time.
_POST_HOLDERS = frozenset(
    words.listed("boss manager supervisor landlord landlady coach trainer 上司 领导 老板 导师 班主任 教练 主管 经理")
)
#: What changes when the same plan is stated again, and so is not part of its key.
_TIME = re.compile(
    rf"{dates.RANGE_EN}|{dates.RANGE_ZH}|\b(?:on |at |in |by |from )?{patterns_en.TIME}(?=\W|$)|{patterns_zh.TIME}",
    re.IGNORECASE,
)
_NEGATED = (
    (re.compile(r"^(?:I'm|I am) (?:not|no longer) ", re.IGNORECASE), "I'm "),
    (re.compile(r"^(?:we're|we are) (?:not|no longer) ", re.IGNORECASE), "we're "),
    (re.compile(r"^I (?:don't|do not|no longer|never) ", re.IGNORECASE), "I "),
    (re.compile(r"^I (?:haven't|don't have|have no|haven't got) ", re.IGNORECASE), "I have "),
    (re.compile("^我(?:其实|并|现在|已经|早就)*(?:不再|不|没有?)"), "我"),
    (re.compile("^我对(?P<x>.{1,10}?)(?:其实|并)?不过敏"), "我对\\g<x>过敏"),
)
_DENIES = re.compile(r"\b(?:not|no|never)\b|n['’]?t\b|[不没]", re.IGNORECASE)
_STILL = re.compile(r" (?:any ?more|after all|actually|at all)\b.*|了$", re.IGNORECASE)


#: A Chinese clause of fewer characters is kept with the one before it.
_SHORT_ZH = 7
_BEFORE_ZH = 16
#: What goes on with the clause before it: a time, a place, a name, what kind.
_FRAGMENT_ZH = re.compile(
    f"(?!.*[我你您])(?:(?:{patterns_zh.TIME})[^，。]{{0,8}}|在(?!.*(?:带|上班|工作|教|当|做|读|学))[^，。]{{2,8}}"
    f"|(?:名|就|小名|大名)?叫[^，。]{{1,5}}|从[^，。]{{1,10}}|是个?[^，。]{{1,8}}|[^，。]{{1,8}}的|[转做学读考住]"
    f"[^，。]{{1,7}}|{patterns_zh.CITY}[^，。]{{0,3}}|{patterns_zh.NUMBER}[^，。]{{1,6}}"
    f"|{patterns_zh.EVERY}[^，。]{{0,8}}|(?!.*[太很好真哈吧嗯累忙烦爽难笑了不没])[^，。]{{2,4}})$"
)
_REMEMBER_EN = re.compile(
    r"^(?:(?:and|also|oh|please|pls|but|so|just|always),? )*(?:remember|keep in mind|bear in mind|don't (?:ever"
    r" )?forget|make a note|take note"
    r"|note down)(?::|,)? (?:that |always )*(?P<object>(?:I|we|my|our)(?:'m|'ve|'re|'ll|'d)?\b (?!was\b|were\b|had\b"
    r"|said|told|asked|mentioned).+)",
    re.IGNORECASE,
)
_REMEMBER_ZH = re.compile(
    "^(?:还有|另外|对了|请|麻烦|你|一定要?|务必|千万|要|帮我|，)*(?:记住|记着|记好|别忘了|不要忘了|记一下"
    "|记下来)(?:了|啊|哈)?[，,：:]?(?P<object>我(?!说|刚|昨天|上次).{2,40}?)[。.!！]*$"
)
_REMEMBERED = Pattern("rule", "rule", _REMEMBER_EN, "{clause}", "clause", 0.9)
_KIN_FIRST = re.compile(
    rf"(?:my|our) {patterns_en.KIN_MODIFIER}{patterns_en.KIN}\b(?! and I\b)|我(?:的"
    rf"|家)?{patterns_zh.KIN.replace('<about>', '<kin>')}",
    re.IGNORECASE,
)
_GOES_ON_WITH = frozenset(("plan", "event", "relationship_status", "pet", "owns", "family"))
#: Of the turn before, in which a question may name whom 'he' means.
_ASKED_CHARS = 200
_ASKS = re.compile("[?？吗呢]|怎么样|如何")
#: Of these, a Chinese clause without a subject says too little by itself.
#: Beside these a clause may state more.
_SLIGHT = frozenset(("family:name", "family:surname", "name"))
_GOING_ON = frozenset(("habit", "medication", "work_terms"))


@dataclass(frozen=True, slots=True)
class _Found:
    pattern: Pattern
    about: str
    object: str
    chinese: bool
    clause: str = ""  # the clause in the third person, of a family
    name: str = ""  # whom the clause calls by name, where it was read as a relative or an animal


def of_slice(slice_: ConversationSlice) -> list[ExtractedFact]:
    """Return the facts of a slice in the order in which they were first stated, each once, and those that end"
    " in it."""
    return _read(slice_).facts()[:FACTS_MAX]


def _read(slice_: ConversationSlice) -> _Ledger:
    ledger = _Ledger(slice_.known_facts)
    kin = people.of_facts(slice_.known_facts)
    before = ""
    for turn in sentences.spoken(slice_.turns):
        asked, before = before, turn.text[-_ASKED_CHARS:]
        if sentences.is_assistant(turn):
            continue
        relatives = kin.setdefault(objects.slug(turn.author) if turn.author != "user" else "", people.People())
        if "?" in asked or not restated.opens(turn.text):
            relatives.begin_turn(asked, turn.author)
        whose = owners.Reader(relatives)
        for sentence in _parts_of(turn):
            answered = asked if sentence.position == 0 else ""
            unclear = restated.opens(sentence.text) and ledger.speaks_of_several(turn.author)
            if unclear:
                relatives.begin_turn(asked, turn.author)
            again = ledger.restated(sentence, answered, relatives)
            stating, cited = again or (sentence, ())
            found = [each for each in _of_sentence(stating, relatives) if not _is_of_moment(each, stating)]
            if again is None and not sentence.is_question and (found or not unclear):
                ledger.correct(sentence, whose, found, answered)
            ledger.note_names(sentence)
            for each in found:
                ledger.keep(_fact(each, turn, cited), each.pattern.topic.partition(":")[0], stating)
    return ledger


def _parts_of(turn: Turn) -> Iterator[Sentence]:
    """Yield the sentences of a turn, what puts the rest of its sentence right by itself."""
    for sentence in sentences.of_turn(turn):
        for text in restated.parts(sentence.text):
            yield sentence if text == sentence.text else replace(sentence, text=text)


#: Asks for a text, so that 'keep it short' beside it is about that text.
_REQUEST = re.compile(
    r"\b(?:need|write|draft|give me|do me|make me|help me (?:with|write)|translate|rewrite|compose)\b.{0,40}\b"
    r"(?:notes?|e-?mails?|letters?|texts?"
    r"|messages?|poems?|captions?|speech|toast|cards?|essays?|stor(?:y|ies)|reviews?|posts?|summary|reply|lines?"
    r"|paragraphs?)\b"
    r"|(?:帮|替|给)我?[^，。]{0,4}(?:写|编|拟|起草|翻译|润色|想)[^，。]{0,10}(?:信|邮件|文案|作文|稿|诗|短信"
    r"|消息|祝福|标题|故事|总结|检讨|简历|句)",
    re.IGNORECASE,
)
_LASTING = re.compile(
    r"\b(?:always|never|from now on|every|when(?:ever)? I|in future|any ?more|only)\b|以后|每次|一律|都|今后"
    r"|往后|永远|从现在",
    re.IGNORECASE,
)


#: What people who talk by name ask of each other for good.
_TO_ME_ZH = re.compile("(?:别|不要|不许|不准|莫|请|记住)[^，。]{0,3}[我俺咱]|[叫喊][我俺]")


def _is_of_moment(found: _Found, sentence: Sentence) -> bool:
    """Return whether a rule is about the text that its turn asks for, or chaff between people who talk by name."""
    if found.pattern.fact_type != "rule":
        return False
    if sentence.is_cjk and sentence.turn.author != "user":
        return _TO_ME_ZH.search(sentence.text) is None
    if _LASTING.search(sentence.text):
        return False
    return _REQUEST.search(sentence.turn.text) is not None


@dataclass(frozen=True, slots=True)
class Reading:
    """What a slice's sentences state, by turn and position.

    Attributes:
        stated: the sentences that state a fact.
        corrected: what later turns make of sentences: a text in which a time or a name was put right, or None if it
            was taken back.
    """

    stated: frozenset[tuple[int, int]]
    corrected: Mapping[tuple[int, int], str | None]


def read(slice_: ConversationSlice) -> Reading:
    """Return which sentences of a slice state facts, and which of them no longer stand."""
    ledger = _read(slice_)
    return Reading(frozenset(ledger.stating), ledger.corrected)


class _Ledger:
    """The facts that hold while a slice is read, what it states, and what it takes back."""

    def __init__(self, known: tuple[ExtractedFact, ...]) -> None:
        self._held: dict[tuple[str, str], Held] = {}
        self._values: dict[tuple[str, str], Mapping[str, Any]] = {}
        self._stated: dict[tuple[str, str], ExtractedFact] = {}
        self._said: dict[tuple[str, str], Sentence] = {}
        self._named: dict[str, tuple[int, int]] = {}  # by author, the last English sentence that names something
        #: What became of sentences, by turn and position: their text with another time or name, or None.
        self.corrected: dict[tuple[int, int], str | None] = {}
        self.stating: set[tuple[int, int]] = set()
        self._off: list[Held] = []  # what the turn that is read took back
        self._turn = 0
        for fact in known:
            value = fact.value if isinstance(fact.value, dict) else {"text": str(fact.value)}
            if isinstance(value.get("text"), str):
                self._hold(
                    fact.fact_type, fact.key, value, _topic_of(fact.key, str(value.get("subject", "user"))), None
                )

    def facts(self) -> list[ExtractedFact]:
        return list(self._stated.values())

    def keep(self, fact: ExtractedFact, topic: str, sentence: Sentence | None = None) -> None:
        """Keep a fact: a repeated one gains sources and a little confidence; a changed one replaces the earlier"
        " one."""
        identity = (fact.fact_type, fact.key)
        known = self._held.get(identity)
        if known is not None and topic in _POSTS and sentence is not None and _BESIDES.search(sentence.text):
            # Work beside other work is another fact.
            fact = replace(fact, key=_bounded(f"{fact.key}:{objects.slug(fact.value['text'])[:60]}"))
            identity = (fact.fact_type, fact.key)
        before = self._stated.get(identity)
        said = self._said.get(identity)
        if said is not None and before is not None and before.value["text"] != fact.value["text"]:
            self._outdate(said, None)
        if before is not None and said is sentence and said is not None and topic in _JOINED and not before.ended:
            fact = _joined(before, fact)
        if sentence is not None:
            self._said[identity] = sentence
            self.stating.add((sentence.turn.sequence_num, sentence.position))
        text = sentence.text if sentence is not None else fact.value["text"]
        for held in [each for each in self._held.values() if _gives_way(each, topic, fact, text)]:
            self._end(held, fact.source_seqs[-1])
        self._hold(fact.fact_type, fact.key, fact.value, topic, fact.source_seqs[-1])
        if before is None or before.ended or before.value != fact.value:
            self._stated[identity] = fact
            return
        self._stated[identity] = replace(
            before,
            source_seqs=tuple(sorted({*before.source_seqs, *fact.source_seqs})),
            confidence=round(min(0.99, max(before.confidence, fact.confidence) + 0.02), 2),
        )

    def speaks_of_several(self, author: str) -> bool:
        """Return whether the last turn of an author's that stated something speaks of more than one relative."""
        turn = max((said.turn.sequence_num for said in self._said.values() if said.turn.author == author), default=0)
        return (
            len(
                {
                    restated.person(self._held[identity])
                    for identity, said in self._said.items()
                    if said.turn.sequence_num == turn and identity in self._held
                    if said.turn.author == author and restated.is_of_another(self._held[identity])
                }
            )
            > 1
        )

    def note_names(self, sentence: Sentence) -> None:
        """Note that a sentence names something, which the next one may put right."""
        if not sentence.is_cjk and restated.named(sentence.text):
            self._named[sentence.turn.author] = (sentence.turn.sequence_num, sentence.position)

    def restated(
        self, sentence: Sentence, before: str, relatives: people.People
    ) -> tuple[Sentence, tuple[int, ...]] | None:
        """Return the last sentence that stated something with what this one puts right in it, and the turns cited.

        What it stated ends. None if this sentence does not merely put something right, or if what it makes of the
        other states less than that did.

        Args:
            before: the turn before, if the sentence may answer a question in it.
        """
        turn = sentence.turn
        if sentence.is_question:
            return None
        place = max(
            (
                (said.turn.sequence_num, said.position)
                for said in self._said.values()
                if said.turn.author == turn.author and said is not sentence
            ),
            default=None,
        )
        if place is None or turn.sequence_num - place[0] > _RESTATED_TURNS:
            return None
        stating = {
            identity: said
            for identity, said in self._said.items()
            if (said.turn.sequence_num, said.position) == place and said.turn.author == turn.author
        }
        said = next(iter(stating.values()))
        stated = [held for identity, held in self._held.items() if identity in stating]
        text = restated.in_place(
            sentence.text,
            said.text,
            stated,
            chinese=said.is_cjk,
            answers="?" in before or "？" in before,
            elsewhere=self._named.get(turn.author, place) > place,
        )
        if text is None:
            return None
        stating_again = replace(said, text=text)
        again: Counter[tuple[str, str]] = Counter(
            (one.pattern.fact_type, one.pattern.topic.partition(":")[0])
            for one in _of_sentence(stating_again, copy.deepcopy(relatives))
            if not _is_of_moment(one, stating_again)
        )
        if Counter((held.fact_type, held.topic) for held in stated) - again:
            return None
        cited = tuple(sorted({seq for held in stated for seq in self._cited(held)}))
        for held in stated:
            self._end(held, turn.sequence_num)
        if place != (turn.sequence_num, sentence.position):
            self._outdate(sentence, None)
        self._outdate(said, text)
        return stating_again, cited

    def correct(self, sentence: Sentence, whose: owners.Reader, found: list[_Found], before: str = "") -> None:
        """Apply what a sentence takes back or puts right; a plan that it states anew is removed from `found`.

        Args:
            whose: tells of whom each part of the sentence speaks: it ends only what is known of them.
            before: the turn before, if the sentence may answer a question in it.
        """
        if not self._held and not self._off:
            return
        if len(sentence.text) > clauses.SENTENCE_CHARS_MAX:
            for text in _PIECE.findall(sentence.text):
                self.correct(replace(sentence, text=text), whose, found, before)
            return
        turn = sentence.turn
        held = [
            each
            for each in self._held.values()
            if self._values[each.fact_type, each.key].get("subject", "user") == turn.author
        ]
        denied = list(self._negated(sentence, turn, found))
        for each in denied:
            self._end(each, turn.sequence_num)
        if self._turn != turn.sequence_num:
            self._turn, self._off = turn.sequence_num, []
        parts = whose.parts(sentence)
        changed = bool(denied)
        changeable: list[list[Held]] = []
        for part in parts:
            changeable.append(part.changeable(held))
            if self._fix(part, sentence, found, changeable[-1], before):
                changed = True
                held = [each for each in held if self._held.get((each.fact_type, each.key)) is each]
        if changed:
            return
        # Beside what is known of anybody a sentence is kept whole.
        beside = held if len(parts) == 1 else []
        if (
            not any(
                self._update(part.text, sentence, found, known, beside)
                for part, known in zip(parts, changeable, strict=True)
            )
            and len(parts) > 1
        ):
            self._update(sentence.text, sentence, found, [], held)

    def _fix(self, part: owners.Part, sentence: Sentence, found: list[_Found], held: list[Held], before: str) -> bool:
        """End and change what a part of a sentence takes back or puts right; return whether it does."""
        turn = sentence.turn
        spoken = part.text if sentence.is_cjk else clauses.spelled_out(part.text)
        fixes = corrections.of_sentence(
            spoken,
            [*part.changeable(self._off), *held],
            turn.sequence_num,
            chinese=sentence.is_cjk,
            states=bool(found),
            asked=before if _ASKS.search(before) else "",
        )
        for other in corrections.alike([fix.held for fix in fixes], held):
            self._end(other, turn.sequence_num)
        for fix in fixes:
            if fix.text is None:
                self._end(fix.held, turn.sequence_num)
                found[:] = [
                    one
                    for one in found
                    if one.pattern.topic != fix.held.topic
                    or one.pattern.topic not in ("plan", "event")
                    or (one.clause and not corrections.is_off(one.object))
                ]
                continue
            if corrections.is_only_moved(part.text, fix.held, chinese=sentence.is_cjk):
                found[:] = [one for one in found if not one.clause or one.pattern.topic != "plan"]
            restated = [
                one
                for one in found
                if one.pattern.topic == "plan"
                and corrections.content(_TIME.sub(" ", one.clause or one.object))
                & corrections.content(_TIME.sub(" ", fix.held.text))
            ]
            if restated:
                # It says the whole of it again, in other words: the former words end.
                if all(_key(one, turn.author, "") != fix.held.key for one in restated):
                    self._end(fix.held, turn.sequence_num)
                continue
            identity = (fix.held.fact_type, fix.held.key)
            value = {**self._values[identity], "text": fix.text}
            said = self._said.pop(identity, None)
            if said is not None:
                text = corrections.carry_over(said.text, fix)
                self._outdate(said, text)
                if text is not None and not found:
                    self._outdate(sentence, None)  # it says nothing else
            if "said_on" in value:
                value["said_on"] = turn.occurred_at.date().isoformat()
            value.pop("when", None)
            if when := _when(fix.text, "plan", turn):
                value["when"] = when
            fact = ExtractedFact(
                fact_type=fix.held.fact_type,  # type: ignore[arg-type]
                key=fix.held.key,
                value=value,
                confidence=0.85,
                source_seqs=tuple(sorted({*self._cited(fix.held), turn.sequence_num})),
            )
            self.keep(fact, fix.held.topic)
        return bool(fixes)

    def _update(self, text: str, sentence: Sentence, found: list[_Found], held: list[Held], beside: list[Held]) -> bool:
        """Put a text in the place of a known fact that it speaks of as changed, or end that if it is stated anew.

        Args:
            held: whose place it may take.
            beside: what it may be kept beside, if it does not speak of it as changed.

        Returns:
            Whether it speaks of a known fact so.
        """
        chinese, turn = sentence.is_cjk, sentence.turn
        said = list(clauses.of_sentence(sentence))
        if not said:
            return False
        text = text if chinese else clauses.spelled_out(text)
        update = updates.of_sentence(text, held, beside, turn.sequence_num, chinese=chinese)
        if update is None:
            return False
        known = update.held
        if any(_key(one, turn.author, "") == known.key for one in found):
            return True
        if known.topic == "rule" and update.replaces:
            found[:] = [one for one in found if one.pattern.fact_type != "rule"]
        if found:
            if (
                update.replaces
                and known.turn != turn.sequence_num
                and all(_key(one, turn.author, "") != known.key for one in found)
                and any(one.pattern.topic.partition(":")[0] == known.topic for one in found)
            ):
                self._end(known, turn.sequence_num)
            return True
        if not update.replaces and turn.author != "user":
            return True  # people who talk by name speak of everybody they know
        # Of several parts, the one that changes it says too little by itself.
        told = update.text if update.text != text else sentence.text if chinese else clauses.spelled_out(sentence.text)
        stated = families.statement(clauses.whole(told, chinese=chinese), chinese=chinese, rule=known.topic == "rule")
        if stated is None:
            return True
        value = {**self._values[known.fact_type, known.key], "text": stated}
        value.pop("when", None)
        if "said_on" in value:
            value["said_on"] = turn.occurred_at.date().isoformat()
        if when := _when(stated, known.topic, turn):
            value["when"] = when
        fact = ExtractedFact(
            fact_type=known.fact_type,  # type: ignore[arg-type]
            key=known.key if update.replaces else _bounded(f"{known.key}:{objects.slug(stated)[:60]}"),
            value=value,
            confidence=0.8 if update.replaces else 0.75,
            source_seqs=(turn.sequence_num,),
        )
        self.keep(fact, known.topic, sentence)
        return True

    def _outdate(self, sentence: Sentence, text: str | None) -> None:
        self.corrected[sentence.turn.sequence_num, sentence.position] = text

    def _cited(self, held: Held) -> tuple[int, ...]:
        stated = self._stated.get((held.fact_type, held.key))
        return stated.source_seqs if stated is not None else ()

    def _negated(self, sentence: Sentence, turn: Turn, found: list[_Found]) -> Iterator[Held]:
        """Yield what a sentence denies in the words of its statement: 'I'm not allergic to nuts'."""
        if not self._held or not _DENIES.search(sentence.text):
            return
        stated_anew = {_key(one, turn.author, "") for one in found}
        for clause in clauses.of_sentence(sentence):
            for negation, positive in _NEGATED:
                if not negation.match(clause):
                    continue
                stated = _STILL.sub("", negation.sub(positive, clause, count=1))
                stating = list(_of_clause(stated, chinese=sentence.is_cjk)) or list(
                    _of_family(
                        stated, chinese=sentence.is_cjk, speaks=True, before="", goes_on=False, between_names=False
                    )
                )
                for one in stating:
                    fact = _fact(one, turn)
                    held = self._held.get((fact.fact_type, fact.key))
                    if (
                        held is not None
                        and held.key not in stated_anew
                        and (
                            not one.pattern.single
                            or held.text == fact.value["text"]
                            or corrections.content(held.text) & corrections.content(one.object)
                        )
                    ):
                        yield held
                break

    def _hold(self, fact_type: str, key: str, value: Mapping[str, Any], topic: str, turn: int | None) -> None:
        identity = (fact_type, key)
        self._held.pop(identity, None)
        order = len(self._held) if not self._held else max(each.order for each in self._held.values()) + 1
        self._held[identity] = Held(fact_type, key, value["text"], topic, order, turn)
        self._values[identity] = value

    def _end(self, held: Held, seq: int) -> None:
        identity = (held.fact_type, held.key)
        value = self._values[identity]
        if (said := self._said.pop(identity, None)) is not None and said.turn.sequence_num != seq:
            self._outdate(said, None)
        self._held.pop(identity, None)
        if held not in self._off:
            self._off.append(held)
        self._stated.pop(identity, None)
        self._stated[identity] = ExtractedFact(
            fact_type=held.fact_type,  # type: ignore[arg-type]
            key=held.key,
            value=dict(value),
            confidence=0.9,
            source_seqs=(seq,),
            ended=True,
        )


#: A rule that says when, and not yet what.
_OPEN_RULE_ZH = re.compile(
    "(?:时|时候|的话)$|^(?:以后|今后|往后)?你?(?:[给帮跟对和](?:我|本人))?[^，。]{0,2}(?:讲|说|写|回答|推荐|算|答)(?:药|账|题|事|话|东西)?$"
)
#: Of these, two clauses of one sentence are one value.
_JOINED = frozenset(("home", "occupation"))
#: What a person does for a living, in whichever words: a new one ends the former one.
_WORK = frozenset(
    ("employer", "occupation", "business", "new_job", "field_of_work", "work_change", "work_terms", "employment")
)
#: What is somebody's own: it gives way only to what is said of the same person.
_OF_ONE = _WORK | _DATED_TOPICS
_POSTS = frozenset(("employer", "occupation", "business", "new_job", "employment"))
#: Between a statement and what merely puts it right: an answer.
_RESTATED_TURNS = 2
#: Of a sentence that is too long to be compared at once.
_PIECE = re.compile(rf".{{1,{clauses.SENTENCE_CHARS_MAX - 1}}}(?:[,，;；、\s]|$)", re.DOTALL)
#: Work that somebody has beside other work.
_BESIDES = re.compile(
    r"\b(?:also|as well|on the side|side (?:job|gig|hustle)|weekends?|besides|second job"
    r"|volunteer\w*)\b"
    r"|兼职|副业|业余|周末|同时|顺便|也|还在",
    re.IGNORECASE,
)
_LEAVING = re.compile(
    r"辞职|离职|找工作|换工作|跳槽|\b(?:quit|leave (?:my|the) job|new job|find a job|job hunting|apply)\b",
    re.IGNORECASE,
)
_NEW_WORK = re.compile(
    r"\b(?:now|start(?:s|ed|ing)?|new|promoted|made me|got the|left|quit|became|joined|retired?|switched|self-employed"
    r"|freelance|no longer|g[ai]ve up|going|since|handed)\b|现在|入职|换|转岗|跳槽|报到|去了?一家|开了|辞|升|单干"
    r"|合伙|不[送跑做干教]|进了|开始|退休了",
    re.IGNORECASE,
)
_NEW_JOB = re.compile(
    r"\bstart(?:s|ed|ing)? (?:a|my|their|the) new (?:job|role|position|post)\b|\bgot (?:a|the) (?:new )?job\b",
    re.IGNORECASE,
)
_NEW_SUBJECT = re.compile(
    r"转专业(?:了|成功)|转到|转去|改学|换专业|\b(?:switched|changed|transferred)\b.*\b(?:to|major|course|school)\b",
    re.IGNORECASE,
)
#: Words that rules about different things share.
_SAID_OF_RULES = corrections.content(
    "answer answers reply replies respond keep please use call write give speak message messages always never short"
    " sentence sentences words text rule me them 以后 回答 回复 说话 本人 不要 给本 推荐 提醒 时候 写上 一点"
    " 简短 叫本 跟本"
)
_LANGUAGE = (
    r"(?:English|French|German|Italian|Spanish|Portuguese|Japanese|Chinese|Mandarin|Cantonese|Korean|Arabic|Russian|Polish"
    r"|Dutch|Swedish|Danish|Norwegian|Finnish|Greek|Turkish|Hindi|Vietnamese|Thai|Czech|Hungarian|Ukrainian|Hebrew)"
)
#: One language holds for all that is said.
_IN_LANGUAGE = re.compile(
    rf"\b(?:answer|reply|respond|speak|talk|write|chat)(?:ing|s)?(?: (?:to )?(?:me|them|us|back|only|always"
    rf"|everything))* (?:in )?{_LANGUAGE}\b|\b(?:use|switch(?: back)? to) (?:only )?{_LANGUAGE}\b"
    r"|[用说讲换成以](?:[英日法德韩俄]|西班牙|意大利)[文语]|[用说讲换成以](?:中文|汉语|普通话|国语|粤语|广东话)",
    re.IGNORECASE,
)
_CONDITION = re.compile(
    r"\b(?:when|whenever|if|unless|about|for|with|to my|during|except)\b|的时候|如果|要是|除了|[和跟对给](?!我|本人)",
    re.IGNORECASE,
)
_GRADED = frozenset(("school", "studies", "occupation"))
_GRADE = re.compile(
    r"[初高大研博][一二三四五]|\b(?:freshman|sophomore|junior|senior|(?:first|second|third|fourth|final) year"
    r"|year \d+|\d+th"
    r" grade)\b",
    re.IGNORECASE,
)
_SUBJECT = re.compile(
    r"学的|专业|学院|[大研博][一二三四]|\b(?:studies|studying|major(?:ing)?|degree|course|student|sophomore"
    r"|freshman)\b",
    re.IGNORECASE,
)
_COUPLE = re.compile(r":(?:girlfriend|boyfriend|partner|fianc\w+|husband|wife)(?::|$)|男朋友|女朋友|男友|女友")
_PARTED = re.compile(
    r"\b(?:split|broke|broken|parted|separated|divorced|move out|dumped|left them|(?:are|is|'re) (?:done|over"
    r"|through|history)"
    r"|together|called it|ended|single)\b|分手|分了|离婚|掰了",
    re.IGNORECASE,
)
_SWITCHED = re.compile(r"\b(?:switched|changed|swapped|instead|moved (?:me )?to|now)\b|改|换", re.IGNORECASE)
_DOSE = re.compile(r"\b(?:takes?|on)\b|吃[^，。]{0,4}[片粒颗]|药")
_LOST = re.compile(
    r"\b(?:lost|died|passed away|put (?:him|her|it) down|gone|gave .* away)\b|走了|死了|没了|去世|送给|送人|走丢"
    r"|走失|跑丢|丢了|安乐",
    re.IGNORECASE,
)
_BORN = re.compile(
    r"\bborn\b|\bdelivered\b.*\b(?:boy|girl|baby|twins|son|daughter)\b|\bgave birth\b|\bhad (?:our|my|a) (?:\w+ "
    r")?(?:baby|son|daughter|boy|girl)|\bis here\b|生了|出生|号生",
    re.IGNORECASE,
)
_EXPECTED = re.compile(
    r"\b(?:pregnant|expecting|carrying|due|having (?:a|twins))\b|怀孕|怀上|怀了|怀二胎|预产期|要当[爸妈]|月.{0,3}生$",
    re.IGNORECASE,
)
_WORKPLACE = re.compile(r" (?:at|for|in|on) |在.+(?:做|当|工作)")


def _gives_way(held: Held, topic: str, fact: ExtractedFact, sentence: str) -> bool:
    """Return whether a fact under another key ends with a new one: a pregnancy with a birth, a job with the next.

    Args:
        sentence: what states the new fact.
    """
    text = fact.value["text"]
    again = held.turn == fact.source_seqs[-1] and not (topic == "family" and _NO_LONGER.search(held.text))
    if held.key == fact.key or again or _owner(held.key) != _owner(fact.key):
        return False
    if _BORN.search(text):
        return bool(_EXPECTED.search(held.text))
    if {topic, held.topic} <= _OF_ONE and owners.named_in(held.text) != owners.named_in(text):
        return False  # 'my wedding', 'my sister's wedding'
    if topic in ("event", "plan") and held.topic in _WORK and held.topic != "work_change" and _NEW_JOB.search(text):
        return True
    if topic in _WORK and held.topic in _WORK:
        if _BESIDES.search(sentence):
            return False
        if topic in _POSTS and held.topic in _WORK and held.turn is None and not held.about & corrections.content(text):
            return True
        if held.topic != topic and _WORKPLACE.search(held.text) and topic in ("employer", "business", "occupation"):
            return True
        if held.topic == "occupation" and topic != "occupation" and not _WORKPLACE.search(held.text):
            return bool(held.about & corrections.content(text))
        return bool(_NEW_WORK.search(sentence))
    if topic in _WORK and held.topic == "plan" and _NEW_WORK.search(sentence):
        return bool(_LEAVING.search(held.text))
    if topic == "rule" and held.topic == "rule":
        if all(_IN_LANGUAGE.search(each) and not _CONDITION.search(each) for each in (held.text, text)):
            return True
        return bool((held.about & corrections.content(text)) - _SAID_OF_RULES)
    if (
        topic in _GRADED
        and held.topic in _GRADED
        and (was := _GRADE.search(held.text))
        and (now := _GRADE.search(text))
    ):
        return was[0] != now[0]
    if topic in ("studies", "event") and held.topic == "studies" and _NEW_SUBJECT.search(sentence):
        return bool(_SUBJECT.search(held.text))
    if topic == "relationship_status" and held.topic in ("relationship_status", "plan") and _PARTED.search(text):
        return held.topic != "plan" or bool(
            {word.lower() for word in owners.NAMED_EN.findall(held.text)} & {word.lower() for word in text.split()}
        )
    if topic == "relationship_status" and held.topic == "family":
        named = corrections.content(held.text) & corrections.content(text)
        return _COUPLE.search(held.key) is not None and (bool(named) or _PARTED.search(text) is not None)
    if topic == "medication" and held.topic in ("medication", "habit"):
        return bool(_SWITCHED.search(sentence)) and (held.topic == "medication" or bool(_DOSE.search(held.text)))
    if topic in ("family", "health") and held.topic in ("family", "health"):
        former, stated = slots.of_fact(held.topic, held.key, held.text), slots.of_fact(topic, fact.key, text)
        return former is not None and stated is not None and slots.same(former, stated, _SEVERAL)
    if held.topic in ("plan", "goal") and topic not in ("plan", "goal", "rule") and _is_done(held, text):
        return True
    if topic == "home" and held.topic in ("plan", "goal"):
        if _MOVE.search(held.text) is None or _AHEAD.search(text):
            return False
        return _MOVED.search(sentence) is not None or bool(_matter(held.text) & _matter(text))
    if topic in ("plan", "event") and held.topic in ("plan", "goal", "event") and held.turn != fact.source_seqs[-1]:
        return _is_redated(held, text)
    if (held.topic == "pet" or held.key.endswith(":called")) and _LOST.search(text):
        return bool(corrections.content(held.text) & corrections.content(text))
    return False


_DONE = re.compile(
    r"\b(?:passed|failed|did|done|had|finished|completed|got|went|ran|won|started|joined|booked|bought|sold|moved|married|came)\b"
    r"|[过完到成好]了|考上|了$|了，|拿到|通过",
    re.IGNORECASE,
)


def _is_done(held: Held, text: str) -> bool:
    """Return whether a text states that what was planned has come about: 'passed my test' after 'my test is on…'."""
    if not _DONE.search(text) or _AHEAD.search(text):
        return False
    matter = _matter(held.text)
    least = _REDATED_ZH_MIN if words.CJK_CHARACTER.search(text) else min(2, max(len(matter), 1))
    return len(matter & _matter(text)) >= least


def _matter(text: str) -> frozenset[str]:
    """Return the words that say what a plan is about: neither its time nor words of every plan."""
    found = corrections.content(_TIME.sub(" ", text)) - updates.GENERIC
    return frozenset(term for term in found if not term[:1].isdigit() and term[:1] != "=")


_NO_LONGER = re.compile(r"\b(?:no longer|n't .*any ?more|left|quit)\b|不[^，。]{1,8}了$|辞", re.IGNORECASE)
_MOVE = re.compile(r"\b(?:mov(?:e|es|ing)|relocat\w+|buy(?:ing)? (?:a|the) (?:house|flat|place))\b|搬", re.IGNORECASE)
_MOVED = re.compile(r"\bmoved\b|搬", re.IGNORECASE)
_RETURNS = re.compile(r"\b(?:back|return\w*|home)\b|回", re.IGNORECASE)
_REDATED_ZH_MIN = 2


def _is_redated(held: Held, text: str) -> bool:
    """Return whether a text states what is known for another time: one matter has one date."""
    chinese = words.CJK_CHARACTER.search(text) is not None
    was, now = (corrections.find_time(each, chinese=chinese) for each in (held.text, text))
    if was is None or now is None or was == now or bool(_RETURNS.search(held.text)) != bool(_RETURNS.search(text)):
        return False
    spoken = {term for each in (was, now) for term in corrections.content(each)}
    common = (corrections.content(held.text) & corrections.content(text)) - spoken - updates.GENERIC
    return len([term for term in common if not term[:1].isdigit()]) >= _REDATED_ZH_MIN


def _joined(before: ExtractedFact, fact: ExtractedFact) -> ExtractedFact:
    """Return what one sentence says of one thing in two clauses: '搬到苏州，住园区'."""
    first, second = before.value["text"], fact.value["text"]
    if second in first or first in second:
        return before if second in first else fact
    mark = "，" if words.CJK_CHARACTER.search(first) else "; "
    return replace(fact, value={**fact.value, "text": f"{first}{mark}{second}"})


def _owner(key: str) -> str:
    first = key.partition(":")[0]
    return "" if first in _TOPICS else first


_TOPICS = frozenset(pattern.topic.partition(":")[0] for pattern in (*patterns_en_life.PATTERNS, *patterns_zh.PATTERNS))


def _topic_of(key: str, author: str) -> str:
    first, _, rest = key.partition(":")
    return rest.partition(":")[0] if author != "user" and first == objects.slug(author) else first


def _of_sentence(sentence: Sentence, relatives: people.People) -> Iterator[_Found]:
    """Yield what a sentence states; the names that it gives are known from then on."""
    chinese, introduced = sentence.is_cjk, ""
    if chinese:
        sentence = relatives.continued(sentence)
    if sentence.is_question:
        yield from _asked(sentence)
    elif not chinese and (match := _INTRODUCED_EN.search(sentence.text.replace("’", "'"))):
        sentence = yield from _introduced(sentence, match, relatives)
        introduced = match["about"].lower()
    for found in _of_clauses(sentence, relatives):
        if introduced and found.pattern.topic == "family" and found.object == introduced:
            continue
        if chinese or found.pattern.shape == "clause":
            relatives.learn(found.clause or _statement(found))
        yield found if chinese or found.pattern.topic != "rule" else _on_condition(found, sentence)
    yield from _remembered(sentence)
    if not chinese and not sentence.is_question:
        yield from _parting(sentence)


#: Who somebody's relative is, and their work: 'husband called Jonas, paramedic'.
_INTRODUCED_EN = re.compile(
    rf"(?:^|[,;.&+] |\b(?:[Mm]y|[Oo]ur|an?|and|have|got|with) ){patterns_en.KIN_MODIFIER}"
    rf"(?P<who>{patterns_en.KIN}(?:'s| is)?(?:,? (?:called|named))? \(?(?P<name>{patterns_en.NAME})"
    rf"(?:, | \()(?:who's |who is )?(?:an? )?"
    rf"(?P<object>{patterns_en.OCCUPATION}))(?=\)|$|[,.;!]| and\b)"
)
_KIN_CALLED = Pattern("family:name", "profile", _INTRODUCED_EN, "has a {about} called {object}", "name", 0.9)
_KIN_WORKS = Pattern("family:work", "profile", _INTRODUCED_EN, "has a {about} who is {a_object}", "role", 0.85)


def _introduced(
    sentence: Sentence, match: re.Match[str], relatives: people.People
) -> Generator[_Found, None, Sentence]:
    """Yield a relative's name and work; return the sentence without both."""
    about, name = match["about"].lower(), match["name"]
    for pattern, what in ((_KIN_CALLED, name), (_KIN_WORKS, match["object"])):
        yield _Found(pattern=pattern, about=about, object=what, chinese=False)
    relatives.note("family:name", about, name)
    before, after = sentence.text[: match.start("who")], sentence.text[match.end("who") :].lstrip(")")
    listed = re.fullmatch("(.*?)[,;.&+ ]+", before)  # 'two kids, husband called …'
    bare = listed is not None and match[0][0] in ",;.&+"
    return replace(sentence, text=f"{listed[1]}{after}" if listed and bare else f"{before}{about}{after}")


def _of_clauses(sentence: Sentence, relatives: people.People) -> Iterator[_Found]:
    chinese = sentence.is_cjk
    carried = ""
    said_clauses = list(clauses.of_sentence(sentence))
    if not said_clauses:
        yield from _ruled(sentence)
        relatives.mention(sentence)
    continued = _continued(said_clauses, sentence.text) if chinese else {}
    consumed = -1
    names, read = set[str](), list[str]()
    speaks = True
    for place, clause in enumerate(said_clauses):
        read.append(clause)
        resolved = clause if chinese else relatives.resolve(clause)
        name = relatives.named_at(clause)
        if chinese:
            speaks = bool(name) or families.is_of_speaker(clause, speaks=speaks)
        named: set[str] = set()
        known = False
        goes_on = chinese and _goes_on(clause, sentence.text, read)
        for stated in _of_clause(resolved, chinese=chinese, carried=carried):
            found = _given(stated, resolved)
            known = known or found.pattern.topic not in _SLIGHT
            if goes_on and found.pattern.topic == "habit" and found.object in clause:
                before = _said_before(read)
                found = replace(found, object=f"{families.statement(before, chinese=True) or before}，{found.object}")
            if place in continued and found.pattern.topic in _GOES_ON_WITH:
                consumed = place + continued[place].count("，")
                found = replace(found, object=found.object + continued[place])
            if found.pattern.topic in ("preference", "member", "studies", "activity", "pet"):
                carried = found.object
            if found.pattern.topic.startswith(("family", "pet")):
                named.add(found.about)
            relatives.note(found.pattern.topic, found.about, found.object)
            if found.pattern.topic == "family:name":
                names.add(found.about)
            yield replace(found, name=name)
        if not known and place > consumed:
            for stated in _of_family(
                resolved,
                chinese=chinese,
                speaks=speaks,
                before=_said_before(read),
                goes_on=goes_on,
                between_names=sentence.turn.author != "user" or bool(name),
            ):
                if named and stated.pattern.topic.startswith(("family", "pet")):
                    continue
                whole, end = _completed(stated, place, said_clauses, continued)
                if whole is None:
                    continue
                found, consumed = _stayed(whole, resolved), max(consumed, end)
                named.add(found.about or found.object)
                known = True
                yield replace(found, name=name)
            if chinese and name and not known and not named:
                yield from _of_known(name, clause)
        if not chinese:
            for found in _mentions(clause):
                if found.object not in named | names and not (found.pattern.topic == "pet" and named):
                    yield found
    yield from _named_kin(sentence, read, names, relatives)


#: What is bought for somebody else is theirs.
_GIFT_EN = re.compile(
    r"\b(?:gifts?|presents?|surprise) for\b|\bas an? (?:[a-z]+ )?(?:gift|present|surprise)\b"
    r"|\bto give (?:to )?(?:my|our)\b"
    rf"|\bfor (?:my|our) {patterns_en.KIN_MODIFIER}(?:{people.WHO}|friend|colleague|neighbou?r|teacher)s?\b"
    rf"(?!'s? (?:room|house|flat|place|wedding)| and (?:me|I)\b)",
    re.IGNORECASE,
)
_BOUGHT_FOR = Pattern("event", "custom", _GIFT_EN, "{clause}", "clause", 0.8)


#: Where somebody is for a while is not their home.
_STAY_EN = re.compile(
    rf"^(?:I'm|I am|we're|we are) (?:back )?in\b.*(?:{dates.RANGE_EN}|\b(?:until|till)\b|\bthis week(?:end)?\b"
    r"|\b(?:for|over) (?:the|an?|two|three|four|five|six|\d+|Christmas|Easter|New Year)\b)",
    re.IGNORECASE,
)
_STAYS = Pattern("plan", "custom", _STAY_EN, "{clause}", "clause", 0.8)


def _stayed(found: _Found, clause: str) -> _Found:
    """Return what a clause states as a plan if it says where the speaker is for a while."""
    if found.pattern.topic != "home" or found.chinese or not _STAY_EN.search(clause):
        return found
    stated = families.statement(clause, chinese=False)
    return found if stated is None else replace(found, pattern=_STAYS, object=stated, clause=stated)


def _given(found: _Found, clause: str) -> _Found:
    """Return what a clause states as an event if it bought something for somebody else: the speaker has it not."""
    if found.pattern.topic != "owns" or found.chinese or not _GIFT_EN.search(clause):
        return found
    stated = families.statement(clause, chinese=False)
    return found if stated is None else replace(found, pattern=_BOUGHT_FOR, object=stated, clause=stated)


def _completed(found: _Found, place: int, said: list[str], continued: Mapping[int, str]) -> tuple[_Found | None, int]:
    """Return what a family found in a clause with the clauses that go on with it, and the place of the last one.

    A rule that says only when it applies is None if nothing follows.
    """
    end = -1
    if place in continued:
        end = place + continued[place].count("，")
        found = replace(found, clause=found.clause + continued[place])
    if found.chinese and found.pattern.topic == "rule" and _OPEN_RULE_ZH.search(found.object):
        if place + 1 == len(said):
            return None, end
        end = place + 1
        found = replace(found, object=f"{found.object}，{said[end]}")
    return found, end


def _named_kin(sentence: Sentence, read: list[str], names: set[str], relatives: people.People) -> Iterator[_Found]:
    """Yield the names of relatives that a sentence mentions beside something else, but for those in `names`."""
    chinese = sentence.is_cjk
    said = f"{sentence.text} {' '.join(read)}" if chinese else sentence.text
    pattern = patterns_zh.NAMED_KIN if chinese else patterns_en_life.NAMED_KIN
    for match in pattern.regex.finditer(said.replace("’", "'")):
        for found in _objects(pattern, match, chinese=chinese):
            if found.about not in names:
                names.add(found.about)
                relatives.note(found.pattern.topic, found.about, found.object)
                yield found


def _continued(said: list[str], sentence: str) -> dict[int, str]:
    """Return by place what the fragments after a Chinese clause add to it: '我有演出，5月2号，在三坊七巷'."""
    added: dict[int, str] = {}
    start = 0
    for place in range(1, len(said)):
        spoken = said[place]
        while spoken and spoken not in sentence:
            spoken = spoken[1:]
        if spoken and _FRAGMENT_ZH.match(spoken) and len(added.get(start, "")) < _BEFORE_ZH:
            added[start] = f"{added.get(start, '')}，{spoken}"
        else:
            start = place
    return added


def _ruled(sentence: Sentence) -> Iterator[_Found]:
    """Yield the lasting wishes in a sentence that states nothing: 'Tell me if I'm wrong, no sugar coating.'"""
    chinese = sentence.is_cjk
    table = families_zh.RULES if chinese else families_en.RULES
    text = sentence.text.rstrip("?？!！。. ").replace("’", "'")
    pieces = re.split("[，,；;]", text) if chinese else [clauses.without_lead(text), *re.split(r"[,;]\s+", text)[1:]]
    for piece in pieces:
        spoken = piece.strip()
        for pattern, match in families.matching(table, spoken, chinese=chinese, speaks=True, between_names=False):
            yield _Found(
                pattern=pattern, about="", object=match["object"].strip(" ,，。"), chinese=chinese, clause=spoken
            )
            return


def _remembered(sentence: Sentence) -> Iterator[_Found]:
    """Yield what a speaker asks to be remembered: it has its place in every window, as rules have."""
    chinese = sentence.is_cjk
    match = (_REMEMBER_ZH if chinese else _REMEMBER_EN).match(sentence.text.replace("’", "'"))
    if match is None or sentence.is_question:
        return
    stated = families.statement(match["object"], chinese=chinese)
    if stated is not None:
        yield _Found(pattern=_REMEMBERED, about="", object=stated, chinese=chinese, clause=stated)


#: Two people who are no longer a couple: 'Ada and I parted in May', 'me and Tom are done', 'Dev's history'.
_PARTING = re.compile(
    rf"(?:^|[,.;!]\s+|\b(?:and|so|but|also|that|because) )(?P<said>(?:(?:{patterns_en.NAME}|[Mm]y (?:boy|girl"
    rf")friend|he|she|[a-z]+) and (?:I|me)"
    rf"|(?:me|I) and (?:{patterns_en.NAME}|my (?:boy|girl)friend|him|her|[a-z]+)|we)(?:'ve|'re| have| are| were"
    rf")?(?: (?:have|finally|sort"
    r" of|just|actually|recently|both))* (?:parted(?: ways)?|done|over|through|finished|history|split(?: up)?|broke up"
    r"|broken up|separated|called it (?:a day|quits)|no longer together|not together|went our separate ways"
    r"|divorced)(?! by)\b"
    rf"[^,.;!?]*|(?:{patterns_en.NAME}|my (?:boy|girl)friend|my (?:husband|wife|partner)) (?:has |just )?"
    rf"(?:dumped|left) me\b[^,.;!?]*"
    r"|(?:I|I've) (?:\w+ )?(?:dumped|left|broke up with|broken up with|split (?:up )?with|finished with|ended "
    r"(?:it|things) with)"
    rf" (?:{patterns_en.NAME}|(?:him|her)(?=$|[ ,.])|my (?:boy|girl)friend|my (?:husband|wife|partner))[^,.;!?]*"
    r"|(?:I'm|I am) (?:single|on my own) (?:again|now)\b[^,.;!?]*)"
)
_NO_COUPLE = re.compile(
    r"\bwe(?:'re| are)? (?:done|over|through|finished)\b|\bdone (?:with|for|at)\b|\b(?:for (?:lunch|today)|the"
    r" [a-z]+ and)",
    re.I,
)
_PARTED_KEY = Pattern("relationship_status", "profile", _PARTING, "{clause}", "clause", 0.9, single=True)


def _parting(sentence: Sentence) -> Iterator[_Found]:
    """Yield that a couple parted, in the words of the sentence."""
    text = " ".join(sentence.text.replace("’", "'").split())
    match = _PARTING.search(text)
    if match is None or _NO_COUPLE.search(match["said"]) or clauses.is_unreal(text):
        return
    stated = families.statement(match["said"], chinese=False)
    if stated is not None:
        yield _Found(pattern=_PARTED_KEY, about="", object=stated, chinese=False, clause=stated)


#: When a rule is to apply: 'When I write after midnight, keep it short.'
_CONDITION_EN = re.compile(
    r"^(?:and |also |but |so )?(?P<when>(?:when(?:ever)?|after|before|until|during|in|on|at|for) [^,.;]{3,60}), "
    r"(?=please|pls"
    r"|always|never|don't|do not|just|only|keep|use|give|write|answer|speak|talk|call|be|avoid|make|stick)",
    re.IGNORECASE,
)


def _on_condition(found: _Found, sentence: Sentence) -> _Found:
    """Return a rule with the condition that its sentence begins with."""
    match = _CONDITION_EN.match(" ".join(sentence.text.replace("’", "'").split()))
    if match is None or match["when"].lower() in found.object.lower():
        return found
    return replace(found, object=f"{found.object} {match['when'][0].lower()}{match['when'][1:]}")


_KNOWN_ONE = Pattern("family:state", "profile", _REMEMBER_ZH, "{clause}", "clause", 0.8)
#: What a short statement about somebody known may be about.
_STATE_ZH = re.compile(
    "了$|了[^，。]{1,10}$|[在上读念学去来考进入当做开得病走搬转住生教改回][^，。]{2,}|结婚|订婚|离婚|分手|毕业"
    "|工作|退休|放[^，。]*养"
)


def _of_known(name: str, clause: str) -> Iterator[_Found]:
    """Yield what a clause says of a person or an animal whose name is known: '妞妞上了实验小学'."""
    said = families.statement(clause, chinese=True)
    if said is not None and len(said) >= len(name) + 4 and _STATE_ZH.search(said) and not _OPINION_ZH.search(said):
        yield _Found(pattern=_KNOWN_ONE, about=name, object=said.removeprefix(name)[:6], chinese=True, clause=said)


_OPINION_ZH = re.compile("[说问讲]|觉得|真|太|好[^学考上转友]|笑|哭|睡|吃[^素]|看起来|今天|等|呗|哈")


def _said_before(read: list[str]) -> str:
    """Return the clause before the last one that was read, if it is short."""
    return read[-2] if len(read) > 1 and len(read[-2]) <= _BEFORE_ZH else ""


def _goes_on(clause: str, sentence: str, read: list[str]) -> bool:
    """Return whether a Chinese clause continues the one before it: no subject of its own was said."""
    return bool(_said_before(read)) and not (clause.startswith("我") and clause in sentence)


def _asked(sentence: Sentence) -> Iterator[_Found]:
    """Yield the lasting wishes that are put as a question: 'Could you always answer in French?'"""
    if sentence.is_cjk:
        return
    clause = clauses.without_lead(sentence.text.rstrip("?？! ")).replace("’", "'")
    for pattern in patterns_en_life.ASKED:
        if match := pattern.regex.match(clause):
            yield from _objects(pattern, match, chinese=False)
            return


def _of_clause(clause: str, *, chinese: bool, carried: str = "") -> Iterator[_Found]:
    topics: set[str] = set()
    for pattern in patterns_zh.PATTERNS if chinese else patterns_en_life.PATTERNS:
        if topics and not (pattern.topic in _COMPANIONS and topics <= _COMPANIONS and pattern.topic not in topics):
            continue
        match = pattern.regex.match(clause)
        for found in _objects(pattern, match, chinese=chinese, carried=carried) if match else ():
            topics.add(pattern.topic)
            yield found


def _of_family(
    clause: str, *, chinese: bool, speaks: bool, before: str, goes_on: bool, between_names: bool
) -> Iterator[_Found]:
    """Yield the statement of the first family that a clause belongs to; a short Chinese clause continues another."""
    table = families_zh.FAMILIES if chinese else families_en.FAMILIES
    for pattern, match in families.matching(table, clause, chinese=chinese, speaks=speaks, between_names=between_names):
        stated = families.statement(clause, chinese=chinese, rule=pattern.topic == "rule")
        if stated is not None and not chinese and pattern.topic == "plan" and _is_past_of_another(clause):
            continue
        if stated is not None:
            if (
                chinese
                and pattern.topic != "rule"
                and (len(stated) < _SHORT_ZH or (goes_on and pattern.topic in _GOING_ON))
                and not corrections.is_off(before)
            ):
                stated = "，".join(filter(None, (families.statement(before, chinese=True), stated)))
            groups = match.groupdict()
            about = (groups.get("about") or "").strip()
            topic = pattern
            if (kin := _KIN_FIRST.match(clause)) and not pattern.topic.startswith(("family", "pet", "rule", "plan")):
                # It is about a relative: their job is not the speaker's.
                about = next(filter(None, kin.groups())).lower()
                topic = replace(pattern, topic=f"family:{pattern.topic.partition(':')[0]}", single=False)
            yield _Found(
                pattern=topic,
                about=about,
                object=(groups.get("object") or "").strip(" ,.") or (groups.get("about") or "").strip() or stated,
                chinese=chinese,
                clause=stated,
            )


_ARRANGED = re.compile(
    r"\b(?:booked|planned|scheduled|decided|moved|got|agreed|signed|invited|set|put|arranged)\b", re.IGNORECASE
)


def _is_past_of_another(clause: str) -> bool:
    """Return whether a clause tells what somebody else did: 'the builder vanished in May'."""
    if re.match(r"(?:I|we)\b", clause) or _AHEAD.search(clause) or _ARRANGED.search(clause):
        return False
    return any(words.is_past(word) or word.endswith("ed") for word in clause.lower().split()[:4])


def _mentions(clause: str) -> Iterator[_Found]:
    """Yield the facts that a clause takes for granted: 'my wife drove' implies a wife."""
    for pattern in patterns_en_life.MENTIONS:
        if match := pattern.regex.match(clause):
            yield from _objects(pattern, match, chinese=False)


def _objects(pattern: Pattern, match: re.Match[str], *, chinese: bool, carried: str = "") -> Iterator[_Found]:
    raw = match["object"] or ""
    about = (match.groupdict().get("about") or "").strip()
    if not about[:2].isupper() and about[:1].isupper() and pattern.topic not in ("family:birth", "relationship_status"):
        about = about[:1].lower() + about[1:]
    if not raw and about:
        raw, about = about, ""
    if chinese and pattern.topic == "habit":
        completed = objects.complete_habit(raw, carried)
        if completed is None:
            return
        raw = completed
    if pattern.shape == "items":
        pieces = objects.items(raw, chinese=chinese)
    else:
        pieces = objects.parts(raw, chinese=chinese) if pattern.shape == "list" else [raw]
    for piece in pieces:
        cleaned = objects.clean(piece, pattern.shape, chinese=chinese)
        if cleaned is not None:
            yield _Found(pattern=pattern, about=about, object=cleaned, chinese=chinese)


def _fact(found: _Found, turn: Turn, cited: tuple[int, ...] = ()) -> ExtractedFact:
    statement = _statement(found)
    said_on = turn.occurred_at.date().isoformat()
    value: dict[str, Any] = {"subject": turn.author, "text": statement}
    if found.pattern.topic in _DATED_TOPICS:
        value["said_on"] = said_on
    if when := _when(statement, found.pattern.topic, turn):
        value["when"] = when
    return ExtractedFact(
        fact_type=found.pattern.fact_type,
        key=_key(found, turn.author, said_on),
        value=value,
        confidence=found.pattern.confidence,
        source_seqs=tuple(sorted({*cited, turn.sequence_num})),
    )


def _when(statement: str, topic: str, turn: Turn) -> str | None:
    """Return the day, month or year that a statement names, resolved against when it was made, or None."""
    if topic.partition(":")[0] in _TIMELESS:
        return None
    ahead = topic in ("plan", "goal", "pregnancy") or bool(_AHEAD.search(statement))
    span = dates.resolve(statement, turn.occurred_at, ahead=ahead)
    return times.iso_dates(span) if span is not None else None


def _statement(found: _Found) -> str:
    parts = {
        "{about}": found.about,
        "{object}": found.object,
        "{clause}": found.clause,
        "{a_object}": found.object if found.chinese else objects.with_article(found.object),
        "{does}": found.object if found.chinese else objects.third_person(found.object),
    }
    text = " ".join(re.sub(r"\{\w+\}", lambda match: parts[match[0]], found.pattern.text).replace(" :", ":").split())
    if found.chinese and found.pattern.text == "打算{object}":
        text = _INTENDS_ZH.sub("打算\\g<time>", text)
    if found.name and found.name.lower() not in text.lower():
        text = re.sub(rf"\b({people.WHO})\b", rf"\1 {found.name}", text, count=1)
    return text


#: '打算国庆打算去' says once what is meant.
_INTENDS_ZH = re.compile(
    f"^打算(?P<time>(?:{patterns_zh.TIME})?)(?:我们?)?(?:打算|准备|计划|要|想)(?=[\u4e00-\u9fff]{{2}})"
)


def _key(found: _Found, author: str, said_on: str) -> str:
    topic, _, detail = found.pattern.topic.partition(":")
    parts = [] if author == "user" else [objects.slug(author)]
    parts.append(topic)
    if topic == "event":
        parts.append(said_on)
    if topic == "rule":
        parts.append(objects.rule_slug(found.object))
    elif found.about and topic in _TOPICS_BY_ABOUT:
        parts.append(patterns_zh.KIN_ENGLISH.get(found.about, objects.slug(found.about)))
        if found.clause and detail and not (detail == "name" and found.about.lower() in _POST_HOLDERS):
            parts.append(objects.slug(found.object))
        elif (detail == "name" and found.about in _SEVERAL) or detail == "allergy":
            parts.append(objects.slug(found.object))
            detail = "" if detail == "name" else detail
        elif detail in ("life", "plan"):
            detail = objects.state_of(found.object)
    elif found.pattern.shape == "occasion":
        parts.append(objects.slug(found.about or _TIME.sub(" ", found.object)))
    elif not found.pattern.single:
        parts.append(objects.slug(_TIME.sub(" ", found.object) if topic == "plan" else found.object))
    if detail:
        parts.append(detail)
    return _bounded(":".join(parts))


def _bounded(key: str) -> str:
    if len(key) <= KEY_CHARS_MAX:
        return key
    digest = hashlib.blake2b(key.encode(), digest_size=8).hexdigest()
    return f"{key[: KEY_CHARS_MAX - 17]}:{digest}"
