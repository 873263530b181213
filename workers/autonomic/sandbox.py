"""Runs the rules of a release in pydantic-monty: in a process of their own, without files, network, clock or chance.

A rule is a file with ``async def rule(prev, curr, inner)``. Snapshots arrive as JSON; an effect is an object with a
kind and a key. The files of a release are rules around each other, the first name outermost; each has names of its own.
"""

from __future__ import annotations

import ast
import datetime
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, TypeAlias

import pydantic_monty

from pulse.autonomic.releases import rules_of
from pulse.autonomic.types import Effect, Inner, Outcome, Rule, Snapshot
from pulse.errors import InvalidInputError

#: Always given: without them the interpreter has no limits.
LIMITS: pydantic_monty.ResourceLimits = {
    "max_feed_duration_secs": 0.2,
    "max_memory": 32_000_000,
    "max_suspensions": 4,
    "max_recursion_depth": 300,
    "max_total_sleep_secs": 0.0,
}
REQUEST_SECONDS_MAX = 2.0
PROCESSES_MAX = 2
PRINT_BYTES_MAX = 65_536
#: What a rule may be written against; checked when a release is.
STUBS = """
from typing import Any, Awaitable, Callable

Outcome = tuple[list[dict[str, Any]], float]
Inner = Callable[[dict[str, Any], dict[str, Any]], Awaitable[Outcome]]
Call = Callable[[str, str, dict[str, Any]], Awaitable[Any]]
"""
#: Limits of a watcher or an executor, which waits for tools.
PART_LIMITS: pydantic_monty.ResourceLimits = {**LIMITS, "max_suspensions": 64}
#: What a file of each part defines.
PART_FUNCTIONS = {"watchers": "collect", "executors": "execute"}
_PART = """
async def _call(app, tool, arguments):
    return await call(app, tool, arguments)
"""
_CHAIN = """
async def _run(index, prev, curr):
    if index == len(_rules):
        return await inner(prev, curr)
    async def inside(next_prev=prev, next_curr=curr):
        effects, tick_ms = await _run(index + 1, next_prev, next_curr)
        return list(effects), tick_ms
    return await _rules[index](prev, curr, inside)
"""
_CALL = "await _run(0, prev, curr)"
_SIGNATURES = {"rule": "prev, curr, inner", "collect": "call", "execute": "effect, call"}
#: Runs a watcher, or an executor with its effect; both get what calls a tool.
Part: TypeAlias = Callable[..., Awaitable[Any]]


class RuleFailedError(Exception):
    """A rule failed in the sandbox. `code` is its exception's class, 'crashed', 'no_rule' or 'types'."""

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code = code


class Sandbox:
    """The processes in which rules run. Used as an async context manager. A process is waited for `wait_seconds`."""

    def __init__(
        self, *, processes_min: int = 1, processes_max: int = PROCESSES_MAX, wait_seconds: float = REQUEST_SECONDS_MAX
    ) -> None:
        self.processes_max = processes_max
        self._pool = pydantic_monty.AsyncMonty(
            min_processes=processes_min,
            max_processes=processes_max,
            checkout_timeout=wait_seconds,
            request_timeout=REQUEST_SECONDS_MAX,
        )

    async def __aenter__(self) -> Sandbox:
        await self._pool.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._pool.__aexit__(kind, error, trace)

    async def load(self, rules: Mapping[str, str]) -> Rule:
        """Return the rules of a release as one.

        Raises:
            RuleFailedError: a file is not Python, has no rule, or fails while it is loaded.
        """
        program = _program(rules_of(rules))
        await self._feed(program, "len(_rules)", {}, {})

        async def business(prev: Snapshot, curr: Snapshot, inner: Inner) -> Outcome:
            async def inside(_prev: Any, given: Any) -> Any:
                effects, tick_ms = await inner(prev, curr)
                return [[each.to_json() for each in effects], tick_ms]

            inputs = {"prev": prev.to_json(), "curr": curr.to_json()}
            return read_outcome(await self._feed(program, _CALL, inputs, {"inner": inside}, at=curr.at))

        return business

    async def load_part(self, part: str, name: str, text: str) -> Part:
        """Return a watcher or an executor.

        Raises:
            RuleFailedError: the file is not Python, lacks its function, or fails while it is loaded.
        """
        function = PART_FUNCTIONS[part]
        program = f"{_maker(0, f'{part}/{name}.py', text, function)}\n_part = _make_0()\n{_PART}"
        await self._feed(program, "1", {}, {}, limits=PART_LIMITS)

        async def run(call: Callable[..., Awaitable[Any]], effect: Mapping[str, Any] | None = None) -> Any:
            given = "await _part(_call)" if effect is None else "await _part(effect, _call)"
            inputs = {} if effect is None else {"effect": dict(effect)}
            return await self._feed(program, given, inputs, {"call": call}, limits=PART_LIMITS)

        return run

    async def check_types(self, name: str, text: str) -> None:
        """Check a file's types against the stubs.

        Raises:
            RuleFailedError: they are wrong; its message has the findings.
        """
        try:
            async with self._pool.checkout(
                script_name=name, limits=LIMITS, type_check=True, type_check_stubs=STUBS, type_check_format="concise"
            ) as session:
                await session.feed_run(text, print_callback=pydantic_monty.CollectString(PRINT_BYTES_MAX))
        except pydantic_monty.MontyTypingError as error:
            raise RuleFailedError("types", error.display()[:500]) from None
        except pydantic_monty.MontyError as error:
            raise RuleFailedError(_code(error)) from None

    async def _feed(
        self,
        program: str,
        call: str,
        inputs: dict[str, Any],
        lookup: dict[str, Any],
        *,
        at: float = 0.0,
        limits: pydantic_monty.ResourceLimits = LIMITS,
    ) -> Any:
        policy: pydantic_monty.OSPolicy = {
            "datetime": datetime.datetime.fromtimestamp(at, datetime.UTC),
            "sleep": "zero",
            "random_start": {"seed": 0},
        }
        output = pydantic_monty.CollectString(PRINT_BYTES_MAX)
        try:
            async with self._pool.checkout(script_name="rules.py", limits=limits, os_policy=policy) as session:
                await session.feed_run(program, print_callback=output)
                return await session.feed_run(call, inputs=inputs, external_lookup=lookup, print_callback=output)
        except pydantic_monty.MontyError as error:
            raise RuleFailedError(_code(error)) from None


def _program(rules: Mapping[str, str]) -> str:
    """Return one program of a release: each file is a function, so that its names are its own."""
    makers = [_maker(index, name, text, "rule") for index, (name, text) in enumerate(sorted(rules.items()))]
    calls = ", ".join(f"_make_{index}()" for index in range(len(makers)))
    return "\n".join([*makers, f"_rules = [{calls}]", _CHAIN])


def _maker(index: int, name: str, text: str, function: str) -> str:
    """Return a function that returns the one which a file defines."""
    try:
        tree = ast.parse(text, name)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise RuleFailedError("SyntaxError", f"{name}: line {getattr(error, 'lineno', '?')}") from None
    body = [each for each in tree.body if not (isinstance(each, ast.ImportFrom) and each.module == "__future__")]
    if not any(isinstance(each, ast.AsyncFunctionDef) and each.name == function for each in body):
        raise RuleFailedError("no_rule", f"{name} has no `async def {function}({_SIGNATURES[function]})`")
    maker = ast.parse(f"def _make_{index}():\n    return {function}").body[0]
    assert isinstance(maker, ast.FunctionDef)  # noqa: S101 - written above
    maker.body = [*body, *maker.body]
    try:
        return ast.unparse(maker)
    except RecursionError:
        raise RuleFailedError("SyntaxError", f"{name}: nested too deeply") from None


def read_outcome(found: Any) -> Outcome:
    """Return what a rule returned, if it is effects and a tick.

    Raises:
        InvalidInputError: it is anything else.
    """
    if not isinstance(found, list | tuple) or len(found) != 2 or not isinstance(found[0], list | tuple):
        raise InvalidInputError("a rule returns a list of effects and a tick")
    effects = []
    for each in found[0]:
        if not isinstance(each, Mapping):
            raise InvalidInputError("an effect must be an object with a kind and a key")
        effects.append(Effect.from_json({name: each[name] for name in each if name not in ("survival", "rule")}))
    return effects, found[1]


def _code(error: pydantic_monty.MontyError) -> str:
    if isinstance(error, pydantic_monty.MontyCrashedError):
        return "crashed"
    return type(error.exception()).__name__
