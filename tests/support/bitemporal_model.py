"""A simple and slow bitemporal model: a list of statements, evaluated for every query."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

MARGIN = 0.1 + 1e-9


@dataclass
class Statement:
    value: Any  # None: nothing is valid from then on
    confidence: float
    said: int
    recorded: int
    believed: int | None  # since when; None: a candidate
    position: int  # in the order of recording


@dataclass
class BitemporalFact:
    """One key of one user. Times are integers; `recorded` never decreases."""

    statements: list[Statement] = field(default_factory=list)

    def record(self, value: Any, confidence: float, said: int, recorded: int) -> None:
        """Add a statement that was made at `said` and recorded at `recorded`."""
        said = min(said, recorded)
        fresh = Statement(value, confidence, said, recorded, None, len(self.statements))
        rival = self._rival(said)
        agrees = rival is None or rival[0].value in (None, value)
        if rival is None or agrees or confidence >= self._surest(rival) - MARGIN:
            fresh.believed = recorded
        since = rival[0].said if rival and rival[0].said <= said else -1
        earlier = [s for s in self.statements if s.believed is None and s.value == value and since <= s.said <= said]
        joint = confidence
        for each in earlier:
            joint = 1 - (1 - joint) * (1 - each.confidence)
        if fresh.believed is None and rival and earlier and joint >= self._surest(rival) - MARGIN:
            fresh.believed = recorded
        if fresh.believed is not None:
            for each in earlier:
                each.believed = recorded
        self.statements.append(fresh)

    def holds(self, as_of: int, known_at: int) -> tuple[Any, float] | None:
        """What was true at `as_of`, with its confidence, as known at `known_at`."""
        held = None
        for stretch in self._stretches(known_at):
            if stretch[0].said <= as_of:
                held = stretch
        if held is None or held[0].value is None:
            return None
        return held[0].value, self._surest(held)

    def _stretches(self, known_at: int | None = None) -> list[list[Statement]]:
        believed = [
            s for s in self.statements if s.believed is not None and (known_at is None or s.believed <= known_at)
        ]
        stretches: list[list[Statement]] = []
        for each in sorted(believed, key=lambda s: (s.said, s.recorded, s.position)):
            if stretches and stretches[-1][0].value == each.value:
                stretches[-1].append(each)
            else:
                stretches.append([each])
        return stretches

    def _rival(self, said: int) -> list[Statement] | None:
        stretches = self._stretches()
        before = [stretch for stretch in stretches if stretch[0].said <= said]
        return before[-1] if before else (stretches[0] if stretches else None)

    @staticmethod
    def _surest(stretch: list[Statement]) -> float:
        return max(s.confidence for s in stretch)
