"""The tick: one process of a scope reads the present, has the rules decide, records the effects, and sleeps.

The leader holds an advisory lock on a connection of its own, over which it writes everything: who lost the lock has no
connection to write with. The server ends the session of a leader that was suspended (`IDLE_SECONDS_MAX`). Other
processes poll the lock twice a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from pulse.autonomic.onion import border, decide, failure_code, innermost
from pulse.autonomic.releases import OWN_PREFIX, ReleaseService, own_kinds
from pulse.autonomic.statements import STATEMENTS
from pulse.autonomic.survival import SURVIVAL
from pulse.autonomic.tasks import AGENT_STATS, PENDING_TASKS
from pulse.autonomic.types import TICK_MS_FAST, TICK_MS_MIN, Effect, Rule, Snapshot
from pulse.autonomic.watchers import Vitals, rows_of
from pulse.database import FAULTS
from pulse.errors import DatabaseUnreachableError, PulseError
from pulse.postgres.backoff import Backoff

if TYPE_CHECKING:
    from pulse.database import Connection

_log = structlog.get_logger(__name__)

WAKE_CHANNEL = "pulse_wake"
POLL_SECONDS = 0.5
#: The server ends a leader's session that shows no sign of life for this long.
IDLE_SECONDS_MAX = 15.0
PING_SECONDS = 7.5
#: Samples of a process that does not lead are stored this often.
STORE_SECONDS = 15.0
RECONCILE_SECONDS = 60.0
NOTE_SECONDS = 3_600.0
#: If the database has been gone for this long, people are notified by other means.
LOST_SECONDS = 30.0
STATEMENT_SECONDS_MAX = 10.0
#: The time for loading all rules of a release: less than that after which the server ends the leader's session.
LOAD_SECONDS_MAX = 5.0
#: Measurements that are over are deleted this often.
COLLECT_GARBAGE_SECONDS = 600.0
#: The most rows that one tick deletes.
GARBAGE_ROWS_MAX = 10_000

#: This many failures of a release's rules in 10 minutes switch them off for 5.
BORDER_FAILURES_MAX = 3
BORDER_WINDOW_SECONDS = 600.0
BORDER_OFF_SECONDS = 300.0

#: Ticks that a release runs beside the one in force before it may be promoted.
SHADOW_TICKS = 20

_DATABASE_FAULTS = (*FAULTS, DatabaseUnreachableError)


class Ticked(NamedTuple):
    """What a tick was.

    Attributes:
        seconds: how long it took.
        wake_seconds: from the call that ended its sleep to its start; None if it slept to the end.
        effects: that it recorded.
        errors: that it counted, by key.
    """

    seconds: float
    wake_seconds: float | None
    effects: Sequence[Effect]
    errors: Mapping[str, int]


@dataclass(slots=True)
class _Release:
    """Rules as they are loaded: which, what its own executors execute, and what failed while they were loaded."""

    id: int | None = None
    rule: Rule | None = None
    failure: str | None = None
    kinds: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Border:
    """Whether the rules of the release take part, by their failures."""

    failures: list[float] = field(default_factory=list)
    off_until: float = 0.0

    def note(self, now: float) -> None:
        """Note a failure."""
        self.failures = [at for at in self.failures if now - at < BORDER_WINDOW_SECONDS] + [now]
        if len(self.failures) >= BORDER_FAILURES_MAX:
            self.off_until = now + BORDER_OFF_SECONDS
            self.failures.clear()


class TickLoop:
    """The ticks of one scope, in one of the processes that run this.

    Args:
        connect: opens a connection; its loss ends the lead.
        holder: names this process, as 'machine:pid'.
        vitals: the samples of this process's watchers.
        load: makes a rule of a release's files; None where rules cannot be run.
        route: returns the queue of an effect's job.
        sense_keys: what the snapshot is to hold beside the senses: 'pending-tasks', which brings both projections of
            tasks, or 'agent-capability-stats' alone.
        on_tick: called after each tick.
        on_release: called with the files of the release in force whenever this process begins or ends to tick by it;
            with none when it ends.
        on_lost: called once when the database has been gone for `LOST_SECONDS`.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Connection]],
        scope: str,
        *,
        holder: str,
        vitals: Vitals,
        load: Callable[[Mapping[str, str]], Awaitable[Rule]] | None = None,
        route: Callable[[Effect], str] = lambda _effect: "effects",
        sense_keys: Sequence[str] = (),
        on_tick: Callable[[Ticked], None] = lambda _ticked: None,
        on_release: Callable[[Mapping[str, str]], None] = lambda _files: None,
        on_lost: Callable[[], Awaitable[None]] | None = None,
        idle_seconds_max: float = IDLE_SECONDS_MAX,
    ) -> None:
        self._connect = connect
        self._scope = scope
        self._holder = holder
        self._vitals = vitals
        self._load = load
        self._route = route
        self._with_tasks = not {PENDING_TASKS, AGENT_STATS}.isdisjoint(sense_keys)
        self._hidden = () if PENDING_TASKS in sense_keys else (PENDING_TASKS,)
        self._on_tick = on_tick
        self._on_release = on_release
        self._on_lost = on_lost
        self._idle_seconds_max = idle_seconds_max
        self._wake = asyncio.Event()
        self._woken_at: float | None = None
        self._errors: Counter[str] = Counter()
        self._prev: Snapshot | None = None
        self._now = 0.0  # the database's time of the tick
        self._release = _Release()
        self._shadow = _Release()
        self._border = _Border()
        self._reconciled_at = float("-inf")
        self._cleaned_at = float("-inf")
        self._noted_at = float("-inf")
        self.is_leading = False
        #: When the loop last ran, by the monotonic clock: what hangs sends no sign of life.
        self.alive_at = time.monotonic()

    def wake(self) -> None:
        """End the sleep of the tick, in whichever process it is."""
        if self._woken_at is None:
            self._woken_at = time.monotonic()
        self._wake.set()

    def report(self, key: str) -> None:
        """Count an error; it is recorded with the next tick."""
        self._errors[key[:200]] += 1

    async def run(self) -> None:
        """Tick while this process leads, wait for the lead while it does not, until cancelled."""
        backoff = Backoff(0.1, 2.0, jitter=0.5, healthy_seconds=2.0)
        lost_at: float | None = None
        is_told = False
        while not _is_cancelled():
            backoff.begin()
            self.alive_at = time.monotonic()
            try:
                async with asyncio.timeout(STATEMENT_SECONDS_MAX):
                    connection = await self._connect()
                lost_at, is_told = None, False
                try:
                    await self._serve(connection)
                finally:
                    self.is_leading = False
                    self._release = _Release()
                    self._tell_release({})
                    connection.terminate()
            except _DATABASE_FAULTS as error:
                lost_at = lost_at or time.monotonic()
                _log.warning("lead_interrupted", error_type=type(error).__name__)
            except Exception:  # noqa: BLE001
                # Neither a bug nor a row of another release may end the ticks for good.
                _log.exception("lead_failed")
            if lost_at is not None and not is_told and time.monotonic() - lost_at >= LOST_SECONDS:
                is_told = True
                if self._on_lost is not None:
                    with contextlib.suppress(Exception):
                        await self._on_lost()
            await backoff.wait()

    async def _serve(self, connection: Connection) -> None:
        lost = asyncio.Event()

        def on_lost(_connection: Any) -> None:
            lost.set()
            self._wake.set()

        connection.add_termination_listener(on_lost)
        await self._run(connection, "limit_idle", str(round(self._idle_seconds_max * 1000)), query="fetchrow")
        await self._stand_by(connection)
        own = await self._run(connection, "own_channel", self._scope)

        def on_notification(_connection: Any, _pid: int, _channel: str, payload: object) -> None:
            if payload == own:
                self.wake()

        await connection.add_listener(WAKE_CHANNEL, on_notification)
        stored = await self._run(connection, "last_snapshots", self._scope, 1)
        self._prev = _read_snapshot(stored)
        self._noted_at = self._reconciled_at = float("-inf")
        self.is_leading = True
        _log.info("lead_taken", scope=self._scope, holder=self._holder)
        while not lost.is_set() and not _is_cancelled():
            began = time.monotonic()
            try:
                tick_ms = await self.tick(connection)
            except _DATABASE_FAULTS:
                raise
            except Exception as error:  # noqa: BLE001
                # Neither a bug nor a value that the database refuses may end the ticks.
                _log.exception("tick_failed")
                self.report(f"tick:{type(error).__name__}")
                tick_ms = TICK_MS_FAST
            self.alive_at = time.monotonic()
            await self._sleep(connection, began, tick_ms / 1000)
        raise ConnectionError

    async def _stand_by(self, connection: Connection) -> None:
        stored_at = time.monotonic()
        while not await self._run(connection, "lead", self._scope):
            if _is_cancelled():
                raise asyncio.CancelledError
            if self._woken_at is not None:
                self._woken_at = None
                self._wake.clear()
                stored_at = time.monotonic()
                await self._store(connection)
                await self._run(connection, "wake", self._scope)
            if time.monotonic() - stored_at >= STORE_SECONDS:
                stored_at = time.monotonic()
                await self._store(connection)
            self.alive_at = time.monotonic()
            await asyncio.sleep(POLL_SECONDS)

    async def _store(self, connection: Connection) -> None:
        samples = self._vitals.take()
        try:
            await self._run(connection, "put_vitals", self._scope, rows_of(samples))
        except _DATABASE_FAULTS:
            self._vitals.give_back(samples)
            raise

    async def _sleep(self, connection: Connection, began: float, seconds: float) -> None:
        """Sleep until the next tick is due or something wakes it, at least a second after the last one began."""
        due = began + seconds
        while not self._wake.is_set() and (left := due - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, PING_SECONDS)):
                    await self._wake.wait()
            if not self._wake.is_set() and due - time.monotonic() > 0:
                await self._run(connection, "ping")
            self.alive_at = time.monotonic()
        await asyncio.sleep(max(0.0, began + TICK_MS_MIN / 1000 - time.monotonic()))

    async def tick(self, connection: Connection) -> int:
        """Tick once over a connection that leads; return how many milliseconds to sleep."""
        began = time.monotonic()
        woken_at, self._woken_at = self._woken_at, None
        self._wake.clear()
        samples = self._vitals.take()
        arguments = (self._scope, self._holder, rows_of(samples), self._with_tasks)
        try:
            row: dict[str, Any] = await self._run(connection, "begin_tick", *arguments)
        except _DATABASE_FAULTS:
            self._vitals.give_back(samples)
            raise
        for name in self._hidden:
            row["projections"].pop(name, None)
        curr = Snapshot.from_json(row)
        self._now = curr.at
        prev = self._prev or Snapshot(curr.at - RECONCILE_SECONDS, self._scope)
        await self._refresh(connection, self._release, None if curr.release is None else curr.release[0])
        if self._release.failure is not None:
            self.report(f"border:{self._release.failure}")
        curr = self._limit_business(curr)
        effects, tick_ms = await decide(
            SURVIVAL, self._release.rule, prev, curr, self._report_border, self._release.kinds
        )
        seconds = time.monotonic() - began
        errors = dict(self._errors)
        effects, is_recorded = await self._record_tick(connection, row, effects, errors, seconds)
        if is_recorded:
            self._errors.subtract(errors)
            self._errors += Counter()
            for each in effects:
                _log.info("effect_decided", kind=each.kind, key=each.key, rule=each.rule)
        self._prev = curr
        self._vitals.add("_snapshot", curr.to_json())
        await self._run_shadow(connection, row.get("shadow"), prev, curr)
        await self._tidy(connection, curr)
        wake_seconds = None if woken_at is None else max(0.0, began - woken_at)
        self._on_tick(Ticked(time.monotonic() - began, wake_seconds, effects, errors))
        return tick_ms

    async def _record_tick(
        self,
        connection: Connection,
        row: Mapping[str, Any],
        effects: list[Effect],
        errors: Mapping[str, int],
        seconds: float,
    ) -> tuple[list[Effect], bool]:
        """Record a tick; return the effects that were stored, and whether there was anything to record."""
        changes = self._vitals.take_changes()
        try:
            note = self._note(row, effects, errors, seconds)
            if not (effects or errors or changes or note):
                return effects, False
            try:
                await self._record(connection, effects, errors, changes, note)
            except _DATABASE_FAULTS:
                raise
            except Exception as error:
                survival = [each for each in effects if each.survival]
                if len(survival) == len(effects):
                    raise
                # What a release asked for could not be stored: it takes nothing of the package's own with it.
                _log.warning("effects_not_stored", error_type=type(error).__name__)
                self._report_border("border:not_stored")
                note = self._note(row, survival, errors, seconds)
                await self._record(connection, survival, errors, changes, note)
                return survival, True
        except BaseException:
            self._vitals.give_back_changes(changes)
            raise
        return effects, True

    async def _record(
        self,
        connection: Connection,
        effects: Sequence[Effect],
        errors: Mapping[str, int],
        changes: Mapping[str, str],
        note: Mapping[str, Any] | None,
    ) -> None:
        described = [{**each.to_json(), "queue": self._route(each)} for each in effects]
        for each in described:
            if each["kind"].startswith(OWN_PREFIX):
                each["release"] = self._release.id  # whose executor it is
        await self._run(connection, "end_tick", self._scope, described, errors, changes, note)

    def _limit_business(self, curr: Snapshot) -> Snapshot:
        if self._release.rule is None or curr.at >= self._border.off_until:
            return curr
        # A release that was switched off still fails: that counts against it.
        self.report("border:switched_off")
        return replace(curr, business=False)

    def _report_border(self, key: str) -> None:
        self.report(key)
        if key.startswith("border:") and key != "border:effects_dropped":
            self._border.note(self._now)

    def _note(
        self, row: Mapping[str, Any], effects: Sequence[Effect], errors: Mapping[str, int], seconds: float
    ) -> dict[str, Any] | None:
        """Return what the record says of this tick: with an effect, and once an hour. Errors have their own events."""
        now = time.monotonic()
        if not effects and now - self._noted_at < NOTE_SECONDS:
            return None
        self._noted_at = now
        decided = [[each.rule, f"{each.kind}|{each.key}"] for each in effects][:32]
        return {
            "ticks": row["ticks"],
            "holder": self._holder,
            "ms": round(seconds * 1000, 1),
            "decided": decided,
            "errors": sum(errors.values()),
        }

    async def _refresh(self, connection: Connection, loaded: _Release, release_id: int | None) -> None:
        """Load the rules of a release, unless they are loaded."""
        if loaded.id == release_id and loaded.failure is None:
            return
        if loaded.id != release_id and loaded is self._release:
            self._border = _Border()
        loaded.id, loaded.rule, loaded.failure, loaded.kinds = release_id, None, None, frozenset()
        if loaded is self._release:
            self._tell_release({})
        if release_id is None:
            return
        if self._load is None:
            loaded.failure = "no_sandbox"
            return
        try:
            rules = await ReleaseService(connection, self._scope).rules(release_id)
        except _DATABASE_FAULTS:
            loaded.id = None
            raise
        except PulseError as error:
            loaded.failure = failure_code(error)
            return
        try:
            async with asyncio.timeout(LOAD_SECONDS_MAX):
                loaded.rule = await self._load(rules)
        except Exception as error:  # noqa: BLE001
            # Whatever the sandbox raises: the survival rules decide without the release.
            loaded.failure = failure_code(error)
            return
        loaded.kinds = own_kinds(rules)
        if loaded is self._release:
            self._tell_release(rules)

    def _tell_release(self, files: Mapping[str, str]) -> None:
        try:
            self._on_release(files)
        except Exception as error:  # noqa: BLE001 - its watchers must not end the tick
            self._report_border(f"border:{failure_code(error)}")

    async def _run_shadow(
        self, connection: Connection, shadow: Sequence[Any] | None, prev: Snapshot, curr: Snapshot
    ) -> None:
        """Run the release that is to be promoted beside the one in force. What it decides is only counted."""
        await self._refresh(connection, self._shadow, None if shadow is None else shadow[0])
        if shadow is None:
            return
        found = dict(shadow[1] or {"ticks": 0, "wanted": SHADOW_TICKS, "errors": {}, "effects": 0, "passed": False})
        if found["passed"]:
            return
        errors: Counter[str] = Counter(found["errors"])
        if self._shadow.rule is None:
            errors[self._shadow.failure or "not_loaded"] += 1
        else:
            own = border(self._shadow.rule, lambda key: errors.update((key,)), self._shadow.kinds)
            effects, _ = await own(prev, replace(curr, business=True), innermost)
            found["effects"] += len(effects)
        found["ticks"] += 1
        found["errors"] = dict(errors)
        found["passed"] = not errors and found["ticks"] >= found["wanted"]
        status = "refused" if errors else "shadow"
        await self._run(connection, "check", self._scope, self._shadow.id, status, {"shadow": found})

    async def _tidy(self, connection: Connection, curr: Snapshot) -> None:
        now = time.monotonic()
        if now - self._cleaned_at >= COLLECT_GARBAGE_SECONDS:
            await self._collect_garbage(connection, now)
        if now - self._reconciled_at < RECONCILE_SECONDS:
            return
        is_first = self._reconciled_at == float("-inf")
        self._reconciled_at = now
        # A snapshot knows the effects of an hour; who takes the lead may find older ones.
        if is_first or any(done.state == "open" for done in curr.effects.values()):
            count = await self._run(connection, "reconcile", self._scope)
            if count:
                _log.warning("effects_reconciled", count=count)

    async def _collect_garbage(self, connection: Connection, now: float) -> None:
        """Delete what is over; the next tick continues where there is more. A failure is counted, and costs no lead."""
        self._cleaned_at = now
        try:
            count = await self._run(connection, "gc_vitals", GARBAGE_ROWS_MAX)
        except _DATABASE_FAULTS as error:
            if connection.is_closed() or _is_cancelled():
                raise
            _log.warning("garbage_kept", error_type=type(error).__name__)
            self.report(f"gc_vitals:{type(error).__name__}")
            return
        if count >= GARBAGE_ROWS_MAX:
            self._cleaned_at = float("-inf")

    async def _run(self, connection: Connection, name: str, *arguments: Any, query: str = "fetchval") -> Any:
        return await getattr(STATEMENTS, query)(connection, name, *arguments, timeout=STATEMENT_SECONDS_MAX)


def _read_snapshot(stored: Any) -> Snapshot | None:
    """Return the last snapshot of another process; None if there is none, or if it has another release's form."""
    try:
        return None if stored is None else Snapshot.from_json(stored)
    except (LookupError, TypeError, ValueError, AttributeError):
        return None


def _is_cancelled() -> bool:
    """Whether this task is to end. A driver may report a statement's error in place of the cancellation."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
