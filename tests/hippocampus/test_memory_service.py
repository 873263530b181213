"""The memory service: adds sessions to the memory, and shows each user their own data."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import asyncpg
import pytest

from hippocampus.consolidation_worker import MemoryConsolidationWorker
from hippocampus.errors import JobNotFoundError, UnknownJobTypeError
from hippocampus.memory_service import OpenMemoryService
from hippocampus.providers.local.provider import LocalEmbedder, LocalGenerator
from hippocampus.records import JobStatus, JobType, MemoryPosition
from pulse.errors import InvalidInputError, SessionNotFoundError
from pulse.events import Event
from pulse.session_service import OpenSessionService
from tests.support.queue_claims import claim_next, work_off
from tests.support.waiting import WAIT_SECONDS

DAY_1 = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def service(pool: asyncpg.Pool) -> OpenMemoryService:
    return OpenMemoryService(pool, LocalEmbedder())


@pytest.fixture
def worker(pool: asyncpg.Pool) -> MemoryConsolidationWorker:
    return MemoryConsolidationWorker(pool, LocalGenerator(), LocalEmbedder())


async def talk(pool: asyncpg.Pool, session_id: str, *texts: str, user: str = "mei", at: datetime = DAY_1) -> None:
    sessions = OpenSessionService(pool)
    await sessions.create_session("app", user, session_id=session_id)
    events = [Event(author="user", content={"text": text}, timestamp=at.timestamp()) for text in texts]
    await sessions.append("app", user, session_id, events)


@pytest.mark.parametrize(
    ("asked", "job_type"),
    [
        ("fast", "fast_replay"),
        ("deep", "deep_reflection"),
        ("full", "full_consolidation"),
        (JobType.FAST_REPLAY, "fast_replay"),
    ],
)
async def test_an_added_session_waits_for_the_workers(
    pool: asyncpg.Pool, service: OpenMemoryService, asked: str, job_type: str
) -> None:
    await talk(pool, "s", "My name is Mei.")
    added = await service.add_session_to_memory("app", "mei", "s", asked)
    assert (added["status"], added["result"]) == ("pending", {})
    (job,) = await service.list_jobs()
    assert (str(job.id), job.job_type) == (added["job_id"], job_type)
    # Requested again before it started: the same job.
    assert (await service.add_session_to_memory("app", "mei", "s", asked))["job_id"] == added["job_id"]


async def test_waiting_returns_the_result(
    pool: asyncpg.Pool, service: OpenMemoryService, worker: MemoryConsolidationWorker
) -> None:
    await talk(pool, "s", "My name is Mei.")
    waiting = asyncio.create_task(
        service.add_session_to_memory("app", "mei", "s", wait=True, timeout_seconds=WAIT_SECONDS)
    )
    while not await work_off(pool, worker):
        await asyncio.sleep(0.01)
    added = await waiting
    assert added["status"] == "completed"
    assert {"summary", "facts", "insights"} <= added["result"].keys()
    found = await service.search_memory(app_name="app", user_id="mei", query="name Mei", limit=3)
    assert 0 < len(found.memories) <= 3
    only = await service.search_memory(app_name="app", user_id="mei", query="name Mei", memory_type="summary")
    assert {result.memory_type for result in only.memories} == {"summary"}
    assert (await service.search_memory(app_name="app", user_id="tom", query="name Mei")).memories == ()


async def test_a_context_window_holds_what_was_learned_within_its_budget(
    pool: asyncpg.Pool, service: OpenMemoryService, worker: MemoryConsolidationWorker
) -> None:
    await talk(pool, "s", "My name is Mei.", "I live in Lisbon.")
    await service.add_session_to_memory("app", "mei", "s")
    await work_off(pool, worker)
    window = await service.get_context_window(
        app_name="app",
        user_id="mei",
        session_id="s",
        query="Where do I live?",
        system_prompt="Be kind.",
        max_tokens=500,
    )
    assert {item.context_type for item in window.items} >= {"system", "fact", "history"}
    assert window.total_tokens <= 500


async def test_an_unknown_type_or_another_users_session_changes_nothing(
    pool: asyncpg.Pool, service: OpenMemoryService
) -> None:
    await talk(pool, "s", "hello")
    with pytest.raises(UnknownJobTypeError, match="fast, deep, full"):
        await service.add_session_to_memory("app", "mei", "s", "total")
    for names in (("app", "tom", "s"), ("other", "mei", "s"), ("app", "mei", "t")):
        with pytest.raises(SessionNotFoundError):
            await service.add_session_to_memory(*names)
    assert await pool.fetchval("SELECT count(*) FROM consolidation_jobs") == 0
    assert await pool.fetchval("SELECT count(*) FROM procrastinate_jobs") == 0


async def test_memories_are_listed_strongest_first_in_stable_pages(
    pool: asyncpg.Pool, service: OpenMemoryService
) -> None:
    """Rows of equal strength and age have a fixed order, so pages neither repeat nor miss one."""
    await pool.execute(
        """INSERT INTO memories (app_name, user_id, content, memory_type, initial_score)
           SELECT 'app', 'mei', 'm' || n, CASE WHEN n % 2 = 0 THEN 'semantic' ELSE 'summary' END, 0.5
           FROM generate_series(1, 25) AS n"""
    )
    await pool.execute("UPDATE memories SET initial_score = 0.9 WHERE content = 'm13'")
    await pool.execute("INSERT INTO memories (app_name, user_id, content) VALUES ('app', 'tom', 'secret')")
    pages = [await service.list_memories(app_name="app", user_id="mei", limit=10)]
    while len(pages[-1]) == 10:
        place = MemoryPosition.of(pages[-1][-1])
        pages.append(await service.list_memories(app_name="app", user_id="mei", limit=10, after=place))
    assert [len(page) for page in pages] == [10, 10, 5]
    listed = [memory.content for page in pages for memory in page]
    assert sorted(listed) == sorted(f"m{n}" for n in range(1, 26))
    assert listed[0] == "m13"
    assert pages[0][0].retention_score == pytest.approx(0.9, abs=0.001)
    only = await service.list_memories(app_name="app", user_id="mei", memory_type="semantic")
    assert {memory.memory_type for memory in only} == {"semantic"}
    assert len(only) == 12


async def test_memories_are_filtered_by_session_and_by_when_they_were_said(
    pool: asyncpg.Pool, service: OpenMemoryService, worker: MemoryConsolidationWorker
) -> None:
    for day in range(3):
        await talk(pool, f"s{day}", f"day {day}", at=DAY_1 + timedelta(days=day))
        await service.add_session_to_memory("app", "mei", f"s{day}", "fast")
    await work_off(pool, worker)

    async def contents(**narrow: object) -> set[str]:
        listed = await service.list_memories(
            app_name="app",
            user_id="mei",
            memory_type="episodic",
            **narrow,  # type: ignore[arg-type]
        )
        return {memory.content for memory in listed}

    assert await contents() == {"User: day 0", "User: day 1", "User: day 2"}
    assert await contents(session_id="s1") == {"User: day 1"}
    assert await contents(since=DAY_1 + timedelta(days=1)) == {"User: day 1", "User: day 2"}
    assert await contents(until=DAY_1 + timedelta(days=1)) == {"User: day 0"}


@pytest.mark.parametrize("limit", [0, 1001, -1])
async def test_pages_out_of_bounds_are_refused(service: OpenMemoryService, limit: int) -> None:
    for list_page in (service.list_memories, service.list_facts):
        with pytest.raises(InvalidInputError, match="limit must be from 1 to 1000"):
            await list_page(app_name="app", user_id="mei", limit=limit)


async def test_jobs_are_listed_newest_first_and_filtered(
    pool: asyncpg.Pool, service: OpenMemoryService, worker: MemoryConsolidationWorker
) -> None:
    await talk(pool, "s", "hello")
    await talk(pool, "t", "hello", user="tom")
    await service.add_session_to_memory("app", "mei", "s", "fast")
    await work_off(pool, worker)
    await service.add_session_to_memory("app", "mei", "s", "deep")
    await service.add_session_to_memory("app", "tom", "t", "full")

    every = await service.list_jobs(app_name="app")
    assert [job.job_type for job in every] == ["full_consolidation", "deep_reflection", "fast_replay"]
    assert [job.id for job in every] == [job.id for job in await service.list_jobs()]
    assert await service.list_jobs(before=every[0].id, limit=1) == [every[1]]
    assert await service.list_jobs(status=JobStatus.COMPLETED) == [every[2]]
    assert await service.list_jobs(app_name="app", user_id="mei", session_id="s") == every[1:]
    assert await service.list_jobs(job_type=JobType.DEEP_REFLECTION) == [every[1]]
    assert await service.list_jobs(app_name="other") == []
    assert await service.get_job(every[2].id, app_name="app") == every[2]


async def test_a_job_of_another_app_or_an_unknown_job_is_not_found(
    pool: asyncpg.Pool, service: OpenMemoryService
) -> None:
    await talk(pool, "s", "hello")
    added = await service.add_session_to_memory("app", "mei", "s")
    (job,) = await service.list_jobs()
    assert str(job.id) == added["job_id"]
    for job_id, app in ((uuid4(), None), (job.id, "other")):
        with pytest.raises(JobNotFoundError, match="there is no job"):
            await service.get_job(job_id, app_name=app)
        with pytest.raises(JobNotFoundError, match="there is no job"):
            await service.cancel_job(job_id, app_name=app)
    assert (await service.get_job(job.id)).status is JobStatus.PENDING


async def test_a_waiting_job_is_cancelled_immediately(pool: asyncpg.Pool, service: OpenMemoryService) -> None:
    await talk(pool, "s", "hello")
    await service.add_session_to_memory("app", "mei", "s")
    (job,) = await service.list_jobs()
    cancelled = await service.cancel_job(job.id, app_name="app")
    assert (cancelled.status, cancelled.completed_at is None) == (JobStatus.CANCELLED, False)
    assert await claim_next(pool) is None
    assert (await service.cancel_job(job.id)).status is JobStatus.CANCELLED


async def test_a_running_job_is_requested_to_stop(pool: asyncpg.Pool, service: OpenMemoryService) -> None:
    await talk(pool, "s", "hello")
    await service.add_session_to_memory("app", "mei", "s")
    claim = await claim_next(pool)
    assert claim is not None
    assert claim.job_id is not None
    assert (await service.cancel_job(claim.job_id)).status is JobStatus.RUNNING
    assert await pool.fetchval("SELECT abort_requested FROM procrastinate_jobs")


async def test_an_archived_job_is_still_found(
    pool: asyncpg.Pool, service: OpenMemoryService, worker: MemoryConsolidationWorker
) -> None:
    await talk(pool, "s", "hello")
    await service.add_session_to_memory("app", "mei", "s")
    (job,) = await work_off(pool, worker)
    await pool.execute(
        """WITH gone AS (DELETE FROM consolidation_jobs RETURNING *)
           INSERT INTO consolidation_jobs_archive (id, thread_id, job_type, status, attempts, upto_seq, result,
               started_at, completed_at, created_at, app_name)
           SELECT id, thread_id, job_type, status, attempts, upto_seq, result, started_at, completed_at, created_at,
                  'app' FROM gone"""
    )
    found = await service.get_job(job.id, app_name="app")
    assert (found.id, found.status, found.result) == (job.id, JobStatus.COMPLETED, job.result)


async def test_clean_up_archives_weak_memories(pool: asyncpg.Pool, service: OpenMemoryService) -> None:
    await pool.execute(
        """INSERT INTO memories (app_name, user_id, content, initial_score, last_accessed_at, created_at)
           VALUES ('app', 'mei', 'weak', 0.1, now() - interval '90 days', now() - interval '90 days'),
                  ('app', 'mei', 'strong', 1.0, now(), now())"""
    )
    stats = await service.cleanup_memories()
    assert (stats.total_memories, stats.cleaned_count) == (1, 1)
    assert await pool.fetchval("SELECT content FROM memories") == "strong"


@pytest.mark.parametrize(
    ("listing", "asked"),
    [
        ("list_memories", {"memory_type": "sumary"}),
        ("list_memories", {"since": DAY_1.replace(tzinfo=None)}),
        ("list_memories", {"until": DAY_1.replace(tzinfo=None)}),
        ("list_facts", {"fact_type": "hobby"}),
        ("list_facts", {"as_of": DAY_1.replace(tzinfo=None)}),
        ("list_facts", {"known_at": DAY_1.replace(tzinfo=None)}),
        ("fact_history", {"fact_type": "hobby", "key": "tea"}),
        ("list_jobs", {"status": "done"}),
        ("list_jobs", {"job_type": "replay"}),
    ],
)
async def test_a_filter_that_no_row_can_match_is_refused(
    service: OpenMemoryService, listing: str, asked: dict[str, object]
) -> None:
    """Otherwise a misspelt type looks like a user without memories, and a time without a zone is a guess."""
    name = next(name for name in asked if name != "key")
    with pytest.raises(InvalidInputError, match=name):
        await getattr(service, listing)(app_name="app", user_id="mei", **asked)


BAD_NAMES = ["a\0b", "half \ud800"]


@pytest.mark.parametrize("bad", BAD_NAMES)
async def test_a_name_that_cannot_be_stored_is_refused_in_plain_words(service: OpenMemoryService, bad: str) -> None:
    """For any name and any call: never the driver's own error, and nothing is changed."""
    scope = {"app_name": "app", "user_id": "mei"}
    asked: list[tuple[str, dict[str, object]]] = [
        ("search_memory", {"query": "tea"}),
        ("get_context_window", {"query": "tea", "session_id": None}),
        ("list_memories", {}),
        ("list_facts", {}),
        ("fact_history", {"fact_type": "profile", "key": "city"}),
        ("list_jobs", {}),
        ("add_session_to_memory", {"session_id": "s"}),
    ]
    for method, others in asked:
        for name in ("app_name", "user_id", *(key for key in others if key in ("session_id", "key"))):
            with pytest.raises(InvalidInputError, match=name):
                await getattr(service, method)(**{**scope, **others, name: bad})


async def test_an_unknown_session_is_an_error_in_every_read(service: OpenMemoryService, pool: asyncpg.Pool) -> None:
    """An empty page means that a session has nothing, not that it does not exist."""
    await pool.execute("SELECT create_session('app', 'mei', 'known')")
    scope = {"app_name": "app", "user_id": "mei"}
    assert await service.list_memories(**scope, session_id="known") == []
    assert await service.list_jobs(**scope, session_id="known") == []
    for reading in (service.list_memories, service.list_jobs):
        with pytest.raises(SessionNotFoundError, match="nowhere"):
            await reading(**scope, session_id="nowhere")
        with pytest.raises(SessionNotFoundError):
            await reading(app_name="app", user_id="tom", session_id="known")
