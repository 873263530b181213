"""A route is made with the first request for it, which may be one of many at once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.key_scene import made
from tests.support.waiting import WAIT_SECONDS
from tests.support.writer_process import KEY, StartedWriter, WriterProcess, problem

SESSIONS = 20
#: Below the path of a user.
READ = ("sessions", "memories", "facts", "fact-candidates", "profile", "archive", "jobs", "traces")


@pytest.mark.system
async def test_concurrent_first_requests_are_answered_as_later_ones(
    writer: WriterProcess, writer_dsn: str, tmp_path: Path, app: str
) -> None:
    """The writer imports the program itself; those that the suite forks share routes that were made before."""
    user, sessions = f"/v1/apps/{app}/users/ann", f"/v1/apps/{app}/users/bob/sessions"
    appender = (await made(writer_dsn, app, "append")).text
    creations = [("POST", sessions, KEY, {"session_id": f"s{number}"}) for number in range(SESSIONS)]
    wrong = [("POST", sessions, KEY, {"session_ids": "s"}), ("POST", sessions, None, {"session_id": "s"})]
    reads = [("GET", f"{user}/{name}", key, None) for name in READ for key in (appender, KEY, None)]
    same = [*wrong, *reads, ("GET", "/openapi.json", None, None), ("GET", "/problems/wrong-key", KEY, None)]
    with StartedWriter(writer_dsn, tmp_path / "log", api_key=KEY) as first:
        answers = await at_once(first, [*same, *creations])
        again = await at_once(first, same)
    refused = [401, "/problems/wrong-key"]
    expected = [[422, "/problems/invalid-request"], refused]
    expected += [[403, "/problems/role-missing"], [200], refused] * len(READ) + [[200]] * 2 + [[201]] * SESSIONS
    assert [outline(each) for each in answers] == expected
    by_made_routes = await at_once(writer, same)
    for at_first, later, usual in zip(answers, again, by_made_routes, strict=False):
        assert (at_first.status_code, at_first.text) == (later.status_code, later.text)
        assert (at_first.status_code, at_first.text) == (usual.status_code, usual.text)
    (found,) = await at_once(writer, [("GET", sessions, KEY, None)])
    assert {each["id"] for each in found.json()["sessions"]} == {f"s{number}" for number in range(SESSIONS)}


async def at_once(writer: WriterProcess, requests: list[tuple[str, str, str | None, Any]]) -> list[httpx.Response]:
    """Send requests, each of a method, a path, a key and a body, on connections of their own."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=writer.url, timeout=WAIT_SECONDS, limits=limits) as client:
        return await asyncio.gather(
            *(
                client.request(
                    method,
                    path,
                    headers={"X-Request-Id": "same"} | ({} if key is None else {"Authorization": f"Bearer {key}"}),
                    json=body,
                )
                for method, path, key, body in requests
            )
        )


def outline(response: httpx.Response) -> list[Any]:
    status = response.status_code
    return [status, problem(response)["type"]] if status >= 400 else [status]
