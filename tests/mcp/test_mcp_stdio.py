"""`hippocampus mcp` as a real process: the official client, an embedded server, and nothing but the protocol."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from mcp import StdioServerParameters
from mcp.client.client import Client

from tests.support import cli_process
from tests.support.mcp_scene import ERAS, Era, answer
from tests.support.waiting import until_sync

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
