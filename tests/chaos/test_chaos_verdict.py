"""The chaos verdict: silent when all is well, and reports everything that is lost or duplicated."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from pathlib import Path

import asyncpg
import pytest

from hippocampus import jobs
from pulse.events import Event
from pulse.session_service import OpenSessionService
from tests.chaos import faults, roles, scene, writers
from tests.chaos.verdict import ALWAYS, AT_THE_END, QUERIES, Judge, Observer
from tests.support.waiting import until

IDS = ("la-1", "la-2", "la-3", "la-4")

#: Consolidates a session of the four events: two slices by fast_replay, two by deep_reflection.
CONSOLIDATED = """
    INSERT INTO memories (thread_id, user_id, app_name, memory_type, content, embedding, embedding_model, from_seq,
                          upto_seq, source_seqs)
    SELECT t.id, t.user_id, t.app_name, m.kind, 'said', array_fill(1, ARRAY[1536])::vector, 'fake', m.first, m.last,
           ARRAY(SELECT generate_series(m.first, m.last))
    FROM threads AS t
    CROSS JOIN (VALUES ('summary', 1, 2), ('summary', 3, 4), ('episodic', 1, 2), ('episodic', 3, 4),
                       ('semantic', 1, 1), ('semantic', 2, 2), ('semantic', 3, 3), ('semantic', 4, 4))
        AS m (kind, first, last);
    INSERT INTO facts (thread_id, user_id, app_name, key, value, content, embedding, embedding_model, from_seq,
                       upto_seq)
    SELECT id, user_id, app_name, 'likes', '["plum-la-3", "plum-la-4"]', 'likes', array_fill(1, ARRAY[1536])::vector,
           'fake', 3, 4 FROM threads;
    INSERT INTO fact_versions (fact_id, thread_id, user_id, app_name, fact_type, key, value, confidence, valid_from,
                               recorded_at, accepted_at, from_seq, upto_seq)
    SELECT id, thread_id, user_id, app_name, fact_type, key, '["plum-la-1", "plum-la-2"]', 1, now() - interval '1 h',
           now(), now(), 1, 2 FROM facts;
    UPDATE threads SET fast_upto_seq = 4, deep_upto_seq = 4;
    UPDATE messages SET embedding = array_fill(1, ARRAY[1536])::vector, embedding_model = 'fake';
    UPDATE procrastinate_jobs SET status = 'doing' WHERE status = 'todo';
    UPDATE procrastinate_jobs SET status = 'succeeded'
"""

#: Each kind of damage, and the rule that must report it.
DAMAGE = {
    "a summary is lost": (
        "DELETE FROM memories WHERE memory_type = 'summary' AND from_seq = 1",
        "slices_broken",
    ),
    "the last raw slice is lost": (
        "DELETE FROM memories WHERE memory_type = 'episodic' AND from_seq = 3",
        "watermarks_jumped",
    ),
    "a slice overlaps the one before": (
        "UPDATE memories SET from_seq = 2 WHERE memory_type = 'episodic' AND from_seq = 3",
        "slices_broken",
    ),
    "a statement of a fact is lost": ("DELETE FROM fact_versions WHERE from_seq = 1", "facts_not_once"),
    "a statement of a fact is there twice": (
        "UPDATE fact_versions SET value = value || '[\"plum-la-3\"]'",
        "facts_not_once",
    ),
    "an insight is lost": ("DELETE FROM memories WHERE source_seqs = ARRAY[2::bigint]", "insights_not_once"),
    "an insight is there twice": (
        """INSERT INTO memories (thread_id, user_id, app_name, memory_type, content, source_seqs)
           SELECT thread_id, user_id, app_name, memory_type, content, source_seqs FROM memories
           WHERE source_seqs = ARRAY[2::bigint]""",
        "insights_not_once",
    ),
    "the watermark is ahead of the slices": ("UPDATE threads SET fast_upto_seq = 3", "watermarks_jumped"),
    "a session is behind": ("UPDATE threads SET deep_upto_seq = 2", "threads_behind"),
    "a number is missing": ("UPDATE threads SET last_seq = 5", "numbers_with_gaps"),
    "the statuses disagree": ("UPDATE consolidation_jobs SET status = 'running'", "statuses_disagree"),
    "a job failed": ("UPDATE procrastinate_jobs SET status = 'failed'", "jobs_unfinished"),
    "a job was aborted": ("UPDATE procrastinate_jobs SET status = 'aborted'", "jobs_lost"),
    "a text has no vector": ("UPDATE facts SET embedding = NULL, embedding_model = NULL", "texts_without_vector"),
}


@pytest.fixture
async def ledger(pool: asyncpg.Pool) -> writers.Ledger:
    """A consolidated session of four events, and its writer's ledger."""
    service = OpenSessionService(pool)
    await service.create_session(writers.APP, "user", session_id="s00")
    events = [Event(id=key, author="user", content={"text": writers.text(key)}) for key in IDS]
    appended = await service.append(writers.APP, "user", "s00", events)
    await service.close()
    await jobs.enqueue(pool, appended.thread_id, "fast_replay")
    await pool.execute(CONSOLIDATED)
    ledger = writers.Ledger()
    ledger.note("s00", list(IDS), [event.sequence_num or 0 for event in appended.events])
    return ledger


async def test_a_clean_run_has_no_findings(pool: asyncpg.Pool, ledger: writers.Ledger) -> None:
    judge = Judge(Observer(pool), ledger)
    await judge.final_check()
    assert judge.findings.total == 0, judge.findings.examples
    assert set(ALWAYS) | set(AT_THE_END) | {"events_renumbered", "events_unknown"} <= judge.findings.checks.keys()


@pytest.mark.parametrize("what", DAMAGE)
async def test_each_kind_of_damage_is_found(pool: asyncpg.Pool, ledger: writers.Ledger, what: str) -> None:
    statement, rule = DAMAGE[what]
    await pool.execute(statement)
    judge = Judge(Observer(pool), ledger)
    await judge.final_check()
    assert judge.findings.broken[rule] > 0
    assert judge.findings.examples[rule]


async def test_lost_renumbered_and_unknown_events_are_found(pool: asyncpg.Pool, ledger: writers.Ledger) -> None:
    """Only the ledger can show this: the database does not know what it never stored."""
    ledger.numbers.pop(("s00", "la-4"))
    ledger.numbers["s00", "la-9"] = 5
    ledger.note("s00", ["la-1"], [2])
    judge = Judge(Observer(pool), ledger)
    await judge.final_check()
    broken = judge.findings.broken
    assert (broken["events_renumbered"], broken["events_unknown"], broken["ids_answered_twice"]) == (1, 1, 1)
    assert "la-9" in judge.findings.examples["events_renumbered"][0]


async def test_a_watermark_that_moved_back_is_found(pool: asyncpg.Pool, ledger: writers.Ledger) -> None:
    judge = Judge(Observer(pool), ledger)
    await judge.check("first")
    await pool.execute("UPDATE threads SET fast_upto_seq = 2")
    await judge.check("then")
    assert judge.findings.broken["watermarks_moved_back"] == 1


async def test_a_stuck_job_is_found(pool: asyncpg.Pool, ledger: writers.Ledger) -> None:
    await jobs.enqueue(pool, await pool.fetchval("SELECT id FROM threads"), "deep_reflection")
    await pool.execute("UPDATE procrastinate_jobs SET status = 'doing' WHERE status = 'todo'")
    assert len(await pool.fetch(QUERIES["jobs_stuck"], 0.0)) == 1
    assert await pool.fetch(QUERIES["jobs_stuck"], 60.0) == []


async def test_an_effect_that_does_not_end_or_ends_twice_is_found(pool: asyncpg.Pool) -> None:
    effect = {"kind": "notify", "key": "k", "queue": "effects"}
    await pool.execute("SELECT end_pulse_tick('main', $1, '{}', '{}', NULL)", [effect])
    assert len(await pool.fetch(QUERIES["effects_stuck"], 0.0)) == 1
    assert await pool.fetch(QUERIES["effects_stuck"], 60.0) == []
    await pool.execute("SELECT end_effect(id, false, '{}') FROM pulse_events")
    assert await pool.fetch(QUERIES["effects_stuck"], 0.0) == []
    assert await pool.fetch(QUERIES["effects_not_once"]) == []
    # The index that prevents it.
    await pool.execute("DROP INDEX pulse_events_end_idx")
    await pool.execute("SELECT end_effect(id, false, '{}') FROM pulse_events WHERE kind = 'effect'")
    assert [row["times"] for row in await pool.fetch(QUERIES["effects_not_once"])] == [2]


def test_the_seed_alone_decides_the_faults() -> None:
    """The same seed gives the same schedule; ten minutes hold at least a hundred kills, and every kind of fault."""
    long = faults.schedule(7, 600, 100)
    assert long == faults.schedule(7, 600, 100) != faults.schedule(8, 600, 100)
    assert sum(fault.kind is faults.Kind.KILL for fault in long) >= 100
    assert {fault.kind for fault in faults.schedule(7, 60, 0)} == set(faults.Kind)
    assert [fault.at_seconds for fault in long] == sorted(fault.at_seconds for fault in long)
    assert max(fault.at_seconds for fault in long) <= 600


@pytest.mark.parametrize(("signals", "code", "untidy"), [(1, 0, []), (1, 143, [143]), (2, 143, []), (2, 1, [1])])
async def test_an_ungraceful_exit_is_accepted_only_after_a_second_signal(
    tmp_path: Path, signals: int, code: int, untidy: list[int]
) -> None:
    """After two signals 143 is expected; after one signal, and for any other code, it is a finding."""
    slot = roles.Slot("slot", "role", (), {}, tmp_path)
    program = f"import signal, time\nsignal.signal(15, lambda *_: None)\nprint('{roles.READY[0]}', flush=True)\n"
    slot._command = [sys.executable, "-c", program + f"time.sleep(0.3 * {signals})\nraise SystemExit({code})"]
    running = asyncio.create_task(slot._run())
    await until(lambda: slot.is_ready)
    assert slot.is_at_work
    for _ in range(signals):
        assert slot.send(signal.SIGTERM)
    assert not slot.is_at_work
    await running
    assert slot.ends.untidy == untidy


def test_every_role_of_the_procfile_takes_part() -> None:
    assert roles.commands().keys() == scene.PROCESSES.keys()
    assert all(count >= 2 for role, count in scene.PROCESSES.items() if role != "writer")


async def test_an_append_is_retried_with_the_same_ids_until_answered() -> None:
    """Two responses are lost; the third is recorded once, and no second batch starts before."""
    sent: list[list[tuple[str, str]]] = []
    stop = asyncio.Event()

    async def append(_session_id: str, events: list[tuple[str, str]]) -> list[int]:
        sent.append(events)
        if len(sent) < 3:
            raise writers.UnansweredError
        stop.set()
        return list(range(1, len(events) + 1))

    ledger = writers.Ledger()
    await writers.Writer("la", 1, append, ledger).run(stop)
    assert sent[0] == sent[1] == sent[2]
    assert ledger.retries == 2
    assert [key[1] for key in ledger.numbers] == [event_id for event_id, _ in sent[0]]
    assert all(re.fullmatch(r"la-\d+", key[1]) for key in ledger.numbers)
