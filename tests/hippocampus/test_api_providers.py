"""Every provider that calls an API, against a real HTTP server that fails as the real one does: one suite."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from hippocampus.errors import PermanentProviderError
from hippocampus.providers import registry
from hippocampus.providers.anthropic.provider import AnthropicGenerator
from hippocampus.providers.features import Features
from hippocampus.providers.gemini.provider import GeminiConnection, GeminiEmbedder, GeminiGenerator
from hippocampus.providers.http_client import HttpConnection
from hippocampus.providers.openai.provider import OpenAIEmbedder, OpenAIGenerator
from hippocampus.providers.vectors import VectorSpace
from tests.support.fake_anthropic import FakeAnthropic
from tests.support.fake_api import UNKNOWN_MODEL, WRONG_KEY, FakeApi
from tests.support.fake_gemini import FakeGemini
from tests.support.fake_openai import FakeOpenAI
from tests.support.provider_conformance import (
    ENGLISH,
    AnswererConformance,
    EmbedderConformance,
    EmbedderFaults,
    GeneratorConformance,
    GeneratorFaults,
    Sleeps,
)

KEY = "a-test-key"
FEATURES: Features = frozenset({"json_schema", "temperature"})

Connect = Callable[..., Any]


@pytest.fixture
async def models() -> AsyncIterator[list[Any]]:
    """The models that a test has made; they are closed after it."""
    made: list[Any] = []
    yield made
    for model in made:
        await model.close()


def split(options: dict[str, Any], url: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of a connection, and those of a model."""
    given = {"api_key": KEY, "base_url": url, "timeout_seconds": 10.0, "sleep": Sleeps(), **options}
    of_connection = {name: given.pop(name) for name in ("base_url", "timeout_seconds", "attempts") if name in given}
    return of_connection, given


def openai_connect(fake: FakeOpenAI, models: list[Any], *, embedder: bool) -> Connect:
    default = registry.PROVIDERS["openai"].default_model("embedder" if embedder else "generator")

    def connect(**options: Any) -> Any:
        of_connection, of_model = split(options, fake.url)
        headers = {"authorization": f"Bearer {of_model.pop('api_key')}"}
        connection = HttpConnection(headers=headers, **of_connection)
        model = of_model.pop("model", default)
        if embedder:
            made: Any = OpenAIEmbedder(connection, VectorSpace(model=model), **of_model)
        else:
            made = OpenAIGenerator(connection, model=model, **{"features": FEATURES, **of_model})
        models.append(made)
        return made

    return connect


def anthropic_connect(fake: FakeAnthropic, models: list[Any]) -> Connect:
    def connect(**options: Any) -> Any:
        of_connection, of_model = split(options, fake.url)
        headers = {"x-api-key": of_model.pop("api_key"), "anthropic-version": "2023-06-01"}
        model = of_model.pop("model", "claude-haiku-4-5")
        connection = HttpConnection(headers=headers, **of_connection)
        models.append(AnthropicGenerator(connection, model=model, **{"features": FEATURES, **of_model}))
        return models[-1]

    return connect


def gemini_connect(fake: FakeGemini, models: list[Any], *, embedder: bool) -> Connect:
    def connect(**options: Any) -> Any:
        of_connection, of_model = split(options, fake.base_url)
        connection = GeminiConnection(api_key=of_model.pop("api_key"), **of_connection)
        models.append((GeminiEmbedder if embedder else GeminiGenerator)(connection, **of_model))
        return models[-1]

    return connect


class _OpenAI:
    @pytest.fixture
    async def fake(self) -> AsyncIterator[FakeApi]:
        async with FakeOpenAI() as running:
            yield running


class _Anthropic:
    @pytest.fixture
    async def fake(self) -> AsyncIterator[FakeApi]:
        async with FakeAnthropic() as running:
            yield running


class _Gemini:
    @pytest.fixture
    async def fake(self) -> AsyncIterator[FakeApi]:
        async with FakeGemini() as running:
            yield running


class _Generates(GeneratorConformance, AnswererConformance, GeneratorFaults):
    @pytest.fixture
    def generator(self, connect: Connect) -> Any:
        return connect()


class _Embeds(EmbedderConformance, EmbedderFaults):
    @pytest.fixture
    def embedder(self, connect: Connect) -> Any:
        return connect()


class TestOpenAIGenerator(_OpenAI, _Generates):
    REFUSALS = ("safety", "blocked")
    REPAIRED = ("broken_json", "wrong_schema", "max_tokens", "empty")

    @pytest.fixture
    def connect(self, fake: FakeOpenAI, models: list[Any]) -> Connect:
        return openai_connect(fake, models, embedder=False)


class TestOpenAIEmbedder(_OpenAI, _Embeds):
    INVALID = (*EmbedderFaults.INVALID, "vector_index", "vector_base64")

    @pytest.fixture
    def connect(self, fake: FakeOpenAI, models: list[Any]) -> Connect:
        return openai_connect(fake, models, embedder=True)


class TestAnthropicGenerator(_Anthropic, _Generates):
    REPAIRED = ("broken_json", "wrong_schema", "max_tokens", "context", "empty")

    @pytest.fixture
    def connect(self, fake: FakeAnthropic, models: list[Any]) -> Connect:
        return anthropic_connect(fake, models)


class TestAnthropicFeatures(_Anthropic):
    """What a model, or a server with Anthropic's API, does not take is left out."""

    @pytest.fixture
    def connect(self, fake: FakeAnthropic, models: list[Any]) -> Connect:
        return anthropic_connect(fake, models)

    @pytest.mark.parametrize("lacks", [(), ("json_schema",), ("temperature",), ("json_schema", "temperature")])
    async def test_they_are_found_once(self, fake: FakeAnthropic, connect: Connect, lacks: tuple[str, ...]) -> None:
        """By short requests before the first call. Facts and summaries come without a schema too."""
        fake.lacks = frozenset(lacks)
        generator = connect(features=None)
        (first,) = await generator.reflect([ENGLISH])
        *probes, asked = fake.requests
        assert len(probes) == len(lacks) + 1
        assert all(len(json.dumps(probe.body)) < 800 for probe in probes)
        assert "BEGIN CONVERSATION" in json.dumps(asked.body)
        assert first.facts
        fake.requests.clear()
        (summary,) = await generator.summarize([ENGLISH])
        assert summary.text
        (request,) = fake.requests
        accepted = {"json_schema": "output_config", "temperature": "temperature"}
        used = {parameter for name, parameter in accepted.items() if name not in lacks}
        assert set(request.body) == {"model", "max_tokens", "messages", "system", *used}

    async def test_a_reply_without_a_schema_is_repaired(self, fake: FakeAnthropic, connect: Connect) -> None:
        """Nothing but the prompt asks for the form: a reply that lacks it is sent back once."""
        fake.lacks = frozenset({"json_schema"})
        generator = connect(features=None)
        await generator.summarize([ENGLISH])
        fake.requests.clear()
        fake.script("text", text="Here is what I found: she lives in Porto.")
        (repaired,) = await generator.reflect([ENGLISH])
        assert repaired.facts
        assert [len(request.body["messages"]) for request in fake.requests] == [1, 3]
        assert not any("output_config" in request.body for request in fake.requests)

    async def test_those_set_by_hand_are_not_probed(self, fake: FakeAnthropic, connect: Connect) -> None:
        fake.lacks = frozenset({"json_schema", "temperature"})
        await connect(features=frozenset()).summarize([ENGLISH])
        (request,) = fake.requests
        assert not {"output_config", "temperature"} & set(request.body)


class TestAnthropicErrors(_Anthropic):
    """What is wrong with a model, or with a proxy of the API, is named by its cause."""

    @pytest.fixture
    def connect(self, fake: FakeAnthropic, models: list[Any]) -> Connect:
        return anthropic_connect(fake, models)

    async def test_a_proxy_that_describes_no_models_is_asked_by_a_short_request(
        self, fake: FakeAnthropic, connect: Connect
    ) -> None:
        """What it answers there counts; where models are described, a check costs nothing."""
        await connect().check()
        assert not fake.requests
        fake.describes = False
        await connect(features=None).check()
        (asked,) = fake.requests
        assert len(json.dumps(asked.body)) < 300
        with pytest.raises(PermanentProviderError, match=f"there is no such model.*{UNKNOWN_MODEL}"):
            await connect(model=UNKNOWN_MODEL).check()
        with pytest.raises(PermanentProviderError, match="key is not accepted"):
            await connect(api_key=WRONG_KEY).check()

    @pytest.mark.parametrize(
        "message",
        [
            "prompt is too long: 210000 tokens > 200000 maximum",
            "input length and `max_tokens` exceed context limit: 199759 + 8192 > 200000, decrease input length or"
            " `max_tokens` and try again",
        ],
    )
    async def test_a_full_context_says_what_to_do(self, fake: FakeAnthropic, connect: Connect, message: str) -> None:
        fake.script("status", code=400, word="invalid_request_error", message=message)
        with pytest.raises(PermanentProviderError, match="lower HIPPOCAMPUS_SLICE_TOKENS or HIPPOCAMPUS_GENERATOR_OUT"):
            await connect().reflect([ENGLISH])


class TestGeminiGenerator(_Gemini, _Generates):
    REFUSALS = ("safety", "blocked")

    @pytest.fixture
    def connect(self, fake: FakeGemini, models: list[Any]) -> Connect:
        return gemini_connect(fake, models, embedder=False)


class TestGeminiEmbedder(_Gemini, _Embeds):
    @pytest.fixture
    def connect(self, fake: FakeGemini, models: list[Any]) -> Connect:
        return gemini_connect(fake, models, embedder=True)
