"""What a host of the library can export: appends, conflicts, notifications, connections, large states."""

from __future__ import annotations

import asyncio
import json

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from pulse import (
    ConcurrencyConflictError,
    Event,
    EventActions,
    OpenSessionService,
    PgNotifyListener,
    StateManager,
    StateTooLargeError,
    create_pool,
    metrics_registry,
)
from pulse.tools.records import ToolError
from pulse.tools.registry import ToolRegistry
from tests.support.waiting import until


def samples() -> dict[tuple[str, ...], float]:
    """As a host's own registry exports them."""
    host = CollectorRegistry()
    host.register(metrics_registry())
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(generate_latest(host).decode())
        for sample in family.samples
    }


def said(text: str, **delta: object) -> Event:
    return Event(author="user", content={"text": text}, actions=EventActions(state_delta=dict(delta)))


async def test_a_host_exports_what_its_sessions_do(dsn: str) -> None:
    """Appends, a conflict, a retry of it, and the time until a listener in the process had an event."""
    before = samples()
    async with await create_pool(dsn, max_size=3) as pool:
        sessions = OpenSessionService(pool)
        listener = PgNotifyListener(dsn, pool)
        await listener.start()
        session = await sessions.create_session("app", "user")
        await until(lambda: listener.is_running)
        arrived: list[Event] = []
        with_events = listener.subscribe(session.thread_id, arrived.extend, after_sequence=0)
        await sessions.append_event(session, said("one"))
        stale = await sessions.get_session("app", "user", session.id)
        assert stale is not None
        await sessions.append_event(session, said("two"))
        with pytest.raises(ConcurrencyConflictError):
            await sessions.append_event(stale, said("late"))
        manager, changes = StateManager(sessions), 0

        def change(state: object) -> dict[str, object]:
            nonlocal changes
            changes += 1
            return {"n": changes}

        async def contend() -> None:
            await manager.update_session_state("app", "user", session.id, change)

        await asyncio.gather(*(contend() for _ in range(5)))
        await until(lambda: len(arrived) == 7)
        with_events.close()
        await listener.stop()
        await sessions.close()
        after = samples()
        assert after["database_pool_connections", "max"] >= 3
    moved = {key: value - before.get(key, 0) for key, value in after.items()}
    assert moved["events_appended_total",] == 7
    assert moved["version_conflict_retries_total",] == changes - 5
    assert moved["version_conflicts_total",] == changes - 5 + 1
    assert moved["notification_lag_seconds_count",] >= 1
    assert moved["notification_lag_seconds_sum",] < 60
    assert moved["database_statement_duration_seconds_count", "sessions.append_next_event"] >= 3
    assert not any(label == "user" or session.id == label for key in after for label in key[1:])


async def test_callers_that_wait_for_a_connection_are_counted(dsn: str) -> None:
    before = samples()
    async with await create_pool(dsn, max_size=1) as pool:
        async with pool.acquire() as held:
            waiting = [asyncio.create_task(pool.fetchval("SELECT 1")) for _ in range(2)]
            await until(lambda: samples()["database_pool_waiting",] == 2)
            during = samples()
            assert during["database_pool_connections", "used"] - before["database_pool_connections", "used"] == 1
            await held.execute("SELECT pg_sleep(0.05)")
        await asyncio.gather(*waiting)
    after = samples()
    assert after["database_pool_waits_total",] - before["database_pool_waits_total",] == 2
    assert after["database_pool_wait_seconds_total",] - before["database_pool_wait_seconds_total",] >= 0.1
    assert after["database_pool_waiting",] == 0


async def test_calls_of_tools_are_timed_by_kind_and_outcome(dsn: str) -> None:
    """Each call once, whatever became of it, and no label names a tool or an app."""
    begun = asyncio.Event()

    async def slow() -> None:
        begun.set()
        await asyncio.Event().wait()

    async def broken() -> None:
        raise ToolError("out of order")

    async def quick(number: int) -> int:
        return number

    before = samples()
    async with await create_pool(dsn) as pool, ToolRegistry(pool, "shop") as registry:
        await registry.register_tool("quick", quick, description="A number.")
        await registry.register_tool("broken", broken, description="Nothing.")
        await registry.register_tool("slow", slow, description="Nothing.")
        await registry.register_tool(
            "asked", quick, description="A number.", permissions={"requires_confirmation": True}
        )
        for _ in range(3):
            assert (await registry.call("quick", {"number": 1})).value == 1
        assert (await registry.call("broken", {})).status == "failed"
        assert (await registry.call("quick", {})).status == "refused"
        assert (await registry.call("none", {})).status == "refused"
        waiting = await registry.call("asked", {"number": 2}, user_id="ann")
        assert waiting.execution_id is not None
        assert (await registry.confirm(waiting.execution_id, user_id="ann", approved=True)).value == 2
        task = asyncio.create_task(registry.call("slow", {}))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    counts = {
        key[1:]: value - before.get(key, 0)
        for key, value in samples().items()
        if key[0] == "tool_call_duration_seconds_count"
    }
    assert {key: value for key, value in counts.items() if value} == {
        ("python", "succeeded"): 4,
        ("python", "failed"): 1,
        ("python", "refused"): 1,
        ("python", "waiting"): 1,
        ("python", "cancelled"): 1,
        ("unknown", "refused"): 1,
    }


async def test_a_state_near_its_limit_is_logged_and_counted(dsn: str) -> None:
    """Over 80 % of the limit, by either way to append, for each scope; at the limit the append is refused."""
    async with await create_pool(dsn) as pool:
        await pool.execute("UPDATE app_policies SET max_state_bytes = 10000 WHERE app_name = '*'")
        sessions = OpenSessionService(pool)
        session = await sessions.create_session("app", "user")
        for key in ("k", "user:k", "app:k"):
            before = samples()["states_near_limit_total",]
            with capture_logs() as logs:
                await sessions.append_event(session, said("small", **{key: noise(7000)}))
                assert not logs
                await sessions.append_event(session, said("large", **{key: noise(9000)}))
                await sessions.append("app", "user", session.id, [said("a", **{key: noise(9000)}), said("b")])
                session = await sessions.get_session("app", "user", session.id) or session
                await sessions.append_event(session, said("without a change"))
            assert samples()["states_near_limit_total",] - before == 2, key
            for line in logs:
                assert line["event"] == "state_near_limit"
                assert line["thread_id"] == str(session.thread_id)
                assert (line["app_name"], line["limit_bytes"]) == ("app", 10_000)
                assert 8000 < line["bytes"] < 10_000
            assert "xyz" not in json.dumps(logs)
            with capture_logs() as logs, pytest.raises(StateTooLargeError):
                await sessions.append_event(session, said("too large", **{key: noise(11_000)}))
            assert not logs
        await sessions.close()


def noise(size: int) -> str:
    """A text that PostgreSQL does not compress."""
    import random

    drawn = random.Random(size)
    return "xyz" + "".join(drawn.choices("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/", k=size))
