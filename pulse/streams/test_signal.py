"""A notification on demand, to see that streams are alive: whoever follows the run it names gets an event RAW."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from ag_ui.core import RawEvent

from pulse.agui.frames import Frame
from pulse.pg_notify_listener import PgNotifyListener
from pulse.postgres.statements import load_queries
from pulse.streams.run_streams import RunStreams

if TYPE_CHECKING:
    from pulse.database import Pool

_CHANNEL = "agent_tests"


class StreamTests:
    """Sends test notifications, and hands on those that arrive. Make it before its listener starts."""

    def __init__(self, pool: Pool, listener: PgNotifyListener, streams: RunStreams) -> None:
        self._pool = pool
        self._streams = streams
        self._statement = load_queries("pulse", "streams.sql")["notify_test"]
        listener.add_channel(_CHANNEL, self._hear, lambda: None)

    async def send(self, **named: str) -> str:
        """Notify every process of a test for a thread (`thread_id`) or a run (`run_id`); returns the payload."""
        payload = json.dumps({**named, "event_type": "test"}, ensure_ascii=False)
        await self._pool.execute(self._statement, _CHANNEL, payload)
        return payload

    def _hear(self, payload: str) -> None:
        with contextlib.suppress(ValueError, AttributeError):
            named: dict[str, Any] = json.loads(payload)
            # Without an id: it has no place in the stream, and nobody comes back to it.
            frame = Frame("", RawEvent(event=named, source="hippocampus:test"))
            self._streams.tell(named.get("thread_id"), named.get("run_id"), frame)
