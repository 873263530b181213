"""How much of the evidence search finds among notes that have nothing to do with each other, against plain BM25.

python -m benchmarks.diaries [--vectors local|none]

Two sets, Chinese diaries and English notes, are made from the sentences of `benchmarks/data/diaries.json` with fixed
seeds: twelve notebooks of 43 unrelated notes each, seven questions a notebook. In `single`, each notebook is searched
by itself. In `pooled`, all are sessions of one user, who is asked about people only: every notebook has its own
dentist. The peer is plain BM25 over the notes' own terms: words, in Chinese pairs of characters.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import options
from benchmarks.server import fresh_server
from hippocampus.providers.local.embedding import LocalEmbedder
from hippocampus.search import MemorySearch, SearchFilter
from pulse import database
from pulse.events import Event
from pulse.session_service import OpenSessionService

if TYPE_CHECKING:
    from hippocampus.providers.protocols import Embedder

SENTENCES = Path(__file__).with_name("data") / "diaries.json"
APP = "diaries"
NOTEBOOKS = 12
QUESTIONS = 7
LANGUAGES = ("zh", "en")
DEPTH = 5
NOTES = SearchFilter(sources=("message",))


@dataclass(frozen=True, slots=True)
class Notebook:
    """Notes in order, and questions with the numbers, from 1, of the notes that answer them."""

    notes: tuple[str, ...]
    questions: tuple[tuple[str, frozenset[int], bool], ...]  # the last: whether it is about a person


def notebooks(language: str) -> list[Notebook]:
    """The notebooks of a language, the same at every call."""
    sentences = json.loads(SENTENCES.read_text(encoding="utf-8"))[language]
    names = list(sentences["names"])
    random.Random(f"{language}-names").shuffle(names)
    return [_notebook(sentences, names[3 * n : 3 * n + 3], f"{language}-{n}") for n in range(NOTEBOOKS)]


def _notebook(sentences: dict[str, Any], names: Sequence[str], seed: str) -> Notebook:
    """Three people and some plans, each said in one note, among chatter and what is known of other people."""
    chance = random.Random(seed)
    notes: list[tuple[str, str, bool]] = [(text, "", False) for text in chance.sample(sentences["chatter"], 22)]
    relations = chance.sample(sentences["relations"], len(names))
    for name, relation in zip(names, relations, strict=True):
        for kind in chance.sample(sentences["people"], 5):
            notes.append((*_said(chance, kind, {"name": name, "relation": relation}), True))
    for plan in chance.sample(sentences["plans"], 6):
        notes.append((*_said(chance, plan, {}), False))
    chance.shuffle(notes)
    asked = chance.sample([place for place, (_, question, _) in enumerate(notes, 1) if question], QUESTIONS)
    return Notebook(
        notes=tuple(text for text, _, _ in notes),
        questions=tuple((notes[place - 1][1], frozenset((place,)), notes[place - 1][2]) for place in asked),
    )


def _said(chance: random.Random, kind: dict[str, Any], words: dict[str, str]) -> tuple[str, str]:
    """One note and one question about it, in words of their own."""
    filled = {**words, **{slot: chance.choice(values) for slot, values in kind.get("slots", {}).items()}}
    note = chance.choice(kind["notes"]).format(**filled)
    return note, chance.choice(kind["questions"]).format(**filled)


def terms(text: str, language: str) -> list[str]:
    """Words; in Chinese, pairs of characters and other words."""
    found = re.findall(r"[a-z0-9]+", text.lower())
    if language == "zh":
        for run in re.findall(r"[\u4e00-\u9fff]+", text):
            found += [run[i : i + 2] for i in range(len(run) - 1)] or [run]
    return found


def plain_bm25(notes: Sequence[str], query: str, language: str, depth: int) -> list[int]:
    """The places, from 0, of the best notes by Okapi BM25 (k1 1.2, b 0.75)."""
    documents = [Counter(terms(note, language)) for note in notes]
    lengths = [sum(document.values()) for document in documents]
    mean = sum(lengths) / len(lengths)
    scores = [0.0] * len(notes)
    for term in set(terms(query, language)):
        holders = [place for place, document in enumerate(documents) if term in document]
        rarity = math.log(1 + (len(notes) - len(holders) + 0.5) / (len(holders) + 0.5))
        for place in holders:
            tf = documents[place][term]
            scores[place] += rarity * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * lengths[place] / mean))
    order = sorted(range(len(notes)), key=lambda place: -scores[place])
    return [place for place in order[:depth] if scores[place] > 0]


async def ingest(
    pool: database.Pool, user: str, session_id: str, notes: Sequence[str], embedder: Embedder | None
) -> None:
    """Append the notes of one notebook as turns of their user and store their vectors."""
    sessions = OpenSessionService(pool)
    await sessions.create_session(APP, user, session_id=session_id)
    events = [Event(author="user", content={"text": note}) for note in notes]
    await sessions.append(APP, user, session_id, events)
    if embedder is not None:
        vectors = await embedder.embed(notes, "document")
        await pool.executemany(
            """UPDATE messages AS m SET embedding = $4, embedding_model = $5 FROM threads AS t
               WHERE t.app_name = 'diaries' AND t.user_id = $1 AND t.session_id = $2
                 AND m.thread_id = t.id AND m.sequence_num = $3""",
            [(user, session_id, place, vector, embedder.model) for place, vector in enumerate(vectors, 1)],
        )


@dataclass(frozen=True, slots=True)
class Compared:
    """Recall@5 of search and of plain BM25 over the same questions."""

    questions: int
    search: float
    bm25: float


def _user(language: str, number: int, *, pooled: bool) -> str:
    return f"{language}-pooled" if pooled else f"{language}-single-{number}"


async def ingest_all(pool: database.Pool, language: str, embedder: Embedder | None, *, pooled: bool) -> None:
    """Append every notebook of a language; pooled: as sessions of one user."""
    for number, book in enumerate(notebooks(language)):
        await ingest(pool, _user(language, number, pooled=pooled), f"book-{number}", book.notes, embedder)


async def evaluate(pool: database.Pool, language: str, embedder: Embedder | None, *, pooled: bool) -> Compared:
    """Search every notebook of `ingest_all` with its own questions; without an embedder, by words alone."""
    books = notebooks(language)
    search = MemorySearch(pool, embedder)
    everything = [(number, place) for number, book in enumerate(books) for place in range(len(book.notes))]
    ours: list[float] = []
    peer: list[float] = []
    for number, query, evidence in _asked(books, people=pooled):
        found = await search.search(
            app_name=APP,
            user_id=_user(language, number, pooled=pooled),
            query=query,
            limit=DEPTH,
            narrow=NOTES,
            record_access=False,
        )
        hits = {(result.session_id, result.from_seq) for result in found.memories}
        ours.append(len(hits & {(f"book-{number}", place) for place in evidence}) / len(evidence))
        if pooled:
            texts = [books[n].notes[place] for n, place in everything]
            best = {everything[place] for place in plain_bm25(texts, query, language, DEPTH)}
        else:
            best = {(number, place) for place in plain_bm25(books[number].notes, query, language, DEPTH)}
        peer.append(len(best & {(number, place - 1) for place in evidence}) / len(evidence))
    return Compared(len(ours), sum(ours) / len(ours), sum(peer) / len(peer))


def _asked(books: Sequence[Notebook], *, people: bool) -> Iterator[tuple[int, str, frozenset[int]]]:
    for number, book in enumerate(books):
        for query, evidence, is_person in book.questions:
            if is_person or not people:
                yield number, query, evidence


async def main() -> None:
    parser = options.parser()
    parser.add_argument("--vectors", choices=("local", "none"), default="local")
    arguments = parser.parse_args()
    embedder = LocalEmbedder() if arguments.vectors == "local" else None
    print(f"{'set':<14}{'questions':>10}{'recall@5':>10}{'BM25':>8}   (vectors: {arguments.vectors})")
    async with fresh_server() as server, await database.create_pool(server.dsn) as pool:
        for language in LANGUAGES:
            for pooled in (False, True):
                await ingest_all(pool, language, embedder, pooled=pooled)
                found = await evaluate(pool, language, embedder, pooled=pooled)
                name = f"{language} {'pooled' if pooled else 'single'}"
                print(f"{name:<14}{found.questions:>10}{found.search:>10.3f}{found.bm25:>8.3f}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
