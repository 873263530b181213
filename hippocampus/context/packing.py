"""How candidates are packed into the budget of a context window: pure functions.

The budget is that of the written text: headers and blank lines count. What is packed first has its place:

1. the system prompt, whole;
2. the newest turns of the session, taken backwards without a gap; a newest turn that is too long is cut;
3. standing facts (allergies, diets, rules), in at most half of what the system prompt leaves; step 2 keeps that room
   free;
4. memories and facts, as much as they earn: see `_caps`;
5. parts of documents, if any are given, within their share;
6. turns of any session that match the query, the best first, a question with its answer;
7. what is left over goes to the history, then to memories, then to facts, then to documents.

A candidate is left out if it is too big, or if it repeats what the window already says
(`hippocampus.text.repetition`). What was left out, and why, is part of the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from itertools import chain, pairwise
from typing import Any, NamedTuple

from hippocampus.context.languages import ContextType, Section
from hippocampus.context.ranking import says_little
from hippocampus.context.templates import (
    CONTEXT_TYPES,
    MARKDOWN,
    Template,
    Writer,
    begins_day,
    is_turn,
    section_of,
    year_of,
)
from hippocampus.context.window import ContextItem, ContextWindow, LeftOut, Reason, SectionAccount, language_of_items
from hippocampus.errors import ContextBudgetError
from hippocampus.text import words
from hippocampus.text.languages import Language
from hippocampus.text.repetition import WindowStatements
from hippocampus.text.tokens import TokenCounter, count_tokens

#: The mark at the end of a text that was cut, and the least that is kept of one.
CUT_MARK = " […]"
CUT_TOKENS_MIN = 16

#: The parts of the budget that others take first, where turns match.
_PARTS: Mapping[ContextType, float] = {"history": 0.08, "memory": 0.04, "fact": 0.05}
#: The part of it for memories and facts that hardly match: the newest summaries, the most certain facts.
_KNOWN_PART = 0.25
#: The least relevance of what is more than merely known.
_RELEVANT = 0.5
#: Standing facts take at most this part of what the system prompt leaves.
_STANDING_PART = 0.5
#: This many of the best matching turns are taken with the question or answer beside them, if that is short.
_BESIDE_RANK = 8
_BESIDE_TOKENS = 60
#: The part of a stable window for what the query picks, and by which the session grows before earlier conversations
#: make room.
_PICKED_PART = 0.125
_STABLE_STEP = 0.125
#: A history of which the oldest turns are left out begins at a multiple of this many.
_STABLE_TURNS = 16
#: A turn that says little ranks further down by this factor.
_SMALL_TALK_RANK = 1.5
#: What may be left unused so that the history begins with the same turn for several turns.
_ALIGNMENT_PART = 0.04
_QUESTION_MARKS = ("?", "？")
_FACT_TYPES = ("rule", "profile", "preference", "custom")


def pack(
    candidates: Mapping[ContextType, Sequence[ContextItem]],
    *,
    max_tokens: int,
    ratios: Mapping[ContextType, float],
    system_prompt: str | None = None,
    language: Language | None = None,
    counter: TokenCounter = count_tokens,
    template: Template = MARKDOWN,
    query: str = "",
) -> ContextWindow:
    """Pack candidates into a budget.

    Args:
        candidates: memories and facts, the best first; the history, the newest turn first.
        ratios: each section's share of `max_tokens`; that of documents only if they are part of the window. Where turns
            match the query, history, memories that are not turns, and facts take less at first.
        system_prompt: taken whole; if it exceeds its share, the others get less.
        language: of the labels; None: that of the candidates.
        query: chooses the lines of a memory that is too long.

    Raises:
        ContextBudgetError: the system prompt alone is over the budget.
    """
    packing = _Packing(candidates, max_tokens, ratios, language, counter, template, query)
    packing.take_system(system_prompt)
    packing.take_turns(within=min(packing.caps["history"], packing.beside_standing()))
    packing.take_standing()
    packing.take_best("memory", within=packing.caps["memory"])
    packing.take_best("fact", within=packing.caps["fact"])
    packing.take_documents(within=packing.caps["document"])
    packing.take_passages()
    packing.take_turns(within=None)
    packing.take_best("memory", within=None)
    packing.take_best("fact", within=None)
    packing.take_documents(within=None)
    return packing.window()


def pack_stable(
    candidates: Mapping[ContextType, Sequence[ContextItem]],
    earlier: Sequence[ContextItem],
    *,
    max_tokens: int,
    ratios: Mapping[ContextType, float],
    system_prompt: str | None = None,
    language: Language | None = None,
    counter: TokenCounter = count_tokens,
    template: Template = MARKDOWN,
    query: str = "",
) -> ContextWindow:
    """Pack a window whose beginning stays equal from one turn of a session to the next.

    First the system prompt, the profile and standing facts, earlier conversations and the session's turns, each cut
    where it stays for several turns; behind them what the query picks, in `_PICKED_PART` of the budget.

    Args:
        candidates: as for `pack`. Of facts, those of the profile and standing ones do not depend on the query.
        earlier: the newest turns of other sessions, the newest first.

    Raises:
        ContextBudgetError: the system prompt alone is over the budget.
    """
    facts = [item if _is_lasting(item) else _in_section(item, "memory") for item in candidates.get("fact", ())]
    memories = [*(_in_section(item, "earlier") for item in earlier), *candidates.get("memory", ())]
    packing = _Packing(
        {**candidates, "fact": facts, "memory": memories}, max_tokens, ratios, language, counter, template.stable, query
    )
    packing.take_system(system_prompt)
    packing.take_standing()
    step = max(int(max_tokens * _STABLE_STEP), 1)
    picked = int(max_tokens * _PICKED_PART)
    packing.take_turns_in_steps(step, within=max_tokens // 2)
    documents = packing.caps["document"]
    packing.take_earlier(range(len(earlier)), step=step, leave=picked + documents)
    packing.take_best("fact", within=picked // 4)
    packing.take_documents(within=documents)
    packing.take_passages()
    packing.take_best("memory", within=None)
    packing.take_best("fact", within=None)
    packing.take_documents(within=None)
    return packing.window()


def _is_lasting(item: ContextItem) -> bool:
    return bool(item.metadata.get("is_standing"))


def _in_section(item: ContextItem, section: Section) -> ContextItem:
    return replace(item, metadata={**item.metadata, "section": section})


class _Line(NamedTuple):
    """What an item costs by itself, and the section, passage and year whose headers it needs."""

    cost: int
    section: Section
    passage: tuple[object, ...] | None
    year: int | None


class _Packing:
    """The state of one `pack`: the items that were taken, and their cost."""

    def __init__(
        self,
        candidates: Mapping[ContextType, Sequence[ContextItem]],
        max_tokens: int,
        ratios: Mapping[ContextType, float],
        language: Language | None,
        counter: TokenCounter,
        template: Template,
        query: str,
    ) -> None:
        self._candidates: dict[ContextType, Sequence[ContextItem]] = {
            kind: candidates.get(kind, ()) for kind in CONTEXT_TYPES
        }
        self._max = max_tokens
        self._language = language = language or language_of_items(chain.from_iterable(candidates.values()))
        self._count = cache(counter)  # the same text is measured in each round
        self._template = template
        self._writer = Writer(language, template)
        self._query = query
        self._kinds = tuple(kind for kind in CONTEXT_TYPES if kind != "document" or kind in ratios)
        self._shares = {kind: int(max_tokens * ratios.get(kind, 0)) for kind in CONTEXT_TYPES}
        newest = {item.metadata.get("message_id") for item in self._candidates["history"]} - {None}
        self._turns_match = any(
            is_turn(item) and item.metadata.get("message_id") not in newest for item in self._candidates["memory"]
        )
        self.caps = self._caps()
        self._used: dict[ContextType, int] = dict.fromkeys(CONTEXT_TYPES, 0)
        self._reserved = 0  # for the newest turn, until it is cut
        self._taken: dict[ContextType, dict[int, ContextItem]] = {kind: {} for kind in CONTEXT_TYPES}  # by position
        self._lines: dict[tuple[ContextType, int | None], _Line] = {}  # by position
        self._repeats: set[tuple[ContextType, int]] = set()
        self._contents: set[str] = set()
        # The sections of what was taken, their passages, and the years of these, which are in the order of time.
        self._sections: set[Section] = set()
        self._passages: set[tuple[Section, object]] = set()
        self._years: set[tuple[Section, int | None]] = set()
        self._turns: dict[object, int] = {}  # taken turns of passages, by message_id: their position
        self._left_to_history: dict[object, int] = {}  # turns of passages that the history has taken, likewise
        self._shown: dict[tuple[object, object], str] = {}  # turns that the window shows, by thread and number
        self._stated = WindowStatements()

    def _caps(self) -> dict[ContextType, int]:
        """What sections take before the turns that match: their share, or less where turns match."""
        caps = dict(self._shares)
        if self._turns_match:
            for kind, part in _PARTS.items():
                caps[kind] = min(caps[kind], int(self._max * part))
        return caps

    def take_system(self, prompt: str | None) -> None:
        if not prompt:
            return
        cost = self._count(prompt)
        if cost > self._max:
            raise ContextBudgetError(
                f"the system prompt is {cost} tokens, over the budget of {self._max}: shorten it or raise max_tokens"
            )
        self._used["system"] = cost
        self._taken["system"][0] = ContextItem(context_type="system", content=prompt, token_estimate=cost)

    def take_turns(self, *, within: int | None) -> None:
        """Take turns of the session from the newest backwards until one does not fit; of the whole rest, cut that one.

        Args:
            within: what the section may use; None: all that is left.
        """
        self._reserved = 0
        for position, turn in enumerate(self._candidates["history"]):
            if position in self._taken["history"]:
                continue
            passage = self._release_passage(turn)
            free = self._free("history", within)
            if self._cost(turn, position) <= free:
                self._add("history", turn, position)
                continue
            if passage is not None:
                self._return_passage(turn)
            elif within is None:
                cut = self._cut(turn, free)
                if cut is not None:
                    self._add("history", cut, position)
            elif not self._taken["history"]:
                self._reserved = max(free, CUT_TOKENS_MIN)
            self._align_history()
            return
        self._align_history()

    def _align_history(self) -> None:
        """Have the history begin at a multiple of some turns, at a cost of at most `_ALIGNMENT_PART` of the budget.

        So it begins with the same turn for several turns, and what a provider has cached stays the beginning of the
        prompt.
        """
        taken = self._taken["history"]
        if not taken or _number(next(reversed(taken.values()))) <= 1:
            return
        each = max(self._used["history"] // max(len(taken), 1), 1)
        step = 1 << max(int(self._max * _ALIGNMENT_PART) // each, 1).bit_length() - 1
        numbers = [_number(item) for item in reversed(taken.values())]
        drop = next((place for place, number in enumerate(numbers) if number % step == 1 % step), 0)
        if 2 * drop <= len(numbers):
            for position in list(taken)[len(taken) - drop :]:
                turn = taken[position]
                self._release("history", position)
                self._return_passage(turn)

    def take_turns_in_steps(self, step: int, *, within: int) -> None:
        """Take turns of the session, all while they cost at most `within`; then their beginning moves by steps."""
        turns = self._candidates["history"]
        costs = [
            self._cost(turn, position, newer=turns[position - 1] if position else None)
            for position, turn in enumerate(turns)
        ]
        kept, over = len(turns), -(-max(sum(costs) - within, 0) // step) * step
        while kept > 1 and over > 0:
            kept -= 1
            over -= costs[kept]
        # The oldest candidate may be a later one with each turn: then the history begins at a multiple.
        if kept and _number(turns[kept - 1]) > 1:
            first = next(
                (n for n in range(kept - 1, kept // 2, -1) if _number(turns[n]) % _STABLE_TURNS == 1), kept - 1
            )
            kept = first + 1
        for position, turn in enumerate(turns[:kept]):
            free = self._free("history", None)
            if self._cost(turn, position) <= free:
                self._add("history", turn, position)
                continue
            cut = None if self._taken["history"] else self._cut(turn, free)
            if cut is not None:
                self._add("history", cut, position)
            return

    def take_earlier(self, positions: Sequence[int], *, step: int, leave: int) -> None:
        """Take turns of other sessions, the newest first.

        Args:
            positions: among the memories.
            step: the session's turns are charged by whole ones, so that what is taken changes as rarely as they grow by
                one.
            leave: the part of the budget for what the query picks. It gets no more while some turns are left out.
        """
        charged = (self._used["history"] // step + 1) * step
        free = self._max - self._used["system"] - self._used["fact"] - charged - leave
        waiting = list(positions)
        # A second time, for what was reserved for gaps. The text of the section alone is measured: it stays the same.
        for _ in range(2):
            while waiting:
                item = self._candidates["memory"][waiting[0]]
                cost = self._cost(item, waiting[0])
                if cost > free:
                    break
                self._add("memory", item, waiting.pop(0))
                free -= cost
            taken = sorted(self._taken["memory"].values(), key=_memory_order)
            spare = max(self._used["memory"] - self._count(self._writer.text(taken)), 0)
            self._used["memory"] -= spare
            free += spare
        if waiting:
            self._reserved = max(self._free("memory", None) - leave, 0)

    def _standing_room(self) -> int:
        return int((self._max - self._used["system"]) * _STANDING_PART)

    def beside_standing(self) -> int:
        """Return what facts that have their place in every window leave of the budget."""
        standing = [
            (item, position)
            for position, item in enumerate(self._candidates["fact"])
            if item.metadata.get("is_standing")
        ]
        wanted = sum(self._cost(*each) for each in standing[:1]) + sum(self._line(*each).cost for each in standing[1:])
        return self._max - self._used["system"] - min(wanted, self._standing_room())

    def take_standing(self) -> None:
        """Take the facts that have their place in every window."""
        within = self._standing_room()
        for position, item in enumerate(self._candidates["fact"]):
            if item.metadata.get("is_standing") and self._cost(item, position) <= self._free("fact", within):
                self._add("fact", item, position)

    def take_best(self, kind: ContextType, *, within: int | None) -> None:
        """Take items in their order; skip those that do not fit or that repeat what the window says.

        Standing facts come on top of `within`; what hardly matches the query takes a part of it.
        """
        oldest = self._oldest_turn()
        standing = self._used["fact"] if kind == "fact" and within is not None else 0
        for position, item in enumerate(self._candidates[kind]):
            if position in self._taken[kind] or (is_turn(item) and within is not None):
                continue
            if section_of(item) == "earlier" or (kind, position) in self._repeats:
                continue
            limit = within
            if limit is not None and self._turns_match and item.relevance_score < _RELEVANT:
                limit = int(limit * _KNOWN_PART)
            free = self._free(kind, None if limit is None else limit + standing)
            fits = self._cost(item, position) <= free
            if not fits and (kind != "memory" or is_turn(item)):
                continue
            if self._is_stated(item, oldest):
                self._repeats.add((kind, position))
            elif fits:
                self._add(kind, item, position)
            elif within is None and item.metadata.get("kind") == "episodic":
                shorter = self._best_lines(item, free)
                if shorter is not None:
                    self._add(kind, shorter, position)

    def take_documents(self, *, within: int | None) -> None:
        """Take parts of documents in their order; skip those that do not fit, and cut the best if it is too long."""
        for position, item in enumerate(self._candidates["document"]):
            if position in self._taken["document"]:
                continue
            if item.content in self._contents:
                self._repeats.add(("document", position))
                continue
            free = self._free("document", within)
            if self._cost(item, position) <= free:
                self._add("document", item, position)
            elif within is not None and not self._taken["document"]:
                shorter = self._cut(item, free)
                if shorter is not None:
                    upto = item.metadata["char_from"] + len(shorter.content) - len(CUT_MARK)
                    shown = {**shorter.metadata, "char_upto": upto}
                    self._add("document", replace(shorter, metadata=shown), position)

    def take_passages(self) -> None:
        """Take the turns that match, the best first, each of the first ones with its question or its answer."""
        turns = [
            (place, item)
            for place, item in enumerate(self._candidates["memory"])
            if is_turn(item) and section_of(item) == "memory"
        ]
        if not turns:
            return
        turns = _small_talk_later(turns)
        around = self._around(turns)
        self._take_turns(turns, around)
        self._leave_covered()
        # What was reserved for gaps and headers that turns share is left for more of them.
        spare = sum(self._used.values()) - self._count(self._text())
        if spare > 0:
            self._used["memory"] -= min(spare, self._used["memory"])
            self._take_turns(turns, around)

    def _take_turns(self, turns: Sequence[tuple[int, ContextItem]], around: Mapping[int, Sequence[int]]) -> None:
        shown = {item.metadata.get("message_id") for item in self._taken["history"].values()}
        taken, lines = self._taken["memory"], self._lines
        free = self._free("memory", None)
        for rank, (position, item) in enumerate(turns):
            if item.metadata.get("beside") is not None:
                continue
            if position not in taken:
                line = lines.get(("memory", position))
                if line is None or line.cost <= free:  # most are measured once
                    self._take_turn(position, item, shown)
                    free = self._free("memory", None)
                elif self._is_shown(item, shown):
                    self._repeats.add(("memory", position))
            if rank < _BESIDE_RANK and position in taken:
                for other in around.get(position, ()):
                    beside = self._candidates["memory"][other]
                    if self._count(beside.content) <= _BESIDE_TOKENS:
                        self._take_turn(other, beside, shown)
                free = self._free("memory", None)

    def _take_turn(self, position: int, item: ContextItem, shown: set[Any]) -> None:
        if position in self._taken["memory"]:
            return
        if self._is_shown(item, shown):
            self._repeats.add(("memory", position))
        elif self._cost(item, position) <= self._free("memory", None):
            self._add("memory", item, position)

    def _is_shown(self, item: ContextItem, shown: set[Any]) -> bool:
        return item.metadata.get("message_id") in shown or item.content in self._contents

    def _around(self, turns: Sequence[tuple[int, ContextItem]]) -> dict[int, list[int]]:
        """Return, by position, the turns beside a turn that ask what it answers, or answer what it asks."""
        ordered = sorted(turns, key=lambda turn: (str(turn[1].metadata.get("thread_id")), _number(turn[1])))
        found: dict[int, list[int]] = {}
        for (earlier, asking), (later, answer) in pairwise(ordered):
            same = asking.metadata.get("thread_id") == answer.metadata.get("thread_id")
            if same and asking.content.rstrip().endswith(_QUESTION_MARKS):
                found.setdefault(earlier, []).append(later)
                found.setdefault(later, []).append(earlier)
        return found

    def _leave_covered(self) -> None:
        """Leave out memories whose turns the window shows, and facts that these turns state in the same words."""
        for position, item in list(self._taken["memory"].items()):
            if not is_turn(item) and self._is_covered(item):
                self._release("memory", position)
                self._repeats.add(("memory", position))
        for position, item in list(self._taken["fact"].items()):
            if not _is_lasting(item) and self._is_covered(item) and self._is_quoted(item):
                self._release("fact", position)
                self._repeats.add(("fact", position))

    def _is_covered(self, item: ContextItem) -> bool:
        """Whether the window shows all turns that a memory was extracted from."""
        numbers, thread = item.metadata.get("source_seqs") or (), item.metadata.get("thread_id")
        return bool(numbers) and all((thread, number) in self._shown for number in numbers)

    def _is_quoted(self, item: ContextItem) -> bool:
        """Whether the turns that a fact was extracted from say it in the same words."""
        said = WindowStatements()
        for number in item.metadata["source_seqs"]:
            said.add(self._shown[item.metadata.get("thread_id"), number])
        return said.repeats(item.content)

    def window(self) -> ContextWindow:
        """Return the window: measure the text as a whole, and drop items if the counter is not additive."""
        total = self._count(self._text())
        while total > self._max:
            self._drop_one()
            total = self._count(self._text())
        left_out = tuple(self._left_out())
        account = tuple(
            SectionAccount(
                context_type=kind,
                share=self._shares[kind],
                used=self._used[kind],
                items=len(self._taken[kind]),
                left_out=sum(item.item.context_type == kind for item in left_out),
            )
            for kind in self._kinds
        )
        return ContextWindow(
            items=tuple(map(self._measured, self._items_in_order())),
            total_tokens=total,
            budget_used=total / self._max if self._max else 0.0,
            max_tokens=self._max,
            account=account,
            left_out=left_out,
            language=self._language,
            template=self._template,
        )

    def _left_out(self) -> Iterator[LeftOut]:
        whole = self._max - self._used["system"]
        for kind in CONTEXT_TYPES[1:]:
            for position, item in enumerate(self._candidates[kind]):
                if position in self._taken[kind]:
                    continue
                measured = self._measured(item)
                repeats = (kind, position) in self._repeats
                reason: Reason = "repeats" if repeats else "too_big" if measured.token_estimate > whole else "no_room"
                yield LeftOut(item=measured, reason=reason)

    def _measured(self, item: ContextItem) -> ContextItem:
        return ContextItem(  # several times as fast as `replace`
            context_type=item.context_type,
            content=item.content,
            relevance_score=item.relevance_score,
            token_estimate=self._count(item.content),
            metadata=item.metadata,
        )

    def _cost(self, item: ContextItem, position: int | None = None, *, newer: ContextItem | None = None) -> int:
        """What an item adds: its line; for the first of a section, passage or day, what is around it too.

        Args:
            position: the position of a candidate, whose line is measured once.
            newer: the turn after a turn of the session; None: the oldest one that was taken.
        """
        cost, section, passage, year = self._line(item, position)
        if section not in self._sections:
            cost += self._count(f"\n\n{self._template.frame}{self._template.head(section, self._language)}\n")
        if passage is not None and (section, passage) not in self._passages:
            has_year = (section, year) in self._years
            head = self._template.passage_of(item, self._language, with_year=not has_year)
            cost += self._count(f"\n{head}")
        if item.context_type == "history":
            cost += self._day_cost(item, newer or self._oldest_turn())
        return cost

    def _day_cost(self, turn: ContextItem, newer: ContextItem | None) -> int:
        """What the lines of days cost more if a turn of the session is written above a newer one."""

        def line(item: ContextItem) -> int:
            return self._count(f"\n{self._template.frame}{self._template.day_of(item, self._language)}")

        more = line(turn) if begins_day(None, turn) else 0
        if newer is not None:
            change = begins_day(turn, newer) - begins_day(None, newer)
            more += change * line(newer) if change else 0
        return max(more, 0)

    def _line(self, item: ContextItem, position: int | None) -> _Line:
        line = self._lines.get((item.context_type, position))
        if line is None:
            line = self._measured_line(item, kept=position is not None)
            if position is not None:
                self._lines[item.context_type, position] = line
        return line

    def _measured_line(self, item: ContextItem, *, kept: bool) -> _Line:
        writer = self._writer if kept else Writer(self._language, self._template)  # a trial is not kept
        line = writer.line(item, gap=True)
        before, text, after = line.partition(item.content) if item.content else (line, "", "")
        # The text is measured for the result anyway, and what is around it is mostly the same.
        cost = self._count("\n" + before) + (self._count(text) + self._count(after) if text else 0)
        passage = writer.passage(item)
        return _Line(cost, section_of(item), passage, None if passage is None else year_of(item))

    def _free(self, kind: ContextType, within: int | None) -> int:
        rest = max(self._max - sum(self._used.values()) - self._reserved, 0)
        return rest if within is None else min(rest, within - self._used[kind])

    def _add(self, kind: ContextType, item: ContextItem, position: int) -> None:
        cost = self._cost(item, None if item.metadata.get("truncated") else position)
        section = section_of(item)
        self._sections.add(section)
        if is_turn(item):
            self._passages.add((section, self._writer.passage(item)))
            self._years.add((section, year_of(item)))
            self._turns[item.metadata.get("message_id")] = position
        else:
            self._stated.add(item.content)
        self._contents.add(item.content)
        if kind == "history" or is_turn(item):
            self._shown[item.metadata.get("thread_id"), item.metadata.get("from_seq")] = item.content
        self._used[kind] += cost
        self._taken[kind][position] = item

    def _release(self, kind: ContextType, position: int) -> None:
        """Take an item out of the window. The headers above it stay paid while the section has other items."""
        item = self._taken[kind].pop(position)
        self._contents.discard(item.content)
        if self._taken[kind]:
            line = None if item.metadata.get("truncated") else self._lines.get((kind, position))
            self._used[kind] -= self._count(self._writer.line(item)) if line is None else line.cost
        else:
            self._used[kind] = 0
            self._sections -= {section_of(item)}
            self._passages = {each for each in self._passages if each[0] in self._sections}
            self._years = {each for each in self._years if each[0] in self._sections}

    def _release_passage(self, turn: ContextItem) -> int | None:
        """Leave the history a turn that stands in a passage; return its position there."""
        message = turn.metadata.get("message_id")
        position = self._turns.pop(message, None)
        if position is None or message is None:
            return None
        self._release("memory", position)
        self._repeats.add(("memory", position))
        self._left_to_history[message] = position
        return position

    def _return_passage(self, turn: ContextItem) -> None:
        """Show a turn that the history does not take after all in its passage again."""
        position = self._left_to_history.pop(turn.metadata.get("message_id"), None)
        if position is not None:
            self._repeats.discard(("memory", position))
            self._take_turn(position, self._candidates["memory"][position], set())

    def _cut(self, turn: ContextItem, free: int) -> ContextItem | None:
        """Return the longest beginning of a turn that fits, marked; None if too little would be left."""
        if free < CUT_TOKENS_MIN:
            return None
        low, high = 0, len(turn.content)
        while low < high:
            middle = (low + high + 1) // 2
            if self._cost(replace(turn, content=turn.content[:middle] + CUT_MARK)) <= free:
                low = middle
            else:
                high = middle - 1
        if low == 0:
            return None
        return replace(turn, content=turn.content[:low] + CUT_MARK, metadata={**turn.metadata, "truncated": True})

    def _best_lines(self, item: ContextItem, free: int) -> ContextItem | None:
        """Return the lines of an episode that match the query best, as many as fit, marked; None if none does."""
        wanted = set(words.terms(self._query))
        lines = item.content.splitlines()
        best = sorted(range(len(lines)), key=lambda number: (-len(wanted & set(words.terms(lines[number]))), number))
        kept: list[int] = []
        shorter = None
        for number in best:
            chosen = sorted([*kept, number])
            cut = replace(
                item,
                content="\n".join(lines[each] for each in chosen) + CUT_MARK,
                metadata={**item.metadata, "truncated": True},
            )
            if self._cost(cut) <= free:
                kept, shorter = chosen, cut
        return shorter

    def _oldest_turn(self) -> ContextItem | None:
        return next(reversed(self._taken["history"].values()), None)

    def _is_stated(self, item: ContextItem, oldest: ContextItem | None) -> bool:
        """Whether the window says it: the same text, the same statement, or the turns that it was extracted from."""
        if item.content in self._contents or (not is_turn(item) and self._stated.repeats(item.content)):
            return True
        if item.context_type == "memory" and not is_turn(item) and self._is_covered(item):
            return True
        if item.context_type != "memory" or oldest is None:
            return False
        thread, start = item.metadata.get("thread_id"), item.metadata.get("from_seq")
        since = oldest.metadata.get("from_seq")
        return (
            thread is not None
            and start is not None
            and since is not None
            and thread == oldest.metadata.get("thread_id")
            and start >= since
        )

    def _drop_one(self) -> None:
        for kind in ("document", "fact", "memory", "history"):
            if self._taken[kind]:
                self._taken[kind].popitem()
                return
        raise ContextBudgetError("the system prompt alone is over the budget: shorten it or raise max_tokens")

    def _items_in_order(self) -> list[ContextItem]:
        """Return the items as they are written: what does not depend on the query in an order that does not either."""
        history = list(self._taken["history"].values())[::-1]
        ordered = {
            "system": list(self._taken["system"].values()),
            "fact": sorted(self._taken["fact"].values(), key=_fact_order),
            "memory": sorted(self._taken["memory"].values(), key=_memory_order),
            "document": list(self._taken["document"].values()),
            "history": history,
        }
        return [item for kind in CONTEXT_TYPES for item in ordered[kind]]

    def _text(self) -> str:
        return self._writer.text(self._items_in_order())


def _small_talk_later(turns: Sequence[tuple[int, ContextItem]]) -> list[tuple[int, ContextItem]]:
    """Return turns in their order, except that one that says little ranks further down, by its rank."""
    ranks = {
        position: rank * (_SMALL_TALK_RANK if says_little(item.content) else 1)
        for rank, (position, item) in enumerate(turns, start=1)
    }
    return sorted(turns, key=lambda turn: ranks[turn[0]])


def _number(item: ContextItem) -> int:
    return item.metadata.get("from_seq") or 0


def _fact_order(item: ContextItem) -> tuple[int, int, str]:
    """The profile in its order, standing facts, then by type and key; facts without a key keep their order."""
    place = item.metadata.get("profile_place")
    if place is not None:
        return (-1, place, "")
    kind = item.metadata.get("kind")
    rank = _FACT_TYPES.index(kind) if kind in _FACT_TYPES else len(_FACT_TYPES)
    return (not item.metadata.get("is_standing"), rank, str(item.metadata.get("key") or ""))


def _memory_order(item: ContextItem) -> tuple[bool, float, str, int]:
    """Memories before passages, each in the order of time; those without a time keep their order."""
    if not is_turn(item):
        return (False, _time(item), "", 0)
    return (True, _day(item), str(item.metadata.get("session_id") or item.metadata.get("thread_id")), _number(item))


def _time(item: ContextItem) -> float:
    moment = item.metadata.get("occurred_at")
    return moment.timestamp() if isinstance(moment, datetime) else 0.0


def _day(item: ContextItem) -> float:
    moment = item.metadata.get("occurred_at")
    return float(moment.toordinal()) if isinstance(moment, datetime) else 0.0
