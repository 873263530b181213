"""Gemini as a provider: the only module that knows the google-genai library (2.30 and later, 3.x).

One slice is one generate call (one more, if the reply has to be repaired); a batch of texts is one embedding
call for each hundred chunks. Three levels of trying again, each with its own time: here a few seconds for a
short fault of transport; the queue's minutes for a long one and for 429, on which nothing here ever sleeps;
a person, for what a repair could not mend. The library's own retries are off.

    GeminiGenerator.summarize, .reflect      one call per slice, a few at once
    GeminiEmbedder.embed                     chunks -> batches of 100 -> unit vectors, checked
    _Client.send                             one call: time limit, and every fault as a ProviderError
"""

from __future__ import annotations

import asyncio
import importlib
import json
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from google import genai
from google.genai import errors as genai_errors
from google.genai import types

from hippocampus import prompts
from hippocampus.errors import (
    BlockedReplyError,
    MalformedReplyError,
    PermanentProviderError,
    TransientProviderError,
)
from hippocampus.providers import chunking, extraction, transcript
from hippocampus.providers.calls import Caller, CallGate, CallObserver, Sleep, gather_bounded
from hippocampus.providers.gemini import faults
from hippocampus.providers.protocols import EmbeddingTask
from hippocampus.records import (
    EMBEDDING_DIMENSIONS,
    ConversationSlice,
    Origin,
    Reflection,
    Summary,
    Usage,
    Vector,
)

PROVIDER = "gemini"
BASE_URL = "https://generativelanguage.googleapis.com"
GENERATION_MODEL = "gemini-flash-lite-latest"
EMBEDDING_MODEL = "gemini-embedding-001"

#: Both majors of the library are held to one version of the API: 2.x asks for v1beta by itself, 3.x for v1.
_API_VERSION = "v1beta"

#: What the API takes in one batchEmbedContents.
_TEXTS_PER_CALL_MAX = 100

_TASK_TYPES: dict[EmbeddingTask, str] = {"document": "RETRIEVAL_DOCUMENT", "query": "RETRIEVAL_QUERY"}

#: The model stopped because of what it read or was about to write.
_REFUSALS = frozenset({"SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY"})

Reply = TypeVar("Reply")
Parsed = TypeVar("Parsed")


@dataclass(frozen=True, slots=True, kw_only=True)
class GeminiConnection:
    """Where and how Gemini is called. Checked at birth; the key is in no representation of it."""

    api_key: str = field(repr=False)
    base_url: str = BASE_URL
    timeout_seconds: float = 60.0  # of one call, from the first byte sent to the last one read
    attempts: int = 3  # calls for one answer, the first included, when the transport fails
    concurrency: int = 4  # calls at once, of one provider

    def __post_init__(self) -> None:
        if not self.api_key.strip():
            raise ValueError("api_key is blank: set GOOGLE_API_KEY, or use the local provider")
        if not self.base_url.startswith(("http://", "https://")):
            raise ValueError(f"base_url must begin with http:// or https://, not {self.base_url!r}")
        if not 0 < self.timeout_seconds < math.inf:
            raise ValueError(f"timeout_seconds must be above 0, not {self.timeout_seconds}")
        if self.attempts < 1 or self.concurrency < 1:
            raise ValueError("attempts and concurrency must be at least 1")


class GeminiGenerator:
    """Summaries, facts and insights from Gemini, by structured output."""

    def __init__(
        self,
        connection: GeminiConnection,
        *,
        model: str = GENERATION_MODEL,
        output_tokens_max: int = 8192,
        on_call: CallObserver | None = None,
        gate: CallGate | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._client = _Client(connection)
        self._caller = Caller(model, attempts=connection.attempts, on_call=on_call, gate=gate, sleep=sleep)
        self._concurrency = connection.concurrency
        self._model = model
        self._output_tokens_max = output_tokens_max
        self._fast_replay = prompts.load("fast_replay")
        self._deep_reflection = prompts.load("deep_reflection")
        self._repair = prompts.load("repair")

    @property
    def name(self) -> str:
        """The provider's name."""
        return PROVIDER

    @property
    def fingerprint(self) -> str:
        """The model that is asked for, and the hashes of the prompts."""
        hashes = (self._fast_replay.sha256, self._deep_reflection.sha256, self._repair.sha256)
        return " ".join((PROVIDER, self._model, *hashes))

    async def summarize(self, slices: Sequence[ConversationSlice]) -> list[Summary]:
        """Summarise each slice in at most 200 characters.

        A summary that is too long is sent back once; if it is too long again, it ends at its last full
        sentence. Raises as `hippocampus.providers.protocols.Generator` says.
        """

        async def one(conversation: ConversationSlice) -> Summary:
            task = _Task("summarize", self._fast_replay, extraction.SUMMARY_SCHEMA, conversation)
            text, answer = await self._ask(task, lambda reply, last: extraction.parse_summary(reply, clip=last))
            return Summary(text=text, origin=self._origin(task, answer), usage=answer.usage)

        return await self._each(one, slices)

    async def reflect(self, slices: Sequence[ConversationSlice]) -> list[Reflection]:
        """Draw facts and insights from each slice. Raises as `Generator` says."""

        async def one(conversation: ConversationSlice) -> Reflection:
            task = _Task("reflect", self._deep_reflection, extraction.REFLECTION_SCHEMA, conversation)
            (facts, insights, proposals), answer = await self._ask(
                task, lambda reply, _last: extraction.parse_reflection(reply, conversation)
            )
            origin = self._origin(task, answer)
            return Reflection(facts=facts, insights=insights, proposals=proposals, origin=origin, usage=answer.usage)

        return await self._each(one, slices)

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        await self._client.close()

    async def _each(
        self, one: Callable[[ConversationSlice], Awaitable[Parsed]], slices: Sequence[ConversationSlice]
    ) -> list[Parsed]:
        makers = [lambda conversation=conversation: one(conversation) for conversation in slices]
        return await gather_bounded(makers, concurrency=self._concurrency)

    async def _ask(self, task: _Task, parse: Callable[[str, bool], Parsed]) -> tuple[Parsed, _Answer]:
        """One reply, parsed; one repair, if it does not parse."""
        contents = [_content("user", transcript.format_transcript(task.conversation))]
        first = await self._generate(task, contents)
        try:
            return parse(first.complete_text(), False), first
        except MalformedReplyError as error:
            problems = str(error)
        if first.text:
            contents.append(_content("model", first.text))
        contents.append(_content("user", f"{self._repair.text}\n{problems}"))
        second = (await self._generate(task, contents)).after(first)
        return parse(second.complete_text(), True), second

    async def _generate(self, task: _Task, contents: list[types.Content]) -> _Answer:
        config = types.GenerateContentConfig(
            system_instruction=task.prompt.text,
            temperature=0.0,
            max_output_tokens=self._output_tokens_max,
            response_mime_type="application/json",
            response_json_schema=task.schema,
        )

        async def send() -> types.GenerateContentResponse:
            return await self._client.send(
                lambda models: models.generate_content(model=self._model, contents=contents, config=config)
            )

        return _answer(await self._caller.call(task.operation, send, _usage))

    def _origin(self, task: _Task, answer: _Answer) -> Origin:
        return Origin(provider=PROVIDER, model=answer.model_version or self._model, prompt_hash=task.prompt.sha256)


class GeminiEmbedder:
    """Vectors from Gemini: L2-normalised here, since the API does so for its full length only."""

    def __init__(
        self,
        connection: GeminiConnection,
        *,
        model: str = EMBEDDING_MODEL,
        on_call: CallObserver | None = None,
        gate: CallGate | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._client = _Client(connection)
        self._caller = Caller(model, attempts=connection.attempts, on_call=on_call, gate=gate, sleep=sleep)
        self._concurrency = connection.concurrency
        self._model = model

    @property
    def model(self) -> str:
        """The model's name, stored with every vector."""
        return self._model

    async def embed(self, texts: Sequence[str], task: EmbeddingTask) -> list[Vector]:
        """Embed each text, in order; a text over 1,800 tokens in chunks, averaged by their length.

        Raises:
            PermanentProviderError: a text is blank, so that it has no vector; nothing was sent.
            ProviderError: the whole batch failed; also when vectors are missing or of the wrong length.
        """
        if blank := [number for number, text in enumerate(texts) if not text.strip()]:
            raise PermanentProviderError(
                f"a blank text has no vector: leave out the texts at {blank[:10]}", code="blank"
            )
        parts = [chunking.split(_sendable(text)) for text in texts]
        chunks = [chunk for chunks_of_text in parts for chunk in chunks_of_text]
        batches = [chunks[start : start + _TEXTS_PER_CALL_MAX] for start in range(0, len(chunks), _TEXTS_PER_CALL_MAX)]
        makers = [lambda batch=batch: self._embed_batch(batch, task) for batch in batches]
        embedded = await gather_bounded(makers, concurrency=self._concurrency)
        vectors = iter([vector for batch in embedded for vector in batch])
        return [_joined([next(vectors) for _ in chunks_of_text], chunks_of_text) for chunks_of_text in parts]

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        await self._client.close()

    async def _embed_batch(self, batch: list[str], task: EmbeddingTask) -> list[Vector]:
        config = types.EmbedContentConfig(task_type=_TASK_TYPES[task], output_dimensionality=EMBEDDING_DIMENSIONS)
        # A Content each: a plain list of texts is one text in pieces to some models.
        contents = [types.Content(parts=[types.Part(text=text)]) for text in batch]

        async def send() -> types.EmbedContentResponse:
            return await self._client.send(
                lambda models: models.embed_content(model=self._model, contents=contents, config=config)
            )

        # This API counts no tokens for embeddings.
        response = await self._caller.call("embed", send, lambda _response: Usage())
        return _checked_vectors(response, len(batch))


class GeminiTokenCounter:
    """Counts tokens as Gemini does, by a call: a `hippocampus.text.tokens.WindowCounter`."""

    def __init__(
        self,
        connection: GeminiConnection,
        *,
        model: str = GENERATION_MODEL,
        on_call: CallObserver | None = None,
        gate: CallGate | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._client = _Client(connection)
        self._caller = Caller(model, attempts=connection.attempts, on_call=on_call, gate=gate, sleep=sleep)
        self._model = model

    @property
    def model(self) -> str:
        """The model's name."""
        return self._model

    async def count(self, text: str) -> int:
        """Return how many tokens a text costs. Raises `ProviderError` where no count came."""

        async def send() -> types.CountTokensResponse:
            return await self._client.send(
                lambda models: models.count_tokens(model=self._model, contents=_sendable(text))
            )

        response = await self._caller.call("count", send, lambda _response: Usage())
        if response.total_tokens is None:
            raise MalformedReplyError(f"{self._model} gave no number of tokens")
        return response.total_tokens

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        await self._client.close()


@dataclass(frozen=True, slots=True)
class _Task:
    operation: str
    prompt: prompts.Prompt
    schema: dict[str, Any]
    conversation: ConversationSlice


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What matters of a GenerateContentResponse."""

    text: str  # of all parts that are not the model's thoughts
    raw: str  # the whole response as JSON, evidence where there is no text
    finish_reason: str
    model_version: str | None
    usage: Usage

    def complete_text(self) -> str:
        """The text, if the model came to its end."""
        if self.finish_reason == "MAX_TOKENS":
            extraction.refuse(self.text or self.raw, ["it was cut off at the limit of output tokens: be shorter"])
        if not self.text.strip():
            extraction.refuse(self.raw, [f"it is empty (finish reason {self.finish_reason or 'unknown'})"])
        return self.text

    def after(self, earlier: _Answer) -> _Answer:
        """This answer with the tokens of both."""
        usage = Usage(
            prompt_tokens=earlier.usage.prompt_tokens + self.usage.prompt_tokens,
            output_tokens=earlier.usage.output_tokens + self.usage.output_tokens,
        )
        return _Answer(
            text=self.text,
            raw=self.raw,
            finish_reason=self.finish_reason,
            model_version=self.model_version,
            usage=usage,
        )


class _Client:
    """A client of the library for each event loop that calls, and the calls that are made through it."""

    def __init__(self, connection: GeminiConnection) -> None:
        self._connection = connection
        self._timeout_seconds = connection.timeout_seconds
        self._http_library = _http_library()
        self._transport_faults: tuple[type[Exception], ...] = (OSError, self._http_library.TransportError)
        # Connections belong to the loop that opened them: an agent's host may run one loop after the other.
        self._by_loop: dict[asyncio.AbstractEventLoop, tuple[Any, AsyncGenerator[None]]] = {}

    async def close(self) -> None:
        """Close what this loop has opened."""
        opened = self._by_loop.pop(asyncio.get_running_loop(), None)
        if opened is not None:
            await opened[1].aclose()

    async def _genai(self) -> Any:
        loop = asyncio.get_running_loop()
        if loop not in self._by_loop:
            for ended in [each for each in self._by_loop if each.is_closed()]:
                del self._by_loop[ended]
            http, client = self._open()
            keeper = _kept(http, client)
            self._by_loop[loop] = client, keeper
            await anext(keeper)
        return self._by_loop[loop][0]

    def _open(self) -> tuple[Any, Any]:
        connection = self._connection
        # An HTTP client of our own: with aiohttp installed the library would take that instead, and on
        # a lost connection sleep for up to ten seconds and call again, whatever its retry options say.
        http = self._http_library.AsyncClient(follow_redirects=True, timeout=connection.timeout_seconds)
        client = genai.Client(
            vertexai=False,
            api_key=connection.api_key,
            http_options=types.HttpOptions(
                base_url=connection.base_url,
                api_version=_API_VERSION,
                httpx_async_client=http,
                timeout=math.ceil(connection.timeout_seconds * 1000),  # milliseconds
                retry_options=None,  # None: one attempt
            ),
        )
        return http, client

    async def send(self, request: Callable[[Any], Awaitable[Reply]]) -> Reply:
        """Send a request once; whatever goes wrong comes out as a ProviderError.

        ``from None``: the library's errors quote the whole reply, and tracebacks are logged.
        """
        try:
            # The HTTP client's own limit counts each read anew: a reply that trickles would never end.
            async with asyncio.timeout(self._timeout_seconds):
                return await request((await self._genai()).aio.models)
        except genai_errors.APIError as fault:
            raise faults.from_response(fault.code, fault.details) from None
        except TimeoutError:
            raise TransientProviderError(
                f"Gemini: no answer within {self._timeout_seconds:g} s", code="timeout"
            ) from None
        except self._transport_faults as fault:
            kind = type(fault).__name__
            code = "timeout" if "Timeout" in kind else "connection"
            raise TransientProviderError(f"Gemini: the connection failed ({kind})", code=code) from None
        except (ValueError, TypeError, AttributeError, KeyError) as fault:
            # The library reads a body that is cut, or not of this API at all, with these.
            raise TransientProviderError(
                f"Gemini: the answer is no answer of this API ({type(fault).__name__})",
                code="unreadable",
                raw_reply=fault.doc if isinstance(fault, json.JSONDecodeError) else str(fault),
            ) from None


async def _kept(http: Any, client: Any) -> AsyncGenerator[None]:
    """Hold a client until its loop asks its generators to end, as `asyncio.run` does, or `close` does."""
    try:
        yield
    finally:
        await client.aio.aclose()
        await http.aclose()
        client.close()


def _http_library() -> Any:
    """The HTTP library that the installed google-genai is built on: httpx up to 2.x, httpx2 from 3.0 on."""
    major = int(genai.__version__.split(".", maxsplit=1)[0])
    return importlib.import_module("httpx2" if major >= 3 else "httpx")


def _content(role: str, text: str) -> types.Content:
    return types.Content(role=role, parts=[types.Part(text=text)])


def _usage(response: types.GenerateContentResponse) -> Usage:
    counts = response.usage_metadata
    if counts is None:
        return Usage()
    return Usage(
        prompt_tokens=counts.prompt_token_count or 0,
        output_tokens=(counts.candidates_token_count or 0) + (counts.thoughts_token_count or 0),
    )


def _answer(response: types.GenerateContentResponse) -> _Answer:
    """Read a response.

    Raises:
        BlockedReplyError: the prompt or the reply was refused.
    """
    raw = response.model_dump_json(exclude_none=True, exclude={"sdk_http_response"})
    if response.prompt_feedback is not None and response.prompt_feedback.block_reason is not None:
        reason = response.prompt_feedback.block_reason.value
        raise BlockedReplyError(f"Gemini refused the conversation: {reason}", code="blocked", raw_reply=raw)
    candidate = response.candidates[0] if response.candidates else None
    finish_reason = candidate.finish_reason.value if candidate and candidate.finish_reason else ""
    if finish_reason in _REFUSALS:
        raise BlockedReplyError(f"Gemini refused to answer: {finish_reason}", code="blocked", raw_reply=raw)
    parts = (candidate.content.parts if candidate and candidate.content else None) or []
    return _Answer(
        text="".join(part.text for part in parts if part.text and not part.thought),
        raw=raw,
        finish_reason=finish_reason,
        model_version=response.model_version,
        usage=_usage(response),
    )


def _sendable(text: str) -> str:
    """Half a character is no Unicode, and no JSON that a server would take."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _checked_vectors(response: types.EmbedContentResponse, expected: int) -> list[Vector]:
    vectors = [embedding.values or [] for embedding in response.embeddings or []]
    if len(vectors) != expected:
        _refuse_vectors(f"{len(vectors)} vectors came back for {expected} texts")
    wrong = {len(vector) for vector in vectors} - {EMBEDDING_DIMENSIONS}
    if wrong:
        _refuse_vectors(f"vectors of {sorted(wrong)} dimensions came back, not of {EMBEDDING_DIMENSIONS}")
    try:
        return [chunking.normalise(vector) for vector in vectors]
    except ValueError as error:
        _refuse_vectors(str(error))


def _refuse_vectors(problem: str) -> NoReturn:
    """The vectors themselves are no evidence that anybody could read: the problem says it all."""
    raise MalformedReplyError(f"Gemini: {problem}", code="malformed", raw_reply=problem)


def _joined(vectors: list[Vector], chunks: list[str]) -> Vector:
    if len(vectors) == 1:
        return vectors[0]
    return chunking.average(vectors, [chunking.estimate_tokens(chunk) for chunk in chunks])
