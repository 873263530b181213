"""Gemini as a provider: a generator, an embedder and a counter of tokens.

One slice is one generate call, and one more if the reply has to be repaired; a batch of texts is one embedding call for
each hundred chunks. Retries have three levels: a few seconds here, for a short transport error; minutes in the queue,
for a long one and for 429, which is never waited for here; and an operator, for what a repair did not fix.

    GeminiGenerator.summarize, .reflect      one call per slice, a few at once; each reply is checked by `extraction`
    GeminiEmbedder.embed                     chunks -> batches of 100 -> unit vectors, checked
    GeminiTokenCounter.count                 one call
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from google.genai import types

from hippocampus.errors import MalformedReplyError
from hippocampus.providers import registry
from hippocampus.providers.calls import Asked, Caller, CallGate, CallObserver, Said, Sleep, TracedAs
from hippocampus.providers.embedding_chunks import EmbeddingLimits
from hippocampus.providers.gemini import tool_calls
from hippocampus.providers.gemini.answers import read_answer, usage_of
from hippocampus.providers.gemini.client import BASE_URL, GeminiClient, GeminiConnection
from hippocampus.providers.generation import Answer, Message, StructuredGenerator, Task
from hippocampus.providers.protocols import EmbeddingTask
from hippocampus.providers.spoken import said_by_answer, said_by_step, task_as_messages, turns_as_messages
from hippocampus.providers.tool_calls import ModelStep, ToolSpec, Turn
from hippocampus.providers.vectors import ChunkedEmbedder, VectorSpace, sendable
from hippocampus.records import Usage

if TYPE_CHECKING:
    from hippocampus.providers.registry import ModelConfig

__all__ = ["GeminiConnection", "GeminiEmbedder", "GeminiGenerator", "GeminiTokenCounter"]

PROVIDER = "gemini"
GENERATION_MODEL = registry.PROVIDERS[PROVIDER].generation_model
EMBEDDING_MODEL = registry.PROVIDERS[PROVIDER].embedding_model

#: What is requested unless the settings name another number.
DIMENSIONS = 1536
#: What the API accepts in one batchEmbedContents.
_TEXTS_PER_CALL_MAX = 100

_TASK_TYPES: dict[EmbeddingTask, str] = {"document": "RETRIEVAL_DOCUMENT", "query": "RETRIEVAL_QUERY"}


def make_generator(config: ModelConfig) -> GeminiGenerator:
    """Return a generator; see `hippocampus.providers.registry.ProviderModule`."""
    return GeminiGenerator(
        _connection(config),
        model=config.model,
        output_tokens_max=config.output_tokens_max,
        on_call=config.on_call,
        gate=config.gate,
    )


def make_embedder(config: ModelConfig) -> GeminiEmbedder:
    """Return an embedder; see `hippocampus.providers.registry.ProviderModule`."""
    return GeminiEmbedder(
        _connection(config),
        model=config.model,
        dimensions=config.dimensions,
        on_call=config.on_call,
        gate=config.gate,
    )


def _connection(config: ModelConfig) -> GeminiConnection:
    return GeminiConnection(
        api_key=config.api_key or "",
        base_url=config.base_url or BASE_URL,
        timeout_seconds=config.timeout_seconds,
        attempts=config.attempts,
    )


def _caller(
    model: str,
    connection: GeminiConnection,
    on_call: CallObserver | None,
    gate: CallGate | None,
    sleep: Sleep = asyncio.sleep,
) -> Caller:
    return Caller(
        PROVIDER,
        model,
        attempts=connection.attempts,
        on_call=on_call,
        gate=gate,
        sleep=sleep,
        traced_as=TracedAs("gcp.gemini", "generate_content"),
    )


class GeminiGenerator(StructuredGenerator):
    """Summaries, facts and insights from Gemini, by structured output."""

    def __init__(
        self,
        connection: GeminiConnection,
        *,
        model: str | None = None,
        output_tokens_max: int = 8192,
        on_call: CallObserver | None = None,
        gate: CallGate | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        super().__init__(PROVIDER, model or GENERATION_MODEL, concurrency=connection.concurrency)
        self._output_tokens_max = output_tokens_max
        self._client = GeminiClient(connection)
        self._caller = _caller(self._model, connection, on_call, gate, sleep)

    async def check(self) -> None:
        """Ask for the model's description, which costs nothing; see `hippocampus.providers.protocols.Checkable`."""
        await self._client.send(lambda models: models.get(model=self._model))

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        await self._client.close()

    async def _answer(self, task: Task, messages: Sequence[Message]) -> Answer:
        contents = [types.Content(role=role, parts=[types.Part(text=text)]) for role, text in messages]
        config = types.GenerateContentConfig(
            system_instruction=task.prompt.text,
            temperature=0.0,
            max_output_tokens=task.output_tokens(self._output_tokens_max),
            response_mime_type="application/json",
            response_json_schema=task.schema,
        )

        response = await self._generate(
            task.operation,
            contents,
            config,
            asked=lambda: task_as_messages(task.prompt.text, messages),
            said_by=lambda response: said_by_answer(read_answer(response)),
        )
        return read_answer(response)

    async def converse(
        self, turns: Sequence[Turn], tools: Sequence[ToolSpec], *, system: str = "", tokens_max: int | None = None
    ) -> ModelStep:
        """Return the model's next turn; see `hippocampus.providers.tool_calls.ToolModel`."""
        contents: Any = tool_calls.contents_of(turns)
        config = types.GenerateContentConfig(
            system_instruction=system or None,
            max_output_tokens=min(tokens_max or self._output_tokens_max, self._output_tokens_max),
            tools=tool_calls.tools_of(tools),  # type: ignore[arg-type]  # its list type is invariant
            automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        )

        response = await self._generate(
            "converse",
            contents,
            config,
            asked=lambda: turns_as_messages(turns, system),
            said_by=lambda response: said_by_step(tool_calls.read_step(response)),
        )
        return tool_calls.read_step(response)

    async def _generate(
        self,
        operation: str,
        contents: Any,
        config: types.GenerateContentConfig,
        *,
        asked: Asked,
        said_by: Callable[[types.GenerateContentResponse], Said],
    ) -> types.GenerateContentResponse:
        async def send() -> types.GenerateContentResponse:
            return await self._client.send(
                lambda models: models.generate_content(model=self._model, contents=contents, config=config)
            )

        return await self._caller.call(operation, send, usage_of, asked=asked, said_by=said_by)


class GeminiEmbedder(ChunkedEmbedder):
    """Vectors from Gemini. They are L2-normalised here, since the API normalises those of full length only."""

    is_paid = True

    def __init__(
        self,
        connection: GeminiConnection,
        *,
        model: str | None = None,
        dimensions: int | None = None,
        on_call: CallObserver | None = None,
        gate: CallGate | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._name = model or EMBEDDING_MODEL
        super().__init__(
            VectorSpace(model=self._name, dimensions=dimensions),
            EmbeddingLimits(texts=_TEXTS_PER_CALL_MAX),
            concurrency=connection.concurrency,
            size=dimensions or DIMENSIONS,
        )
        self._client = GeminiClient(connection)
        self._caller = _caller(self._name, connection, on_call, gate, sleep)

    async def check(self) -> None:
        """Ask for the model's description, which costs nothing; see `hippocampus.providers.protocols.Checkable`."""
        await self._client.send(lambda models: models.get(model=self._name))

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        await self._client.close()

    async def _embed_batch(self, batch: list[str], task: EmbeddingTask) -> Sequence[Sequence[Any]]:
        config = types.EmbedContentConfig(task_type=_TASK_TYPES[task], output_dimensionality=self.size)
        # A Content each: some models take a plain list of texts for the parts of one text.
        contents = [types.Content(parts=[types.Part(text=text)]) for text in batch]

        async def send() -> types.EmbedContentResponse:
            return await self._client.send(
                lambda models: models.embed_content(model=self._name, contents=contents, config=config)
            )

        # This API reports no tokens for embeddings.
        response = await self._caller.call("embed", send, lambda _response: Usage())
        return [embedding.values or [] for embedding in response.embeddings or []]


class GeminiTokenCounter:
    """Counts tokens as Gemini does, by a call: a `window_counter` of `ContextAssembler`."""

    def __init__(
        self,
        connection: GeminiConnection,
        *,
        model: str | None = None,
        on_call: CallObserver | None = None,
        gate: CallGate | None = None,
    ) -> None:
        self._model = model or GENERATION_MODEL
        self._client = GeminiClient(connection)
        self._caller = _caller(self._model, connection, on_call, gate)

    @property
    def model(self) -> str:
        """The model's name."""
        return self._model

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        await self._client.close()

    async def count(self, text: str) -> int:
        """Return how many tokens a text costs.

        Raises:
            ProviderError: the call failed.
        """

        async def send() -> types.CountTokensResponse:
            return await self._client.send(
                lambda models: models.count_tokens(model=self._model, contents=sendable(text))
            )

        response = await self._caller.call("count", send, lambda _response: Usage())
        if response.total_tokens is None:
            raise MalformedReplyError(f"{self._model} returned no number of tokens")
        return response.total_tokens
