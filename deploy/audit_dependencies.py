"""Check the locked packages against known vulnerabilities, by pip-audit; run by `make check`.

Exit code 1 if one has a known vulnerability, with its advisory. If the advisory service cannot be reached, or knows
none of the packages, as a mirror of the index may, nothing was checked: the output says so, and the exit code is 0,
since a check of the source must work without a network.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SECONDS_MAX = 120


def main(lock: str) -> int:
    """Check one lock file."""
    command = [sys.executable, "-m", "pip_audit", "-r", lock, "--no-deps", "--disable-pip", "-f", "json"]
    command += ["--progress-spinner", "off", "--timeout", "10"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)  # noqa: S603 - our own interpreter
        found = json.loads(done.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        print(f"{lock} was NOT checked for known vulnerabilities: pip-audit cannot reach its advisories.")  # noqa: T201
        return 0
    skipped = sum("skip_reason" in each for each in found)
    if skipped == len(found):
        print(f"{lock} was NOT checked for known vulnerabilities: the index knows no advisories of its packages.")  # noqa: T201
        return 0
    vulnerable = [each for each in found if each.get("vulns")]
    for each in vulnerable:
        for advisory in each["vulns"]:
            fixed = ", ".join(advisory["fix_versions"]) or "no version"
            print(f"{each['name']} {each['version']}: {advisory['id']}, fixed in {fixed}", file=sys.stderr)  # noqa: T201
    print(f"{lock}: {len(found) - skipped} packages checked, {len(vulnerable)} vulnerable, {skipped} not known.")  # noqa: T201
    return 1 if vulnerable else 0


if __name__ == "__main__":
    sys.exit(max(main(each) for each in sys.argv[1:] if Path(each).is_file()))
