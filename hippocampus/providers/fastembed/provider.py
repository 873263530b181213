"""Any text model and cross-encoder of fastembed. Its files are downloaded at the first use, by fastembed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from hippocampus.providers import registry
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

PROVIDER = "fastembed"
_KNOWN = registry.PROVIDERS[PROVIDER].reranking_model
#: Most models read 512 tokens and ignore the rest.
_TEXT_TOKENS_MAX = 450
_TEXTS_PER_CALL_MAX = 32


def make_generator(_config: ModelConfig) -> NoReturn:
    """Raise ValueError: there are no generators."""
    no_generator(PROVIDER)


def make_embedder(config: ModelConfig) -> InProcessEmbedder:
    """Return an embedder; see `hippocampus.providers.registry.ProviderModule`."""
    models = library("fastembed").TextEmbedding
    limits = config.limits(texts=_TEXTS_PER_CALL_MAX, text_tokens=_TEXT_TOKENS_MAX)

    def load() -> EmbeddingModel:
        model = models(model_name=config.model)

        def encode(texts: list[str], task: EmbeddingTask) -> Sequence[Sequence[float]]:
            vectors = (model.query_embed if task == "query" else model.passage_embed)(texts)
            return [vector.tolist() for vector in vectors]

        return EmbeddingModel(encode)

    # A model has one size.
    space = replace(config, dimensions=None).vector_space()
    size = int(models.get_embedding_size(config.model))
    return InProcessEmbedder(space, load, limits, size=size, query_seconds=config.timeout_seconds)


def make_reranker(config: ModelConfig) -> InProcessReranker:
    """Return a cross-encoder; see `hippocampus.providers.registry.ProviderModule`.

    The model may be a folder with the files of one: ``onnx/model.onnx`` and those of its tokenizer. Then nothing is
    downloaded.
    """
    library("fastembed")
    encoders = library("fastembed.rerank.cross_encoder").TextCrossEncoder

    def load() -> Score:
        folder = Path(config.model)
        # The library knows models by name: of a folder, any whose file is where that of most is.
        given = {"model_name": _KNOWN, "specific_model_path": str(folder)} if folder.is_dir() else {}
        model = encoders(**{"model_name": config.model, **given})

        def score(query: str, texts: list[str]) -> Iterable[Any]:
            scores: Iterable[Any] = model.rerank(query, texts)
            return scores

        return score

    return InProcessReranker(config.model, load)
