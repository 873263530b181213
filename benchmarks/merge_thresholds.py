"""The similarity from which two texts mean the same: precision and recall over written pairs, per embedding model.

    python -m benchmarks.merge_thresholds

Measures the provider that the settings name (`local` without a key). The chosen threshold is the lowest at which
nine of ten merges are right. The pairs that differ were written to mislead; a merge can be listed and undone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import options
from hippocampus.facts.keys import contrast_of, normal_key
from hippocampus.providers.protocols import Embedder
from workers import settings
from workers.models.factory import make_embedder

PAIRS = Path(__file__).with_name("merge_pairs.txt")
#: The speakers that appear in the pairs.
SPEAKERS = ("caroline", "melanie", "tom", "ann", "小红", "小明")
PRECISION_MIN = 0.9


@dataclass(frozen=True, slots=True)
class Pair:
    """Two texts, and whether they mean the same."""

    kind: str  # 'fact' or 'insight'
    is_same: bool
    left: str
    right: str


@dataclass(frozen=True, slots=True)
class Measured:
    """The effect on the pairs of merging from a given similarity."""

    threshold: float
    precision: float  # 1 if nothing is merged
    recall: float


def read_pairs(path: Path = PAIRS) -> list[Pair]:
    """Read the pairs that similarity decides.

    Pairs whose keys have one normal form are always merged, and pairs with a contrast never: both are left out.
    """
    pairs, kind = [], ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            kind = line.strip("[]")
        elif line.startswith(("= ", "! ")):
            left, right = line[2:].split(" | ")
            pairs.append(Pair(kind, line[0] == "=", left, right))
    return [pair for pair in pairs if pair.kind != "fact" or not _is_decided(pair)]


async def similarities(embedder: Embedder, pairs: Sequence[Pair]) -> list[float]:
    """The cosine of each pair."""
    vectors = await embedder.embed([text for pair in pairs for text in (pair.left, pair.right)], "document")
    couples = zip(vectors[::2], vectors[1::2], strict=True)
    return [sum(a * b for a, b in zip(left, right, strict=True)) for left, right in couples]


def measure(pairs: Sequence[Pair], found: Sequence[float], threshold: float) -> Measured:
    """Merge pairs with at least this similarity."""
    merged = [pair.is_same for pair, likeness in zip(pairs, found, strict=True) if likeness >= threshold]
    same = sum(pair.is_same for pair in pairs)
    return Measured(threshold, sum(merged) / len(merged) if merged else 1.0, sum(merged) / same)


def choose(pairs: Sequence[Pair], found: Sequence[float]) -> float:
    """The lowest threshold, in hundredths, at which PRECISION_MIN is reached."""
    steps = [step / 100 for step in range(10, 101)]
    return next(step for step in steps if measure(pairs, found, step).precision >= PRECISION_MIN)


async def run() -> None:
    """Print precision and recall by threshold, and the threshold that is chosen, for facts and insights."""
    embedder = make_embedder(settings.load())
    try:
        for kind in ("fact", "insight"):
            pairs = [pair for pair in read_pairs() if pair.kind == kind]
            found = await similarities(embedder, pairs)
            print(
                f"{embedder.model}, {kind}: {len(pairs)} pairs, {sum(pair.is_same for pair in pairs)} of them the same"
            )
            chosen = choose(pairs, found)
            for threshold in sorted({*(step / 20 for step in range(6, 20)), chosen}):
                result = measure(pairs, found, threshold)
                mark = "  <- chosen" if threshold == chosen else ""
                print(f"  {threshold:.2f}  precision {result.precision:.2f}  recall {result.recall:.2f}{mark}")
            print(
                f"  INSERT INTO merge_thresholds VALUES ('{embedder.model}', '{kind}', {chosen}, 'measured')"
                " ON CONFLICT (embedding_model, kind) DO UPDATE SET threshold = EXCLUDED.threshold;"
            )
    finally:
        await embedder.close()


def _is_decided(pair: Pair) -> bool:
    left, right = (text.split(": ")[0] for text in (pair.left, pair.right))
    return normal_key(left) == normal_key(right) or contrast_of(left, SPEAKERS) != contrast_of(right, SPEAKERS)


if __name__ == "__main__":
    options.parser().parse_args()
    asyncio.run(run())
