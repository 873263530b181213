"""The generator, the embedder and the reranker that the settings ask for."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hippocampus.providers import features, registry
from hippocampus.providers.registry import ModelConfig
from workers.settings import SettingsError

if TYPE_CHECKING:
    from hippocampus.providers.calls import CallGate, CallObserver
    from hippocampus.providers.protocols import Embedder, Generator, ModelReranker
    from hippocampus.providers.registry import Kind
    from workers.settings import ChosenModel, Settings


#: The part that the call may take of the time that a search gives its reranker.
_CALL_PART = 0.9


def make_model(settings: Settings, kind: Kind) -> Generator | Embedder | ModelReranker:
    """Return the chosen model of a kind, to be asked whether it answers; the caller closes it.

    Raises:
        SettingsError: as `make_generator` and its siblings.
    """
    if kind == "generator":
        return make_generator(settings)
    if kind == "embedder":
        return make_embedder(settings)
    # A model that runs in this process has to be loaded first; searches wait for none.
    reranker = make_reranker(settings.model_copy(update={"rerank_seconds": settings.generate_timeout_seconds}))
    assert reranker is not None  # noqa: S101 - it is one of the kinds
    return reranker


def make_generator(settings: Settings, on_call: CallObserver | None = None, gate: CallGate | None = None) -> Generator:
    """Return the generator that the settings choose; the caller closes it.

    Raises:
        SettingsError: a setting does not fit the provider, or a library that it needs is missing.
    """
    chosen = settings.chosen("generator")
    with _naming(chosen):
        config = dataclasses.replace(
            _config(settings, chosen, settings.generate_timeout_seconds, on_call, gate),
            features=None if settings.generator_features == "auto" else features.parse(settings.generator_features),
            output_tokens_max=settings.generator_output_tokens_max,
        )
        return registry.find(chosen.provider).load().make_generator(config)


def make_reranker(
    settings: Settings, on_call: CallObserver | None = None, gate: CallGate | None = None
) -> ModelReranker | None:
    """Return the chosen reranker, None if there is none; the caller closes it. A search makes one call, no second.

    Raises:
        SettingsError: as `make_generator`; also if nothing of the provider reranks.
    """
    if "reranker" not in settings.kinds:
        return None
    chosen, generator = settings.chosen("reranker"), settings.chosen("generator")
    is_same = (chosen.name, chosen.base_url) == (generator.name, generator.base_url)
    named = settings.generator_features if is_same else "auto"
    with _naming(chosen):
        config = dataclasses.replace(
            # Its own limit comes first, so that a server that is too slow is seen to fail.
            _config(settings, chosen, _CALL_PART * settings.rerank_seconds, on_call, gate),
            attempts=1,
            features=None if named == "auto" else features.parse(named),
            output_tokens_max=settings.generator_output_tokens_max,
        )
        return registry.find(chosen.provider).make_reranker(config)


def make_embedder(settings: Settings, on_call: CallObserver | None = None, gate: CallGate | None = None) -> Embedder:
    """Return the chosen embedder; the caller closes it.

    Raises:
        SettingsError: as `make_generator`; also if its vectors do not fit the columns.
    """
    return _embedder(settings, settings.embed_timeout_seconds, settings.provider_attempts_max, on_call, gate)


def make_query_embedder(
    settings: Settings, on_call: CallObserver | None = None, gate: CallGate | None = None
) -> Embedder:
    """Return the embedder of searches: one call within `query_embed_seconds`, since a search also works without it."""
    return _embedder(settings, settings.query_embed_seconds, 1, on_call, gate)


def _embedder(
    settings: Settings, timeout_seconds: float, attempts: int, on_call: CallObserver | None, gate: CallGate | None
) -> Embedder:
    chosen = settings.chosen("embedder")
    with _naming(chosen):
        config = dataclasses.replace(
            _config(settings, chosen, timeout_seconds, on_call, gate),
            attempts=attempts,
            dimensions=settings.embedder_dimensions,
            query_prefix=settings.embedder_query_prefix,
            document_prefix=settings.embedder_document_prefix,
            texts_max=settings.embedder_texts_max,
            text_tokens_max=settings.embedder_tokens_max,
        )
        return registry.find(chosen.provider).load().make_embedder(config)


@contextlib.contextmanager
def _naming(chosen: ChosenModel) -> Iterator[None]:
    """Name the setting in the errors of a provider."""
    try:
        yield
    except ValueError as error:
        raise SettingsError(f"HIPPOCAMPUS_{chosen.kind.upper()} is {chosen.name}: {error}") from None
    except Exception as error:
        if chosen.provider in registry.PROVIDERS:
            raise
        raise SettingsError(
            f"HIPPOCAMPUS_{chosen.kind.upper()} is {chosen.name}: {type(error).__name__}: {error}"
        ) from error


def _config(
    settings: Settings,
    chosen: ChosenModel,
    timeout_seconds: float,
    on_call: CallObserver | None,
    gate: CallGate | None,
) -> ModelConfig:
    return ModelConfig(
        model=chosen.model,
        api_key=None if chosen.api_key is None else chosen.api_key.get_secret_value(),
        base_url=chosen.base_url,
        timeout_seconds=timeout_seconds,
        attempts=settings.provider_attempts_max,
        on_call=on_call,
        gate=gate,
    )
