"""OpenAI's API as a provider, at any base URL: chat/completions, embeddings, models.

Plain HTTP: two JSON posts need no SDK. What a server accepts beyond the common parts is found once
(`hippocampus.providers.features`). Retries are those of `hippocampus.providers.calls`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hippocampus.providers import registry
from hippocampus.providers.calls import Caller, CallGate, CallObserver, Said, Sleep
from hippocampus.providers.embedding_chunks import EmbeddingLimits
from hippocampus.providers.features import Features
from hippocampus.providers.generation import (
    Answer,
    Message,
    Task,
    bounded_schema,
    strict_schema,
)
from hippocampus.providers.http_client import REPLY_BYTES_MAX, HttpConnection, JsonClient
from hippocampus.providers.json_generator import JsonGenerator
from hippocampus.providers.openai import tool_calls
from hippocampus.providers.openai.answers import (
    check_prompt_was_read,
    error_of_choice,
    first_choice,
    read_answer,
    read_vectors,
    usage_of,
)
from hippocampus.providers.protocols import EmbeddingTask
from hippocampus.providers.spoken import said_by_answer, said_by_step, task_as_messages, turns_as_messages
from hippocampus.providers.tool_calls import ModelStep, ToolSpec, Turn
from hippocampus.providers.vectors import ChunkedEmbedder, VectorSpace

if TYPE_CHECKING:
    from hippocampus.providers.registry import ModelConfig

__all__ = ["OpenAIEmbedder", "OpenAIGenerator"]

PROVIDER = "openai"
BASE_URL = "https://api.openai.com/v1"
GENERATION_MODEL = registry.PROVIDERS[PROVIDER].generation_model
EMBEDDING_MODEL = registry.PROVIDERS[PROVIDER].embedding_model

_OPTIONS: Features = frozenset({"json_schema", "schema_bounds", "max_completion_tokens", "temperature"})
_FIRST: Features = frozenset({"json_schema", "schema_bounds", "temperature"})

#: What the API accepts in one call; servers of others may accept less.
_TEXTS_PER_CALL_MAX = 2048

#: The size of one vector of 4,096 numbers as JSON, generously.
_VECTOR_BYTES_MAX = 128 * 1024

_PROBE_TOKENS = 64
_PROBE_PROMPT = 'Answer with one JSON object and nothing around it: {"kind": "note", "key": "a", "numbers": [1]}'
_PROBE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "kind": {"type": "string", "enum": ["note"]},
        "key": {"anyOf": [{"type": "string", "maxLength": 8}, {"type": "boolean"}]},
        "numbers": {"type": "array", "items": {"type": "number", "minimum": 0, "maximum": 1}, "minItems": 1},
    },
    "required": ["kind", "key", "numbers"],
    "additionalProperties": False,
}


def make_generator(config: ModelConfig) -> OpenAIGenerator:
    """Return a generator; see `hippocampus.providers.registry.ProviderModule`."""
    return OpenAIGenerator(
        connection(config),
        model=config.model,
        output_tokens_max=config.output_tokens_max,
        features=config.features,
        on_call=config.on_call,
        gate=config.gate,
    )


def make_embedder(config: ModelConfig) -> OpenAIEmbedder:
    """Return an embedder; see `hippocampus.providers.registry.ProviderModule`."""
    return OpenAIEmbedder(
        connection(config),
        config.vector_space(),
        limits=config.limits(texts=_TEXTS_PER_CALL_MAX),
        on_call=config.on_call,
        gate=config.gate,
    )


def connection(config: ModelConfig) -> HttpConnection:
    """Return how the API is called: with a bearer key, if there is one."""
    return HttpConnection(
        base_url=config.base_url or BASE_URL,
        headers={"authorization": f"Bearer {config.api_key}"} if config.api_key else {},
        timeout_seconds=config.timeout_seconds,
        attempts=config.attempts,
    )


class OpenAIGenerator(JsonGenerator):
    """Summaries, facts and insights by chat/completions, constrained by a JSON Schema where the server can."""

    provider = PROVIDER
    options = _OPTIONS
    first_options = _FIRST

    async def check(self) -> None:
        """Ask for the list of models, which costs nothing; see `hippocampus.providers.protocols.Checkable`.

        A server may accept names that it does not list: then a short request decides.
        """
        if not await is_listed(self._client, self._model):
            await self._send(self._probe_body(await self._features.find(self._probe)))

    async def _answer(self, task: Task, messages: Sequence[Message]) -> Answer:
        features = await self._features.find(self._probe)
        sent = [Message("system", task.prompt.text), *messages]
        body = self._request(features, sent, task.schema, task.output_tokens(self._output_tokens_max))
        reply = await self._caller.call(
            task.operation,
            lambda: self._send(body),
            usage_of,
            asked=lambda: task_as_messages(task.prompt.text, messages),
            said_by=_said_by,
        )
        choice = first_choice(reply)
        assert choice is not None  # noqa: S101 - `_send` has checked it
        answer = read_answer(reply, choice)
        check_prompt_was_read(self._client.who, [text for _, text in sent], answer.usage)
        return answer

    async def converse(
        self, turns: Sequence[Turn], tools: Sequence[ToolSpec], *, system: str = "", tokens_max: int | None = None
    ) -> ModelStep:
        """Return the model's next turn; see `hippocampus.providers.tool_calls.ToolModel`."""
        features = await self._features.find(self._probe)
        limit = self._output_tokens_max if tokens_max is None else min(tokens_max, self._output_tokens_max)
        body: dict[str, Any] = {
            "model": self._model,
            "messages": tool_calls.messages_of(turns, system),
            "max_completion_tokens" if "max_completion_tokens" in features else "max_tokens": limit,
        }
        if tools:
            body["tools"] = tool_calls.tools_of(tools)
        reply = await self._caller.call(
            "converse",
            lambda: self._send(body),
            usage_of,
            asked=lambda: turns_as_messages(turns, system),
            said_by=lambda reply: said_by_step(tool_calls.read_step(reply)),
        )
        return tool_calls.read_step(reply)

    async def _probe(self, features: Features) -> object:
        body = self._probe_body(features)
        return await self._caller.call("probe", lambda: self._send(body), usage_of)

    def _probe_body(self, features: Features) -> dict[str, Any]:
        return self._request(features, [Message("user", _PROBE_PROMPT)], _PROBE_SCHEMA, _PROBE_TOKENS)

    def _request(
        self, features: Features, messages: Sequence[Message], schema: Mapping[str, Any], tokens_max: int
    ) -> dict[str, Any]:
        roles = {"model": "assistant"}
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [{"role": roles.get(role, role), "content": text} for role, text in messages],
            "max_completion_tokens" if "max_completion_tokens" in features else "max_tokens": tokens_max,
        }
        if "temperature" in features:
            body["temperature"] = 0
        if "json_schema" in features:
            adapted = bounded_schema(schema) if "schema_bounds" in features else strict_schema(schema)
            described = {"name": "reply", "strict": True, "schema": adapted}
            body["response_format"] = {"type": "json_schema", "json_schema": described}
        return body

    async def _send(self, body: Mapping[str, Any]) -> Any:
        reply = await post(self._client, "/chat/completions", body, first_choice)
        error = error_of_choice(reply)
        if error is not None:
            raise self._client.refused({"error": error}, _status_of(error))
        return reply


class OpenAIEmbedder(ChunkedEmbedder):
    """Vectors by embeddings, L2-normalised here: not every server does it."""

    is_paid = True

    def __init__(
        self,
        connection: HttpConnection,
        space: VectorSpace,
        *,
        limits: EmbeddingLimits | None = None,
        on_call: CallObserver | None = None,
        gate: CallGate | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        limits = limits or EmbeddingLimits(texts=_TEXTS_PER_CALL_MAX)
        super().__init__(space, limits, concurrency=connection.concurrency)
        self._client = JsonClient(PROVIDER, connection)
        self._caller = Caller(
            PROVIDER, space.model, attempts=connection.attempts, on_call=on_call, gate=gate, sleep=sleep
        )

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        await self._client.close()

    async def check(self) -> None:
        """Embed one word: a model in the list may still be one that makes no vectors, or vectors of another size.

        See `hippocampus.providers.protocols.Checkable`.
        """
        self._checked(read_vectors(await self._send(["Hello."]), self._space.model) or [], 1)

    async def _embed_batch(self, batch: list[str], task: EmbeddingTask) -> Sequence[Sequence[Any]]:
        reply = await self._caller.call("embed", lambda: self._send(batch), usage_of)
        return read_vectors(reply, self._space.model) or []

    async def _send(self, batch: list[str]) -> Any:
        body: dict[str, Any] = {"model": self._space.model, "input": batch, "encoding_format": "float"}
        if self._space.dimensions is not None:
            body["dimensions"] = self._space.dimensions
        bytes_max = REPLY_BYTES_MAX + len(batch) * _VECTOR_BYTES_MAX
        return await post(self._client, "/embeddings", body, _has_data, bytes_max=bytes_max)


def _said_by(reply: Mapping[str, Any]) -> Said:
    choice = first_choice(reply)
    return Said() if choice is None else said_by_answer(read_answer(reply, choice))


def _has_data(body: Any) -> object:
    return body if isinstance(body, Mapping) and isinstance(body.get("data"), list) else None


async def post(
    client: JsonClient, path: str, body: Mapping[str, Any], read: Any, *, bytes_max: int = REPLY_BYTES_MAX
) -> Any:
    """Send a request and return its reply, of which `read` finds something.

    Raises:
        ProviderError: as `JsonClient.post`; also for an error that came with status 200, as some proxies send it.
    """
    reply = await client.post(path, body, bytes_max=bytes_max)
    if read(reply) is not None:
        return reply
    if isinstance(reply, Mapping) and reply.get("error"):
        raise client.refused(reply, _status_of(reply["error"]))
    raise client.unexpected(reply)


def _status_of(error: object) -> int:
    code = error.get("code") if isinstance(error, Mapping) else None
    return code if isinstance(code, int) and 400 <= code < 600 else 502


async def is_listed(client: JsonClient, model: str) -> bool:
    """Return whether the server lists a model. A server without a list lists none.

    Raises:
        ProviderError: the server cannot be reached, or does not accept the key.
    """
    body = await client.look_up("/models")
    items = body.get("data") if isinstance(body, Mapping) else None
    names = {str(item.get("id")) for item in items if isinstance(item, Mapping)} if isinstance(items, list) else set()
    return bool({model, f"{model}:latest", f"models/{model}"} & names)
