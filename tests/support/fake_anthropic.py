"""A fake of Anthropic's Messages API.

`lacks` names what it rejects with 400: ``json_schema``, ``temperature``. `describes` is whether it has descriptions of
models, which proxies of the API may lack. Further faults, by `kind` (its fields):
    rate_limit (retry_delay_seconds, daily)    429
    status (code, message, word, headers)      an error of any code; 529 is an overloaded API
    foreign_json                               200 with JSON of another API
    broken_json, wrong_schema, text (text)     200, but the model's text is not as requested
    max_tokens, context, safety, empty         cut off; the window is full; refusal; no text
    thought                                    a valid reply after a block of thoughts
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.support import fake_answers as answers
from tests.support.fake_api import (
    HALF_CHARACTER,
    UNKNOWN_MODEL,
    WRONG_KEY,
    FakeApi,
    Reply,
    Request,
    as_json,
)

_STOP_REASONS = {"max_tokens": "max_tokens", "context": "model_context_window_exceeded", "safety": "refusal"}
#: The one that our provider speaks, and that of the SDK.
_VERSIONS = ("2023-06-01", "2026-10-21")
_PARAMETERS = {"json_schema": "output_config", "temperature": "temperature"}


class FakeAnthropic(FakeApi):
    operations = ("messages",)

    def __init__(self, *, lacks: frozenset[str] = frozenset(), **options: Any) -> None:
        super().__init__(**options)
        self.lacks = lacks
        self.describes = True

    @property
    def url(self) -> str:
        return self.base_url

    def read_call(self, path: str, headers: Mapping[str, str], body: dict[str, Any]) -> Request | None:
        if path != "/v1/messages":
            return None
        # The SDK sends its key as a bearer token.
        key = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        return Request("messages", str(body.get("model")), key, body, headers)

    def describe(self, path: str, headers: Mapping[str, str]) -> Reply | None:
        if not self.describes:
            return None
        model = path.removeprefix("/v1/models/")
        asked = Request("describe", model, headers.get("x-api-key", ""), {}, headers)
        return None if model == path else self.refusal(asked) or as_json(200, {"type": "model", "id": model})

    def error(self, code: int, message: str) -> Reply:
        return fail(code, "not_found_error", message)

    def refusal(self, call: Request) -> Reply | None:
        if not call.api_key or call.api_key == WRONG_KEY:
            return fail(401, "authentication_error", "invalid x-api-key")
        if call.headers.get("anthropic-version") not in _VERSIONS:
            return fail(400, "invalid_request_error", "anthropic-version: header is required")
        if call.model == UNKNOWN_MODEL:
            return fail(404, "not_found_error", f"model: {call.model}")
        if call.operation == "messages" and "max_tokens" not in call.body:
            return fail(400, "invalid_request_error", "max_tokens: Field required")
        if HALF_CHARACTER.search(json.dumps(call.body, ensure_ascii=False)):
            return fail(400, "invalid_request_error", "the request is not valid Unicode")
        for name in sorted(self.lacks):
            if _PARAMETERS[name] in call.body:
                return fail(400, "invalid_request_error", f"{_PARAMETERS[name]}: not supported by this model")
        return None

    def respond(self, call: Request, fault: Mapping[str, Any]) -> Reply:
        kind = fault["kind"]
        if kind == "rate_limit":
            delay = {"retry_after": f"{fault['retry_delay_seconds']:g}"} if "retry_delay_seconds" in fault else {}
            period = "daily" if fault.get("daily") else "per-minute"
            return fail(429, "rate_limit_error", f"this would exceed your {period} rate limit", **delay)
        if kind == "status":
            headers = {name.replace("-", "_"): text for name, text in fault.get("headers", {}).items()}
            return fail(fault["code"], fault.get("word", "api_error"), fault.get("message", "scripted"), **headers)
        if kind == "foreign_json":
            return as_json(200, {"content": 5})
        return as_json(200, message(call, kind, fault))


def fail(code: int, word: str, text: str, **headers: str) -> Reply:
    return as_json(code, {"type": "error", "error": {"type": word, "message": text}}, **headers)


def message(call: Request, kind: str, fault: Mapping[str, Any]) -> dict[str, Any]:
    first = str(call.body["messages"][0]["content"])
    is_summary = '"summary"' in call.body.get("system", "")
    text = json.dumps(answers.reply_to(first, is_summary=is_summary), ensure_ascii=False)
    if not first.startswith(answers.KNOWN_BEGINNINGS):
        text = '{"kind": "note"}'
    if kind in ("max_tokens", "context", "broken_json"):
        text = text[: len(text) * 2 // 3]
    elif kind == "wrong_schema":
        text = '{"facts": null, "insights": [], "summary": 7}'
    elif kind == "text":
        text = fault["text"]
    content = [] if kind in ("safety", "empty") else [{"type": "text", "text": text}]
    if kind == "thought":
        content.insert(0, {"type": "thinking", "thinking": "thinking {about} it"})
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": f"{call.model}-fake-001",
        "content": content,
        "stop_reason": _STOP_REASONS.get(kind, "end_turn"),
        "usage": {
            "input_tokens": len(first) // 4,
            "cache_read_input_tokens": 7,
            "output_tokens": max(1, len(text) // 4),
        },
    }
