"""`hippocampus mcp` as a real process: the official client, an embedded server, and nothing but the protocol."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from mcp import StdioServerParameters
from mcp.client.client import Client

from pulse.sandbox.monty import MontyBackend
from pulse.tools.registry import ToolRegistry
from tests.support import cli_process, forked_command
from tests.support.forked import ForkedProcess
from tests.support.mcp_scene import ERAS, answer, text_of
from tests.support.sandbox_service import TOKEN, sandbox_service
from tests.support.waiting import until_sync
from workers.mcp import stdio

WORDS = ("mcp", "--app", "assistant", "--user", "ann")
INITIALIZE = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}  # fmt: skip


class Piped:
    """A server whose standard input and output the test holds: forked."""

    def __init__(self, home: Path, log: Path, **settings: str) -> None:
        (stdin, write), (read, stdout) = os.pipe(), os.pipe()
        environment = cli_process.environment(home, **settings)
        self._log = log
        self.process = ForkedProcess(
            "workers", *WORDS, environment=environment, stdin=stdin, log=stdout, errors=log, cwd=Path.cwd()
        )
        os.close(stdin)
        os.close(stdout)
        self.stdin, self.stdout = os.fdopen(write, "wb"), os.fdopen(read, "rb")

    def ask(self, *lines: bytes) -> list[dict[str, Any]]:
        """Send messages, and return as many replies."""
        for line in lines:
            self.stdin.write(line + b"\n")
        self.stdin.flush()
        return [json.loads(self.stdout.readline()) for _ in lines]

    def end(self) -> tuple[int, bytes, str]:
        """Close its input; return its exit code, the rest of its output, and its log."""
        self.stdin.close()
        with self.stdout:
            rest = self.stdout.read()
        return self.process.wait(cli_process.COMMAND_SECONDS), rest, self._log.read_text()


@pytest.mark.system
def test_it_starts_without_a_database_and_leaves_nothing_running(home: Path, tmp_path: Path) -> None:
    """The embedded server is created, kept while it serves, and stopped; SIGTERM ends it too; the data stays."""
    message = json.dumps(INITIALIZE).encode()
    started = subprocess.Popen(
        cli_process.command(*WORDS),
        env=cli_process.environment(home),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert started.stdin is not None
    assert started.stdout is not None
    started.stdin.write(message + b"\n")
    started.stdin.flush()
    reply = json.loads(started.stdout.readline())
    assert reply["result"]["serverInfo"]["name"] == "hippocampus"
    left, said = started.communicate(timeout=cli_process.COMMAND_SECONDS)
    assert (started.returncode, left, b"Traceback" in said) == (0, b"", False), said.decode()
    until_sync(lambda: not cli_process.processes_of(home), "nothing is left running")

    again = Piped(home, tmp_path / "log")
    (reply,) = again.ask(message)
    assert reply["result"]["serverInfo"]["name"] == "hippocampus"
    again.process.terminate()
    assert again.process.wait(cli_process.COMMAND_SECONDS) == 0
    _, rest, log = again.end()
    assert (rest, "Traceback" in log) == (b"", False), log
    until_sync(lambda: not cli_process.processes_of(home), "nothing is left running")


@pytest.mark.parametrize(
    ("beginning", "end", "found"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":"tools/call"', b'"}}}', 7),
        (b' { "method" : "tools/call", "id" : "a-1" , "params"', b"}", "a-1"),
        (b'{"method":"tools/call","params":{"id":5,', b'"},"jsonrpc":"2.0","id":9}\n', 9),
        (b'{"method":"tools/call","params":{"id":5,', b'"id":5}}}\n', None),
        (b'{"params":{"id":5,"x":1}', b"]", None),
        (b"", b"", None),
    ],
)
def test_the_id_of_a_long_message_is_found_at_either_end(beginning: bytes, end: bytes, found: int | str | None) -> None:
    """That of the message, never one in its arguments."""
    assert stdio.request_id_of(beginning, end) == found


def test_a_message_that_is_too_long_is_refused_and_the_next_is_served(dsn: str, home: Path, tmp_path: Path) -> None:
    """Whatever its size, whether it has an id that can be found or not; nothing of it is stored."""
    server = Piped(home, tmp_path / "log", DATABASE_URL=dsn)

    def remember(number: int, size: int) -> bytes:
        arguments = {"name": "remember", "arguments": {"content": "x" * size}}
        return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": arguments}).encode()

    (started,) = server.ask(json.dumps(INITIALIZE).encode())
    assert started["result"]["serverInfo"]["name"] == "hippocampus"
    server.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
    replies = server.ask(
        remember(2, 9 * 2**20), remember(3, 20 * 2**20), b'"' + b"y" * 9 * 2**20 + b'"', remember(4, 10)
    )
    by_id = {reply["id"]: reply for reply in replies}
    assert set(by_id) == {2, 3, None, 4}
    for number in (2, 3, None):
        assert by_id[number]["error"]["code"] == -32600
        assert "8 MB" in by_id[number]["error"]["message"]
    assert by_id[4]["result"]["structuredContent"]["id"]
    code, rest, log = server.end()
    assert (code, rest, "Traceback" in log) == (0, b"", False), log


def test_models_that_do_not_answer_are_logged(dsn: str, home: Path, tmp_path: Path) -> None:
    """All of them, on standard error, before one is called; the client is served."""
    with socket.socket() as closed:
        # Bound, so that no other program takes it, and not listening.
        closed.bind(("127.0.0.1", 0))
        models = {
            "HIPPOCAMPUS_GENERATOR": "openai:gpt-5.4-mini",
            "HIPPOCAMPUS_EMBEDDER": "openai:text-embedding-3-small",
            "HIPPOCAMPUS_RERANKER": "openai:rank",
            "HIPPOCAMPUS_PROVIDER_BASE_URL": f"http://127.0.0.1:{closed.getsockname()[1]}/v1",
        }
        log = tmp_path / "log"
        server = Piped(home, log, DATABASE_URL=dsn, **models)

        def reported() -> set[str]:
            lines = (json.loads(line) for line in log.read_text().splitlines(keepends=True) if line.endswith("\n"))
            return {line["kind"] for line in lines if line["event"] == "model_not_reached"}

        (reply,) = server.ask(json.dumps(INITIALIZE).encode())
        assert reply["result"]["serverInfo"]["name"] == "hippocampus"
        until_sync(lambda: reported() == {"generator", "embedder", "reranker"})
        code, rest, said = server.end()
    assert (code, rest, "Traceback" in said) == (0, b"", False), said


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Path]:
    with forked_command.served(tmp_path) as path:
        yield path


async def test_the_official_client_on_a_database(dsn: str, home: Path, program: Path) -> None:
    """App and user come from the options or the settings, the roles from --role."""

    def parameters(*words: str, **settings: str) -> StdioServerParameters:
        environment = cli_process.environment(home, **settings)
        return StdioServerParameters(command=str(program), args=list(words), env=environment)

    async with Client(parameters(*WORDS, DATABASE_URL=dsn), mode=ERAS[0]) as client:
        memory = await answer(client, "remember", {"content": "She rows."})
        for query, header in (("rows", "## Relevant memories\n"), ("rows 是什么意思？", "## 相关记忆\n")):
            assert (await answer(client, "get_context", {"query": query}))["text"].startswith(header)
    named = {"HIPPOCAMPUS_APP": "assistant", "HIPPOCAMPUS_USER": "ann", "DATABASE_URL": dsn}
    async with Client(parameters("mcp", "--role", "read", **named), mode=ERAS[1]) as client:
        assert "forget_memory" not in [tool.name for tool in (await client.list_tools()).tools]
        found = await answer(client, "search_memory", {"query": "rows"})
        assert [each["id"] for each in found["results"]] == [memory["id"]]
    other = {**named, "HIPPOCAMPUS_USER": "bob"}
    async with Client(parameters("mcp", **other), mode=ERAS[0]) as client:
        assert (await answer(client, "search_memory", {"query": "rows"}))["results"] == []


async def test_code_of_registered_tools_runs_in_the_sandbox_of_the_settings(
    dsn: str, home: Path, program: Path, pool: asyncpg.Pool
) -> None:
    """`hippocampus mcp` uses, like a writer, monty by default, or the sandbox that is named, which says why it cannot.

    The tool is for a role, which the command line asserts.
    """
    async with ToolRegistry(pool, "assistant") as registry:
        await registry.register_sandbox_tool(
            "run", description="Run Python.", permissions={"allowed_roles": ["calculator"]}
        )
    environment = cli_process.environment(home, DATABASE_URL=dsn)
    backend = MontyBackend()
    async with sandbox_service(backend) as url:
        remote = {"HIPPOCAMPUS_SANDBOX": f"remote:{url}", "HIPPOCAMPUS_SANDBOX_NETWORKS": "127.0.0.1"}
        for more, found in (
            ({}, "42"),
            ({"HIPPOCAMPUS_SANDBOX": "bwrap", "PATH": "/nowhere"}, "bwrap is not installed"),
            ({**remote, "HIPPOCAMPUS_SANDBOX_TOKEN": TOKEN}, "42"),
            (remote, "remote answered 401"),
        ):
            started = StdioServerParameters(
                command=str(program), args=[*WORDS, "--user-role", "calculator"], env={**environment, **more}
            )
            async with Client(started, mode=ERAS[0]) as client:
                assert found in text_of(await client.call_tool("run", {"code": "6 * 7"}))
    await backend.close()
    assert await pool.fetch("SELECT sandbox_type, status FROM sandbox_executions ORDER BY id") == [
        ("monty", "ok"), ("bwrap", "unavailable"), ("remote", "ok"), ("remote", "unavailable"),
    ]  # fmt: skip


def test_without_an_app_or_a_user_it_says_what_to_name(home: Path) -> None:
    """On standard error, with exit code 2; no server is started for it."""
    for words in (("mcp",), ("mcp", "--app", "a"), ("mcp", "--user", "u")):
        done = cli_process.run(home, *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert "HIPPOCAMPUS_USER" in done.stderr
    assert not os.path.exists(home)  # noqa: PTH110
