"""Keys of one user: what they allow, and that no program lets them do more."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import asyncpg
import httpx
import pytest

from hippocampus.client import HippocampusClient, KeyRefusedError
from hippocampus.erasure.service import ErasureService
from hippocampus.knowledge.service import KnowledgeService
from pulse import database
from pulse.api_keys import ApiKeyService
from pulse.errors import InvalidInputError
from pulse.tools.registry import ToolRegistry
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


async def test_a_key_names_only_the_roles_of_users_that_it_has(
    writer: WriterProcess, writer_dsn: str, app: str, rows: asyncpg.Connection
) -> None:
    """For tools, corpora, answers and windows; no user makes another role of it, nor a change of the table."""
    nothing = {"type": "object"}
    async with await database.create_pool(writer_dsn, max_size=2) as pool:
        async with ToolRegistry(pool, app) as registry:
            for role in ("clerk", "admin"):
                rules = {"allowed_roles": [role], "requires_confirmation": True}
                await registry.register_tool(f"of_{role}", openapi_schema=nothing, permissions=rules)
        knowledge = KnowledgeService(pool, app)
        await knowledge.put_corpus("pay", readers=["role:clerk"])
        await knowledge.add("pay", "Glassblowers are paid monthly.", source_uri="p", inline=True)
    own = await made(writer_dsn, app, "append", "read", user_id="ann", user_roles=["clerk", "clerk", "guest"])
    assert own.key.user_roles == ("clerk", "guest")
    apps = await made(writer_dsn, app, "append", "read", user_roles=["clerk", "guest"])
    none = await made(writer_dsn, app, "append", "read", user_roles=[])
    free = await made(writer_dsn, app, "append", "read")
    #: By a key, and the roles that a call names: how the call of each tool ends; None where the call itself is refused.
    for key, named, clerk, admin in (
        (own, [], "waiting", "not_allowed"),
        (own, ["clerk"], "waiting", "not_allowed"),
        (own, ["guest"], "not_allowed", "not_allowed"),
        (own, ["admin"], None, None),
        (own, ["clerk", "admin"], None, None),
        (own, ["*"], None, None),
        (apps, [], "not_allowed", "not_allowed"),
        (apps, ["clerk"], "waiting", "not_allowed"),
        (apps, ["admin"], None, None),
        (none, [], "not_allowed", "not_allowed"),
        (none, ["clerk"], None, None),
        (free, ["clerk"], "waiting", "not_allowed"),
        (free, ["admin"], "not_allowed", "waiting"),
    ):
        async with HippocampusClient(writer.url, key.text, app_name=app) as client:
            for tool, wanted in (("of_clerk", clerk), ("of_admin", admin)):
                if wanted is None:
                    with pytest.raises(KeyRefusedError):
                        await client.call_tool("ann", tool, {}, roles=named)
                else:
                    found = await client.call_tool("ann", tool, {}, roles=named)
                    assert (found.error_code or found.status) == wanted, (key.key, named)
    async with bearer(writer, own.text) as client:
        of_ann = f"/v1/apps/{app}/users/ann"
        search = f"{of_ann}/knowledge/search"
        assert len((await client.post(search, json={"query": "glassblowers"})).json()["hits"]) == 1
        guest = await client.post(search, json={"query": "glassblowers", "roles": ["guest"]})
        assert (guest.status_code, guest.json()["hits"]) == (200, [])
        for path, body in (
            (search, {"query": "a"}),
            (f"{of_ann}/knowledge/ask", {"question": "a"}),
            (f"{of_ann}/context", {"query": "a", "document_ratio": 0.2}),
        ):
            refused = await client.post(path, json={**body, "roles": ["admin"]})
            assert (refused.status_code, problem(refused)["type"]) == (403, "/problems/role-missing"), path
            assert "clerk, guest" in problem(refused)["detail"]
        assert (await client.get("/api/me")).json()["user_roles"] == ["clerk", "guest"]
    async with bearer(writer, free.text) as client:
        assert (await client.get("/api/me")).json()["user_roles"] is None
    async with await database.create_pool(writer_dsn, max_size=1) as pool:
        keys = ApiKeyService(pool)
        for key in (own, apps, none):
            stored = await rows.fetchrow("SELECT * FROM api_keys WHERE id = $1", key.key.id)
            secret = key.text.split("_", 2)[2]
            former = [secret, f"{secret}\0ann", f"{secret}\0"]  # what a program without the column compares
            assert stored["secret_hash"] not in [hashlib.sha256(each.encode()).digest() for each in former]
            assert (await keys.verify(key.text)).user_roles == key.key.user_roles  # type: ignore[union-attr]
            for other in (["admin"], None):
                await rows.execute("UPDATE api_keys SET user_roles = $2 WHERE id = $1", key.key.id, other)
                assert await keys.verify(key.text) is None
    noted = await rows.fetch("SELECT target FROM audit_log WHERE app_name = $1 AND action = 'key_created'", app)
    assert [each["target"].get("user_roles") for each in noted] == [["clerk", "guest"]] * 2 + [[], None]


async def test_roles_of_users_are_names(pool: asyncpg.Pool) -> None:
    keys = ApiKeyService(pool)
    for wrong in (["*"], [""], [" "], ["a\0"], ["r" * 256], [str(each) for each in range(101)], "clerk"):
        with pytest.raises(InvalidInputError, match=r"user_role|roles of users"):
            await keys.create("shop", ["read"], user_roles=wrong)
    assert await keys.list() == []


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
    assert key["user_roles"] is None
    assert "ann" in cli_process.run(home, "keys", "list", DATABASE_URL=dsn).stdout
    bound = (*words, "--user-role", "clerk", "--user-role", "guest")
    key = json.loads(cli_process.run(home, *bound, DATABASE_URL=dsn).stdout)
    assert key["user_roles"] == ["clerk", "guest"]
    assert "clerk,guest" in cli_process.run(home, "keys", "list", DATABASE_URL=dsn).stdout
    assert json.loads(cli_process.run(home, *words, "--no-user-roles", DATABASE_URL=dsn).stdout)["user_roles"] == []
    both = cli_process.run(home, *bound, "--no-user-roles", DATABASE_URL=dsn)
    assert (both.returncode, "not both" in both.stderr) == (2, True)
    refused = cli_process.run(
        home, "keys", "create", "--every-app", "--user", "ann", "--role", "read", DATABASE_URL=dsn
    )
    assert refused.returncode == 2
    assert "--app" in refused.stderr
