"""Spans in PostgreSQL and at an OTLP endpoint: what is stored, what is left out, and what never blocks."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from pulse import InvalidInputError, OpenSessionService, PostgresSpanExporter, TracingManager, create_pool
from pulse.tracing import genai
from pulse.tracing.batches import BATCH_MAX, QUEUE_MAX, Batches
from pulse.tracing.manager import current_tracing
from pulse.tracing.records import TraceContext, parse_traceparent
from tests.support.otlp_receiver import OtlpReceiver, otlp_receiver
from tests.support.pace import at_this_pace
from tests.support.waiting import WAIT_SECONDS, until

KEY = "AKIAABCDEFGHIJKLMNOP"
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture(autouse=True)
def _patient(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sent at the end has a busy machine's time, unless the limit is what is tested."""
    if request.node.get_closest_marker("timing") is None:
        monkeypatch.setattr("pulse.tracing.table.SEND_SECONDS_MAX", WAIT_SECONDS)
        monkeypatch.setattr("pulse.tracing.sdk.OTLP_SECONDS_MAX", WAIT_SECONDS)
        monkeypatch.setattr(TracingManager.close, "__defaults__", (WAIT_SECONDS,))


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as running:
        yield running


async def spans(dsn: str, count: int) -> dict[str, asyncpg.Record]:
    """The spans of the table by name, once there are this many."""
    connection = await asyncpg.connect(dsn)
    try:
        await until(lambda: stored(connection, count), f"{count} spans in the table")
        return {row["operation_name"]: row for row in await connection.fetch("SELECT * FROM traces")}
    finally:
        await connection.close()


async def stored(connection: asyncpg.Connection, count: int) -> bool:
    return bool(await connection.fetchval("SELECT count(*) FROM traces") >= count)


@pytest.mark.parametrize("sdk", [False, True], ids=["recorder", "sdk"])
async def test_both_recorders_store_the_same_spans(dsn: str, sdk: bool) -> None:
    """Parents, owners, links, errors, conventions, statements; content only where it is asked for."""
    pool = await create_pool(dsn)
    for content in (False, True):
        with TracingManager("test", dsn, sdk=sdk, content=content) as manager:
            assert current_tracing() is manager
            with manager.span("request", kind="server", parent=PARENT, app_name="a", user_id="u", session_id="s"):
                with manager.trace_tool_call("search", arguments={"q": "secret\0"}, call_id="c1") as tool:
                    tool.set_attribute(genai.TOOL_RESULT, ["secret", KEY])
                    tool.set_attributes({"gcp.vertex.agent.llm_request": "secret", "number": 0.5, "nan": float("nan")})
                    tool.add_event("retried", {"reason": "busy", genai.OUTPUT_MESSAGES: "secret"})
                    inner = tool.traceparent
                with manager.trace_llm_call("flash", provider="gcp.gemini") as call:
                    call.set_attributes({genai.INPUT_TOKENS: 3, genai.FINISH_REASONS: ["stop"], "none": None})
                    failing = manager.span("bad\0name", run_id="r\ud800")
                    with pytest.raises(ValueError, match="secret"), failing:
                        raise ValueError(f"secret {KEY}")
                await OpenSessionService(pool).get_session("a", "u", "s")
                manager.record_llm_call("embed", provider="openai", operation="embeddings", seconds=5.0, error="429")
            with manager.span("job", kind="consumer", links=(PARENT, "garbage", None)) as job:
                assert job.traceparent
        assert current_tracing() is not manager
        found = await spans(dsn, 7)
        assert len(found) == 7
        request, tool_row, call_row = found["request"], found["execute_tool search"], found["generate_content flash"]
        wanted = parse_traceparent(PARENT)
        assert wanted is not None
        assert (request["trace_id"], request["parent_span_id"], request["is_root"]) == (*wanted[:2], True)
        assert inner == TraceContext(request["trace_id"], tool_row["span_id"]).traceparent
        assert tool_row["parent_span_id"] == call_row["parent_span_id"] == request["span_id"]
        assert found["bad\ufffdname"]["parent_span_id"] == call_row["span_id"]
        for row in found.values():
            owned = row["operation_name"] != "job"
            assert (row["app_name"], row["user_id"], row["session_id"]) == (("a", "u", "s") if owned else (None,) * 3)
            assert row["service_name"] == "test"
            assert row["duration_ns"] >= 0
        assert found["bad\ufffdname"]["run_id"] == "r\ufffd"
        failed = {name for name, row in found.items() if row["status_code"] == "error"}
        assert failed == {"bad\ufffdname", "embeddings embed"}
        assert json.loads(found["bad\ufffdname"]["attributes"])[genai.ERROR_TYPE] == "ValueError"
        assert found["bad\ufffdname"]["status_message"] == ("secret [redacted]" if content else None)
        attributes = json.loads(call_row["attributes"])
        assert attributes[genai.PROVIDER] == "gcp.gemini"
        assert attributes[genai.INPUT_TOKENS] == 3
        assert attributes[genai.FINISH_REASONS] == ["stop"]
        assert call_row["span_kind"] == "client"
        assert found["sessions.get_session"]["parent_span_id"] == request["span_id"]
        assert 4.99e9 < found["embeddings embed"]["duration_ns"] < 5.01e9
        job_row = found["job"]
        assert (job_row["linked_trace_id"], job_row["parent_span_id"]) == (wanted.trace_id, None)
        assert job_row["trace_id"] != request["trace_id"]
        text = json.dumps([[row["attributes"], row["events"]] for row in found.values()])
        assert ("secret" in text) is content
        assert KEY not in text
        assert json.loads(tool_row["attributes"])["number"] == 0.5
        assert json.loads(tool_row["events"])[0]["attributes"]["reason"] == "busy"
        assert manager.counts()["postgres"] == (7, 0)
        await pool.execute("DELETE FROM traces")
    await pool.close()


@pytest.mark.parametrize("content", [False, True])
async def test_both_ways_out_at_once(dsn: str, receiver: OtlpReceiver, content: bool) -> None:
    """The same spans reach the table and the endpoint, with its headers; content on request alone, secrets never."""
    headers = {"Authorization": "Basic cHVibGljOnNlY3JldA==", "x-langfuse-ingestion-version": "4"}
    with TracingManager("agent", dsn, receiver.url, otlp_headers=headers, content=content) as manager:
        with manager.span("outer", app_name="a", user_id="u", session_id="s"):
            with manager.trace_tool_call("t", arguments="secret") as span:
                span.fail(RuntimeError(f"secret {KEY}"))
        tracer = manager.provider.get_tracer("another library")
        with tracer.start_as_current_span("foreign", attributes={"gcp.vertex.agent.llm_request": f"secret {KEY}"}):
            pass
    found = await spans(dsn, 3)
    assert {span.name for span in receiver.spans} == set(found) == {"outer", "execute_tool t", "foreign"}
    for span in receiver.spans:
        row = found[span.name]
        assert (span.trace_id.hex(), span.span_id.hex()) == (row["trace_id"], row["span_id"])
        assert span.end_time_unix_nano - span.start_time_unix_nano == row["duration_ns"]
    assert receiver.services == {"agent"}
    sent = receiver.attributes("execute_tool t")
    assert sent[genai.TOOL_NAME] == "t"
    assert (sent["session.id"], sent["user.id"], sent["langfuse.observation.type"]) == ("s", "u", "tool")
    assert ("secret" in str(receiver.spans)) is content
    assert KEY not in str(receiver.spans)
    for name, value in headers.items():
        assert receiver.headers[0][name.lower()] == value
    assert manager.counts() == {"postgres": (3, 0), "otlp": (3, 0)}


@pytest.mark.parametrize("sdk", [False, True], ids=["recorder", "sdk"])
async def test_sampling_keeps_traces_with_an_error(dsn: str, sdk: bool) -> None:
    """At ratio 0 only a trace that fails is stored, whole; a parent's decision counts more than the ratio."""
    with TracingManager("test", dsn, sdk=sdk, sample_ratio=0) as manager:
        for name in ("good", "bad"):
            with manager.span(name):
                with manager.span(f"{name} inner") as span:
                    if name == "bad":
                        span.fail("refused")
        with manager.span("sampled by the parent", parent=PARENT):
            pass
        with manager.span("not sampled by the parent", parent=PARENT[:-2] + "00"):
            pass
    assert set(await spans(dsn, 3)) == {"bad", "bad inner", "sampled by the parent"}


@pytest.mark.parametrize(
    "text",
    [
        None, "", "garbage", b"x", 7, PARENT.upper(), PARENT[:-1], PARENT + "-x", "ff" + PARENT[2:],
        "00-" + "0" * 32 + PARENT[35:], PARENT[:36] + "0" * 16 + "-01",
    ],
)  # fmt: skip
def test_garbage_is_no_parent(text: object) -> None:
    assert parse_traceparent(text) is None


def test_flags_and_later_versions_of_a_parent() -> None:
    assert parse_traceparent(PARENT[:-2] + "02") == parse_traceparent(PARENT)._replace(is_sampled=False)
    assert (
        parse_traceparent(PARENT[:-2] + "03")
        == parse_traceparent("01" + PARENT[2:] + "-more")
        == parse_traceparent(PARENT)
    )


async def test_rows_that_postgresql_refuses_lose_no_others(dsn: str) -> None:
    """A batch is halved until only the bad span is left out, and it is counted."""
    exporter = PostgresSpanExporter(dsn)
    with TracingManager("test", dsn, sdk=False) as manager:
        manager._exporter = exporter  # its records are changed on their way

        class Odd(str):
            __slots__ = ()

        put = exporter.put

        def spoil(record: Any) -> None:
            if record.name == "n7":
                record.kind = "no such kind"
            put(record)

        manager._recorder._tail._export = spoil
        for number in range(50):
            with manager.span(f"n{number}"):
                pass
    exporter.shutdown()
    assert set(await spans(dsn, 49)) == {f"n{number}" for number in range(50)} - {"n7"}
    assert (exporter.batches.sent, exporter.dropped) == (49, 1)


@pytest.mark.system
@pytest.mark.timing
def test_what_is_traced_never_waits_for_an_exit(receiver: OtlpReceiver) -> None:
    """With a dead database and an endpoint that hangs: 10,000 spans, all dropped and counted, and a stop."""
    receiver.hang = True
    dead = "postgresql://nobody@127.0.0.1:1/none"
    manager = TracingManager("test", dead, receiver.url).start()
    for _ in range(10_000):
        with manager.span("s"):
            pass
    began = time.monotonic()
    assert not manager.close()
    # All batches together would hold it up for two seconds each.
    assert time.monotonic() - began < at_this_pace(4.0)
    counts = manager.counts()
    assert counts["postgres"].sent == counts["otlp"].sent == 0
    assert counts["postgres"].dropped >= 10_000 - BATCH_MAX
    assert counts["otlp"].dropped >= 10_000 - 2 * BATCH_MAX
    with manager.span("after the end"):
        pass
    assert current_tracing().counts() == {}


def test_a_refusing_endpoint_is_counted(receiver: OtlpReceiver) -> None:
    receiver.status = 400
    with TracingManager("test", None, receiver.url) as manager:
        with manager.span("s"):
            pass
        assert manager.flush(10)
        assert manager.counts() == {"otlp": (0, 1)}


async def test_a_database_that_comes_back_gets_what_was_kept(dsn: str) -> None:
    """A batch whose connection is lost is sent again."""

    class Sink:
        attempts = 0

        def send(self, batch: list[int]) -> int:
            self.attempts += 1
            if self.attempts == 1:
                raise ConnectionResetError
            kept.extend(batch)
            return 0

        def close(self) -> None: ...

    kept: list[int] = []
    batches = Batches("test", Sink)
    for number in range(QUEUE_MAX + 5):
        batches.put(number)
    assert await asyncio.to_thread(batches.flush, 60)
    batches.stop()
    assert batches.join(60)
    assert len(kept) + batches.dropped == QUEUE_MAX + 5
    assert kept[-1] == QUEUE_MAX + 4
    assert kept == sorted(kept)


def test_off_is_one_object() -> None:
    """Without an exit nothing is made, whatever is called."""
    manager = TracingManager().start()
    assert not manager.is_on
    with (
        manager.span("a") as first,
        manager.trace_tool_call("b") as second,
        manager.trace_llm_call("c", provider="d") as third,
    ):
        first.set_attribute("x", 1)
        first.fail("y")
        assert first is second is third
        assert first.traceparent is manager.traceparent is None
    assert manager.close()


@pytest.mark.parametrize("ratio", [-0.1, 1.1, float("nan")])
def test_a_ratio_outside_of_its_bounds_is_refused(ratio: float) -> None:
    with pytest.raises(InvalidInputError, match="sample_ratio must be from 0 to 1"):
        TracingManager(sample_ratio=ratio)
