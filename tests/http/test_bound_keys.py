"""Keys of one user: what they allow, and that no program lets them do more."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import asyncpg
import httpx
import pytest

from hippocampus.erasure.service import ErasureService
from pulse import database
from pulse.api_keys import ApiKeyService
from pulse.errors import InvalidInputError
from tests.support import cli_process
from tests.support.key_scene import bearer, made
from tests.support.writer_process import WriterProcess, problem


async def test_a_users_key_acts_for_that_user_alone(
    writer: WriterProcess, writer_dsn: str, client: httpx.AsyncClient, user: str, session: str, app: str
) -> None:
    """Another user, none, two, or a route of the whole app get 403 wrong-user, whether or not the session exists."""
    bob = user.replace("/ann", "/bob")
    await client.post(f"{bob}/sessions", json={"session_id": "b1"})
    key = await made(writer_dsn, app, "admin", user_id="ann")
    async with bearer(writer, key.text) as own:
        assert (await own.get(session)).status_code == 200
        asserted = "/api/threads"
        for query, headers in (
            ({"app_name": app, "user_id": "ann"}, {}),
            ({}, {"X-App-Name": app, "X-User-Id": "ann"}),
            ({"app_name": app, "user_id": "ann"}, {"X-App-Name": app, "X-User-Id": "ann"}),
        ):
            assert (await own.get(asserted, params=query, headers=headers)).status_code == 200
        # What the operator pays for models is shown to a key of the app, and not to one of a user.
        runs = f"/api/threads/{session.rpartition('/')[2]}/runs"
        for keyed, is_shown in ((own, False), (client, True)):
            listed = (await keyed.get(runs, params={"app_name": app, "user_id": "ann"})).json()
            assert (listed["runs"], listed["prices"] is not None) == ([], is_shown)
        for path in (f"{bob}/sessions/b1", f"{bob}/sessions/none", f"{bob}/sessions", f"{bob}/facts"):
            refused = await own.get(path)
            assert (refused.status_code, problem(refused)["type"]) == (403, "/problems/wrong-user"), path
        for params in (
            {"app_name": app, "user_id": "bob"},
            {"app_name": app},
            [("app_name", app), ("user_id", "ann"), ("user_id", "bob")],
        ):
            refused = await own.get(asserted, params=params)
            assert (refused.status_code, problem(refused)["type"]) == (403, "/problems/wrong-user"), params
        mixed = await own.get(asserted, params={"app_name": app, "user_id": "ann"}, headers={"X-User-Id": "bob"})
        assert mixed.status_code == 403
        # The path names the app alone: naming the user beside it does not help.
        whole = await own.get(f"/v1/apps/{app}/instructions", params={"user_id": "ann"}, headers={"X-User-Id": "ann"})
        assert (whole.status_code, problem(whole)["type"]) == (403, "/problems/wrong-user")
        ticket = await own.post("/api/tickets", json={"thread_id": "b1"}, params={"app_name": app, "user_id": "bob"})
        assert ticket.status_code == 403
        forget = await own.post(f"{bob}/forget", json={"whole_user": True})
        assert forget.status_code == 403
        assert (await own.get("/metrics/targets")).status_code == 403
    assert (await client.get(f"{bob}/sessions/b1")).status_code == 200


async def test_the_hash_covers_the_user(writer_dsn: str, app: str, rows: asyncpg.Connection) -> None:
    """A program that does not know the column compares the plain hash, and refuses; a changed user ends the key."""
    key = await made(writer_dsn, app, "read", user_id="ann")
    stored = await rows.fetchrow("SELECT * FROM api_keys WHERE id = $1", key.key.id)
    assert stored["secret_hash"] != hashlib.sha256(key.text.split("_", 2)[2].encode()).digest()
    async with await database.create_pool(writer_dsn, max_size=1) as pool:
        service = ApiKeyService(pool)
        grant = await service.verify(key.text)
        assert grant is not None
        assert (grant.app_name, grant.user_id) == (app, "ann")
        for other in ("bob", None):
            await rows.execute("UPDATE api_keys SET user_id = $2 WHERE id = $1", key.key.id, other)
            assert await service.verify(key.text) is None


async def test_a_user_takes_their_keys_along(pool: asyncpg.Pool) -> None:
    """Erasing a user deletes the keys that are bound to them, and no other."""
    service = ApiKeyService(pool)
    await service.create("shop", ["read"], user_id="ann")
    kept = [
        await service.create("shop", ["read"], user_id="bob"),
        await service.create("shop", ["read"]),
        await service.create("other", ["read"], user_id="ann"),
    ]
    report = await ErasureService(pool).erase_user("shop", "ann")
    assert report.is_complete
    assert report.counts["api_keys"] == 1
    assert {each.id for each in await service.list()} == {each.key.id for each in kept}


async def test_a_key_of_one_user_needs_an_app(pool: asyncpg.Pool) -> None:
    """So does the table. An empty user, or one that cannot be stored, is refused."""
    keys = ApiKeyService(pool)
    for app, user in ((None, "ann"), ("shop", ""), ("shop", "a\0"), ("shop", "u" * 256)):
        with pytest.raises(InvalidInputError):
            await keys.create(app, ["read"], user_id=user)
    assert await keys.list() == []


def test_the_command_line_binds_a_key_to_a_user(dsn: str, home: Path) -> None:
    """`keys create --user` needs --app; lists show whose a key is."""
    words = ("keys", "create", "--app", "shop", "--user", "ann", "--role", "read", "--json")
    created = cli_process.run(home, *words, DATABASE_URL=dsn)
    assert created.returncode == 0, created.stderr
    key = json.loads(created.stdout)
    assert (key["app_name"], key["user_id"]) == ("shop", "ann")
    assert "ann" in cli_process.run(home, "keys", "list", DATABASE_URL=dsn).stdout
    refused = cli_process.run(
        home, "keys", "create", "--every-app", "--user", "ann", "--role", "read", DATABASE_URL=dsn
    )
    assert refused.returncode == 2
    assert "--app" in refused.stderr
