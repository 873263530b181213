"""Messages while they are being written: pieces pushed live, and the text so far for late watchers.

A piece (``text_start``, ``text_delta``, ``text_end``, and the same of a thought and of a call's arguments) is never an
event. A `LiveText` gathers the output of a model for some tens of milliseconds and pushes it to a `DeltaCarrier`, which
keeps one text per open message and notifies watchers. A watcher reads what is past its offset, so it gets nothing
twice, and a lost notification only costs time. The complete message is appended as an event, and its live text is
dropped.

Offsets and lengths count Unicode characters.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import structlog

from pulse.errors import PulseError
from pulse.postgres.json_values import clean_text

#: `act`: the arguments of a tool's call, whose id is the message's.
Kind: TypeAlias = Literal["text", "thought", "act"]

#: Pieces within this time are pushed together.
COALESCE_SECONDS = 0.04
#: Above this many unpushed characters, `push` waits.
_WAITING_MAX = 65_536
_CLOSE_SECONDS = 2.0

_log = structlog.get_logger(__name__)


class RunKey(NamedTuple):
    """A run of a thread."""

    thread_id: uuid.UUID
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveMessage:
    """The text of an open message past an offset.

    Attributes:
        after_sequence: the newest event when the message was begun.
        offset: where `text` begins in the message.
        meta: fields of the event that the message becomes: ``tool_name``, ``subagent_run_id``.
    """

    run: RunKey
    message_id: str
    kind: Kind
    after_sequence: int
    offset: int
    text: str
    meta: Mapping[str, Any] = field(default_factory=dict)


class Watcher(Protocol):
    """A receiver of the pieces of one run."""

    @property
    def run(self) -> RunKey:
        """The run that is watched."""

    def offsets(self) -> Mapping[str, int]:
        """Return how much is known of each open message."""

    def receive(self, messages: Sequence[LiveMessage]) -> None:
        """Receive what is new. Called from the event loop; must return at once and must not raise."""

    def receive_transient(self, content: Mapping[str, Any]) -> None:
        """Receive an event that is not stored: an object with ``type``, as AG-UI has it. As `receive`."""


class DeltaCarrier(Protocol):
    """Carries the pieces of open messages between processes."""

    async def push(
        self,
        run: RunKey,
        message_id: str,
        *,
        kind: Kind,
        offset: int,
        text: str,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a piece at an offset; 0 opens the message, with its `meta`. The same piece again changes nothing.

        Raises:
            StreamLostError: the text so far is lost, because the carrier was restarted.
            StreamTooLongError: the message would be over the carrier's limit.
        """

    async def drop(self, run: RunKey, message_ids: Sequence[str]) -> None:
        """Delete messages that have been stored, or never will be."""

    async def send(self, run: RunKey, content: Mapping[str, Any]) -> None:
        """Deliver an event to the present watchers of a run, once; it is not kept.

        Raises:
            InvalidInputError: it is too long.
        """

    async def read(self, watchers: Sequence[Watcher]) -> list[LiveMessage]:
        """Return what is past the watchers' offsets, in the order in which the messages were begun."""

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Deliver every piece to a watcher, beginning with what is there; returns how to stop."""


class LiveText:
    """One message that is being written. Not thread-safe.

    Attributes:
        encrypted_value: the provider's encrypted reasoning, if the writer sets it; stored with the message.

    A failure of the carrier does not fail the writer: watchers get the text late, at the latest as the stored message.
    """

    def __init__(
        self,
        carrier: DeltaCarrier,
        run: RunKey,
        message_id: str,
        kind: Kind = "text",
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        self.message_id = message_id
        self.run = run
        self.kind = kind
        self.encrypted_value: str | None = None
        self._meta = dict(meta or {})
        self._carrier = carrier
        self._pieces: list[str] = []
        self._waiting: list[str] = []
        self._length = 0
        self._lost = False
        self._flushing: asyncio.Task[None] | None = None

    @property
    def text(self) -> str:
        """Everything that was pushed."""
        return "".join(self._pieces)

    async def push(self, text: str) -> None:
        """Add text. Returns at once, unless the carrier is far behind."""
        text = clean_text(text)
        if not text:
            return
        self._pieces.append(text)
        if self._lost:
            return
        self._waiting.append(text)
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush_soon())
        if sum(map(len, self._waiting)) > _WAITING_MAX:
            await asyncio.wait({self._flushing}, timeout=_CLOSE_SECONDS)

    async def end(self) -> str:
        """Push the rest, within a short time, and return the whole text."""
        if self._flushing is not None:
            await asyncio.wait({self._flushing}, timeout=_CLOSE_SECONDS)
        self.abandon()
        return self.text

    async def drop(self) -> None:
        """Delete the live text, because the message is stored."""
        self.abandon()
        if self._flushing is not None:
            # A push that is under way must not arrive after the message was dropped.
            await asyncio.wait({self._flushing}, timeout=_CLOSE_SECONDS)
        try:
            await self._carrier.drop(self.run, [self.message_id])
        except (PulseError, OSError, TimeoutError) as error:
            # It expires.
            _log.warning("live_text_kept", run_id=self.run.run_id, error=type(error).__name__)

    def abandon(self) -> None:
        """Push nothing more."""
        if self._flushing is not None:
            self._flushing.cancel()

    async def _flush_soon(self) -> None:
        """Push the waiting text at once; then every `COALESCE_SECONDS` what was added since, until nothing was."""
        while self._waiting:
            piece, self._waiting = "".join(self._waiting), []
            began = asyncio.get_running_loop().time()
            try:
                await self._carrier.push(
                    self.run, self.message_id, kind=self.kind, offset=self._length, text=piece, meta=self._meta
                )
                self._length += len(piece)
            except (OSError, TimeoutError) as error:
                self._waiting.insert(0, piece)
                _log.warning("live_text_late", run_id=self.run.run_id, error=type(error).__name__)
            except PulseError as error:
                self._lost = True
                _log.warning("live_text_lost", run_id=self.run.run_id, error=type(error).__name__)
                return
            # Counted from the start of the push, so that a slow carrier does not add to it.
            await asyncio.sleep(max(0.0, began + COALESCE_SECONDS - asyncio.get_running_loop().time()))
