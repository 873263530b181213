"""The command line's lists in pages, its nouns one by one, and watching in a terminal and in a pipe."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pulse import database
from pulse.runs.service import RunService
from tests.support import cli_process
from tests.support.cli_commands import Run, execute, pages
from tests.support.waiting import WAIT_SECONDS
from workers.cli.commands import jobs


def test_each_page_names_the_command_of_the_next(cli: Run, dsn: str) -> None:
    """Followed to the end, the pages of every list are the list, in its order, without duplicates."""
    for number in range(2):
        cli("instructions", "put", f"k{number}", "x", "--app", "default")
        cli("instructions", "put", "k0", f"y{number}", "--app", "default")
        cli("policies", "set", f"app{number}", "fast_events=7")
        cli("facts", "set-style", "preference", f"key {number}", "collection")
        cli("keys", "create", "--app", "default", "--role", "read")
        cli("webhooks", "add", f"https://example.org/{number}", "--app", "default")
        cli("forget", "memory", json.loads(cli("memories", "--json")[1])[0]["id"], "--yes")
    for words in (
        ("sessions",), ("users",), ("jobs",), ("memories",), ("facts",), ("facts", "styles"), ("keys",), ("policies",),
        ("webhooks",),
        ("instructions", "list", "--app", "default"), ("instructions", "history", "k0", "--app", "default"),
        ("forget", "list"),
    ):  # fmt: skip
        assert_paged(cli, *words)
    assert cli("policies", "set", "*", "cleanup_threshold=1", "min_age_days=0")[0] == 0
    assert cli("retention", "run")[0] == 0
    assert_paged(cli, "memory", "archived")


def assert_paged(run_: Run, *words: str) -> None:
    (whole,) = pages(run_, *words)
    size = max(len(whole) // 2, 1)
    parts = pages(run_, *words, "--limit", str(size))
    assert len(whole) >= (1 if words == ("users",) else 2), words
    # The last full page may be followed by an empty one.
    assert all(len(page) == size for page in parts[:-1]), words
    # The strength of a memory changes from page to page.
    moving = ("retention_score", "scored_at")
    listed = [{name: row[name] for name in row if name not in moving} for page in parts for row in page]
    assert listed == [{name: row[name] for name in row if name not in moving} for row in whole], words


def test_a_cursor_is_valid_for_its_own_list_only(cli: Run) -> None:
    cursor = cli("facts", "--limit", "1")[2].split()[-1]
    assert cli("facts", "--cursor", cursor)[0] == 0
    for words in (("memories",), ("facts", "--type", "profile")):
        code, _, err = cli(*words, "--cursor", cursor)
        assert (code, "it belongs to another list" in err) == (2, True), words
    code, _, err = cli("facts", "--cursor", cursor[:-4])
    assert (code, "Start again without a cursor" in err) == (2, True)
    code, out, err = cli("jobs", "--before", json.loads(cli("jobs", "--json")[1])[-1]["id"])
    assert (code, out) == (0, "")
    assert cli("memory", "remember", "He rows.", "--app", "default", "--user", "bob")[0] == 0
    code, _, err = cli("facts", "--app", "default", "--user", "bob", "--cursor", cursor)
    assert (code, "it belongs to another list" in err) == (2, True)


def test_every_noun_shows_a_single_object(cli: Run) -> None:
    memory = json.loads(cli("memories", "--type", "summary", "--json")[1])[0]
    shown = cli("memories", "show", memory["id"])[1]
    assert memory["content"].split("\n")[0] in shown
    assert "weak from 20" in shown
    assert "#1" in shown
    assert json.loads(cli("memories", "show", memory["id"], "--json")[1])["memory"]["id"] == memory["id"]
    assert cli("memories", "--since", "2101-01-01")[2].startswith("There are no memories yet")

    assert "sessions   2" in cli("users", "show", "ada")[1]
    assert json.loads(cli("users", "--json")[1])[0]["facts"] > 0
    assert cli("users", "show", "eve")[0] == 1

    cli("instructions", "put", "tone", "Be brief.", "--app", "default")
    assert "Be brief." in cli("instructions", "show", "tone", "--app", "default")[1]
    key = json.loads(cli("keys", "create", "--app", "default", "--role", "read", "--json")[1])
    assert json.loads(cli("keys", "show", key["id"], "--json")[1])["roles"] == ["read"]
    assert key["key"] not in cli("keys", "show", key["id"])[1]
    hook = json.loads(cli("webhooks", "add", "https://example.org/hook", "--app", "default", "--json")[1])
    assert json.loads(cli("webhooks", "show", hook["id"], "--json")[1])["url"] == "https://example.org/hook"
    assert hook["secret"] not in cli("webhooks", "show", hook["id"])[1] + cli("webhooks", "--json")[1]
    assert json.loads(cli("webhooks", "rotate", hook["id"], "--json")[1])["secret"] != hook["secret"]
    ping = json.loads(cli("webhooks", "ping", hook["id"], "--json")[1])["delivery_id"]
    (delivery,) = json.loads(cli("webhooks", "deliveries", hook["id"], "--json")[1])
    assert (delivery["id"], delivery["status"]) == (ping, "waiting")
    assert cli("webhooks", "replay", hook["id"], "--event", delivery["event_id"])[1] == "1 event is sent again.\n"
    for verb in ("disable", "enable", "remove"):
        assert cli("webhooks", verb, hook["id"])[0] == 0
    assert cli("webhooks", "show", hook["id"])[0] == 1

    cli("policies", "set", "default", "fast_events=7", "retention_curve=classic")
    policy = json.loads(cli("policies", "show", "default", "--json")[1])
    assert (policy["fast_events"], policy["retention_curve"]) == (7, "classic")
    assert json.loads(cli("policies", "show", "--json")[1])["app_name"] == "*"
    assert cli("policies", "reset", "default")[1] == "Reset.\n"
    assert cli("policies", "reset", "default")[1] == "It had no policy of its own.\n"


def test_a_key_of_facts_gets_a_style(cli: Run) -> None:
    made = json.loads(
        cli("facts", "set-style", "preference", "favourite food", "collection", "--app", "a", "--json")[1]
    )
    assert (made["app_name"], made["style"]) == ("a", "collection")
    assert made["normal_key"] in cli("facts", "styles", "--app", "a")[1]
    assert cli("facts", "styles", "--app", "default")[2].strip() == "Every key follows the program's own list."
    # In any spelling of the key.
    assert cli("facts", "reset-style", "preference", "Favorite_Food", "--app", "a")[1] == "Reset.\n"
    assert (
        cli("facts", "reset-style", "preference", "favourite food", "--app", "a")[1] == "It had no style of its own.\n"
    )


def test_a_session_is_finalized_enqueued_and_deleted(cli: Run, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        cli("sessions", "finalize", "ada-session-1")[2].strip().startswith("Everything in it is consolidated already")
    )
    assert cli("sessions", "show", "ada-session-1", "--events", "1")[2].strip().startswith("3 older events:  hippo")
    asyncio.run(execute(dsn, "UPDATE threads SET fast_upto_seq = 0, fast_queued_seq = 0"))
    job = json.loads(cli("jobs", "enqueue", "ada-session-1", "--type", "fast_replay", "--json")[1])
    assert (job["job_type"], job["status"]) == ("fast_replay", "pending")
    # Whoever waits is told why: soon, and at the first error.
    monkeypatch.setattr(jobs, "_SAID_AFTER_SECONDS", 0.0)
    waiting = ("jobs", "enqueue", "ada-session-1", "--type", "fast_replay", "--wait", "--timeout-seconds", "0.1")
    code, _, err = cli(*waiting)
    assert (code, err.count("No worker has taken the job yet"), "check that a worker runs" in err) == (1, 1, True)
    asyncio.run(
        execute(dsn, "UPDATE consolidation_jobs SET error = 'openai: the connection failed' WHERE error IS NULL")
    )
    monkeypatch.setattr(jobs, "_SAID_AFTER_SECONDS", 5.0)
    code, _, err = cli(*waiting)
    assert (code, err.count("The job is retried. openai: the connection failed: `hippocampus doctor`")) == (1, 1)
    assert "it stays enqueued; it failed last by openai: the connection failed" in err
    assert cli("sessions", "delete", "ada-session-1", "--yes")[1] == "Deleted.\n"
    assert [each["session"] for each in json.loads(cli("sessions", "--json")[1])] == ["ada-session-2"]
    assert cli("memories")[1]


def test_runs_are_listed_shown_and_requested_to_stop(cli: Run, dsn: str) -> None:
    asyncio.run(start_run(dsn))
    assert "run-1\trunning" in cli("runs", "list", "ada-session-1")[1]
    assert json.loads(cli("runs", "show", "run-1", "--json")[1])["cancel_requested_at"] is None
    assert json.loads(cli("runs", "cancel", "run-1", "--json")[1])["cancel_requested_at"]
    assert cli("runs", "list", "ada-session-2")[2].strip() == "No agent ran in this session."


async def start_run(address: str) -> None:
    async with await database.create_pool(address) as pool:
        service = RunService(pool)
        await service.start("default", "ada", "ada-session-1", "run-1")
        await service.close()


def test_status_is_one_screen_with_lag_spend_and_failures(cli: Run, dsn: str) -> None:
    """The backlog of consolidation, its cost, and the failures with their codes."""
    out = cli("status")[1]
    assert "lag       none: everything is consolidated" in out
    assert "failed    no job" in out
    assert "breaker   none is open" in out
    asyncio.run(execute(dsn, "UPDATE threads SET deep_upto_seq = 1, prompt_tokens = 1200, generate_calls = 3"))
    asyncio.run(execute(dsn, "UPDATE procrastinate_jobs SET status = 'failed'"))
    asyncio.run(execute(dsn, "UPDATE consolidation_jobs SET error_code = '503' WHERE job_type = 'fast_replay'"))
    out = cli("status")[1]
    assert "lag       deep_reflection has 3 events of 1 sessions to process, the oldest since" in out
    assert re.search(r"^failed    2 with 503, 2 with no code, the last [\d.]+ s ago", out, re.MULTILINE)
    assert re.search(r"^spend     6 generate and \d+ embed calls, 2,400 tokens in and", out, re.MULTILINE)
    assert out.count("\n") <= 23
    asyncio.run(execute(dsn, "UPDATE app_policies SET consolidate = false"))
    assert "lag       none" in cli("status")[1]


@contextlib.contextmanager
def in_terminal(home: Path, *words: str, **settings: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A command as a process in a terminal of 80 columns and 24 lines."""
    ours, theirs = pty.openpty()
    environment = cli_process.environment(home, COLUMNS="80", LINES="24", TERM="xterm-256color", **settings)
    process = subprocess.Popen(cli_process.command(*words), env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def read_until(terminal: int, enough: str, times: int) -> str:
    """Read a terminal until a text was written this many times."""
    said = ""
    deadline = time.monotonic() + cli_process.COMMAND_SECONDS
    while said.count(enough) < times:
        assert time.monotonic() < deadline, said
        said += os.read(terminal, 65536).decode(errors="replace")
    return said


def test_a_terminal_is_redrawn_and_a_pipe_gets_block_after_block(cli: Run, dsn: str, home: Path) -> None:
    """Ctrl-C ends both normally, with exit code 0; NO_COLOR and pipes have no colour."""
    with in_terminal(home, "status", "--watch", "--every", "0.1", DATABASE_URL=dsn, NO_COLOR="1") as (process, screen):
        said = read_until(screen, "missing", 3)
        process.send_signal(signal.SIGINT)
        said += read_until(screen, "\x1b[?1049l", 1)
        assert process.wait(timeout=WAIT_SECONDS) == 0
    assert said.count("\x1b[?1049h") == 1  # on the alternate screen, so that nothing scrolls
    assert "\x1b[H" in said
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", said)
    assert "Traceback" not in said
    watched = ("jobs", "--watch", "--every", "0.1")
    with (
        cli_process.Running(home, *watched, DATABASE_URL=dsn) as piped,
        cli_process.Running(home, *watched, "--json", DATABASE_URL=dsn) as documents,
    ):
        listed = json.loads(cli("jobs", "--json")[1])
        for _ in range(2):
            piped.read_until("job\ttype\tstatus")
        for _ in range(len(listed) + 1):  # into the second document
            documents.read_until('"raw_reply"')
        for each in (piped, documents):
            each.process.send_signal(signal.SIGINT)
        ends = [each.end() for each in (piped, documents)]
    assert [(code, "\x1b" in out) for code, out in ends] == [(0, False)] * 2
    assert json.JSONDecoder().raw_decode("".join(documents.lines))[0] == listed
