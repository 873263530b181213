"""The memory API at a real writer: search, memories, facts, jobs, retention, metrics."""

from __future__ import annotations

import asyncio
import re
import uuid
from datetime import datetime
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from hippocampus.client import HippocampusClient
from hippocampus.providers.local.embedding import LocalEmbedder
from tests.support.api_rows import know, remember
from tests.support.fake_gemini import FakeGemini
from tests.support.waiting import WAIT_SECONDS, until
from tests.support.writer_process import KEY, WriterProcess, append, problem, say


async def enqueue(client: httpx.AsyncClient, session: str, job_type: str = "deep_reflection") -> str:
    response = await client.post(f"{session}/jobs", json={"job_type": job_type})
    assert response.status_code == 202, response.text
    return str(response.json()["job_id"])


async def test_search_finds_new_turns_memories_and_facts(
    client: httpx.AsyncClient, user: str, session: str, app: str, rows: asyncpg.Connection
) -> None:
    """The next call finds a turn, a memory and a fact, with the matched terms. Another user finds nothing."""
    await append(client, session, say("I moved to Lisbon in May", id="e1"))
    memory_id = await remember(rows, app, "Ann lives in Lisbon")
    await know(rows, app, "city", "Lisbon")
    found = (await client.post(f"{user}/search", json={"query": "Lisbon"})).json()
    assert {result["source"] for result in found["results"]} == {"message", "memory", "fact"}
    assert found["total_count"] == 3
    assert found["degraded"] is None
    by_source = {result["source"]: result for result in found["results"]}
    assert by_source["message"]["session_id"] == "s1"
    assert by_source["message"]["why"]["matched_terms"] == ["lisbon"]
    assert by_source["memory"]["memory_id"] == str(memory_id)
    assert by_source["memory"]["metadata"] == {"k": {"$hippocampus": ["float", "nan"]}}
    other = await client.post(f"/v1/apps/{app}/users/bob/search", json={"query": "Lisbon"})
    assert other.json()["results"] == []


async def test_search_can_be_narrowed(
    client: httpx.AsyncClient, user: str, session: str, app: str, rows: asyncpg.Connection
) -> None:
    """By sources, session, time and metadata, and with the caller's own vector."""
    await append(client, session, say("tea is nice"))
    await remember(rows, app, "Ann likes tea")

    async def sources(**fields: Any) -> list[str]:
        response = await client.post(f"{user}/search", json={"query": "tea", **fields})
        assert response.status_code == 200, response.text
        return sorted(result["source"] for result in response.json()["results"])

    assert await sources() == ["memory", "message"]
    assert await sources(sources=["memory"]) == ["memory"]
    assert await sources(memory_types=["summary"]) == []
    assert await sources(session_id="s1") == ["message"]
    assert await sources(until="2020-01-01T00:00:00Z") == []
    assert await sources(since="2020-01-01T00:00:00+02:00") == ["memory", "message"]
    assert await sources(metadata={"k": {"$hippocampus": ["float", "nan"]}}, sources=["memory"]) == ["memory"]
    embedder = LocalEmbedder()
    (vector,) = await embedder.embed(["tea"], "query")
    assert "memory" in await sources(query_embedding=vector, embedding_model=embedder.model)


async def test_search_is_narrowed_by_the_metadata_of_turns_and_of_their_facts(
    client: httpx.AsyncClient, user: str, session: str, app: str, rows: asyncpg.Connection
) -> None:
    """A turn has the metadata of its event; a fact matches by the turns that it was extracted from."""
    await append(client, session, say("plum jam", metadata={"shop": 7, "paid": True}), say("plum cake", metadata={}))
    for number, key in enumerate(("jam", "cake"), 1):
        await know(rows, app, key, "plum")
        await rows.execute(
            """UPDATE facts SET thread_id = t.id, source_seqs = $3, from_seq = $4, upto_seq = $4 FROM threads AS t
               WHERE facts.app_name = $1 AND facts.key = $2 AND t.app_name = $1""",
            *(app, key, [number], number),
        )

    async def found(**fields: Any) -> set[tuple[str, str]]:
        response = await client.post(f"{user}/search", json={"query": "plum", **fields})
        assert response.status_code == 200, response.text
        return {(result["source"], result["content"]) for result in response.json()["results"]}

    jam = {("message", "plum jam"), ("fact", "jam: plum")}
    assert await found() == jam | {("message", "plum cake"), ("fact", "cake: plum")}
    assert await found(metadata={"shop": 7}) == jam
    assert await found(metadata={"shop": 7, "paid": True}, sources=["fact"]) == {("fact", "jam: plum")}
    assert await found(metadata={"shop": 7}, sources=["message"]) == {("message", "plum jam")}
    assert await found(metadata={"shop": 8}) == set()


async def test_context_is_packed_into_its_budget(
    client: httpx.AsyncClient, user: str, session: str, app: str, rows: asyncpg.Connection
) -> None:
    """It contains the system prompt, facts, memories and the newest turn. A prompt over the budget is refused."""
    await append(client, session, say("I moved to Lisbon in May"), say("What is the weather there?"))
    await remember(rows, app, "Ann lives in Lisbon")
    await know(rows, app, "city", "Lisbon")
    body = {"query": "Lisbon", "session_id": "s1", "system_prompt": "Be brief.", "max_tokens": 300}
    window = (await client.post(f"{user}/context", json=body)).json()
    for part in ("Be brief.", "What is the weather there?", "Ann lives in Lisbon", "city: Lisbon", "## User"):
        assert part in window["text"]
    assert window["total_tokens"] <= 300
    assert sum(section["items"] for section in window["account"]) == len(window["items"])
    refused = await client.post(f"{user}/context", json={**body, "max_tokens": 1})
    assert refused.status_code == 422
    assert problem(refused)["type"] == "/problems/context-budget"
    stranger = await client.post(f"/v1/apps/{app}/users/bob/context", json=body)
    assert problem(stranger)["type"] == "/problems/session-not-found"


async def test_context_and_recall_are_written_as_requested(
    client: httpx.AsyncClient, user: str, session: str, app: str, rows: asyncpg.Connection
) -> None:
    """In the caller's language and template, or in the conversation's language; recall has no history and no prompt."""
    await append(client, session, say("I moved to Lisbon in May"))
    await know(rows, app, "city", "Lisbon")
    body = {"query": "Lisbon", "session_id": "s1", "template": "messages", "system_prompt": "Be brief."}
    window = (await client.post(f"{user}/context", json=body)).json()
    assert [message["role"] for message in window["messages"]] == ["system", "user", "user"]
    assert window["messages"][-1]["content"] == "I moved to Lisbon in May"
    assert window["language"] == "en"
    chinese = (await client.post(f"{user}/context", json={**body, "template": "xml", "language": "zh"})).json()
    assert (chinese["messages"], chinese["language"]) == ([], "zh")
    assert '<turn speaker="用户">I moved to Lisbon in May</turn>' in chinese["text"]
    found = (await client.post(f"{user}/recall", json={"query": "Lisbon", "max_tokens": 200})).json()
    assert found["text"].startswith("## User preferences")
    assert "I moved to Lisbon in May" in found["text"]
    assert found["total_tokens"] <= 200
    nothing = (await client.post(f"/v1/apps/{app}/users/bob/recall", json={"query": "Lisbon"})).json()
    assert (nothing["text"], nothing["total_tokens"]) == ("", 0)


async def test_a_question_is_asked_at_a_time_of_a_zone(client: httpx.AsyncClient, user: str, session: str) -> None:
    """At half past midnight in Tokyo, 'yesterday' is Tokyo's, by the zone's name and by the offset of the time."""
    told = {"Alien": "2022-04-30T10:00:00+00:00", "Brazil": "2022-05-01T10:00:00+00:00"}
    for film, moment in told.items():
        timestamp = datetime.fromisoformat(moment).timestamp()
        await append(client, session, {**say(f"I watched the film {film}"), "timestamp": timestamp})
    question = "What happened yesterday?"
    for film, when in (
        ("Alien", {"asked_at": "2022-05-01T15:30:00Z"}),
        ("Brazil", {"asked_at": "2022-05-01T15:30:00Z", "time_zone": "Asia/Tokyo"}),
        ("Brazil", {"asked_at": "2022-05-02T00:30:00+09:00"}),
    ):
        found = (await client.post(f"{user}/search", json={"query": question, **when})).json()["results"]
        assert found[0]["content"].endswith(film)
        window = (await client.post(f"{user}/context", json={"query": question, **when})).json()["items"]
        assert max(window, key=lambda item: item["relevance_score"])["content"].endswith(film)
        recalled = (await client.post(f"{user}/recall", json={"query": question, "max_tokens": 30, **when})).json()
        assert re.findall("Alien|Brazil", recalled["text"]) == [film]
        asked = {"question": question, "max_answer_tokens": 50, **when}
        answer = (await client.post(f"{user}/ask", json=asked)).json()
        assert film in answer["text"]
    away = {"time_zone": "Pacific/Kiritimati"}
    for path, name in (("context", "query"), ("recall", "query"), ("ask", "question")):
        written = (await client.post(f"{user}/{path}", json={name: "Which films?", **away})).json()["text"]
        assert re.findall(r"^\d+ May.*", written, re.MULTILINE) == ["1 May 2022", "2 May"]
    for path, name in (("search", "query"), ("context", "query"), ("recall", "query"), ("ask", "question")):
        refused = await client.post(f"{user}/{path}", json={name: question, "time_zone": "Mars"})
        assert refused.status_code == 422
        assert "no time zone 'Mars'" in refused.text


async def test_memories_are_listed_page_by_page(
    client: httpx.AsyncClient, user: str, app: str, rows: asyncpg.Connection
) -> None:
    """Three memories in pages of two, with their strength and exact metadata, and without vectors."""
    for number in range(3):
        await remember(rows, app, f"memory {number}")
    first = (await client.get(f"{user}/memories", params={"limit": 2})).json()
    second = (await client.get(f"{user}/memories", params={"limit": 2, "cursor": first["next_cursor"]})).json()
    assert len({each["content"] for each in first["memories"] + second["memories"]}) == 3
    assert second["next_cursor"] is None
    assert 0 < first["memories"][0]["retention_score"] <= 1
    assert first["memories"][0]["metadata"] == {"k": {"$hippocampus": ["float", "nan"]}}
    assert "embedding" not in first["memories"][0]
    none = (await client.get(f"{user}/memories", params={"since": "2999-01-01T00:00:00Z"})).json()
    assert none["memories"] == []


async def test_facts_and_their_history(
    client: httpx.AsyncClient, user: str, app: str, rows: asyncpg.Connection
) -> None:
    """The current value, and every statement about one key. An unknown key is 404, and so is another user's."""
    await know(rows, app, "favourite/tea", "green")
    facts = (await client.get(f"{user}/facts")).json()["facts"]
    assert [(fact["fact_type"], fact["key"], fact["value"]) for fact in facts] == [
        ("profile", "favourite/tea", "green")
    ]
    first = (await client.get(f"{user}/facts/profile/favourite%2Ftea/history", params={"limit": 1})).json()
    assert [(version["outcome"], version["value"]) for version in first["versions"]] == [("current", "green")]
    after = {"limit": 1, "cursor": first["next_cursor"]}
    rest = (await client.get(f"{user}/facts/profile/favourite%2Ftea/history", params=after)).json()
    assert rest == {"versions": [], "next_cursor": None}
    before = (await client.get(f"{user}/facts", params={"as_of": "2020-01-01T00:00:00Z"})).json()["facts"]
    assert before == []
    for path in (f"{user}/facts/rule/x/history", f"/v1/apps/{app}/users/bob/facts/profile/favourite%2Ftea/history"):
        assert problem(await client.get(path))["type"] == "/problems/not-found"


async def test_jobs_are_enqueued_listed_cancelled_and_retried(
    client: httpx.AsyncClient, user: str, session: str, app: str, rows: asyncpg.Connection
) -> None:
    """The life cycle of a job over HTTP. A second enqueue joins the first."""
    await append(client, session, say("hi"))
    job_id = await enqueue(client, session)
    assert await enqueue(client, session) == job_id
    job = (await client.get(f"{user}/jobs/{job_id}")).json()
    assert (job["job_type"], job["status"], job["error"]) == ("deep_reflection", "pending", None)

    waiting = await client.post(f"{user}/jobs/{job_id}/retry")
    assert waiting.status_code == 409, waiting.text
    assert problem(waiting)["type"] == "/problems/job-not-failed"

    # As a worker leaves a job that has failed permanently.
    for status in ("doing", "failed"):
        await rows.execute(
            "UPDATE procrastinate_jobs SET status = $2::procrastinate_job_status WHERE id ="
            " (SELECT procrastinate_job_id FROM consolidation_jobs WHERE id = $1)",
            uuid.UUID(job_id),
            status,
        )
    await rows.execute("UPDATE consolidation_jobs SET error_code = '503' WHERE id = $1", uuid.UUID(job_id))
    wanted = {"status": "failed", "session_id": "s1", "error_code": "503"}
    failed = (await client.get(f"{user}/jobs", params=wanted)).json()["jobs"]
    assert [(each["id"], each["error_code"]) for each in failed] == [(job_id, "503")]
    assert (await client.get(f"{user}/jobs", params={"error_code": "400"})).json()["jobs"] == []
    again = await client.post(f"{user}/jobs/{job_id}/retry")
    assert (again.status_code, again.json()["status"]) == (200, "pending")
    cancelled = await client.post(f"{user}/jobs/{job_id}/cancel")
    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
    ended = await client.post(f"{user}/jobs/{job_id}/cancel")
    assert ended.json()["status"] == "cancelled"


async def test_jobs_are_listed_page_by_page(client: httpx.AsyncClient, user: str, session: str) -> None:
    """Newest first, after the id of the last one read."""
    await append(client, session, say("hi"))
    made = [await enqueue(client, session, job_type) for job_type in ("fast", "deep", "full_consolidation")]
    first = (await client.get(f"{user}/jobs", params={"limit": 2})).json()
    second = (await client.get(f"{user}/jobs", params={"limit": 2, "cursor": first["next_cursor"]})).json()
    assert [job["id"] for job in first["jobs"] + second["jobs"]] == made[::-1]
    assert second["next_cursor"] is None
    only = (await client.get(f"{user}/jobs", params={"job_type": "fast_replay"})).json()["jobs"]
    assert [job["id"] for job in only] == made[:1]


async def test_unknown_job_type_lists_the_known_ones(client: httpx.AsyncClient, session: str) -> None:
    """Nothing is enqueued for a worker that does not exist."""
    response = await client.post(f"{session}/jobs", json={"job_type": "dream"})
    assert response.status_code == 422
    assert problem(response)["type"] == "/problems/unknown-job-type"
    for known in ("fast_replay", "deep_reflection", "full_consolidation"):
        assert known in response.json()["detail"]


async def test_another_users_jobs_are_reported_as_not_found(client: httpx.AsyncClient, session: str, app: str) -> None:
    """No other user or app can read, cancel or enqueue them."""
    await append(client, session, say("hi"))
    job_id = await enqueue(client, session)
    for stranger in (f"/v1/apps/{app}/users/bob", f"/v1/apps/{app}x/users/ann"):
        refusals = [
            await client.get(f"{stranger}/jobs/{job_id}"),
            await client.post(f"{stranger}/jobs/{job_id}/cancel"),
            await client.post(f"{stranger}/jobs/{job_id}/retry"),
        ]
        assert {problem(response)["type"] for response in refusals} == {"/problems/job-not-found"}
        enqueued = await client.post(f"{stranger}/sessions/s1/jobs", json={})
        assert problem(enqueued)["type"] == "/problems/session-not-found"
        assert (await client.get(f"{stranger}/jobs")).json()["jobs"] == []
    mine = await client.get(f"{session.removesuffix('/sessions/s1')}/jobs/{job_id}")
    assert mine.json()["status"] == "pending"


async def test_retention_dry_run_explains_and_changes_nothing(
    client: httpx.AsyncClient, app: str, rows: asyncpg.Connection
) -> None:
    """A faded memory is shown with its score and threshold, a fresh one is not."""
    weak = await remember(rows, app, "long ago", days_old=300)
    await remember(rows, app, "today")
    shown = (await client.get(f"/v1/apps/{app}/retention/dry-run")).json()["memories"]
    assert [each["id"] for each in shown] == [str(weak)]
    assert shown[0]["score"] < shown[0]["threshold"]
    assert shown[0]["age_days"] > 299
    assert await rows.fetchval("SELECT count(*) FROM memories WHERE app_name = $1", app) == 2


WRONG: list[tuple[str, str, dict[str, Any] | None]] = [
    ("POST", "/search", {"query": "   "}),
    ("POST", "/search", {"query": ""}),
    ("POST", "/search", {"query": "x" * 32_769}),
    ("POST", "/search", {"query": "x", "limit": 0}),
    ("POST", "/search", {"query": "x", "limit": 1001}),
    ("POST", "/search", {"query": "x", "query_embedding": [1.0] * 4001, "embedding_model": "m"}),
    ("POST", "/search", {"query": "x", "sources": ["dreams"]}),
    ("POST", "/search", {"query": "x", "sources": []}),
    ("POST", "/search", {"query": "x", "since": "2026-01-01T00:00:00"}),
    ("POST", "/search", {"query": "x", "since": 5}),
    ("POST", "/search", {"query": "x", "min_relevance": 1.1}),
    ("POST", "/search", {"query": "x", "qurey": 1}),
    ("POST", "/context", {"query": "x", "max_tokens": 0}),
    ("POST", "/context", {"query": "x", "language": "fr"}),
    ("POST", "/context", {"query": "x", "template": "yaml"}),
    ("POST", "/recall", {"query": "x", "max_tokens": 0}),
    ("POST", "/recall", {"query": "x", "asked_at": "2026-01-01T00:00:00"}),
    ("POST", "/recall", {"query": "x", "asked_at": 5}),
    ("POST", "/context", {"query": "x", "time_zone": ""}),
    ("POST", "/recall", {"query": "x", "session_id": "s1"}),
    ("POST", "/context", {"query": "x", "query_embedding": [0.0] * 1535}),
    ("POST", "/context", {"qurey": "x"}),
    ("GET", "/memories?memory_type=dream", None),
    ("GET", "/memories?cursor=nonsense", None),
    ("GET", "/memories?since=yesterday", None),
    ("GET", "/facts?fact_type=dream", None),
    ("GET", "/facts?as_of=2026-01-01T00:00:00", None),
    ("GET", "/facts/dream/x/history", None),
    ("GET", "/jobs?status=lost", None),
    ("GET", "/jobs?cursor=bm9uc2Vuc2U=", None),
    ("GET", "/jobs/5", None),
]


@pytest.mark.parametrize(("method", "path", "body"), WRONG)
async def test_invalid_arguments_are_a_problem(
    client: httpx.AsyncClient, user: str, method: str, path: str, body: dict[str, Any] | None
) -> None:
    """The problem names the argument that is out of bounds."""
    response = await client.request(method, f"{user}{path}", json=body)
    assert response.status_code == 422, response.text
    assert problem(response)["type"] == "/problems/invalid-request"


async def test_metrics_are_discovered_and_count_requests(
    writer: WriterProcess, client: httpx.AsyncClient, session: str, user: str, app: str
) -> None:
    """The writer lists its own address for Prometheus, and counts appends, conflicts and requests without names."""
    address = writer.metrics_address

    async def is_listed() -> bool:
        groups = (await client.get("/metrics/targets")).json()
        return any(address in group["targets"] for group in groups if group["labels"] == {"role": "writer"})

    await until(is_listed)

    async def metric(line: str) -> float:
        async with httpx.AsyncClient(timeout=WAIT_SECONDS) as scraper:
            text = (await scraper.get(f"http://{address}/metrics")).text
        assert app not in text
        assert "/users/ann" not in text
        values = [row.rpartition(" ")[2] for row in text.splitlines() if row.startswith(f"{line} ")]
        return float(values[0]) if values else 0.0

    route = "/v1/apps/{app_name}/users/{user_id}/sessions/{session_id}/events"
    conflicts = f'writer_requests_total{{method="POST",route="{route}",status="409"}}'
    before = [await metric(name) for name in ("events_appended_total", "version_conflicts_total", conflicts)]
    await append(client, session, say("a", id="a"), say("b", id="b"))
    await append(client, session, say("a", id="a"))
    await append(client, session, say("c"), expected_version=0)
    after = [await metric(name) for name in ("events_appended_total", "version_conflicts_total", conflicts)]
    assert [new - old for new, old in zip(after, before, strict=True)] == [2, 1, 1]


async def test_a_query_that_gemini_cannot_embed_is_searched_by_its_words(writer_dsn: str, tmp_path: Path) -> None:
    """After the model's 429, the response and the counter both report that only text was searched."""
    authorized = {"Authorization": f"Bearer {KEY}"}
    async with FakeGemini() as gemini, httpx.AsyncClient(headers=authorized, timeout=WAIT_SECONDS) as client:
        process = WriterProcess(
            writer_dsn,
            tmp_path / "log",
            api_key=KEY,
            provider="gemini",
            provider_api_key="k",
            provider_base_url=gemini.base_url,
            query_embed_seconds="60",
        )
        await asyncio.to_thread(process.__enter__)
        try:
            user = f"{process.url}/v1/apps/app-{uuid.uuid4().hex[:8]}/users/ann"
            (await client.post(f"{user}/sessions", json={"session_id": "s1"})).raise_for_status()
            await append(client, f"{user}/sessions/s1", say("The umbrella is blue", id="e1"))
            found = (await client.post(f"{user}/search", json={"query": "umbrella"})).json()
            assert (found["degraded"], len(found["results"])) == (None, 1)

            gemini.script("rate_limit", operation="*", times=50)
            found = (await client.post(f"{user}/search", json={"query": "umbrella"})).json()
            assert [result["content"] for result in found["results"]] == ["The umbrella is blue"]
            assert "text alone was searched" in found["degraded"]
            window = (await client.post(f"{user}/context", json={"query": "umbrella", "session_id": "s1"})).json()
            assert "text alone was searched" in window["degraded"]

            page = (await client.get(f"http://{process.metrics_address}/metrics")).text
            counted = re.findall(r'^search_degraded_total\{reason="\w+"\} (\d+)', page, re.MULTILINE)
            assert sum(map(int, counted)) == 2
        finally:
            await asyncio.to_thread(process.__exit__, None, None, None)


async def test_candidates_and_merges_are_listed_and_decided(
    client: httpx.AsyncClient, user: str, app: str, rows: asyncpg.Connection, writer: WriterProcess
) -> None:
    """A candidate is promoted, and a merged key is split. Other users' candidates and merges are not found."""
    for key, value, confidence in (("favourite food", "sushi", 0.9), ("food_preference", "ramen", 0.3)):
        await rows.execute(
            """SELECT record_fact(
                   ROW(t.*)::threads, ROW(NULL, 1, 1, NULL, NULL, NULL)::slice_origin,
                   ROW('preference', $2, to_jsonb($3::text), $2, NULL, $4, '{1}', now(), 'favorite food', NULL, ''
                   )::fact_input)
               FROM (SELECT (jsonb_populate_record(NULL::threads,
                         jsonb_build_object('app_name', $1::text, 'user_id', 'ann'))).*) AS t""",
            app, key, value, confidence,
        )  # fmt: skip
    (candidate,) = (await client.get(f"{user}/fact-candidates")).json()["candidates"]
    assert (candidate["value"], candidate["held_value"], candidate["key"]) == ("ramen", "sushi", "favourite food")
    async with HippocampusClient(writer.url, KEY, app_name=app) as typed:
        (listed,) = [each async for each in typed.fact_candidates("ann")]
    assert (listed.id, listed.value, listed.fact_id) == (candidate["id"], "ramen", candidate["fact_id"])
    stranger = f"/v1/apps/{app}/users/bob"
    refused = await client.post(f"{stranger}/fact-candidates/{candidate['id']}/promote")
    assert problem(refused)["type"] == "/problems/not-found"
    promoted = await client.post(f"{user}/fact-candidates/{candidate['id']}/promote")
    assert promoted.json() == {"fact_id": candidate["fact_id"]}
    (merge,) = (await client.get(f"{user}/fact-merges")).json()["merges"]
    async with HippocampusClient(writer.url, KEY, app_name=app) as typed:
        (same,) = [each async for each in typed.fact_merges("ann")]
    assert (same.id, same.from_key, same.to_key) == (merge["id"], merge["from_key"], merge["to_key"])
    assert (merge["from_key"], merge["to_key"], merge["method"]) == ("food_preference", "favourite food", "normal_form")
    versions = (await client.get(f"{user}/facts/preference/food_preference/history")).json()["versions"]
    assert [(each["value"], each["outcome"]) for each in versions] == [("ramen", "current"), ("sushi", "superseded")]
    assert problem(await client.post(f"{stranger}/fact-merges/{merge['id']}/undo"))["type"] == "/problems/not-found"
    assert (await client.post(f"{user}/fact-merges/{merge['id']}/undo")).status_code == 200
    facts = (await client.get(f"{user}/facts")).json()["facts"]
    assert {each["key"]: each["value"] for each in facts} == {"favourite food": "sushi", "food_preference": "ramen"}
    past = (await client.get(f"{user}/facts", params={"known_at": "2020-01-01T00:00:00Z"})).json()["facts"]
    assert past == []


async def test_the_style_of_a_key_is_set_and_reset_for_one_app(
    client: httpx.AsyncClient, app: str, rows: asyncpg.Connection
) -> None:
    """Any spelling selects the key. The next statement follows its style; other apps are not affected."""
    base = f"/v1/apps/{app}/fact-styles"
    made = (await client.put(f"{base}/preference/Favourite%20Teas", json={"style": "collection"})).json()
    assert (made["app_name"], made["style"]) == (app, "collection")
    again = (await client.put(f"{base}/preference/favourite_tea", json={"style": "profile"})).json()
    assert (again["normal_key"], again["style"]) == (made["normal_key"], "profile")
    await client.put(f"{base}/rule/seat", json={"style": "collection"})
    first = (await client.get(base, params={"limit": 1})).json()
    second = (await client.get(base, params={"cursor": first["next_cursor"]})).json()
    assert [each["style"] for each in first["styles"] + second["styles"]] == ["profile", "collection"]
    assert second["next_cursor"] is None
    assert (await client.get(f"/v1/apps/{app}-other/fact-styles")).json()["styles"] == []
    for path, body in (("preference/tea", {"style": "heap"}), ("dream/tea", {"style": "profile"})):
        assert (await client.put(f"{base}/{path}", json=body)).status_code == 422
    assert (await client.delete(f"{base}/rule/seat")).status_code == 204
    assert problem(await client.delete(f"{base}/rule/seat"))["type"] == "/problems/not-found"
    assert await rows.fetchval("SELECT count(*) FROM fact_styles WHERE app_name = $1", app) == 1


async def test_instructions_are_changed_rolled_back_and_decided(
    client: httpx.AsyncClient, app: str, rows: asyncpg.Connection
) -> None:
    """Put, get, history, rollback. A proposal takes effect only when it is approved."""
    base = f"/v1/apps/{app}"
    for content in ("Be brief.", "Be kind."):
        assert (await client.put(f"{base}/instructions/tone", json={"content": content})).status_code == 200
    conflict = await client.put(f"{base}/instructions/tone", json={"content": "x", "expected_version": 1})
    assert problem(conflict)["type"] == "/problems/instruction-conflict"
    assert (await client.get(f"{base}/instructions/tone")).json()["content"] == "Be kind."
    assert (await client.get(f"{base}/instructions/tone", params={"version": 1})).json()["content"] == "Be brief."
    assert (await client.get(f"{base}/instructions/none")).status_code == 404
    rolled = await client.post(f"{base}/instructions/tone/rollback", json={"version": 1})
    assert (rolled.json()["version"], rolled.json()["content"]) == (3, "Be brief.")
    assert (await client.post(f"{base}/instructions/tone/rollback", json={"version": 9})).status_code == 404
    history = (await client.get(f"{base}/instructions/tone/history")).json()["instructions"]
    assert [each["version"] for each in history] == [3, 2, 1]

    for key in ("length", "tone"):
        await rows.execute(
            """INSERT INTO instruction_proposals (app_name, user_id, instruction_key, content, base_version)
               VALUES ($1, 'ann', $2, 'Be long.', 0)""",
            app,
            key,
        )
    tone, length = (await client.get(f"{base}/instruction-proposals")).json()["proposals"]
    active = [each["key"] for each in (await client.get(f"{base}/instructions")).json()["instructions"]]
    assert active == ["tone"]
    approved = await client.post(f"{base}/instruction-proposals/{length['id']}/approve", json={"decided_by": "ops"})
    assert (approved.json()["status"], approved.json()["version"]) == ("approved", 1)
    conflict = await client.post(f"{base}/instruction-proposals/{tone['id']}/approve", json={})
    assert problem(conflict)["type"] == "/problems/instruction-conflict"
    rejected = await client.post(f"{base}/instruction-proposals/{tone['id']}/reject", json={})
    assert rejected.json()["status"] == "rejected"
    again = await client.post(f"{base}/instruction-proposals/{tone['id']}/reject", json={})
    assert problem(again)["type"] == "/problems/not-found"
    assert (await client.get(f"{base}/instructions/length")).json()["content"] == "Be long."


def test_openapi_documents_every_response(writer: WriterProcess, seen: set[tuple[str, str, int]]) -> None:
    """Every response in the API's tests is in the document, and every error is documented as a problem."""
    document = httpx.get(f"{writer.url}/openapi.json", timeout=WAIT_SECONDS).json()
    patterns = {re.compile(re.sub(r"\{\w+\}", "[^/]+", path)): item for path, item in document["paths"].items()}
    assert len(seen) > 20
    for method, path, status in seen:
        items = [item for pattern, item in patterns.items() if pattern.fullmatch(path)]
        operations = [item[method.lower()] for item in items if method.lower() in item]
        if status == 405:
            assert items
            continue
        if not operations:
            assert status == 404 or path.startswith(("/docs", "/openapi.json", "/page/", "/problems/"))
            continue
        assert str(status) in operations[0]["responses"], f"{method} {path} returned {status}, which is not documented"
    for path, item in document["paths"].items():
        for method, operation in item.items():
            assert operation["summary"], f"{method} {path}"
            for status, response in operation["responses"].items():
                if int(status) >= 400 and path.startswith("/v1/"):
                    assert list(response["content"]) == ["application/problem+json"], f"{method} {path} {status}"
