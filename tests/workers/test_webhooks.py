"""Webhooks: what is reported, to whom, how it is signed and sent again, and where nothing is ever sent."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import datetime
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest
import trustme
from standardwebhooks.webhooks import WebhookVerificationError

from hippocampus import ErasureService, Hippocampus, WebhookNotFoundError
from hippocampus.webhooks.service import EVENT_TYPES, DeliveryStatus, NewWebhook, WebhookDelivery, WebhookService
from pulse.errors import InvalidInputError
from pulse.outbound import addresses
from tests.support import cli_process
from tests.support.authority import refused_contexts, server_context, trusted_authority
from tests.support.pace import at_this_pace
from tests.support.paths import ROOT
from tests.support.queue_rows import in_process
from tests.support.waiting import WAIT_SECONDS, until
from tests.support.webhook_receiver import Receiver, answer, receiving
from tests.support.worker_harness import Workers
from tests.support.writer_process import free_port, is_served
from workers.queue.upkeep import Upkeep
from workers.settings import Settings
from workers.telemetry.metrics import Metrics
from workers.webhooks.http_post import Answer, post
from workers.webhooks.sender import JITTER, RETRY_AFTER_SECONDS_MAX, WebhookSender

PAGE = ROOT / "docs/webhooks.md"
LOOPBACK = "127.0.0.0/8"


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as opened:
        yield opened


@pytest.fixture
def service(pool: asyncpg.Pool) -> WebhookService:
    return WebhookService(pool)


@pytest.fixture
def authority(tmp_path: Path) -> Iterator[trustme.CA]:
    with trusted_authority(tmp_path) as trusted:
        yield trusted


async def loopback(_host: str, _port: int) -> Sequence[str]:
    return ["127.0.0.1"]


@contextlib.asynccontextmanager
async def sending(
    pool: asyncpg.Pool, dsn: str, *, resolve: addresses.Resolve = addresses.resolve, **settings: Any
) -> AsyncIterator[Metrics]:
    """A real worker of the queue within the test, whose delays are short."""
    given = {"webhook_networks": LOOPBACK, "webhook_retry_seconds": "0.01,0.01,0.01"}
    given |= {"webhook_timeout_seconds": WAIT_SECONDS}
    metrics = Metrics()
    sender = WebhookSender(pool, Settings(DATABASE_URL=dsn, **{**given, **settings}), metrics, resolve_host=resolve)
    app, worker = in_process(dsn, pool, queue="webhooks", deliver_webhook=sender.deliver)
    async with app.open_async():
        task = asyncio.create_task(worker.run())
        try:
            yield metrics
        finally:
            worker.stop()
            await task


async def ended(service: WebhookService, delivery: UUID) -> WebhookDelivery:
    async def find() -> WebhookDelivery | None:
        found = await service.delivery("app", delivery)
        return found if found.ended_at else None

    return await until(find)


async def all_ended(service: WebhookService, app: str = "app") -> list[WebhookDelivery]:
    async def find() -> list[WebhookDelivery] | None:
        found = await service.deliveries(app, limit=1000)
        return found if found and all(each.ended_at for each in found) else None

    return await until(find)


# What is reported


async def test_each_change_is_reported_once_to_the_endpoints_of_its_app_that_want_it(
    pool: asyncpg.Pool, service: WebhookService
) -> None:
    """Facts, memories, jobs, the end of a session and erasures; ids and types alone; nothing for another app."""
    every = (await service.add("app", "https://example.org/a")).endpoint
    facts = (await service.add("app", "https://example.org/b", event_types=["fact.changed"])).endpoint
    other = (await service.add("other", "https://example.org/c")).endpoint
    memory = Hippocampus(pool, app="app")
    await memory.add("ann", "I keep a quokka.", session="s1")
    thread = await pool.fetchval("SELECT id FROM threads")
    await pool.execute("SELECT finalize_session('app', 'ann', 's1')")
    await pool.execute("SELECT finalize_session('app', 'ann', 's1')")
    for end in ("SELECT finish_job($1, $2, $3)", "SELECT fail_job($1, $2, $3, 'e', 'c', 'quokka')"):
        worker = await pool.fetchval("SELECT worker_id FROM procrastinate_register_worker_v1()")
        job = await pool.fetchrow(
            "SELECT * FROM procrastinate_fetch_job_v2(ARRAY['fast_replay', 'deep_reflection'], $1)", worker
        )
        await pool.execute("UPDATE threads SET fast_upto_seq = last_seq, deep_upto_seq = last_seq")
        await pool.execute(end, job["id"], worker, job["attempts"])
    kept = await memory.remember("ann", "Likes the quokka.")
    await pool.execute(
        "INSERT INTO facts (app_name, user_id, key, value, content) VALUES ('app', 'ann', 'pet', '\"quokka\"', 'c')"
    )
    await pool.execute("UPDATE facts SET value = '\"wombat\"'")
    await pool.execute("UPDATE facts SET confidence = 0.5, value = value")
    await pool.execute("UPDATE facts SET valid_until = now()")
    rows = await pool.fetch("SELECT event_type, data, thread_id FROM webhook_events ORDER BY id")
    assert [row["event_type"] for row in rows] == [
        "session.finalized",
        "job.completed",
        "session.consolidated",
        "job.failed",
        "memory.created",
        "fact.changed",
        "fact.changed",
        "fact.changed",
    ]
    assert [row["data"]["change"] for row in rows[-3:]] == ["created", "updated", "ended"]
    assert rows[4]["data"]["memory_id"] == str(kept.ids[0])
    assert {row["thread_id"] for row in rows[:4]} == {thread}
    assert {row["data"]["session_id"] for row in rows[:4]} == {"s1"}
    assert "quokka" not in json.dumps([row["data"] for row in rows])
    owner = {"app_name", "user_id", "session_id"}
    data = documented_data()
    assert [row["data"].keys() - owner for row in rows] == [data[row["event_type"]] for row in rows]
    counts = {each.id: len(await service.deliveries(each.app_name, each.id)) for each in (every, facts, other)}
    assert counts == {every.id: 8, facts.id: 3, other.id: 0}


async def test_what_is_rolled_back_or_brought_back_is_not_reported_and_no_endpoint_costs_no_row(
    pool: asyncpg.Pool, service: WebhookService
) -> None:
    memory = Hippocampus(pool, app="app")
    await memory.remember("ann", "Before there was an endpoint.")
    assert await pool.fetchval("SELECT count(*) FROM webhook_events") == 0
    await service.add("app", "https://example.org/a", event_types=["memory.created"])
    old = "INSERT INTO memories (app_name, user_id, content, created_at) VALUES ('app', 'ann', 'old', '2020-01-01')"
    await pool.execute(old)
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("INSERT INTO memories (app_name, user_id, content) VALUES ('app', 'ann', 'x')")
        assert await connection.fetchval("SELECT count(*) FROM webhook_events") == 1
        await transaction.rollback()
    for table in ("webhook_events", "webhook_deliveries"):
        assert await pool.fetchval(f"SELECT count(*) FROM {table}") == 0
    assert await pool.fetchval("SELECT count(*) FROM procrastinate_jobs WHERE queue_name = 'webhooks'") == 0


async def test_erasure_strips_the_events_and_reports_itself(pool: asyncpg.Pool, service: WebhookService) -> None:
    """Erasing a session or a user; another user's events stay; what was still to be sent is not sent."""
    await service.add("app", "https://example.org/a")
    memory = Hippocampus(pool, app="app")
    for user, session in (("ann", "s1"), ("ann", "s2"), ("bob", "s3")):
        await memory.add(user, "Hello.", session=session)
        await memory.sessions.finalize_session("app", user, session)
    await memory.remember("ann", "Keeps a quokka.")

    async def reported() -> list[tuple[str, str | None, str | None]]:
        rows = await pool.fetch("SELECT event_type, data FROM webhook_events ORDER BY id")
        return [(row["event_type"], row["data"].get("user_id"), row["data"].get("session_id")) for row in rows]

    await memory.erasure.erase_session("app", "ann", "s1")
    assert await reported() == [
        ("session.finalized", "ann", "s2"),
        ("session.finalized", "bob", "s3"),
        ("memory.created", "ann", None),
        ("erasure.completed", "ann", "s1"),
    ]
    erasure = await ErasureService(pool).erase_user("app", "ann")
    assert erasure.is_complete
    assert await reported() == [
        ("session.finalized", "bob", "s3"),
        ("erasure.completed", "ann", "s1"),
        ("erasure.completed", "ann", None),
    ]
    assert len(await service.deliveries("app")) == 3
    # Of parts, what was erased.
    await memory.erasure.erase_events("app", "bob", "s3", sequence_nums=[1])
    kept = await memory.remember("bob", "Keeps a wombat.")
    await memory.erasure.erase_memory("app", "bob", kept.ids[0])
    rows = await pool.fetch("SELECT data FROM webhook_events WHERE event_type = 'erasure.completed'")
    members = [row["data"].keys() - {"app_name", "user_id", "session_id"} for row in rows]
    assert set.union(*members) == documented_data()["erasure.completed"]
    assert {"erasure_id", "scope"} in members


# How it is sent


async def test_a_delivery_is_signed_sent_again_under_its_id_and_ends(
    pool: asyncpg.Pool, dsn: str, service: WebhookService, receiver: Receiver
) -> None:
    """Down, then slow, then up: three attempts, one id, one body, a signature of each; verified by the reference."""

    async def never(_writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    receiver.answers = [answer(500), never]
    made = await service.add("app", receiver.url)
    other = await service.add("other", receiver.url)
    assert made.secret not in repr(made)
    async with sending(pool, dsn, webhook_timeout_seconds=min(at_this_pace(1), 10)) as metrics:
        found = await ended(service, await service.ping("app", made.endpoint.id))
    assert (found.status, found.attempts, found.response_status, found.error_code) == ("delivered", 3, 204, None)
    assert [each.id for each in receiver.received] == [str(found.event_id)] * 3
    assert len({each.body for each in receiver.received}) == 1
    for each in receiver.received:
        each.verify(made.secret)
        with pytest.raises(WebhookVerificationError):
            each.verify(other.secret)
    event = receiver.received[0].event
    assert event["type"] == "webhook.ping"
    assert event["data"] == {"app_name": "app", "endpoint_id": str(made.endpoint.id)}
    assert datetime.datetime.fromisoformat(event["timestamp"]).tzinfo is not None
    assert (await service.get(made.endpoint.id)).failures_in_row == 0
    samples = {s.labels["outcome"]: s.value for s in metrics.webhooks.collect()[0].samples if s.name.endswith("_total")}
    assert samples == {"retried": 2, "delivered": 1}


async def test_redirects_gone_huge_and_endless_answers(
    pool: asyncpg.Pool, dsn: str, service: WebhookService, receiver: Receiver
) -> None:
    """A redirect is a failure and is not followed; 410 disables; a body of any size is not read."""
    sent = 0

    async def endless(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            await writer.drain()
            sent += 0x10000

    async with sending(pool, dsn), receiving() as inner:
        made = await service.add("app", receiver.url)
        receiver.answers = [answer(302, Location=inner.url), endless]
        found = await ended(service, await service.ping("app", made.endpoint.id))
        assert (found.status, found.attempts) == ("delivered", 2)
        assert inner.received == []
        assert sent < 16 * 2**20

        receiver.always = answer(503)
        found = await ended(service, await service.ping("app", made.endpoint.id))
        assert (found.status, found.attempts, found.response_status) == ("failed", 4, 503)

        receiver.always = answer(410)
        found = await ended(service, await service.ping("app", made.endpoint.id))
        assert (found.status, found.attempts, found.error_code) == ("failed", 1, "gone")
        endpoint = await service.get(made.endpoint.id)
        assert endpoint.disabled_reason == "it answered with 410 Gone"
        with pytest.raises(InvalidInputError, match="enable it first"):
            await service.ping("app", made.endpoint.id)

        # What happens while it is disabled is stored, not sent; a replay sends it once it is enabled.
        await pool.execute("INSERT INTO memories (app_name, user_id, content) VALUES ('app', 'ann', 'x')")
        receiver.received.clear()
        receiver.always = answer(204)
        await service.enable("app", made.endpoint.id)
        since = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
        assert await service.replay("app", made.endpoint.id, since=since) == 1
        [delivered, *_] = await all_ended(service)
        assert [each.event["type"] for each in receiver.received] == ["memory.created"]
        assert await service.replay("app", made.endpoint.id, event_id=delivered.event_id) == 1
        await until(lambda: len(receiver.received) == 2)
        assert {each.id for each in receiver.received} == {str(delivered.event_id)}


async def test_retry_after_and_the_schedule_follow_the_clock_of_the_database(
    pool: asyncpg.Pool, dsn: str, service: WebhookService, receiver: Receiver
) -> None:
    date = {"Date": "Sun, 22 Nov 2026 10:00:00 GMT", "Retry_After": "Sun, 22 Nov 2026 12:00:00 GMT"}
    waits = []
    async with sending(pool, dsn, webhook_retry_seconds="60,300"):
        made = await service.add("app", receiver.url)
        for given in (
            answer(500),
            answer(429, Retry_After="4000"),
            answer(503, **date),
            answer(502, Retry_After="soon"),
        ):
            receiver.answers = [given]
            delivery = await service.ping("app", made.endpoint.id)
            found = await until(lambda d=delivery: _waits_again(service, d))
            waits.append((found.next_attempt_at - found.last_attempt_at).total_seconds())
    # A fifth may be added to each, and an attempt may take a minute.
    assert [60 <= waits[0] < 132, 4000 <= waits[1] < 4860, 7200 <= waits[2] < 8700, 60 <= waits[3] < 132] == [True] * 4
    scheduled = await pool.fetchval("SELECT min(scheduled_at - now()) > '1 second' FROM procrastinate_jobs")
    assert scheduled


async def _waits_again(service: WebhookService, delivery: UUID) -> WebhookDelivery | None:
    found = await service.delivery("app", delivery)
    return found if found.status == "waiting" and found.attempts else None


async def test_both_secrets_sign_while_they_are_rotated(
    pool: asyncpg.Pool, dsn: str, service: WebhookService, receiver: Receiver
) -> None:
    made = await service.add("app", receiver.url)
    second = await service.rotate("app", made.endpoint.id)
    async with sending(pool, dsn):
        await ended(service, await service.ping("app", made.endpoint.id))
        for secret in (made.secret, second):
            receiver.received[0].verify(secret)
        third = await service.rotate("app", made.endpoint.id, overlap=datetime.timedelta(0))
        await ended(service, await service.ping("app", made.endpoint.id))
    receiver.received[1].verify(third)
    for secret in (made.secret, second):
        with pytest.raises(WebhookVerificationError):
            receiver.received[1].verify(secret)


async def test_a_dead_endpoint_keeps_its_share_and_blocks_no_other(
    pool: asyncpg.Pool, dsn: str, service: WebhookService, receiver: Receiver
) -> None:
    """Thirty deliveries to a receiver that never answers: two at once, and another endpoint gets all of its own."""
    release = asyncio.Event()

    async def late(writer: asyncio.StreamWriter) -> None:
        await release.wait()
        writer.write(answer(204))
        await writer.drain()

    async with receiving() as dead, sending(pool, dsn, webhook_concurrency=3, webhook_endpoint_concurrency=2):
        dead.always = late
        slow = await service.add("app", dead.url)
        quick = await service.add("other", receiver.url)
        for _ in range(30):
            await service.ping("app", slow.endpoint.id)
        await until(lambda: dead.at_once == 2)
        for _ in range(10):
            await service.ping("other", quick.endpoint.id)
        await all_ended(service, "other")
        assert len(receiver.received) == 10
        statuses = [each.status for each in await service.deliveries("app")]
        assert (dead.at_once_max, statuses.count("sending"), statuses.count("delivered")) == (2, 2, 0)
        release.set()
        found = await all_ended(service)
        assert {each.status for each in found} == {"delivered"}
        assert dead.at_once_max == 2


async def test_what_waits_for_an_endpoint_is_cancelled_when_it_is_gone(
    pool: asyncpg.Pool, dsn: str, service: WebhookService, receiver: Receiver
) -> None:
    """One is sent, nine are parked behind it; its 410 ends all of them, and another app's are sent."""
    release = asyncio.Event()

    async def gone(writer: asyncio.StreamWriter) -> None:
        await release.wait()
        writer.write(answer(410))
        await writer.drain()

    receiver.answers = [gone]
    made = await service.add("app", receiver.url)
    other = await service.add("other", receiver.url)
    async with sending(pool, dsn, webhook_concurrency=1):
        for _ in range(10):
            await service.ping("app", made.endpoint.id)
        await until(lambda: _has(service, "parked", 9))
        await service.ping("other", other.endpoint.id)
        release.set()
        found = await all_ended(service)
        assert sorted(each.status for each in found) == ["cancelled"] * 9 + ["failed"]
        assert [each.status for each in await all_ended(service, "other")] == ["delivered"]
    assert len(receiver.received) == 2


async def _has(service: WebhookService, status: DeliveryStatus, count: int) -> bool:
    return len(await service.deliveries("app", status=status)) == count


async def test_a_sender_that_is_killed_before_it_records_sends_again_under_the_same_id(
    pool: asyncpg.Pool, service: WebhookService, receiver: Receiver, workers: Workers
) -> None:
    """kill -9 between the receiver's answer and the record of it: at least once, recognisable, and recorded once."""
    asked = asyncio.Event()

    async def held(_writer: asyncio.StreamWriter) -> None:
        asked.set()
        await asyncio.Event().wait()

    receiver.answers = [held]
    made = await service.add("app", receiver.url)
    first = await workers.start("retention", webhook_networks=LOOPBACK)
    delivery = await service.ping("app", made.endpoint.id)
    await until(asked.is_set)
    first.send(signal.SIGKILL)
    await first.ended()
    second = await workers.start("retention", webhook_networks=LOOPBACK)
    found = await ended(service, delivery)
    assert (found.status, found.attempts) == ("delivered", 2)
    assert [each.id for each in receiver.received] == [str(found.event_id)] * 2
    # Nor does a log hold an address or a secret.
    await until(lambda: "webhook_delivered" in second.lines())
    lines = first.lines() + second.lines()
    assert "quokka" not in lines
    assert made.secret not in lines


async def test_a_delivery_whose_job_was_lost_is_given_another(
    pool: asyncpg.Pool, dsn: str, service: WebhookService, receiver: Receiver
) -> None:
    made = await service.add("app", receiver.url)
    deliveries = [await service.ping("app", made.endpoint.id) for _ in range(3)]
    await pool.execute("UPDATE procrastinate_jobs SET status = 'cancelled'")
    await pool.execute("UPDATE webhook_deliveries SET status = 'parked' WHERE id = $1", deliveries[0])
    await pool.execute("UPDATE webhook_deliveries SET status = 'sending' WHERE id = $1", deliveries[1])
    sender = WebhookSender(pool, Settings(DATABASE_URL=dsn), Metrics())
    await sender.reconcile()
    await sender.reconcile()
    async with sending(pool, dsn):
        assert [each.attempts for each in await all_ended(service)] == [1, 1, 1]
    assert len(receiver.received) == 3


# Where nothing is sent


@pytest.mark.parametrize(
    "address",
    "127.0.0.1 10.0.0.1 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 0.0.0.0 224.0.0.1 255.255.255.255 ::1 ::"
    " fe80::1 fc00::1 ::ffff:127.0.0.1 ::127.0.0.1 64:ff9b::a00:1 2002:7f00:1:: ff02::1 192.0.2.1 198.18.0.1"
    " 2001:db8::1".split(),
)
def test_private_addresses_are_refused_in_every_form(address: str) -> None:
    with pytest.raises(addresses.RefusedAddressError):
        addresses.check(["93.184.216.34", address], ())


def test_public_and_allowed_addresses_are_accepted() -> None:
    allowed = addresses.parse_networks("10.1.0.0/16, ::1")
    given = ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "10.1.2.3", "::1"]
    assert [str(each) for each in addresses.check(given, allowed)] == given
    with pytest.raises(addresses.RefusedAddressError):
        addresses.check(["10.2.0.1"], allowed)


async def test_no_connection_is_made_to_a_private_address_by_whatever_name(receiver: Receiver) -> None:
    """By number, by name, and by a name that resolves differently the second time."""
    for host in ("127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"):
        for scheme in ("http", "https"):
            url = f"{scheme}://{host}:{receiver.port}/"
            assert (await post(url, {}, b"", timeout_seconds=WAIT_SECONDS)).error_code == "refused_address", host
    lookups: list[Sequence[str]] = [["93.184.216.34", "127.0.0.1"], ["127.0.0.1"], ["192.0.2.1"]]

    async def rebinding(_host: str, _port: int) -> Sequence[str]:
        return lookups.pop(0)

    url = f"http://rebinding.example:{receiver.port}/"
    found = await post(url, {}, b"", timeout_seconds=WAIT_SECONDS, resolve=rebinding)
    assert (found.error_code, len(lookups)) == ("refused_address", 2)
    # Resolved once, connected to what was checked: a second answer is never asked for.
    allowed = addresses.parse_networks("127.0.0.1")
    found = await post(url, {"X-A": "b"}, b"{}", timeout_seconds=WAIT_SECONDS, resolve=rebinding, allowed=allowed)
    assert (found, len(lookups)) == (Answer(204), 1)
    [received] = receiver.received
    assert received.headers["host"] == f"rebinding.example:{receiver.port}"


async def test_what_keeps_a_request_from_its_receiver_is_named() -> None:
    async def public(_host: str, _port: int) -> Sequence[str]:
        return ["93.184.216.34"]

    found = await post("http://a.example/", {}, b"", timeout_seconds=WAIT_SECONDS, resolve=public)
    assert found.error_code == "plain_http"
    found = await post("https://nowhere.invalid/", {}, b"", timeout_seconds=20)
    assert found.error_code in ("name", "timeout")

    async def speaks_no_tls(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    allowed = addresses.parse_networks(LOOPBACK)
    async with await asyncio.start_server(speaks_no_tls, "127.0.0.1", 0) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        assert (await post(url, {}, b"", timeout_seconds=WAIT_SECONDS, allowed=allowed)).error_code == "tls"
    assert (await post(url, {}, b"", timeout_seconds=WAIT_SECONDS, allowed=allowed)).error_code == "connection"


# Over TLS


async def test_a_delivery_over_tls_is_made_to_the_name_of_the_url_and_to_no_other(
    pool: asyncpg.Pool, dsn: str, service: WebhookService, authority: trustme.CA
) -> None:
    """The connection is to an address, the certificate is for a name: another name's, the address's own, or one of an
    authority that nobody trusts is refused with its code, and nothing is sent."""
    name = "hooks.example"
    right = server_context(authority, name)
    asked: list[str | None] = []
    right.sni_callback = lambda _socket, host, _context: asked.append(host)
    async with sending(pool, dsn, resolve=loopback, webhook_retry_seconds="0.01"):
        for what, context in refused_contexts(authority, name).items():
            async with receiving(tls=context) as receiver:
                made = await service.add("app", f"https://{name}:{receiver.port}/hook")
                found = await ended(service, await service.ping("app", made.endpoint.id))
                expected = ("failed", 2, None, "tls")
                assert (found.status, found.attempts, found.response_status, found.error_code) == expected, what
                assert receiver.received == [], what
        async with receiving(tls=right) as receiver:
            made = await service.add("app", f"https://{name}:{receiver.port}/hook")
            found = await ended(service, await service.ping("app", made.endpoint.id))
            assert (found.status, found.response_status, found.error_code) == ("delivered", 204, None)
            [received] = receiver.received
            received.verify(made.secret)
            assert received.headers["host"] == f"{name}:{receiver.port}"
    # A server of many names chooses its certificate by this one.
    assert asked == [name]


async def test_a_name_beyond_ascii_is_resolved_and_checked_as_the_url_writes_it(authority: trustme.CA) -> None:
    """Former rules turn the letters of ``xn--strae-oqa`` into those of another name, which may be somebody else's."""
    name, former = "xn--strae-oqa.example", "strasse.example"
    looked_up: list[str] = []

    async def resolve(host: str, _port: int) -> Sequence[str]:
        looked_up.append(host)
        return ["127.0.0.1"]

    allowed = addresses.parse_networks(LOOPBACK)
    for certified, expected in ((former, Answer(error_code="tls")), (name, Answer(204))):
        async with receiving(tls=server_context(authority, certified)) as receiver:
            url = f"https://{name}:{receiver.port}/"
            found = await post(url, {}, b"{}", timeout_seconds=WAIT_SECONDS, allowed=allowed, resolve=resolve)
            assert (found, len(receiver.received)) == (expected, int(expected.status == 204))
    assert looked_up == [name, name]


async def test_a_receiver_on_an_address_needs_a_certificate_for_it(authority: trustme.CA) -> None:
    """By number there is no name to check: the certificate has to be for the address."""
    allowed = addresses.parse_networks(LOOPBACK)
    for certified, expected in (("hooks.example", Answer(error_code="tls")), ("127.0.0.1", Answer(204))):
        async with receiving(tls=server_context(authority, certified)) as receiver:
            url = f"https://127.0.0.1:{receiver.port}/"
            assert await post(url, {}, b"{}", timeout_seconds=WAIT_SECONDS, allowed=allowed) == expected


# Endpoints


async def test_endpoints_belong_to_their_app_and_never_show_a_secret(
    pool: asyncpg.Pool, service: WebhookService
) -> None:
    made: NewWebhook = await service.add("app", "https://example.org/a", event_types=("job.failed", "fact.changed"))
    assert made.endpoint.event_types == tuple(each for each in EVENT_TYPES if each in ("fact.changed", "job.failed"))
    assert await service.list("app") == [made.endpoint]
    assert await service.list("other") == []
    assert made.secret not in repr(await service.list())
    missing = {"match": "no webhook endpoint"}
    for call in (
        service.get(made.endpoint.id, app_name="other"),
        service.rotate("other", made.endpoint.id),
        service.disable("other", made.endpoint.id),
        service.enable("other", made.endpoint.id),
        service.remove("other", made.endpoint.id),
        service.ping("other", made.endpoint.id),
        service.replay("other", made.endpoint.id, event_id=made.endpoint.id),
    ):
        with pytest.raises(WebhookNotFoundError, **missing):
            await call
    with pytest.raises(WebhookNotFoundError, match="no webhook event"):
        await service.replay("app", made.endpoint.id, event_id=made.endpoint.id)
    await service.disable("app", made.endpoint.id)
    await service.remove("app", made.endpoint.id)
    assert await pool.fetchval("SELECT count(*) FROM webhook_secrets") == 0


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://example.org/",
        "example.org/hook",
        "https://",
        "https://u:p@example.org/",
        "https://example.org/#part",
        "https://example.org:99999/",
        "https://example.org/a b",
        "https://exämple.org/",
        "https://example.org/" + "x" * 2048,
    ],
)
async def test_a_bad_url_is_refused_with_its_reason(service: WebhookService, url: str) -> None:
    with pytest.raises(InvalidInputError, match="nothing was stored"):
        await service.add("app", url)
    assert await service.list() == []


async def test_events_are_pruned_with_their_deliveries(pool: asyncpg.Pool, dsn: str, service: WebhookService) -> None:
    made = await service.add("app", "https://example.org/a")
    for _ in range(2):
        await service.ping("app", made.endpoint.id)
    await pool.execute(
        "UPDATE webhook_events SET created_at = now() - interval '31 days' WHERE id = ("
        "SELECT min(id::text)::uuid FROM webhook_events)"
    )
    await Upkeep(pool, Settings(DATABASE_URL=dsn)).prune()
    assert len(await service.deliveries("app")) == 1


# What the page says


async def test_the_commands_of_the_page_run_in_its_order_with_its_receiver(
    pool: asyncpg.Pool, dsn: str, home: Path, service: WebhookService
) -> None:
    """The worker that it names sends; its receiver verifies each delivery, and prints an event once."""
    page = PAGE.read_text(encoding="utf-8")
    [receiver] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    blocks = [block.splitlines() for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL)]
    [[add], [replay, rotate]] = blocks
    ping, deliveries = re.findall(r"`(hippocampus webhooks (?:ping|deliveries) ENDPOINT)`", page)
    settings = {
        "DATABASE_URL": dsn,
        "HIPPOCAMPUS_WEBHOOK_NETWORKS": LOOPBACK,
        "HIPPOCAMPUS_WEBHOOK_RETRY_SECONDS": "60",
    }
    endpoint = ""

    async def run(line: str) -> subprocess.CompletedProcess[str]:
        words = shlex.split(line.replace("ENDPOINT", endpoint))[1:]
        done = await asyncio.to_thread(cli_process.run, home, *words, **settings)
        assert done.returncode == 0, done.stderr
        return done

    port = free_port()
    added = await run(add.replace("https://example.org/hook", f"http://127.0.0.1:{port}/hook"))
    assert added.stdout.startswith("whsec_")
    [endpoint] = re.findall(r"Endpoint (\S+)\.", added.stderr)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", receiver),
        env={**os.environ, "WEBHOOK_SECRET": added.stdout.strip(), "PORT": str(port)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        await until(lambda: is_served(port))
        with cli_process.Running(home, "worker", "retention", **settings) as worker:
            fact = await pool.fetchval(
                "INSERT INTO facts (app_name, user_id, key, value, content)"
                " VALUES ('shop', 'ann', 'pet', '\"cat\"', 'Has a cat') RETURNING id"
            )
            await pool.execute(
                "INSERT INTO memories (app_name, user_id, content) VALUES ('shop', 'ann', 'not asked for')"
            )
            await all_ended(service, "shop")
            await run(ping)
            await all_ended(service, "shop")
            assert (await run(deliveries)).stdout.count("\tdelivered\t") == 2
            hour_ago = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
            again = await run(re.sub(r"(--since) \S+", rf"\1 {hour_ago:%Y-%m-%dT%H:%M:%SZ}", replay))
            assert again.stdout == "1 event is sent again.\n"  # a range has no pings
            assert [each.status for each in await all_ended(service, "shop")] == ["delivered"] * 3
            second = (await run(rotate)).stdout
            assert (second.startswith("whsec_"), second == added.stdout) == (True, False)
            await run(ping)  # signed with both
            assert {each.status for each in await all_ended(service, "shop")} == {"delivered"}
            await run(re.sub(r"(--overlap) \d+", r"\1 0", rotate))
            await run(ping)

            async def refused() -> WebhookDelivery | None:
                [newest, *_] = await service.deliveries("shop", limit=1)
                return newest if newest.response_status else None

            assert (await until(refused)).response_status == 401
            worker.process.terminate()
            worker.end()
    finally:
        process.terminate()
        output, _ = await process.communicate()
    owner = {"app_name": "shop", "user_id": "ann"}
    pinged = f"webhook.ping { ({'app_name': 'shop', 'endpoint_id': endpoint}) }"
    first, *rest = output.decode().splitlines()
    data = {"change": "created", **owner, "fact_id": str(fact), "fact_type": "preference"}
    assert (first.partition(" ")[0], ast.literal_eval(first.partition(" ")[2])) == ("fact.changed", data)
    assert rest == [pinged, pinged]


def documented_data() -> dict[str, set[str]]:
    """What an event of each type has, beside whose it is."""
    page = PAGE.read_text(encoding="utf-8")
    table = page.partition("| type |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`[a-z.`, ]+`) \|[^|]*\| (.*) \|$", table, re.MULTILINE)
    return {
        name: set(re.findall(r"`(\w+)`", members))
        for names, members in rows
        for name in re.findall(r"`([^`]+)`", names)
    }


def test_the_page_names_every_type_and_the_defaults() -> None:
    assert set(documented_data()) == set(EVENT_TYPES)
    page, settings = PAGE.read_text(encoding="utf-8"), Settings()
    assert f"within {settings.webhook_timeout_seconds:g} seconds** (`HIPPOCAMPUS_WEBHOOK_TIMEOUT_SECONDS`)" in page
    assert f"at most {settings.webhook_concurrency} deliveries at once (`HIPPOCAMPUS_WEBHOOK_CONCURRENCY`)" in page
    assert f"{settings.webhook_endpoint_concurrency} of them to one endpoint" in page
    assert f"kept for {settings.webhook_keep_days:g} days (`HIPPOCAMPUS_WEBHOOK_KEEP_DAYS`)" in page
    [(delays, share)] = re.findall(
        r"sent again after ([^a-z]*s, .*) h, each up to a (\w+) longer \(`HIPPOCAMPUS_WEBHOOK_RETRY_SECONDS`\)", page
    )
    seconds = []
    for number, unit in re.findall(r"(\d+)(?: (s|min))?", delays):
        seconds.append(int(number) * {"s": 1, "min": 60}.get(unit, 3600))
    assert ",".join(map(str, seconds)) == settings.webhook_retry_seconds
    assert (share, "not before that, up to a day" in page) == ("fifth", True)
    assert (JITTER, RETRY_AFTER_SECONDS_MAX) == (1 / 5, 86400)
