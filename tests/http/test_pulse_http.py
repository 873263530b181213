"""What the autonomic layer senses and does, at a real writer: the status, and the record by pages."""

from __future__ import annotations

import uuid

import asyncpg
import httpx

from hippocampus.client import HippocampusClient
from pulse.api_keys import ApiKeyService
from pulse.autonomic import Effect
from tests.support.writer_process import KEY, problem


async def test_the_status_shows_each_decision_with_its_own_end(
    client: httpx.AsyncClient, rows: asyncpg.Connection, app: str
) -> None:
    """Each of several effects on one target has its own end; another scope's are not shown; the record has pages."""
    scope = f"s-{uuid.uuid4().hex[:8]}"
    for path in ("status", "events"):
        missing = problem(await client.get(f"/api/pulse/{path}", params={"scope": scope}))
        assert (missing["type"], "pulse init" in missing["detail"]) == ("/problems/not-found", True)
    await rows.execute("SELECT make_pulse_scope($1), make_pulse_scope('other')", scope)
    sample = {"sense": "queue", "machine": "m1", "data": {"failed": 3}}
    await rows.execute("SELECT begin_pulse_tick($1, 'm1:7', $2)", scope, [sample])
    note = {"ticks": 1, "holder": "m1:7", "ms": 2.5, "errors": 0, "decided": [["watch", "notify|n"]]}
    events = []
    for name, code in (("first", "timeout"), ("second", None), ("third", None), ("other", None)):
        effect = Effect("notify", "n", {"code": name}, rule="watch", survival=True).to_json()
        target = "other" if name == "other" else scope
        found = await rows.fetchval("SELECT end_pulse_tick($1, $2, '{}', '{}', $3)", target, [effect], note)
        events += found
        if name != "third":
            await rows.execute('SELECT begin_effect($1, false, \'{"by": "m1:8"}\')', found[0])
        if code:
            await rows.execute("SELECT end_effect($1, true, $2)", found[0], {"code": code})
    async with HippocampusClient(str(client.base_url), app_name=app, api_key=KEY) as pulse:
        status = await pulse.pulse_status(scope=scope)
        assert (status["scope"]["holder"], status["scope"]["ticks"], status["scope"]["is_ticking"]) == ("m1:7", 1, True)
        assert [(each["sense"], each["machine"], each["data"]) for each in status["vitals"]] == [
            ("queue", "m1", {"failed": 3})
        ]
        assert [
            (each["why"]["code"], each["rule"], each["end"], each["code"], each["by"]) for each in status["decisions"]
        ] == [
            ("third", "watch", "waiting", None, None),
            ("second", "watch", "executing", None, "m1:8"),
            ("first", "watch", "failed", "timeout", "m1:8"),
        ]
        assert [each["decided"] for each in status["ticks"]] == [[["watch", "notify|n"]]] * 3
        recorded = [each async for each in pulse.pulse_events(scope=scope, page_size=2)]
        kinds = "tick effect effect-executing tick effect effect-failed effect-executing tick effect"
        assert [each.kind for each in recorded] == kinds.split()
        failed = [each async for each in pulse.pulse_events(scope=scope, kind="effect-failed")]
        assert [(each.key, each.ref) for each in failed] == [("notify|n", events[0])]
    for path, params in (("status", {"scope": "Main!"}), ("status", {"limit": "0"}), ("events", {"kind": "x y"})):
        refused = problem(await client.get(f"/api/pulse/{path}", params=params))
        assert refused["type"] == "/problems/invalid-request"
    key = (await ApiKeyService(rows).create(app, ["admin"])).text
    for path in ("/api/pulse/status", "/api/pulse/events", "/metrics/targets"):
        # Also if it names its app: these concern the whole installation.
        refused = problem(await client.get(path, headers={"Authorization": f"Bearer {key}", "X-App-Name": app}))
        assert refused["type"] == "/problems/wrong-app"
