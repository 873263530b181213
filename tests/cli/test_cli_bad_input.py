"""Bad input to every command: the exit code, one sentence of error, nothing changed.

The cases are generated from the declared parameters of each command, so that a new command is covered at once.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import click
import psycopg
import pytest

from tests.conftest import cloned, dsn_of
from tests.support.waiting import until_sync
from workers.cli import main
from workers.cli.commands.facts import MOMENT
from workers.embedded.server import EmbeddedServer

Words = tuple[str, ...]

pytestmark = pytest.mark.usefixtures("_own_logging")

LONG = "x" * 10_000
NUL = "a\0b"
#: What Python makes of an argument that is not valid UTF-8.
NOT_UTF8 = "caf\udce9"
#: They run until stopped, or stop others: only refusals before they start are tested here.
ROLES = {("demo",), ("up",), ("down",), ("writer",), ("worker",), ("pulse", "start"), ("pulse", "daemon", "start"),
         ("pulse", "dev")}  # fmt: skip
#: They need no database, or report its problems themselves.
WITHOUT_A_DATABASE = ROLES | {("completion",), ("doctor",)}
#: They migrate an empty database to this program's schema.
MIGRATING = {("ingest",), ("import",), ("import-adk",), ("migrate",)}
#: Arguments that name something missing, other than the ids made here.
UNKNOWN: dict[Words, Words] = {
    ("import-adk",): ("sqlite+aiosqlite:////nowhere/at/all.db",),
    ("memories", "list"): ("--session", "nowhere"),
    ("memory", "from-event"): ("nowhere", "1"),
    ("memory", "restore"): (str(uuid4()),),
    ("facts", "show"): ("nothing",),
    ("instructions", "show"): ("nothing", "--app", "a"),
    ("instructions", "history"): ("nothing", "--app", "a"),
    ("instructions", "rollback"): ("nothing", "1", "--app", "a"),
    ("replay",): ("nowhere",),
    ("users", "show"): ("nobody",),
    ("sessions", "list"): ("--user", "nobody"),
    ("sessions", "show"): ("nowhere",),
    ("sessions", "finalize"): ("nowhere",),
    ("sessions", "delete"): ("nowhere", "--yes"),
    ("runs", "list"): ("nowhere",),
    ("runs", "show"): ("nothing",),
    ("runs", "cancel"): ("nothing",),
    ("jobs", "list"): ("--session", "nowhere"),
    ("jobs", "enqueue"): ("nowhere",),
    ("jobs", "retry"): (str(uuid4()),),
    ("jobs", "cancel"): (str(uuid4()),),
    ("policies", "set"): ("shop", "fast_evnets=3"),
    ("retention", "compare"): ("--app", "a", "--decay-rate", "-1"),
    ("search",): ("tea", "--session", "nowhere"),
    ("context",): ("tea", "--session", "nowhere"),
    ("export",): ("--session", "nowhere"),
    ("forget", "session"): ("nowhere", "--yes"),
    ("forget", "events"): ("nowhere", "1", "--yes"),
    ("keys", "show"): ("nothing",),
    ("keys", "revoke"): ("nothing",),
    ("knowledge", "list"): ("nothing", "--app", "a"),
    ("knowledge", "add"): ("book", "/nowhere/at/all.md", "--app", "a"),
    ("knowledge", "search"): ("tea", "--app", "a", "--corpus", "nothing"),
    ("knowledge", "show"): (str(uuid4()), "--app", "a"),
    ("knowledge", "remove"): ("nothing", "nothing.md", "--app", "a"),
    ("webhooks", "add"): ("nothing", "--app", "a"),
    ("webhooks", "replay"): (str(uuid4()), "--event", str(uuid4())),
}


@dataclass
class Scene:
    """A database with one user's session, and files that are malformed in every way."""

    dsn: str
    folder: Path
    good_file: Path
    bad_files: list[Path]
    reader: psycopg.Connection
    held: dict[str, object]


def leaves(command: click.Command = main.root, words: Words = ()) -> Iterator[tuple[Words, click.Command]]:
    if not isinstance(command, click.Group):
        yield words, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from leaves(inner, (*words, name))


LEAVES = dict(leaves())


@pytest.fixture(scope="module")
def scene(
    server: EmbeddedServer, admin: psycopg.Connection, template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("bad")
    good = folder / "good.txt"
    good.write_text("Ada: I live in Oslo.\nBob: Noted.\n", encoding="utf-8")
    bad = {
        "empty": b"",
        "binary": bytes(range(256)) * 20,
        "cut.gz": gzip.compress(json.dumps({"messages": ["x" * 5000]}).encode())[:40],
        "utf16.txt": "Ada: hello\n".encode("utf-16"),
        "no.json": b'{"messages": [',
    }
    for name, content in bad.items():
        (folder / name).write_bytes(content)
    with cloned(admin, template) as name:
        dsn = dsn_of(server, name)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DATABASE_URL", dsn)
            assert main.run(("ingest", str(good), "--app", "a", "--user", "ada")) == 0
        with psycopg.connect(dsn, autocommit=True) as reader:
            yield Scene(dsn, folder, good, [folder / name for name in (*bad, "missing")], reader, fingerprint(reader))


@pytest.fixture
def here(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """The scene, whose contents must not change."""
    monkeypatch.setenv("DATABASE_URL", scene.dsn)
    monkeypatch.chdir(scene.folder)
    before = last_transaction(scene.reader)
    yield scene
    if last_transaction(scene.reader) != before:
        held, scene.held = scene.held, fingerprint(scene.reader)
        assert scene.held == held


def value_of(param: click.Parameter, scene: Scene) -> str:
    """A valid value for the parameter that names something missing."""
    match param.type:
        case click.Path():
            return str(scene.good_file)
        case click.Choice() as choice:
            return str(choice.choices[0])
        case click.IntRange() | click.FloatRange():
            return "1"
        case _ if param.type is click.UUID:
            return str(uuid4())
    return "nothing"


def wrong_values(param: click.Parameter, scene: Scene) -> list[str]:
    """Values that the parameter must reject."""
    match param.type:
        case click.Path(exists=True):
            return [str(path) for path in scene.bad_files]
        case click.Path():
            return [str(scene.folder), str(scene.folder / "no" / "such")]
        case click.Choice():
            return ["nonsense", "", LONG, NUL]
        case click.IntRange():
            return ["-1", "1.5", "many", "9" * 40, NUL]
        case click.FloatRange() | click.types.FloatParamType():
            return ["-1", "many", "nan", NUL]
        case _ if param.type is click.UUID:
            return ["not-an-id", LONG, NUL, "' OR 1=1 --"]
        case _ if param.type is MOMENT:
            return ["yesterday", "31/31/2024", "2024-02-30", NUL]
    return [NUL, LONG, NOT_UTF8]


def spelled(words: Words, values: dict[str, list[str]], command: click.Command) -> list[str]:
    """The command line that passes these values to these parameters."""
    line = list(words)
    for param in command.params:
        for value in values.get(str(param.name), ()):
            line += [param.opts[-1], value] if isinstance(param, click.Option) else []
    line += ["--yes"] if any(param.name == "yes" for param in command.params) else []
    rest = [value for param in command.params if isinstance(param, click.Argument)
            for value in values.get(str(param.name), ())]  # fmt: skip
    return [*line, "--", *rest] if rest else line


def takes_an_id(words: Words) -> bool:
    return any(param.type is click.UUID and param.required for param in LEAVES[words].params)


def unknown(words: Words, scene: Scene) -> list[str]:
    """The command line that names something missing."""
    command = LEAVES[words]
    return [*words, *UNKNOWN[words]] if words in UNKNOWN else spelled(words, base_of(command, scene), command)


def base_of(command: click.Command, scene: Scene) -> dict[str, list[str]]:
    return {str(each.name): [value_of(each, scene)] for each in command.params if each.required}


def last_transaction(connection: psycopg.Connection) -> int:
    """The number of the last transaction on this server that could write: one that only reads gets none."""
    (number,) = connection.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint").fetchone() or (0,)
    return int(number)


def fingerprint(connection: psycopg.Connection) -> dict[str, object]:
    """The contents of every table but those that record attempts."""
    names = connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"
        " AND relname NOT IN ('audit_log', 'tool_executions') ORDER BY 1"
    )
    each = "SELECT '{0}', md5(coalesce(string_agg(t::text, '' ORDER BY t::text), '')) FROM {0} AS t"
    # Planned once on each connection.
    return dict(connection.execute(" UNION ALL ".join(each.format(name) for (name,) in names), prepare=True).fetchall())


def complaint(capsys: pytest.CaptureFixture[str], line: list[str], code: int) -> str:
    """Return the output on standard error, which is one sentence if the command failed."""
    err = capsys.readouterr().err
    shown = [word[:60] for word in line]
    assert "Traceback" not in err, shown
    if code:
        errors = [each for each in err.splitlines() if each.startswith("hippocampus: ")]
        # In addition, an import names the invalid lines.
        others = [each for each in err.splitlines() if each not in errors and not each.startswith("  line ")]
        assert (len(errors), others) == (1, []), (shown, err)
        assert len(err) < 3000, shown
    return err


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_bad_values_are_refused_and_change_nothing(
    words: Words, here: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each parameter in turn: malformed ids, negative and huge numbers, NUL, invalid UTF-8, 10,000 characters, bad
    files."""
    command = LEAVES[words]
    lines = [[*words, "--no-such-option"]]
    for param in command.params:
        wrong = [] if isinstance(param, click.Option) and param.is_flag else wrong_values(param, here)
        if words in ROLES and param.type is click.STRING:
            wrong = [NUL]
        if (words, param.name) == (("instructions", "put"), "content") or (
            words[-1] == "remember" and param.type is click.STRING
        ):
            wrong = [NUL, NOT_UTF8]  # it may be long
        for value in wrong:
            lines.append(spelled(words, {**base_of(command, here), str(param.name): [value]}, command))
    for line in lines:
        code = main.run(line)
        assert code in (1, 2) or LONG in line, line
        if {NUL, NOT_UTF8, "--no-such-option"} & set(line):
            assert code == 2, line
        complaint(capsys, line, code)


@pytest.mark.parametrize("words", [each for each in LEAVES if each in UNKNOWN or takes_an_id(each)], ids=" ".join)
def test_missing_objects_are_reported_and_change_nothing(
    words: Words, here: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unknown ids, sessions, users and keys: exit code 1, one sentence."""
    line = unknown(words, here)
    code = main.run(line)
    assert (code, bool(complaint(capsys, line, code))) == (1, True), line


def test_an_unusable_database_is_reported_by_every_command(
    here: Scene,
    server: EmbeddedServer,
    admin: psycopg.Connection,
    template: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No server, a wrong password, no such database, no schema, a newer schema: exit code 2 and the fix.

    Every command meets one of the servers that refuse it, and one of the schemas that do not fit, in turn.
    """
    password = (server.home / f"password-{18 if (server.home / 'password-18').exists() else 16}").read_text()
    with cloned(admin, "template1") as empty, cloned(admin, template) as newer:
        with psycopg.connect(dsn_of(server, newer), autocommit=True) as connection:
            connection.execute(
                "INSERT INTO hippocampus_migrations (name, sha256, program, contract)"
                " VALUES ('9999_later.sql', 'x', '999.0', 1000)"
            )
        wrong = {
            "postgresql://nobody@127.0.0.1:9/none": "can't be used",
            here.dsn.replace(password, "wrong-one"): "password authentication failed",
            dsn_of(server, empty): "hippocampus migrate",
            dsn_of(server, newer): "9999_later.sql",
        }
        with psycopg.connect(dsn_of(server, newer), autocommit=True) as reader:
            before = fingerprint(reader)
        for place, (dsn, fix) in enumerate(wrong.items()):
            monkeypatch.setenv("DATABASE_URL", dsn)
            for number, words in enumerate(LEAVES):
                is_left_to_the_other = number % 2 != place % 2 and words not in MIGRATING
                if is_left_to_the_other:
                    continue
                # A move needs two databases: see tests/workers/test_moves.py.
                skipped = words in WITHOUT_A_DATABASE or words == ("move",)
                if skipped or (words in MIGRATING and dsn == dsn_of(server, empty)):
                    continue
                line = unknown(words, here)
                line += {("keys", "create"): ["--every-app"], ("mcp",): ["--app", "a", "--user", "u"]}.get(words, [])
                code = main.run(line)
                said = complaint(capsys, line, code)
                assert (code, fix in said) == (2, True), (line, said)
        with psycopg.connect(dsn_of(server, newer), autocommit=True) as reader:
            assert fingerprint(reader) == before
        # The rest is handled for all commands in one place.
        for dsn, fix in ((dsn_of(server, "no-such-one"), "does not exist"), ("nonsense", "DATABASE_URL is wrong")):
            monkeypatch.setenv("DATABASE_URL", dsn)
            assert (main.run(("status",)), fix in complaint(capsys, ["status"], 2)) == (2, True)
        monkeypatch.setenv("DATABASE_URL", dsn_of(server, newer))
        assert main.run(("doctor",)) == 1


def test_a_user_without_rights_is_pointed_to_the_grant(
    here: Scene, admin: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    admin.execute("CREATE ROLE poor LOGIN PASSWORD 'poor'")
    try:
        parts = urlsplit(here.dsn)
        monkeypatch.setenv(
            "DATABASE_URL", parts._replace(netloc=f"poor:poor@{parts.netloc.rpartition('@')[2]}").geturl()
        )
        assert main.run(("sessions",)) == 2
        assert "permission denied" in (said := complaint(capsys, ["sessions"], 2))
        assert "`hippocampus doctor`" in said
    finally:
        admin.execute("DROP ROLE poor")


def test_a_server_that_disconnects_in_the_middle_is_reported(here: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, one sentence."""
    waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    with psycopg.connect(here.dsn) as holder, psycopg.connect(here.dsn, autocommit=True) as other:
        holder.execute("LOCK TABLE threads")
        with ThreadPoolExecutor(1) as thread:
            running = thread.submit(main.run, ("sessions",))
            until_sync(lambda: other.execute(waiting).fetchone() is not None)
            other.execute(f"SELECT pg_terminate_backend(pid) FROM ({waiting}) AS w")
            assert running.result(timeout=60) == 1
    assert "check that PostgreSQL runs" in complaint(capsys, ["sessions"], 1)
