"""The settings that docs/providers.md shows are accepted, and choose what it says."""

from __future__ import annotations

import re

import pytest

from hippocampus.providers.registry import PROVIDERS
from tests.support.paths import ROOT
from workers.settings import load

PAGE = (ROOT / "docs" / "providers.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^### ([^\n]+)\n.*?^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("title", "block"), BLOCKS, ids=[title for title, _ in BLOCKS])
def test_each_example_is_accepted(monkeypatch: pytest.MonkeyPatch, title: str, block: str) -> None:
    given = dict(line.split("=", 1) for line in block.splitlines())
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    settings = load()
    assert settings.generator == given["HIPPOCAMPUS_GENERATOR"]
    assert settings.chosen("generator").base_url == given.get("HIPPOCAMPUS_GENERATOR_BASE_URL")
    assert settings.embedder == given.get("HIPPOCAMPUS_EMBEDDER", "local:local-hash-v1")


def test_every_provider_is_in_the_table() -> None:
    """With its default models."""
    assert len(BLOCKS) >= 8
    for name, provider in PROVIDERS.items():
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |"))
        if name != "local":
            assert f"`{provider.generation_model}`" in row or not provider.generation_model
            assert f"`{provider.embedding_model}`" in row or not provider.embedding_model
        assert all(f"`{variable}`" in row for variable in provider.key_variables)
