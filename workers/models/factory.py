"""The generator and the embedder that the settings ask for."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from hippocampus.providers import registry
from hippocampus.providers.registry import ModelConfig

if TYPE_CHECKING:
    from hippocampus.providers.calls import CallGate, CallObserver
    from hippocampus.providers.protocols import Embedder, Generator
    from workers.settings import Settings


def make_generator(settings: Settings, on_call: CallObserver | None = None, gate: CallGate | None = None) -> Generator:
    """Return the generator of the chosen provider; the caller closes it."""
    config = _config(settings, settings.generation_model, settings.generate_timeout_seconds, on_call, gate)
    return registry.find(settings.provider).load().make_generator(config)


def make_embedder(settings: Settings, on_call: CallObserver | None = None, gate: CallGate | None = None) -> Embedder:
    """Return the embedder of the chosen provider; the caller closes it."""
    config = _config(settings, settings.embedding_model, settings.embed_timeout_seconds, on_call, gate)
    return registry.find(settings.provider).load().make_embedder(config)


def make_query_embedder(
    settings: Settings, on_call: CallObserver | None = None, gate: CallGate | None = None
) -> Embedder:
    """Return the embedder of searches: one call within `query_embed_seconds`, since a search also works without it."""
    config = _config(settings, settings.embedding_model, settings.query_embed_seconds, on_call, gate)
    return registry.find(settings.provider).load().make_embedder(dataclasses.replace(config, attempts=1))


def _config(
    settings: Settings, model: str, timeout_seconds: float, on_call: CallObserver | None, gate: CallGate | None
) -> ModelConfig:
    key = settings.provider_api_key
    return ModelConfig(
        model=model,
        api_key=None if key is None else key.get_secret_value(),
        base_url=settings.provider_base_url,
        timeout_seconds=timeout_seconds,
        attempts=settings.provider_attempts_max,
        on_call=on_call,
        gate=gate,
    )
