"""The audit log: every administrative act, in its transaction, by whom; nothing of what users said; append-only."""

from __future__ import annotations

import json
import uuid
from datetime import timedelta
from pathlib import Path

import asyncpg
import psycopg
import pytest

from hippocampus.by_hand import MemoryEditor
from hippocampus.erasure.service import ErasureService
from hippocampus.retention import policies
from hippocampus.retention_manager import MemoryRetentionManager
from hippocampus.transfer.memory_file import export_memory
from hippocampus.webhooks.service import WebhookService
from pulse.actor import acting_as, current_actor
from pulse.api_keys import ApiKeyService
from pulse.audit import Act, AuditLog
from pulse.events import Event
from pulse.session_service import OpenSessionService
from tests.support import cli_process
from workers.transfer.sessions import export_sessions

APP, USER = "shop", "mei"
WORDS = "peanuts make me sneeze"


async def acts(pool: asyncpg.Pool) -> list[Act]:
    return [each async for each in AuditLog(pool).all()][::-1]


async def test_every_act_is_noted_once_with_its_actor_and_without_words(pool: asyncpg.Pool) -> None:
    """The actions come in order, each by the one who did it, and no entry holds what the user said."""
    sessions = OpenSessionService(pool)
    session = await sessions.create_session(APP, USER, session_id="s")
    await sessions.append_event(session, Event(id="e1", author="user", content={"text": WORDS}))
    await sessions.close()
    kept = await MemoryEditor(pool).remember(APP, USER, WORDS)
    assert await acts(pool) == []

    keys, webhooks, erasure = ApiKeyService(pool), WebhookService(pool), ErasureService(pool)
    with acting_as("key:3k9q0c7vw2ab"):
        made = await keys.create(APP, ["append"], lifetime=timedelta(days=1))
        assert await keys.verify(made.text) is not None
        await keys.revoke(made.key.id)
        endpoint = (await webhooks.add(APP, "https://example.com/hook")).endpoint
        await webhooks.rotate(APP, endpoint.id)
        await webhooks.disable(APP, endpoint.id)
        await webhooks.enable(APP, endpoint.id)
        await webhooks.remove(APP, endpoint.id)
    with acting_as("cli:ann"):
        await policies.set_policy(pool, APP, fast_events=7, redaction="mask")
        await policies.reset_policy(pool, APP)
        await MemoryRetentionManager(pool).cleanup_low_value_memories(app_name=APP)
        await export_sessions(pool, lambda _: None, app_name=APP)
        assert [line async for line in export_memory(pool, APP, USER)]
    await erasure.erase_events(APP, USER, "s", event_ids=["e1"])
    await erasure.erase_memory(APP, USER, kept.ids[0])
    await erasure.erase_session(APP, USER, "s")
    await erasure.erase_user(APP, USER)
    await pool.execute("SELECT set_app_policy($1, $2)", APP, {"deep_tokens": 9})
    await pool.execute("INSERT INTO replays (app_name, user_id, fingerprint) VALUES ($1, $2, 'f')", APP, USER)
    await pool.execute("UPDATE replays SET applied_at = now()")
    found = await acts(pool)
    assert [(each.actor.partition(":")[0], each.action) for each in found] == [
        ("key", "key_created"),
        ("key", "key_revoked"),
        ("key", "webhook_added"),
        ("key", "webhook_secret_made"),
        ("key", "webhook_secret_made"),
        ("key", "webhook_changed"),
        ("key", "webhook_changed"),
        ("key", "webhook_removed"),
        ("cli", "policy_changed"),
        ("cli", "policy_changed"),
        ("cli", "policy_reset"),
        ("cli", "retention_run"),
        ("cli", "sessions_exported"),
        ("cli", "memory_exported"),
        *[("library", "erasure_requested")] * 4,
        ("sql", "policy_changed"),
        ("sql", "policy_changed"),
        ("sql", "replay_begun"),
        ("sql", "replay_applied"),
    ]
    assert found[0].target == {"id": made.key.id, "roles": ["append"]}
    assert found[9].target == {"fast_events": 7, "redaction": "mask"}
    assert [each.target["scope"] for each in found if each.action == "erasure_requested"] == [
        "events",
        "memory",
        "session",
        "user",
    ]
    assert {each.app_name for each in found} == {APP}
    everything = " ".join(map(str, found))
    assert not any(word in everything for word in ("peanuts", made.text.split("_", 2)[2], "example.com"))
    assert current_actor() == "library"


async def test_an_act_that_is_rolled_back_is_not_noted_and_a_refused_one_neither(pool: asyncpg.Pool) -> None:
    """The entry is in the act's own transaction: both are there, or none is."""
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("SELECT set_app_policy($1, $2)", APP, {"deep_tokens": 9})
        assert await connection.fetchval("SELECT count(*) FROM audit_log") == 2
        await transaction.rollback()
    with pytest.raises(ValueError, match="fast_events"):
        await policies.set_policy(pool, APP, fast_events=0)
    assert await acts(pool) == []


async def test_entries_do_not_change_and_go_after_their_time(pool: asyncpg.Pool) -> None:
    """Not even the owner changes or removes an entry, unless its days are over; truncating is refused, too."""
    log = AuditLog(pool)
    await log.note("policy_changed", app_name=APP)
    for statement in (
        "UPDATE audit_log SET actor = 'nobody'",
        "DELETE FROM audit_log",
        "TRUNCATE audit_log",
        "UPDATE audit_log SET at = at - interval '10 years'",
    ):
        with pytest.raises(asyncpg.PostgresError) as refused:
            await pool.execute(statement)
        assert refused.value.sqlstate == "HP097"
    await pool.execute(
        "INSERT INTO audit_log (at, actor, action)"
        " SELECT now() - n * interval '100 days', 'a', 'old' FROM generate_series(3, 5) AS n"
    )
    assert await pool.fetchval("SELECT prune_audit_log()") == 2
    await pool.execute("INSERT INTO engine_settings VALUES ('audit_days', '200')")
    assert await pool.fetchval("SELECT prune_audit_log()") == 1
    assert [each.action for each in await acts(pool)] == ["policy_changed"]


async def test_making_the_roles_and_binding_a_reader_are_noted(
    pool: asyncpg.Pool, dsn: str, admin: psycopg.Connection, tmp_path: Path
) -> None:
    """By whoever ran the command: the roles each time, the login with the scope that it got. A login that does not
    exist is bound to nothing, and no binding is noted."""
    login = f"reader_{uuid.uuid4().hex[:8]}"
    admin.execute(f"CREATE ROLE {login} LOGIN")
    try:
        for number, (reader, expected) in enumerate(((login, 0), ("nobody_at_all", 1))):
            arguments = ("grant-roles", "--reader", reader, "--app", APP, "--user", USER)
            done = cli_process.run(tmp_path, *arguments, DATABASE_URL=dsn)
            assert (done.returncode == 0) == (expected == 0), (number, done.stderr)
        found = await acts(pool)
        assert [(each.action, each.app_name, each.user_id, each.target) for each in found] == [
            ("roles_granted", None, None, {}),
            ("reader_bound", APP, USER, {"role": login}),
            ("roles_granted", None, None, {}),
        ]
        assert {each.actor.partition(":")[0] for each in found} == {"cli"}
    finally:
        await pool.execute("DELETE FROM reader_scopes")
        admin.execute(f"DROP ROLE {login}")


async def test_the_command_lists_pages_and_exports(pool: asyncpg.Pool, dsn: str, tmp_path: Path) -> None:
    """`audit list` filters and pages; `audit export` writes every entry as a line of JSON."""

    def run(*arguments: str) -> str:
        done = cli_process.run(tmp_path, "audit", *arguments, DATABASE_URL=dsn)
        assert done.returncode == 0, done.stderr
        return done.stdout

    log = AuditLog(pool)
    with acting_as("host:" + "x" * 300):
        for number in range(3):
            await log.note("policy_changed", app_name=APP, target={"n": number})
    await log.note("key_created", app_name="other", target={"id": str(uuid.uuid4())})
    assert len({each.actor for each in await log.list()}) == 2
    listed = json.loads(run("list", "--app", APP, "--limit", "2", "--json"))
    assert [each["target"]["n"] for each in listed] == [2, 1]
    assert len(json.loads(run("list", "--action", "key_created", "--json"))) == 1
    assert [json.loads(line)["action"] for line in run("export").splitlines()] == [
        "key_created",
        *["policy_changed"] * 3,
    ]
