"""The command line in this process, on a database with one ingested and consolidated conversation."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import structlog

from hippocampus.consolidation_worker import MemoryConsolidationWorker
from hippocampus.providers.local.provider import LocalEmbedder, LocalGenerator
from pulse import database
from tests.conftest import cloned, dsn_of
from tests.support.cli_commands import Run
from tests.support.queue_claims import work_off
from workers.cli import main
from workers.embedded.server import EmbeddedServer

TALK = {
    "session_1_date_time": "9:05 am on 1 June, 2024",
    "session_1": [
        {"speaker": "Ada", "text": "My name is Ada. I live in Turin and I am allergic to peanuts."},
        {"speaker": "Assistant", "text": "Noted."},
        {"speaker": "Ada", "text": "I love rowing on the river. Please never call me on Mondays."},
        {"speaker": "Ada", "text": "我最喜欢的茶是普洱。"},
    ],
    "session_2_date_time": "9:05 am on 1 July, 2024",
    "session_2": [{"speaker": "Ada", "text": "I moved to Oslo. I live in Oslo now."}],
}


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """A command configures the process's logging; the next test gets its own."""
    root = logging.getLogger()
    before = (root.handlers, root.level)
    yield
    root.handlers, root.level = before
    structlog.reset_defaults()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process; return its exit code, its output, its errors."""

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main.run(arguments)
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


@pytest.fixture
def talk(tmp_path: Path) -> str:
    path = tmp_path / "ada.json"
    path.write_text(json.dumps(TALK), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="session")
def talked(
    server: EmbeddedServer, admin: psycopg.Connection, template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A database with one ingested and consolidated conversation, to be cloned."""
    path = tmp_path_factory.mktemp("talk") / "ada.json"
    path.write_text(json.dumps(TALK), encoding="utf-8")
    with cloned(admin, template) as name:
        # Restored to its value before the first test: fixtures of other modules start programs with this environment.
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()):
            patch.setenv("DATABASE_URL", dsn_of(server, name))
            assert main.run(("ingest", str(path), "--finalize")) == 0
        asyncio.run(consolidate(dsn_of(server, name)))
        yield name


@pytest.fixture
def dsn(
    request: pytest.FixtureRequest, server: EmbeddedServer, admin: psycopg.Connection, template: str
) -> Iterator[str]:
    """A migrated database of this test's own; with `cli`, the one that has a conversation."""
    source = request.getfixturevalue("talked") if "cli" in request.fixturenames else template
    with cloned(admin, source) as name:
        yield dsn_of(server, name)


@pytest.fixture
def cli(run: Run, dsn: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command line on a database with one ingested and consolidated conversation."""
    monkeypatch.setenv("DATABASE_URL", dsn)
    return run


async def consolidate(dsn: str) -> None:
    async with await database.create_pool(dsn, min_size=1, max_size=2) as pool:
        assert len(await work_off(pool, MemoryConsolidationWorker(pool, LocalGenerator(), LocalEmbedder()))) == 4
