"""Another project's package in the place of ours is named, with what to do, before anything else happens."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT


def run(*folders: Path) -> subprocess.CompletedProcess[str]:
    """The program, with folders before the checkout on the path."""
    path = os.pathsep.join(map(str, (*folders, ROOT)))
    return subprocess.run(
        [sys.executable, "-P", "-m", "workers", "--version"],
        env={**os.environ, "PYTHONPATH": path}, cwd="/", capture_output=True, text=True, check=False,
    )  # fmt: skip


def distribution(folder: Path, record: str) -> None:
    info = folder / "hippocampus-0.1.4.dist-info"
    info.mkdir(parents=True)
    (info / "RECORD").write_text(record, encoding="utf-8")


def test_a_project_of_the_same_name_beside_ours_is_refused(tmp_path: Path) -> None:
    """Whichever was installed later overwrote the other's files, and uninstalling one removes both's."""
    distribution(tmp_path, "hippocampus/__init__.py,sha256=x,1\nhippocampus-0.1.4.dist-info/RECORD,,\n")
    done = run(tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"another project named hippocampus (version 0.1.4) is installed in {tmp_path}" in done.stderr
    assert "pip uninstall hippocampus pg-hippocampus" in done.stderr
    assert done.stderr.count("\n") == 1


#: What opens the library's object, a pool, and what runs the processes, without the program.
OPENED = {
    "object": "from hippocampus import Hippocampus\nasyncio.run(Hippocampus.connect(address, app='shop'))",
    "pool": "from pulse import create_pool\nasyncio.run(create_pool(address))",
    "service of ADK": (
        "from workers.adk import session_service\nservice = session_service('hippocampus://')\n"
        "asyncio.run(service.get_session(app_name='shop', user_id='ann', session_id='monday'))"
    ),
    "writer": "from workers import settings, writer\nraise SystemExit(writer.main_writer(settings.load()))",
    "worker": "from workers import worker\nraise SystemExit(worker.main_worker('retention'))",
}


@pytest.mark.parametrize("what", OPENED)
def test_the_library_and_the_processes_refuse_too(tmp_path: Path, what: str) -> None:
    """Before they look for their database, which does not exist here; an import alone does not look for projects."""
    distribution(tmp_path, "hippocampus/__init__.py,sha256=x,1\nhippocampus-0.1.4.dist-info/RECORD,,\n")
    address = "postgresql://nobody@127.0.0.1:9/none"
    script = f"import asyncio, hippocampus, pulse\nprint('imported')\naddress = {address!r}\n{OPENED[what]}"
    done = subprocess.run(
        [sys.executable, "-P", "-c", script],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "DATABASE_URL": address}, cwd="/",
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "imported\n"
    last = done.stderr.splitlines()[-1]
    assert f"another project named hippocampus (version 0.1.4) is installed in {tmp_path}" in last
    assert "pip uninstall hippocampus pg-hippocampus" in last
    assert (done.returncode, "Traceback" in done.stderr) == ((2, False) if what in ("writer", "worker") else (1, True))


def test_the_rest_of_ours_after_the_other_project_was_uninstalled_is_refused(tmp_path: Path) -> None:
    """It took our `__init__.py` with it, and the rest of the package imports as an empty one."""
    for package in ("workers", "pulse"):
        (tmp_path / package).symlink_to(ROOT / package)
    (tmp_path / "hippocampus").mkdir()
    (tmp_path / "hippocampus" / "search.py").touch()
    done = subprocess.run(
        [sys.executable, "-S", "-P", "-m", "workers", "status"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, cwd="/", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert "files of the package hippocampus are missing" in done.stderr
    assert "pip uninstall pg-hippocampus" in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_editable_installation_of_ours_by_its_former_name_is_not_another_project(tmp_path: Path) -> None:
    distribution(tmp_path, "_editable_impl_hippocampus.pth,,\nhippocampus/_schema/functions/append.sql,,\n")
    done = run(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_another_projects_package_in_the_place_of_ours_is_named(tmp_path: Path) -> None:
    """Also one from a project of any other name."""
    foreign = tmp_path / "pulse"
    foreign.mkdir()
    (foreign / "__init__.py").write_text("", encoding="utf-8")
    script = "from workers.__main__ import main; raise SystemExit(main())"
    done = subprocess.run(
        [sys.executable, "-P", "-c", script, "status"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}, cwd="/", capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert f"the package pulse in {foreign} is another project's" in done.stderr
    assert "Traceback" not in done.stderr
