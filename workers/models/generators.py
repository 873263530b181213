"""The generator that the settings ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hippocampus.providers.local.provider import LocalGenerator
from workers.models import gemini_connection

if TYPE_CHECKING:
    from hippocampus.providers.calls import CallGate, CallObserver
    from hippocampus.providers.protocols import Generator
    from workers.settings import Settings


def make_generator(settings: Settings, on_call: CallObserver | None = None, gate: CallGate | None = None) -> Generator:
    """Return the generator of the active provider; the caller closes it."""
    if settings.active_provider == "local" or settings.google_api_key is None:
        return LocalGenerator()
    connection = gemini_connection.connect(settings, settings.google_api_key, settings.generate_timeout_seconds)
    # Imported by the connection already, and only where it is needed.
    from hippocampus.providers.gemini import provider

    return provider.GeminiGenerator(connection, model=settings.generation_model, on_call=on_call, gate=gate)
