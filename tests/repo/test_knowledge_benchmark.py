"""The benchmark of knowledge reads a set in the form of BEIR, and its nDCG is that of trec_eval."""

from __future__ import annotations

import json
from pathlib import Path

import asyncpg
import pytest

from benchmarks import knowledge


def test_ndcg_counts_grades_by_place() -> None:
    """The better of two relevant documents is second and the other third."""
    assert knowledge.ndcg(["x", "a", "b"], {"a": 2, "b": 1}) == pytest.approx(
        (2 / 1.584963 + 1 / 2) / (2 + 1 / 1.584963), abs=1e-6
    )
    assert knowledge.ndcg(["a"], {"a": 1}) == 1
    assert knowledge.ndcg(["x"] * 10 + ["a"], {"a": 1}) == 0
    assert knowledge.ndcg(["x"], {}) == 0


async def test_a_folder_of_beir_is_measured(pool: asyncpg.Pool, tmp_path: Path) -> None:
    """Questions without a judgement and grades of zero do not count."""
    documents = {
        "d1": ("Kilns", "The kiln is lit at dawn and cools for two days."),
        "d2": ("Customs", "Duties are paid by the receiver."),
        "d3": ("", "Straw protects fragile goods."),
    }
    (tmp_path / "corpus.jsonl").write_text(
        "\n".join(json.dumps({"_id": name, "title": title, "text": text}) for name, (title, text) in documents.items())
    )
    questions = {"q1": "when is the kiln lit", "q2": "who pays customs duties", "q3": "unjudged straw"}
    (tmp_path / "queries.jsonl").write_text(
        "\n".join(json.dumps({"_id": name, "text": text}) for name, text in questions.items())
    )
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td3\t2\nq2\td2\t0\n")
    texts, asked, relevant = knowledge.beir(tmp_path)
    assert (set(texts), set(asked), relevant) == (set(documents), {"q1", "q2"}, {"q1": {"d1": 1}, "q2": {"d3": 2}})
    words, local = await knowledge.quality(pool, texts, asked, relevant)
    # The second question's judgement is wrong on purpose: what matches it is not what counts.
    assert words == 0.5
    assert 0.5 <= local < 1
