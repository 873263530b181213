"""A real executor process: `python -m tests.support.effect_worker`. Kinds of effects write rows into `acts`.

An effect whose key is a step waits there while the advisory lock (78, 1) is held:

    fetched   before its execution begins
    begun     in the act, before it did anything
    acted     in the act, after it did all
    returned  after the act, before its end is written
    ended     after its end was written, before its job is over
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from typing import Any

import structlog

from pulse.autonomic import Effect
from workers.autonomic.executors import Executor, Executors
from workers.autonomic.restarting import make_restarter
from workers.autonomic.role import make_effects_app
from workers.pools import get_pool
from workers.process import signals
from workers.settings import Settings
from workers.telemetry.metrics import Metrics
from workers.worker import Supervisor, main_of, open_pool

TABLE = "CREATE TABLE IF NOT EXISTS acts (event_id bigint, kind text, pid integer)"
GATE = "SELECT pg_advisory_lock_shared(78, 1), pg_advisory_unlock_shared(78, 1)"


class Steps(Executors):
    """Executors that wait at the step that is an effect's key."""

    async def wait(self, effect: Effect, step: str) -> None:
        if effect.key == step:
            await self._pool.execute(GATE)

    async def execute(self, event_id: int, *, is_last: bool = True) -> None:
        effect = Effect.from_json(await self._pool.fetchval("SELECT meta FROM pulse_events WHERE id = $1", event_id))
        await self.wait(effect, "fetched")
        await super().execute(event_id, is_last=is_last)
        await self.wait(effect, "ended")

    async def _end(self, session: Any, event_id: int, effect: Effect, *how: Any) -> None:
        if how[0] is None:
            await self.wait(effect, "returned")
        await super()._end(session, event_id, effect, *how)


async def run(settings: Settings) -> None:
    pool, metrics = get_pool("pulse"), Metrics()
    async with open_pool(settings, pool) as connections:

        def make(nature: Any) -> Executor:
            async def act(session: Any, effect: Effect, event_id: int) -> Mapping[str, Any]:
                await executors.wait(effect, "begun")
                row = "INSERT INTO acts VALUES ($1, $2, $3)"
                await session.execute(row, event_id, effect.kind, os.getpid())
                await executors.wait(effect, "acted")
                return {}

            return Executor(nature, act)

        executors = Steps(connections, settings, make_restarter(settings))
        executors.by_kind = {f"by_{nature}": make(nature) for nature in ("sql", "again", "once")}
        app = make_effects_app(settings, connections, metrics, executors)
        supervisor = Supervisor(app, pool, metrics, settings)
        signals.on_stop(supervisor.on_signal)
        structlog.get_logger("effect_worker").info("effect_worker_started")
        await supervisor.run()


if __name__ == "__main__":
    asyncio.set_event_loop(None)
    sys.exit(main_of("pulse", run))
