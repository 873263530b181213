"""Every way in: what an app's policy masks is in no table, whoever wrote it and by whichever service."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from google.adk.events import Event as AdkEvent
from google.genai import types

from hippocampus.by_hand import GivenFact, MemoryEditor
from hippocampus.consolidation.slices import Stage, read_slice
from hippocampus.context_assembler import ContextAssembler
from hippocampus.engine import Hippocampus
from hippocampus.instructions import InstructionStore
from hippocampus.integrations.langgraph import HippocampusStore
from hippocampus.rerank import TEXT_MAX, Reranking
from hippocampus.search import MemorySearch
from hippocampus.store.service import ItemStore
from hippocampus.transfer.given_memories import GivenMemories, GivenMemory
from hippocampus.transfer.memory_file import export_memory, import_memory
from pulse.adk.sessions import PostgresSessionService
from pulse.errors import InvalidInputError, PulseError, RedactionChangedError, SecretRefusedError
from pulse.events import Event, EventActions
from pulse.live_text import RunKey
from pulse.postgres.statements import load_queries, observe_statements, redacts
from pulse.runs.service import RunService
from pulse.session_service import OpenSessionService
from pulse.streams.deltas import PgDeltaCarrier
from tests.support.paths import ROOT
from workers.intake.source import Source
from workers.transfer.sessions import export_sessions, import_sessions

SECRET = "ghp_" + "0123456789abcdefghijklmnopqrstuvwxyz"
TEXT = f"my key is {SECRET}, keep it"
APP, USER = "shop", "mei"
_TABLES = """
SELECT c.relname FROM pg_class AS c WHERE c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace
"""


async def holding(pool: asyncpg.Pool, secret: str = SECRET) -> list[str]:
    """Return the tables, procrastinate's too, with a row that holds a text anywhere."""
    found = []
    for (name,) in await pool.fetch(_TABLES):
        if await pool.fetchval(f'SELECT EXISTS (SELECT FROM "{name}" AS t WHERE strpos(t::text, $1) > 0)', secret):
            found.append(name)
    return sorted(found)


async def policy(pool: asyncpg.Pool, mode: str, app: str = APP) -> None:
    await pool.execute("SELECT set_app_policy($1, $2)", app, {"redaction": mode})


def event(**fields: Any) -> Event:
    return Event(
        author="user",
        content={"text": TEXT, "args": {"password": "x", "deep": [TEXT]}},
        actions=EventActions(state_delta={"k": TEXT, "user:k": TEXT, "app:k": TEXT}, other={"note": TEXT}),
        **fields,
    )


async def _append(pool: asyncpg.Pool) -> None:
    service = OpenSessionService(pool)
    session = await service.create_session(APP, USER, session_id="appended")
    await service.append_event(session, event())
    await service.append_events(session, [event(), event()])
    await service.append(APP, USER, session.id, [event()])
    await service.close()


async def _create(pool: asyncpg.Pool) -> None:
    service = OpenSessionService(pool)
    await service.create_session(APP, USER, {"k": TEXT, "user:j": TEXT, "app:j": TEXT}, metadata={"m": TEXT})
    await service.close()


async def _adk(pool: asyncpg.Pool) -> None:
    service = PostgresSessionService(pool)
    session = await service.create_session(app_name=APP, user_id=USER, state={"k": TEXT}, metadata={"m": TEXT})
    given = AdkEvent(author="user", content=types.Content(role="user", parts=[types.Part(text=TEXT)]))
    given.actions.state_delta = {"k2": TEXT, "user:k2": TEXT}
    await service.append_event(session, given)
    unmarked = await service.get_session(app_name=APP, user_id=USER, session_id=session.id)
    assert unmarked is not None
    copy = unmarked.model_copy(deep=True)
    copy.__dict__.pop("_storage_update_marker", None)
    await service.append_event(copy, AdkEvent(author="model", content=types.Content(parts=[types.Part(text=TEXT)])))
    await service.flush()


async def _run(pool: asyncpg.Pool) -> None:
    service, carrier = RunService(pool), PgDeltaCarrier(pool)
    await OpenSessionService(pool).create_session(APP, USER, session_id="run")
    run = (await service.start(APP, USER, "run", "r1", event())).run
    await service.think(run, TEXT)
    await service.call_tool(run, "t", {"q": TEXT}, tool_call_id="c1")
    await service.tool_result(run, "c1", {"found": TEXT})
    await carrier.push(RunKey(run.thread_id, "r1"), "m1", kind="text", offset=0, text=TEXT, meta={"tool_name": "t"})
    await carrier.push(RunKey(run.thread_id, "r1"), "m1", kind="text", offset=len(TEXT), text=" more")
    await service.fail(run, TEXT)
    other = (await service.start(APP, USER, "run", "r2", event())).run
    await service.finish(other, TEXT, result={"r": TEXT}, state_delta={"s": TEXT})
    await service.close()


async def _by_hand(pool: asyncpg.Pool) -> None:
    editor = MemoryEditor(pool)
    kept = await editor.remember(APP, USER, TEXT)
    await editor.remember(APP, USER, GivenMemory(content=TEXT, name="n", metadata={"m": TEXT}))
    await editor.correct(APP, USER, kept.ids[0], f"now {TEXT}")
    fact = await editor.remember(APP, USER, GivenFact(key="keys", value=[TEXT, "other"]))
    await editor.correct(APP, USER, fact.ids[0], TEXT + "!")


async def _given(pool: asyncpg.Pool) -> None:
    given = GivenMemories(pool)
    await given.give(APP, USER, [GivenMemory(content=TEXT, metadata={"m": TEXT})])
    await given.remember_turns(APP, USER, "elsewhere", [event()])


async def _store(pool: asyncpg.Pool) -> None:
    await ItemStore(pool, APP).put(("users", USER), "k", {"text": TEXT, "api_key": "x"})
    async with pool.acquire() as connection, connection.transaction():
        await ItemStore(connection, APP).put(("notes",), "k", {"text": TEXT})


async def _instructions(pool: asyncpg.Pool) -> None:
    await InstructionStore(pool).put(APP, "tone", TEXT, metadata={"m": TEXT})


WAYS: dict[str, Callable[[asyncpg.Pool], Awaitable[None]]] = {
    "append": _append,
    "create": _create,
    "adk": _adk,
    "run": _run,
    "by hand": _by_hand,
    "given": _given,
    "store": _store,
    "instructions": _instructions,
}


@pytest.mark.parametrize("way", WAYS)
async def test_each_way_in_masks_refuses_and_without_a_policy_stores(pool: asyncpg.Pool, way: str) -> None:
    """A process learns of a policy from the refusal of its first write; refused, nothing at all is stored."""
    await policy(pool, "refuse")
    with pytest.raises(InvalidInputError) as refused:
        await WAYS[way](pool)
    assert isinstance(refused.value, SecretRefusedError)
    assert SECRET not in str(refused.value)
    assert await holding(pool) == []
    await policy(pool, "mask")
    await pool.execute("DELETE FROM threads")
    await WAYS[way](pool)
    assert await holding(pool) == []
    assert await holding(pool, "[redacted:github_token]") != []
    await policy(pool, "off")
    await pool.execute("DELETE FROM threads")
    await WAYS[way](pool)
    assert await holding(pool) != []


async def test_imported_files_are_masked_line_by_line(pool: asyncpg.Pool, tmp_path: Path) -> None:
    """Exports that were made without a policy are imported under one; a refused session is reported, not stored."""
    for way in ("append", "create", "by hand", "given"):
        await WAYS[way](pool)
    written: list[str] = []
    await export_sessions(pool, written.append)
    file = tmp_path / "sessions.jsonl"
    file.write_text("".join(written))
    sessions, memory = "".join(written), [line async for line in export_memory(pool, APP, USER)]
    assert SECRET in sessions
    assert SECRET in "".join(memory)

    async def empty() -> None:
        for table in ("threads", "user_states", "app_states", "memories", "memories_archive", "facts", "fact_versions"):
            await pool.execute(f"DELETE FROM {table}")
        await pool.execute("DELETE FROM imported_states")
        await pool.execute("DELETE FROM imported_origins")

    await empty()
    await policy(pool, "refuse")
    refused = await import_sessions(pool, Source(file))
    assert refused.sessions == 0
    assert len(refused.rejected) >= 2
    assert not any(SECRET in each.error for each in refused.rejected)
    with pytest.raises(SecretRefusedError):
        await import_memory(pool, memory)
    assert await holding(pool) == []
    await policy(pool, "mask")
    done = await import_sessions(pool, Source(file))
    assert (done.sessions > 1, done.rejected) == (True, [])
    assert (await import_memory(pool, memory)).stored
    assert await holding(pool) == []


async def test_no_model_is_sent_a_secret(pool: asyncpg.Pool, dsn: str) -> None:
    """Queries, items of LangGraph's store, and turns that were stored before the policy are masked before a model."""
    sent: list[str] = []

    class Ears:
        model, dimensions, input_tokens_max = "ears", 2, 1000

        async def embed(self, texts: list[str], task: str) -> list[list[float]]:
            sent.extend(texts)
            return [[1.0, 0.0] for _ in texts]

        async def close(self) -> None:
            """Nothing is open."""

    await _append(pool)
    await pool.execute("SELECT consolidate_session($1, $2, 'appended')", APP, USER)
    job = await pool.fetchval("SELECT id FROM consolidation_jobs LIMIT 1")
    await policy(pool, "mask")
    slice_ = await read_slice(pool, job, Stage.FAST, slice_tokens=5000)
    assert slice_ is not None
    sent += [turn.text for turn in slice_.turns]
    await MemorySearch(pool, Ears()).search(app_name=APP, user_id=USER, query=TEXT)  # type: ignore[arg-type]

    class Judge:
        async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
            sent.extend((query, *texts))
            return [0.0 for _ in texts]

    search = MemorySearch(pool, reranker=Judge())
    assert (await search.search(app_name=APP, user_id=USER, query=TEXT)).reranked
    assert (await ContextAssembler(pool, reranker=Judge()).recall(app_name=APP, user_id=USER, query=TEXT)).reranked
    async with Hippocampus(dsn, app=APP, embedder=Ears()) as memory:  # type: ignore[arg-type]
        store = HippocampusStore(memory, index={})
        await store.aput(("notes",), "k", {"text": TEXT})
        await store.asearch(("notes",), query=TEXT)
        await memory.context(USER, TEXT)
    assert len(sent) >= 7
    assert not any(SECRET in each for each in sent)


@pytest.mark.parametrize("before", ["", f"{SECRET} " * 150], ids=["at the cut", "moved forward by masks"])
async def test_a_reranker_is_given_no_half_of_a_secret(pool: asyncpg.Pool, before: str) -> None:
    """It is given the beginning of a long text, which is cut where a secret stands."""
    await policy(pool, "mask")
    given: list[str] = []

    class Judge:
        async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
            given.extend(texts)
            return [0.0 for _ in texts]

    half = len(SECRET) // 2
    for cut in (TEXT_MAX, TEXT_MAX + 2000):
        filled = before + "a " * ((cut - half - len(before)) // 2)
        text = f"{filled}{SECRET} {'b ' * 10_000}"
        await Reranking(Judge(), 60).order(pool, APP, "q", [text], str)
    for each in given:
        assert len(each) <= TEXT_MAX
        assert each.startswith("[redacted:" if before else "a a ")
        assert SECRET[: half // 2] not in each
    assert len(given) == 2


async def test_who_does_not_redact_may_not_append(pool: asyncpg.Pool) -> None:
    """Plain SQL, and a program that knows of no policy, are refused; an empty session is not."""
    await policy(pool, "mask")
    await pool.execute("SELECT create_session($1, $2, 's')", APP, USER)
    sql = "SELECT append_event($1, $2, 's', NULL, 'e', 'user', 'user_message', '{\"text\": \"hi\"}'"
    for call in (f"{sql})", f"{sql}, p_redaction => 'refuse')"):
        with pytest.raises(asyncpg.PostgresError) as refused:
            await pool.execute(call, APP, USER)
        assert refused.value.sqlstate == "HP096"
    await pool.execute(f"{sql}, p_redaction => 'mask')", APP, USER)
    assert issubclass(RedactionChangedError, PulseError)


async def test_a_policy_takes_effect_with_the_next_append_and_costs_no_round_trip(pool: asyncpg.Pool) -> None:
    """The first append under another policy is run twice, and every other one once, in both directions."""
    names: list[str] = []
    service = OpenSessionService(pool)
    session = await service.create_session(APP, USER)
    end = observe_statements(lambda name, *_: names.append(name) if name.startswith("sessions.") else None)
    for mode in ("off", "mask", "mask", "refuse", "off", "off"):
        await policy(pool, mode)
        await service.append_event(session, Event(author="user", content={"text": "nothing secret"}))
    end()
    await service.close()
    assert names == ["sessions.append_next_event"] * (6 + 3)


def test_every_statement_that_takes_words_of_users_declares_them() -> None:
    """A statement that passes words on to a table says so, or is a worker's, whose words were masked before."""
    writes = re.compile(
        r"event_input|given_memory|fact_input|memory_input|proposal_input"
        r"|INSERT INTO (?:store_items|events|messages|memories)"
        r"|\b(?:create_session|put_store_items|import_lines|import_state|import_session|finish_session_import"
        r"|put_instruction|put_document|put_corpus|correct_memory_by_hand|end_run)\("
    )
    derived = {"consolidation.sql"}  # of turns that are masked when they are read
    whole_files = {("sessions.sql", "import_events")}  # masked line by line; see workers.transfer.sessions
    missing = []
    for path in (*ROOT.glob("pulse/**/*.sql"), *ROOT.glob("hippocampus/**/*.sql"), *ROOT.glob("workers/**/*.sql")):
        package = ".".join(path.relative_to(ROOT).parent.parts)
        for name, text in load_queries(package, path.name).items():
            if path.name in derived or (path.name, name) in whole_files or not writes.search(_code(text)):
                continue
            rule = redacts(text)
            if rule is None:
                missing.append(f"{path.name}: {name}")
            elif rule.mode is not None:
                last = max(int(each) for each in re.findall(r"\$(\d+)", _code(text)))
                assert rule.mode == last - 1, f"{path.name}: {name} takes what was applied last"
    assert missing == []


def _code(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith("--"))


def test_the_redactor_of_the_setting_is_used_or_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module of the current folder is found; what is not a redactor is named in the error."""
    from pulse import redaction
    from workers import redactors
    from workers.settings import Settings, SettingsError

    (tmp_path / "own_redactor.py").write_text(
        "class Own:\n    def find(self, text): return []\n    def is_secret_name(self, name): return name == 'n'\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(redaction, "_redactor", redaction.SecretRedactor())
    redactors.install(Settings(redactor="own_redactor:Own"))
    assert json.dumps(redaction.redact({"n": "x"}, "mask")) == '{"n": "[redacted:named]"}'
    with pytest.raises(SettingsError, match="no find"):
        redactors.install(Settings(redactor="json:dumps"))
    with pytest.raises(SettingsError, match="no_such"):
        redactors.install(Settings(redactor="no_such:thing"))
