"""Fuzzing: hostile inputs to everything that reads what others wrote.

    python -m tests.fuzz --inputs 100000 [--seed 7] [--only http]

The API runs within this process, on a real PostgreSQL with an account of its own. Each input has a number; the same
seed draws the same mutations again. Exit code 0 if there was no crash, no answer of 5xx and no lost event.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import logging
import random
import shutil
import sys
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from hippocampus.providers.local.provider import LocalEmbedder, LocalGenerator
from hippocampus.search import MemorySearch
from hippocampus.store.service import ItemStore
from pulse import database
from tests.conftest import FAST_SETTINGS
from tests.fuzz import families
from tests.fuzz.api import Operations
from tests.fuzz.families import Family, Ledger
from tests.fuzz.values import Values
from workers.api import live_streams
from workers.api.app import bare_api, build_api
from workers.embedded.server import EmbeddedServer
from workers.migrate import migrate
from workers.settings import Settings
from workers.telemetry.writer_metrics import WriterMetrics

#: How many of the inputs each family gets. Files and replies cost a tenth of a request.
SHARES = {
    "replies": 25,
    "files": 25,
    "provider": 3,
    "filters": 7,
    "cursors": 8,
    "tickets": 2,
    "appends": 10,
    "http": 20,
}
AT_ONCE = 4
FINDINGS_MAX = 20


@dataclass(slots=True)
class Outcome:
    """What a run saw."""

    inputs: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    acknowledged: int = 0


@contextlib.asynccontextmanager
async def opened(dsn: str) -> AsyncIterator[tuple[dict[str, Family], Ledger, database.Pool]]:
    """Give the families, on this database."""
    config = Settings(database_url=dsn, max_body_bytes=1 << 20)
    folder = families.scratch()
    metrics = WriterMetrics()
    try:
        async with (
            await database.create_pool(dsn, max_size=8) as pool,
            live_streams.opened(config, pool, {}) as live,
            families.provider() as provider,
        ):
            app = build_api(config, pool, live, LocalEmbedder(), LocalGenerator(), metrics)
            operations = Operations(_document())
            ledger = Ledger(app)
            yield (
                {
                    "replies": families.read_reply,
                    "files": families.read_file(folder),
                    "provider": provider,
                    "filters": families.filters(MemorySearch(pool, LocalEmbedder()), ItemStore(pool, "fuzz")),
                    "cursors": families.requests(app, operations, aimed_at="cursor"),
                    "tickets": families.requests(app, operations, aimed_at="ticket"),
                    "appends": ledger.append,
                    "http": families.requests(app, operations),
                },
                ledger,
                pool,
            )
    finally:
        shutil.rmtree(folder)


@functools.cache
def _document() -> dict[str, Any]:
    return bare_api().openapi()


async def run(dsn: str, inputs: int, seed: int, *, only: str = "") -> Outcome:
    """Send this many inputs, and return what was found."""
    outcome = Outcome()
    async with opened(dsn) as (known, ledger, pool):
        shares = {name: share for name, share in SHARES.items() if only in ("", name)}
        jobs = iter(_numbered(shares, inputs))

        async def work() -> None:
            for name, number in jobs:
                outcome.inputs[name] += 1
                if problem := await _try(known[name], seed, name, number):
                    outcome.findings.append(f"{name} {number}: {problem}")
                if len(outcome.findings) >= FINDINGS_MAX:
                    return

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
        outcome.findings += [f"lost: {event}" for event in await ledger.lost(pool)]
        outcome.acknowledged = ledger.acknowledged
    return outcome


def _numbered(shares: Mapping[str, int], inputs: int) -> list[tuple[str, int]]:
    whole = sum(shares.values())
    cycle = [name for name, share in shares.items() for _ in range(share)]
    random.Random(whole).shuffle(cycle)
    return [(cycle[number % whole], number) for number in range(inputs)]


async def _try(family: Family, seed: int, name: str, number: int) -> str | None:
    rng = random.Random(f"{seed}/{name}/{number}")
    try:
        return await family(rng, Values(rng))
    except Exception:  # noqa: BLE001 - any of them is what is searched for
        return traceback.format_exc()


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--only", default="", choices=["", *SHARES])
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    folder = families.scratch()
    folder.chmod(0o711)
    began = time.monotonic()
    try:
        with EmbeddedServer(folder / "home", settings=FAST_SETTINGS) as server:
            asyncio.run(migrate(server.dsn))
            outcome = asyncio.run(run(server.dsn, options.inputs, options.seed, only=options.only))
    finally:
        shutil.rmtree(folder)
    for finding in outcome.findings:
        print(finding, end="\n\n")
    counts = ", ".join(f"{name} {count}" for name, count in sorted(outcome.inputs.items()))
    print(
        f"seed {options.seed}: {sum(outcome.inputs.values()):,} inputs in {time.monotonic() - began:.0f} s ({counts});"
        f" {outcome.acknowledged:,} events acknowledged; {len(outcome.findings)} findings"
    )
    return int(bool(outcome.findings))


if __name__ == "__main__":
    sys.exit(main())
