"""Gemini as a provider: a generator, an embedder and a counter of tokens.

One slice is one generate call, and one more if the reply has to be repaired; a batch of texts is one embedding call for
each hundred chunks. Retries have three levels: a few seconds here, for a short transport error; minutes in the queue,
for a long one and for 429, which is never waited for here; and an operator, for what a repair did not fix.

    GeminiGenerator.summarize, .reflect      one call per slice, a few at once; each reply is checked by `extraction`
    GeminiEmbedder.embed                     chunks -> batches of 100 -> unit vectors, checked
    GeminiTokenCounter.count                 one call
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

from google.genai import types

from hippocampus import prompts
from hippocampus.errors import MalformedReplyError, PermanentProviderError
from hippocampus.providers import chunking, extraction, registry, transcript
from hippocampus.providers.calls import Caller, CallGate, CallObserver, Sleep, gather_bounded
from hippocampus.providers.gemini.answers import Answer, read_answer, usage_of
from hippocampus.providers.gemini.client import BASE_URL, GeminiClient, GeminiConnection
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

if TYPE_CHECKING:
    from hippocampus.providers.registry import ModelConfig

__all__ = ["GeminiConnection", "GeminiEmbedder", "GeminiGenerator", "GeminiTokenCounter"]

PROVIDER = "gemini"
GENERATION_MODEL = registry.PROVIDERS[PROVIDER].generation_model
EMBEDDING_MODEL = registry.PROVIDERS[PROVIDER].embedding_model

#: What the API accepts in one batchEmbedContents.
_TEXTS_PER_CALL_MAX = 100

_TASK_TYPES: dict[EmbeddingTask, str] = {"document": "RETRIEVAL_DOCUMENT", "query": "RETRIEVAL_QUERY"}

Parsed = TypeVar("Parsed")


def make_generator(config: ModelConfig) -> GeminiGenerator:
    """Return a generator; see `hippocampus.providers.registry.ProviderModule`."""
    return GeminiGenerator(_connection(config), model=config.model, on_call=config.on_call, gate=config.gate)


def make_embedder(config: ModelConfig) -> GeminiEmbedder:
    """Return an embedder; see `hippocampus.providers.registry.ProviderModule`."""
    return GeminiEmbedder(_connection(config), model=config.model, on_call=config.on_call, gate=config.gate)


def _connection(config: ModelConfig) -> GeminiConnection:
    return GeminiConnection(
        api_key=config.api_key or "",
        base_url=config.base_url or BASE_URL,
        timeout_seconds=config.timeout_seconds,
        attempts=config.attempts,
    )


class _GeminiModel:
    """One model of Gemini, and how it is called."""

    _default_model: ClassVar[str] = GENERATION_MODEL

    def __init__(
        self,
        connection: GeminiConnection,
        *,
        model: str | None = None,
        on_call: CallObserver | None = None,
        gate: CallGate | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._model = model or self._default_model
        self._client = GeminiClient(connection)
        self._concurrency = connection.concurrency
        self._caller = Caller(
            PROVIDER, self._model, attempts=connection.attempts, on_call=on_call, gate=gate, sleep=sleep
        )

    @property
    def model(self) -> str:
        """The model's name."""
        return self._model

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        await self._client.close()


class GeminiGenerator(_GeminiModel):
    """Summaries, facts and insights from Gemini, by structured output."""

    #: It is shown the insights that are known already, and names those that it repeats.
    compares_insights = True

    def __init__(
        self,
        connection: GeminiConnection,
        *,
        model: str | None = None,
        output_tokens_max: int = 8192,
        on_call: CallObserver | None = None,
        gate: CallGate | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        super().__init__(connection, model=model, on_call=on_call, gate=gate, sleep=sleep)
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
        """The model that is requested, and the hashes of the prompts."""
        hashes = (self._fast_replay.sha256, self._deep_reflection.sha256, self._repair.sha256)
        return " ".join((PROVIDER, self._model, *hashes))

    async def summarize(self, slices: Sequence[ConversationSlice]) -> list[Summary]:
        """Summarise each slice in at most 200 characters.

        A summary that is too long is sent back once; if it is too long again, it is cut after its last full sentence.
        Raises as `hippocampus.providers.protocols.Generator` says.
        """

        async def summarize_one(slice_: ConversationSlice) -> Summary:
            task = _Task("summarize", self._fast_replay, extraction.SUMMARY_SCHEMA, slice_)
            text, answer = await self._ask(task, lambda reply, last: extraction.parse_summary(reply, clip=last))
            return Summary(text=text, origin=self._origin(task, answer), usage=answer.usage)

        return await self._each(summarize_one, slices)

    async def reflect(self, slices: Sequence[ConversationSlice]) -> list[Reflection]:
        """Extract facts, insights and proposals from each slice. Raises as `Generator` says."""

        async def reflect_on_one(slice_: ConversationSlice) -> Reflection:
            task = _Task("reflect", self._deep_reflection, extraction.REFLECTION_SCHEMA, slice_)
            (facts, insights, proposals), answer = await self._ask(
                task, lambda reply, _last: extraction.parse_reflection(reply, slice_)
            )
            origin = self._origin(task, answer)
            return Reflection(facts=facts, insights=insights, proposals=proposals, origin=origin, usage=answer.usage)

        return await self._each(reflect_on_one, slices)

    async def _each(
        self, ask: Callable[[ConversationSlice], Awaitable[Parsed]], slices: Sequence[ConversationSlice]
    ) -> list[Parsed]:
        makers = [lambda slice_=slice_: ask(slice_) for slice_ in slices]
        return await gather_bounded(makers, concurrency=self._concurrency)

    async def _ask(self, task: _Task, parse: Callable[[str, bool], Parsed]) -> tuple[Parsed, Answer]:
        """Return one reply, parsed; ask for one repair if it does not parse."""
        parts = (transcript.format_transcript(task.slice_), transcript.format_known(task.slice_))
        contents = [_content("user", "\n\n".join(filter(None, parts)))]
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

    async def _generate(self, task: _Task, contents: list[types.Content]) -> Answer:
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

        return read_answer(await self._caller.call(task.operation, send, usage_of))

    def _origin(self, task: _Task, answer: Answer) -> Origin:
        return Origin(provider=PROVIDER, model=answer.model_version or self._model, prompt_hash=task.prompt.sha256)


class GeminiEmbedder(_GeminiModel):
    """Vectors from Gemini. They are L2-normalised here, since the API normalises those of full length only."""

    _default_model = EMBEDDING_MODEL

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
        chunked = [chunking.split(_sendable(text)) for text in texts]
        chunks = [chunk for chunks_of_text in chunked for chunk in chunks_of_text]
        batches = [chunks[start : start + _TEXTS_PER_CALL_MAX] for start in range(0, len(chunks), _TEXTS_PER_CALL_MAX)]
        makers = [lambda batch=batch: self._embed_batch(batch, task) for batch in batches]
        embedded = await gather_bounded(makers, concurrency=self._concurrency)
        vectors = iter([vector for batch in embedded for vector in batch])
        return [_joined([next(vectors) for _ in chunks_of_text], chunks_of_text) for chunks_of_text in chunked]

    async def _embed_batch(self, batch: list[str], task: EmbeddingTask) -> list[Vector]:
        config = types.EmbedContentConfig(task_type=_TASK_TYPES[task], output_dimensionality=EMBEDDING_DIMENSIONS)
        # A Content each: some models take a plain list of texts for the parts of one text.
        contents = [types.Content(parts=[types.Part(text=text)]) for text in batch]

        async def send() -> types.EmbedContentResponse:
            return await self._client.send(
                lambda models: models.embed_content(model=self._model, contents=contents, config=config)
            )

        # This API reports no tokens for embeddings.
        response = await self._caller.call("embed", send, lambda _response: Usage())
        return _checked_vectors(response, len(batch))


class GeminiTokenCounter(_GeminiModel):
    """Counts tokens as Gemini does, by a call: a `hippocampus.text.tokens.WindowCounter`."""

    async def count(self, text: str) -> int:
        """Return how many tokens a text costs.

        Raises:
            ProviderError: the call failed.
        """

        async def send() -> types.CountTokensResponse:
            return await self._client.send(
                lambda models: models.count_tokens(model=self._model, contents=_sendable(text))
            )

        response = await self._caller.call("count", send, lambda _response: Usage())
        if response.total_tokens is None:
            raise MalformedReplyError(f"{self._model} returned no number of tokens")
        return response.total_tokens


@dataclass(frozen=True, slots=True)
class _Task:
    operation: str
    prompt: prompts.Prompt
    schema: dict[str, Any]
    slice_: ConversationSlice


def _content(role: str, text: str) -> types.Content:
    return types.Content(role=role, parts=[types.Part(text=text)])


def _sendable(text: str) -> str:
    """Replace lone surrogates: no server accepts them in JSON."""
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
    """Raise an error whose evidence is the problem: the vectors themselves would be unreadable."""
    raise MalformedReplyError(f"Gemini: {problem}", code="malformed", raw_reply=problem)


def _joined(vectors: list[Vector], chunks: list[str]) -> Vector:
    if len(vectors) == 1:
        return vectors[0]
    return chunking.average(vectors, [chunking.estimate_tokens(chunk) for chunk in chunks])
