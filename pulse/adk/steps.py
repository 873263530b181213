"""The spans of a run of ADK's: each call of a model, in the step that it begins."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, TypeAlias

from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types

from pulse import model_messages as messages
from pulse.tracing import genai
from pulse.tracing.manager import current_tracing
from pulse.tracing.spans import Span

#: Providers by what the names of their models contain.
_FAMILIES: Final = {"gemini": "gemini", "claude": "anthropic", "gpt": "openai"}
_PATHS: Final = ("models", "projects", "publishers")
_running: ContextVar[Steps | None] = ContextVar("hippocampus_adk_steps", default=None)

#: An invocation and an agent: the calls that one agent makes of the model in an invocation follow one another.
_Key: TypeAlias = tuple[str, str]


class _Asked(NamedTuple):
    at: float
    model: str
    messages: str | None


class Steps:
    """The open spans of one run."""

    def __init__(self) -> None:
        self._count = 0
        self._steps: dict[_Key, Span] = {}
        self._asked: dict[_Key, _Asked] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Surround the run: its tools find these steps, and what is open at its end is ended."""
        token = _running.set(self)
        try:
            yield
        except BaseException as error:
            for key in list(self._asked):
                self._end_call(key, None, type(error).__name__)
            for step in self._steps.values():
                step.fail(error)
            raise
        finally:
            _running.reset(token)
            for step in self._steps.values():
                step.end()

    def ask(self, context: ReadonlyContext, request: LlmRequest) -> None:
        """Note that a model is called now."""
        tracing = current_tracing()
        if not tracing.is_on:
            return
        key = _key(context)
        if key in self._steps:
            self._steps[key].end()
        self._count += 1
        self._steps[key] = tracing.span("agent_step", attributes={"hippocampus.step": self._count})
        asked = messages.written(_messages_of(request)) if tracing.content else None
        self._asked[key] = _Asked(time.perf_counter(), request.model or "", asked)

    def reply(self, context: ReadonlyContext, response: LlmResponse) -> None:
        """Record the call that a whole response ends."""
        if not response.partial:
            self._end_call(_key(context), response, response.error_code)

    def fail(self, context: ReadonlyContext, error: Exception) -> None:
        """Record a call that failed."""
        self._end_call(_key(context), None, type(error).__name__)

    def within(self, context: ReadonlyContext) -> AbstractContextManager[object]:
        """Return a block whose spans are below an agent's step."""
        step = self._steps.get(_key(context))
        return nullcontext() if step is None else step.within()

    def _end_call(self, key: _Key, response: LlmResponse | None, error: str | None) -> None:
        asked = self._asked.pop(key, None)
        if asked is None:
            return
        tracing = current_tracing()
        with self._steps[key].within():
            tracing.record_llm_call(
                asked.model,
                provider=_provider_of(asked.model),
                operation="generate_content",
                seconds=time.perf_counter() - asked.at,
                error=error,
                attributes={genai.INPUT_MESSAGES: asked.messages, **_attributes(response, content=tracing.content)},
            )


def within_step(context: ReadonlyContext) -> AbstractContextManager[object]:
    """Return a block whose spans are below the step of a run, if this is one."""
    steps = _running.get()
    return nullcontext() if steps is None else steps.within(context)


def _key(context: ReadonlyContext) -> _Key:
    return context.invocation_id, context.agent_name


def _provider_of(model: str) -> str:
    prefix, _, name = model.partition("/")
    if name and prefix not in _PATHS:
        return prefix
    return next((provider for family, provider in _FAMILIES.items() if family in model), "adk")


def _attributes(response: LlmResponse | None, *, content: bool) -> dict[str, Any]:
    if response is None:
        return {}
    used, reason = response.usage_metadata, response.finish_reason
    thoughts = used.thoughts_token_count if used else None
    output = [count for count in (used.candidates_token_count, thoughts) if count is not None] if used else []
    return {
        genai.RESPONSE_MODEL: response.model_version,
        genai.FINISH_REASONS: None if reason is None else [reason.name.lower()],
        genai.INPUT_TOKENS: used.prompt_token_count if used else None,
        genai.OUTPUT_TOKENS: sum(output) if output else None,
        genai.OUTPUT_MESSAGES: messages.written([_message_of(response.content)])
        if content and response.content
        else None,
    }


def _messages_of(request: LlmRequest) -> list[dict[str, Any]]:
    system = request.config.system_instruction if request.config else None
    told = [messages.message("system", [messages.text_part(system)])] if isinstance(system, str) and system else []
    return [*told, *map(_message_of, request.contents)]


def _message_of(content: types.Content) -> dict[str, Any]:
    parts = [shown for part in content.parts or () if (shown := _part_of(part)) is not None]
    is_result = any(part["type"] == "tool_call_response" for part in parts)
    return messages.message("tool" if is_result else "assistant" if content.role == "model" else "user", parts)


def _part_of(part: types.Part) -> dict[str, Any] | None:
    if part.function_call:
        return messages.call_part(part.function_call.id, part.function_call.name or "", part.function_call.args or {})
    if part.function_response:
        return messages.result_part(part.function_response.id, part.function_response.response or {})
    return messages.text_part(part.text) if part.text and not part.thought else None
