"""The types of memories: how strong each is when new, and where it is found beside search.

A new type is one entry here, its name in `hippocampus.records.MemoryType` and in that of `hippocampus.client.records`,
and a migration that adds the name to the check of ``memories.memory_type``; a test compares these, and where the
database finds each type. Search and context windows find every type. How a score decays is the same for all types: see
`hippocampus.retention.curves`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from hippocampus.records import Importance, MemoryType


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTypeEntry:
    """What the engine knows of a type of memories.

    Attributes:
        initial_score: the score of a memory without its own importance, 0 to 1.
        by_importance: the initial scores of memories with one.
        in_time_slices: whether the SQL of `MemoryRetentionManager.get_episodic_memories_by_time_slice` returns it.
        in_blank_context: whether the SQL of a context window without a query takes the newest of it.
    """

    initial_score: float
    by_importance: Mapping[Importance, float] = field(default_factory=dict)
    in_time_slices: bool = False
    in_blank_context: bool = False


MEMORY_TYPES: Mapping[MemoryType, MemoryTypeEntry] = MappingProxyType(
    {
        "episodic": MemoryTypeEntry(initial_score=0.5, in_time_slices=True),
        "semantic": MemoryTypeEntry(initial_score=0.7, by_importance={"high": 1.0, "medium": 0.7, "low": 0.4}),
        "summary": MemoryTypeEntry(initial_score=0.8, in_blank_context=True),
    }
)


def initial_score(memory_type: MemoryType, importance: Importance | None = None) -> float:
    """Return the score of a new memory, 0 to 1."""
    entry = MEMORY_TYPES[memory_type]
    return entry.initial_score if importance is None else entry.by_importance.get(importance, entry.initial_score)
