"""Anthropic's Messages API as a provider of text, by plain HTTP. It has no embedding models."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from hippocampus.errors import BlockedReplyError
from hippocampus.providers import registry
from hippocampus.providers.anthropic import tool_calls
from hippocampus.providers.features import Features
from hippocampus.providers.generation import Answer, Message, Task, strict_schema
from hippocampus.providers.http_client import HttpConnection
from hippocampus.providers.json_generator import JsonGenerator
from hippocampus.providers.spoken import said_by_answer, said_by_step, task_as_messages, turns_as_messages
from hippocampus.providers.tool_calls import ModelStep, ModelTurn, ToolSpec, Turn
from hippocampus.records import Usage

if TYPE_CHECKING:
    from hippocampus.providers.registry import ModelConfig

__all__ = ["AnthropicGenerator"]

PROVIDER = "anthropic"
BASE_URL = "https://api.anthropic.com"
API_VERSION = "2023-06-01"
GENERATION_MODEL = registry.PROVIDERS[PROVIDER].generation_model

_OPTIONS: Features = frozenset({"json_schema", "temperature"})
_CUT = frozenset({"max_tokens", "model_context_window_exceeded"})

_PROBE_TOKENS = 64
_PROBE_PROMPT = 'Answer with one JSON object and nothing around it: {"kind": "note"}'
_PROBE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"kind": {"type": "string", "enum": ["note"]}},
    "required": ["kind"],
    "additionalProperties": False,
}


def make_generator(config: ModelConfig) -> AnthropicGenerator:
    """Return a generator; see `hippocampus.providers.registry.ProviderModule`."""
    connection = HttpConnection(
        base_url=config.base_url or BASE_URL,
        headers={"x-api-key": config.api_key or "", "anthropic-version": API_VERSION},
        timeout_seconds=config.timeout_seconds,
        attempts=config.attempts,
    )
    return AnthropicGenerator(
        connection,
        model=config.model,
        output_tokens_max=config.output_tokens_max,
        features=config.features,
        on_call=config.on_call,
        gate=config.gate,
    )


def make_embedder(_config: ModelConfig) -> NoReturn:
    """Raise ValueError: there are no embedding models."""
    raise ValueError("anthropic has no embedding models: choose another HIPPOCAMPUS_EMBEDDER")


class AnthropicGenerator(JsonGenerator):
    """Summaries, facts and insights by messages, constrained by a JSON Schema where the model can."""

    provider = PROVIDER
    options = _OPTIONS
    first_options = _OPTIONS

    async def check(self) -> None:
        """Ask for the model's description, which costs nothing; see `hippocampus.providers.protocols.Checkable`.

        A proxy may write by models that it does not describe: then a short request decides.
        """
        if await self._client.look_up(f"/v1/models/{self._model}") is None:
            await self._send(self._probe_body(frozenset()))

    async def _answer(self, task: Task, messages: Sequence[Message]) -> Answer:
        features = await self._features.find(self._probe)
        body = self._request(features, messages, task.schema, task.output_tokens(self._output_tokens_max))
        body["system"] = task.prompt.text
        reply = await self._caller.call(
            task.operation,
            lambda: self._send(body),
            _usage_of,
            asked=lambda: task_as_messages(task.prompt.text, messages),
            said_by=lambda reply: said_by_answer(_read(reply)),
        )
        return _read(reply)

    async def converse(
        self, turns: Sequence[Turn], tools: Sequence[ToolSpec], *, system: str = "", tokens_max: int | None = None
    ) -> ModelStep:
        """Return the model's next turn; see `hippocampus.providers.tool_calls.ToolModel`."""
        limit = self._output_tokens_max if tokens_max is None else min(tokens_max, self._output_tokens_max)
        messages = tool_calls.messages_of(turns)
        body: dict[str, Any] = {"model": self._model, "max_tokens": limit, "messages": messages}
        if system:
            body["system"] = system
        if tools or any(isinstance(turn, ModelTurn) and turn.calls for turn in turns):
            # The API requires the tools of calls that were made, even if no further call is wanted.
            body["tools"] = tool_calls.tools_of(tools or tool_calls.former_tools(turns))
            body["tool_choice"] = {"type": "auto" if tools else "none"}
        reply = await self._caller.call(
            "converse",
            lambda: self._send(body),
            _usage_of,
            asked=lambda: turns_as_messages(turns, system),
            said_by=lambda reply: said_by_step(_read_step(reply)),
        )
        return _read_step(reply)

    async def _probe(self, features: Features) -> object:
        body = self._probe_body(features)
        return await self._caller.call("probe", lambda: self._send(body), _usage_of)

    def _probe_body(self, features: Features) -> dict[str, Any]:
        return self._request(features, [Message("user", _PROBE_PROMPT)], _PROBE_SCHEMA, _PROBE_TOKENS)

    def _request(
        self, features: Features, messages: Sequence[Message], schema: Mapping[str, Any], tokens_max: int
    ) -> dict[str, Any]:
        roles = {"model": "assistant"}
        body: dict[str, Any] = {
            "model": self._model,
            "max_tokens": tokens_max,
            "messages": [{"role": roles.get(role, role), "content": text} for role, text in messages],
        }
        if "temperature" in features:
            body["temperature"] = 0
        if "json_schema" in features:
            body["output_config"] = {"format": {"type": "json_schema", "schema": strict_schema(schema)}}
        return body

    async def _send(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        reply = await self._client.post("/v1/messages", body)
        if not isinstance(reply, Mapping) or not isinstance(reply.get("content"), list):
            raise self._client.unexpected(reply)
        return reply


def _usage_of(reply: Mapping[str, Any]) -> Usage:
    counts = reply.get("usage")
    counts = counts if isinstance(counts, Mapping) else {}
    read = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return Usage(
        prompt_tokens=sum(_count(counts, name) for name in read), output_tokens=_count(counts, "output_tokens")
    )


def _count(counts: Mapping[str, Any], name: str) -> int:
    value = counts.get(name)
    return value if isinstance(value, int) and value > 0 else 0


def _read_step(reply: Mapping[str, Any]) -> ModelStep:
    answer = _read(reply)
    return ModelStep(
        text=answer.text,
        thought=tool_calls.thought_of(reply),
        calls=tool_calls.calls_of(reply),
        usage=answer.usage,
        is_cut=answer.is_cut,
        finish_reason=answer.finish_reason,
        model_version=answer.model_version,
    )


def _read(reply: Mapping[str, Any]) -> Answer:
    """Read a message.

    Raises:
        BlockedReplyError: the model refused.
    """
    raw = json.dumps(reply, ensure_ascii=False)
    reason = str(reply.get("stop_reason") or "")
    if reason == "refusal":
        raise BlockedReplyError("the model refused to answer", code="blocked", raw_reply=raw)
    blocks = [block for block in reply["content"] if isinstance(block, Mapping) and block.get("type") == "text"]
    version = reply.get("model")
    return Answer(
        text="".join(str(block.get("text") or "") for block in blocks),
        raw=raw,
        finish_reason=reason,
        is_cut=reason in _CUT,
        model_version=version if isinstance(version, str) and version else None,
        usage=_usage_of(reply),
    )
