"""Which facts a provider keeps of conversations, against the facts that a person would keep.

python -m benchmarks.facts [--set NAME|unread|development] [--provider local] [--show wrong,missing,stale]

Each folder of ``benchmarks/conversations`` holds twelve conversations, six English and six Chinese (from the seventh
on, three and three). All sets but the second and the eleventh are for work on the rules (``development``). Those two
were written without sight of the rules and must not be read while they change: they are for the final measurement, and
only their totals are printed.

A conversation is one JSON file::

    {"language": "en",
     "sessions": [{"id": "s1", "start": "2025-02-03T09:10:00+00:00",
                   "turns": [{"id": "s1-1", "speaker": "Ines", "role": "user", "text": "…", "at": "optional time"}]}],
     "facts": [{"id": "home", "about": "Ines", "statement": "Ines lives in Leeds.", "kind": "home",
                "any_of": [["leeds"], ["live", "home", "moved"]], "turns": ["s1-1"], "state": "superseded",
                "superseded_by": "home2", "date": "optional", "none_of": ["optional", "words"]}],
     "acceptable": [{"about": "Ines", "statement": "…", "any_of": [["…"]], "turns": ["…"]}]}

``facts`` are wanted: ``current`` ones hold at the end of the conversation, ``superseded`` ones gave way to another,
``retracted`` ones were taken back, or ended without a successor. ``acceptable`` statements are true and make sense
alone, but nobody has to keep them.

A fact from the database matches a statement if it cites one of the statement's turns and its key and value (without
``said_on`` and ``subject``) contain a keyword of every group of ``any_of`` and none of ``none_of``. One whose value
names another speaker as its ``subject`` does not match. Case, underscores and punctuation do not count; a keyword of
Latin letters or digits must begin a word, so that "allerg" finds "allergies". Then:

precision
    Facts of the database, former values included, that match a statement. A fact that is current there must match a
    statement that holds. Everything else is wrong.
recall
    Current wanted facts that a current fact of the database matches.
current state
    Of the wanted facts that changed and of which the database knows any version: those of which the version that holds
    now is current (nothing, after a retraction) and no former one is. "all changes" also counts those that it does not
    know, which are right only after a retraction.

Exits with 1 if one of those two sets was measured and misses a must.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks import options
from benchmarks.consolidation import DirectClaim
from benchmarks.figures import FIGURES, figure
from benchmarks.server import fresh_server
from hippocampus import jobs
from hippocampus.consolidation_worker import MemoryConsolidationWorker
from hippocampus.records import JobType
from pulse import database
from pulse.events import Event
from pulse.session_service import OpenSessionService
from workers.models import factory
from workers.settings import Settings

APP = "facts"
FOLDER = Path(__file__).parent / "conversations"
SETS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh")
#: Sets that no author of the rules has read.
UNREAD = ("second", "eleventh")
#: Those that rules may be made on.
DEVELOPMENT = tuple(name for name in SETS if name not in UNREAD)
STATES = ("current", "superseded", "retracted")
SHOWN = ("wrong", "missing", "stale")
#: The figures that they report together.
REPORTED = {"precision": "facts_precision", "recall": "facts_recall", "current state": "facts_current_state"}
MUSTS = {what: FIGURES[name].must for what, name in REPORTED.items()}
#: Fields of a value that do not say what was stated, but when and of whom.
NOT_STATED = ("said_on", "subject")
#: Turns are appended in batches of this many, and what became due is consolidated after each.
BATCH_TURNS = 10
SECONDS_PER_TURN = 40


@dataclass(frozen=True, slots=True)
class Statement:
    """Something that the turns of a conversation state: a wanted fact, or an acceptable one (with no id)."""

    about: str
    text: str
    any_of: tuple[tuple[str, ...], ...]
    turns: frozenset[str]
    none_of: tuple[str, ...] = ()
    id: str = ""
    state: str = "current"
    superseded_by: str | None = None

    def speaks(self, words: str) -> bool:
        """Whether a normal text has a keyword of every group, and none that is excluded."""
        return all(any(_has(words, keyword) for keyword in group) for group in self.any_of) and not any(
            _has(words, keyword) for keyword in self.none_of
        )

    def matches(self, fact: StoredFact) -> bool:
        return bool(self.turns & fact.turns) and fact.about in (None, self.about) and self.speaks(fact.words)


@dataclass(frozen=True)
class StoredFact:
    """One value that a fact of the database has or had, and the turns that it cites."""

    key: str
    value: Any
    turns: frozenset[str]
    is_current: bool
    about: str | None = None  # the speaker that it names as its subject, if it names one

    @cached_property
    def words(self) -> str:
        value = self.value
        if isinstance(value, Mapping):
            value = {name: inner for name, inner in value.items() if name not in NOT_STATED}
        return normal(f"{self.key} {' '.join(_leaves(value))}")


@dataclass(frozen=True, slots=True)
class Conversation:
    name: str
    language: str
    sessions: Sequence[Mapping[str, Any]]
    facts: tuple[Statement, ...]
    acceptable: tuple[Statement, ...]

    @property
    def turns(self) -> dict[str, Mapping[str, Any]]:
        return {turn["id"]: turn for session in self.sessions for turn in session["turns"]}


@dataclass(slots=True)
class Score:
    """Counts over one conversation, or over several added up."""

    stored: int = 0
    wrong: list[StoredFact] = field(default_factory=list)
    wanted: int = 0
    missing: list[Statement] = field(default_factory=list)
    changed: int = 0
    known: int = 0  # of the changed ones, those of which any version is in the database
    known_right: int = 0
    all_right: int = 0
    stale: list[tuple[Statement, StoredFact | None]] = field(default_factory=list)  # None: the new one is not there

    def __iadd__(self, other: Score) -> Score:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self

    @property
    def shares(self) -> dict[str, tuple[int, int]]:
        """By measure: how many are right, and of how many."""
        return {
            "precision": (self.stored - len(self.wrong), self.stored),
            "recall": (self.wanted - len(self.missing), self.wanted),
            "current state": (self.known_right, self.known),
            "all changes": (self.all_right, self.changed),
        }

    @property
    def missed_musts(self) -> list[str]:
        """The measures below their must. One that nothing was measured for is missed."""
        return [name for name, must in MUSTS.items() if share(*self.shares[name]) < must]


def share(right: int, of: int) -> float:
    return right / of if of else 0.0


def score(conversation: Conversation, stored: Sequence[StoredFact]) -> Score:
    """Compare what the database holds with what the conversation states."""
    holding = [*(fact for fact in conversation.facts if fact.state == "current"), *conversation.acceptable]
    said = [*conversation.facts, *conversation.acceptable]
    current = [fact for fact in stored if fact.is_current]
    result = Score(stored=len(stored))
    true = {id(fact) for fact in current if any(statement.matches(fact) for statement in holding)}
    for fact in stored:
        right = id(fact) in true if fact.is_current else any(statement.matches(fact) for statement in said)
        if not right:
            result.wrong.append(fact)
    for wanted in conversation.facts:
        if wanted.state == "current":
            result.wanted += 1
            if not any(wanted.matches(fact) for fact in current):
                result.missing.append(wanted)
    for end, former in changes(conversation.facts):
        result.changed += 1
        # A stale fact may cite the very turn that took it back.
        stale = next((f for f in current if id(f) not in true and any(s.speaks(f.words) for s in former)), None)
        holds = end is None or any(end.matches(fact) for fact in current)
        known = any(statement.matches(fact) for statement in (*former, *([end] if end else [])) for fact in stored)
        right = stale is None and holds
        result.known += known or stale is not None
        result.known_right += right and known
        result.all_right += right
        if not right:
            result.stale.append((end or former[0], stale))
    return result


def changes(facts: Sequence[Statement]) -> list[tuple[Statement | None, list[Statement]]]:
    """What changed: the version that holds in the end, None after a retraction, and all former ones."""
    by_id = {fact.id: fact for fact in facts}
    former: dict[str, list[Statement]] = {}
    ends: dict[str, Statement | None] = {}
    for fact in facts:
        if fact.state == "current":
            continue
        last = fact
        while last.superseded_by is not None:
            last = by_id[last.superseded_by]
        former.setdefault(last.id, []).append(fact)
        ends[last.id] = last if last.state == "current" else None
    return [(ends[name], former[name]) for name in former]


def normal(text: str) -> str:
    """A text in lower case, with one space for everything that is neither a letter nor a digit."""
    return " ".join(re.sub(r"[\W_]+", " ", unicodedata.normalize("NFKC", text).casefold()).split())


def _has(words: str, keyword: str) -> bool:
    keyword = normal(keyword)
    if not keyword.isascii():
        return keyword.replace(" ", "") in words.replace(" ", "")
    end = r"(?![0-9])" if keyword[-1:].isdigit() else ""
    return re.search(rf"(?<![a-z0-9]){re.escape(keyword)}{end}", words, re.ASCII) is not None


def _leaves(value: Any) -> Iterable[str]:
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
    else:
        yield str(value)


def read_set(name: str) -> list[Conversation]:
    return [read(path) for path in sorted((FOLDER / name).glob("*.json"))]


def read(path: Path) -> Conversation:
    given = json.loads(path.read_text(encoding="utf-8"))
    return Conversation(
        path.stem,
        given["language"],
        given["sessions"],
        tuple(_statement(row) for row in given["facts"]),
        tuple(_statement(row) for row in given["acceptable"]),
    )


def _statement(row: Mapping[str, Any]) -> Statement:
    return Statement(
        about=row["about"],
        text=row["statement"],
        any_of=tuple(tuple(group) for group in row["any_of"]),
        turns=frozenset(row["turns"]),
        none_of=tuple(row.get("none_of", ())),
        id=row.get("id", ""),
        state=row.get("state", "current"),
        superseded_by=row.get("superseded_by"),
    )


async def remember(pool: database.Pool, worker: MemoryConsolidationWorker, conversation: Conversation) -> None:
    """Append a conversation as it was held, consolidating as a worker would, each session also when it has ended."""
    sessions = OpenSessionService(pool)
    for session in conversation.sessions:
        await sessions.create_session(APP, conversation.name, session_id=session["id"])
        start = datetime.fromisoformat(session["start"])
        events = []
        for index, turn in enumerate(session["turns"]):
            at = turn.get("at")
            when = datetime.fromisoformat(at) if at else start + timedelta(seconds=SECONDS_PER_TURN * index)
            events.append(
                Event(
                    author="user" if turn["speaker"] == "user" else turn["speaker"],
                    content={"text": turn["text"]},
                    id=turn["id"],
                    event_type=f"{turn['role']}_message",
                    timestamp=when.timestamp(),
                )
            )
        for begin in range(0, len(events), BATCH_TURNS):
            await sessions.append(APP, conversation.name, session["id"], events[begin : begin + BATCH_TURNS])
            await work_off(pool, worker)
        thread = await pool.fetchval(
            "SELECT id FROM threads WHERE app_name = $1 AND user_id = $2 AND session_id = $3",
            APP,
            conversation.name,
            session["id"],
        )
        await jobs.enqueue(pool, thread, JobType.FULL_CONSOLIDATION)
        await work_off(pool, worker)


async def work_off(pool: database.Pool, worker: MemoryConsolidationWorker) -> None:
    """Run the jobs that are due, and those that they lead to."""
    due = "SELECT id FROM consolidation_jobs WHERE status = 'pending' ORDER BY created_at, id LIMIT 1"
    while (job := await pool.fetchval(due)) is not None:
        await worker.run(job, DirectClaim(job))


async def read_facts(pool: database.Pool, conversation: Conversation) -> list[StoredFact]:
    """Every value that a fact of the conversation has or had, with the turns of all its statements."""
    end = max(datetime.fromisoformat(session["start"]) for session in conversation.sessions) + timedelta(days=1)
    rows = await pool.fetch(
        """SELECT coalesce(f.key, v.key) AS key, v.value,
                  coalesce(bool_or(f.value = v.value AND coalesce(f.valid_until > $3, true)), false) AS is_current,
                  array_agg(DISTINCT e.id) FILTER (WHERE e.id IS NOT NULL) AS turns
           FROM fact_versions AS v
           LEFT JOIN facts AS f ON f.id = v.fact_id
           LEFT JOIN events AS e ON e.thread_id = v.thread_id AND e.sequence_num = ANY (v.source_seqs)
           WHERE v.app_name = $1 AND v.user_id = $2
             AND v.value IS NOT NULL AND v.accepted_at IS NOT NULL AND v.retracted_at IS NULL
           GROUP BY v.fact_id, coalesce(f.key, v.key), v.value
           ORDER BY min(v.valid_from), 1, v.value""",
        APP,
        conversation.name,
        end,
    )
    speakers = {turn["speaker"] for turn in conversation.turns.values()}
    found = []
    for row in rows:
        subject = row["value"].get("subject") if isinstance(row["value"], Mapping) else None
        about = subject if subject in speakers else None
        found.append(StoredFact(row["key"], row["value"], frozenset(row["turns"] or ()), row["is_current"], about))
    return found


async def measure(
    pool: database.Pool, worker: MemoryConsolidationWorker, conversations: Sequence[Conversation], shown: Sequence[str]
) -> Score:
    """Print a line for each conversation and their total, which is returned."""
    total = Score()
    print(f"{'':<20}" + "".join(f"{name:>22}" for name in total.shares))
    for conversation in conversations:
        await remember(pool, worker, conversation)
        scored = score(conversation, await read_facts(pool, conversation))
        total += scored
        print(line(conversation.name, scored))
        show(conversation, scored, shown)
    print(line("total", total))
    musts = [f"must {MUSTS[name]:.2f}" if name in MUSTS else "" for name in total.shares]
    print(f"{'':<20}" + "".join(f"{must:>22}" for must in musts))
    return total


def line(name: str, scored: Score) -> str:
    figures = [f"{share(right, of):.2f} ({right}/{of})" if of else "- (0/0)" for right, of in scored.shares.values()]
    return f"{name:<20}" + "".join(f"{figure:>22}" for figure in figures)


def show(conversation: Conversation, scored: Score, shown: Sequence[str]) -> None:
    """Print what is not right, with the turns that it cites."""
    turns = conversation.turns
    if "wrong" in shown:
        for fact in scored.wrong:
            cited = " | ".join(turns[turn]["text"] for turn in sorted(fact.turns))
            time = "current" if fact.is_current else "former"
            print(f"    wrong ({time})  {fact.key}: {json.dumps(fact.value, ensure_ascii=False)}\n        {cited}")
    if "missing" in shown:
        for wanted in scored.missing:
            cited = " | ".join(turns[turn]["text"] for turn in sorted(wanted.turns))
            print(f"    missing  {wanted.text}\n        {cited}")
    if "stale" in shown:
        for wanted, fact in scored.stale:
            instead = f"{fact.key}: {json.dumps(fact.value, ensure_ascii=False)}" if fact else "it is not there"
            print(f"    stale  {wanted.text} ({wanted.state})\n        {instead}")


async def main() -> int:
    parser = options.parser()
    parser.add_argument("--set", choices=(*SETS, "unread", "development"), default="first", dest="name")
    parser.add_argument("--provider", default="local", help="as HIPPOCAMPUS_GENERATOR; a key is read from its variable")
    parser.add_argument("--show", default="", help=f"what to print one by one, of {','.join(SHOWN)}")
    parser.add_argument("--open-unread", action="store_true", help="let --show print sets that are not yet read")
    arguments = parser.parse_args()
    shown = [each for each in arguments.show.split(",") if each]
    if unknown := set(shown) - set(SHOWN):
        parser.error(f"--show knows {', '.join(SHOWN)}, not {', '.join(sorted(unknown))}")
    names = {"unread": UNREAD, "development": DEVELOPMENT}.get(arguments.name, (arguments.name,))
    if shown and (unread := sorted(set(UNREAD) & set(names))):
        if not arguments.open_unread:
            parser.error(
                f"the {' and the '.join(unread)} set: whoever changes the rules may not read it, it is for the final "
                "measurement only. Leave out --show, or add --open-unread if the rules will not change any more"
            )
        print("For the final measurement only: rules that change after this was read need a new set.")
    settings = Settings(generator=arguments.provider, embedder=arguments.provider)
    generator, embedder = factory.make_generator(settings), factory.make_embedder(settings)
    scores = {}
    async with fresh_server() as server, await database.create_pool(server.dsn) as pool:
        worker = MemoryConsolidationWorker(pool, generator, embedder)
        for name in names:
            print(f"{name} set, {arguments.provider}")
            scores[name] = await measure(pool, worker, read_set(name), shown)
    await generator.close()
    await embedder.close()
    if set(UNREAD) <= set(scores) and arguments.provider == "local":
        together = Score()
        for name in UNREAD:
            together += scores[name]
        for what, name in REPORTED.items():
            figure(name, share(*together.shares[what]))
    missed = {name: scores[name].missed_musts for name in UNREAD if name in scores and scores[name].missed_musts}
    for name, measures in missed.items():
        print(f"below its must on the {name} set: {', '.join(measures)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
