"""The provider on the other major version of google-genai, in a separate virtual environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PACKAGES = (
    "google-genai>=3,<4",
    "aiohttp>=3.11",  # With it installed the library has its own retries, which must not act.
    "asyncpg>=0.30,<0.33",
    "pgvector>=0.4,<0.6",
    "structlog>=25,<27",
    "tenacity>=9,<10",
    "hypothesis>=6.120",
    "pytest>=8.3",
    "pytest-asyncio>=0.26",
    "pytest-timeout>=2.3",
)
SUITES = ("tests/hippocampus/test_gemini_provider.py", "tests/hippocampus/test_fake_gemini.py")


@pytest.mark.system
@pytest.mark.timeout(600)
def test_the_provider_passes_its_suite_on_genai_3(tmp_path: Path) -> None:
    """With google-genai 3.x the provider behaves the same: same suite, no test left out."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    version = "from google import genai; print(genai.__version__)"
    shown = subprocess.run([python, "-c", version], check=True, capture_output=True, text=True).stdout
    assert shown.startswith("3.")
    # No conftest: the database's fixtures and their imports are not needed here.
    command = [python, "-m", "pytest", "--noconftest", "-p", "no:cacheprovider", "-q", *SUITES]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    result = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "skipped" not in result.stdout
