"""What is fuzzed: each family turns a number into one input, and returns what went wrong."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from starlette.types import ASGIApp

from hippocampus.errors import ProviderError
from hippocampus.providers.anthropic.provider import AnthropicGenerator
from hippocampus.providers.extraction import parse_answer, parse_reflection, parse_summary
from hippocampus.providers.features import Features
from hippocampus.providers.gemini.provider import GeminiConnection, GeminiGenerator
from hippocampus.providers.http_client import HttpConnection
from hippocampus.providers.openai.provider import OpenAIGenerator
from hippocampus.records import ConversationSlice, KnownInsight, Turn
from hippocampus.search import MemorySearch, SearchFilter
from hippocampus.store.service import ItemStore, Search
from pulse.database import Pool
from pulse.errors import PulseError
from tests.fuzz.api import Answer, Operations, Request, ask
from tests.fuzz.values import Values
from tests.support.waiting import until
from tests.workers import test_imported_formats as programs
from tests.workers.test_intake import EXPORTED
from workers.intake import reader
from workers.intake.records import FileFormatError

#: One input; what went wrong, or nothing.
Family = Callable[[random.Random, Values], Awaitable[str | None]]

LEDGER_APP = "ledger"
_AT = datetime(2026, 5, 4, tzinfo=UTC)
_SLICE = ConversationSlice(
    turns=tuple(
        Turn(sequence_num=number, author="user", role="user", text=text, occurred_at=_AT)
        for number, text in enumerate(("My name is Mei.", "I live in Lisbon.", "I row."), start=1)
    ),
    known_insights=(KnownInsight(id=str(uuid4()), content="likes rowing"),),
)
_REFLECTION = {
    "facts": [{"type": "profile", "key": "home_city", "value": "Lyon", "confidence": 0.9, "source_turns": [1]}],
    "insights": [{"content": "likes rowing", "importance": 5, "source_turns": [2, 3]}],
    "instructions": [{"key": "tone", "content": "Be brief.", "source_turns": [1]}],
}
_REPLIES: tuple[tuple[Callable[[str], object], Any], ...] = (
    (lambda reply: parse_reflection(reply, _SLICE), _REFLECTION),
    (parse_summary, {"summary": "Mei rows in Lisbon."}),
    (lambda reply: parse_summary(reply, clip=True), {"summary": "Mei rows in Lisbon. " * 20}),
    (lambda reply: parse_answer(reply, 200, clip=True), {"citations": [1], "known": True, "answer": "In Lisbon."}),
)
_CHAT = [{"role": "user", "content": "Hi", "timestamp": 1715173000}, {"role": "assistant", "content": "Hello"}]
_FILES: tuple[Any, ...] = (
    programs.CLAUDE, programs.MEM0, programs.ZEP_THREAD, programs.ZEP_GRAPH, programs.LETTA, programs.STORE,
    programs.THREAD, programs.ITEMS, programs.IOS, programs.ANDROID, [EXPORTED], EXPORTED, _CHAT, {"messages": _CHAT},
    "\n".join(map(json.dumps, _CHAT)), "Ann: Hi.\nBen: Hello,\n  how are you?\n",
    "[2024-05-08 12:56:40] Ann: Hi.\n[2024-05-08T12:57:00Z] Assistant: Yes.\n",
)  # fmt: skip


async def read_reply(rng: random.Random, values: Values) -> str | None:
    """A model's reply is read, or refused as malformed."""
    parse, reply = rng.choice(_REPLIES)
    for _ in range(rng.choice((1, 1, 2))):
        reply = values.mutated(reply)
    text = json.dumps(reply, ensure_ascii=rng.random() < 0.5)
    if rng.random() < 0.3:
        text = values.bytes(text.encode("utf-8", "surrogatepass")).decode("utf-8", "replace")
    with contextlib.suppress(ProviderError):
        parse(text)
    return None


def read_file(folder: Path) -> Family:
    """Files of every format: each record is read, or refused with its line."""
    path = folder / "talk.json"

    async def family(rng: random.Random, values: Values) -> str | None:
        content = rng.choice(_FILES)
        if not isinstance(content, str):
            content = json.dumps(values.mutated(content), ensure_ascii=rng.random() < 0.5)
        raw = content.encode("utf-8", "surrogatepass")
        path.write_bytes(values.bytes(raw) if rng.random() < 0.7 else raw)
        with contextlib.suppress(FileFormatError):
            for item in reader.read(path).items:
                repr(item)
        return None

    return family


@contextlib.asynccontextmanager
async def provider() -> AsyncIterator[Family]:
    """Answers of the providers' HTTP APIs, broken as bytes and as JSON: a reply, or a provider's error."""
    answer: list[bytes] = [b""]

    async def serve(incoming: asyncio.StreamReader, outgoing: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await incoming.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: *(\d+)", head.lower())
            await incoming.readexactly(int(length[1]) if length else 0)
            outgoing.write(answer[0])
            await outgoing.drain()
        outgoing.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    features: Features = frozenset({"json_schema"})  # Nothing is asked to find them out.
    connection = HttpConnection(base_url=address, timeout_seconds=5, attempts=1)
    generators = {
        _of_gemini: GeminiGenerator(GeminiConnection(api_key="k", base_url=address, timeout_seconds=5, attempts=1)),
        _of_openai: OpenAIGenerator(connection, model="gpt-x", features=features),
        _of_anthropic: AnthropicGenerator(connection, model="claude-x", features=features),
    }

    async def family(rng: random.Random, values: Values) -> str | None:
        dialect = rng.choice(list(generators))
        generator = generators[dialect]
        code = rng.choice((200, 200, 200, 200, 400, 429, 500, 302, 204))
        text = json.dumps(rng.choice((_REFLECTION, {"summary": "Mei rows."})))
        body = values.body(values.mutated(dialect(text, code)))
        head = f"HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        answer[0] = values.bytes(head) + body if rng.random() < 0.05 else head + body
        with contextlib.suppress(ProviderError):
            if rng.random() < 0.5:
                await generator.summarize([_SLICE])
            else:
                await generator.reflect([_SLICE])
        return None

    try:
        yield family
    finally:
        for generator in generators.values():
            await generator.close()
        server.close()


def _of_gemini(text: str, code: int) -> Any:
    """A reply, or an error of this status, as Gemini's API sends it."""
    if code >= 400:
        return {"error": {"code": code, "message": "no", "status": "X", "details": [{"retryDelay": "3s"}]}}
    return {
        "candidates": [{"content": {"parts": [{"text": text}], "role": "model"}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5},
        "modelVersion": "gemini-x",
    }


def _of_openai(text: str, code: int) -> Any:
    """As OpenAI's."""
    if code >= 400:
        return {"error": {"message": "no", "type": "x", "param": "response_format", "code": "unsupported_value"}}
    message = {"role": "assistant", "content": text, "refusal": None}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "gpt-x",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3000, "completion_tokens": 2},
    }


def _of_anthropic(text: str, code: int) -> Any:
    """As Anthropic's."""
    if code >= 400:
        return {"type": "error", "error": {"type": "invalid_request_error", "message": "output_config: no"}}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 3000, "cache_read_input_tokens": 1, "output_tokens": 2},
    }


def requests(app: ASGIApp, operations: Operations, *, aimed_at: str = "") -> Family:
    """Requests to the API: no answer is an error of the server."""

    async def family(rng: random.Random, values: Values) -> str | None:
        request = operations.request(rng, values, aimed_at=aimed_at)
        answer = await ask(app, request)
        if request.method == "GET" and answer.status == 503:
            answer = await until(lambda: _passed(app, request), f"an answer to {request} that is no 503")
        operations.learn(answer)
        return _crashed(request, answer)

    return family


def filters(search: MemorySearch, store: ItemStore) -> Family:
    """Filters of searches: rows, or an error that names the filter."""

    async def family(rng: random.Random, values: Values) -> str | None:
        condition = values.json(1)
        if not isinstance(condition, dict):
            condition = {values.text(): {rng.choice(("$eq", "$ne", "$gt", "$lte", "$in", "$")): condition}}
        with contextlib.suppress(PulseError):
            if rng.random() < 0.5:
                await store.search_many([Search((), condition, limit=rng.choice((0, 1, 10)))])
            else:
                narrow = SearchFilter(metadata=condition)
                await search.search(app_name="fuzz", user_id="ann", query=values.text(), narrow=narrow, limit=3)
        return None

    return family


class Ledger:
    """Appends whose acknowledgement is a promise: at the end each acknowledged event is stored once."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._acknowledged: dict[str, list[str]] = {}

    async def append(self, rng: random.Random, values: Values) -> str | None:
        """Append events with hostile content to one of some sessions."""
        session = f"s{rng.randrange(20)}"
        base = f"/v1/apps/{LEDGER_APP}/users/kept/sessions"
        if session not in self._acknowledged:
            self._acknowledged[session] = []
            await ask(self._app, _post(base, json.dumps({"session_id": session}).encode()))
        events: list[Any] = []
        for _ in range(rng.choice((1, 1, 3))):
            content = values.json(1) if rng.random() < 0.5 else {"text": values.text()}
            events.append({"id": uuid4().hex, "author": "user", "content": content})
        body = values.mutated({"events": events}) if rng.random() < 0.4 else {"events": events}
        request = _post(f"{base}/{session}/events", values.body(body))
        answer = await ask(self._app, request)
        if answer.status < 300:
            stored = json.loads(answer.body).get("events", [])
            self._acknowledged[session] += [event["id"] for event in stored]
        return _crashed(request, answer)

    async def lost(self, pool: Pool) -> list[str]:
        """Return the acknowledged events that are not stored once."""
        rows = await pool.fetch(
            "SELECT t.session_id, e.id, count(*) AS times FROM events AS e JOIN threads AS t ON t.id = e.thread_id"
            " WHERE t.app_name = $1 GROUP BY 1, 2",
            LEDGER_APP,
        )
        times = {(row["session_id"], row["id"]): row["times"] for row in rows}
        wanted = [(session, event) for session, events in self._acknowledged.items() for event in set(events)]
        return [f"{session}/{event}" for session, event in wanted if times.get((session, event)) != 1]

    @property
    def acknowledged(self) -> int:
        """How many events were acknowledged."""
        return sum(len(set(events)) for events in self._acknowledged.values())


def _post(path: str, body: bytes) -> Request:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    return Request("POST", path.encode(), b"", headers, body)


async def _passed(app: ASGIApp, request: Request) -> Answer | None:
    """Ask again what a busy machine did not answer in time, such as a health check within two seconds."""
    answer = await ask(app, request)
    return None if answer.status == 503 else answer


def _crashed(request: Request, answer: Answer) -> str | None:
    if 100 <= answer.status < 500:
        return None
    return f"{answer.status} {answer.body[:500]!r} for {request}"


def scratch() -> Path:
    """Return a new folder, in memory where there is one."""
    shared = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="hippo-fuzz-", dir=shared if shared.is_dir() else None))
