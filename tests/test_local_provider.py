"""The provider without a model: conformance, and what it promises beyond."""

from __future__ import annotations

import pytest

from hippocampus.providers.local import LocalEmbedder, LocalGenerator
from tests.provider_conformance import EmbedderConformance, GeneratorConformance


class TestLocalGenerator(GeneratorConformance):
    @pytest.fixture
    def generator(self) -> LocalGenerator:
        return LocalGenerator()


class TestLocalEmbedder(EmbedderConformance):
    long_text_chars = 2_000_000

    @pytest.fixture
    def embedder(self) -> LocalEmbedder:
        return LocalEmbedder()
