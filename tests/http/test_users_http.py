"""The routes that list apps and users, and what a key is told about itself."""

from __future__ import annotations

import asyncpg
import httpx
import pytest

from hippocampus import users as users_module
from hippocampus.users import COUNTED_MAX, UserList
from pulse.errors import InvalidInputError
from tests.support.key_scene import bearer, made
from tests.support.memory_rows import add_fact, add_memory
from tests.support.waiting import WAIT_SECONDS
from tests.support.writer_process import WriterProcess, append, problem, say


async def test_apps_and_users_are_listed_with_what_they_hold(
    client: httpx.AsyncClient, app: str, rows: asyncpg.Connection
) -> None:
    """Users of sessions, of memories and of facts alone, by name, in pages; the newest words of the newest session."""
    path = f"/v1/apps/{app}/users"
    for session, words in (("old", "an old word"), ("new", "the last word")):
        await client.post(f"{path}/Ann/sessions", json={"session_id": session})
        await append(client, f"{path}/Ann/sessions/{session}", say("first"), say(words))
    await client.post(f"{path}/bare/sessions", json={"session_id": "empty"})
    await add_memory(rows, "mei", "likes tea", app=app)
    await add_fact(rows, "zoe", "drink", "tea", app=app)

    found = (await client.get(path)).json()
    assert found["next_cursor"] is None
    by_name = {each["user_id"]: each for each in found["users"]}
    assert sorted(by_name) == ["Ann", "bare", "mei", "zoe"]
    ann = by_name["Ann"]
    assert (ann["sessions"], ann["memories"], ann["facts"], ann["waiting_events"]) == (2, 0, 0, 4)
    assert (ann["last_session_id"], ann["last_role"], ann["last_text"]) == ("new", "user", "the last word")
    assert ann["last_active_at"] >= ann["last_said_at"]
    assert (by_name["mei"]["memories"], by_name["zoe"]["facts"]) == (1, 1)
    assert {by_name[each]["last_text"] for each in ("bare", "mei", "zoe")} == {None}

    # Nothing is shown of a session that has expired, or that only the memory holds.
    await rows.execute(
        "UPDATE threads SET ttl = CASE session_id WHEN 'new' THEN interval '1 minute' END,"
        " expires_at = CASE session_id WHEN 'new' THEN now() END, updated_at = updated_at - interval '1 hour',"
        " memory_only = session_id = 'old'"
        " WHERE app_name = $1 AND user_id = 'Ann'",
        app,
    )
    (hidden,) = (await client.get(path, params={"contains": "Ann"})).json()["users"]
    assert (hidden["sessions"], hidden["last_session_id"], hidden["last_text"]) == (0, None, None)
    assert hidden["waiting_events"] == 2
    (summary,) = (await client.get("/v1/apps", params={"contains": app})).json()["apps"]
    assert summary["sessions"] == 1
    await rows.execute("UPDATE threads SET ttl = NULL, expires_at = NULL, memory_only = false WHERE app_name = $1", app)

    paged, cursor = [], None
    while True:
        page = (await client.get(path, params={"limit": 3} | ({"cursor": cursor} if cursor else {}))).json()
        paged += [each["user_id"] for each in page["users"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert paged == [each["user_id"] for each in found["users"]]
    typed = (await client.get(path, params={"contains": "N"})).json()["users"]
    assert [each["user_id"] for each in typed] == ["Ann"]
    apps = (await client.get("/v1/apps", params={"contains": app.upper()})).json()["apps"]
    assert apps == [{"app_name": app, "sessions": 3, "memories": 1, "facts": 1}]


async def test_a_page_examines_and_counts_a_bounded_number(pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that examined its share of the names ends there, and the next one continues; counts end at their bound."""
    monkeypatch.setattr(users_module, "_EXAMINED_MAX", 4)
    await pool.execute(
        "INSERT INTO threads (app_name, user_id, session_id) SELECT 'a', 'u' || n, 's' FROM generate_series(1, 9) AS n"
    )
    await pool.execute(
        "INSERT INTO memories (app_name, user_id, content) SELECT 'a', 'u9', 'x' FROM generate_series(1, $1)",
        COUNTED_MAX + 5,
    )
    listed = UserList(pool)
    names, after = [], None
    for _ in range(3):
        page = await listed.list_users("a", contains="9", after=after)
        names += [(each.user_id, each.memories) for each in page.users]
        after = page.following
    assert (names, after) == ([("u9", COUNTED_MAX)], None)
    assert (await listed.list_users("a", limit=2)).following == "u2"
    assert [each.app_name for each in (await listed.list_apps()).apps] == ["a"]
    assert (await listed.list_apps(after="a")).apps == []
    with pytest.raises(InvalidInputError, match="limit must be from 1 to 200"):
        await listed.list_users("a", limit=0)
    with pytest.raises(InvalidInputError, match="contains"):
        await listed.list_apps(contains="x" * 256)


async def test_a_key_is_told_what_it_allows_and_lists_no_more(
    writer: WriterProcess, writer_dsn: str, client: httpx.AsyncClient, app: str
) -> None:
    """A key of any role reads its roles and bounds. Keys of an app list no apps, keys of a user list no users."""
    assert (await client.get("/api/me")).json() == {
        "key_id": "operator",
        "app_name": None,
        "user_id": None,
        "roles": ["append", "read", "admin"],
        "user_roles": None,
    }
    for role, user_id in (("append", None), ("read", None), ("read", "ann")):
        key = await made(writer_dsn, app, role, user_id=user_id)
        async with bearer(writer, key.text) as own:
            told = (await own.get("/api/me")).json()
            bound = {"app_name": app, "user_id": user_id, "roles": [role], "user_roles": None}
            assert told == {"key_id": key.key.id, **bound}
            names = {"app_name": app} | ({"user_id": user_id} if user_id else {})
            headers = {f"X-{name.replace('_', '-')}": value for name, value in names.items()}
            for named in ({}, {"params": names}, {"headers": headers}):
                refusal = "role-missing" if named and role == "append" else "wrong-app"
                assert problem(await own.get("/v1/apps", **named))["type"] == f"/problems/{refusal}"
            listed = await own.get(f"/v1/apps/{app}/users")
            may = role == "read" and user_id is None
            assert listed.status_code == (200 if may else 403)
    async with httpx.AsyncClient(base_url=writer.url, timeout=WAIT_SECONDS) as stranger:
        assert problem(await stranger.get("/api/me"))["type"] == "/problems/wrong-key"
