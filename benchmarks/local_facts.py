"""Facts that the local provider extracts from a LoCoMo file: their number, and a sample to judge by hand.

    python benchmarks/local_facts.py PATH --sample 100 --seed 1

Each session is cut into slices of at most 20 turns, as a worker does. Every sampled fact is printed with
the turns that it cites. The questions are: was this said, is it about this person, and does the value make sense by
itself?
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks import options
from hippocampus.providers.local import facts
from hippocampus.records import ConversationSlice, ExtractedFact, Turn

SLICE_TURNS = 20


def slices(conversation: dict[str, Any]) -> Iterator[ConversationSlice]:
    """The conversation's sessions in slices, sequence numbers running through all of them."""
    sequence_num = 0
    number = 1
    while f"session_{number}" in conversation:
        said_at = conversation[f"session_{number}_date_time"]
        when = datetime.strptime(f"{said_at} +0000", "%I:%M %p on %d %B, %Y %z")
        turns = []
        for line in conversation[f"session_{number}"]:
            sequence_num += 1
            turns.append(
                Turn(
                    sequence_num=sequence_num,
                    author=line["speaker"],
                    role="user",
                    text=line["text"],
                    occurred_at=when,
                )
            )
        for start in range(0, len(turns), SLICE_TURNS):
            yield ConversationSlice(turns=tuple(turns[start : start + SLICE_TURNS]))
        number += 1


def main() -> None:
    parser = options.parser()
    parser.add_argument("path", type=Path)
    parser.add_argument("--sample", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    found: list[tuple[str, ExtractedFact, list[str]]] = []
    for item in json.loads(arguments.path.read_text(encoding="utf-8")):
        name, sessions = item["sample_id"], item["conversation"]
        before = len(found)
        for conversation_slice in slices(sessions):
            texts = {turn.sequence_num: f"{turn.author}: {turn.text}" for turn in conversation_slice.turns}
            for fact in facts.of_slice(conversation_slice):
                found.append((name, fact, [texts[seq] for seq in fact.source_seqs]))
        print(f"{name}: {len(found) - before} facts, {len({f.key for n, f, _ in found if n == name})} keys")
    topics = Counter(fact.key.split(":")[1 if ":" in fact.key else 0] for _, fact, _ in found)
    print("by topic:", dict(topics.most_common()))
    chosen = random.Random(arguments.seed).sample(found, min(arguments.sample, len(found)))
    for number, (name, fact, texts) in enumerate(chosen, 1):
        print(f"\n{number}. [{name}] {fact.fact_type} {fact.key} ({fact.confidence})")
        print(f"   {json.dumps(fact.value, ensure_ascii=False)}")
        for line in texts:
            print(f"   < {line}")


if __name__ == "__main__":
    main()
