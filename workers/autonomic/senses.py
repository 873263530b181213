"""The senses: what each machine measures of itself, and what the database knows of all. None calls a model."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pulse.autonomic.survival import DEAD_REPORTS, FREE_PERCENT, FULL_PERCENT
from pulse.autonomic.types import WATCH_MS_DEFAULT, Sample, WatcherDef
from pulse.autonomic.watchers import in_thread
from pulse.postgres.statements import Statements
from workers.cgroups import MEMORY_FILES
from workers.settings import Settings, machine_name
from workers.telemetry.metrics_server import HEARTBEAT_SECONDS

if TYPE_CHECKING:
    from pulse.database import Pool

_STATEMENTS = Statements("workers.autonomic", "senses.sql")

#: Processes report every `HEARTBEAT_SECONDS`: in half of that, there is seldom anything new to read.
SHARED_MS = int(500 * HEARTBEAT_SECONDS)
#: After a pause of the senses, as by an outage of the database, every process looks lost until it has reported again.
GAP_SECONDS = 2.5 * SHARED_MS / 1000
SETTLING_SECONDS = HEARTBEAT_SECONDS + 5.0
NETWORK_SECONDS_MAX = 1.5
#: Senses that begin within this many seconds of each other share a survey.
SURVEY_SECONDS = 1.0
SLOW_MS = 15_000
#: The interval for a machine whose memory and disks are below `FREE_PERCENT`, and where no process waits for memory.
CALM_MS = 10_000
#: The size of a database is read from its thousand files: seldom.
SIZE_SECONDS = 60.0
_PRESSURE = Path("/proc/pressure/memory")


def local_watchers(settings: Settings, pool: Pool) -> list[WatcherDef]:
    """Return what each machine measures of itself."""
    watchers = []
    if (resources := Resources.make(settings, pool)) is not None:
        watchers.append(
            WatcherDef(
                "System resources", "system-resource", resources.collect, resources.should_wake, pace=resources.pace
            )
        )
    if url := settings.pulse_network_url or settings.generator_base_url or "":
        watchers.append(WatcherDef("Network", "network", Network(url).collect))
    return watchers


def shared_watchers(settings: Settings, pool: Pool) -> list[WatcherDef]:
    """Return what the database knows of all processes; one process measures it."""
    shared = SharedSenses(settings, pool)
    return [
        WatcherDef("Processes", "process-alive", shared.processes, _has_dead_process, interval_ms=SHARED_MS),
        WatcherDef("Error logs", "error-log", shared.errors, _has_new_error, interval_ms=SHARED_MS),
        WatcherDef("Models", "llm-health", shared.models, interval_ms=SHARED_MS),
        WatcherDef("Queues", "queue", shared.queues, interval_ms=SLOW_MS),
        WatcherDef("Database", "database", shared.database, interval_ms=SLOW_MS),
    ]


class Resources:
    """CPU, memory, disks and pressure of this machine, or of the container that it is."""

    def __init__(self, psutil: Any, disks: Sequence[str], pool: Pool) -> None:
        self._psutil = psutil
        self._disks = disks
        self._pool = pool
        self._times = psutil.cpu_times()

    @classmethod
    def make(cls, settings: Settings, pool: Pool) -> Resources | None:
        """Return the sense; None without psutil."""
        try:
            import psutil
        except ImportError:
            return None
        return cls(psutil, [each.strip() for each in settings.pulse_disks.split(",") if each.strip()], pool)

    def collect(self) -> dict[str, Any] | Awaitable[dict[str, Any]]:
        """Measure. Not a coroutine function: a disk of another machine may hang, and the event loop with it."""
        memory = self._memory()
        load = os.getloadavg()
        reading = {
            "cpu": self._cpu(),
            "memory": memory,
            "swap": self._psutil.swap_memory().percent,
            "disks": {path: self._percent(path) for path in self._disks},
            "inodes": {path: _inodes(path) for path in self._disks},
            "load": round(load[0], 2),
            "pressure": _pressure(),
        }
        return self._with_largest(reading) if memory >= FULL_PERCENT else reading

    async def _with_largest(self, reading: dict[str, Any]) -> dict[str, Any]:
        return {**reading, "largest": await self._largest()}

    def _percent(self, path: str) -> float | None:
        """Return how full a disk is; None for one that is not there: the others and the memory are measured all the
        same."""
        try:
            return float(self._psutil.disk_usage(path).percent)
        except OSError:
            return None

    def _cpu(self) -> float:
        """Return the per cent of the time since the last call in which the processors were busy.

        Not `psutil.cpu_percent`: it compares with the last call of the same thread, and each measurement has its own.
        """
        before, self._times = self._times, self._psutil.cpu_times()
        passed = {
            name: max(0.0, getattr(self._times, name) - getattr(before, name))
            for name in self._times._fields
            if name not in ("guest", "guest_nice")  # They are part of user and nice.
        }
        idle, total = passed["idle"] + passed.get("iowait", 0.0), sum(passed.values())
        return round(100 * (total - idle) / total, 1) if total else 0.0

    def should_wake(self, window: Sequence[Sample]) -> bool:
        """Wake the tick when something became too full, not again while it is."""
        return _is_full(window[-1].data) and not (len(window) > 1 and _is_full(window[-2].data))

    def pace(self, window: Sequence[Sample]) -> int:
        """Measure half as often while nothing is near a limit."""
        is_calm = bool(window) and not _is_over(window[-1].data, FREE_PERCENT) and not window[-1].data["pressure"]
        return CALM_MS if is_calm else WATCH_MS_DEFAULT

    def _memory(self) -> float:
        memory = self._psutil.virtual_memory()
        host = float(memory.percent)
        for files in MEMORY_FILES:
            with contextlib.suppress(OSError, ValueError):
                limit = int(files.limit.read_text())
                if limit >= memory.total:
                    continue
                parts = dict(line.split() for line in files.parts.read_text().splitlines())
                used = int(files.usage.read_text()) - int(parts.get("inactive_file", 0))
                return max(host, round(100 * used / limit, 1))
        return host

    async def _largest(self) -> dict[str, Any] | None:
        """Return our largest process on this machine, but this one."""
        found = None
        for row in await _STATEMENTS.fetch(self._pool, "own_processes", machine_name(), timeout=2):
            if row["role"] == "pulse":
                continue
            with contextlib.suppress(self._psutil.Error):
                size = self._psutil.Process(row["pid"]).memory_info().rss
                if found is None or size > found[0]:
                    found = (size, dict(row))
        return None if found is None else found[1]


class SharedSenses:
    """What the database knows of all processes."""

    def __init__(self, settings: Settings, pool: Pool) -> None:
        self._pool = pool
        self._has_command = bool(settings.pulse_llm_command)
        self._bytes_max = settings.pulse_database_megabytes * 1_000_000
        self._keywords = [each.strip().lower() for each in settings.pulse_error_keywords.split(",") if each.strip()]
        self._collected_at = float("-inf")
        self._settled_at = float("inf")
        self._errors: dict[tuple[Any, ...], dict[str, int]] | None = None
        self._survey: asyncio.Task[Any] | None = None
        self._surveyed_at = float("-inf")
        self._surveyed: set[str] = set()
        self._size = 0
        self._sized_at = float("-inf")

    async def processes(self) -> dict[str, Any]:
        """Return for how long each process has not been seen."""
        rows = await self._read("processes")
        now = time.monotonic()
        if now - self._collected_at > GAP_SECONDS:
            self._settled_at = now + SETTLING_SECONDS
        self._collected_at = now
        return {
            "processes": [{**row, "age": round(row["age"], 1)} for row in rows],
            "is_settling": now < self._settled_at,
            "report_seconds": HEARTBEAT_SECONDS,
        }

    async def errors(self) -> dict[str, Any]:
        """Return how often each error was logged since the last call, of those that have one of the keywords."""
        rows = await self._read("errors")
        counts = {tuple(process): dict(errors) for *process, errors in rows}
        before, self._errors = self._errors, counts
        new: dict[str, int] = {}
        for process, errors in counts.items() if before is not None else ():
            known = (before or {}).get(process, {})
            for name, count in errors.items():
                if count > known.get(name, 0) and self._is_named(name):
                    new[name] = new.get(name, 0) + count - known.get(name, 0)
        return {"new": new}

    async def _read(self, part: str) -> list[Any]:
        """Return a part of a survey. Its senses measure at the same pace, and one statement serves them all; each gets
        a part once. One that hangs is waited for: no other begins beside it."""
        survey = self._survey
        is_old = part in self._surveyed or time.monotonic() - self._surveyed_at > SURVEY_SECONDS
        if survey is None or (is_old and survey.done()):
            survey = self._survey = asyncio.create_task(_STATEMENTS.fetch_one(self._pool, "survey", timeout=3))
            self._surveyed_at = time.monotonic()
            self._surveyed.clear()
        self._surveyed.add(part)
        row = await asyncio.shield(survey)
        return row[part]  # type: ignore[no-any-return] # jsonb

    def _is_named(self, error: str) -> bool:
        return not self._keywords or any(each in error.lower() for each in self._keywords)

    async def models(self) -> dict[str, Any]:
        """Return the breakers that are not closed, and for how long."""
        rows = await self._read("breakers")
        return {
            "breakers": [{**row, "seconds": round(row["seconds"], 1)} for row in rows],
            "has_command": self._has_command,
        }

    async def queues(self) -> dict[str, Any]:
        """Return how long the oldest job of each queue has waited, and how many have failed."""
        row = await _STATEMENTS.fetch_one(self._pool, "queues", timeout=3)
        return {
            "oldest_seconds": {queue: round(age, 1) for queue, age in row["oldest_seconds"].items()},
            "failed": row["failed"],
        }

    async def database(self) -> dict[str, Any]:
        """Return the database's size, its percentage of the quota, its connections and its oldest transaction."""
        began = time.monotonic()
        is_due = began - self._sized_at >= SIZE_SECONDS
        row = await _STATEMENTS.fetch_one(self._pool, "database", is_due, timeout=3)
        if is_due:
            self._size, self._sized_at = row["size"], began
        return {
            "size": self._size,
            "connections": row["connections"],
            "oldest_transaction": round(row["oldest_transaction"], 1),
            "percent": round(100 * self._size / self._bytes_max, 1) if self._bytes_max else None,
        }


class Network:
    """Whether the host of a URL is reached: its name is resolved, and its headers are requested.

    Where names are not resolved, the system's resolver may take half a minute: one that hangs is waited for by the
    next measurements, and no other one begins beside it.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._scheme, self._host = parts.scheme, parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._running: dict[str, asyncio.Future[Any]] = {}

    async def collect(self) -> dict[str, bool]:
        """Measure."""
        dns = await self._reaches("dns", lambda: socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM))
        answers = dns and await self._reaches("http", lambda: _head(self._scheme, self._host, self._port))
        return {"dns": dns, "http": answers}

    async def _reaches(self, step: str, work: Callable[[], Any]) -> bool:
        running = self._running.get(step) or in_thread(work)
        self._running[step] = running
        await asyncio.wait((running,), timeout=NETWORK_SECONDS_MAX)
        if not running.done():
            return False
        del self._running[step]
        error = running.exception()
        if error is not None and not isinstance(error, OSError | http.client.HTTPException | UnicodeError):
            raise error
        return error is None


def _head(scheme: str, host: str, port: int) -> None:
    if scheme == "https":
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, port, timeout=NETWORK_SECONDS_MAX, context=ssl.create_default_context()
        )
    else:
        connection = http.client.HTTPConnection(host, port, timeout=NETWORK_SECONDS_MAX)
    try:
        connection.request("HEAD", "/")
        connection.getresponse()  # Any answer is one.
    finally:
        connection.close()


def _inodes(path: str) -> float | None:
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return round(100 * (1 - found.f_ffree / found.f_files), 1) if found.f_files else 0.0


def _pressure() -> float | None:
    """Return the per cent of the last minute in which a process waited for memory; None where the kernel has none."""
    try:
        first = _PRESSURE.read_text().splitlines()[0]
    except (OSError, IndexError):
        return None
    fields = dict(each.split("=") for each in first.split()[1:])
    return float(fields["avg60"])


def _is_full(reading: dict[str, Any]) -> bool:
    return _is_over(reading, FULL_PERCENT)


def _is_over(reading: dict[str, Any], limit: int) -> bool:
    percents = (reading["memory"], *reading["disks"].values())
    return any(each is not None and each >= limit for each in percents)


def _has_new_error(window: Sequence[Sample]) -> bool:
    return bool(window[-1].data["new"])


def _has_dead_process(window: Sequence[Sample]) -> bool:
    """Whether a process was lost since the last sample but one."""
    dead_seconds = DEAD_REPORTS * HEARTBEAT_SECONDS
    lost = [{each["pid"] for each in sample.data["processes"] if each["age"] > dead_seconds} for sample in window[-3:]]
    return len(lost) == 3 and bool((lost[-1] & lost[-2]) - lost[-3])
