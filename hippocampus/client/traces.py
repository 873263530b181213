"""The calls that read a user's traces."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from hippocampus.client.calls import Calls, plain
from hippocampus.client.records import TraceSpan, pick


class TraceCalls(Calls):
    """Lists and reads traces; there are some only where the installation stores them."""

    async def traces(
        self,
        user_id: str,
        *,
        session_id: str | None = None,
        failed: bool = False,
        min_duration_ms: float = 0,
        page_size: int = 50,
    ) -> AsyncIterator[TraceSpan]:
        """Yield the first span of each trace in each process, the newest first."""
        only = plain({"session_id": session_id, "failed": failed, "min_duration_ms": min_duration_ms})
        async for each in self._pages(self._user(user_id, "traces"), "traces", limit=page_size, **only):
            yield pick(TraceSpan, each)

    async def trace(self, user_id: str, trace_id: str) -> Sequence[TraceSpan]:
        """Read the spans of a trace, and of the jobs that its appends caused, in the order of their start."""
        found = await self._call("GET", self._user(user_id, "traces", trace_id))
        return tuple(pick(TraceSpan, each) for each in found["spans"])
