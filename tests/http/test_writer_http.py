"""The session API at a real writer: every route, every refusal, every value round-trips."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import statistics
import time
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import asyncpg
import httpx
import pytest

from tests.support.waiting import WAIT_SECONDS, until
from tests.support.writer_process import BODY_BYTES_MAX, KEY, WriterProcess, append, healthy, problem, say

NAN = {"$hippocampus": ["float", "nan"]}


async def test_session_is_created_read_listed_finalised_and_deleted(client: httpx.AsyncClient, user: str) -> None:
    """The life cycle of a session over HTTP."""
    body = {"session_id": "s1", "state": {"step": 1, "user:language": "en", "temp:x": 1}, "metadata": {"tag": "a"}}
    created = await client.post(f"{user}/sessions", json=body)
    assert created.status_code == 201
    assert created.json()["state"] == {"step": 1, "user:language": "en"}
    assert created.json()["metadata"] == {"tag": "a"}
    assert created.json()["version"] == 0

    appended = await append(client, f"{user}/sessions/s1", say("Hello", id="e1"), expected_version=0)
    assert appended.status_code == 201
    read = (await client.get(f"{user}/sessions/s1")).json()
    assert read["version"] == appended.json()["version"] == 1
    assert [(event["id"], event["content"]) for event in read["events"]] == [("e1", {"text": "Hello"})]

    listed = (await client.get(f"{user}/sessions")).json()
    assert [each["id"] for each in listed["sessions"]] == ["s1"]
    assert listed["next_cursor"] is None

    finalised = await client.post(f"{user}/sessions/s1/finalize")
    assert finalised.status_code == 200
    assert set(finalised.json()["jobs"]) == {"fast_replay", "deep_reflection"}

    assert (await client.delete(f"{user}/sessions/s1")).status_code == 204
    gone = await client.get(f"{user}/sessions/s1")
    assert gone.status_code == 404
    assert problem(gone)["type"] == "/problems/session-not-found"


async def test_sessions_and_events_are_read_page_by_page(client: httpx.AsyncClient, user: str) -> None:
    """A cursor reads all sessions, newest first; a sequence number reads all events, oldest first."""
    for number in range(5):
        await client.post(f"{user}/sessions", json={"session_id": f"s{number}"})
    found, cursor = [], None
    while True:
        query = {"limit": 2, **({"cursor": cursor} if cursor else {})}
        page = (await client.get(f"{user}/sessions", params=query)).json()
        found += [each["id"] for each in page["sessions"]]
        if (cursor := page["next_cursor"]) is None:
            break
    assert found == ["s4", "s3", "s2", "s1", "s0"]

    await append(client, f"{user}/sessions/s0", *(say(str(n), id=f"e{n}") for n in range(5)))
    texts, cursor = [], None
    while True:
        query = {"limit": 2, **({"cursor": cursor} if cursor else {})}
        page = (await client.get(f"{user}/sessions/s0/events", params=query)).json()
        texts += [event["content"]["text"] for event in page["events"]]
        if (cursor := page["next_cursor"]) is None:
            break
    assert texts == ["0", "1", "2", "3", "4"]
    newest = (await client.get(f"{user}/sessions/s0", params={"num_recent_events": 2})).json()
    assert [event["sequence_num"] for event in newest["events"]] == [4, 5]


async def test_append_is_idempotent_by_event_id(client: httpx.AsyncClient, session: str) -> None:
    """The same id and content get 200 and change nothing, at any version. Other content gets 409."""
    first = await append(client, session, say("Hello", id="e1"), expected_version=0)
    again = await append(client, session, say("Hello", id="e1"), expected_version=0)
    assert (first.status_code, again.status_code) == (201, 200)
    assert [event["appended"] for event in first.json()["events"] + again.json()["events"]] == [True, False]
    assert again.json()["events"][0]["sequence_num"] == 1
    other = await append(client, session, say("Bye", id="e1"))
    assert other.status_code == 409
    assert problem(other)["type"] == "/problems/event-conflict"
    assert (await client.get(session)).json()["version"] == 1


async def test_stale_version_is_a_conflict_that_changes_nothing(
    client: httpx.AsyncClient, session: str, writer: WriterProcess
) -> None:
    """An append at an old version is refused with a hint."""
    await append(client, session, say("one"), expected_version=0)
    stale = await append(client, session, say("two"), expected_version=0)
    assert stale.status_code == 409
    assert problem(stale)["type"] == "/problems/version-conflict"
    assert "read" in stale.json()["detail"].lower()
    assert len((await client.get(session)).json()["events"]) == 1


async def test_another_users_session_is_reported_as_not_found(
    client: httpx.AsyncClient, session: str, app: str
) -> None:
    """A session cannot be read, written or ended in the name of another user or app."""
    for other in (session.replace("/users/ann/", "/users/bob/"), session.replace(app, f"{app}x")):
        refusals = [
            await client.get(other),
            await client.get(f"{other}/events"),
            await client.delete(other),
            await client.post(f"{other}/finalize"),
            await append(client, other, say("hi")),
        ]
        assert [response.status_code for response in refusals] == [404] * len(refusals)
        assert {problem(response)["type"] for response in refusals} == {"/problems/session-not-found"}
    assert (await client.get(session)).json()["version"] == 0


VALUES: list[tuple[str, str, Any]] = [
    ("U+0000", r'"a\u0000b"', {"$hippocampus": ["text", r"a\u0000b"]}),
    ("lone surrogate", r'"a\ud800b"', {"$hippocampus": ["text", r"a\ud800b"]}),
    ("NaN, escaped", json.dumps(NAN), NAN),
    ("infinity, escaped", '{"$hippocampus": ["float", "-inf"]}', {"$hippocampus": ["float", "-inf"]}),
    ("negative zero", "-0.0", {"$hippocampus": ["float", "-0.0"]}),
    ("1e22", "1e22", {"$hippocampus": ["float", "1e+22"]}),
    ("whole number past 64 bits", "123456789012345678901234567890", 123456789012345678901234567890),
    ("small", "5e-324", 5e-324),
    ("shortest digits", "0.1", 0.1),
    ("one as a float", "1.0", 1.0),
    ("key with U+0000", r'{"a\u0000": 1}', {r"$hippocampus:a\u0000": 1}),
    ("key like the escape", '{"$hippocampus:$hippocampus": 1}', {"$hippocampus:$hippocampus": 1}),
    ("escape behind escapes", r'{"\u0024hippocampus": ["float", "nan"]}', NAN),
    ("Chinese and an emoji", '"我喜欢🍵"', "我喜欢🍵"),
    ("null, true, empty", '[null, true, "", [], {}]', [None, True, "", [], {}]),
]


@pytest.mark.parametrize(("written", "read"), [pytest.param(w, r, id=name) for name, w, r in VALUES])
async def test_values_round_trip_exactly(client: httpx.AsyncClient, user: str, written: str, read: Any) -> None:
    """Content, state and metadata come back as they were sent, and can be sent again unchanged."""
    headers = {"Content-Type": "application/json"}
    session = f"{user}/sessions/s1"
    body = f'{{"session_id": "s1", "state": {{"k": {written}}}, "metadata": {{"k": {written}}}}}'
    created = await client.post(f"{user}/sessions", content=body, headers=headers)
    assert created.status_code == 201, created.text
    event = (
        f'{{"id": "e1", "author": "user", "content": {{"text": "hi", "v": {written}}},'
        f' "actions": {{"state_delta": {{"k2": {written}}}, "other": {{"k": {written}}}}}}}'
    )
    appended = await client.post(f"{session}/events", content=f'{{"events": [{event}]}}', headers=headers)
    assert appended.status_code == 201, appended.text
    got = (await client.get(session)).json()
    stored = got["events"][0]
    values = [got["state"]["k"], got["state"]["k2"], got["metadata"]["k"], stored["content"]["v"]]
    values += [stored["actions"]["other"]["k"], stored["actions"]["state_delta"]["k2"]]
    assert [json.dumps(value) for value in values] == [json.dumps(read)] * 6

    fields = ("id", "author", "content", "actions")
    again = await append(client, session, {field: stored[field] for field in fields})
    assert again.status_code == 200, again.text


async def test_two_megabytes_of_distinct_words_are_stored_and_read_back(
    client: httpx.AsyncClient, session: str
) -> None:
    """A text larger than a tsvector is stored whole."""
    text = " ".join(f"word{number:07d}" for number in range(175_000))
    assert len(text) > 2_000_000
    assert (await append(client, session, say(text))).status_code == 201
    assert (await client.get(session)).json()["events"][0]["content"]["text"] == text


async def test_fifty_concurrent_appends_are_all_stored_without_gaps(client: httpx.AsyncClient, session: str) -> None:
    """More requests than connections wait in turn. None is lost or refused."""
    outcomes = await asyncio.gather(*(append(client, session, say(str(n), id=f"e{n}")) for n in range(50)))
    assert {outcome.status_code for outcome in outcomes} == {201}
    events = (await client.get(f"{session}/events")).json()["events"]
    assert [event["sequence_num"] for event in events] == list(range(1, 51))
    assert {event["id"] for event in events} == {f"e{n}" for n in range(50)}


async def test_one_of_many_appends_at_the_same_version_wins(client: httpx.AsyncClient, session: str) -> None:
    """One of ten appends at one version is stored, and nine are conflicts."""
    outcomes = await asyncio.gather(*(append(client, session, say(str(n)), expected_version=0) for n in range(10)))
    assert sorted(outcome.status_code for outcome in outcomes) == [201] + [409] * 9


async def test_append_enqueues_its_jobs_in_the_same_transaction(
    client: httpx.AsyncClient, session: str, app: str, rows: asyncpg.Connection
) -> None:
    """The event, its consolidation job and the queue's job exist together or not at all."""
    await rows.execute("INSERT INTO app_policies (app_name, fast_events) VALUES ($1, 1)", app)
    refused = await append(client, session, say("a"), expected_version=7)
    assert refused.status_code == 409
    counted = """
        SELECT (SELECT count(*) FROM events WHERE thread_id = t.id), count(j.id), count(q.id),
               count(*) FILTER (WHERE e.xmin = j.xmin AND j.xmin = q.xmin)
        FROM threads AS t LEFT JOIN consolidation_jobs AS j ON j.thread_id = t.id
        LEFT JOIN procrastinate_jobs AS q ON q.id = j.procrastinate_job_id
        LEFT JOIN events AS e ON e.thread_id = t.id
        WHERE t.app_name = $1 GROUP BY t.id"""
    assert tuple(await rows.fetchrow(counted, app)) == (0, 0, 0, 0)
    assert (await append(client, session, say("a"))).status_code == 201
    assert tuple(await rows.fetchrow(counted, app)) == (1, 1, 1, 1)


WRONG_BODIES: list[tuple[str, str, int, str]] = [
    ("not JSON", "{", 400, "invalid-json"),
    ("empty", "", 400, "invalid-json"),
    ("bare NaN", '{"events": [{"author": "user", "content": NaN}]}', 422, "invalid-request"),
    ("past a double", '{"events": [{"author": "user", "content": 1e999}]}', 422, "invalid-request"),
    ("endless number", '{"events": [{"author": "user", "content": ' + "9" * 5000 + "}]}", 422, "invalid-request"),
    ("nested 1,000 deep", '{"events": [{"author": "user", "content": ' + "[" * 1000 + "]" * 1000 + "}]}", 422, ""),
    ("nested 100,000 deep", "[" * 100_000 + "]" * 100_000, 422, "invalid-request"),
    ("wrong escape", '{"events": [{"author": "u", "content": {"$hippocampus": ["int", "1"]}}]}', 422, ""),
    ("key of no escape", '{"events": [{"author": "u", "content": {"$hippocampus2": 1}}]}', 422, ""),
    ("a list", "[]", 422, "invalid-request"),
    ("no events", '{"events": []}', 422, "invalid-request"),
    ("no author", '{"events": [{"content": "x"}]}', 422, "invalid-request"),
    ("misspelt field", '{"events": [{"author": "user", "contents": "x"}]}', 422, "invalid-request"),
    ("version as text", '{"events": [{"author": "user"}], "expected_version": "1"}', 422, "invalid-request"),
    ("version past 32 bits", '{"events": [{"author": "user"}], "expected_version": 2147483648}', 422, ""),
    ("U+0000 in an id", r'{"events": [{"author": "user", "id": "a\u0000"}]}', 422, "invalid-request"),
    ("lone surrogate in an id", r'{"events": [{"author": "user", "id": "a\ud800"}]}', 422, "invalid-request"),
    ("lone surrogate in a type", r'{"events": [{"author": "user", "event_type": "\ud800"}]}', 422, ""),
    ("id too long", '{"events": [{"author": "user", "id": "' + "a" * 513 + '"}]}', 422, "invalid-request"),
    ("empty id", '{"events": [{"author": "user", "id": ""}]}', 422, "invalid-request"),
    ("the same id twice", '{"events": [{"author": "u", "id": "a"}, {"author": "u", "id": "a"}]}', 422, ""),
    ("piece of a stream", '{"events": [{"author": "u", "event_type": "text_delta"}]}', 422, "invalid-request"),
    ("year 10000", '{"events": [{"author": "u", "timestamp": 253402300800}]}', 422, "invalid-request"),
    ("state is a list", '{"events": [{"author": "u", "actions": {"state_delta": []}}]}', 422, "invalid-request"),
    ("1,001 events", json.dumps({"events": [{"author": "u"}] * 1001}), 422, "invalid-request"),
]


@pytest.mark.parametrize(
    ("body", "status", "slug"), [pytest.param(body, status, slug, id=name) for name, body, status, slug in WRONG_BODIES]
)
async def test_invalid_body_is_a_problem_and_changes_nothing(
    client: httpx.AsyncClient, session: str, body: str, status: int, slug: str
) -> None:
    """Each is refused with a problem of its type, and the session is unchanged."""
    response = await client.post(f"{session}/events", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == status, response.text
    assert problem(response)["type"] == f"/problems/{slug or 'invalid-request'}"
    assert (await client.get(session)).json()["version"] == 0


async def test_body_that_is_not_utf8_is_refused(client: httpx.AsyncClient, session: str) -> None:
    """No other encoding is guessed."""
    body = '{"events": [{"author": "José"}]}'.encode("latin-1")
    response = await client.post(f"{session}/events", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 400
    assert "UTF-8" in problem(response)["detail"]


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonp"])
async def test_body_must_be_declared_as_json(client: httpx.AsyncClient, session: str, kind: str | None) -> None:
    """So a form on another site's page cannot append."""
    headers = {"Content-Type": kind} if kind else {}
    response = await client.post(f"{session}/events", content=b'{"events": [{"author": "u"}]}', headers=headers)
    assert response.status_code == 415
    assert problem(response)["type"] == "/problems/unsupported-media-type"


async def test_state_over_the_limit_is_refused(client: httpx.AsyncClient, session: str) -> None:
    """The default is 1 MB per scope. Random text does not compress below it."""
    noise = "".join(uuid.uuid4().hex for _ in range(70_000))
    event = {"author": "system", "event_type": "state_update", "actions": {"state_delta": {"big": noise}}}
    response = await append(client, session, event)
    assert response.status_code == 422
    assert problem(response)["type"] == "/problems/state-too-large"
    assert noise[:50] not in response.text
    assert (await client.get(session)).json()["version"] == 0


async def test_event_over_the_limit_is_refused(client: httpx.AsyncClient, session: str) -> None:
    """The default is 8 MiB per event."""
    response = await append(client, session, say("x" * 8_400_000))
    assert response.status_code == 413
    assert problem(response)["type"] == "/problems/event-too-large"


async def test_body_over_the_limit_is_refused_before_it_is_read(client: httpx.AsyncClient, session: str) -> None:
    """Announced or not, a body over the limit gets a response, and the connection is closed."""
    headers = {"Content-Type": "application/json"}

    async def refused(content: Callable[[], Any]) -> httpx.Response:
        """A busy machine may not have sent all while the writer reads on, for two seconds."""

        async def answer() -> httpx.Response | None:
            with contextlib.suppress(httpx.ReadError):
                return await client.post(f"{session}/events", content=content(), headers=headers)
            return None

        return await until(answer)

    announced = await refused(lambda: b" " * (BODY_BYTES_MAX + 1))

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(BODY_BYTES_MAX // 1_000_000 + 2):
            yield b" " * 1_000_000

    chunked = await refused(pieces)
    for response in (announced, chunked):
        assert response.status_code == 413
        assert problem(response)["type"] == "/problems/body-too-large"
        assert response.headers["connection"] == "close"


async def test_huge_announced_body_is_refused_immediately(writer: WriterProcess, user: str) -> None:
    """The response to a header that announces a terabyte does not wait for the body."""
    reader, out = await asyncio.open_connection("127.0.0.1", writer.port)
    out.write(
        f"POST {user}/sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
        "Content-Type: application/json\r\nContent-Length: 1000000000000\r\n\r\n".encode()
    )
    async with asyncio.timeout(WAIT_SECONDS):
        assert (await reader.readline()).startswith(b"HTTP/1.1 413")
    out.close()


@pytest.mark.parametrize(
    ("method", "path", "status", "slug"),
    [
        ("GET", "/nothing", 404, "no-such-route"),
        ("GET", "/v1/nothing", 404, "no-such-route"),
        ("GET", "/v1/apps/a/users/u/sessions/", 404, "no-such-route"),
        ("PUT", "/v1/apps/a/users/u/sessions", 405, "method-not-allowed"),
        ("GET", "/v1/apps/a/users/u/sessions?limit=0", 422, "invalid-request"),
        ("GET", "/v1/apps/a/users/u/sessions?limit=1001", 422, "invalid-request"),
        ("GET", "/v1/apps/a/users/u/sessions?limit=x", 422, "invalid-request"),
        ("GET", "/v1/apps/a/users/u/sessions?cursor=nonsense", 422, "invalid-request"),
        ("GET", "/v1/apps/a/users/u/sessions/s?after_sequence=-1", 422, "invalid-request"),
        ("GET", "/v1/apps/a/users/u/sessions/s?after_sequence=9223372036854775808", 422, "invalid-request"),
        ("GET", "/v1/apps/a%00/users/u/sessions", 422, "invalid-request"),
        ("GET", "/v1/apps/a/users/%FF/sessions", 422, "invalid-request"),
        ("GET", f"/v1/apps/a/users/{'u' * 256}/sessions", 422, "invalid-request"),
        ("GET", "/v1/apps/a/users/u/sessions/nobody", 404, "session-not-found"),
        ("DELETE", "/v1/apps/a/users/u/sessions/nobody", 404, "session-not-found"),
        ("POST", "/v1/apps/a/users/u/sessions/nobody/finalize", 404, "session-not-found"),
    ],
)
async def test_invalid_request_is_a_problem(
    client: httpx.AsyncClient, method: str, path: str, status: int, slug: str
) -> None:
    """Each wrong path, method or parameter gets a problem of its type."""
    response = await client.request(method, path)
    assert response.status_code == status, response.text
    assert problem(response)["type"] == f"/problems/{slug}"
    if status == 405:
        assert set(response.headers["allow"].split(", ")) == {"GET", "POST"}


async def test_a_problem_says_each_thing_once_and_names_no_field_that_it_lacks(
    client: httpx.AsyncClient, user: str
) -> None:
    unknown = problem(await client.post(f"{user}/sessions/nobody/events", json={"events": [say("hello", id="e1")]}))
    assert unknown["detail"].lower().count("create it first") == 1
    nothing = problem(await client.post(f"{user}/forget", json={}))
    assert "errors" not in nothing
    assert "'errors'" not in nothing["detail"]


async def test_session_id_in_use_is_a_conflict(client: httpx.AsyncClient, user: str, session: str) -> None:
    """A second session with the same id is refused, and `*` is not an app."""
    taken = await client.post(f"{user}/sessions", json={"session_id": "s1"})
    assert (taken.status_code, problem(taken)["type"]) == (409, "/problems/session-exists")
    star = await client.post("/v1/apps/*/users/u/sessions", json={})
    assert (star.status_code, problem(star)["type"]) == (422, "/problems/invalid-request")
    assert "DETAIL" not in star.text


async def test_names_with_slashes_percent_signs_and_chinese_work(client: httpx.AsyncClient, app: str) -> None:
    """Names may contain any character; the path carries them percent-encoded."""
    path = f"/v1/apps/{app}/users/auth0%7Ca%2Fb/sessions"
    created = await client.post(path, json={"session_id": "奖/50%2F?#"})
    assert created.status_code == 201, created.text
    assert created.json()["user_id"] == "auth0|a/b"
    read = await client.get(f"{path}/%E5%A5%96%2F50%252F%3F%23")
    assert read.json()["id"] == "奖/50%2F?#"


@pytest.mark.parametrize(
    "header",
    [None, "Bearer", "Bearer wrong", f"Basic {KEY}", KEY, f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", "Bearer clé"],
)
async def test_requests_without_the_key_are_refused(writer: WriterProcess, user: str, header: str | None) -> None:
    """A missing or wrong key gets 401, and nothing else, on every path but health and the documentation."""
    headers = {} if header is None else {"Authorization": header.encode()}
    async with httpx.AsyncClient(base_url=writer.url, headers=headers, timeout=WAIT_SECONDS) as stranger:
        for path in (f"{user}/sessions", "/v1/nothing", "/metrics/targets"):
            response = await stranger.get(path)
            assert response.status_code == 401
            assert problem(response)["type"] == "/problems/wrong-key"
            assert response.headers["www-authenticate"] == "Bearer"
        refused = await stranger.post(f"{user}/sessions", json={"session_id": "x"})
        assert refused.status_code == 401
        await healthy(stranger)
        assert (await stranger.get("/openapi.json")).status_code == 200


async def test_health_lists_its_checks(client: httpx.AsyncClient) -> None:
    """A healthy writer reports ok for each."""
    response = await healthy(client)
    assert response.json() == {
        "status": "ok",
        "database": "reachable",
        "schema": "current",
        "listener_running": True,
    }


async def test_request_id_is_kept_or_generated(client: httpx.AsyncClient, writer: WriterProcess) -> None:
    """A caller's id is used if it is a plain one, and appears in the log."""
    given = await client.get("/health", headers={"X-Request-Id": "abc-1"})
    assert given.headers["x-request-id"] == "abc-1"
    made = await client.get("/health", headers={"X-Request-Id": "not plain!"})
    assert len(made.headers["x-request-id"]) == 32


async def test_docs_page_loads_nothing_from_other_hosts(client: httpx.AsyncClient) -> None:
    """/docs has no script or style in its text, and names files of this server; /problems/ lists every problem."""
    page = await client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "connect-src 'self'" in policy
    for source in re.findall(r'(?:src|href)="([^"]*)"', page.text):
        assert re.match(r"page/[\w.-]+\?v=[0-9a-f]{12}$|openapi.json$|problems/$", source)
        assert (await client.get(f"/{source}")).status_code == 200
    assert not re.search(r"<script(?! type=\"module\" src=)|<style|style=", page.text)
    assert "/problems/version-conflict" in (await client.get("/problems/")).text


async def test_problem_types_can_be_looked_up(client: httpx.AsyncClient) -> None:
    """The relative URI of a problem leads to its description."""
    known = await client.get("/problems/version-conflict")
    assert "Read the session again" in known.text
    assert (await client.get("/problems/nonsense")).status_code == 404


async def test_small_responses_are_sent_immediately(client: httpx.AsyncClient, session: str) -> None:
    """Headers and body are two writes. The second does not wait for the acknowledgement of the first."""
    at: dict[str, float] = {}

    async def note(name: str, _: dict[str, Any]) -> None:
        at[name] = time.perf_counter()

    between = []
    for _ in range(61):
        await client.get(session, params={"num_recent_events": 0}, extensions={"trace": note})
        between.append(at["http11.receive_response_body.complete"] - at["http11.receive_response_headers.complete"])
    # A delayed acknowledgement takes 40 ms, once the connection is past its first few exchanges. Waiting for the
    # processor delays both writes alike.
    assert statistics.median(between[20:]) < 0.03, between
