"""The sandbox in namespaces: the same attacks as on the default backend, with all of Python inside."""

from __future__ import annotations

import subprocess
import uuid
from pathlib import Path

import pytest

from pulse.outbound.addresses import parse_networks
from pulse.sandbox.adapters import CommandBackend, RemoteBackend
from pulse.sandbox.bwrap import BwrapBackend
from pulse.sandbox.records import Limits, SandboxRequest
from tests.support.sandbox_attacks import run_attacks
from tests.support.sandbox_service import TOKEN, sandbox_service
from tests.support.waiting import WAIT_SECONDS, until

pytestmark = pytest.mark.system

PATIENT = Limits(seconds=WAIT_SECONDS)


async def test_no_attack_reaches_anything_from_namespaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the host is read or changed, every limit holds, and no process is left behind."""
    secret = f"secret-{uuid.uuid4().hex}"
    monkeypatch.setenv("HOST_SECRET", secret)
    marker = Path("/tmp") / f"marker-{uuid.uuid4().hex}"
    marker.write_text(secret)
    marker.chmod(0o666)
    backend = BwrapBackend()
    try:
        assert await backend.check() is None
        await run_attacks(backend, marker, secret)
    finally:
        marker.unlink()
    # Before a minute nothing that an attack left ends by itself.
    await until(
        lambda: subprocess.run(["pgrep", "-f", "/run/bootstrap.py"], stdout=subprocess.DEVNULL, check=False).returncode,
        "no process is left",
    )


async def test_a_service_with_namespaces_behind_it_passes_the_same_attacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over HTTP: the same limits hold, and files, input and the environment arrive and come back."""
    secret = f"secret-{uuid.uuid4().hex}"
    monkeypatch.setenv("HOST_SECRET", secret)
    marker = Path("/tmp") / f"marker-{uuid.uuid4().hex}"
    marker.write_text(secret)
    marker.chmod(0o666)
    async with sandbox_service(BwrapBackend()) as url:
        backend = RemoteBackend(url, token=TOKEN, allowed=parse_networks("127.0.0.1"))
        try:
            assert await backend.check() is None
            await run_attacks(backend, marker, secret)
        finally:
            marker.unlink()
        code = "import os\nopen('b', 'wb').write(open('a', 'rb').read()[::-1])\n[input(), os.environ['MODE'], n]"
        found = await backend.execute(
            SandboxRequest(
                code=code, files={"a": b"\x00\xff"}, stdin="hi\n", env={"MODE": "x"}, inputs={"n": 1}, limits=PATIENT
            )
        )
        assert (found.status, found.value, found.files) == ("ok", ["hi", "x", 1], {"b": b"\xff\x00"})
        await backend.close()


async def test_files_go_in_and_out_and_all_of_python_is_there() -> None:
    code = (
        "import os, statistics, threading, enum\n"
        "os.makedirs('out', exist_ok=True)\nopen('out/b.txt', 'w').write(open('in/a.txt').read().upper())\n"
        "print(input(), os.environ['MODE'])\nstatistics.mean(numbers)"
    )
    found = await BwrapBackend().execute(
        SandboxRequest(
            code=code,
            files={"in/a.txt": b"abc"},
            inputs={"numbers": [1, 3]},
            stdin="hello\n",
            env={"MODE": "x"},
            limits=PATIENT,
        )
    )
    assert (found.status, found.value, found.stdout, found.files) == ("ok", 2, "hello x\n", {"out/b.txt": b"ABC"})
    ended = await BwrapBackend().execute(SandboxRequest(code="import sys\nsys.exit(7)", limits=PATIENT))
    assert (ended.status, ended.exit_code) == ("failed", 7)
    late = await BwrapBackend().execute(
        SandboxRequest(code="while True: pass", limits=Limits(seconds=20, cpu_seconds=1))
    )
    assert late.status == "timeout"


async def test_a_command_with_isolation_passes_its_test() -> None:
    """bubblewrap itself stands for a container's command line."""
    command = (
        "bwrap --unshare-all --die-with-parent --ro-bind /usr /usr --symlink usr/lib /lib --symlink usr/lib64 /lib64"
    )
    backend = CommandBackend([*command.split(), "--proc", "/proc", "/usr/bin/python3", "-I", "-"])
    assert await backend.check() is None
    found = await backend.execute(SandboxRequest(code="print(a + 1)", inputs={"a": 1}, limits=PATIENT))
    assert found.stdout == "2\n"
    slow = await backend.execute(SandboxRequest(code="while True: pass", limits=Limits(seconds=1)))
    assert slow.status == "timeout"


async def test_a_report_that_the_code_forges_leads_nowhere() -> None:
    """It finds the pipe of the report, and names files out of the folder: only what is inside of it comes back."""
    code = (
        "import base64, json, os\n"
        "evil = base64.b64encode(b'evil').decode()\n"
        "named = {'../../etc/x': evil, '/etc/x': evil, 'a/../../x': evil, 'a' * 201: evil, 'in/a': evil}\n"
        "for descriptor in range(3, 256):\n"
        "    try: os.write(descriptor, json.dumps({'value': 1, 'files': named}).encode() + b'\\n')\n"
        "    except OSError: pass\n"
        "os._exit(0)"
    )
    found = await BwrapBackend().execute(SandboxRequest(code=code, limits=PATIENT))
    assert (found.status, found.value, found.files) == ("ok", 1, {"in/a": b"evil"})


async def test_what_cannot_be_shown_or_read_is_no_crash() -> None:
    """Code that ended well is ok, whatever its value is and whatever it left in its folder."""
    no_text = "class A:\n    def __repr__(self): raise KeyError\nA()"
    closed = "import os\nopen('x', 'w').write('1')\nos.chmod('x', 0)\nopen('y', 'w').write('2')\nos.mkfifo('z')\n3"
    for code, value, files in ((no_text, "<A>", {}), ("10**5000", "<int>", {}), (closed, 3, {"y": b"2"})):
        found = await BwrapBackend().execute(SandboxRequest(code=code, limits=PATIENT))
        assert (found.status, found.value, found.files) == ("ok", value, files), code
