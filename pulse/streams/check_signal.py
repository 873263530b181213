"""A notification on demand, to check streams: the followers of the run or session that it names get an event RAW."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from pulse.agui import types as agui
from pulse.agui.frames import Frame
from pulse.pg_notify_listener import PgNotifyListener
from pulse.postgres.statements import Statements
from pulse.streams.run_streams import RunStreams

if TYPE_CHECKING:
    from pulse.database import Pool

_CHANNEL = "agent_tests"
_STATEMENTS = Statements("pulse.streams", "streams.sql")


class StreamTests:
    """Sends test notifications, and forwards those that arrive. Create it before its listener starts."""

    def __init__(self, pool: Pool, listener: PgNotifyListener, streams: RunStreams) -> None:
        self._pool = pool
        self._streams = streams
        listener.add_channel(_CHANNEL, self._receive, lambda: None)

    async def send(self, **target: str) -> str:
        """Notify every process of a test for a thread (`thread_id`) or a run (`run_id`); returns the payload."""
        payload = json.dumps({**target, "event_type": "test"}, ensure_ascii=False)
        await _STATEMENTS.execute(self._pool, "notify_test", _CHANNEL, payload)
        return payload

    def _receive(self, payload: str) -> None:
        with contextlib.suppress(ValueError, AttributeError):
            test: dict[str, Any] = json.loads(payload)
            # Without an id: it has no position in the stream, and no client resumes from it.
            frame = Frame("", agui.RawEvent(event=test, source="hippocampus:test"))
            self._streams.send(test.get("thread_id"), test.get("run_id"), frame)
