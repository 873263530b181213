"""What generators that ask a model have in common: prompts, schemas, checks, and one repair of a reply.

One slice is one call, and one more if the reply has to be repaired. A provider adds `_answer`, which sends messages.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from hippocampus import prompts
from hippocampus.errors import MalformedReplyError
from hippocampus.providers import extraction, reply_check, transcript
from hippocampus.providers.calls import gather_bounded
from hippocampus.records import ConversationSlice, Origin, Question, Reflection, Reply, Summary, Usage

Parsed = TypeVar("Parsed")

#: Keywords that some servers refuse in the schema of a structured reply. The prompts name these bounds, and
#: `hippocampus.providers.extraction` checks them.
_BOUNDS = frozenset({"minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength"})

#: Tokens that a reply may have for each token of its answer, which is written in JSON, and besides: citations, and what
#: a model thinks before it answers.
_TOKENS_OF_ANSWER = 2
_TOKENS_AROUND_ANSWER = 1_024
#: Output tokens of a ranking, per text.
_TOKENS_OF_NUMBER = 6

#: What some models write before their reply, where their server does not separate it.
_THOUGHTS = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)


class Message(NamedTuple):
    """One message to a model: of the ``user``, or a reply of the ``model``."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Task:
    """What is asked about one slice, or about the passages of a question."""

    operation: str  # 'summarize', 'reflect', 'answer', 'rerank'
    prompt: prompts.Prompt
    schema: dict[str, Any]
    content: str
    tokens_max: int | None = None  # of the reply; None: the generator's own limit

    def output_tokens(self, most: int) -> int:
        """Return the limit of output tokens of a call."""
        return most if self.tokens_max is None else min(self.tokens_max, most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is used of a model's reply."""

    text: str  # without the model's thoughts
    raw: str  # the whole reply as JSON: evidence if there is no text
    finish_reason: str
    is_cut: bool  # at a limit of tokens
    model_version: str | None
    usage: Usage

    def complete_text(self) -> str:
        """Return the text of a reply that the model completed.

        Raises:
            MalformedReplyError: it was cut off, or is empty.
        """
        if self.is_cut:
            reply_check.refuse(self.text or self.raw, ["it was cut off at the limit of output tokens: be shorter"])
        text = _THOUGHTS.sub("", self.text)
        if not text.strip():
            reply_check.refuse(self.raw, [f"it is empty (finish reason {self.finish_reason or 'unknown'})"])
        return text

    def after(self, earlier: Answer) -> Answer:
        """Return this answer with the tokens of both."""
        usage = Usage(
            prompt_tokens=earlier.usage.prompt_tokens + self.usage.prompt_tokens,
            output_tokens=earlier.usage.output_tokens + self.usage.output_tokens,
        )
        return replace(self, usage=usage)


class StructuredGenerator(abc.ABC):
    """A `hippocampus.Generator` by one prompt and one JSON Schema for each task."""

    #: It is shown the insights that are known already, and names those that it repeats.
    compares_insights = True

    def __init__(self, provider: str, model: str, *, concurrency: int) -> None:
        self._provider = provider
        self._model = model
        self._concurrency = concurrency
        self._fast_replay = prompts.load("fast_replay")
        self._deep_reflection = prompts.load("deep_reflection")
        self._repair = prompts.load("repair")
        self._answer_prompt = prompts.load("answer")
        self._rerank_prompt = prompts.load("rerank")

    @property
    def name(self) -> str:
        """The provider's name."""
        return self._provider

    @property
    def model(self) -> str:
        """The model's name, as it is requested."""
        return self._model

    @property
    def fingerprint(self) -> str:
        """The model that is requested, and the hashes of the prompts."""
        hashes = (self._fast_replay.sha256, self._deep_reflection.sha256, self._repair.sha256)
        return " ".join((self._provider, self._model, *hashes))

    async def summarize(self, slices: Sequence[ConversationSlice]) -> list[Summary]:
        """Summarise each slice in at most 200 characters.

        A summary that is too long is sent back once; if it is too long again, it is cut after its last full sentence.
        Raises as `hippocampus.providers.protocols.Generator` says.
        """

        async def summarize_one(slice_: ConversationSlice) -> Summary:
            task = Task("summarize", self._fast_replay, extraction.SUMMARY_SCHEMA, _shown(slice_))
            text, answer = await self._ask(task, lambda reply, last: extraction.parse_summary(reply, clip=last))
            return Summary(text=text, origin=self._origin(task, answer), usage=answer.usage)

        return await self._each(summarize_one, slices)

    async def reflect(self, slices: Sequence[ConversationSlice]) -> list[Reflection]:
        """Extract facts, insights and proposals from each slice. Raises as `Generator` says."""

        async def reflect_on_one(slice_: ConversationSlice) -> Reflection:
            task = Task("reflect", self._deep_reflection, extraction.REFLECTION_SCHEMA, _shown(slice_))
            (facts, insights, proposals), answer = await self._ask(
                task, lambda reply, _last: extraction.parse_reflection(reply, slice_)
            )
            origin = self._origin(task, answer)
            return Reflection(facts=facts, insights=insights, proposals=proposals, origin=origin, usage=answer.usage)

        return await self._each(reflect_on_one, slices)

    async def answer(self, question: Question) -> Reply:
        """Answer a question from its passages alone; see `hippocampus.providers.protocols.Answerer`.

        An answer that is too long is sent back once; if it is too long again, it is cut after its last full sentence.
        """
        content = transcript.format_question(question)
        limit = _TOKENS_OF_ANSWER * question.tokens_max + _TOKENS_AROUND_ANSWER
        task = Task("answer", self._answer_prompt, extraction.ANSWER_SCHEMA, content, limit)
        (text, citations), answer = await self._ask(
            task, lambda reply, last: extraction.parse_answer(reply, question.tokens_max, clip=last)
        )
        return Reply(text=text, citations=citations, origin=self._origin(task, answer), usage=answer.usage)

    async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        """Score texts by their places in one list; see `hippocampus.providers.protocols.ModelReranker`.

        Texts that the model does not name score 0, and so keep their order behind the others. There is no repair: a
        search does not wait for a second call.
        """
        limit = _TOKENS_OF_NUMBER * len(texts) + _TOKENS_AROUND_ANSWER
        content = transcript.format_ranking(query, texts)
        task = Task("rerank", self._rerank_prompt, extraction.RANKING_SCHEMA, content, limit)
        answer = await self._answer(task, [Message("user", content)])
        scores = [0.0] * len(texts)
        for place, number in enumerate(extraction.parse_ranking(answer.complete_text(), len(texts))):
            scores[number - 1] = float(len(texts) - place)
        return scores

    @abc.abstractmethod
    async def close(self) -> None:
        """Close the connections. Idempotent."""

    @abc.abstractmethod
    async def _answer(self, task: Task, messages: Sequence[Message]) -> Answer:
        """Send the task's prompt and the messages, and read the reply.

        Raises:
            BlockedReplyError: the prompt or the reply was refused.
            ProviderError: the call failed.
        """

    async def _each(
        self, ask: Callable[[ConversationSlice], Awaitable[Parsed]], slices: Sequence[ConversationSlice]
    ) -> list[Parsed]:
        makers = [lambda slice_=slice_: ask(slice_) for slice_ in slices]
        return await gather_bounded(makers, concurrency=self._concurrency)

    async def _ask(self, task: Task, parse: Callable[[str, bool], Parsed]) -> tuple[Parsed, Answer]:
        """Return one reply, parsed; ask for one repair if it does not parse."""
        messages = [Message("user", task.content)]
        first = await self._answer(task, messages)
        try:
            return parse(first.complete_text(), False), first
        except MalformedReplyError as error:
            problems = str(error)
        if first.text:
            messages.append(Message("model", first.text))
        messages.append(Message("user", f"{self._repair.text}\n{problems}"))
        second = (await self._answer(task, messages)).after(first)
        return parse(second.complete_text(), True), second

    def _origin(self, task: Task, answer: Answer) -> Origin:
        return Origin(
            provider=self._provider, model=answer.model_version or self._model, prompt_hash=task.prompt.sha256
        )


def _shown(slice_: ConversationSlice) -> str:
    return "\n\n".join(filter(None, (transcript.format_transcript(slice_), transcript.format_known(slice_))))


def strict_schema(schema: Any) -> Any:
    """Return a schema that the strictest servers accept: without bounds; what may be left out is null instead."""
    if isinstance(schema, list):
        return [strict_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {name: strict_schema(value) for name, value in schema.items() if name not in _BOUNDS}
    if "required" in strict:
        for name, value in strict["properties"].items():
            if name not in strict["required"]:
                strict["properties"][name] = {"anyOf": [value, {"type": "null"}]}
        strict["required"] = list(strict["properties"])
    return strict


def bounded_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema that bounds a summary too: a small model might not end it by itself.

    Longer texts have no bound: llama.cpp writes one token in three seconds under a bound of 500 characters in a list.
    """
    if "summary" not in schema["properties"]:
        return schema
    summary = {"type": "string", "maxLength": extraction.SUMMARY_CHARACTERS_MAX}
    return {**schema, "properties": {"summary": summary}}
