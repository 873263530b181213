"""The calls by which people write: remember, correct, retire and confirm memories and facts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, TypedDict, Unpack

from hippocampus.client.calls import Calls, plain
from hippocampus.client.records import Edit, FactType, pick


class WrittenMemoryOptions(TypedDict, total=False):
    """What a memory by hand may have besides its text; see the API's document."""

    name: str
    importance: Literal["high", "medium", "low"]
    metadata: Mapping[str, Any]
    occurred_at: datetime


class ByHandCalls(Calls):
    """Writes memories and facts by hand. `by` is who does it, and is kept with it."""

    async def remember(
        self, user_id: str, content: str, *, by: str | None = None, **more: Unpack[WrittenMemoryOptions]
    ) -> Edit:
        """Store a memory that a person wrote, once; with a name, in place of the one of that name."""
        body = plain({"content": content, "by": by, **more})
        return pick(Edit, await self._call("POST", self._user(user_id, "memories"), json=body))

    async def remember_fact(
        self,
        user_id: str,
        key: str,
        value: Any,
        *,
        fact_type: FactType = "profile",
        since: datetime | None = None,
        by: str | None = None,
    ) -> Edit:
        """State a fact by hand; stated again, it is unchanged."""
        body = {**plain({"fact_type": fact_type, "since": since, "by": by}), "key": key, "value": value}
        return pick(Edit, await self._call("POST", self._user(user_id, "facts"), json=body))

    async def correct(self, user_id: str, memory_id: str, value: Any, *, by: str | None = None) -> Edit:
        """Replace what a memory says, or the value of a fact; a corrected memory has a new id."""
        return await self._change(user_id, memory_id, "correct", {"value": value, "by": by})

    async def retire(self, user_id: str, memory_id: str, *, by: str | None = None) -> Edit:
        """Let a memory no longer be found, or a fact no longer hold; its history stays."""
        return await self._change(user_id, memory_id, "retire", {"by": by})

    async def confirm(self, user_id: str, memory_id: str, *, by: str | None = None) -> Edit:
        """Confirm that a memory or a fact is right."""
        return await self._change(user_id, memory_id, "confirm", {"by": by})

    async def _change(self, user_id: str, memory_id: str, verb: str, body: Mapping[str, Any]) -> Edit:
        return pick(Edit, await self._call("POST", self._user(user_id, "memories", memory_id, verb), json=body))
