"""ADK's own server, as a process, on the services that ``hippocampus://`` names."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import psycopg
import pytest

from tests.support import cli_process
from tests.support.paths import EXAMPLES, ROOT
from tests.support.waiting import WAIT_SECONDS
from tests.support.writer_process import free_port

EXAMPLE = EXAMPLES / "adk_agent"
PAGE = (ROOT / "docs" / "adk-memory.md").read_text(encoding="utf-8")
pytestmark = pytest.mark.system
SESSIONS = "/apps/companion/users/ada/sessions"
ADK = (sys.executable, "-m", "google.adk.cli")
ADDRESSES = tuple(f"--{kind}_service_uri=hippocampus://" for kind in ("session", "memory", "artifact"))
#: In the place of Google Cloud's program: it keeps the folder that would be built, which is after --source or the last.
GCLOUD = """#!/bin/sh
case "$1 $2" in
    "run deploy" | "builds submit") ;;
    *) exit 0 ;;
esac
for folder; do
    [ "$before" = --source ] && break
    before=$folder
done
cp -R "$folder" "$STAGED"
"""
#: What each target needs to be named.
DEPLOYED_TO = {"cloud_run": (), "gke": ("--cluster_name=c",)}


@pytest.fixture
def agents(tmp_path: Path) -> Path:
    """The example's folder of agents, where the server may write."""
    folder = tmp_path / "agents"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__", ".adk"))
    return folder


@pytest.fixture
def api(agents: Path, dsn: str, home: Path) -> Iterator[httpx.Client]:
    # Once by its full address, otherwise by DATABASE_URL.
    uri = dsn.replace("postgresql://", "hippocampus://", 1)
    addresses = [f"--session_service_uri={uri}", *ADDRESSES[1:]]
    with serving([*addresses, str(agents)], cli_process.environment(home, DATABASE_URL=dsn)) as client:
        yield client


@contextmanager
def serving(words: Sequence[str], environment: Mapping[str, str]) -> Iterator[httpx.Client]:
    """Run `adk api_server` with these words; it says nothing of services in memory, and shows no traceback."""
    port = free_port()
    process = subprocess.Popen(
        [*ADK, "api_server", f"--port={port}", *words],
        env=dict(environment),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=WAIT_SECONDS) as client:
            _await_ready(client, process)
            yield client
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            said, _ = process.communicate(timeout=WAIT_SECONDS)
        finally:
            process.kill()
    assert "in-memory" not in said
    assert "Traceback" not in said, said


def _await_ready(client: httpx.Client, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise AssertionError(process.communicate()[0])
        try:
            if client.get("/list-apps").status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError("the server did not start")


def say(api: httpx.Client, session_id: str, text: str) -> str:
    response = api.post(
        "/run",
        json={
            "appName": "companion",
            "userId": "ada",
            "sessionId": session_id,
            "newMessage": {"role": "user", "parts": [{"text": text}]},
        },
    )
    assert response.status_code == httpx.codes.OK, response.text
    events: list[dict[str, Any]] = response.json()
    return "".join(part.get("text", "") for event in events for part in event.get("content", {}).get("parts", []))


async def test_an_agent_remembers_across_sessions_and_keeps_its_files(api: httpx.Client, pool: asyncpg.Pool) -> None:
    """Sessions, memory and artifacts go through ADK's server into the database that the addresses name."""
    for session_id in ("first", "second"):
        assert api.post(f"{SESSIONS}/{session_id}").status_code == httpx.codes.OK
    assert api.post(f"{SESSIONS}/first").status_code == httpx.codes.CONFLICT
    # The options of a request reach the session service.
    brief = {"sessionId": "brief", "options": {"ttl": "3600s"}}
    assert api.post(SESSIONS, json=brief).status_code == httpx.codes.OK
    assert await pool.fetchval("DELETE FROM threads WHERE session_id = 'brief' RETURNING ttl") == timedelta(hours=1)
    refused = api.post(SESSIONS, json={"options": {"ttl": "soon"}})
    assert (refused.status_code, "ttl must be a duration" in refused.text) == (httpx.codes.BAD_REQUEST, True)
    assert say(api, "first", "I love plum jam.") == "I'll remember that."
    assert say(api, "second", "Which jam do I love?") == "You told me: I love plum jam."
    assert len(api.get(f"{SESSIONS}/second").json()["events"]) == 2

    picture = {"filename": "a.png", "artifact": {"inlineData": {"mimeType": "image/png", "data": "AAH/"}}}
    assert api.post(f"{SESSIONS}/first/artifacts", json=picture).json()["version"] == 0
    assert api.get(f"{SESSIONS}/first/artifacts").json() == ["a.png"]
    assert api.get(f"{SESSIONS}/first/artifacts/a.png").json()["inlineData"]["mimeType"] == "image/png"

    assert await pool.fetchval("SELECT array_agg(session_id ORDER BY session_id) FROM threads") == ["first", "second"]
    assert await pool.fetchval("SELECT count(*) FROM events") == 4
    assert await pool.fetchval("SELECT count(*) FROM artifact_blobs") == 1
    assert await pool.fetchval("SELECT count(*) > 0 FROM consolidation_jobs")


def services_py() -> str:
    """The file that docs/adk-memory.md shows."""
    (shown,) = re.findall(r"^```python\n(from workers\.adk import register.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(shown)


@pytest.mark.parametrize("target", DEPLOYED_TO)
async def test_what_adk_deploy_builds_keeps_its_sessions_here(
    agents: Path, tmp_path: Path, dsn: str, home: Path, pool: asyncpg.Pool, target: str
) -> None:
    """With the three things of the page. Google Cloud's programs are stubs, which keep what would be uploaded; the
    server is started from that folder as the Dockerfile says."""
    (agents / "companion" / "requirements.txt").write_text("./pg_hippocampus.whl[adk]\n")
    (tmp_path / "services.py").write_text(services_py())
    gcloud = tmp_path / "bin" / "gcloud"
    gcloud.parent.mkdir()
    gcloud.write_text(GCLOUD)
    kubectl = gcloud.with_name("kubectl")
    kubectl.write_text("#!/bin/sh\n")
    for stub in (gcloud, kubectl):
        stub.chmod(0o755)
    staged = tmp_path / "staged"
    environment = cli_process.environment(home, DATABASE_URL=dsn, STAGED=str(staged))
    environment["PATH"] = f"{gcloud.parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        [*ADK, "deploy", target, *DEPLOYED_TO[target], "--project=p", "--region=r",
         f"--temp_folder={tmp_path / 'building'}", *ADDRESSES, "--extra_packages", "services.py",
         str(agents / "companion")],
        env=environment, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=WAIT_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    dockerfile = (staged / "Dockerfile").read_text()
    assert re.search(r"^RUN .*pip.*/app/agents/companion/requirements\.txt", dockerfile, re.MULTILINE), dockerfile
    assert 'ENV PYTHONPATH="/app:$PYTHONPATH"' in dockerfile

    image = tmp_path / "image"
    for source, target in re.findall(r'^COPY --chown=\S+ "([^"]+)" "/app/([^"]+)"$', dockerfile, re.MULTILINE):
        to = image / target
        to.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.endswith("/") else shutil.copy)(staged / source, to)
    assert {path.name for path in image.iterdir()} == {"agents", "services.py"}
    assert not (image / "agents" / "services.yaml").exists()
    (command,) = re.findall(r"^CMD (\[.*\]|.*)$", dockerfile, re.MULTILINE)
    words = json.loads(command) if command.startswith("[") else shlex.split(command)
    assert words[:2] == ["adk", "api_server"]
    kept = [word for word in words[2:] if not word.startswith(("--port", "--host"))]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(image), environment.get("PYTHONPATH"))))
    with serving([word.replace("/app/", f"{image}/") for word in kept], environment) as api:
        for session_id in ("first", "second"):
            assert api.post(f"{SESSIONS}/{session_id}").status_code == httpx.codes.OK
        assert say(api, "first", "I love plum jam.") == "I'll remember that."
        assert say(api, "second", "Which jam do I love?") == "You told me: I love plum jam."
    assert await pool.fetchval("SELECT count(*) FROM events") == 4


def test_adk_run_keeps_its_session_here(agents: Path, tmp_path: Path, dsn: str, home: Path) -> None:
    """It reads services.yaml from the agent's own folder, or finds a services.py on its PYTHONPATH."""
    packages = tmp_path / "packages"
    packages.mkdir()
    environment = cli_process.environment(home, DATABASE_URL=dsn)

    def say_once(session_id: str, text: str) -> str:
        done = subprocess.run(
            [*ADK, "run", *ADDRESSES, f"--session_id={session_id}",
             str(agents / "companion"), text],
            env=environment, check=False,
            capture_output=True, text=True, timeout=WAIT_SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout

    with psycopg.connect(dsn) as connection:
        for session_id in ("first", "second"):
            connection.execute("SELECT create_session('companion', 'test_user', %s)", [session_id])
    shutil.copy(agents / "services.yaml", agents / "companion")
    assert "I'll remember that." in say_once("first", "I love plum jam.")
    (agents / "companion" / "services.yaml").unlink()
    (packages / "services.py").write_text(services_py())
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(packages), environment.get("PYTHONPATH"))))
    assert "You told me: I love plum jam." in say_once("second", "Which jam do I love?")
    with psycopg.connect(dsn) as connection:
        [[events]] = connection.execute("SELECT count(*) FROM events").fetchall()
    assert events == 4
