"""`hippocampus mcp` as a real process: the official client, an embedded server, and nothing but the protocol."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from mcp import StdioServerParameters
from mcp.client.client import Client

from tests.support import cli_process
from tests.support.mcp_scene import ERAS, Era, answer
from tests.support.waiting import until_sync
from workers.mcp import stdio

WORDS = ("mcp", "--app", "assistant", "--user", "ann")
INITIALIZE = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}  # fmt: skip


def parameters(home: Path, *words: str, **settings: str) -> StdioServerParameters:
    command, *arguments = cli_process.command(*words)
    return StdioServerParameters(command=command, args=arguments, env=cli_process.environment(home, **settings))


def test_it_starts_without_a_database_and_leaves_nothing_running(home: Path) -> None:
    """The embedded server is created, kept while it serves, and stopped; SIGTERM ends it too; the data stays."""
    for ending in ("closed", "terminated"):
        process = subprocess.Popen(
            cli_process.command(*WORDS),
            env=cli_process.environment(home),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
        process.stdin.flush()
        reply = json.loads(process.stdout.readline())
        assert reply["result"]["serverInfo"]["name"] == "hippocampus"
        if ending == "terminated":
            process.send_signal(signal.SIGTERM)
        rest, log = process.communicate(timeout=cli_process.COMMAND_SECONDS)
        assert (process.returncode, rest) == (0, b""), log.decode()
        assert b"Traceback" not in log
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


def test_a_message_that_is_too_long_is_refused_and_the_next_is_served(dsn: str, home: Path) -> None:
    """Whatever its size, whether it has an id that can be found or not; nothing of it is stored."""
    process = subprocess.Popen(
        cli_process.command(*WORDS),
        env=cli_process.environment(home, DATABASE_URL=dsn),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def ask(*lines: bytes) -> list[dict[str, Any]]:
        for line in lines:
            process.stdin.write(line + b"\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
        return [json.loads(process.stdout.readline()) for _ in lines]  # type: ignore[union-attr]

    def remember(number: int, size: int) -> bytes:
        arguments = {"name": "remember", "arguments": {"content": "x" * size}}
        return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": arguments}).encode()

    (started,) = ask(json.dumps(INITIALIZE).encode())
    assert started["result"]["serverInfo"]["name"] == "hippocampus"
    process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
    replies = ask(remember(2, 9 * 2**20), remember(3, 20 * 2**20), b'"' + b"y" * 9 * 2**20 + b'"', remember(4, 10))
    by_id = {reply["id"]: reply for reply in replies}
    assert set(by_id) == {2, 3, None, 4}
    for number in (2, 3, None):
        assert by_id[number]["error"]["code"] == -32600
        assert "8 MB" in by_id[number]["error"]["message"]
    assert by_id[4]["result"]["structuredContent"]["id"]
    rest, log = process.communicate(timeout=cli_process.COMMAND_SECONDS)
    assert (process.returncode, rest) == (0, b""), log.decode()
    assert b"Traceback" not in log


@pytest.mark.parametrize("era", ERAS)
async def test_the_official_client_on_a_database(dsn: str, home: Path, era: Era) -> None:
    """App and user come from the options or the settings, the roles from --role."""
    async with Client(parameters(home, *WORDS, DATABASE_URL=dsn), mode=era) as client:
        memory = await answer(client, "remember", {"content": "She rows."})
    named = {"HIPPOCAMPUS_APP": "assistant", "HIPPOCAMPUS_USER": "ann", "DATABASE_URL": dsn}
    async with Client(parameters(home, "mcp", "--role", "read", **named), mode=era) as client:
        assert "forget_memory" not in [tool.name for tool in (await client.list_tools()).tools]
        found = await answer(client, "search_memory", {"query": "rows"})
        assert [each["id"] for each in found["results"]] == [memory["id"]]
    other = {**named, "HIPPOCAMPUS_USER": "bob"}
    async with Client(parameters(home, "mcp", **other), mode=era) as client:
        assert (await answer(client, "search_memory", {"query": "rows"}))["results"] == []


def test_without_an_app_or_a_user_it_says_what_to_name(home: Path) -> None:
    """On standard error, with exit code 2; no server is started for it."""
    for words in (("mcp",), ("mcp", "--app", "a"), ("mcp", "--user", "u")):
        done = cli_process.run(home, *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert "HIPPOCAMPUS_USER" in done.stderr
    assert not os.path.exists(home)  # noqa: PTH110
