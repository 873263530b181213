"""API keys: what each allows, where, and for how long."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from datetime import timedelta
from pathlib import Path

import asyncpg
import httpx
import pytest

from pulse.api_keys import ApiKeyService
from pulse.errors import ApiKeyNotFoundError, InvalidInputError
from pulse.http.edge.roles import role_of
from pulse.http.edge.routing import ExactRoute
from pulse.http.routes.runs import router as runs_router
from tests.support.key_scene import bearer, made
from tests.support.pace import at_this_pace
from tests.support.waiting import WAIT_SECONDS, until
from tests.support.writer_process import KEY, WriterProcess, append, healthy, problem, say

#: For each role, a request that only it and admin may send.
BY_ROLE = {
    "read": ("GET", "sessions"),
    "append": ("POST", "sessions"),
    "admin": ("DELETE", "sessions/nobody"),
}


async def test_each_role_allows_its_own_routes_and_admin_all(writer: WriterProcess, writer_dsn: str, user: str) -> None:
    """Any other request gets 403 role-missing, which names the required role."""
    app = user.split("/")[3]
    for role in ("read", "append", "admin"):
        key = await made(writer_dsn, app, role)
        async with bearer(writer, key.text) as client:
            for needed, (method, path) in BY_ROLE.items():
                response = await client.request(method, f"{user}/{path}", json={} if method == "POST" else None)
                if role in (needed, "admin"):
                    assert response.status_code in (200, 201, 404), response.text
                else:
                    assert (response.status_code, problem(response)["type"]) == (403, "/problems/role-missing")
                    assert needed in problem(response)["detail"]


async def test_a_key_of_another_app_reveals_nothing(
    writer: WriterProcess, writer_dsn: str, client: httpx.AsyncClient, user: str, session: str, app: str
) -> None:
    """403 wrong-app by path, query and header, whether or not the session exists."""
    stranger = await made(writer_dsn, "other-app", "admin")
    async with bearer(writer, stranger.text) as other:
        answers = []
        for path in (session, f"{user}/sessions/nobody"):
            for method in ("GET", "DELETE"):
                response = await other.request(method, path, headers={"X-Request-Id": "same"})
                assert response.status_code == 403
                answers.append(response.json())
        assert [each["type"] for each in answers] == ["/problems/wrong-app"] * 4
        assert answers[0] == answers[2]
        asserted = "/api/threads/s1/state"
        for query, headers in (
            ({"app_name": app, "user_id": "ann"}, {}),
            ({"user_id": "ann"}, {"X-App-Name": app}),
            ({"app_name": "other-app", "user_id": "ann"}, {"X-App-Name": app}),
            ([("app_name", app), ("app_name", "other-app"), ("user_id", "ann")], {}),
            ({"user_id": "ann"}, {}),
        ):
            refused = await other.get(asserted, params=query, headers=headers)
            assert (refused.status_code, problem(refused)["type"]) == (403, "/problems/wrong-app")
        # A request that names no app requires an all-apps key.
        assert (await other.get("/metrics/targets")).status_code == 403
        for body in ({"thread_id": "s1"},):
            refused = await other.post("/api/tickets", json=body, params={"app_name": app, "user_id": "ann"})
            assert refused.status_code == 403
    assert (await client.get(session)).status_code == 200
    everywhere = await made(writer_dsn, None, "read")
    async with bearer(writer, everywhere.text) as collector:
        assert (await collector.get("/metrics/targets")).status_code == 200
        assert (await collector.get(session)).status_code == 200
        assert (await collector.delete(session)).status_code == 403


@pytest.mark.timing
async def test_a_revoked_or_expired_key_is_refused_within_two_seconds(
    writer: WriterProcess, writer_dsn: str, user: str, app: str, pool_of_writer: asyncpg.Pool
) -> None:
    """A writer caches a key for a second. After that, a key that has ended gets 401 like an unknown one."""
    lasting = await made(writer_dsn, app, "read")
    brief = await made(writer_dsn, app, "read", lifetime=timedelta(hours=1))
    async with bearer(writer, lasting.text) as client, bearer(writer, brief.text) as hasty:
        assert (await hasty.get(f"{user}/sessions")).status_code == 200
        assert (await client.get(f"{user}/sessions")).status_code == 200
        await ApiKeyService(pool_of_writer).revoke(lasting.key.id)
        expire = "UPDATE api_keys SET expires_at = clock_timestamp() WHERE id = $1"
        await pool_of_writer.execute(expire, brief.key.id)
        ended_at = time.monotonic()
        for caller in (client, hasty):

            async def refused(caller: httpx.AsyncClient = caller) -> httpx.Response | None:
                response = await caller.get(f"{user}/sessions")
                return None if response.status_code == 200 else response

            response = await until(refused, "the key is refused")
            assert (response.status_code, problem(response)["type"]) == (401, "/problems/wrong-key")
        assert time.monotonic() - ended_at < at_this_pace(2.0)
    for text in (lasting.text[:-1], f"hip_{'0' * 12}_{'x' * 43}", lasting.text + "\n", "hip_", f"{lasting.text} x"):
        async with bearer(writer, text.strip()) as guesser:
            assert (await guesser.get(f"{user}/sessions")).status_code == 401


@pytest.fixture
async def pool_of_writer(writer_dsn: str):
    from pulse import database

    async with await database.create_pool(writer_dsn, max_size=2) as pool:
        yield pool


async def test_the_database_stores_no_secret_and_records_use_by_the_minute(
    writer: WriterProcess, writer_dsn: str, user: str, app: str, rows: asyncpg.Connection
) -> None:
    """The row has the SHA-256 of 256 random bits. last_used_at changes at most once a minute. The log has no key."""
    key = await made(writer_dsn, app, "read", "append")
    secret = key.text.split("_", 2)[2]
    row = await rows.fetchrow("SELECT * FROM api_keys WHERE id = $1", key.key.id)
    assert row["secret_hash"] == hashlib.sha256(secret.encode()).digest()
    assert secret not in repr(dict(row))
    assert row["last_used_at"] is None
    assert len(secret) == 43
    async with bearer(writer, key.text) as client:
        await client.get(f"{user}/sessions")
        first = await rows.fetchval("SELECT last_used_at FROM api_keys WHERE id = $1", key.key.id)
        assert first is not None
        await asyncio.sleep(1.1)
        await client.get(f"{user}/sessions")
        assert await rows.fetchval("SELECT last_used_at FROM api_keys WHERE id = $1", key.key.id) == first
        await rows.execute("UPDATE api_keys SET last_used_at = now() - interval '2 minutes' WHERE id = $1", key.key.id)
        await asyncio.sleep(1.1)
        await client.get(f"{user}/sessions")
        assert await rows.fetchval("SELECT last_used_at FROM api_keys WHERE id = $1", key.key.id) > first
    assert secret not in writer.log_path.read_text()
    assert secret not in repr(key)


async def test_invalid_keys_are_not_created(pool: asyncpg.Pool) -> None:
    """No role, an unknown role, an empty app, or a lifetime out of bounds."""
    keys = ApiKeyService(pool)
    for app, roles, name, lifetime in (
        ("", ["read"], "", None),
        ("a\0", ["read"], "", None),
        ("a" * 256, ["read"], "", None),
        ("a", [], "", None),
        ("a", ["root"], "", None),
        ("a", ["read"], "n" * 256, None),
        ("a", ["read"], "", timedelta(0)),
        ("a", ["read"], "", timedelta(days=4000)),
    ):
        with pytest.raises(InvalidInputError):
            await keys.create(app, roles, name=name, lifetime=lifetime)
    assert await keys.list() == []
    with pytest.raises(ApiKeyNotFoundError):
        await keys.revoke("nobody")


async def test_every_route_documents_its_required_role(client: httpx.AsyncClient) -> None:
    """The OpenAPI document names the role of every operation but health, and what a key of any role is told.

    A route without a role cannot be defined.
    """
    document = (await client.get("/openapi.json")).json()
    for path, item in document["paths"].items():
        for operation in item.values():
            assert ("Needs a key with the role" in operation["description"]) is (path not in ("/health", "/api/me")), (
                path
            )
    assert {role_of(route) for route in runs_router.routes} == {"read", "append"}
    with pytest.raises(LookupError, match="requires no role"):
        ExactRoute("/forgotten", lambda: None)


async def test_cors_rate_limits_and_malformed_http(dsn: str, tmp_path: Path, rows_of_dsn: asyncpg.Connection) -> None:
    """Exact origins and no cookies; 429 with Retry-After over a key's rate; malformed HTTP is answered by a problem."""
    settings = {
        "api_key": KEY,
        "cors_origins": "https://one.example",
        "requests_per_second": "0.5",
        "requests_burst": "3",
    }
    with WriterProcess(dsn, tmp_path / "log", **settings) as writer:
        asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        async with bearer(writer, KEY) as client:
            path = "/v1/apps/a/users/u/sessions"
            good = await client.options(path, headers={"Origin": "https://one.example", **asked})
            assert good.status_code == 200
            assert good.headers["access-control-allow-origin"] == "https://one.example"
            assert "access-control-allow-credentials" not in good.headers
            bad = await client.options(path, headers={"Origin": "https://two.example", **asked})
            assert bad.status_code == 400
            assert "access-control-allow-origin" not in bad.headers
            statuses = [(await client.get(path, headers={"Origin": "https://one.example"})) for _ in range(8)]
            assert {200, 429} == {each.status_code for each in statuses}
            limited = next(each for each in statuses if each.status_code == 429)
            assert problem(limited)["type"] == "/problems/too-many-requests"
            assert 1 <= int(limited.headers["retry-after"]) <= 2
            # The page can read a refusal too.
            assert limited.headers["access-control-allow-origin"] == "https://one.example"
            await healthy(client)
            # Another key has its own bucket.
            own = await made(dsn, "a", "read")
            async with bearer(writer, own.text) as other:
                assert (await other.get(path)).status_code == 200
        reader, out = await asyncio.open_connection("127.0.0.1", writer.port)
        out.write(b"NO HTTP\r\n\r\n")
        raw = await asyncio.wait_for(reader.read(), WAIT_SECONDS)
        head, body = raw.split(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400")
        assert b"application/problem+json" in head
        assert json.loads(body)["type"] == "/problems/bad-request"
        out.close()


@pytest.fixture
async def rows_of_dsn(conn: asyncpg.Connection) -> asyncpg.Connection:
    return conn


async def test_conditional_requests_succeed_only_at_the_known_version(client: httpx.AsyncClient, session: str) -> None:
    """ETag, If-None-Match and If-Match of RFC 9110: strong and weak tags, lists, the star, and nonsense."""
    first = await client.get(session)
    tag = first.headers["etag"]
    assert tag.startswith('"0-')
    for known in (tag, f"W/{tag}", f'"x", {tag}', "*"):
        same = await client.get(session, headers={"If-None-Match": known})
        assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    assert (await client.get(session, headers={"If-None-Match": '"0"'})).status_code == 200

    body = {"events": [say("one", id="e1")]}
    for stale in ('"7"', f"W/{tag}", '"nonsense"', '"7-ab", "8"', '"99999999999"'):
        for method, path in (("POST", f"{session}/events"), ("POST", f"{session}/finalize"), ("DELETE", session)):
            refused = await client.request(
                method, path, headers={"If-Match": stale}, json=body if path.endswith("events") else None
            )
            assert (refused.status_code, problem(refused)["type"]) == (412, "/problems/precondition-failed"), stale
    for nonsense in ("0", "nonsense", '"0" x', '"0', ",", ""):
        refused = await client.post(f"{session}/events", headers={"If-Match": nonsense}, json=body)
        assert refused.status_code == 422, nonsense
    differ = await client.post(f"{session}/events", headers={"If-Match": '"0"'}, json={**body, "expected_version": 3})
    assert differ.status_code == 422
    assert (await client.get(session)).json()["version"] == 0

    appended = await client.post(f"{session}/events", headers={"If-Match": tag}, json=body)
    assert appended.status_code == 201
    # A repeated request gets its first result, not a failed precondition.
    assert (await client.post(f"{session}/events", headers={"If-Match": tag}, json=body)).status_code == 200
    changed = await client.get(session, headers={"If-None-Match": tag})
    assert changed.status_code == 200
    assert changed.headers["etag"].startswith('"1-')
    listed = await client.post(
        f"{session}/events", headers={"If-Match": '"0", "1"'}, json={"events": [say("two", id="e2")]}
    )
    assert listed.status_code == 201
    # Shared state that another session changed changes the tag, though the version stays.
    before = (await client.get(session)).headers["etag"]
    other = await client.post(session.rpartition("/")[0], json={"session_id": "s2", "state": {"user:x": 1}})
    assert other.status_code == 201
    after = await client.get(session, headers={"If-None-Match": before})
    assert (after.status_code, after.json()["version"]) == (200, 2)

    unknown = session.replace("/s1", "/nobody")
    for any_tag in ("*", '"0"', '"0", "1"'):
        assert (await client.delete(unknown, headers={"If-Match": any_tag})).status_code == 404
    assert (await client.post(f"{session}/finalize", headers={"If-Match": '"2"'})).status_code == 200
    assert (await client.delete(session, headers={"If-Match": "*"})).status_code == 204


async def test_a_cursor_continues_only_its_own_list(client: httpx.AsyncClient, user: str, app: str) -> None:
    """With another user, list or filter, or cut, changed or empty, a cursor is 422. Inserts do not shift pages."""
    for number in range(4):
        await client.post(f"{user}/sessions", json={"session_id": f"s{number}"})
    await append(client, f"{user}/sessions/s0", *(say(str(n)) for n in range(4)))
    page = (await client.get(f"{user}/sessions", params={"limit": 2})).json()
    cursor = page["next_cursor"]
    await client.post(f"{user}/sessions", json={"session_id": "late"})
    following = (await client.get(f"{user}/sessions", params={"limit": 3, "cursor": cursor})).json()
    assert [each["id"] for each in following["sessions"]] == ["s1", "s0"]
    events = (await client.get(f"{user}/sessions/s0/events", params={"limit": 1})).json()["next_cursor"]
    for path, wrong in (
        (f"/v1/apps/{app}/users/bob/sessions", cursor),
        (f"/v1/apps/{app}x/users/ann/sessions", cursor),
        (f"{user}/jobs", cursor),
        (f"{user}/sessions", events),
        (f"{user}/sessions/s1/events", events),
        (f"{user}/sessions/s0/events?after_sequence=1", events),
        (f"{user}/sessions", cursor[:-1]),
        (f"{user}/sessions", cursor[:-4]),
        (f"{user}/sessions", cursor[:20] + ("A" if cursor[20] != "A" else "B") + cursor[21:]),
        (f"{user}/sessions", ""),
        (f"{user}/sessions", "é"),
        (f"{user}/sessions", "x" * 10_000),
    ):
        joiner = "&" if "?" in path else "?"
        refused = await client.get(f"{path}{joiner}{httpx.QueryParams({'cursor': wrong})}")
        assert (refused.status_code, problem(refused)["type"]) == (422, "/problems/invalid-request"), (path, wrong)
        assert "cursor" in problem(refused)["detail"]


async def test_duplicate_keys_and_compressed_bodies_are_refused(client: httpx.AsyncClient, session: str) -> None:
    """What two parsers would read differently is not stored, and a compressed body is not decoded."""
    headers = {"Content-Type": "application/json"}
    twice = b'{"events": [{"author": "user", "content": {"text": "a", "text": "b"}}]}'
    refused = await client.post(f"{session}/events", content=twice, headers=headers)
    assert (refused.status_code, problem(refused)["type"]) == (422, "/problems/invalid-request")
    assert "'text' twice" in problem(refused)["detail"]
    for encoding in ("gzip", "br", "x"):
        packed = await client.post(
            f"{session}/events", content=b"\x1f\x8b\x08\x00", headers={**headers, "Content-Encoding": encoding}
        )
        assert (packed.status_code, problem(packed)["type"]) == (415, "/problems/encoded-body")
        assert packed.headers["accept-encoding"] == "identity"
    assert (await client.get(session)).json()["version"] == 0
