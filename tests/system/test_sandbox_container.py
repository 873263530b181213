"""The sandbox in containers of a real engine: the same attacks as on every backend."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from pulse.sandbox.adapters import ContainerBackend
from pulse.sandbox.records import Limits, SandboxRequest
from tests.support.sandbox_attacks import run_attacks
from tests.support.waiting import WAIT_SECONDS, until_sync

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(os.geteuid() != 0, reason="runs podman as root"),
]
IMAGE = "sandbox-python"
#: The limit for each attack that only ends by it, with the start of its container, whose storage copies the image.
SECONDS = 12.0
#: An engine refuses hosts whose second hierarchy of cgroups has controllers of its own.
HIDDEN = '! mountpoint -q /sys/fs/cgroup/unified || umount /sys/fs/cgroup/unified; exec podman "$@"'


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """podman with a storage of its own, which holds an image made of this machine's Python."""
    home = tmp_path_factory.mktemp("podman")
    options = {"root": "root", "runroot": "run", "tmpdir": "tmp"}
    command = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        HIDDEN,
        "podman",
        "--storage-driver",
        "vfs",
        "--events-backend",
        "file",
    ]
    command += ["--cgroup-manager", "cgroupfs"]
    for option, folder in options.items():
        command += [f"--{option}", str(home / folder)]
    python = Path("/usr/bin/python3").resolve()
    linked = subprocess.run(["ldd", python], capture_output=True, text=True, check=True).stdout
    libraries = [word for word in linked.split() if word.startswith("/")]
    archive = subprocess.Popen(
        ["tar", "--create", "--dereference", "--exclude=__pycache__", "--exclude=*-packages/*", "-C", "/", "-f", "-",
         str(python)[1:], f"usr/lib/{python.name}", *(library[1:] for library in libraries)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    with archive:
        made = subprocess.run([*command, "import", "-", IMAGE], stdin=archive.stdout, capture_output=True, check=False)
    assert made.returncode == 0, made.stderr.decode()
    yield command
    left = subprocess.run([*command, "ps", "--all", "--quiet"], capture_output=True, text=True, check=True)
    subprocess.run([*command, "rm", "--all", "--force", "--time", "0"], capture_output=True, check=False)
    assert left.stdout == "", left.stdout
    # What watches a container, and a container that waits for its start, is not always in the engine's list.
    until_sync(
        lambda: subprocess.run(["pgrep", "--full", str(home)], stdout=subprocess.DEVNULL, check=False).returncode
    )


async def test_no_attack_reaches_anything_from_a_container(
    engine: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the host is read or changed, every limit holds, and no container is left behind."""
    secret = f"secret-{uuid.uuid4().hex}"
    monkeypatch.setenv("HOST_SECRET", secret)
    monkeypatch.setenv("FTP_PROXY", f"http://ann:{secret}@127.0.0.1:1")
    marker = tmp_path / "marker"
    marker.write_text(secret)
    python = Path("/usr/bin/python3").resolve()
    # Where no more may be set than the engine's own limits are, its defaults are refused.
    options = ["--read-only-tmpfs=false", "--passwd=false", "--ulimit", "nproc=64:64"]
    backend = ContainerBackend(IMAGE, engine=engine, options=options, python=str(python))
    assert await backend.check() is None
    also = {"memory of children": "timeout"}
    await run_attacks(backend, marker, secret, seconds=SECONDS, patience=WAIT_SECONDS, also=also)
    limits = Limits(seconds=WAIT_SECONDS)
    ended = await backend.execute(SandboxRequest(code="import sys\nsys.exit(n)", inputs={"n": 7}, limits=limits))
    assert (ended.status, ended.exit_code, ended.value) == ("failed", 7, None)
    spun = await backend.execute(
        SandboxRequest(code="while True: pass", limits=Limits(seconds=WAIT_SECONDS, cpu_seconds=1))
    )
    assert (spun.status, spun.error) == ("timeout", "over 1 s of processor time")
    # Its end may come at any step of a start; what is left is looked for at the end of the module.
    for step in range(12):
        early = await backend.execute(
            SandboxRequest(code="import time\ntime.sleep(600)", limits=Limits(seconds=0.3 + step * 0.05))
        )
        assert early.status == "timeout"
    for image, program in (("sandbox-missing", "python3"), (IMAGE, "/nowhere/python")):
        broken = ContainerBackend(image, engine=engine, options=[*options, "--pull=never"], python=program)
        found = await broken.execute(SandboxRequest(code="1", limits=limits))
        assert found.status == "unavailable"
        assert "the engine ended with code 12" in (found.error or "")
    refused = await backend.execute(SandboxRequest(code="1", files={"a": b""}))
    assert refused.status == "refused"
