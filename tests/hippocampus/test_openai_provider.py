"""The provider of OpenAI's API against servers that differ: parameters, bodies of errors, headers, limits."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippocampus import errors
from hippocampus.providers import features, http_faults
from hippocampus.providers.calls import CallRecord
from hippocampus.providers.embedding_chunks import EmbeddingLimits
from hippocampus.providers.extraction import REFLECTION_SCHEMA
from hippocampus.providers.features import Features
from hippocampus.providers.generation import strict_schema
from hippocampus.providers.http_client import HttpConnection
from hippocampus.providers.openai import provider
from hippocampus.providers.openai.answers import fewest_tokens
from hippocampus.providers.registry import ModelConfig
from hippocampus.providers.vectors import VectorSpace
from tests.support.fake_api import Request
from tests.support.fake_openai import FakeOpenAI
from tests.support.provider_conformance import CHINESE, ENGLISH, Sleeps

MODEL = provider.GENERATION_MODEL
ALL: Features = frozenset({"json_schema", "temperature"})


@pytest.fixture
async def fake() -> AsyncIterator[FakeOpenAI]:
    async with FakeOpenAI() as running:
        yield running


@pytest.fixture
async def generate(fake: FakeOpenAI) -> AsyncIterator[Callable[..., provider.OpenAIGenerator]]:
    made: list[provider.OpenAIGenerator] = []

    def make(**options: Any) -> provider.OpenAIGenerator:
        connection = HttpConnection(base_url=fake.url, timeout_seconds=10)
        made.append(provider.OpenAIGenerator(connection, **{"model": MODEL, "sleep": Sleeps(), **options}))
        return made[-1]

    yield make
    for model in made:
        await model.close()


@pytest.fixture
async def embed(fake: FakeOpenAI) -> AsyncIterator[Callable[..., provider.OpenAIEmbedder]]:
    made: list[provider.OpenAIEmbedder] = []

    def make(limits: EmbeddingLimits | None = None, **space: Any) -> provider.OpenAIEmbedder:
        connection = HttpConnection(base_url=fake.url, timeout_seconds=10)
        made_space = VectorSpace(**{"model": "text-embedding-3-small", **space})
        made.append(provider.OpenAIEmbedder(connection, made_space, limits=limits, sleep=Sleeps()))
        return made[-1]

    yield make
    for model in made:
        await model.close()


def parameters(request: Request) -> set[str]:
    return set(request.body) - {"model", "messages"}


class TestFeatures:
    @pytest.mark.parametrize(
        ("lacks", "used", "names_parameters"),
        [
            (frozenset(), {"response_format", "temperature", "max_tokens"}, True),
            ({"json_schema"}, {"temperature", "max_tokens"}, True),
            ({"json_schema", "schema_bounds"}, {"temperature", "max_tokens"}, False),
            ({"schema_bounds"}, {"response_format", "temperature", "max_tokens"}, True),
            # As OpenAI's reasoning models.
            (
                {"schema_bounds", "max_tokens", "temperature"},
                {"response_format", "max_completion_tokens"},
                True,
            ),
            ({"json_schema", "max_tokens", "temperature"}, {"max_completion_tokens"}, True),
            ({"schema_bounds", "json_schema", "max_tokens", "temperature"}, {"max_completion_tokens"}, False),
        ],
        ids=lambda value: " ".join(sorted(value)) or "nothing" if isinstance(value, (set, frozenset)) else str(value),
    )
    async def test_they_are_found_once(
        self, fake: FakeOpenAI, generate: Any, lacks: set[str], used: set[str], names_parameters: bool
    ) -> None:
        """By short requests before the first call; every call after it is sent once, with what the server accepts."""
        fake.lacks, fake.names_parameters = frozenset(lacks), names_parameters
        generator = generate()
        (first,) = await generator.reflect([ENGLISH])
        probes = [request for request in fake.requests if "BEGIN CONVERSATION" not in json.dumps(request.body)]
        assert len(probes) == len(lacks) + 1
        assert max(len(json.dumps(probe.body)) for probe in probes) < 800
        fake.requests.clear()
        (second,) = await generator.reflect([ENGLISH])
        assert first.facts == second.facts
        assert first.facts
        (request,) = fake.requests
        assert parameters(request) == used
        assert ("minItems" in json.dumps(request.body)) == bool("response_format" in used and not lacks)

    async def test_several_first_calls_probe_once(self, fake: FakeOpenAI, generate: Any) -> None:
        await generate().reflect([ENGLISH, CHINESE, ENGLISH])
        assert fake.stats()["calls"] == {"chat/completions": 4}

    async def test_those_set_by_hand_are_not_probed(self, fake: FakeOpenAI, generate: Any) -> None:
        await generate(features=frozenset({"max_completion_tokens"})).summarize([ENGLISH])
        (request,) = fake.requests
        assert parameters(request) == {"max_completion_tokens"}

    async def test_a_probe_that_fails_says_why_and_is_repeated(self, fake: FakeOpenAI, generate: Any) -> None:
        """A server that is loading its model says nothing about its features."""
        generator = generate()
        fake.script("status", code=503, message="Loading model", times=3)
        with pytest.raises(errors.TransientProviderError, match="Loading model"):
            await generator.summarize([ENGLISH])
        await generator.summarize([ENGLISH])
        assert "response_format" in fake.requests[-1].body

    async def test_a_server_that_rejects_everything_is_named(self, fake: FakeOpenAI, generate: Any) -> None:
        """The error is that of the full request."""
        fake.script("status", code=400, message="the first reason")
        fake.script("status", code=400, message="another reason", times=4)
        with pytest.raises(errors.PermanentProviderError, match="the first reason"):
            await generate().summarize([ENGLISH])
        assert fake.stats()["calls"] == {"chat/completions": 5}

    async def test_a_reasoning_model_that_runs_out_of_tokens_has_accepted(
        self, fake: FakeOpenAI, generate: Any
    ) -> None:
        message = "Could not finish the message because max_tokens or model output limit was reached"
        fake.script("status", code=400, message=message)
        await generate().summarize([ENGLISH])
        assert parameters(fake.requests[-1]) == {"response_format", "temperature", "max_tokens"}

    def test_a_misspelt_feature_is_named(self) -> None:
        assert features.parse("json_schema, temperature") == ALL
        assert features.parse("none") == frozenset()
        with pytest.raises(ValueError, match=r"unknown: jsonschema; choose auto, none, or some of json_schema"):
            features.parse("jsonschema")


class TestRequest:
    async def test_the_schema_is_of_the_strictest_form(self, fake: FakeOpenAI, generate: Any) -> None:
        """Every object is closed and requires all its properties; no bounds, which some servers refuse."""
        await generate(features=ALL).reflect([ENGLISH])
        sent = fake.requests[0].body["response_format"]
        assert sent["type"] == "json_schema"
        assert sent["json_schema"]["strict"] is True
        schema = sent["json_schema"]["schema"]
        assert schema == strict_schema(REFLECTION_SCHEMA)

        def check(node: Any) -> None:
            if isinstance(node, dict):
                assert not {"minimum", "maximum", "minItems", "$schema"} & node.keys()
                if node.get("type") == "object":
                    assert node["additionalProperties"] is False
                    assert node["required"] == list(node["properties"])
                for value in node.values():
                    check(value)
            elif isinstance(node, list):
                for value in node:
                    check(value)

        check(schema)

    async def test_a_summary_is_bounded_where_the_server_can(self, fake: FakeOpenAI, generate: Any) -> None:
        """A small model does not end by itself."""
        await generate().summarize([ENGLISH])
        schema = fake.requests[-1].body["response_format"]["json_schema"]["schema"]
        assert schema["properties"]["summary"] == {"type": "string", "maxLength": 200}

    async def test_origin_usage_and_key(self, fake: FakeOpenAI) -> None:
        """The origin has the version of the reply; the key is a bearer; both kinds of tokens are reported."""
        calls = list[CallRecord]()
        config = ModelConfig(model=MODEL, api_key="sk-1", base_url=fake.url, features=ALL, on_call=calls.append)
        generator = provider.make_generator(config)
        (summary,) = await generator.summarize([ENGLISH])
        await generator.close()
        assert fake.requests[0].api_key == "sk-1"
        assert summary.origin.provider == "openai"
        assert summary.origin.model == f"{MODEL}-fake-001"
        (call,) = calls
        assert (call.provider, call.operation, call.code) == ("openai", "summarize", "200")
        assert call.prompt_tokens == summary.usage.prompt_tokens > 0
        assert call.output_tokens == summary.usage.output_tokens > 0

    async def test_no_key_is_no_header(self, fake: FakeOpenAI, generate: Any) -> None:
        await generate(features=ALL).summarize([ENGLISH])
        assert "authorization" not in fake.requests[0].headers

    async def test_a_prompt_that_was_cut_is_an_error(self, fake: FakeOpenAI, generate: Any) -> None:
        """A server with a small context answers for the rest of the prompt: its reply is not stored."""
        fake.script("cut_prompt")
        with pytest.raises(errors.PermanentProviderError, match="OLLAMA_CONTEXT_LENGTH") as caught:
            await generate(features=ALL).reflect([ENGLISH])
        assert caught.value.code == "prompt_cut"

    async def test_an_error_with_status_200_is_an_error(self, fake: FakeOpenAI, generate: Any) -> None:
        fake.script("error_in_200", times=3)
        with pytest.raises(errors.TransientProviderError, match="the upstream failed"):
            await generate(features=ALL).summarize([ENGLISH])

    @pytest.mark.parametrize("more", [{"error": {"message": "the upstream failed", "code": 503}}, {}])
    async def test_an_answer_in_which_the_model_failed_is_an_error(
        self, fake: FakeOpenAI, generate: Any, more: dict[str, Any]
    ) -> None:
        """Routers of models report it within the choice, with status 200. The call is repeated."""
        generator = generate(features=ALL)
        fake.script("failed_choice", **more)
        await generator.summarize([ENGLISH])
        assert fake.stats()["calls"] == {"chat/completions": 2}
        fake.script("failed_choice", times=3, error={"message": "no credit", "code": 402})
        with pytest.raises(errors.PermanentProviderError, match="no credit"):
            await generator.summarize([ENGLISH])

    async def test_a_model_that_is_not_listed_is_asked(self, fake: FakeOpenAI, generate: Any) -> None:
        """llama.cpp accepts any name; a server may have no list at all."""
        fake.listed = ("something-else",)
        await generate(features=ALL).check()
        assert fake.stats()["calls"] == {"chat/completions": 1}
        fake.listed = (MODEL,)
        await generate(features=ALL).check()
        assert fake.stats()["calls"] == {"chat/completions": 1}


@given(st.text(max_size=300))
def test_the_fewest_tokens_are_not_more_than_the_characters(text: str) -> None:
    """The bound that decides whether a prompt was cut never exceeds one token per character."""
    assert 0 <= fewest_tokens(text) <= len(text)


class TestEmbeddings:
    async def test_one_call_holds_as_many_texts_as_allowed(self, fake: FakeOpenAI, embed: Any) -> None:
        texts = [f"text {number}" for number in range(7)]
        whole = await embed().embed(texts, "document")
        assert fake.stats()["calls"] == {"embeddings": 1}
        assert fake.requests[0].body["encoding_format"] == "float"
        assert "dimensions" not in fake.requests[0].body
        fake.reset()
        assert await embed(EmbeddingLimits(texts=3)).embed(texts, "document") == whole
        assert [len(request.body["input"]) for request in fake.requests] == [3, 3, 1]

    async def test_a_call_is_bounded_in_tokens(self, fake: FakeOpenAI, embed: Any) -> None:
        limits = EmbeddingLimits(texts=2048, text_tokens=100, call_tokens=250)
        await embed(limits).embed(["x" * 400] * 5, "document")
        assert [len(request.body["input"]) for request in fake.requests] == [2, 2, 1]

    async def test_dimensions_are_sent_only_when_configured(self, fake: FakeOpenAI, embed: Any) -> None:
        embedder = embed(dimensions=1536)
        await embedder.embed(["hello"], "query")
        assert fake.requests[0].body["dimensions"] == 1536
        assert embedder.model == "text-embedding-3-small@1536"

    async def test_vectors_keep_the_size_of_the_first_ones(self, fake: FakeOpenAI, embed: Any) -> None:
        """The first vectors of a model give its size; a reply of another size is then refused."""
        embedder = embed()
        assert embedder.size is None
        fake.script("vector_dimension")
        with pytest.raises(errors.MalformedReplyError, match=r"dimensions \[768, 1536\] came back in one call"):
            await embedder.embed(["hello", "there"], "document")
        await embedder.embed(["hello"], "query")
        assert embedder.size == 1536
        fake.script("vector_dimension")
        with pytest.raises(errors.MalformedReplyError, match=r"vectors of \[768\] dimensions came back, not of 1536"):
            await embedder.embed(["hello"], "query")
        for size in (256, 4000):
            (vector,) = await embed(dimensions=size).embed(["hello"], "document")
            assert len(vector) == size

    async def test_prefixes_are_put_before_each_text(self, fake: FakeOpenAI, embed: Any) -> None:
        """A model's vectors with and without prefixes are two spaces, with two names."""
        embedder = embed(query_prefix="query: ", document_prefix="passage: ")
        await embedder.embed(["hello"], "query")
        await embedder.embed(["hello"], "document")
        assert [request.body["input"] for request in fake.requests] == [["query: hello"], ["passage: hello"]]
        assert embedder.model.startswith("text-embedding-3-small#")
        assert embed(query_prefix="query: ").model not in (embedder.model, embed().model)


class TestErrors:
    @pytest.mark.parametrize("shape", ["openai", "llama.cpp", "string", "bare", "list", "detail"])
    async def test_every_shape_of_body_is_read(self, fake: FakeOpenAI, generate: Any, shape: str) -> None:
        fake.shape = shape
        fake.script("status", code=404, message="model 'x' not found")
        with pytest.raises(errors.PermanentProviderError, match="model 'x' not found"):
            await generate(features=ALL).summarize([ENGLISH])

    async def test_a_used_up_quota_is_final(self, fake: FakeOpenAI, generate: Any) -> None:
        fake.script("status", code=429, word="insufficient_quota", message="You exceeded your current quota")
        with pytest.raises(errors.PermanentProviderError, match="add credit") as caught:
            await generate(features=ALL).summarize([ENGLISH])
        assert caught.value.code == "insufficient_quota"

    async def test_a_filtered_prompt_is_a_refusal(self, fake: FakeOpenAI, generate: Any) -> None:
        fake.script("status", code=400, word="content_filter", message="The prompt was filtered")
        with pytest.raises(errors.BlockedReplyError):
            await generate(features=ALL).summarize([ENGLISH])

    @pytest.mark.parametrize(
        ("word", "message"),
        [
            ("context_length_exceeded", "This model's maximum context length is 8192 tokens"),
            ("exceed_context_size_error", "the request exceeds the available context size"),
        ],
    )
    async def test_a_full_context_says_what_to_do(
        self, fake: FakeOpenAI, generate: Any, word: str, message: str
    ) -> None:
        fake.script("status", code=400, word=word, message=message)
        with pytest.raises(errors.PermanentProviderError, match="HIPPOCAMPUS_SLICE_TOKENS"):
            await generate(features=ALL).reflect([ENGLISH])

    @pytest.mark.parametrize(
        ("headers", "seconds"),
        [
            ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
            ({"retry-after": "9"}, 9.0),
            ({"retry-after": "-1"}, None),
            ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
            ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}, 360.0),
            ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "20ms"}, 0.02),
            ({"x-ratelimit-remaining-tokens": "5", "x-ratelimit-reset-tokens": "20ms"}, None),
            ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1h2m3s"}, 3723.0),
            ({}, None),
        ],
    )
    def test_the_requested_delay_is_read(self, headers: dict[str, str], seconds: float | None) -> None:
        error = http_faults.from_response("openai", 429, headers, {})
        assert isinstance(error, errors.RateLimitedError)
        assert error.retry_after_seconds == seconds

    def test_x_should_retry_decides(self) -> None:
        """``true`` makes a fault transient; ``false`` leaves it to the queue, which waits longer."""
        assert isinstance(
            http_faults.from_response("openai", 400, {"x-should-retry": "true"}, {}), errors.TransientProviderError
        )
        error = http_faults.from_response("openai", 503, {"x-should-retry": "false"}, {})
        assert isinstance(error, errors.TransientProviderError)
        assert (error.retry_after_seconds or 0) > 8

    def test_an_html_page_is_cut_in_the_message(self) -> None:
        error = http_faults.from_response("openai", 502, {}, "<p>" * 10_000)
        assert len(str(error)) < 700
        assert error.raw_reply is not None
        assert len(error.raw_reply) > 30_000


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["error", "detail", "message", "type", "code", "param"]), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(
    st.integers(300, 599),
    st.dictionaries(
        st.sampled_from(
            ["retry-after", "retry-after-ms", "x-should-retry", "x-ratelimit-remaining-tokens", "location"]
        ),
        st.text(max_size=12),
    ),
    json_values,
)
def test_any_response_yields_an_error(status: int, headers: dict[str, str], body: Any) -> None:
    """No body and no header, however strange, hides the fault behind another error."""
    assert isinstance(http_faults.from_response("openai", status, headers, body), errors.ProviderError)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"base_url": "localhost:1"}, "base_url"),
        ({"base_url": "http://[::1/v1"}, "not a URL"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"attempts": 0}, "attempts"),
    ],
)
def test_a_connection_is_validated_when_created(options: dict[str, Any], message: str) -> None:
    """A wrong setting is named before the first call; no representation shows the key."""
    with pytest.raises(ValueError, match=message):
        provider.OpenAIGenerator(HttpConnection(**{"base_url": "http://localhost/v1", **options}), model="m")
    assert "sk-1" not in repr(HttpConnection(base_url="http://h/v1", headers={"authorization": "Bearer sk-1"}))
