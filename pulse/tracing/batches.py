"""A thread that sends what is put in, in batches: putting never blocks and never fails; what is dropped is counted."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

import structlog

Item = TypeVar("Item")

QUEUE_MAX: Final = 2048
BATCH_MAX: Final = 512
BATCH_SECONDS: Final = 1.0
_FLUSH_POLL_SECONDS: Final = 0.01

_log = structlog.get_logger(__name__)


class Sink(Protocol[Item]):
    """Where batches go. Both methods run in the thread of their `Batches`, and may block."""

    def send(self, batch: list[Item]) -> int:
        """Send a batch and return how many of it were dropped.

        Raises:
            Exception: nothing was sent; the batch is sent again.
        """

    def close(self) -> None:
        """Release what it holds."""


class Batches(Generic[Item]):
    """A queue of at most `QUEUE_MAX` items, which loses the oldest, and the thread that empties it.

    Attributes:
        sent, dropped: items, since the start.
    """

    def __init__(self, name: str, make_sink: Callable[[], Sink[Item]]) -> None:
        self.sent = 0
        self.dropped = 0
        self._name = name
        self._make_sink = make_sink
        self._queue: deque[Item] = deque()
        self._filled = threading.Event()
        self._stopping = threading.Event()
        self._is_sending = False
        self._thread = threading.Thread(target=self._run, name=f"traces to {name}", daemon=True)
        self._is_started = False
        self._lock = threading.Lock()

    def put(self, item: Item) -> None:
        """Queue an item."""
        if self._stopping.is_set():
            self.dropped += 1
            return
        if len(self._queue) >= QUEUE_MAX:
            self.dropped += 1
            try:
                self._queue.popleft()
            except IndexError:  # The thread took them all in between.
                self.dropped -= 1
        self._queue.append(item)
        if not self._filled.is_set():
            self._filled.set()
            if not self._is_started:
                self._start()

    def flush(self, seconds: float) -> bool:
        """Wait until everything queued is sent or dropped; False if it takes longer. For a host's forced flush."""
        until = time.monotonic() + seconds
        while self._queue or self._is_sending:
            if time.monotonic() >= until:
                return False
            time.sleep(_FLUSH_POLL_SECONDS)
        return True

    def stop(self) -> None:
        """Take no more; send what is queued."""
        self._stopping.set()
        self._filled.set()

    def join(self, seconds: float) -> bool:
        """Wait for the end of the thread after `stop`. False if it takes longer; it ends with the process."""
        if self._is_started:
            self._thread.join(max(0.0, seconds))
        is_over = not self._thread.is_alive()
        if not is_over:
            left = len(self._queue)
            self.dropped += left
            _log.warning("spans_not_sent", exit=self._name, count=left)
        return is_over

    def _start(self) -> None:
        with self._lock:
            if not self._is_started:
                self._thread.start()
                self._is_started = True

    def _run(self) -> None:
        sink = self._make_sink()
        batch: list[Item] = []
        failures = 0
        try:
            while True:
                if not batch:
                    batch = self._take()
                if not batch:
                    if self._stopping.is_set():
                        return
                    self._filled.wait()
                    # Let a batch gather. Without new spans this thread sleeps.
                    self._stopping.wait(BATCH_SECONDS)
                    self._filled.clear()
                    continue
                try:
                    lost = sink.send(batch)
                except Exception as error:  # noqa: BLE001 - a fault of an exit never reaches what is traced
                    failures += 1
                    if failures == 1:
                        _log.warning("spans_not_sent", exit=self._name, error_type=type(error).__name__)
                    if self._stopping.is_set():
                        self.dropped += len(batch) + len(self._queue)
                        return
                    self._stopping.wait(BATCH_SECONDS)
                    continue
                if lost and not failures:
                    _log.warning("spans_not_sent", exit=self._name, count=lost)
                failures = failures + 1 if lost else 0
                self.dropped += lost
                self.sent += len(batch) - lost
                batch = []
                self._is_sending = False
        finally:
            self._is_sending = False
            sink.close()

    def _take(self) -> list[Item]:
        batch: list[Item] = []
        self._is_sending = bool(self._queue)
        while self._queue and len(batch) < BATCH_MAX:
            batch.append(self._queue.popleft())
        return batch


def close_all(batches: list[Batches[Item]], seconds: float) -> bool:
    """Stop several at once, and wait for all of them together."""
    until = time.monotonic() + seconds
    for each in batches:
        each.stop()
    ended = [each.join(until - time.monotonic()) for each in batches]
    return all(ended)
