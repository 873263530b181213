"""The appearance of the command line: tables, wrapped text, ages, colours, and shell completion."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from click.shell_completion import get_completion_class
from rich.cells import cell_len
from rich.console import Console

from tests.support import cli_process
from tests.support.cli_commands import Run
from workers.cli import main, output, page


def test_people_get_tables_and_no_color_is_honoured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    output.write_table(("key", "fact"), [("a", "[bold]likes[/] 茶"), ("b", "x")], empty="")
    coloured = capsys.readouterr().out
    assert "[bold]likes[/] 茶" in coloured
    assert "\x1b[1m" in coloured
    monkeypatch.setenv("NO_COLOR", "1")
    output.write_table(("key", "fact"), [("a", "x")], empty="")
    assert "\x1b[3" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "cells", "lines"),
    [
        ("one two three", 7, ["one two", "three"]),
        ("我住在泉州，喜欢茶。", 8, ["我住在泉", "州，喜欢", "茶。"]),
        ("see http://127.0.0.1:8000/docs now", 10, ["see", "http://127.0.0.1:8000/docs", "now"]),
        ("", 10, [""]),
    ],
)
def test_lines_break_at_blanks_and_between_chinese_characters(text: str, cells: int, lines: list[str]) -> None:
    assert list(page.wrap(text, cells)) == lines


def test_a_hit_is_shown_around_its_match() -> None:
    text = "first line\nthe second says tea\nthe third"
    assert page.passage(text, ("tea",), 100) == "… the second says tea the third"
    assert page.passage(text, ("none",), 12) == "first line…"
    assert page.clip("茶茶茶茶", 5) == "茶茶…"


@pytest.mark.parametrize(
    ("seconds", "shown"), [(None, ""), (0.04, "0.0 s"), (75, "75 s"), (600, "10 min"), (7300, "2 h"), (900000, "10 d")]
)
def test_ages_are_shown_in_their_largest_unit(seconds: float | None, shown: str) -> None:
    assert output.show_age(seconds) == shown


@pytest.fixture
def terminal(cli: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The same command line in a terminal of 60 columns, without colours."""
    screen = Console(width=60, force_terminal=True, no_color=True, highlight=False, file=None)
    monkeypatch.setattr(output, "console", lambda: screen)
    return cli


@pytest.mark.parametrize(
    "words",
    [("facts",), ("search", "peanuts"), ("memories",), ("sessions",), ("jobs",), ("status",), ("users",), ("policies",),
     ("users", "show", "ada"), ("policies", "show"),
     ("retention", "dry-run", "--threshold", "0.6", "--min-age-days", "0"), ("sessions", "show", "ada-session-1")],
    ids=" ".join,
)  # fmt: skip
def test_in_a_terminal_no_line_is_wider_than_it(terminal: Run, words: tuple[str, ...]) -> None:
    code, out, _ = terminal(*words)
    assert code == 0
    lines = re.sub(r"\x1b\[[0-9;]*m", "", out).splitlines()
    assert len(lines) > 2
    assert max(cell_len(line.rstrip()) for line in lines) <= 60


def test_in_a_terminal_a_jobs_id_is_complete(terminal: Run) -> None:
    """So that it can be copied."""
    shown = terminal("jobs")[1]
    for job in json.loads(terminal("jobs", "--json")[1]):
        assert job["id"] in shown


def test_a_shell_completes_a_started_word(tmp_path: Path) -> None:
    """The requests of the printed script to the program when the user presses Tab."""
    script = cli_process.run(tmp_path, "completion", "bash")
    assert "_HIPPOCAMPUS_COMPLETE=bash_complete" in script.stdout
    asked = {"_HIPPOCAMPUS_COMPLETE": "bash_complete", "COMP_WORDS": "hippocampus jo", "COMP_CWORD": "1"}
    assert cli_process.run(tmp_path, **asked).stdout.splitlines() == ["plain,jobs"]


@pytest.mark.parametrize(
    ("words", "begun", "expected"),
    [
        ([], "ses", "sessions"),
        (["jobs"], "li", "list"),
        (["jobs"], "--fa", "--failed"),  # the noun alone lists
        (["jobs", "list"], "--wa", "--watch"),
        (["jobs", "--status"], "pe", "pending"),
        (["facts", "set-style"], "pref", "preference"),
        (["ingest"], "--dr", "--dry-run"),
    ],
)
def test_commands_options_and_values_are_completed(words: list[str], begun: str, expected: str) -> None:
    completion = get_completion_class("bash")
    assert completion is not None
    found = completion(main.root, {}, "hippocampus", "X").get_completions(words, begun)
    assert [item.value for item in found] == [expected]
