"""A real PgBouncer in front of an embedded server."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg

from tests.support.least_privilege import LOGINS
from tests.support.waiting import until
from tests.support.writer_process import free_port
from workers.embedded import binaries

PROGRAM = "pgbouncer"


@contextlib.contextmanager
def running(home: Path, dsn: str, *, mode: str = "transaction", size: int = 5, **options: str) -> Iterator[str]:
    """Run a PgBouncer as its documentation configures it; yield the address of its port, for any database."""
    program = shutil.which(PROGRAM, path="/usr/sbin:/usr/bin:/usr/local/bin")
    assert program, "install Debian's pgbouncer"
    user = binaries.find_server_user()
    home.mkdir()
    server = urlsplit(dsn)
    query = {name: values[0] for name, values in parse_qs(server.query).items()}
    port = free_port()
    users = {server.username: server.password, **{login: login for login in LOGINS.values()}}
    (home / "users.txt").write_text("".join(f'"{name}" "{password}"\n' for name, password in users.items()))
    lines = {
        "listen_addr": "127.0.0.1",
        "listen_port": str(port),
        "unix_socket_dir": "",
        "auth_type": "scram-sha-256",
        "auth_file": str(home / "users.txt"),
        "pool_mode": mode,
        "default_pool_size": str(size),
        "max_client_conn": "500",
        "logfile": str(home / "log"),
        **options,
    }
    settings = "".join(f"{name} = {value}\n" for name, value in lines.items())
    (home / "pgbouncer.ini").write_text(
        f"[databases]\n* = host={query['host']} port={query['port']}\n\n[pgbouncer]\n{settings}"
    )
    for path in (home, *home.iterdir()):
        shutil.chown(path, user.uid, user.gid)
    process = subprocess.Popen(
        [program, "--quiet", str(home / "pgbouncer.ini")],
        user=user.uid if user.is_other else None,
        group=user.gid if user.is_other else None,
        extra_groups=[] if user.is_other else None,
        stdin=subprocess.DEVNULL,
    )
    try:
        yield f"postgresql://{server.username}:{server.password}@127.0.0.1:{port}{server.path}"
    finally:
        # Newer ones take SIGTERM for a request to wait for their clients.
        process.kill()
        process.wait()


async def wait_until_serving(dsn: str) -> None:
    async def serves() -> bool:
        try:
            connection = await asyncpg.connect(dsn, statement_cache_size=0)
        except OSError:
            return False
        await connection.close()
        return True

    await until(serves, "PgBouncer answers")
