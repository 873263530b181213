"""The tools of an app: registered in the database, called under permissions and limits, every call recorded.

    registry = ToolRegistry(pool, "shop")
    await registry.register_tool("add", lambda a, b: a + b, description="Add two numbers.")
    await registry.put_openapi("pets", Path("pets.yaml"), credentials={"key": "env:TOOL_PETS_KEY"})
    await registry.invoke_tool("add", {"a": 1, "b": 2}, user_id="ann")      # 3, or {"error": {"code", "message"}}

A call is two statements: one before it, which checks that the tool is as this process knows it, reserves its rate, and
commits a row; and one after it. No connection is held in between. A tool that changed meanwhile is read again first, so
a change is in force for every call that begins after its commit; calls in progress finish on the version they started
with.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import structlog

from pulse.database import FAULTS
from pulse.errors import InvalidInputError, PulseError, RunNotFoundError
from pulse.names import check_app
from pulse.notify.connection import NotifyConnection
from pulse.outbound import addresses
from pulse.outbound.client import OutboundClient
from pulse.postgres.json_values import clean_text, escape_state, unescape
from pulse.postgres.statements import Statements
from pulse.process.counts import COUNTS
from pulse.tools import credentials as credential_rules
from pulse.tools import mcp_source, sandboxed
from pulse.tools.catalog import CLIENT_SECONDS, ToolCatalog, read_networks, read_tool
from pulse.tools.permissions import Permissions, read_permissions
from pulse.tools.records import (
    ExecutionStatus,
    Tool,
    ToolContext,
    ToolError,
    ToolErrorCode,
    ToolOutcome,
)
from pulse.tools.redaction import redacted, stored, without
from pulse.tools.requests import HttpCaller
from pulse.tools.schemas import SchemaCheck, check_depth
from pulse.tracing import genai
from pulse.tracing.manager import current_tracing
from pulse.tracing.records import parse_traceparent
from pulse.tracing.spans import Span

if TYPE_CHECKING:
    from pulse.database import Pool
    from pulse.sandbox.service import Sandbox

CHANNEL = "agent_tools"
#: How long a person's confirmation is waited for.
CONFIRMATION_SECONDS = 86_400.0
#: A list is read again after this time even while it is listened to: a notification may have been lost.
_POLL_SECONDS = 0.5
#: Over a tool's own time limit, until its call counts as lost.
_MARGIN_SECONDS = 30.0
_ATTEMPTS_MAX = 5
_ERROR_LENGTH_MAX = 1000
_NAME_LENGTH_MAX = 255

_STATEMENTS = Statements("pulse.tools", "tools.sql")
_log = structlog.get_logger(__name__)

#: Returns the roles of a user, as the app knows them.
RolesOf: TypeAlias = Callable[[str], Awaitable[Collection[str]]]


@dataclass(slots=True)
class _Source:
    """How a source is reached, in this process; closed when it was replaced and its last call has ended."""

    version: int
    kind: str
    base_url: str
    options: Mapping[str, Any]
    allowed: tuple[addresses.Network, ...]
    caller: HttpCaller | None
    users: int = 0
    is_retired: bool = False


@dataclass(slots=True)
class _Entry:
    """A tool as this process knows it."""

    tool: Tool
    permissions: Permissions
    _input: SchemaCheck | None = None
    _output: SchemaCheck | None = None

    @property
    def input_check(self) -> SchemaCheck:
        if self._input is None:
            self._input = SchemaCheck(self.tool.input_schema, what="its input schema")
        return self._input

    @property
    def output_check(self) -> SchemaCheck | None:
        if self._output is None and self.tool.output_schema is not None:
            self._output = SchemaCheck(self.tool.output_schema, what="its output schema")
        return self._output

    def needs_confirmation(self) -> bool:
        rule = self.permissions.requires_confirmation
        return rule == "always" or (rule == "unsafe" and self.tool.operation.get("is_safe") is not True)


@dataclass(slots=True, kw_only=True)
class _Call:
    """A call that is being made."""

    name: str
    given: Any
    user_id: str
    run_id: uuid.UUID | None
    tool_call_id: str
    idempotency_key: str
    #: The kind of its tool, once the tool was found.
    kind: str = "unknown"
    roles: Collection[str] = ()
    agent: str | None = None
    #: Found before the tool was looked at.
    refusal: tuple[ToolErrorCode, str] | None = None
    secrets: list[str] = field(default_factory=list)
    #: As they are stored: without secrets.
    kept_input: Any = None
    kept_output: Any = None


class ToolRegistry(ToolCatalog):
    """The tools of an app, for one event loop.

    Args:
        read_secret: returns the secret of a reference such as ``env:TOOL_KEY``.
        sandbox: executes tools of the kind ``sandbox``; without it their calls fail.
        roles_of: returns a user's roles, for callers that name none: the executor, ADK, MCP.
        resolve: looks names up.
    """

    def __init__(
        self,
        pool: Pool,
        app_name: str,
        *,
        read_secret: credential_rules.ReadSecret = credential_rules.read_secret,
        sandbox: Sandbox | None = None,
        roles_of: RolesOf | None = None,
        resolve: addresses.Resolve = addresses.resolve,
    ) -> None:
        super().__init__(pool, app_name, read_secret=read_secret, resolve=resolve)
        self._sandbox = sandbox
        self._roles_of = roles_of
        self._entries: dict[str, _Entry] = {}
        self._revision = -1
        self._sources: dict[uuid.UUID, _Source] = {}
        self._reading = asyncio.Lock()
        self._listener: NotifyConnection | None = None
        self._read_at = 0.0
        self._is_marked = True

    async def get_available_tools(
        self, user_id: str = "", *, roles: Collection[str] | None = None, agent: str | None = None
    ) -> list[Tool]:
        """Return the active tools that a user may call, by their names.

        Args:
            roles: the user's; by default those that `roles_of` returns.
            agent: that calls them.
        """
        if roles is None:
            roles = await self._read_roles(user_id)
        # Without a connection that listens, each list asks for what changed since the last.
        is_current = self._listener is not None and self._listener.is_listening and not self._is_marked
        if not is_current or time.monotonic() - self._read_at > _POLL_SECONDS:
            await self._refresh()
        return [
            entry.tool
            for _, entry in sorted(self._entries.items())
            if entry.permissions.allow(user_id, _named(roles), None if agent == "*" else agent)
        ]

    async def live_run(self, user_id: str, session_id: str) -> uuid.UUID | None:
        """Return the run of a session that is running: for frameworks that do not pass it to their tools."""
        found: uuid.UUID | None = await _STATEMENTS.fetchval(self._pool, "live_run", self.app_name, user_id, session_id)
        return found

    def listen(self, dsn: str, *, schema: str | None = None) -> None:
        """Learn of changes by NOTIFY, so that `get_available_tools` needs few statements. `close` ends it.

        Calls need it not: each checks that its tool is the current one.
        """
        if self._listener is None:
            self._listener = NotifyConnection(dsn, {CHANNEL: self._mark}, lambda: self._mark(None), schema=schema)
            self._listener.start()

    async def close(self) -> None:
        """Stop listening, and close connections to tools' servers. Idempotent."""
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.stop()
        sources, self._sources = self._sources, {}
        for source in sources.values():
            await _retire(source)

    async def __aenter__(self) -> ToolRegistry:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    # Calling

    async def invoke_tool(
        self,
        name: str,
        params: Mapping[str, Any],
        *,
        run_id: uuid.UUID | str | None = None,
        user_id: str | None = None,
        tool_call_id: str | None = None,
    ) -> Any:
        """Call a tool and return its result, or ``{"error": {"code", "message"}}``. Never raises; see `call`."""
        outcome = await self.call(name, params, run_id=run_id, user_id=user_id, tool_call_id=tool_call_id)
        return outcome.for_model()

    async def call(
        self,
        name: str,
        params: Mapping[str, Any],
        *,
        run_id: uuid.UUID | str | None = None,
        user_id: str | None = None,
        tool_call_id: str | None = None,
        idempotency_key: str | None = None,
        roles: Collection[str] | None = None,
        agent: str | None = None,
    ) -> ToolOutcome:
        """Call a tool. Never raises, except when the caller's task is cancelled: then the call is recorded as such, or
        as one that was not made.

        Args:
            run_id: the run that it belongs to, by the caller's id or by `Run.id`.
            user_id: on whose behalf; by default the run's user, or no user.
            tool_call_id: the model's id of the call.
            idempotency_key: that of the attempt that is repeated; by default one for this run and call.
            roles, agent: the caller's, for the tool's permissions; roles by default those that `roles_of` returns.
        """
        return await self._record(name, params, run_id, user_id, tool_call_id, idempotency_key, roles, agent)

    async def refuse(
        self,
        name: str,
        params: Mapping[str, Any],
        refusal: tuple[ToolErrorCode, str],
        *,
        run_id: uuid.UUID | str | None = None,
        user_id: str | None = None,
        tool_call_id: str | None = None,
    ) -> ToolOutcome:
        """Record a call that its caller refuses to make, with a code and why, and return that. Never raises."""
        return await self._record(name, params, run_id, user_id, tool_call_id, refusal=refusal)

    async def _record(
        self,
        name: str,
        params: Mapping[str, Any],
        run_id: uuid.UUID | str | None,
        user_id: str | None,
        tool_call_id: str | None,
        idempotency_key: str | None = None,
        roles: Collection[str] | None = (),
        agent: str | None = None,
        *,
        refusal: tuple[ToolErrorCode, str] | None = None,
    ) -> ToolOutcome:
        try:
            run, user = await self._find_run(run_id, user_id)
        except InvalidInputError as error:
            # The row is of no run.
            run, user, refusal = None, user_id or "", ("tool_failed", f"{error}; nothing was called")
        except (PulseError, *FAULTS) as error:
            return _failed(error)
        if roles is None:
            try:
                roles = await self._read_roles(user)
            except Exception as error:  # noqa: BLE001 - the app's own code
                _log.warning("tool_roles_not_read", error=type(error).__name__)
                roles, refusal = (), ("not_allowed", "the roles of this user could not be read; nothing was called")
        call_id = clean_text(str(tool_call_id or uuid.uuid4()))[:_NAME_LENGTH_MAX]
        key = idempotency_key or str(uuid.uuid5(run or uuid.uuid4(), call_id))
        call = _Call(
            name=clean_text(str(name)),
            given=params,
            user_id=user,
            run_id=run,
            tool_call_id=call_id,
            idempotency_key=key,
            roles=_named(roles),
            agent=None if agent == "*" else agent,
            refusal=refusal,
        )
        return await self._traced(call, lambda span: self._call(call, span))

    async def confirm(
        self, execution_id: uuid.UUID, *, user_id: str, approved: bool, idempotency_key: str | None = None
    ) -> ToolOutcome:
        """Decide on a call that waits for a person: make it, once, with exactly its arguments, or refuse it.

        A second decision, or one after a day, answers ``denied`` and calls nothing. While `max_concurrency` calls run,
        the answer is ``rate_limited``, and the call keeps waiting; so it does where this process lacks the tool's
        function or sandbox. Never raises, as `call`.
        """
        try:
            if approved and (elsewhere := await self._elsewhere(execution_id, user_id)) is not None:
                return elsewhere
            decided = await self._decide(execution_id, user_id, approved=approved, is_answer=False)
            if isinstance(decided, ToolOutcome):
                return decided
            call, entry = decided
        except (PulseError, *FAULTS) as error:
            return _failed(error)
        call.idempotency_key = idempotency_key or str(uuid.uuid5(execution_id, call.tool_call_id))
        refusal = self._check(entry, call)
        if entry is None or refusal is not None:
            code, message = refusal or ("unknown_tool", f"there is no tool {call.name[:80]!r} any more")
            outcome = ToolOutcome(status="refused", execution_id=execution_id, error_code=code, error=message)
            return await self._ended(outcome, call, None)
        call.kind = entry.tool.kind
        return await self._traced(call, lambda _span: self._run(entry, call, execution_id))

    async def answer(self, execution_id: uuid.UUID, value: Any, *, user_id: str) -> ToolOutcome:
        """Give the result of a call that the user's client made. Never raises, as `call`."""
        try:
            decided = await self._decide(execution_id, user_id, approved=True, is_answer=True)
            if isinstance(decided, ToolOutcome):
                return decided
            call, entry = decided
        except (PulseError, *FAULTS) as error:
            return _failed(error)
        outcome = ToolOutcome(status="succeeded", execution_id=execution_id, value=value)
        return await self._ended(outcome, call, entry)

    async def _elsewhere(self, execution_id: uuid.UUID, user_id: str) -> ToolOutcome | None:
        """Return why a call that waits cannot be made by this process; None if it can."""
        row = await _STATEMENTS.fetchrow(self._pool, "waiting_tool", self.app_name, user_id, execution_id)
        if row is None:
            return None
        missing = {
            "python": row["name"] not in self._functions and f"this process has no function for {row['name']}",
            "sandbox": self._sandbox is None and "this process has no sandbox",
        }.get(row["kind"])
        if not missing:
            return None
        return ToolOutcome(
            status="waiting",
            execution_id=execution_id,
            error_code="tool_failed",
            error=f"{missing}: confirm the call in one that has; until then it waits",
        )

    async def _decide(
        self, execution_id: uuid.UUID, user_id: str, *, approved: bool, is_answer: bool
    ) -> ToolOutcome | tuple[_Call, _Entry | None]:
        row = await _STATEMENTS.fetch_one(
            self._pool,
            "decide_tool_call",
            self.app_name,
            user_id,
            execution_id,
            approved,
            3600.0 + _MARGIN_SECONDS,
            is_answer,
        )
        if row["outcome"] in ("busy", "other"):
            code: ToolErrorCode = "rate_limited" if row["outcome"] == "busy" else "waiting"
            message = {
                (True, True): "a person has to confirm this call: it has no result to be given",
                (False, True): "the user's client has to answer this call: give its result",
            }.get((is_answer, code == "waiting"), "too many calls of this tool run: decide again in 1 s")
            return ToolOutcome(
                status="waiting",
                execution_id=execution_id,
                error_code=code,
                error=message,
                retry_after_seconds=1.0 if code == "rate_limited" else None,
            )
        if row["outcome"] != "confirmed":
            said = (
                "a person denied this call"
                if row["outcome"] == "denied"
                else "this call was decided before, or waited too long; nothing was called"
            )
            return ToolOutcome(status="refused", execution_id=execution_id, error_code="denied", error=said)
        await self._refresh()
        call = _Call(
            name=row["tool_name"],
            given=unescape(row["params"]),
            user_id=user_id,
            run_id=row["run_id"],
            tool_call_id=row["tool_call_id"],
            idempotency_key="",
            # Its roles and its agent were checked when it was asked for; the tool's users are checked again.
            roles=("*",),
            agent="*",
        )
        return call, self._entries.get(call.name)

    async def _traced(self, call: _Call, make: Callable[[Span], Awaitable[ToolOutcome]]) -> ToolOutcome:
        began, status = time.perf_counter(), "cancelled"
        try:
            outcome = await self._spanned(call, make)
            status = outcome.status
        finally:
            for observe in COUNTS.on_tool_call:
                observe(call.kind, status, time.perf_counter() - began)
        return outcome

    async def _spanned(self, call: _Call, make: Callable[[Span], Awaitable[ToolOutcome]]) -> ToolOutcome:
        with current_tracing().trace_tool_call(
            call.name[:_NAME_LENGTH_MAX],
            call_id=call.tool_call_id,
            app_name=self.app_name,
            user_id=call.user_id,
            run_id=None if call.run_id is None else str(call.run_id),
        ) as span:
            try:
                outcome = await make(span)
            except (PulseError, *FAULTS) as error:
                outcome = _failed(error)
            span.set_attribute("hippocampus.tool.status", outcome.status)
            if current_tracing().content:
                for name, kept in ((genai.TOOL_ARGUMENTS, call.kept_input), (genai.TOOL_RESULT, call.kept_output)):
                    if kept is not None:
                        span.set_attribute(name, json.dumps(kept, ensure_ascii=False))
            if outcome.is_error and outcome.status != "waiting":
                span.fail(outcome.error_code or outcome.status)
        return outcome

    async def _call(self, call: _Call, span: Span) -> ToolOutcome:
        """Check a call, record it, and make it.

        Raises:
            PulseError, *FAULTS: the database failed before the call was made.
        """
        for _ in range(_ATTEMPTS_MAX):
            entry = self._entries.get(call.name)
            if entry is None:
                await self._refresh()
                entry = self._entries.get(call.name)
            if entry is not None:
                call.kind = entry.tool.kind
            refusal = call.refusal or self._check(entry, call)
            waits = (
                entry is not None and refusal is None and (entry.needs_confirmation() or entry.tool.kind == "client")
            )
            async with contextlib.AsyncExitStack() as held:
                source = None
                if entry is not None and refusal is None and not waits:
                    # Before the row: what it is called with is what the row's check finds to be current.
                    source = await held.enter_async_context(self._reached(entry.tool))
                beginning = asyncio.ensure_future(self._begin(entry, call, refusal, span, waits=waits))
                try:
                    row = await asyncio.shield(beginning)
                except asyncio.CancelledError:
                    await self._give_up(beginning, call, entry)
                    raise
                except RunNotFoundError as error:
                    call.run_id, call.refusal = None, ("tool_failed", f"{error}; nothing was called")
                    continue
                if row["refusal"] == "stale":
                    await self._refresh()
                    if self._entries.get(call.name) is entry:
                        self._entries.pop(call.name, None)  # its row was deleted
                    continue
                if refusal is not None:
                    return _refused(row["id"], refusal)
                if row["refusal"] == "rate_limited":
                    seconds = float(row["wait_seconds"])
                    message = f"too many calls of this tool: try again in {max(seconds, 0.001):.3g} s"
                    return _refused(row["id"], ("rate_limited", message), retry_after_seconds=seconds)
                assert entry is not None  # noqa: S101 - without a tool there is a refusal
                if waits:
                    by = "the user's client has to answer" if entry.tool.kind == "client" else "a person has to confirm"
                    message = f"{by} this call; it was not made yet"
                    return ToolOutcome(status="waiting", execution_id=row["id"], error_code="waiting", error=message)
                return await self._run(entry, call, row["id"], source)
        given_up: tuple[ToolErrorCode, str] = ("tool_failed", "the tool changes too often; try again")
        return _refused((await self._begin(None, call, given_up, span, waits=False))["id"], given_up)

    async def _give_up(self, beginning: asyncio.Future[Any], call: _Call, entry: _Entry | None) -> None:
        """Record that a call was not made, since its caller was cancelled meanwhile. One that waits still does."""
        with contextlib.suppress(PulseError, asyncio.CancelledError, *FAULTS):
            row = await asyncio.shield(beginning)
            if row["id"] is not None:
                message = "the run ended before this call was made"
                outcome = ToolOutcome(status="failed", execution_id=row["id"], error_code="tool_failed", error=message)
                await asyncio.shield(self._ended(outcome, call, entry))

    def _check(self, entry: _Entry | None, call: _Call) -> tuple[ToolErrorCode, str] | None:
        """Return why a call is refused. What a user may not call does not exist for that user."""
        if entry is None:
            return "unknown_tool", f"there is no tool {call.name[:80]!r}; call one of those that are listed"
        if not entry.permissions.allow(call.user_id, call.roles, call.agent):
            return "not_allowed", f"this user may not call {call.name[:80]!r}"
        if not isinstance(call.given, Mapping):
            return "invalid_arguments", "/: the arguments are an object"
        try:
            check_depth(call.given, "the arguments")
        except InvalidInputError as error:
            return "invalid_arguments", str(error)
        problems = entry.input_check.problems(call.given)
        if problems:
            return "invalid_arguments", "; ".join(problems)[:_ERROR_LENGTH_MAX]
        return None

    async def _begin(
        self, entry: _Entry | None, call: _Call, refusal: tuple[ToolErrorCode, str] | None, span: Span, *, waits: bool
    ) -> Any:
        check_app(self.app_name)
        tool = None if entry is None else entry.tool
        rules = Permissions() if entry is None else entry.permissions
        schema = None if tool is None else tool.input_schema
        seconds = 30.0 if tool is None else tool.timeout_seconds + _MARGIN_SECONDS
        if waits and tool is not None:
            seconds = CLIENT_SECONDS if tool.kind == "client" else CONFIRMATION_SECONDS
        traced = parse_traceparent(span.traceparent)
        call.kept_input = _storable(call.given, schema)
        return await _STATEMENTS.fetch_one(
            self._pool,
            "begin_tool_call",
            self.app_name,
            call.user_id,
            None if tool is None else tool.id,
            None if tool is None else tool.revision,
            call.name[:_NAME_LENGTH_MAX],
            None if tool is None else tool.version,
            call.run_id,
            call.tool_call_id,
            call.kept_input,
            escape_state(call.given) if waits else None,
            None if refusal is None else refusal[0],
            None if refusal is None else clean_text(refusal[1]),
            tool is not None and tool.nature == "once",
            (rules.rate_limit or 0) / 60,
            rules.burst,
            rules.max_concurrency,
            "" if tool is None else f"tool:{tool.id}:{hashlib.sha256(call.user_id.encode()).hexdigest()[:24]}",
            seconds,
            *((None, None) if traced is None else (traced.trace_id, traced.span_id)),
        )

    async def _run(
        self, entry: _Entry, call: _Call, execution_id: uuid.UUID, source: _Source | None = None
    ) -> ToolOutcome:
        """Make a call that is recorded, and record its end."""
        started = time.perf_counter()
        status: ExecutionStatus = "failed"
        value: Any = None
        code: ToolErrorCode | None = None
        message: str | None = None
        limit = asyncio.timeout(entry.tool.timeout_seconds)
        try:
            async with limit:
                value = await self._execute(entry, call, source)
            status = "succeeded"
            wrong = None if entry.output_check is None else entry.output_check.problems(value)
            if wrong:
                status, code = "failed", "tool_failed"
                message = f"the call was made, but its result is not as the tool describes it: {'; '.join(wrong)}"
        except asyncio.CancelledError:
            latency = (time.perf_counter() - started) * 1000
            outcome = ToolOutcome(status="cancelled", execution_id=execution_id, latency_ms=latency)
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(self._ended(outcome, call, entry))
            raise
        except Exception as error:  # noqa: BLE001 - a tool's own failure is a result for the model
            # What is cancelled at the limit may fail of it.
            if limit.expired() or isinstance(error, TimeoutError):
                unsure = "" if entry.tool.nature == "again" else "; it may have happened: check before you repeat it"
                status, code = "timeout", "timeout"
                message = f"no result within {entry.tool.timeout_seconds:g} s{unsure}"
            elif isinstance(error, ToolError):
                code, message = error.code, str(error)
                status = "unknown" if code == "outcome_unknown" else "timeout" if code == "timeout" else "failed"
            else:
                code, message = "tool_failed", f"the tool failed: {type(error).__name__}: {str(error)[:300]}"
        latency = (time.perf_counter() - started) * 1000
        outcome = ToolOutcome(
            status=status,
            execution_id=execution_id,
            value=value if code is None else None,
            error_code=code,
            error=message,
            latency_ms=latency,
        )
        return await self._ended(outcome, call, entry)

    async def _ended(self, outcome: ToolOutcome, call: _Call, entry: _Entry | None) -> ToolOutcome:
        """Record the end of a call, and return what it is for its caller: without secrets."""
        kept, size, digest = None, None, None
        if outcome.error is not None:
            shown = redacted(without(outcome.error, call.secrets), secrets=call.secrets)
            outcome = replace(outcome, error=clean_text(str(shown))[:_ERROR_LENGTH_MAX])
        elif outcome.status == "succeeded":
            schema = None if entry is None else entry.tool.output_schema
            limit = Permissions().max_response_bytes if entry is None else entry.permissions.max_response_bytes
            try:
                kept, size, digest = stored(outcome.value, secrets=call.secrets, schema=schema)
                call.kept_output = kept
            except (PulseError, ValueError, TypeError, RecursionError):
                outcome = replace(
                    outcome, status="failed", value=None, error_code="tool_failed", error="the result is not JSON"
                )
            if size is not None and size > limit:
                message = f"the call was made, but its result has {size:,} bytes, over {limit:,}: ask for less"
                outcome = replace(outcome, status="failed", value=None, error_code="too_large", error=message)
        try:
            await _STATEMENTS.fetchval(
                self._pool,
                "end_tool_call",
                outcome.execution_id,
                outcome.status,
                outcome.latency_ms,
                kept,
                size,
                digest,
                outcome.error_code,
                outcome.error,
            )
        except (PulseError, *FAULTS) as error:
            # The call was made: its result is worth more than its record, which is given up as unknown.
            _log.warning("tool_call_not_recorded", tool=call.name[:80], error=type(error).__name__)
        return outcome

    async def _execute(self, entry: _Entry, call: _Call, source: _Source | None) -> Any:
        """Make the call by the tool's kind.

        Raises:
            ToolError, TimeoutError, Exception: it failed.
        """
        tool = entry.tool
        context = ToolContext(
            app_name=self.app_name,
            user_id=call.user_id,
            run_id=call.run_id,
            tool_call_id=call.tool_call_id,
            idempotency_key=call.idempotency_key,
        )
        match tool.kind:
            case "python":
                function = self._functions.get(tool.name)
                if function is None:
                    raise ToolError(f"this process has no function for {tool.name}: call register_tool in it")
                return await function(call.given, context)
            case "sandbox":
                if self._sandbox is None:
                    raise ToolError("this process has no sandbox, and code never runs without one: tell its operator")
                return await sandboxed.run_tool(
                    self._sandbox, tool.operation, call.given, context=context, timeout_seconds=tool.timeout_seconds
                )
            case "http" | "mcp":
                if source is not None:
                    return await self._execute_remotely(entry, call, source)
                async with self._reached(tool) as found:
                    if found is None:
                        raise ToolError("the source of this tool was removed: list the tools again")
                    return await self._execute_remotely(entry, call, found)
        raise ToolError("this tool is executed by the user's client, not here")

    async def _execute_remotely(self, entry: _Entry, call: _Call, source: _Source) -> Any:
        tool = entry.tool
        if source.caller is not None:
            return await source.caller.call(
                tool.operation,
                call.given,
                origin=credential_rules.origin_of(source.base_url),
                nature=tool.nature,
                idempotency_key=call.idempotency_key,
                max_bytes=entry.permissions.max_response_bytes,
                timeout_seconds=tool.timeout_seconds,
                secrets=call.secrets,
            )
        reference = source.options.get("credential")
        token = None if reference is None else credential_rules.resolve(reference, self._read_secret)
        if token is not None:
            call.secrets.extend(credential_rules.forms(token))
        return await mcp_source.call(
            source.base_url,
            token,
            source.allowed,
            self._resolve,
            name=tool.operation["name"],
            arguments=call.given,
            timeout_seconds=tool.timeout_seconds,
            nature=tool.nature,
            max_bytes=entry.permissions.max_response_bytes,
        )

    @contextlib.asynccontextmanager
    async def _reached(self, tool: Tool) -> AsyncIterator[_Source | None]:
        """Hold the source of a tool, if it has one, so that a call ends on what it began with."""
        source = None if tool.source_id is None else await self._source(tool.source_id, tool.source_version or 0)
        if source is None:
            yield None
            return
        source.users += 1
        try:
            yield source
        finally:
            source.users -= 1
            if source.is_retired:
                await _retire(source)

    async def _source(self, source_id: uuid.UUID, version: int) -> _Source | None:
        """Return a source in this version or a later one; None if it is gone."""
        known = self._sources.get(source_id)
        if known is not None and known.version >= version:
            return known
        row = await _STATEMENTS.fetchrow(self._pool, "get_source", source_id)
        if row is None:
            return None
        known = self._sources.get(source_id)  # another call may have been first
        if known is not None and known.version >= row["version"]:
            return known
        options = unescape(row["options"])
        allowed = read_networks(",".join(options["allowed_networks"]))
        caller = None
        if row["kind"] == "openapi":
            client = OutboundClient(allowed, secret=bool(options["credentials"]), resolve=self._resolve)
            caller = HttpCaller(client, options["schemes"], options["credentials"], self._read_secret)
        source = _Source(
            version=row["version"],
            kind=row["kind"],
            base_url=row["base_url"],
            options=options,
            allowed=allowed,
            caller=caller,
        )
        self._sources[source_id] = source
        if known is not None:
            await _retire(known)
        return source

    # Keeping up

    def _mark(self, payload: str | None) -> None:
        """Note that tools may have changed."""
        try:
            if payload is None or json.loads(payload)["app"] == self.app_name:
                self._is_marked = True
        except (ValueError, KeyError, TypeError):
            self._is_marked = True

    async def _refresh(self) -> None:
        """Read the tools that changed."""
        async with self._reading:
            self._is_marked = False
            try:
                rows = await _STATEMENTS.fetch(self._pool, "changed_tools", self.app_name, self._revision)
            except BaseException:
                self._is_marked = True
                raise
            self._read_at = time.monotonic()
            replaced: list[_Source] = []
            for row in rows:
                tool = read_tool(row)
                self._revision = max(self._revision, tool.revision)
                source = None if tool.source_id is None else self._sources.get(tool.source_id)
                if source is not None and source.version < (tool.source_version or 0):
                    self._sources = {key: each for key, each in self._sources.items() if each is not source}
                    replaced.append(source)
                if tool.is_active:
                    self._entries[tool.name] = _Entry(tool, read_permissions(tool.permissions))
                else:
                    self._entries.pop(tool.name, None)
            # Last: a reader that is cancelled here has missed no change.
            for source in replaced:
                await _retire(source)

    # Helpers

    async def _read_roles(self, user_id: str) -> Collection[str]:
        return () if self._roles_of is None else await self._roles_of(user_id)

    async def _find_run(self, run_id: uuid.UUID | str | None, user_id: str | None) -> tuple[uuid.UUID | None, str]:
        if run_id is None or (isinstance(run_id, uuid.UUID) and user_id is not None):
            return run_id if isinstance(run_id, uuid.UUID) else None, user_id or ""
        named = run_id if isinstance(run_id, str) else None
        row = await _STATEMENTS.fetchrow(
            self._pool, "find_run", self.app_name, named, None if named is not None else run_id
        )
        if row is None:
            raise InvalidInputError(f"app {self.app_name!r:.80} has no run {str(run_id)[:80]!r}")
        return row["id"], row["user_id"] if user_id is None else user_id


def _named(roles: Collection[str]) -> Collection[str]:
    """Return a caller's roles: ``*`` is not a role, but stands for any in permissions."""
    return [each for each in roles if each != "*"]


def _storable(value: Any, schema: Mapping[str, Any] | None) -> Any:
    try:
        return stored(value, schema=schema).value
    except (PulseError, ValueError, TypeError, RecursionError):
        return {"unstorable": True}


def _refused(
    execution_id: uuid.UUID | None, refusal: tuple[ToolErrorCode, str], *, retry_after_seconds: float | None = None
) -> ToolOutcome:
    code, message = refusal
    return ToolOutcome(
        status="refused",
        execution_id=execution_id,
        error_code=code,
        error=message,
        retry_after_seconds=retry_after_seconds,
    )


def _failed(error: BaseException) -> ToolOutcome:
    said = str(error) if isinstance(error, PulseError) else "the database of the tools did not answer"
    return ToolOutcome(status="failed", error_code="tool_failed", error=f"{said}; nothing was called", cause=error)


async def _retire(source: _Source) -> None:
    source.is_retired = True
    if source.users == 0 and source.caller is not None:
        await source.caller.close()
