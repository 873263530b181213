"""Runs code in the chosen backend, and records every execution."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from pulse.database import FAULTS
from pulse.errors import InvalidInputError, PulseError
from pulse.postgres.json_values import clean_text, escape_state, unescape
from pulse.postgres.limits import check_limit
from pulse.postgres.statements import Statements
from pulse.redaction import mask_and_cut
from pulse.sandbox.choice import parse_sandbox
from pulse.sandbox.records import (
    SANDBOX_STATUSES,
    SandboxBackend,
    SandboxRequest,
    SandboxResult,
    SandboxStatus,
    unavailable,
)
from pulse.tracing.manager import current_tracing

if TYPE_CHECKING:
    from pulse.database import Pool
    from pulse.outbound.addresses import Network

#: Characters of the code and of each output that a row holds.
STORED_CHARACTERS_MAX = 16_384
LIST_LENGTH_MAX = 1000

_STATEMENTS = Statements("pulse.sandbox", "sandbox.sql")
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxExecution:
    """An execution as it was recorded: code and output are bounded, and without secrets of known forms."""

    id: uuid.UUID
    run_id: uuid.UUID | None
    app_name: str
    user_id: str
    sandbox_type: str
    code: str
    environment: Mapping[str, Any]
    status: str
    stdout: str | None
    stderr: str | None
    exit_code: int | None
    execution_time_ms: float | None
    resource_usage: Mapping[str, Any]
    truncated: bool
    created_at: datetime
    ended_at: datetime | None


def make_sandbox_backend(
    name: str,
    *,
    engine: Sequence[str] = ("podman",),
    options: Sequence[str] = (),
    token: str | None = None,
    allowed: Sequence[Network] = (),
) -> SandboxBackend:
    """Return a backend: ``monty`` (the default everywhere), ``bwrap``, ``container:IMAGE`` or ``remote:URL``.

    Args:
        engine, options: for a container; see `ContainerBackend`. Podman's read-only temporary folders are set.
        token, allowed: for a service; see `RemoteBackend`.

    Raises:
        InvalidInputError: there is no such backend.
    """
    from pulse.sandbox.adapters import ContainerBackend, RemoteBackend
    from pulse.sandbox.bwrap import BwrapBackend
    from pulse.sandbox.monty import MontyBackend

    choice = parse_sandbox(name)
    if choice.kind == "container":
        is_podman = any(Path(word).name == "podman" for word in engine)
        needed = ["--read-only-tmpfs=false"] if is_podman else []
        return ContainerBackend(choice.place, engine=engine, options=[*needed, *options])
    if choice.kind == "remote":
        return RemoteBackend(choice.place, token=token, allowed=allowed)
    return MontyBackend() if choice.kind == "monty" else BwrapBackend()


class SelfTest:
    """A backend's test of itself, for all that use the backend: once passed, it is not repeated; once failed, it is."""

    def __init__(self, backend: SandboxBackend) -> None:
        self.backend = backend
        self._tested: asyncio.Task[str | None] | None = None

    async def fault(self) -> str | None:
        """Return why the backend does not work here, or None."""
        if self._tested is None or (self._tested.done() and not _passed(self._tested)):
            self._tested = asyncio.create_task(self.backend.check())
        return await asyncio.shield(self._tested)


class Sandbox:
    """Runs code of one app, on one backend: there is no other to fall back to.

    The backend tests itself before its first execution; while that fails, every execution is `unavailable`.

    Args:
        backend: or its test, which sandboxes of other apps share; by default monty.
    """

    def __init__(self, pool: Pool, app_name: str, backend: SandboxBackend | SelfTest | None = None) -> None:
        self._pool = pool
        self._app_name = app_name
        self._test = backend if isinstance(backend, SelfTest) else SelfTest(backend or make_sandbox_backend("monty"))
        self.backend = self._test.backend

    async def check(self) -> str | None:
        """Return why the backend does not work here, or None. It is tested until it works once."""
        return await self._test.fault()

    async def execute(
        self, request: SandboxRequest, *, user_id: str = "", run_id: uuid.UUID | None = None
    ) -> SandboxResult:
        """Run code and record it. What the code does never raises.

        Raises:
            PulseError, OSError: the database did not store the row; nothing was run.
        """
        environment = {
            "limits": {name: getattr(request.limits, name) for name in request.limits.__dataclass_fields__},
            "files": sorted(request.files)[:100],
            "env": sorted(request.env)[:100],
            "isolation": self.backend.isolation,
        }
        execution_id = await _STATEMENTS.fetchval(
            self._pool,
            "begin_execution",
            run_id,
            self._app_name,
            user_id,
            self.backend.name,
            _bounded(request.code),
            escape_state(environment),
        )
        result = SandboxResult(status="crashed", error="it was cancelled")
        try:
            with current_tracing().span("run_code", attributes={"hippocampus.sandbox": self.backend.name}) as span:
                problem = await self.check()
                result = await self.backend.execute(request) if problem is None else unavailable(problem)
                if result.status != "ok":
                    span.fail(result.status)
        finally:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(self._end(execution_id, result))
        return result

    async def executions(
        self,
        *,
        user_id: str | None = None,
        status: SandboxStatus | None = None,
        limit: int = 100,
        before: uuid.UUID | None = None,
    ) -> list[SandboxExecution]:
        """List executions, the newest first.

        Raises:
            InvalidInputError: limit is not 1 to 1,000, or there is no such status.
        """
        check_limit(limit, LIST_LENGTH_MAX)
        if status is not None and status not in SANDBOX_STATUSES:
            raise InvalidInputError(f"there is no status {status!r:.40}; there are {', '.join(SANDBOX_STATUSES)}")
        rows = await _STATEMENTS.fetch(self._pool, "list_executions", self._app_name, user_id, status, before, limit)
        return [SandboxExecution(**{**dict(row), "environment": unescape(row["environment"])}) for row in rows]

    async def close(self) -> None:
        """Close the backend. Idempotent."""
        await self.backend.close()

    async def _end(self, execution_id: uuid.UUID, result: SandboxResult) -> None:
        stderr = result.stderr if result.error is None else f"{result.stderr}\n{result.error}".strip()
        try:
            await _STATEMENTS.execute(
                self._pool,
                "end_execution",
                execution_id,
                result.status,
                _bounded(result.stdout),
                _bounded(stderr),
                result.exit_code,
                result.execution_time_ms,
                escape_state(dict(result.resource_usage)),
                result.truncated,
            )
        except (PulseError, *FAULTS) as error:
            _log.warning("sandbox_execution_not_recorded", error=type(error).__name__)


def _passed(task: asyncio.Task[str | None]) -> bool:
    return not task.cancelled() and task.exception() is None and task.result() is None


def _bounded(text: str) -> str:
    return clean_text(mask_and_cut(text, STORED_CHARACTERS_MAX, "[redacted]"))
