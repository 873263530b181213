"""The command line of the drill. Exit code 0 if no rule is violated, otherwise 1."""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import signal
import sys
from pathlib import Path

from tests.chaos import drill, faults, report, scene

#: Starting, draining, the final check and shutdown together.
AROUND_SECONDS_MAX = 480.0


def main() -> int:
    options = _options()
    if options.schedule:
        for fault in faults.schedule(options.seed, options.seconds, options.kills_min):
            print(f"{fault.at_seconds:8.2f}  {fault.kind:<34} {fault.target:>11}  {fault.lasts_seconds:.2f}")
        return 0
    kept: list[str] = []
    with scene.folder_of_a_run(kept) as folder:
        print(f"chaos: seed {options.seed}, {options.seconds:g} s, logs in {folder}", flush=True)
        kept.append("until all is known to be well")
        logging.basicConfig(filename=folder / "drill.log", level=logging.INFO)
        outcome = asyncio.run(_bounded(folder, options))
        text = report.render(outcome)
        print(text)
        if options.report is not None:
            options.report.write_text(text, encoding="utf-8")
        if not outcome.findings.total and not options.keep_logs:
            kept.clear()
        return 1 if outcome.findings.total else 0


async def _bounded(folder: Path, options: argparse.Namespace) -> drill.Outcome:
    task = asyncio.current_task()
    assert task is not None
    # SIGTERM cleans everything up, as Ctrl-C does.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with asyncio.timeout(options.seconds + AROUND_SECONDS_MAX):
        return await drill.run(folder, seed=options.seed, seconds=options.seconds, kills_min=options.kills_min)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to inject faults")
    parser.add_argument("--seed", type=int, default=None, help="decides every fault; random by default")
    parser.add_argument("--kills-min", type=int, default=0, help="minimum number of kill -9")
    parser.add_argument("--report", type=Path, help="write the report to this file")
    parser.add_argument("--schedule", action="store_true", help="print the faults of this seed and exit")
    parser.add_argument("--keep-logs", action="store_true", help="keep the processes' logs even if nothing is wrong")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(10**6)
    return options


if __name__ == "__main__":
    sys.exit(main())
