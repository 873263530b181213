"""The executors: what each kind of effect does, by what the project has already, and how often it may.

| nature | how | when its process is killed in the middle |
| --- | --- | --- |
| sql | the work and its end in one transaction | exactly once |
| again | the act, then its end; the effect's id is the idempotency key | at least once |
| once | its begin is unique | at most once, then failed as `executor_lost` |
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

import structlog

from pulse.autonomic.onion import failure_code
from pulse.autonomic.releases import OWN_PREFIX, ReleaseService
from pulse.autonomic.survival import SHED_SECONDS
from pulse.autonomic.types import Effect
from pulse.outbound.addresses import parse_networks
from pulse.postgres.statements import Statements
from workers.autonomic import archive
from workers.autonomic.own import TOOL_AGENT
from workers.autonomic.restarting import CommandFailedError, Restarter, end_process, run_command
from workers.failures import DATABASE_FAULTS
from workers.queue.upkeep import Upkeep
from workers.settings import Settings, machine_name

if TYPE_CHECKING:
    from pulse.database import Pool
    from pulse.postgres.statements import Session
    from pulse.tools.registries import ToolRegistries
    from workers.autonomic.own import OwnParts

_log = structlog.get_logger(__name__)
_STATEMENTS = Statements("workers.autonomic", "senses.sql")

Nature = Literal["sql", "again", "once"]
Meta = Mapping[str, Any]
ATTEMPTS_MAX = 3
NOTIFY_SECONDS_MAX = 10.0
TOOL_SECONDS_MAX = 60.0


class EffectEndedError(Exception):
    """Another attempt ended the effect meanwhile: this one's work is rolled back."""


@dataclass(frozen=True, slots=True)
class Executor:
    """How a kind of effect is executed: its nature, and what it does with a session, the effect and its event's id."""

    nature: Nature
    act: Callable[[Session, Effect, int], Awaitable[Meta]]


class Executors:
    """Executes effects by their kind.

    Args:
        on_end: called with an effect's kind and how it ended: acked, or the code of its failure.
        tools: the registered tools of each app, if effects may call them.
        own: what executes the kinds of a release; None where its sandbox is not installed.
    """

    def __init__(
        self,
        pool: Pool,
        settings: Settings,
        restarter: Restarter,
        *,
        on_end: Callable[[str, str], None] = lambda _kind, _end: None,
        tools: ToolRegistries | None = None,
        own: OwnParts | None = None,
    ) -> None:
        self._pool = pool
        self._settings = settings
        self._restarter = restarter
        self._on_end = on_end
        self._tools = tools
        self._own = own
        self._upkeep = Upkeep(pool, settings)
        self.by_kind: dict[str, Executor] = {
            "rollback": Executor("sql", self._rollback),
            "gc_vitals": Executor("sql", self._gc_vitals),
            "retention_now": Executor("sql", self._retention_now),
            "shed_load": Executor("sql", self._shed_load),
            "enqueue_consolidation": Executor("sql", self._enqueue_consolidation),
            "finalize_idle": Executor("again", self._finalize_idle),
            "prune": Executor("again", self._prune),
            "archive_record": Executor("again", self._archive_record),
            "notify": Executor("again", self._notify),
            "restart_role": Executor("once", self._restart_role),
            "restart_command": Executor("once", self._restart_command),
            "tool": Executor("once", self._tool),
        }

    def route(self, effect: Effect) -> str:
        """Return the queue of an effect: what touches a process is done on its machine."""
        if effect.kind == "restart_role" and self._settings.pulse_restart != "remote_command":
            return f"effects@{effect.params['machine']}"
        return "effects"

    async def execute(self, event_id: int, *, is_last: bool = True) -> None:
        """Make one attempt at an effect, and end it, unless it has ended.

        Raises:
            whatever the attempt raised, if another attempt may follow.
        """
        row = await _STATEMENTS.fetchrow(self._pool, "open_effect", event_id)
        if row is None or row["id"] is None:
            return
        effect = Effect.from_json(row["meta"])
        if row["is_expired"]:
            # Its job waited while no process ran: what it was decided for is over.
            await self._end(self._pool, event_id, effect, "expired")
            return
        executor = self.by_kind.get(effect.kind)
        if executor is None and effect.kind.startswith(OWN_PREFIX):
            # What begins once must not fail for lack of a process: it begins when there is one.
            async with contextlib.nullcontext() if self._own is None else self._own.places:
                await self._attempt(event_id, effect, Executor("once", self._execute_own), is_last=is_last)
        elif executor is None:
            await self._end(self._pool, event_id, effect, "unhandled")
        else:
            await self._attempt(event_id, effect, executor, is_last=is_last)

    async def _attempt(self, event_id: int, effect: Effect, executor: Executor, *, is_last: bool) -> None:
        by = {"by": f"{machine_name()}:{os.getpid()}"}
        structlog.contextvars.bind_contextvars(effect=effect.kind, effect_key=effect.key)
        try:
            if executor.nature == "sql":
                async with self._pool.acquire() as connection, connection.transaction():
                    await _STATEMENTS.execute(connection, "begin_effect", event_id, False, by)
                    found = await executor.act(connection, effect, event_id)
                    if not await _STATEMENTS.fetchval(connection, "end_effect", event_id, False, dict(found)):
                        raise EffectEndedError  # noqa: TRY301 - it rolls back
                self._note_end(effect, "acked")
                return
            is_once = executor.nature == "once"
            if not await _STATEMENTS.fetchval(self._pool, "begin_effect", event_id, is_once, by):
                await self._end(self._pool, event_id, effect, "executor_lost")
                return
            found = await executor.act(self._pool, effect, event_id)
        except EffectEndedError:
            return
        except Exception as error:
            # What had begun once must not begin again, whatever happened to it.
            if executor.nature != "once" and not is_last:
                raise
            if isinstance(error, DATABASE_FAULTS):
                _log.warning("effect_interrupted", error_type=type(error).__name__)
            await self._end(self._pool, event_id, effect, failure_code(error)[:100])
            return
        await self._end(self._pool, event_id, effect, None, found)

    async def _end(
        self, session: Session, event_id: int, effect: Effect, code: str | None, found: Meta | None = None
    ) -> None:
        meta = dict(found or {}) if code is None else {"code": code}
        if await _STATEMENTS.fetchval(session, "end_effect", event_id, code is not None, meta):
            self._note_end(effect, "acked" if code is None else code)

    def _note_end(self, effect: Effect, end: str) -> None:
        self._on_end(effect.kind, end)
        _log.info("effect_ended", kind=effect.kind, key=effect.key, end=end)

    async def _rollback(self, session: Session, effect: Effect, event_id: int) -> Meta:
        row = await _STATEMENTS.fetch_one(session, "open_effect", event_id)
        releases = ReleaseService(session, row["scope"])
        done = await releases.rollback(effect.params["cause"], release_id=effect.params["release"])
        return {"is_done": done.is_done, "release": done.release_id}

    async def _gc_vitals(self, session: Session, _effect: Effect, _event_id: int) -> Meta:
        return {"deleted": await _STATEMENTS.fetchval(session, "gc_vitals")}

    async def _retention_now(self, session: Session, _effect: Effect, _event_id: int) -> Meta:
        return {"job": await _STATEMENTS.fetchval(session, "run_upkeep_now", "retention")}

    async def _shed_load(self, session: Session, effect: Effect, _event_id: int) -> Meta:
        seconds = int(effect.params.get("seconds", SHED_SECONDS))
        return {"postponed": await _STATEMENTS.fetchval(session, "shed_load", seconds)}

    async def _enqueue_consolidation(self, session: Session, effect: Effect, _event_id: int) -> Meta:
        thread, job_type = UUID(str(effect.params["thread_id"])), effect.params.get("job_type", "fast_replay")
        row = await _STATEMENTS.fetchrow(session, "enqueue_consolidation", thread, job_type)
        return {"job": None if row is None or row["job_id"] is None else str(row["job_id"])}

    async def _finalize_idle(self, _session: Session, _effect: Effect, _event_id: int) -> Meta:
        await self._upkeep.enqueue_idle()
        return {}

    async def _prune(self, _session: Session, _effect: Effect, _event_id: int) -> Meta:
        """Delete what is over, but no session: those whose time to live is over are left to the upkeep's own time."""
        for work in (
            self._upkeep.prune,
            self._upkeep.archive_jobs,
            self._upkeep.prune_snapshots,
            self._upkeep.prune_artifacts,
            self._upkeep.prune_streams,
        ):
            await work()
        return {}

    async def _archive_record(self, _session: Session, _effect: Effect, _event_id: int) -> Meta:
        await self._upkeep.archive_record()
        if not self._settings.pulse_archive_folder:
            return {"files": 0}
        if not await archive.may_drop(self._pool):
            # No failure: three of them would roll a release back, which has nothing to do with it.
            _log.warning("archive_kept", reason="not_owner", advice="run `hippocampus pulse archive --to` as the owner")
            return {"files": 0, "kept": "not_owner"}
        moved = await archive.move_to_files(self._pool, Path(self._settings.pulse_archive_folder))
        return {"files": len(moved), "bytes": sum(each.bytes for each in moved)}

    async def _notify(self, _session: Session, effect: Effect, event_id: int) -> Meta:
        """Notify people: in the log, which is read by machines, then by webhook and command, if there are."""
        message = {"id": event_id, "key": effect.key, "rule": effect.rule, **effect.params}
        _log.warning("operator_notified", **{f"notice_{name}": value for name, value in message.items()})
        await self.send(message)
        return {}

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send a message to the address and the command of the settings.

        Raises:
            CommandFailedError: one of them did not take it.
        """
        body = json.dumps(message).encode()
        if url := self._settings.pulse_notify_url:
            from workers.webhooks.http_post import post

            headers = {
                "Content-Type": "application/json",
                "User-Agent": "Hippocampus-Pulse",
                "Idempotency-Key": str(message["id"]),
            }
            allowed = parse_networks(self._settings.webhook_networks)
            answer = await post(url, headers, body, timeout_seconds=NOTIFY_SECONDS_MAX, allowed=allowed)
            if answer.error_code is not None:
                raise CommandFailedError(f"webhook_{answer.error_code}")
        if command := self._settings.pulse_notify_command:
            await run_command(command, body)

    async def _restart_role(self, session: Session, effect: Effect, _event_id: int) -> Meta:
        process = effect.params
        ran = False
        if process["machine"] == machine_name():
            grace_seconds = self._settings.shutdown_grace_seconds
            ran = await end_process(process["pid"], process["started_at"], grace_seconds=grace_seconds)
        await _STATEMENTS.execute(session, "delete_target", process["host"], process["port"], process["pid"])
        await self._restarter.start(process)
        return {"ended": ran}

    async def _restart_command(self, _session: Session, effect: Effect, _event_id: int) -> Meta:
        await run_command(self._settings.pulse_llm_command, BREAKER=effect.params["breaker"])
        return {}

    async def _tool(self, _session: Session, effect: Effect, event_id: int) -> Meta:
        """Call a registered tool of an app, for no user, as the agent `pulse`. Its result is in `tool_executions`."""
        if self._tools is None:
            raise CommandFailedError("no_tools")
        app_name, name = str(effect.params["app"]), str(effect.params["tool"])
        async with asyncio.timeout(TOOL_SECONDS_MAX):
            outcome = await self._tools.of(app_name).call(
                name, effect.params.get("arguments", {}), idempotency_key=f"effect-{event_id}", agent=TOOL_AGENT
            )
        if outcome.error_code is not None:
            raise CommandFailedError(f"tool_{outcome.error_code}")
        return {"status": outcome.status, "execution": str(outcome.execution_id)}

    async def _execute_own(self, session: Session, effect: Effect, event_id: int) -> Meta:
        """Run the executor of the release that decided the effect, even if another release is in force now."""
        if self._own is None:
            raise CommandFailedError("no_sandbox")
        row = await _STATEMENTS.fetch_one(session, "open_effect", event_id)
        files = await ReleaseService(session, row["scope"]).rules(int(row["meta"]["release"]))
        async with asyncio.timeout(TOOL_SECONDS_MAX):
            return {"calls": await self._own.execute(files, effect, event_id)}
