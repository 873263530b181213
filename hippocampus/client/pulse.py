"""The calls about the autonomic layer. They need an all-apps key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from hippocampus.client.calls import Calls, plain
from hippocampus.client.records import PulseEvent, pick


class PulseCalls(Calls):
    """Reads what the installation senses, decided and did by itself."""

    async def pulse_status(self, *, scope: str | None = None, limit: int = 20) -> Mapping[str, Any]:
        """Read who leads, the vitals, and the last decisions and ticks, as the API's document describes them."""
        params = plain({"scope": scope, "limit": limit})
        found: Mapping[str, Any] = await self._call("GET", "/api/pulse/status", params=params)
        return found

    async def pulse_events(
        self, *, scope: str | None = None, kind: str | None = None, page_size: int = 100
    ) -> AsyncIterator[PulseEvent]:
        """Yield the record, the newest first, of one kind or of all."""
        async for each in self._pages("/api/pulse/events", "events", limit=page_size, scope=scope, kind=kind):
            yield pick(PulseEvent, each)
