"""The calls about an app's instructions, their proposals, and the styles of fact keys."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal

from hippocampus.client.calls import Calls, plain
from hippocampus.client.records import InstructionRecord, KeyStyleRecord, Proposal, pick


class InstructionCalls(Calls):
    """Reads and changes instructions and styles of keys, and decides on proposals."""

    async def instructions(self, *, page_size: int = 100) -> AsyncIterator[InstructionRecord]:
        """Yield the current instructions, by key."""
        async for each in self._pages(self._app("instructions"), "instructions", limit=page_size):
            yield pick(InstructionRecord, each)

    async def instruction(self, key: str, version: int | None = None) -> InstructionRecord:
        """Read a version of an instruction, by default the newest."""
        params = plain({"version": version})
        return pick(InstructionRecord, await self._call("GET", self._app("instructions", key), params=params))

    async def put_instruction(
        self,
        key: str,
        content: str,
        *,
        metadata: Mapping[str, Any] | None = None,
        expected_version: int | None = None,
    ) -> InstructionRecord:
        """Add a version, which takes effect at once; ConflictError if the newest is not the expected one."""
        body = plain({"content": content, "metadata": metadata, "expected_version": expected_version})
        return pick(InstructionRecord, await self._call("PUT", self._app("instructions", key), json=body))

    async def instruction_history(self, key: str, *, page_size: int = 100) -> AsyncIterator[InstructionRecord]:
        """Yield an instruction's versions, newest first."""
        async for each in self._pages(self._app("instructions", key, "history"), "instructions", limit=page_size):
            yield pick(InstructionRecord, each)

    async def rollback_instruction(
        self, key: str, version: int, *, expected_version: int | None = None
    ) -> InstructionRecord:
        """Restore an old version, as a new one."""
        body = plain({"version": version, "expected_version": expected_version})
        return pick(InstructionRecord, await self._call("POST", self._app("instructions", key, "rollback"), json=body))

    async def proposals(
        self, *, status: Literal["proposed", "approved", "rejected"] | None = None, page_size: int = 100
    ) -> AsyncIterator[Proposal]:
        """Yield the changes of instructions that users' feedback suggests, newest first."""
        path = self._app("instruction-proposals")
        async for each in self._pages(path, "proposals", limit=page_size, status=status):
            yield pick(Proposal, each)

    async def approve_proposal(
        self, proposal_id: str, *, decided_by: str | None = None, force: bool = False
    ) -> Proposal:
        """Approve a proposal; ConflictError if its instruction has changed since, unless `force`."""
        path = self._app("instruction-proposals", proposal_id, "approve")
        return pick(Proposal, await self._call("POST", path, json={"decided_by": decided_by, "force": force}))

    async def reject_proposal(self, proposal_id: str, *, decided_by: str | None = None) -> Proposal:
        """Reject a proposal. The same request of the same user is not proposed again."""
        path = self._app("instruction-proposals", proposal_id, "reject")
        return pick(Proposal, await self._call("POST", path, json={"decided_by": decided_by}))

    async def fact_styles(self, *, page_size: int = 100) -> AsyncIterator[KeyStyleRecord]:
        """Yield the styles of fact keys, for the app and for every app."""
        async for each in self._pages(self._app("fact-styles"), "styles", limit=page_size):
            yield pick(KeyStyleRecord, each)

    async def set_fact_style(self, fact_type: str, key: str, style: Literal["profile", "collection"]) -> KeyStyleRecord:
        """Set whether a key, in any spelling, holds one value or several, from the next statement on."""
        path = self._app("fact-styles", fact_type, key)
        return pick(KeyStyleRecord, await self._call("PUT", path, json={"style": style}))

    async def reset_fact_style(self, fact_type: str, key: str) -> None:
        """Remove a key's style, so that it follows that of every app; NotFoundError if it has none."""
        await self._call("DELETE", self._app("fact-styles", fact_type, key))
