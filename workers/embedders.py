"""The embedder that the settings ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hippocampus.providers.local_embedding import LocalEmbedder

if TYPE_CHECKING:
    from hippocampus.providers.calls import CallGate, CallObserver
    from hippocampus.providers.protocols import Embedder
    from workers.settings import Settings


def make_embedder(settings: Settings, on_call: CallObserver | None = None, gate: CallGate | None = None) -> Embedder:
    """Return the embedder of the active provider; the caller closes it."""
    if settings.active_provider == "local" or settings.google_api_key is None:
        return LocalEmbedder()
    # Only here: google-genai takes a second to import, which the local provider need not wait for.
    from hippocampus.providers import gemini

    connection = gemini.GeminiConnection(
        api_key=settings.google_api_key.get_secret_value(),
        base_url=settings.gemini_base_url or gemini.BASE_URL,
        timeout_seconds=settings.embed_timeout_seconds,
        attempts=settings.provider_tries_max,
    )
    return gemini.GeminiEmbedder(connection, model=settings.embedding_model, on_call=on_call, gate=gate)
