"""What people examine over HTTP: a score, a window, a job's slice, a replay, the installation."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import asyncpg
import httpx
import pytest

from hippocampus.client import HippocampusClient, KeyRefusedError
from hippocampus.consolidation_worker import MemoryConsolidationWorker
from hippocampus.providers.local.provider import LocalEmbedder, LocalGenerator
from pulse import database
from pulse.api_keys import ApiKeyService
from tests.support.api_rows import know, remember
from tests.support.live_writer import serving
from tests.support.queue_claims import claim_next
from tests.support.waiting import WAIT_SECONDS
from tests.support.writer_process import KEY, WriterProcess, append, problem, say
from workers.telemetry import overview

ZEROS = dict.fromkeys("bm25 context_bm25 similarity context_similarity author recency retention question".split(), 0.0)


async def test_explained_search_names_the_parts_of_each_score(
    client: httpx.AsyncClient, user: str, session: str, app: str, rows: asyncpg.Connection
) -> None:
    """The parts add up to the score; with other weights the same parts are weighed; nothing counts as used."""
    await append(client, session, say("I moved to Lisbon in May", id="e1"), say("And who likes Lisbon?", id="e2"))
    await remember(rows, app, "Ann lives in Lisbon")
    await know(rows, app, "city", "Lisbon")

    async def search(**fields: Any) -> list[dict[str, Any]]:
        response = await client.post(f"{user}/search", json={"query": "Lisbon", **fields})
        assert response.status_code == 200, response.text
        found: list[dict[str, Any]] = response.json()["results"]
        return found

    plain, explained = await search(limit=9), await search(limit=9, explain=True)
    assert [each["why"].pop("parts") for each in plain] == [None] * len(plain)
    for each in explained:
        parts = each["why"].pop("parts")
        assert set(parts) == {*ZEROS, "answered", "moved"}
        assert each["score"] == pytest.approx(sum(parts.values()), abs=1e-9)
    asks = next(each for each in explained if each["content"].endswith("?"))
    assert [each["memory_id"] for each in explained] == [each["memory_id"] for each in plain]
    assert asks["source"] == "message"
    alone = await search(limit=9, explain=True, weights={**ZEROS, "retention": 1.0})
    for each in alone:
        assert {name for name, part in each["why"]["parts"].items() if part} <= {"retention", "answered", "moved"}
    counted = await rows.fetchval("SELECT sum(access_count) FROM memories WHERE app_name = $1", app)
    assert counted == 1  # by the plain search
    refused = await client.post(f"{user}/search", json={"query": "x", "weights": ZEROS})
    assert problem(refused)["type"] == "/problems/invalid-request"


async def test_explained_window_returns_what_was_left_out(
    client: httpx.AsyncClient, user: str, session: str, app: str, rows: asyncpg.Connection
) -> None:
    """A window too small for two memories names the one that was left out, with its text, and counts no use."""
    texts = {f"Ann {word} in Lisbon, " + "as she has told us many times " * 3 for word in ("lives", "works")}
    for text in texts:
        await remember(rows, app, text)

    async def left_out(**fields: Any) -> set[str | None]:
        body = {"query": "Lisbon", "max_tokens": 60, **fields}
        response = await client.post(f"{user}/context", json=body)
        assert response.status_code == 200, response.text
        return {each["content"] for each in response.json()["left_out"]}

    explained = await left_out(explain=True)
    assert len(explained) == 1
    assert explained < texts
    assert await rows.fetchval("SELECT sum(access_count) FROM memories WHERE app_name = $1", app) == 0
    assert await left_out() == {None}


async def test_job_shows_its_slice_and_a_replay_what_would_change(dsn: str) -> None:
    """Before a job ran its slice is shown, afterwards the rows that it wrote, and its cost; a replay by small calls
    ends in a comparison that changes nothing, then in the swap. Another user has no such job."""
    async with (
        serving(dsn, {}) as live,
        httpx.AsyncClient(base_url=live.url, timeout=WAIT_SECONDS) as client,
        HippocampusClient(live.url, app_name="shop") as library,
    ):
        session = "/v1/apps/shop/users/ann/sessions/s1"
        assert (await client.post(session.removesuffix("/s1"), json={"session_id": "s1"})).status_code == 201
        await append(client, session, say("My name is Ann and I live in Lisbon.", id="e1"), say("I like tea.", id="e2"))
        job_id = (await client.post(f"{session}/jobs", json={})).json()["job_id"]
        waiting = await library.job_effects("ann", job_id)
        assert (waiting["session_id"], waiting["from_seq"], waiting["upto_seq"]) == ("s1", 1, 2)
        assert [each["content"] for each in waiting["turns"]] == ["My name is Ann and I live in Lisbon.", "I like tea."]
        assert waiting["written"] == []
        claim = await claim_next(live.pool)
        assert claim is not None
        worker = MemoryConsolidationWorker(live.pool, LocalGenerator(), LocalEmbedder())
        await worker.run(uuid.UUID(job_id), claim)
        ended = await library.job_effects("ann", job_id)
        assert (ended["from_seq"], ended["upto_seq"], ended["turn_count"]) == (1, 2, 2)
        assert {each["source"] for each in ended["written"]} == {"memory", "fact_version"}
        assert {each["job_id"] for each in ended["written"]} == {job_id}
        assert (
            problem(await client.get(f"/v1/apps/shop/users/bob/jobs/{job_id}/effects"))["type"]
            == "/problems/job-not-found"
        )

        activity = await library.activity(hours=2, days=2)
        (cost,) = activity["days"]
        assert (cost["app_name"], cost["jobs"], cost["embed_calls"]) == ("shop", 1, 2)
        assert (cost["usage"], activity["prices"]["models"]) == ([], {})
        spent = {"generate_calls": 2, "prompt_tokens": 900, "output_tokens": 80, "model": "a-model"}
        await live.pool.execute("UPDATE consolidation_jobs SET result = result || $1", {"cost": spent})
        (costly,) = await overview.day_costs(live.pool, 2)
        assert costly.usage == [{"model": "a-model", "prompt_tokens": 900, "output_tokens": 80}]
        assert [sum(each[name] for each in activity["hours"]) for name in ("turns", "jobs_completed")] == [2, 1]
        assert len(activity["hours"]) == 2

        first = await library.replay("ann", slices=1)
        assert (first["is_complete"], first["changes"]) == (False, [])
        diff = await library.replay("ann", slices=20)
        assert (diff["is_complete"], diff["applied"]) == (True, False)
        assert {each["change"] for each in diff["changes"]} == {"kept"}
        assert (await library.replay("ann", apply=True))["applied"]

        # The turns of an expired session are shown no more, not even before the upkeep deletes them.
        await live.pool.execute(
            "UPDATE threads SET ttl = '1 minute', expires_at = now(), updated_at = now() - interval '1 hour'"
        )
        gone = await client.get(f"/v1/apps/shop/users/ann/jobs/{job_id}/effects")
        assert problem(gone)["type"] == "/problems/job-not-found"


async def test_installation_is_for_keys_of_every_app(writer: WriterProcess, writer_dsn: str, app: str) -> None:
    """The overview needs the role read in every app, the list of keys the role admin: an app's key reads neither, not
    even if it names its app. No secret is listed."""
    async with await database.create_pool(writer_dsn) as pool:
        keys = ApiKeyService(pool)
        reader = await keys.create(None, ["read"], name=app)
        bound = await keys.create(app, ["admin"])
    operator, only, stranger = (
        HippocampusClient(writer.url, text, app_name=app) for text in (KEY, reader.text, bound.text)
    )
    async with operator, only, stranger:
        overview = await only.overview()
        assert set(overview) == {
            "processes", "missing_roles", "queues", "lag", "breakers", "limits", "refused_texts", "failed_jobs",
            "pulse_scopes", "oldest_webhook_seconds",
        }  # fmt: skip
        # One reading for all who ask within some seconds: also its ages are the same.
        assert await asyncio.gather(*(operator.overview() for _ in range(3))) == [overview] * 3
        listed = [each async for each in operator.api_keys(page_size=1)]
        assert {reader.key.id, bound.key.id} <= {each.id for each in listed}
        assert len({each.id for each in listed}) == len(listed)
        with pytest.raises(KeyRefusedError):
            _ = [each async for each in only.api_keys()]
        for call in (stranger.overview(), stranger.activity()):
            with pytest.raises(KeyRefusedError):
                await call
    headers = {"Authorization": f"Bearer {bound.text}"}
    async with httpx.AsyncClient(base_url=writer.url, headers=headers, timeout=WAIT_SECONDS) as client:
        response = await client.get("/api/installation/overview", params={"app_name": app})
        assert problem(response)["type"] == "/problems/wrong-app"
