"""The commands that erase, trace, pin, restore, explain, export and import."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest

from hippocampus.erasure.service import ErasureService
from tests.support.cli_commands import Run, pages
from tests.support.forgetting_scene import APP, SECRET, say, scan
from tests.support.paths import ROOT
from tests.support.waiting import until


def test_a_memory_is_traced_pinned_and_explained(cli: Run) -> None:
    facts = json.loads(cli("facts", "--json")[1])
    peanuts = next(each for each in facts if "peanuts" in json.dumps(each["value"]))
    code, out, _ = cli("memory", "origin", peanuts["id"])
    assert code == 0
    assert "allergic to peanuts" in out
    session = json.loads(cli("memory", "origin", peanuts["id"], "--json")[1])[0]["drawn"]["session_id"]
    code, out, _ = cli("memory", "from-event", session, "1")
    assert code == 0
    assert "peanuts" in out.splitlines()[0]
    assert "cites it" in out

    memory = json.loads(cli("memories", "--json")[1])[0]["id"]
    code, out, _ = cli("retention", "explain", memory)
    assert code == 0
    assert "falls below the threshold on" in out
    assert "strength now" in out
    assert out.count("█") > 20
    assert cli("memory", "pin", memory)[1] == "Pinned.\n"
    assert "never falls below" in cli("retention", "explain", memory)[1]
    assert json.loads(cli("memory", "unpin", memory, "--json")[1]) == {"changed": True}
    code, _, err = cli("memory", "pin", str(uuid4()))
    assert (code, "there is no memory" in err) == (1, True)


def test_policies_are_compared_and_the_archive_restored(cli: Run) -> None:
    app = json.loads(cli("memories", "--json")[1])[0]["app_name"]
    code, out, _ = cli("retention", "compare", "--app", app, "--preset", "sensitive", "--days", "8")
    assert code == 0
    assert "then  keeps 0 of" in out
    both = json.loads(cli("retention", "compare", "--app", app, "--threshold", "1", "--min-age-days", "0", "--json")[1])
    assert both["total"] == both["only_by_one"] == len(both["differing"])
    words = ("retention", "compare", "--app", app, "--threshold", "1", "--min-age-days", "0")
    parts = pages(cli, *words, "--limit", "2")
    assert len(parts) > 1
    assert [each["id"] for page in parts for each in page["differing"]] == [each["id"] for each in both["differing"]]
    following = cli(*words, "--limit", "2")[2].split()[-1]
    assert cli("retention", "compare", "--app", app, "--preset", "sensitive", "--cursor", following)[0] == 2
    assert cli("retention", "compare", "--app", app)[0] == 2
    changed = cli("policies", "set", app, "--preset", "knowledge", "archive_days=9", "--json")[1]
    shown = json.loads(changed)
    assert (shown["app_name"], shown["decay_rate"], shown["archive_days"]) == (app, 0.02, 9.0)
    assert json.loads(cli("policies", "show", "--json")[1])["decay_rate"] == 0.1
    assert cli("policies", "set", "*", "cleanup_threshold=2")[0] == 1
    assert "Nothing is archived" in cli("memory", "archived")[2]
    assert cli("memory", "restore")[0] == 2
    assert cli("memory", "restore", "--all")[1] == "Restored 0 memories.\n"
    assert cli("retention", "purge")[1] == "Purged 0 archived memories.\n"
    assert cli("memory", "restore", str(uuid4()))[0] == 1


def test_a_memory_is_exported_and_imported(cli: Run, tmp_path: Path) -> None:
    path = tmp_path / "ada.jsonl"
    code, out, err = cli("memory", "export", "-o", str(path))
    assert (code, out) == (0, "")
    assert f"Exported {len(path.read_text().splitlines()) - 2} rows." in err
    assert cli("memory", "export")[1] == path.read_text()
    assert cli("memory", "export", "-o", str(path))[0] == 2
    code, out, _ = cli("memory", "import", str(path))
    assert (code, "Imported nothing new" in out) == (0, True)
    path.write_text(path.read_text().replace('"memory_type"', '"memory_sort"'))
    code, _, err = cli("memory", "import", str(path))
    assert code == 1
    assert "line " in err


def test_forgetting_previews_asks_and_verifies(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run changes nothing; without a confirmation nothing is erased; afterwards nothing is found."""
    memories = json.loads(cli("memories", "--json")[1])
    app, user = memories[0]["app_name"], memories[0]["user_id"]
    shown = json.loads(cli("forget", "user", "--dry-run", "--json")[1])
    assert {each["table_name"]: each["rows"] for each in shown}["memories"] == len(memories)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    session = json.loads(cli("sessions", "--json")[1])[0]["session"]
    for words in (("forget", "user"), ("sessions", "delete", session)):
        code, _, err = cli(*words)
        assert (code, "nothing was changed: add --yes" in err) == (2, True), words
    assert len(json.loads(cli("memories", "--json")[1])) == len(memories)

    code, out, _ = cli("forget", "memory", memories[0]["id"], "--yes")
    assert (code, "Done; nothing is left" in out) == (0, True)
    name = json.loads(cli("sessions", "list", "--json")[1])[0]["session"]
    assert cli("forget", "events", name)[0] == 2
    done = json.loads(cli("forget", "events", name, "1", "--yes", "--json")[1])
    assert (done["scope"], done["remaining"]) == ("events", {})
    assert cli("forget", "session", name, "--yes")[0] == 0
    assert cli("forget", "session", name, "--yes")[0] == 1
    done = json.loads(cli("forget", "user", "--yes", "--json")[1])
    assert done["remaining"] == {}
    assert "nothing is left" in cli("forget", "show", done["id"], "--app", app, "--user", user)[1]
    assert cli("forget", "resume")[1] == "Finished 0 requests.\n"


async def test_a_killed_erasure_is_finished_by_another_process(dsn: str, pool: asyncpg.Pool) -> None:
    """SIGKILL in the middle: whole sessions are gone, whole sessions are left, and `resume` erases the rest."""
    for number in range(12):
        await say(pool, "ana", f"s{number:02}", SECRET, SECRET)
    async with pool.acquire() as connection:
        async with connection.transaction():
            await connection.execute("SELECT FROM threads WHERE session_id = 's05' FOR UPDATE")
            process = subprocess.Popen(
                [sys.executable, "-m", "workers", "forget", "user", "--app", APP, "--user", "ana", "--yes"],
                cwd=ROOT,
                env={**os.environ, "DATABASE_URL": dsn},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            await until(lambda: _is_waiting(pool))
            process.kill()
            process.wait()
        # The server may still finish the step that was running.
        assert await pool.fetchval("SELECT count(*) FROM threads") in (6, 7)
        torn = "SELECT count(*) FROM threads AS t WHERE (SELECT count(*) FROM events WHERE thread_id = t.id) <> 2"
        assert await pool.fetchval(torn) == 0
        unfinished = await pool.fetchval("SELECT id FROM erasures WHERE finished_at IS NULL")

    async def resumed() -> bool:
        await ErasureService(pool).resume()
        return (await ErasureService(pool).get(APP, "ana", unfinished)).is_complete

    await until(resumed)
    assert await scan(pool) == {}


async def _is_waiting(pool: asyncpg.Pool) -> bool:
    return bool(
        await pool.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
    )
