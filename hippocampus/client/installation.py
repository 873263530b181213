"""The calls about the whole installation. They need an all-apps key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from hippocampus.client.calls import Calls
from hippocampus.client.records import KeyRecord, pick


class InstallationCalls(Calls):
    """Reads what the installation does, did and cost, and lists its keys."""

    async def overview(self) -> Mapping[str, Any]:
        """Read what runs, waits and failed, as the API's document describes it."""
        found: Mapping[str, Any] = await self._call("GET", "/api/installation/overview")
        return found

    async def activity(self, *, hours: int = 24, days: int = 7) -> Mapping[str, Any]:
        """Read what happened by the hour, and what models cost by the day and the app."""
        params = {"hours": hours, "days": days}
        found: Mapping[str, Any] = await self._call("GET", "/api/installation/activity", params=params)
        return found

    async def api_keys(self, *, page_size: int = 100) -> AsyncIterator[KeyRecord]:
        """Yield the keys of all apps without their secrets, the newest first; the key needs the role admin."""
        async for each in self._pages("/api/installation/keys", "keys", limit=page_size):
            yield pick(KeyRecord, each)
