"""Any model and cross-encoder of sentence-transformers. Its files are downloaded at the first use, by that library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from hippocampus.providers.in_process import (
    EmbeddingModel,
    InProcessEmbedder,
    InProcessReranker,
    Score,
    library,
    no_generator,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hippocampus.providers.protocols import EmbeddingTask
    from hippocampus.providers.registry import ModelConfig

PROVIDER = "sentence-transformers"
#: Many models read 512 tokens and ignore the rest.
_TEXT_TOKENS_MAX = 450
_TEXTS_PER_CALL_MAX = 32


def make_generator(_config: ModelConfig) -> NoReturn:
    """Raise ValueError: there are no generators."""
    no_generator(PROVIDER)


def make_embedder(config: ModelConfig) -> InProcessEmbedder:
    """Return an embedder; see `hippocampus.providers.registry.ProviderModule`.

    The model's own prompts are used, unless a prefix is given.
    """
    models = library("sentence_transformers")
    limits = config.limits(texts=_TEXTS_PER_CALL_MAX, text_tokens=_TEXT_TOKENS_MAX)
    prompts = {"prompts": {"query": "", "document": ""}} if config.query_prefix or config.document_prefix else {}

    def load() -> EmbeddingModel:
        model = models.SentenceTransformer(config.model, truncate_dim=config.dimensions, **prompts)

        def encode(texts: list[str], task: EmbeddingTask) -> Sequence[Sequence[float]]:
            function = model.encode_query if task == "query" else model.encode_document
            vectors: list[list[float]] = function(texts, show_progress_bar=False).tolist()
            return vectors

        return EmbeddingModel(encode, model.max_seq_length)

    return InProcessEmbedder(
        config.vector_space(), load, limits, size=config.dimensions, query_seconds=config.timeout_seconds
    )


def make_reranker(config: ModelConfig) -> InProcessReranker:
    """Return a cross-encoder; see `hippocampus.providers.registry.ProviderModule`. The model may be a folder."""
    models = library("sentence_transformers")

    def load() -> Score:
        model = models.CrossEncoder(config.model)

        def score(query: str, texts: list[str]) -> Iterable[Any]:
            scores: Iterable[Any] = model.predict([(query, text) for text in texts], show_progress_bar=False)
            return scores

        return score

    return InProcessReranker(config.model, load)
