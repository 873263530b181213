"""A primary and a synchronous standby, made from the embedded server's programs as an operator would make them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg

from tests.support.cli_process import is_alive, parent_of, pids
from tests.support.waiting import until_sync
from workers.embedded import binaries
from workers.embedded.server import EmbeddedServer

STANDBY = "standby"


def run_program(server: EmbeddedServer, name: str, *arguments: str, input_text: str | None = None) -> str:
    """Run one of PostgreSQL's programs as the server's user, with the server's password; return its output."""
    user = binaries.find_server_user()
    program = binaries.find_programs(server.major, user, server.home) / name
    done = subprocess.run(
        [str(program), *arguments],
        env={**binaries.SERVER_ENVIRONMENT, "PGPASSWORD": urlsplit(server.dsn).password or ""},
        input=input_text,
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        umask=0o077,
        user=user.uid if user.is_other else None,
        group=user.gid if user.is_other else None,
        extra_groups=[] if user.is_other else None,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def place_of(server: EmbeddedServer) -> tuple[str, str]:
    """The folder of the server's socket, and its port."""
    query = parse_qs(urlsplit(server.dsn).query)
    return query["host"][0], query["port"][0]


def standby_of(primary: EmbeddedServer, home: Path) -> EmbeddedServer:
    """Copy a running primary, start the copy as its standby, and make the primary wait for it at each commit."""
    standby = EmbeddedServer(home, settings=primary.settings)
    user = binaries.find_server_user()
    home.mkdir(mode=0o711)
    shutil.copy(primary.home / f"password-{primary.major}", home)
    shutil.chown(home, user.uid, user.gid)
    folder, port = place_of(primary)
    connection = f"host={folder} port={port} user=hippocampus application_name={STANDBY}"
    run_program(primary, "pg_basebackup", "-d", connection, "-D", str(standby.data), "-R", "-c", "fast", "-X", "stream")
    # By root, where root runs the tests.
    shutil.chown(home, os.geteuid(), os.getegid())
    standby.start()
    with psycopg.connect(primary.dsn, autocommit=True) as admin:
        admin.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{STANDBY}'")
        admin.execute("SELECT pg_reload_conf()")
        state = "SELECT sync_state FROM pg_stat_replication WHERE application_name = %s"
        until_sync(lambda: admin.execute(state, (STANDBY,)).fetchone() == ("sync",), "the standby is synchronous")
    return standby


def address_of(*servers: EmbeddedServer) -> str:
    """An address with the hosts of several servers, which share their users."""
    parts = urlsplit(servers[0].dsn)
    hosts, ports = zip(*(place_of(server) for server in servers), strict=True)
    return f"postgresql://{parts.username}:{parts.password}@{parts.path}?host={','.join(hosts)}&port={','.join(ports)}"


def kill(server: EmbeddedServer) -> None:
    """End a server and all of its processes at once, as when its machine dies."""
    postmaster = server.pid
    members = [postmaster, *(pid for pid in pids() if parent_of(pid) == postmaster)]
    for pid in members:
        # Its processes end by themselves without it.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until_sync(lambda: not any(is_alive(pid) for pid in members), "the primary is gone")
