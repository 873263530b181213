"""The recorded token counts match a real vocabulary, which comes inside an npm package."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import DATA

COUNTED = DATA / "token_counts.json"
PACKAGE = "gpt-tokenizer@3"
SCRIPT = """
const { countTokens } = require('gpt-tokenizer/encoding/o200k_base');
const samples = JSON.parse(require('fs').readFileSync(0, 'utf-8'));
console.log(JSON.stringify(samples.map(sample => countTokens(sample.text))));
"""


@pytest.mark.system
def test_the_recorded_counts_match_o200k_base(tmp_path: Path) -> None:
    node, npm = shutil.which("node"), shutil.which("npm")
    assert node, "node is missing. On Debian: apt install nodejs npm"
    assert npm, "npm is missing. On Debian: apt install npm"
    install = [npm, "install", "--silent", "--no-audit", "--no-fund", PACKAGE]
    subprocess.run(install, cwd=tmp_path, check=True, timeout=180)
    counted = COUNTED.read_text(encoding="utf-8")
    done = subprocess.run(
        [node, "-e", SCRIPT], cwd=tmp_path, input=counted, capture_output=True, text=True, check=True, timeout=120
    )
    assert json.loads(done.stdout) == [sample["tokens"] for sample in json.loads(counted)]
