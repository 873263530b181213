"""The wheel contains the prompts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hippocampus import prompts

SHOW = """
import sys
sys.path.insert(0, sys.argv[1])
from hippocampus import prompts
assert prompts.__file__.startswith(sys.argv[1]), prompts.__file__
print(*(prompts.load(name).sha256 for name in sys.argv[2:]))
"""


@pytest.mark.system
def test_the_wheels_prompts_are_those_of_the_repository(built: tuple[Path, str], tmp_path: Path) -> None:
    """An installed package makes memories with exactly the prompts of this checkout."""
    names = ("fast_replay", "deep_reflection", "repair")
    (wheel,) = built[0].glob("*.whl")
    # Python imports from a zip: what is not in the wheel cannot be read.
    shown = subprocess.run(
        [sys.executable, "-c", SHOW, wheel, *names], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert shown.stdout.split() == [prompts.load(name).sha256 for name in names]
