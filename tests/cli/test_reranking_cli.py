"""`HIPPOCAMPUS_RERANKER` at the command line, with a reranker of another distribution."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from hippocampus.knowledge.service import KnowledgeService
from hippocampus.providers import registry
from hippocampus.providers.local.embedding import LocalEmbedder
from pulse import database
from tests.support.cli_commands import Run

ACME = """
from hippocampus.providers.registry import Provider

ACME = Provider(module="acme_reranking", generation_model="", embedding_model="", reranking_model="last-first")

class LastFirst:
    def __init__(self, model):
        self.model = model

    async def rerank(self, query, texts):
        if self.model == "failing":
            raise KeyError(query)
        return range(len(texts))

    async def close(self):
        pass

def make_reranker(config):
    return LastFirst(config.model)
"""


@pytest.fixture
def _acme(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    info = tmp_path / "acme_reranking-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-reranking\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{registry.ENTRY_POINTS}]\nacme = acme_reranking:ACME\n")
    (tmp_path / "acme_reranking.py").write_text(ACME)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "find", registry.find.__wrapped__)


@pytest.mark.usefixtures("_acme")
def test_what_commands_find_is_reranked(cli: Run, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Search, recall, windows, answers and documents; a failure is a note, and the first order stands."""

    async def write() -> None:
        async with await database.create_pool(dsn) as pool:
            service = KnowledgeService(pool, "locomo", LocalEmbedder())
            await service.put_corpus("book")
            for text in ("Oslo Oslo.", "The road to Oslo is long and winding."):
                await service.add("book", text, source_uri=f"{len(text)}.md", inline=True)

    asyncio.run(write())

    def found() -> tuple[list[str], list[str]]:
        memory = json.loads(cli("search", "Oslo", "--limit", "50", "--json")[1])["memories"]
        documents = json.loads(cli("knowledge", "search", "Oslo", "--app", "locomo", "--json")[1])
        return [each["memory_id"] for each in memory], [each["source_uri"] for each in documents]

    def window(*words: str) -> tuple[str, str]:
        code, out, err = cli(*words, "--tokens", "60")
        assert code == 0, err
        return out, err

    plain, recalled = found(), window("recall", "Oslo")
    assert len(plain[0]) > 1
    monkeypatch.setenv("HIPPOCAMPUS_RERANKER", "acme")
    memory, documents = found()
    assert (memory, documents) == (plain[0][::-1], plain[1][::-1])
    assert json.loads(cli("recall", "Oslo", "--json")[1])["reranked"]
    assert json.loads(cli("context", "Oslo", "--json")[1])["reranked"]
    assert cli("ask", "Where is Oslo?")[0] == 0
    monkeypatch.setenv("HIPPOCAMPUS_RERANKER", "acme:failing")
    assert found() == plain
    for words in (("search", "Oslo"), ("recall", "Oslo"), ("knowledge", "search", "Oslo", "--app", "locomo")):
        assert "the reranker failed (KeyError" in cli(*words)[2]
    assert window("recall", "Oslo")[0] == recalled[0]
