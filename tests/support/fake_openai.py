"""A fake of OpenAI's API, as OpenAI and the servers with its API answer.

`lacks` names what the server rejects with 400: ``json_schema``, ``schema_bounds`` or a parameter.
`shape` is how its errors look. Further faults, by `kind` (its fields):
    rate_limit (retry_delay_seconds, daily, headers)    429
    status (code, message, word, headers)      an error of any code; `word` is its type
    foreign_json                               200 with JSON of another API
    error_in_200                               200 with an error in the body
    broken_json, wrong_schema, text (text)     200, but the model's text is not as requested
    max_tokens, blocked, safety, empty         cut off; content filter; refusal; no text
    thought                                    a valid reply after a thought
    cut_prompt                                 the prompt was cut without an error
    vector_count, vector_dimension, vector_zero, vector_nan, vector_index, vector_base64
"""

from __future__ import annotations

import base64
import json
import struct
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

OPERATIONS = ("chat/completions", "embeddings")
TEXTS_PER_CALL_MAX = 2048
DIMENSIONS = 1536


class FakeOpenAI(FakeApi):
    operations = OPERATIONS

    def __init__(
        self,
        *,
        lacks: frozenset[str] = frozenset(),
        shape: str = "openai",
        names_parameters: bool = True,
        listed: tuple[str, ...] = ("gpt-5.4-mini", "text-embedding-3-small"),
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.lacks = lacks
        self.shape = shape
        self.names_parameters = names_parameters
        self.listed = listed

    @property
    def url(self) -> str:
        return f"{self.base_url}/v1"

    def read_call(self, path: str, headers: Mapping[str, str], body: dict[str, Any]) -> Request | None:
        operation = path.removeprefix("/v1/")
        if operation not in OPERATIONS or not path.startswith("/v1/"):
            return None
        key = headers.get("authorization", "").removeprefix("Bearer ")
        return Request(operation, str(body.get("model")), key, body, headers)

    def describe(self, path: str, headers: Mapping[str, str]) -> Reply | None:
        if path != "/v1/models":
            return None
        if headers.get("authorization") == f"Bearer {WRONG_KEY}":
            return self.fail(401, "Incorrect API key provided", "invalid_api_key")
        return as_json(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in self.listed]})

    def error(self, code: int, message: str) -> Reply:
        return self.fail(code, message, "not_found")

    def fail(self, code: int, message: str, word: str, parameter: str | None = None, **headers: str) -> Reply:
        error = {"message": message, "type": word, "param": parameter, "code": word}
        bodies: dict[str, Any] = {
            "openai": {"error": error},
            "llama.cpp": {"error": {"code": code, "message": message, "type": word}},
            "string": {"error": message},
            "bare": {"object": "error", "message": message, "type": word, "code": code},
            "list": [{"error": {"code": code, "message": message, "status": word}}],
            "detail": {"detail": message},
        }
        return as_json(code, bodies[self.shape], **headers)

    def refusal(self, call: Request) -> Reply | None:
        body = call.body
        if call.api_key == WRONG_KEY:
            return self.fail(401, "Incorrect API key provided", "invalid_api_key")
        if call.model == UNKNOWN_MODEL:
            return self.fail(404, f"The model '{call.model}' does not exist", "model_not_found")
        if HALF_CHARACTER.search(json.dumps(body, ensure_ascii=False)):
            return self.fail(400, "invalid Unicode", "invalid_request_error")
        if isinstance(body.get("input"), list) and not 0 < len(body["input"]) <= TEXTS_PER_CALL_MAX:
            return self.fail(400, "input: at most 2048 texts", "invalid_request_error")
        if "schema_bounds" in self.lacks and "maxLength" in json.dumps(body.get("response_format")):
            message = "Invalid schema for response_format 'reply': 'maxLength' is not permitted"
            return self.fail(400, message if self.names_parameters else "Bad request", "invalid_request_error")
        for name in sorted(self.lacks - {"schema_bounds"}):
            parameter = "response_format" if name == "json_schema" else name
            if parameter in body:
                message = f"Unsupported parameter: {parameter!r}" if self.names_parameters else "Bad request"
                return self.fail(400, message, "invalid_request_error", parameter if self.names_parameters else None)
        return None

    def respond(self, call: Request, fault: Mapping[str, Any]) -> Reply:
        kind = fault["kind"]
        headers = {name.replace("-", "_"): text for name, text in fault.get("headers", {}).items()}
        if kind == "rate_limit":
            if "retry_delay_seconds" in fault:
                headers["retry_after"] = f"{fault['retry_delay_seconds']:g}"
            period = "requests per day (RPD)" if fault.get("daily") else "requests per min (RPM)"
            return self.fail(429, f"Rate limit reached on {period}", "rate_limit_exceeded", **headers)
        if kind == "status":
            message = fault.get("message", "a scripted failure")
            return self.fail(fault["code"], message, fault.get("word", "server_error"), **headers)
        if kind == "foreign_json":
            return as_json(200, {"choices": 5, "data": 5})
        if kind == "error_in_200":
            return as_json(200, {"error": {"message": "the upstream failed", "code": 503}})
        if call.operation == "embeddings":
            return as_json(200, embeddings(call, kind))
        return as_json(200, completion(call, kind, fault))


def completion(call: Request, kind: str, fault: Mapping[str, Any]) -> dict[str, Any]:
    messages = call.body["messages"]
    first = next(message["content"] for message in messages if message["role"] == "user")
    is_summary = '"summary"' in messages[0]["content"]
    text: str | None = json.dumps(answers.reply_to(first, is_summary=is_summary), ensure_ascii=False)
    if not first.startswith(answers.KNOWN_BEGINNINGS):
        text = '{"kind": "note", "key": "a", "numbers": [1]}'
    assert text is not None
    if kind in ("max_tokens", "broken_json"):
        text = text[: len(text) * 2 // 3]
    elif kind == "wrong_schema":
        text = '{"facts": null, "insights": [], "summary": 7}'
    elif kind == "text":
        text = fault["text"]
    elif kind == "thought":
        text = f"<think>thinking {{about}} it</think>\n{text}"
    elif kind in ("blocked", "safety", "empty"):
        text = None
    message = {"role": "assistant", "content": text, "refusal": "I cannot help." if kind == "safety" else None}
    finish_reason = {"max_tokens": "length", "blocked": "content_filter"}.get(kind, "stop")
    prompt_tokens = sum(len(message["content"]) for message in messages) // 4
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": finish_reason}
    if kind == "failed_choice":
        message["content"], choice["finish_reason"] = (text or "")[:5], "error"
        choice |= {"error": fault["error"]} if "error" in fault else {}
    usage = {
        "prompt_tokens": 100 if kind == "cut_prompt" else prompt_tokens,
        "completion_tokens": max(1, len(text or "") // 4),
    }
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": f"{call.model}-fake-001",
        "choices": [choice],
        "usage": usage,
    }


def embeddings(call: Request, kind: str) -> dict[str, Any]:
    texts = call.body["input"]
    vectors = [answers.vector(text, call.body.get("dimensions", DIMENSIONS)) for text in texts]
    if kind == "vector_count":
        vectors.pop()
    elif kind == "vector_dimension":
        vectors[0] = vectors[0][:768]
    elif kind == "vector_zero":
        vectors[0] = [0.0] * len(vectors[0])
    elif kind == "vector_nan":
        vectors[0][0] = float("nan")
    data: list[dict[str, Any]] = [
        {"object": "embedding", "index": number, "embedding": vector} for number, vector in enumerate(vectors)
    ]
    if kind == "vector_index":
        data[0]["index"] = data[-1]["index"]
    elif kind == "vector_base64":
        packed = struct.pack(f"<{len(vectors[0])}f", *vectors[0])
        data[0]["embedding"] = base64.b64encode(packed).decode()
    # The order of the reply is not promised.
    data.reverse()
    tokens = sum(map(len, texts)) // 4
    return {"object": "list", "data": data, "model": call.model, "usage": {"prompt_tokens": tokens}}
