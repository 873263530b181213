"""fastembed itself as an embedder. It is not among the tools of development: with what it needs it takes 220 MB."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

SUITE = ROOT / "tests/hippocampus/fastembed_suite.py"
PACKAGES = ("fastembed>=0.9,<0.10", "onnx>=1.19,<2")


@pytest.mark.system
@pytest.mark.timeout(600)
def test_fastembed_keeps_the_contract_of_embedders(tmp_path: Path) -> None:
    """All of it, with a model that is made on the spot and nothing that is downloaded when it runs."""
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", tmp_path)
    subprocess.run((*pip, *PACKAGES), check=True)
    environment = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT))),
    }
    pytest_ = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--noconftest", "-W", "default")
    done = subprocess.run((*pytest_, SUITE), cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    [passed] = re.findall(r"(\d+) passed", done.stdout)
    assert int(passed) == 14
    assert "skipped" not in done.stdout
