"""How much of the evidence the local vectors find on a LoCoMo file, alone and combined with BM25.

    python benchmarks/local_embedding.py PATH

Documents are the turns ("Speaker: text caption"), queries the questions of categories 1 to 4; the score is
the mean fraction of a question's evidence turns among the first ten. This measures the vectors, not the
search as a whole.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import options
from hippocampus.providers.local import embedding
from hippocampus.text import words

TOP = 10
#: BM25, vectors, and the same two over each turn's neighbours.
WEIGHTS = (1.0, 0.8, 0.4, 0.4)
K1, B = 0.9, 0.3


def turns_of(conversation: dict[str, Any]) -> tuple[list[str], list[str], list[int]]:
    """Ids, texts and session numbers of all turns."""
    ids, texts, sessions = [], [], []
    number = 1
    while f"session_{number}" in conversation:
        for line in conversation[f"session_{number}"]:
            ids.append(line["dia_id"])
            texts.append(f"{line['speaker']}: {line['text']} {line.get('blip_caption', '')}".strip())
            sessions.append(number)
        number += 1
    return ids, texts, sessions


def bm25_terms(text: str) -> list[str]:
    return [words.stem(word) for word in words.tokens(text) if word not in words.STOPWORDS]


def bm25_scores(documents: list[str], query: str) -> np.ndarray:
    bags = [Counter(bm25_terms(document)) for document in documents]
    lengths = np.array([sum(bag.values()) for bag in bags], dtype=float)
    scores = np.zeros(len(bags))
    for term in set(bm25_terms(query)):
        counts = np.array([bag[term] for bag in bags], dtype=float)
        frequency = float((counts > 0).sum())
        weight = math.log(1 + (len(bags) - frequency + 0.5) / (frequency + 0.5))
        scores += weight * counts * (K1 + 1) / (counts + K1 * (1 - B + B * lengths / lengths.mean()))
    return scores


def neighbours(scores: np.ndarray, sessions: list[int]) -> np.ndarray:
    """Return the better score of each turn's neighbours within its session."""
    out = np.zeros_like(scores)
    for i in range(len(scores)):
        neighbours = [j for j in (i - 1, i + 1) if 0 <= j < len(scores) and sessions[j] == sessions[i]]
        out[i] = max(scores[j] for j in neighbours) if neighbours else 0.0
    return out


def scaled(scores: np.ndarray) -> np.ndarray:
    spread = scores.max() - scores.min()
    return (scores - scores.min()) / spread if spread > 0 else np.zeros_like(scores)


def recall(scores: np.ndarray, wanted: list[int]) -> float:
    first = set(np.argsort(-scores, kind="stable")[:TOP].tolist())
    return sum(index in first for index in wanted) / len(wanted)


def measure(path: Path) -> dict[str, dict[int, float]]:
    """Recall per way of scoring, by category and (0) over all."""
    found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for item in json.loads(path.read_text(encoding="utf-8")):
        ids, texts, sessions = turns_of(item["conversation"])
        vectors = np.array([embedding.vector_of(text) for text in texts])
        index_of = {dia_id: index for index, dia_id in enumerate(ids)}
        for question in item["qa"]:
            evidence = re.findall(r"D\d+:\d+", " ".join(question["evidence"]))
            wanted = sorted({index_of[dia_id] for dia_id in evidence if dia_id in index_of})
            if question["category"] == 5 or not wanted:
                continue
            lexical = scaled(bm25_scores(texts, question["question"]))
            cosine = scaled(vectors @ np.array(embedding.vector_of(question["question"])))
            parts = (
                lexical,
                cosine,
                scaled(neighbours(lexical, sessions)),
                scaled(neighbours(cosine, sessions)),
            )
            fused = sum(weight * part for weight, part in zip(WEIGHTS, parts, strict=True))
            ways = {
                "bm25": lexical,
                "vectors": cosine,
                "bm25+vectors": lexical + cosine,
                "with neighbours": fused,
            }
            for way, scores in ways.items():
                for category in (0, question["category"]):
                    found[way][category].append(recall(scores, wanted))
    return {way: {c: float(np.mean(v)) for c, v in sorted(by.items())} for way, by in found.items()}


def main() -> None:
    parser = options.parser()
    parser.add_argument("path", type=Path)
    arguments = parser.parse_args()
    for way, by_category in measure(arguments.path).items():
        cells = "  ".join(f"{'all' if c == 0 else f'cat {c}'} {value:.3f}" for c, value in by_category.items())
        print(f"recall@{TOP}  {way:<16} {cells}")
    texts = [f"{n} The quick session moved to room {n % 97} and nobody minded. " * 3 for n in range(2_000)]
    began = time.perf_counter()
    for text in texts:
        embedding.vector_of(text)
    print(f"{len(texts) / (time.perf_counter() - began):.0f} texts of {len(texts[0])} characters per second")


if __name__ == "__main__":
    main()
