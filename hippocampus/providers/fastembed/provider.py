"""Any text model of fastembed. Its files are downloaded at the first use, by fastembed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from hippocampus.providers.in_process import Encode, InProcessEmbedder, library, no_generator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hippocampus.providers.protocols import EmbeddingTask
    from hippocampus.providers.registry import ModelConfig

PROVIDER = "fastembed"
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

    def load() -> Encode:
        model = models(model_name=config.model)

        def encode(texts: list[str], task: EmbeddingTask) -> Sequence[Sequence[float]]:
            vectors = (model.query_embed if task == "query" else model.passage_embed)(texts)
            return [vector.tolist() for vector in vectors]

        return encode

    return InProcessEmbedder(config.model, load, limits, size=int(models.get_embedding_size(config.model)))
