"""The stumbles of a new user: Ctrl-C at once, a mistyped app, data below another folder."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import click
import pytest

from tests.conftest import copied
from tests.support import cli_process
from tests.support.cli_commands import Run, execute
from tests.support.paths import ROOT
from workers import migrate
from workers.cli import databases, main
from workers.embedded import binaries, folders
from workers.settings import Settings

#: Sends Ctrl-C when a module is imported: in the middle of what imports it.
INTERRUPT = """
import builtins, os, signal
imported = builtins.__import__
def with_interrupt(name, globals=None, locals=None, fromlist=(), level=0):
    importer = (globals or {}).get("__name__", "")
    if name == os.environ["INTERRUPTED_AT"] and importer.startswith(("workers", "pulse")):
        os.kill(os.getpid(), signal.SIGINT)
    return imported(name, globals, locals, fromlist, level)
builtins.__import__ = with_interrupt
"""


@pytest.mark.parametrize("module", ["workers.cli.exit_codes", "click", "workers.settings", "asyncpg"])
def test_ctrl_c_while_the_program_is_imported_ends_it_quietly(module: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPT)
    settings = cli_process.environment(tmp_path / "home", INTERRUPTED_AT=module)
    done = subprocess.run(
        cli_process.command("status"),
        env={**settings, "PYTHONPATH": f"{tmp_path}:{settings['PYTHONPATH']}"},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "hippocampus: interrupted\n")


def test_ctrl_c_as_the_keeper_of_the_server_is_started_leaves_neither_behind(made_home: Path, tmp_path: Path) -> None:
    """The process is made, and the program does not know it yet: it would keep the server for seconds."""
    program = """
import signal, subprocess, sys
from pathlib import Path
from workers.cli import databases
from workers.embedded import keeper
from workers.settings import load

class Interrupted(subprocess.Popen):
    def __init__(self, command, **options):
        super().__init__(command, **options)
        if keeper.__name__ in command:
            signal.raise_signal(signal.SIGINT)

keeper.subprocess.Popen = Interrupted
try:
    with databases.opened(load(), keep_seconds=5.0):
        print("running")
except KeyboardInterrupt:
    print("stopped")
"""
    said = tmp_path / "said"
    # Not a pipe, whose end a keeper that is left behind would hold.
    with said.open("w") as file:
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=cli_process.environment(made_home),
            stdout=file,
            stderr=file,
            check=False,
            timeout=cli_process.COMMAND_SECONDS,
        )
    assert cli_process.processes_of(made_home) == []
    assert (done.returncode, said.read_text()) == (0, "stopped\n")


def test_nothing_is_imported_before_ctrl_c_ends_it_quietly() -> None:
    """Until then, an interrupt is Python's traceback: no module may be loaded that Python has not loaded itself."""
    script = "import sys; known = set(sys.modules); import workers.__main__; print(*sorted(set(sys.modules) - known))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["workers", "workers.__main__"]


def test_an_error_that_was_an_interrupt_is_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a class whose creation was interrupted: RuntimeError, with the interrupt as its cause."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("Error calling __set_name__") from KeyboardInterrupt()

    monkeypatch.setattr(main.root, "main", fail)
    assert run("status") == (130, "", "hippocampus: interrupted\n")


def test_an_unknown_app_is_an_error_with_the_nearest_names(cli: Run, dsn: str) -> None:
    of_users = (("sessions",), ("memories",), ("facts",), ("search", "tea"))
    of_apps = (
        ("users",), ("jobs",), ("export",), ("audit", "export"), ("facts", "styles"), *((each, "list") for each in (
            "keys", "webhooks", "tools", "instructions", "knowledge", "audit",
        )),
    )  # fmt: skip
    for words in (*of_users, *of_apps):
        user = ("--user", "ada") if words in of_users else ()
        code, out, err = cli(*words, *user, "--app", "defalt")
        assert (code, out) == (1, ""), words
        assert "There is no app 'defalt': there is default." in err
        assert cli(*words, *user, "--app", "default")[0] == 0, words
    # What is written for the first time needs no app before.
    assert cli("memory", "remember", "She rows.", "--app", "new", "--user", "eve")[0] == 0
    assert [row["user"] for row in json.loads(cli("users", "--app", "new", "--json")[1])] == ["eve"]
    assert cli("memories", "--app", "new")[0] == 0
    assert cli("keys", "create", "--app", "later", "--role", "read")[0] == 0
    assert "later" in cli("keys", "list", "--app", "later")[1]
    for words in (("audit", "list"), ("audit", "export"), ("facts", "styles")):
        assert cli(*words, "--app", "later")[0] == 0, words


def test_an_app_that_is_only_in_the_audit_log_has_its_entries_shown(cli: Run, dsn: str) -> None:
    """All else of it is gone; a name that is not there either is unknown."""
    gone = "INSERT INTO app_policies (app_name) VALUES ('gone'); DELETE FROM app_policies WHERE app_name = 'gone'"
    asyncio.run(execute(dsn, gone))
    assert cli("users", "--app", "gone")[0] == 1
    assert [act["app_name"] for act in json.loads(cli("audit", "list", "--app", "gone", "--json")[1])] == ["gone"] * 2
    assert cli("audit", "export", "--app", "gone")[1].count('"app_name": "gone"') == 2
    for verb in ("list", "export"):
        assert "There is no app 'gome': there is default." in cli("audit", verb, "--app", "gome")[2]


def test_a_command_that_takes_any_app_is_one_that_stores_or_names_a_single_thing() -> None:
    """All others have the name checked, so that a mistyped one is not an empty list."""
    unchecked = []

    def walk(command: click.Command, words: tuple[str, ...] = ()) -> None:
        if isinstance(command, click.Group):
            for name in command.list_commands(click.Context(command)):
                if (found := command.get_command(click.Context(command), name)) is not None:
                    walk(found, (*words, name))
        elif any("--app" in each.opts and each.callback is None for each in command.params):
            unchecked.append(" ".join(words))

    walk(main.root)
    assert sorted(unchecked) == [
        "facts remember", "facts reset-style", "facts set-style", "forget show", "grant-roles", "import", "ingest",
        "instructions put", "keys create", "knowledge add", "mcp", "memory import", "memory remember", "tools add",
        "tools confirm", "webhooks add",
    ]  # fmt: skip


def test_an_unknown_user_is_an_error(cli: Run) -> None:
    """A user is unknown if no table has anything; one with only a state, or one who was erased, is known."""
    memory = str(uuid4())
    for words in (
        ("memories",),
        ("facts",),
        ("sessions",),
        ("profile",),
        ("search", "tea"),
        ("recall", "tea"),
        ("context", "tea"),
        ("jobs",),
        ("traces",),
        ("export",),
        ("forget", "user", "--yes"),
        ("memory", "pin", memory),
        ("retention", "compare", "--preset", "sensitive"),
    ):
        code, out, err = cli(*words, "--app", "default", "--user", "nosuch")
        assert (code, out) == (1, ""), words
        assert "There is no user 'nosuch' in default: `hippocampus users --app default` lists them." in err
    assert "no user 'nosuch'" in cli("profile", "nosuch", "--app", "default")[2]
    assert cli("memory", "remember", "She rows.", "--app", "default", "--user", "eve")[0] == 0
    assert cli("memories", "--app", "default", "--user", "eve")[0] == 0
    assert cli("forget", "user", "--app", "default", "--user", "eve", "--yes")[0] == 0
    assert cli("forget", "user", "--app", "default", "--user", "eve", "--yes")[0] == 0


def test_a_user_with_a_state_alone_is_known(dsn: str, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    asyncio.run(execute(dsn, "INSERT INTO user_states (app_name, user_id, state) VALUES ('shop', 'ann', '{\"a\": 1}')"))
    asyncio.run(execute(dsn, "INSERT INTO app_policies (app_name) VALUES ('shop')"))
    monkeypatch.setenv("DATABASE_URL", dsn)
    assert run("forget", "user", "--dry-run", "--app", "shop", "--user", "ben")[0] == 1
    assert "user_states" in run("forget", "user", "--dry-run", "--app", "shop", "--user", "ann")[1]


def test_the_data_of_make_run_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout's own folder is found where the Makefile puts it, and only if it is another one."""
    checkout = tmp_path / "checkout"
    (checkout / "workers").mkdir(parents=True)
    (checkout / "Makefile").touch()
    monkeypatch.setattr(migrate, "__file__", str(checkout / "workers" / "migrate" / "__init__.py"))
    home = checkout / ".home"
    config = Settings(home=tmp_path / "other")

    def refused() -> str:
        with pytest.raises(ValueError, match="There is no data") as caught, databases.opened(config):
            pass
        return str(caught.value)

    assert "set HIPPOCAMPUS_HOME to where it is" in refused()
    databases.EmbeddedServer(home).data.mkdir(parents=True)
    assert f"`export HIPPOCAMPUS_HOME={home}`" in refused()


def test_users_after_make_run_says_where_its_data_is(made: Path, tmp_path: Path) -> None:
    """In a checkout of its own, by the command line: the folder that its Makefile takes, which is named for root by the
    checkout's path. What the message says to do works."""
    checkout = tmp_path / "checkout"
    for package in ("pulse", "hippocampus", "workers", "schema"):
        shutil.copytree(ROOT / package, checkout / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "Makefile", checkout)
    environment = {name: value for name, value in os.environ.items() if name != "HIPPOCAMPUS_HOME"}
    printing = ["make", "--silent", "--no-print-directory", "--eval", "its-home: ; @echo '$(HIPPOCAMPUS_HOME)'"]
    asked = subprocess.run(
        [*printing, "its-home"], cwd=checkout, env=environment, capture_output=True, text=True, check=True
    )
    home = Path(asked.stdout.strip())
    assert home.is_relative_to("/var/lib/hippocampus" if os.geteuid() == 0 else checkout)

    def program(home: Path, *words: str) -> tuple[int, str, str]:
        done = cli_process.run(home, *words, cwd=checkout, PYTHONPATH=str(checkout))
        return done.returncode, done.stdout, done.stderr

    other = tmp_path / "other"
    code, out, err = program(other, "users")
    assert (code, out) == (2, "")
    assert f"There is no data below {other} yet: run `hippocampus demo` or `hippocampus up` first" in err
    is_new = not home.parent.exists()
    folders.make_folders(home.parent, 0o711)
    try:
        copied(made, home)
        assert program(home, "memory", "remember", "She rows.", "--app", "shop", "--user", "eve")[0] == 0
        code, out, err = program(other, "users")
        assert (code, out) == (2, "")
        (named,) = re.findall(r"`export HIPPOCAMPUS_HOME=(.*)`", err)
        code, out, err = program(Path(named), "users", "--json")
        assert code == 0, err
        assert [(each["app"], each["user"]) for each in json.loads(out)] == [("shop", "eve")]
    finally:
        shutil.rmtree(home, ignore_errors=True)
        if is_new and home.parent != checkout:
            home.parent.rmdir()


def test_without_the_embedded_server_the_error_names_no_command_that_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binaries, "PACKAGE", "not_installed_here")
    with pytest.raises(ValueError, match="set DATABASE_URL") as caught, databases.opened(Settings(home=tmp_path)):
        pass
    assert "pip install" in str(caught.value)
    assert "hippocampus" not in str(caught.value).replace(str(ROOT), "").replace("pg-hippocampus", "")


def test_another_programs_file_is_imported_with_a_count(
    run: Run, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`import` takes what `ingest` takes; both say what came, and what was left out and why."""
    monkeypatch.setenv("DATABASE_URL", dsn)
    monkeypatch.chdir(tmp_path)
    chat = tmp_path / "chat.txt"
    chat.write_text("5/8/24, 12:56 - Messages are encrypted.\n5/8/24, 12:57 - Ann: Hi\n")
    code, _, err = run("import", str(chat), "--app", "phone")
    assert (code, "--day-first or --month-first" in err) == (1, True)
    code, out, err = run("import", str(chat), "--app", "phone", "--month-first", "--user", "ann")
    assert code == 0, err
    assert "Appended 1 event to 1 session." in out
    assert "Left out: 1 lines of WhatsApp itself." in out
    memories = tmp_path / "memories.json"
    results = [{"id": "1", "memory": "Rows", "user_id": "eve"}, {"id": "2", "memory": ""}]
    memories.write_text(json.dumps({"results": results}))
    code, out, err = run("ingest", str(memories), "--app", "phone", "--format", "mem0")
    assert (code, "Stored 1 memory." in out, "memory 2: " in err) == (1, True, True)
    shown = json.loads(run("users", "--app", "phone", "--json")[1])
    assert [(row["user"], row["sessions"], row["memories"]) for row in shown] == [("ann", 1, 0), ("eve", 0, 1)]
    assert run("memories", "--user", "eve")[0] == 0
    assert "There is no app" in run("users", "--app", "fone")[2]
