"""`hippocampus knowledge`: files are added, searched, listed and removed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from uuid import UUID

import pytest

from hippocampus.knowledge.service import KnowledgeService
from hippocampus.providers.local.embedding import LocalEmbedder
from pulse import database
from tests.support.cli_commands import Run


async def ingest(dsn: str, app: str) -> None:
    async with await database.create_pool(dsn) as pool:
        service = KnowledgeService(pool, app, LocalEmbedder())
        for each in await service.documents(status="waiting"):
            await service.ingest(UUID(str(each.id)))


def test_files_from_adding_to_removing(run: Run, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each verb, also where it fails: one sentence, and nothing changed."""
    monkeypatch.setenv("DATABASE_URL", dsn)
    monkeypatch.chdir(tmp_path)
    Path("a.md").write_text("# Shipping\n\nParcels leave on Fridays.\n")
    Path("bad.pdf").write_bytes(b"%PDF-1.4 nothing")
    app = ("--app", "shop")
    code, _, said = run("knowledge", "add", "book", "bad.pdf", *app)
    assert (code, "not a valid PDF" in said) == (1, True)
    assert run("knowledge", "list", *app)[2].startswith("There are no corpora")
    code, out, said = run("knowledge", "add", "book", "a.md", "bad.pdf", *app)
    assert (code, out, "bad.pdf" in said) == (1, "waiting   a.md\n", True)
    asyncio.run(ingest(dsn, "shop"))
    assert run("knowledge", "add", "book", "a.md", "--wait", *app)[1] == "unchanged a.md\n"
    (corpus,) = json.loads(run("knowledge", "list", *app, "--json")[1])
    assert (corpus["name"], corpus["documents"]) == ("book", 1)
    (document,) = json.loads(run("knowledge", "list", "book", *app, "--json")[1])
    assert document["status"] == "ready"
    assert "Parcels leave" in run("knowledge", "search", "when do parcels leave", *app, "--user", "ann")[1]
    (hit,) = json.loads(run("knowledge", "search", "parcels", *app, "--json")[1])
    assert hit["heading_path"] == ["Shipping"]
    code, out, said = run("context", "when do parcels leave", *app, "--user", "ann", "--documents", "0.5")
    assert (code, "(a.md)] # Shipping" in out, "document " in said) == (0, True, True)
    assert "Shipping" not in run("context", "when do parcels leave", *app, "--user", "ann")[1]
    assert "a.md" in run("knowledge", "show", document["id"], *app)[1]
    assert run("knowledge", "remove", "book", "nothing.md", *app)[0] == 1
    assert run("knowledge", "remove", "book", *app)[0] == 2
    assert run("knowledge", "remove", "book", "a.md", *app)[1] == "1 document is removed.\n"
    assert run("knowledge", "remove", "book", "--whole", *app)[1] == "0 documents are removed.\n"
    assert run("knowledge", "list", "book", *app)[0] == 1
