"""What a sandbox is given, what it returns, and what a backend is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Literal, Protocol, TypeAlias, get_args

from pulse.errors import InvalidInputError

#: ok; failed: the code raised, or exited with another code than 0; timeout, memory, output: a limit ended it;
#: crashed: the sandbox itself ended; refused: the request cannot be run; unavailable: the backend does not work here.
SandboxStatus: TypeAlias = Literal["ok", "failed", "timeout", "memory", "output", "crashed", "refused", "unavailable"]
Isolation: TypeAlias = Literal["language", "namespace", "lsm", "kernel", "vm", "remote"]
SANDBOX_STATUSES: tuple[SandboxStatus, ...] = get_args(SandboxStatus)

EXIT_TIMEOUT = -1
EXIT_REFUSED = -2
CODE_CHARACTERS_MAX = 200_000
FILES_MAX = 100
#: Over a limit of time, until an execution has ended.
GRACE_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one execution. Each is enforced, and there is never a network.

    Attributes:
        seconds: wall-clock time.
        disk_mb: the size of all files that it writes.
    """

    memory_mb: int = 256
    cpu_seconds: float = 30
    seconds: float = 30
    processes: int = 16
    output_bytes: int = 1 << 20
    disk_mb: int = 64


_BOUNDS: Mapping[str, tuple[float, float]] = {
    "memory_mb": (16, 65_536),
    "cpu_seconds": (0.1, 3600),
    "seconds": (0.1, 3600),
    "processes": (1, 1024),
    "output_bytes": (1, 64 << 20),
    "disk_mb": (1, 16_384),
}


def read_limits(given: Mapping[str, Any]) -> Limits:
    """Return limits by their names; those that are not given have their defaults.

    Raises:
        InvalidInputError: a name is unknown, or a value is out of its bounds.
    """
    for name, value in given.items():
        if name not in _BOUNDS:
            raise InvalidInputError(f"a sandbox has no limit {name!r:.40}; there are {', '.join(_BOUNDS)}")
        lowest, highest = _BOUNDS[name]
        is_whole = not name.endswith("seconds")
        if isinstance(value, bool) or not isinstance(value, int if is_whole else int | float):
            raise InvalidInputError(f"{name} of a sandbox must be a number, not {value!r:.40}")
        if not lowest <= value <= highest:
            raise InvalidInputError(f"{name} of a sandbox must be from {lowest:g} to {highest:g}, not {value:g}")
    return Limits(**given)


def is_inside(path: str) -> bool:
    """Return whether the path of a file is relative and stays below its folder."""
    return len(path) <= 200 and "\0" not in path and not {"", ".", ".."} & set(path.split("/"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxRequest:
    """Python code to run.

    Attributes:
        files: by their relative paths, in the folder that the code starts in.
        inputs: variables that the code finds, as JSON.
        env: its whole environment.
    """

    code: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)
    stdin: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = Limits()

    def problem(self) -> str | None:
        """Return why the request cannot be run."""
        if not self.code.strip() or len(self.code) > CODE_CHARACTERS_MAX or "\0" in self.code:
            return f"code has 1 to {CODE_CHARACTERS_MAX:,} characters without U+0000"
        if len(self.files) > FILES_MAX or sum(map(len, self.files.values())) > self.limits.disk_mb << 20:
            return f"there are up to {FILES_MAX} files, of up to {self.limits.disk_mb} MB together"
        for path in self.files:
            if not is_inside(path):
                return f"the path of a file must be relative and stay below its folder, not {path[:60]!r}"
            if any(str(folder) in self.files for folder in PurePosixPath(path).parents):
                return f"a file is no folder: {path[:60]!r} is below another file"
        for name, value in self.env.items():
            if not name.isidentifier() or "\0" in value:
                return f"a variable of the environment has a name, and no U+0000 in its value: not {name[:60]!r}"
        if any(not name.isidentifier() for name in self.inputs):
            return "inputs have names of variables"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxResult:
    """What became of an execution.

    Attributes:
        exit_code: 0; the code's own; -1 after a time-out; -2 if the request was refused; None if it crashed.
        value: the value of the last expression, as JSON; None if the backend has none.
        files: what the code wrote to its folder, if the backend returns files.
        error: why it is not `ok`, for the caller.
        truncated: the output was cut at its limit.
    """

    status: SandboxStatus
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    value: Any = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    error: str | None = None
    execution_time_ms: float = 0.0
    resource_usage: Mapping[str, Any] = field(default_factory=dict)
    truncated: bool = False


class SandboxBackend(Protocol):
    """What isolates code. One that does not work here says so, and nothing weaker replaces it."""

    @property
    def name(self) -> str:
        """The backend's name, stored with each execution."""

    @property
    def isolation(self) -> Isolation:
        """What separates the code from the host."""

    async def check(self) -> str | None:
        """Run a self-test; return why the backend does not work here, or None."""

    async def execute(self, request: SandboxRequest) -> SandboxResult:
        """Run code. Never raises for what the code does; returns `unavailable` if the backend does not work."""

    async def close(self) -> None:
        """Close what the backend holds open. Idempotent."""


def refused(problem: str) -> SandboxResult:
    """Return the result of a request that cannot be run."""
    return SandboxResult(status="refused", exit_code=EXIT_REFUSED, error=problem)


def unavailable(problem: str) -> SandboxResult:
    """Return the result of a backend that does not work here."""
    return SandboxResult(status="unavailable", error=problem)
