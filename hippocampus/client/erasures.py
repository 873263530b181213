"""The calls that trace memories to their events, and erase on request."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from hippocampus.client.calls import Calls
from hippocampus.client.records import Erasure, Forgotten, pick


class ErasureCalls(Calls):
    """Traces and erases. An erasure cannot be undone."""

    async def origin(self, user_id: str, memory_id: str) -> Sequence[Mapping[str, Any]]:
        """Read which events a memory, or each statement of a fact, was extracted from, by which job and model."""
        found = await self._call("GET", self._user(user_id, "memories", memory_id, "origin"))
        return tuple(found["origins"])

    async def drawn_from(self, user_id: str, session_id: str, sequence_num: int) -> Mapping[str, Any]:
        """Read what cites an event, and what was extracted from a slice that contains it."""
        path = self._user(user_id, "sessions", session_id, "events", str(sequence_num), "drawn")
        return dict(await self._call("GET", path))

    async def preview_forgetting(self, user_id: str, what: Forgotten, *, limit: int = 10) -> Mapping[str, int]:
        """Count the rows of each table that would be erased. Nothing is changed."""
        body = {**_forgotten(what), "dry_run": True, "limit": limit}
        found = await self._call("POST", self._user(user_id, "forget"), json=body, is_safe=True)
        return {table["table_name"]: table["rows"] for table in found["would_forget"]}

    async def forget(self, user_id: str, what: Forgotten) -> Erasure:
        """Erase, with everything that was extracted from it. If the erasure is not finished, read `erasure` later."""
        found = await self._call("POST", self._user(user_id, "forget"), json=_forgotten(what))
        return pick(Erasure, found["erasure"])

    async def erasure(self, user_id: str, erasure_id: str) -> Erasure:
        """Read the outcome of an erasure."""
        return pick(Erasure, await self._call("GET", self._user(user_id, "erasures", erasure_id)))


def _forgotten(what: Forgotten) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(what).items() if value}
