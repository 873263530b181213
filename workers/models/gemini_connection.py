"""Gemini's connection as the settings ask for it: the same for text and for vectors but for its time limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import SecretStr

if TYPE_CHECKING:
    from hippocampus.providers.gemini.provider import GeminiConnection
    from workers.settings import Settings


def connect(settings: Settings, key: SecretStr, timeout_seconds: float) -> GeminiConnection:
    """Return a connection that has not called anything yet."""
    # Only here: google-genai takes a second to import, which the local provider need not wait for.
    from hippocampus.providers.gemini import provider

    return provider.GeminiConnection(
        api_key=key.get_secret_value(),
        base_url=settings.gemini_base_url or provider.BASE_URL,
        timeout_seconds=timeout_seconds,
        attempts=settings.provider_tries_max,
    )
