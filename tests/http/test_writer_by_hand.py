"""The routes by which people write, at a real writer, and their client."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import httpx
import pytest

from hippocampus.client import HippocampusClient, InvalidRequestError, KeyRefusedError, NotFoundError
from tests.support.key_scene import made
from tests.support.writer_process import WriterProcess, problem


async def test_a_fact_is_written_corrected_confirmed_and_retired(client: httpx.AsyncClient, user: str) -> None:
    """Each step is seen by the list, and the history says who took it."""
    written = await client.post(f"{user}/facts", json={"key": "home_city", "value": "Lyon", "by": "support"})
    assert written.status_code == 200, written.text
    fact = written.json()["ids"][0]
    assert written.json() == {"kind": "fact", "ids": [fact], "changed": True}
    again = await client.post(f"{user}/facts", json={"key": "home_city", "value": "Lyon"})
    assert again.json() == {"kind": "fact", "ids": [fact], "changed": False}
    for verb, body in (
        ("correct", {"value": "Nice", "by": "ann"}),
        ("confirm", {"by": "bo"}),
        ("retire", {"by": "cy"}),
    ):
        done = await client.post(f"{user}/memories/{fact}/{verb}", json=body)
        assert (done.status_code, done.json()["changed"]) == (200, True), done.text
    assert (await client.get(f"{user}/facts")).json()["facts"] == []
    versions = (await client.get(f"{user}/facts/profile/home_city/history")).json()["versions"]
    assert [(v["value"], v["written_by"], v["confirmed_by"], v["superseded_by"]) for v in versions] == [
        ("Nice", "ann", "bo", "cy"),
        ("Lyon", "support", None, "ann"),
    ]


async def test_a_memory_is_written_and_found(client: httpx.AsyncClient, user: str) -> None:
    """A search finds it at once; corrected and retired, it does not."""
    body = {"content": "Ann signs as Zanzibar.", "name": "sign", "importance": "low", "metadata": {"desk": 3}}
    written = (await client.post(f"{user}/memories", json=body)).json()
    found = (await client.post(f"{user}/search", json={"query": "Zanzibar"})).json()["results"]
    assert [each["memory_id"] for each in found] == written["ids"]
    (listed,) = (await client.get(f"{user}/memories")).json()["memories"]
    assert listed["metadata"] == {"desk": 3, "source": "by hand", "by": ""}
    path = f"{user}/memories/{written['ids'][0]}"
    corrected = (await client.post(f"{path}/correct", json={"value": "Ann signs as Ann."})).json()
    assert (corrected["changed"], corrected["ids"] != written["ids"]) == (True, True)
    await client.post(f"{user}/memories/{corrected['ids'][0]}/retire", json={})
    assert (await client.get(f"{user}/memories")).json()["memories"] == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("memories", {"content": ""}),
        ("memories", {"content": " "}),
        ("memories", {"content": "x", "importance": "huge"}),
        ("facts", {"key": "home_city", "value": None}),
        ("facts", {"key": "", "value": "x"}),
        ("facts", {"key": "home_city", "value": "x", "since": "2999-01-01T00:00:00Z"}),
        ("facts", {"key": "home_city", "value": "x", "by": "y" * 256}),
    ],
)
async def test_bad_input_writes_nothing(client: httpx.AsyncClient, user: str, path: str, body: object) -> None:
    refused = await client.post(f"{user}/{path}", json=body)
    assert (problem(refused)["type"], refused.status_code) == ("/problems/invalid-request", 422)
    assert (await client.get(f"{user}/facts")).json()["facts"] == []
    assert (await client.get(f"{user}/memories")).json()["memories"] == []


async def test_an_unknown_id_is_a_problem(client: httpx.AsyncClient, user: str) -> None:
    for verb, body in (("correct", {"value": "x"}), ("retire", {}), ("confirm", {})):
        refused = await client.post(f"{user}/memories/{uuid.uuid4()}/{verb}", json=body)
        assert (problem(refused)["type"], refused.status_code) == ("/problems/memory-not-found", 404)


async def test_the_client_writes(writer: WriterProcess, writer_dsn: str, app: str) -> None:
    """Each method, with the key that it needs; one that only appends may neither correct nor retire."""
    admin, appends = await made(writer_dsn, app, "admin"), await made(writer_dsn, app, "append", "read")
    async with (
        HippocampusClient(writer.url, admin.text, app_name=app) as client,
        HippocampusClient(writer.url, appends.text, app_name=app) as agent,
    ):
        home = await agent.remember_fact("ann", "home_city", "Lyon", since=datetime(2024, 5, 1, tzinfo=UTC), by="bot")
        assert (await agent.confirm("ann", home.ids[0])).changed
        for refused in (agent.correct("ann", home.ids[0], "Nice"), agent.retire("ann", home.ids[0])):
            with pytest.raises(KeyRefusedError):
                await refused
        await client.correct("ann", home.ids[0], "Nice", by="ann")
        assert [each.value async for each in client.facts("ann")] == ["Nice"]
        assert [each.written_by async for each in client.fact_history("ann", "profile", "home_city")] == ["ann", "bot"]
        note = await agent.remember("ann", "Ann signs as Ann B.", name="sign", metadata={"desk": 3})
        assert note == await agent.remember("ann", "Ann signs as Ann B.", name="sign")
        assert (await client.retire("ann", note.ids[0])).changed
        assert not (await client.retire("ann", note.ids[0])).changed
        with pytest.raises(NotFoundError):
            await client.retire("ann", str(uuid.uuid4()))
        with pytest.raises(InvalidRequestError):
            await client.remember_fact("ann", "home_city", None)


@pytest.mark.parametrize(
    ("owner", "reason"),
    [
        ("shop/users/%20%20", "user_id is blank"),
        ("%20/users/ann", "app_name is blank"),
        ("*/users/ann", "app_name '*' stands for the policy of all apps"),
    ],
)
async def test_nothing_is_written_for_a_blank_user_or_the_app_of_all(
    client: httpx.AsyncClient, owner: str, reason: str
) -> None:
    """Each route says the same."""
    for route, body in (("memories", {"content": "Turin"}), ("facts", {"key": "k", "value": 1}), ("sessions", {})):
        refused = problem(await client.post(f"/v1/apps/{owner}/{route}", json=body))
        assert (refused["status"], reason in refused["detail"]) == (422, True), (route, refused)
