"""Every route of the document against every kind of mistake: a documented problem, and no change."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any
from urllib.parse import quote

import asyncpg
import httpx
import pytest

from hippocampus.records import DIMENSIONS_MAX
from pulse.events import Event
from pulse.session_service import OpenSessionService
from tests.support.documented_routes import asked_operations, body_schema, document, filled, operations, routine
from tests.support.key_scene import bearer, made, row_counts
from tests.support.pace import at_this_pace
from tests.support.waiting import WAIT_SECONDS
from tests.support.writer_process import KEY, WriterProcess, problem, say

PLANES = "é 奖 \U0001f600 \U0002070e \U000e0041 \U0010ffff"
#: Within every limit in characters, but four distinct bytes each: together too long for an index.
WIDE = "".join(chr(0x20000 + number * 7919 % 0xA000) for number in range(512))
NUL = "a\0b"
LONG = "x" * 10_000
ODD_NAMES = ("'; DROP TABLE threads; --", "'\"\\\u202e" + PLANES)
WRONG_NUMBERS = ("-1", "99999999999999999999999", "1e3", "NaN", "")
WRONG_DATES = (
    "nonsense",
    "01/02/2026",
    "1.5.2026",
    "2026-05-01",
    "2026-02-30T00:00:00Z",
    "2026-05-01T00:00:00",
    "1777593600",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
)
#: Each position gets all of these: a text may pass the types and fail later, where it is stored; many fields take null.
WRONG_TEXTS: tuple[Any, ...] = ("a\0b", "\ud800", WIDE, None)
#: Each position gets some of these in turn: one place checks the types of all.
WRONG_TYPES: tuple[Any, ...] = ([1e308] * DIMENSIONS_MAX, True, [None], 2**70)
#: Each body gets some of these in turn: one place reads all.
WRONG_BODIES: tuple[tuple[bytes, dict[str, str]], ...] = (
    *((json.dumps(each).encode(), {}) for each in (None, True, 7, "text", [], [[]])),
    (b'{"a": 1, "a": 2}', {}),
    (b"", {}),
    (b"{", {}),
    (b"\xff\xfe{\x00}\x00", {}),
    ('{"x": "é"}'.encode("latin-1"), {}),
    (b"\x1f\x8b\x08\x00\x00", {"Content-Encoding": "gzip"}),
    (b"{}", {"Content-Type": "text/plain"}),
    (b"[" * 100_000, {}),
)
UNKNOWN_FIELD: tuple[bytes, dict[str, str]] = (b'{"no such field": 1}', {})
#: Method, path, request, and the statuses that the document lists for the operation.
Asked = tuple[str, str, dict[str, Any], Set[str]]


class InTurn:
    """Some of these values at each call, the next ones at the next, round and round."""

    def __init__(self, values: Iterable[Any]) -> None:
        self._values = itertools.cycle(values)

    def some(self, number: int) -> tuple[Any, ...]:
        return tuple(itertools.islice(self._values, number))


def wrong_parameters(page: Mapping[str, Any], app: str) -> Iterator[Asked]:
    """One mistake per request: in a name, a number, a date, a cursor. Odd names are valid, but unknown."""
    numbers, dates = InTurn(WRONG_NUMBERS), InTurn(WRONG_DATES)
    for method, path, operation in asked_operations(page):
        request, plain = routine(page, path, operation, app), filled(path, operation, app, {})
        if "json" in request:
            request["json"] = {}
        in_path = [each for each in operation.get("parameters", ()) if each["in"] == "path"]
        names = [each["name"] for each in in_path]
        for place, each in enumerate(in_path):
            for text in (NUL, too_long(each) if place else LONG):
                yield method, filled(path, operation, app, {each["name"]: text}), request, operation["responses"].keys()
        for text in (*ODD_NAMES, WIDE[:255], WIDE) if names else ():
            yield (
                method,
                filled(path, operation, app, dict.fromkeys(names, text)),
                request,
                operation["responses"].keys(),
            )
        for each in operation.get("parameters", ()):
            parts = (each["schema"], *each["schema"].get("anyOf", ()))
            if each["in"] == "query":
                if {part.get("type") for part in parts} & {"integer", "number"}:
                    values = numbers.some(3)
                elif "date-time" in {part.get("format") for part in parts}:
                    values = dates.some(4)
                else:
                    # The same for each method of a path: what a PUT makes a DELETE removes.
                    odd = (*ODD_NAMES, "nonsense")[len(path) % 3]
                    values = (NUL, too_long(each), odd)
                for value in values:
                    params = {**request.get("params", {}), each["name"]: value}
                    yield method, plain, {**request, "params": params}, operation["responses"].keys()


def too_long(parameter: Mapping[str, Any]) -> str:
    """One character more than the document allows, or ten thousand."""
    parts = (parameter["schema"], *parameter["schema"].get("anyOf", ()))
    return LONG[: max((part.get("maxLength", -1) for part in parts), default=-1) + 1] or LONG


def wrong_bodies(page: Mapping[str, Any], app: str) -> Iterator[Asked]:
    bodies = InTurn(WRONG_BODIES)
    for method, path, operation in asked_operations(page):
        if "requestBody" in operation:
            request, plain = routine(page, path, operation, app), filled(path, operation, app, {})
            del request["json"]
            for content, headers in (UNKNOWN_FIELD, *bodies.some(6)):
                sent = {"Content-Type": "application/json", **request["headers"], **headers}
                yield method, plain, {**request, "content": content, "headers": sent}, operation["responses"].keys()


def wrong_values(page: Mapping[str, Any], app: str) -> Iterator[Asked]:
    """The document's examples with one wrong value each. Some are accepted: any JSON is valid state."""
    types, dates = InTurn(WRONG_TYPES), InTurn(WRONG_DATES)
    for method, path, operation in asked_operations(page):
        if "requestBody" not in operation:
            continue
        request, plain = routine(page, path, operation, app), filled(path, operation, app, {})
        example = request.pop("json")
        request["headers"]["Content-Type"] = "application/json"
        properties = body_schema(page, operation).get("properties", {})
        positions = {*leaves(example), *((name,) for name in properties)}
        for position in sorted(positions, key=repr):
            is_date = "date-time" in json.dumps(properties.get(position[0], {}))
            for value in dates.some(4) if is_date else (*WRONG_TEXTS, *types.some(1)):
                yield (
                    method,
                    plain,
                    {**request, "content": json.dumps(put(example, position, value))},
                    operation["responses"].keys(),
                )


def leaves(value: Any, position: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The positions of a JSON value's scalars."""
    if isinstance(value, Mapping | list):
        for key, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from leaves(inner, (*position, key))
    elif position:
        yield position


def put(example: Any, position: Sequence[Any], value: Any) -> Any:
    """A copy of a JSON value with another value at a position."""
    if not position:
        return value
    copied = dict(example) if isinstance(example, Mapping) else list(example)
    copied[position[0]] = put(example[position[0]], position[1:], value) if len(position) > 1 else value
    return copied


async def refused(client: httpx.AsyncClient, requests: Iterable[Asked]) -> list[Asked]:
    """Send all requests, and return those that were refused. Each refusal is a documented problem."""
    wrong: list[str] = []
    found: list[Asked] = []
    slots = asyncio.Semaphore(4)

    async def send(method: str, path: str, request: dict[str, Any], documented: Set[str]) -> None:
        async with slots, client.stream(method, path, **request) as response:
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                return  # A stream of a session that an accepted value has created: it has no end.
            await response.aread()
        if response.status_code >= 500 or str(response.status_code) not in documented:
            wrong.append(f"{method} {path[:150]} {str(request)[:200]} {response.status_code} {response.text[:200]}")
        elif response.status_code >= 400:
            problem(response)
            found.append((method, path, request, documented))

    await asyncio.gather(*(send(*each) for each in requests))
    assert wrong == []
    return found


async def test_every_mistake_on_every_route_is_a_documented_problem_and_changes_nothing(
    client: httpx.AsyncClient, app: str, rows: asyncpg.Connection
) -> None:
    """Generated from the document, so that a new route is covered."""
    page = await document(client)
    # Accepted values take effect here; of the refused ones every fourth is sent and refused again below, so one of
    # nearly each position of each body.
    again = (await refused(client, wrong_values(page, app)))[::4]
    before = await row_counts(rows)
    requests = [*wrong_parameters(page, app), *wrong_bodies(page, app)]
    assert len(again) > 150
    assert len(requests) > 600
    await refused(client, [*requests, *again])
    after = await row_counts(rows)
    changed = {name for name in after if after[name] != before[name]}
    # Odd names are valid names, so they may create threads and begin replays, which are audited. A refused call of
    # a tool is recorded.
    assert changed <= {"threads", "initial_states", "tool_executions", "replays", "audit_log"}, changed


async def test_names_too_wide_for_an_index_are_refused_with_the_limit(client: httpx.AsyncClient) -> None:
    """Each name is within its limit; together they exceed the row size of an index."""
    sessions = f"/v1/apps/{quote(WIDE[9:264])}/users/{quote(WIDE[:255])}/sessions"
    response = await client.post(sessions, json={"session_id": WIDE})
    assert problem(response)["type"] == "/problems/invalid-request"
    assert "2,600 bytes" in response.json()["detail"]
    assert (await client.get(sessions)).json()["sessions"] == []


async def test_a_revoked_key_is_refused_on_every_route(
    writer: WriterProcess, client: httpx.AsyncClient, writer_dsn: str, app: str, rows: asyncpg.Connection
) -> None:
    """401 before the request is read, on every route but health. A key of another app gets 403."""
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
                if status == 403 and path.startswith(("/agui", "/api/me")):
                    continue  # AG-UI checks its own body first, and this one is invalid. /api/me names no app.
                response = await refused.request(method, filled(path, operation, app, {}), **body)
                assert response.status_code == status, (method, path, response.text)
                problem(response)
    assert await row_counts(rows) == before


@pytest.mark.timing
async def test_150_callers_share_ten_connections_fairly(
    writer: WriterProcess, client: httpx.AsyncClient, user: str, rows: asyncpg.Connection, pool: asyncpg.Pool
) -> None:
    """All are served, and none waits for more than a few times the median, over HTTP and in the library."""
    for number in range(10):
        await client.post(f"{user}/sessions", json={"session_id": f"s{number}"})
    headers = {"Authorization": f"Bearer {KEY}"}
    async with contextlib.AsyncExitStack() as stack:
        # Each request of a client looks at all of its others: with 150 in one, that is most of the test's time.
        crowd = [
            await stack.enter_async_context(
                httpx.AsyncClient(base_url=writer.url, headers=headers, timeout=WAIT_SECONDS, verify=False)
            )
            for _ in range(15)
        ]

        async def through_http(number: int) -> float:
            began = time.perf_counter()
            for turn in range(2):
                body = {"events": [say("hi", id=f"{number}-{turn}")]}
                response = await crowd[number % 15].post(f"{user}/sessions/s{number % 10}/events", json=body)
                assert response.status_code == 201, response.text
            return time.perf_counter() - began

        seconds = await asyncio.gather(*(through_http(number) for number in range(150)))
    assert max(seconds) < 6 * statistics.median(seconds) + at_this_pace(1)
    used = await rows.fetchval("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
    assert used < 20

    service = OpenSessionService(pool)
    await service.create_session("app", "u", session_id="s")

    async def through_library(number: int) -> float:
        began = time.perf_counter()
        for turn in range(2):
            await service.append("app", "u", "s", [Event(author="user", content={"text": "hi"}, id=f"{number}-{turn}")])
        return time.perf_counter() - began

    seconds = await asyncio.gather(*(through_library(number) for number in range(150)))
    assert max(seconds) < 6 * statistics.median(seconds) + at_this_pace(1)
    assert pool.get_size() <= 10
    session = await service.get_session("app", "u", "s")
    assert session is not None
    assert session.version == 300
    await service.close()


def test_the_document_has_an_example_for_every_request_body(writer: WriterProcess) -> None:
    """Readers copy an example before they write a request."""
    page = httpx.get(f"{writer.url}/openapi.json", timeout=WAIT_SECONDS).json()
    for method, path, operation in operations(page):
        if "requestBody" in operation and not path.startswith("/agui"):
            assert body_schema(page, operation).get("examples"), (method, path)
