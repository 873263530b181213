"""The sandbox: attacks on the default backend, limits, records, tools, and backends that do not work."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import resource
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
import httpx
import pytest

from pulse.errors import InvalidInputError
from pulse.outbound.addresses import parse_networks
from pulse.sandbox import seccomp
from pulse.sandbox.adapters import CommandBackend, ContainerBackend, RemoteBackend
from pulse.sandbox.bwrap import BwrapBackend
from pulse.sandbox.monty import MontyBackend
from pulse.sandbox.records import Limits, SandboxRequest, SandboxResult, read_limits
from pulse.sandbox.service import Sandbox, make_sandbox_backend
from pulse.tools.registries import ToolRegistries
from pulse.tools.registry import ToolRegistry
from tests.support.paths import ROOT
from tests.support.sandbox_attacks import attacks, run_attacks
from tests.support.sandbox_engine import engine_command, given_to_run
from tests.support.sandbox_service import TOKEN, sandbox_service
from tests.support.tool_service import bomb
from tests.support.waiting import WAIT_SECONDS, until


@pytest.fixture
async def monty() -> AsyncIterator[MontyBackend]:
    backend = MontyBackend()
    yield backend
    await backend.close()


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> str:
    """A secret of this process, in a variable."""
    found = f"secret-{uuid.uuid4().hex}"
    monkeypatch.setenv("HOST_SECRET", found)
    return found


class Recorded:
    """A backend whose executions are rows."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.name = sandbox.backend.name
        self.isolation = sandbox.backend.isolation
        self._sandbox = sandbox

    async def check(self) -> str | None:
        return await self._sandbox.check()

    async def execute(self, request: SandboxRequest) -> SandboxResult:
        return await self._sandbox.execute(request, user_id="eve")

    async def close(self) -> None:
        await self._sandbox.close()


async def test_no_attack_reaches_anything_from_monty(
    pool: asyncpg.Pool, monty: MontyBackend, tmp_path: Path, secret: str
) -> None:
    """Files, sockets, processes, the environment, and every limit; afterwards the same workers calculate.

    Each attack is a row with its code and how it ended, and none has the secret.
    """
    marker = tmp_path / "marker"
    marker.write_text(secret)
    sandbox = Sandbox(pool, "shop", monty)
    await run_attacks(Recorded(sandbox), marker, secret)
    rows = await sandbox.executions(user_id="eve")
    tried = attacks(marker)
    assert {each.code for each in tried.values()} <= {row.code for row in rows}
    assert len(rows) == len(tried) + 1
    assert not [row for row in rows if row.ended_at is None or secret in f"{row.stdout}{row.stderr}"]


async def test_the_value_and_the_output_of_code_are_returned(monty: MontyBackend) -> None:
    found = await monty.execute(SandboxRequest(code="print('hi')\n{'sum': a + b, 'odd': {3}}", inputs={"a": 1, "b": 2}))
    assert (found.status, found.value, found.stdout) == ("ok", {"sum": 3, "odd": [3]}, "hi\n")
    broken = await monty.execute(SandboxRequest(code="1 / 0"))
    assert (broken.status, broken.exit_code) == ("failed", 1)
    assert "ZeroDivisionError" in (broken.error or "")
    # One execution leaves nothing for the next.
    await monty.execute(SandboxRequest(code="left = 1"))
    assert (await monty.execute(SandboxRequest(code="left"))).status == "failed"


@pytest.mark.parametrize(
    "request_",
    [
        SandboxRequest(code=""),
        SandboxRequest(code="1\0"),
        SandboxRequest(code="x" * 200_001),
        SandboxRequest(code="1", files={"../x": b""}),
        SandboxRequest(code="1", files={"/x": b""}),
        SandboxRequest(code="1", files={"a/b/c": b"", "a": b""}),
        SandboxRequest(code="1", files={"x": bytes(2 << 20)}, limits=Limits(disk_mb=1)),
        SandboxRequest(code="1", env={"a=b": "c"}),
        SandboxRequest(code="1", inputs={"a b": 1}),
        SandboxRequest(code="1", files={"a": b""}),
    ],
    ids=str,
)
async def test_a_request_that_cannot_be_run_is_refused(monty: MontyBackend, request_: SandboxRequest) -> None:
    found = await monty.execute(request_)
    assert (found.status, found.exit_code) == ("refused", -2)


def test_limits_are_bounded_and_named() -> None:
    assert read_limits({"seconds": 1.5}) == Limits(seconds=1.5)
    for wrong in ({"network": True}, {"seconds": 0}, {"seconds": 4000}, {"memory_mb": 1.5}, {"processes": True}):
        with pytest.raises(InvalidInputError):
            read_limits(wrong)
    with pytest.raises(InvalidInputError):
        make_sandbox_backend("subprocess")


async def test_every_execution_is_a_row_also_one_that_was_cancelled(pool: asyncpg.Pool) -> None:
    sandbox = Sandbox(pool, "shop")
    await sandbox.execute(SandboxRequest(code="print('a\\0b' * 9000); 1 / 0"), user_id="ann")
    found = (await sandbox.executions(user_id="ann"))[0]
    assert (found.status, found.sandbox_type, found.exit_code) == ("failed", "monty", 1)
    assert found.environment["limits"]["memory_mb"] == 256
    assert len(found.stdout or "") <= 16_384
    # Neither code nor output keeps a secret, also at the cut; the code itself has it.
    key = "AKIAABCDEFGHIJKLMNOP"
    code = f"print('{key}')\n1 / 0 # '{key}'\n" + "#" * 16_300
    at = 16_384 - len(code) - 6
    ran = await sandbox.execute(SandboxRequest(code=f"{code}{'#' * at} {key}"), user_id="ann")
    assert key in ran.stdout
    row = await pool.fetchrow("SELECT * FROM sandbox_executions ORDER BY id DESC LIMIT 1")
    assert "AKIA" not in str(dict(row))
    assert "[redacted]" in row["stdout"]
    endless = SandboxRequest(code="while True: pass", limits=Limits(seconds=WAIT_SECONDS))
    task = asyncio.create_task(sandbox.execute(endless))
    while not await pool.fetchval("SELECT count(*) FROM sandbox_executions WHERE status = 'running'"):
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await sandbox.executions())[0].status == "crashed"
    await pool.execute("UPDATE sandbox_executions SET created_at = now() - interval '31 days'")
    assert await pool.fetchval("SELECT prune_sandbox(interval '30 days')") == 3
    await sandbox.close()


class Weak:
    """A backend that fails its self-test, and counts what it was asked to run."""

    name = "weak"
    isolation = "namespace"

    def __init__(self) -> None:
        self.ran = 0

    async def check(self) -> str | None:
        return "it does not isolate here"

    async def execute(self, request: SandboxRequest) -> SandboxResult:
        self.ran += 1
        return SandboxResult(status="ok")

    async def close(self) -> None:
        pass


async def test_a_backend_that_fails_its_test_runs_nothing_and_nothing_replaces_it(pool: asyncpg.Pool) -> None:
    weak = Weak()
    sandbox = Sandbox(pool, "shop", weak)  # type: ignore[arg-type]
    found = await sandbox.execute(SandboxRequest(code="1"))
    assert (found.status, found.error, weak.ran) == ("unavailable", "it does not isolate here", 0)
    assert (await sandbox.executions())[0].status == "unavailable"
    missing = BwrapBackend(program="/nowhere/bwrap")
    assert "cannot be started" in (await missing.check() or "")
    # A command that runs code without isolation is found out.
    assert "shows the host's files" in (
        await CommandBackend(["/usr/bin/env", "python3", "-I", "-"], env={}).check() or ""
    )
    assert "cannot be started" in (await CommandBackend(["/nowhere/docker"]).check() or "")


class Counting(MontyBackend):
    """A backend that counts its tests of itself; some of the first ones fail."""

    def __init__(self, failing: int) -> None:
        super().__init__()
        self.tests, self._failing = 0, failing

    async def check(self) -> str | None:
        self.tests += 1
        return "not yet" if self.tests <= self._failing else await super().check()


async def test_a_backend_is_tested_once_for_all_apps(pool: asyncpg.Pool) -> None:
    """Calls of several apps, at once too, share one test. One that failed is repeated, and nothing runs before."""
    backend = Counting(failing=2)
    registries = ToolRegistries(pool, backend)

    async def run_in(*apps: str) -> list[str]:
        sandboxes = [registries.of(app)._sandbox for app in apps]
        found = await asyncio.gather(*(each.execute(SandboxRequest(code="1")) for each in sandboxes if each))
        return [each.status for each in found]

    assert (await run_in("a"), backend.tests) == (["unavailable"], 1)
    assert (await run_in("a"), backend.tests) == (["unavailable"], 2)
    assert (await run_in("a", "b", "c"), backend.tests) == (["ok"] * 3, 3)
    assert (await run_in("d", "a"), backend.tests) == (["ok"] * 2, 3)
    await registries.close()


async def test_a_command_ends_by_processor_time_and_says_so() -> None:
    backend = CommandBackend([sys.executable, "-I", "-"])
    limits = Limits(seconds=30, cpu_seconds=1)
    found = await backend.execute(SandboxRequest(code="print('began')\nwhile True: pass", limits=limits))
    assert (found.status, found.exit_code, found.error) == ("timeout", -1, "over 1 s of processor time")
    assert found.stderr == ""
    # What ends by itself is told apart from it, and codes of the code's own are only that.
    killed = await backend.execute(SandboxRequest(code="import os\nos.kill(os.getpid(), 9)"))
    assert (killed.status, killed.error) == ("crashed", "the command ended by itself")
    exited = await backend.execute(SandboxRequest(code="print('x')\nraise SystemExit(200)"))
    assert (exited.status, exited.exit_code, exited.stdout, exited.stderr) == ("failed", 200, "x\n", "")
    for code, value in (("class A:\n    def __repr__(self): raise KeyError\nA()", "<A>"), ("10**5000", "<int>")):
        shown = await backend.execute(SandboxRequest(code=code))
        assert (shown.status, shown.value) == ("ok", value)


async def test_an_engine_is_told_apart_from_the_code_and_leaves_no_container(tmp_path: Path) -> None:
    """Its failure is `unavailable`, its memory is not the code's, and it is told to end what may be left."""
    log = tmp_path / "log"

    def engine(image: str) -> ContainerBackend:
        return ContainerBackend(image, engine=engine_command(log))

    async def calls() -> list[str]:
        lines = log.read_text().splitlines()
        log.unlink()
        assert len({line.partition(" ")[2] for line in lines}) == 1
        return [line.partition(" ")[0] for line in lines]

    small = Limits(memory_mb=64)
    found = await engine("python").execute(SandboxRequest(code="import time\ntime.sleep(0.5)\n6 * 7", limits=small))
    assert (found.status, found.value, found.resource_usage) == ("ok", 42, {})
    assert await calls() == ["run"]
    for code in ("import os\nos._exit(126)", "raise SystemExit(126)"):
        own = await engine("python").execute(SandboxRequest(code=code))
        assert (own.status, own.exit_code, own.stderr) == ("failed", 126, "")
        assert await calls() == ["run"]
    for image in ("missing", "125", "127"):
        failed = await engine(image).execute(SandboxRequest(code="1"))
        assert (failed.status, failed.exit_code) == ("unavailable", None)
        assert f"the engine ended with code {1 if image == 'missing' else image}" in (failed.error or "")
        assert await calls() == ["run", "kill", "rm"]
    late = await engine("slow").execute(SandboxRequest(code="1", limits=Limits(seconds=2)))
    assert (late.status, late.exit_code) == ("timeout", -1)
    assert (await calls())[-2:] == ["kill", "rm"]  # on a busy machine it may be too late before it says that it runs
    task = asyncio.create_task(engine("slow").execute(SandboxRequest(code="1")))
    await until(lambda: log.exists() and log.read_text().endswith("\n"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await calls() == ["run", "kill", "rm"]
    gone = await ContainerBackend("python", engine=["/nowhere/podman"]).execute(SandboxRequest(code="1"))
    assert (gone.status, gone.error) == ("unavailable", "podman cannot be started: No such file or directory")


async def test_a_named_sandbox_is_that_one(tmp_path: Path) -> None:
    """With the engine, the options and the token that are given; podman's own default that must not hold is undone.

    A container gets no proxy of the engine's: its address may have a password.
    """
    log = tmp_path / "podman"
    backend = make_sandbox_backend("container:python", engine=engine_command(log), options=["--runtime", "runsc"])
    assert (await backend.execute(SandboxRequest(code="6 * 7"))).value == 42
    given = given_to_run(log)
    assert {"--env=https_proxy=", "--env=HTTPS_PROXY=", "--env=http_proxy="} <= set(given)
    at = given.index("--runtime")
    assert given[at - 1 : at + 3] == ["--read-only-tmpfs=false", "--runtime", "runsc", "python"]
    other = make_sandbox_backend("container:python", engine=engine_command(tmp_path / "docker"))
    assert (await other.execute(SandboxRequest(code="6 * 7"))).value == 42
    assert "--read-only-tmpfs=false" not in given_to_run(tmp_path / "docker")
    for wrong, why in (
        ("docker:python", "no sandbox 'docker'"),
        ("bwrap:python", "nothing after a colon"),
        ("container", "needs an image"),
        ("container:", "needs an image"),
        ("container:--privileged", "needs an image"),
        ("container:a b", "needs an image"),
        ("remote:", "needs a URL"),
        ("remote:ftp://one.example", "needs a URL"),
        ("remote:https://[", "needs a URL"),
        ("remote:https://one.example:x/", "needs a URL"),
        ("remote:https://one.example/a b", "needs a URL"),
        ("remote:https://user:hushhush@one.example", "no user"),
        ("remote:https://one.example/run?key=hushhush", "no query"),
        ("https://user:hushhush@one.example", "no sandbox 'https'"),
    ):
        with pytest.raises(InvalidInputError, match=why) as caught:
            make_sandbox_backend(wrong)
        assert "hushhush" not in str(caught.value)


@pytest.mark.system
async def test_a_service_passes_the_same_attacks(
    pool: asyncpg.Pool, monty: MontyBackend, tmp_path: Path, secret: str
) -> None:
    """A real server of the protocol, here with monty behind it: each attack is a row, as on a backend of this host."""
    marker = tmp_path / "marker"
    marker.write_text(secret)
    async with sandbox_service(monty) as url:
        allowed = parse_networks("127.0.0.1")
        sandbox = Sandbox(pool, "shop", RemoteBackend(url, token=TOKEN, allowed=allowed))
        await run_attacks(Recorded(sandbox), marker, secret, is_subset=True)
        rows = await sandbox.executions(user_id="eve")
        assert len(rows) == len(attacks(marker)) + 1
        assert not [row for row in rows if row.ended_at is None or row.sandbox_type != "remote"]
        broken = await sandbox.execute(SandboxRequest(code="print('hi')\n1 / 0"))
        assert (broken.status, broken.exit_code, broken.stdout) == ("failed", 1, "hi\n")
        await sandbox.close()
        for backend, why in (
            (RemoteBackend(url, allowed=allowed), "answered 401"),
            (RemoteBackend(url), "RefusedAddress"),
        ):
            refused = Sandbox(pool, "shop", backend)
            found = await refused.execute(SandboxRequest(code="1"))
            assert found.status == "unavailable"
            assert why in (found.error or "")
            await refused.close()


async def test_the_protocol_of_a_service_is_as_it_is_described(monty: MontyBackend) -> None:
    """The request of the documentation is taken by a service, whose answer is the one beside it."""
    page = (ROOT / "docs" / "sandbox.md").read_text()
    request, described = (json.loads(block) for block in re.findall(r"```json\n(.*?)```", page, re.DOTALL))
    async with sandbox_service(monty) as url, httpx.AsyncClient(timeout=WAIT_SECONDS) as client:
        answered = await client.post(url, json=request, headers={"authorization": f"Bearer {TOKEN}"})
        assert {**answered.json(), "execution_time_ms": 12.5} == described
        described_request = SandboxRequest(code=request["code"], inputs=request["inputs"])
        backend = RemoteBackend(url, token=TOKEN, allowed=parse_networks("127.0.0.1"))
        assert (await backend.execute(described_request)).value == described["value"]
        await backend.close()
    assert request["limits"] == asdict(Limits())


Answer: TypeAlias = Callable[[asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def answering(choose: Callable[[], Answer]) -> AsyncIterator[str]:
    """Serve what is chosen for each request, and return the URL."""
    tasks = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                await reader.readexactly(int(head.partition("content-length: ")[2].partition("\r\n")[0]))
                await choose()(writer)
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/run"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def answer(body: Any, status: int = 200, **headers: str) -> Answer:
    async def write(writer: asyncio.StreamWriter) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(content)}\r\n{more}\r\n".encode() + content)
        await writer.drain()

    return write


async def endless(writer: asyncio.StreamWriter) -> None:
    """Send gigabytes of output, until nobody reads them."""
    writer.write(b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"status": "ok", "stdout": "')
    while True:
        writer.write(b"x" * (1 << 20))
        await writer.drain()


async def trickling(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.01)


OK = {"status": "ok", "exit_code": 0}
HUGE = Limits(disk_mb=16_384, seconds=WAIT_SECONDS)
#: What a service answers, by the status that it becomes.
ANSWERS: Mapping[str, tuple[str, Answer, Limits]] = {
    "files": ("ok", answer({**OK, "files": {"a/b": "YWI="}}), Limits()),
    "nothing else": ("ok", answer({**OK, "files": None, "stdout": "\ud800\0"}), Limits()),
    "another status": ("crashed", answer({"status": "fine"}), Limits()),
    "no object": ("crashed", answer([1]), Limits()),
    "no JSON": ("crashed", answer(b"\xff"), Limits()),
    "a text as code": ("crashed", answer({**OK, "exit_code": "0"}), Limits()),
    "a code that no column holds": ("crashed", answer({**OK, "exit_code": 2**40}), Limits()),
    "a time that no column holds": ("crashed", answer(b'{"status": "ok", "execution_time_ms": NaN}'), Limits()),
    "a time that no float holds": ("crashed", answer({**OK, "execution_time_ms": 10**400}), Limits()),
    "an object as output": ("crashed", answer({**OK, "stdout": {"a": 1}}), Limits()),
    "an error that is none": ("crashed", answer({"status": "failed", "error": [1]}), Limits()),
    "an empty error that is no text": ("crashed", answer({"status": "failed", "error": []}), Limits()),
    "a file out of its folder": ("crashed", answer({**OK, "files": {"../a": "YWI="}}), Limits()),
    "too many files": ("crashed", answer({**OK, "files": {str(n): "" for n in range(101)}}), Limits()),
    "too large a file": ("crashed", answer({**OK, "files": {"a": "AAAA" * 400_000}}), Limits(disk_mb=1)),
    "an error": ("unavailable", answer({}, 503), Limits()),
    "a redirect": ("unavailable", answer({}, 302, Location="http://127.0.0.1:1/"), Limits()),
    "a bomb": ("output", answer(bomb(), Content_Encoding="gzip"), Limits(disk_mb=1)),
    "gigabytes": ("output", endless, Limits(disk_mb=1, seconds=WAIT_SECONDS)),
    "gigabytes where files may have them": ("output", endless, HUGE),
    "a body without an end": ("timeout", trickling, Limits(seconds=0.5)),
}


async def test_whatever_a_service_answers_is_a_result_within_its_limits(pool: asyncpg.Pool) -> None:
    """Each is a row that has ended; what is too long is left unread, whatever the limits of the request allow."""
    wanted: list[str] = []

    def choose() -> Answer:
        return ANSWERS[wanted[-1]][1] if wanted else answer({**OK, "value": 42})

    async with answering(choose) as url:
        sandbox = Sandbox(pool, "shop", RemoteBackend(url, allowed=parse_networks("127.0.0.1")))
        assert await sandbox.check() is None
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for name, (status, _, limits) in ANSWERS.items():
            wanted.append(name)
            found = await sandbox.execute(SandboxRequest(code="1", limits=limits), user_id="ann")
            row = (await sandbox.executions(user_id="ann", limit=1))[0]
            assert (found.status, row.status, row.ended_at is None) == (status, status, False), name
            if name == "files":
                assert found.files == {"a/b": b"ab"}
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # in kB
        await sandbox.close()


async def test_output_of_a_service_is_cut_at_its_limit() -> None:
    """Both streams together, at a whole character; the value of code that wrote too much stays."""
    given = {**OK, "value": 42, "stdout": "é" * 40, "stderr": "x" * 40}
    async with answering(lambda: answer(given)) as url:
        backend = RemoteBackend(url, allowed=parse_networks("127.0.0.1"))
        for limit, stdout, stderr in ((120, 40, 40), (100, 40, 20), (81, 40, 1), (79, 39, 0)):
            found = await backend.execute(SandboxRequest(code="1", limits=Limits(output_bytes=limit)))
            assert (len(found.stdout), len(found.stderr)) == (stdout, stderr)
            assert (found.status, found.truncated) == (("ok", False) if limit == 120 else ("output", True))
        await backend.close()


async def test_code_is_a_tool(pool: asyncpg.Pool) -> None:
    """With its own code, or with that of the model; without a sandbox nothing runs."""
    sandbox = Sandbox(pool, "shop")
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    async with ToolRegistry(pool, "shop", sandbox=sandbox) as registry:
        await registry.register_sandbox_tool("run", description="Run Python.")
        await registry.register_sandbox_tool("double", code="inputs['n'] * 2", description="", input_schema=schema)
        assert await registry.invoke_tool("run", {"code": "print(1); 6 * 7"}) == {"value": 42, "stdout": "1\n"}
        assert await registry.invoke_tool("double", {"n": 4}) == 8
        failed = await registry.invoke_tool("run", {"code": "1 / 0"})
        assert failed["error"]["code"] == "tool_failed"
        assert "ZeroDivisionError" in failed["error"]["message"]
        with pytest.raises(InvalidInputError):
            await registry.register_sandbox_tool("run", description="", limits={"network": True})
    async with ToolRegistry(pool, "shop") as without:
        assert "no sandbox" in (await without.invoke_tool("double", {"n": 4}))["error"]["message"]
    assert [each.status for each in await sandbox.executions()] == ["failed", "ok", "ok"]
    await sandbox.close()


def test_the_filter_of_system_calls_is_a_whole_program() -> None:
    """Every jump stays inside of it, for each machine; an unknown one is refused."""
    for machine in ("x86_64", "aarch64"):
        found = seccomp.program(machine)
        steps = len(found) // 8
        assert len(found) % 8 == 0
        for index in range(steps):
            _, true, false = found[index * 8 + 1], found[index * 8 + 2], found[index * 8 + 3]
            assert index + 1 + max(true, false) < steps or found[index * 8] == 0x06
    with pytest.raises(LookupError):
        seccomp.program("vax")
