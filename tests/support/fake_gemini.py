"""A fake Gemini API: a real HTTP server that replies regularly, or fails as the real one does.

In a test:
    async with FakeGemini() as gemini:
        gemini.script("rate_limit", retry_delay_seconds=3)
        ... GeminiConnection(api_key="k", base_url=gemini.base_url) ...

As a process: ``python -m tests.support.fake_gemini --port 0 --seed 1 --faults 0.2`` prints ``listening on <url>``.
Another process scripts it:
    POST /__script   {"kind": "status", "code": 503, "operation": "generateContent", "times": 2}
    POST /__reset    forgets scripted faults, counts and requests
    GET  /__stats    {"calls": {...}, "faults": {...}, "aborted": n, "open": n}
    GET  /__log      the last requests, complete

Faults, by `kind` (its fields):
    rate_limit (retry_delay_seconds, daily)    429 with RetryInfo and QuotaFailure
    status (code, message, reason, retry_delay_seconds, headers)    an API error of any code
    hang                                       no response, until the caller gives up
    trickle                                    a response of one byte at a time
    disconnect                                 the connection closes before a response
    cut_body                                   the body ends in the middle
    not_json                                   200 with an HTML page
    foreign_json                               200 with JSON of another API
    broken_json, wrong_schema, text (text)     200, but the model's text is not as requested
    max_tokens, blocked, safety, empty_candidates, no_parts
    thought, bare                              valid replies: after a thought; without counts and version
    vector_count, vector_dimension, vector_zero, vector_nan
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.support import fake_answers as answers
from tests.support.fake_api import (
    EVERY_KIND,
    HALF_CHARACTER,
    RANDOM_KINDS,
    UNKNOWN_MODEL,
    WRONG_KEY,
    FakeApi,
    Reply,
    Request,
    as_json,
)

__all__ = ["UNKNOWN_MODEL", "WRONG_KEY", "FakeGemini"]

ROUTE = re.compile(r"/v1(?:beta)?/models/(?P<model>[^/:]+):(?P<operation>\w+)$")
DESCRIPTION = re.compile(r"/v1(?:beta)?/models/(?P<model>[^/:]+)$")
OPERATIONS = ("generateContent", "batchEmbedContents", "embedContent", "countTokens")
EMBEDS_PER_CALL_MAX = 100


class FakeGemini(FakeApi):
    """The server. `script` queues faults, `requests` holds the received calls, `counts` their number."""

    operations = OPERATIONS
    #: The model's limit, at a quarter of a token per character.
    input_tokens_max: int | None = None

    def read_call(self, path: str, headers: Mapping[str, str], body: dict[str, Any]) -> Request | None:
        match = ROUTE.search(path)
        if match is None or match["operation"] not in OPERATIONS:
            return None
        return Request(match["operation"], match["model"], headers.get("x-goog-api-key", ""), body, headers)

    def describe(self, path: str, headers: Mapping[str, str]) -> Reply | None:
        match = DESCRIPTION.search(path)
        if match is None:
            return None
        asked = Request("describe", match["model"], headers.get("x-goog-api-key", ""), {})
        return self.refusal(asked) or as_json(200, {"name": f"models/{asked.model}"})

    def error(self, code: int, message: str) -> Reply:
        return api_error(code, "NOT_FOUND", message)

    def refusal(self, call: Request) -> Reply | None:
        if not call.api_key or call.api_key == WRONG_KEY:
            return api_error(400, "INVALID_ARGUMENT", "this key is not valid", [error_info("API_KEY_INVALID")])
        if call.model == UNKNOWN_MODEL:
            return api_error(404, "NOT_FOUND", f"models/{call.model} is not there")
        if HALF_CHARACTER.search(json.dumps(call.body, ensure_ascii=False)):
            return api_error(400, "INVALID_ARGUMENT", "the request is not valid Unicode")
        if len(call.body.get("requests", ())) > EMBEDS_PER_CALL_MAX:
            return api_error(400, "INVALID_ARGUMENT", "at most 100 requests in one batch")
        if self.input_tokens_max is not None and call.operation == "generateContent":
            tokens = len(answers.first_text(call.body)) // 4
            if tokens > self.input_tokens_max:
                message = f"The input token count ({tokens}) exceeds the maximum number of tokens allowed"
                return api_error(400, "INVALID_ARGUMENT", f"{message} ({self.input_tokens_max}).")
        return None

    def respond(self, call: Request, fault: Mapping[str, Any]) -> Reply:
        kind = fault["kind"]
        if kind == "rate_limit":
            return rate_limit(fault.get("retry_delay_seconds"), daily=fault.get("daily", False))
        if kind == "status":
            details = [error_info(fault["reason"])] if "reason" in fault else []
            if "retry_delay_seconds" in fault:
                details.append(retry_info(fault["retry_delay_seconds"]))
            failed = api_error(fault["code"], "FAILED", fault.get("message", "a scripted failure"), details)
            return replace(failed, headers=fault.get("headers", {}))
        if kind == "foreign_json":
            return as_json(200, {"candidates": 5, "embeddings": 5})
        if call.operation == "generateContent":
            return as_json(200, generation(call, kind, fault))
        if call.operation == "countTokens":
            return as_json(200, {"totalTokens": len(json.dumps(call.body)) // 4})
        return as_json(200, embeddings(call, kind))


# -- replies ----------------------------------------------------------------------------------------


def generation(call: Request, kind: str, fault: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a generateContent."""
    usage = {"promptTokenCount": len(json.dumps(call.body)) // 4, "candidatesTokenCount": 0}
    head = {"modelVersion": f"{call.model}-fake-001", "usageMetadata": usage}
    if kind == "blocked":
        return {**head, "promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}
    if kind == "empty_candidates":
        return head
    if kind == "no_parts":
        return {**head, "candidates": [{"content": {"role": "model"}, "finishReason": "STOP", "index": 0}]}
    text = json.dumps(answers.generate(call.body), ensure_ascii=False)
    finish_reason = {"safety": "SAFETY", "max_tokens": "MAX_TOKENS"}.get(kind, "STOP")
    if kind in ("max_tokens", "broken_json"):
        text = text[: len(text) * 2 // 3]
    elif kind == "wrong_schema":
        text = '{"facts": null, "insights": [], "summary": 7}'
    elif kind == "safety":
        text = ""
    elif kind == "text":
        text = fault["text"]
    usage["candidatesTokenCount"] = max(1, len(text) // 4)
    content = {"role": "model", "parts": [{"text": text}] if text else []}
    if kind == "thought":
        content["parts"].insert(0, {"text": "thinking {about} it", "thought": True})  # type: ignore[attr-defined]
        usage["thoughtsTokenCount"] = 1000
    if kind == "bare":
        head = {}
    return {**head, "candidates": [{"content": content, "finishReason": finish_reason, "index": 0}]}


def embeddings(call: Request, kind: str) -> dict[str, Any]:
    """The body of a batchEmbedContents or an embedContent."""
    requests = call.body.get("requests") or [call.body]
    vectors = []
    for request in requests:
        text = "".join(part.get("text", "") for part in request["content"]["parts"])
        values = answers.vector(text, request.get("outputDimensionality", 3072))
        vectors.append({"values": values})
    if kind == "vector_count":
        vectors.pop()
    elif kind == "vector_dimension":
        vectors[0]["values"] = vectors[0]["values"][:768]
    elif kind == "vector_zero":
        vectors[0]["values"] = [0.0] * len(vectors[0]["values"])
    elif kind == "vector_nan":
        vectors[0]["values"][0] = float("nan")
    return {"embeddings": vectors} if "requests" in call.body else {"embedding": vectors[0]}


def rate_limit(retry_delay_seconds: float | None, *, daily: bool) -> Reply:
    period = "PerDay" if daily else "PerMinute"
    violation = {"quotaId": f"GenerateRequests{period}PerProjectPerModel-FreeTier", "quotaValue": "15"}
    details: list[dict[str, Any]] = [
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [violation]}
    ]
    if retry_delay_seconds is not None:
        details.append(retry_info(retry_delay_seconds))
    return api_error(429, "RESOURCE_EXHAUSTED", "too many requests for now", details)


def retry_info(seconds: float) -> dict[str, Any]:
    return {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{seconds:g}s"}


def error_info(reason: str) -> dict[str, Any]:
    return {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "googleapis.com"}


def api_error(code: int, status: str, message: str, details: list[dict[str, Any]] | None = None) -> Reply:
    error = {"code": code, "message": message, "status": status, "details": details or []}
    return as_json(code, {"error": error})


async def serve(arguments: argparse.Namespace) -> None:
    gemini = FakeGemini(
        seed=arguments.seed,
        fault_rate=arguments.faults,
        fault_kinds=EVERY_KIND if arguments.every_kind else RANDOM_KINDS,
        latency_seconds=arguments.latency_seconds,
    )
    await gemini.start(arguments.port, arguments.host)
    print(f"listening on {gemini.base_url}", flush=True)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="A fake Gemini API with faults on request.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 selects a free port and prints it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", type=float, default=0.0, help="rate of random faults, 0 to 1")
    parser.add_argument("--every-kind", action="store_true", help="include random faults that hang or malform replies")
    parser.add_argument("--latency-seconds", type=float, default=0.0)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
