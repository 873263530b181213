"""The routes that erase, trace, pin, restore and explain memories, at a real writer."""

from __future__ import annotations

import uuid

import asyncpg
import httpx

from tests.support.api_rows import know, remember
from tests.support.forgetting_scene import scan
from tests.support.writer_process import append, problem, say


def refused(response: httpx.Response, slug: str, status: int) -> None:
    assert (problem(response)["type"], response.status_code) == (f"/problems/{slug}", status)


async def test_erasure_is_verified(
    client: httpx.AsyncClient, user: str, session: str, app: str, rows: asyncpg.Connection
) -> None:
    """A dry run, then events, a memory, a session and the user. Each response counts what was erased and what
    remains."""
    secret = f"okapi{uuid.uuid4().hex}"
    await append(client, session, say(f"one {secret}", id="e1"), say("two", id="e2"), say(f"three {secret}", id="e3"))
    memory = await remember(rows, app, f"Ann said {secret}")
    await know(rows, app, "pet", secret)
    shown = (await client.post(f"{user}/forget", json={"whole_user": True, "dry_run": True, "limit": 1})).json()
    assert shown["erasure"] is None
    tables = {each["table_name"]: each for each in shown["would_forget"]}
    assert (tables["events"]["rows"], len(tables["events"]["sample"])) == (3, 1)

    done = await client.post(f"{user}/forget", json={"session_id": "s1", "event_ids": ["e3"], "sequence_nums": [2]})
    assert done.status_code == 200, done.text
    erasure = done.json()["erasure"]
    assert (erasure["scope"], erasure["sequence_nums"], erasure["remaining"]) == ("events", [2, 3], {})
    events = (await client.get(f"{session}")).json()
    assert [event["event_type"] for event in events["events"]] == ["user_message", "erased", "erased"]
    done = await client.post(f"{user}/forget", json={"memory_id": str(memory)})
    assert done.json()["erasure"]["counts"] == {"memories": 1}
    await client.post(f"{user}/forget", json={"session_id": "s1"})
    done = await client.post(f"{user}/forget", json={"whole_user": True})
    erasure = done.json()["erasure"]
    assert erasure["finished_at"] is not None
    assert (await client.get(f"{user}/erasures/{erasure['id']}")).json() == erasure
    assert await scan(rows, secret) == {}


async def test_erasing_something_unknown_is_a_problem(client: httpx.AsyncClient, user: str, session: str) -> None:
    for body, slug, status in (
        ({}, "invalid-request", 422),
        ({"whole_user": True, "session_id": "s1"}, "invalid-request", 422),
        ({"sequence_nums": [1], "whole_user": True}, "invalid-request", 422),
        ({"memory_id": "x"}, "invalid-request", 422),
        ({"session_id": "nowhere"}, "session-not-found", 404),
        ({"session_id": "s1", "sequence_nums": [9]}, "memory-not-found", 404),
        ({"memory_id": str(uuid.uuid4())}, "memory-not-found", 404),
    ):
        refused(await client.post(f"{user}/forget", json=body), slug, status)
    unknown = uuid.uuid4()
    for path in (f"erasures/{unknown}", f"memories/{unknown}/origin", f"memories/{unknown}/retention"):
        refused(await client.get(f"{user}/{path}"), "memory-not-found", 404)
    refused(await client.get(f"{session}/events/7/drawn"), "memory-not-found", 404)
    refused(await client.put(f"{user}/memories/{unknown}/pin"), "memory-not-found", 404)
    refused(await client.delete(f"{user}/memories/{unknown}/pin"), "memory-not-found", 404)


async def test_a_memory_is_pinned_explained_traced_and_restored(
    client: httpx.AsyncClient, user: str, session: str, app: str, rows: asyncpg.Connection
) -> None:
    await append(client, session, say("I keep bees", id="e1"))
    memory = await remember(rows, app, "Ann keeps bees", days_old=40)
    await rows.execute(
        """UPDATE memories SET source_seqs = '{1}', from_seq = 1, upto_seq = 1, thread_id =
           (SELECT id FROM threads WHERE app_name = $2) WHERE id = $1""",
        memory, app,
    )  # fmt: skip
    traced = (await client.get(f"{user}/memories/{memory}/origin")).json()["origins"]
    assert [event["text"] for event in traced[0]["events"]] == ["I keep bees"]
    derived = (await client.get(f"{session}/events/1/drawn")).json()
    assert [each["id"] for each in derived["citing"]] == [str(memory)]
    explained = (await client.get(f"{user}/memories/{memory}/retention")).json()
    assert explained["falls_below_at"] < explained["now"]
    compared = (await client.get(f"/v1/apps/{app}/retention/compare", params={"preset": "knowledge"})).json()
    assert (compared["only_by_other"], compared["next_cursor"]) == (1, None)
    assert compared["differing"][0]["id"] == str(memory)
    asked = {"preset": "knowledge", "limit": 1}
    following = (await client.get(f"/v1/apps/{app}/retention/compare", params=asked)).json()["next_cursor"]
    last = (await client.get(f"/v1/apps/{app}/retention/compare", params={**asked, "cursor": following})).json()
    assert (last["differing"], last["next_cursor"], last["only_by_other"]) == ([], None, 1)
    counted = await client.get(f"/v1/apps/{app}/retention/compare", params={**asked, "limit": 0})
    assert (counted.json()["differing"], counted.json()["next_cursor"]) == ([], None)
    assert (await client.put(f"{user}/memories/{memory}/pin")).json() == {"pinned": True, "changed": True}
    assert (await client.delete(f"{user}/memories/{memory}/pin")).json() == {"pinned": False, "changed": True}

    await rows.execute("SELECT archive_weak_memories($1)", app)
    page = (await client.get(f"{user}/archive", params={"limit": 1})).json()
    assert [each["id"] for each in page["memories"]] == [str(memory)]
    last = await client.get(f"{user}/archive", params={"limit": 1, "cursor": page["next_cursor"]})
    assert last.json() == {"memories": [], "next_cursor": None}
    restored = await client.post(f"{user}/archive/restore", json={"memory_ids": [str(memory), str(uuid.uuid4())]})
    assert restored.json() == {"memory_ids": [str(memory)]}
    assert (await client.get(f"{user}/archive")).json() == {"memories": [], "next_cursor": None}
