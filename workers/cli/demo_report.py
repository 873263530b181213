"""What the demo prints: the input, the memories made of it, and the commands that show them again."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hippocampus.memory_service import OpenMemoryService
from hippocampus.records import Fact
from hippocampus.retention import policies
from hippocampus.retention_manager import MemoryRetentionManager, WeakMemory
from hippocampus.search import EVERYTHING
from workers.cli import databases, fact_changes, output, rows
from workers.cli.commands import context, facts, retention, search
from workers.cli.page import Page, clip, passage
from workers.cli.rows import Owner, SourceTurn, Turns
from workers.intake import samples
from workers.intake.conversations import ConversationFile
from workers.intake.ingest import Ingested

if TYPE_CHECKING:
    from pulse.database import Pool
    from workers.cli.running import Running
    from workers.settings import Settings

SUMMARIES_MAX = 10
FACTS_MAX_BY_TYPE = 4
CHANGES_MAX = 3
REPLACEMENTS_MAX = 1000
HITS_MAX = 3
QUERIES_MAX = 5
WINDOW_TOKENS = 700
WEAK_MAX = 3
#: For the preview: memories that the policy keeps would be archived at this stricter threshold.
STRICT_THRESHOLD = 0.6
QUOTE_CELLS_MAX = 150
HIT_CELLS_MAX = 220

_LOCAL_GENERATOR = "local: patterns of sentences, offline (with GOOGLE_API_KEY: Gemini)"
_LOCAL_EMBEDDER = "local: words and parts of words, not meaning"

_FACT_TYPES = {"rule": "rules", "profile": "profile", "preference": "preferences", "custom": "plans, habits and more"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """The work that the demo did."""

    ingested: Ingested
    append_seconds: float
    total_seconds: float
    jobs_completed: int
    jobs_failed: int
    error: str | None


@dataclass(frozen=True, slots=True)
class NextSteps:
    """What the commands that the demo suggests at its end refer to."""

    owner: Owner
    query: str


def write_intro(page: Page, config: Settings, path: Path, read: ConversationFile) -> None:
    """Write the input and the configuration."""
    page.rule("Hippocampus")
    users = {session.user_id for session in read.sessions}
    people = f" of {len(users)} users" if len(users) > 1 else ""
    page.field("file", f"{path}")
    page.field("", f"{read.file_format}: {len(read.sessions)} sessions{people}, {read.event_count} events")
    generator, embedder = config.chosen("generator"), config.chosen("embedder")
    page.field("generator", _LOCAL_GENERATOR if generator.provider == "local" else generator.name)
    page.field("vectors", _LOCAL_EMBEDDER if embedder.provider == "local" else embedder.name)
    page.field("database", databases.name_of(config))


async def write(
    page: Page, config: Settings, pool: Pool, read: ConversationFile, owner: Owner, *, is_sample: bool
) -> NextSteps:
    """Write everything that was made for one user, and return what to suggest afterwards."""
    service = OpenMemoryService(pool, None)
    known = await service.list_facts(app_name=owner.app, user_id=owner.user, limit=1000)
    users = {session.user_id for session in read.sessions}
    if len(users) > 1:
        page.title(f"What is remembered of {owner.user}, one of the {len(users)} users")
    await _write_summaries(page, service, owner)
    _write_facts(page, owner, known, await facts.read_turns(pool, known))
    await _write_changes(page, pool, owner)
    queries = samples.SAMPLE_QUERIES if is_sample else _queries(read, known)
    for query in queries[:QUERIES_MAX]:
        await _write_search(page, config, pool, owner, query)
    asked = samples.SAMPLE_CONTEXT_QUERY if is_sample else (queries or ("",))[0]
    last = [session.session_id for session in read.sessions if session.user_id == owner.user][-1]
    await _write_window(page, config, pool, owner, last, asked)
    await _write_retention(page, pool, owner)
    return NextSteps(owner, query=(queries or ("hello",))[0])


def write_worked(page: Page, worked: Worked) -> None:
    """Write how much was done, and how fast."""
    done = worked.ingested
    page.title("Done")
    if done.events_new:
        known = f" ({done.events_known} more were there already)" if done.events_known else ""
        seconds = f"{worked.append_seconds:.1f} s"
        page.field("events", f"{done.events_new} appended to {done.sessions} sessions in {seconds}{known}")
    else:
        page.field("events", f"all {done.events_known} are there already, from an earlier run: nothing is stored twice")
    if done.memories:
        page.field("memories", f"{done.memories} of the file are stored")
    for reason, count in done.left_out.items():
        page.field("left out", f"{count} {reason}")
    failed = f", {worked.jobs_failed} failed" if worked.jobs_failed else ""
    if worked.jobs_completed or worked.jobs_failed:
        page.field("jobs", f"{worked.jobs_completed} done{failed} in {worked.total_seconds:.1f} s")
    else:
        page.field("jobs", "nothing is left to consolidate")


def write_places(page: Page, all_roles: Running) -> None:
    """Write where the API and the metrics were."""
    page.title("While it ran")
    page.field("API", f"{all_roles.api_url} (routes: /docs; the console: /)")
    page.field("metrics", ", ".join(f"{url} ({role})" for role, url in all_roles.metrics_urls.items()))
    page.note(f"Everything stops now. `{_program()} up` (or `make run`) starts the same roles, and keeps them running.")


def write_farewell(page: Page, config: Settings, steps: NextSteps) -> None:
    """Write the commands that show the result again."""
    page.title("All data is kept. To look again:")
    if config.dsn is None and "home" in config.model_fields_set:
        page.note(f"export HIPPOCAMPUS_HOME={config.home}", style="")
    for words in (f"search {shlex.quote(steps.query)}", "facts", "memories --type summary", "sessions"):
        page.note(f"{_program()} {words} {_named(steps.owner)}", style="")
    page.note(f"{_program()} --help", style="")


async def _write_summaries(page: Page, service: OpenMemoryService, owner: Owner) -> None:
    found = await service.list_memories(app_name=owner.app, user_id=owner.user, memory_type="summary", limit=1000)
    found.sort(key=lambda each: output.show_time(each.occurred_at))
    page.title(f"Summaries ({len(found)})")
    for each in found[:SUMMARIES_MAX]:
        page.item(output.show_time(each.occurred_at)[:10], each.content)
    _write_more(page, len(found) - SUMMARIES_MAX, "memories --type summary", owner)


def _write_facts(page: Page, owner: Owner, known: Sequence[Fact], turns: Turns) -> None:
    page.title(f"Facts ({len(known)}), with their confidence and the turns they come from")
    shown = 0
    for fact_type, name in _FACT_TYPES.items():
        of_type = sorted((fact for fact in known if fact.fact_type == fact_type), key=lambda fact: -fact.confidence)
        if of_type:
            page.note(name, style="italic")
        for fact in of_type[:FACTS_MAX_BY_TYPE]:
            shown += 1
            quoted = [_quote(turn) for turn in facts.quotes(fact, turns)[:1]]
            page.item(f"{fact.confidence:.2f}", output.show_fact(fact.value), *quoted)
    _write_more(page, len(known) - shown, "facts", owner)


def _quote(turn: SourceTurn) -> str:
    return f"{turn.session_id} #{turn.sequence_num}: “{clip(turn.text, QUOTE_CELLS_MAX)}”"


async def _write_changes(page: Page, pool: Pool, owner: Owner) -> None:
    changes = fact_changes.choose(await rows.changed_facts(pool, owner, limit=REPLACEMENTS_MAX), CHANGES_MAX)
    if changes:
        page.title("What changed: the old fact is kept, with the time in which it was true")
    for each in changes:
        page.item(output.show_time(each.since)[:10], each.text)


async def _write_search(page: Page, config: Settings, pool: Pool, owner: Owner, query: str) -> None:
    response = await search.search(config, pool, owner, query, limit=HITS_MAX, narrow=EVERYTHING)
    page.title(f"Search: {query}")
    if response.degraded:
        page.note(response.degraded, style="yellow")
    if not response.memories:
        page.note("Nothing matches.")
    for hit in response.memories:
        text = passage(hit.content, search.whole_terms(hit.why.matched_terms), HIT_CELLS_MAX)
        page.item(f"{hit.score:.2f}", text, f"{search.kind_of(hit)}; why: {search.why(hit.why)}")


async def _write_window(page: Page, config: Settings, pool: Pool, owner: Owner, session_id: str, query: str) -> None:
    window, text = await context.assemble(
        config,
        pool,
        owner,
        query,
        session_id=session_id,
        tokens=WINDOW_TOKENS,
        system_prompt="You are a helpful assistant that remembers.",
    )
    page.title(f"Context window for the next turn of {session_id}: {query}")
    page.block(text)
    page.screen.print()
    for line in context.account(window):
        page.note(line, style="")


async def _write_retention(page: Page, pool: Pool, owner: Owner) -> None:
    page.title("Forgetting, as a dry run")
    outlook = retention.outlook(await retention.forecast(pool, *owner))
    page.field("policy", f"of the memories that no search or window uses, it archives: {outlook}")
    days = (await policies.get_policy(pool, owner.app)).archive_days
    page.field("", f"a use makes a memory strong again; what is archived can be restored for {days:g} days; facts stay")
    weak = await _weak(pool, owner)
    page.field(
        "stricter",
        f"at a threshold of {STRICT_THRESHOLD:g} and no minimum age, {len(weak)} would be archived now"
        f"{', such as' if weak else ''}",
    )
    for each in weak[:WEAK_MAX]:
        text = clip(" ".join(each.content.split()), QUOTE_CELLS_MAX // 2)
        page.item(f"{each.score:.2f}", text, f"{each.memory_type}; why: {retention.because(each)}")


async def _weak(pool: Pool, owner: Owner) -> list[WeakMemory]:
    """Return what a stricter clean-up would archive of a user: the app may hold others, from earlier files."""
    manager = MemoryRetentionManager(pool)
    weak: list[WeakMemory] = []
    after = None
    while found := await manager.preview(STRICT_THRESHOLD, 0, owner.app, after=after):
        weak += [each for each in found if each.user_id == owner.user]
        after = found[-1].id
    return weak


def _queries(read: ConversationFile, known: Sequence[Fact]) -> tuple[str, ...]:
    """Return what to search for in a user's own file: its questions, or else the surest facts."""
    if read.queries:
        return read.queries[:QUERIES_MAX]
    surest = sorted(known, key=lambda fact: -fact.confidence)
    texts = [fact.value["text"] for fact in surest if isinstance(fact.value, dict) and "text" in fact.value]
    if not texts:
        texts = [text for session in read.sessions for event in session.events if (text := event.text)]
    return tuple(clip(text, 80).rstrip("…") for text in texts[:QUERIES_MAX])


def _write_more(page: Page, count: int, command: str, owner: Owner) -> None:
    if count > 0:
        page.note(f"… and {count} more: {_program()} {command} {_named(owner)}")


def _named(owner: Owner) -> str:
    """Return the options that name a user, which a command needs once there is another one."""
    return f"--app {shlex.quote(owner.app)} --user {shlex.quote(owner.user)}"


def _program() -> str:
    """Return how to call this program: by its name if the shell finds it, or else by its path."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return f"{sys.executable} -m workers"
    if shutil.which(called.name):
        return called.name
    try:
        return str(called.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(called)
