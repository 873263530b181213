"""Backups are taken under load and restored by the commands of docs/deploying.md, and compared event by event."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlsplit

import psycopg
import pytest

from pulse import Event, OpenSessionService, create_pool
from pulse.database import connect
from tests.support import cli_process
from tests.support.paths import ROOT
from tests.support.waiting import until
from tests.support.writer_process import free_port
from workers.embedded import binaries
from workers.embedded.server import EmbeddedServer
from workers.migrate import check_schema, migrate

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

SESSIONS = 4
OWNED = OWNER = "shop_owner"
READER = "shop reader"
BACKUP = "hippocampus_backup"
PROCESSES = {"shop_writer": "hippocampus_writer", "shop_worker": "hippocampus_worker"}
SETTINGS = {"max_connections": "60", "shared_buffers": "64MB", "max_wal_size": "256MB"}


class Stored(NamedTuple):
    """An acknowledged event."""

    session: str
    number: int
    id: str
    text: str


def blocks(language: str) -> list[str]:
    """The blocks of the page's section on backups."""
    text = (ROOT / "docs" / "deploying.md").read_text().partition("## Backup and restore")[2].partition("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


class Shell:
    """Runs a page's commands as the server's user, with PostgreSQL's programs in the path."""

    def __init__(self, home: Path, **variables: str) -> None:
        self.user = binaries.find_server_user()
        self._programs = binaries.find_programs(18, self.user, home)
        self.variables = variables

    def run(self, script: str) -> str:
        done = subprocess.run(
            ["/bin/sh", "-e", "-c", script],
            env={**binaries.SERVER_ENVIRONMENT, "PATH": f"{self._programs}:/usr/bin:/bin", **self.variables},
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            umask=0o077,
            user=self.user.uid if self.user.is_other else None,
            group=self.user.gid if self.user.is_other else None,
            extra_groups=[] if self.user.is_other else None,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def folder(home: Path) -> Path:
    """A folder of the server's user, for backups and the archive."""
    user = binaries.find_server_user()
    folder = home.with_name(f"{home.name}b")
    for each in (folder, folder / "archive"):
        each.mkdir(mode=0o700)
        shutil.chown(each, user.uid, user.gid)
    return folder


@pytest.fixture
def archiving(home: Path, folder: Path) -> Iterator[EmbeddedServer]:
    """A server with the archive's settings of the page."""
    (block,) = blocks("ini")
    lines = dict(re.findall(r"^(\w+) = '?(.*?)'?$", block.replace("$ARCHIVE", str(folder / "archive")), re.MULTILINE))
    assert set(lines) == {"archive_mode", "archive_timeout", "archive_command"}
    with EmbeddedServer(home, settings={**SETTINGS, **lines}) as server:
        asyncio.run(migrate(server.dsn))
        yield server


async def test_both_kinds_of_backup(archiving: EmbeddedServer, home: Path, folder: Path) -> None:
    """A dump holds what was acknowledged before it; recovery to a moment holds exactly what was stored by then."""
    dump, base, restore = blocks("sh")
    port = free_port()
    restored = folder / "restored"
    address = urlsplit(archiving.dsn)
    with psycopg.connect(archiving.dsn, autocommit=True) as admin:
        admin.execute("CREATE DATABASE restored")
    shell = Shell(
        home,
        BACKUP=str(folder),
        ARCHIVE=str(folder / "archive"),
        DATABASE_URL=archiving.dsn,
        RESTORE_URL=archiving.dsn.replace("/hippocampus?", "/restored?"),
        RESTORED=str(restored),
        PORT=str(port),
    )
    async with await create_pool(archiving.dsn) as pool:
        sessions = OpenSessionService(pool)
        for number in range(SESSIONS):
            await sessions.create_session("app", "user", session_id=f"s{number}")
        stored: list[Stored] = []
        load = [asyncio.create_task(_append(sessions, f"s{number}", stored)) for number in range(SESSIONS)]
        await until(lambda: len(stored) > 300, "the load runs")

        before_dump = list(stored)
        await asyncio.to_thread(shell.run, dump)
        await until(lambda: len(stored) > len(before_dump) + 100, "the load went on")
        before_base = list(stored)
        with psycopg.connect(archiving.dsn, autocommit=True) as admin:
            admin.execute(blocks("sql")[0].replace("…", BACKUP))
        await asyncio.to_thread(shell.run, base.replace("$DATABASE_URL", as_login(archiving.dsn, BACKUP)))
        await until(lambda: len(stored) > len(before_base) + 300, "the load goes on")

        before_moment = list(stored)
        shell.variables["UNTIL"] = str(await pool.fetchval("SELECT clock_timestamp()::text"))
        await until(lambda: len(stored) > len(before_moment) + 200, "the load goes on")
        for each in load:
            each.cancel()
        await asyncio.gather(*load, return_exceptions=True)
        everything = await asyncio.to_thread(_events, archiving.dsn)
        # The accident.
        await pool.execute("DELETE FROM threads")
        segment = await pool.fetchval("SELECT pg_walfile_name(pg_switch_wal())")
        await until((folder / "archive" / segment).exists, "the last segment is archived")
        await sessions.close()

    from_dump = await asyncio.to_thread(_events, shell.variables["RESTORE_URL"])
    _compare(from_dump, before_dump, everything)
    await _is_usable(shell.variables["RESTORE_URL"])

    await asyncio.to_thread(shell.run, restore)
    try:
        dsn = f"postgresql://{address.username}:{address.password}@127.0.0.1:{port}{address.path}"
        recovered = "SELECT NOT pg_is_in_recovery()"
        with psycopg.connect(dsn, autocommit=True) as admin:
            await until(lambda: admin.execute(recovered).fetchone() == (True,), "the recovery ends")
            late = "SELECT count(*) FROM events WHERE created_at > %s::timestamptz"
            assert admin.execute(late, (shell.variables["UNTIL"],)).fetchone() == (0,)
        from_archive = await asyncio.to_thread(_events, dsn)
        _compare(from_archive, before_moment, everything)
        await _is_usable(dsn)
    finally:
        await asyncio.to_thread(shell.run, 'pg_ctl --pgdata="$RESTORED" --mode=fast --wait stop')
    assert len(before_dump) < len(before_base) < len(before_moment) < len(everything)


#: What the roles may do.
PRIVILEGES = (
    # Roles are listed in the order in which the server made them; a condition is written anew each time it is read.
    "SELECT tablename, policyname, ARRAY (SELECT r::text FROM unnest(roles) AS r ORDER BY r), cmd,"
    " qual IS NULL, with_check IS NULL"
    " FROM pg_policies ORDER BY 1, 2",
    # Without the owner's own, which has another name on each server.
    "SELECT c.relname, a.grantee::regrole::text, a.privilege_type FROM pg_class AS c, aclexplode(c.relacl) AS a"
    " WHERE c.relnamespace = 'public'::regnamespace AND a.grantee <> c.relowner ORDER BY 1, 2, 3",
    "SELECT c.relname, t.attname, a.grantee::regrole::text, a.privilege_type FROM pg_class AS c"
    " JOIN pg_attribute AS t ON t.attrelid = c.oid, aclexplode(t.attacl) AS a"
    " WHERE c.relnamespace = 'public'::regnamespace ORDER BY 1, 2, 3, 4",
    "SELECT p.oid::regprocedure::text, a.grantee::bigint = 0, a.privilege_type FROM pg_proc AS p,"
    " aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a"
    " WHERE p.pronamespace = 'public'::regnamespace AND a.grantee <> p.proowner"
    " ORDER BY 1, 2, 3",
    "SELECT role_name, app_name, user_id FROM reader_scopes",
)


def test_a_dump_with_roles_restores_into_a_new_server(made_home: Path, folder: Path) -> None:
    """The owner, who is no superuser, and the page's login take dumps, and the roles of processes none; after the
    page's commands, grants and policies name the same roles on a new server, and its owner may do what it did."""
    dump, restore = blocks("sh")[0].split("\n", maxsplit=1)
    shell = Shell(made_home, BACKUP=str(folder))
    with EmbeddedServer(made_home, settings=SETTINGS) as old:
        owned = _make_owned(old)
        asyncio.run(migrate(owned))
        with psycopg.connect(old.dsn, autocommit=True) as admin:
            admin.execute(blocks("sql")[0].replace("…", BACKUP))
        with psycopg.connect(owned, autocommit=True) as owner:
            owner.execute("SELECT grant_roles()")
            for name, role in PROCESSES.items():
                owner.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{name}' IN ROLE {role}")
            owner.execute(f"CREATE ROLE \"{READER}\" LOGIN PASSWORD '{READER}'")
            owner.execute("SELECT bind_reader(%s, 'shop', 'ann')", (READER,))
            owner.execute("SELECT create_session('shop', u, 's') FROM unnest('{ann,ben}'::text[]) AS u")
            before = [owner.execute(query).fetchall() for query in PRIVILEGES]
        assert all(before), "every kind of privilege is there to be restored"
        for name in (READER, *PROCESSES):
            with pytest.raises(AssertionError, match=r"permission denied|row-level security"):
                shell.run(dump.replace("$DATABASE_URL", as_login(owned, name)))
        for name in (OWNER, BACKUP):
            shell.run(dump.replace("$DATABASE_URL", as_login(owned, name)).replace("hippocampus.dump", f"{name}.dump"))

    with EmbeddedServer(made_home.with_name(f"{made_home.name}n"), settings=SETTINGS) as new:
        for name in (OWNER, BACKUP):
            restored = _make_owned(new)
            with psycopg.connect(new.dsn) as admin:
                roles = "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'hippocampus\\_%'"
                assert admin.execute(roles).fetchone() == (0,)
            shell.variables["RESTORE_URL"] = restored
            shell.run(restore.replace("hippocampus.dump", f"{name}.dump"))
            with psycopg.connect(restored, autocommit=True) as owner:
                assert [owner.execute(query).fetchall() for query in PRIVILEGES] == before
                owner.execute(f"CREATE ROLE \"{READER}\" LOGIN PASSWORD '{READER}'")
            for arguments in (("migrate",), ("grant-roles", "--reader", READER, "--app", "shop", "--user", "ann")):
                done = cli_process.run(folder / "none", *arguments, DATABASE_URL=restored)
                assert done.returncode == 0, done.stderr
            with psycopg.connect(as_login(restored, READER)) as reader:
                assert reader.execute("SELECT user_id FROM threads").fetchall() == [("ann",)]
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    reader.execute("CREATE TEMPORARY TABLE t ()")
            with psycopg.connect(new.dsn, autocommit=True) as admin:
                admin.execute(f"DROP DATABASE {OWNED} WITH (FORCE)")
                for role in (READER, "hippocampus_writer", "hippocampus_worker", "hippocampus_reader", OWNER):
                    admin.execute(f'DROP ROLE "{role}"')


def as_login(dsn: str, name: str) -> str:
    """The address of a database for a login whose password is its name."""
    return re.sub(r"//[^@]*@", f"//{quote(name)}:{quote(name)}@", dsn)


def _make_owned(server: EmbeddedServer) -> str:
    """Make a database, with pgvector, whose owner is no superuser; return its address for the owner."""
    dsn = server.dsn.replace("/hippocampus?", f"/{OWNED}?")
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {OWNER} LOGIN CREATEROLE PASSWORD '{OWNER}'")
        admin.execute(f"CREATE DATABASE {OWNED} OWNER {OWNER}")
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute("CREATE EXTENSION vector")
    return as_login(dsn, OWNER)


async def _append(sessions: OpenSessionService, session: str, stored: list[Stored]) -> None:
    number = 0
    while True:
        number += 1
        event = Event(author="user", id=f"{session}-{number}", content={"text": f"turn {number} of {session}, ÄÖ 记忆"})
        (done,) = (await sessions.append("app", "user", session, [event])).events
        stored.append(Stored(session, done.sequence_num or 0, event.id, event.content["text"]))


def _events(dsn: str) -> set[Stored]:
    """Every event of a database, which has a message with the same text."""
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(
            "SELECT t.session_id, e.sequence_num, e.id, e.content ->> 'text', m.content, t.last_seq"
            " FROM events AS e JOIN threads AS t ON t.id = e.thread_id"
            " LEFT JOIN messages AS m ON m.thread_id = e.thread_id AND m.sequence_num = e.sequence_num"
        ).fetchall()
    assert all(text == said for *_, text, said, _ in rows)
    return {Stored(*row[:4]) for row in rows}


def _compare(found: set[Stored], acknowledged: list[Stored], everything: set[Stored]) -> None:
    """Nothing that was acknowledged is missing, nothing was invented, and each session is a whole beginning."""
    assert set(acknowledged) <= found <= everything
    for number in range(SESSIONS):
        numbers = sorted(each.number for each in found if each.session == f"s{number}")
        assert numbers == list(range(1, len(numbers) + 1))


async def _is_usable(dsn: str) -> None:
    """The schema is this program's, and sessions go on where they were."""
    connection = await connect(dsn)
    await check_schema(connection)
    await connection.close()
    async with await create_pool(dsn) as pool:
        sessions = OpenSessionService(pool)
        last = await pool.fetchval("SELECT last_seq FROM threads WHERE session_id = 's0'")
        (event,) = (
            await sessions.append("app", "user", "s0", [Event(author="user", content={"text": "go on"})])
        ).events
        assert event.sequence_num == last + 1
        await sessions.close()
