"""A real session writer for tests: its own process, a free port, a readable log."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from tests.support import least_privilege
from tests.support.forked import ForkedProcess
from tests.support.paths import ROOT
from tests.support.waiting import POLL_SECONDS, WAIT_SECONDS, until

BODY_BYTES_MAX = 9_000_000
KEY = "test-key-0123456789abcdef"


def free_port() -> int:
    """A port that the kernel gives to no other process: until this one ends it is bound, and not listened on.

    A server that reuses addresses, as all do that can be restarted, can bind it beside.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    port: int = holder.getsockname()[1]
    holder.detach()
    return port


def is_served(port: int) -> bool:
    """Whether a process accepts connections on a port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def healthy(client: httpx.AsyncClient, url: str = "/health") -> httpx.Response:
    """The answer once it is 200: its check has two seconds for a new connection to the database."""

    async def answer() -> httpx.Response | None:
        response = await client.get(url)
        return response if response.status_code == 200 else None

    return await until(answer, "the writer is healthy")


class WriterProcess:
    """A writer that serves inside the block and has stopped after it."""

    def __init__(self, dsn: str | None, log: Path, *, module: str = "workers.writer", **settings: str) -> None:
        self._module = module
        self.port = free_port()
        self.log_path = log
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HIPPOCAMPUS_")},
            **({} if dsn is None else {"DATABASE_URL": least_privilege.address_of(dsn, "writer")}),
            "HIPPOCAMPUS_API_PORT": str(self.port),
            **{f"HIPPOCAMPUS_{name.upper()}": value for name, value in settings.items()},
        }
        self.process: ForkedProcess | subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def metrics_address(self) -> str:
        """Of this process: others may be listed that have ended."""
        (port,) = (line["port"] for line in self.log() if line.get("event") == "metrics_served")
        return f"127.0.0.1:{port}"

    @property
    def headers(self) -> dict[str, str]:
        key = self._environment.get("HIPPOCAMPUS_API_KEY")
        return {} if key is None else {"Authorization": f"Bearer {key}"}

    def start(self) -> ForkedProcess | subprocess.Popen[bytes]:
        self.process = ForkedProcess(self._module, environment=self._environment, log=self.log_path)
        return self.process

    def refusal(self) -> tuple[int, str]:
        """Run a writer that must not start; return its exit code and its output."""
        code = self.start().wait(WAIT_SECONDS)
        return code, self.log_path.read_text()

    def wait_until_serving(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.log_path.read_text()
            if is_served(self.port):
                httpx.get(f"{self.url}/health", timeout=WAIT_SECONDS)
                return
            time.sleep(POLL_SECONDS)
        raise AssertionError(f"no answer within {WAIT_SECONDS} s: {self.log_path.read_text()}")

    def first_answer(self, path: str) -> tuple[httpx.Response, float]:
        """Return the answer to the first connection that the writer accepts, and the seconds that it took."""
        assert self.process is not None
        deadline = time.monotonic() + WAIT_SECONDS
        with httpx.Client(base_url=self.url, headers=self.headers, timeout=WAIT_SECONDS, trust_env=False) as client:
            while time.monotonic() < deadline:
                assert self.process.poll() is None, self.log_path.read_text()
                began = time.monotonic()
                try:
                    return client.get(path), time.monotonic() - began
                except httpx.ConnectError:
                    time.sleep(POLL_SECONDS)
        raise AssertionError(f"no connection within {WAIT_SECONDS} s: {self.log_path.read_text()}")

    def log(self) -> list[dict[str, Any]]:
        # The last line may be written only in part.
        lines = self.log_path.read_text().split("\n")[:-1]
        return [json.loads(line) for line in lines if line.startswith("{")]

    def stop(self) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def __enter__(self) -> Self:
        self.start()
        self.wait_until_serving()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class StartedWriter(WriterProcess):
    """A writer that imports the program itself, from the path of the environment."""

    def start(self) -> subprocess.Popen[bytes]:
        with self.log_path.open("ab") as log:
            command = [sys.executable, "-m", self._module]
            self.process = subprocess.Popen(command, env=self._environment, cwd=ROOT, stdout=log, stderr=log)
        return self.process


def problem(response: httpx.Response) -> Mapping[str, Any]:
    """The problem in a response, after checking what every problem must have."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    body = response.json()
    assert body["status"] == response.status_code
    assert body["type"].startswith("/problems/")
    assert body["title"]
    assert body["detail"]
    assert body["request_id"] == response.headers["x-request-id"]
    assert "Traceback" not in response.text
    return dict(body)


def say(text: str, **fields: Any) -> dict[str, Any]:
    return {"author": "user", "content": {"text": text}, **fields}


async def append(client: httpx.AsyncClient, session: str, *events: Any, **fields: Any) -> httpx.Response:
    body = json.dumps({"events": list(events), **fields})
    return await client.post(f"{session}/events", content=body, headers={"Content-Type": "application/json"})
