"""A generator that is a JSON API over HTTP: what those of Anthropic and of OpenAI's kind are made of."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from hippocampus.providers.calls import Caller, CallGate, CallObserver, Sleep
from hippocampus.providers.features import FeatureFinder, Features
from hippocampus.providers.generation import StructuredGenerator
from hippocampus.providers.http_client import HttpConnection, JsonClient


class JsonGenerator(StructuredGenerator):
    """Summaries, facts and insights by an API, constrained by a JSON Schema where the model can.

    Attributes:
        provider: the name of the provider.
        options: the optional parameters of the API.
        first_options: those that are tried first.
    """

    provider: ClassVar[str]
    options: ClassVar[Features]
    first_options: ClassVar[Features]

    def __init__(
        self,
        connection: HttpConnection,
        *,
        model: str,
        output_tokens_max: int = 8192,
        features: Features | None = None,
        on_call: CallObserver | None = None,
        gate: CallGate | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        super().__init__(self.provider, model, concurrency=connection.concurrency)
        self._output_tokens_max = output_tokens_max
        self._client = JsonClient(self.provider, connection)
        self._features = FeatureFinder(self.first_options, self.options, features)
        self._caller = Caller(
            self.provider, model, attempts=connection.attempts, on_call=on_call, gate=gate, sleep=sleep
        )

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        await self._client.close()
