"""The data folder of the embedded server: created by initdb, whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from pathlib import Path

from workers.cgroups import memory_bytes
from workers.embedded.binaries import EmbeddedServerError, ServerUser
from workers.embedded.folders import make_private, write_private

DATABASE = "hippocampus"
ROLE = "hippocampus"
_BUILTIN_LOCALE_SINCE = 17
_IO_METHOD_SINCE = 18


def initial_settings(major: int) -> dict[str, str]:
    """Return what a new postgresql.conf says; from then on it is its owner's to change."""
    # A search reads a thousand pages or two: from the kernel's cache faster by itself than by another process.
    direct = {"io_method": "sync"} if major >= _IO_METHOD_SINCE else {}
    return {
        "max_connections": "200",
        "shared_buffers": f"{min(max(memory_bytes() // 2**20 // 16, 256), 1024)}MB",
        "max_wal_size": "2GB",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "log_line_prefix": "%m [%p] ",
        "random_page_cost": "1.1",
        **direct,
    }


def read_password(path: Path, data: Path) -> str:
    """Return the database password.

    Raises:
        EmbeddedServerError: it cannot be read.
    """
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise EmbeddedServerError(
            f"The password of the embedded PostgreSQL can't be read from {path} ({error.strerror})."
            f" Run as the user that made it, or remove {data} to begin with an empty database."
        ) from error


def make_data(
    data: Path, password_path: Path, *, programs: Path, user: ServerUser, major: int, is_synced: bool
) -> None:
    """Make the data folder with its database; a killed run leaves only a folder called unfinished.

    Raises:
        EmbeddedServerError: a program failed; the message quotes it.
    """
    if data.is_dir():
        return
    for left in data.parent.glob(f"{data.name}.unfinished-*"):
        shutil.rmtree(left, ignore_errors=True)
    # A new name each time: an initdb whose starter was killed may still be writing to the old one.
    unfinished = data.with_name(f"{data.name}.unfinished-{secrets.token_hex(4)}")
    make_private(unfinished, user)
    if not password_path.exists():
        write_private(password_path, secrets.token_urlsafe(24))
    handed_over = password_path.with_name(f"{password_path.name}.initdb")
    write_private(handed_over, read_password(password_path, data))
    try:
        os.chown(handed_over, user.uid, user.gid)
        command = _initdb_command(programs, unfinished, handed_over, major=major, is_synced=is_synced)
        _check("initdb", user.run(command))
    finally:
        handed_over.unlink()
    single = [str(programs / "postgres"), "--single", "-D", str(unfinished), "postgres"]
    _check("creating the database", user.run(single, input_text=f'CREATE DATABASE "{DATABASE}"\n'))
    unfinished.rename(data)


def _initdb_command(programs: Path, folder: Path, password_file: Path, *, major: int, is_synced: bool) -> list[str]:
    locale = ["--locale=C.UTF-8", "--lc-messages=C"]
    if major >= _BUILTIN_LOCALE_SINCE:
        # Built in: the sort order does not change with the machine's libc.
        locale = ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    settings = [f"--set={name}={value}" for name, value in initial_settings(major).items()]
    return [
        str(programs / "initdb"),
        *("-D", str(folder), "-U", ROLE, "--auth=scram-sha-256", f"--pwfile={password_file}"),
        *("--encoding=UTF8", "--no-instructions", *locale, *settings, *([] if is_synced else ["--no-sync"])),
    ]


def _check(what: str, done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode != 0:
        reason = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise EmbeddedServerError(f"The embedded PostgreSQL could not be set up ({what}): {reason}")
