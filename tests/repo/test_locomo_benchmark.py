"""The recall benchmark counts correctly."""

from __future__ import annotations

import json
from pathlib import Path

import asyncpg
import numpy as np
import pytest

from benchmarks import locomo
from benchmarks.locomo import embedder_of, evaluate, measure
from hippocampus.providers.local.embedding import LocalEmbedder
from tests.support.memory_rows import WordEmbedder

CONVERSATION = {
    "sample_id": "talk-1",
    "conversation": {
        "speaker_a": "Ines",
        "speaker_b": "Bo",
        "session_1_date_time": "9:05 am on 3 March, 2024",
        "session_1": [
            {"speaker": "Ines", "dia_id": "D1:1", "text": "I adopted a greyhound."},
            {"speaker": "Bo", "dia_id": "D1:2", "text": "Lovely!", "blip_caption": "a photo of a red kayak"},
        ],
        "session_2_date_time": "7:00 pm on 4 March, 2024",
        "session_2": [{"speaker": "Bo", "dia_id": "D2:1", "text": "My sister sells tulips."}],
    },
    "qa": [
        {"question": "Which dog did Ines adopt?", "evidence": ["D1:1"], "category": 4},
        {"question": "Who showed a kayak and sells tulips?", "evidence": ["D1:2; D2:1"], "category": 1},
        {"question": "What about zeppelins?", "evidence": ["D9:9"], "category": 3},
        {"question": "No evidence is named here", "evidence": [], "category": 2},
    ],
}


@pytest.mark.parametrize("embedded", [True, False])
async def test_evidence_is_found_by_category(pool: asyncpg.Pool, tmp_path: Path, embedded: bool) -> None:
    """Captions are searched, each piece of evidence in a string counts, and missing evidence counts as missed."""
    path = tmp_path / "talk.json"
    path.write_text(json.dumps([CONVERSATION]))
    table = await evaluate(path, WordEmbedder() if embedded else None, pool=pool)
    assert (table["single-hop"].questions, table["single-hop"].at, table["single-hop"].mrr) == (1, (1, 1, 1), 1)
    assert (table["multi-hop"].questions, table["multi-hop"].at) == (1, (1, 1, 1))
    assert (table["open-domain"].questions, table["open-domain"].at, table["open-domain"].mrr) == (1, (0, 0, 0), 0)
    assert table["temporal"].questions == 0
    assert table["1-4"].questions == 3


def test_the_measures_match_a_calculation_by_hand() -> None:
    ranked = [frozenset({("s", rank)}) for rank in range(1, 21)]
    assert measure(ranked, frozenset({("s", 2), ("s", 7), ("s", 30), ("t", 1)})) == (0.25, 0.5, 0.5, 0.5)
    fact_of_two_turns = [frozenset(), frozenset({("s", 2), ("s", 7)})]
    assert measure(fact_of_two_turns, frozenset({("s", 2), ("s", 7)})) == (1, 1, 1, 0.5)


async def test_default_sources_are_searched_after_consolidation(pool: asyncpg.Pool, tmp_path: Path) -> None:
    """The local provider consolidates every session; a turn is found as itself, also past the watermark."""
    path = tmp_path / "talk.json"
    path.write_text(json.dumps([CONVERSATION]))
    table = await evaluate(path, LocalEmbedder(), pool=pool, consolidated=True)
    assert await pool.fetchval("SELECT count(*) FROM memories WHERE memory_type = 'summary'") == 2
    assert await pool.fetchval("SELECT bool_and(fast_upto_seq = last_seq) FROM threads")
    assert table["single-hop"].at == (1, 1, 1)
    assert table["multi-hop"].at == (1, 1, 1)


async def test_given_vectors_belong_to_the_file_they_were_made_for(tmp_path: Path) -> None:
    """Whatever the names of the two files."""
    path, vectors = tmp_path / "talk.json", tmp_path / "elsewhere.npz"
    path.write_text(json.dumps([CONVERSATION]))
    turns, questions = ("D1:1", "D1:2", "D2:1"), len(CONVERSATION["qa"])
    np.savez(
        vectors,
        turn_ids=[f"talk-1/{turn}" for turn in turns],
        turns=np.eye(3, 384),
        question_ids=[f"talk-1/q{number}" for number in range(questions)],
        questions=np.eye(questions, 384),
    )
    embedder = embedder_of("minilm", path, vectors)
    assert embedder is not None
    (turn, question) = await embedder.embed(["Bo: My sister sells tulips.", "What about zeppelins?"], "document")
    assert turn == question == [0.0, 0.0, 1.0, *[0.0] * 381]


async def test_a_default_search_without_vectors_is_printed_beside_no_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Targets are of searches with vectors."""
    path = tmp_path / "talk.json"
    path.write_text(json.dumps([CONVERSATION]), encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["locomo", str(path), "--provider", "bm25", "--sources", "default"])
    await locomo.main()
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("bm25")
    assert printed[-1].startswith("1-4")
