"""Replies of chat/completions and embeddings, as OpenAI and the servers with its API send them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hippocampus.errors import BlockedReplyError, PermanentProviderError
from hippocampus.providers.generation import Answer
from hippocampus.providers.vectors import refuse_vectors
from hippocampus.records import Usage

_CHINESE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_WORD = re.compile(r"[A-Za-z0-9]+")
#: Characters of the densest scripts that one token may cover.
_DENSE_CHARACTERS_PER_TOKEN = 4


def usage_of(body: Any) -> Usage:
    """Return the tokens of a reply; 0 if it names none."""
    counts = body.get("usage") if isinstance(body, Mapping) else None
    if not isinstance(counts, Mapping):
        return Usage()
    return Usage(prompt_tokens=_count(counts, "prompt_tokens"), output_tokens=_count(counts, "completion_tokens"))


def read_answer(body: Mapping[str, Any], choice: Mapping[str, Any]) -> Answer:
    """Read the first choice of a chat completion.

    Raises:
        BlockedReplyError: the prompt or the reply was refused.
    """
    raw = json.dumps(body, ensure_ascii=False)
    message = choice["message"]
    finish_reason = str(choice.get("finish_reason") or "")
    if message.get("refusal"):
        raise BlockedReplyError("the model refused to answer", code="blocked", raw_reply=raw)
    if finish_reason == "content_filter":
        raise BlockedReplyError("the content filter refused the conversation", code="blocked", raw_reply=raw)
    content = message.get("content")
    if isinstance(content, list):
        parts = (part for part in content if isinstance(part, Mapping) and part.get("type") == "text")
        content = "".join(str(part.get("text") or "") for part in parts)
    version = body.get("model")
    return Answer(
        text=content if isinstance(content, str) else "",
        raw=raw,
        finish_reason=finish_reason,
        is_cut=finish_reason == "length",
        model_version=version if isinstance(version, str) and version else None,
        usage=usage_of(body),
    )


def first_choice(body: Any) -> Mapping[str, Any] | None:
    """Return the first choice of a chat completion; None if the body is not one."""
    choices = body.get("choices") if isinstance(body, Mapping) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    return choice if isinstance(choice, Mapping) and isinstance(choice.get("message"), Mapping) else None


def error_of_choice(body: Any) -> object:
    """Return the error of a model that failed on the way, as a router of models reports it with status 200; or None."""
    choice = first_choice(body) or {}
    if choice.get("error"):
        return choice["error"]
    return "the model failed within its answer" if choice.get("finish_reason") == "error" else None


def check_prompt_was_read(who: str, sent: Sequence[str], usage: Usage) -> None:
    """Refuse a reply to a prompt of which the server has read a part only.

    A server with a small context may cut a prompt without an error, and its reply would be about the rest. No tokenizer
    makes fewer tokens than a text has words.

    Raises:
        PermanentProviderError: the server counted fewer tokens than the text has at least.
    """
    least = sum(fewest_tokens(text) for text in sent)
    if 0 < usage.prompt_tokens < least:
        raise PermanentProviderError(
            f"{who}: the server read {usage.prompt_tokens:,} tokens of a prompt of at least {least:,}: its context is"
            " too small, and it cut the prompt. Enlarge it (Ollama: OLLAMA_CONTEXT_LENGTH), or lower"
            " HIPPOCAMPUS_SLICE_TOKENS",
            code="prompt_cut",
        )


def fewest_tokens(text: str) -> int:
    """Return a number of tokens that no tokenizer falls below: words, and a share of the dense characters."""
    return sum(1 for _ in _WORD.finditer(text)) + len(_CHINESE.findall(text)) // _DENSE_CHARACTERS_PER_TOKEN


def read_vectors(body: Any, model: str) -> list[Sequence[Any]] | None:
    """Return the vectors of an embedding reply in the order of the inputs; None if the body is not one.

    Raises:
        MalformedReplyError: the indexes are not those of the inputs, or a vector is not a list of numbers.
    """
    items = body.get("data") if isinstance(body, Mapping) else None
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        return None
    indexes = [item.get("index") for item in items]
    if any(index is not None for index in indexes):
        # An index that is not a whole number may not even be comparable.
        if not set(map(type, indexes)) <= {int} or set(indexes) != set(range(len(items))):
            refuse_vectors(model, f"the indexes of {len(items)} vectors are not 0 to {len(items) - 1}")
        items = [item for _, item in sorted(zip(indexes, items, strict=True), key=lambda pair: pair[0])]
    vectors = [item.get("embedding") for item in items]
    for vector in vectors:
        if not isinstance(vector, list) or not vector or not set(map(type, vector)) <= {int, float}:
            refuse_vectors(model, "a vector is not a list of numbers: the server may have ignored encoding_format")
    return vectors


def _count(counts: Mapping[str, Any], name: str) -> int:
    value = counts.get(name)
    return value if isinstance(value, int) and value > 0 else 0
