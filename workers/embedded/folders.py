"""Folders, private files and locks of the embedded server, each with exactly the owner and mode that it needs."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from workers.embedded.binaries import EmbeddedServerError, ServerUser

# The socket's full name, with the closing NUL, must fit into sockaddr_un.sun_path.
SOCKET_PATH_BYTES_MAX = 107


def make_home(home: Path, user: ServerUser) -> None:
    """Make the home folder, which the server's user can enter; parent folders that exist keep their permissions.

    Raises:
        EmbeddedServerError: it cannot be made, written or entered.
    """
    try:
        make_folders(home, 0o711 if user.is_other else 0o700)
    except OSError as error:
        raise EmbeddedServerError(
            f"The folder {home} can't be created ({error.strerror}): set HIPPOCAMPUS_HOME to another one."
        ) from error
    if not os.access(home, os.W_OK | os.X_OK):
        raise EmbeddedServerError(
            f"The folder {home} is not writable for this user: set HIPPOCAMPUS_HOME to one that is."
        )
    if not user.can("-x", home):
        raise EmbeddedServerError(
            f"The system user {user.name!r}, which runs PostgreSQL for root, can't enter {home}. Set HIPPOCAMPUS_HOME"
            " to a folder that it can enter, such as /var/lib/hippocampus, or set DATABASE_URL."
        )


def make_folders(folder: Path, mode: int) -> None:
    """Make a folder and those above it that are missing, with exactly this mode.

    Raises:
        OSError: one of them cannot be made.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        # Not by mkdir, whose mode the umask narrows: the server's user must pass through, but list nothing.
        each.chmod(mode)


def make_private(folder: Path, user: ServerUser) -> None:
    """Make a folder of the server's user with mode 0700; one that exists must be exactly that.

    Raises:
        EmbeddedServerError: it exists and is not.
    """
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.lstat()
        if folder.is_symlink() or not folder.is_dir() or found.st_uid != user.uid or found.st_mode & 0o077:
            raise EmbeddedServerError(
                f"{folder} is not a folder of the user {user.name!r} with mode 0700. Remove it and try again."
            ) from None
        return
    if user.is_other:
        os.chown(folder, user.uid, user.gid)


def make_socket_folder(home: Path, name: str, user: ServerUser) -> Path:
    """Make and return the folder of the server's socket: below `home`, or below /tmp if that path is too long."""
    folder = home / name
    if len(os.fsencode(folder / ".s.PGSQL.65535")) >= SOCKET_PATH_BYTES_MAX:
        key = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
        folder = Path("/tmp") / f"hippocampus-{user.uid}-{key}"  # noqa: S108 - made 0700, owner checked
    make_private(folder, user)
    return folder


def remove_socket_folder(folder: Path, home: Path) -> None:
    """Remove the folder of a stopped server's socket if it is not below `home`, and empty."""
    if not folder.is_relative_to(home):
        with contextlib.suppress(OSError):
            folder.rmdir()


def write_private(path: Path, text: str) -> None:
    """Write a file with mode 0600, whole or not at all."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(text)
    unfinished.rename(path)


def open_lock(path: Path) -> int:
    """Open a lock file, made if missing, and return its descriptor.

    Raises:
        EmbeddedServerError: it belongs to another user.
    """
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise EmbeddedServerError(
            f"The lock file {path} can't be opened ({error.strerror}): this home belongs to another user. Run as that"
            " user, or set HIPPOCAMPUS_HOME to a folder of your own."
        ) from error


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the exclusive lock of a file."""
    handle = open_lock(path)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
