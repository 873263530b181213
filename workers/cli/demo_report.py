"""What the demo prints: what went in, what came out, and how to look again."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text

from hippocampus.memory_service import OpenMemoryService
from hippocampus.records import Fact
from hippocampus.retention_manager import MemoryRetentionManager
from hippocampus.search import EVERYTHING
from workers import samples
from workers.cli import context, facts, output, retention, search
from workers.cli.facts import Turns
from workers.cli.owners import Owner
from workers.conversations import ConversationFile
from workers.ingest import Ingested

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.cli.running import Running
    from workers.settings import Settings

SUMMARIES_MAX = 10
FACTS_MAX_BY_TYPE = 4
HITS_MAX = 3
QUERIES_MAX = 3
WINDOW_TOKENS = 600
WEAK_MAX = 3
#: For the preview: what the policy keeps today would go under this stricter threshold.
STRICT_THRESHOLD = 0.6
QUOTE_CHARS_MAX = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """What the demo did."""

    ingested: Ingested
    append_seconds: float
    total_seconds: float
    jobs_completed: int
    jobs_failed: int
    error: str | None


def write_intro(screen: Console, path: Path, read: ConversationFile, *, provider: str, database: str) -> None:
    """Say what is going to happen."""
    screen.print(Rule("Hippocampus", style="cyan"))
    users = {session.user_id for session in read.sessions}
    people = f" of {len(users)} users" if len(users) > 1 else ""
    _field(
        screen, "file", f"{path} ({read.file_format}: {len(read.sessions)} sessions{people}, {read.event_count} events)"
    )
    _field(screen, "model", provider)
    _field(screen, "database", database)


async def write(
    screen: Console,
    config: Settings,
    pool: Pool,
    owner: Owner,
    read: ConversationFile,
    worked: Worked,
    *,
    is_sample: bool,
) -> None:
    """Print everything that was made for one user."""
    _write_worked(screen, worked)
    service = OpenMemoryService(pool, None)
    known = await service.list_facts(app_name=owner.app, user_id=owner.user, limit=1000)
    await _write_summaries(screen, service, owner)
    _write_facts(screen, known, await facts.read_turns(pool, known))
    queries = samples.SAMPLE_QUERIES if is_sample else _queries(read, known)
    for query in queries[:QUERIES_MAX]:
        await _write_search(screen, config, pool, owner, query)
    asked = samples.SAMPLE_CONTEXT_QUERY if is_sample else (queries or ("",))[0]
    last = [session.session_id for session in read.sessions if session.user_id == owner.user][-1]
    await _write_window(screen, config, pool, owner, last, asked)
    await _write_retention(screen, pool, owner)


def write_places(screen: Console, all_roles: Running) -> None:
    """Say where the API and the metrics were."""
    _title(screen, "While it ran")
    _field(screen, "API", f"{all_roles.api_url} (its page: {all_roles.api_url}/docs)")
    for role, url in all_roles.metrics_urls.items():
        _field(screen, "metrics", f"{url} ({role})")
    screen.print(Text("  The roles stop now; `up` keeps them running.", style="dim"))


def write_farewell(screen: Console, config: Settings) -> None:
    """Say how to look again."""
    _title(screen, "All of it is kept. Look again")
    program = _program()
    if config.dsn is None and "home" in config.model_fields_set:
        screen.print(f"  export HIPPOCAMPUS_HOME={config.home}", soft_wrap=True, markup=False)
    for line in ("facts", "search 'tea'", "memories --type summary", "sessions", "up"):
        screen.print(f"  {program} {line}", soft_wrap=True, markup=False)


def _write_worked(screen: Console, worked: Worked) -> None:
    done = worked.ingested
    _title(screen, "Done")
    if done.events_new:
        known = f" ({done.events_known} more were there already)" if done.events_known else ""
        _field(
            screen,
            "events",
            f"{done.events_new} appended to {done.sessions} sessions in {worked.append_seconds:.1f} s{known}",
        )
    else:
        _field(screen, "events", f"all {done.events_known} were there already, from an earlier run: nothing is doubled")
    failed = f", {worked.jobs_failed} failed" if worked.jobs_failed else ""
    waited = f" after {worked.total_seconds:.1f} s" if worked.jobs_completed else ""
    _field(screen, "jobs", f"{worked.jobs_completed} done{failed}{waited}")


async def _write_summaries(screen: Console, service: OpenMemoryService, owner: Owner) -> None:
    found = await service.list_memories(app_name=owner.app, user_id=owner.user, memory_type="summary", limit=1000)
    found.sort(key=lambda each: (each.occurred_at is not None, each.occurred_at))
    _title(screen, f"Summaries ({len(found)})")
    for each in found[:SUMMARIES_MAX]:
        _item(screen, output.show_time(each.occurred_at)[:10], each.content)
    _more(screen, len(found) - SUMMARIES_MAX, "memories --type summary")


def _write_facts(screen: Console, known: Sequence[Fact], turns: Turns) -> None:
    _title(screen, f"Facts ({len(known)}), how sure, and who said so")
    shown = 0
    for fact_type, group in groupby(sorted(known, key=_by_type), key=lambda fact: fact.fact_type):
        for fact in list(group)[:FACTS_MAX_BY_TYPE]:
            shown += 1
            _item(screen, f"{fact.confidence:.2f}", f"{output.show_fact(fact.value)}  [{fact_type}]")
            for said in facts.quotes(fact, turns)[:1]:
                quote = f"{said.session_id} #{said.sequence_num} “{_clip(said.text, QUOTE_CHARS_MAX)}”"
                screen.print(Padding(Text(quote, style="dim"), (0, 0, 0, 8)))
    _more(screen, len(known) - shown, "facts")


_TYPE_ORDER = ("rule", "profile", "preference", "custom")


def _by_type(fact: Fact) -> tuple[int, float]:
    return _TYPE_ORDER.index(fact.fact_type), -fact.confidence


async def _write_search(screen: Console, config: Settings, pool: Pool, owner: Owner, query: str) -> None:
    response = await search.search(config, pool, owner.app, owner.user, query, limit=HITS_MAX, narrow=EVERYTHING)
    _title(screen, f"Search: {query}")
    if response.degraded:
        screen.print(Text(f"  {response.degraded}", style="yellow"))
    if not response.memories:
        screen.print("  Nothing matches.")
    for hit in response.memories:
        _item(screen, f"{hit.score:.2f}", f"{_clip(hit.content, 2 * QUOTE_CHARS_MAX)}  [{search.kind_of(hit)}]")
        screen.print(Padding(Text(search.why(hit.why), style="dim"), (0, 0, 0, 8)))


async def _write_window(
    screen: Console, config: Settings, pool: Pool, owner: Owner, session_id: str, query: str
) -> None:
    window, text = await context.assemble(
        config,
        pool,
        owner.app,
        owner.user,
        query,
        session_id=session_id,
        tokens=WINDOW_TOKENS,
        system_prompt="You are a helpful assistant that remembers.",
    )
    _title(screen, f"Context window for: {query}" if query else "Context window")
    screen.print(Padding(Text(text, style="dim"), (0, 0, 0, 2)))
    screen.print(Padding(Text(context.account(window), style="bold"), (1, 0, 0, 2)))


async def _write_retention(screen: Console, pool: Pool, owner: Owner) -> None:
    _title(screen, "Forgetting (dry run)")
    outlook = retention.outlook(await retention.forecast(pool, owner.app))
    _field(screen, "policy", f"would archive, if nothing is used: {outlook}")
    strict = MemoryRetentionManager(pool)
    weak = await strict.preview(STRICT_THRESHOLD, 0, owner.app)
    _field(screen, "stricter", f"at a threshold of {STRICT_THRESHOLD:g} and no minimum age, {len(weak)} would go now:")
    for each in weak[:WEAK_MAX]:
        _item(screen, f"{each.score:.2f}", f"{_clip(' '.join(each.content.split()), 100)}  [{each.memory_type}]")
        screen.print(Padding(Text(retention.because(each), style="dim"), (0, 0, 0, 8)))


def _queries(read: ConversationFile, known: Sequence[Fact]) -> tuple[str, ...]:
    """What to search for in somebody's own file: its own questions, else what is known of them."""
    if read.queries:
        return read.queries[:QUERIES_MAX]
    surest = sorted(known, key=lambda fact: -fact.confidence)
    texts = [output.show_fact(fact.value) for fact in surest]
    if not texts:
        texts = [text for session in read.sessions for event in session.events if (text := event.text)]
    return tuple(_clip(text, 80).rstrip("…") for text in texts[:QUERIES_MAX])


def _program() -> str:
    """How this program is called from here: its name where the shell finds it, else its path."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return f"{sys.executable} -m workers"
    if shutil.which(called.name):
        return called.name
    try:
        return str(called.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(called)


def _title(screen: Console, text: str) -> None:
    screen.print()
    screen.print(Text(text, style="bold cyan"))


def _field(screen: Console, name: str, value: str) -> None:
    screen.print(Text.assemble((f"  {name:<9} ", "dim"), value))


def _item(screen: Console, mark: str, text: str) -> None:
    width = max(len(mark), 4)
    line = Text.assemble((f"{mark:<{width}}  ", "green"), text)
    screen.print(Padding(line, (0, 0, 0, 2)))


def _more(screen: Console, count: int, command: str) -> None:
    if count > 0:
        screen.print(Text(f"  … and {count} more: {_program()} {command}", style="dim"))


def _clip(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"
