"""Requests to the API within this process, over a real database, made from its own OpenAPI document."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.types import ASGIApp, Message

from tests.fuzz.values import NUMBERS, Values

#: Names of fields whose values other requests may use.
_USED_AGAIN = re.compile(r"(^|_)(id|cursor|ticket|token|key|version|offset)$")
_KEPT_MAX = 400
ANSWER_SECONDS_MAX = 30.0
#: The type of an endless stream: once it has begun, the client leaves.
_STREAM = b"text/event-stream"


class Request(NamedTuple):
    method: str
    path: bytes
    query: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes


class Answer(NamedTuple):
    status: int
    body: bytes


async def ask(app: ASGIApp, request: Request) -> Answer:
    """Send a request to an ASGI application; a stream is left after its first bytes.

    Raises:
        TimeoutError: no answer in time.
    """
    status, body, begun = 0, bytearray(), asyncio.Event()
    sent = False

    async def receive() -> Message:
        nonlocal sent
        if not sent:
            sent = True
            return {"type": "http.request", "body": request.body, "more_body": False}
        await begun.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
            if any(value.startswith(_STREAM) for name, value in message["headers"] if name == b"content-type"):
                begun.set()
        elif message["type"] == "http.response.body":
            body.extend(message.get("body", b""))
            if not message.get("more_body"):
                begun.set()

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        # As uvicorn decodes it.
        "path": _decoded(request.path),
        "raw_path": request.path,
        "root_path": "",
        "query_string": request.query,
        "headers": [(b"host", b"127.0.0.1"), *request.headers],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "state": {},
    }
    async with asyncio.timeout(ANSWER_SECONDS_MAX):
        await app(scope, receive, send)
    return Answer(status, bytes(body))


def _decoded(path: bytes) -> str:
    raw = re.sub(rb"%([0-9a-fA-F]{2})", lambda match: bytes([int(match[1], 16)]), path)
    return raw.decode("utf-8", "replace")


class Operations:
    """Draws requests to every operation of a document, and learns ids, cursors and tickets from the answers."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._schemas = document["components"]["schemas"]
        self._operations = [
            (method.upper(), path, operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
        ]
        self._seen: dict[str, list[Any]] = {"app_name": ["fuzz"], "user_id": ["ann", "ben"], "session_id": ["s1", "s2"]}

    def request(self, rng: random.Random, values: Values, *, aimed_at: str = "") -> Request:
        """Return a request.

        Args:
            aimed_at: only operations with a parameter of this name, which is a hostile variant of a known value.
        """
        fit = [each for each in self._operations if not aimed_at or aimed_at in _names(each[2])]
        method, path, operation = rng.choice(fit)
        query, headers = [], []
        for given in operation.get("parameters", ()):
            name, place = given["name"], given["in"]
            aimed = name == aimed_at
            if place == "path":
                path = path.replace("{" + name + "}", _quoted(self._value(rng, values, name, aimed=aimed)) or "-")
            elif aimed or given.get("required") or rng.random() < 0.4:
                value = self._value(rng, values, name, aimed=aimed)
                if place == "query":
                    query.append(f"{name}={_quoted(value)}")
                elif place == "header":
                    headers.append((name.lower().encode(), str(value).encode("utf-8", "replace")[:500]))
        body = b""
        if "requestBody" in operation:
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            value = self._example(rng, values, schema)
            for _ in range(rng.choice((0, 1, 1, 2))):
                value = values.mutated(value)
            body = values.body(value)
            headers += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        return Request(method, path.encode(), "&".join(query).encode(), headers, body)

    def learn(self, answer: Answer) -> None:
        """Keep what other requests may name."""
        if answer.status < 300 and len(answer.body) < 200_000:
            try:
                self._learn(json.loads(answer.body))
            except ValueError:
                return

    def _learn(self, value: Any) -> None:
        if isinstance(value, list):
            for each in value[:20]:
                self._learn(each)
        elif isinstance(value, dict):
            for name, each in value.items():
                if isinstance(each, str | int) and _USED_AGAIN.search(name):
                    kept = self._seen.setdefault(name.removeprefix("next_"), [])
                    kept.append(each)
                    del kept[:-_KEPT_MAX]
                else:
                    self._learn(each)

    def _value(self, rng: random.Random, values: Values, name: str, *, aimed: bool) -> Any:
        known = self._seen.get(name) or self._seen.get("id", [])
        if known and rng.random() < (0.9 if aimed else 0.75):
            value = rng.choice(known)
            if not aimed or rng.random() < 0.2:
                return value
            return values.bytes(str(value).encode("utf-8", "surrogatepass")).decode("utf-8", "replace")
        return rng.choice(NUMBERS) if rng.random() < 0.2 else values.text()

    def _example(self, rng: random.Random, values: Values, schema: Mapping[str, Any], name: str = "") -> Any:
        """Return a value of a schema: known ids, plain values, seldom hostile ones."""
        if "$ref" in schema:
            return self._example(rng, values, self._schemas[schema["$ref"].rpartition("/")[2]], name)
        for union in ("anyOf", "oneOf", "allOf"):
            if union in schema:
                return self._example(rng, values, rng.choice(schema[union]), name)
        if "const" in schema or "enum" in schema:
            return rng.choice(schema.get("enum", [schema.get("const")]))
        if rng.random() < 0.05:
            return values.json()
        kind = schema.get("type")
        if kind == "object":
            required = schema.get("required", ())
            named = {
                each: self._example(rng, values, inner, each)
                for each, inner in schema.get("properties", {}).items()
                if each in required or rng.random() < 0.4
            }
            return named or {values.text(): values.json(2)}
        if kind == "array":
            return [self._example(rng, values, schema.get("items", {}), name) for _ in range(rng.randint(0, 3))]
        if kind in ("integer", "number"):
            return rng.choice((0, 1, 2, 10, *NUMBERS[:4]))
        if kind == "boolean":
            return rng.random() < 0.5
        if kind == "string":
            return str(self._value(rng, values, name, aimed=False)) if rng.random() < 0.8 else "2024-05-08T12:56:40Z"
        return values.json(1)


def _names(operation: Mapping[str, Any]) -> set[str]:
    return {given["name"] for given in operation.get("parameters", ())}


def _quoted(value: Any) -> str:
    return quote(str(value).encode("utf-8", "surrogatepass"), safe="")
