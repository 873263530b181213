"""The facts of a slice: what people plainly say of themselves, in English and Chinese, and what they take back.

The key is `topic` if a person has one value ('home'), and `topic:object` if they have several ('preference:hiking'); in
a conversation of named people it begins with the name ('caroline:home'). A later statement about the same thing has the
same key. The value is {"subject": who, "text": the fact in the third person}; that of a plan also has the time of the
statement. What a later sentence takes back or puts right is so in the result.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hippocampus.providers.local import (
    clauses,
    corrections,
    ended,
    families,
    objects,
    owners,
    people,
    restated,
    sentences,
    statements,
    succession,
    updates,
)
from hippocampus.providers.local.corrections import Held
from hippocampus.providers.local.sentences import Sentence
from hippocampus.providers.local.statements import Found
from hippocampus.records import ConversationSlice, ExtractedFact, Turn
from hippocampus.text import words

#: Facts of one slice; a slice with more of them is a list, not a conversation.
FACTS_MAX = 100
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
#: How much is read of the turn before, whose question may name the person whom 'he' means.
_ASKED_CHARS = 200
_ASKS = re.compile("[?？吗呢]|怎么样|如何")


def of_slice(slice_: ConversationSlice) -> list[ExtractedFact]:
    """Return the facts of a slice in the order in which they were first stated, each once, and those that end"
    " in it."""
    return _read(slice_).facts()[:FACTS_MAX]


def with_former(slice_: ConversationSlice) -> list[ExtractedFact]:
    """Return the facts of a slice, before them what an earlier turn of it stated and a later one ended or changed.

    A former statement is followed by its end.
    """
    ledger = _read(slice_)
    former = ledger.former[:FACTS_MAX]
    return [*former, *(fact for fact in ledger.facts()[:FACTS_MAX] if fact not in former)]


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
            read = replace(stating, text=ledger.without_former(stating))
            found = [
                each
                for each in statements.of_sentence(read, relatives)
                if not _is_of_moment(each, stating) and not _is_none(each, stating)
            ]
            if again is None and not sentence.is_question and (found or not unclear):
                ledger.correct(sentence, whose, found, answered)
            for each in found:
                ledger.keep(statements.fact_of(each, turn, cited), each.pattern.topic.partition(":")[0], stating)
            ledger.note_names(sentence)
    return ledger


def _parts_of(turn: Turn) -> Iterator[Sentence]:
    """Yield the sentences of a turn, what puts the rest of its sentence right by itself."""
    for sentence in sentences.of_turn(turn):
        for part in restated.parts(sentence.text):
            text = ended.as_stated(part)
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


def _is_none(found: Found, sentence: Sentence) -> bool:
    """Return whether what seems to state an allergy says that there is none."""
    return found.pattern.topic.partition(":")[0] == "allergy" and ended.takes_back_allergy(sentence.text)


def _is_of_moment(found: Found, sentence: Sentence) -> bool:
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
        #: What a turn stated until a later one ended or changed it, each followed by its end.
        self.former: list[ExtractedFact] = []
        self._off: list[Held] = []  # what the turn that is read took back
        self._asked = ""  # the turn before, if the sentence that is read may answer it
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
        if (
            known is not None
            and topic in succession.POSTS
            and sentence is not None
            and succession.BESIDES.search(sentence.text)
        ):
            # Work beside other work is another fact.
            fact = replace(fact, key=statements.bounded(f"{fact.key}:{objects.slug(fact.value['text'])[:60]}"))
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
        for held in [
            each
            for each in self._held.values()
            if succession.gives_way(each, topic, fact, text)
            and not (topic == "work_change" and self._is_another_job(each, text, self._asked))
        ]:
            self._end(held, fact.source_seqs[-1])
        self._hold(fact.fact_type, fact.key, fact.value, topic, fact.source_seqs[-1])
        if before is None or before.ended or before.value != fact.value:
            if before is not None and before.value["text"] != fact.value["text"]:
                self._note_former(before, fact.source_seqs[-1])
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

    def without_former(self, sentence: Sentence) -> str:
        """Return a sentence without what it names as the former one of what is known."""
        return ended.without_former(sentence.text, list(self._held.values()))

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
            for one in statements.of_sentence(stating_again, copy.deepcopy(relatives))
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

    def correct(self, sentence: Sentence, whose: owners.Reader, found: list[Found], before: str = "") -> None:
        """Apply what a sentence takes back or puts right; a plan that it states anew is removed from `found`.

        Args:
            whose: tells of whom each part of the sentence speaks: it ends only what is known of them.
            before: the turn before, if the sentence may answer a question in it.
        """
        self._asked = before if _ASKS.search(before) else ""
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
        if ended.is_of_speaker(sentence.text):
            parts = [owners.Part(sentence.text, owners.IT)]
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

    def _fix(self, part: owners.Part, sentence: Sentence, found: list[Found], held: list[Held], before: str) -> bool:
        """End and change what a part of a sentence takes back or puts right; return whether it does."""
        turn = sentence.turn
        spoken = part.text if sentence.is_cjk else clauses.spelled_out(part.text)
        asked = before if _ASKS.search(before) else ""
        held = [each for each in held if not self._is_another_job(each, part.text, asked)]
        stated = [one.pattern.topic.partition(":")[0] for one in found]
        fixes = ended.of_sentence(spoken, held, stated, chinese=sentence.is_cjk, asked=asked)
        if not fixes and ended.is_of_another_allergy(part.text):
            return False
        fixes = fixes or corrections.of_sentence(
            spoken,
            [*part.changeable(self._off), *held],
            turn.sequence_num,
            chinese=sentence.is_cjk,
            states=bool(found),
            asked=asked,
        )
        for other in corrections.alike([fix.held for fix in fixes], held):
            self._end(other, turn.sequence_num)
        for fix in fixes:
            found[:] = [one for one in found if one.pattern.topic.partition(":")[0] not in fix.unsaid]
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
            found[:] = [
                one
                for one in found
                if one.pattern.topic != "plan"
                or not corrections.lacks_month(one.clause or one.object, fix.text, chinese=sentence.is_cjk)
            ]
            restated = [
                one
                for one in found
                if one.pattern.topic == "plan"
                and corrections.content(statements.TIME.sub(" ", one.clause or one.object))
                & corrections.content(statements.TIME.sub(" ", fix.held.text))
            ]
            if restated:
                # It says the whole of it again, in other words: the former words end.
                if all(statements.key_of(one, turn.author, "") != fix.held.key for one in restated):
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
            if when := statements.when_of(fix.text, "plan", turn):
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

    def _is_another_job(self, held: Held, text: str, asked: str) -> bool:
        said = self._said.get((held.fact_type, held.key))
        return ended.is_another_job(held, text, asked, said.text if said is not None else None)

    def _update(self, text: str, sentence: Sentence, found: list[Found], held: list[Held], beside: list[Held]) -> bool:
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
        if any(statements.key_of(one, turn.author, "") == known.key for one in found):
            return True
        if known.topic == "rule" and update.replaces:
            found[:] = [one for one in found if one.pattern.fact_type != "rule"]
        if found:
            if (
                update.replaces
                and known.turn != turn.sequence_num
                and all(statements.key_of(one, turn.author, "") != known.key for one in found)
                and any(one.pattern.topic.partition(":")[0] == known.topic for one in found)
            ):
                self._end(known, turn.sequence_num)
            return True
        if not update.replaces and turn.author != "user":
            return True  # people who talk by name speak of everybody they know
        # In a sentence of several parts, the one that changes the fact says too little by itself.
        told = update.text if update.text != text else sentence.text if chinese else clauses.spelled_out(sentence.text)
        stated = families.statement(clauses.whole(told, chinese=chinese), chinese=chinese, rule=known.topic == "rule")
        if stated is None:
            return True
        value = {**self._values[known.fact_type, known.key], "text": stated}
        value.pop("when", None)
        if "said_on" in value:
            value["said_on"] = turn.occurred_at.date().isoformat()
        if when := statements.when_of(stated, known.topic, turn):
            value["when"] = when
        fact = ExtractedFact(
            fact_type=known.fact_type,  # type: ignore[arg-type]
            key=known.key if update.replaces else statements.bounded(f"{known.key}:{objects.slug(stated)[:60]}"),
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

    def _negated(self, sentence: Sentence, turn: Turn, found: list[Found]) -> Iterator[Held]:
        """Yield what a sentence denies in the words of its statement: 'I'm not allergic to nuts'."""
        if not self._held or not _DENIES.search(sentence.text):
            return
        stated_anew = {statements.key_of(one, turn.author, "") for one in found}
        for clause in clauses.of_sentence(sentence):
            for negation, positive in _NEGATED:
                if not negation.match(clause):
                    continue
                stated = _STILL.sub("", negation.sub(positive, clause, count=1))
                stating = list(statements.of_clause(stated, chinese=sentence.is_cjk)) or list(
                    statements.of_family(
                        stated, chinese=sentence.is_cjk, speaks=True, before="", goes_on=False, between_names=False
                    )
                )
                for one in stating:
                    fact = statements.fact_of(one, turn)
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
        if (before := self._stated.pop(identity, None)) is not None:
            self._note_former(before, seq)
        self._stated[identity] = ExtractedFact(
            fact_type=held.fact_type,  # type: ignore[arg-type]
            key=held.key,
            value=dict(value),
            confidence=_ENDS,
            source_seqs=(seq,),
            ended=True,
        )

    def _note_former(self, fact: ExtractedFact, seq: int) -> None:
        """Note that what earlier turns stated holds until a turn; what one turn takes back at once never held."""
        if not fact.ended and fact.source_seqs[-1] < seq:
            self.former += [fact, replace(fact, confidence=_ENDS, source_seqs=(seq,), ended=True)]


#: How certain an end is.
_ENDS = 0.9


#: Topics of which two clauses of one sentence are one value.
_JOINED = frozenset(("home", "occupation"))
#: The distance between a statement and what merely corrects it: an answer lies between.
_RESTATED_TURNS = 2
#: A piece of a sentence that is too long to be compared as a whole.
_PIECE = re.compile(rf".{{1,{clauses.SENTENCE_CHARS_MAX - 1}}}(?:[,，;；、\s]|$)", re.DOTALL)


def _joined(before: ExtractedFact, fact: ExtractedFact) -> ExtractedFact:
    """Return what one sentence says of one thing in two clauses: '搬到苏州，住园区'."""
    first, second = before.value["text"], fact.value["text"]
    if second in first or first in second:
        return before if second in first else fact
    mark = "，" if words.CJK_CHARACTER.search(first) else "; "
    return replace(fact, value={**fact.value, "text": f"{first}{mark}{second}"})


def _topic_of(key: str, author: str) -> str:
    first, _, rest = key.partition(":")
    return rest.partition(":")[0] if author != "user" and first == objects.slug(author) else first
