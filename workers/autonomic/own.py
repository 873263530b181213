"""Watchers and executors of a release: they run in the sandbox, and reach the world by registered tools alone.

A watcher, ``watchers/NAME.py``, has ``async def collect(call)``. It may call tools that only read, and returns numbers
under names that its file writes out, so that no text of a tool's result can reach the vitals; they are the sense
``own-NAME``. With ``wake`` true it ends the sleep of the tick. ``INTERVAL_SECONDS`` says how often it runs.

An executor, ``executors/NAME.py``, has ``async def execute(effect, call)``. It executes effects of the kind
``own_NAME`` that rules of the same release decided, each at most once. What it returns is not kept.
"""

from __future__ import annotations

import ast
import asyncio
import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pulse.autonomic.releases import OWN_PREFIX, part_of
from pulse.autonomic.types import Effect, Sample, WatcherDef
from pulse.autonomic.watchers import Vitals, Watchers
from pulse.errors import InvalidInputError
from workers.autonomic.restarting import CommandFailedError

if TYPE_CHECKING:
    from pulse.tools.registries import ToolRegistries
    from workers.autonomic.sandbox import Part, Sandbox

#: The name of the autonomic layer in the permissions of a tool.
TOOL_AGENT = "pulse"
#: Calls of tools in one measurement, or in one execution.
CALLS_MAX = 8
MEASURES_MAX = 32
INTERVAL_SECONDS_DEFAULT = 60
INTERVAL_SECONDS_MIN = 5
INTERVAL_SECONDS_MAX = 3_600

_MEASURE = re.compile(r"[a-z][a-z0-9_]{0,63}")


class OwnParts:
    """Runs what releases bring along: watchers in one sandbox, executors in another one, so that neither waits for
    the other."""

    def __init__(self, tools: ToolRegistries, *, watching: Sandbox, executing: Sandbox) -> None:
        self._tools = tools
        self._watching = watching
        self._executing = executing
        self.watchers_at_once = watching.processes_max
        #: Held from before an execution is recorded as begun: its holder waits for no process.
        self.places = asyncio.Semaphore(executing.processes_max)

    def watchers(self, files: Mapping[str, str]) -> list[WatcherDef]:
        """Return the watchers of a release."""
        return [self._watcher(name, text) for name, text in part_of(files, "watchers").items()]

    async def execute(self, files: Mapping[str, str], effect: Effect, event_id: int) -> int:
        """Execute an effect by the executor of its kind; return how many tools it called.

        Raises:
            CommandFailedError: the release has no such executor, or a call of a tool failed, which it did not handle.
            RuleFailedError: the executor failed.
        """
        name = effect.kind.removeprefix(OWN_PREFIX)
        text = part_of(files, "executors").get(name)
        if text is None:
            raise CommandFailedError("unhandled")
        run = await self._executing.load_part("executors", name, text)
        tools = _Calls(self._tools, f"effect-{event_id}", is_reading=False)
        given = {"kind": effect.kind, "key": effect.key, "params": dict(effect.params)}
        await tools.watch(run(tools.call, given))
        return tools.count

    def _watcher(self, name: str, text: str) -> WatcherDef:
        tree = ast.parse(text)
        names = {
            each.value for each in ast.walk(tree) if isinstance(each, ast.Constant) and isinstance(each.value, str)
        }
        loaded: list[Part] = []

        async def collect() -> dict[str, Any]:
            if not loaded:
                loaded.append(await self._watching.load_part("watchers", name, text))
            tools = _Calls(self._tools, None, is_reading=True)
            return read_measures(await tools.watch(loaded[0](tools.call)), names)

        return WatcherDef(name, f"own-{name}", collect, _wakes, interval_ms=1_000 * interval_of(tree))


class OwnWatchers:
    """The watchers of the release in force, in the process that ticks by it."""

    def __init__(
        self, parts: OwnParts, vitals: Vitals, *, wake: Callable[[], None], report: Callable[[str], None]
    ) -> None:
        self._parts = parts
        self._vitals = vitals
        self._wake = wake
        self._report = report
        self._watchers: Watchers | None = None
        self._task: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()

    def show(self, files: Mapping[str, str]) -> None:
        """Run the watchers of a release in place of those that run, once these have ended; none of no files."""
        if self._task is not None:
            self._task.cancel()
            self._ending.add(self._task)
            self._task.add_done_callback(self._ending.discard)
            self._task = None
        if self._watchers is not None:
            self._watchers.end_notes()
            self._watchers = None
        if found := self._parts.watchers(files):
            self._watchers = Watchers(
                self._vitals,
                wake=self._wake,
                report=self._report,
                everywhere=found,
                at_once=self._parts.watchers_at_once,
            )
            self._task = asyncio.create_task(self._run(self._watchers, tuple(self._ending)))

    async def aclose(self) -> None:
        """End the watchers, and wait until they have ended."""
        self.show({})
        if self._ending:
            await asyncio.wait(tuple(self._ending))

    async def _run(self, watchers: Watchers, before: Sequence[asyncio.Task[None]]) -> None:
        if before:
            await asyncio.wait(before)
        await watchers.run()


class _Calls:
    """The tools that one run of a watcher or an executor calls."""

    def __init__(self, tools: ToolRegistries, key: str | None, *, is_reading: bool) -> None:
        self._tools = tools
        self._key = key
        self._is_reading = is_reading
        self._failed: str | None = None
        self.count = 0

    async def call(self, app: Any, tool: Any, arguments: Any) -> Any:
        """Call a tool, for no user, and return its result. It raises within the sandbox."""
        self.count += 1
        self._failed = None
        if self.count > CALLS_MAX:
            self._fail("too_many_calls")
        if not isinstance(app, str) or not isinstance(tool, str) or not isinstance(arguments, Mapping):
            self._fail("invalid_call")
        registry = self._tools.of(app)
        if self._is_reading:
            known = {each.name: each for each in await registry.get_available_tools(agent=TOOL_AGENT)}
            if tool not in known or known[tool].operation.get("is_safe") is not True:
                self._fail("tool_not_read_only")
        key = None if self._key is None else f"{self._key}-{self.count}"
        outcome = await registry.call(tool, dict(arguments), idempotency_key=key, agent=TOOL_AGENT)
        if outcome.error_code is not None:
            self._fail(f"tool_{outcome.error_code}")
        return outcome.value

    async def watch(self, run: Awaitable[Any]) -> Any:
        """Return what a run returned.

        Raises:
            CommandFailedError: it ended by a call that failed, with that call's code.
        """
        try:
            return await run
        except Exception as error:
            if self._failed is None:
                raise
            raise CommandFailedError(self._failed) from error

    def _fail(self, code: str) -> None:
        self._failed = code
        raise RuntimeError(code)


def interval_of(tree: ast.Module) -> int:
    """Return the seconds between two measurements that a watcher's file asks for, within the bounds."""
    for each in tree.body:
        if (
            isinstance(each, ast.Assign)
            and [getattr(target, "id", None) for target in each.targets] == ["INTERVAL_SECONDS"]
            and isinstance(each.value, ast.Constant)
            and isinstance(each.value.value, int)
        ):
            return min(max(each.value.value, INTERVAL_SECONDS_MIN), INTERVAL_SECONDS_MAX)
    return INTERVAL_SECONDS_DEFAULT


def read_measures(found: Any, names: set[str]) -> dict[str, Any]:
    """Return what a watcher returned, if it is numbers under names that its file writes out.

    Raises:
        InvalidInputError: it is anything else, such as a text of a tool's result.
    """
    if not isinstance(found, Mapping) or len(found) > MEASURES_MAX:
        raise InvalidInputError(f"a watcher must return an object of at most {MEASURES_MAX} numbers")
    for name, value in found.items():
        if name not in names or not _MEASURE.fullmatch(name):
            raise InvalidInputError("a watcher returns numbers under names that its file writes out")
        if value is not None and (not isinstance(value, int | float) or not math.isfinite(value) or abs(value) >= 1e18):
            raise InvalidInputError("a watcher returns numbers, true, false or null, and no text")
    return dict(found)


def _wakes(window: Sequence[Sample]) -> bool:
    """Whether a watcher asks for a tick, and did not with its last measurement."""
    return window[-1].data.get("wake") is True and not (len(window) > 1 and window[-2].data.get("wake") is True)
