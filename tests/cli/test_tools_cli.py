"""`hippocampus tools`: from a document to a call, its log, and back to a former version."""

from __future__ import annotations

import asyncio
import json
import shlex
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pulse import create_pool
from pulse.tools.registry import ToolRegistry
from tests.support.cli_commands import Run
from tests.support.sandbox_engine import engine_command, given_to_run
from tests.support.tool_service import document


class Pets(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"pets": ["Rex"]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def pets() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Pets) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_code_runs_in_the_sandbox_of_the_settings(
    run: Run, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool of code is called, and confirmed, from the command line too."""
    monkeypatch.setenv("DATABASE_URL", dsn)

    async def register() -> None:
        async with await create_pool(dsn) as pool, ToolRegistry(pool, "shop") as registry:
            await registry.register_sandbox_tool("run", description="Run Python.")
            await registry.register_sandbox_tool(
                "asked", description="Run Python.", permissions={"requires_confirmation": True}
            )

    asyncio.run(register())
    app = ("--app", "shop", "--user", "ann")
    code, out, _ = run("tools", "call", "run", '{"code": "6 * 7"}', *app)
    assert (code, json.loads(out)["value"]) == (0, 42)
    waiting = json.loads(run("tools", "call", "asked", '{"code": "6 * 7"}', *app, "--json")[1])
    code, out, _ = run("tools", "confirm", waiting["execution_id"], *app)
    assert (code, json.loads(out)["value"]) == (0, 42)
    log = tmp_path / "engine"
    monkeypatch.setenv("HIPPOCAMPUS_SANDBOX", "container:python")
    monkeypatch.setenv("HIPPOCAMPUS_SANDBOX_ENGINE", shlex.join(engine_command(log)))
    monkeypatch.setenv("HIPPOCAMPUS_SANDBOX_OPTIONS", "--label 'of the suite'")
    # It shows the host's files, as a container with a folder of the host would: nothing runs, here or elsewhere.
    assert "shows the host's files" in run("tools", "call", "run", '{"code": "6 * 7"}', *app)[2]
    assert "of the suite" in given_to_run(log)
    monkeypatch.setenv("HIPPOCAMPUS_SANDBOX", "bwrap")
    monkeypatch.setenv("PATH", "/nowhere")
    assert "bwrap is not installed" in run("tools", "call", "run", '{"code": "6 * 7"}', *app)[2]


def test_tools_from_a_document_to_their_log(
    run: Run, dsn: str, pets: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each verb, also where it fails: one sentence, and nothing changed."""
    monkeypatch.setenv("DATABASE_URL", dsn)
    path = tmp_path / "pets.json"
    described = document(pets, {"/pets": {"get": {"operationId": "list_pets", "description": "List pets."}}})
    path.write_text(json.dumps(described))
    app = ("--app", "shop")
    assert run("tools", "list", *app)[2].startswith("There are no tools")
    code, out, _ = run("tools", "add", "pets", str(path), *app, "--allow-network", "127.0.0.0/8", "--timeout", "20")
    assert (code, out) == (0, "added  list_pets\n")
    assert json.loads(run("tools", "show", "list_pets", *app, "--json")[1])["timeout_seconds"] == 20
    code, out, _ = run("tools", "call", "list_pets", *app, "--user", "ann")
    assert (code, json.loads(out)) == (0, {"pets": ["Rex"]})
    code, _, said = run("tools", "call", "list_pets", '{"x": 1}', *app)
    assert code == 1
    assert "invalid_arguments" in said
    code, out, _ = run("tools", "log", *app, "--json")
    assert [each["status"] for each in json.loads(out)] == ["refused", "succeeded"]
    assert json.loads(run("tools", "disable", "list_pets", *app, "--json")[1])["is_active"] is False
    assert run("tools", "call", "list_pets", *app)[0] == 1
    assert run("tools", "enable", "list_pets", *app)[0] == 0
    described["paths"]["/pets"]["get"]["description"] = "List all pets."
    path.write_text(json.dumps(described))
    assert run("tools", "add", "pets", str(path), *app, "--allow-network", "127.0.0.0/8")[1] == "changed  list_pets\n"
    assert "as version 3" in run("tools", "rollback", "list_pets", "1", *app)[1]
    assert json.loads(run("tools", "show", "list_pets", *app, "--json")[1])["description"] == "List pets."
    assert "list_pets" in run("tools", "list", *app)[1]
    # A person confirms what waits: once, or not at all.
    described["paths"]["/pets"]["get"]["description"] = "List."
    path.write_text(json.dumps(described))
    rules = ("--permissions", '{"requires_confirmation": true}', "--allow-network", "127.0.0.0/8")
    assert run("tools", "add", "pets", str(path), *app, *rules)[0] == 0
    waiting = []
    for _ in range(2):
        code, out, _ = run("tools", "call", "list_pets", *app, "--user", "ann", "--json")
        assert (code, json.loads(out)["status"]) == (1, "waiting")
        waiting.append(json.loads(out)["execution_id"])
    code, out, _ = run("tools", "confirm", waiting[0], *app, "--user", "ann")
    assert (code, json.loads(out)) == (0, {"pets": ["Rex"]})
    assert "decided before" in run("tools", "confirm", waiting[0], *app, "--user", "ann")[2]
    assert run("tools", "confirm", waiting[1], *app, "--user", "ann", "--deny")[:2] == (
        0, "It is denied; nothing was called.\n",
    )  # fmt: skip
    for wrong in (
        ("confirm", "0"),
        ("add", "pets", "/nowhere.json"),
        ("call", "list_pets", "[]"),
        ("show", "nobody"),
        ("rollback", "x", "1"),
    ):
        code, _, said = run("tools", *wrong, *app)
        assert code in (1, 2)
        assert said.count("\n") == 1, said
