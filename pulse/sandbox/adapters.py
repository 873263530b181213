"""Adapters to what isolates elsewhere: a container, another command, and a service over HTTP.

Time and output are enforced here, and processor time and memory of a command's Python in that process; everything else
is what the container, the command or the service is set up for. The self-test finds a command that shows the host's
files; it cannot prove that a container is set up well.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import math
import os
import secrets
import signal
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pulse.process.extras import install_command
from pulse.sandbox.processes import Ended, watch
from pulse.sandbox.records import (
    EXIT_TIMEOUT,
    FILES_MAX,
    GRACE_SECONDS,
    SANDBOX_STATUSES,
    Isolation,
    Limits,
    SandboxRequest,
    SandboxResult,
    is_inside,
    refused,
    unavailable,
)
from pulse.sandbox.seccomp import container_profile

if TYPE_CHECKING:
    from pulse.outbound.addresses import Network
    from pulse.outbound.client import OutboundClient

#: Bytes of a service's answer besides output and files; and of the whole answer, whatever the limits are.
_ANSWER_BYTES = 1 << 20
_ANSWER_BYTES_MAX = 256 << 20
_ERROR_LENGTH_MAX = 2000
#: The longest time that a service may report: far above any limit, and far below what a float holds.
_SPENT_MS_MAX = 1e15
_NO_RESULT = "the service's answer is not a result"
#: How long each command may take that ends a container after its client was killed.
_STOP_SECONDS = 10.0
#: Memory of the interpreter itself, besides what its code may use.
_INTERPRETER_MB = 64
_NOBODY = "65534:65534"
#: What an engine gives a container of its own environment or settings, with the password of a proxy.
_PROXIES = [form(f"{name}_proxy") for name in ("http", "https", "ftp", "no", "all") for form in (str.lower, str.upper)]
#: Runs the code as a module. A line of standard error says that it began; the last one says that the code ended, with
#: the value of its last expression if all went well. The code can forge the last one: it is only the code's own result.
_PROGRAM = """import ast, json, resource, sys, traceback
given = json.loads({given!r})
sys.stderr.write(given["token"] + "\\n")
sys.stderr.flush()
for kind, limit in (("AS", given["memory"]), ("CPU", given["cpu_seconds"]), ("CORE", 0)):
    try:
        resource.setrlimit(getattr(resource, "RLIMIT_" + kind), (limit, limit))
    except (ValueError, OSError):
        pass  # its limit is lower
names = {{"__name__": "__main__", "__file__": "main.py", **given["inputs"]}}
value, code = None, 0
try:
    tree = ast.parse(given["code"], "main.py")
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "main.py", "exec"), names)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), "main.py", "eval"), names)
except SystemExit as end:
    code = end.code if isinstance(end.code, int) else int(end.code is not None)
except MemoryError:
    names.clear()
    print("MemoryError", file=sys.stderr)
    code = 1
except BaseException as error:
    frames = error.__traceback__.tb_next if error.__traceback__ else None
    sys.stderr.write("".join(traceback.format_exception(type(error), error, frames)))
    code = 1
try:
    shown = json.dumps(value, default=lambda other: repr(other)[:2000])
except Exception:
    try:
        shown = json.dumps(repr(value)[:2000])
    except Exception:
        shown = json.dumps("<" + type(value).__name__ + ">")
sys.stdout.flush()
sys.stderr.write("\\n" + given["token"] + "=" + (shown if code == 0 else "") + "\\n")
sys.stderr.flush()
import os
os._exit(code & 0xFF)
"""


class CommandBackend:
    """Runs a command that reads Python from its standard input, and that ends when its process group is killed.

    The client of a container's engine is not such a command: the container would continue. See `ContainerBackend`.

    Args:
        command: what isolates, and in it ``python3 -I -``.
        env: the command's environment; empty by default.
    """

    #: The command is the client of an engine: the code does not run in its processes.
    _is_client = False

    def __init__(
        self,
        command: Sequence[str],
        *,
        name: str = "command",
        isolation: Isolation = "namespace",
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.isolation: Isolation = isolation
        self._command = list(command)
        self._env: dict[str, str] | None = dict(env or {})

    async def check(self) -> str | None:
        """Calculate something, and try to read a file of the host."""
        secret = secrets.token_hex(16)
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write(secret)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            result = await self.execute(
                SandboxRequest(code=f"print(6 * 7)\ntry: print(open({file.name!r}).read())\nexcept OSError: pass")
            )
        if result.status != "ok" or not result.stdout.startswith("42"):
            return f"{self.name} does not work here: {result.stderr.strip()[:500] or result.error or result.status}"
        return f"{self.name} shows the host's files: it does not isolate" if secret in result.stdout else None

    async def execute(self, request: SandboxRequest) -> SandboxResult:
        """Run code; see `SandboxBackend.execute`."""
        problem = request.problem()
        if problem is None and (request.files or request.stdin or request.env):
            problem = f"{self.name} takes code and inputs alone"
        if problem is not None:
            return refused(problem)
        return await self._execute(request)

    async def _execute(self, request: SandboxRequest) -> SandboxResult:
        return await self._run(self._command, request)

    async def _run(
        self, command: Sequence[str], request: SandboxRequest, *, folder: str | None = None
    ) -> SandboxResult:
        token = secrets.token_hex(16)
        given = {
            "code": request.code,
            "inputs": dict(request.inputs),
            "memory": (request.limits.memory_mb + _INTERPRETER_MB) << 20,
            "cpu_seconds": max(1, math.ceil(request.limits.cpu_seconds)),
            "token": token,
        }
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._env,
                cwd=folder,
                start_new_session=True,
            )
        except OSError as error:
            return unavailable(f"{Path(command[0]).name} cannot be started: {error.strerror or error}")
        program = _PROGRAM.format(given=json.dumps(given)).encode()
        return self._result(await watch(process, request, given=program, is_client=self._is_client), request, token)

    def _result(self, ended: Ended, request: SandboxRequest, token: str) -> SandboxResult:
        """Return what the command's end and the marks of its program say."""
        before, began, after = ended.stderr.partition(f"{token}\n")
        stderr, done, value = (before + after).rpartition(f"\n{token}=")
        ended = replace(ended, stderr=stderr if done else value)
        if self._is_client and not began and ended.ended_by is None:
            return unavailable(f"the engine ended with code {ended.exit_code}: {ended.stderr.strip()[:500]}")
        if ended.ended_by is None and not done and ended.is_killed:
            return ended.unreported(request.limits, "the command ended by itself")
        result = ended.result(request.limits)
        try:
            return replace(result, value=json.loads(value)) if done else result
        except (ValueError, RecursionError):
            return result

    async def close(self) -> None:
        """Do nothing: each execution ends by itself."""


class ContainerBackend(CommandBackend):
    """Runs each execution in a container of its own, by the command line of podman or Docker.

    The container has no network and no capability, runs as nobody, and has the limits of the request and the same
    filter of system calls as bubblewrap's. Only ``/work`` and ``/dev/shm`` can be written, each up to ``disk_mb``. The
    engine ends and removes it: the death of the engine's client would leave it running.

    Args:
        image: one with Python.
        engine: its program with its global options, such as ``["podman", "--cgroup-manager", "cgroupfs"]``.
        options: more options of ``run``. Podman needs ``--read-only-tmpfs=false``, or ``/tmp`` and ``/run`` can be
            written up to the limit of memory.
        python: in the image.
        env: the engine's environment; this process's by default. The container gets none of it.
    """

    _is_client = True

    def __init__(
        self,
        image: str,
        *,
        engine: Sequence[str] = ("podman",),
        options: Sequence[str] = (),
        python: str = "python3",
        name: str = "container",
        env: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(engine, name=name, env=env)
        if env is None:
            self._env = None  # a subprocess without one has this process's
        self._options = list(options)
        self._inside = [image, python, "-I", "-"]

    async def _execute(self, request: SandboxRequest) -> SandboxResult:
        limits = request.limits
        container = f"sandbox-{secrets.token_hex(8)}"
        memory = f"{limits.memory_mb + _INTERPRETER_MB}m"
        # An engine may leave a note of a container that ran out of memory where its client was started.
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            profile = Path(folder, "seccomp.json")
            profile.write_text(json.dumps(container_profile()))  # noqa: ASYNC240 - small, in a new folder
            command = [*self._command, "run", "--rm", "--interactive", "--sig-proxy=false", "--name", container]
            command += ["--network", "none", *(f"--env={name}=" for name in _PROXIES)]
            command += ["--read-only", "--tmpfs", f"/work:rw,size={limits.disk_mb}m,mode=1777", "--workdir", "/work"]
            command += ["--shm-size", f"{limits.disk_mb}m", "--memory", memory, "--memory-swap", memory]
            command += ["--pids-limit", str(limits.processes), "--ulimit", "nofile=256:256", "--user", _NOBODY]
            command += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
            command += ["--security-opt", f"seccomp={profile}", *self._options, *self._inside]
            has_ended = False
            try:
                result = await self._run(command, request, folder=folder)
                has_ended = result.status in ("ok", "failed")
            finally:
                if not has_ended:
                    await asyncio.shield(self._end(container))
        return result

    async def _end(self, container: str) -> None:
        """Kill and remove a container that may be left: there may be none, or one that was not started yet."""
        for command in (["kill", container], ["rm", "--force", container]):
            with contextlib.suppress(OSError):
                process = await asyncio.create_subprocess_exec(
                    *self._command, *command,
                    stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.DEVNULL, env=self._env, start_new_session=True,
                )  # fmt: skip
                try:
                    async with asyncio.timeout(_STOP_SECONDS):
                        await process.wait()
                except TimeoutError:
                    os.killpg(process.pid, signal.SIGKILL)


class RemoteBackend:
    """Runs code at a service: POST ``{"code", "inputs", "files", "stdin", "env", "limits"}``, files in base64.

    It answers with the fields of `SandboxResult`, files in base64. Anything else is `crashed`; no answer `unavailable`.
    Output over its limit is cut, and the status `output`; so it is, without a result, where the answer is longer than
    output and files may be together, or over 256 MiB.

    Args:
        url: the service's address; http only to a private address in an allowed network.
        token: sent as a bearer token.
    """

    isolation: Isolation = "remote"

    def __init__(
        self, url: str, *, token: str | None = None, allowed: Sequence[Network] = (), name: str = "remote"
    ) -> None:
        self.name = name
        self._url = url
        self._token = token
        self._allowed = tuple(allowed)
        self._client: OutboundClient | None = None

    async def check(self) -> str | None:
        """Calculate something."""
        result = await self.execute(SandboxRequest(code="6 * 7"))
        if (result.status, result.value) == ("ok", 42):
            return None
        return f"{self.name} does not work: {result.error or result.status}"

    async def execute(self, request: SandboxRequest) -> SandboxResult:
        """Run code; see `SandboxBackend.execute`."""
        problem = request.problem()
        if problem is not None:
            return refused(problem)
        try:
            from pulse.outbound.client import OutboundClient, TooLargeError
        except ImportError:
            return unavailable(f"a remote sandbox needs httpx, which is not installed: {install_command('tools')}")
        if self._client is None:
            self._client = OutboundClient(self._allowed, secret=True)
        limits = request.limits
        body = {
            "code": request.code,
            "inputs": dict(request.inputs),
            "files": _encoded(request.files),
            "stdin": request.stdin,
            "env": dict(request.env),
            "limits": {name: getattr(limits, name) for name in limits.__dataclass_fields__},
        }
        headers = {"content-type": "application/json"}
        if self._token is not None:
            headers["authorization"] = f"Bearer {self._token}"
        size = min(limits.output_bytes * 2 + (limits.disk_mb << 21) + _ANSWER_BYTES, _ANSWER_BYTES_MAX)
        try:
            response = await self._client.send(
                "POST",
                self._url,
                headers=headers,
                body=json.dumps(body).encode(),
                max_bytes=size,
                timeout_seconds=limits.seconds + GRACE_SECONDS,
            )
        except TimeoutError:
            return SandboxResult(
                status="timeout", exit_code=EXIT_TIMEOUT, error=f"not done within {limits.seconds:g} s"
            )
        except TooLargeError:
            return SandboxResult(status="output", error=f"the service's answer is over {size:,} bytes", truncated=True)
        except Exception as error:  # noqa: BLE001 - of the connection, by several libraries
            return unavailable(f"{self.name} cannot be reached ({type(error).__name__})")
        if response.status != 200:
            return unavailable(f"{self.name} answered {response.status}")
        return await asyncio.to_thread(_read, response.body, limits)

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()


def _encoded(files: Mapping[str, bytes]) -> dict[str, str]:
    return {path: base64.b64encode(content).decode() for path, content in files.items()}


def _read(body: bytes, limits: Limits) -> SandboxResult:
    try:
        found = json.loads(body)
        files = {path: base64.b64decode(content) for path, content in (found.get("files") or {}).items()}
        result = SandboxResult(
            status=found["status"],
            exit_code=found.get("exit_code"),
            stdout=found.get("stdout", ""),
            stderr=found.get("stderr", ""),
            value=found.get("value"),
            files=files,
            error=found.get("error"),
            execution_time_ms=found.get("execution_time_ms", 0.0),
            truncated=found.get("truncated", False),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return SandboxResult(status="crashed", error=_NO_RESULT)
    if not _is_sound(result):
        return SandboxResult(status="crashed", error=_NO_RESULT)
    if len(files) > FILES_MAX or sum(map(len, files.values())) > limits.disk_mb << 20:
        return SandboxResult(status="crashed", error="the service's answer has more files than the limits allow")
    if not all(map(is_inside, files)):
        return SandboxResult(status="crashed", error="the service's answer has a file out of its folder")
    stdout, stderr, is_cut = _cut(result.stdout, result.stderr, limits.output_bytes)
    if is_cut:
        over = f"over {limits.output_bytes:,} bytes of output"
        return replace(result, status="output", stdout=stdout, stderr=stderr, error=over, truncated=True)
    return result if result.error is None else replace(result, error=result.error[:_ERROR_LENGTH_MAX])


def _is_sound(result: SandboxResult) -> bool:
    """Return whether a result that was received has values of the types that it must have, and that can be stored."""
    code, spent = result.exit_code, result.execution_time_ms
    error = "" if result.error is None else result.error
    return (
        result.status in SANDBOX_STATUSES
        and (code is None or (type(code) is int and -(2**31) <= code < 2**31))
        and all(isinstance(text, str) for text in (result.stdout, result.stderr, error))
        and type(spent) in (int, float)
        and 0 <= spent <= _SPENT_MS_MAX
        and isinstance(result.truncated, bool)
    )


def _cut(stdout: str, stderr: str, limit: int) -> tuple[str, str, bool]:
    """Return both, cut to this many bytes together, and whether they had more."""
    written = [text.encode("utf-8", "replace") for text in (stdout, stderr)]
    if len(written[0]) + len(written[1]) <= limit:
        return stdout, stderr, False
    kept = written[0][:limit]
    texts = (kept, written[1][: limit - len(kept)])
    return texts[0].decode("utf-8", "ignore"), texts[1].decode("utf-8", "ignore"), True
