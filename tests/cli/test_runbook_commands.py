"""The commands of RUNBOOK.md, run on a real database as they are written there."""

from __future__ import annotations

import json
import re
import shlex
import string

import psycopg

from tests.support.cli_commands import Run
from tests.support.paths import ROOT

TEXT = (ROOT / "RUNBOOK.md").read_text(encoding="utf-8")
IN_BLOCKS = re.findall(r"^hippocampus [^\n]*$", TEXT, re.MULTILINE)
IN_SENTENCES = re.findall(r"`(hippocampus [^`]*)`", TEXT)
#: It runs until it is stopped.
ENDLESS = "hippocampus up"


def test_every_command_of_the_runbook_does_what_it_says(cli: Run) -> None:
    """With the ids of a real job, key and endpoint none refuses what it is given; one that asks is told yes."""
    (job, *_), (session, *_) = (json.loads(cli(*words, "--json")[1]) for words in (("jobs",), ("sessions",)))
    app, owner = session["app"], session["user"]
    key = json.loads(cli("keys", "create", "--app", app, "--role", "read", "--name", "n", "--json")[1])["id"]
    endpoint = json.loads(cli("webhooks", "add", "https://example.org/hook", "--app", app, "--json")[1])["id"]
    values = {
        "JOB": job["id"],
        "SESSION": session["session"],
        "APP": app,
        "OWNER": owner,
        "KEY": key,
        "ENDPOINT": endpoint,
        "SINCE": "2026-05-01T12:00:00Z",
    }
    # What erases comes last.
    lines = sorted({*IN_BLOCKS, *IN_SENTENCES} - {ENDLESS}, key=lambda line: (" forget " in line, line))
    assert len(lines) > 20
    for line in lines:
        _, *words = shlex.split(string.Template(line).substitute(values))
        more = ["--yes"] if words[:2] == ["forget", "session"] else []
        code, _, errors = cli(*words, *more)
        # The roles do not run here, which doctor may report.
        assert code == 0 or (words == ["doctor"] and code == 1), f"{line}: {errors}"


def test_every_statement_of_the_runbook_runs(dsn: str) -> None:
    """Those that are passed to psql."""
    statements = re.findall(r'^psql "\$DATABASE_URL" --command="(.*)"$', TEXT, re.MULTILINE)
    assert len(statements) > 4
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            assert connection.execute(statement).description is not None
