"""`hippocampus ingest` as a program: files and folders, rejects, interruptions, dry runs."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import asyncpg
import pytest

from tests.support import cli_process
from tests.support.lock_gates import held_after, until_one_waits_at_the_gate

GOOD = {"role": "user", "content": "Hi"}
CUT_ALL_OTHERS = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                    WHERE datname = current_database() AND pid <> pg_backend_pid()"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def chats(path: Path, count: int, *, turns: int) -> Path:
    rows = ({"id": f"{path.stem}-{place}", "user": "ann", "messages": [GOOD] * turns} for place in range(count))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


async def test_rejects_are_reported_and_kept_and_the_rest_is_ingested(
    dsn: str, pool: asyncpg.Pool, tmp_path: Path, home: Path
) -> None:
    """Two good and two bad files in a folder: exit code 1, and each rejected record with its reason."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_text(json.dumps(GOOD) + '\n{"role": "user"\n' + json.dumps(GOOD) + "\n")
    (folder / "b.txt").write_text("Ann: Hello.\nBen: Hi.\n")
    (folder / "c.json").write_text('{"unknown": 1}')
    (folder / "d.json").write_bytes(b"")
    (folder / "photo.png").write_bytes(b"\x89PNG")
    done = cli_process.run(home, "ingest", str(folder), cwd=tmp_path, DATABASE_URL=dsn)
    assert done.returncode == 1
    assert "Appended 4 events to 2 sessions." in done.stdout
    assert f"{folder / 'a.jsonl'}, line 2: not valid JSON" in done.stderr
    assert "Rejected 1 record, kept in a.rejects.jsonl with the reason." in done.stderr
    assert "not in a known format" in done.stderr
    assert "Left out 2 files." in done.stderr
    assert "Left out: 1 files with other endings." in done.stdout
    (row,) = map(json.loads, (tmp_path / "a.rejects.jsonl").read_text().splitlines())
    assert (row["file"], row["line"], row["record"]) == (str(folder / "a.jsonl"), 2, '{"role": "user"')
    assert await pool.fetchval("SELECT count(*) FROM events") == 4
    again = cli_process.run(
        home, "ingest", str(folder), "--json", "--rejects", "r.jsonl", cwd=tmp_path, DATABASE_URL=dsn
    )
    shown = json.loads(again.stdout)
    assert (again.returncode, shown["events_new"], shown["events_known"], shown["rejected"]) == (1, 0, 4, 1)
    assert len(shown["unread"]) == 2
    assert (tmp_path / "r.jsonl").exists()


def test_a_dry_run_touches_no_database(tmp_path: Path, home: Path) -> None:
    """It reports what would be ingested, and needs no database."""
    path = chats(tmp_path / "chats.jsonl", 30, turns=2)
    done = cli_process.run(home, "ingest", str(path), "--dry-run", DATABASE_URL="postgresql://nobody@127.0.0.1:1/none")
    assert done.returncode == 0, done.stderr
    assert "To be stored: 60 events of 30 sessions." in done.stdout
    assert not home.exists()


async def test_a_killed_run_is_completed_by_the_next(dsn: str, pool: asyncpg.Pool, tmp_path: Path, home: Path) -> None:
    """kill -9 in the middle: nothing duplicated, nothing missing, the order as in the file."""
    path = tmp_path / "long.jsonl"
    rows = [{"role": "user", "content": f"turn {place}", "session_id": f"s{place % 7}"} for place in range(6_000)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    async with held_after(pool, 2_000):
        with cli_process.Running(home, "ingest", str(path), DATABASE_URL=dsn) as running:
            await until_one_waits_at_the_gate(pool)
            os.kill(running.process.pid, signal.SIGKILL)
    stored = await pool.fetchval("SELECT count(*) FROM events")
    assert 0 < stored < 6_000
    done = cli_process.run(home, "ingest", str(path), DATABASE_URL=dsn)
    assert done.returncode == 0, done.stderr
    assert "were there already." in done.stdout
    rows_stored = await pool.fetch(
        "SELECT t.session_id, array_agg(m.content ORDER BY m.sequence_num) AS texts"
        " FROM messages m JOIN threads t ON t.id = m.thread_id GROUP BY 1"
    )
    expected = {f"s{n}": [row["content"] for row in rows if row["session_id"] == f"s{n}"] for n in range(7)}
    assert {row["session_id"]: row["texts"] for row in rows_stored} == expected


async def test_ctrl_c_ends_it_quietly(dsn: str, pool: asyncpg.Pool, tmp_path: Path, home: Path) -> None:
    path = tmp_path / "long.jsonl"
    path.write_text("".join(json.dumps({**GOOD, "content": str(place)}) + "\n" for place in range(4_000)))
    async with held_after(pool, 2_000):
        with cli_process.Running(home, "ingest", str(path), DATABASE_URL=dsn) as running:
            await until_one_waits_at_the_gate(pool)
            running.process.send_signal(signal.SIGINT)
            code, text = running.end()
    assert code == 130, text
    assert text.endswith("hippocampus: interrupted\n")
    assert "Traceback" not in text


async def test_a_database_outage_is_reported_with_what_was_ingested(
    dsn: str, pool: asyncpg.Pool, tmp_path: Path, home: Path
) -> None:
    path = tmp_path / "long.jsonl"
    path.write_text("".join(json.dumps({**GOOD, "content": str(place)}) + "\n" for place in range(4_000)))
    async with held_after(pool, 2_000) as holder:
        with cli_process.Running(home, "ingest", str(path), DATABASE_URL=dsn) as running:
            await until_one_waits_at_the_gate(pool)
            await holder.execute(CUT_ALL_OTHERS)
            code, text = running.end()
    assert code == 1, text
    assert "The database went away" in text
    assert "run the same command again, it continues from there" in text
    assert "Traceback" not in text
    reported = int(text.split(") after ")[1].split()[0])
    assert 0 < reported <= await pool.fetchval("SELECT count(*) FROM events") < 4_000
