"""The embedder that the settings ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hippocampus.providers.local.embedding import LocalEmbedder
from workers.models import gemini_connection

if TYPE_CHECKING:
    from hippocampus.providers.calls import CallGate, CallObserver
    from hippocampus.providers.protocols import Embedder
    from workers.settings import Settings


def make_embedder(settings: Settings, on_call: CallObserver | None = None, gate: CallGate | None = None) -> Embedder:
    """Return the embedder of the active provider; the caller closes it."""
    if settings.active_provider == "local" or settings.google_api_key is None:
        return LocalEmbedder()
    connection = gemini_connection.connect(settings, settings.google_api_key, settings.embed_timeout_seconds)
    # Imported by the connection already, and only where it is needed.
    from hippocampus.providers.gemini import provider

    return provider.GeminiEmbedder(connection, model=settings.embedding_model, on_call=on_call, gate=gate)
