"""Every route of the document against everything that callers get wrong: a documented problem, and nothing changed."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

import asyncpg
import httpx
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings

from pulse.events import Event
from pulse.session_service import OpenSessionService
from tests.key_scene import bearer, made, row_counts
from tests.writer_process import KEY, WriterProcess, problem, say

pytest_plugins = ["tests.writer_fixtures"]

#: A name that is accepted, but of nobody.
NOBODY = "nobody"
LONG = "x" * 10_000
PLANES = "é 奖 \U0001f600 \U0002070e \U000e0041 \U0010ffff"
WRONG_TEXTS = ("'; DROP TABLE threads; --", '"\\', "a\0b", LONG, "\u202e" + PLANES)
WRONG_NUMBERS = ("-1", "0", "99999999999999999999999", "1e3", "NaN", "x", "")
WRONG_BODIES: tuple[tuple[bytes, dict[str, str]], ...] = (
    *((json.dumps(each).encode(), {}) for each in (None, True, 7, "text", [], [[]], {"no such field": 1})),
    (b'{"a": 1, "a": 2}', {}),
    (b"", {}),
    (b"{", {}),
    (b"\xff\xfe{\x00}\x00", {}),
    ('{"x": "é"}'.encode("latin-1"), {}),
    (b"\x1f\x8b\x08\x00\x00", {"Content-Encoding": "gzip"}),
    (b"{}", {"Content-Type": "text/plain"}),
    (b"[" * 100_000, {}),
)


async def document(client: httpx.AsyncClient) -> dict[str, Any]:
    found: dict[str, Any] = (await client.get("/openapi.json")).json()
    return found


def operations(page: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, item in page["paths"].items():
        for method, operation in item.items():
            yield method.upper(), path, operation


def filled(path: str, operation: Mapping[str, Any], app: str, wrong: Mapping[str, str]) -> str:
    """A path with its parameters: those that are wrong, and names of nobody."""
    for each in operation.get("parameters", ()):
        if each["in"] == "path":
            schema = each["schema"]
            right = {"app_name": app, "user_id": NOBODY}.get(each["name"], NOBODY)
            if schema.get("format") == "uuid":
                right = "0197f6a2-c1d0-7d0b-8a7f-2d5b7c9e1f00"
            if schema.get("type") == "integer":
                right = "1"
            if "enum" in schema:
                right = schema["enum"][0]
            path = path.replace(f"{{{each['name']}}}", quote(wrong.get(each["name"], right), safe=""))
    return path


def cases(page: Mapping[str, Any], app: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """One mistake each: in a name, a number, a cursor, a body."""
    owner = {"app_name": app, "user_id": NOBODY}
    for method, path, operation in operations(page):
        if path == "/health" or path.startswith("/api/test-"):
            continue
        parameters = operation.get("parameters", ())
        asserts = {each["name"] for each in parameters if each["in"] == "query"} >= owner.keys()
        query = owner if asserts else {}
        plain = filled(path, operation, app, {})
        body = {"json": {}} if "requestBody" in operation else {}
        for each in parameters:
            name, schema = each["name"], each["schema"]
            kinds = {part.get("type") for part in (schema, *schema.get("anyOf", ()))}
            if each["in"] == "path":
                for text in WRONG_TEXTS:
                    yield method, filled(path, operation, app, {name: text}), {"params": query, **body}
            elif each["in"] == "query":
                values = WRONG_NUMBERS if kinds & {"integer", "number"} else (*WRONG_TEXTS, "nonsense")
                for value in values:
                    yield method, plain, {"params": {**query, name: value}, **body}
        if "requestBody" in operation:
            for content, headers in WRONG_BODIES:
                sent = {"Content-Type": "application/json", **headers}
                yield method, plain, {"params": query, "content": content, "headers": sent}


async def test_every_route_answers_every_mistake_with_a_documented_problem_and_changes_nothing(
    client: httpx.AsyncClient, app: str, rows: asyncpg.Connection
) -> None:
    """Generated from the document: a new route is covered when it is there."""
    page = await document(client)
    documented = {status for _, _, operation in operations(page) for status in operation["responses"]}
    before = await row_counts(rows)
    asked: list[tuple[str, str, dict[str, Any]]] = list(cases(page, app))
    assert len(asked) > 600
    wrong: list[str] = []
    slots = asyncio.Semaphore(16)

    async def ask(method: str, path: str, request: dict[str, Any]) -> None:
        async with slots:
            response = await client.request(method, path, **request)
        if response.status_code >= 500 or str(response.status_code) not in documented:
            wrong.append(f"{method} {path[:150]} {str(request)[:200]} {response.status_code} {response.text[:200]}")
        elif response.status_code >= 400:
            problem(response)

    await asyncio.gather(*(ask(*each) for each in asked))
    assert wrong == []
    after = await row_counts(rows)
    changed = {name for name in after if after[name] != before[name]}
    # Odd names are names: what is created with them is what was asked for.
    assert changed <= {"threads", "initial_states"}, changed


async def test_a_revoked_key_is_refused_on_every_route(
    writer: WriterProcess, client: httpx.AsyncClient, writer_dsn: str, app: str, rows: asyncpg.Connection
) -> None:
    """401 before anything is read, on each route but health; a key of another app gets 403 on each."""
    revoked = await made(writer_dsn, app, "admin")
    other = await made(writer_dsn, "somebody-else", "admin")
    await rows.execute("UPDATE api_keys SET revoked_at = now() WHERE id = $1", revoked.key.id)
    before = await row_counts(rows)
    page = await document(client)
    for text, status in ((revoked.text, 401), (other.text, 403)):
        async with bearer(writer, text) as refused:
            for method, path, operation in operations(page):
                if path == "/health":
                    continue
                body = {} if "requestBody" not in operation else {"json": {}}
                if status == 403 and path.startswith("/agui"):
                    continue  # AG-UI's own body is checked first, and is wrong here.
                response = await refused.request(method, filled(path, operation, app, {}), **body)
                assert response.status_code == status, (method, path, response.text)
                problem(response)
    assert await row_counts(rows) == before


async def test_a_hundred_and_fifty_callers_share_ten_connections_fairly(
    writer: WriterProcess, client: httpx.AsyncClient, user: str, rows: asyncpg.Connection, pool: asyncpg.Pool
) -> None:
    """All are served, none waits for more than a few times the median; over HTTP and in the library."""
    for number in range(10):
        await client.post(f"{user}/sessions", json={"session_id": f"s{number}"})
    limits = httpx.Limits(max_connections=150)
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(base_url=writer.url, headers=headers, limits=limits, timeout=60) as crowd:

        async def over_http(number: int) -> float:
            began = time.perf_counter()
            for turn in range(3):
                body = {"events": [say("hi", id=f"{number}-{turn}")]}
                response = await crowd.post(f"{user}/sessions/s{number % 10}/events", json=body)
                assert response.status_code == 201, response.text
            return time.perf_counter() - began

        seconds = await asyncio.gather(*(over_http(number) for number in range(150)))
    assert max(seconds) < 6 * statistics.median(seconds) + 1
    used = await rows.fetchval("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
    assert used < 20

    service = OpenSessionService(pool)
    await service.create_session("app", "u", session_id="s")

    async def in_library(number: int) -> float:
        began = time.perf_counter()
        for turn in range(3):
            await service.append("app", "u", "s", [Event(author="user", content={"text": "hi"}, id=f"{number}-{turn}")])
        return time.perf_counter() - began

    seconds = await asyncio.gather(*(in_library(number) for number in range(150)))
    assert max(seconds) < 6 * statistics.median(seconds) + 1
    assert pool.get_size() <= 10
    session = await service.get_session("app", "u", "s")
    assert session is not None
    assert session.version == 450
    await service.close()


def test_generated_requests_find_no_crash_and_no_undocumented_status(writer: WriterProcess) -> None:
    """schemathesis over every operation of the document, with a small budget and a fixed seed."""
    crash_free(writer, examples=3)


def crash_free(writer: WriterProcess, *, examples: int) -> None:
    """Ask each operation so often; every answer has a status that the document names for it."""
    page = httpx.get(f"{writer.url}/openapi.json").json()
    for result in schemathesis.openapi.from_dict(page).get_all_operations():
        operation = result.ok()
        known = operation.definition.raw["responses"]
        ask = given(case=operation.as_strategy())(_asker(writer, known))
        settings(
            max_examples=examples,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )(ask)()


def _asker(writer: WriterProcess, known: Mapping[str, Any]) -> Callable[[schemathesis.Case], None]:
    def ask(case: schemathesis.Case) -> None:
        response = case.call(base_url=writer.url, headers={"Authorization": f"Bearer {KEY}"}, timeout=30)
        crashes = [line for line in writer.log() if line.get("event") == "request_crashed"]
        assert crashes == [], (case.method, case.path, case.body)
        assert str(response.status_code) in known, (case.method, case.path, case.body, response.text)

    return ask


def test_the_document_has_an_example_for_every_body(writer: WriterProcess) -> None:
    """A reader copies before writing: each request body shows one."""
    page = httpx.get(f"{writer.url}/openapi.json").json()
    for method, path, operation in operations(page):
        if "requestBody" in operation and not path.startswith("/agui"):
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            name = schema.get("$ref", "").rpartition("/")[2]
            assert (page["components"]["schemas"][name] if name else schema).get("examples"), (method, path)
