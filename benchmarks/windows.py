"""How much of the evidence for a question is in a context window, on a LoCoMo file, and how stable prompts are.

python -m benchmarks.windows FILE.json [--dsn DSN]

Each conversation becomes one user of a fresh database, each of its sessions a thread, and is consolidated with the
`local` provider: fast_replay and deep_reflection. For each question a window is assembled with the default arguments at
each budget: in a new session (nothing was said in it), and in the running one (the last session of the conversation). A
turn counts as found if its text stands in the window word for word. No language model is involved.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import mean
from uuid import uuid4

from benchmarks import options
from benchmarks.consolidation import DirectClaim
from benchmarks.figures import figure
from benchmarks.locomo import APP, ingest, questions, turn_text
from benchmarks.server import fresh_server
from hippocampus import jobs
from hippocampus.consolidation_worker import MemoryConsolidationWorker
from hippocampus.context.templates import TemplateName
from hippocampus.context_assembler import ContextAssembler
from hippocampus.providers.local.embedding import LocalEmbedder
from hippocampus.providers.local.provider import LocalGenerator
from hippocampus.records import JobType
from hippocampus.text.tokens import count_tokens
from pulse import database
from pulse.events import Event
from pulse.session_service import OpenSessionService

CATEGORIES_COUNTED = (1, 2, 3, 4)


async def remember(pool: database.Pool, path: Path) -> None:
    """Ingest the conversations of a file and consolidate every session."""
    embedder = LocalEmbedder()
    worker = MemoryConsolidationWorker(pool, LocalGenerator(), embedder)
    for conversation in json.loads(path.read_text(encoding="utf-8")):
        await ingest(pool, conversation["sample_id"], conversation["conversation"], None)
    threads = await pool.fetch("SELECT user_id, session_id FROM threads WHERE app_name = $1 ORDER BY id", APP)
    for thread in threads:
        await jobs.enqueue_session(pool, APP, thread["user_id"], thread["session_id"], JobType.FULL_CONSOLIDATION)
        while waiting := await pool.fetch("SELECT id FROM consolidation_jobs WHERE status = 'pending' ORDER BY id"):
            for job in waiting:
                await pool.execute(
                    "UPDATE consolidation_jobs SET status = 'running', attempts = 1 WHERE id = $1", job["id"]
                )
                await worker.run(job["id"], DirectClaim(job["id"]))


BUDGETS = (2000, 4000, 8000)


@dataclass(frozen=True, slots=True)
class Found:
    """Means over questions: the share of the evidence in the window, and of questions with any of it."""

    share: float
    any: float


async def evaluate(pool: database.Pool, path: Path) -> dict[tuple[str, int], Found]:
    """Assemble windows for the questions of a file; return what they hold by session and budget.

    Sessions are a new one, the running one, and the running one with stable windows.
    """
    assembler = ContextAssembler(pool, LocalEmbedder())
    shares: dict[tuple[str, int], list[float]] = {}
    for conversation in json.loads(path.read_text(encoding="utf-8")):
        user, talk = conversation["sample_id"], conversation["conversation"]
        names = sorted((name for name in talk if re.fullmatch(r"session_\d+", name)), key=lambda name: int(name[8:]))
        said = {
            (name.replace("_", "-"), int(turn["dia_id"].split(":")[1])): turn_text(turn)
            for name in names
            for turn in talk[name]
        }
        for question in questions(conversation["qa"]):
            if question.category not in CATEGORIES_COUNTED:
                continue
            texts = [said[turn] for turn in question.evidence if turn in said]
            last = names[-1].replace("_", "-")
            for kind, session in (("new", None), ("running", last), ("stable", last)):
                for budget in BUDGETS:
                    window = await assembler.assemble(
                        app_name=APP,
                        user_id=user,
                        session_id=session,
                        query=question.text,
                        max_tokens=budget,
                        stable=kind == "stable",
                    )
                    held = sum(_plain(text) in _plain(window.text) for text in texts)
                    shares.setdefault((kind, budget), []).append(held / len(question.evidence))
    return {key: Found(mean(values), mean(value > 0 for value in values)) for key, values in shares.items()}


async def stability(pool: database.Pool, path: Path) -> dict[tuple[str, str, bool], float]:
    """Repeat 40 turns of each conversation in a session of their own, a window per turn.

    Returns:
        By user (new, returning: one with all sessions of the file), template and whether windows are stable, the share
        of a prompt's tokens that the next prompt begins with.
    """
    shares: dict[tuple[str, str, bool], float] = {}
    sessions = OpenSessionService(pool)
    assembler = ContextAssembler(pool, LocalEmbedder())
    templates: tuple[TemplateName, ...] = ("markdown", "messages")
    for kind in ("new", "returning"):
        for template, stable in product(templates, (False, True)):
            equal = whole = 0
            for conversation in json.loads(path.read_text(encoding="utf-8")):
                run = f"stability-{uuid4()}"
                user = conversation["sample_id"] if kind == "returning" else run
                talk = conversation["conversation"]
                names = [name for name in talk if re.fullmatch(r"session_\d+", name)]
                turns = [turn for name in names for turn in talk[name]][:40]
                await sessions.create_session(APP, user, session_id=run)
                before = ""
                for turn in turns:
                    text = turn_text(turn)
                    await sessions.append(APP, user, run, [Event(author=turn["speaker"], content={"text": text})])
                    window = await assembler.assemble(
                        app_name=APP, user_id=user, session_id=run, query=text, template=template, stable=stable
                    )
                    sent = window.text if template == "markdown" else json.dumps(window.messages)
                    equal += count_tokens(_common(before, sent))
                    whole += count_tokens(before)
                    before = sent
                await sessions.delete_session(APP, user, run)
            shares[kind, template, stable] = equal / whole
    return shares


def _common(one: str, other: str) -> str:
    """The longest text that both begin with."""
    length = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:length]


def _plain(text: str) -> str:
    """A text without the differences of line breaks."""
    return " ".join(text.split())


def report(table: Mapping[tuple[str, int], Found]) -> None:
    """Print what windows hold; those of default calls are figures."""
    print(f"{'session':<10} {'tokens':>7} {'evidence':>9} {'any of it':>10}")
    for (kind, budget), found in table.items():
        print(f"{kind:<10} {budget:>7,} {found.share:>9.3f} {found.any:>10.3f}")
        if kind != "stable":
            figure(f"window_{kind}_{budget}", found.share)


async def main() -> None:
    parser = options.parser()
    parser.add_argument("path", type=Path)
    parser.add_argument("--dsn", help="a database that holds the file already")
    arguments = parser.parse_args()
    async with AsyncExitStack() as stack:
        if arguments.dsn:
            pool = await stack.enter_async_context(await database.create_pool(arguments.dsn))
        else:
            server = await stack.enter_async_context(fresh_server())
            pool = await stack.enter_async_context(await database.create_pool(server.dsn))
            await remember(pool, arguments.path)
        table = await evaluate(pool, arguments.path)
        equal = await stability(pool, arguments.path)
    report(table)
    print("\nleading tokens that stay equal from one turn to the next, over 40 turns at 8,000 tokens")
    for (kind, template, stable), share in equal.items():
        print(f"{kind:<10} user, {template:<9} {'stable' if stable else '':<7} {share:>6.2f}")


if __name__ == "__main__":
    asyncio.run(main())
