"""How much of the evidence for a question search finds, on a LoCoMo file: recall@5, @10, @20 and MRR by category.

python -m benchmarks.locomo FILE.json [--provider bm25|local|minilm] [--vectors FILE.npz] [--sources turns|default]
    [--oracle]

Each conversation becomes one user of a fresh database, each of its sessions a thread, each turn a message
("Speaker: text caption"). No language model is involved. Questions are asked the day after the last session: 'last
week' is the week before that.

With `--sources default`, the conversations are consolidated by the local provider first, and searched as a default call
does: turns, summaries, insights and facts. What counts is the turn itself, or a fact that was extracted from it; a
summary does not count.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import options
from benchmarks.consolidation import DirectClaim
from benchmarks.figures import figure
from benchmarks.server import fresh_server
from hippocampus.consolidation_worker import MemoryConsolidationWorker
from hippocampus.errors import ProviderError
from hippocampus.providers.local.provider import LocalEmbedder, LocalGenerator
from hippocampus.records import Vector
from hippocampus.search import EVERYTHING, MemorySearch, SearchFilter, SearchMemoryResult, SearchWeights
from pulse import database
from pulse.events import Event
from pulse.session_service import OpenSessionService

if TYPE_CHECKING:
    from hippocampus.providers.protocols import Embedder, EmbeddingTask

APP = "locomo"
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
DEPTHS = (5, 10, 20)
TURNS = SearchFilter(sources=("message",))


@dataclass(frozen=True, slots=True)
class Question:
    """A question, its category, and the turns (session, number) that hold its answer."""

    text: str
    category: int
    evidence: frozenset[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Recall:
    """Means over one category: the fraction of the evidence within each depth, and 1 / rank of the first piece."""

    questions: int
    at: tuple[float, ...]  # in the order of DEPTHS
    mrr: float


async def evaluate(
    path: Path,
    embedder: Embedder | None,
    *,
    pool: database.Pool,
    weights: SearchWeights | None = None,
    consolidated: bool = False,
    oracle: bool = False,
) -> dict[str, Recall]:
    """Ingest a LoCoMo file into an empty database and search it with its own questions.

    Args:
        consolidated: the local provider consolidates first, and all sources are searched.
        oracle: a reranker that knows the evidence orders the best 50: what the best reranker could reach.

    Returns:
        By category's name, and under ``1-4`` over all questions but the adversarial ones.
    """
    perfect = Oracle()
    search = MemorySearch(pool, embedder, weights=weights, reranker=perfect if oracle else None)
    found: list[tuple[int, tuple[float, ...]]] = []
    for conversation in json.loads(path.read_text(encoding="utf-8")):
        user = conversation["sample_id"]
        last_said = await ingest(pool, user, conversation["conversation"], embedder)
        if consolidated:
            await consolidate(pool, embedder or LocalEmbedder())
        texts = texts_of(conversation["conversation"])
        for question in questions(conversation["qa"]):
            perfect.wanted = {texts[turn] for turn in question.evidence if turn in texts}
            response = await search.search(
                app_name=APP,
                user_id=user,
                query=question.text,
                limit=max(DEPTHS),
                narrow=EVERYTHING if consolidated else TURNS,
                asked_at=last_said + timedelta(days=1),
                record_access=False,
            )
            found.append((question.category, measure(list(map(turns_of, response.memories)), question.evidence)))
    table = {name: mean([m for c, m in found if c == number]) for number, name in CATEGORIES.items()}
    table["1-4"] = mean([m for c, m in found if c in (1, 2, 3, 4)])
    return table


def questions(rows: Sequence[dict[str, Any]]) -> list[Question]:
    """The questions that name evidence."""
    found = []
    for row in rows:
        turns = re.findall(r"D(\d+):(\d+)", " ".join(row.get("evidence", [])))
        if turns:
            evidence = frozenset((f"session-{s}", int(n)) for s, n in turns)
            found.append(Question(row["question"], row["category"], evidence))
    return found


def turns_of(result: SearchMemoryResult) -> frozenset[tuple[str, int]]:
    """The turns that a result states: its own, or those of a fact; none of a summary or an insight."""
    if result.source == "memory":
        return frozenset()
    return frozenset((str(result.session_id), number) for number in result.source_seqs)


def measure(ranked: Sequence[frozenset[tuple[str, int]]], evidence: frozenset[tuple[str, int]]) -> tuple[float, ...]:
    """The fraction of the evidence within each depth, then 1 / rank of the first piece (0 if there is none)."""
    first = [rank for rank, turns in enumerate(ranked, 1) if turns & evidence]
    within = [len(evidence.intersection(frozenset().union(*ranked[:depth]))) for depth in DEPTHS]
    return (*(found / len(evidence) for found in within), 1 / first[0] if first else 0.0)


def mean(measures: Sequence[tuple[float, ...]]) -> Recall:
    """The means of `measure` over questions."""
    sums = [sum(column) / max(len(measures), 1) for column in zip(*measures, strict=True)] or [0.0] * (len(DEPTHS) + 1)
    return Recall(len(measures), tuple(sums[:-1]), sums[-1])


async def ingest(pool: database.Pool, user: str, conversation: dict[str, Any], embedder: Embedder | None) -> datetime:
    """Append the sessions of one conversation and give their messages vectors; return when the last session began."""
    sessions = OpenSessionService(pool)
    names = [name for name in conversation if re.fullmatch(r"session_\d+", name)]
    for name in sorted(names, key=lambda name: int(name[8:])):
        session_id = name.replace("_", "-")
        start = said_at(conversation[f"{name}_date_time"])
        turns = conversation[name]
        texts = [turn_text(turn) for turn in turns]
        await sessions.create_session(APP, user, session_id=session_id)
        events = [
            Event(
                author=turn["speaker"],
                content={"text": text},
                id=turn["dia_id"],
                event_type="user_message" if turn["speaker"] == conversation["speaker_a"] else "assistant_message",
                timestamp=(start + timedelta(seconds=30 * index)).timestamp(),
            )
            for index, (turn, text) in enumerate(zip(turns, texts, strict=True))
        ]
        for begin in range(0, len(events), 1000):
            await sessions.append(APP, user, session_id, events[begin : begin + 1000])
        if embedder is not None:
            vectors = await embedder.embed(texts, "document")
            await store_vectors(pool, user, session_id, [t["dia_id"] for t in turns], vectors, embedder.model)
    return max(said_at(conversation[f"{name}_date_time"]) for name in names)


async def consolidate(pool: database.Pool, embedder: Embedder) -> None:
    """Run what consolidation is due, with the local provider; vectors are the embedder's where it has them."""
    worker = MemoryConsolidationWorker(pool, LocalGenerator(), PatientEmbedder(embedder))
    await pool.execute("SELECT consolidate_session(app_name, user_id, session_id) FROM threads")
    while jobs := await pool.fetch(
        "SELECT id FROM consolidation_jobs WHERE status = 'pending' ORDER BY created_at, id"
    ):
        for job in jobs:
            await worker.run(job["id"], DirectClaim(job["id"]))


async def store_vectors(
    pool: database.Pool, user: str, session_id: str, ids: list[str], vectors: list[Vector], model: str
) -> None:
    """Give the messages of one session their vectors."""
    await pool.executemany(
        """UPDATE messages AS m SET embedding = $4, embedding_model = $5 FROM threads AS t
           WHERE t.app_name = 'locomo' AND t.user_id = $1 AND t.session_id = $2
             AND m.thread_id = t.id AND m.event_id = $3""",
        [(user, session_id, event_id, vector, model) for event_id, vector in zip(ids, vectors, strict=True)],
    )


def turn_text(turn: dict[str, Any]) -> str:
    """A turn as one text: who, what, and what the shared picture shows."""
    caption = turn.get("blip_caption")
    return f"{turn['speaker']}: {turn['text']}" + (f" {caption}" if caption else "")


def said_at(text: str) -> datetime:
    """The time of a session, such as "1:56 pm on 8 May, 2023"."""
    return datetime.strptime(text.strip(), "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)


class GivenVectors:
    """An embedder over precomputed vectors."""

    model = "given"

    def __init__(self, path: Path, vectors: Path) -> None:
        import numpy as np

        given = np.load(vectors)
        conversations = json.loads(path.read_text(encoding="utf-8"))
        self._by_text: dict[str, Vector] = {}
        turns = dict(zip(given["turn_ids"].tolist(), given["turns"].astype(float).tolist(), strict=True))
        asked = dict(zip(given["question_ids"].tolist(), given["questions"].astype(float).tolist(), strict=True))
        for conversation in conversations:
            name = conversation["sample_id"]
            for key, session in conversation["conversation"].items():
                if re.fullmatch(r"session_\d+", key):
                    for turn in session:
                        self._by_text[turn_text(turn)] = turns[f"{name}/{turn['dia_id']}"]
            for index, row in enumerate(conversation["qa"]):
                self._by_text[row["question"].strip()] = asked[f"{name}/q{index}"]

    async def embed(self, texts: Sequence[str], task: EmbeddingTask) -> list[Vector]:
        return [self._by_text[text] for text in texts]

    async def close(self) -> None:
        pass


def texts_of(conversation: dict[str, Any]) -> dict[tuple[str, int], str]:
    """The texts of a conversation's turns, by session and number."""
    return {
        (name.replace("_", "-"), number): turn_text(turn)
        for name, turns in conversation.items()
        if re.fullmatch(r"session_\d+", name)
        for number, turn in enumerate(turns, 1)
    }


class Oracle:
    """A reranker that knows the evidence."""

    def __init__(self) -> None:
        self.wanted: set[str] = set()

    async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        return [float(text in self.wanted) for text in texts]


class PatientEmbedder:
    """An embedder whose unknown texts are reported as refused, so that they are stored without vectors."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.model = embedder.model

    async def embed(self, texts: Sequence[str], task: EmbeddingTask) -> list[Vector]:
        try:
            return await self._embedder.embed(texts, task)
        except KeyError as error:
            raise ProviderError("no vector was given for a text") from error

    async def close(self) -> None:
        await self._embedder.close()


def embedder_of(provider: str, path: Path, vectors: Path | None) -> Embedder | None:
    """The embedder that a provider's name stands for."""
    if provider == "minilm":
        return GivenVectors(path, vectors or path.with_name(path.stem + "_minilm.npz"))
    if provider == "local":
        return LocalEmbedder()
    return None


async def main() -> None:
    parser = options.parser()
    parser.add_argument("path", type=Path)
    parser.add_argument("--provider", choices=("bm25", "local", "minilm"), default="local")
    parser.add_argument("--vectors", type=Path, help="for minilm: the file of vectors")
    parser.add_argument("--sources", choices=("turns", "default"), default="turns")
    parser.add_argument("--oracle", action="store_true", help="in the perfect order of the best 50")
    arguments = parser.parse_args()
    embedder = embedder_of(arguments.provider, arguments.path, arguments.vectors)
    async with fresh_server() as server, await database.create_pool(server.dsn) as pool:
        table = await evaluate(
            arguments.path,
            embedder,
            pool=pool,
            consolidated=arguments.sources == "default",
            oracle=arguments.oracle,
        )
    print(
        f"{arguments.provider:<12} {'questions':>9}" + "".join(f"{f'recall@{d}':>11}" for d in DEPTHS) + f"{'MRR':>8}"
    )
    for name, recall in table.items():
        print(f"{name:<12} {recall.questions:>9}" + "".join(f"{r:>11.3f}" for r in recall.at) + f"{recall.mrr:>8.3f}")
    if arguments.sources == "default" and embedder is not None and not arguments.oracle:
        figure(f"recall_{arguments.provider}", table["1-4"].at[DEPTHS.index(10)])


if __name__ == "__main__":
    asyncio.run(main())
