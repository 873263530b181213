"""The paths of files that tests read."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
DATA = ROOT / "tests" / "support" / "data"
AGUI = ROOT / "tests" / "support" / "agui"
