"""The senses on a real database and a real address: what each measures, and what it makes of what is missing."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import asyncpg
import pytest

from pulse.autonomic import Sample
from pulse.autonomic.types import WATCH_MS_DEFAULT
from pulse.autonomic.watchers import in_thread
from pulse.postgres.statements import observe_statements
from workers.autonomic.senses import (
    CALM_MS,
    SIZE_SECONDS,
    SURVEY_SECONDS,
    Network,
    Resources,
    SharedSenses,
    local_watchers,
    shared_watchers,
)
from workers.settings import load
from workers.telemetry.metrics_server import HEARTBEAT_SECONDS


async def test_the_database_knows_of_all_processes(pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ages, new errors of the chosen names, breakers, queues and the quota; no errors are new at the first look."""
    monkeypatch.setenv("HIPPOCAMPUS_PULSE_ERROR_KEYWORDS", "memory, Timeout")
    monkeypatch.setenv("HIPPOCAMPUS_PULSE_DATABASE_MEGABYTES", "1000")
    senses = SharedSenses(load(), pool)
    await pool.execute(
        """INSERT INTO metrics_targets (host, port, role, pid, machine, seen_at, errors)
           VALUES ('h', 9100, 'writer', 7, 'm1', clock_timestamp() - interval '51 s',
                   '{"out_of_memory OSError": 2, "x KeyError": 1}')"""
    )
    found = await senses.processes()
    assert (found["is_settling"], found["report_seconds"]) == (True, HEARTBEAT_SECONDS)
    (process,) = found["processes"]
    assert (process["role"], process["machine"], process["pid"]) == ("writer", "m1", 7)
    assert process["age"] >= 51
    assert (await senses.errors())["new"] == {}
    await pool.execute(
        """UPDATE metrics_targets SET errors = '{"out_of_memory OSError": 5, "x KeyError": 9, "y TimeoutError": 1}'"""
    )
    assert (await senses.errors())["new"] == {"out_of_memory OSError": 3, "y TimeoutError": 1}
    assert (await senses.errors())["new"] == {}
    assert await senses.models() == {"breakers": [], "has_command": False}
    await pool.execute("SELECT report_failure('fast_replay m', NULL, '503', 1, 60, 60)")
    (breaker,) = (await senses.models())["breakers"]
    assert (breaker["name"], breaker["state"]) == ("fast_replay m", "open")
    assert await senses.queues() == {"oldest_seconds": {}, "failed": 0}
    await pool.execute("SELECT procrastinate_defer_jobs_v1(ARRAY[ROW('q', 't', 0, NULL, NULL, '{}', NULL)"
                       "::procrastinate_job_to_defer_v1])")  # fmt: skip
    found = await senses.queues()
    assert (list(found["oldest_seconds"]), found["failed"]) == (["q"], 0)
    database = await senses.database()
    assert 0 < database["percent"] < 100
    assert database["connections"] >= 1
    alive = shared_watchers(load(), pool)[0]
    ages = [{"processes": [{"pid": 7, "age": age}]} for age in (46, 51, 56)]
    assert alive.should_wake([Sample(0, "m", each) for each in ages])
    assert not alive.should_wake([Sample(0, "m", each) for each in ages[1:]])
    assert {each.key for each in (*shared_watchers(load(), pool), *local_watchers(load(), pool))} >= {
        "process-alive", "error-log", "llm-health", "queue", "database", "system-resource",
    }  # fmt: skip


async def test_the_size_of_the_database_is_read_once_a_minute(pool: asyncpg.Pool) -> None:
    """The server looks at each of its files for it: that would be a tenth of what the senses cost."""
    senses = SharedSenses(load(), pool)
    first = (await senses.database())["size"]
    await pool.execute("CREATE TABLE more AS SELECT repeat('x', 1000) AS text FROM generate_series(1, 1000)")
    assert (await senses.database())["size"] == first
    senses._sized_at -= SIZE_SECONDS
    assert (await senses.database())["size"] > first


async def test_senses_of_one_pace_share_a_statement(pool: asyncpg.Pool) -> None:
    """One round trip serves the processes, the errors and the models; the next measurements have another."""
    senses = SharedSenses(load(), pool)
    ran: list[str] = []
    stop = observe_statements(lambda name, _seconds, _is_done: ran.append(name))
    try:
        for _ in range(2):
            await asyncio.gather(senses.processes(), senses.errors(), senses.models())
        assert ran == ["senses.survey"] * 2
        # It began a while ago: what it says of ages would be wrong.
        await senses.errors()
        senses._surveyed_at -= SURVEY_SECONDS
        await senses.models()
        assert ran == ["senses.survey"] * 4
    finally:
        stop()


async def test_a_machine_measures_itself(pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every reading is a per cent or a load; a full disk wakes the tick once."""
    monkeypatch.setenv("HIPPOCAMPUS_PULSE_DISKS", "/, /tmp")
    resources = Resources.make(load(), pool)
    assert resources is not None
    reading = resources.collect()
    assert isinstance(reading, dict)
    assert set(reading["disks"]) == set(reading["inodes"]) == {"/", "/tmp"}
    assert all(
        0 <= each <= 100 for each in (reading["cpu"], reading["memory"], reading["swap"], *reading["disks"].values())
    )
    free: dict[str, Any] = {"memory": 10.0, "disks": {"/": 89.9}}
    full = {"memory": 10.0, "disks": {"/": 90.0}}
    window = [Sample(0, "m", each) for each in (free, full, full)]
    assert [resources.should_wake(window[:count]) for count in (1, 2, 3)] == [False, True, False]
    calm = {"memory": 79.9, "disks": {"/": 10.0, "/gone": None}, "pressure": None}
    near = ({**calm, "memory": 80.0}, {**calm, "disks": {"/": 80.0}}, {**calm, "pressure": 0.1})
    assert resources.pace([]) == WATCH_MS_DEFAULT
    assert resources.pace([Sample(0, "m", near[0]), Sample(0, "m", calm)]) == CALM_MS
    assert {resources.pace([Sample(0, "m", calm), Sample(0, "m", each)]) for each in near} == {WATCH_MS_DEFAULT}
    (own,) = local_watchers(load(), pool)
    assert own.pace is not None
    assert own.pace([Sample(0, "m", reading)]) in {CALM_MS, WATCH_MS_DEFAULT}


async def test_the_load_is_measured_whichever_thread_measures(pool: asyncpg.Pool) -> None:
    """Each measurement has a thread of its own; other threads run meanwhile, so that none has a former one's id."""
    resources = Resources.make(load(), pool)
    assert resources is not None
    done = threading.Event()
    await in_thread(resources.collect)
    others = [in_thread(done.wait) for _ in range(8)]
    began = time.process_time()
    while time.process_time() - began < 0.2:
        pass
    reading = await in_thread(resources.collect)
    done.set()
    await asyncio.gather(*others)
    assert 0 < reading["cpu"] <= 100


async def test_the_network_is_names_and_pages() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with pytest.MonkeyPatch.context() as patient:
        patient.setattr("workers.autonomic.senses.NETWORK_SECONDS_MAX", 60.0)
        assert await Network(url).collect() == {"dns": True, "http": True}, "any answer is one"
        server.close()
        await server.wait_closed()
        assert await Network(url).collect() == {"dns": True, "http": False}
    assert await Network("http://nowhere.invalid").collect() == {"dns": False, "http": False}
