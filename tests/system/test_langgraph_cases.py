"""LangGraph's own tests of stores, on ours: each release ships them in its source distribution."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.support.paths import ROOT

SUITE = ROOT / "tests/frameworks/langgraph_suite.py"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
PYTEST = (
    *(sys.executable, "-m", "pytest", "-c", os.devnull, "--noconftest", "--import-mode=importlib", "-q", "-rf"),
    *("-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "-W", "default", "--tb=short"),
)
#: The cases that fail, all of them, and why they should.
SCORES = {f"test_scores[{text}-halfvec-l2]" for text in ("aaa", "bbb", "ccc", "abcd", "poisson")}  # Ours is the cosine.
# A store that was made from a URL can be called without await where a loop runs.
LOOP = {"test_no_running_loop[url]"}
# Their store in memory adds items without vectors at the end of what is found; their PostgreSQL store and ours do not.
FILLED = {"test_embed_with_path"}


@pytest.mark.system
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("package", "cases", "total", "different"),
    [
        pytest.param("langgraph-checkpoint-postgres", "tests.test_store", 114, SCORES, id="sync"),
        pytest.param("langgraph-checkpoint-postgres", "tests.test_async_store", 86, LOOP, id="async"),
        pytest.param("langgraph-checkpoint", "tests.test_store", 86, FILLED, id="memory"),
    ],
)
def test_their_cases_hold_on_our_store(
    tmp_path: Path, dsn: str, package: str, cases: str, total: int, different: set[str]
) -> None:
    """Those of the installed version, fetched unchanged: as many as are known, and only those fail that must."""
    pinned = f"{package}=={importlib.metadata.version(package)}"
    fetch = (*PIP, "download", "--quiet", "--no-deps", "--no-binary", package, "--dest", tmp_path, pinned)
    subprocess.run(fetch, check=True, timeout=300)
    more = (*PIP, "install", "--quiet", "--no-deps", "--target", tmp_path / "more", "pytest-mock==3.15.1")
    subprocess.run(more, check=True, timeout=300)
    [archive] = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    path = (tmp_path / archive.name.removesuffix(".tar.gz"), tmp_path / "more", ROOT)
    environment = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "CASES": cases,
        "DATABASE_URL": dsn,
    }
    done = subprocess.run((*PYTEST, SUITE), cwd=tmp_path, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    failed = set(re.findall(r"^FAILED .*::(\S+)", done.stdout, re.MULTILINE))
    assert failed == different, done.stdout
    [passed] = re.findall(r"(\d+) passed", done.stdout)
    assert int(passed) == total - len(different)
    assert "error" not in done.stdout.splitlines()[-1]
