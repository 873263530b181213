"""The calls that trace, pin, restore and forget memories, and those about an app's retention."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from hippocampus.client.calls import Calls, plain
from hippocampus.client.records import ArchivedMemory, Erasure, Forgotten, WeakMemory, pick


class CareCalls(Calls):
    """Traces, pins, restores and forgets. What is forgotten does not come back."""

    async def origin(self, user_id: str, memory_id: str) -> Sequence[Mapping[str, Any]]:
        """Read which events a memory, or each statement of a fact, was drawn from, by which job and model."""
        found = await self._call("GET", self._user(user_id, "memories", memory_id, "origin"))
        return tuple(found["origins"])

    async def drawn_from(self, user_id: str, session_id: str, sequence_num: int) -> Mapping[str, Any]:
        """Read what cites an event, and what was drawn from a slice that holds it."""
        path = self._user(user_id, "sessions", session_id, "events", str(sequence_num), "drawn")
        return dict(await self._call("GET", path))

    async def pin(self, user_id: str, memory_id: str) -> bool:
        """Keep a memory: it never fades; return whether that is new."""
        return bool((await self._call("PUT", self._user(user_id, "memories", memory_id, "pin")))["changed"])

    async def unpin(self, user_id: str, memory_id: str) -> bool:
        """Let a memory fade again; return whether it was pinned."""
        return bool((await self._call("DELETE", self._user(user_id, "memories", memory_id, "pin")))["changed"])

    async def explain_retention(self, user_id: str, memory_id: str) -> Mapping[str, Any]:
        """Read a memory's curve, what goes into it, and when it will be too weak."""
        return dict(await self._call("GET", self._user(user_id, "memories", memory_id, "retention")))

    async def archive(self, user_id: str, *, page_size: int = 100) -> AsyncIterator[ArchivedMemory]:
        """Yield what clean-ups have put away, by id."""
        async for each in self._pages(self._user(user_id, "archive"), "memories", limit=page_size):
            yield pick(ArchivedMemory, each)

    async def restore(self, user_id: str, memory_ids: Sequence[str] | None = None) -> tuple[str, ...]:
        """Bring archived memories back, or all of the user's; return those that were there."""
        body = plain({"memory_ids": None if memory_ids is None else list(memory_ids)})
        return tuple((await self._call("POST", self._user(user_id, "archive", "restore"), json=body))["memory_ids"])

    async def preview_forgetting(self, user_id: str, what: Forgotten, *, limit: int = 10) -> Mapping[str, int]:
        """Say how many rows of each table would go. Nothing is changed."""
        body = {**_forgotten(what), "dry_run": True, "limit": limit}
        found = await self._call("POST", self._user(user_id, "forget"), json=body, is_safe=True)
        return {table["table_name"]: table["rows"] for table in found["would_forget"]}

    async def forget(self, user_id: str, what: Forgotten) -> Erasure:
        """Forget for good, with everything that was drawn from it; where it is not finished, ask `erasure` again."""
        found = await self._call("POST", self._user(user_id, "forget"), json=_forgotten(what))
        return pick(Erasure, found["erasure"])

    async def erasure(self, user_id: str, erasure_id: str) -> Erasure:
        """Read what became of a request to forget."""
        return pick(Erasure, await self._call("GET", self._user(user_id, "erasures", erasure_id)))

    async def preview_cleanup(
        self, *, threshold: float | None = None, min_age_days: float | None = None, page_size: int = 100
    ) -> AsyncIterator[WeakMemory]:
        """Yield the memories of the app's users that a clean-up would archive now. Nothing is changed."""
        options = {"threshold": threshold, "min_age_days": min_age_days}
        async for each in self._pages(self._app("retention", "dry-run"), "memories", limit=page_size, **options):
            yield pick(WeakMemory, each)

    async def compare_retention(self, **policy: Any) -> Mapping[str, Any]:
        """Say what another policy would keep of the app's memories; `policy` as in the API's query, such as preset.

        ``differing`` comes in pages: pass ``next_cursor`` as `cursor`, with the same policy.
        """
        return dict(await self._call("GET", self._app("retention", "compare"), params=plain(policy)))


def _forgotten(what: Forgotten) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(what).items() if value}
