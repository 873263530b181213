"""Which changes of a user's facts a person is shown: those whose value differs, with everything that it was before."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.cells import cell_len

from hippocampus.text.languages import language_of
from hippocampus.text.repetition import Statement, statements
from workers.cli import output
from workers.cli.rows import FactReplacement


@dataclass(frozen=True, slots=True)
class Change:
    """The values of a fact, one after another, and when each but the last ceased to hold."""

    since: datetime
    values: tuple[Any, ...]
    untils: tuple[datetime, ...]
    confidence: float  # the least of its values

    @property
    def text(self) -> str:
        """All values on one line."""
        shown = [output.show_fact(self.values[0])]
        for before, value in itertools.pairwise(self.values):
            shown.append(_text(value) if _subject(before) == _subject(value) else output.show_fact(value))
        ended = [
            f"{each} (until {output.show_time(until)[:10]})" for each, until in zip(shown, self.untils, strict=False)
        ]
        return "  →  ".join([*ended, shown[-1]])


def choose(replacements: Sequence[FactReplacement], limit: int) -> list[Change]:
    """Return the changes to show: the surest first, of equally sure ones the shorter.

    A value in another language may be the same or not, and nothing stored says which: such a step is shown only where
    there is no other. A value that only says the former one again, with more words or fewer, is no change.

    Args:
        replacements: by fact, in the order of time.
    """
    changed = [each for each in replacements if not _is_repeated(_text(each.before), _text(each.now))]
    within = [each for each in changed if not _is_translated(_text(each.before), _text(each.now))]
    chains = sorted(_chains(within or changed), key=lambda each: (-each.confidence, cell_len(each.text)))
    return chains[:limit]


def _chains(replacements: Iterable[FactReplacement]) -> Iterator[Change]:
    chain: list[FactReplacement] = []
    for each in replacements:
        if chain and (chain[-1].fact_id, chain[-1].valid_until) != (each.fact_id, each.valid_from):
            yield _change(chain)
            chain = []
        chain.append(each)
    if chain:
        yield _change(chain)


def _change(chain: Sequence[FactReplacement]) -> Change:
    return Change(
        since=chain[0].valid_from,
        values=(chain[0].before, *(each.now for each in chain)),
        untils=tuple(each.valid_until for each in chain),
        confidence=min(each.confidence for each in chain),
    )


def _is_translated(before: str, now: str) -> bool:
    languages = {language_of([before]), language_of([now])} - {None}
    return len(languages) > 1


def _is_repeated(before: str, now: str) -> bool:
    former, later = statements(before), statements(now)
    return _says(later, former) or _says(former, later)


def _says(saying: Sequence[Statement], said: Sequence[Statement]) -> bool:
    return bool(said) and all(
        any(
            each.terms <= other.terms and each.numbers <= other.numbers and each.denials == other.denials
            for other in saying
        )
        for each in said
    )


def _text(value: Any) -> str:
    return output.show_fact({**value, "subject": None} if isinstance(value, dict) else value)


def _subject(value: Any) -> Any:
    return value.get("subject") if isinstance(value, dict) else None
