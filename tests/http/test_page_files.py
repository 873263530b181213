"""The page at ``/``: how it is served, and the list of threads that it reads."""

from __future__ import annotations

import re

import asyncpg
import httpx

from tests.support.waiting import WAIT_SECONDS
from tests.support.writer_process import WriterProcess, append, problem, say

REFERENCE = re.compile(r'(?:src|href)="(page/[^"]+)"')
BUNDLED = ("/page/console.js", "/page/console.css", "/page/icon.svg")


async def test_the_page_needs_no_key_and_no_other_host(writer: WriterProcess) -> None:
    """Every file of the page is served, under a policy that lets it load, run and call nothing else."""
    async with httpx.AsyncClient(base_url=writer.url, timeout=WAIT_SECONDS) as stranger:
        page = await stranger.get("/")
        names = [f"/{each}" for each in REFERENCE.findall(page.text)]
        assert sorted(each.partition("?")[0] for each in names) == sorted(BUNDLED)
        files = {"/": page, **{name: await stranger.get(name) for name in names}}
        for name, file in files.items():
            assert file.status_code == 200, name
            policy = file.headers["content-security-policy"].split("; ")
            assert "default-src 'none'" in policy, name
            assert "script-src 'self'" in policy
            assert "require-trusted-types-for 'script'" in policy
            assert "unsafe" not in file.headers["content-security-policy"]
            assert file.headers["x-content-type-options"] == "nosniff"
            # Names of SVG and MathML, by which elements are made, are not requested.
            text = re.sub(r"http://www\.w3\.org/\d+/\w+(/\w+)?", "", file.text)
            assert not re.search(r"https?:|document\.write|\beval\(|new Function|import\(", text), name
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?! type=\"module\" src=\"page/)", page.text)
        for name in ("/page/", "/page/nothing.js", "/page/__init__.py", "/page/..%2Fedge.py", "/page/index.html"):
            assert problem(await stranger.get(name))["type"] == "/problems/no-such-route", name
        assert (await stranger.get("/api/threads")).status_code == 401


async def test_files_of_the_page_are_compressed_and_kept(writer: WriterProcess) -> None:
    """A file that is requested by its content may be kept for ever; others are compared at each request, and answered
    by 304 if they are the same. What a client accepts is compressed."""
    async with httpx.AsyncClient(base_url=writer.url, timeout=WAIT_SECONDS) as client:
        page = await client.get("/")
        script = next(f"/{each}" for each in REFERENCE.findall(page.text) if ".js" in each)
        kept = await client.get(script)
        assert kept.headers["content-encoding"] == "gzip"
        assert kept.headers["vary"] == "Accept-Encoding"
        assert kept.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert int(kept.headers["content-length"]) < 150_000
        plain = await client.get(script, headers={"Accept-Encoding": "identity"})
        assert "content-encoding" not in plain.headers
        assert plain.content == kept.content
        assert plain.headers["etag"] != kept.headers["etag"]
        for path in ("/", script.partition("?")[0], f"{script}0"):
            answer = await client.get(path)
            assert answer.headers["cache-control"] == "no-cache", path
            same = await client.get(path, headers={"If-None-Match": answer.headers["etag"]})
            assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", answer.headers["etag"])
        other = await client.get("/", headers={"If-None-Match": '"something else"'})
        assert other.status_code == 200


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
    for filtered, names in (({"contains": "IR"}, ["first", "third"]), ({"thread_id": "second"}, ["second"])):
        answer = await client.get("/api/threads", params={**owner, **filtered})
        assert [each["thread_id"] for each in answer.json()["threads"]] == names
    for stranger in ({**owner, "user_id": "bob"}, {**owner, "app_name": f"{app}x"}):
        assert (await client.get("/api/threads", params=stranger)).json()["threads"] == []
    assert problem(await client.get("/api/threads"))["type"] == "/problems/invalid-request"
