"""The conformance of embedders on the real fastembed, with a tiny model that is made here.

Run by `tests/system/test_fastembed.py`: with onnxruntime it takes 220 MB.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import numpy
import onnx
import pytest
import tokenizers
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
from onnx import TensorProto, helper, numpy_helper

from hippocampus import errors
from hippocampus.providers import registry
from hippocampus.providers.protocols import Embedder
from hippocampus.providers.registry import ModelConfig
from tests.support.provider_conformance import EmbedderConformance

NAME = "test/characters"
DIMENSIONS = 48
SPECIAL = ("[PAD]", "[UNK]", "[CLS]")
CHARACTERS = sorted({*map(chr, range(32, 127)), *"我住在杭州。们周末去爬山他每个都"})


def make_model(folder: Path) -> None:
    """Write a model whose vectors are the means of its characters' random ones."""
    folder.mkdir(parents=True)
    words = [*SPECIAL, *CHARACTERS]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: n for n, w in enumerate(words)}, "[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex("."), "isolated")
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing("[CLS] $A", special_tokens=[("[CLS]", 2)])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"pad_token_id": 0}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 512, "pad_token": "[PAD]"}))
    (folder / "special_tokens_map.json").write_text(json.dumps({"pad_token": "[PAD]", "unk_token": "[UNK]"}))
    table = numpy.random.default_rng(1).normal(size=(len(words), DIMENSIONS)).astype(numpy.float32)
    shape = ["batch", "length"]
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "input_ids"], ["looked_up"]),
            helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["mask", "last_axis"], ["wide_mask"]),
            helper.make_node("Mul", ["looked_up", "wide_mask"], ["last_hidden_state"]),
        ],
        "characters",
        [helper.make_tensor_value_info(each, TensorProto.INT64, shape) for each in ("input_ids", "attention_mask")],
        [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, [*shape, DIMENSIONS])],
        [numpy_helper.from_array(table, "table"), numpy_helper.from_array(numpy.array([2]), "last_axis")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(made)
    onnx.save(made, str(folder / "model.onnx"))


@pytest.fixture(scope="module", autouse=True)
def model(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A model of one's own, as fastembed finds it in its cache."""
    cache = tmp_path_factory.mktemp("cache")
    make_model(cache / NAME.partition("/")[2])
    patch = pytest.MonkeyPatch()
    patch.setenv("FASTEMBED_CACHE_PATH", str(cache))
    patch.setenv("HF_HUB_OFFLINE", "1")
    TextEmbedding.add_custom_model(
        NAME,
        pooling=PoolingType.MEAN,
        normalization=False,
        sources=ModelSource(url="http://127.0.0.1:1/none"),
        dim=DIMENSIONS,
        model_file="model.onnx",
    )


class TestFastembed(EmbedderConformance):
    dimensions = DIMENSIONS
    long_text_chars = 20_000

    @pytest.fixture
    async def embedder(self) -> AsyncIterator[Embedder]:
        made: Embedder = registry.find("fastembed").load().make_embedder(ModelConfig(model=NAME))
        yield made
        await made.close()


async def test_a_model_that_is_not_there_is_named() -> None:
    """Unknown to the library: refused at once. Known, and not to be had: an error of the call."""
    provider = registry.find("fastembed").load()
    with pytest.raises(ValueError, match="no/such"):
        provider.make_embedder(ModelConfig(model="no/such"))
    embedder = provider.make_embedder(ModelConfig(model="BAAI/bge-small-en-v1.5"))
    with pytest.raises(errors.PermanentProviderError, match=r"bge-small-en-v1\.5: the model cannot be used"):
        await embedder.embed(["hello"], "query")
    await embedder.close()
