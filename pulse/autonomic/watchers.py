"""Watchers: each measures on its own clock, and harms no other by failing, hanging or being late."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import structlog

from pulse.autonomic.types import WINDOW_SECONDS, Sample, WatcherDef, canonical_json

_log = structlog.get_logger(__name__)

COLLECT_SECONDS_MAX = 4.0
#: What a process keeps while the database is gone: a minute of all its senses.
SAMPLES_KEPT = 500
SAMPLE_BYTES_MAX = 65_536
#: How long cancelled measurements are waited for.
ENDING_SECONDS_MAX = 2.0
#: The pause between the first measurements of watchers of which only some measure at once.
STAGGER_SECONDS = 0.25


class _Kept(NamedTuple):
    sense: str
    machine: str
    measured_at: float  # by the monotonic clock
    data: Any


class Vitals:
    """The samples of this process that are not stored yet, and what became of its senses."""

    def __init__(self, machine: str) -> None:
        self.machine = machine
        self._kept: deque[_Kept] = deque(maxlen=SAMPLES_KEPT)
        self._changes: dict[str, str] = {}

    def add(self, sense: str, data: Any) -> None:
        """Keep a sample until it is stored."""
        self._kept.append(_Kept(sense, self.machine, time.monotonic(), data))

    def note(self, sense: str, state: str) -> None:
        """Keep that a sense broke, works again, or ended while it was broken."""
        self._changes[sense] = state

    def take(self) -> list[_Kept]:
        """Return the samples; the caller stores them, or gives them back."""
        taken = list(self._kept)
        self._kept.clear()
        return taken

    def give_back(self, samples: Sequence[_Kept]) -> None:
        """Keep samples again that could not be stored, as far as newer ones leave room."""
        room = SAMPLES_KEPT - len(self._kept)
        self._kept.extendleft(reversed(samples[max(len(samples) - room, 0) :]))

    def take_changes(self) -> dict[str, str]:
        """Return what became of senses (``broken``, ``works``, ``ended``) since the last call.

        The caller records it, or gives it back.
        """
        changes, self._changes = self._changes, {}
        return changes

    def give_back_changes(self, changes: Mapping[str, str]) -> None:
        """Keep changes again that could not be recorded; a newer one of the same sense stands."""
        self._changes = {**changes, **self._changes}


def rows_of(samples: Sequence[_Kept]) -> list[dict[str, Any]]:
    """Return samples as `put_vitals` takes them: with their age, so that the database's clock dates them."""
    now = time.monotonic()
    return [
        {
            "sense": each.sense,
            "machine": each.machine,
            "age_seconds": min(now - each.measured_at, WINDOW_SECONDS),
            "data": each.data,
        }
        for each in samples
        if now - each.measured_at < WINDOW_SECONDS
    ]


class Watchers:
    """Runs watchers until cancelled.

    Args:
        vitals: gets the samples.
        wake: called when a watcher's window asks for a tick.
        report: called with what went wrong, as 'collect:network:TimeoutError'.
        everywhere: watchers of what each machine senses of itself.
        shared: watchers of what all processes see alike; they run where `is_leading` holds.
        at_once: how many measure at once, with their first measurements one after the other; None for all at once.
    """

    def __init__(
        self,
        vitals: Vitals,
        *,
        wake: Callable[[], None],
        report: Callable[[str], None],
        everywhere: Sequence[WatcherDef],
        shared: Sequence[WatcherDef] = (),
        is_leading: Callable[[], bool] = lambda: True,
        at_once: int | None = None,
    ) -> None:
        self._vitals = vitals
        self._wake = wake
        self._report = report
        self._everywhere = everywhere
        self._shared = shared
        self._is_leading = is_leading
        self._places = None if at_once is None else asyncio.Semaphore(at_once)
        self._broken: set[str] = set()
        self._collecting: set[asyncio.Task[Any]] = set()

    async def run(self) -> None:
        """Measure until cancelled; then wait for the cancelled measurements to end, but for no thread."""
        due = [(each, lambda: True) for each in self._everywhere] + [(each, self._is_leading) for each in self._shared]
        stagger_seconds = 0.0 if self._places is None else STAGGER_SECONDS
        try:
            async with asyncio.TaskGroup() as group:
                for index, (each, is_due) in enumerate(due):
                    group.create_task(self._keep_watching(each, is_due, index * stagger_seconds))
        finally:
            if self._collecting:
                await asyncio.wait(tuple(self._collecting), timeout=ENDING_SECONDS_MAX)

    def end_notes(self) -> None:
        """Note of each broken sense that it ended: nothing will say that it works again."""
        for key in self._broken:
            self._vitals.note(key, "ended")
        self._broken.clear()

    async def _keep_watching(self, watcher: WatcherDef, is_due: Callable[[], bool], delay_seconds: float) -> None:
        """Watch until cancelled: an error outside of a measurement is a failure of this sense alone."""
        await asyncio.sleep(delay_seconds)
        while True:
            try:
                await self._watch(watcher, is_due)
            except Exception as error:  # noqa: BLE001 - it is logged and counted
                _log.exception("watcher_failed", sense=watcher.key)
                with contextlib.suppress(Exception):
                    self._fail(watcher, type(error).__name__)
            await asyncio.sleep(max(1.0, watcher.interval_ms / 1000))

    async def _watch(self, watcher: WatcherDef, is_due: Callable[[], bool]) -> None:
        window: deque[Sample] = deque()
        late: asyncio.Future[Any] | None = None
        while True:
            started = time.monotonic()
            if late is not None and late.done():
                late = None
            if late is not None:
                self._fail(watcher, "Overlap")  # It hangs: another one beside it would hang, too.
            elif is_due():
                async with self._places or contextlib.nullcontext():
                    late = await self._measure(watcher, window)
            interval_ms = watcher.interval_ms if watcher.pace is None else watcher.pace(tuple(window))
            await asyncio.sleep(max(0.05, interval_ms / 1000 - (time.monotonic() - started)))

    async def _measure(self, watcher: WatcherDef, window: deque[Sample]) -> asyncio.Future[Any] | None:
        """Measure once; return the measurement if it does not end."""
        deadline = time.monotonic() + COLLECT_SECONDS_MAX
        collecting: asyncio.Future[Any] | None = None
        try:
            collecting = self._follow(_begin(watcher.collect))
            while True:
                await asyncio.wait((collecting,), timeout=max(0.0, deadline - time.monotonic()))
                if not collecting.done():
                    break
                data = _result(collecting)
                if not inspect.isawaitable(data):
                    break
                collecting = self._follow(asyncio.ensure_future(data))
            if not collecting.done():
                _abandon(collecting)
                self._fail(watcher, "TimeoutError")
                return collecting
            body = canonical_json(data)
            if len(body) > SAMPLE_BYTES_MAX or b"\\u0000" in body:
                raise OverflowError  # noqa: TRY301 - a sample that cannot be stored is a failed one
            self._vitals.add(watcher.key, data)
            now = time.monotonic()
            window.append(Sample(now, self._vitals.machine, data))
            while window[0].at < now - WINDOW_SECONDS:
                window.popleft()
            if watcher.should_wake(tuple(window)):
                self._wake()
        except (Exception, asyncio.CancelledError) as error:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                if collecting is not None and not collecting.done():
                    _abandon(collecting)
                raise  # The process stops, or another release is in force.
            self._fail(watcher, type(error).__name__)
            return None
        if watcher.key in self._broken:
            self._broken.discard(watcher.key)
            self._vitals.note(watcher.key, "works")
        return None

    def _follow(self, collecting: asyncio.Future[Any]) -> asyncio.Future[Any]:
        """Keep a measurement until it ends, if it can be cancelled."""
        if isinstance(collecting, asyncio.Task):
            self._collecting.add(collecting)
            collecting.add_done_callback(self._collecting.discard)
        return collecting

    def _fail(self, watcher: WatcherDef, code: str) -> None:
        self._report(f"collect:{watcher.key}:{code}")
        self._vitals.add(f"_error:{watcher.key}", {"code": code})
        if watcher.key not in self._broken:
            self._broken.add(watcher.key)
            self._vitals.note(watcher.key, "broken")
            _log.warning("sense_broken", sense=watcher.key, error_type=code)


def in_thread(work: Callable[[], Any]) -> asyncio.Future[Any]:
    """Run work in a thread of its own: one that hangs takes no thread from others, nor delays the process's end.

    Cancelling the future does not end the thread.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def end(found: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(found)
        else:
            is_plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
            future.set_exception(error if is_plain else RuntimeError(type(error).__name__))

    def run() -> None:
        found, failure = None, None
        try:
            found = work()
        except BaseException as error:  # noqa: BLE001 - it is the future's
            failure = error
        with contextlib.suppress(RuntimeError):  # The loop is closed.
            loop.call_soon_threadsafe(end, found, failure)

    threading.Thread(target=run, daemon=True).start()
    return future


def _begin(collect: Callable[[], Any]) -> asyncio.Future[Any]:
    if inspect.iscoroutinefunction(collect):
        found: asyncio.Future[Any] = asyncio.ensure_future(collect())
        return found
    return in_thread(collect)


def _result(future: asyncio.Future[Any]) -> Any:
    """Return a result; a panic of an extension, which is not an Exception, is a failure of this measurement alone."""
    error = None if future.cancelled() else future.exception()
    if error is not None and not isinstance(error, Exception):
        raise RuntimeError(type(error).__name__) from error
    return future.result()


def _abandon(collecting: asyncio.Future[Any]) -> None:
    """End a measurement. A thread cannot be ended: it is waited for, so that no other one hangs beside it."""
    if isinstance(collecting, asyncio.Task):
        collecting.cancel()
    collecting.add_done_callback(_forget)


def _forget(future: asyncio.Future[Any]) -> None:
    if not future.cancelled() and future.exception() is None and inspect.iscoroutine(late := future.result()):
        late.close()
