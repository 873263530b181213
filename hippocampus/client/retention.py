"""The calls that pin, explain, archive and restore memories, and preview what a policy would do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from hippocampus.client.calls import Calls, plain
from hippocampus.client.records import ArchivedMemory, WeakMemory, pick


class RetentionCalls(Calls):
    """Pins, explains and restores memories, and previews clean-ups."""

    async def pin(self, user_id: str, memory_id: str) -> bool:
        """Pin a memory, so that it never decays; return whether that changed it."""
        return bool((await self._call("PUT", self._user(user_id, "memories", memory_id, "pin")))["changed"])

    async def unpin(self, user_id: str, memory_id: str) -> bool:
        """Unpin a memory, so that it decays again; return whether it was pinned."""
        return bool((await self._call("DELETE", self._user(user_id, "memories", memory_id, "pin")))["changed"])

    async def explain_retention(self, user_id: str, memory_id: str) -> Mapping[str, Any]:
        """Read a memory's curve, its parameters, and when it will be too weak."""
        return dict(await self._call("GET", self._user(user_id, "memories", memory_id, "retention")))

    async def archive(self, user_id: str, *, page_size: int = 100) -> AsyncIterator[ArchivedMemory]:
        """Yield the memories that clean-ups archived, by id."""
        async for each in self._pages(self._user(user_id, "archive"), "memories", limit=page_size):
            yield pick(ArchivedMemory, each)

    async def restore(self, user_id: str, memory_ids: Sequence[str] | None = None) -> tuple[str, ...]:
        """Restore archived memories, by default all of the user's; return those that were in the archive."""
        body = plain({"memory_ids": None if memory_ids is None else list(memory_ids)})
        return tuple((await self._call("POST", self._user(user_id, "archive", "restore"), json=body))["memory_ids"])

    async def preview_cleanup(
        self, *, threshold: float | None = None, min_age_days: float | None = None, page_size: int = 100
    ) -> AsyncIterator[WeakMemory]:
        """Yield the memories of the app's users that a clean-up would archive now. Nothing is changed."""
        options = {"threshold": threshold, "min_age_days": min_age_days}
        async for each in self._pages(self._app("retention", "dry-run"), "memories", limit=page_size, **options):
            yield pick(WeakMemory, each)

    async def compare_retention(self, **policy: Any) -> Mapping[str, Any]:
        """Report what another policy would keep of the app's memories; `policy` as in the API's query, such as preset.

        ``differing`` is paged: pass ``next_cursor`` as `cursor`, with the same policy.
        """
        return dict(await self._call("GET", self._app("retention", "compare"), params=plain(policy)))
