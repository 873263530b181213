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
    status (code, message, reason, retry_delay_seconds)    an API error of any code
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
    redirect (location)                        307 to another address
    endless, compressed                        a body without an end; a small one that is large once it is decoded
    deep (status)                              JSON that is nested 100,000 deep
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import json
import random
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support import fake_gemini_answers as answers

ROUTE = re.compile(r"/v1(?:beta)?/models/(?P<model>[^/:]+):(?P<operation>\w+)$")
OPERATIONS = ("generateContent", "batchEmbedContents", "embedContent", "countTokens")
HALF_CHARACTER = re.compile("[\ud800-\udfff]")
EMBEDS_PER_CALL_MAX = 100
REQUESTS_KEPT = 1000

#: The kinds of random faults: all are temporary, or fixed by a repair.
RANDOM_KINDS: tuple[dict[str, Any], ...] = (
    {"kind": "status", "code": 503},
    {"kind": "status", "code": 500},
    {"kind": "rate_limit", "retry_delay_seconds": 0.2},
    {"kind": "cut_body"},
    {"kind": "disconnect"},
    {"kind": "broken_json"},
)

#: Those, and faults that cost a caller its timeout or its job.
EVERY_KIND: tuple[dict[str, Any], ...] = (
    *RANDOM_KINDS,
    {"kind": "hang"},
    {"kind": "wrong_schema"},
)

WRONG_KEY = "wrong-key"
UNKNOWN_MODEL = "no-such-model"


@dataclass(frozen=True, slots=True)
class Request:
    """One received call."""

    operation: str
    model: str
    api_key: str
    body: dict[str, Any]


@dataclass(slots=True)
class Reply:
    """One HTTP response; `cut` sends half of the body, `silent` nothing, `trickle` one byte at a time."""

    status: int
    body: bytes
    content_type: str = "application/json; charset=UTF-8"
    cut: bool = False
    silent: bool = False
    trickle: bool = False
    endless: bool = False
    headers: str = ""


@dataclass(slots=True)
class Counts:
    calls: collections.Counter[str] = field(default_factory=collections.Counter)
    faults: collections.Counter[str] = field(default_factory=collections.Counter)
    aborted: int = 0  # the caller disconnected before the response


class FakeGemini:
    """The server. `script` queues faults, `requests` holds the received calls, `counts` their number."""

    def __init__(
        self,
        *,
        seed: int = 0,
        fault_rate: float = 0.0,
        fault_kinds: Sequence[dict[str, Any]] = RANDOM_KINDS,
        latency_seconds: float = 0.0,
    ) -> None:
        self.fault_rate = fault_rate
        self.fault_kinds = fault_kinds
        self.latency_seconds = latency_seconds
        self.counts = Counts()
        self.requests: collections.deque[Request] = collections.deque(maxlen=REQUESTS_KEPT)
        self._random = random.Random(seed)
        self._poison: dict[str, dict[str, Any]] = {}
        self._scripts: dict[str, collections.deque[dict[str, Any]]] = collections.defaultdict(collections.deque)
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.base_url = ""

    async def __aenter__(self) -> FakeGemini:
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    async def start(self, port: int = 0, host: str = "127.0.0.1") -> None:
        self._server = await asyncio.start_server(self._connected, host, port, limit=2**26)
        self.base_url = f"http://{host}:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    def script(self, kind: str, *, operation: str = "*", times: int = 1, **fields: Any) -> None:
        """Queue a fault for the next `times` calls of an operation, or of any."""
        if operation != "*" and operation not in OPERATIONS:
            raise ValueError(f"unknown operation {operation!r}: one of {OPERATIONS} or *")
        self._scripts[operation].extend({"kind": kind, **fields} for _ in range(times))

    def poison(self, word: str, kind: str, **fields: Any) -> None:
        """End every call whose body contains this word with a fault."""
        self._poison[word] = {"kind": kind, **fields}

    def reset(self) -> None:
        self._scripts.clear()
        self.requests.clear()
        self.counts = Counts()

    def stats(self) -> dict[str, Any]:
        return {
            "calls": dict(self.counts.calls),
            "faults": dict(self.counts.faults),
            "aborted": self.counts.aborted,
            "open": len(self._connections),
        }

    # -- HTTP ---------------------------------------------------------------------------------------

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while await self._serve_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # The caller disconnected between two requests, as usual.
        except asyncio.CancelledError:
            if self._server is not None and self._server.is_serving():
                raise
        finally:
            self._connections.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _version = head[0].split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        reply = await self._until_gone(reader, self._reply(method, target, headers, body))
        if reply is None or reply.silent:
            return False
        sent = reply.body[: len(reply.body) // 2] if reply.cut else reply.body
        head_sent = (
            f"HTTP/1.1 {reply.status} Fake\r\nContent-Type: {reply.content_type}\r\n"
            f"{reply.headers}Content-Length: {2**40 if reply.endless else len(reply.body)}\r\n\r\n"
        ).encode()
        if reply.trickle:
            for byte in head_sent + sent:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.02)
        else:
            writer.write(head_sent + sent)
            await writer.drain()
        while reply.endless:
            writer.write(b" " * 2**16)
            await writer.drain()
        return not reply.cut

    async def _until_gone(self, reader: asyncio.StreamReader, answer: Any) -> Reply | None:
        """The response, or None as soon as the caller has closed the connection."""
        answering = asyncio.ensure_future(answer)
        gone = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({answering, gone}, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                return answering.result()
            self.counts.aborted += 1
            return None
        finally:
            answering.cancel()
            gone.cancel()
            await asyncio.gather(answering, gone, return_exceptions=True)

    async def _reply(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Reply:
        path = target.partition("?")[0]
        if path.startswith("/__"):
            return self._admin(method, path, body)
        match = ROUTE.search(path)
        if method != "POST" or match is None or match["operation"] not in OPERATIONS:
            return api_error(404, "NOT_FOUND", f"there is no {method} {path}")
        call = Request(
            operation=match["operation"],
            model=match["model"],
            api_key=headers.get("x-goog-api-key", ""),
            body=json.loads(body),
        )
        self.requests.append(call)
        self.counts.calls[call.operation] += 1
        if self.latency_seconds:
            await asyncio.sleep(self.latency_seconds)
        fault = self._poisoned(body.decode()) or self._next_fault(call.operation)
        if fault is not None:
            self.counts.faults[" ".join(str(fault[name]) for name in ("kind", "code") if name in fault)] += 1
            if fault["kind"] == "hang":
                await asyncio.Event().wait()
        return self._refusal(call) or respond(call, fault)

    def _admin(self, method: str, path: str, body: bytes) -> Reply:
        if (method, path) == ("GET", "/__stats"):
            return as_json(200, self.stats())
        if (method, path) == ("GET", "/__log"):
            return as_json(200, [{"operation": r.operation, "model": r.model, "body": r.body} for r in self.requests])
        if (method, path) == ("POST", "/__script"):
            self.script(**json.loads(body))
            return as_json(200, {})
        if (method, path) == ("POST", "/__reset"):
            self.reset()
            return as_json(200, {})
        return api_error(404, "NOT_FOUND", f"there is no {method} {path}")

    def _poisoned(self, body: str) -> dict[str, Any] | None:
        return next((fault for word, fault in self._poison.items() if word in body), None)

    def _next_fault(self, operation: str) -> dict[str, Any] | None:
        for name in (operation, "*"):
            if self._scripts[name]:
                return self._scripts[name].popleft()
        if self._random.random() < self.fault_rate:
            return self._random.choice(self.fault_kinds)
        return None

    def _refusal(self, call: Request) -> Reply | None:
        if not call.api_key or call.api_key == WRONG_KEY:
            return api_error(400, "INVALID_ARGUMENT", "this key is not valid", [error_info("API_KEY_INVALID")])
        if call.model == UNKNOWN_MODEL:
            return api_error(404, "NOT_FOUND", f"models/{call.model} is not there")
        if HALF_CHARACTER.search(json.dumps(call.body, ensure_ascii=False)):
            return api_error(400, "INVALID_ARGUMENT", "the request is not valid Unicode")
        if len(call.body.get("requests", ())) > EMBEDS_PER_CALL_MAX:
            return api_error(400, "INVALID_ARGUMENT", "at most 100 requests in one batch")
        return None


# -- replies ----------------------------------------------------------------------------------------


def respond(call: Request, fault: Mapping[str, Any] | None) -> Reply:
    """The reply to a call, altered by a fault if there is one."""
    kind = fault["kind"] if fault else "none"
    if fault is not None:
        if kind == "rate_limit":
            return rate_limit(fault.get("retry_delay_seconds"), daily=fault.get("daily", False))
        if kind == "status":
            details = [error_info(fault["reason"])] if "reason" in fault else []
            if "retry_delay_seconds" in fault:
                details.append(retry_info(fault["retry_delay_seconds"]))
            return api_error(fault["code"], "FAILED", fault.get("message", "a scripted failure"), details)
    if kind == "disconnect":
        return Reply(200, b"", silent=True)
    if kind == "redirect" and fault is not None:
        return Reply(307, b"", headers=f"Location: {fault['location']}\r\n")
    if kind == "endless":
        return Reply(200, b'{"a": "', endless=True)
    if kind == "compressed":
        return Reply(200, bomb(), headers="Content-Encoding: gzip\r\n")
    if kind == "deep" and fault is not None:
        return Reply(fault.get("status", 200), b'{"error": ' + b"[" * 100_000 + b"]" * 100_000 + b"}")
    if kind == "not_json":
        return Reply(200, b"<html><body>Please log in.</body></html>", content_type="text/html")
    if kind == "foreign_json":
        return as_json(200, {"candidates": 5, "embeddings": 5})
    if call.operation == "generateContent":
        reply = as_json(200, generation(call, kind, fault or {}))
    elif call.operation == "countTokens":
        reply = as_json(200, {"totalTokens": len(json.dumps(call.body)) // 4})
    else:
        reply = as_json(200, embeddings(call, kind))
    reply.cut = kind == "cut_body"
    reply.trickle = kind == "trickle"
    return reply


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


def bomb() -> bytes:
    """128 MB of spaces, compressed in little memory."""
    packer = zlib.compressobj(wbits=31)
    return b"".join(packer.compress(b" " * 2**20) for _ in range(128)) + packer.flush()


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


def as_json(status: int, value: Any) -> Reply:
    return Reply(status, json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


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
