"""`hippocampus demo`: the whole path with real processes, and no process left running after it."""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import asyncpg
import pytest
from rich.console import Console

from hippocampus.text.languages import language_of
from pulse.process.background import in_background
from tests.support import cli_process, small_lock
from tests.support import worker_harness as harness
from tests.support.waiting import until, until_sync
from workers.cli import fact_changes, progress
from workers.cli.commands import demo
from workers.cli.rows import FactReplacement
from workers.intake import conversations, samples
from workers.models import reach
from workers.settings import load

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="searches /proc for processes")


@pytest.fixture(scope="module")
def demo_home(home_root: Path) -> Path:
    return home_root / "demo"


@pytest.fixture(scope="module")
def first(demo_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.CompletedProcess[str]]:
    """The first run, as a new user makes it: by its command line, with no package but those of the small lock."""
    path = small_lock.import_path(tmp_path_factory.mktemp("small"))
    done = cli_process.run(demo_home, "demo", by_command_line=True, PYTHONPATH=path)
    yield done
    assert cli_process.processes_of(demo_home) == []


def test_the_first_run_shows_everything(first: subprocess.CompletedProcess[str]) -> None:
    """Events, jobs, summaries, facts with turns, searches with reasons, a window, a dry run, addresses."""
    assert first.returncode == 0, first.stdout + first.stderr
    text = first.stdout
    count = conversations.read(samples.sample_path()).event_count
    assert re.search(r"vectors +local: words and parts of words, not meaning\n", text)
    assert f"{count} appended to 8 sessions in" in text
    assert int(re.search(r"jobs +(\d+) done in", text)[1]) >= 16
    assert "Summaries (8)" in text
    assert int(re.search(r"Facts \((\d+)\)", text)[1]) >= 10
    assert re.search(r"0\.9\d  .*\n +mei-session-\d #\d+: “", text)
    searches = re.split(r"\nSearch: ", text)[1:]
    assert [each.splitlines()[0] for each in searches] == list(samples.SAMPLE_QUERIES)
    assert all("why: words" in each for each in searches)
    assert "Fridays are fine for meetings" in searches[1].splitlines()[1], "the rule that holds now comes first"
    assert "cried in the pump house" in searches[2].splitlines()[1], f"'yesterday' is a date: {text}"
    assert "- [rule] Mei: Fridays are fine for meetings (28 May 2025)" in text
    assert "(since changed: Mei: Fridays are fine for meetings, from 28 May 2025)" in text
    assert "(since changed: Mei: No calls before 9" not in text, "it is stated again, not changed"
    used, budget = map(int, re.search(r"tokens +(\d+) of (\d+)", text).groups())
    assert 0 < used <= budget
    assert "## Conversation history" in text
    assert re.search(r"of the memories that no search or window uses, it archives: now 0 of \d+", text)
    assert "what is archived can be restored for 90 days; facts stay" in text
    assert re.search(r"metrics +http://127\.0\.0\.1:\d+/metrics", text)
    assert re.search(r"API +http://127\.0\.0\.1:\d+", text)
    assert "\x1b[" not in text


def test_what_changed_are_values_that_differ(first: subprocess.CompletedProcess[str]) -> None:
    """The sample's best change is shown first; its value in Chinese, and a rule that is only said again, are not."""
    changes = _section(first.stdout, "What changed")
    assert changes[0].strip() == "2025-03-03  Mei: lives in Rotterdam (until 2025-05-28)  →  lives in Ghent"
    assert any("Fridays (until 2025-05-28)  →  Fridays are fine" in line for line in changes)
    assert {language_of([line]) for line in changes} == {"en"}
    assert not any("calls before 9" in line for line in changes)


def test_a_change_is_shown_from_its_first_value_on() -> None:
    """All that a fact was, on one line; a step into another language only where there is no other change."""

    def replaced(number: int, confidence: float, *texts: str) -> list[FactReplacement]:
        """Replacements of one fact, each value a day after the last one."""
        start = datetime(2025, 5, number, tzinfo=UTC)
        return [
            FactReplacement(
                fact_id=UUID(int=number),
                before={"text": before, "subject": "Mei"},
                valid_from=start + timedelta(days=day),
                valid_until=start + timedelta(days=day + 1),
                now={"text": now, "subject": "Mei"},
                confidence=confidence,
            )
            for day, (before, now) in enumerate(itertools.pairwise(texts))
        ]

    moved = replaced(1, 0.9, "lives in Rotterdam", "lives in Ghent", "lives in Oslo", "住在奥斯陆")
    hired = replaced(2, 0.9, "works at a bakery", "在一家面包店工作")
    doubtful = replaced(3, 0.8, "sings in a choir", "misses it")
    again = replaced(4, 0.9, "no calls before 9", "no calls before 9, as always")
    shown = [each.text for each in fact_changes.choose([*moved, *hired, *doubtful, *again], 3)]
    assert shown == [
        "Mei: lives in Rotterdam (until 2025-05-02)  →  lives in Ghent (until 2025-05-03)  →  lives in Oslo",
        "Mei: sings in a choir (until 2025-05-04)  →  misses it",
    ]
    assert len(fact_changes.choose([*moved, *doubtful], 1)) == 1
    assert [each.text for each in fact_changes.choose(hired, 3)] == [
        "Mei: works at a bakery (until 2025-05-03)  →  在一家面包店工作"
    ]
    assert fact_changes.choose(again, 3) == []


def test_it_leaves_no_process_behind(first: subprocess.CompletedProcess[str], demo_home: Path) -> None:
    assert first.returncode == 0
    assert cli_process.processes_of(demo_home) == []


def test_its_results_can_be_inspected_later(
    first: subprocess.CompletedProcess[str], demo_home: Path, tmp_path: Path
) -> None:
    """The server is started for each command and stopped after it, from any folder."""
    assert f"export HIPPOCAMPUS_HOME={demo_home}" in first.stdout
    facts = cli_process.run(demo_home, "facts", "--json", cwd=tmp_path)
    assert facts.returncode == 0, facts.stderr
    assert any("buckwheat" in str(fact["value"]) and fact["said"] for fact in json.loads(facts.stdout))
    found = cli_process.run(demo_home, "search", "外婆的膝盖", cwd=tmp_path)
    assert "膝盖" in found.stdout
    assert cli_process.processes_of(demo_home) == []


def test_a_correction_in_a_later_session_holds(
    first: subprocess.CompletedProcess[str], demo_home: Path, tmp_path: Path
) -> None:
    """Where Mei's brother lives was said in the first session and put right in the sixth: lists and windows have what
    holds now, its history has what was said first, and the former turn is marked."""
    former, now = "a brother who lives in Xiamen", "a brother Wei who lives in Zhangzhou"
    (change,) = [line for line in _section(first.stdout, "What changed") if "brother" in line]
    assert re.search(rf"{former}.* \(until 2025-05-28\)  →  has {now}$", change), change
    listed = json.loads(cli_process.run(demo_home, "facts", "--json", cwd=tmp_path).stdout)
    assert [fact["value"]["text"] for fact in listed if fact["key"] == "mei:family:brother:place"] == [f"has {now}"]
    before = json.loads(cli_process.run(demo_home, "facts", "--as-of", "2025-04-01", "--json", cwd=tmp_path).stdout)
    assert any(former in str(fact["value"]) for fact in before)
    asked = ("context", "Where does Mei's brother Wei live?", "--tokens", "500")
    window = cli_process.run(demo_home, *asked, cwd=tmp_path).stdout
    facts, _, turns = window.partition("## Relevant memories")
    assert f"- [profile] Mei has {now} (28 May 2025)" in facts
    assert former not in facts
    (marked,) = [line for line in turns.splitlines() if "My brother Wei lives in Xiamen" in line]
    assert marked.endswith(f"(since changed: Mei has {now}, from 28 May 2025)")
    (correction,) = [line for line in turns.splitlines() if "Actually, Wei lives in Zhangzhou, not in Xiamen." in line]
    assert "since changed" not in correction


def test_a_second_run_duplicates_nothing_and_shows_the_same(
    first: subprocess.CompletedProcess[str], demo_home: Path
) -> None:
    again = cli_process.run(demo_home, "demo")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "are there already, from an earlier run: nothing is stored twice" in again.stdout
    for line in ("Summaries (8)", re.search(r"Facts \(\d+\)", first.stdout)[0]):
        assert line in again.stdout
    assert cli_process.processes_of(demo_home) == []


def test_a_file_after_the_sample_shows_its_own_user_alone(
    first: subprocess.CompletedProcess[str], demo_home: Path, tmp_path: Path
) -> None:
    """The app holds the sample's memories too: they are neither shown nor counted."""
    own = tmp_path / "chats.jsonl"
    own.write_text('{"id": "s1", "user": "ann", "messages": [{"role": "user", "content": "I live in Leeds."}]}\n')
    done = cli_process.run(demo_home, "demo", str(own))
    assert done.returncode == 0, done.stdout + done.stderr
    forgetting = _section(done.stdout, "Forgetting, as a dry run")
    mine = json.loads(cli_process.run(demo_home, "memories", "--app", "demo", "--user", "ann", "--json").stdout)
    assert f"now 0 of {len(mine)}," in forgetting[0]
    assert "I live in Leeds." in forgetting[3]
    assert not any("Mei" in line for line in forgetting)
    # What the first run suggested still works, now that there is a second user.
    suggested = re.findall(r"(?:hippocampus|workers) ((?:search|facts|memories|sessions)\b.*)", first.stdout)
    assert len(suggested) >= 4
    assert all("--app demo --user mei" in line for line in suggested)
    for line in suggested:
        shown = cli_process.run(demo_home, *shlex.split(line))
        assert shown.returncode == 0, shown.stderr


async def test_a_file_of_another_program_is_read_by_the_options_of_ingest(
    pool: asyncpg.Pool, dsn: str, home: Path, tmp_path: Path
) -> None:
    """The order of day and month, the format, and the user; without them it is refused, and nothing is stored."""
    chat = tmp_path / "chat.txt"
    chat.write_text("5/8/24, 12:56 - Messages are encrypted.\n5/8/24, 12:57 - Ann: I live in Leeds.\n")

    def demonstrate(*words: str) -> subprocess.CompletedProcess[str]:
        return cli_process.run(home, "demo", *words, DATABASE_URL=dsn)

    for words, said in (
        ((), "give --day-first or --month-first"),
        (("--month-first", "--format", "chat"), "is not in the format chat"),
        (("--month-first", "--format", "transcript"), "the line has no speaker"),
    ):
        refused = demonstrate(str(chat), *words)
        assert (refused.returncode, said in refused.stderr) == (1, True), refused.stderr
    assert await pool.fetchval("SELECT count(*) FROM threads") == 0
    done = demonstrate(str(chat), "--month-first", "--format", "whatsapp", "--user", "ann")
    assert done.returncode == 0, done.stdout + done.stderr
    [row] = await pool.fetch(
        "SELECT t.user_id, m.content, m.occurred_at FROM messages AS m JOIN threads AS t ON t.id = m.thread_id"
    )
    assert (row["user_id"], row["content"], f"{row['occurred_at']:%d %B %Y}") == (
        "ann", "I live in Leeds.", "08 May 2024",
    )  # fmt: skip
    assert "Leeds" in done.stdout


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ('{"results": [{"id": "1", "memory": "Rows"}]}', "has no conversation: `hippocampus ingest` takes it"),
        ('{"messages": [{"role": "user", "content": "Hi"}]}\n{"nonsense": 1}\n', "line 2: it is neither"),
    ],
    ids=["memories", "an invalid record"],
)
def test_a_file_that_only_ingest_takes_is_refused(home: Path, tmp_path: Path, written: str, said: str) -> None:
    """Before a database is opened: memories of another program, and records of which one cannot be read."""
    file = tmp_path / "given.json"
    file.write_text(written)
    refused = cli_process.run(home, "demo", str(file))
    assert (refused.returncode, said in refused.stderr) == (1, True), refused.stderr
    assert not home.exists()


def test_ctrl_c_stops_it_and_everything_it_started(made_home: Path) -> None:
    """Its jobs wait for a model, so that it does not end by itself meanwhile."""
    away = {"HIPPOCAMPUS_GENERATOR": "openai:gpt-5.4-mini", "HIPPOCAMPUS_GENERATOR_BASE_URL": "http://127.0.0.1:9/v1"}
    with cli_process.Running(made_home, "demo", **away) as demo:
        until_sync(lambda: len(demo.children()) == 4)
        demo.process.send_signal(signal.SIGINT)
        code, said = demo.end()
    assert code == 130, said
    assert "interrupted" in said
    assert "Traceback" not in said
    assert cli_process.processes_of(made_home) == []


@pytest.mark.usefixtures("first")
def test_ctrl_c_while_it_stops_by_itself_leaves_no_role_behind(demo_home: Path) -> None:
    """The others have ended, and one role takes longer: it is still waited for, and killed in the end."""
    with cli_process.Running(demo_home, "demo") as demo:
        demo.read_until("Summaries (")
        os.kill(demo.children()["retention"], signal.SIGSTOP)
        until_sync(lambda: set(demo.children()) == {"retention"})
        demo.process.send_signal(signal.SIGINT)
        code, said = demo.end()
    assert code == 130, said
    assert said.endswith("interrupted\n")
    assert "Traceback" not in said
    assert cli_process.processes_of(demo_home) == []


@pytest.mark.usefixtures("first")
def test_a_killed_program_leaves_neither_roles_nor_server(demo_home: Path) -> None:
    with cli_process.Running(demo_home, "up") as up:
        up.read_until("Everything runs")
        assert len(cli_process.processes_of(demo_home)) > 5
        up.process.kill()
        until_sync(lambda: cli_process.processes_of(demo_home) == [])


@pytest.mark.usefixtures("first")
def test_a_role_that_cannot_start_ends_the_demo_with_its_reason(demo_home: Path) -> None:
    failed = cli_process.run(demo_home, "demo", HIPPOCAMPUS_RETENTION_CRON="whenever")
    assert failed.returncode == 2
    assert "could not start" in failed.stderr
    assert "HIPPOCAMPUS_RETENTION_CRON" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert cli_process.processes_of(demo_home) == []


def _section(text: str, title: str) -> list[str]:
    """The lines of a section without its title."""
    return text.partition(f"\n{title}")[2].partition("\n\n")[0].splitlines()[1:]


async def test_a_demo_that_waits_for_a_model_says_why(pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Immediately, and again when it gives up: a wrong network or proxy otherwise means minutes of silence."""
    monkeypatch.setattr(demo, "STALL_SECONDS", 0.3)
    monkeypatch.setattr(demo, "APP", "app")
    since = await pool.fetchval("SELECT engine_now()")
    await harness.enqueue(pool, await harness.make_thread(pool))
    worker = await pool.fetchval("SELECT worker_id FROM procrastinate_register_worker_v1()")
    queued = await pool.fetchval("SELECT id FROM procrastinate_fetch_job_v2(NULL, $1)", worker)
    away = "Gemini: the connection failed"
    await pool.execute(
        "SELECT retry_job_at($1, $2, 0, now() + interval '1 h', $3, 'connection', NULL)", queued, worker, away
    )
    screen = Console(file=io.StringIO())
    with progress.make(screen) as bars, pytest.raises(demo.DemoFailedError, match=away):
        await demo._wait(pool, since, bars, bars.add_task("jobs"))
    assert screen.file.getvalue() == f"A job will be retried. {away}\n"  # type: ignore[attr-defined]


@pytest.mark.parametrize("is_silent", [True, False], ids=["never answers", "refuses"])
async def test_a_demo_repeats_that_a_model_is_not_reached(monkeypatch: pytest.MonkeyPatch, is_silent: bool) -> None:
    """With what to do, before any job has failed."""
    monkeypatch.setattr(reach, "CHECK_SECONDS_MAX", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        if not is_silent:
            server.close()
        monkeypatch.setenv("HIPPOCAMPUS_GENERATOR", "openai:gpt-5.4-mini")
        monkeypatch.setenv("HIPPOCAMPUS_GENERATOR_BASE_URL", url)
        written = io.StringIO()
        async with in_background(demo._report_unreachable(load(), Console(file=written), repeat_seconds=0.01)):
            await until(lambda: written.getvalue().count("\n") >= 2)
    advice = f"check that the server is running and reachable at {url} (HIPPOCAMPUS_GENERATOR_BASE_URL)"
    lines = written.getvalue().splitlines()
    assert all(
        line.startswith("The generator openai:gpt-5.4-mini is not reached: ") and advice in line for line in lines
    )


def test_an_unreachable_server_is_named(home: Path) -> None:
    """With DATABASE_URL no embedded server is started, and the password is not printed."""
    done = cli_process.run(home, "demo", DATABASE_URL="postgresql://me:hush@127.0.0.1:1/none")
    assert done.returncode == 2
    assert "127.0.0.1:1/none can't be used" in done.stderr
    assert "hush" not in done.stdout + done.stderr
    assert not home.exists()


def test_leftover_processes_are_found(home: Path) -> None:
    """The search for leftover processes works."""
    with subprocess.Popen(["sleep", "30"], env={**os.environ, "HIPPOCAMPUS_HOME": str(home)}) as left:
        until_sync(lambda: cli_process.processes_of(home) != [])
        left.kill()
