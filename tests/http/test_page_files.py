"""The page at ``/``: how it is served, and the list of threads that it reads."""

from __future__ import annotations

import re

import asyncpg
import httpx

from tests.support.waiting import WAIT_SECONDS
from tests.support.writer_process import WriterProcess, append, problem, say

REFERENCE = re.compile(r'(?:src|href)="(page/[^"]+)"|from "\./([^"]+)"')


async def test_the_page_needs_no_key_and_no_other_host(writer: WriterProcess) -> None:
    """Every file of the page is served, under a policy that lets it load, run and call nothing else."""
    async with httpx.AsyncClient(base_url=writer.url, timeout=WAIT_SECONDS) as stranger:
        left, files = ["/"], dict[str, httpx.Response]()
        while left:
            name = left.pop()
            files[name] = await stranger.get(name)
            assert files[name].status_code == 200, name
            found = [first or f"page/{second}" for first, second in REFERENCE.findall(files[name].text)]
            left.extend(f"/{each}" for each in set(found) if f"/{each}" not in files)
        assert len(files) == 12
        for name, file in files.items():
            policy = file.headers["content-security-policy"].split("; ")
            assert "default-src 'none'" in policy, name
            assert "script-src 'self'" in policy
            assert "require-trusted-types-for 'script'" in policy
            assert "unsafe" not in file.headers["content-security-policy"]
            assert file.headers["x-content-type-options"] == "nosniff"
            text = file.text.replace("http://www.w3.org/2000/svg", "")
            assert not re.search(r"https?:|innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text), name
        page = files["/"].text
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?! type=\"module\" src=\"page/)", page)
        for name in ("/page/", "/page/nothing.js", "/page/__init__.py", "/page/..%2Fedge.py"):
            assert problem(await stranger.get(name))["type"] == "/problems/no-such-route", name
        assert (await stranger.get("/api/threads")).status_code == 401


async def test_threads_are_listed_by_their_last_change_with_their_newest_run(
    client: httpx.AsyncClient, user: str, app: str, rows: asyncpg.Connection
) -> None:
    """The thread that changed last comes first. No other user's threads are listed."""
    owner = {"app_name": app, "user_id": "ann"}
    for name in ("first", "second", "third"):
        assert (await client.post(f"{user}/sessions", json={"session_id": name})).status_code == 201
    await append(client, f"{user}/sessions/first", say("hi"), say("there"))
    for number, error in enumerate(("gone wrong", None)):
        await rows.execute(
            "INSERT INTO runs (thread_id, app_name, run_id, status, holder, lease_until, first_seq, last_seq, error,"
            " completed_at) SELECT id, app_name, $2, CASE WHEN $3::text IS NULL THEN 'running' ELSE 'failed' END, 'h',"
            " now() + interval '1 day', 1, 2, $3, CASE WHEN $3::text IS NULL THEN NULL ELSE now() END"
            " FROM threads WHERE app_name = $1 AND session_id = 'first'",
            app,
            f"{app}-{number}",
            error,
        )
    found = (await client.get("/api/threads", params=owner)).json()["threads"]
    assert [each["thread_id"] for each in found] == ["first", "third", "second"]
    first = found[0]
    assert (first["version"], first["last_sequence"]) == (1, 2)
    run = first["newest_run"]
    assert (run["run_id"], run["status"], run["error"], run["completed_at"]) == (f"{app}-1", "running", None, None)
    assert found[1]["newest_run"] is None
    limited = await client.get("/api/threads", params={"limit": 1}, headers={"X-App-Name": app, "X-User-Id": "ann"})
    assert [each["thread_id"] for each in limited.json()["threads"]] == ["first"]
    for stranger in ({**owner, "user_id": "bob"}, {**owner, "app_name": f"{app}x"}):
        assert (await client.get("/api/threads", params=stranger)).json()["threads"] == []
    assert problem(await client.get("/api/threads"))["type"] == "/problems/invalid-request"
