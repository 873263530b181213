"""CPython in namespaces of its own, by bubblewrap: for code that needs all of Python.

No network, no process and no user of the host; of its files only ``/usr``, read-only; a folder in memory of bounded
size; a filter of system calls. bubblewrap is started with an empty environment, which ``/proc/1/environ`` would show,
and never as root, whose processes RLIMIT_NPROC does not count. RLIMIT_CPU is not a clock: the whole group is killed by
wall-clock time, by the sum of its memory, and by its output.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shutil
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from pulse.sandbox import seccomp
from pulse.sandbox.processes import Ended, watch
from pulse.sandbox.records import (
    Isolation,
    Limits,
    SandboxRequest,
    SandboxResult,
    is_inside,
    refused,
    unavailable,
)

_NOBODY = 65_534
_DEVICES = ("null", "zero", "full", "random", "urandom")
_PYTHON = "/usr/bin/python3"


class BwrapBackend:
    """Runs code in namespaces.

    Args:
        program: bubblewrap; found on the path by default.
        python: inside of ``/usr``.
    """

    name = "bwrap"
    isolation: Isolation = "namespace"

    def __init__(self, *, program: str | None = None, python: str = _PYTHON, at_once_max: int = 8) -> None:
        self._program = program
        self._python = python
        self._slots = asyncio.Semaphore(at_once_max)

    async def check(self) -> str | None:
        """Calculate something, and try what must fail: the host's files, a socket, a namespace, another process."""
        attempts = (
            "import os, socket\n"
            "found = []\n"
            "for what, attempt in (('files', lambda: os.listdir('/etc')), ('root', lambda: os.mkdir('/x')),\n"
            "    ('socket', lambda: socket.socket(socket.AF_INET)), ('vsock', lambda: socket.socket(40)),\n"
            "    ('namespace', lambda: os.unshare(0x10000000) if hasattr(os, 'unshare') else 1 / 0)):\n"
            "    try:\n        attempt()\n        found.append(what)\n    except Exception: pass\n"
            "if len([p for p in os.listdir('/proc') if p.isdigit()]) > 3: found.append('processes')\n"
            "if open('/proc/1/environ').read(): found.append('environment')\n"
            "[6 * 7, found]"
        )
        result = await self.execute(SandboxRequest(code=attempts, limits=Limits(seconds=20)))
        if result.status != "ok" or not isinstance(result.value, list):
            return f"bubblewrap does not work here: {result.error or result.stderr or result.status}"
        return None if result.value == [42, []] else f"bubblewrap does not isolate here: {result.value[1]}"

    async def execute(self, request: SandboxRequest) -> SandboxResult:
        """Run code; see `SandboxBackend.execute`."""
        problem = request.problem()
        if problem is not None:
            return refused(problem)
        program = self._program or shutil.which("bwrap")
        if program is None:
            return unavailable("bwrap is not installed: Debian's package is bubblewrap")
        try:
            filter_ = seccomp.program()
        except LookupError as error:
            return unavailable(str(error))
        async with self._slots:
            with contextlib.ExitStack() as files:
                try:
                    return await self._execute(program, filter_, request, files)
                except OSError as error:
                    return unavailable(f"bwrap cannot be started: {error.strerror or error}")

    async def close(self) -> None:
        """Do nothing: each execution ends by itself."""

    async def _execute(
        self, program: str, filter_: bytes, request: SandboxRequest, files: contextlib.ExitStack
    ) -> SandboxResult:
        limits = request.limits
        given = {
            "code": request.code,
            "inputs": dict(request.inputs),
            "files": {path: base64.b64encode(content).decode() for path, content in request.files.items()},
            "memory_mb": limits.memory_mb,
            "cpu_seconds": limits.cpu_seconds,
            "processes": limits.processes,
            "disk_mb": limits.disk_mb,
        }
        bootstrap = resources.files("pulse.sandbox").joinpath("bootstrap.py").read_bytes()
        passed: list[int] = []

        def content(data: bytes) -> str:
            descriptor = os.memfd_create("sandbox", 0)
            files.callback(os.close, descriptor)
            with os.fdopen(os.dup(descriptor), "wb") as file:
                file.write(data)
            os.lseek(descriptor, 0, os.SEEK_SET)
            passed.append(descriptor)
            return str(descriptor)

        reading, writing = os.pipe()
        files.callback(os.close, reading)
        command = [
            program,
            "--unshare-all",
            "--unshare-user",
            "--die-with-parent",
            "--new-session",
            "--cap-drop",
            "ALL",
            "--disable-userns",
        ]
        command += ["--hostname", "sandbox", "--ro-bind", "/usr", "/usr"]
        for name in ("bin", "sbin", "lib", "lib64"):
            if os.path.lexists(f"/{name}"):  # noqa: ASYNC240 - it is in the kernel's cache
                command += ["--symlink", f"usr/{name}", f"/{name}"]
        command += ["--proc", "/proc", "--dir", "/dev", "--dir", "/run"]
        for name in _DEVICES:
            command += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
        command += ["--size", str(limits.disk_mb << 20), "--tmpfs", "/work"]
        for path, data in request.files.items():
            for parent in reversed(Path(path).parents[:-1]):
                command += ["--dir", f"/work/{parent}"]
            command += ["--file", content(data), f"/work/{path}"]
        command += ["--ro-bind-data", content(json.dumps(given).encode()), "/run/given.json"]
        command += ["--ro-bind-data", content(bootstrap), "/run/bootstrap.py", "--remount-ro", "/"]
        command += ["--chdir", "/work", "--clearenv", "--setenv", "HOME", "/work", "--setenv", "LANG", "C.UTF-8"]
        command += ["--setenv", "PATH", "/usr/bin"]
        for name, value in request.env.items():
            command += ["--setenv", name, value]
        command += ["--seccomp", content(filter_), self._python, "-I", "-B", "/run/bootstrap.py", str(writing)]
        owner: dict[str, Any] = {}
        if os.geteuid() == 0:
            owner = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={},
                pass_fds=(*passed, writing),
                start_new_session=True,
                **owner,
            )
        finally:
            os.close(writing)
        return _result(await watch(process, request, report=reading), request)


def _result(ended: Ended, request: SandboxRequest) -> SandboxResult:
    """Return what the group's end and the report of its bootstrap say."""
    reports = [_parsed(line) for line in ended.report.splitlines()[:2]]
    last = reports[1] if len(reports) > 1 else {}
    result = ended.result(request.limits)
    if ended.ended_by is None and not reports:
        return unavailable(f"bwrap does not work here: {ended.stderr.strip()[:500]}")
    if ended.ended_by is None and not last:
        return ended.unreported(request.limits, "the interpreter ended by itself")
    files: dict[str, bytes] = {}
    named = last.get("files")
    for path, encoded in named.items() if isinstance(named, dict) else ():
        # The code can write the report itself, and what it names must not lead a caller out of a folder.
        if is_inside(path):
            with contextlib.suppress(ValueError, TypeError):
                files[path] = base64.b64decode(encoded)
    return replace(result, value=last.get("value"), files=files)


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
