"""One request, followed from its caller through the append and the job in another process to the memory."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID

import asyncpg
import httpx

from hippocampus.client import HippocampusClient
from hippocampus.knowledge.service import KnowledgeService
from hippocampus.providers.local.embedding import LocalEmbedder
from pulse import TracingManager, create_pool
from pulse.runs.agents import echo
from pulse.runs.events import user_message
from pulse.runs.records import Run
from pulse.runs.service import RunService
from pulse.tracing.reading import TraceService, as_tree
from tests.support import worker_harness as harness
from tests.support.live_writer import serving
from tests.support.otlp_receiver import otlp_receiver
from tests.support.stream_client import OWNER, asked, run_agent
from tests.support.waiting import WAIT_SECONDS, until
from tests.support.worker_harness import running_workers
from tests.support.writer_process import healthy, say
from workers.queue.upkeep import Upkeep
from workers.settings import Settings

CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TRACE = CALLER.split("-")[1]


async def test_from_the_request_to_the_memory(dsn: str, tmp_path: Path) -> None:
    """The caller's trace holds request, append and statement; the job's own trace links to it and names its owner."""
    with running_workers(dsn, tmp_path) as workers:
        await workers.start("fast_replay", module="workers.worker", tracing="postgres")
        with TracingManager("hippocampus-writer", dsn) as tracing:
            async with (
                serving(dsn, {}) as writer,
                httpx.AsyncClient(base_url=writer.url, timeout=WAIT_SECONDS) as client,
            ):
                path = "/v1/apps/shop/users/m%C3%A9i"
                await client.post(f"{path}/sessions", json={"session_id": "s 1"})
                body = json.dumps({"events": [say("I live in Oslo and my cat is called Miso.")] * 1})
                headers = {"Content-Type": "application/json", "traceparent": CALLER}
                policy = "UPDATE app_policies SET fast_events = 1 WHERE app_name = '*'"
                await writer.pool.execute(policy)
                done = await client.post(f"{path}/sessions/s%201/events", content=body, headers=headers)
                assert done.status_code == 201, done.text
                await healthy(client)
                assert (await client.get("/v1/apps/shop/users/x/sessions/none")).status_code == 404

                async def job_span() -> asyncpg.Record | None:
                    return await writer.pool.fetchrow("SELECT * FROM traces WHERE linked_trace_id = $1", TRACE)

                job = await until(job_span)
                assert job["operation_name"] == "job fast_replay"
                assert (job["app_name"], job["user_id"], job["session_id"]) == ("shop", "méi", "s 1")
                assert (job["span_kind"], job["service_name"]) == ("consumer", "hippocampus-fast_replay")
                assert job["trace_id"] != TRACE
                assert await writer.pool.fetchval("SELECT count(*) FROM memories") > 0
                assert tracing.flush(10)
                async with HippocampusClient(writer.url, app_name="shop") as sdk:
                    spans = await sdk.trace("méi", TRACE)
                    listed = [each async for each in sdk.traces("méi", session_id="s 1")]
                    failed = [each async for each in sdk.traces("méi", failed=True)]
                assert (await client.get(f"/v1/apps/shop/users/other/traces/{TRACE}")).status_code == 404
                assert (await client.get(f"/v1/apps/other/users/m%C3%A9i/traces/{TRACE}")).status_code == 404
                assert (await client.get(f"{path}/traces/{TRACE[:-1]}")).status_code == 422
        stored = {row["operation_name"] for row in await _all(dsn)}
    assert not any("health" in name for name in stored)
    named = {span.name: span for span in spans}
    append, request = named["append"], named["POST /v1/apps/{app_name}/users/{user_id}/sessions/{session_id}/events"]
    assert request.parent_span_id == CALLER.split("-")[2]
    assert append.parent_span_id == request.span_id
    assert named["sessions.append_events_traced"].parent_span_id == append.span_id
    assert request.attributes["http.response.status_code"] == 201
    assert named["job fast_replay"].linked_trace_id == TRACE
    assert named["consolidation.store_slice"].parent_span_id == named["job fast_replay"].span_id
    assert {span.trace_id for span in spans} == {TRACE, job["trace_id"]}
    assert {span.name for span in listed} >= {request.name, "job fast_replay"}
    assert failed == []
    assert "Oslo" not in str(spans)
    async with await create_pool(dsn) as pool:
        everything = await TraceService(pool).read_trace(TRACE)
    tree = [(depth, span.name) for depth, span in as_tree(everything)]
    assert tree[0] == (0, request.name)
    assert (1, "append") in tree
    assert (2, "sessions.append_events_traced") in tree


async def test_from_a_run_over_its_events_to_their_job(dsn: str, tmp_path: Path) -> None:
    """The run of an agent is in its caller's trace; the job that its events enqueued has its own, which links to it."""
    with running_workers(dsn, tmp_path) as workers, TracingManager("hippocampus-writer", dsn) as tracing:
        async with (
            serving(dsn, {"default": echo}) as writer,
            httpx.AsyncClient(base_url=writer.url, headers=OWNER, timeout=WAIT_SECONDS) as client,
        ):
            await writer.pool.execute("UPDATE app_policies SET fast_events = 1 WHERE app_name = '*'")
            page = await run_agent(client, asked("t", "r1", "I live in Oslo."), traceparent=CALLER)
            assert page.is_over
            await workers.start("fast_replay", module="workers.worker", tracing="postgres")

            async def job_span() -> asyncpg.Record | None:
                return await writer.pool.fetchrow("SELECT * FROM traces WHERE linked_trace_id = $1", TRACE)

            job = await until(job_span)
            assert tracing.flush(10)
            spans = {row["operation_name"]: row for row in await writer.pool.fetch("SELECT * FROM traces")}
    assert (job["operation_name"], job["user_id"]) == ("job fast_replay", "mei")
    run = spans["invoke_agent"]
    assert (run["trace_id"], run["run_id"], run["attributes"]["gen_ai.agent.name"]) == (TRACE, "r1", "default")
    assert spans["runs.end_run_traced"]["parent_span_id"] == run["span_id"]
    assert spans["runs.start_run_traced"]["trace_id"] == TRACE


async def test_each_write_of_a_run_hands_its_span_to_the_jobs(dsn: str) -> None:
    """Its start, an event and its end; without tracing their statements and their jobs are as before."""
    async with await create_pool(dsn) as pool:
        runs = RunService(pool)

        async def job_of(session: str, write: Callable[[Run], Awaitable[object]]) -> str | None:
            """Return the context that the job of one write carries."""
            few = "UPDATE app_policies SET fast_events = $1 WHERE app_name = '*'"
            await pool.execute("SELECT create_session('shop', 'mei', $1)", session)
            await pool.execute(few, 1 if session.startswith("start") else 1000)
            started = await runs.start("shop", "mei", session, session, user_message("I live in Oslo."))
            await pool.execute(few, 1)
            await write(started.run)
            args = await pool.fetchval(
                "SELECT j.args::text FROM procrastinate_jobs AS j JOIN threads AS t"
                " ON j.lock = 'fast_replay:' || t.id WHERE t.session_id = $1",
                session,
            )
            found: str | None = json.loads(args).get("traceparent")
            return found

        writes: dict[str, Callable[[Run], Awaitable[object]]] = {
            "start": lambda run: runs.get("shop", "mei", run.run_id),
            "write": lambda run: runs.write(run, [user_message("I like tea.")]),
            "end": lambda run: runs.finish(run, "Nice."),
        }
        with TracingManager("test", dsn) as tracing:
            for name, write in writes.items():
                with tracing.span("run") as span:
                    assert await job_of(name, write) == span.traceparent, name
        for name, write in writes.items():
            assert await job_of(f"{name} off", write) is None, name
        await runs.close()


async def test_the_job_of_a_document_carries_the_span_of_its_transaction(dsn: str) -> None:
    async with await create_pool(dsn) as pool, pool.acquire() as connection, connection.transaction():
        jobs = []
        for _ in range(2):
            jobs.append(await connection.fetchval("SELECT defer_ingest(gen_random_uuid())"))
            await connection.execute("SELECT with_traceparent($1, 'shop')", CALLER)
        rows = await connection.fetch("SELECT args ->> 'traceparent' FROM procrastinate_jobs ORDER BY id")
        assert len(jobs) == 2
        assert [row[0] for row in rows] == [None, CALLER]


async def test_a_document_that_is_ingested_again_carries_the_span_of_its_caller(dsn: str) -> None:
    """As when it was added; without tracing its job has none."""
    async with await create_pool(dsn) as pool:
        knowledge = KnowledgeService(pool, "shop")
        await knowledge.put_corpus("handbook")

        async def job_of(write: Callable[[], Awaitable[object]]) -> str | None:
            await pool.execute("DELETE FROM procrastinate_jobs")
            await write()
            await pool.execute("UPDATE knowledge_documents SET status = 'failed', error_code = 'down'")
            args = await pool.fetchval("SELECT args::text FROM procrastinate_jobs")
            found: str | None = json.loads(args).get("traceparent")
            return found

        async def add() -> None:
            added.append((await knowledge.add("handbook", "Within thirty days.", source_uri="a.txt")).document_id)

        added: list[UUID] = []
        with TracingManager("test", dsn) as tracing, tracing.span("add") as span:
            assert await job_of(add) == span.traceparent
            with tracing.span("retry") as again:
                assert await job_of(lambda: knowledge.retry(added[0])) == again.traceparent
        assert await job_of(lambda: knowledge.retry(added[0])) is None


async def _all(dsn: str) -> list[asyncpg.Record]:
    async with await create_pool(dsn) as pool:
        return await pool.fetch("SELECT * FROM traces")


async def test_erasure_of_a_user_reaches_every_partition(dsn: str) -> None:
    """Only the user's spans go, though rows of several partitions have the same place; late ones are not stored."""
    async with await create_pool(dsn) as pool:
        assert await pool.fetchval("SELECT keep_trace_partitions('7 days')") == 0
        for user in ("ann", "bob"):
            await pool.execute("SELECT create_session('app', $1, 's')", user)
            for day in (-1, 0, 1):
                await pool.execute("SELECT store_spans($1::text::jsonb)", json.dumps([_span(user, day)]))
        parts = await pool.fetch("SELECT tableoid::regclass::text AS part, ctid FROM traces")
        assert len({row["part"] for row in parts}) == 3
        assert len({row["ctid"] for row in parts}) < len(parts)
        await pool.execute("SELECT erase_session('app', 'ann', 's')")
        assert await _users(pool) == ["bob", "bob", "bob"]
        await pool.execute("SELECT store_spans($1::text::jsonb)", json.dumps([_span("ann", -1), _span("ann", 0)]))
        erasure = await pool.fetchval("SELECT (request_user_erasure('app', 'ann')).id")
        for _ in range(5):
            await pool.execute("SELECT advance_erasure($1)", erasure)
        assert await pool.fetchval("SELECT finished_at IS NOT NULL FROM erasures WHERE id = $1", erasure)
        assert await _users(pool) == ["bob", "bob", "bob"]
        await pool.execute("SELECT store_spans($1::text::jsonb)", json.dumps([_span("ann", -1)]))
        assert await _users(pool) == ["bob", "bob", "bob"]


async def test_old_days_are_dropped_and_coming_ones_made(dsn: str) -> None:
    """By the upkeep; spans that no partition took are deleted, and a day that has such spans is left to the default."""
    async with await create_pool(dsn) as pool:
        await pool.execute("SELECT store_spans($1::text::jsonb)", json.dumps([_span("a", 0), _span("a", -30)]))
        upkeep = Upkeep(pool, Settings(database_url=dsn))
        await upkeep.prune()
        parts = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'traces'::regclass"
        assert await pool.fetchval(parts) == 3
        assert await pool.fetchval("SELECT count(*) FROM traces") == 1
        old = "CREATE TABLE traces_20200101 PARTITION OF traces FOR VALUES FROM ('2020-01-01+00') TO ('2020-01-02+00')"
        await pool.execute(old)
        await asyncio.gather(*(upkeep.prune() for _ in range(3)))
        assert await pool.fetchval("SELECT to_regclass('traces_20200101')") is None
        assert await pool.fetchval(parts) == 3


def _span(user: str, day: int) -> dict[str, object]:
    now = time.time()
    # A span of today, also in the first second of a day.
    at = int(1e6 * (now + day * 86_400 if day else max(now - 1, now - now % 86_400)))
    return {
        "trace_id": os.urandom(16).hex(), "span_id": os.urandom(8).hex(), "is_root": True, "operation_name": "o",
        "span_kind": "server", "service_name": "s", "attributes": {}, "events": [], "start_us": at,
        "duration_ns": 5_000_000_000, "status_code": "ok", "app_name": "app", "user_id": user, "session_id": "s",
    }  # fmt: skip


async def _users(pool: asyncpg.Pool) -> list[str]:
    return [row["user_id"] for row in await pool.fetch("SELECT user_id FROM traces ORDER BY 1")]


async def test_a_worker_stops_in_time_while_the_endpoint_hangs(dsn: str, tmp_path: Path) -> None:
    """What it did is committed, and it exits with 0 within its grace time."""
    with otlp_receiver() as receiver, running_workers(dsn, tmp_path) as workers:
        receiver.hang = True
        worker = await workers.start("fast_replay", module="workers.worker", tracing="otlp", otlp_endpoint=receiver.url)
        async with await create_pool(dsn) as pool:
            job = await harness.enqueue(pool, await harness.make_thread(pool))
            await harness.wait_for_status(pool, job, "completed")
        began = time.monotonic()
        worker.send(signal.SIGTERM)
        assert await worker.ended() == 0
        # It waits for 2.5 s at most; the endpoint hangs until the end.
        assert time.monotonic() - began < 20
        assert '"spans_not_sent"' in worker.lines()


async def test_the_trace_of_an_ingest_links_to_the_span_that_added_the_document(dsn: str, tmp_path: Path) -> None:
    with running_workers(dsn, tmp_path) as workers:
        async with await create_pool(dsn) as pool:
            service = KnowledgeService(pool, "shop", LocalEmbedder())
            await service.put_corpus("handbook")
            await service.add("handbook", "Parcels are sent on Monday.", source_uri="untraced")
            with TracingManager("test", dsn) as tracing, tracing.span("add") as span:
                added = await service.add("handbook", "Returns are free.", source_uri="traced")
                assert added.is_new
                caused_by = span.traceparent
            args = await pool.fetch("SELECT args ->> 'traceparent' FROM procrastinate_jobs ORDER BY id")
            assert [row[0] for row in args] == [None, caused_by]
            await workers.start("retention", module="workers.worker", tracing="postgres")
            assert caused_by is not None

            async def job_span() -> asyncpg.Record | None:
                return await pool.fetchrow("SELECT * FROM traces WHERE linked_trace_id = $1", caused_by.split("-")[1])

            job = await until(job_span)
    assert job["operation_name"] == "job ingest_document"
