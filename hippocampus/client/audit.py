"""The call about an app's audit log. It needs a key with the role admin."""

from __future__ import annotations

from collections.abc import AsyncIterator

from hippocampus.client.calls import Calls
from hippocampus.client.records import ActRecord, pick


class AuditCalls(Calls):
    """Lists administrative acts."""

    async def audit(self, *, page_size: int = 100) -> AsyncIterator[ActRecord]:
        """Yield who did what in administration, the newest first."""
        async for each in self._pages(self._app("audit"), "acts", limit=page_size):
            yield pick(ActRecord, each)
